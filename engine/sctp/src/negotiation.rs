//! Contents of an INIT or INIT ACK, checked once (RFC 9260 sections 3.3.2, 3.3.3 and 5.1), and the result of the
//! negotiation.

use std::net::IpAddr;

use smallvec::SmallVec;
use wire::{Cause, ChunkType, Init, Parameter, ParameterError, Tsn, UnrecognizedAction, VerificationTag};

use crate::config::{AssociationConfig, LEAST_WINDOW, Limits};
use crate::extension::auth::{KeyVectors, PeerOffer, handshake_hash, transcript};
use crate::extension::protection::{self, ProtectionTerms};
use crate::extension::{Extension, Extensions, Offer, zero_checksum};

/// The peer's part of the negotiation.
#[derive(Clone, Debug)]
pub(crate) struct PeerInit<'a> {
    pub(crate) tag: VerificationTag,
    pub(crate) initial_tsn: Tsn,
    pub(crate) a_rwnd: u32,
    pub(crate) outbound_streams: u16,
    pub(crate) inbound_streams: u16,
    /// Addresses that the peer lists. The packet's source address is an address of the peer even if the list lacks it.
    pub(crate) addresses: SmallVec<[IpAddr; 4]>,
    pub(crate) adaptation: Option<u32>,
    /// Extensions that the peer offers.
    pub(crate) extensions: Extensions,
    pub(crate) auth: PeerOffer<'a>,
    /// Error detection method (EDMID) with which the peer accepts a checksum of zero.
    pub(crate) zero_checksum: Option<u32>,
    /// True if the peer lists I-FORWARD-TSN.
    pub(crate) i_forward_tsn: bool,
    /// The peer's offer of protection.
    pub(crate) protection: Option<protection::PeerOffer<'a>>,
    /// Cookie, if the chunk is an INIT ACK.
    pub(crate) cookie: Option<&'a [u8]>,
    /// Parameters that must be reported to the peer, each as its complete bytes.
    pub(crate) unrecognized: SmallVec<[&'a [u8]; 2]>,
    /// Extension of the cookie's lifetime that the peer requests, in milliseconds.
    pub(crate) cookie_preservative: u32,
}

/// Fault of an INIT or INIT ACK: the cause of the ABORT that answers the faulty chunk.
pub(crate) type InitFault = Cause<'static>;

/// Checks and reads `init`. If `init` has a fault, returns the cause of the ABORT that must answer `init`.
pub(crate) fn read<'a>(init: &Init<'a>, limits: &Limits) -> Result<PeerInit<'a>, InitFault> {
    // RFC 9260 section 3.3.2: the association is refused if the tag or a number of streams is zero, or if the window is
    // too small.
    //= rfc9260#3.3.2-9 3.3.2-12 3.3.2-14
    let has_streams = init.outbound_streams != 0 && init.inbound_streams != 0;
    if init.tag.0 == 0 || !has_streams || init.a_rwnd < LEAST_WINDOW {
        return Err(Cause::InvalidMandatoryParameter);
    }
    let mut peer = PeerInit {
        tag: init.tag,
        initial_tsn: init.initial_tsn,
        a_rwnd: init.a_rwnd,
        outbound_streams: init.outbound_streams,
        inbound_streams: init.inbound_streams,
        addresses: SmallVec::new(),
        adaptation: None,
        extensions: Extensions::NONE,
        auth: PeerOffer::default(),
        zero_checksum: None,
        i_forward_tsn: false,
        protection: None,
        cookie: None,
        unrecognized: SmallVec::new(),
        cookie_preservative: 0,
    };
    let mut reported = 0;
    for (parameter, raw) in init.parameters.iter().zip(init.parameters.tlvs()) {
        let is_known = match (&parameter, raw) {
            (Ok(parameter), Ok(raw)) => {
                peer.auth.take(parameter, raw.bytes);
                peer.take(parameter, limits)?
            }
            // The parameter holds an address of an unknown kind.
            (Err(ParameterError::Unexpected { .. }), Ok(_)) => false,
            _ => return Err(Cause::ProtocolViolation(b"bad TLV")),
        };
        let (false, Ok(raw)) = (is_known, raw) else { continue };
        let action = UnrecognizedAction::for_parameter(raw.kind);
        if action.reports() && reported + raw.bytes.len() <= limits.reported_bytes {
            reported += raw.bytes.len();
            peer.unrecognized.push(raw.bytes);
        }
        if action.stops() {
            break;
        }
    }
    // RFC 4895 section 6.1: the peer offers authentication through its parameters RANDOM, CHUNKS and HMAC-ALGO. The
    // peer's list of extensions does not count.
    let listed = peer.extensions.without(Extension::Auth);
    peer.extensions = if peer.auth.is_made() { listed.with(Extension::Auth) } else { listed };
    Ok(peer)
}

