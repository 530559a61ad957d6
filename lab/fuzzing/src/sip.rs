//! Fuzz target: SIP messages of any content.
//!
//! The messages go to a proxy, to a user agent, or to the code that splits a stream into messages. No part
//! under test may panic. The proxy's own messages must be valid SIP. The numbers of transactions, bindings
//! and calls must stay within their limits. All transactions must end after their timers. Begin at [`run`].

use std::time::Duration;

use base::Time;
use bytes::Bytes;
use sip::agent::{Agent, AgentConfig};
use sip::digest::Algorithm;
use sip::proxy::{Authentication, Listener, Output, Proxy, ProxyConfig, ProxyLimits};
use sip::transaction::Timers;
use sip::{Framer, Hop, Limits, LocationLimits, Message, Transport};

use crate::input::Input;

/// Maximum number of messages in one run.
const MESSAGES_MAX: usize = 50;
/// Limit on the proxy's server transactions.
const TRANSACTIONS_MAX: usize = 20;
/// Limit on the agent's calls.
const CALLS_MAX: usize = 5;

/// Interprets `data` as a script, and plays it.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(4) {
        0 => proxy(&mut input, false),
        1 => proxy(&mut input, true),
        2 => agent(&mut input),
        _ => stream(&mut input),
    }
}

fn hop() -> Hop {
    let address = ([192, 0, 2, 1], 5060).into();
    Hop { listener: 0, transport: Transport::Udp, address, connection: None }
}

fn listener() -> Listener {
    Listener { transport: Transport::Udp, address: ([192, 0, 2, 100], 5060).into() }
}

/// Reads a pause and a message from the input.
fn next(input: &mut Input<'_>) -> (Duration, Bytes) {
    let pause = Duration::from_millis(u64::from(input.byte()) * 10);
    let length = usize::from(input.word());
    (pause, Bytes::copy_from_slice(input.bytes(length)))
}

fn proxy(input: &mut Input<'_>, asks_for_passwords: bool) {
    let config = ProxyConfig {
        domains: vec!["example.com".to_owned()],
        listeners: vec![listener()],
        authentication: asks_for_passwords.then(|| Authentication {
            realm: "example.com".to_owned(),
            passwords: [("user".to_owned(), "secret".to_owned())].into(),
            algorithms: Algorithm::ALL.to_vec(),
        }),
        location: LocationLimits { contacts: 3, users: 5 },
        limits: ProxyLimits { transactions: TRANSACTIONS_MAX, ..ProxyLimits::default() },
        ..ProxyConfig::default()
    };
    let (mut proxy, mut now) = (Proxy::new(Time::ZERO, config, [1; 32]), Time::ZERO);
    for _ in 0..MESSAGES_MAX {
        if input.is_empty() {
            break;
        }
        let (pause, message) = next(input);
        now += pause;
        proxy.handle_timeout(now);
        proxy.handle_message(now, hop(), message);
        answer(&mut proxy, now, input);
        assert!(proxy.transactions().0 <= TRANSACTIONS_MAX, "too many transactions");
        assert!(proxy.location().users() <= 5 && proxy.location().contacts() <= 15, "too many bindings");
    }
    // The rounds outlast three waits in succession: for Timer C, for the answer to the CANCEL after Timer
    // C, and for an ACK that never arrives.
    for _ in 0..4 {
        now += Duration::from_secs(4000);
        proxy.handle_timeout(now);
        while proxy.poll_output().is_some() {}
    }
    assert_eq!(proxy.transactions(), (0, 0), "transactions are left");
}

/// Answers some of the proxy's requests with arbitrary status codes, and reports to the proxy that some
/// messages could not be sent.
fn answer(proxy: &mut Proxy, now: Time, input: &mut Input<'_>) {
    while let Some(output) = proxy.poll_output() {
        let Output::Send(out) = output else { continue };
        let sent = Message::parse(out.bytes, &Limits::default()).expect("what goes out is a message");
        let wants_answer = sent.method().is_some_and(|method| method.as_bytes() != b"ACK");
        if wants_answer && input.flag() {
            let status = 100 + input.word() % 600;
            proxy.handle_message(now, hop(), sent.response(status, "x", "t").to_bytes());
        } else if let Some(failed) = out.on_failure.filter(|_| input.below(8) == 7) {
            proxy.handle_send_failure(now, failed);
        }
    }
}

fn agent(input: &mut Input<'_>) {
    let config = AgentConfig {
        user: "user".to_owned(),
        domain: "example.com".to_owned(),
        password: Some("secret".to_owned()),
        listener: listener(),
        proxy: hop(),
        rtp: Some(([192, 0, 2, 100], 4000).into()),
        ring: Duration::from_millis(500),
        calls_max: CALLS_MAX,
        timers: Timers::default(),
    };
    let (mut agent, mut now) = (Agent::new(config, [1; 32]), Time::ZERO);
    agent.register(now, Duration::from_secs(60));
    for _ in 0..MESSAGES_MAX {
        if input.is_empty() {
            break;
        }
        if let Some(call) = input.flag().then(|| agent.call(now, "sip:bob@example.com")).flatten() {
            agent.hang_up(now, call);
        }
        let (pause, message) = next(input);
        now += pause;
        agent.handle_timeout(now);
        agent.handle_message(now, hop(), message);
        while agent.poll_output().is_some() {}
        assert!(agent.calls() <= CALLS_MAX, "too many calls");
    }
}

fn stream(input: &mut Input<'_>) {
    let limits = Limits { message: 500, headers: 20 };
    let mut framer = Framer::new(limits);
    while !input.is_empty() {
        let length = usize::from(input.byte());
        framer.push(input.bytes(length));
        framer.take_ping();
        while let Ok(Some(message)) = framer.next_message() {
            assert!(message.len() <= limits.message, "a message beyond the limit");
            let _ = Message::parse(message, &limits);
        }
    }
}
