//! Shares the known peers between threads, and keeps their file. The shard adds and looks up peers. The control server lists
//! and removes peers. Begin with [`PeersStore`].
//!
//! A separate thread writes the file, so the event loop never waits for a disk. The daemons of one user's `sctpify run`
//! commands share the file. Each daemon writes its own changes into the file, and reads the other daemons' changes from the
//! file. A daemon with encryption does not start if it cannot read the file, because it would accept any key. If SIGKILL ends
//! the daemon, the changes of the last [`SAVE_PAUSE`] may be lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use control::{DaemonArgs, KnownPeers, load_peers};
use rules::Settings;

use crate::archive::{Archive, ArchiveError, Stamp};

/// Interval at which changes are written.
const SAVE_PAUSE: Duration = Duration::from_secs(1);

/// Handle to the known peers.
#[derive(Clone)]
pub(crate) struct PeersStore {
    peers: Arc<Mutex<KnownPeers>>,
    archive: Archive,
    /// Locked while the file is written.
    file_state: Arc<Mutex<FileState>>,
}

/// State of the file at this daemon's last read or write.
struct FileState {
    peers: KnownPeers,
    /// Stamp of the file, which changes if another daemon writes it; `None` if the file does not exist.
    stamp: Option<Stamp>,
    /// True if the last write failed.
    is_failing: bool,
}

impl PeersStore {
    /// Loads the peers that an earlier daemon knew.
    ///
    /// # Errors
    /// Fails if the file cannot be read and the settings offer encryption.
    pub(crate) fn load(args: &DaemonArgs, settings: &Settings, archive: Archive) -> Result<PeersStore> {
        let stamp = archive.peers_stamp();
        let peers = match load_peers(&args.peers_file()) {
            Ok(peers) => peers,
            Err(error) if settings.encryption.is_offered() => bail!("known peers: {error}"),
            Err(error) => {
                tracing::warn!("known peers: {error}");
                KnownPeers::default()
            }
        };
        let file_state = FileState { peers: peers.clone(), stamp, is_failing: false };
        Ok(PeersStore {
            peers: Arc::new(Mutex::new(peers)),
            archive,
            file_state: Arc::new(Mutex::new(file_state)),
        })
    }

    /// Locks the peers. Callers must hold the lock only briefly, because the event loop waits for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, KnownPeers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes changes to the file every [`SAVE_PAUSE`] until the process ends.
    pub(crate) fn keep(&self) {
        loop {
            std::thread::sleep(SAVE_PAUSE);
            // `save` logs a failure, and the next round retries.
            let _ = self.save();
        }
    }

    /// Writes changes to the file, and reads the changes of other daemons. Of consecutive failures, logs only the first.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written. The next call writes the changes again.
    pub(crate) fn save(&self) -> Result<(), ArchiveError> {
        let mut file = self.file_state.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.archive.peers_stamp();
        let peers = {
            let mut peers = self.lock();
            if !peers.take_changed() && !file.is_failing && stamp == file.stamp {
                return Ok(());
            }
            peers.clone()
        };
        match self.archive.merge_peers(&peers, &file.peers) {
            Ok((merged, stamp)) => {
                let mut now = self.lock();
                *now = now.merged(&peers, merged.clone());
                *file = FileState { peers: merged, stamp, is_failing: false };
                Ok(())
            }
            Err(error) => {
                if !std::mem::replace(&mut file.is_failing, true) {
                    tracing::warn!(%error, "cannot write the known peers; retrying");
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use control::HostKeyText;
    use rules::UnixMs;

    use super::*;

    #[test]
    fn daemons_that_share_a_file_know_each_others_peers_and_lose_none() {
        let dir = tempfile::tempdir().unwrap();
        let args = DaemonArgs { state_dir: dir.path().into(), ..DaemonArgs::parse_from(["sctpifyd"]) };
        let store = || PeersStore::load(&args, &Settings::default(), Archive::own(&args)).unwrap();
        let key = |digit: &str| format!("sctpify1:{}", digit.repeat(43)).parse::<HostKeyText>().unwrap();
        let (one, two) = (store(), store());
        one.lock().meet(UnixMs(1), [10, 0, 0, 1].into(), &key("A"));
        two.lock().meet(UnixMs(1), [10, 0, 0, 2].into(), &key("B"));
        for store in [&one, &two, &one] {
            store.save().unwrap();
        }
        for store in [&one, &two, &store()] {
            assert_eq!(store.lock().iter().len(), 2);
        }
        one.lock().forget("10.0.0.2").unwrap();
        for store in [&one, &two] {
            store.save().unwrap();
        }
        assert!(two.lock().find([10, 0, 0, 2].into()).is_none(), "forgotten by the other one");
        std::fs::remove_file(args.peers_file()).unwrap();
        one.save().unwrap();
        assert!(store().lock().find([10, 0, 0, 1].into()).is_some(), "a lost file is written again");
        std::fs::write(args.peers_file(), "damaged").unwrap();
        two.lock().meet(UnixMs(1), [10, 0, 0, 3].into(), &key("C"));
        two.save().unwrap_err();
        assert_eq!(
            std::fs::read_to_string(args.peers_file()).unwrap(),
            "damaged",
            "a damaged file is not overwritten"
        );
        std::fs::remove_file(args.peers_file()).unwrap();
        two.save().unwrap();
        assert!(store().lock().find([10, 0, 0, 3].into()).is_some());
    }
}