/// Parameters that both ends agree on.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    pub(crate) extensions: Extensions,
    /// Input of the authentication keys, if authentication is agreed on.
    pub(crate) key_vectors: Option<KeyVectors>,
    /// Protection of packets. Its transcript is zero until [`bind`](Self::bind) sets it.
    pub(crate) protection: Option<ProtectionTerms>,
    /// True if our packets may carry a checksum of zero: the peer names the same error detection method as our
    /// settings.
    pub(crate) zero_checksum: bool,
}

impl Agreed {
    /// Combines our offer, which was made from `config`, with the peer's offer. If a required extension is not agreed
    /// on, returns a fault.
    pub(crate) fn new(
        config: &AssociationConfig,
        offer: &Offer,
        peer: &PeerInit<'_>,
    ) -> Result<Agreed, InitFault> {
        let method = protection::agree(config.protection.as_ref(), offer.role, peer.protection.as_ref())?;
        let protection =
            method.map(|method| ProtectionTerms { role: offer.role, method, transcript: [0; 32] });
        let is_protected = protection.is_some();
        let mut extensions = offer.extensions.and(peer.extensions).consistent(is_protected);
        if is_protected {
            extensions = extensions.without(Extension::Auth);
        }
        //= rfc8260#section-2.3.1
        //# The partial reliability extension is negotiated and can be used in combination with user message interleaving only
        //# if both endpoints indicated their support of user message interleaving and the I-FORWARD-TSN chunk.
        if extensions.has(Extension::Interleaving) && !peer.i_forward_tsn {
            extensions = extensions.without(Extension::PartialReliability);
        }
        if config.auth.required && !extensions.has(Extension::Auth) && !is_protected {
            return Err(Cause::UserInitiatedAbort(
                b"a key is required here, and the peer offers no authentication",
            ));
        }
        let key_vectors = match &offer.auth {
            Some(auth) if extensions.has(Extension::Auth) => {
                Some(KeyVectors { local: auth.key_vector(), peer: peer.auth.key_vector()?, handshake: None })
            }
            _ => None,
        };
        //= rfc9653#5.2-1
        let edmid = zero_checksum::announced(config, is_protected);
        let zero_checksum = edmid.is_some() && edmid == peer.zero_checksum;
        Ok(Agreed { extensions, key_vectors, protection, zero_checksum })
    }
}

impl Agreed {
    /// Binds keys to the hashes of INIT and INIT ACK. Keys of packet protection are also bound to `ports`, the ports
    /// of the INIT's sender and receiver. Keys of AUTH are bound only if each direction has its own keys
    /// (`by_direction`).
    pub(crate) fn bind(&mut self, ports: (u16, u16), init: [u8; 32], init_ack: [u8; 32], by_direction: bool) {
        if let Some(vectors) = self.key_vectors.as_mut().filter(|_| by_direction) {
            vectors.handshake = Some(handshake_hash(init, init_ack));
        }
        if let Some(terms) = &mut self.protection {
            terms.transcript = transcript(ports, init, init_ack);
        }
    }
}

