//! The event loop's access to a store that several proxies share: asynchronous queries and results.
//!
//! One thread has a connection for commands. It sends all waiting queries to the server together. It announces this proxy's state every two
//! seconds, and at once when the state changes. Another thread has a connection for notifications. It delivers each changed record to the
//! loop, and all records after a reconnection. Both threads reconnect by themselves, with a delay that doubles from 100 ms to 5 s. Without
//! a connection for commands, queries fail at once.
//!
//! Invariants:
//!
//! - Each query is answered once.
//! - Up to [`QUEUE_MAX`] queries wait. Results and notifications share another queue, with a limit of 2 × [`QUEUE_MAX`].
//!
//! Begin with [`Shared::open`].

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::Time;
use mio::Waker;
use sip::proxy::{Finding, Presence, Proxy, Query, Record, Wanted};

use super::StoreAddress;
use super::backend::{Backend, Command, Commands, Event, Failure, News, Reply};
use super::own::Own;
use super::postgres::Postgres;
use super::record::{self, decode, encode, key_of};
use super::redis::Redis;
use crate::clock::Clock;
use crate::error::SipError;

/// Limit on waiting queries. The queue of results and notifications for the loop has twice this size.
const QUEUE_MAX: usize = 10_000;
/// Limit on queries sent to the server together.
const BATCH_MAX: usize = 128;
/// Limit on results that the loop takes in one turn.
const TURN_MAX: usize = 1000;
/// Interval between this proxy's heartbeats, which announce its state.
const BEAT: Duration = Duration::from_secs(2);
/// Limit on the time without notifications. After this time, the connection counts as dead. This proxy's own heartbeats are notifications
/// too.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Delay before the next attempt to connect: its initial value and its maximum.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Limit on the length of a key in queries, in bytes. PostgreSQL cannot index much longer keys.
const KEY_MAX: usize = 1024;

/// State of the connections to the store, for people and metrics.
#[derive(Debug, Default)]
pub(crate) struct StoreState {
    takes_commands: AtomicBool,
    reports_changes: AtomicBool,
    failures: AtomicU64,
    problem: Mutex<String>,
}

impl StoreState {
    /// Reports whether both connections work.
    pub(crate) fn is_up(&self) -> bool {
        self.takes_commands.load(Ordering::Relaxed) && self.reports_changes.load(Ordering::Relaxed)
    }

    /// Returns the number of failures since the start: lost connections, and failed attempts to connect or to query.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the text of the last error.
    pub(crate) fn problem(&self) -> String {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records whether a connection works, and counts failures. Logs once that it fails, and once that it works again.
    fn note(&self, connection: Connection, store: &str, result: Result<(), &str>) {
        let flag = match connection {
            Connection::Commands => &self.takes_commands,
            Connection::Changes => &self.reports_changes,
        };
        let was_up = flag.swap(result.is_ok(), Ordering::Relaxed);
        let Err(problem) = result else {
            if !was_up {
                tracing::info!(store, "{} again", connection.good());
            }
            return;
        };
        self.failures.fetch_add(1, Ordering::Relaxed);
        problem.clone_into(&mut self.problem.lock().unwrap_or_else(PoisonError::into_inner));
        if was_up {
            tracing::error!(store, problem, "{}", connection.bad());
        }
    }
}

/// A connection to the store.
#[derive(Clone, Copy)]
enum Connection {
    Commands,
    /// The connection that reports changes (`SUBSCRIBE` or `LISTEN`).
    Changes,
}

impl Connection {
    fn good(self) -> &'static str {
        match self {
            Connection::Commands => "the store answers",
            Connection::Changes => "the store reports changes",
        }
    }

    fn bad(self) -> &'static str {
        match self {
            Connection::Commands => {
                "the store does not answer: registrations get 503; calls use known contacts"
            }
            Connection::Changes => "the store does not report changes: calls use known contacts",
        }
    }
}

/// A message from a thread to the event loop: a result or a notification.
enum Told {
    Found(u64, Finding),
    /// Start of a transfer of all records.
    Begin,
    Record(String, Record),
    /// End of the transfer of all records.
    End,
    /// State of a proxy.
    Presence(SocketAddr, Presence),
}

/// The server's clock, computed from this program's clock.
struct StoreClock {
    clock: Clock,
    /// Reading of the server's clock at the start of this program's clock, in milliseconds since 1970.
    origin_ms: AtomicU64,
}

impl StoreClock {
    fn now(&self) -> (Time, Duration) {
        let now = self.clock.now();
        (now, Duration::from_millis(self.origin_ms.load(Ordering::Relaxed) + now.as_millis()))
    }

