//! Converts the capability cache of destinations to rows, and stores it in a file that outlives the daemon.
//!
//! The first line of the file states the version; each further line is one JSON object. Invalid lines are skipped and reported. A file of
//! another version, or longer than [`MAX_FILE_BYTES`], is ignored. A lost entry is learned again.

use std::path::Path;

use rules::{LearnedEntry, LearnedTable, UnixMs};
use serde::{Deserialize, Serialize};

use crate::FileError;
use crate::entries::EntriesFile;

/// The file of a table. A full table needs about a quarter of the limit.
const FILE: EntriesFile = EntriesFile { head: "sctpify learned table, version 1", max_bytes: 8 << 20 };

/// The capability cache's current entry for one destination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LearnedRow {
    /// Treatment of connections to the destination.
    pub state: LearnedState,
    /// The destination, and everything that is known about it.
    #[serde(flatten)]
    pub entry: LearnedEntry,
}

/// Treatment of connections to a destination in the capability cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearnedState {
    /// SCTP is tried.
    Enabled,
    /// Connections use TCP at once.
    Disabled,
    /// Connections use TCP at once. The time for which SCTP was disabled has ended, and the next connection starts a probe.
    Expired,
    /// Connections use TCP at once. A probe is in progress.
    Probing,
}

impl LearnedRow {
    /// Creates the row of an entry with its state at `now`.
    pub fn new(entry: &LearnedEntry, now: UnixMs) -> LearnedRow {
        let state = match entry.disabled {
            None => LearnedState::Enabled,
            Some(_) if entry.probing => LearnedState::Probing,
            Some(_) if entry.is_expired(now) => LearnedState::Expired,
            Some(_) => LearnedState::Disabled,
        };
        LearnedRow { state, entry: LearnedEntry { usage: entry.usage.at(now), ..entry.clone() } }
    }
}

/// Loads the table of a file. Also returns a sentence for people about unusable parts of the file, if any. If the file does not exist,
/// returns an empty table.
pub fn load_learned(path: &Path) -> (LearnedTable, Option<String>) {
    let mut table = LearnedTable::default();
    let problem = FILE.load(path, |entry| table.restore(entry));
    // The file contains all entries of the table, so nothing needs to be saved.
    table.take_changed();
    (table, problem)
}

/// Parses the text of a file. Also describes its unusable parts, if any.
pub fn parse_learned(text: &str) -> (LearnedTable, Option<String>) {
    let mut table = LearnedTable::default();
    let problem = FILE.parse(text, |entry| table.restore(entry));
    table.take_changed();
    (table, problem)
}

/// Writes a table to a file, wholly or not at all.
///
/// # Errors
/// If the file cannot be written, for example because the disk is full or the directory cannot be created. The file is then unchanged.
pub fn save_learned<'a>(
    path: &Path,
    entries: impl Iterator<Item = &'a LearnedEntry>,
) -> Result<(), FileError> {
    FILE.save(path, entries)
}

/// Prints a table as the text of a file.
///
/// # Errors
/// If an entry cannot be written as JSON.
pub fn print_learned<'a>(entries: impl Iterator<Item = &'a LearnedEntry>) -> std::io::Result<String> {
    FILE.print(entries)
}

#[cfg(test)]
mod tests {
    use rules::{Failure, LearnPolicy, Settings};

    use super::*;

    const NOW: UnixMs = UnixMs(1_700_000_000_000);

    fn table() -> LearnedTable {
        let mut table = LearnedTable::default();
        let policy = LearnPolicy::of(&Settings::default());
        table.on_success(NOW, "[2001:db8::1]:443".parse().unwrap(), Some(900));
        table.on_failure(NOW, "10.0.0.1:22".parse().unwrap(), Failure::Refused, &policy);
        table.take_changed();
        table
    }

    fn text_of(table: &LearnedTable) -> (tempfile::TempDir, std::path::PathBuf, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/learned");
        save_learned(&path, table.iter()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        (dir, path, text)
    }

    #[test]
    fn a_table_survives_the_disk() {
        let (_dir, path, _) = text_of(&table());
        assert_eq!(load_learned(&path), (table(), None));
    }

    #[test]
    fn a_missing_file_is_an_empty_table_without_complaint() {
        assert_eq!(load_learned(Path::new("/nonexistent/learned")), (LearnedTable::default(), None));
    }

    #[test]
    fn invalid_lines_are_ignored_and_reported() {
        let (_dir, path, text) = text_of(&table());
        let mut lines: Vec<&str> = text.lines().collect();
        lines.insert(2, "{\"host\":\"10.0.0.9\"");
        lines.push("\u{0}\u{ffff}");
        std::fs::write(&path, lines.join("\n")).unwrap();
        let (read, complaint) = load_learned(&path);
        assert_eq!(read, table());
        assert!(complaint.unwrap().ends_with("2 invalid lines are ignored, the first is 3"));
    }

    #[test]
    fn a_file_of_another_version_or_kind_is_not_used() {
        let (_dir, path, text) = text_of(&table());
        for other in [text.replace("version 1", "version 2"), "\u{1}".to_owned()] {
            std::fs::write(&path, other).unwrap();
            let (read, complaint) = load_learned(&path);
            assert!(read.is_empty() && complaint.unwrap().contains("the file is ignored"));
        }
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let (_dir, path, _) = text_of(&table());
        std::fs::File::options().write(true).open(&path).unwrap().set_len(FILE.max_bytes + 1).unwrap();
        let (read, complaint) = load_learned(&path);
        assert!(read.is_empty() && complaint.unwrap().contains("too long"));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error_that_names_it() {
        let error = save_learned(Path::new("/dev/full/learned"), table().iter()).unwrap_err();
        assert!(error.to_string().starts_with("/dev/full/learned: "), "{error}");
    }
}
