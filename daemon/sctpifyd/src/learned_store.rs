//! Shares the learned table between threads, and keeps the table's file. The shard adds and uses entries. The control server
//! shows and clears entries.
//!
//! A separate thread writes the file, so the event loop never waits for a disk. If the file cannot be read or written, the
//! error is logged. Then only entries that the daemon can learn again are lost. If SIGKILL ends the daemon, the changes of the
//! last [`SAVE_PAUSE`] may be lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::{DaemonArgs, load_learned};
use rules::{LearnedEntry, LearnedTable};

use crate::archive::Archive;
use crate::clock::today;
use crate::shared_store::SharedStore;

/// Interval at which changes are written.
const SAVE_PAUSE: Duration = Duration::from_secs(5);

/// Handle to the process's learned table.
#[derive(Clone)]
pub(crate) struct LearnedStore {
    table: Arc<Mutex<LearnedTable>>,
    archive: Archive,
    /// Lock that is held while the file is written. Its value is true if the last write failed.
    failing: Arc<Mutex<bool>>,
}

impl LearnedStore {
    /// Loads the entries that an earlier daemon learned. Unreadable entries are left out, with a warning.
    pub(crate) fn load(args: &DaemonArgs, archive: Archive) -> LearnedStore {
        let (table, complaint) = load_learned(&args.learned_file());
        if let Some(complaint) = complaint {
            tracing::warn!("learned table: {complaint}; missing entries are learned again");
        }
        LearnedStore { table: Arc::new(Mutex::new(table)), archive, failing: Arc::default() }
    }

    /// Creates a store without a file.
    #[cfg(test)]
    pub(crate) fn empty() -> LearnedStore {
        let args = <DaemonArgs as clap::Parser>::parse_from(["sctpifyd"]);
        LearnedStore { table: Arc::default(), archive: Archive::own(&args), failing: Arc::default() }
    }

    /// Locks the table. Callers must hold the lock only briefly, because the shard waits for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, LearnedTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes changes to the file every [`SAVE_PAUSE`] until the process ends. Also exchanges entries with the shared store, if
    /// the settings name one.
    pub(crate) fn keep(&self, mut shared: Option<SharedStore>) {
        loop {
            std::thread::sleep(SAVE_PAUSE);
            if let Some(shared) = &mut shared {
                shared.exchange(&self.table, today());
            }
            self.save();
        }
    }

    /// Writes changes to the file. Of consecutive failures, logs only the first. Changes that were not written are written by
    /// the next call.
    pub(crate) fn save(&self) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let entries: Vec<LearnedEntry> = {
            let mut table = self.lock();
            if !table.take_changed() && !*failing {
                return;
            }
            table.iter().cloned().collect()
        };
        match self.archive.save_learned(entries.iter()) {
            Ok(()) => *failing = false,
            Err(error) => {
                if !*failing {
                    tracing::warn!(%error, "cannot write the learned table; retrying");
                }
                *failing = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use clap::Parser;
    use rules::{Failure, LearnPolicy, Settings};

    use super::*;
    use crate::clock::today;

    fn store(state_dir: PathBuf) -> LearnedStore {
        let mut args = DaemonArgs::parse_from(["sctpifyd"]);
        args.state_dir = state_dir;
        LearnedStore { table: Arc::default(), archive: Archive::own(&args), failing: Arc::default() }
    }

    fn learn(store: &LearnedStore, last: u8) {
        let to = ([192, 0, 2, last], 22).into();
        store.lock().on_failure(today(), to, Failure::NoAnswer, &LearnPolicy::of(&Settings::default()));
    }

    fn entries_in(path: &Path) -> usize {
        load_learned(path).0.len()
    }

    #[test]
    fn a_failed_write_is_repeated_by_the_next_save() {
        let dir = tempfile::tempdir().expect("a directory");
        let in_the_way = dir.path().join("state");
        std::fs::write(&in_the_way, "a file").expect("written");
        let store = store(in_the_way.clone());
        learn(&store, 1);
        store.save();
        assert_eq!(entries_in(&in_the_way.join("learned")), 0);
        std::fs::remove_file(&in_the_way).expect("removed");
        store.save();
        assert_eq!(entries_in(&in_the_way.join("learned")), 1, "though nothing has changed since");
    }

    #[test]
    fn the_table_is_written_only_after_a_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, path) = (store(dir.path().into()), dir.path().join("learned"));
        learn(&store, 1);
        store.save();
        std::fs::remove_file(&path).expect("removed");
        store.save();
        assert!(!path.exists());
        learn(&store, 2);
        store.save();
        assert_eq!(entries_in(&path), 2);
    }
}
