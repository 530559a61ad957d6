//! The State Cookie (RFC 9260 section 5.1.3): everything needed to open an association, carried by the peer.
//!
//! Authenticated by HMAC-SHA-256 under a key that is replaced now and then, expiring, and bound to ports and tags. A
//! host holds nothing for a peer that has not returned one. Begin at [`CookieJar::seal`] and [`CookieJar::open`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use base::{Carrier, Route, Time};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use smallvec::SmallVec;
use wire::{Tsn, VerificationTag};

use crate::extension::Extensions;
use crate::extension::auth::KeyVectors;
use crate::random::Random;

const MAC_LEN: usize = 32;

/// As long as a block of the hash.
type Key = [u8; 64];

/// What a cookie says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    pub(crate) created: Time,
    pub(crate) lifetime: Duration,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) local_tag: VerificationTag,
    pub(crate) peer_tag: VerificationTag,
    /// Tags of the association that existed when the INIT came (RFC 9260 section 5.2.2); zero if none.
    pub(crate) local_tie: VerificationTag,
    pub(crate) peer_tie: VerificationTag,
    pub(crate) local_initial_tsn: Tsn,
    pub(crate) peer_initial_tsn: Tsn,
    pub(crate) peer_rwnd: u32,
    pub(crate) outbound_streams: u16,
    pub(crate) inbound_streams: u16,
    pub(crate) adaptation: Option<u32>,
    /// What was negotiated.
    pub(crate) extensions: Extensions,
    /// Whether packets may carry a checksum of zero.
    pub(crate) zero_checksum: bool,
    /// For the keys of authentication.
    pub(crate) key_vectors: Option<KeyVectors>,
    /// How the INIT came.
    pub(crate) route: Route,
    pub(crate) local_addresses: SmallVec<[IpAddr; 4]>,
    /// The peer's addresses beside the INIT's source.
    pub(crate) peer_addresses: SmallVec<[IpAddr; 4]>,
}

/// Why a cookie is no good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CookieError {
    /// Not made by us, altered, or under a key long gone.
    Forged,
    /// Ours, but late by this much.
    Stale(Box<Cookie>, Duration),
}

/// The keys.
pub(crate) struct CookieJar {
    current: Key,
    previous: Key,
    replaced: Time,
    key_lifetime: Duration,
}

impl CookieJar {
    pub(crate) fn new(now: Time, key_lifetime: Duration, random: &mut Random) -> CookieJar {
        CookieJar { current: random.key(), previous: random.key(), replaced: now, key_lifetime }
    }

    /// Signs a cookie. Keys are replaced here: only new cookies need a new key.
    pub(crate) fn seal(&mut self, cookie: &Cookie, now: Time, random: &mut Random) -> Vec<u8> {
        if now - self.replaced >= self.key_lifetime {
            self.previous = std::mem::replace(&mut self.current, random.key());
            self.replaced = now;
        }
        let mut bytes = cookie.encode();
        let tag = mac(&self.current, &bytes).finalize().into_bytes();
        bytes.extend_from_slice(&tag);
        bytes
    }

    /// Verifies and reads a cookie.
    pub(crate) fn open(&self, bytes: &[u8], now: Time) -> Result<Cookie, CookieError> {
        let (body, tag) = bytes.split_last_chunk::<MAC_LEN>().ok_or(CookieError::Forged)?;
        let signed = |key| mac(key, body).verify_slice(tag).is_ok();
        if !signed(&self.current) && !signed(&self.previous) {
            return Err(CookieError::Forged);
        }
        let cookie = Cookie::decode(body).ok_or(CookieError::Forged)?;
        let expires = cookie.created + cookie.lifetime;
        if now > expires {
            return Err(CookieError::Stale(Box::new(cookie), now - expires));
        }
        Ok(cookie)
    }
}

fn mac(key: &Key, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new(key.into());
    mac.update(body);
    mac
}

impl Cookie {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        out.extend_from_slice(&self.created.as_nanos().to_be_bytes());
        out.extend_from_slice(&u64::try_from(self.lifetime.as_nanos()).unwrap_or(u64::MAX).to_be_bytes());
        for port in [self.local_port, self.remote_port, self.outbound_streams, self.inbound_streams] {
            out.extend_from_slice(&port.to_be_bytes());
        }
        let tags = [self.local_tag, self.peer_tag, self.local_tie, self.peer_tie].map(|t| t.0);
        for word in
            tags.into_iter().chain([self.local_initial_tsn.0, self.peer_initial_tsn.0, self.peer_rwnd])
        {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.push(u8::from(self.adaptation.is_some()));
        out.extend_from_slice(&self.adaptation.unwrap_or(0).to_be_bytes());
        out.push(self.extensions.to_byte());
        out.push(u8::from(self.zero_checksum));
        out.push(u8::from(self.key_vectors.is_some()));
        let (kind, port) = match self.route.carrier {
            Carrier::Ip => (0, 0),
            Carrier::Udp { peer_port } => (1, peer_port),
        };
        out.push(kind);
        out.extend_from_slice(&port.to_be_bytes());
        if let Some(KeyVectors { local, peer }) = &self.key_vectors {
            put_bytes(&mut out, local);
            put_bytes(&mut out, peer);
        }
        put_addresses(&mut out, &[self.route.local, self.route.remote]);
        put_addresses(&mut out, &self.local_addresses);
        put_addresses(&mut out, &self.peer_addresses);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Cookie> {
        let mut at = Fields(bytes);
        let created = Time::from_nanos(u64::from_be_bytes(at.take()?));
        let lifetime = Duration::from_nanos(u64::from_be_bytes(at.take()?));
        let [local_port, remote_port, outbound_streams, inbound_streams] = at.u16s()?;
        let [local_tag, peer_tag, local_tie, peer_tie] = at.u32s()?.map(VerificationTag);
        let [local_initial_tsn, peer_initial_tsn] = at.u32s()?.map(Tsn);
        let [peer_rwnd] = at.u32s()?;
        let [has_adaptation] = at.take()?;
        let [adaptation] = at.u32s()?;
        let [extensions, zero_checksum, has_key_vectors] = at.take()?;
        let [kind] = at.take()?;
        let [peer_port] = at.u16s()?;
        let carrier = if kind == 0 { Carrier::Ip } else { Carrier::Udp { peer_port } };
        let key_vectors = match has_key_vectors {
            0 => None,
            _ => Some(KeyVectors { local: at.bytes()?, peer: at.bytes()? }),
        };
        let [local, remote] = at.addresses()?.into_inner().ok()?;
        Some(Cookie {
            created,
            lifetime,
            local_port,
            remote_port,
            local_tag,
            peer_tag,
            local_tie,
            peer_tie,
            local_initial_tsn,
            peer_initial_tsn,
            peer_rwnd,
            outbound_streams,
            inbound_streams,
            adaptation: (has_adaptation != 0).then_some(adaptation),
            extensions: Extensions::from_byte(extensions),
            zero_checksum: zero_checksum != 0,
            key_vectors,
            route: Route { local, remote, carrier },
            local_addresses: at.addresses::<4>()?,
            peer_addresses: at.addresses::<4>()?,
        })
    }
}

/// At most 65,535 bytes: key vectors are far shorter.
fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&bytes[..usize::from(length)]);
}

