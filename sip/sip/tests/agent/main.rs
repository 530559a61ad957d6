//! Tests of two agents and a proxy in virtual time, over links that delay and lose messages.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use sip::agent::{Agent, AgentConfig, AgentEvent, AgentOutput};
use sip::digest::Algorithm;
use sip::proxy::{Authentication, Listener, LostRequest, Outgoing, Output, Proxy, ProxyConfig};
use sip::transaction::Timers;
use sip::{Hop, Transport};

const PROXY: &str = "192.0.2.100:5060";
const ALICE: &str = "192.0.2.1:5060";
const BOB: &str = "192.0.2.2:5060";
/// One-way delay of each link.
const DELAY: Duration = Duration::from_millis(10);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn agent(user: &str, at: &str, calls_max: usize, password: &str) -> Agent {
    let config = AgentConfig {
        user: user.to_owned(),
        domain: "example.com".to_owned(),
        password: Some(password.to_owned()),
        listener: Listener { transport: Transport::Udp, address: address(at) },
        proxy: Hop { listener: 0, transport: Transport::Udp, address: address(PROXY), connection: None },
        rtp: "192.0.2.1:4000".parse().ok(),
        ring: Duration::from_secs(1),
        calls_max,
        timers: Timers::default(),
    };
    Agent::new(config, [at.as_bytes()[8]; 32])
}

/// A message in flight: arrival time, number, sender, recipient, and content.
type Flying = (Time, u64, SocketAddr, SocketAddr, Bytes);

/// Registered agents, a proxy that requires passwords, and the messages in flight between them.
struct World {
    now: Time,
    alice: Agent,
    bob: Agent,
    proxy: Proxy,
    rng: fastrand::Rng,
    /// Share of lost messages, in percent.
    lost: u32,
    flying: BinaryHeap<Reverse<Flying>>,
    sent: u64,
    events: Vec<(&'static str, AgentEvent)>,
}

impl World {
    fn new(lost: u32, seed: u64, bobs_calls: usize) -> World {
        let passwords =
            [("alice", "secret"), ("bob", "sesame")].map(|(user, word)| (user.to_owned(), word.to_owned()));
        let authentication = Authentication {
            realm: "example.com".to_owned(),
            passwords: BTreeMap::from(passwords),
            algorithms: Algorithm::ALL.to_vec(),
        };
        let config = ProxyConfig {
            domains: vec!["example.com".to_owned()],
            listeners: vec![Listener { transport: Transport::Udp, address: address(PROXY) }],
            authentication: Some(authentication),
            ..ProxyConfig::default()
        };
        let mut world = World {
            now: Time::ZERO,
            alice: agent("alice", ALICE, 1000, "secret"),
            bob: agent("bob", BOB, bobs_calls, "sesame"),
            proxy: Proxy::new(Time::ZERO, config, [9; 32]),
            rng: fastrand::Rng::with_seed(seed),
            lost,
            flying: BinaryHeap::new(),
            sent: 0,
            events: Vec::new(),
        };
        world.alice.register(world.now, Duration::from_secs(3600));
        world.bob.register(world.now, Duration::from_secs(3600));
        world.pass(Duration::from_secs(40));
        world
    }

    fn put(&mut self, from: &str, out: Outgoing) {
        if self.rng.u32(0..100) >= self.lost {
            self.sent += 1;
            let flying = (self.now + DELAY, self.sent, address(from), out.hop.address, out.bytes);
            self.flying.push(Reverse(flying));
        }
    }

