//! The engine's only source of randomness: a generator that the driver seeds.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::Sha256;
use wire::{Tsn, VerificationTag};

/// Length of the random part of a marked nonce in bytes. The rest of the nonce is a MAC over the random
/// part.
const NONCE_RANDOM: usize = 16;

/// A seeded source of tags, TSNs, keys, nonces and jitter.
pub(crate) struct Random {
    generator: ChaCha12Rng,
    /// Key of the MAC in marked nonces, through which this host recognizes its own nonces.
    mark: Hmac<Sha256>,
}

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Random {
        // HMAC accepts keys of any length, so the call cannot fail.
        let mark = Hmac::new_from_slice(&seed).unwrap_or_else(|_| Hmac::new(&Default::default()));
        Random { generator: ChaCha12Rng::from_seed(seed), mark }
    }

    /// Returns a random verification tag other than 0. Tag 0 is reserved for packets that carry an INIT (RFC
    /// 9260 section 5.3.1).
    //= rfc9260#5.3.1-1
    pub(crate) fn tag(&mut self) -> VerificationTag {
        VerificationTag(self.generator.next_u32().max(1))
    }

    /// Returns an initial TSN (RFC 9260 section 3.3.2: any value is valid).
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

    /// Returns a random number for authentication keys (RFC 4895 section 3.1).
    pub(crate) fn nonce(&mut self) -> [u8; 32] {
        let mut nonce = [0; 32];
        self.generator.fill_bytes(&mut nonce);
        nonce
    }

    /// Replaces the second half of `nonce` with a MAC, so [`is_own_nonce`](Self::is_own_nonce) recognizes
    /// the nonce.
    pub(crate) fn marked(&self, mut nonce: [u8; 32]) -> [u8; 32] {
        let (random, rest) = nonce.split_at_mut(NONCE_RANDOM);
        let mac = self.mark.clone().chain_update(&*random).finalize().into_bytes();
        rest.copy_from_slice(&mac[..rest.len()]);
        nonce
    }

    /// Reports whether [`marked`](Self::marked) has made `nonce`. The MAC in the nonce shows this, so this
    /// host stores no nonces.
    pub(crate) fn is_own_nonce(&self, nonce: &[u8]) -> bool {
        let halves = nonce.split_at_checked(NONCE_RANDOM).filter(|(_, mac)| mac.len() == NONCE_RANDOM);
        halves.is_some_and(|(random, mac)| {
            self.mark.clone().chain_update(random).verify_truncated_left(mac).is_ok()
        })
    }

    /// Returns a random time between 50 % and 150 % of `d`, as RFC 9260 section 8.3 requires for heartbeats.
    pub(crate) fn jitter(&mut self, d: Duration) -> Duration {
        d / 2 + d.mul_f64(f64::from(self.generator.next_u32()) / f64::from(u32::MAX))
    }
}
