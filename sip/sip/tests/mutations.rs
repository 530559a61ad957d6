//! Tests with changed messages of RFC 4475: octets are changed, removed or doubled, and messages are combined. No such message may cause
//! a panic or unlimited growth.

use allocation_counter::measure;
use base::Time;
use fuzzing::torture::{changed, corpus};
use sip::agent::{Agent, AgentConfig};
use sip::digest::Algorithm;
use sip::proxy::{Authentication, Listener, Output, Proxy, ProxyConfig, ProxyLimits};
use sip::transaction::Timers;
use sip::{Framer, Hop, Limits, LocationLimits, Message, Transport};
use std::time::Duration;

/// Number of changed messages in each test.
const MESSAGES: usize = 30_000;

fn hop() -> Hop {
    let address = "192.0.2.1:5060".parse().unwrap();
    Hop { listener: 0, transport: Transport::Udp, address, connection: None }
}

fn listener() -> Listener {
    Listener { transport: Transport::Udp, address: "192.0.2.100:5060".parse().unwrap() }
}

#[test]
fn a_proxy_lives_through_changed_messages_within_its_limits() {
    let (mut rng, corpus) = (fastrand::Rng::with_seed(4475), corpus());
    for authentication in [false, true] {
        let config = ProxyConfig {
            domains: vec!["example.com".to_owned()],
            listeners: vec![listener()],
            authentication: authentication.then(|| Authentication {
                realm: "example.com".to_owned(),
                passwords: [("user".to_owned(), "secret".to_owned())].into(),
                algorithms: Algorithm::ALL.to_vec(),
            }),
            location: LocationLimits { contacts: 3, users: 20 },
            limits: ProxyLimits { transactions: 500, ..ProxyLimits::default() },
            ..ProxyConfig::default()
        };
        let (mut proxy, mut now, mut answered) = (Proxy::new(Time::ZERO, config, [1; 32]), Time::ZERO, 0);
        for _ in 0..MESSAGES {
            proxy.handle_message(now, hop(), changed(&mut rng, &corpus).into());
            now += Duration::from_millis(rng.u64(0..100));
            proxy.handle_timeout(now);
            while let Some(output) = proxy.poll_output() {
                let Output::Send(out) = output else { continue };
                let sent = Message::parse(out.bytes, &Limits::default()).expect("what goes out is a message");
                answered += usize::from(sent.status() >= 200);
                // Half of the requests get a response with a random status.
                if sent.method().is_some_and(|method| method.as_bytes() != b"ACK") && rng.bool() {
                    proxy.handle_message(now, hop(), sent.response(rng.u16(100..700), "x", "t").to_bytes());
                }
            }
            assert!(proxy.transactions().0 <= 500);
            assert!(proxy.location().users() <= 20 && proxy.location().contacts() <= 60);
        }
        assert!(answered > MESSAGES / 10, "{answered} answers");
        // The three steps let these timers expire: timer C, the time-out of the CANCEL, and the wait for the missing ACK.
        for _ in 0..3 {
            now += Duration::from_secs(4000);
            proxy.handle_timeout(now);
            while proxy.poll_output().is_some() {}
        }
        assert_eq!(proxy.transactions(), (0, 0));
    }
}

/// Sends 20,000 messages to a proxy at intervals of 250 µs. Then advances the time by 400 s, in which the proxy must drop all
/// transactions and dialogs.
fn storm(proxy: &mut Proxy, now: &mut Time, rng: &mut fastrand::Rng, corpus: &[Vec<u8>]) {
    for _ in 0..20_000 {
        proxy.handle_message(*now, hop(), changed(rng, corpus).into());
        *now += Duration::from_micros(250);
        proxy.handle_timeout(*now);
        while proxy.poll_output().is_some() {}
    }
    for _ in 0..4 {
        *now += Duration::from_secs(100);
        proxy.handle_timeout(*now);
        while proxy.poll_output().is_some() {}
    }
    assert_eq!((proxy.transactions(), proxy.dialog_count()), ((0, 0), 0));
}

#[test]
fn changed_messages_leave_nothing_behind_but_registrations() {
    let (mut rng, corpus) = (fastrand::Rng::with_seed(6026), corpus());
    let config = ProxyConfig {
        domains: vec!["example.com".to_owned()],
        listeners: vec![listener()],
        // The limits are small, so the first storms reach them.
        location: LocationLimits { contacts: 3, users: 4 },
        timers: Timers { t1: Duration::from_millis(50), ..Timers::default() },
        ..ProxyConfig::default()
    };
    let (mut proxy, mut now) = (Proxy::new(Time::ZERO, config, [1; 32]), Time::ZERO);
    let mut storms = |count: u32| {
        measure(|| (0..count).for_each(|_| storm(&mut proxy, &mut now, &mut rng, &corpus))).bytes_current
    };
    let (first, then) = (storms(3), storms(3));
    assert!(first > 1000, "who registered is known: {first} bytes");
    assert!(then < 16 * 1024, "60,000 messages more left {then} bytes");
}

#[test]
fn an_agent_lives_through_changed_messages_within_its_limits() {
    let (mut rng, corpus) = (fastrand::Rng::with_seed(5118), corpus());
    let config = AgentConfig {
        user: "user".to_owned(),
        domain: "example.com".to_owned(),
        password: Some("secret".to_owned()),
        listener: listener(),
        proxy: hop(),
        rtp: "192.0.2.100:4000".parse().ok(),
        ring: Duration::from_secs(1),
        calls_max: 20,
        timers: Timers::default(),
    };
    let (mut agent, mut now) = (Agent::new(config, [1; 32]), Time::ZERO);
    for _ in 0..MESSAGES {
        agent.handle_message(now, hop(), changed(&mut rng, &corpus).into());
        now += Duration::from_millis(rng.u64(0..100));
        agent.handle_timeout(now);
        while agent.poll_output().is_some() {}
        assert!(agent.calls() <= 20);
    }
}

#[test]
fn a_framer_lives_through_changed_streams_within_its_limits() {
    let (mut rng, corpus) = (fastrand::Rng::with_seed(18), corpus());
    let limits = Limits { message: 8192, headers: 64 };
    let mut framer = Framer::new(limits);
    for _ in 0..MESSAGES {
        framer.push(&changed(&mut rng, &corpus));
        loop {
            match framer.next_message() {
                Ok(Some(message)) => assert!(message.len() <= 8192),
                Ok(None) => break,
                Err(_) => {
                    framer = Framer::new(limits);
                    break;
                }
            }
        }
    }
}
