//! The secrets shared with other sctpify hosts: who has one is proved at the start of each association (RFC 4895).
//!
//! A file has one key a line: an address, a prefix or `*` for all, blanks, and the key, as it stands or in hexadecimal
//! behind `hex:`. The longest prefix counts. Refused: a file that others may read, keys of fewer than [`KEY_MIN`] bytes,
//! two keys for one prefix. Secrets are in no log, answer or error.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use nix::unistd::geteuid;
use rules::IpNet;
use sctp::{AuthConfig, ChunkType};

/// Fewest bytes of a key.
const KEY_MIN: usize = 16;
/// Most bytes of a key.
const KEY_MAX: usize = 1024;
/// Most keys.
const KEYS_MAX: usize = 4096;
/// Most bytes of the file.
const FILE_MAX: u64 = 1 << 20;
/// The number under which both ends have the shared key; 0 is the empty key of hosts without any.
const SHARED: u16 = 1;
const EMPTY: u16 = 0;

/// Chunks that a peer must sign: what sets an association up, moves bytes and ends it in order. Not ABORT: a host that has
/// forgotten an association has forgotten its key too, and must be able to say so.
const SIGNED: [ChunkType; 9] = [
    ChunkType::COOKIE_ECHO,
    ChunkType::COOKIE_ACK,
    ChunkType::DATA,
    ChunkType::I_DATA,
    ChunkType::SACK,
    ChunkType::SHUTDOWN,
    ChunkType::FORWARD_TSN,
    ChunkType::I_FORWARD_TSN,
    ChunkType::RE_CONFIG,
];

/// Who shares which key.
#[derive(Clone, Default)]
pub(crate) struct PeerKeys {
    /// Longest prefixes first; none is every address.
    keys: Vec<(Option<IpNet>, Bytes)>,
}

/// Why keys were not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerKeyError {
    #[error("{}: {error} (setting peer_keys)", .path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: others may read or change this file: chown root, chmod 600", .path.display())]
    Exposed { path: PathBuf },
    #[error("{}, line {line}: {what}", .path.display())]
    Line { path: PathBuf, line: usize, what: String },
}

impl PeerKeys {
    /// The text of the file; empty where the path is.
    pub(crate) fn read(path: &str) -> Result<String, PeerKeyError> {
        let mut text = String::new();
        if path.is_empty() {
            return Ok(text);
        }
        let path = Path::new(path);
        let io = |error| PeerKeyError::Io { path: path.into(), error };
        let file = File::open(path).map_err(io)?;
        let status = file.metadata().map_err(io)?;
        let is_ours = [0, geteuid().as_raw()].contains(&status.uid());
        if !is_ours || status.mode() & 0o077 != 0 {
            return Err(PeerKeyError::Exposed { path: path.into() });
        }
        file.take(FILE_MAX).read_to_string(&mut text).map_err(io)?;
        Ok(text)
    }

    /// The keys in the text of the file at `path`.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<PeerKeys, PeerKeyError> {
        parse(text).map_err(|(line, what)| PeerKeyError::Line { path: path.into(), line, what })
    }

    /// How associations with this host are authenticated; none without a key for it.
    pub(crate) fn auth_for(&self, peer: IpAddr, is_required: bool) -> Option<AuthConfig> {
        let (_, key) = self.find(peer)?;
        let mut auth = AuthConfig {
            chunks: SIGNED.into_iter().collect(),
            active_key: SHARED,
            required: is_required,
            ..AuthConfig::default()
        };
        auth.keys.insert(SHARED, key.clone());
        if is_required {
            // Nor does the empty key open anything then.
            auth.keys.insert(EMPTY, key.clone());
        }
        Some(auth)
    }

    /// For whom the key is that this host would need, for people.
    pub(crate) fn whose(&self, peer: IpAddr) -> Option<String> {
        self.find(peer).map(|(net, _)| net.map_or_else(|| "all hosts".to_owned(), |net| net.to_string()))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    fn find(&self, peer: IpAddr) -> Option<&(Option<IpNet>, Bytes)> {
        self.keys.iter().find(|(net, _)| net.is_none_or(|net| net.contains(peer)))
    }
}

/// Without any secret.
impl fmt::Debug for PeerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|(net, _)| net)).finish()
    }
}

