//! The learned table, shared by the shard (which learns and heeds it) and the control server (which shows and clears it),
//! and its file.
//!
//! A thread of its own writes the file, so the event loop never waits for a disk. A file that cannot be read or written
//! is told of, and costs only what it held: everything can be learned again. After SIGKILL up to [`SAVE_PAUSE`] is lost.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::{DaemonArgs, load_learned, save_learned};
use rules::{LearnedEntry, LearnedTable};

/// How often what has changed is written.
const SAVE_PAUSE: Duration = Duration::from_secs(5);

/// A handle to the one learned table.
#[derive(Clone)]
pub(crate) struct LearnedStore {
    table: Arc<Mutex<LearnedTable>>,
    path: PathBuf,
    /// Held while the file is written; whether the last time failed.
    failing: Arc<Mutex<bool>>,
}

impl LearnedStore {
    /// Loads what an earlier daemon has learned, as far as it can be read.
    pub(crate) fn load(args: &DaemonArgs) -> LearnedStore {
        let path = args.learned_file();
        let (table, complaint) = load_learned(&path);
        if let Some(complaint) = complaint {
            tracing::warn!("learned table: {complaint}; what is missing is learned again");
        }
        LearnedStore { table: Arc::new(Mutex::new(table)), path, failing: Arc::default() }
    }

    /// The table, locked. Held for moments only: the shard waits for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, LearnedTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes changes now and then, until the process ends.
    pub(crate) fn keep(&self) {
        loop {
            std::thread::sleep(SAVE_PAUSE);
            self.save();
        }
    }

    /// Writes what has changed. A failure is told of once, until it has passed; the changes are written next time.
    pub(crate) fn save(&self) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let entries: Vec<LearnedEntry> = {
            let mut table = self.lock();
            if !table.take_changed() && !*failing {
                return;
            }
            table.iter().cloned().collect()
        };
        match save_learned(&self.path, entries.iter()) {
            Ok(()) => *failing = false,
            Err(error) => {
                if !*failing {
                    tracing::warn!(%error, "the learned table cannot be written; it is tried again");
                }
                *failing = true;
            }
        }
    }
}
