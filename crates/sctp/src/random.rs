//! The one door by which randomness enters the engine: a generator seeded by the driver.

use std::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use wire::{Tsn, VerificationTag};

/// A seeded source of tags, TSNs, keys, nonces and jitter.
pub(crate) struct Random(ChaCha12Rng);

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Random {
        Random(ChaCha12Rng::from_seed(seed))
    }

    /// A verification tag; zero is reserved for packets that carry an INIT (RFC 9260 section 5.3.1).
    //= rfc9260#5.3.1-1
    pub(crate) fn tag(&mut self) -> VerificationTag {
        VerificationTag(self.0.next_u32().max(1))
    }

    /// An initial TSN (RFC 9260 section 3.3.2: any value will do).
    //= rfc9260#3.3.2-15
    pub(crate) fn tsn(&mut self) -> Tsn {
        Tsn(self.0.next_u32())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    //= rfc9260#5.1.3-4
    pub(crate) fn key(&mut self) -> [u8; 64] {
        let mut key = [0; 64];
        self.0.fill_bytes(&mut key);
        key
    }

    /// A random number for keys of authentication (RFC 4895 section 3.1).
    pub(crate) fn nonce(&mut self) -> [u8; 32] {
        let mut nonce = [0; 32];
        self.0.fill_bytes(&mut nonce);
        nonce
    }

    /// `d` changed by up to half of itself either way, as RFC 9260 section 8.3 asks for heartbeats.
    pub(crate) fn jitter(&mut self, d: Duration) -> Duration {
        d / 2 + d.mul_f64(f64::from(self.0.next_u32()) / f64::from(u32::MAX))
    }
}
