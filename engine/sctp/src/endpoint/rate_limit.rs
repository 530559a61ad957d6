//! Rate limit on answers to INITs and to packets out of the blue. The limit bounds the rate of answers to a flood of such
//! packets, even if the source addresses are forged.
//!
//! An answer takes a token from each of two buckets: one for all sources, and one for the source's neighbourhood (IPv4 /24,
//! IPv6 /56). A neighbourhood has a lower rate than all sources together, so one network cannot use up all answers. A keyed
//! hash assigns each neighbourhood to a bucket in a table of fixed size. Several neighbourhoods may share a bucket. The limiter
//! stores only these buckets, so its memory does not grow with the number of packets or sources. Invariant: an answer takes a
//! token from both buckets, or from neither. Begin at [`RateLimit::take`].

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use base::Time;

use super::slots::KeyedHash;
use crate::config::AnswerRate;

/// A token bucket, represented by the time at which it will be full again. If this time has passed, the bucket is full.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(Time);

/// Rate and size of a token bucket.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Time in which one token is added.
    interval: Duration,
    /// Time in which all tokens of the bucket except one are added. If the bucket has a token, it is full again within this
    /// time.
    depth: Duration,
}

impl Rate {
    fn new(per_second: u32, burst: u32) -> Rate {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Rate { interval, depth: interval * burst.saturating_sub(1) }
    }

    fn take(self, bucket: &mut Bucket, now: Time) -> bool {
        let spent_until = bucket.0.max(now);
        let has_token = spent_until - now <= self.depth;
        if has_token {
            bucket.0 = spent_until + self.interval;
        }
        has_token
    }

    fn give_back(self, bucket: &mut Bucket) {
        bucket.0 = Time::ZERO + (bucket.0 - Time::ZERO).saturating_sub(self.interval);
    }
}

/// Rate limiter with one bucket for all sources, and a table of buckets for the neighbourhoods.
#[derive(Debug)]
pub(super) struct RateLimit {
    all: (Rate, Bucket),
    neighbourhood: Rate,
    neighbourhoods: Box<[Bucket]>,
    hash: KeyedHash,
}

impl RateLimit {
    /// Creates full buckets. `places` is the number of buckets for neighbourhoods; 0 counts as 1. `key` is the key of the hash.
    pub(super) fn new(rate: AnswerRate, places: usize, key: u64) -> RateLimit {
        RateLimit {
            all: (Rate::new(rate.per_second, rate.burst), Bucket::default()),
            neighbourhood: Rate::new(rate.source_per_second, rate.source_burst),
            neighbourhoods: vec![Bucket::default(); places.max(1)].into(),
            hash: KeyedHash(key),
        }
    }

    /// Reports whether a packet from `source` may be answered. If so, charges both buckets.
    pub(super) fn take(&mut self, source: IpAddr, now: Time) -> bool {
        let place = self.place(source);
        if !self.neighbourhood.take(&mut self.neighbourhoods[place], now) {
            return false;
        }
        let (rate, bucket) = &mut self.all;
        let taken = rate.take(bucket, now);
        if !taken {
            self.neighbourhood.give_back(&mut self.neighbourhoods[place]);
        }
        taken
    }

    /// Refunds both tokens of an answer to an INIT, after the sender has proved that it receives packets at the address
    /// `source`. A host that opens associations one after another therefore keeps its tokens. Many unfinished handshakes, or
    /// other sources that share a bucket with the host, can still use up the host's tokens.
    pub(super) fn give_back(&mut self, source: IpAddr) {
        let place = self.place(source);
        self.neighbourhood.give_back(&mut self.neighbourhoods[place]);
        let (rate, bucket) = &mut self.all;
        rate.give_back(bucket);
    }

    fn place(&self, source: IpAddr) -> usize {
        let mut hasher = self.hash.build_hasher();
        match source {
            IpAddr::V4(a) => hasher.write(&a.octets()[..3]),
            IpAddr::V6(a) => hasher.write(&a.octets()[..7]),
        }
        usize::try_from(hasher.finish() % self.neighbourhoods.len() as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> RateLimit {
        let rate = AnswerRate { per_second: 100, burst: 10, source_per_second: 10, source_burst: 3 };
        RateLimit::new(rate, 4096, 1)
    }

    fn answers(limit: &mut RateLimit, source: &str, packets: usize, now: Time) -> usize {
        let source = source.parse().unwrap();
        (0..packets).filter(|_| limit.take(source, now)).count()
    }

    #[test]
    fn a_neighbourhood_gets_its_burst_then_its_rate() {
        let mut limit = limit();
        assert_eq!(answers(&mut limit, "10.0.0.1", 50, Time::ZERO), 3);
        assert_eq!(answers(&mut limit, "10.0.0.2", 50, Time::ZERO), 0, "the same /24");
        assert_eq!(answers(&mut limit, "10.0.0.1", 50, Time::from_millis(99)), 0);
        assert_eq!(answers(&mut limit, "10.0.0.1", 50, Time::from_millis(100)), 1);
        assert_eq!(
            answers(&mut limit, "10.0.0.1", 50, Time::from_millis(10_000)),
            3,
            "no more than the burst"
        );
    }

    #[test]
    fn an_ipv6_neighbourhood_is_a_56_bit_prefix() {
        let mut limit = limit();
        assert_eq!(answers(&mut limit, "2001:db8:0:1100::1", 50, Time::ZERO), 3);
        assert_eq!(answers(&mut limit, "2001:db8:0:11ff::1", 50, Time::ZERO), 0);
        assert_eq!(answers(&mut limit, "2001:db8:0:1200::1", 50, Time::ZERO), 3);
    }

    #[test]
    fn all_neighbourhoods_share_one_burst_and_a_refusal_charges_neither_bucket() {
        let mut limit = limit();
        let taken: usize = (0..20).map(|n| answers(&mut limit, &format!("10.0.{n}.1"), 3, Time::ZERO)).sum();
        assert_eq!(taken, 10);
        assert_eq!(answers(&mut limit, "10.0.19.1", 9, Time::from_millis(100)), 3, "was never charged");
    }

    #[test]
    fn a_token_given_back_can_be_taken_again() {
        let mut limit = limit();
        for _ in 0..100 {
            assert_eq!(answers(&mut limit, "10.0.0.1", 1, Time::ZERO), 1);
            limit.give_back("10.0.0.1".parse().unwrap());
        }
        assert_eq!(answers(&mut limit, "10.0.0.1", 50, Time::ZERO), 3, "and no more than was there");
    }
}
