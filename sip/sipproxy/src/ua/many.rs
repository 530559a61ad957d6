//! `--users`: registers many users from one address, and reports the speed. `--at-once` limits the number of concurrent registrations, and
//! `--rate` begins registrations at a fixed rate. The registrations can be repeated in rounds. Passwords are not supported.
//!
//! Each user is registered once per round. Nothing is retransmitted, so a message that is lost over UDP is a failure. Begin with [`run`].

use std::collections::BTreeMap;
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use mio::{Events, Poll};
use serde_json::{Value, json};
use sip::proxy::{Listener, Outgoing};
use sip::{Hop, Limits, Message, Name, Transport};

use super::args::UaArgs;
use super::driver::{sctp, tls};
use super::in_flags;
use super::statistics::times;
use crate::clock::Clock;
use crate::error::SipError;
use crate::server::in_whole_milliseconds;
use crate::transport::{self, Bounds, Inbox, ListenerIndex, Plugin};

/// Time limit for the registration of one user.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Default limit on concurrent registrations.
const AT_ONCE: usize = 32;
/// Time limit for closing the connection.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// The state of the run.
struct Many<'a> {
    args: &'a UaArgs,
    user: &'a str,
    domain: &'a str,
    plugin: Box<dyn Plugin>,
    inbox: Inbox,
    /// Random number that makes the Call-IDs unique to this run.
    run: u64,
    users: u32,
    round: Round,
}

/// A round over all users.
#[derive(Default)]
struct Round {
    /// Number of the round, from 1 on.
    number: u32,
    begun: u32,
    /// Time of the next request.
    next: Time,
    /// Users with pending requests, and the times at which the requests were sent.
    waiting: BTreeMap<u32, Time>,
    took: Vec<Duration>,
    failed: u32,
    seconds: f64,
}

/// Registers all users. Returns the report and the number of failures.
///
/// # Errors
/// If the address cannot be used, the user is invalid, or the poll fails.
pub(super) fn run(args: &UaArgs, users: u32) -> Result<(Value, u32), SipError> {
    let (clock, mut poll) = (Clock::start(), Poll::new().map_err(SipError::system("create a poll"))?);
    let Some((user, domain)) = args.user.split_once('@') else {
        return Err(SipError::Usage(format!("invalid user `{}`: expected --user USER@DOMAIN", args.user)));
    };
    let listener = Listener { transport: args.transport, address: args.local };
    let bounds = Bounds { messages: Limits::default(), connections: 1, answer: ANSWER_LIMIT };
    let tls = (args.transport == Transport::Tls).then(|| tls(args)).transpose()?;
    let plugin =
        transport::open(ListenerIndex(0), listener, bounds, &sctp(args)?, tls.as_ref(), poll.registry())
            .map_err(in_flags)?;
    let (inbox, run, round) = (Inbox::default(), rand::random(), Round::default());
    let mut many = Many { args, user, domain, plugin, inbox, run, users, round };
    let mut rounds = Vec::new();
    for number in 1..=args.registrations.max(1) {
        rounds.push(many.register_all(number, &clock, &mut poll)?);
    }
    many.close(&clock, &mut poll)?;
    let mut told = rounds[0].to_json();
    if rounds.len() > 1 {
        told["again"] = rounds[1..].iter().map(Round::to_json).collect();
    }
    Ok((told, rounds.iter().map(|round| round.failed).sum()))
}

impl Round {
    fn to_json(&self) -> Value {
        json!({
            "registrations": times(&self.took),
            "registrations_failed": self.failed,
            "registrations_per_s": self.took.len() as f64 / self.seconds,
            "seconds": self.seconds,
        })
    }
}

