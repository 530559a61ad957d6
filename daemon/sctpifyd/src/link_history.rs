//! Keeps the history of this host's links, and its file.
//!
//! A separate thread asks the shard for the counts of all links at the end of each minute. It writes the file every ten minutes, and the
//! daemon writes it once more before it ends. If SIGKILL ends the daemon, up to ten minutes are lost. A daemon for one command keeps its
//! history in memory, because several such daemons share one state directory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::{DaemonArgs, HistoryReport, LinkHistories, LinkReading};

use crate::archive::Archive;
use crate::clock::today;
use crate::commands::{Command, Handle};
use crate::survey::Question;

/// Interval of the readings, in milliseconds. A reading is due when the time since 1970 is a multiple of it.
const READ_EVERY_MS: u64 = 60_000;
/// Number of readings between two writes of the file.
const READINGS_PER_WRITE: u32 = 10;

/// Handle to the history.
#[derive(Clone)]
pub(crate) struct LinkHistoryStore {
    links: Arc<Mutex<LinkHistories>>,
    /// `None` if the history has no file.
    archive: Option<Archive>,
}

impl LinkHistoryStore {
    /// Loads the history that an earlier daemon wrote. Unreadable links are left out, with a warning.
    pub(crate) fn load(args: &DaemonArgs, archive: Archive) -> LinkHistoryStore {
        if args.inside.is_some() {
            return LinkHistoryStore { links: Arc::default(), archive: None };
        }
        let (links, complaint) = control::load_history(&args.history_file());
        if let Some(complaint) = complaint {
            tracing::warn!("history of links: {complaint}; missing entries begin anew");
        }
        LinkHistoryStore { links: Arc::new(Mutex::new(links)), archive: Some(archive) }
    }

    /// Reads the counts each minute until the process ends.
    pub(crate) fn keep(&self, shard: &Handle) {
        let mut readings_since_write = 0;
        loop {
            let rest_ms = READ_EVERY_MS - today().0 % READ_EVERY_MS;
            std::thread::sleep(Duration::from_millis(rest_ms));
            // Without an answer, the next reading counts this minute, too.
            if let Some(readings) = shard.ask(|reply| Command::Survey(Question::Links(reply))) {
                self.note(&readings);
            }
            readings_since_write += 1;
            if readings_since_write >= READINGS_PER_WRITE {
                self.save();
                readings_since_write = 0;
            }
        }
    }

    /// Adds a reading of all links.
    pub(crate) fn note(&self, readings: &[LinkReading]) {
        self.lock().note(today(), readings);
    }

    /// Writes the file. Logs a failure.
    pub(crate) fn save(&self) {
        let Some(archive) = &self.archive else { return };
        let links = self.lock().clone();
        if let Err(error) = archive.save_history(&links) {
            tracing::warn!(%error, "cannot write the history of links");
        }
    }

    /// Returns the history without samples that are too old.
    pub(crate) fn report(&self) -> HistoryReport {
        HistoryReport { links: self.lock().at(today()) }
    }

    fn lock(&self) -> MutexGuard<'_, LinkHistories> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
