//! Stores the keys of other hosts with their addresses, in memory and in a file that outlives the daemon.
//!
//! A key is recorded for an address in two cases only: this host has connected to the address, or an administrator has supplied the key. A
//! peer that connects to this host therefore adds no entry, and an entry may decide whether this host connects to the address.
//!
//! The first line of the file states the version; each further line is one JSON object. A file with an invalid line is refused as a whole,
//! because after the loss of an entry, this host would accept any key for the entry's addresses. In the file of the learned table, in
//! contrast, only the invalid lines are ignored.
//!
//! Refused: more than [`PEERS_MAX`] peers, more than [`ADDRESSES_MAX`] addresses of one peer, and texts that are not keys. Invariants: no
//! two peers have the same key or name, and each address belongs to one peer. Begin with [`KnownPeers::find`].

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rules::{UnixMs, normalise};
use serde::{Deserialize, Serialize};

use crate::FileError;
use crate::entries::EntriesFile;

/// Limit on the peers.
pub const PEERS_MAX: usize = 4096;
/// Limit on the addresses of one peer.
pub const ADDRESSES_MAX: usize = 32;
/// Limit on a peer's name, in bytes.
const NAME_MAX: usize = 64;
/// Time without a connection after which a full table may drop a peer, in milliseconds: half a year.
const STALE_MS: u64 = 182 * 24 * 3_600_000;
/// Precision of the time of the latest connection, in milliseconds. Finer times would require a write of the file for each connection.
const SEEN_STEP_MS: u64 = 60_000;
/// The file of known peers.
const FILE: EntriesFile = EntriesFile { head: "sctpify known peers, version 1", max_bytes: 16 << 20 };
/// Prefix of a public key's text.
const KEY_PREFIX: &str = "sctpify1:";
/// Number of characters after the prefix.
const KEY_DIGITS: usize = 43;

/// A host's public key as text: `sctpify1:` and 43 characters of Base64.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostKeyText(String);

/// Error for a text that is not a public key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "not a host's key: it begins with {KEY_PREFIX} and has {KEY_DIGITS} letters, digits, + or / behind that"
)]
pub struct NoHostKey;

impl HostKeyText {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostKeyText {
    type Err = NoHostKey;

    fn from_str(text: &str) -> Result<HostKeyText, NoHostKey> {
        let digits = text.strip_prefix(KEY_PREFIX).ok_or(NoHostKey)?;
        let is_digit = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'+' | b'/');
        let is_key = digits.len() == KEY_DIGITS && digits.bytes().all(is_digit);
        is_key.then(|| HostKeyText(text.to_owned())).ok_or(NoHostKey)
    }
}

impl TryFrom<String> for HostKeyText {
    type Error = NoHostKey;

    fn try_from(text: String) -> Result<HostKeyText, NoHostKey> {
        text.parse()
    }
}

impl From<HostKeyText> for String {
    fn from(key: HostKeyText) -> String {
        key.0
    }
}

impl fmt::Display for HostKeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The way in which a peer's key became known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// The key was found at the first connection to one of the peer's addresses. It is not verified.
    FirstUse,
    /// People have compared words at both ends.
    Paired,
    /// An administrator has given the key to this host.
    Configured,
}

impl fmt::Display for KnownBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KnownBy::FirstUse => "first use",
            KnownBy::Paired => "paired",
            KnownBy::Configured => "configured",
        })
    }
}

/// A host whose key is known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownPeer {
    /// Its key.
    pub key: HostKeyText,
    /// Local name of the peer, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Addresses at which the key was found or for which it was given.
    pub addresses: Vec<IpAddr>,
    /// The way in which the key became known.
    pub by: KnownBy,
    /// Time when the key became known, by a connection or otherwise.
    pub first_seen: UnixMs,
    /// Time of the latest connection to the peer, to the minute; equals `first_seen` before the first connection.
    pub last_seen: UnixMs,
}

