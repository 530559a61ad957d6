//! Reads and writes the daemon's files: configuration, rules, keys, learned entries and known peers; signs with the host's key.
//!
//! The supervisor does this, because it stays root and reads no packets. The worker sends it requests
//! ([`words`]) over the socket that is the worker's standard input ([`line`] is its end, [`server`] the
//! other). A daemon without a supervisor accesses the files itself.
//!
//! An intruder would control the worker, so the supervisor refuses root-only settings
//! ([`rules::Setting::is_roots`]), rules, learned tables and known peers that do not parse, contents
//! that are no handshake of TLS 1.3, and unknown or overlong requests. It opens no path that the worker names. Begin with [`Archive`].

mod files;
mod host_key;
mod line;
mod server;
mod words;

use std::sync::Arc;

use control::{DaemonArgs, KnownPeers};
use rules::{LearnedEntry, RulesTable, Setting};

pub(crate) use files::{Loaded, Stamp, prepare_directories};
pub(crate) use host_key::{Signer, load_or_make};
pub(crate) use line::Listener;
pub(crate) use server::serve;

use files::Files;
use line::Line;
use words::Ask;

/// The reason why a file was not read or written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ArchiveError {
    /// The request is invalid or not allowed; the text gives the reason.
    Refused(String),
    /// A file could not be read or written.
    Failed(String),
}

impl std::fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ArchiveError::Refused(text) | ArchiveError::Failed(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for ArchiveError {}

/// A handle to the daemon's files.
#[derive(Clone)]
pub(crate) enum Archive {
    /// This process reads and writes them.
    Own(Files),
    /// The supervisor reads and writes them.
    Asked(Arc<Line>),
}

impl Archive {
    /// Returns the archive of a daemon without a supervisor.
    pub(crate) fn own(args: &DaemonArgs) -> Archive {
        Archive::Own(Files::new(args))
    }

    /// Returns the archive of a worker, whose standard input leads to its supervisor. The caller must run the
    /// listener.
    pub(crate) fn of_supervisor() -> std::io::Result<(Archive, Listener)> {
        let (line, listener) = Line::of_standard_input()?;
        Ok((Archive::Asked(Arc::new(line)), listener))
    }

    /// Reads configuration, rules and keys; returns them only if all are valid.
    pub(crate) fn load(&self) -> Result<Loaded, ArchiveError> {
        match self {
            Archive::Own(files) => files.load(),
            Archive::Asked(line) => line.load(),
        }
    }

    /// Changes one setting in the configuration file.
    pub(crate) fn set(&self, setting: &Setting, value: &str) -> Result<(), ArchiveError> {
        match self {
            Archive::Own(files) => files.set(setting.name, value),
            Archive::Asked(line) => line.tell(Ask::Set { name: setting.name.into(), value: value.into() }),
        }
    }

    /// Writes the rules file.
    pub(crate) fn save_rules(&self, table: &RulesTable) -> Result<(), ArchiveError> {
        match self {
            Archive::Own(files) => files.save_rules(table),
            Archive::Asked(line) => line.tell(Ask::Rules { text: rules::print_table(table) }),
        }
    }

    /// Writes the file of learned entries.
    pub(crate) fn save_learned<'a>(
        &self,
        entries: impl Iterator<Item = &'a LearnedEntry>,
    ) -> Result<(), ArchiveError> {
        match self {
            Archive::Own(files) => files.save_learned(entries),
            Archive::Asked(line) => {
                let text = control::print_learned(entries);
                let text = text.map_err(|error| ArchiveError::Failed(error.to_string()))?;
                line.tell(Ask::Learned { text })
            }
        }
    }

    /// Writes what the known peers have changed since `base`, the state of the file before; returns the file's peers, and its state
    /// as [`Archive::peers_stamp`] does. Only daemons without a supervisor share the file with others.
    pub(crate) fn merge_peers(
        &self,
        peers: &KnownPeers,
        base: &KnownPeers,
    ) -> Result<(KnownPeers, Option<Stamp>), ArchiveError> {
        match self {
            Archive::Own(files) => files.merge_peers(peers, base),
            Archive::Asked(line) => {
                let text = control::print_peers(peers.iter());
                let text = text.map_err(|error| ArchiveError::Failed(error.to_string()))?;
                line.tell(Ask::Peers { text })?;
                Ok((peers.clone(), None))
            }
        }
    }

    /// Returns what tells one state of the peers' file from another, if other daemons may write it.
    pub(crate) fn peers_stamp(&self) -> Option<Stamp> {
        match self {
            Archive::Own(files) => files.peers_stamp(),
            Archive::Asked(_) => None,
        }
    }

    /// Returns the signer with the host's key; reads or makes the key if this process holds it itself.
    pub(crate) fn signer(&self, args: &DaemonArgs) -> Signer {
        match self {
            Archive::Own(_) => Signer::own(args),
            Archive::Asked(line) => Signer::Asked(line.clone()),
        }
    }
}