    fn collect(&mut self) {
        while let Some(output) = self.proxy.poll_output() {
            if let Output::Send(out) = output {
                self.put(PROXY, out);
            }
        }
        for (name, at) in [("alice", ALICE), ("bob", BOB)] {
            while let Some(output) =
                if name == "alice" { &mut self.alice } else { &mut self.bob }.poll_output()
            {
                match output {
                    AgentOutput::Send(out) => self.put(at, out),
                    AgentOutput::Event(event) => self.events.push((name, event)),
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.collect();
        loop {
            let arrival = self.flying.peek().map_or(Time::NEVER, |Reverse(flying)| flying.0);
            let timers =
                [self.alice.next_timeout(), self.bob.next_timeout(), self.proxy.next_timeout(), arrival];
            let next = timers.into_iter().min().unwrap_or(end);
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            let now = self.now;
            self.alice.handle_timeout(now);
            self.bob.handle_timeout(now);
            self.proxy.handle_timeout(now);
            while let Some(Reverse((_, _, from, to, bytes))) =
                self.flying.peek().is_some_and(|Reverse(f)| f.0 <= now).then(|| self.flying.pop()).flatten()
            {
                let hop = Hop { listener: 0, transport: Transport::Udp, address: from, connection: None };
                match to.to_string().as_str() {
                    ALICE => self.alice.handle_message(now, hop, bytes),
                    BOB => self.bob.handle_message(now, hop, bytes),
                    _ => self.proxy.handle_message(now, hop, bytes),
                }
            }
            self.collect();
        }
        self.now = end;
    }

    fn count(&self, name: &str, is_it: impl Fn(&AgentEvent) -> bool) -> usize {
        self.events.iter().filter(|(who, event)| *who == name && is_it(event)).count()
    }
}

fn is_answered(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::Answered { .. })
}

fn is_registered(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::Registered { .. })
}

fn is_ended(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::Ended { .. })
}

#[test]
fn call_setup_takes_round_trips_plus_ringing_and_both_ends_report_the_hangup() {
    let mut world = World::new(0, 1, 10);
    let call = world.alice.call(world.now, "sip:bob@example.com").unwrap();
    world.pass(Duration::from_secs(3));
    let took = world.events.iter().find_map(|(who, event)| match event {
        AgentEvent::Answered { took, rtp, .. } if *who == "alice" => Some((*took, rtp.is_some())),
        _ => None,
    });
    // The time has three parts: 20 ms for the challenge (one link, both directions), 40 ms for the call (two links, both directions), and
    // one second of ringing.
    assert_eq!(took, Some((Duration::from_millis(20 + 40 + 1000), true)));
    assert_eq!(world.count("bob", is_answered), 1);
    world.alice.hang_up(world.now, call);
    world.pass(Duration::from_secs(1));
    assert_eq!((world.count("alice", is_ended), world.count("bob", is_ended)), (1, 1));
    assert_eq!((world.alice.calls(), world.bob.calls()), (0, 0));
}

#[test]
fn a_second_call_to_a_busy_callee_gets_486() {
    let mut world = World::new(0, 1, 1);
    let first = world.alice.call(world.now, "sip:bob@example.com").unwrap();
    let second = world.alice.call(world.now, "sip:bob@example.com").unwrap();
    world.pass(Duration::from_secs(3));
    assert_eq!(
        world.count("alice", |e| *e == AgentEvent::Failed { call: second, status: 486, is_answer: true }),
        1
    );
    assert_eq!(world.count("alice", |e| matches!(e, AgentEvent::Answered { call, .. } if *call == first)), 1);
}

#[test]
fn a_call_to_an_unknown_user_fails_with_404() {
    let mut world = World::new(0, 1, 1);
    let call = world.alice.call(world.now, "sip:carol@example.com").unwrap();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.count("alice", |e| *e == AgentEvent::Failed { call, status: 404, is_answer: true }), 1);
}

#[test]
fn registrations_are_renewed_before_they_end() {
    let mut world = World::new(0, 1, 1);
    world.pass(Duration::from_secs(7200));
    assert!(world.count("bob", |e| matches!(e, AgentEvent::Registered { .. })) >= 4);
    world.alice.call(world.now, "sip:bob@example.com").unwrap();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.count("alice", is_answered), 1);
}

#[test]
fn repeated_registrations_do_not_multiply_refreshes() {
    let mut world = World::new(0, 1, 1);
    for _ in 0..5 {
        world.bob.register(world.now, Duration::from_secs(3600));
        world.pass(Duration::from_secs(1));
    }
    let before = world.count("bob", is_registered);
    world.pass(Duration::from_secs(3600));
    assert_eq!(world.count("bob", is_registered) - before, 2);
}

#[test]
fn a_refresh_that_finds_no_registrar_is_tried_again() {
    let mut world = World::new(0, 1, 1);
    let before = world.count("bob", is_registered);
    world.lost = 100;
    world.pass(Duration::from_secs(1900));
    world.lost = 0;
    world.pass(Duration::from_secs(300));
    assert!(world.count("bob", |e| matches!(e, AgentEvent::NotRegistered { status: 408, .. })) > 0);
    assert_eq!(world.count("bob", is_registered) - before, 1);
}

