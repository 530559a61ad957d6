//! Authenticated chunks (RFC 4895): negotiation, keys, and the HMAC.
//!
//! This module lists the chunks that need authentication, signs packets, and verifies them. It does not send packets, and does
//! not decide whether to drop them. A key is a byte string that both ends have under the same number. Number 0 is the empty key
//! unless a command or the settings replace it. HMACs are compared in constant time. Begin at [`Auth`].

use std::collections::BTreeMap;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;
use wire::{AuthPlan, Cause, ChunkSet, ChunkType, Init, List, Parameter, RawChunk};

use crate::error::AuthKeyError;
use crate::memory::{heap, tree};

/// Limit on the shared keys of an association.
const MAX_KEYS: usize = 16;

/// Limit on the bytes of a shared key.
const MAX_KEY_LEN: usize = 1024;

/// Length of the value of a RANDOM parameter, in bytes (RFC 4895 section 6.1).
const RANDOM_LEN: usize = 32;

/// Limit on the bytes of a CHUNKS parameter (RFC 4895 section 3.2).
const CHUNKS_LEN_MAX: usize = 260;

/// Limit on the HMAC identifiers in a peer's parameter. The limit is no restriction, because fewer algorithms exist.
const HMAC_IDS_MAX: usize = 16;

const CHUNKS: u16 = 0x8003;
const HMAC_ALGO: u16 = 0x8004;

/// A random number for one end's key vector.
pub(crate) type Nonce = [u8; RANDOM_LEN];

/// An HMAC algorithm (RFC 4895 section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum HmacAlgorithm {
    /// SHA-1, which every implementation supports.
    Sha1,
    /// SHA-256.
    #[default]
    Sha256,
}

/// Settings for authenticated chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthConfig {
    /// Chunks that the peer must authenticate. ASCONF and ASCONF-ACK are added if address reconfiguration is offered. INIT,
    /// INIT ACK, SHUTDOWN COMPLETE and AUTH cannot be authenticated (RFC 4895 section 3.2).
    pub chunks: ChunkSet,
    /// HMAC that the peer is asked to use. The other algorithm is accepted too.
    pub hmac: HmacAlgorithm,
    /// Shared keys by number. If the map has no key 0, the empty key has the number 0. If no key is empty, only holders of a
    /// key can sign. With such keys, an unsigned packet ends neither the association nor one of its paths, and malformed chunks
    /// are dropped. After an unsigned ABORT or an ICMP error, the peer is asked whether the report is true.
    pub keys: BTreeMap<u16, Bytes>,
    /// Number of the key that signs. It must be one of `keys`, or 0.
    pub active_key: u16,
    /// True if each direction has a different key. The key is derived from the association key of RFC 4895, both ports, the
    /// sender's key vector, and the contents of INIT and INIT ACK. An attacker can then neither reflect an end's chunks, nor
    /// redirect them to another port. Neither can an attacker change the TSNs, streams or extensions with which the ends begin.
    /// Both ends need this setting; other implementations support only the keys of RFC 4895. The empty key stays the same in
    /// both directions.
    pub by_direction: bool,
    /// True if a peer without authentication is refused: its INIT or INIT ACK is answered with ABORT. To exclude all peers
    /// without a key, `chunks` must list COOKIE ECHO and COOKIE ACK, and no key may be empty. An association with
    /// [`protection`](crate::AssociationConfig::protection) has no authentication, so its key management must require the key.
    pub required: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl HmacAlgorithm {
    const fn id(self) -> u16 {
        match self {
            HmacAlgorithm::Sha1 => 1,
            HmacAlgorithm::Sha256 => 3,
        }
    }

    const fn from_id(id: u16) -> Option<HmacAlgorithm> {
        match id {
            1 => Some(HmacAlgorithm::Sha1),
            3 => Some(HmacAlgorithm::Sha256),
            _ => None,
        }
    }

    const fn len(self) -> usize {
        match self {
            HmacAlgorithm::Sha1 => 20,
            HmacAlgorithm::Sha256 => 32,
        }
    }

    //= rfc4895#6.2-6
    fn compute(self, key: &[u8], parts: &[&[u8]]) -> SmallVec<[u8; 32]> {
        match self {
            HmacAlgorithm::Sha1 => keyed::<Hmac<Sha1>>(key, parts).finalize().into_bytes()[..].into(),
            HmacAlgorithm::Sha256 => keyed::<Hmac<Sha256>>(key, parts).finalize().into_bytes()[..].into(),
        }
    }

    fn verify(self, key: &[u8], parts: &[&[u8]], hmac: &[u8]) -> bool {
        match self {
            HmacAlgorithm::Sha1 => keyed::<Hmac<Sha1>>(key, parts).verify_slice(hmac).is_ok(),
            HmacAlgorithm::Sha256 => keyed::<Hmac<Sha256>>(key, parts).verify_slice(hmac).is_ok(),
        }
    }
}

