//! Reads and writes the daemon's files: configuration, rules, keys, learned entries, traffic and history of links, and known peers. Signs with the host key.
//!
//! The supervisor performs these operations, because it stays root and reads no packets. The worker sends requests ([`words`]) to the
//! supervisor over a socket, which is the worker's standard input. The worker's end is [`line`]; the supervisor's end is [`server`]. A
//! daemon without a supervisor accesses the files itself.
//!
//! An intruder in the worker could send any request, so the supervisor opens no path that the worker names. The supervisor also refuses:
//!
//! - changes of root-only settings ([`rules::Setting::is_roots`]);
//! - rules, learned tables, traffic and history of links, and known peers that do not parse;
//! - signatures over contents that are not a TLS 1.3 handshake;
//! - unknown or overlong requests.
//!
//! Begin with [`Archive`].

mod files;
mod host_key;
mod line;
mod server;
mod words;

use std::sync::Arc;

use control::{DaemonArgs, KnownPeers, LinkHistories};
use rules::{LearnedEntry, RulesTable, Setting, TrafficTable};

pub(crate) use files::{Loaded, Stamp, prepare_directories};
pub(crate) use host_key::Signer;
pub(crate) use line::Listener;
pub(crate) use server::serve;

use files::Files;
use line::Line;
use words::Ask;

/// Error of an operation on the daemon's files or on the host key.
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
    /// This process reads and writes the files.
    Own(Files),
    /// The supervisor reads and writes the files.
    Asked(Arc<Line>),
}

impl Archive {
    /// Returns the archive of a daemon without a supervisor.
    pub(crate) fn own(args: &DaemonArgs) -> Archive {
        Archive::Own(Files::new(args))
    }

    /// Returns the archive of a worker. The worker's standard input is connected to its supervisor. The caller must run the listener.
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
                let text = printed(control::print_learned(entries))?;
                line.tell(Ask::Learned { text })
            }
        }
    }

    /// Writes the file with the monthly traffic of links.
    pub(crate) fn save_traffic(&self, table: &TrafficTable) -> Result<(), ArchiveError> {
        match self {
            Archive::Own(files) => files.save_traffic(table),
            Archive::Asked(line) => {
                let text = printed(control::print_traffic(table))?;
                line.tell(Ask::Traffic { text })
            }
        }
    }

    /// Writes the file with the history of links.
    pub(crate) fn save_history(&self, links: &LinkHistories) -> Result<(), ArchiveError> {
        match self {
            Archive::Own(files) => files.save_history(links),
            Archive::Asked(line) => {
                let text = printed(control::print_history(links))?;
                line.tell(Ask::History { text })
            }
        }
    }

    /// Writes the changes of the known peers since `base`, the last known content of the file. Returns the merged peers, and the file's
    /// state from [`Archive::peers_stamp`]. Only daemons without a supervisor share the file with other daemons. With a supervisor, `peers`
    /// therefore replaces the whole file.
    pub(crate) fn merge_peers(
        &self,
        peers: &KnownPeers,
        base: &KnownPeers,
    ) -> Result<(KnownPeers, Option<Stamp>), ArchiveError> {
        match self {
            Archive::Own(files) => files.merge_peers(peers, base),
            Archive::Asked(line) => {
                let text = printed(control::print_peers(peers.iter()))?;
                line.tell(Ask::Peers { text })?;
                Ok((peers.clone(), None))
            }
        }
    }

    /// Returns the state of the file of known peers, or `None` if no other daemon writes this file.
    pub(crate) fn peers_stamp(&self) -> Option<Stamp> {
        match self {
            Archive::Own(files) => files.peers_stamp(),
            Archive::Asked(_) => None,
        }
    }

    /// Returns the signer with the host key. If this process holds the key itself, reads or makes the key.
    pub(crate) fn signer(&self, args: &DaemonArgs) -> Signer {
        match self {
            Archive::Own(_) => Signer::own(args),
            Archive::Asked(line) => Signer::Asked(line.clone()),
        }
    }
}

/// Returns the text of a file, unless its entries could not be printed.
fn printed(text: std::io::Result<String>) -> Result<String, ArchiveError> {
    text.map_err(|error| ArchiveError::Failed(error.to_string()))
}
