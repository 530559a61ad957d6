//! Tests of the send-buffer advertisement: the place of its chunk, the contents, and the absence of other effects.

use std::time::Duration;

use bytes::Bytes;
use sctp::{
    AssociationConfig, AuthConfig, ChunkSet, ChunkType, CloseReason, EndpointConfig, Event, Extension,
    Extensions, SendBufferCadence, SendBufferConfig, SendBufferForm, StateName,
};
use sim::{Close, Conversation, InTheClear, LinkConfig, Loss, Reading, Record, chunk_names};
use wire::{ChecksumMode, Chunk, Heartbeat, Packet, Parameter, SendBuffer};

use crate::states::{STATES, Subject};
use crate::support::{Two, drop_all, messages, seconds, sends, sends_then_closes, two_with};

const NAME: &str = "type 0x96";

fn config(advertisement: SendBufferConfig) -> AssociationConfig {
    AssociationConfig { advertisement: Some(advertisement), ..AssociationConfig::default() }
}

fn every_packet(form: SendBufferForm) -> SendBufferConfig {
    SendBufferConfig { form, cadence: SendBufferCadence::EveryPacket, ..SendBufferConfig::default() }
}

fn world(a: &AssociationConfig, b: &AssociationConfig, link: LinkConfig, talk: Conversation) -> Two {
    let mut t = two_with(5, link, EndpointConfig { association: b.clone(), ..EndpointConfig::default() });
    t.world.recording = true;
    t.connect_with(a.clone(), talk);
    t
}

fn slow() -> LinkConfig {
    LinkConfig { rate: 10_000_000, ..LinkConfig::default() }
}

/// Returns, for each packet with DATA that a host sent, its advertisement or `None`.
fn said(t: &Two, sender: &str) -> Vec<Option<SendBuffer>> {
    let own = |r: &&Record| r.route.local == sender.parse::<std::net::IpAddr>().unwrap();
    let packets = t.world.records.iter().filter(own).filter(|r| chunk_names(&r.packet).contains("DATA"));
    packets
        .map(|r| {
            let packet = Packet::parse(&r.packet, ChecksumMode::Verify).unwrap();
            let first = packet.raw_chunks().next().unwrap().unwrap();
            (first.chunk_type == SendBuffer::TYPE).then(|| SendBuffer::parse(&first).unwrap())
        })
        .collect()
}

#[test]
fn by_default_nothing_is_advertised() {
    let plain = AssociationConfig::default();
    let mut t = world(&plain, &plain, slow(), sends_then_closes(messages(50, 3000, 2)));
    t.run_to_end(seconds(60));
    assert!(t.world.records.iter().all(|r| !chunk_names(&r.packet).contains(NAME)));
}

#[test]
fn the_chunk_is_first_in_packets_with_data_and_in_no_others() {
    let _clear = InTheClear::begin();
    for form in [SendBufferForm::Percent, SendBufferForm::Backlog, SendBufferForm::SeedTenths] {
        let settings = config(every_packet(form));
        let mut t = world(&settings, &settings, slow(), sends_then_closes(messages(100, 3000, 2)));
        t.run_to_end(seconds(60));
        for record in &t.world.records {
            let names = chunk_names(&record.packet);
            assert_eq!(names.starts_with(NAME), names.contains("DATA"), "{names}");
            assert!(names.matches(NAME).count() <= 1 && !names.contains("COOKIE ACK type"), "{names}");
            assert!(record.packet.len() + 20 <= 1500);
        }
        let full = t.world.records.iter().filter(|r| r.packet.len() + 20 == 1500).count();
        assert!(full > 100, "the chunk takes what it needs and no more: {full} full packets");
    }
}

