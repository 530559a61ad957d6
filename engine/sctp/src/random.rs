//! The one door by which randomness enters the engine: a generator seeded by the driver.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::Sha256;
use wire::{Tsn, VerificationTag};

/// Bytes of a marked nonce that are random; the others are their MAC.
const NONCE_RANDOM: usize = 16;

/// A seeded source of tags, TSNs, keys, nonces and jitter.
pub(crate) struct Random {
    generator: ChaCha12Rng,
    /// Tells the nonces made here from others.
    mark: Hmac<Sha256>,
}

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Random {
        // An HMAC takes keys of any length.
        let mark = Hmac::new_from_slice(&seed).unwrap_or_else(|_| Hmac::new(&Default::default()));
        Random { generator: ChaCha12Rng::from_seed(seed), mark }
    }

    /// A verification tag; zero is reserved for packets that carry an INIT (RFC 9260 section 5.3.1).
    //= rfc9260#5.3.1-1
    pub(crate) fn tag(&mut self) -> VerificationTag {
        VerificationTag(self.generator.next_u32().max(1))
    }

    /// An initial TSN (RFC 9260 section 3.3.2: any value will do).
    //= rfc9260#3.3.2-15
    pub(crate) fn tsn(&mut self) -> Tsn {
        Tsn(self.generator.next_u32())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.generator.next_u64()
    }

    //= rfc9260#5.1.3-4
    pub(crate) fn key(&mut self) -> [u8; 64] {
        let mut key = [0; 64];
        self.generator.fill_bytes(&mut key);
        key
    }

    /// A random number for keys of authentication (RFC 4895 section 3.1).
    pub(crate) fn nonce(&mut self) -> [u8; 32] {
        let mut nonce = [0; 32];
        self.generator.fill_bytes(&mut nonce);
        nonce
    }

    /// The nonce, changed so that [`is_own_nonce`](Self::is_own_nonce) knows it again.
    pub(crate) fn marked(&self, mut nonce: [u8; 32]) -> [u8; 32] {
        let (random, rest) = nonce.split_at_mut(NONCE_RANDOM);
        let mac = self.mark.clone().chain_update(&*random).finalize().into_bytes();
        rest.copy_from_slice(&mac[..rest.len()]);
        nonce
    }

    /// Reports whether [`marked`](Self::marked) has made this one; nothing needs to be remembered for that.
    pub(crate) fn is_own_nonce(&self, nonce: &[u8]) -> bool {
        let halves = nonce.split_at_checked(NONCE_RANDOM).filter(|(_, mac)| mac.len() == NONCE_RANDOM);
        halves.is_some_and(|(random, mac)| {
            self.mark.clone().chain_update(random).verify_truncated_left(mac).is_ok()
        })
    }

    /// `d` changed by up to half of itself either way, as RFC 9260 section 8.3 asks for heartbeats.
    pub(crate) fn jitter(&mut self, d: Duration) -> Duration {
        d / 2 + d.mul_f64(f64::from(self.generator.next_u32()) / f64::from(u32::MAX))
    }
}