impl KnownPeer {
    /// Returns a peer without a name and without addresses.
    fn new(now: UnixMs, key: &HostKeyText, by: KnownBy) -> KnownPeer {
        let (key, addresses) = (key.clone(), Vec::new());
        KnownPeer { key, name: None, addresses, by, first_seen: now, last_seen: now }
    }
}

/// The known peers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownPeers {
    all: BTreeMap<HostKeyText, KnownPeer>,
    by_address: BTreeMap<IpAddr, HostKeyText>,
    has_changed: bool,
}

/// Reasons why a key was not added.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddError {
    /// The name is not valid.
    #[error("a name has 1 to {NAME_MAX} characters, none of them a control character, and is no address")]
    Name,
    /// Another host has the name.
    #[error(
        "{name} is the name of the host with the key {key}: forget that one first, or choose another name"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The other host's key.
        key: HostKeyText,
    },
    /// The address belongs to another host, whose key was given or verified.
    #[error("{address} belongs to the host with the key {key}: forget that one first (sctpify peers forget)")]
    AddressTaken {
        /// The address.
        address: IpAddr,
        /// The other host's key.
        key: HostKeyText,
    },
    /// The table has too many hosts, or a host has too many addresses.
    #[error("there is room for {PEERS_MAX} hosts with {ADDRESSES_MAX} addresses each: forget one first")]
    NoRoom,
}

/// Relation of a key to an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recognition {
    /// The key is the known key of the address.
    Known,
    /// The address had no known key.
    New,
    /// The address has another known key, which is the value of this variant.
    Other(HostKeyText),
    /// The address had no known key, and the key is not recorded. The table is full, or the peer has too many addresses.
    NoRoom,
}

impl KnownPeers {
    /// Returns the peer at an address.
    pub fn find(&self, address: IpAddr) -> Option<&KnownPeer> {
        self.all.get(self.by_address.get(&normalise(address))?)
    }

    /// Returns the peer with this name or key.
    pub fn named(&self, which: &str) -> Option<&KnownPeer> {
        let by_key = || self.all.get(&which.parse::<HostKeyText>().ok()?);
        self.all.values().find(|peer| peer.name.as_deref() == Some(which)).or_else(by_key)
    }

    /// Returns the peer with a key.
    pub fn of_key(&self, key: &HostKeyText) -> Option<&KnownPeer> {
        self.all.get(key)
    }

