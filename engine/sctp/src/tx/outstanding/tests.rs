//! Tests of the fate of chunks in flight.

use super::*;
use bytes::Bytes;
use wire::{Fsn, Mid, Ppid, StreamId};

const P: PathIndex = PathIndex::new(0);

fn sent(n: u64) -> Outstanding {
    let mut o = Outstanding::default();
    for i in 0..n {
        let fragment = Fragment {
            payload: Bytes::from_static(&[0; 100]),
            stream: StreamId(0),
            mid: Mid(0),
            fsn: Fsn(0),
            ppid: Ppid(0),
            unordered: false,
            begin: true,
            end: true,
        };
        assert_eq!(o.push(fragment, P, Time::from_millis(i)), Seq(i));
    }
    o
}

fn sack(o: &mut Outstanding, first: u64, gaps: &[(u64, u64)]) -> PathAcks {
    let gaps: Vec<_> = gaps.iter().map(|g| (Seq(g.0), Seq(g.1))).collect();
    let acks = o.on_sack(Seq(first), &gaps, Time::from_millis(1000)).unwrap();
    o.check_invariants();
    acks.first().copied().unwrap_or_default()
}

#[test]
//= rfc9260#6.7-3 6.3.1-1
fn a_cumulative_sack_frees_what_it_covers_and_times_the_newest() {
    let mut o = sent(5);
    let acks = sack(&mut o, 3, &[]);
    assert_eq!((acks.bytes, acks.earliest), (300, true));
    assert_eq!(acks.newest, Some((Seq(2), Duration::from_millis(998))));
    assert_eq!((o.first(), o.bytes(), o.flight(P)), (Seq(3), 200, 200));
}

/// Applies a SACK at `now` milliseconds. Chunks were sent 1 ms apart.
fn sack_at(o: &mut Outstanding, now: u64, first: u64, gaps: &[(u64, u64)]) -> PathAcks {
    let gaps: Vec<_> = gaps.iter().map(|g| (Seq(g.0), Seq(g.1))).collect();
    let acks = o.on_sack(Seq(first), &gaps, Time::from_millis(now)).unwrap();
    o.check_invariants();
    acks[0]
}

#[test]
fn three_chunks_acknowledged_above_a_hole_make_it_lost_at_once_and_two_after_a_while() {
    let mut o = sent(6);
    assert_eq!(sack_at(&mut o, 101, 0, &[(1, 1)]).lost.chunks, 0);
    let acks = sack_at(&mut o, 102, 0, &[(1, 2)]);
    // The deadline is the sending time 0, plus the round trip of 100 ms, plus a quarter of this round trip.
    assert_eq!((acks.lost.chunks, acks.lost.next_at), (0, Some(Time::from_millis(125))));
    assert_eq!(o.find_lost(P, Time::from_millis(124)).chunks, 0);
    let mut again = sent(6);
    sack_at(&mut again, 102, 0, &[(1, 2)]);
    assert_eq!(sack_at(&mut again, 103, 0, &[(1, 3)]).lost.chunks, 1);
    assert_eq!(o.find_lost(P, Time::from_millis(125)).chunks, 1);
    assert_eq!(o.first_lost().unwrap().0, Seq(0));
    o.check_invariants();
}

#[test]
fn a_retransmission_is_lost_again_when_what_was_sent_after_it_arrives_and_not_before() {
    let mut o = sent(6);
    assert_eq!(sack_at(&mut o, 103, 0, &[(1, 3)]).lost.chunks, 1);
    o.on_retransmit(Seq(0), P, Time::from_millis(103));
    assert_eq!(sack_at(&mut o, 105, 0, &[(1, 5)]).lost.chunks, 0);
    let fragment = o.get(Seq(5)).unwrap().fragment.clone();
    for n in 6..9 {
        o.push(fragment.clone(), P, Time::from_millis(104 + n - 6));
    }
    assert_eq!(sack_at(&mut o, 206, 0, &[(1, 8)]).lost.chunks, 1);
}

