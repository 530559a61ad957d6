//! Encryption of associations (keys `secure`, `host_key` and `peer` in `[sctp]`): this program's key, the keys of known peers, and the
//! decision on each peer.
//!
//! A known peer has an address and a key in the configuration. Its address leads to an association only if the peer has proven this key.
//! Other peers prove a key that nobody verifies: their messages are encrypted, but the peer may be anyone.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use base::Time;
use keying::{HostKey, KeyManager, Keyring, Outcome, PublicKey};
use sctp::{AbortCause, AssociationId, Endpoint, Event, ProtectionConfig};

use crate::config::{SctpConfig, Secure};
use crate::error::SipError;

/// Limit on the time of a key handshake, in seconds. It allows for two losses of a message at the longest RTO.
const KEYS_LIMIT_S: u16 = 10;

/// Limit on the key messages of unknown peers. A handshake has two messages of the client and costs about a millisecond of the proxy's only
/// thread, so a flood leaves time for other messages. The source of a message is proven, because the cookie came back.
const ALL: Rate = Rate { interval: Duration::from_micros(1250), burst: 2000 };
/// Limit on the key messages from one neighbourhood (IPv4 /24, IPv6 /56). After a power failure, 500 telephones behind one address can
/// connect at once.
const ONE: Rate = Rate { interval: Duration::from_millis(5), burst: 1000 };
/// Number of buckets for neighbourhoods. Several neighbourhoods may share a bucket.
const BUCKETS: usize = 1024;

/// Rate and size of a token bucket.
struct Rate {
    interval: Duration,
    burst: u32,
}

/// A token bucket, represented by the time at which it will be full again.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(Time);

impl Bucket {
    fn take(&mut self, now: Time, rate: &Rate) -> bool {
        let spent_until = self.0.max(now);
        let has_token = spent_until.since(now) < rate.interval * rate.burst;
        if has_token {
            self.0 = spent_until + rate.interval;
        }
        has_token
    }
}

/// Token buckets for the key messages of unknown peers.
#[derive(Debug)]
struct Budget {
    all: Bucket,
    neighbourhoods: Vec<Bucket>,
    hash: RandomState,
}

impl Budget {
    fn new() -> Budget {
        Budget {
            all: Bucket::default(),
            neighbourhoods: vec![Bucket::default(); BUCKETS],
            hash: RandomState::new(),
        }
    }

    fn take(&mut self, now: Time, peer: IpAddr) -> bool {
        let neighbourhood = match peer {
            IpAddr::V4(ip) => u64::from(ip.to_bits() >> 8),
            IpAddr::V6(ip) => (ip.to_bits() >> 72) as u64,
        };
        let place = self.hash.hash_one((peer.is_ipv4(), neighbourhood)) as usize % BUCKETS;
        self.neighbourhoods[place].take(now, &ONE) && self.all.take(now, &ALL)
    }
}

/// The key management of a listener's associations.
#[derive(Debug)]
pub(super) struct Keys {
    manager: KeyManager,
    is_required: bool,
    only_known: bool,
    known: BTreeMap<IpAddr, PublicKey>,
    budget: Budget,
}

/// The key that the peer of an encrypted association has proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerKey {
    /// The key.
    pub(crate) key: PublicKey,
    /// True if the configuration has this key.
    pub(crate) is_verified: bool,
}

impl Keys {
    /// Reads or creates this program's key. Returns `None` if the configuration turns encryption off.
    ///
    /// # Errors
    /// If the key file cannot be used.
    pub(super) fn open(config: &SctpConfig) -> Result<Option<Keys>, SipError> {
        if config.secure == Secure::Off {
            return Ok(None);
        }
        let keyring =
            Keyring::new(host_key(config)?).map_err(|error| SipError::HostKey(error.to_string()))?;
        tracing::info!(key = %keyring.public(), "SCTP associations can be encrypted");
        Ok(Some(Keys {
            manager: KeyManager::new(keyring, None),
            is_required: config.secure == Secure::Require,
            only_known: config.known_peers_only,
            known: config.peers.iter().map(|peer| (peer.address, peer.key)).collect(),
            budget: Budget::new(),
        }))
    }