#[test]
fn without_a_registrar_the_waits_between_attempts_double_up_to_half_an_hour() {
    let mut world = World::new(0, 1, 1);
    world.lost = 100;
    let is_failure = |e: &AgentEvent| matches!(e, AgentEvent::NotRegistered { status: 408, .. });
    let mut failures = vec![];
    for second in 0..20_000 {
        world.pass(Duration::from_secs(1));
        if world.count("bob", is_failure) > failures.len() {
            failures.push(second);
        }
    }
    // Each attempt takes 32 s until it fails.
    let waits: Vec<i32> = failures.windows(2).map(|pair| pair[1] - pair[0] - 32).collect();
    for (number, wait) in (1..).zip(&waits) {
        let limit = (30 << number.min(6)).min(1800);
        assert!((limit / 2 - 1..=limit + 1).contains(wait), "{number}: {wait} of {limit}");
    }
    assert!(waits.len() > 8, "{waits:?}");
}

#[test]
fn a_registrar_that_grants_no_time_does_not_make_the_agent_register_without_a_pause() {
    let mut bob = agent("bob", BOB, 10, "secret");
    bob.register(Time::ZERO, Duration::from_secs(3600));
    let mut sent = 0;
    for at in 0..50 {
        let now = Time::from_millis(at * 100);
        bob.handle_timeout(now);
        for output in outputs(&mut bob) {
            let AgentOutput::Send(register) = output else { continue };
            sent += 1;
            let register = String::from_utf8(register.bytes.to_vec()).unwrap();
            let contact = register.lines().find(|line| line.starts_with("Contact:")).unwrap();
            let fields = register.lines().filter(|line| {
                ["Via:", "From:", "To:", "Call-ID:", "CSeq:"].iter().any(|name| line.starts_with(name))
            });
            let fields = fields.fold(String::new(), |text, line| text + line + "\r\n");
            let answer =
                format!("SIP/2.0 200 OK\r\n{fields}{contact};expires=0\r\nContent-Length: 0\r\n\r\n");
            bob.handle_message(now, from_proxy(), answer.into());
        }
    }
    assert!((2..=5).contains(&sent), "{sent} in 5 s");
}

/// An agent that has sent an INVITE to its proxy, and the INVITE.
fn calling() -> (Agent, String) {
    let mut alice = agent("alice", ALICE, 10, "secret");
    alice.call(Time::ZERO, "sip:bob@example.com").unwrap();
    let [AgentOutput::Send(invite)] = &outputs(&mut alice)[..] else { panic!("an INVITE") };
    let invite = String::from_utf8(invite.bytes.to_vec()).unwrap();
    (alice, invite)
}

fn outputs(agent: &mut Agent) -> Vec<AgentOutput> {
    std::iter::from_fn(|| agent.poll_output()).collect()
}

/// Returns the 200 to `invite` from the callee with this tag.
fn answer(invite: &str, tag: &str) -> Bytes {
    let fields = invite
        .lines()
        .filter(|line| ["Via:", "From:", "Call-ID:", "CSeq:"].iter().any(|name| line.starts_with(name)));
    let fields = fields.fold(String::new(), |text, line| text + line + "\r\n");
    format!(
        "SIP/2.0 200 OK\r\n{fields}To: <sip:bob@example.com>;tag={tag}\r\nContact: <sip:bob@192.0.2.7>\r\nContent-Length: 0\r\n\r\n"
    )
    .into()
}

fn from_proxy() -> Hop {
    Hop { listener: 0, transport: Transport::Udp, address: address(PROXY), connection: None }
}

/// Returns the first lines of the messages that the agent sends, each with the tag of To.
fn sent(agent: &mut Agent) -> Vec<(String, String)> {
    let sends = outputs(agent).into_iter().filter_map(|output| match output {
        AgentOutput::Send(out) => Some(String::from_utf8(out.bytes.to_vec()).unwrap()),
        AgentOutput::Event(_) => None,
    });
    let parts = sends.map(|text| {
        let to = text.lines().find(|line| line.starts_with("To:")).unwrap();
        let tag = to.split(";tag=").nth(1).unwrap_or_default().to_owned();
        (text.split(' ').next().unwrap().to_owned(), tag)
    });
    parts.collect()
}

