//! The queues of `sched` beside those of the Linux kernel, which runs in a guest (`tests/kernel-sctp`): the same packets are offered to
//! both, and the same must come out, in the same order. Where chance has a part (hashes, the guest's clock) shares are compared.
//!
//! Begin with [`kernel::Kernel`], which asks the kernel, and [`trace`], which asks ours.

#![forbid(unsafe_code)]

mod fq_codel;
mod kernel;
mod sfq;
mod trace;

use trace::Offer;

/// Packets of a turn each, one of each flow: in the first round one of each bucket goes.
fn one_of_each(flows: u32) -> Vec<Offer> {
    (0..=flows).map(|flow| Offer::new(flow, 1512)).collect()
}

/// How many buckets a trace of [`one_of_each`] fell into: flows are served in the order of their arrival in the first round, and begin
/// anew in the next.
fn buckets(order: &[u32]) -> usize {
    1 + order[1..].windows(2).take_while(|pair| pair[0] < pair[1]).count()
}

/// Returns the expected number of buckets with a flow, and its deviation.
fn expected_buckets(flows: f64, buckets: f64) -> (f64, f64) {
    let empty = (1.0 - 1.0 / buckets).powf(flows);
    let both_empty = (1.0 - 2.0 / buckets).powf(flows);
    let variance = buckets * (buckets - 1.0) * both_empty + buckets * empty - (buckets * empty).powi(2);
    (buckets * (1.0 - empty), variance.sqrt())
}

/// Both hashes scatter flows as chance would.
fn assert_scattered(theirs: &[u32], ours: &[u32], flows: u32, of: usize) {
    let (mean, deviation) = expected_buckets(f64::from(flows), of as f64);
    for (who, order) in [("the kernel", theirs), ("ours", ours)] {
        let found = buckets(order) as f64;
        eprintln!("{who}: {flows} flows fell into {found} of {of} buckets, chance would have {mean:.0}");
        assert!((found - mean).abs() < 5.0 * deviation, "{who}: {found} buckets, not {mean}");
    }
}
