//! Reads and writes the configuration file and the rules file.
//!
//! A file is replaced as a whole, never written in place. A replaced file keeps its mode and owner. A file that did not exist before is
//! accessible only to its owner, because a configuration may contain passwords. Only regular files are replaced. A file may be read through
//! a symbolic link, but not written. Otherwise, the creator of the link could choose a file for a root process to overwrite.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rules::{LineError, RulesTable, Settings, parse_table, print_table};

use crate::{ConfigError, default_config_text, parse_config, set_in_config};

/// Comment at the beginning of a rules file.
const RULES_HEAD: &str = "# Rules of sctpifyd, written by it: change them with shimrules(8), or edit this file while the daemon\n\
                          # is stopped or before `sctpify reload`. Comments are not kept.\n";

/// Errors while a file is read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The configuration is faulty.
    #[error("{}: {error}", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The fault and its line.
        error: ConfigError,
    },
    /// A rule is faulty.
    #[error("{}, line {line}: {error}", .path.display())]
    Rules {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The fault in this line.
        error: LineError,
    },
}

fn read_or_empty(path: &Path) -> Result<String, FileError> {
    match fs::read_to_string(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|error| FileError::Io { path: path.into(), error }),
    }
}

/// Loads the settings of a configuration file. If the file does not exist, returns the defaults.
///
/// # Errors
/// If the file cannot be read or is faulty. The error names the line.
pub fn load_config(path: &Path) -> Result<Settings, FileError> {
    parse_config(&read_or_empty(path)?).map_err(|error| FileError::Config { path: path.into(), error })
}

/// Changes one setting in a configuration file. If the file does not exist, creates it with the documentation of all keys.
///
/// # Errors
/// If the file is faulty or cannot be written. The file is then unchanged.
pub fn save_setting(path: &Path, name: &str, value: &str) -> Result<(), FileError> {
    let old = match read_or_empty(path)? {
        text if text.is_empty() => default_config_text(),
        text => text,
    };
    let new =
        set_in_config(&old, name, value).map_err(|error| FileError::Config { path: path.into(), error })?;
    write_whole(path, &new)
}

/// Loads the table of a rules file. If the file does not exist, returns an empty table.
///
/// # Errors
/// If the file cannot be read or is faulty. The error names the line.
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
/// If the file cannot be written. The file is then unchanged.
pub fn save_rules(path: &Path, table: &RulesTable) -> Result<(), FileError> {
    write_whole(path, &format!("{RULES_HEAD}{}", print_table(table)))
}

/// Replaces the contents of a file atomically, even if the system crashes or loses power. Creates missing directories.
///
/// # Errors
/// If the file cannot be written. The old file then stays.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), FileError> {
    replace(path, text).map_err(|error| FileError::Io { path: path.into(), error })
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(directory)?;
    let old = plain_file(path)?;
    let mut name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = directory.join(name);
    let mut file = create(&new)?;
    let written = fill(&mut file, text, old.as_ref()).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    File::open(directory)?.sync_all()
}

/// Returns the status of the file that will be replaced; `None` if it does not exist. Fails if it is not a regular file.
fn plain_file(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(status) if status.is_file() => Ok(Some(status)),
        Ok(status) if status.is_symlink() => Err(io::Error::other(
            "is a symbolic link, which is not followed: change its target and `sctpify reload`, or replace it with a regular file",
        )),
        Ok(_) => Err(io::Error::other("is not a regular file: replace it with one")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a file that only its owner can access. Removes a leftover file of this name first. The creation is exclusive (open(2), O_EXCL),
/// so it neither follows a link nor opens another user's file.
fn create(new: &Path) -> io::Result<File> {
    const OWNERS_ALONE: u32 = 0o600;
    let open = || OpenOptions::new().write(true).create_new(true).mode(OWNERS_ALONE).open(new);
    match open() {
        // An earlier process with the same process ID ended while it wrote this file.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(new)?;
            open()
        }
        other => other,
    }
}

/// Writes the text, and copies the mode and owner of the old file. Sets the mode before the owner, because only the owner may change the
/// mode.
fn fill(file: &mut File, text: &str, old: Option<&Metadata>) -> io::Result<()> {
    const ACCESS: u32 = 0o777;
    file.write_all(text.as_bytes())?;
    if let Some(old) = old {
        let made = file.metadata()?;
        file.set_permissions(Permissions::from_mode(old.mode() & ACCESS))?;
        let owner = Some(old.uid()).filter(|uid| *uid != made.uid());
        let group = Some(old.gid()).filter(|gid| *gid != made.gid());
        if owner.is_some() || group.is_some() {
            fchown(&*file, owner, group).map_err(|error| {
                let (uid, gid) = (old.uid(), old.gid());
                let text = format!("cannot keep owner {uid} and group {gid} ({error}): run this as root");
                io::Error::new(error.kind(), text)
            })?;
        }
    }
    file.sync_all()
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

    fn status(path: &Path) -> (u32, u32, u32) {
        let status = fs::symlink_metadata(path).unwrap();
        (status.mode() & 0o7777, status.uid(), status.gid())
    }

    #[test]
    fn a_new_file_has_mode_0600_and_an_existing_file_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sctpify.toml");
        save_setting(&path, "udp_port", "9900").unwrap();
        assert_eq!(status(&path).0, 0o600);
        for mode in [0o600, 0o640, 0o644, 0o660] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            save_setting(&path, "udp_port", "9901").unwrap();
            save_rules(&path, &RulesTable::default()).unwrap();
            assert_eq!(status(&path).0, mode);
        }
    }

    #[test]
    #[ignore = "needs root: gives a file away"]
    fn a_file_stays_its_owners() {
        const SOMEBODY: u32 = 12_345;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sctpify.toml");
        fs::write(&path, "udp_port = 9900\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&path, Some(SOMEBODY), Some(SOMEBODY + 1)).unwrap();
        save_setting(&path, "udp_port", "9901").unwrap();
        assert_eq!(status(&path), (0o640, SOMEBODY, SOMEBODY + 1));
        assert_eq!(load_config(&path).unwrap().udp_port, 9901);
    }

    #[test]
    fn a_symbolic_link_is_followed_for_reading_but_not_written_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("sctpify.toml"), dir.path().join("elsewhere"));
        fs::write(&elsewhere, "udp_port = 9900\n").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let text = save_setting(&path, "udp_port", "9901").unwrap_err().to_string();
        assert!(text.contains("sctpify.toml: is a symbolic link"), "{text}");
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(load_config(&path).unwrap().udp_port, 9900);
    }

    #[test]
    fn a_symlink_at_the_temporary_files_name_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("rules"), dir.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        let new = dir.path().join(format!("rules.{}.new", std::process::id()));
        std::os::unix::fs::symlink(&victim, &new).unwrap();
        save_rules(&path, &RulesTable::default()).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(fs::symlink_metadata(&path).unwrap().is_file() && !new.exists());
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