fn keyed<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    // An HMAC accepts keys of any length.
    let mut mac = M::new_from_slice(key).unwrap_or_else(|_| M::new(&Default::default()));
    parts.iter().for_each(|part| mac.update(part));
    mac
}

impl AuthConfig {
    /// Reports whether at least one of the keys is a shared key, that is, not empty.
    pub(crate) fn has_shared_key(&self) -> bool {
        self.shared_keys().next().is_some()
    }

    /// Reports whether both settings have a shared key in common.
    pub(crate) fn shares_key_with(&self, other: &AuthConfig) -> bool {
        self.shared_keys().any(|key| other.shared_keys().any(|others| others == key))
    }

    fn shared_keys(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.values().filter(|key| !key.is_empty())
    }
}

/// Authentication parameters of one end's INIT or INIT ACK.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    nonce: Nonce,
    chunks: SmallVec<[u8; 8]>,
    hmac_ids: [u16; 2],
}

impl Offer {
    pub(crate) fn new(config: &AuthConfig, asks_for_asconf: bool, nonce: Nonce) -> Offer {
        let mut chunks = config.chunks;
        if asks_for_asconf {
            chunks.insert(ChunkType::ASCONF);
            chunks.insert(ChunkType::ASCONF_ACK);
        }
        without_unauthenticable(&mut chunks);
        let other = match config.hmac {
            HmacAlgorithm::Sha1 => HmacAlgorithm::Sha256,
            HmacAlgorithm::Sha256 => HmacAlgorithm::Sha1,
        };
        // RFC 4895 section 6.1: "The HMAC algorithm based on SHA-1 MUST be supported and included in the HMAC-ALGO
        // parameter."
        //= rfc4895#6.1-7
        let hmac_ids = [config.hmac.id(), other.id()];
        Offer { nonce, chunks: (0..=255).filter(|&t| chunks.contains(ChunkType(t))).collect(), hmac_ids }
    }

    pub(crate) fn parameters(&self) -> SmallVec<[Parameter<'_>; 3]> {
        let mut list = SmallVec::new();
        //= rfc4895#6.1-1 6.1-2
        list.push(Parameter::Random(&self.nonce));
        //= rfc4895#3.2-4
        if !self.chunks.is_empty() {
            list.push(Parameter::ChunkList(&self.chunks));
        }
        //= rfc4895#6.1-5
        list.push(Parameter::RequestedHmac(List::from(&self.hmac_ids[..])));
        list
    }

    /// Returns the key vector of this end. RFC 4895 section 6.1: "the RANDOM parameter, the CHUNKS parameter, and the HMAC-ALGO
    /// parameter sent by each endpoint are concatenated as byte vectors". Headers are included. Padding and absent parameters
    /// are omitted.
    //= rfc4895#6.1-9
    pub(crate) fn key_vector(&self) -> Vec<u8> {
        let mut vector = Vec::new();
        let mut buf = [0; CHUNKS_LEN_MAX];
        for parameter in self.parameters() {
            let mut out = wire::Writer::new(&mut buf);
            if parameter.write(&mut out).is_ok() {
                vector.extend_from_slice(out.written());
            }
        }
        vector
    }
}

/// Removes the chunk types that cannot be authenticated. RFC 4895 section 3.2: INIT, INIT ACK, SHUTDOWN COMPLETE and AUTH "MUST
/// NOT be listed in the CHUNKS parameter. However, if a CHUNKS parameter is received then the types for INIT, INIT-ACK,
/// SHUTDOWN-COMPLETE, and AUTH chunks MUST be ignored."
//= rfc4895#3.2-5 3.2-6
fn without_unauthenticable(chunks: &mut ChunkSet) {
    let never = [ChunkType::INIT, ChunkType::INIT_ACK, ChunkType::SHUTDOWN_COMPLETE, ChunkType::AUTH];
    never.into_iter().for_each(|t| chunks.remove(t));
}