impl<'a> PeerInit<'a> {
    /// Stores the contents of a parameter. Returns false if the parameter's type is unknown.
    fn take(&mut self, parameter: &Parameter<'a>, limits: &Limits) -> Result<bool, InitFault> {
        match parameter {
            Parameter::Ipv4Address(a) => self.take_address(IpAddr::V4(*a), limits),
            Parameter::Ipv6Address(a) => self.take_address(IpAddr::V6(*a), limits),
            Parameter::StateCookie(cookie) => self.cookie = Some(cookie),
            Parameter::CookiePreservative(ms) => self.cookie_preservative = *ms,
            Parameter::AdaptationLayerIndication(code) => self.adaptation = Some(*code),
            Parameter::SupportedExtensions(types) => {
                let listed = Extensions::from_chunk_types(types);
                self.i_forward_tsn |= types.contains(&ChunkType::I_FORWARD_TSN.0);
                self.extensions = self.extensions.iter().chain(listed.iter()).collect();
            }
            // RFC 3758 section 3.1: an older way to offer partial reliability.
            Parameter::ForwardTsnSupported => {
                self.extensions = self.extensions.with(Extension::PartialReliability);
            }
            Parameter::EcnCapable => self.extensions = self.extensions.with(Extension::Ecn),
            Parameter::ZeroChecksumAcceptable { edmid } => self.zero_checksum = Some(*edmid),
            Parameter::DtlsKeyManagement { tie_breaker, roles, methods } => {
                let offer = protection::PeerOffer { tie_breaker: *tie_breaker, roles: *roles, methods };
                self.protection = self.protection.or(Some(offer));
            }
            //= rfc9260#5.1.2-2
            Parameter::HostName(_) => return Err(Cause::UnresolvableAddress(&[])),
            //= rfc9260#3.3.2.1.5-1 5.1.2-10 5.1.2-11
            Parameter::SupportedAddressTypes(_)
            | Parameter::UnrecognizedParameter(_)
            | Parameter::Random(_)
            | Parameter::ChunkList(_)
            | Parameter::RequestedHmac(_)
            //= rfc4820#4-3
            | Parameter::Padding { .. } => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Stores an address that the peer lists. Ignores addresses that no peer can have (multicast, unspecified,
    /// broadcast), and addresses beyond the limit of `limits`.
    fn take_address(&mut self, address: IpAddr, limits: &Limits) {
        let broadcast = matches!(address, IpAddr::V4(a) if a.is_broadcast());
        let usable = !address.is_multicast() && !address.is_unspecified() && !broadcast;
        if usable && self.addresses.len() < limits.peer_addresses && !self.addresses.contains(&address) {
            self.addresses.push(address);
        }
    }
}

/// Returns the parameter that announces `address`. An IPv4-mapped IPv6 address becomes an IPv4 address.
pub(crate) fn address_parameter(address: IpAddr) -> Parameter<'static> {
    //= rfc9260#3.3.2.1.2-1
    match address.to_canonical() {
        IpAddr::V4(a) => Parameter::Ipv4Address(a),
        IpAddr::V6(a) => Parameter::Ipv6Address(a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Parameters;

    /// Returns the extensions that are agreed on if we offer interleaving and partial reliability, and the peer lists
    /// these chunk types.
    fn agreed(listed: &[u8]) -> Extensions {
        let both = Extensions::NONE.with(Extension::Interleaving).with(Extension::PartialReliability);
        let config = AssociationConfig { extensions: both, ..AssociationConfig::default() };
        let (mut bytes, mut buf) = (Vec::new(), [0; 16]);
        for parameter in [Parameter::SupportedExtensions(listed), Parameter::ForwardTsnSupported] {
            let mut out = wire::Writer::new(&mut buf);
            parameter.write(&mut out).expect("it fits");
            bytes.extend_from_slice(out.written());
            bytes.resize(wire::padded(bytes.len()), 0);
        }
        let init = Init {
            tag: VerificationTag(1),
            a_rwnd: 10_000,
            outbound_streams: 1,
            inbound_streams: 1,
            initial_tsn: Tsn(1),
            parameters: Parameters::from_wire(&bytes),
        };
        let peer = read(&init, &Limits::default()).expect("a good INIT");
        Agreed::new(&config, &Offer::new(&config, [0; 32]), &peer).expect("no fault").extensions
    }

    #[test]
    fn with_interleaving_pr_sctp_is_agreed_only_if_the_peer_lists_i_forward_tsn() {
        let interleaving = Extensions::NONE.with(Extension::Interleaving);
        assert_eq!(agreed(&[64, 194, 192]), interleaving.with(Extension::PartialReliability));
        assert_eq!(agreed(&[64, 192]), interleaving);
        assert_eq!(agreed(&[192]), Extensions::NONE.with(Extension::PartialReliability));
    }

    //= rfc9260#3.3.2.1.2-1
    #[test]
    fn an_ipv4_mapped_ipv6_address_is_announced_as_ipv4() {
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(address_parameter(mapped), Parameter::Ipv4Address([192, 0, 2, 1].into()));
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        assert!(matches!(address_parameter(v6), Parameter::Ipv6Address(a) if a == v6));
    }
}
