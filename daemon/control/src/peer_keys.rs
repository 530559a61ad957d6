//! Reads the file with the secrets that this host shares with other sctpify hosts.
//!
//! Each line of the file has one key: an address, a prefix or `*` for all hosts, then white space, then the key. The key is text, or
//! hexadecimal digits after `hex:`. If several keys match a host, the key with the longest prefix applies. Refused: a file that other users
//! may access, keys of fewer than [`KEY_MIN`] bytes, and two keys for one prefix. Secrets appear neither in errors nor in `Debug` output.

use std::fmt;
use std::path::{Path, PathBuf};

use rules::IpNet;

use crate::secret_file::{SecretFileError, read_secret};

/// Minimum length of a key in bytes.
const KEY_MIN: usize = 16;
/// Maximum length of a key in bytes.
const KEY_MAX: usize = 1024;
/// Maximum number of keys.
const KEYS_MAX: usize = 4096;
/// Limit on the length of the file, in bytes. A longer file is refused.
const FILE_MAX: u64 = 1 << 20;

/// A key and the hosts that share it.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerKey {
    net: Option<IpNet>,
    secret: Vec<u8>,
}

impl PeerKey {
    /// Returns the prefix of the hosts that share the key; `None` means all hosts.
    pub fn net(&self) -> Option<IpNet> {
        self.net
    }

    /// Returns the key itself.
    pub fn secret(&self) -> &[u8] {
        &self.secret
    }
}

/// Omits the secret.
impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerKey").field(&self.net).finish_non_exhaustive()
    }
}

/// Reasons why keys were not read.
#[derive(Debug, thiserror::Error)]
pub enum PeerKeyError {
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// A line is not valid.
    #[error("{}, line {line}: {what}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The fault in that line.
        what: String,
    },
}

/// Returns the text of the file; an empty text for an empty path.
///
/// # Errors
/// If the file cannot be read, if it is longer than 1 MiB, or if other users may read or change the file.
pub fn read_peer_keys(path: &str) -> Result<String, PeerKeyError> {
    if path.is_empty() {
        return Ok(String::new());
    }
    Ok(read_secret(Path::new(path), FILE_MAX, "peer_keys")?)
}

/// Parses the keys in the text of the file at `path`. Returns the keys with the longest prefixes first.
///
/// # Errors
/// The first faulty line.
pub fn parse_peer_keys(path: &str, text: &str) -> Result<Vec<PeerKey>, PeerKeyError> {
    parse(text).map_err(|(line, what)| PeerKeyError::Line { path: path.into(), line, what })
}

fn parse(text: &str) -> Result<Vec<PeerKey>, (usize, String)> {
    let mut keys: Vec<PeerKey> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = parse_line(line).map_err(|what| (index + 1, what))?;
        if keys.len() >= KEYS_MAX {
            return Err((index + 1, format!("more than {KEYS_MAX} keys")));
        }
        if keys.iter().any(|known| known.net == key.net) {
            return Err((index + 1, "a second key for the same hosts".to_owned()));
        }
        keys.push(key);
    }
    let length = |key: &PeerKey| key.net.map_or(0, |net| 1 + u16::from(net.prefix_len()));
    keys.sort_by_key(|key| std::cmp::Reverse(length(key)));
    Ok(keys)
}

fn parse_line(line: &str) -> Result<PeerKey, String> {
    let (net, key) =
        line.split_once(char::is_whitespace).ok_or("expected an address, a prefix or *, then a key")?;
    let net = match net {
        "*" => None,
        net => Some(net.parse::<IpNet>().map_err(|error| error.to_string())?),
    };
    let key = key.trim();
    let secret = match key.strip_prefix("hex:") {
        Some(digits) => from_hex(digits).ok_or("hex: is not followed by pairs of hexadecimal digits")?,
        None => key.as_bytes().to_vec(),
    };
    match secret.len() {
        KEY_MIN..=KEY_MAX => Ok(PeerKey { net, secret }),
        length => Err(format!("a key of {length} bytes: {KEY_MIN} to {KEY_MAX} are allowed")),
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let is_even = digits.len().is_multiple_of(2);
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    if is_even { (0..digits.len()).step_by(2).map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KEY: &str = "0123456789abcdef";

    #[test]
    fn wrong_lines_are_named_and_show_no_secret() {
        for (line, expected) in [
            (format!("10.0.0.0/40 {KEY}"), "prefix length 40"),
            ("* too-short".to_owned(), "a key of 9 bytes"),
            ("* hex:0g".to_owned(), "hexadecimal"),
            (KEY.to_owned(), "then a key"),
            (format!("* {KEY}\n* {KEY}"), "a second key"),
        ] {
            let (_, what) = parse(&line).expect_err("a wrong line");
            assert!(what.contains(expected) && !what.contains(KEY), "{what}");
        }
        assert!(!format!("{:?}", parse(&format!("* {KEY}"))).contains("48, 49"));
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, format!("* {KEY}\n")).unwrap();
        let load = |mode| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let path = path.to_str().unwrap();
            parse_peer_keys(path, &read_peer_keys(path)?).map(|keys| keys.len())
        };
        assert!(matches!(load(0o640), Err(PeerKeyError::File(SecretFileError::Exposed { .. }))));
        assert_eq!(load(0o600).unwrap(), 1);
    }
}
