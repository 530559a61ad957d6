//! Stores the monthly traffic of links with a cap, in a file that outlives the daemon.
//!
//! Invalid lines are skipped and reported. A file of another version, or one that is too long, is ignored.

use std::path::Path;

use rules::TrafficTable;

use crate::FileError;
use crate::entries::EntriesFile;

/// The file of a table. A full table needs about a quarter of the limit.
const FILE: EntriesFile = EntriesFile { head: "sctpify link traffic, version 1", max_bytes: 64 << 10 };

/// Loads the table of a file. Also returns a sentence for people about unusable parts of the file, if any. If the file does not exist,
/// returns an empty table.
pub fn load_traffic(path: &Path) -> (TrafficTable, Option<String>) {
    let mut table = TrafficTable::default();
    let problem = FILE.load(path, |entry| table.restore(entry));
    (table, problem)
}

/// Parses the text of a file. Also describes its unusable parts, if any.
pub fn parse_traffic(text: &str) -> (TrafficTable, Option<String>) {
    let mut table = TrafficTable::default();
    let problem = FILE.parse(text, |entry| table.restore(entry));
    (table, problem)
}

/// Writes a table to a file, wholly or not at all.
///
/// # Errors
/// If the file cannot be written. The file is then unchanged.
pub fn save_traffic(path: &Path, table: &TrafficTable) -> Result<(), FileError> {
    FILE.save(path, table.iter())
}

/// Prints a table as the text of a file.
///
/// # Errors
/// If an entry cannot be written as JSON.
pub fn print_traffic(table: &TrafficTable) -> std::io::Result<String> {
    FILE.print(table.iter())
}

#[cfg(test)]
mod tests {
    use rules::{Cap, LinkUse, Reading, UnixMs};

    use super::*;

    #[test]
    fn a_table_survives_the_disk_and_counts_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/traffic");
        assert_eq!(load_traffic(&path), (TrafficTable::default(), None));
        let cap = Cap { bytes: 10, then: LinkUse::Never, day: 1 };
        let (now, of) = (UnixMs(1_700_000_000_000), || "boot/7".to_owned());
        let mut table = TrafficTable::default();
        table.note(now, "wwan0", &cap, Reading { bytes: 100, of: of() });
        table.note(now, "wwan0", &cap, Reading { bytes: 140, of: of() });
        save_traffic(&path, &table).unwrap();
        let (mut read, complaint) = load_traffic(&path);
        assert_eq!((&read, complaint), (&table, None));
        assert_eq!(read.note(now, "wwan0", &cap, Reading { bytes: 150, of: of() }).bytes, 50);
        let text = std::fs::read_to_string(&path).unwrap();
        let (read, complaint) = parse_traffic(&text.replace("wwan0", ""));
        assert_eq!(read, TrafficTable::default());
        assert_eq!(complaint.as_deref(), Some("1 invalid lines are ignored, the first is 2"));
    }
}