#[test]
fn the_occupancy_falls_from_all_to_nothing_as_the_buffer_empties() {
    let _clear = InTheClear::begin();
    let settings = AssociationConfig {
        send_buffer: 100_000,
        buffer_start: 100_000,
        ..config(every_packet(SendBufferForm::Backlog))
    };
    let mut t = world(&settings, &settings, slow(), sends(messages(50, 2000, 1)));
    t.world.run_for(seconds(5));
    let said: Vec<_> = said(&t, "10.0.1.1").into_iter().map(Option::unwrap).collect();
    let first = said[0].backlog.unwrap();
    assert!((90_000..100_000).contains(&first) && said[0].occupancy == 100, "{:?}", said[0]);
    assert!(said.windows(2).all(|w| w[1].backlog <= w[0].backlog));
    let percent = |s: &SendBuffer| s.backlog.unwrap().div_ceil(1000).next_multiple_of(10);
    assert!(said.iter().all(|s| u32::from(s.occupancy) == percent(s)));
    let last = said.last().unwrap();
    assert_eq!((last.occupancy, last.backlog), (0, Some(0)));
}

#[test]
fn in_economical_mode_every_eighth_packet_of_a_steady_flow_carries_the_chunk() {
    let _clear = InTheClear::begin();
    let settings = config(SendBufferConfig::default());
    let talk = Conversation { bulk: 3_000_000, ..Conversation::default() };
    let mut t = world(&settings, &settings, slow(), talk);
    t.world.run_for(seconds(2));
    let said = said(&t, "10.0.1.1");
    let with = said.iter().flatten().count();
    assert!(said[0].is_some() && said.len() > 500);
    // Sometimes a packet has no room for the chunk.
    assert!((said.len() / 9..said.len() / 7).contains(&with), "{with} of {}", said.len());
    assert_eq!(t.info(t.a).counters.advertisements_sent, with as u64);
}

#[test]
fn on_a_timer_one_advertisement_is_sent_every_five_seconds() {
    let settings = config(SendBufferConfig::backlog());
    let talk = Conversation { bulk: 30_000_000, ..Conversation::default() };
    let mut t = world(&settings, &settings, slow(), talk);
    t.world.checks = false;
    t.world.run_for(seconds(17));
    let count = said(&t, "10.0.1.1").iter().flatten().count();
    assert_eq!(count + alone(&t, "10.0.1.1").len(), 4);
    assert_eq!(t.info(t.a).counters.advertisements_sent, 4);
}

/// Returns the advertisements that a host sent in packets without any other chunk.
fn alone(t: &Two, sender: &str) -> Vec<SendBuffer> {
    let own = |r: &&Record| r.route.local == sender.parse::<std::net::IpAddr>().unwrap();
    let packets = t.world.records.iter().filter(own).filter(|r| chunk_names(&r.packet) == NAME);
    packets
        .map(|r| {
            let packet = Packet::parse(&r.packet, ChecksumMode::Verify).unwrap();
            SendBuffer::parse(&packet.raw_chunks().next().unwrap().unwrap()).unwrap()
        })
        .collect()
}

fn on_a_timer(ms: u64) -> AssociationConfig {
    config(SendBufferConfig::backlog_every(Duration::from_millis(ms)))
}

#[test]
fn on_a_timer_an_idle_host_advertises_an_empty_buffer_and_other_chunks_are_unchanged() {
    let _clear = InTheClear::begin();
    let quiet = |settings: &AssociationConfig| {
        let mut t = world(settings, settings, slow(), Conversation::default());
        t.world.run_for(Duration::from_millis(60_400));
        t
    };
    let (with, without) = (quiet(&on_a_timer(500)), quiet(&AssociationConfig::default()));
    let told = alone(&with, "10.0.1.1");
    assert_eq!(told.len(), 120, "one each half second");
    assert!(told.iter().all(|s| (s.occupancy, s.backlog) == (0, Some(0))));
    let others = |t: &Two| -> Vec<String> {
        t.world.records.iter().map(|r| chunk_names(&r.packet)).filter(|names| names != NAME).collect()
    };
    assert_eq!(others(&with), others(&without), "it takes no heartbeat's place");
    assert!(others(&with).iter().any(|names| names == "HEARTBEAT"));
    let news = with.events(with.b).into_iter().filter(|e| matches!(e, Event::PeerSendBuffer(_))).count();
    assert_eq!(news, 1);
}