#[test]
fn a_chunk_that_comes_late_makes_its_retransmission_spurious() {
    let mut o = sent(6);
    sack_at(&mut o, 103, 0, &[(1, 3)]);
    o.on_retransmit(Seq(0), P, Time::from_millis(103));
    assert_eq!(sack_at(&mut o, 108, 5, &[]).spurious, 1);
    // The duplicate that the peer reports later concerns the same retransmission, so it is not counted again.
    o.on_duplicates([Seq(0)].into_iter());
    assert_eq!(sack_at(&mut o, 203, 6, &[]).spurious, 0);
}

#[test]
fn a_duplicate_report_counts_as_spurious_only_for_a_retransmitted_chunk() {
    let mut o = sent(6);
    sack_at(&mut o, 103, 0, &[(1, 3)]);
    o.on_retransmit(Seq(0), P, Time::from_millis(103));
    assert_eq!(sack_at(&mut o, 190, 6, &[]).spurious, 0);
    o.on_duplicates([Seq(0), Seq(2)].into_iter());
    assert_eq!(sack_at(&mut o, 203, 6, &[]).spurious, 1);
}

#[test]
fn a_timeout_is_spurious_if_what_was_not_sent_again_is_acknowledged() {
    let mut o = sent(6);
    sack_at(&mut o, 100, 1, &[]);
    o.on_t3(P, Time::from_millis(1100));
    assert_eq!(o.give_up(P), 5);
    o.on_retransmit(Seq(1), P, Time::from_millis(1100));
    let acks = sack_at(&mut o, 1160, 3, &[]);
    assert!(acks.timeout_was_spurious);
    assert!(!o.has_lost());
    assert_eq!(o.flight(P), 300);
}

#[test]
fn a_chunk_that_left_twice_in_one_instant_is_in_flight_once_after_a_spurious_timeout() {
    let mut o = sent(6);
    sack_at(&mut o, 100, 1, &[]);
    o.on_probe(Seq(4), Time::from_millis(110));
    o.on_probe(Seq(5), Time::from_millis(110));
    o.on_probe(Seq(4), Time::from_millis(110));
    o.on_t3(P, Time::from_millis(1100));
    o.give_up(P);
    o.on_retransmit(Seq(1), P, Time::from_millis(1100));
    assert!(sack_at(&mut o, 1160, 3, &[]).timeout_was_spurious);
    assert_eq!(o.flight(P), 300);
}

#[test]
fn a_timeout_is_not_spurious_if_the_answer_may_be_to_what_was_sent_since() {
    let mut o = sent(6);
    sack_at(&mut o, 100, 1, &[]);
    o.on_t3(P, Time::from_millis(1100));
    o.give_up(P);
    o.on_retransmit(Seq(1), P, Time::from_millis(1100));
    // An earlier SACK of chunks 1 to 3 was lost. Chunks 4 and 5 had not arrived.
    assert!(!sack_at(&mut o, 1200, 4, &[]).timeout_was_spurious);
    assert_eq!(o.first_lost().unwrap().0, Seq(4));
}

#[test]
fn a_timeout_is_not_spurious_if_only_what_was_sent_again_is_acknowledged() {
    let mut o = sent(6);
    sack_at(&mut o, 100, 1, &[]);
    o.on_t3(P, Time::from_millis(1100));
    o.give_up(P);
    o.on_retransmit(Seq(1), P, Time::from_millis(1100));
    let acks = sack_at(&mut o, 1200, 2, &[]);
    assert!(!acks.timeout_was_spurious);
    assert!(o.has_lost());
}

#[test]
fn only_a_tail_loss_probe_that_repaired_a_loss_is_reported_as_such() {
    let probed = || {
        let mut o = sent(6);
        sack_at(&mut o, 104, 5, &[]);
        assert_eq!(o.last_sent(P).unwrap().0, Seq(5));
        o.on_probe(Seq(5), Time::from_millis(300));
        o.check_invariants();
        o
    };
    assert!(sack_at(&mut probed(), 400, 6, &[]).probe_mended);
    assert!(!sack_at(&mut probed(), 310, 6, &[]).probe_mended);
    let mut o = probed();
    o.on_duplicates([Seq(5)].into_iter());
    assert!(!sack_at(&mut o, 400, 6, &[]).probe_mended);
}

