//! Tests of explicit congestion notification: negotiation, marks, echoes, and paths that block ECN.

use std::time::Duration;

use base::Ecn;
use sctp::{AssociationConfig, CongestionAlgorithm, EndpointConfig, Extension, Extensions, SendBufferConfig};
use sim::{Conversation, Fate, InTheClear, LinkConfig, chunk_names, packet};
use wire::{Chunk, Cwr, Ecne, Tsn};

use crate::support::{Two, a_route, b_route, describe, lose, messages, seconds, sends, two_with};

const MS: fn(u64) -> Duration = Duration::from_millis;
const CUBIC: CongestionAlgorithm = CongestionAlgorithm::Cubic;

/// Returns a link of 20 Mbit/s with a round trip of 40 ms. Its queue holds three bandwidth-delay products. The queue marks packets while it
/// holds more than `mark` bytes.
fn marking(mark: Option<usize>) -> LinkConfig {
    LinkConfig {
        rate: 20_000_000,
        delay: MS(20),
        queue_bytes: 300_000,
        mark_above: mark,
        ..LinkConfig::default()
    }
}

/// Creates an association over which `a` sends without end. Both ends have these settings.
fn bulk(link: LinkConfig, config: AssociationConfig) -> Two {
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut t = two_with(1, link, endpoint);
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.connect_with(config, Conversation { bulk: 1 << 40, ..Conversation::default() });
    t.run_to_established();
    t
}

fn with(congestion: CongestionAlgorithm) -> AssociationConfig {
    AssociationConfig {
        congestion,
        send_buffer: 8 << 20,
        receive_buffer: 8 << 20,
        ..AssociationConfig::default()
    }
}

fn without() -> AssociationConfig {
    AssociationConfig { extensions: Extensions::NONE, ..with(CUBIC) }
}

/// Returns the ECN codepoints of the recorded packets that contain a chunk with this name.
fn codepoints(t: &Two, name: &str) -> Vec<Ecn> {
    let with_chunk = t.world.records.iter().filter(|r| chunk_names(&r.packet).contains(name));
    with_chunk.map(|r| r.ecn).collect()
}

#[test]
fn ecn_is_negotiated_by_default_and_unused_if_one_end_does_not_offer_it() {
    let t = bulk(marking(None), with(CUBIC));
    assert!([t.a, t.b].iter().all(|&h| t.info(h).extensions.has(Extension::Ecn)));
    let endpoint = EndpointConfig { association: without(), ..EndpointConfig::default() };
    let mut t = two_with(1, marking(None), endpoint);
    t.world.recording = true;
    t.connect(sends(messages(3, 1000, 1)));
    t.world.run_for(seconds(1));
    assert!([t.a, t.b].iter().all(|&h| !t.info(h).extensions.has(Extension::Ecn)));
    assert!(codepoints(&t, "").iter().all(|&ecn| ecn == Ecn::NotEct));
}

#[test]
fn new_data_is_ecn_capable_and_retransmissions_and_control_packets_are_not() {
    let _clear = InTheClear::begin();
    let mut t = two_with(1, marking(None), EndpointConfig::default());
    t.world.recording = true;
    lose(&mut t.world, "DATA", 1);
    t.connect(sends(messages(30, 1400, 1)));
    t.world.run_for(seconds(5));
    let info = t.info(t.a);
    assert_eq!(info.counters.data_retransmitted, 1);
    let data = codepoints(&t, "DATA");
    // The retransmission is not ECN-capable, and neither is new data in the same packet.
    let plain = data.iter().filter(|&&e| e == Ecn::NotEct).count();
    assert!((1..=3).contains(&plain) && data.len() == 31, "{data:?}");
    assert!(data.iter().all(|&e| e == Ecn::NotEct || e == Ecn::Ect0));
    let without_data = t.world.records.iter().filter(|r| !chunk_names(&r.packet).contains("DATA"));
    for record in without_data {
        assert_eq!(record.ecn, Ecn::NotEct, "{}", chunk_names(&record.packet));
    }
}

#[test]
fn marks_in_place_of_drops_keep_the_link_full_and_lose_nothing() {
    for congestion in
        [CongestionAlgorithm::Cubic, CongestionAlgorithm::Rfc9260, CongestionAlgorithm::LossTolerant]
    {
        let mut t = bulk(marking(Some(60_000)), with(congestion));
        t.world.run_for(seconds(20));
        let (info, link) = (t.info(t.a), t.world.link(t.links[0]).counters);
        assert!(link.marked > 0 && info.counters.ecn_reductions > 0, "{congestion:?}: {link:?}");
        assert_eq!((link.lost(), info.counters.data_retransmitted), (0, 0), "{congestion:?}");
        let mbit = t.talk(t.b).received_bytes * 8 / 20_000_000;
        assert!(mbit >= 17, "{congestion:?}: {mbit} Mbit/s\n{}", describe(&t.world));
    }
}

#[test]
fn the_window_is_reduced_once_a_round_trip_however_many_packets_are_marked() {
    // Every packet is marked, and a round trip takes at least 40 ms.
    let mut t = bulk(marking(Some(0)), with(CUBIC));
    t.world.run_for(seconds(4));
    let reductions = t.info(t.a).counters.ecn_reductions;
    assert!((20..=100).contains(&reductions), "{reductions}");
    assert!(t.info(t.b).counters.ecn_marked_received > 2 * reductions);
    assert!(t.info(t.a).paths[0].cwnd >= 1452);
}

