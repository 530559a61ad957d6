//! The event loop of the proxy: plug-ins deliver messages to the core, and the loop stores and sends the core's outputs.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use mio::net::UnixStream;
use mio::{Events, Interest, Poll, Token};
use ops::Page;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sip::Hop;
use sip::proxy::{Listener, Lookup, Output, Presence, Proxy, ProxyConfig, Query, Shared, fingerprint};

use crate::clock::Clock;
use crate::config::Config;
use crate::control_socket::{Asked, ControlSocket, Desk, QUESTIONS};
use crate::error::SipError;
use crate::hep::Hep;
use crate::page;
use crate::questions::Questions;
use crate::report;
use crate::resolver::Resolver;
use crate::stage::{Stage, Wish};
use crate::store::{Own, Store};
use crate::trace::{Direction, Taps};
use crate::transport::{self, Bounds, Inbox, ListenerIndex, Plugin};

/// Token of SIGINT in the proxy, and of SIGINT and SIGTERM in the user agent. It is distinct from the plug-ins' tokens.
pub(crate) const SIGNALS: Token = Token(usize::MAX);
/// Token of SIGTERM in the proxy.
const TERMINATIONS: Token = Token(usize::MAX - 3);
/// Token of SIGHUP.
const HANGUPS: Token = Token(usize::MAX - 2);
/// Limit on the rounds of a turn. A round handles received messages and failures, and sends messages. Messages and failures after the last
/// round wait for the next turn.
const ROUNDS_MAX: usize = 64;

/// Interval at which free memory returns to the kernel. The core sweeps its tables at the same interval.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(60);
/// Niceness of the threads that serve the control socket and the page.
const NICENESS: i32 = 10;

/// A running proxy.
pub(crate) struct Server {
    clock: Clock,
    poll: Poll,
    interrupts: UnixStream,
    terminations: UnixStream,
    hangups: UnixStream,
    questions: Questions,
    taps: Taps,
    hep: Option<Hep>,
    resolver: Option<Resolver>,
    /// Settings from the configuration file.
    config: Config,
    /// Path of the configuration file.
    path: PathBuf,
    proxy: Proxy,
    store: Store,
    plugins: Vec<Box<dyn Plugin>>,
    inbox: Inbox,
    /// Time at which free memory next returns to the kernel. No timer is needed, because a wait of the loop ends after 60 seconds.
    give_back_at: Time,
    stage: Stage,
}

impl Server {
    /// Opens the sockets, the store and everything else that the configuration names.
    ///
    /// # Errors
    /// If an address, the store or another resource cannot be opened.
    pub(crate) fn open(config: Config, path: &Path) -> Result<Server, SipError> {
        let clock = Clock::start();
        let poll = Poll::new().map_err(SipError::system("create a poll"))?;
        let pipe = |signal: i32, token: Token| {
            signal_pipe(&poll, &[signal], token).map_err(SipError::system("wait for signals"))
        };
        let (interrupts, terminations) = (pipe(SIGINT, SIGNALS)?, pipe(SIGTERM, TERMINATIONS)?);
        let hangups = pipe(SIGHUP, HANGUPS)?;
        let (desk, questions) = Desk::open(poll.registry()).map_err(SipError::system("create a waker"))?;
        let control =
            config.control.as_deref().map(|path| ControlSocket::open(path, desk.clone())).transpose()?;
        let page = bind_page(config.page_port)?;
        let mut store = Store::open(config.store.as_ref(), own(&config)?, clock, desk.waker())?;
        let listeners = config.proxy.listeners.clone();
        let mut plugins = Vec::new();
        for (index, listener) in listeners.iter().enumerate() {
            plugins.push(open_plugin(ListenerIndex(index), listener, &config, &poll)?);
            let (transport, address) = (listener.transport.as_str(), listener.address);
            tracing::info!(transport, %address, "listening");
        }
        let hep = config.hep.map(|(collector, agent)| Hep::open(collector, agent)).transpose();
        let hep = hep.map_err(SipError::system("reach the collector of [hep]"))?;
        let resolver = (!config.name_servers.is_empty())
            .then(|| Resolver::open(&config.name_servers, &listeners, desk.waker()))
            .transpose()?;
        let now = clock.now();
        let shared = store.shared().map(|store| Shared { origin: store.origin() });
        let mut proxy = Proxy::new(now, ProxyConfig { shared, ..config.proxy.clone() }, rand::random());
        if config.store.is_some() {
            let bindings = store.restore(clock, listeners.len(), &mut proxy)?;
            tracing::info!(bindings, "bindings restored");
        }
        if let Some(control) = control {
            spawn_behind("control", move || control.run())?;
        }
        if let Some(page) = page {
            spawn_behind("page", move || page::run(page, desk))?;
        }
        Ok(Server {
            clock,
            poll,
            interrupts,
            terminations,
            hangups,
            questions: Questions::new(questions),
            taps: Taps::default(),
            hep,
            resolver,
            config,
            path: path.to_owned(),
            proxy,
            store,
            plugins,
            inbox: Inbox::default(),
            give_back_at: now + GIVE_BACK_EVERY,
            stage: Stage::Running,
        })
    }