    /// Adjusts this clock to the server's time, in milliseconds since 1970.
    fn set(&self, server_ms: u64) {
        self.origin_ms.store(server_ms.saturating_sub(self.clock.now().as_millis()), Ordering::Relaxed);
    }
}

struct Question {
    ticket: u64,
    command: Command,
}

/// A request from the event loop to the command thread.
enum Errand {
    Ask(Question),
    /// An announcement of this proxy's state.
    Beat,
}

/// State that the command thread and the notification thread share.
struct Common {
    backend: Box<dyn Backend>,
    /// Name of the store, without secrets.
    name: String,
    own: Own,
    /// This proxy's state.
    presence: Mutex<Presence>,
    /// True once this proxy's end has been announced, or could not be announced.
    has_left: AtomicBool,
    clock: StoreClock,
    state: Arc<StoreState>,
    told: SyncSender<Told>,
    waker: Arc<Waker>,
}

/// The event loop's handle to the store.
pub(crate) struct Shared {
    common: Arc<Common>,
    errands: SyncSender<Errand>,
    told: Receiver<Told>,
    /// Resources for the command thread, until it starts.
    start: Option<(Box<dyn Commands>, Receiver<Errand>)>,
}

impl Shared {
    /// Connects to the server, and reads its time.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses the connection.
    pub(crate) fn open(
        address: &StoreAddress,
        own: Own,
        clock: Clock,
        waker: Arc<Waker>,
    ) -> Result<Shared, SipError> {
        let name = address.to_string();
        let backend: Box<dyn Backend> = match address {
            StoreAddress::Redis(url) => Box::new(Redis::new(url).map_err(super::failed(address))?),
            StoreAddress::Postgres(url) => Box::new(Postgres::new(url).map_err(super::failed(address))?),
            StoreAddress::File(_) => return Err(super::failed(address)("is not a server".to_owned())),
        };
        let mut commands = backend.connect().map_err(super::failed(address))?;
        for warning in commands.warnings() {
            tracing::warn!(store = name, "{warning}");
        }
        let server_ms = commands.beat(&own.to_text(Presence::Here)).map_err(super::failed(address))?;
        let clock = StoreClock { clock, origin_ms: AtomicU64::new(0) };
        clock.set(server_ms);
        let (errands, asked) = sync_channel(QUEUE_MAX);
        let (tell, told) = sync_channel(2 * QUEUE_MAX);
        let state = Arc::new(StoreState::default());
        state.takes_commands.store(true, Ordering::Relaxed);
        let (presence, has_left) = (Mutex::new(Presence::Here), AtomicBool::new(false));
        let common =
            Arc::new(Common { backend, name, own, presence, has_left, clock, state, told: tell, waker });
        Ok(Shared { common, errands, told, start: Some((commands, asked)) })
    }

    /// Returns the reading of the server's clock at the start of this program's clock.
    pub(crate) fn origin(&self) -> Duration {
        Duration::from_millis(self.common.clock.origin_ms.load(Ordering::Relaxed))
    }

    /// Returns the state of the store.
    pub(crate) fn state(&self) -> &StoreState {
        &self.common.state
    }

    /// Loads all records into the proxy, and starts the threads.
    ///
    /// # Errors
    /// If the records cannot be read, or a thread cannot be started.
    pub(super) fn begin(&mut self, proxy: &mut Proxy) -> Result<(), SipError> {
        let common = &self.common;
        let failed = || super::failed(&common.name);
        let mut news = common.backend.listen().map_err(failed())?;
        let loaded = news.load(&mut |version, text| {
            if let Some((user, record)) = common.decode(version, &text) {
                proxy.handle_record(&user, record);
            }
        });
        loaded.map_err(failed())?;
        common.state.reports_changes.store(true, Ordering::Relaxed);
        let listener = common.clone();
        crate::server::spawn("store news", move || listener.hear_forever(news))?;
        if let Some((commands, asked)) = self.start.take() {
            let asker = common.clone();
            crate::server::spawn("store", move || asker.ask_forever(commands, &asked))?;
        }
        Ok(())
    }