    /// Returns all peers, in the order of their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &KnownPeer> {
        self.all.values()
    }

    /// Compares a key that was found at an address with the known key of the address.
    pub fn recognise(&self, address: IpAddr, key: &HostKeyText) -> Recognition {
        match self.by_address.get(&normalise(address)) {
            None => Recognition::New,
            Some(known) if known == key => Recognition::Known,
            Some(known) => Recognition::Other(known.clone()),
        }
    }

    /// Records that a connection of this host to `address` found `key` there. Returns the relation of the key to the address before this
    /// call. Changes nothing if the address has another key. To make room, a full table drops one peer of first use that was not seen for
    /// [`STALE_MS`]: the peer whose last connection is oldest. If no such peer exists, the new key is not recorded. Otherwise, an attacker
    /// with many addresses could displace the keys of other hosts.
    pub fn meet(&mut self, now: UnixMs, address: IpAddr, key: &HostKeyText) -> Recognition {
        let (address, recognition) = (normalise(address), self.recognise(address, key));
        if matches!(recognition, Recognition::Other(_)) {
            return recognition;
        }
        let is_full = match self.all.get(key) {
            Some(peer) => recognition == Recognition::New && peer.addresses.len() >= ADDRESSES_MAX,
            None => self.all.len() >= PEERS_MAX && !self.make_room(now),
        };
        if is_full {
            return Recognition::NoRoom;
        }
        let peer = self.all.entry(key.clone()).or_insert_with(|| KnownPeer::new(now, key, KnownBy::FirstUse));
        if now >= peer.last_seen.plus(SEEN_STEP_MS) {
            peer.last_seen = now;
            self.has_changed = true;
        }
        if !peer.addresses.contains(&address) {
            peer.addresses.push(address);
            self.by_address.insert(address, key.clone());
            self.has_changed = true;
        }
        recognition
    }

    /// Records a key that an administrator has given for these addresses, and the name of the host. Replaces keys of first use at these
    /// addresses. If this key itself was known by first use, also removes its other addresses. An attacker at such an address may have
    /// relayed the packets of the host.
    ///
    /// # Errors
    /// If the name is not valid or belongs to another host, if an address belongs to another host whose key was given or verified, or if
    /// there is no room. Nothing has then changed.
    pub fn add(
        &mut self,
        now: UnixMs,
        key: &HostKeyText,
        name: Option<&str>,
        addresses: &[IpAddr],
    ) -> Result<(), AddError> {
        self.check_name(name, key)?;
        let mut addresses: Vec<IpAddr> = addresses.iter().copied().map(normalise).collect();
        for address in &addresses {
            let other = self.find(*address).filter(|peer| peer.key != *key && peer.by != KnownBy::FirstUse);
            if let Some(other) = other {
                return Err(AddError::AddressTaken { address: *address, key: other.key.clone() });
            }
        }
        let known = self.all.get(key);
        let given = known.filter(|peer| peer.by != KnownBy::FirstUse);
        addresses.extend(given.iter().flat_map(|peer| &peer.addresses));
        addresses.sort_unstable();
        addresses.dedup();
        let is_new = known.is_none();
        if addresses.len() > ADDRESSES_MAX || is_new && self.all.len() >= PEERS_MAX && !self.make_room(now) {
            return Err(AddError::NoRoom);
        }
        for address in &addresses {
            self.leave(*address, key);
        }
        self.by_address.retain(|_, owner| owner != key);
        let peer =
            self.all.entry(key.clone()).or_insert_with(|| KnownPeer::new(now, key, KnownBy::Configured));
        if peer.by == KnownBy::FirstUse {
            peer.by = KnownBy::Configured;
        }
        peer.name = name.map(str::to_owned).or(peer.name.take());
        for address in &addresses {
            self.by_address.insert(*address, key.clone());
        }
        peer.addresses = addresses;
        self.has_changed = true;
        Ok(())
    }

    /// Checks whether a host with this key may have this name.
    fn check_name(&self, name: Option<&str>, key: &HostKeyText) -> Result<(), AddError> {
        let Some(name) = name else { return Ok(()) };
        let is_wrong = name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control);
        if is_wrong || name.parse::<IpAddr>().is_ok() || name.starts_with(KEY_PREFIX) {
            return Err(AddError::Name);
        }
        match self.all.values().find(|peer| peer.name.as_deref() == Some(name) && peer.key != *key) {
            Some(other) => Err(AddError::NameTaken { name: name.to_owned(), key: other.key.clone() }),
            None => Ok(()),
        }
    }

    /// Records that people at both ends have compared the words of an association. `key` is the key of the other host. Adds no address,
    /// because words prove no address.
    ///
    /// # Errors
    /// If the name is not valid or belongs to another host, or if there is no room. Nothing has then changed.
    pub fn pair(&mut self, now: UnixMs, key: &HostKeyText, name: Option<&str>) -> Result<(), AddError> {
        self.check_name(name, key)?;
        if !self.all.contains_key(key) && self.all.len() >= PEERS_MAX && !self.make_room(now) {
            return Err(AddError::NoRoom);
        }
        let peer = self.all.entry(key.clone()).or_insert_with(|| KnownPeer::new(now, key, KnownBy::Paired));
        if peer.by == KnownBy::FirstUse {
            peer.by = KnownBy::Paired;
        }
        peer.name = name.map(str::to_owned).or(peer.name.take());
        self.has_changed = true;
        Ok(())
    }

    /// Removes an address from the host that has it, unless that host has this key.
    fn leave(&mut self, address: IpAddr, key: &HostKeyText) {
        if self.by_address.get(&address).is_some_and(|old| old != key) {
            self.leave_one(address);
        }
    }

    /// Removes an address from the host that has it. Then forgets the host if it is of first use and has no address left.
    fn leave_one(&mut self, address: IpAddr) {
        let Some(old) = self.by_address.remove(&address) else { return };
        let Some(peer) = self.all.get_mut(&old) else { return };
        peer.addresses.retain(|other| *other != address);
        if peer.addresses.is_empty() && peer.by == KnownBy::FirstUse {
            self.all.remove(&old);
        }
    }

    fn make_room(&mut self, now: UnixMs) -> bool {
        let is_stale =
            |peer: &&KnownPeer| peer.by == KnownBy::FirstUse && now >= peer.last_seen.plus(STALE_MS);
        let by_use = self.all.values().filter(is_stale);
        let oldest = by_use.min_by_key(|peer| peer.last_seen.0).map(|peer| peer.key.clone());
        oldest.is_some_and(|key| self.remove(&key).is_some())
    }

    fn remove(&mut self, key: &HostKeyText) -> Option<KnownPeer> {
        let peer = self.all.remove(key)?;
        for address in &peer.addresses {
            self.by_address.remove(address);
        }
        self.has_changed = true;
        Some(peer)
    }

    /// Forgets the peer with this name, address or key, and returns the peer.
    pub fn forget(&mut self, which: &str) -> Option<KnownPeer> {
        let by_address = || which.parse().ok().and_then(|address| self.find(address));
        let key = self.named(which).or_else(by_address)?.key.clone();
        self.remove(&key)
    }

    /// Adds an entry of the file. Returns false if the entry breaks an invariant.
    fn restore(&mut self, mut peer: KnownPeer) -> bool {
        peer.addresses.iter_mut().for_each(|address| *address = normalise(*address));
        let is_taken = |address: &IpAddr| self.by_address.contains_key(address);
        let names =
            |name: &Option<String>| name.is_some() && self.all.values().any(|other| other.name == *name);
        let is_wrong = self.all.len() >= PEERS_MAX
            || self.all.contains_key(&peer.key)
            || names(&peer.name)
            || peer.addresses.len() > ADDRESSES_MAX
            || peer.addresses.iter().any(is_taken);
        if is_wrong {
            return false;
        }
        for address in &peer.addresses {
            self.by_address.insert(*address, peer.key.clone());
        }
        self.all.insert(peer.key.clone(), peer);
        true
    }

    /// Applies the changes of this table since `base` to `file`, the table of a file that other daemons also write. Returns the result. If
    /// the tables have different keys for an address, the key in `file` stays, with one exception: a key of first use in `file` gives way
    /// to a key that was given or verified in this table.
    pub fn merged(&self, base: &KnownPeers, file: KnownPeers) -> KnownPeers {
        let mut merged = file;
        for key in base.all.keys().filter(|key| !self.all.contains_key(*key)) {
            merged.remove(key);
        }
        for peer in self.all.values() {
            let old = base.all.get(&peer.key);
            if old != Some(peer) {
                merged.take_over(peer, old);
            }
        }
        merged.has_changed = self.has_changed;
        merged
    }

    /// Applies to this table the changes of one peer in another table. `old` is the entry before the changes, and `peer` the entry after
    /// them.
    fn take_over(&mut self, peer: &KnownPeer, old: Option<&KnownPeer>) {
        let had = |address: &IpAddr| old.is_some_and(|old| old.addresses.contains(address));
        let is_seen_alone = old
            .is_some_and(|old| (&old.name, &old.addresses, old.by) == (&peer.name, &peer.addresses, peer.by));
        let is_known = self.all.contains_key(&peer.key);
        // If another daemon has forgotten a host, and this daemon has only seen the host again, the host stays forgotten.
        if !is_known && (is_seen_alone || self.all.len() >= PEERS_MAX) {
            return;
        }
        for address in old.iter().flat_map(|old| &old.addresses).filter(|a| !peer.addresses.contains(*a)) {
            if self.by_address.get(address) == Some(&peer.key) {
                self.leave_one(*address);
            }
        }
        let is_name_free =
            |name: &str| self.all.values().all(|p| p.name.as_deref() != Some(name) || p.key == peer.key);
        let name = peer.name.clone().filter(|name| is_name_free(name));
        let mut entry = match self.all.remove(&peer.key) {
            Some(entry) => entry,
            None => KnownPeer { name: None, addresses: Vec::new(), ..peer.clone() },
        };
        for address in peer.addresses.iter().filter(|address| !had(address) || !is_known) {
            let owner = self.by_address.get(address).and_then(|key| self.all.get(key));
            let is_free = owner.is_none_or(|o| o.by == KnownBy::FirstUse && peer.by != KnownBy::FirstUse);
            let is_room = entry.addresses.len() < ADDRESSES_MAX && !entry.addresses.contains(address);
            if is_free && is_room {
                self.leave_one(*address);
                entry.addresses.push(*address);
                self.by_address.insert(*address, peer.key.clone());
            }
        }
        if old.is_none_or(|old| old.name != peer.name) {
            entry.name = name.or(entry.name);
        }
        if old.is_none_or(|old| old.by != peer.by) && peer.by != KnownBy::FirstUse {
            entry.by = peer.by;
        }
        entry.last_seen = entry.last_seen.max(peer.last_seen);
        if entry.by != KnownBy::FirstUse || !entry.addresses.is_empty() {
            self.all.insert(peer.key.clone(), entry);
        }
    }

    /// Reports whether anything has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }
}

