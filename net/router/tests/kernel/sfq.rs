//! Comparison of our SFQ with the Linux kernel's SFQ.

use std::time::Duration;

use base::Time;
use sched::{Sfq, SfqConfig};

use crate::kernel::Kernel;
use crate::trace::{Offer, mixed, order};
use crate::{assert_scattered, one_of_each};

/// Settings with which a dozen flows almost never share a bucket.
const WIDE: SfqConfig =
    SfqConfig { packets: 1000, depth: 127, slots: 128, buckets: 65_536, quantum: 1512, perturb: None };
/// Limit on attempts. In about one of 1,000 attempts, two flows share a bucket in the kernel, so the order differs.
const TRIES: usize = 3;

fn ours(config: SfqConfig, trace: &[Offer]) -> Vec<u32> {
    order(&mut Sfq::new(config, 1), trace, Time::ZERO, Time::ZERO)
}

/// Asserts that our queue and the kernel's queue return the same packets of a trace in the same order, and thus drop the
/// same packets.
fn assert_alike(kernel: &Kernel, leaf: &str, config: SfqConfig, trace: &[Offer]) {
    let ours = ours(config, trace);
    let tries = (0..TRIES).map(|_| kernel.order(leaf, &[trace], 0.0).remove(0));
    let mut differs = Vec::new();
    for theirs in tries {
        if theirs == ours {
            return eprintln!("{leaf}: {} packets, {} came, in one order", trace.len(), ours.len());
        }
        differs = theirs;
    }
    panic!("{leaf}: the kernel gave {differs:?}, ours {ours:?}");
}

#[test]
#[ignore = "needs root: boots a guest with the kernel's queueing disciplines"]
fn our_sfq_serves_and_drops_as_the_kernels() {
    let Some(kernel) = Kernel::up() else { return };
    let wide = "sfq quantum 1512 divisor 65536 depth 127";
    assert_alike(&kernel, &format!("{wide} limit 1000"), WIDE, &mixed(400, 12, 1));
    let short = SfqConfig { packets: 60, slots: 60, ..WIDE };
    assert_alike(&kernel, &format!("{wide} limit 60"), short, &mixed(400, 12, 2));
    let shallow = SfqConfig { depth: 9, ..WIDE };
    assert_alike(&kernel, "sfq quantum 1512 divisor 65536 depth 9 limit 1000", shallow, &mixed(400, 12, 3));
    let few = SfqConfig { slots: 5, ..WIDE };
    assert_alike(&kernel, &format!("{wide} limit 1000 flows 5"), few, &mixed(400, 12, 4));
    // More flows than the limit on packets, with the defaults of `tc`: 127 packets and 128 slots. The queue accepts the new
    // packet, and drops the packet whose turn was next.
    let customary = SfqConfig { buckets: 65_536, perturb: None, ..SfqConfig::default() };
    let trace = one_of_each(150);
    let leaf = "sfq divisor 65536";
    assert_alike(&kernel, leaf, customary, &trace);
    hashes_scatter(&kernel);
    hashes_change(&kernel);
}

fn hashes_scatter(kernel: &Kernel) {
    let config = SfqConfig { packets: 2000, slots: 2000, buckets: 1024, ..WIDE };
    let trace = one_of_each(500);
    let leaf = "sfq quantum 1512 divisor 1024 limit 2000 flows 1000";
    assert_scattered(&kernel.order(leaf, &[&trace], 0.0)[0], &ours(config, &trace), 500, 1024);
}

/// Asserts that `perturb` changes the hash, so different flows then share a bucket. Without `perturb`, the hash must stay.
fn hashes_change(kernel: &Kernel) {
    let config = SfqConfig { buckets: 64, slots: 64, ..WIDE };
    let trace = one_of_each(64);
    let leaf = "sfq quantum 1512 divisor 64 limit 1000 flows 64";
    let still = kernel.order(leaf, &[&trace, &trace], 2.5);
    let moved = kernel.order(&format!("{leaf} perturb 1"), &[&trace, &trace], 2.5);
    assert!(still[0] == still[1] && moved[0] != moved[1], "the kernel: {still:?} {moved:?}");
    let ours = |perturb| {
        let mut queue = Sfq::new(SfqConfig { perturb, ..config }, 1);
        [0, 2500].map(|ms| order(&mut queue, &trace, Time::from_millis(ms), Time::from_millis(ms)))
    };
    let (still, moved) = (ours(None), ours(Some(Duration::from_secs(1))));
    assert!(still[0] == still[1] && moved[0] != moved[1], "ours: {still:?} {moved:?}");
    nothing_is_lost_or_reordered_by_another_hash(kernel, config);
}

/// Asserts that no packet is lost or reordered if the hash changes while packets wait.
fn nothing_is_lost_or_reordered_by_another_hash(kernel: &Kernel, config: SfqConfig) {
    let trace: Vec<_> = (0..200).map(|n| Offer::new(n % 20, 1512)).collect();
    let leaf = "sfq quantum 1512 divisor 64 limit 1000 flows 64 perturb 1";
    let theirs = kernel.order(leaf, &[&trace], 0.0).remove(0);
    let mut queue = Sfq::new(SfqConfig { perturb: Some(Duration::from_secs(1)), ..config }, 1);
    let ours = order(&mut queue, &trace, Time::ZERO, Time::from_millis(2000));
    for (who, order) in [("the kernel", theirs), ("ours", ours)] {
        assert_eq!(order.len(), trace.len(), "{who}");
        for flow in 0..20 {
            let own = order.iter().filter(|id| **id % 20 == flow);
            assert!(own.is_sorted(), "{who}: flow {flow} of {order:?}");
        }
    }
}
