//! Tests of the message queue and its schedulers.

use super::*;
use proptest::prelude::*;

fn put(q: &mut SendQueue, stream: u16, length: usize) -> MessageId {
    q.push(StreamId(stream), Ppid(7), Bytes::from(vec![stream as u8; length]), false, false)
}

/// Drains the queue in fragments of up to `max` bytes, and returns the stream of each fragment in order.
fn order(q: &mut SendQueue, max: usize) -> Vec<u16> {
    std::iter::from_fn(|| {
        q.check_invariants();
        q.next_fragment(max)
    })
    .map(|t| t.fragment.stream.0)
    .collect()
}

#[test]
//= rfc9260#3.3.1-4 3.3.1-6 3.3.1-7 3.3.1-11 6-8 6.9-2 6.9-13
fn a_long_message_leaves_in_fragments_under_one_number() {
    let mut q = SendQueue::default();
    q.push(StreamId(1), Ppid(7), Bytes::from_static(b"abcdefgh"), false, false);
    q.push(StreamId(1), Ppid(7), Bytes::from_static(b"xy"), false, false);
    let cut: Vec<_> = std::iter::from_fn(|| q.next_fragment(3))
        .map(|t| t.fragment)
        .map(|f| (f.payload.to_vec(), f.ssn().0, f.fsn.0, f.begin, f.end))
        .collect();
    assert_eq!(
        cut,
        [
            (b"abc".to_vec(), 0, 0, true, false),
            (b"def".to_vec(), 0, 1, false, false),
            (b"gh".to_vec(), 0, 2, false, true),
            (b"xy".to_vec(), 1, 0, true, true)
        ]
    );
    q.check_invariants();
}

#[test]
//= rfc9260#6.5-3 6.5-4 6.5-6
fn each_stream_numbers_ordered_and_unordered_messages_apart() {
    let mut q = SendQueue::default();
    for (stream, unordered) in [(0, false), (5, false), (0, true), (0, false), (0, true)] {
        q.push(StreamId(stream), Ppid(0), Bytes::from_static(b"m"), unordered, false);
    }
    let numbers: Vec<_> = std::iter::from_fn(|| q.next_fragment(10))
        .map(|t| (t.fragment.stream.0, t.fragment.mid.0, t.fragment.ssn().0))
        .collect();
    assert_eq!(numbers, [(0, 0, 0), (5, 0, 0), (0, 0, 0), (0, 1, 1), (0, 1, 0)]);
}

#[test]
fn message_identifiers_and_ssns_wrap_to_zero() {
    let mut q = SendQueue::default();
    q.stream_mut(StreamId(0)).next_ordered = Mid(u32::MAX);
    put(&mut q, 0, 1);
    put(&mut q, 0, 1);
    let mids: Vec<_> =
        std::iter::from_fn(|| q.next_fragment(10)).map(|t| (t.fragment.mid.0, t.fragment.ssn().0)).collect();
    assert_eq!(mids, [(u32::MAX, u16::MAX), (0, 0)]);
}

#[test]
fn first_come_is_first_served_across_streams() {
    let mut q = SendQueue::new(Scheduler::FirstCome, true);
    for stream in [3, 1, 3, 2, 1] {
        put(&mut q, stream, 5);
    }
    assert_eq!(order(&mut q, 3), [3, 3, 1, 1, 3, 3, 2, 2, 1, 1]);
}

#[test]
fn round_robin_takes_whole_messages_in_turn_without_interleaving_and_fragments_with_it() {
    for (interleaves, expected) in [(false, [1, 1, 2, 2, 1, 1, 2, 2]), (true, [1, 2, 1, 2, 1, 2, 1, 2])] {
        let mut q = SendQueue::new(Scheduler::RoundRobin, interleaves);
        for stream in [1, 1, 2, 2] {
            put(&mut q, stream, 6);
        }
        assert_eq!(order(&mut q, 3), expected);
    }
}