#[test]
fn the_second_callee_of_a_forked_call_gets_an_ack_and_a_bye_and_cannot_end_the_call() {
    let pairs = |list: &[(&str, &str)]| -> Vec<_> {
        list.iter().map(|(method, tag)| ((*method).to_owned(), (*tag).to_owned())).collect()
    };
    let (mut alice, invite) = calling();
    alice.handle_message(Time::ZERO, from_proxy(), answer(&invite, "one"));
    assert_eq!(sent(&mut alice), pairs(&[("ACK", "one")]));
    for expected in [&[("ACK", "two"), ("BYE", "two")][..], &[("ACK", "two")]] {
        alice.handle_message(Time::ZERO, from_proxy(), answer(&invite, "two"));
        assert_eq!(sent(&mut alice), pairs(expected));
    }
    let ours = invite.lines().find_map(|line| line.strip_prefix("From: ")).unwrap();
    let call_id = invite.lines().find(|line| line.starts_with("Call-ID:")).unwrap();
    let bye = |tag: &str| {
        format!(
            "BYE sip:alice@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bK{tag}\r\nTo: {ours}\r\n\
             From: <sip:bob@example.com>;tag={tag}\r\n{call_id}\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n"
        )
    };
    alice.handle_message(Time::ZERO, from_proxy(), bye("two").into());
    assert_eq!(alice.calls(), 1);
    alice.handle_message(Time::ZERO, from_proxy(), bye("one").into());
    assert_eq!(alice.calls(), 0);
}

#[test]
fn a_failure_to_send_after_the_response_changes_nothing() {
    let mut alice = agent("alice", ALICE, 10, "secret");
    alice.call(Time::ZERO, "sip:bob@example.com").unwrap();
    let [AgentOutput::Send(out)] = &outputs(&mut alice)[..] else { panic!("an INVITE") };
    let invite = String::from_utf8(out.bytes.to_vec()).unwrap();
    alice.handle_message(Time::ZERO, from_proxy(), answer(&invite, "one"));
    outputs(&mut alice);
    alice.handle_send_failure(Time::ZERO, out.on_failure.unwrap());
    assert_eq!((outputs(&mut alice), alice.calls()), (Vec::new(), 1));
}

#[test]
fn a_lost_request_is_sent_once_more_if_a_new_association_may_succeed_and_else_fails() {
    let mut alice = agent("alice", ALICE, 10, "secret");
    let call = alice.call(Time::ZERO, "sip:bob@example.com").unwrap();
    let [AgentOutput::Send(out)] = &outputs(&mut alice)[..] else { panic!("an INVITE") };
    let lost = LostRequest { on_failure: out.on_failure.unwrap(), may_resend: true };
    alice.handle_lost_request(Time::ZERO, lost);
    assert_eq!(outputs(&mut alice), [AgentOutput::Send(out.clone())]);
    alice.handle_lost_request(Time::ZERO, lost);
    let failed = AgentEvent::Failed { call, status: 503, is_answer: false };
    assert_eq!(outputs(&mut alice), [AgentOutput::Event(failed)]);
    assert_eq!(alice.calls(), 0);
}

#[test]
fn a_lost_invite_of_a_call_that_was_hung_up_is_not_sent_again() {
    let mut alice = agent("alice", ALICE, 10, "secret");
    let call = alice.call(Time::ZERO, "sip:bob@example.com").unwrap();
    let [AgentOutput::Send(out)] = &outputs(&mut alice)[..] else { panic!("an INVITE") };
    alice.hang_up(Time::ZERO, call);
    outputs(&mut alice);
    let lost = LostRequest { on_failure: out.on_failure.unwrap(), may_resend: true };
    alice.handle_lost_request(Time::ZERO, lost);
    let failed = AgentEvent::Failed { call, status: 503, is_answer: false };
    assert_eq!(outputs(&mut alice), [AgentOutput::Event(failed)]);
}

#[test]
fn calls_come_about_and_end_on_links_that_lose_a_tenth() {
    for seed in 1..=5 {
        let mut world = World::new(10, seed, 1000);
        let calls: Vec<_> =
            (0..20).map(|_| world.alice.call(world.now, "sip:bob@example.com").unwrap()).collect();
        world.pass(Duration::from_secs(40));
        assert_eq!(world.count("alice", is_answered), 20, "seed {seed}");
        calls.into_iter().for_each(|call| world.alice.hang_up(world.now, call));
        world.pass(Duration::from_secs(80));
        assert_eq!((world.count("alice", is_ended), world.count("bob", is_ended)), (20, 20), "seed {seed}");
        assert_eq!((world.alice.calls(), world.bob.calls()), (0, 0), "seed {seed}");
        world.pass(Duration::from_secs(200));
        assert_eq!(world.proxy.transactions(), (0, 0), "seed {seed}");
    }
}
