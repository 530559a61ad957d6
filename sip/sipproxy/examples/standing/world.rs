//! A proxy with its store, and phones that register and call, in virtual time.
//!
//! The proxy's messages arrive after a delay, without sockets. The same seed gives the same sequence of events. Begin with
//! [`World::run_until`].

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use sip::digest::Algorithm;
use sip::proxy::{Authentication, Listener, Outgoing, Output, Proxy, ProxyConfig};
use sip::{Change, Hop, Limits, Message};
use sipproxy::Sqlite;

use super::calls::{Call, Step};
use super::phone::{DOMAIN, PROXY, Phone, TRANSPORTS, number_at, password, user};

/// Delay of the proxy's messages to a phone. Messages to the proxy arrive without delay.
const DELAY: Duration = Duration::from_millis(10);
/// Registration lifetime that phones request, in seconds. Phones refresh a registration before half of its lifetime has passed.
const EXPIRES_S: u32 = 3600;
/// Time span over which the phones register for the first time.
const ARRIVAL: Duration = Duration::from_secs(240);
/// Reciprocal of the probability that a message to the proxy is sent twice.
const REPEATED: u32 = 100;

/// The size of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) users: u32,
    /// Concurrent calls, including calls that are being set up.
    pub(crate) calls: u32,
    /// Mean duration of a call in seconds, not counting the first second.
    pub(crate) talk_s: f64,
}

/// An event of the simulation.
#[derive(Debug)]
pub(crate) enum Event {
    /// A phone registers, or refreshes its registration.
    Register(u32),
    /// A phone is switched on again.
    SwitchOn(u32),
    /// A message arrives at the phone with this address.
    Arrive(Hop, Bytes),
    /// A call begins.
    Begin,
    Call(u64, Step),
}

/// The simulated world.
pub(crate) struct World {
    pub(crate) size: Size,
    pub(crate) proxy: Proxy,
    store: Sqlite,
    pub(crate) now: Time,
    pub(crate) events: BTreeMap<(Time, u64), Event>,
    next_number: u64,
    pub(crate) rng: fastrand::Rng,
    pub(crate) phones: Vec<Phone>,
    pub(crate) calls: BTreeMap<u64, Call>,
    /// Established calls.
    pub(crate) up: u32,
    pub(crate) answered: u64,
    /// Messages received by the proxy.
    pub(crate) messages: u64,
    /// Responses that phones have received, by method and status.
    pub(crate) statuses: BTreeMap<(String, u16), u64>,
}

fn config(users: u32) -> ProxyConfig {
    let address = PROXY.parse().expect("an address");
    let passwords = (0..users).map(|number| (user(number), password(number))).collect();
    ProxyConfig {
        domains: vec![DOMAIN.to_owned()],
        listeners: TRANSPORTS.map(|transport| Listener { transport, address }).into(),
        authentication: Some(Authentication {
            realm: DOMAIN.to_owned(),
            passwords,
            algorithms: vec![Algorithm::Sha256],
        }),
        ..ProxyConfig::default()
    }
}

impl World {
    /// Creates the phones. They register one after the other, and then the calls begin.
    pub(crate) fn new(size: Size, store: Sqlite, seed: u64) -> World {
        let mut world = World {
            size,
            proxy: Proxy::new(Time::ZERO, config(size.users), [7; 32]),
            store,
            now: Time::ZERO,
            events: BTreeMap::new(),
            next_number: 0,
            rng: fastrand::Rng::with_seed(seed),
            phones: (0..size.users).map(Phone::new).collect(),
            calls: BTreeMap::new(),
            up: 0,
            answered: 0,
            messages: 0,
            statuses: BTreeMap::new(),
        };
        for number in 0..size.users {
            let at = ARRIVAL * number / size.users;
            world.after(at, Event::Register(number));
        }
        for number in 0..size.calls {
            world.after(ARRIVAL + ARRIVAL * number / size.calls, Event::Begin);
        }
        world
    }

    pub(crate) fn new_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn after(&mut self, time: Duration, event: Event) {
        let number = self.new_number();
        self.events.insert((self.now + time, number), event);
    }

