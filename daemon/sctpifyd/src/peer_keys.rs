//! Holds the secrets that this host shares with other sctpify hosts. With such a secret, both hosts prove their identity at the
//! start of each association (RFC 4895).
//!
//! [`control::parse_peer_keys`] parses the file. Secrets never appear in logs, answers or errors.

use std::net::IpAddr;

use bytes::Bytes;
use control::{PeerKey, PeerKeyError, parse_peer_keys};
use keying::PresharedKey;
use rules::IpNet;
use sctp::{AuthConfig, ChunkType};

/// Key identifiers of the shared key, and of the empty key that a host without a shared key uses. Both ends must use the same
/// identifiers.
const SHARED: u16 = 1;
const EMPTY: u16 = 0;

/// Chunks that a peer must sign: all chunks that RFC 4895 allows (section 3.2 excludes INIT, INIT ACK and SHUTDOWN COMPLETE).
/// The engine adds ASCONF and ASCONF-ACK. A host that has lost the state of an association cannot sign an ABORT for it. After
/// an unsigned ABORT, the engine therefore checks with HEARTBEATs whether the peer still has the association.
const SIGNED: [ChunkType; 16] = [
    ChunkType::COOKIE_ECHO,
    ChunkType::COOKIE_ACK,
    ChunkType::DATA,
    ChunkType::I_DATA,
    ChunkType::SACK,
    ChunkType::HEARTBEAT,
    ChunkType::HEARTBEAT_ACK,
    ChunkType::ABORT,
    ChunkType::ERROR,
    ChunkType::SHUTDOWN,
    ChunkType::SHUTDOWN_ACK,
    ChunkType::ECNE,
    ChunkType::CWR,
    ChunkType::FORWARD_TSN,
    ChunkType::I_FORWARD_TSN,
    ChunkType::RE_CONFIG,
];

/// Hosts and their keys.
#[derive(Clone, Default, Debug)]
pub(crate) struct PeerKeys {
    /// The hosts' keys, longest prefixes first.
    keys: Vec<PeerKey>,
}

impl PeerKeys {
    /// Parses the text of the key file at `path`.
    pub(crate) fn parse(path: &str, text: &str) -> Result<PeerKeys, PeerKeyError> {
        Ok(PeerKeys { keys: parse_peer_keys(path, text)? })
    }

    /// Returns the authentication of associations with this host, or `None` if no key covers the host.
    pub(crate) fn auth_for(&self, peer: IpAddr, is_required: bool) -> Option<AuthConfig> {
        let key = Bytes::copy_from_slice(self.find(peer)?.secret());
        let mut auth = AuthConfig {
            chunks: SIGNED.into_iter().collect(),
            active_key: SHARED,
            by_direction: true,
            required: is_required,
            ..AuthConfig::default()
        };
        auth.keys.insert(SHARED, key.clone());
        if is_required {
            // The shared key also replaces the empty key, so packets that use the empty key's identifier need the secret too.
            auth.keys.insert(EMPTY, key);
        }
        Some(auth)
    }

    /// Returns the key that this host shares with a peer. The key is mixed into the keys of encrypted associations.
    pub(crate) fn preshared(&self, peer: IpAddr, is_required: bool) -> Option<PresharedKey> {
        let key = PresharedKey::new(self.find(peer)?.secret())?;
        Some(if is_required { key } else { key.optional() })
    }

    /// Describes, for people, the hosts to which this peer's key belongs.
    pub(crate) fn whose(&self, peer: IpAddr) -> Option<String> {
        let net = self.find(peer)?.net();
        Some(net.map_or_else(|| "all hosts".to_owned(), |net| net.to_string()))
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    fn find(&self, peer: IpAddr) -> Option<&PeerKey> {
        let speaks_for = |net: IpNet| net.contains(peer);
        self.keys.iter().find(|key| key.net().is_none_or(speaks_for))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef";

    fn parse(text: &str) -> PeerKeys {
        PeerKeys::parse("keys", text).expect("good lines")
    }

    fn key_of(keys: &PeerKeys, peer: [u8; 4]) -> Option<Bytes> {
        keys.auth_for(peer.into(), true).map(|auth| auth.keys[&SHARED].clone())
    }

    #[test]
    fn the_longest_prefix_counts() {
        let text = format!("# keys\n* {KEY}-all\n10.0.0.0/8\t{KEY}-net\n10.1.2.3 hex:{}\n", "ab".repeat(16));
        let keys = parse(&text);
        assert_eq!(key_of(&keys, [10, 1, 2, 3]).as_deref(), Some(&[0xab; 16][..]));
        assert_eq!(key_of(&keys, [10, 9, 9, 9]).as_deref(), Some(&b"0123456789abcdef-net"[..]));
        assert_eq!(key_of(&keys, [192, 0, 2, 1]).as_deref(), Some(&b"0123456789abcdef-all"[..]));
        assert_eq!(keys.whose([10, 9, 9, 9].into()).as_deref(), Some("10.0.0.0/8"));
    }

    #[test]
    fn a_host_without_a_key_is_not_asked_for_one() {
        let keys = parse(&format!("10.0.0.0/8 {KEY}\n"));
        assert!(keys.auth_for([192, 0, 2, 1].into(), true).is_none());
    }

    #[test]
    fn the_empty_key_is_accepted_only_if_no_shared_key_is_required() {
        let keys = parse(&format!("* {KEY}\n"));
        let has_empty = |required| {
            keys.auth_for([192, 0, 2, 1].into(), required).is_some_and(|a| !a.keys.contains_key(&EMPTY))
        };
        assert!(!has_empty(true) && has_empty(false));
    }
}
