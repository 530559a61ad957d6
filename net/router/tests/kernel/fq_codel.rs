//! Comparison of our fq_codel with the Linux kernel's fq_codel.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{Ecn, Time};
use sched::{FqCodel, FqCodelConfig, Queue};

use crate::kernel::Kernel;
use crate::trace::{Came, Offer, fill, mixed, order};
use crate::{assert_scattered, one_of_each};

/// Settings with which a dozen flows almost never share a queue, and CoDel drops no packet.
const WIDE: FqCodelConfig = FqCodelConfig {
    packets: 10_240,
    bytes: 32 << 20,
    queues: 65_536,
    quantum: 1512,
    mtu: 1514,
    target: Duration::from_secs(60),
    interval: Duration::from_secs(60),
    marks: true,
};
/// The settings of [`WIDE`] as words of `tc`, without the packet limit.
const LEAF: &str = "fq_codel quantum 1512 flows 65536 target 60s interval 60s";
/// Limit on attempts. In about one of 1,000 attempts, two flows share a queue in the kernel, so the order differs.
const TRIES: usize = 3;

/// Asserts that our queue and the kernel's queue return the same packets of a trace in the same order, and thus drop the same
/// packets.
fn assert_alike(kernel: &Kernel, packets: usize, trace: &[Offer]) {
    let mut queue = FqCodel::new(FqCodelConfig { packets, ..WIDE }, 1);
    let ours = order(&mut queue, trace, Time::ZERO, Time::ZERO);
    let leaf = format!("{LEAF} limit {packets}");
    let mut differs = Vec::new();
    for _ in 0..TRIES {
        differs = kernel.order(&leaf, &[trace], 0.0).remove(0);
        if differs == ours {
            return eprintln!("{leaf}: {} packets, {} came, in one order", trace.len(), ours.len());
        }
    }
    panic!("{leaf}: the kernel gave {differs:?}, ours {ours:?}");
}

#[test]
#[ignore = "needs root: boots a guest with the kernel's queueing disciplines"]
fn our_fq_codel_serves_drops_and_marks_as_the_kernels() {
    let Some(kernel) = Kernel::up() else { return };
    assert_alike(&kernel, 10_240, &mixed(400, 12, 1));
    // When the limit on packets is exceeded, the queue with the most bytes loses half of its bytes, but no more than 64
    // packets.
    assert_alike(&kernel, 100, &mixed(400, 12, 2));
    let mut fat = mixed(300, 3, 3);
    fat.extend(vec![Offer::new(7, 1512); 300]);
    assert_alike(&kernel, 350, &fat);
    let (flows, trace) = (500, one_of_each(500));
    let mut queue = FqCodel::new(FqCodelConfig { queues: 1024, ..WIDE }, 1);
    let ours = order(&mut queue, &trace, Time::ZERO, Time::ZERO);
    let leaf = "fq_codel quantum 1512 flows 1024 target 60s interval 60s";
    assert_scattered(&kernel.order(leaf, &[&trace], 0.0)[0], &ours, flows, 1024);
    drops_and_marks_come_when_the_kernels_do(&kernel);
}

/// Numbers of the dropped packets, and of the marked packets.
type Hit = [BTreeSet<u32>; 2];

/// Returns the packets that were dropped (flow 0) and marked (flow 1).
fn hit(trace: &[Offer], came: &[Came]) -> Hit {
    let all = came.iter().map(|it| it.id).collect::<BTreeSet<_>>();
    let dropped = (0..).zip(trace).map(|(id, _)| id).filter(|id| !all.contains(id));
    [dropped.collect(), came.iter().filter(|it| it.is_marked).map(|it| it.id).collect()]
}

/// Compares drops and marks under a backlog of several seconds. The test dequeues a packet from our queue at each time at which
/// the kernel returned one. These times have a small error, because the kernel read its clock shortly before it set a packet's
/// timestamp. The first timestamp, to which all other times are relative, has this error too. A drop or mark of the previous or
/// next packet of the same flow therefore counts as equal.
fn drops_and_marks_come_when_the_kernels_do(kernel: &Kernel) {
    const RATE: u64 = 2_000_000;
    let ecn = [Ecn::NotEct, Ecn::Ect0];
    let mut trace: Vec<_> =
        (0..1200_usize).map(|n| Offer { ecn: ecn[n % 2], ..Offer::new((n % 2) as u32, 1000) }).collect();
    trace[0].length = 1512;
    let theirs = kernel.times("fq_codel", &trace, RATE);
    let start = theirs[0].nanos;
    let mut queue = FqCodel::new(FqCodelConfig { quantum: 1514, ..FqCodelConfig::default() }, 2);
    let first = fill(&mut queue, &trace, Time::from_millis(100_000));
    let mut ours = vec![Came { id: first[0], ..theirs[0] }];
    for came in &theirs[1..] {
        let at = Time::from_millis(100_000) + Duration::from_nanos(came.nanos - start);
        let Some(packet) = queue.dequeue(at) else { break };
        ours.push(Came { id: packet.body, is_marked: packet.ecn == Ecn::Ce, ..*came });
    }
    let (theirs, ours) = (hit(&trace, &theirs), hit(&trace, &ours));
    for (what, theirs, ours) in [("dropped", &theirs[0], &ours[0]), ("marked", &theirs[1], &ours[1])] {
        let (theirs_n, ours_n) = (theirs.len(), ours.len());
        let both = theirs
            .iter()
            .filter(|&&id| [id.saturating_sub(2), id, id + 2].iter().any(|id| ours.contains(id)));
        let both = both.count();
        eprintln!(
            "{what}: {theirs_n} by the kernel, {ours_n} by ours, {both} of them the same packets or the next"
        );
        assert!(theirs_n > 100 && theirs_n.abs_diff(ours_n) <= theirs_n / 30, "{what}");
        assert!(both * 10 >= theirs_n * 9, "{what}: {theirs:?} by the kernel, {ours:?} by ours");
    }
}