fn put_addresses(out: &mut Vec<u8>, addresses: &[IpAddr]) {
    let count = addresses.len().min(usize::from(u8::MAX));
    out.push(u8::try_from(count).unwrap_or(u8::MAX));
    for address in &addresses[..count] {
        match address {
            IpAddr::V4(a) => {
                out.push(4);
                out.extend_from_slice(&a.octets());
            }
            IpAddr::V6(a) => {
                out.push(6);
                out.extend_from_slice(&a.octets());
            }
        }
    }
}

/// What is left of a cookie being read.
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
        (0..count).map(|_| self.address()).collect()
    }

    fn address(&mut self) -> Option<IpAddr> {
        let [family] = self.take()?;
        Some(if family == 4 {
            IpAddr::V4(Ipv4Addr::from(self.take::<4>()?))
        } else {
            IpAddr::V6(Ipv6Addr::from(self.take::<16>()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension::Extension;

    fn cookie() -> Cookie {
        Cookie {
            created: Time::from_millis(1000),
            lifetime: Duration::from_secs(60),
            local_port: 22,
            remote_port: 40_000,
            local_tag: VerificationTag(1),
            peer_tag: VerificationTag(2),
            local_tie: VerificationTag(3),
            peer_tie: VerificationTag(4),
            local_initial_tsn: Tsn(5),
            peer_initial_tsn: Tsn(6),
            peer_rwnd: 7,
            outbound_streams: 8,
            inbound_streams: 9,
            adaptation: Some(10),
            extensions: Extensions::NONE.with(Extension::StreamReconfiguration),
            zero_checksum: true,
            key_vectors: Some(KeyVectors { local: vec![1; 40], peer: vec![2; 300] }),
            route: Route {
                local: "10.0.0.1".parse().unwrap(),
                remote: "10.0.0.2".parse().unwrap(),
                carrier: Carrier::Udp { peer_port: 9899 },
            },
            local_addresses: ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()].into_iter().collect(),
            peer_addresses: ["10.0.0.2".parse().unwrap()].into_iter().collect(),
        }
    }

    fn jar() -> (CookieJar, Random) {
        let mut random = Random::new([7; 32]);
        (CookieJar::new(Time::ZERO, Duration::from_secs(600), &mut random), random)
    }

    #[test]
    fn what_was_sealed_is_what_is_opened() {
        let (mut jar, mut random) = jar();
        let sealed = jar.seal(&cookie(), Time::from_millis(1000), &mut random);
        assert_eq!(jar.open(&sealed, Time::from_millis(61_000)), Ok(cookie()));
    }

    #[test]
    fn a_cookie_is_stale_one_nanosecond_after_its_life_and_says_by_how_much() {
        let (mut jar, mut random) = jar();
        let sealed = jar.seal(&cookie(), Time::from_millis(1000), &mut random);
        let late = Time::from_millis(61_000) + Duration::from_nanos(1);
        let stale = CookieError::Stale(Box::new(cookie()), Duration::from_nanos(1));
        assert_eq!(jar.open(&sealed, late), Err(stale));
    }

    #[test]
    fn every_altered_bit_and_every_truncation_is_found() {
        let (mut jar, mut random) = jar();
        let sealed = jar.seal(&cookie(), Time::ZERO, &mut random);
        for bit in 0..sealed.len() * 8 {
            let mut forged = sealed.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(jar.open(&forged, Time::ZERO), Err(CookieError::Forged), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert_eq!(jar.open(&sealed[..length], Time::ZERO), Err(CookieError::Forged));
        }
    }

    #[test]
    fn a_cookie_outlives_one_change_of_key_and_not_two() {
        let (mut jar, mut random) = jar();
        let long = Cookie { lifetime: Duration::from_secs(10_000), ..cookie() };
        let sealed = jar.seal(&long, Time::ZERO, &mut random);
        jar.seal(&long, Time::from_millis(600_000), &mut random);
        assert_eq!(jar.open(&sealed, Time::from_millis(600_000)), Ok(long.clone()));
        jar.seal(&long, Time::from_millis(1_200_000), &mut random);
        assert_eq!(jar.open(&sealed, Time::from_millis(1_200_000)), Err(CookieError::Forged));
    }
}
