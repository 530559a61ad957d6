//! Runs the event loop: one thread that owns all state of packets and connections.
//!
//! A turn takes these steps:
//!
//! 1. Wait for events.
//! 2. Take commands from other threads.
//! 3. Through the [`Driver`], take held SYNs, packets, ICMP reports and arrived connections. Then fire due timers, move bytes
//!    and send packets.
//! 4. Gather reports.
//!
//! Only the first step waits, because all new connections of the host stall while this thread waits elsewhere. The supervisor
//! kills this process if it sends no heartbeat for two seconds.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, channel};

use anyhow::Result;
use base::Time;
use control::{Check, DoctorReport, Done, ErrorCode, LinkReading, PathsReport, Request, Response};
use intercept::Interceptor;
use mio::Events;

use crate::carriers::PacketIo;
use crate::clock::Clock;
use crate::commands::{Command, Handle};
use crate::confinement;
use crate::driver::Driver;
use crate::encryption::Encryption;
use crate::forwarding::Forwarder;
use crate::learned_store::LearnedStore;
use crate::rules_store::RulesStore;
use crate::supervisor::BEAT;
use crate::survey::{self, Found, Gathered, Question, Surveys};
use crate::turns::Turns;

/// Limit on the events taken from the poll in one turn.
const EVENTS_PER_TURN: usize = 1024;

/// The event loop.
pub(crate) struct Shard {
    driver: Driver,
    clock: Clock,
    commands: Receiver<Command>,
    heartbeat: Option<io::Stdout>,
    next_beat: Time,
    /// Reports in progress.
    surveys: Surveys,
    /// Durations of turns.
    turns: Turns,
    /// Privileges that this process has given up; empty until [`Shard::note_confinement`] is called.
    confinement: control::Confinement,
    /// Faults of this start, such as a page whose port is not available.
    faults: Vec<Check>,
}

impl Shard {
    /// Creates the loop from its parts. `heartbeat` is true if a supervisor reads heartbeats from this process's standard
    /// output.
    pub(crate) fn new(
        interceptor: Interceptor,
        packet_io: PacketIo,
        rules: RulesStore,
        learned: LearnedStore,
        encryption: Encryption,
        seed: [u8; 32],
        heartbeat: bool,
    ) -> Result<(Shard, Handle)> {
        let clock = Clock::start();
        let driver = Driver::new(clock, interceptor, packet_io, (rules, learned, encryption), seed)?;
        let waker = driver.waker()?;
        let (sender, commands) = channel();
        let shard = Shard {
            driver,
            clock,
            commands,
            heartbeat: heartbeat.then(io::stdout),
            next_beat: Time::ZERO,
            surveys: Surveys::default(),
            turns: Turns::default(),
            confinement: control::Confinement::default(),
            faults: Vec::new(),
        };
        Ok((shard, Handle::new(sender, waker)))
    }

    pub(crate) const fn interceptor(&self) -> &Interceptor {
        self.driver.interceptor()
    }

    /// Records the privileges that this process has given up. Reports show them.
    pub(crate) fn note_confinement(&mut self, confinement: control::Confinement) {
        self.confinement = confinement;
    }

    /// Notes a fault of this start. `doctor` reports it.
    pub(crate) fn note_fault(&mut self, fault: Check) {
        self.faults.push(fault);
    }

    /// Serves a command's enclosed namespace from now on.
    pub(crate) fn serve_command(&mut self, forwarder: Forwarder) {
        self.driver.serve_command(forwarder);
    }

    /// Runs until a command stops it, then removes the interception. Returns the counts of all links.
    pub(crate) fn run(mut self) -> Result<Vec<LinkReading>> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let mut more = true;
        self.driver.begin();
        while !self.driver.policy().is_stopping() {
            self.driver.wait(&mut events, self.next_beat, more)?;
            self.beat();
            self.driver.take_events(&events);
            self.take_commands();
            more = self.driver.turn()?;
            more |= self.survey();
            self.turns.note(self.clock.now() - self.driver.now());
        }
        let report = self.driver.report();
        let links = report.link_readings(survey::all_links(&report));
        self.driver.end()?;
        Ok(links)
    }

    /// Signals to the supervisor and to the kernel that this loop runs.
    fn beat(&mut self) {
        if self.driver.now() < self.next_beat {
            return;
        }
        self.next_beat = self.driver.now() + BEAT;
        self.driver.show_life();
        if let Some(out) = &mut self.heartbeat {
            // An error means that the supervisor has gone. The end of standard input reports this, too.
            let _ = out.write_all(b".").and_then(|()| out.flush());
        }
    }

    fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Stop => self.driver.policy().stop(),
                Command::Keys(association, outcome) => self.driver.take_keys(association, outcome),
                Command::Caps(caps) => self.driver.note_caps(caps),
                Command::Opened(flow, outcome) => self.driver.on_opened(&flow, &outcome),
                Command::Survey(question) => self.surveys.begin(question),
                // An error means that the requester no longer waits for the answer.
                Command::Capture(reply) => {
                    let _ = reply.send(self.driver.tap());
                }
                Command::Ask(request, reply) => {
                    let _ = reply.send(self.answer(&request));
                }
                Command::Change(draft, reply) => {
                    let _ = reply.send(self.driver.put_in_force(*draft));
                }
                Command::Count(reply) => {
                    self.driver.count_passed();
                    let _ = reply.send(());
                }
            }
        }
    }

    /// Answers requests that need the shard's state.
    fn answer(&mut self, request: &Request) -> Response {
        match request {
            Request::Doctor { peer } => Response::Doctor(self.doctor(*peer)),
            Request::Events { after } => Response::Events(self.driver.events_after(*after)),
            Request::Drain => {
                self.driver.policy().drain();
                Response::Done(Done::new("new connections are plain TCP; live ones continue"))
            }
            _ => Response::error(ErrorCode::BadRequest, "not a request to the packet loop"),
        }
    }

    fn doctor(&mut self, peer: Option<IpAddr>) -> DoctorReport {
        let mut checks = confinement::checks(&self.confinement);
        checks.extend(self.faults.iter().cloned());
        self.driver.doctor(peer, checks)
    }

    /// Continues the requested reports. Returns true if any report is unfinished.
    fn survey(&mut self) -> bool {
        if self.surveys.is_empty() {
            return false;
        }
        let gathered = self.surveys.proceed(self.clock, &self.driver.report());
        if let Some(Gathered { question, found }) = gathered {
            self.answer_survey(question, found);
        }
        !self.surveys.is_empty()
    }

    fn answer_survey(&mut self, question: Question, found: Found) {
        // An error of `send` means that the requester no longer waits for the answer.
        match question {
            Question::Status(_, reply) => {
                self.driver.count_passed();
                let (turns, confinement) = (self.turns.report(), self.confinement.clone());
                let status = self.driver.report().status(found, turns, confinement);
                let _ = reply.send(Response::Status(Box::new(status)));
            }
            Question::Paths(reply) => {
                let _ = reply.send(Response::Paths(PathsReport { associations: found.associations }));
            }
            Question::Explain(destination, reply) => {
                let explanation = self.driver.report().explain(destination, found.live);
                let _ = reply.send(Response::Explanation(Box::new(explanation)));
            }
            Question::Links(reply) => {
                let _ = reply.send(self.driver.report().link_readings(found.links));
            }
        }
    }
}