    /// Handles all events and timers up to `end`.
    pub(crate) fn run_until(&mut self, end: Time) {
        loop {
            let timer = self.proxy.next_timeout();
            let event = self.events.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
            if timer.min(event) > end {
                break;
            }
            self.now = timer.min(event).max(self.now);
            if timer <= event {
                self.proxy.handle_timeout(self.now);
                self.deliver();
            } else if let Some((_, event)) = self.events.pop_first() {
                self.on_event(event);
            }
        }
        self.now = end;
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Register(number) => self.register(number),
            Event::SwitchOn(number) => {
                self.phones[number as usize].is_on = true;
                self.register(number);
            }
            Event::Arrive(hop, bytes) => self.on_arrival(hop, bytes),
            Event::Begin => self.begin_call(),
            Event::Call(id, step) => self.on_step(id, step),
        }
    }

    /// Registers a phone or refreshes its registration. At random, some phones switch off or unregister instead, and some first restart
    /// with another port.
    fn register(&mut self, number: u32) {
        let chance = self.rng.u32(..1000);
        let phone = &mut self.phones[number as usize];
        phone.wanted_s = match chance {
            0..2 if phone.cseq > 0 => {
                phone.is_on = false;
                phone.restart();
                let away = Duration::from_secs(self.rng.u64(60..4000));
                return self.after(away, Event::SwitchOn(number));
            }
            2..4 => {
                phone.restart();
                EXPIRES_S
            }
            4..10 if phone.cseq > 0 => 0,
            _ => EXPIRES_S,
        };
        let (text, hop) = (phone.register(""), phone.hop());
        self.send(hop, text.into());
    }

    fn on_registered(&mut self, to: u32, response: &Message) {
        let phone = &mut self.phones[to as usize];
        let status = response.status();
        *self.statuses.entry(("REGISTER".to_owned(), status)).or_default() += 1;
        let is_removal = response.first(sip::Name::Contact).is_none();
        match status {
            401 => {
                let credentials = phone.credentials(response, "REGISTER", &format!("sip:{DOMAIN}"));
                let (text, hop) = (phone.register(&credentials), phone.hop());
                self.send(hop, text.into());
            }
            200 if is_removal => self.after(Duration::from_secs(60), Event::Register(to)),
            200 => {
                let half = u64::from(EXPIRES_S) / 2;
                // A phone's first refresh is due at a random time within the first half of the registration's lifetime, so the refreshes of
                // all phones are spread evenly.
                let from = if self.now < Time::ZERO + 2 * ARRIVAL { 1 } else { half - 60 };
                let wait = Duration::from_secs(self.rng.u64(from..half));
                self.after(wait, Event::Register(to));
            }
            _ => self.after(Duration::from_secs(60), Event::Register(to)),
        }
    }

    /// Delivers a phone's message to the proxy, sometimes twice.
    pub(crate) fn send(&mut self, from: Hop, bytes: Bytes) {
        let times = 1 + u64::from(self.rng.u32(..REPEATED) == 0);
        for _ in 0..times {
            self.messages += 1;
            self.proxy.handle_message(self.now, from, bytes.clone());
            self.deliver();
        }
    }

    /// Executes the proxy's outputs in the order of the real program: changes are stored before messages are sent.
    fn deliver(&mut self) {
        let mut outgoing = VecDeque::new();
        loop {
            let mut changes: Vec<Change> = Vec::new();
            while let Some(output) = self.proxy.poll_output() {
                match output {
                    Output::Store(change) => changes.push(change),
                    Output::Send(message) => outgoing.push_back(message),
                    Output::Resolve(_) | Output::Ask(_) => unreachable!("no names here, and no shared store"),
                }
            }
            self.store.write(self.now, &changes).expect("the store takes it");
            let Some(message) = outgoing.pop_front() else { return };
            self.pass_on(message);
        }
    }

    /// Delivers a message to its phone after [`DELAY`]. If the phone is off or has moved, a datagram is lost, and a message on a connection
    /// fails.
    fn pass_on(&mut self, message: Outgoing) {
        let Outgoing { hop, bytes, on_failure, .. } = message;
        let is_heard = number_at(hop.address)
            .and_then(|number| self.phones.get(number as usize))
            .is_some_and(|phone| phone.hears(hop));
        match on_failure {
            _ if is_heard => self.after(DELAY, Event::Arrive(hop, bytes)),
            Some(failed) if hop.transport.is_reliable() => self.proxy.handle_send_failure(self.now, failed),
            _ => {}
        }
    }

    fn on_arrival(&mut self, hop: Hop, bytes: Bytes) {
        let Some(to) = number_at(hop.address) else { return };
        if !self.phones[to as usize].hears(hop) {
            return;
        }
        let message = Message::parse(bytes, &Limits::default()).expect("the proxy sends messages");
        match message.method() {
            Some(_) => self.handle_call_request(to, message),
            None if super::phone::text_of(&message, sip::Name::CSeq).ends_with("REGISTER") => {
                self.on_registered(to, &message);
            }
            None => self.handle_call_response(&message),
        }
    }
}