#[test]
fn on_a_timer_a_host_with_a_closed_peer_window_advertises_its_backlog() {
    let _clear = InTheClear::begin();
    let settings = AssociationConfig { receive_buffer: 20_000, buffer_start: 20_000, ..on_a_timer(1000) };
    let mut t = world(&settings, &settings, slow(), sends(messages(40, 2000, 1)));
    t.world.host_mut(t.b).app.template.reading = Reading::Never;
    t.world.run_for(seconds(30));
    let told = alone(&t, "10.0.1.1");
    assert!((15..=30).contains(&told.len()), "{}", told.len());
    let waiting = told.last().and_then(|s| s.backlog);
    assert!(waiting > Some(20_000), "{waiting:?}");
}

#[test]
fn timed_advertisements_neither_keep_an_association_alive_nor_use_a_dead_path() {
    let _clear = InTheClear::begin();
    let dead = |settings: &AssociationConfig| {
        let mut t = world(settings, settings, slow(), Conversation::default());
        t.run_to_established();
        t.world.records.clear();
        drop_all(&mut t.world, |_, _| true);
        let ended = t.run_to_end(seconds(1200));
        assert_eq!(ended, (CloseReason::LostContact, CloseReason::LostContact));
        t
    };
    let (with, without) = (dead(&on_a_timer(500)), dead(&AssociationConfig::default()));
    assert_eq!(with.world.now(), without.world.now());
    // The path counts as active until the next HEARTBEAT has remained unanswered.
    let heard_by_nobody = alone(&with, "10.0.1.1").len();
    let seconds_in_all = with.world.now().since(base::Time::ZERO).as_secs() as usize;
    assert!(heard_by_nobody > 10 && heard_by_nobody < seconds_in_all, "{heard_by_nobody} {seconds_in_all}");
}

#[test]
fn on_a_timer_the_chunk_goes_alone_in_the_states_that_send_data_and_in_no_others() {
    let _clear = InTheClear::begin();
    for state in STATES {
        let mut subject = Subject::in_state_with(state, &on_a_timer(700));
        let before = subject.world().world.records.len();
        subject.world().world.run_for(seconds(2));
        let host =
            if matches!(state, StateName::Closed | StateName::Accepting) { "10.0.1.2" } else { "10.0.1.1" };
        let t = subject.world();
        t.world.records.drain(..before);
        let expected = matches!(
            state,
            StateName::Established | StateName::ShutdownPending | StateName::ShutdownReceived
        );
        assert_eq!(!alone(t, host).is_empty(), expected, "{state:?}");
    }
}

#[test]
fn a_receiver_reports_only_new_advertisements_and_an_unaware_receiver_ignores_them() {
    let knowing = config(every_packet(SendBufferForm::Percent));
    for b in [knowing.clone(), AssociationConfig::default()] {
        let is_knowing = b.advertisement.is_some();
        let mut t = world(&knowing, &b, slow(), sends(messages(100, 3000, 2)));
        t.world.run_for(seconds(5));
        assert_eq!(t.talk(t.b).received.len(), 100);
        let news: Vec<_> =
            t.events(t.b).into_iter().filter(|e| matches!(e, Event::PeerSendBuffer(_))).collect();
        let last = t.info(t.b).peer_send_buffer.map(|last| (last.occupancy, last.backlog));
        assert_eq!(last, is_knowing.then_some((0, None)));
        assert_eq!(t.info(t.b).counters.advertisements_received > 100, is_knowing);
        assert_eq!(!news.is_empty(), is_knowing);
        assert!(news.windows(2).all(|w| w[0] != w[1]), "only what is new: {news:?}");
        assert!(!t.world.records.iter().any(|r| chunk_names(&r.packet).contains("ERROR")));
    }
}

fn signing(chunks: ChunkSet, advertisement: Option<SendBufferConfig>) -> AssociationConfig {
    AssociationConfig {
        extensions: Extensions::NONE.with(Extension::Auth),
        auth: AuthConfig {
            keys: [(1, Bytes::from_static(b"key"))].into(),
            active_key: 1,
            chunks,
            ..AuthConfig::default()
        },
        advertisement,
        ..AssociationConfig::default()
    }
}