/// Reasons why known peers were not read.
#[derive(Debug, thiserror::Error)]
pub enum KnownPeersError {
    /// The file cannot be read.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The failure.
        error: std::io::Error,
    },
    /// A line is not valid.
    #[error("{}: {error}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: WrongPeer,
    },
}

/// An invalid line of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "line {line} is no known peer, or has the key, the name or an address of another one: correct it, or remove the line"
)]
pub struct WrongPeer {
    /// The line, from 1.
    pub line: usize,
}

/// Loads the peers of a file. If the file does not exist, returns no peers.
///
/// # Errors
/// If the file cannot be read, or if a line is not valid.
pub fn load_peers(path: &Path) -> Result<KnownPeers, KnownPeersError> {
    let failed = |error| KnownPeersError::Io { path: path.into(), error };
    let Some(bytes) = FILE.read(path).map_err(failed)? else { return Ok(KnownPeers::default()) };
    let text = String::from_utf8(bytes).map_err(|error| failed(std::io::Error::other(error)))?;
    parse_peers(&text).map_err(|error| KnownPeersError::Line { path: path.into(), error })
}

/// Parses the text of a file.
///
/// # Errors
/// The first invalid line.
pub fn parse_peers(text: &str) -> Result<KnownPeers, WrongPeer> {
    let (mut peers, mut lines) = (KnownPeers::default(), text.lines());
    if lines.next() != Some(FILE.head) {
        return Err(WrongPeer { line: 1 });
    }
    for (index, line) in lines.enumerate() {
        if !serde_json::from_str(line).is_ok_and(|peer| peers.restore(peer)) {
            return Err(WrongPeer { line: index + 2 });
        }
    }
    Ok(peers)
}