/// A peer's parameters about authentication, as received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerOffer<'a> {
    fault: Option<Cause<'static>>,
    random: Option<&'a [u8]>,
    chunks: Option<&'a [u8]>,
    hmacs: Option<&'a [u8]>,
}

impl<'a> PeerOffer<'a> {
    /// Records a parameter if it is one of the three authentication parameters. `raw` includes the parameter's header. If a
    /// parameter occurs twice, the first occurrence counts.
    pub(crate) fn take(&mut self, parameter: &Parameter<'a>, raw: &'a [u8]) {
        let mut faulty = |cause| self.fault = self.fault.or(Some(cause));
        match parameter {
            // RFC 4895 section 6.1: "If the Random Number is not 32 bytes, the association MUST be aborted. The ABORT
            // chunk SHOULD contain the error cause 'Protocol Violation'."
            //= rfc4895#6.1-3
            Parameter::Random(random) if random.len() != RANDOM_LEN => {
                faulty(Cause::ProtocolViolation(b"RANDOM of other than 32 bytes"));
            }
            Parameter::Random(_) => self.random = self.random.or(Some(raw)),
            Parameter::ChunkList(_) if raw.len() > CHUNKS_LEN_MAX => {
                faulty(Cause::ProtocolViolation(b"CHUNKS of more than 260 bytes"));
            }
            Parameter::ChunkList(_) => self.chunks = self.chunks.or(Some(raw)),
            Parameter::RequestedHmac(ids) if !ids.iter().any(|id| id == HmacAlgorithm::Sha1.id()) => {
                faulty(Cause::ProtocolViolation(b"HMAC-ALGO without SHA-1"));
            }
            Parameter::RequestedHmac(ids) if ids.len() > HMAC_IDS_MAX => faulty(Cause::OutOfResource),
            Parameter::RequestedHmac(_) => self.hmacs = self.hmacs.or(Some(raw)),
            _ => {}
        }
    }

    /// Returns the peer's random number, without the header of its parameter.
    pub(crate) fn random(&self) -> Option<&'a [u8]> {
        const HEADER_LEN: usize = 4;
        self.random.and_then(|raw| raw.get(HEADER_LEN..))
    }

    /// Reports whether the peer offers authentication. An offer with a faulty parameter counts too.
    pub(crate) fn is_made(&self) -> bool {
        self.fault.is_some() || (self.random.is_some() && self.hmacs.is_some())
    }

    /// Returns the peer's key vector, or the cause of an ABORT if a parameter was faulty.
    pub(crate) fn key_vector(&self) -> Result<Vec<u8>, Cause<'static>> {
        match self.fault {
            Some(cause) => Err(cause),
            None => Ok([self.random, self.chunks, self.hmacs].map(Option::unwrap_or_default).concat()),
        }
    }
}

/// SCTP ports of an association.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) local: u16,
    pub(crate) peer: u16,
}

/// Key vectors of both ends, which the cookie carries.
#[derive(Clone, Debug, PartialEq, Eq)]
//= rfc4895#6.3-15
pub(crate) struct KeyVectors {
    pub(crate) local: Vec<u8>,
    pub(crate) peer: Vec<u8>,
    /// Hash of INIT and INIT ACK, if keys are by direction.
    pub(crate) handshake: Option<HandshakeHash>,
}

/// Hash of the contents of an INIT and its INIT ACK.
pub(crate) type HandshakeHash = [u8; 16];

/// Returns the SHA-256 hash of the contents of an INIT or INIT ACK. Parameters that may differ between both ends are excluded:
/// the cookie, reports of unrecognized parameters, Cookie Preservative, and padding.
pub(crate) fn said_in(init: &Init<'_>) -> [u8; 32] {
    const STATE_COOKIE: u16 = 7;
    const UNRECOGNIZED: u16 = 8;
    const COOKIE_PRESERVATIVE: u16 = 9;
    const PADDING: u16 = 0x8005;
    let mut hash = Sha256::new();
    for number in [init.tag.0, init.a_rwnd, init.initial_tsn.0] {
        hash.update(number.to_be_bytes());
    }
    for number in [init.outbound_streams, init.inbound_streams] {
        hash.update(number.to_be_bytes());
    }
    for parameter in init.parameters.tlvs().map_while(Result::ok) {
        if ![STATE_COOKIE, UNRECOGNIZED, COOKIE_PRESERVATIVE, PADDING].contains(&parameter.kind) {
            hash.update(parameter.bytes);
        }
    }
    hash.finalize().into()
}

