//! Compares the queues of `sched` with the queues of the Linux kernel, which runs in a guest (`tests/kernel-sctp`). Our queue and
//! the kernel's queue get the same packets. They must return the same packets in the same order. Where chance plays a part
//! (hashes, the guest's clock), the tests compare numbers within a tolerance.
//!
//! Begin with [`kernel::Kernel`], which runs the kernel's queues, and [`trace`], which runs ours.

#![forbid(unsafe_code)]

mod fq_codel;
mod kernel;
mod sfq;
mod trace;

use trace::Offer;

/// Returns one packet for each of `flows` + 1 flows. A packet has the length of a quantum, so each bucket sends one packet in the
/// first round.
fn one_of_each(flows: u32) -> Vec<Offer> {
    (0..=flows).map(|flow| Offer::new(flow, 1512)).collect()
}

/// Returns the number of buckets that the flows of [`one_of_each`] fell into. The first round serves one flow of each bucket, in
/// the order of arrival. The second round begins again with a low number.
fn buckets(order: &[u32]) -> usize {
    1 + order[1..].windows(2).take_while(|pair| pair[0] < pair[1]).count()
}

/// Returns the expected number of buckets that have a flow, and its standard deviation.
fn expected_buckets(flows: f64, buckets: f64) -> (f64, f64) {
    let empty = (1.0 - 1.0 / buckets).powf(flows);
    let both_empty = (1.0 - 2.0 / buckets).powf(flows);
    let variance = buckets * (buckets - 1.0) * both_empty + buckets * empty - (buckets * empty).powi(2);
    (buckets * (1.0 - empty), variance.sqrt())
}

/// Asserts that the kernel's hash and our hash scatter flows like random numbers.
fn assert_scattered(theirs: &[u32], ours: &[u32], flows: u32, of: usize) {
    let (mean, deviation) = expected_buckets(f64::from(flows), of as f64);
    for (who, order) in [("the kernel", theirs), ("ours", ours)] {
        let found = buckets(order) as f64;
        eprintln!("{who}: {flows} flows fell into {found} of {of} buckets, chance would have {mean:.0}");
        assert!((found - mean).abs() < 5.0 * deviation, "{who}: {found} buckets, not {mean}");
    }
}