/// Replaces the contents of a file by these peers, atomically.
///
/// # Errors
/// If the file cannot be written. The file is then unchanged.
pub fn save_peers<'a>(path: &Path, peers: impl Iterator<Item = &'a KnownPeer>) -> Result<(), FileError> {
    FILE.save(path, peers)
}

/// Prints peers as the text of a file.
///
/// # Errors
/// If an entry cannot be written as JSON.
pub fn print_peers<'a>(peers: impl Iterator<Item = &'a KnownPeer>) -> std::io::Result<String> {
    FILE.print(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMs = UnixMs(1_700_000_000_000);

    fn key(digit: char) -> HostKeyText {
        format!("{KEY_PREFIX}{}", digit.to_string().repeat(KEY_DIGITS)).parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_text_that_is_no_key_is_refused() {
        for wrong in ["", "sctpify1:", "sctpify1:AAAA", &key('A').as_str()[1..], &format!("{}A", key('A'))] {
            assert_eq!(wrong.parse::<HostKeyText>(), Err(NoHostKey), "{wrong}");
        }
        let strange = key('A').as_str().replace('A', "-");
        assert_eq!(strange.parse::<HostKeyText>(), Err(NoHostKey));
    }

    #[test]
    fn the_first_key_of_an_address_is_written_down_and_another_one_is_not() {
        let mut peers = KnownPeers::default();
        assert_eq!(peers.meet(NOW, ip("10.0.0.1"), &key('A')), Recognition::New);
        assert_eq!(peers.meet(NOW.plus(SEEN_STEP_MS), ip("::ffff:10.0.0.1"), &key('A')), Recognition::Known);
        assert_eq!(
            peers.meet(NOW.plus(2 * SEEN_STEP_MS), ip("10.0.0.1"), &key('B')),
            Recognition::Other(key('A'))
        );
        let known = peers.find(ip("10.0.0.1")).unwrap();
        assert_eq!((&known.key, known.first_seen, known.last_seen), (&key('A'), NOW, NOW.plus(SEEN_STEP_MS)));
        assert!(peers.of_key(&key('B')).is_none());
        peers.take_changed();
        peers.meet(NOW.plus(SEEN_STEP_MS + 1), ip("10.0.0.1"), &key('A'));
        assert!(!peers.take_changed(), "not written for each connection");
    }

    #[test]
    fn one_host_may_have_several_addresses_and_all_are_forgotten_together() {
        let mut peers = KnownPeers::default();
        for address in ["10.0.0.1", "10.0.0.2", "2001:db8::1"] {
            peers.meet(NOW, ip(address), &key('A'));
        }
        peers.meet(NOW, ip("10.0.0.3"), &key('B'));
        assert_eq!(peers.forget("10.0.0.2").unwrap().addresses.len(), 3);
        assert_eq!(peers.recognise(ip("10.0.0.1"), &key('B')), Recognition::New);
        assert_eq!(peers.forget("10.0.0.2"), None);
        assert_eq!(peers.iter().len(), 1);
        assert!(peers.forget(key('B').as_str()).is_some());
    }

    #[test]
    fn a_table_survives_the_disk_and_a_wrong_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/peers");
        assert_eq!(load_peers(&path).unwrap(), KnownPeers::default());
        let mut peers = KnownPeers::default();
        peers.meet(NOW, ip("10.0.0.1"), &key('A'));
        peers.meet(NOW, ip("2001:db8::1"), &key('B'));
        assert!(peers.take_changed());
        save_peers(&path, peers.iter()).unwrap();
        assert_eq!(load_peers(&path).unwrap(), peers);
        let text = std::fs::read_to_string(&path).unwrap();
        let twice = format!("{text}{}\n", text.lines().nth(1).unwrap());
        assert_eq!(parse_peers(&twice), Err(WrongPeer { line: 4 }));
        let taken = text.replace("2001:db8::1", "10.0.0.1");
        assert_eq!(parse_peers(&taken), Err(WrongPeer { line: 3 }));
        assert_eq!(parse_peers(""), Err(WrongPeer { line: 1 }));
        assert_eq!(parse_peers(&text.replace("version 1", "version 2")), Err(WrongPeer { line: 1 }));
    }

    #[test]
    fn a_full_table_forgets_only_peers_that_were_not_seen_for_long() {
        let mut peers = KnownPeers::default();
        let numbered = |n: usize| format!("{KEY_PREFIX}{n:0KEY_DIGITS$}").parse::<HostKeyText>().unwrap();
        let address = |n: usize| IpAddr::from(u32::try_from(n + 1).unwrap().to_be_bytes());
        for n in 0..PEERS_MAX {
            assert_eq!(peers.meet(NOW.plus(n as u64), address(n), &numbered(n)), Recognition::New);
        }
        let next = (address(PEERS_MAX), numbered(PEERS_MAX));
        assert_eq!(peers.meet(NOW.plus(STALE_MS - 1), next.0, &next.1), Recognition::NoRoom);
        assert!(peers.find(address(0)).is_some() && peers.find(next.0).is_none());
        assert_eq!(peers.meet(NOW.plus(STALE_MS), next.0, &next.1), Recognition::New);
        assert_eq!(peers.iter().len(), PEERS_MAX);
        assert!(peers.find(address(0)).is_none() && peers.find(next.0).is_some());
    }

    #[test]
    fn a_configured_key_replaces_a_first_use_key_and_no_other() {
        let mut peers = KnownPeers::default();
        let (one, two) = (ip("10.0.0.1"), ip("10.0.0.2"));
        peers.meet(NOW, one, &key('A'));
        peers.add(NOW, &key('B'), Some("beta"), &[one, two]).unwrap();
        assert_eq!(peers.recognise(one, &key('B')), Recognition::Known);
        assert!(peers.of_key(&key('A')).is_none(), "it has no address left");
        let beta = peers.find(two).unwrap();
        assert_eq!((beta.by, beta.name.as_deref()), (KnownBy::Configured, Some("beta")));
        assert_eq!(
            peers.add(NOW, &key('C'), None, &[two]),
            Err(AddError::AddressTaken { address: two, key: key('B') })
        );
        assert_eq!(
            peers.add(NOW, &key('C'), Some("beta"), &[ip("10.0.0.3")]),
            Err(AddError::NameTaken { name: "beta".into(), key: key('B') })
        );
        for name in ["", "a\nb", "10.0.0.9", &"x".repeat(NAME_MAX + 1)] {
            assert_eq!(
                peers.add(NOW, &key('C'), Some(name), &[ip("10.0.0.3")]),
                Err(AddError::Name),
                "{name}"
            );
        }
        let many: Vec<IpAddr> = (0..=ADDRESSES_MAX).map(|n| IpAddr::from([10, 1, 0, n as u8])).collect();
        assert_eq!(peers.add(NOW, &key('C'), None, &many), Err(AddError::NoRoom));
        assert_eq!(peers.iter().len(), 1, "a refused key changes nothing");
        peers.add(NOW, &key('B'), None, &[ip("::ffff:10.0.0.4")]).unwrap();
        let beta = peers.find(ip("10.0.0.4")).unwrap();
        assert_eq!((beta.addresses.len(), beta.name.as_deref()), (3, Some("beta")), "addresses are added");
        assert!(parse_peers(&print_peers(peers.iter()).unwrap()).is_ok());
    }

    #[test]
    fn a_paired_key_keeps_its_addresses_and_no_configured_key_takes_them() {
        let mut peers = KnownPeers::default();
        peers.meet(NOW, ip("10.0.0.1"), &key('A'));
        peers.pair(NOW, &key('A'), Some("alpha")).unwrap();
        let alpha = peers.find(ip("10.0.0.1")).unwrap();
        assert_eq!((alpha.by, alpha.name.as_deref()), (KnownBy::Paired, Some("alpha")));
        peers.pair(NOW, &key('B'), None).unwrap();
        assert!(peers.of_key(&key('B')).unwrap().addresses.is_empty(), "it was never dialled");
        assert!(matches!(peers.pair(NOW, &key('C'), Some("alpha")), Err(AddError::NameTaken { .. })));
        let taken = peers.add(NOW, &key('C'), None, &[ip("10.0.0.1")]);
        assert_eq!(taken, Err(AddError::AddressTaken { address: ip("10.0.0.1"), key: key('A') }));
        assert!(parse_peers(&print_peers(peers.iter()).unwrap()).is_ok());
    }

    #[test]
    fn configuring_a_first_use_key_keeps_only_the_configured_addresses() {
        let mut peers = KnownPeers::default();
        for last in 1..=ADDRESSES_MAX {
            peers.meet(NOW, IpAddr::from([10, 0, 0, u8::try_from(last).unwrap()]), &key('A'));
        }
        peers.add(NOW, &key('A'), Some("alpha"), &[ip("10.0.0.1")]).unwrap();
        assert_eq!(peers.recognise(ip("10.0.0.2"), &key('B')), Recognition::New, "nobody gave that address");
        assert_eq!(peers.find(ip("10.0.0.1")).unwrap().by, KnownBy::Configured);
        assert_eq!(peers.forget("alpha").unwrap().addresses, [ip("10.0.0.1")]);
    }

    #[test]
    fn a_merge_keeps_additions_and_removals_of_both_daemons() {
        let mut base = KnownPeers::default();
        for (address, digit) in [("10.0.0.1", 'A'), ("10.0.0.2", 'B'), ("10.0.0.3", 'C')] {
            base.meet(NOW, ip(address), &key(digit));
        }
        let later = NOW.plus(SEEN_STEP_MS);
        let mut file = base.clone();
        file.forget("10.0.0.1").unwrap();
        file.meet(NOW, ip("10.0.0.4"), &key('D'));
        file.meet(NOW, ip("10.0.0.5"), &key('E'));
        let mut here = base.clone();
        here.meet(later, ip("10.0.0.1"), &key('A'));
        here.meet(later, ip("10.0.0.22"), &key('B'));
        here.forget("10.0.0.3").unwrap();
        here.add(NOW, &key('F'), Some("f"), &[ip("10.0.0.4")]).unwrap();
        here.meet(NOW, ip("10.0.0.5"), &key('G'));
        here.meet(NOW, ip("10.0.0.6"), &key('G'));
        let merged = here.merged(&base, file.clone());
        assert_eq!(merged.find(ip("10.0.0.1")), None, "forgotten in the file, and only seen here");
        let b = merged.of_key(&key('B')).unwrap();
        assert_eq!((b.addresses.len(), b.last_seen), (2, later));
        assert_eq!(merged.of_key(&key('C')), None, "forgotten here");
        assert_eq!(merged.recognise(ip("10.0.0.4"), &key('F')), Recognition::Known, "given here");
        assert_eq!(merged.of_key(&key('D')), None, "found there");
        assert_eq!(merged.recognise(ip("10.0.0.5"), &key('G')), Recognition::Other(key('E')));
        assert_eq!(merged.recognise(ip("10.0.0.6"), &key('G')), Recognition::Known);
        assert_eq!(parse_peers(&print_peers(merged.iter()).unwrap()).unwrap().all, merged.all);
        assert_eq!(here.merged(&here, file.clone()).all, file.all, "nothing has changed here");
        assert_eq!(merged.merged(&base, base.clone()).all, merged.all, "nothing has changed there");
    }

    #[test]
    fn a_new_address_does_not_displace_an_address_of_a_full_peer() {
        let mut peers = KnownPeers::default();
        let address = |n: usize| IpAddr::from([10, 0, 0, u8::try_from(n).unwrap()]);
        for n in 0..ADDRESSES_MAX {
            assert_eq!(peers.meet(NOW, address(n), &key('A')), Recognition::New);
        }
        assert_eq!(peers.meet(NOW, address(ADDRESSES_MAX), &key('A')), Recognition::NoRoom);
        assert_eq!(peers.recognise(address(0), &key('B')), Recognition::Other(key('A')));
        assert_eq!(peers.meet(NOW, address(3), &key('A')), Recognition::Known);
    }
}