/// Returns the hash of an INIT and its INIT ACK for keys by direction. The hash does not include the ports, because the
/// derivation of these keys includes them.
pub(crate) fn handshake_hash(init: [u8; 32], init_ack: [u8; 32]) -> HandshakeHash {
    let hash = Sha256::new().chain_update(init).chain_update(init_ack).finalize();
    std::array::from_fn(|i| hash[i])
}

/// Returns the hash of an INIT and its INIT ACK, with the SCTP ports of the INIT's sender and of its receiver. The ports are
/// included because they select the service. Without the hash, only the checksum of the packets would protect the ports.
pub(crate) fn transcript((source, destination): (u16, u16), init: [u8; 32], init_ack: [u8; 32]) -> [u8; 32] {
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    Sha256::new().chain_update(ports).chain_update(init).chain_update(init_ack).finalize().into()
}

impl KeyVectors {
    /// Returns the association key. RFC 4895 section 6.1: "selecting the numerically smaller key vector and concatenating it to
    /// the endpoint pair shared key, and then concatenating the numerically larger key vector to that". Vectors begin with a
    /// parameter type that is not zero, so the longer of two vectors is the numerically larger one.
    //= rfc4895#6.2-5
    fn association_key(&self, shared: &[u8]) -> Vec<u8> {
        let (local, peer) = (&self.local, &self.peer);
        let (smaller, larger) =
            if (local.len(), local) <= (peer.len(), peer) { (local, peer) } else { (peer, local) };
        [shared, smaller, larger].concat()
    }
}

/// Returns the key with which one end signs, if keys are by direction.
fn key_of_sender(
    association_key: &[u8],
    (from, to): (u16, u16),
    senders_vector: &[u8],
    handshake: &[u8],
) -> Vec<u8> {
    const LABEL: &[u8] = b"sctpify key by direction";
    let parts = [LABEL, &from.to_be_bytes(), &to.to_be_bytes(), senders_vector, handshake];
    HmacAlgorithm::Sha256.compute(association_key, &parts).to_vec()
}

/// Returns the value of the parameter of this type in a key vector.
fn value_in(vector: &[u8], kind: u16) -> Option<&[u8]> {
    let mut rest = vector;
    while let Some(&[k0, k1, l0, l1]) = rest.first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([l0, l1])).max(4);
        let parameter = rest.get(4..length)?;
        if u16::from_be_bytes([k0, k1]) == kind {
            return Some(parameter);
        }
        rest = rest.get(length..)?;
    }
    None
}

fn chunks_in(vector: &[u8]) -> ChunkSet {
    let mut set: ChunkSet =
        value_in(vector, CHUNKS).unwrap_or_default().iter().map(|&t| ChunkType(t)).collect();
    without_unauthenticable(&mut set);
    set
}

/// Returns the first HMAC in a key vector that we support. RFC 4895 section 6.1: an end "SHOULD use the first listed algorithm
/// it supports."
//= rfc4895#6.1-6
fn hmac_in(vector: &[u8]) -> HmacAlgorithm {
    let ids = value_in(vector, HMAC_ALGO).unwrap_or_default().as_chunks::<2>().0;
    ids.iter().find_map(|id| HmacAlgorithm::from_id(u16::from_be_bytes(*id))).unwrap_or(HmacAlgorithm::Sha1)
}

/// Keys of an association that are derived from one shared key.
#[derive(Debug)]
struct Key {
    /// Key for packets that we send.
    signing: Vec<u8>,
    /// Key for packets that the peer sends. `None` means the same key as `signing`.
    verifying: Option<Vec<u8>>,
    /// True for all keys except the empty key. Every host knows the empty key.
    is_shared: bool,
    /// True if the key may become the active key. A deactivated key only verifies.
    may_sign: bool,
}

impl Key {
    fn memory(&self) -> usize {
        heap(self.signing.capacity()) + self.verifying.as_ref().map_or(0, |key| heap(key.capacity()))
    }
}

/// Reason to reject an AUTH chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unverified {
    /// The HMAC algorithm is not supported. The peer is informed.
    UnknownHmac(u16),
    /// The key is unknown, the chunk is malformed, or the HMAC is wrong. The chunk is silently discarded.
    Discard,
}

