//! The State Cookie (RFC 9260 section 5.1.3). It holds all state that an association needs to begin, and the peer
//! keeps the cookie.
//!
//! A cookie expires, and is bound to ports and tags. HMAC-SHA-256 authenticates it, with a key that is replaced
//! periodically. This host keeps no state for a peer until the peer returns a cookie. The ports and our tag are
//! signed but not written into the cookie, because each packet with the cookie contains them. So the INIT ACK stays
//! small compared with the INIT (RFC 5062 section 9). Begin at [`CookieJar::seal`] and [`CookieJar::open`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use base::{Carrier, Route, Time};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use smallvec::SmallVec;
use wire::{CommonHeader, Tsn, VerificationTag};

use crate::extension::Extensions;
use crate::extension::auth::KeyVectors;
use crate::extension::protection::{KeyRole, ProtectionTerms};
use crate::random::Random;

/// Length of the MAC, in bytes: it is truncated to 128 bits, as in RFC 4868 section 2.1.1.
const MAC_LEN: usize = 16;

/// MAC whose key is already set up. The setup of a key costs as much as the MAC of a short cookie, so it is not
/// repeated for each cookie.
type Keyed = Hmac<Sha256>;

/// Contents of a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
//= rfc9260#3.3.3.1.1-1 5.1.3-2
pub(crate) struct Cookie {
    /// Last moment at which the cookie is valid.
    pub(crate) expires: Time,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) local_tag: VerificationTag,
    pub(crate) peer_tag: VerificationTag,
    /// Tie-Tags of the association that existed when the INIT came (RFC 9260 section 5.2.2).
    pub(crate) tie: Option<Tie>,
    pub(crate) local_initial_tsn: Tsn,
    pub(crate) peer_initial_tsn: Tsn,
    pub(crate) peer_rwnd: u32,
    pub(crate) outbound_streams: u16,
    pub(crate) inbound_streams: u16,
    pub(crate) adaptation: Option<u32>,
    /// The negotiated extensions.
    pub(crate) extensions: Extensions,
    /// True if packets may carry a checksum of zero.
    pub(crate) zero_checksum: bool,
    /// Key vectors of both ends, from which the keys of authentication are derived.
    pub(crate) key_vectors: Option<KeyVectors>,
    /// Agreement on the protection of packets.
    pub(crate) protection: Option<ProtectionTerms>,
    /// Route of the INIT.
    pub(crate) route: Route,
    /// Our addresses, except the INIT's destination.
    pub(crate) local_addresses: SmallVec<[IpAddr; 4]>,
    /// Addresses that the peer listed in its INIT.
    pub(crate) peer_addresses: SmallVec<[IpAddr; 4]>,
}

/// Both Tie-Tags as one number. The cookie is signed, so the number only has to differ between associations. The
/// number must not reveal the association's own tags (RFC 5062 section 3.3). Otherwise a host that later gets one of
/// the peer's addresses could read the tags in a cookie, and take over the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tie([u8; 4]);

/// Reason to reject a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CookieError {
    /// The cookie was not made by this endpoint, was altered, or was signed with a key that is no longer kept.
    Forged,
    /// The cookie was made by this endpoint, and expired this long ago.
    Stale(Box<Cookie>, Duration),
}

/// Keys that sign cookies and make Tie-Tags.
pub(crate) struct CookieJar {
    current: Keyed,
    previous: Keyed,
    replaced: Time,
    key_lifetime: Duration,
    /// Key for Tie-Tags. It is never replaced, because an association may outlive the other keys.
    tie_key: Keyed,
}

impl CookieJar {
    pub(crate) fn new(now: Time, key_lifetime: Duration, random: &mut Random) -> CookieJar {
        CookieJar {
            current: keyed(random),
            previous: keyed(random),
            replaced: now,
            key_lifetime,
            tie_key: keyed(random),
        }
    }

    /// Returns the Tie-Tags of the association with these verification tags.
    pub(crate) fn tie(&self, (local, peer): (VerificationTag, VerificationTag)) -> Tie {
        let mac = self.tie_key.clone().chain_update(local.0.to_be_bytes()).chain_update(peer.0.to_be_bytes());
        let mac = mac.finalize().into_bytes();
        Tie(std::array::from_fn(|i| mac[i]))
    }

    /// Signs a cookie. If the current key is too old, replaces it first.
    //= rfc9260#5.1.3-1 5.1.3-3
    pub(crate) fn seal(&mut self, cookie: &Cookie, now: Time, random: &mut Random) -> Vec<u8> {
        //= rfc9260#5.1.3-5
        if now - self.replaced >= self.key_lifetime {
            self.previous = std::mem::replace(&mut self.current, keyed(random));
            self.replaced = now;
        }
        let mut bytes = cookie.encode();
        let around = Around { ports: (cookie.local_port, cookie.remote_port), tag: cookie.local_tag };
        let tag = around.sign(&self.current, &bytes).finalize().into_bytes();
        bytes.extend_from_slice(&tag[..MAC_LEN]);
        bytes
    }