#[test]
fn round_robin_per_packet_changes_streams_only_between_packets() {
    let mut q = SendQueue::new(Scheduler::RoundRobinPerPacket, false);
    for stream in [1, 1, 1, 2, 2] {
        put(&mut q, stream, 4);
    }
    let mut packets = Vec::new();
    while !q.is_empty() {
        let mut packet = Vec::new();
        while packet.len() < 2 && q.fits_packet() {
            let Some(taken) = q.next_fragment(4) else { break };
            packet.push(taken.fragment.stream.0);
        }
        q.end_packet();
        q.check_invariants();
        packets.push(packet);
    }
    assert_eq!(packets, [vec![1, 1], vec![2, 2], vec![1]]);
}

#[test]
fn under_round_robin_per_packet_a_packet_holds_no_data_of_a_second_stream() {
    let mut q = SendQueue::new(Scheduler::RoundRobinPerPacket, false);
    put(&mut q, 1, 4);
    put(&mut q, 2, 4);
    q.next_fragment(4).unwrap();
    assert!(!q.fits_packet());
    q.end_packet();
    assert!(q.fits_packet());
    assert_eq!(order(&mut q, 4), [2]);
}

#[test]
fn a_message_that_spans_packets_keeps_its_stream_without_interleaving() {
    let mut q = SendQueue::new(Scheduler::RoundRobinPerPacket, false);
    put(&mut q, 1, 9);
    put(&mut q, 2, 3);
    let mut seen = Vec::new();
    while let Some(taken) = q.next_fragment(3) {
        seen.push(taken.fragment.stream.0);
        q.end_packet();
    }
    assert_eq!(seen, [1, 1, 1, 2]);
}

#[test]
fn the_least_priority_number_goes_first_and_interrupts_only_where_messages_interleave() {
    for (interleaves, expected) in [(false, [9, 9, 1, 1]), (true, [9, 1, 1, 9])] {
        let mut q = SendQueue::new(Scheduler::Priority, interleaves);
        q.set_priority(StreamId(9), 5);
        q.set_priority(StreamId(1), 2);
        put(&mut q, 9, 6);
        let mut seen = vec![q.next_fragment(3).unwrap().fragment.stream.0];
        put(&mut q, 1, 6);
        seen.extend(order(&mut q, 3));
        assert_eq!(seen, expected);
    }
}

#[test]
fn streams_of_one_priority_take_turns() {
    let mut q = SendQueue::new(Scheduler::Priority, false);
    for stream in [1, 1, 2, 2] {
        put(&mut q, stream, 1);
    }
    assert_eq!(order(&mut q, 3), [1, 2, 1, 2]);
}

#[test]
fn fair_bandwidth_counts_bytes_and_not_messages() {
    let mut q = SendQueue::new(Scheduler::FairBandwidth, false);
    for _ in 0..10 {
        put(&mut q, 1, 1000);
    }
    for _ in 0..100 {
        put(&mut q, 2, 100);
    }
    let seen = order(&mut q, 1000);
    let ones = seen[..55].iter().filter(|s| **s == 1).count();
    assert!((4..=6).contains(&ones), "stream 1 sent {ones} of its 10 messages in half of the time");
}

#[test]
fn weights_share_the_capacity() {
    let mut q = SendQueue::new(Scheduler::WeightedFair, true);
    q.set_weight(StreamId(1), 3);
    q.set_weight(StreamId(2), 1);
    put(&mut q, 1, 60_000);
    put(&mut q, 2, 60_000);
    let seen: Vec<_> = (0..40).map(|_| q.next_fragment(1000).unwrap().fragment.stream.0).collect();
    let ones = seen.iter().filter(|s| **s == 1).count();
    assert!((29..=31).contains(&ones), "weight 3 got {ones} of 40 fragments");
}

#[test]
fn a_stream_that_was_idle_has_not_saved_up_credit() {
    let mut q = SendQueue::new(Scheduler::FairBandwidth, true);
    put(&mut q, 1, 100_000);
    for _ in 0..50 {
        q.next_fragment(1000).unwrap();
    }
    put(&mut q, 2, 50_000);
    let seen: Vec<_> = (0..20).map(|_| q.next_fragment(1000).unwrap().fragment.stream.0).collect();
    let twos = seen.iter().filter(|s| **s == 2).count();
    assert!((9..=11).contains(&twos), "the new stream got {twos} of 20 fragments");
}

