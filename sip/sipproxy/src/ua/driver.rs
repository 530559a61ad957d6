//! The event loop of the user agent: transport, RTP, timers, and the schedule of calls.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;
use mio::net::{UdpSocket, UnixStream};
use mio::{Events, Interest, Poll, Token};
use sip::agent::{Agent, AgentConfig, AgentEvent, AgentOutput, CallId};
use sip::proxy::Listener;
use sip::transaction::Timers;
use sip::{Hop, Limits, Transport};

use super::args::UaArgs;
use super::in_flags;
use super::rtp::{self, Sender};
use super::statistics::Statistics;
use crate::clock::Clock;
use crate::config::{KnownPeer, SctpCarrier, SctpConfig, Secure};
use crate::error::SipError;
use crate::server::{SIGNALS, in_whole_milliseconds, signals};
use crate::transport::{self, Bounds, Inbox, ListenerIndex, Plugin, TlsContext, TlsFiles};

/// Token of the RTP socket.
const SOUND: Token = Token(usize::MAX - 1);
/// Limit on RTP packets read in one turn.
const PACKETS_PER_TURN: usize = 256;
/// Registration lifetime to request.
const EXPIRES: Duration = Duration::from_secs(300);
/// Time limit for the end of the program: hanging up, unregistering and closing.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The phase of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Waiting for the registration.
    Registering,
    /// Making and answering calls.
    Working,
    /// Waiting for the end of the current calls. No new calls begin.
    HangingUp,
    /// Waiting for the response to the removal of the registration.
    Unregistering,
    /// Closing the connection.
    Closing,
}

/// A running user agent.
pub(super) struct Driver<'a> {
    args: &'a UaArgs,
    clock: Clock,
    poll: Poll,
    _signals: UnixStream,
    agent: Agent,
    plugin: Box<dyn Plugin>,
    inbox: Inbox,
    /// RTP socket for the tones of calls; `None` without `--tone`.
    sound: Option<UdpSocket>,
    senders: BTreeMap<CallId, Sender>,
    tone: [u8; 160],
    /// Established outgoing calls, with the times at which to hang up.
    up: BTreeMap<CallId, Time>,
    next_call: Time,
    phase: Phase,
    /// Time at which the program ends, even if calls are still pending; `NEVER` before the end has begun.
    end_at: Time,
    statistics: Statistics,
}

impl<'a> Driver<'a> {
    pub(super) fn open(args: &'a UaArgs) -> Result<Driver<'a>, SipError> {
        let (clock, poll) = (Clock::start(), Poll::new().map_err(SipError::system("create a poll"))?);
        let signals = signals(&poll).map_err(SipError::system("wait for signals"))?;
        let listener = Listener { transport: args.transport, address: args.local };
        let bounds = Bounds {
            messages: Limits::default(),
            connections: args.calls_max,
            answer: Timers::default().long(),
        };
        let tls = (args.transport == Transport::Tls).then(|| tls(args)).transpose()?;
        let plugin =
            transport::open(ListenerIndex(0), listener, bounds, &sctp(args)?, tls.as_ref(), poll.registry())
                .map_err(in_flags)?;
        let rtp = args.tone.then(|| SocketAddr::new(args.local.ip(), args.rtp_port));
        let sound = rtp.map(|rtp| open_sound(rtp, &poll)).transpose()?;
        let now = clock.now();
        let mut agent = Agent::new(agent_config(args, listener, rtp)?, rand::random());
        if !args.no_register {
            agent.register(now, EXPIRES);
        }
        Ok(Driver {
            args,
            clock,
            poll,
            _signals: signals,
            agent,
            plugin,
            inbox: Inbox::default(),
            sound,
            senders: BTreeMap::new(),
            tone: rtp::tone(),
            up: BTreeMap::new(),
            next_call: now,
            phase: if args.no_register { Phase::Working } else { Phase::Registering },
            end_at: Time::NEVER,
            statistics: Statistics::default(),
        })
    }

    /// Runs until all calls have ended, a registration has failed, the time of `--stop-after` has passed, or a signal arrives. Then ends
    /// the current calls, unregisters and closes the connection.
    pub(super) fn run(mut self) -> Result<Statistics, SipError> {
        let mut ready = Events::with_capacity(256);
        let stop_at = self.args.stop_after.map_or(Time::NEVER, |after| self.clock.now() + after);
        self.turn(self.clock.now());
        while self.phase != Phase::Closing || !self.plugin.is_closed() {
            let wait = self.next_timeout().min(stop_at).since(self.clock.now());
            match self.poll.poll(&mut ready, Some(in_whole_milliseconds(wait))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(SipError::System { what: "wait for messages", source: error });
                }
                _ => {}
            }
            let now = self.clock.now();
            let is_told = ready.iter().any(|event| event.token() == SIGNALS);
            for event in &ready {
                match event.token() {
                    SIGNALS => {}
                    SOUND => self.hear(now),
                    token => self.plugin.handle_ready(now, ListenerIndex::of_token(token).1, &mut self.inbox),
                }
            }
            if (is_told || now >= stop_at) && self.end_at == Time::NEVER {
                self.begin_end(now);
            }
            if now >= self.end_at {
                break;
            }
            self.turn(now);
        }
        Ok(self.statistics)
    }

