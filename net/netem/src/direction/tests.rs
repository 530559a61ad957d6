//! Tests of the properties of a link, in virtual time.

use super::*;
use crate::config::{Distribution, Loss};
use proptest::prelude::*;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;

/// Test bench for one direction.
struct Bench {
    direction: LinkDirection,
    config: DirectionConfig,
    rng: ChaCha12Rng,
    counters: Counters,
}

impl Bench {
    fn new(config: DirectionConfig) -> Bench {
        let rng = ChaCha12Rng::seed_from_u64(1);
        Bench { direction: LinkDirection::default(), config, rng, counters: Counters::default() }
    }

    fn offer(&mut self, now: Time, length: usize) -> Fate {
        self.direction.offer(now, &self.config, length, Ecn::Ect0, &mut self.rng, &mut self.counters)
    }

    /// Offers a packet and returns its arrival; `None` if it is lost.
    fn arrival(&mut self, now: Time, length: usize) -> Option<Time> {
        match self.offer(now, length) {
            Fate::Passes(passage) => Some(passage.first.at),
            Fate::Lost(_) => None,
        }
    }

    /// Offers `count` packets. Returns a value for each packet, which is true if the packet is lost.
    fn losses(&mut self, count: usize) -> Vec<bool> {
        (0..count).map(|_| self.arrival(Time::ZERO, 100).is_none()).collect()
    }
}

fn transparent() -> DirectionConfig {
    DirectionConfig::TRANSPARENT
}

/// Returns a link of 10 Mbit/s, on which 1,250 bytes take one millisecond.
fn ten_mbit() -> DirectionConfig {
    DirectionConfig { rate: 10_000_000, delay: Duration::from_millis(10), ..transparent() }
}

#[test]
fn packets_leave_at_the_rate_and_arrive_after_the_delay_and_a_full_queue_drops() {
    let mut bench = Bench::new(DirectionConfig { queue_packets: 2, ..ten_mbit() });
    assert_eq!(bench.arrival(Time::ZERO, 1250), Some(Time::from_millis(11)));
    assert_eq!(bench.arrival(Time::ZERO, 1250), Some(Time::from_millis(12)));
    assert_eq!(bench.offer(Time::ZERO, 1250), Fate::Lost(LossCause::Queue));
    assert_eq!(bench.arrival(Time::from_millis(1), 1250), Some(Time::from_millis(13)));
    assert_eq!((bench.counters.lost_in_queue, bench.counters.passed), (1, 3));
}

#[test]
fn a_queue_in_bytes_drops_by_bytes() {
    let mut bench =
        Bench::new(DirectionConfig { queue_bytes: 2000, queue_packets: usize::MAX, ..ten_mbit() });
    assert!(bench.arrival(Time::ZERO, 1250).is_some());
    assert_eq!(bench.offer(Time::ZERO, 800), Fate::Lost(LossCause::Queue));
    assert!(bench.arrival(Time::ZERO, 750).is_some());
}

#[test]
fn a_burst_passes_at_once_after_a_pause_and_what_follows_at_the_rate() {
    let mut bench = Bench::new(DirectionConfig { burst: 2500, delay: Duration::ZERO, ..ten_mbit() });
    let at = Time::from_millis(100);
    let arrivals: Vec<_> = (0..4).map(|_| bench.arrival(at, 1250).unwrap().since(at).as_millis()).collect();
    assert_eq!(arrivals, [0, 0, 1, 2]);
}

#[test]
fn loss_before_the_queue_takes_no_time_of_the_link_and_loss_on_the_wire_does() {
    for (loss_place, next) in [(LossPlace::BeforeQueue, 11), (LossPlace::OnTheWire, 12)] {
        let mut bench = Bench::new(DirectionConfig { loss: Loss::Uniform(1.0), loss_place, ..ten_mbit() });
        assert_eq!(bench.offer(Time::ZERO, 1250), Fate::Lost(LossCause::Chance));
        bench.config.loss = Loss::None;
        assert_eq!(bench.arrival(Time::ZERO, 1250), Some(Time::from_millis(next)), "{loss_place:?}");
    }
}