    /// Returns the offer of protection for an association with any host.
    pub(super) fn offer(&self) -> ProtectionConfig {
        protection(self.is_required)
    }

    /// Returns the offer of protection for an association with this host.
    pub(super) fn offer_to(&self, peer: IpAddr) -> ProtectionConfig {
        protection(self.must_protect(peer))
    }

    /// Reports whether associations with this host must be encrypted.
    pub(super) fn must_protect(&self, peer: IpAddr) -> bool {
        self.is_required || self.knows(peer)
    }

    /// Reports whether the configuration has a key for this address.
    pub(super) fn knows(&self, address: IpAddr) -> bool {
        self.known.contains_key(&address)
    }

    /// Reports whether the peer of an association has proven a key.
    pub(super) fn has_proven(&self, id: AssociationId) -> bool {
        self.manager.peer(id).is_some()
    }

    /// Begins the handshake of an association that this program has just opened. If the handshake cannot begin, aborts the association.
    pub(super) fn begin(&mut self, now: Time, id: AssociationId, engine: &mut Endpoint) {
        if let Err(error) = self.manager.begin(now, id, engine) {
            tracing::warn!(%error, "a key handshake cannot begin");
            engine.abort(now, id, AbortCause::user("no keys"));
        }
    }

    /// Reports whether a key message from this host may be processed now. Messages of known peers always may.
    pub(super) fn admits(&mut self, now: Time, peer: IpAddr) -> bool {
        self.knows(peer) || self.budget.take(now, peer)
    }

    /// Forgets the keys of an association.
    pub(super) fn forget(&mut self, now: Time, id: AssociationId) {
        self.manager.forget(now, id);
    }

    /// Handles an event of an association whose peer has this address. Accepts the peer, or aborts the association and returns the reason.
    pub(super) fn on_event(
        &mut self,
        now: Time,
        id: AssociationId,
        peer: IpAddr,
        event: &Event,
        engine: &mut Endpoint,
    ) -> Option<String> {
        match self.manager.on_event(now, id, event, engine)? {
            Outcome::Peer { key, .. } => {
                let Some(reason) = self.refusal(peer, key) else {
                    self.manager.accept(now, id, engine);
                    return None;
                };
                engine.abort(now, id, AbortCause::user(reason));
                Some(format!("{reason}: {key}"))
            }
            Outcome::Failed(error) => Some(format!("no keys were agreed on: {error}")),
        }
    }

    /// Returns the reason to refuse a peer with this address and this key, if any.
    fn refusal(&self, peer: IpAddr, key: PublicKey) -> Option<&'static str> {
        match self.known.get(&peer) {
            Some(known) if *known != key => Some("the peer's address is known with another key"),
            None if self.only_known && !self.is_known(key) => Some("the peer's key is not known"),
            _ => None,
        }
    }

    fn is_known(&self, key: PublicKey) -> bool {
        self.known.values().any(|known| *known == key)
    }

    /// Returns the key that the peer of an encrypted association has proven. Returns `None` if the association is not encrypted.
    pub(super) fn peer(&self, id: AssociationId, engine: &Endpoint) -> Option<PeerKey> {
        let key = self.manager.peer(id).filter(|_| engine.epoch(id).is_some())?;
        Some(PeerKey { key, is_verified: self.is_known(key) })
    }

    /// Reports whether messages for an address may use this association. The address of a known peer leads only to an association whose
    /// peer has proven the key of this address.
    pub(super) fn may_lead(&self, address: IpAddr, id: AssociationId) -> bool {
        self.known.get(&address).is_none_or(|known| self.manager.peer(id) == Some(*known))
    }
}

/// Returns an offer of protection. Both ends of an association between proxies have fixed ports, so an association with a restarted peer
/// must end before a new one can begin. The offer therefore lets an unsealed ABORT be a reason to ask the peer.
fn protection(is_required: bool) -> ProtectionConfig {
    ProtectionConfig { asks_after_abort: true, limit_s: KEYS_LIMIT_S, ..keying::protection(is_required) }
}

