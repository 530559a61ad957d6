//! Tests of a message that is passed with the command to connect: it leaves with the COOKIE ECHO (RFC 9260 section 5.1).

use std::time::Duration;

use base::Route;
use bytes::Bytes;
use sctp::{AssociationConfig, Connect, ConnectError, EndpointConfig};
use sim::{Conversation, HostId, LinkConfig};
use wire::Ppid;

use crate::support::{Two, a_route, b_route, content, lose, seconds, sent_by, two, two_with};

/// Opens an association between fixed ports with `message` as its first message.
fn connect_and_send(t: &mut Two, host: HostId, route: Route, ports: (u16, u16), message: Bytes) {
    let now = t.world.now();
    let host = t.world.host_mut(host);
    let connect = Connect {
        local_port: ports.0,
        remote_port: ports.1,
        init_routes: vec![route],
        local_addresses: host.addresses.clone(),
        config: AssociationConfig::default(),
    };
    let id = host.endpoint.connect_and_send(now, connect, Ppid(0), message).unwrap();
    host.app.conversations.insert(id, Conversation::default());
}

/// Opens an association from `a` with a first message of `length` bytes, and records all packets.
fn says(t: &mut Two, length: usize) {
    t.world.recording = true;
    let a = t.a;
    connect_and_send(t, a, a_route(), (5000, 7), content(1, length));
}

fn received(t: &Two, host: HostId) -> Vec<Bytes> {
    t.talk(host).received.iter().map(|message| message.bytes.clone()).collect()
}

#[test]
fn the_first_message_leaves_with_the_cookie_echo_and_arrives_after_1_5_round_trips() {
    let mut t = two(1);
    says(&mut t, 100);
    t.world.run_until(base::Time::from_millis(31), |_| false);
    assert_eq!(received(&t, t.b), [content(1, 100)]);
    assert_eq!(sent_by(&t.world, 0, "10.0.1.1"), ["INIT", "COOKIE ECHO DATA"]);
    t.world.run_for(seconds(1));
    let told = sent_by(&t.world, 0, "10.0.1.2");
    assert_eq!(told[1], "COOKIE ACK SACK", "{told:?}");
    assert_eq!(t.info(t.a).counters.data_retransmitted, 0);
}

#[test]
fn a_message_too_large_for_the_cookie_packet_waits_for_cookie_ack() {
    let mut t = two(1);
    says(&mut t, 5_000);
    t.world.run_for(seconds(2));
    assert_eq!(received(&t, t.b), [content(1, 5_000)]);
    let sent = sent_by(&t.world, 0, "10.0.1.1");
    let before_cookie_ack = sent.iter().take_while(|names| !names.starts_with("DATA")).count();
    assert_eq!(before_cookie_ack, 2, "{sent:?}");
}

#[test]
fn the_first_message_arrives_once_whichever_handshake_packet_is_lost() {
    for lost in ["INIT", "INIT ACK", "COOKIE ECHO", "COOKIE ACK"] {
        for count in 1..3 {
            let mut t = two(1);
            lose(&mut t.world, lost, count);
            says(&mut t, 100);
            t.world.run_for(seconds(20));
            assert_eq!(received(&t, t.b), [content(1, 100)], "{lost} lost {count} times");
        }
    }
}

#[test]
fn a_cookie_echo_that_is_sent_again_goes_alone() {
    let mut t = two(1);
    lose(&mut t.world, "COOKIE ECHO", 1);
    says(&mut t, 100);
    t.world.run_for(seconds(5));
    let echoes: Vec<String> =
        sent_by(&t.world, 0, "10.0.1.1").into_iter().filter(|names| names.contains("COOKIE")).collect();
    assert_eq!(echoes, ["COOKIE ECHO DATA", "COOKIE ECHO"]);
}

#[test]
fn the_first_message_is_delivered_after_a_stale_cookie() {
    let link = LinkConfig { delay: Duration::from_millis(200), ..LinkConfig::default() };
    let cookie_lifetime = Duration::from_millis(300);
    let mut t = two_with(1, link, EndpointConfig { cookie_lifetime, ..EndpointConfig::default() });
    says(&mut t, 100);
    t.world.run_for(seconds(10));
    assert_eq!(t.world.host(t.b).endpoint.counters().stale_cookies, 1);
    assert_eq!(received(&t, t.b), [content(1, 100)]);
}

#[test]
fn with_simultaneous_open_both_first_messages_arrive_once() {
    for lost in ["none", "INIT", "INIT ACK", "COOKIE ECHO", "COOKIE ACK"] {
        let mut t = two(1);
        lose(&mut t.world, lost, 1);
        let (a, b) = (t.a, t.b);
        connect_and_send(&mut t, a, a_route(), (5000, 6000), content(1, 100));
        connect_and_send(&mut t, b, b_route(), (6000, 5000), content(2, 100));
        t.world.run_for(seconds(20));
        assert_eq!(received(&t, t.b), [content(1, 100)], "{lost} lost");
        assert_eq!(received(&t, t.a), [content(2, 100)], "{lost} lost");
    }
}

#[test]
fn an_empty_message_and_one_longer_than_the_send_buffer_are_refused() {
    let mut t = two(1);
    let config = AssociationConfig { send_buffer: 10, ..AssociationConfig::default() };
    let connect = Connect {
        local_port: 5000,
        remote_port: 7,
        init_routes: vec![a_route()],
        local_addresses: vec![a_route().local],
        config,
    };
    for length in [0, 11] {
        let (now, host) = (t.world.now(), t.world.host_mut(t.a));
        let outcome =
            host.endpoint.connect_and_send(now, connect.clone(), Ppid(0), Bytes::from(vec![0; length]));
        assert_eq!(outcome, Err(ConnectError::Message { length, max: 10 }));
    }
}
