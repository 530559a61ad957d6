//! Reads and writes the daemon's files, in the process that has access to them.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use control::{DaemonArgs, FileError, KnownPeer, KnownPeers, LinkHistories};
use rules::{LearnedEntry, RulesTable, Settings, TrafficTable};

use super::ArchiveError;
use crate::control_server::make_directory;
use crate::peer_keys::PeerKeys;

/// Limit on the attempts to lock the file of known peers, which another daemon may be writing.
const LOCK_TRIES: u32 = 100;
/// Pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// State of a file: its inode number, and its modification time in seconds and nanoseconds.
pub(crate) type Stamp = (u64, i64, i64);

/// Contents of the configuration, rules and key files.
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    pub(crate) table: RulesTable,
    pub(crate) keys: PeerKeys,
}

/// The locations of the files.
#[derive(Clone)]
pub(crate) struct Files {
    args: Arc<DaemonArgs>,
}

impl From<FileError> for ArchiveError {
    fn from(error: FileError) -> ArchiveError {
        ArchiveError::Failed(error.to_string())
    }
}

impl Files {
    pub(super) fn new(args: &DaemonArgs) -> Files {
        Files { args: Arc::new(args.clone()) }
    }

    pub(super) fn load(&self) -> Result<Loaded, ArchiveError> {
        let (settings, table, keys) = self.texts()?;
        let keys = PeerKeys::parse(&settings.peer_keys, &keys).map_err(refused)?;
        Ok(Loaded { settings, table, keys })
    }

    /// Reads the same files as `load`, but returns the keys as the text of their file. This text has been validated.
    pub(super) fn texts(&self) -> Result<(Settings, RulesTable, String), ArchiveError> {
        let settings = control::load_config(&self.args.config)?;
        let keys = control::read_peer_keys(&settings.peer_keys).map_err(refused)?;
        PeerKeys::parse(&settings.peer_keys, &keys).map_err(refused)?;
        let mut table = control::load_rules(&self.args.rules_file())?;
        table.declare(&settings.rules).map_err(|error| {
            let (config, rules) = (self.args.config.display(), self.args.rules_file());
            refused(format!("{config} and {} together: {error}", rules.display()))
        })?;
        Ok((settings, table, keys))
    }

    pub(super) fn set(&self, name: &str, value: &str) -> Result<(), ArchiveError> {
        Ok(control::save_setting(&self.args.config, name, value)?)
    }

    pub(super) fn save_rules(&self, table: &RulesTable) -> Result<(), ArchiveError> {
        Ok(control::save_rules(&self.args.rules_file(), table)?)
    }

    pub(super) fn save_learned<'a>(
        &self,
        entries: impl Iterator<Item = &'a LearnedEntry>,
    ) -> Result<(), ArchiveError> {
        Ok(control::save_learned(&self.args.learned_file(), entries)?)
    }

    pub(super) fn save_traffic(&self, table: &TrafficTable) -> Result<(), ArchiveError> {
        Ok(control::save_traffic(&self.args.traffic_file(), table)?)
    }

    pub(super) fn save_history(&self, links: &LinkHistories) -> Result<(), ArchiveError> {
        Ok(control::save_history(&self.args.history_file(), links)?)
    }

    pub(super) fn save_peers<'a>(
        &self,
        peers: impl Iterator<Item = &'a KnownPeer>,
    ) -> Result<(), ArchiveError> {
        Ok(control::save_peers(&self.args.peers_file(), peers)?)
    }

    /// Writes the changes of `peers` since `base` into the file of known peers. Entries of other daemons stay, because daemons of the same
    /// user share this file. Returns the merged peers and the state of the file.
    pub(super) fn merge_peers(
        &self,
        peers: &KnownPeers,
        base: &KnownPeers,
    ) -> Result<(KnownPeers, Option<Stamp>), ArchiveError> {
        let path = self.args.peers_file();
        let _lock = lock_beside(&path)?;
        let file = control::load_peers(&path).map_err(|error| ArchiveError::Failed(error.to_string()))?;
        if file.iter().len() == 0 && base.iter().len() > 0 && !path.exists() {
            tracing::warn!(file = %path.display(), "the file of known peers is gone, and is written again");
            self.save_peers(peers.iter())?;
            return Ok((peers.clone(), self.peers_stamp()));
        }
        let merged = peers.merged(base, file.clone());
        if !merged.iter().eq(file.iter()) {
            self.save_peers(merged.iter())?;
        }
        Ok((merged, self.peers_stamp()))
    }

    /// Returns the state of the file of known peers, which changes with every write.
    pub(super) fn peers_stamp(&self) -> Option<Stamp> {
        let status = std::fs::metadata(self.args.peers_file()).ok()?;
        Some((status.ino(), status.mtime(), status.mtime_nsec()))
    }
}

/// Locks a file against other daemons until the returned lock is dropped.
fn lock_beside(path: &Path) -> Result<File, ArchiveError> {
    let path = path.with_extension("lock");
    let failed = |error: io::Error| ArchiveError::Failed(format!("{}: {error}", path.display()));
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(false).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
    let file = open.open(&path).map_err(failed)?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    Err(failed(io::Error::other("another daemon does not release it")))
}

fn refused(error: impl ToString) -> ArchiveError {
    ArchiveError::Refused(error.to_string())
}

/// Creates the directories for files that are written later. These directories must exist before the process is confined.
pub(crate) fn prepare_directories(args: &DaemonArgs) -> anyhow::Result<()> {
    for directory in [Some(args.state_dir.as_path()), args.config.parent()].into_iter().flatten() {
        if let Err(error) = make(directory) {
            tracing::warn!(directory = %directory.display(), %error, "nothing can be stored there");
        }
    }
    make_directory(&args.control)
}

fn make(directory: &Path) -> io::Result<()> {
    if directory.as_os_str().is_empty() { Ok(()) } else { std::fs::create_dir_all(directory) }
}
