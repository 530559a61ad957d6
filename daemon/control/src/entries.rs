//! Files of entries. The first line states the kind of the file and the version of the following lines; each further line is one JSON
//! object.

use std::fs::{File, metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::FileError;
use crate::files::write_whole;

/// A kind of files.
pub(crate) struct EntriesFile {
    /// The first line.
    pub(crate) head: &'static str,
    /// Limit on the length of a file, in bytes.
    pub(crate) max_bytes: u64,
}

impl EntriesFile {
    /// Reads a file. Returns `None` if the file does not exist.
    pub(crate) fn read(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        // Opening a FIFO would wait for its writer, so only regular files are opened.
        match metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Ok(status) if !status.is_file() => return Err(Error::other("not a regular file")),
            status => status?,
        };
        let mut bytes = Vec::new();
        File::open(path)?.take(self.max_bytes + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > self.max_bytes {
            return Err(Error::new(ErrorKind::FileTooLarge, "too long"));
        }
        Ok(Some(bytes))
    }

    /// Passes the entries of a text to `restore`, which returns false for an invalid one. Describes the unusable parts of the text, if any.
    pub(crate) fn parse<T: DeserializeOwned>(
        &self,
        text: &str,
        mut restore: impl FnMut(T) -> bool,
    ) -> Option<String> {
        let mut lines = text.lines();
        if lines.next() != Some(self.head) {
            return Some(format!("its first line is not `{}`: the file is ignored", self.head));
        }
        let (mut first_bad, mut bad) = (None, 0);
        for (index, line) in lines.enumerate() {
            if !serde_json::from_str(line).is_ok_and(&mut restore) {
                bad += 1;
                first_bad.get_or_insert(index + 2);
            }
        }
        first_bad.map(|line| format!("{bad} invalid lines are ignored, the first is {line}"))
    }

    /// Loads the entries of a file, as [`EntriesFile::parse`] does. Returns a sentence for people about unusable parts of the file, if any. A
    /// file that does not exist has no entries.
    pub(crate) fn load<T: DeserializeOwned>(
        &self,
        path: &Path,
        restore: impl FnMut(T) -> bool,
    ) -> Option<String> {
        let problem = match self.read(path) {
            Ok(bytes) => bytes.and_then(|bytes| self.parse(&String::from_utf8_lossy(&bytes), restore)),
            Err(error) => Some(format!("cannot be read ({error})")),
        };
        problem.map(|problem| format!("{}: {problem}", path.display()))
    }

    /// Writes entries to a file, wholly or not at all.
    ///
    /// # Errors
    /// If the file cannot be written. The file is then unchanged.
    pub(crate) fn save<T: Serialize>(
        &self,
        path: &Path,
        entries: impl Iterator<Item = T>,
    ) -> std::result::Result<(), FileError> {
        let text = self.print(entries).map_err(|error| FileError::Io { path: path.into(), error })?;
        write_whole(path, &text)
    }

    /// Prints entries as the text of a file.
    pub(crate) fn print<T: Serialize>(&self, entries: impl Iterator<Item = T>) -> Result<String> {
        let mut text = format!("{}\n", self.head);
        for entry in entries {
            text.push_str(&serde_json::to_string(&entry)?);
            text.push('\n');
        }
        Ok(text)
    }
}