    fn next_timeout(&self) -> Time {
        let call = if self.may_call() && self.has_room() { self.next_call } else { Time::NEVER };
        let sound = self.senders.values().map(|sender| sender.next).min().unwrap_or(Time::NEVER);
        let hang_up = self.up.values().copied().min().unwrap_or(Time::NEVER);
        let all = [self.agent.next_timeout(), self.plugin.next_timeout(), call, sound, hang_up, self.end_at];
        all.into_iter().min().unwrap_or(Time::NEVER)
    }

    fn turn(&mut self, now: Time) {
        if self.plugin.next_timeout() <= now {
            self.plugin.handle_timeout(now, &mut self.inbox);
        }
        self.agent.handle_timeout(now);
        self.begin_calls(now);
        self.hang_up_calls(now);
        self.speak(now);
        self.exchange(now);
        self.go_on(now);
        self.exchange(now);
    }

    /// Passes input to the agent, and executes its outputs.
    fn exchange(&mut self, now: Time) {
        loop {
            for (hop, bytes) in std::mem::take(&mut self.inbox.messages) {
                self.agent.handle_message(now, hop, bytes);
            }
            for failure in self.inbox.take_failures() {
                self.agent.handle_send_failure(now, failure);
            }
            for lost in std::mem::take(&mut self.inbox.lost) {
                self.agent.handle_lost_request(now, lost);
            }
            // ICMP reports are ignored, because they may be forged. The agent waits for responses instead.
            self.inbox.unreachable.clear();
            let mut is_done = true;
            while let Some(output) = self.agent.poll_output() {
                is_done = false;
                match output {
                    AgentOutput::Send(message) => self.plugin.send(now, message, &mut self.inbox),
                    AgentOutput::Event(event) => self.on_event(now, event),
                }
            }
            self.plugin.finish_turn(now, &mut self.inbox);
            if is_done && self.inbox.is_empty() {
                return;
            }
        }
    }

    fn on_event(&mut self, now: Time, event: AgentEvent) {
        tracing::info!(?event);
        // The response to the removal of the registration is not counted.
        if self.phase != Phase::Unregistering {
            self.statistics.note(&event);
        }
        if let AgentEvent::NotRegistered { is_answer, .. } | AgentEvent::Failed { is_answer, .. } = event {
            self.statistics.silence = (!is_answer).then(|| self.silence());
        }
        if self.phase == Phase::Working && matches!(event, AgentEvent::Ended { .. }) {
            self.statistics.completed += 1;
            if let Some((_, end)) = &mut self.statistics.calling {
                *end = now;
            }
        }
        match event {
            AgentEvent::Registered { .. } if self.phase == Phase::Registering && self.registers_again() => {
                self.agent.register(now, EXPIRES);
            }
            AgentEvent::Registered { .. } if self.phase == Phase::Registering => {
                (self.phase, self.next_call) = (Phase::Working, now);
            }
            AgentEvent::Registered { .. } | AgentEvent::NotRegistered { .. } => {
                if matches!(self.phase, Phase::Registering | Phase::Unregistering) {
                    self.close(now);
                }
            }
            AgentEvent::Answered { call, is_caller, rtp, .. } => {
                if is_caller {
                    self.up.insert(call, now + self.args.duration);
                }
                if let Some(peer) = rtp.filter(|_| self.args.tone) {
                    self.senders.insert(call, Sender::new(now, peer, rand::random()));
                }
            }
            AgentEvent::Ended { call, .. } | AgentEvent::Failed { call, .. } => {
                self.up.remove(&call);
                self.senders.remove(&call);
            }
        }
    }