    /// Verifies and decodes a cookie that came in a packet with `header`.
    pub(crate) fn open(&self, bytes: &[u8], header: &CommonHeader, now: Time) -> Result<Cookie, CookieError> {
        let (body, tag) = bytes.split_last_chunk::<MAC_LEN>().ok_or(CookieError::Forged)?;
        let around = Around { ports: (header.destination_port, header.source_port), tag: header.tag };
        let signed = |key: &Keyed| around.sign(key, body).verify_truncated_left(tag).is_ok();
        //= rfc9260#5.1.5-1 5.1.5-2
        if !signed(&self.current) && !signed(&self.previous) {
            return Err(CookieError::Forged);
        }
        let cookie = Cookie::decode(body, around).ok_or(CookieError::Forged)?;
        if now > cookie.expires {
            let by = now - cookie.expires;
            return Err(CookieError::Stale(Box::new(cookie), by));
        }
        Ok(cookie)
    }
}

/// Fields of a packet that carries a cookie. The cookie is valid only in packets with the values for which it was
/// signed.
#[derive(Clone, Copy)]
struct Around {
    /// Our SCTP port, then the peer's.
    ports: (u16, u16),
    /// Our verification tag.
    tag: VerificationTag,
}

impl Around {
    fn sign(&self, key: &Keyed, body: &[u8]) -> Keyed {
        let (ours, peers) = self.ports;
        key.clone()
            .chain_update(body)
            .chain_update(ours.to_be_bytes())
            .chain_update(peers.to_be_bytes())
            .chain_update(self.tag.0.to_be_bytes())
    }
}

/// Returns a MAC with a new random key. The key is as long as a block of the hash.
fn keyed(random: &mut Random) -> Keyed {
    Hmac::new(&random.key().into())
}

impl Cookie {
    /// Returns the header of packets to the peer for which the cookie was made.
    pub(crate) fn answer_header(&self) -> CommonHeader {
        CommonHeader { source_port: self.local_port, destination_port: self.remote_port, tag: self.peer_tag }
    }

    //= rfc9260#5.1.3-6 5.1.3-7
    //= rfc4820#4-5
    //= rfc9260#5.1.3-6 5.1.3-7
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.push(self.flags());
        let protection = if self.protection.is_some() { PROTECTION } else { 0 };
        out.push(self.extensions.to_byte() | protection);
        // Whole milliseconds, rounded up, in six octets.
        out.extend_from_slice(&self.expires.as_nanos().div_ceil(1_000_000).to_be_bytes()[2..]);
        let words = [self.peer_tag.0, self.local_initial_tsn.0, self.peer_initial_tsn.0, self.peer_rwnd];
        for word in words.into_iter().chain(self.adaptation) {
            out.extend_from_slice(&word.to_be_bytes());
        }
        let udp_port = match self.route.carrier {
            Carrier::Ip => None,
            Carrier::Udp { peer_port } => Some(peer_port),
        };
        for half in [self.outbound_streams, self.inbound_streams].into_iter().chain(udp_port) {
            out.extend_from_slice(&half.to_be_bytes());
        }
        out.extend(self.tie.iter().flat_map(|tie| tie.0));
        if let Some(KeyVectors { local, peer, handshake }) = &self.key_vectors {
            put_bytes(&mut out, local);
            put_bytes(&mut out, peer);
            out.extend(handshake.iter().flatten());
        }
        if let Some(ProtectionTerms { method, transcript, .. }) = &self.protection {
            out.push(*method);
            out.extend_from_slice(transcript);
        }
        put_address(&mut out, self.route.local);
        put_address(&mut out, self.route.remote);
        put_addresses(&mut out, &self.local_addresses);
        put_addresses(&mut out, &self.peer_addresses);
        out
    }

    /// Returns the octet of flags. They mark the optional fields that are present, and hold the fields of one bit.
    fn flags(&self) -> u8 {
        let set = [
            (self.adaptation.is_some(), ADAPTATION),
            (self.zero_checksum, ZERO_CHECKSUM),
            (self.key_vectors.is_some(), KEY_VECTORS),
            (self.key_vectors.as_ref().is_some_and(|v| v.handshake.is_some()), HANDSHAKE),
            (self.tie.is_some(), TIE),
            (matches!(self.route.carrier, Carrier::Udp { .. }), UDP),
            (self.route.local.is_ipv6(), LOCAL_V6),
            (self.route.remote.is_ipv6(), REMOTE_V6),
        ];
        set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum()
    }

    fn decode(bytes: &[u8], around: Around) -> Option<Cookie> {
        let mut at = Fields(bytes);
        let [flags, extensions] = at.take()?;
        let has = |flag: u8| flags & flag != 0;
        let [a, b, c, d, e, f] = at.take()?;
        let expires = Time::from_millis(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        let [peer_tag, local_initial_tsn, peer_initial_tsn, peer_rwnd] = at.u32s()?;
        let adaptation = if has(ADAPTATION) { Some(at.u32s::<1>()?[0]) } else { None };
        let [outbound_streams, inbound_streams] = at.u16s()?;
        let carrier = if has(UDP) { Carrier::Udp { peer_port: at.u16s::<1>()?[0] } } else { Carrier::Ip };
        let tie = if has(TIE) { Some(Tie(at.take()?)) } else { None };
        let key_vectors = match has(KEY_VECTORS) {
            false => None,
            true => Some(KeyVectors {
                local: at.bytes()?,
                peer: at.bytes()?,
                handshake: if has(HANDSHAKE) { Some(at.take()?) } else { None },
            }),
        };
        let protection = match extensions & PROTECTION != 0 {
            false => None,
            true => {
                let [method] = at.take()?;
                Some(ProtectionTerms { role: KeyRole::Server, method, transcript: at.take()? })
            }
        };
        let (local, remote) = (at.address(has(LOCAL_V6))?, at.address(has(REMOTE_V6))?);
        Some(Cookie {
            expires,
            local_port: around.ports.0,
            remote_port: around.ports.1,
            local_tag: around.tag,
            peer_tag: VerificationTag(peer_tag),
            tie,
            local_initial_tsn: Tsn(local_initial_tsn),
            peer_initial_tsn: Tsn(peer_initial_tsn),
            peer_rwnd,
            outbound_streams,
            inbound_streams,
            adaptation,
            extensions: Extensions::from_byte(extensions & !PROTECTION),
            zero_checksum: has(ZERO_CHECKSUM),
            key_vectors,
            protection,
            route: Route { local, remote, carrier },
            local_addresses: at.addresses::<4>()?,
            peer_addresses: at.addresses::<4>()?,
        })
    }
}