impl Many<'_> {
    fn register_all(&mut self, number: u32, clock: &Clock, poll: &mut Poll) -> Result<Round, SipError> {
        let start = clock.now();
        self.round = Round { number, next: start, ..Round::default() };
        self.turn(start);
        while !self.round.waiting.is_empty() || self.round.begun < self.users {
            self.wait(clock, poll)?;
            self.turn(clock.now());
        }
        let seconds = clock.now().since(start).as_secs_f64();
        Ok(Round { seconds, ..std::mem::take(&mut self.round) })
    }

    /// Returns the limit on concurrent registrations. The default is [`AT_ONCE`]. With `--rate`, the default is no limit.
    fn at_once(&self) -> usize {
        let any = if self.args.rate.is_some() { usize::MAX } else { AT_ONCE };
        self.args.at_once.unwrap_or(any)
    }

    fn may_begin(&self) -> bool {
        self.round.begun < self.users && self.round.waiting.len() < self.at_once()
    }

    fn wait(&mut self, clock: &Clock, poll: &mut Poll) -> Result<(), SipError> {
        let mut ready = Events::with_capacity(16);
        let give_up = self.round.waiting.values().next().map_or(Time::NEVER, |since| *since + ANSWER_LIMIT);
        let next = if self.may_begin() { self.round.next } else { Time::NEVER };
        let wait = self.plugin.next_timeout().min(give_up).min(next).since(clock.now());
        if let Err(source) = poll.poll(&mut ready, Some(in_whole_milliseconds(wait))) {
            return Err(SipError::System { what: "wait for messages", source });
        }
        for event in &ready {
            self.plugin.handle_ready(clock.now(), ListenerIndex::of_token(event.token()).1, &mut self.inbox);
        }
        Ok(())
    }

    fn turn(&mut self, now: Time) {
        if self.plugin.next_timeout() <= now {
            self.plugin.handle_timeout(now, &mut self.inbox);
        }
        for (_, bytes) in std::mem::take(&mut self.inbox.messages) {
            self.on_message(now, bytes);
        }
        self.inbox.unreachable.clear();
        let lost = std::mem::take(&mut self.inbox.lost).into_iter().map(|request| request.on_failure);
        for failure in self.inbox.take_failures().into_iter().chain(lost) {
            self.fail(u32::try_from(failure).unwrap_or(0));
        }
        let late = |(user, since): (&u32, &Time)| (*since + ANSWER_LIMIT <= now).then_some(*user);
        let late: Vec<u32> = self.round.waiting.iter().filter_map(late).collect();
        late.into_iter().for_each(|user| self.fail(user));
        while self.may_begin() && self.round.next <= now {
            self.round.begun += 1;
            self.round.next +=
                self.args.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate));
            self.begin(now, self.round.begun);
        }
        self.plugin.finish_turn(now, &mut self.inbox);
    }

    fn begin(&mut self, now: Time, number: u32) {
        let hop =
            Hop { listener: 0, transport: self.args.transport, address: self.args.proxy, connection: None };
        let bytes = self.request(number).into();
        self.round.waiting.insert(number, now);
        let message = Outgoing {
            hop,
            domain: None,
            bytes,
            on_failure: Some(number.into()),
            dialog: number,
            is_new: true,
        };
        self.plugin.send(now, message, &mut self.inbox);
    }

    fn request(&self, number: u32) -> String {
        let (Many { user, domain, run, .. }, local, round) = (self, self.args.local, self.round.number);
        let transport = self.args.transport;
        format!(
            "REGISTER sip:{domain} SIP/2.0\r\n\
             Via: SIP/2.0/{} {local};rport;branch=z9hG4bK{run:x}.{number}.{round}\r\n\
             From: <sip:{user}{number}@{domain}>;tag={run:x}\r\n\
             To: <sip:{user}{number}@{domain}>\r\n\
             Call-ID: {number}.{run:x}\r\n\
             CSeq: {round} REGISTER\r\n\
             Contact: <sip:{user}{number}@{local};transport={}>\r\n\
             Expires: 3600\r\n\
             Max-Forwards: 70\r\n\
             Content-Length: 0\r\n\r\n",
            transport.as_str(),
            transport.as_lower_str(),
        )
    }

    fn on_message(&mut self, now: Time, bytes: Bytes) {
        let Ok(message) = Message::parse(bytes, &Limits::default()) else { return };
        if message.status() < 200 {
            return;
        }
        let call_id = message.first(Name::CallId).map(|value| String::from_utf8_lossy(value).into_owned());
        let Some((number, run)) = call_id.as_deref().and_then(|it| it.split_once('.')) else { return };
        let Ok(number) = number.parse() else { return };
        if run != format!("{:x}", self.run) {
            return;
        }
        if message.status() >= 300 {
            return self.fail(number);
        }
        if let Some(since) = self.round.waiting.remove(&number) {
            self.round.took.push(now.since(since));
        }
    }

    fn fail(&mut self, number: u32) {
        if self.round.waiting.remove(&number).is_some() {
            self.round.failed += 1;
        }
    }

    /// Closes the connection to the registrar, and waits up to [`CLOSE_LIMIT`] for the end of the connection.
    fn close(&mut self, clock: &Clock, poll: &mut Poll) -> Result<(), SipError> {
        self.users = 0;
        let until = clock.now() + CLOSE_LIMIT;
        self.plugin.begin_close(clock.now());
        self.plugin.finish_turn(clock.now(), &mut self.inbox);
        while !self.plugin.is_closed() && clock.now() < until {
            self.wait(clock, poll)?;
            self.turn(clock.now());
        }
        Ok(())
    }
}