#[test]
//= rfc9260#6.3.1-4
fn a_retransmitted_chunk_gives_no_round_trip_time() {
    let mut o = sent(1);
    assert_eq!(o.give_up(P), 1);
    o.on_retransmit(Seq(0), P, Time::from_millis(500));
    assert_eq!(sack(&mut o, 1, &[]).newest, None);
}

#[test]
fn chunks_that_a_newer_sack_takes_back_are_in_flight_again() {
    let mut o = sent(8);
    sack_at(&mut o, 101, 1, &[(3, 4)]);
    assert_eq!(o.flight(P), 500);
    sack_at(&mut o, 102, 2, &[(4, 4)]);
    assert_eq!(o.flight(P), 500, "chunk 1 was acknowledged, chunk 3 was taken back");
    sack_at(&mut o, 107, 8, &[]);
    assert!(o.is_empty() && o.flight(P) == 0 && o.bytes() == 0);
}

#[test]
fn gap_acknowledged_data_stays_so_when_only_the_cumulative_tsn_is_known() {
    let mut o = sent(6);
    sack_at(&mut o, 101, 1, &[(3, 4)]);
    let gaps = o.gaps_from(Seq(2));
    assert_eq!(gaps, [(Seq(3), Seq(4))]);
    o.on_sack(Seq(2), &gaps, Time::from_millis(102)).unwrap();
    o.check_invariants();
    assert_eq!(o.flight(P), 200);
    assert_eq!(o.gaps_from(Seq(4)), [(Seq(4), Seq(4))]);
}

#[test]
fn a_sack_that_comes_late_takes_nothing_back() {
    let mut o = sent(8);
    sack_at(&mut o, 104, 1, &[(3, 3), (6, 6)]);
    sack_at(&mut o, 105, 1, &[(3, 3)]);
    assert_eq!(o.gaps_from(Seq(1)), [(Seq(3), Seq(3)), (Seq(6), Seq(6))]);
    assert_eq!(o.flight(P), 500);
}

#[test]
fn a_sack_beyond_what_was_sent_changes_nothing() {
    let mut o = sent(3);
    assert_eq!(o.on_sack(Seq(4), &[], Time::ZERO).err(), Some(SackError::BeyondSent));
    assert_eq!(o.on_sack(Seq(1), &[(Seq(2), Seq(3))], Time::ZERO).err(), Some(SackError::BeyondSent));
    assert_eq!(o.flight(P), 300);
}

#[test]
fn an_older_sack_changes_nothing() {
    let mut o = sent(5);
    sack(&mut o, 3, &[]);
    assert_eq!(sack(&mut o, 1, &[(3, 4)]), PathAcks::default());
    assert_eq!(o.flight(P), 200);
}

#[test]
//= rfc3758#3.5-2 3.5-3
fn an_abandoned_chunk_is_neither_in_flight_nor_lost_nor_credited() {
    let mut o = sent(3);
    o.mark_lost(Seq(1));
    o.abandon(Seq(0));
    o.abandon(Seq(1));
    o.check_invariants();
    assert_eq!((o.flight(P), o.bytes(), o.has_lost()), (100, 100, false));
    assert_eq!(sack(&mut o, 3, &[]).bytes, 100);
}

#[test]
fn an_abandoned_chunk_once_acknowledged_cannot_be_reneged() {
    let mut o = sent(4);
    sack(&mut o, 0, &[(2, 3)]);
    o.abandon(Seq(2));
    sack(&mut o, 0, &[(3, 3)]);
    assert!(o.is_abandoned(Seq(2)));
    assert_eq!(o.flight(P), 200);
}

//= rfc9260#6.1-22 6.1-23
#[test]
fn no_more_chunks_are_out_than_there_are_ssns() {
    let mut o = sent(MAX_CHUNKS as u64 - 1);
    assert!(!o.is_full());
    let again = o.fragments().next().unwrap().clone();
    o.push(again, P, Time::from_millis(100_000));
    assert!(o.is_full());
    let acks = o.on_sack(Seq(1), &[], Time::from_millis(101_000)).unwrap();
    assert!(acks[0].bytes > 0 && !o.is_full());
}