/// Reads or creates this program's key.
fn host_key(config: &SctpConfig) -> Result<HostKey, SipError> {
    match &config.host_key {
        Some(path) => HostKey::load_or_create(path).map_err(|error| SipError::HostKey(error.to_string())),
        None => HostKey::generate().map_err(|error| SipError::HostKey(error.to_string())),
    }
}

/// Returns this program's public key, which its peers put into their configuration. Creates the key if it is missing.
///
/// # Errors
/// If the configuration turns encryption off, or the key file cannot be used.
pub(crate) fn public_key(config: &SctpConfig) -> Result<PublicKey, SipError> {
    match config.secure {
        Secure::Off => Err(SipError::Usage("[sctp] has no `secure`, so this proxy has no key".to_owned())),
        Secure::Try | Secure::Require => host_key(config).map(|key| key.public()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KnownPeer;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn key() -> PublicKey {
        HostKey::generate().unwrap().public()
    }

    fn keys(secure: Secure, known_peers_only: bool, peers: Vec<KnownPeer>) -> Keys {
        Keys::open(&SctpConfig { secure, known_peers_only, peers, ..SctpConfig::default() }).unwrap().unwrap()
    }

    #[test]
    fn without_encryption_no_key_is_made() {
        assert!(Keys::open(&SctpConfig::default()).unwrap().is_none());
    }

    #[test]
    fn a_known_peer_must_be_encrypted_even_if_encryption_is_optional() {
        let peer = KnownPeer { address: address(1), key: key() };
        let optional = keys(Secure::Try, false, vec![peer]);
        assert!(optional.must_protect(address(1)) && !optional.must_protect(address(2)));
        assert!(keys(Secure::Require, false, Vec::new()).must_protect(address(2)));
    }

    #[test]
    fn another_key_at_a_known_address_is_refused_and_unknown_keys_only_if_the_configuration_says_so() {
        let known = KnownPeer { address: address(1), key: key() };
        for (only_known, refuses_unknown) in [(false, false), (true, true)] {
            let keys = keys(Secure::Try, only_known, vec![known.clone()]);
            assert!(keys.refusal(address(1), known.key).is_none());
            assert!(keys.refusal(address(1), key()).is_some());
            assert!(
                keys.refusal(address(2), known.key).is_none(),
                "a known peer at another of its addresses"
            );
            assert_eq!(keys.refusal(address(2), key()).is_some(), refuses_unknown);
        }
    }

    #[test]
    fn key_messages_of_unknown_peers_have_a_limit_and_those_of_known_peers_have_none() {
        let mut keys = keys(Secure::Try, false, vec![KnownPeer { address: address(1), key: key() }]);
        let admitted = (0..5000).filter(|_| keys.admits(Time::ZERO, address(2))).count();
        assert_eq!(admitted, 1000);
        assert!((0..5000).all(|_| keys.admits(Time::ZERO, address(1))));
        let other = [198, 51, 100, 1].into();
        assert!(keys.admits(Time::ZERO, other), "another network has its own share");
        assert!(
            keys.admits(Time::from_millis(5), address(2)) && !keys.admits(Time::from_millis(5), address(2))
        );
    }

    #[test]
    fn an_association_without_a_proven_key_leads_to_no_known_peer() {
        let known = KnownPeer { address: address(1), key: key() };
        let keys = keys(Secure::Try, false, vec![known]);
        let mut engine = Endpoint::new(Time::ZERO, sctp::EndpointConfig::default(), [7; 32]);
        let connect = sctp::Connect {
            local_port: 5060,
            remote_port: 5060,
            init_routes: vec![base::Route {
                local: address(9),
                remote: address(2),
                carrier: base::Carrier::Ip,
            }],
            local_addresses: vec![address(9)],
            config: sctp::AssociationConfig::default(),
        };
        let id = engine.connect(Time::ZERO, connect).unwrap();
        assert!(!keys.may_lead(address(1), id) && keys.may_lead(address(2), id));
        assert!(!keys.has_proven(id) && keys.peer(id, &engine).is_none());
    }
}