const ADAPTATION: u8 = 1;
const ZERO_CHECKSUM: u8 = 2;
const KEY_VECTORS: u8 = 4;
const TIE: u8 = 8;
const UDP: u8 = 16;
const LOCAL_V6: u8 = 32;
const REMOTE_V6: u8 = 64;
const HANDSHAKE: u8 = 128;
/// Flag in the octet of the extensions. No extension uses this bit, which is the highest.
const PROTECTION: u8 = 128;

/// Writes a length of 16 bits, then `bytes`. Bytes beyond 65,535 are cut off; key vectors are far shorter.
fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&bytes[..usize::from(length)]);
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => out.extend_from_slice(&a.octets()),
        IpAddr::V6(a) => out.extend_from_slice(&a.octets()),
    }
}

fn put_addresses(out: &mut Vec<u8>, addresses: &[IpAddr]) {
    let count = addresses.len().min(usize::from(u8::MAX));
    out.push(u8::try_from(count).unwrap_or(u8::MAX));
    for address in &addresses[..count] {
        out.push(u8::from(address.is_ipv6()));
        put_address(out, *address);
    }
}

/// The unread rest of a cookie.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let [length] = self.u16s()?;
        let (head, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        Some(head.to_vec())
    }

    fn u16s<const N: usize>(&mut self) -> Option<[u16; N]> {
        let mut out = [0; N];
        for word in &mut out {
            *word = u16::from_be_bytes(self.take()?);
        }
        Some(out)
    }

    fn u32s<const N: usize>(&mut self) -> Option<[u32; N]> {
        let mut out = [0; N];
        for word in &mut out {
            *word = u32::from_be_bytes(self.take()?);
        }
        Some(out)
    }

    fn addresses<const N: usize>(&mut self) -> Option<SmallVec<[IpAddr; N]>>
    where
        [IpAddr; N]: smallvec::Array<Item = IpAddr>,
    {
        let [count] = self.take()?;
        let one = |at: &mut Self| {
            let [is_v6] = at.take()?;
            at.address(is_v6 != 0)
        };
        (0..count).map(|_| one(self)).collect()
    }

    fn address(&mut self, is_v6: bool) -> Option<IpAddr> {
        Some(if is_v6 {
            IpAddr::V6(Ipv6Addr::from(self.take::<16>()?))
        } else {
            IpAddr::V4(Ipv4Addr::from(self.take::<4>()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension::Extension;

    fn cookie() -> Cookie {
        Cookie {
            expires: Time::from_millis(61_000),
            local_port: 22,
            remote_port: 40_000,
            local_tag: VerificationTag(1),
            peer_tag: VerificationTag(2),
            tie: Some(Tie([3; 4])),
            local_initial_tsn: Tsn(5),
            peer_initial_tsn: Tsn(6),
            peer_rwnd: 7,
            outbound_streams: 8,
            inbound_streams: 9,
            adaptation: Some(10),
            extensions: Extensions::NONE.with(Extension::StreamReconfiguration),
            zero_checksum: true,
            key_vectors: Some(KeyVectors {
                local: vec![1; 40],
                peer: vec![2; 300],
                handshake: Some([4; 16]),
            }),
            protection: Some(ProtectionTerms { role: KeyRole::Server, method: 3, transcript: [5; 32] }),
            route: Route {
                local: "10.0.0.1".parse().unwrap(),
                remote: "10.0.0.2".parse().unwrap(),
                carrier: Carrier::Udp { peer_port: 9899 },
            },
            local_addresses: ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()].into_iter().collect(),
            peer_addresses: ["10.0.0.2".parse().unwrap()].into_iter().collect(),
        }
    }

    const HEADER: CommonHeader =
        CommonHeader { source_port: 40_000, destination_port: 22, tag: VerificationTag(1) };

    fn jar() -> (CookieJar, Random) {
        let mut random = Random::new([7; 32]);
        (CookieJar::new(Time::ZERO, Duration::from_secs(600), &mut random), random)
    }

    #[test]
    //= rfc9260#3.3.3.1.1-1 5.1.3-2
    fn a_sealed_cookie_opens_unchanged() {
        let (mut jar, mut random) = jar();
        let sealed = jar.seal(&cookie(), Time::from_millis(1000), &mut random);
        assert_eq!(jar.open(&sealed, &HEADER, Time::from_millis(61_000)), Ok(cookie()));
    }

    #[test]
    //= rfc9260#5.1.5-4
    fn a_cookie_is_stale_one_nanosecond_after_its_life_and_says_by_how_much() {
        let (mut jar, mut random) = jar();
        let sealed = jar.seal(&cookie(), Time::from_millis(1000), &mut random);
        let late = Time::from_millis(61_000) + Duration::from_nanos(1);
        let stale = CookieError::Stale(Box::new(cookie()), Duration::from_nanos(1));
        assert_eq!(jar.open(&sealed, &HEADER, late), Err(stale));
    }

    #[test]
    //= rfc9260#5.1.3-1 5.1.5-2
    fn every_altered_bit_and_every_truncation_is_found() {
        let (mut jar, mut random) = jar();
        let sealed = jar.seal(&cookie(), Time::ZERO, &mut random);
        for bit in 0..sealed.len() * 8 {
            let mut forged = sealed.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(jar.open(&forged, &HEADER, Time::ZERO), Err(CookieError::Forged), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert_eq!(jar.open(&sealed[..length], &HEADER, Time::ZERO), Err(CookieError::Forged));
        }
    }

    #[test]
    //= rfc9260#5.1.3-5 5.1.5-1
    fn a_cookie_outlives_one_change_of_key_and_not_two() {
        let (mut jar, mut random) = jar();
        let long = Cookie { expires: Time::from_millis(10_000_000), ..cookie() };
        let sealed = jar.seal(&long, Time::ZERO, &mut random);
        jar.seal(&long, Time::from_millis(600_000), &mut random);
        assert_eq!(jar.open(&sealed, &HEADER, Time::from_millis(600_000)), Ok(long.clone()));
        jar.seal(&long, Time::from_millis(1_200_000), &mut random);
        assert_eq!(jar.open(&sealed, &HEADER, Time::from_millis(1_200_000)), Err(CookieError::Forged));
    }

    #[test]
    fn a_cookie_is_good_only_with_the_ports_and_the_tag_that_it_was_made_for() {
        let (mut jar, mut random) = jar();
        let sealed = jar.seal(&cookie(), Time::ZERO, &mut random);
        for other in [
            CommonHeader { source_port: 40_001, ..HEADER },
            CommonHeader { destination_port: 23, ..HEADER },
            CommonHeader { tag: VerificationTag(2), ..HEADER },
        ] {
            assert_eq!(jar.open(&sealed, &other, Time::ZERO), Err(CookieError::Forged), "{other:?}");
        }
    }

    #[test]
    fn a_tie_tag_does_not_reveal_the_tags_that_it_represents() {
        let (jar, _) = jar();
        let tags = (VerificationTag(0x0102_0304), VerificationTag(0x0506_0708));
        assert_eq!(jar.tie(tags), jar.tie(tags));
        assert_ne!(jar.tie(tags), jar.tie((tags.1, tags.0)));
        let shown = jar.tie(tags).0;
        assert!(shown != [1, 2, 3, 4] && shown != [5, 6, 7, 8]);
    }
}