    /// Submits a query. Returns a finding at once if the key or text is too long, or the queue is full.
    pub(crate) fn ask(&self, query: Query) -> Option<Finding> {
        let (now, today) = self.common.clock.now();
        let command = match query.wanted {
            Wanted::Read { user } => Command::Read { key: key_of(&user) },
            Wanted::Replace { user, version, bindings } => Command::Replace {
                key: key_of(&user),
                text: encode(&user, &bindings, now, today),
                is_gone: bindings.is_empty(),
                expires_ms: record::end_of(&bindings, now, today),
                version,
            },
            Wanted::Use { nonce, count, lifetime } => {
                Command::Use { nonce, count, expires_ms: record::milliseconds(today + lifetime) }
            }
        };
        match command {
            Command::Read { key } if key.len() > KEY_MAX => Some(Finding::Is(Record::default())),
            Command::Replace { key, text, .. } if key.len() > KEY_MAX || text.len() > record::TEXT_MAX => {
                Some(Finding::Failed)
            }
            command => {
                let question = Question { ticket: query.ticket, command };
                let asked = self.errands.try_send(Errand::Ask(question));
                asked.is_err().then_some(Finding::Failed)
            }
        }
    }

    /// Announces this proxy's new state to the other proxies.
    pub(crate) fn say(&self, presence: Presence) {
        *self.common.presence.lock().unwrap_or_else(PoisonError::into_inner) = presence;
        // If the queue is full, the next heartbeat announces the state.
        let _ = self.errands.try_send(Errand::Beat);
    }

    /// Reports whether this proxy's end has been announced to the other proxies, or could not be announced. Shutdown waits until this
    /// function returns true.
    pub(crate) fn has_left(&self) -> bool {
        self.common.has_left.load(Ordering::Relaxed)
    }

    /// Delivers up to [`TURN_MAX`] results to the proxy. If more results may wait, wakes the loop again.
    pub(crate) fn tell(&self, now: Time, proxy: &mut Proxy) {
        let mut heard = 0;
        for told in self.told.try_iter().take(TURN_MAX) {
            heard += 1;
            match told {
                Told::Found(ticket, finding) => proxy.handle_found(now, ticket, finding),
                Told::Begin => proxy.begin_records(),
                Told::Record(user, record) => proxy.handle_record(&user, record),
                Told::End => proxy.end_records(),
                Told::Presence(address, presence) => {
                    let is_new = proxy.handle_presence(now, address, presence);
                    if is_new && address != self.common.own.address {
                        tracing::info!(%address, ?presence, "another proxy shares our users");
                    }
                }
            }
        }
        if heard == TURN_MAX {
            // Several wake-ups may become one, so the remaining results may not cause another wake-up.
            let _ = self.common.waker.wake();
        }
    }
}

impl Common {
    /// Decodes a record and its user. Returns `None` for an invalid text.
    fn decode(&self, version: u64, text: &str) -> Option<(String, Record)> {
        let (now, today) = self.clock.now();
        decode(version, text, now, today)
    }

    /// Sends a result to the loop. Returns false if the loop has ended.
    fn tell(&self, told: Told) -> bool {
        self.told.send(told).is_ok() && self.waker.wake().is_ok()
    }

    /// Returns the delay before the next attempt, and doubles it up to the maximum.
    fn back_off(wait: &mut Duration) -> Duration {
        std::mem::replace(wait, (*wait * 2).min(BACKOFF.1))
    }