fn parse(text: &str) -> Result<PeerKeys, (usize, String)> {
    let mut keys: Vec<(Option<IpNet>, Bytes)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (net, key) = parse_line(line).map_err(|what| (index + 1, what))?;
        if keys.len() >= KEYS_MAX {
            return Err((index + 1, format!("more than {KEYS_MAX} keys")));
        }
        if keys.iter().any(|(known, _)| *known == net) {
            return Err((index + 1, "a second key for the same hosts".to_owned()));
        }
        keys.push((net, key));
    }
    let length = |net: &Option<IpNet>| net.map_or(0, |net| 1 + u16::from(net.prefix_len()));
    keys.sort_by_key(|(net, _)| std::cmp::Reverse(length(net)));
    Ok(PeerKeys { keys })
}

fn parse_line(line: &str) -> Result<(Option<IpNet>, Bytes), String> {
    let (net, key) = line.split_once(char::is_whitespace).ok_or("an address, a prefix or *, then a key")?;
    let net = match net {
        "*" => None,
        net => Some(net.parse::<IpNet>().map_err(|error| error.to_string())?),
    };
    let key = key.trim();
    let key = match key.strip_prefix("hex:") {
        Some(digits) => from_hex(digits).ok_or("hex: is not followed by pairs of hexadecimal digits")?,
        None => key.as_bytes().to_vec(),
    };
    match key.len() {
        KEY_MIN..=KEY_MAX => Ok((net, key.into())),
        length => Err(format!("a key of {length} bytes: it must have {KEY_MIN} to {KEY_MAX}")),
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

    fn key_of(keys: &PeerKeys, peer: [u8; 4]) -> Option<Bytes> {
        keys.auth_for(peer.into(), true).map(|auth| auth.keys[&SHARED].clone())
    }

    #[test]
    fn the_longest_prefix_counts() {
        let text = format!("# keys\n* {KEY}-all\n10.0.0.0/8\t{KEY}-net\n10.1.2.3 hex:{}\n", "ab".repeat(16));
        let keys = parse(&text).expect("good lines");
        assert_eq!(key_of(&keys, [10, 1, 2, 3]).as_deref(), Some(&[0xab; 16][..]));
        assert_eq!(key_of(&keys, [10, 9, 9, 9]).as_deref(), Some(&b"0123456789abcdef-net"[..]));
        assert_eq!(key_of(&keys, [192, 0, 2, 1]).as_deref(), Some(&b"0123456789abcdef-all"[..]));
        assert_eq!(keys.whose([10, 9, 9, 9].into()).as_deref(), Some("10.0.0.0/8"));
    }

    #[test]
    fn a_host_without_a_key_is_not_asked_for_one() {
        let keys = parse(&format!("10.0.0.0/8 {KEY}\n")).expect("a good line");
        assert!(keys.auth_for([192, 0, 2, 1].into(), true).is_none());
    }

    #[test]
    fn the_empty_key_opens_something_only_where_none_is_required() {
        let keys = parse(&format!("* {KEY}\n")).expect("a good line");
        let has_empty = |required| {
            keys.auth_for([192, 0, 2, 1].into(), required).is_some_and(|a| !a.keys.contains_key(&EMPTY))
        };
        assert!(!has_empty(true) && has_empty(false));
    }

    #[test]
    fn wrong_lines_are_named_and_show_no_secret() {
        for (line, expected) in [
            (format!("10.0.0.0/40 {KEY}"), "prefix length 40"),
            ("* too-short".to_owned(), "a key of 9 bytes"),
            ("* hex:0g".to_owned(), "hexadecimal"),
            (KEY.to_owned(), "then a key"),
            (format!("* {KEY}\n* {KEY}"), "a second key"),
        ] {
            let (_, what) = parse(&line).map(|keys| keys.len()).expect_err("a wrong line");
            assert!(what.contains(expected) && !what.contains(KEY), "{what}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("keys");
        std::fs::write(&path, format!("* {KEY}\n")).expect("written");
        let load = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
            let text = PeerKeys::read(path.to_str().expect("UTF-8"))?;
            PeerKeys::parse(&path, &text).map(|keys| keys.len())
        };
        assert!(matches!(load(0o640), Err(PeerKeyError::Exposed { .. })));
        assert_eq!(load(0o600).expect("a good file"), 1);
    }
}