/// Authentication of one association.
#[derive(Debug)]
pub(crate) struct Auth {
    vectors: KeyVectors,
    /// Chunks that the peer wants authenticated.
    outgoing: ChunkSet,
    /// Chunks that we want authenticated.
    required: ChunkSet,
    hmac: HmacAlgorithm,
    keys: BTreeMap<u16, Key>,
    /// True if a command has changed the keys, so they may differ from the settings.
    has_other_keys: bool,
    active: u16,
    /// The ports, if keys are by direction.
    ports: Option<Ports>,
}

impl Auth {
    /// Returns the bytes of this state, in the sizes that the allocator hands out.
    pub(crate) fn memory(&self) -> usize {
        let keys = self.keys.values().map(Key::memory).sum::<usize>();
        heap(size_of::<Auth>())
            + heap(self.vectors.local.capacity())
            + heap(self.vectors.peer.capacity())
            + tree(self.keys.len(), size_of::<(u16, Key)>())
            + keys
    }

    pub(crate) fn new(vectors: KeyVectors, ports: Ports, config: &AuthConfig) -> Auth {
        //= rfc4895#6.2-1
        let mut outgoing = chunks_in(&vectors.peer);
        // RFC 5061 sections 4.1.1 and 4.1.2: ASCONF and ASCONF-ACK "MUST be sent in an authenticated way", regardless of the
        // peer's list.
        //= rfc5061#4.1.1-2
        outgoing.insert(ChunkType::ASCONF);
        outgoing.insert(ChunkType::ASCONF_ACK);
        let mut required = chunks_in(&vectors.local);
        //= rfc5061#4.1.1-3
        required.insert(ChunkType::ASCONF);
        required.insert(ChunkType::ASCONF_ACK);
        let mut auth = Auth {
            outgoing,
            required,
            hmac: hmac_in(&vectors.peer),
            keys: BTreeMap::new(),
            has_other_keys: false,
            active: 0,
            ports: config.by_direction.then_some(ports),
            vectors,
        };
        auth.put(0, &[]);
        for (&id, key) in config.keys.iter().take(MAX_KEYS) {
            auth.put(id, &key[..key.len().min(MAX_KEY_LEN)]);
        }
        if auth.keys.contains_key(&config.active_key) {
            auth.active = config.active_key;
        }
        auth
    }

    fn put(&mut self, id: u16, shared: &[u8]) {
        let whole = self.vectors.association_key(shared);
        let is_shared = !shared.is_empty();
        let (signing, verifying) = match self.ports.filter(|_| is_shared) {
            Some(Ports { local, peer }) => {
                let handshake = self.vectors.handshake.as_ref().map_or(&[][..], |hash| hash);
                let ours = key_of_sender(&whole, (local, peer), &self.vectors.local, handshake);
                (ours, Some(key_of_sender(&whole, (peer, local), &self.vectors.peer, handshake)))
            }
            None => (whole, None),
        };
        self.keys.insert(id, Key { signing, verifying, is_shared, may_sign: true });
    }

    /// Reports whether a chunk of this type is dropped unless it is authenticated.
    pub(crate) fn requires(&self, chunk_type: ChunkType) -> bool {
        self.required.contains(chunk_type)
    }

    /// Reports whether all these chunk types are [required](Self::requires). Types that cannot be authenticated do not count.
    pub(crate) fn requires_all(&self, mut chunks: ChunkSet) -> bool {
        without_unauthenticable(&mut chunks);
        self.required.contains_all(&chunks)
    }

    /// Returns the layout of a packet's AUTH chunk.
    pub(crate) fn plan(&self) -> AuthPlan {
        AuthPlan {
            chunks: self.outgoing,
            shared_key: self.active,
            hmac_id: self.hmac.id(),
            hmac_len: self.hmac.len(),
        }
    }

    /// Returns the length of the AUTH chunk in a packet with a chunk of this type. Returns 0 if the peer requires no AUTH chunk
    /// for the type.
    pub(crate) fn overhead(&self, chunk_type: ChunkType) -> usize {
        if self.outgoing.contains(chunk_type) { self.plan().chunk_len() } else { 0 }
    }

    /// Returns the HMAC over the last part of a packet, which begins with the AUTH chunk. The HMAC field of this AUTH chunk
    /// must be zero.
    pub(crate) fn sign(&self, covered: &[u8]) -> SmallVec<[u8; 32]> {
        let key = self.keys.get(&self.active).map_or(&[][..], |k| &k.signing);
        self.hmac.compute(key, &[covered])
    }