    fn ask_forever(&self, commands: Box<dyn Commands>, asked: &Receiver<Errand>) {
        let (mut commands, mut wait, mut beat_at) = (Some(commands), BACKOFF.0, self.clock.clock.now());
        loop {
            let left = beat_at.since(self.clock.clock.now());
            let errands: Vec<Errand> = match asked.recv_timeout(left) {
                Ok(first) => std::iter::once(first).chain(asked.try_iter().take(BATCH_MAX - 1)).collect(),
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut batch = Vec::with_capacity(errands.len());
            for errand in errands {
                match errand {
                    Errand::Ask(question) => batch.push(question),
                    Errand::Beat => beat_at = self.clock.clock.now(),
                }
            }
            let is_due = beat_at <= self.clock.clock.now();
            let presence = is_due.then(|| self.presence());
            if commands.is_none() && is_due {
                commands = self
                    .backend
                    .connect()
                    .map_err(|problem| self.note(Connection::Commands, Err(&problem)))
                    .ok();
            }
            let done = self.serve(commands.as_deref_mut(), batch, presence);
            match done {
                Some(Ok(())) if is_due => {
                    self.note(Connection::Commands, Ok(()));
                    (wait, beat_at) = (BACKOFF.0, self.clock.clock.now() + BEAT);
                }
                Some(Ok(())) => {}
                Some(Err(problem)) => {
                    self.note(Connection::Commands, Err(&problem));
                    (commands, beat_at) = (None, self.clock.clock.now() + Common::back_off(&mut wait));
                }
                None if is_due => beat_at = self.clock.clock.now() + Common::back_off(&mut wait),
                None => {}
            }
            if presence == Some(Presence::Gone) {
                self.has_left.store(true, Ordering::Relaxed);
                let _ = self.waker.wake();
            }
        }
    }

    fn presence(&self) -> Presence {
        *self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, connection: Connection, result: Result<(), &str>) {
        self.state.note(connection, &self.name, result);
    }

    /// Answers queries, and announces this proxy's state if `due` is set. Without a connection, fails the queries and returns `None`.
    fn serve(
        &self,
        commands: Option<&mut (dyn Commands + 'static)>,
        batch: Vec<Question>,
        due: Option<Presence>,
    ) -> Option<Result<(), Failure>> {
        let (tickets, wanted): (Vec<u64>, Vec<Command>) =
            batch.into_iter().map(|question| (question.ticket, question.command)).unzip();
        let Some(commands) = commands else {
            tickets.into_iter().for_each(|ticket| _ = self.tell(Told::Found(ticket, Finding::Failed)));
            return None;
        };
        let replies = if wanted.is_empty() { Ok(Vec::new()) } else { commands.run(&wanted) };
        let mut found = replies.as_ref().ok().into_iter().flatten().map(|reply| self.finding_of(reply));
        for ticket in tickets {
            self.tell(Told::Found(ticket, found.next().unwrap_or(Finding::Failed)));
        }
        Some(replies.and_then(|_| {
            if let Some(presence) = due {
                self.clock.set(commands.beat(&self.own.to_text(presence))?);
            }
            Ok(())
        }))
    }

    fn finding_of(&self, reply: &Reply) -> Finding {
        match reply {
            Reply::Replaced(version) => Finding::Replaced(*version),
            Reply::IsFirst(is_first) => Finding::IsFirst(*is_first),
            Reply::Is(None) => Finding::Is(Record::default()),
            Reply::Is(Some((version, text))) => {
                // An invalid text counts as no bindings. It may come from another program. The user's next REGISTER replaces it.
                let found = self.decode(*version, text).map(|(_, record)| record);
                Finding::Is(found.unwrap_or(Record { version: *version, bindings: Vec::new() }))
            }
        }
    }

    fn hear_forever(&self, news: Box<dyn News>) {
        let (mut news, mut wait, mut stranger) = (Some(news), BACKOFF.0, None);
        loop {
            let heard = match &mut news {
                Some(news) => self.hear(news.as_mut(), &mut stranger),
                None => self.listen_again().map(|new| {
                    (news, wait) = (Some(new), BACKOFF.0);
                    true
                }),
            };
            match heard {
                Ok(true) => {}
                Ok(false) => return,
                Err(problem) => {
                    self.note(Connection::Changes, Err(&problem));
                    news = None;
                    std::thread::sleep(Common::back_off(&mut wait));
                }
            }
        }
    }

    /// Reconnects, and delivers all records, because records may have changed while the connection was down.
    fn listen_again(&self) -> Result<Box<dyn News>, Failure> {
        let mut news = self.backend.listen()?;
        self.tell(Told::Begin);
        news.load(&mut |version, text| {
            if let Some((user, record)) = self.decode(version, &text) {
                self.tell(Told::Record(user, record));
            }
        })?;
        self.tell(Told::End);
        self.note(Connection::Changes, Ok(()));
        Ok(news)
    }

    /// Handles the next notification. Returns false if the loop has ended.
    fn hear(&self, news: &mut dyn News, stranger: &mut Option<SocketAddr>) -> Result<bool, Failure> {
        match news.next(SILENCE_MAX)? {
            None => Err(format!("no message for {} s", SILENCE_MAX.as_secs())),
            Some(Event::Presence(who)) => {
                let Some((who, presence)) = Own::parse(&who) else { return Ok(true) };
                if who.fingerprint != self.own.fingerprint && *stranger != Some(who.address) {
                    *stranger = Some(who.address);
                    let (store, proxy) = (&self.name, who.address);
                    tracing::error!(store, %proxy, "another proxy has the same store, but not the same dialog_key");
                }
                Ok(self.tell(Told::Presence(who.address, presence)))
            }
            Some(Event::Changed(version, text)) => {
                let Some((user, record)) = self.decode(version, &text) else { return Ok(true) };
                Ok(self.tell(Told::Record(user, record)))
            }
        }
    }
}