    /// Describes the reason for the missing response.
    fn silence(&self) -> String {
        let (proxy, transport) = (self.args.proxy, self.args.transport);
        let is_up = self.plugin.seen(0).any(|seen| matches!(seen.state, "ESTABLISHED" | "connected"));
        let name = transport.as_str();
        match transport {
            Transport::Sctp if !is_up => {
                let carrier =
                    self.args.sctp_udp_port.map(|port| format!(" (UDP {port})")).unwrap_or_default();
                let why = self.inbox.ended.unwrap_or("no answer");
                format!("no SCTP association with {proxy}{carrier}: {why}")
            }
            Transport::Tcp | Transport::Tls if !is_up => format!("no {name} connection with {proxy}"),
            _ => format!("no answer from {proxy} over {name}"),
        }
    }

    fn may_call(&self) -> bool {
        let is_left = self.statistics.begun < self.args.calls;
        self.phase == Phase::Working && self.args.call.is_some() && is_left
    }

    fn has_room(&self) -> bool {
        self.agent.calls() < self.args.calls_max
    }

    fn registers_again(&self) -> bool {
        self.statistics.registrations() < self.args.registrations as usize
    }

    fn begin_calls(&mut self, now: Time) {
        while self.may_call() && self.next_call <= now {
            // At the limit on concurrent calls, the next call begins when a current call ends.
            if !self.has_room() {
                self.next_call = now;
                return;
            }
            let Some(uri) = &self.args.call else { return };
            self.next_call += Duration::from_secs_f64(1.0 / self.args.rate.unwrap_or(1.0));
            if self.agent.call(now, uri).is_some() {
                self.statistics.begun += 1;
                self.statistics.calling.get_or_insert((now, now));
            }
        }
    }

    fn hang_up_calls(&mut self, now: Time) {
        let due: Vec<CallId> = self.up.iter().filter(|(_, at)| **at <= now).map(|(call, _)| *call).collect();
        for call in due {
            self.up.remove(&call);
            self.senders.remove(&call);
            self.agent.hang_up(now, call);
        }
    }

    /// Enters the next phase, if the current one has ended.
    fn go_on(&mut self, now: Time) {
        let has_called = self.args.call.is_some() && self.statistics.begun >= self.args.calls;
        if self.phase == Phase::Working && has_called && self.agent.calls() == 0 {
            self.begin_end(now);
        }
        if self.phase == Phase::HangingUp && self.agent.calls() == 0 {
            if self.args.no_register {
                self.close(now);
            } else {
                self.phase = Phase::Unregistering;
                self.agent.register(now, Duration::ZERO);
            }
        }
    }

    fn begin_end(&mut self, now: Time) {
        (self.phase, self.end_at) = (Phase::HangingUp, now + END_LIMIT);
        self.up.values_mut().for_each(|at| *at = now);
        self.hang_up_calls(now);
    }

    fn close(&mut self, now: Time) {
        self.phase = Phase::Closing;
        self.end_at = self.end_at.min(now + END_LIMIT);
        self.plugin.begin_close(now);
    }

    fn speak(&mut self, now: Time) {
        let Some(sound) = &self.sound else { return };
        for sender in self.senders.values_mut() {
            while sender.next <= now {
                let packet = sender.packet(&self.tone);
                // Packets that the kernel does not accept are lost, as on the wire.
                if sound.send_to(&packet, sender.peer).is_ok() {
                    self.statistics.sent += 1;
                }
            }
        }
    }

