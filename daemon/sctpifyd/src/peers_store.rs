//! The known peers, shared by the shard (which meets and recognises them) and the control server (which shows and forgets them), and
//! their file.
//!
//! A separate thread writes the file, so the event loop never waits for a disk. A file that cannot be read stops a daemon that
//! encrypts: without it any key would pass. SIGKILL loses up to [`SAVE_PAUSE`] of changes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use control::{DaemonArgs, KnownPeer, KnownPeers, load_peers};
use rules::Settings;

use crate::archive::{Archive, ArchiveError};

/// Interval at which changes are written.
const SAVE_PAUSE: Duration = Duration::from_secs(1);

/// A handle to the known peers.
#[derive(Clone)]
pub(crate) struct PeersStore {
    peers: Arc<Mutex<KnownPeers>>,
    archive: Archive,
    /// Held while the file is written; true if the last write failed.
    failing: Arc<Mutex<bool>>,
}

impl PeersStore {
    /// Loads the peers that an earlier daemon knew.
    ///
    /// # Errors
    /// When the file cannot be read and the settings ask for encryption.
    pub(crate) fn load(args: &DaemonArgs, settings: &Settings, archive: Archive) -> Result<PeersStore> {
        let peers = match load_peers(&args.peers_file()) {
            Ok(peers) => peers,
            Err(error) if settings.encryption.is_offered() => bail!("known peers: {error}"),
            Err(error) => {
                tracing::warn!("known peers: {error}");
                KnownPeers::default()
            }
        };
        Ok(PeersStore { peers: Arc::new(Mutex::new(peers)), archive, failing: Arc::default() })
    }

    /// Locks the peers. Hold it for moments only: the shard waits for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, KnownPeers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes changes periodically, until the process ends.
    pub(crate) fn keep(&self) {
        loop {
            std::thread::sleep(SAVE_PAUSE);
            // A failure is logged there, and the next round tries again.
            let _ = self.save();
        }
    }

    /// Writes changes. Repeated failures are logged once; unwritten changes are written next time.
    pub(crate) fn save(&self) -> Result<(), ArchiveError> {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let peers: Vec<KnownPeer> = {
            let mut peers = self.lock();
            if !peers.take_changed() && !*failing {
                return Ok(());
            }
            peers.iter().cloned().collect()
        };
        let saved = self.archive.save_peers(peers.iter());
        if let Err(error) = &saved
            && !*failing
        {
            tracing::warn!(%error, "cannot write the known peers; retrying");
        }
        *failing = saved.is_err();
        saved
    }
}