#[test]
fn the_chunk_precedes_auth_and_full_packets_have_room_for_both() {
    let _clear = InTheClear::begin();
    let advertisement = Some(every_packet(SendBufferForm::Percent));
    let settings = signing([ChunkType::DATA].into_iter().collect(), advertisement);
    let mut t = world(&settings, &settings, slow(), sends_then_closes(messages(50, 3000, 2)));
    t.run_to_end(seconds(60));
    let of_a = t.world.records.iter().filter(|r| r.route.local.to_string() == "10.0.1.1");
    let with_data: Vec<_> = of_a.filter(|r| chunk_names(&r.packet).contains("DATA")).collect();
    assert!(with_data.len() > 100);
    assert!(with_data.iter().all(|r| chunk_names(&r.packet).starts_with("type 0x96 AUTH DATA")));
    assert!(with_data.iter().any(|r| r.packet.len() == 1480));
    assert_eq!(t.talk(t.b).received.len(), 50);
}

#[test]
fn a_peer_that_requires_signed_advertisements_gets_none_and_no_advertiser_requires_them() {
    let _clear = InTheClear::begin();
    let listed: ChunkSet = [ChunkType::DATA, SendBuffer::TYPE].into_iter().collect();
    let on = Some(every_packet(SendBufferForm::Percent));
    for (of_b, expected) in [(None, false), (on, true)] {
        let (a, b) = (signing(listed, on), signing(listed, of_b));
        let mut t = world(&a, &b, slow(), sends(messages(20, 3000, 2)));
        t.world.run_for(seconds(2));
        assert_eq!(t.talk(t.b).received.len(), 20);
        assert_eq!(said(&t, "10.0.1.1").iter().any(Option::is_some), expected);
        let init_ack = Packet::parse(&t.world.records[1].packet, ChecksumMode::Verify).unwrap();
        let Some(Ok(Chunk::InitAck(init))) = init_ack.chunks().next() else { panic!("an INIT ACK") };
        let lists =
            init.parameters.iter().any(|p| matches!(p, Ok(Parameter::ChunkList(l)) if l.contains(&150)));
        assert_eq!(lists, !expected);
        let full = t.world.records.iter().map(|r| r.packet.len()).max();
        assert_eq!(full, Some(1480), "no room is lost to a chunk that never comes");
    }
}

#[test]
fn another_chunk_type_can_be_configured_for_advertisements() {
    let _clear = InTheClear::begin();
    let advertisement =
        SendBufferConfig { chunk_type: ChunkType(0xbf), ..every_packet(SendBufferForm::Percent) };
    let settings = config(advertisement);
    let mut t = world(&settings, &settings, slow(), sends(messages(20, 3000, 2)));
    t.world.run_for(seconds(2));
    let names: Vec<_> = t.world.records.iter().map(|r| chunk_names(&r.packet)).collect();
    assert!(names.iter().filter(|n| n.contains("DATA")).all(|n| n.starts_with("type 0xbf")), "{names:?}");
    assert!(t.info(t.b).counters.advertisements_received > 20);
}

/// Sends a message in each state and checks whether the chunk is sent. The table of section 3.1 of "SCTP Sendbuffer Advertisement" (2016)
/// lists "the states in which the chunk should be generated and sent".
#[test]
fn the_chunk_is_sent_in_the_states_that_send_data_and_in_no_others() {
    let _clear = InTheClear::begin();
    for state in STATES {
        let mut subject = Subject::in_state_with(state, &config(every_packet(SendBufferForm::Percent)));
        let records = |subject: &mut Subject| -> Vec<String> {
            subject.world().world.records.iter().map(|r| chunk_names(&r.packet)).collect()
        };
        let before = records(&mut subject).len();
        if !matches!(state, StateName::Closed | StateName::CookieWait) {
            // The message is refused if the program has already ended its sending.
            let _ = subject.send();
        }
        subject.world().world.run_for(seconds(10));
        let after: Vec<_> = records(&mut subject).split_off(before);
        let expected = match state {
            // In these states, waiting data is sent, and unacknowledged data is retransmitted.
            StateName::Established | StateName::ShutdownPending | StateName::ShutdownReceived => true,
            StateName::Closed
            | StateName::CookieWait
            | StateName::CookieEchoed
            | StateName::Accepting
            | StateName::ShutdownSent
            | StateName::ShutdownAckSent => false,
        };
        assert_eq!(after.iter().any(|names| names.contains(NAME)), expected, "{state:?}: {after:?}");
        assert_eq!(after.iter().any(|names| names.contains("DATA")), expected, "{state:?}: {after:?}");
    }
}