#[test]
fn a_cut_direction_passes_nothing_until_it_is_mended() {
    let mut bench = Bench::new(DirectionConfig { cut: true, ..transparent() });
    assert_eq!(bench.offer(Time::ZERO, 100), Fate::Lost(LossCause::Cut));
    bench.config.cut = false;
    assert!(bench.arrival(Time::ZERO, 100).is_some());
}

#[test]
fn ecn_capable_packets_are_marked_bleached_or_dropped_as_configured() {
    let mut bench = Bench::new(DirectionConfig { mark_above: Some(2000), ..ten_mbit() });
    let ecn = |fate| if let Fate::Passes(passage) = fate { Some(passage.ecn) } else { None };
    assert_eq!(ecn(bench.offer(Time::ZERO, 1250)), Some(Ecn::Ect0));
    assert_eq!(ecn(bench.offer(Time::ZERO, 1250)), Some(Ecn::Ce));
    bench.config.bleaches = true;
    assert_eq!(ecn(bench.offer(Time::ZERO, 1250)), Some(Ecn::NotEct));
    bench.config.drops_ect = true;
    assert_eq!(bench.offer(Time::ZERO, 1250), Fate::Lost(LossCause::Ecn));
    assert_eq!((bench.counters.marked, bench.counters.lost_for_ecn), (1, 1));
}

#[test]
fn copies_and_flipped_bits_come_as_often_as_asked() {
    let mut bench = Bench::new(DirectionConfig { duplicate: 0.1, corrupt: 0.2, ..transparent() });
    for _ in 0..10_000 {
        let Fate::Passes(passage) = bench.offer(Time::ZERO, 100) else { panic!("nothing loses here") };
        assert!(passage.arrivals().all(|arrival| arrival.flip.is_none_or(|bit| bit < 800)));
    }
    assert!((900..1100).contains(&bench.counters.duplicated), "{:?}", bench.counters);
    assert!((2050..2350).contains(&bench.counters.corrupted), "{:?}", bench.counters);
}

/// Reports whether `hits` is within four standard deviations of the mean. The distribution is binomial, with `of` trials of
/// probability `p`. About one seed in 16,000 would miss this band. The test's seed is fixed, so the result never changes.
fn is_within_band(hits: usize, of: usize, p: f64) -> bool {
    let (hits, of) = (hits as f64, of as f64);
    (hits - of * p).abs() <= 4.0 * (of * p * (1.0 - p)).sqrt()
}

#[test]
fn uniform_loss_is_within_the_binomial_band() {
    for p in [0.01, 0.03, 0.06, 0.1, 0.5] {
        let mut bench = Bench::new(DirectionConfig { loss: Loss::Uniform(p), ..transparent() });
        let lost = bench.losses(100_000).into_iter().filter(|lost| *lost).count();
        assert!(is_within_band(lost, 100_000, p), "{lost} of 100,000 at {p}");
    }
}

#[test]
fn bursts_have_the_mean_length_and_share_of_gilberts_model() {
    let mut bench =
        Bench::new(DirectionConfig { loss: Loss::Bursts { begin: 0.01, end: 0.25 }, ..transparent() });
    let losses = bench.losses(400_000);
    let lost = losses.iter().filter(|lost| **lost).count() as f64;
    let bursts = losses.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
    assert!((lost / bursts - 4.0).abs() < 0.2, "bursts of {} packets", lost / bursts);
    let share = lost / losses.len() as f64;
    assert!((share - 0.01 / 0.26).abs() < 0.002, "{share} lost");
}