#[test]
fn a_mark_is_echoed_until_the_sender_has_said_that_it_reacted() {
    let mut t = bulk(marking(None), with(CUBIC));
    t.world.run_for(seconds(1));
    t.world.link_mut(t.links[0]).config.mark_above = Some(0);
    t.world.run_for(MS(45));
    t.world.link_mut(t.links[0]).config.mark_above = None;
    t.world.set_filter(|r| if chunk_names(&r.packet).contains("CWR") { Fate::Drop } else { Fate::Pass });
    t.world.run_for(MS(500));
    t.world.recording = true;
    t.world.run_for(MS(200));
    assert!(codepoints(&t, "ECNE").len() > 3, "echoed as long as no CWR comes");
    let reductions = t.info(t.a).counters.ecn_reductions;
    assert!(reductions <= 3, "old marks are no news: {reductions}");
    t.world.clear_filter();
    t.world.run_for(MS(200));
    t.world.records.clear();
    t.world.run_for(MS(200));
    assert_eq!(codepoints(&t, "ECNE").len(), 0);
}

/// Runs two seconds of a bulk transfer over a marking link. Returns the number of packets with CWR, and the number of packets with CWR but
/// without DATA.
fn answers(advertisement: Option<SendBufferConfig>) -> (usize, usize) {
    let mut t = bulk(marking(Some(30_000)), AssociationConfig { advertisement, ..with(CUBIC) });
    t.world.run_for(seconds(2));
    t.world.recording = true;
    t.world.run_for(seconds(2));
    let names = t.world.records.iter().map(|r| chunk_names(&r.packet));
    let answers: Vec<_> = names.filter(|names| names.contains("CWR")).collect();
    assert!(t.info(t.a).counters.ecn_reductions > 2, "{}", describe(&t.world));
    (answers.len(), answers.iter().filter(|names| !names.contains("DATA")).count())
}

#[test]
fn cwr_is_bundled_before_new_data_and_never_sent_alone() {
    for advertisement in [None, Some(SendBufferConfig::seed())] {
        let (answers, alone) = answers(advertisement);
        assert!(answers > 2 && alone == 0, "{alone} of {answers} were sent alone");
    }
}

#[test]
fn an_echo_is_answered_again_only_when_the_answer_can_have_arrived() {
    let mut t = bulk(marking(None), with(CUBIC));
    t.world.run_for(seconds(1));
    t.world.link_mut(t.links[0]).config.mark_above = Some(0);
    t.world.run_for(MS(5));
    t.world.link_mut(t.links[0]).config.mark_above = None;
    t.world.recording = true;
    // The first CWR is lost. The second one leaves two round trips later, after the DATA of the lost packet was retransmitted and
    // acknowledged.
    lose(&mut t.world, "CWR", 1);
    t.world.run_for(seconds(2));
    let echoes = codepoints(&t, "ECNE").len();
    let sent = codepoints(&t, "CWR").len();
    assert!(echoes > 20 && (2..=8).contains(&sent), "{sent} answers to {echoes} echoes");
}

#[test]
fn an_echo_of_what_was_never_sent_changes_nothing() {
    let mut t = bulk(marking(None), with(CUBIC));
    t.world.run_for(seconds(1));
    let info = t.info(t.a);
    for ahead in [1_000_000, 1 << 31, u32::MAX] {
        let ecne = Chunk::Ecne(Ecne { lowest_tsn: Tsn(ahead) });
        let forged = packet(7, 40_000, info.local_tag, &[ecne]);
        t.world.inject(t.a, a_route(), &forged);
    }
    assert_eq!(t.info(t.a).counters.ecn_reductions, 0);
}

#[test]
fn without_agreement_ecne_and_cwr_mean_nothing() {
    let mut t = bulk(marking(None), without());
    t.world.run_for(seconds(1));
    let (cwnd, tag) = (t.info(t.a).paths[0].cwnd, t.info(t.a).local_tag);
    let chunks = [Chunk::Ecne(Ecne { lowest_tsn: Tsn(1) }), Chunk::Cwr(Cwr { lowest_tsn: Tsn(1) })];
    t.world.inject(t.a, a_route(), &packet(7, 40_000, tag, &chunks));
    assert_eq!((t.info(t.a).paths[0].cwnd, t.info(t.a).counters.ecn_echoes_received), (cwnd, 0));
    let tag = t.info(t.b).local_tag;
    t.world.inject(t.b, b_route(), &packet(40_000, 7, tag, &chunks));
}

#[test]
fn ecn_is_disabled_after_the_first_timeout_on_a_path_that_drops_ect_packets() {
    let _clear = InTheClear::begin();
    let mut t = bulk(LinkConfig { drops_ect: true, ..marking(None) }, with(CUBIC));
    t.world.run_for(seconds(5));
    assert!(t.talk(t.b).received_bytes > 1_000_000, "{}", describe(&t.world));
    assert_eq!(t.info(t.a).counters.timeouts, 1);
}

#[test]
fn a_path_that_clears_the_ecn_bits_works_as_without_ecn() {
    let mut t = bulk(LinkConfig { bleaches: true, ..marking(Some(10_000)) }, with(CUBIC));
    t.world.run_for(seconds(10));
    assert_eq!(t.info(t.b).counters.ecn_marked_received, 0);
    assert!(t.talk(t.b).received_bytes * 8 / 10_000_000 >= 17);
}