#[test]
fn the_advertisement_can_change_after_setup_and_all_data_arrives() {
    let plain = AssociationConfig::default();
    let mut t = world(&plain, &plain, slow(), sends(messages(300, 3000, 2)));
    t.run_to_established();
    let change = |t: &mut Two, form: Option<SendBufferForm>| {
        t.world.run_for(Duration::from_millis(150));
        t.world.records.clear();
        let (now, id) = (t.world.now(), t.id(t.a));
        t.world.host_mut(t.a).endpoint.set_advertisement(now, id, form.map(every_packet));
        t.world.run_for(Duration::from_millis(150));
        said(t, "10.0.1.1")
    };
    let told = change(&mut t, Some(SendBufferForm::Backlog));
    // Packets whose data was cut into chunks before the change have no room for the advertisement.
    assert!(told.len() > 50 && told.iter().flatten().count() * 2 > told.len(), "{told:?}");
    let told = change(&mut t, None);
    assert!(told.len() > 50 && told.iter().all(Option::is_none), "{told:?}");
    t.world.run_for(seconds(20));
    assert_eq!(t.talk(t.b).received.len(), 300);
}

#[test]
fn in_every_state_the_chunk_changes_nothing() {
    let _clear = InTheClear::begin();
    for state in STATES {
        for form in [SendBufferForm::Percent, SendBufferForm::Backlog] {
            let settings = config(every_packet(form));
            let value: &[u8] = if form == SendBufferForm::Backlog { &[0, 0, 0, 7] } else { &[] };
            let unknown =
                Chunk::Unknown(wire::UnknownChunk { chunk_type: SendBuffer::TYPE, flags: 50, value });
            let heartbeat = Chunk::Heartbeat(Heartbeat { info: b"abcdefgh" });
            let answer = |chunks: &[Chunk<'_>]| {
                let mut subject = Subject::in_state_with(state, &settings);
                let tag = subject.own_tag;
                (subject.answer_to_all(tag, chunks), subject.state())
            };
            assert_eq!(answer(&[unknown, heartbeat]), answer(&[heartbeat]), "{state:?}");
            let alone = if state == StateName::Closed { vec!["ABORT(T)".to_owned()] } else { vec![] };
            assert_eq!(answer(&[unknown]), (alone, state), "{state:?}");
        }
    }
}

#[test]
fn everything_arrives_over_bad_links_of_a_smaller_mtu_whatever_is_advertised() {
    let forms = [SendBufferForm::Percent, SendBufferForm::Backlog, SendBufferForm::SeedTenths];
    let cadences = [
        SendBufferCadence::EveryPacket,
        SendBufferCadence::Economical,
        SendBufferCadence::Every(Duration::from_millis(100)),
    ];
    for (n, (form, cadence)) in
        forms.into_iter().flat_map(|f| cadences.map(|c| (f, c))).cycle().take(27).enumerate()
    {
        let link =
            LinkConfig { loss: Loss::Uniform(0.03), reorder: 0.05, duplicate: 0.03, mtu: 1280, ..slow() };
        let interleaving = Extensions::NONE.with(Extension::Interleaving);
        let settings = AssociationConfig {
            extensions: if n % 2 == 0 { Extensions::NONE } else { interleaving },
            ..config(SendBufferConfig { form, cadence, ..SendBufferConfig::default() })
        };
        let endpoint = EndpointConfig { association: settings.clone(), ..EndpointConfig::default() };
        let mut t = two_with(n as u64, link, endpoint);
        t.world.recording = true;
        let sent = messages(150, 4000, 3);
        t.connect_with(settings, Conversation { close: Close::After(0), ..sends(sent) });
        t.run_to_established();
        assert_eq!(t.run_to_end(seconds(300)), (CloseReason::Graceful, CloseReason::Graceful));
        assert_eq!(t.talk(t.b).received.len(), 150, "{form:?} {cadence:?}");
        let said = said(&t, "10.0.1.1");
        let least = if matches!(cadence, SendBufferCadence::Every(_)) { 5 } else { said.len() / 20 };
        assert!(said.iter().flatten().count() > least, "{form:?} {cadence:?}");
    }
}