#[test]
fn losses_of_gilbert_and_elliott_have_the_share_of_good_and_bad_times() {
    let loss = Loss::GilbertElliott { begin: 0.02, end: 0.08, bad: 0.5, good: 0.01 };
    let mut bench = Bench::new(DirectionConfig { loss, ..transparent() });
    let lost = bench.losses(400_000).into_iter().filter(|lost| *lost).count() as f64 / 400_000.0;
    let expected = 0.2 * 0.5 + 0.8 * 0.01;
    assert!((lost - expected).abs() < 0.004, "{lost} lost, {expected} expected");
}

#[test]
fn jitter_stays_within_its_width_and_overtakes_unless_the_order_is_kept() {
    for keep_order in [false, true] {
        let (delay, jitter) = (Duration::from_millis(10), Duration::from_millis(3));
        let mut bench = Bench::new(DirectionConfig { delay, jitter, keep_order, ..transparent() });
        let arrivals: Vec<Time> = (0..1000).filter_map(|_| bench.arrival(Time::ZERO, 100)).collect();
        assert!(arrivals.iter().all(|at| (7_000_000..=13_000_000).contains(&at.as_nanos())));
        assert_eq!(arrivals.is_sorted(), keep_order);
    }
}

proptest! {
    /// In every span of time, the bytes that leave are at most burst + rate × time + one packet.
    #[test]
    fn the_rate_is_never_exceeded(
        gaps in prop::collection::vec((0u64..3_000_000, 40usize..1500), 2..200),
        rate in 100_000u64..1_000_000_000,
        burst in 0usize..5000,
    ) {
        let mut bench = Bench::new(DirectionConfig { rate, burst, ..transparent() });
        let mut now = Time::ZERO;
        let mut left = Vec::new();
        for (gap, length) in gaps {
            now += Duration::from_nanos(gap);
            left.extend(bench.arrival(now, length).map(|at| (at, length)));
        }
        for first in 0..left.len() {
            let mut bytes = 0;
            for &(at, length) in &left[first + 1..] {
                bytes += length;
                let time = wire_time(bytes.saturating_sub(burst), rate);
                // Each packet's time is rounded down to a nanosecond.
                let slack = Duration::from_nanos(left.len() as u64);
                prop_assert!(at.since(left[first].0) + slack >= time);
            }
        }
    }

    /// Without jitter, packets keep their order. Their delay is the exact sum of waiting, transmission and propagation, to the
    /// nanosecond.
    #[test]
    fn arrivals_are_in_order_and_delays_are_exact_sums(
        gaps in prop::collection::vec((0u64..3_000_000, 40usize..1500), 1..100),
        rate in 100_000u64..1_000_000_000,
        delay in 0u64..100_000_000,
    ) {
        let delay = Duration::from_nanos(delay);
        let mut bench = Bench::new(DirectionConfig { rate, delay, queue_packets: usize::MAX, ..transparent() });
        let (mut now, mut free_at) = (Time::ZERO, Time::ZERO);
        for (gap, length) in gaps {
            now += Duration::from_nanos(gap);
            free_at = free_at.max(now) + wire_time(length, rate);
            prop_assert_eq!(bench.arrival(now, length), Some(free_at + delay));
        }
    }

    /// Every packet has one fate, and is counted once, under this fate.
    #[test]
    fn counters_add_up(seed in 0u64..1000, loss in 0.0f64..0.5, queue in 1usize..10) {
        let distribution = Distribution::Normal;
        let mut bench = Bench::new(DirectionConfig {
            loss: Loss::Uniform(loss), queue_packets: queue, jitter: Duration::from_millis(1), distribution, ..ten_mbit()
        });
        bench.rng = ChaCha12Rng::seed_from_u64(seed);
        let mut passed = 0;
        for n in 0..500 {
            passed += u64::from(bench.arrival(Time::from_micros(n * 700), 1250).is_some());
        }
        prop_assert_eq!(bench.counters.passed, passed);
        prop_assert_eq!(bench.counters.passed + bench.counters.lost(), 500);
        prop_assert_eq!(bench.counters.offered_bytes, 500 * 1250);
    }
}