    /// Runs the proxy. After SIGTERM or SIGINT, returns when the shutdown is complete or its time limit has passed.
    ///
    /// # Errors
    /// If the poll or the store fails.
    pub(crate) fn run(mut self) -> Result<(), SipError> {
        let mut ready = Events::with_capacity(1024);
        loop {
            let wait = self.next_timeout().since(self.clock.now());
            match self.poll.poll(&mut ready, Some(in_whole_milliseconds(wait))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(SipError::System { what: "wait for messages", source: error });
                }
                _ => {}
            }
            let now = self.clock.now();
            for event in &ready {
                match event.token() {
                    SIGNALS => self.end_by(now, Wish::EndNow)?,
                    TERMINATIONS => self.end_by(now, Wish::End)?,
                    HANGUPS => self.reload(),
                    QUESTIONS => {
                        self.questions.look();
                        self.take_resolved(now);
                        if let Some(store) = self.store.shared() {
                            store.tell(now, &mut self.proxy);
                        }
                    }
                    _ => {}
                }
                let (index, number) = ListenerIndex::of_token(event.token());
                if let Some(plugin) = self.plugins.get_mut(index.0) {
                    plugin.handle_ready(now, number, &mut self.inbox);
                }
            }
            self.turn(now)?;
            self.answer_question();
            self.give_back_memory(now);
            self.leave_if_drained(now)?;
            if self.may_end(now) {
                tracing::info!(counters = ?self.proxy.counters(), "stopped");
                return Ok(());
            }
        }
    }

    /// Handles SIGTERM or SIGINT. Several signals may have arrived at once.
    fn end_by(&mut self, now: Time, wish: Wish) -> Result<(), SipError> {
        let pipe = if wish == Wish::End { &mut self.terminations } else { &mut self.interrupts };
        for _ in 0..taken(pipe) {
            self.enter(now, self.stage.after(wish, now, self.config.drain))?;
        }
        Ok(())
    }

    fn enter(&mut self, now: Time, next: Stage) -> Result<(), SipError> {
        let before = std::mem::replace(&mut self.stage, next);
        match (before, next) {
            (Stage::Running, Stage::Draining { until }) => {
                self.proxy.begin_drain();
                self.say(Presence::Draining);
                let (transactions, seconds) = (self.proxy.transactions_left(), until.since(now).as_secs());
                tracing::info!(
                    transactions,
                    seconds,
                    "draining: waiting for pending transactions, up to a limit"
                );
                Ok(())
            }
            (Stage::Running | Stage::Draining { .. }, Stage::Leaving { .. }) => self.take_leave(now),
            _ => Ok(()),
        }
    }

    /// Rejects the remaining requests, then shuts down the connections whose transport can notify the peer.
    fn take_leave(&mut self, now: Time) -> Result<(), SipError> {
        let requests = self.proxy.cut_off(now);
        if requests > 0 {
            tracing::warn!(requests, "refused the remaining requests");
        }
        self.say(Presence::Gone);
        self.deliver(now)?;
        for plugin in &mut self.plugins {
            plugin.finish_turn(now, &mut self.inbox);
            plugin.begin_close(now);
        }
        Ok(())
    }

    /// Announces this proxy's state to the proxies that share its users.
    fn say(&self, presence: Presence) {
        if let Some(store) = self.store.shared() {
            store.say(presence);
        }
    }

    fn leave_if_drained(&mut self, now: Time) -> Result<(), SipError> {
        match self.stage {
            Stage::Draining { until } if until <= now || self.proxy.is_drained() => {
                self.enter(now, Stage::leaving(now))
            }
            _ => Ok(()),
        }
    }

    /// Handles SIGHUP: reads the configuration file again. Work in progress continues, and an invalid file changes nothing.
    fn reload(&mut self) {
        taken(&mut self.hangups);
        let new = match Config::read(&self.path) {
            Ok(new) => new,
            Err(error) => return tracing::error!(%error, "not reloaded"),
        };
        if let Some(key) = self.config.fixed_change(&new) {
            return tracing::error!(key, "not reloaded: this can only be changed by a restart");
        }
        if let Some(tls) = &new.tls {
            self.plugins.iter_mut().for_each(|plugin| plugin.set_tls(tls));
        }
        self.plugins.iter_mut().for_each(|plugin| plugin.set_answer(new.proxy.timers.long()));
        self.proxy.set_config(new.proxy.clone());
        self.config = new;
        tracing::info!("reloaded");
    }

    /// Answers the next question. If the requester has gone, the answer is discarded.
    fn answer_question(&mut self) {
        let now = self.clock.now();
        let Some(asked) = self.questions.next(now) else { return };
        match asked {
            Asked::Look(question, back) => {
                let store = report::StoreReport::of(&self.config, &self.store);
                let answer = report::answer(
                    &question,
                    now,
                    &self.proxy,
                    self.stage,
                    &self.config,
                    &self.plugins,
                    store,
                );
                let _ = back.try_send(answer);
            }
            Asked::Listen(back) => _ = back.try_send(self.taps.open()),
        }
        self.questions.answered(now, self.clock.now());
    }

    /// Returns free memory to the kernel. After a burst of messages the heap is fragmented, and the allocator would keep most of the free
    /// memory.
    fn give_back_memory(&mut self, now: Time) {
        if now >= self.give_back_at {
            self.give_back_at = now + GIVE_BACK_EVERY;
            netio::give_back_free_memory();
        }
    }

    fn take_resolved(&mut self, now: Time) {
        while let Some(found) = self.resolver.as_ref().and_then(Resolver::next) {
            self.proxy.handle_resolved(now, found.lookup, found.targets, found.good_for);
        }
    }

    fn may_end(&self, now: Time) -> bool {
        let Stage::Leaving { until } = self.stage else { return false };
        let has_left = self.store.shared().is_none_or(|store| store.has_left());
        until <= now || (has_left && self.plugins.iter().all(|plugin| plugin.is_closed()))
    }

    fn next_timeout(&self) -> Time {
        if !self.inbox.is_empty() {
            return Time::ZERO;
        }
        let plugins = self.plugins.iter().map(|plugin| plugin.next_timeout());
        let own = [self.proxy.next_timeout(), self.questions.next_timeout(), self.stage.next_timeout()];
        plugins.chain(own).min().unwrap_or(Time::NEVER)
    }

    /// Runs one turn: handles timers, and then up to [`ROUNDS_MAX`] rounds of messages and failures.
    fn turn(&mut self, now: Time) -> Result<(), SipError> {
        for plugin in &mut self.plugins {
            if plugin.next_timeout() <= now {
                plugin.handle_timeout(now, &mut self.inbox);
            }
        }
        self.proxy.handle_timeout(now);
        for _ in 0..ROUNDS_MAX {
            for (hop, bytes) in std::mem::take(&mut self.inbox.messages) {
                self.note(Direction::In, hop, &bytes);
                self.proxy.handle_message(now, hop, bytes);
            }
            for failure in std::mem::take(&mut self.inbox.failures) {
                self.proxy.handle_send_failure(now, failure);
            }
            for lost in std::mem::take(&mut self.inbox.lost) {
                self.proxy.handle_lost_request(now, lost);
            }
            for refused in std::mem::take(&mut self.inbox.refused) {
                self.proxy.handle_congestion(now, refused);
            }
            for (address, quoted) in std::mem::take(&mut self.inbox.unreachable) {
                self.proxy.handle_unreachable(now, address, &quoted);
            }
            self.deliver(now)?;
            for plugin in &mut self.plugins {
                plugin.finish_turn(now, &mut self.inbox);
            }
            if self.inbox.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn resolve(&mut self, now: Time, lookup: Lookup) {
        if let Some(refused) = self.resolver.as_ref().and_then(|resolver| resolver.ask(lookup)) {
            self.proxy.handle_resolved(now, refused.lookup, refused.targets, refused.good_for);
        }
    }

    fn ask_store(&mut self, now: Time, query: Query) {
        let ticket = query.ticket;
        if let Some(finding) = self.store.shared().and_then(|store| store.ask(query)) {
            self.proxy.handle_found(now, ticket, finding);
        }
    }

    /// Passes a message to the tracers and to the HEP collector.
    fn note(&mut self, direction: Direction, hop: Hop, bytes: &Bytes) {
        if let Some(listener) = self.config.proxy.listeners.get(hop.listener) {
            self.taps.note(direction, hop.transport, listener.address, hop.address, bytes);
            if let Some(hep) = &self.hep {
                hep.note(direction, hop.transport, listener.address, hop.address, bytes);
            }
        }
    }

    /// Stores changes, then sends messages. A response therefore never confirms a change that is not persistent.
    fn deliver(&mut self, now: Time) -> Result<(), SipError> {
        let (mut changes, mut messages) = (Vec::new(), Vec::new());
        while let Some(output) = self.proxy.poll_output() {
            match output {
                Output::Store(change) => changes.push(change),
                Output::Send(message) => messages.push(message),
                Output::Resolve(lookup) => self.resolve(now, lookup),
                Output::Ask(query) => self.ask_store(now, query),
            }
        }
        if let Store::Local(store) = &mut self.store {
            store.write(now, &changes)?;
        }
        for message in messages {
            self.note(Direction::Out, message.hop, &message.bytes);
            if let Some(plugin) = self.plugins.get_mut(message.hop.listener) {
                plugin.send(now, message, &mut self.inbox);
            }
        }
        Ok(())
    }
}

/// Returns this proxy's identity among the proxies that share its users.
fn own(config: &Config) -> Result<Own, SipError> {
    let first = config.proxy.listeners.first();
    let address = first.ok_or(SipError::Usage("no listener is configured".to_owned()))?.address;
    let fingerprint = config.proxy.dialog_secret.as_ref().map(fingerprint).unwrap_or_default();
    Ok(Own { address, fingerprint })
}

/// Binds the page's port. Returns `None` if the port is 0.
fn bind_page(port: u16) -> Result<Option<Page>, SipError> {
    let bound = (port != 0).then(|| Page::bind(port)).transpose();
    bound.map_err(|source| SipError::Page { port, source })
}

/// Starts a thread of low priority, because the serialization of long lists must not delay messages. Threads that this thread starts
/// inherit its priority.
fn spawn_behind(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), SipError> {
    spawn(name, move || {
        // The call affects only the calling thread (setpriority(2), NOTES). Raising the niceness is always permitted.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        run();
    })
}

/// Starts a thread that ends with the program.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), SipError> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map(drop).map_err(SipError::system("start a thread"))
}

