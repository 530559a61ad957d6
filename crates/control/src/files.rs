//! The configuration file and the rules file on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rules::{LineError, RulesTable, Settings, parse_table, print_table};

use crate::{ConfigError, default_config_text, parse_config, set_in_config};

/// Stands at the head of a rules file.
const RULES_HEAD: &str = "# Rules of sctpifyd, written by it: change them with shimrules(8), or edit this file while the daemon\n\
                          # is stopped or before `sctpify reload`. Comments are not kept.\n";

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        error: io::Error,
    },
    /// The configuration is wrong.
    #[error("{}: {error}", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        error: ConfigError,
    },
    /// A rule is wrong.
    #[error("{}, line {line}: {error}", .path.display())]
    Rules {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        error: LineError,
    },
}

fn read_or_empty(path: &Path) -> Result<String, FileError> {
    match fs::read_to_string(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|error| FileError::Io { path: path.into(), error }),
    }
}

/// The settings of a configuration file; a missing file gives the defaults.
///
/// # Errors
/// When the file cannot be read or is wrong; the text names the line.
pub fn load_config(path: &Path) -> Result<Settings, FileError> {
    parse_config(&read_or_empty(path)?).map_err(|error| FileError::Config { path: path.into(), error })
}

/// Changes one setting in a configuration file; a missing file is made, with all keys documented.
///
/// # Errors
/// When the file is wrong or cannot be written; it is unchanged then.
pub fn save_setting(path: &Path, name: &str, value: &str) -> Result<(), FileError> {
    let old = match read_or_empty(path)? {
        text if text.is_empty() => default_config_text(),
        text => text,
    };
    let new =
        set_in_config(&old, name, value).map_err(|error| FileError::Config { path: path.into(), error })?;
    write_whole(path, &new)
}

/// The table of a rules file; a missing file gives an empty table.
///
/// # Errors
/// When the file cannot be read or is wrong; the text names the line.
pub fn load_rules(path: &Path) -> Result<RulesTable, FileError> {
    parse_table(&read_or_empty(path)?).map_err(|(line, error)| FileError::Rules {
        path: path.into(),
        line,
        error,
    })
}

/// Writes a table to a rules file.
///
/// # Errors
/// When it cannot be written; the file is unchanged then.
pub fn save_rules(path: &Path, table: &RulesTable) -> Result<(), FileError> {
    write_whole(path, &format!("{RULES_HEAD}{}", print_table(table)))
}

/// Replaces a file by this text, wholly or not at all, also through a crash or a power cut. The directory is made
/// if it is missing.
///
/// # Errors
/// When it cannot be written; the old file stands then.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), FileError> {
    replace(path, text).map_err(|error| FileError::Io { path: path.into(), error })
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(directory)?;
    let mut name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = directory.join(name);
    let written = write_and_rename(&new, path, text);
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    File::open(directory)?.sync_all()
}

fn write_and_rename(new: &Path, path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::{Chain, Policy, Rule};

    #[test]
    fn missing_files_are_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(load_config(&dir.path().join("none")).unwrap(), Settings::default());
        assert!(load_rules(&dir.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn a_table_survives_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made/for/it/rules");
        let mut table = RulesTable::default();
        let rule = Rule { comment: Some("# not a comment \"line\"".into()), ..Rule::default() };
        table.add(Chain::Remote, Policy::Enable, rule).unwrap();
        save_rules(&path, &table).unwrap();
        assert_eq!(load_rules(&path).unwrap(), table);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn a_wrong_rules_file_names_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules");
        fs::write(&path, "-A -c local -p enable\n-A -c locale -p enable\n").unwrap();
        let text = load_rules(&path).unwrap_err().to_string();
        assert!(text.contains("rules, line 2: `locale` is not a chain"), "{text}");
    }

    #[test]
    fn the_first_setting_makes_a_documented_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sctpify.toml");
        save_setting(&path, "default_remote_enable", "on").unwrap();
        assert!(load_config(&path).unwrap().default_remote_enable);
        assert!(fs::read_to_string(&path).unwrap().contains("# udp_port = 9899"));
    }

    #[test]
    fn a_refused_value_leaves_the_file_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sctpify.toml");
        fs::write(&path, "udp_port = 9900\n").unwrap();
        assert!(save_setting(&path, "udp_port", "0").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "udp_port = 9900\n");
    }
}