    /// Verifies an AUTH chunk over all the chunks that follow it.
    //= rfc4895#6.3-2 6.3-5 6.3-6 6.3-7
    pub(crate) fn verify(&self, raw: &RawChunk<'_>) -> Result<(), Unverified> {
        let Ok(wire::Chunk::Auth(auth)) = raw.parse() else { return Err(Unverified::Discard) };
        // RFC 4895 section 6.3: "If this algorithm was not specified by the receiver in the HMAC-ALGO parameter [...],
        // the AUTH chunk and all the chunks after it MUST be discarded and an ERROR chunk SHOULD be sent".
        let algorithm = HmacAlgorithm::from_id(auth.hmac_id).ok_or(Unverified::UnknownHmac(auth.hmac_id))?;
        // "If no endpoint pair shared key has been configured for that Shared Key Identifier, all authenticated chunks
        // MUST be silently discarded."
        let key = self.keys.get(&auth.shared_key).ok_or(Unverified::Discard)?;
        if auth.hmac.len() != algorithm.len() {
            return Err(Unverified::Discard);
        }
        let (head, tail) = raw.from_here.split_at(raw.bytes.len() - auth.hmac.len());
        let zeros = [0; 32];
        let parts = [head, &zeros[..auth.hmac.len()], &tail[auth.hmac.len()..]];
        let good = algorithm.verify(key.verifying.as_ref().unwrap_or(&key.signing), &parts, auth.hmac);
        if good { Ok(()) } else { Err(Unverified::Discard) }
    }

    /// Reports whether an AUTH chunk names a shared key. Only [`verify`](Self::verify) checks whether the named key has signed
    /// the packet.
    pub(crate) fn names_shared_key(&self, raw: &RawChunk<'_>) -> bool {
        matches!(raw.parse(), Ok(wire::Chunk::Auth(auth)) if self.is_shared(auth.shared_key))
    }

    /// Reports whether we sign with a shared key.
    pub(crate) fn signs_with_shared_key(&self) -> bool {
        self.is_shared(self.active)
    }

    /// Reports whether all keys are shared keys. Then no sender without a shared key can sign.
    pub(crate) fn has_shared_keys_only(&self) -> bool {
        self.keys.values().all(|key| key.is_shared)
    }

    /// Returns the hash of the handshake if the keys are by direction. Such keys are derived from this hash.
    pub(crate) fn handshake(&self) -> Option<HandshakeHash> {
        self.vectors.handshake
    }

    /// Reports whether a command has changed the keys.
    pub(crate) fn has_other_keys(&self) -> bool {
        self.has_other_keys
    }

    fn is_shared(&self, id: u16) -> bool {
        self.keys.get(&id).is_some_and(|key| key.is_shared)
    }

    /// Adds a key, or replaces the key with the same number.
    pub(crate) fn set_key(&mut self, id: u16, shared: &[u8]) -> Result<(), AuthKeyError> {
        if shared.len() > MAX_KEY_LEN {
            return Err(AuthKeyError::TooLong { length: shared.len(), max: MAX_KEY_LEN });
        }
        if !self.keys.contains_key(&id) && self.keys.len() >= MAX_KEYS {
            return Err(AuthKeyError::TooMany(MAX_KEYS));
        }
        self.put(id, shared);
        self.has_other_keys = true;
        Ok(())
    }

    /// Signs with this key from now on.
    //= rfc4895#6.2-2
    pub(crate) fn activate_key(&mut self, id: u16) -> Result<(), AuthKeyError> {
        let key = self.keys.get(&id).filter(|k| k.may_sign);
        key.ok_or(AuthKeyError::NoSuchKey(id))?;
        self.active = id;
        Ok(())
    }

    /// Excludes the key from signing. The key still verifies.
    pub(crate) fn deactivate_key(&mut self, id: u16) -> Result<(), AuthKeyError> {
        self.check_unused(id)?;
        self.keys.get_mut(&id).ok_or(AuthKeyError::NoSuchKey(id))?.may_sign = false;
        self.has_other_keys = true;
        Ok(())
    }

    /// Deletes the key.
    pub(crate) fn delete_key(&mut self, id: u16) -> Result<(), AuthKeyError> {
        self.check_unused(id)?;
        self.keys.remove(&id).ok_or(AuthKeyError::NoSuchKey(id))?;
        self.has_other_keys = true;
        Ok(())
    }

    fn check_unused(&self, id: u16) -> Result<(), AuthKeyError> {
        if self.active == id { Err(AuthKeyError::Active(id)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