fn open_plugin(
    index: ListenerIndex,
    listener: &Listener,
    config: &Config,
    poll: &Poll,
) -> Result<Box<dyn Plugin>, SipError> {
    let ProxyConfig { messages, timers, .. } = &config.proxy;
    let limits = Bounds { messages: *messages, connections: config.connections, answer: timers.long() };
    transport::open(index, *listener, limits, &config.sctp, config.tls.as_ref(), poll.registry())
}

/// Empties a pipe of [`signal_pipe`], and returns the number of signals that were in it.
fn taken(pipe: &mut UnixStream) -> usize {
    let mut all = 0;
    while let Ok(length @ 1..) = pipe.read(&mut [0; 64]) {
        all += length;
    }
    all
}

/// Returns a socket that becomes readable on SIGTERM or SIGINT.
pub(crate) fn signals(poll: &Poll) -> io::Result<UnixStream> {
    signal_pipe(poll, &[SIGTERM, SIGINT], SIGNALS)
}

/// Returns a socket that becomes readable on one of the signals.
fn signal_pipe(poll: &Poll, signals: &[i32], token: Token) -> io::Result<UnixStream> {
    let (read, write) = StdUnixStream::pair()?;
    read.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
    }
    let mut read = UnixStream::from_std(read);
    poll.registry().register(&mut read, token, Interest::READABLE)?;
    Ok(read)
}

/// Rounds a wait up to the poll's resolution, so the poll does not end before an event is due. Limits the wait to 60 seconds.
pub(crate) fn in_whole_milliseconds(wait: Duration) -> Duration {
    let wait = wait.min(Duration::from_secs(60));
    Duration::from_millis(u64::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(0))
}