    fn hear(&mut self, now: Time) {
        let Some(sound) = &mut self.sound else { return };
        let mut buffer = [0; 2048];
        for _ in 0..PACKETS_PER_TURN {
            match sound.recv_from(&mut buffer) {
                Ok((length, _)) => self.statistics.receiver.handle(now, &buffer[..length]),
                Err(_) => return,
            }
        }
        // The poll is edge-triggered. After the socket is registered again, the poll reports the remaining packets.
        let _ = self.poll.registry().reregister(sound, SOUND, Interest::READABLE);
    }
}

fn open_sound(address: SocketAddr, poll: &Poll) -> Result<UdpSocket, SipError> {
    let failed = |source| SipError::Flag { transport: "RTP", address, source, flag: "--rtp-port" };
    let mut socket = UdpSocket::bind(address).map_err(failed)?;
    poll.registry().register(&mut socket, SOUND, Interest::READABLE).map_err(failed)?;
    Ok(socket)
}

/// Returns the settings of SCTP. A key of the proxy requires encryption, unless the options say otherwise.
///
/// # Errors
/// If the options about encryption contradict each other.
pub(super) fn sctp(args: &UaArgs) -> Result<SctpConfig, SipError> {
    let peers = args.peer_key.map(|key| KnownPeer { address: args.proxy.ip(), key });
    let secure = args.secure.unwrap_or(if peers.is_some() { Secure::Require } else { Secure::Off });
    if secure == Secure::Off && (peers.is_some() || args.host_key.is_some()) {
        let problem = "--peer-key and --host-key have no effect without encryption: add --secure try or --secure require";
        return Err(SipError::Usage(problem.to_owned()));
    }
    if secure != Secure::Off && args.transport != Transport::Sctp {
        return Err(SipError::Usage("--secure and --peer-key need --transport sctp".to_owned()));
    }
    let config = SctpConfig {
        secure,
        host_key: args.host_key.clone(),
        known_peers_only: secure == Secure::Require && peers.is_some(),
        peers: peers.into_iter().collect(),
        ..SctpConfig::default()
    };
    Ok(match args.sctp_udp_port {
        None => config,
        Some(port) => SctpConfig { carrier: SctpCarrier::Udp, udp_port: port, peer_udp_port: port, ..config },
    })
}

fn agent_config(args: &UaArgs, listener: Listener, rtp: Option<SocketAddr>) -> Result<AgentConfig, SipError> {
    let is_word = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b'>');
    let parts = args.user.split_once('@').filter(|(user, domain)| is_word(user) && is_word(domain));
    let Some((user, domain)) = parts else {
        return Err(SipError::Usage(format!("invalid user `{}`: expected --user USER@DOMAIN", args.user)));
    };
    if let Some(uri) = args.call.as_deref().filter(|uri| sip::Uri::parse(uri.as_bytes()).is_err()) {
        return Err(SipError::Usage(format!("invalid URI `{uri}`: expected --call sip:USER@DOMAIN")));
    }
    if listener.address.ip().is_unspecified() || listener.address.is_ipv4() != args.proxy.is_ipv4() {
        let problem = "--local must be one address of this host, of the same family as --proxy";
        return Err(SipError::Usage(problem.to_owned()));
    }
    let proxy = Hop { listener: 0, transport: args.transport, address: args.proxy, connection: None };
    Ok(AgentConfig {
        user: user.to_owned(),
        domain: domain.to_owned(),
        password: args.password.clone(),
        listener,
        proxy,
        rtp,
        ring: args.ring,
        calls_max: args.calls_max,
        timers: Timers::default(),
    })
}

/// Builds the TLS context. The proxy must prove the user's domain. Incoming connections are not accepted.
pub(super) fn tls(args: &UaArgs) -> Result<TlsContext, SipError> {
    let context = TlsContext::load(&TlsFiles { own: None, roots: args.roots.clone() });
    let mut context = context.map_err(SipError::Usage)?;
    context.domain = args.user.split('@').nth(1).map(Into::into);
    Ok(context)
}