#[test]
fn a_message_that_was_given_up_unsent_has_used_no_number() {
    let mut q = SendQueue::default();
    let first = put(&mut q, 1, 5);
    put(&mut q, 1, 6);
    assert!(q.remove(StreamId(1), first).unwrap().next.is_none());
    assert!(q.remove(StreamId(1), first).is_none());
    let fragment = q.next_fragment(100).unwrap().fragment;
    assert_eq!((fragment.mid, fragment.payload.len()), (Mid(0), 6));
}

#[test]
fn removing_a_begun_message_returns_its_next_fragment_number() {
    let mut q = SendQueue::default();
    let id = put(&mut q, 1, 9);
    put(&mut q, 2, 1);
    q.next_fragment(3).unwrap();
    let next = q.remove(StreamId(1), id).unwrap().next.unwrap();
    assert_eq!((next.fsn, next.begin, next.payload.len()), (Fsn(1), false, 0));
    q.check_invariants();
    assert_eq!(order(&mut q, 3), [2]);
}

#[test]
fn thousands_of_streams_each_get_their_turn() {
    let mut q = SendQueue::new(Scheduler::RoundRobin, true);
    for stream in 0..5000 {
        put(&mut q, stream, 2);
    }
    let seen: Vec<_> = std::iter::from_fn(|| q.next_fragment(1)).map(|t| t.fragment.stream.0).collect();
    let turns: Vec<u16> = (0..5000).chain(0..5000).collect();
    assert_eq!(seen, turns);
}

#[derive(Clone, Debug)]
enum Step {
    Push(u16, usize),
    Take(usize),
    Remove(usize),
    EndPacket,
    Priority(u16, u16),
    Weight(u16, u16),
    Scheduler(Scheduler),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let scheduler = prop::sample::select(vec![
        Scheduler::FirstCome,
        Scheduler::RoundRobin,
        Scheduler::RoundRobinPerPacket,
        Scheduler::Priority,
        Scheduler::FairBandwidth,
        Scheduler::WeightedFair,
    ]);
    let step = prop_oneof![
        4 => (0u16..6, 1usize..40).prop_map(|(s, l)| Step::Push(s, l)),
        6 => (1usize..20).prop_map(Step::Take),
        1 => (0usize..50).prop_map(Step::Remove),
        1 => Just(Step::EndPacket),
        1 => (0u16..6, 0u16..4).prop_map(|(s, v)| Step::Priority(s, v)),
        1 => (0u16..6, 0u16..4).prop_map(|(s, v)| Step::Weight(s, v)),
        1 => scheduler.prop_map(Step::Scheduler),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    //= rfc8260#2.2.2-5
    fn under_any_steps_messages_stay_whole_in_order_and_counted(steps in steps(), interleaves: bool) {
        let mut q = SendQueue::new(Scheduler::FirstCome, interleaves);
        let (mut ids, mut open) = (Vec::new(), None);
        let mut expected = std::collections::BTreeMap::<u16, Mid>::new();
        for step in steps {
            match step {
                Step::Push(stream, length) => ids.push((StreamId(stream), put(&mut q, stream, length))),
                Step::Take(max) => if let Some(Taken { fragment, .. }) = q.next_fragment(max) {
                    let stream = fragment.stream.0;
                    prop_assert!(interleaves || open.is_none_or(|o| o == stream), "a message was interrupted");
                    open = (!fragment.end).then_some(stream);
                    let next = expected.entry(stream).or_default();
                    prop_assert_eq!(fragment.mid, *next);
                    if fragment.end {
                        *next = next.next();
                    }
                }
                Step::Remove(n) if !ids.is_empty() => {
                    let (stream, id) = ids[n % ids.len()];
                    if let Some(Rest { next: Some(fragment) }) = q.remove(stream, id) {
                        let next = expected.entry(stream.0).or_default();
                        prop_assert_eq!(fragment.mid, *next);
                        *next = next.next();
                        if open == Some(stream.0) {
                            open = None;
                        }
                    }
                }
                Step::Remove(_) => {}
                Step::EndPacket => q.end_packet(),
                Step::Priority(stream, v) => q.set_priority(StreamId(stream), v),
                Step::Weight(stream, v) => q.set_weight(StreamId(stream), v),
                Step::Scheduler(s) => q.set_scheduler(s),
            }
            q.check_invariants();
        }
    }
}
