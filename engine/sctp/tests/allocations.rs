//! Memory use of the engine: no allocation per packet in steady state, and little memory for an idle association.

#[path = "../examples/pair/mod.rs"]
mod pair;

use std::hint::black_box;
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use pair::Pair;

/// Limit on the bytes of an idle association with two paths.
const IDLE_MAX: u64 = 8 * 1024;

/// Number of associations over which the memory is averaged.
const ASSOCIATIONS: u16 = 500;

/// Returns the number of allocations while `a` reads 4 MB in messages of `len` bytes, and `b` reads 8 MB. Before the count begins, a
/// warm-up lets windows and queues reach their final size.
fn allocations_in_steady_state(len: usize) -> u64 {
    let mut pair = Pair::connected();
    // The message is cloned before the measurement, because the first clone of `Bytes` allocates a reference counter. This allocation is
    // not the engine's.
    let message = Bytes::from(vec![7; len]);
    let _other = message.clone();
    let count = (4_000_000 / len) as u64;
    pair.bulk_both_ways(&message, 3 * count);
    pair.bulk(&message, count);
    let counted = measure(|| {
        pair.bulk_both_ways(&message, count);
        pair.bulk(&message, count);
    });
    assert!(pair.a.messages >= 4 * count && pair.b.messages >= 6 * count);
    counted.count_total
}

#[test]
fn the_allocation_counter_counts_one_allocation() {
    assert_eq!(measure(|| drop(black_box(vec![1u8; 100]))).count_total, 1);
}

#[test]
fn messages_of_a_packet_each_allocate_nothing_in_steady_state() {
    assert_eq!(allocations_in_steady_state(1100), 0);
}

#[test]
fn small_messages_that_share_packets_allocate_nothing_in_steady_state() {
    assert_eq!(allocations_in_steady_state(64), 0);
}

#[test]
fn messages_of_many_packets_allocate_nothing_in_steady_state() {
    assert_eq!(allocations_in_steady_state(65_536), 0);
}

#[test]
fn a_message_at_a_time_allocates_nothing() {
    let mut pair = Pair::connected();
    let message = Bytes::from(vec![7; 64]);
    let _other = message.clone();
    pair.ping_pong(&message, 500);
    assert_eq!(measure(|| pair.ping_pong(&message, 500)).count_total, 0);
}

/// Returns the bytes per end of an idle association, averaged over many associations between two hosts with two addresses each. `use_` runs
/// on each association before the idle time.
fn bytes_of_an_idle_association(use_: impl Fn(&mut Pair)) -> u64 {
    let mut pair = Pair::new(2);
    // The first association allocates the endpoints' own memory and the link's buffers.
    let first = pair.connect();
    use_(&mut pair);
    pair.disconnect(first);
    let counted = measure(|| {
        for n in 0..ASSOCIATIONS {
            pair.connect_from(6000 + n);
            use_(&mut pair);
        }
        pair.rest(Duration::from_secs(120));
    });
    assert_eq!((pair.a.established, pair.a.closed), (u64::from(ASSOCIATIONS) + 1, 1));
    let paths = pair.a.id.and_then(|id| pair.a.endpoint.info(id)).map(|info| info.paths.len());
    assert!(paths >= Some(2), "paths: {paths:?}");
    u64::try_from(counted.bytes_current).expect("more taken than given back") / (2 * u64::from(ASSOCIATIONS))
}

#[test]
fn an_association_that_was_never_used_takes_up_to_8_kib() {
    let bytes = bytes_of_an_idle_association(|_| {});
    assert!(bytes <= IDLE_MAX, "{bytes} bytes");
}

#[test]
fn an_idle_association_takes_up_to_8_kib_after_megabytes_of_data() {
    let (small, large) = (Bytes::from(vec![7; 64]), Bytes::from(vec![7; 65_536]));
    let bytes = bytes_of_an_idle_association(|pair| {
        pair.bulk_both_ways(&large, 16);
        pair.bulk(&small, 500);
    });
    assert!(bytes <= IDLE_MAX, "{bytes} bytes");
}
