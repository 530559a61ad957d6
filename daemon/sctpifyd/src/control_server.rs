//! Serves the control socket: checks permissions and routes requests.
//!
//! This module answers requests about rules and settings. The shard answers questions about connections. Root and the group of the socket
//! ([`control_group`]) may send read requests. Only root and the user who started the daemon may change state. Readers may request SCTP for
//! their own listeners if the setting `manual_listen` allows it ([`crate::manual`]). The socket has mode 0660 from its creation (umask
//! before bind). A directory that the daemon creates for the socket has mode 0750.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use control::{
    Added, DefaultPolicy, Done, ErrorCode, HostKeyReport, HostKeyText, LearnedRow, PeersReport, Request,
    Response, RuleSelector, RulesReport, SettingsReport,
};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Uid, geteuid};
use ops::{MAX_ORDER_BYTES, MAX_REQUEST_BYTES};
use rules::{Chain, LearnedEntry, Policy, Rule, RuleMatch, RulesTable, find_setting, print_rule};

use crate::archive::{ArchiveError, Signer};
use crate::capture::Ear;
use crate::clock::{Clock, today};
use crate::commands::{Command, Handle};
use crate::control_group;
use crate::learned_store::LearnedStore;
use crate::link_history::LinkHistoryStore;
use crate::listeners::{all_listeners, listeners};
use crate::log_rate::LogRate;
use crate::manual::{Caller, Grant};
use crate::peers_store::PeersStore;
use crate::rules_store::RulesStore;
use crate::survey::Question;

/// Limit on the connections served concurrently.
const SERVED_MAX: usize = 16;
/// Timeout of one read from a client, or of one write to it.
const CLIENT_LIMIT: Duration = Duration::from_secs(10);
/// Interval between checks that an exposed listener still exists.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const NO_ANSWER: &str = "the daemon is stopping or overloaded: it did not answer";

/// The control socket before its server starts. Clients wait until the server starts.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    owner: Uid,
}

/// The server on the control socket.
pub(crate) struct ControlServer {
    listener: UnixListener,
    desk: Desk,
}

/// State that the daemon keeps in files, and the signer with the host key.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) rules: RulesStore,
    pub(crate) learned: LearnedStore,
    pub(crate) peers: PeersStore,
    pub(crate) history: LinkHistoryStore,
    pub(crate) signer: Signer,
}

/// State from which requests are answered.
#[derive(Clone)]
pub(crate) struct Desk {
    rules: RulesStore,
    learned: LearnedStore,
    peers: PeersStore,
    history: LinkHistoryStore,
    signer: Signer,
    shard: Handle,
    served: Arc<AtomicUsize>,
    /// The user who created the socket. The worker has since become another user.
    owner: Uid,
    clock: Clock,
    /// Rate limit of the log lines about listeners that users expose.
    exposed_lines: Arc<Mutex<LogRate>>,
}

impl ControlSocket {
    /// Creates the socket. Replaces the socket of a dead daemon, but fails if a live daemon answers on it.
    pub(crate) fn bind(path: &Path) -> Result<ControlSocket> {
        make_directory(path)?;
        if UnixStream::connect(path).is_ok() {
            bail!("another sctpifyd answers on {}: stop it with `sctpify down`", path.display());
        }
        if let Err(error) = fs::remove_file(path)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("cannot replace {}", path.display()));
        }
        let before = umask(Mode::from_bits_truncate(0o117));
        let listener = UnixListener::bind(path);
        umask(before);
        let listener =
            listener.with_context(|| format!("cannot create the control socket {}", path.display()))?;
        control_group::hand_over(path);
        Ok(ControlSocket { listener, owner: geteuid() })
    }
}

impl ControlServer {
    /// Creates the server from its parts.
    pub(crate) fn new(socket: ControlSocket, kept: Kept, shard: Handle) -> ControlServer {
        let Kept { rules, learned, peers, history, signer } = kept;
        let desk = Desk {
            rules,
            learned,
            peers,
            history,
            signer,
            shard,
            served: Arc::default(),
            owner: socket.owner,
            clock: Clock::start(),
            exposed_lines: Arc::default(),
        };
        ControlServer { listener: socket.listener, desk }
    }

    /// Returns a copy of the state, from which other interfaces also answer requests.
    pub(crate) fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// Serves until the process ends.
    pub(crate) fn run(self) {
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else { continue };
            let desk = self.desk.clone();
            if desk.served.fetch_add(1, Ordering::Relaxed) >= SERVED_MAX {
                desk.served.fetch_sub(1, Ordering::Relaxed);
                tracing::warn!("too many control connections: one is refused");
                continue;
            }
            let serve = move || {
                let grant = desk.serve(&stream);
                desk.served.fetch_sub(1, Ordering::Relaxed);
                // A grant no longer counts as a served connection, because grants have a separate limit.
                if let Some(grant) = grant {
                    desk.hold(&stream, grant);
                }
            };
            if std::thread::Builder::new().name("control client".to_owned()).spawn(serve).is_err() {
                self.desk.served.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// Creates the directory of a control socket, unless it exists. Other users have no access to a created directory.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    let directory: PathBuf = path.parent().unwrap_or(Path::new("/")).into();
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    let made = fs::DirBuilder::new().mode(0o750).recursive(true).create(&directory);
    made.with_context(|| format!("cannot create {}", directory.display()))
}

impl Desk {
    /// Answers one request of a client. A returned grant lasts until the client hangs up, or until the listener has gone.
    fn serve(&self, stream: &UnixStream) -> Option<Grant> {
        let limits =
            [stream.set_read_timeout(Some(CLIENT_LIMIT)), stream.set_write_timeout(Some(CLIENT_LIMIT))];
        let Ok(caller) = getsockopt(stream, PeerCredentials) else { return None };
        if limits.iter().any(Result::is_err) {
            return None;
        }
        let caller = Uid::from_raw(caller.uid());
        let (mut capture, mut granted) = (None, None);
        let bytes_max = if self.may_change(caller) { MAX_ORDER_BYTES } else { MAX_REQUEST_BYTES };
        let outcome =
            control::serve(stream, bytes_max, |request| match (self.forbidden(caller, &request), request) {
                (Some(refusal), _) => refusal,
                (None, Request::Capture { seconds }) => {
                    let (response, ear) = self.capture();
                    capture = ear.map(|ear| (ear, Duration::from_secs(seconds.into())));
                    response
                }
                (None, Request::Expose { address, port }) => {
                    let (response, grant) = self.expose(caller, address, port);
                    granted = grant;
                    response
                }
                (None, request) => self.answer_any(request),
            });
        if let Err(error) = outcome {
            tracing::debug!(%error, "control connection");
            return None;
        }
        if let Some((ear, limit)) = capture
            && let Err(error) = ear.write_to(stream, limit)
        {
            tracing::debug!(%error, "a capture has ended");
        }
        granted
    }

    /// Grants SCTP for the caller's listeners on this address and port.
    fn expose(&self, caller: Uid, address: Option<IpAddr>, port: u16) -> (Response, Option<Grant>) {
        let refused = |text: String| (Response::error(ErrorCode::Refused, text), None);
        let caller = Caller { uid: caller.as_raw(), may_change: self.may_change(caller) };
        let (forbidden, of_users) = {
            let book = self.rules.lock();
            let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            (book.forbids_asking(address, port), book.settings.manual_listen)
        };
        if !of_users && !caller.may_change {
            let text = "users may not expose listeners on this host (setting manual_listen)";
            return (Response::error(ErrorCode::NotPermitted, text), None);
        }
        if let Some(because) = forbidden {
            return refused(format!("it stays plain TCP: {because}"));
        }
        let now = self.clock.now();
        let grant = match self.rules.manual().ask(now, caller, (address, port), all_listeners) {
            Ok(grant) => grant,
            Err(error) => return refused(error.to_string()),
        };
        let at = address.map_or(format!("port {port}"), |ip| SocketAddr::new(ip, port).to_string());
        if let Some(left_out) = self.exposed_lines.lock().unwrap_or_else(PoisonError::into_inner).admit(now) {
            tracing::info!(listener = at, asked_by = caller.uid, left_out, "exposed to SCTP clients");
        }
        let text = format!("SCTP clients reach {at} while this connection lasts and the program listens");
        (Response::Done(Done::new(text)), Some(grant))
    }

    /// Waits until the caller hangs up or the grant ends. The caller sends no more data.
    fn hold(&self, mut stream: &UnixStream, mut grant: Grant) {
        if stream.set_read_timeout(Some(LOOK_EVERY)).is_err() {
            return;
        }
        loop {
            match stream.read(&mut [0]) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(_) | Err(_) => return,
            }
            if !grant.still_listens(self.clock.now(), all_listeners) {
                return;
            }
        }
    }

    /// Answers a read-only request.
    pub(crate) fn look(&self, request: Request) -> Response {
        match request.is_read_only() {
            true => self.answer_any(request),
            false => Response::error(ErrorCode::NotPermitted, "only read requests are permitted here"),
        }
    }

    /// Returns a refusal if the caller may not make this request.
    fn forbidden(&self, caller: Uid, request: &Request) -> Option<Response> {
        // `Desk::expose` checks whether the caller may expose the listener.
        let is_for_users = request.is_read_only() || matches!(request, Request::Expose { .. });
        (!is_for_users && !self.may_change(caller)).then(|| {
            let text = format!("user {caller} has read access only: run this as root");
            Response::error(ErrorCode::NotPermitted, text)
        })
    }

    fn may_change(&self, caller: Uid) -> bool {
        caller.is_root() || caller == self.owner
    }

    fn capture(&self) -> (Response, Option<Ear>) {
        match self.shard.ask(Command::Capture) {
            Some(Some(ear)) => (Response::Done(Done::new("a pcapng file follows")), Some(ear)),
            Some(None) => {
                (Response::error(ErrorCode::Refused, "another capture is running: stop it first"), None)
            }
            None => (Response::error(ErrorCode::Failed, NO_ANSWER), None),
        }
    }

    fn answer_any(&self, request: Request) -> Response {
        match request {
            Request::Settings => self.settings(SettingsReport::all(&self.rules.configured())),
            Request::Get { name } => self.get(&name),
            Request::Set { name, value } => self.set(&name, &value),
            Request::RulesAdd { chain, policy, rule } => self.add_rule(chain, policy, rule),
            Request::RulesDelete { chain, policy, which } => self.delete_rule(chain, policy, &which),
            Request::RulesList { chain, policy } => Response::Rules(self.list(chain, policy)),
            Request::RulesFlush => self.flush(),
            Request::RulesRestore { text } => self.restore(&text),
            Request::DefaultGet { chain } => {
                self.count();
                Response::DefaultPolicy(DefaultPolicy::of(&self.rules.lock(), chain))
            }
            Request::DefaultSet { chain, policy } => self.set_default(chain, policy),
            Request::RuleAutoEn => self.learn(true),
            Request::RuleAutoDis => self.learn(false),
            Request::Forget { address } => self.forget(address),
            Request::HostKey => self.host_key(),
            Request::Peers => {
                Response::Peers(PeersReport { peers: self.peers.lock().iter().cloned().collect() })
            }
            Request::PeersAdd { key, name, addresses } => self.add_peer(&key, name.as_deref(), &addresses),
            Request::PeersPair { key, name } => self.pair_peer(&key, name.as_deref()),
            Request::PeersForget { which } => self.forget_peer(&which),
            Request::Reload => done(self.rules.reload(&self.shard).map(|weaker| self.reloaded(weaker))),
            Request::Shutdown => {
                self.shard.send(Command::Stop);
                Response::Done(Done::new("sctpifyd is stopping; new connections are plain TCP"))
            }
            Request::History => Response::History(self.history.report()),
            Request::Status => self.survey(|reply| Question::Status(listeners(), reply)),
            Request::Paths => self.survey(Question::Paths),
            Request::Explain { address, port } => {
                self.survey(|reply| Question::Explain(SocketAddr::new(address, port), reply))
            }
            Request::Drain | Request::Doctor { .. } | Request::Events { .. } => {
                self.ask_shard(|reply| Command::Ask(request, reply))
            }
            // `Desk::serve` answers these requests, because it has the caller's connection.
            Request::Capture { .. } | Request::Expose { .. } => {
                Response::error(ErrorCode::BadRequest, "this request is answered only on the control socket")
            }
        }
    }

    fn survey(&self, question: impl FnOnce(Sender<Response>) -> Question) -> Response {
        self.ask_shard(|reply| Command::Survey(question(reply)))
    }

    fn ask_shard(&self, question: impl FnOnce(Sender<Response>) -> Command) -> Response {
        self.shard.ask(question).unwrap_or_else(|| Response::error(ErrorCode::Failed, NO_ANSWER))
    }

    /// Updates the counts of rules. If the shard does not answer, the counts stay unchanged.
    fn count(&self) {
        let _ = self.shard.ask(Command::Count);
    }

    fn reloaded(&self, weaker: usize) -> Done {
        let pending = self.rules.pending();
        let names: Vec<&str> = pending.iter().map(|change| change.name.as_str()).collect();
        let waiting = match names.len() {
            0 => String::new(),
            1 => format!("; 1 change waits for a restart: {}", names[0]),
            count => format!("; {count} changes wait for a restart: {}", names.join(", ")),
        };
        let warning = weaker_text(weaker);
        Done { pending, ..Done::new(format!("configuration and rules reloaded{waiting}{warning}")) }
    }

    /// Returns the configured settings next to the settings in force.
    fn settings(&self, report: SettingsReport) -> Response {
        Response::Settings(report.beside(&self.rules.settings()))
    }

    fn get(&self, name: &str) -> Response {
        match find_setting(name) {
            Ok(setting) => self.settings(SettingsReport::one(setting, &self.rules.configured())),
            Err(error) => Response::error(ErrorCode::Refused, error.to_string()),
        }
    }

    fn set(&self, name: &str, value: &str) -> Response {
        if let Err(fault) = self.try_first(name, value) {
            return Response::error(ErrorCode::Refused, fault);
        }
        match self.rules.set(&self.shard, name, value) {
            Ok(setting) => self.settings(SettingsReport::one(setting, &self.rules.configured())),
            Err(error) => refusal(error),
        }
    }

    /// Refuses a value with which the daemon could not start again.
    fn try_first(&self, name: &str, value: &str) -> Result<(), String> {
        let mut settings = self.rules.configured();
        match settings.set(name, value) {
            // `RulesStore::set` later refuses settings that only root may change.
            Ok(setting) if setting.is_roots() => Ok(()),
            // A trial of the value in force would fail, because the daemon itself uses the resource that the value names, for example a
            // port.
            Ok(setting) if setting.value(&settings) == setting.value(&self.rules.settings()) => Ok(()),
            Ok(setting) => control::try_setting(setting, &settings),
            // `RulesStore::set` reports the error.
            Err(_) => Ok(()),
        }
    }

    fn add_rule(&self, chain: Chain, policy: Policy, rule: Rule) -> Response {
        let check = rule.check();
        if let Err(error) = check {
            return Response::error(ErrorCode::Refused, error.to_string());
        }
        let (new, mut is_weaker) = (rule.clone(), false);
        let added = self.rules.change_table(&self.shard, |table| {
            let refuses = |old: &RuleMatch<'_>| old.rule.has_same_match(&rule) && old.rule.refuses_plain();
            is_weaker =
                !rule.refuses_plain() && table.list(Some(chain), Some(policy)).any(|old| refuses(&old));
            table.add(chain, policy, rule)
        });
        done(added.map(|added| {
            let added = Added::from(added);
            let message = match added {
                Added::New(number) => format!("rule {number} of {chain}-{policy} added"),
                Added::Same(number) => format!("rule {number} of {chain}-{policy} already exists"),
                Added::Renamed(number) => {
                    let text = print_rule(&new);
                    let warning =
                        if is_weaker { ". It no longer refuses connections in plain TCP" } else { "" };
                    format!("rule {number} of {chain}-{policy} replaced by: {text}{warning}")
                }
            };
            Done { added: Some(added), ..Done::new(message) }
        }))
    }

    fn delete_rule(&self, chain: Chain, policy: Policy, which: &RuleSelector) -> Response {
        done(self.rules.change_table(&self.shard, |table| {
            let removed = match which {
                RuleSelector::Number(number) => table.delete_number(chain, policy, *number),
                RuleSelector::Match(rule) => table.delete(chain, policy, rule),
            };
            removed
                .map(|_| Done { removed: Some(1), ..Done::new(format!("rule of {chain}-{policy} deleted")) })
        }))
    }

    /// Returns the rules and the learned entries. A destination that is kept on TCP counts as an entry with the policy disable.
    fn list(&self, chain: Option<Chain>, policy: Option<Policy>) -> RulesReport {
        let now = today();
        self.count();
        let report = RulesReport::new(&self.rules.lock(), chain, policy, now);
        let table = self.learned.lock();
        let fits = |entry: &&LearnedEntry| {
            chain != Some(Chain::Local) && policy.is_none_or(|p| p.is_enable() == entry.disabled.is_none())
        };
        let learned = table.iter().filter(fits).map(|entry| LearnedRow::new(entry, now)).collect();
        RulesReport { learned, ..report }
    }

    fn flush(&self) -> Response {
        let flushed = self.rules.change_table(&self.shard, |table| Ok::<_, String>(table.flush(None, None)));
        done(flushed.map(|removed| {
            let forgotten = self.learned.lock().clear();
            let message = format!("{removed} rules and {forgotten} learned entries deleted");
            Done { removed: Some(removed), ..Done::new(message) }
        }))
    }

    /// Replaces all rules. Rules that the text repeats keep their hit counts.
    fn restore(&self, text: &str) -> Response {
        let restored = self.rules.change_table(&self.shard, |table| {
            let new = rules::parse_table(text).map_err(|(line, error)| format!("line {line}: {error}"))?;
            if new.is_empty() {
                return Err("no rule to restore: `sctpify rule flush` deletes the rules".to_owned());
            }
            let old = std::mem::replace(table, new);
            table.keep_hits_of(&old);
            table.declare(&self.rules.configured().rules).map_err(|error| error.to_string())?;
            let weaker = table.weaker_than(&old);
            let others = |table: &RulesTable| table.list(None, None).filter(|rule| !rule.is_declared).count();
            Ok::<_, String>((others(&old), others(table), weaker))
        });
        done(restored.map(|(old, new, weaker)| {
            let warning = weaker_text(weaker);
            let message = format!("{old} rules replaced by {new}{warning}");
            Done { removed: Some(old), ..Done::new(message) }
        }))
    }

    fn learn(&self, on: bool) -> Response {
        let (value, message) = if on {
            ("1", "automatic configuration is on: destinations without SCTP are learned")
        } else {
            ("0", "automatic configuration is off: nothing is learned, and learned entries are ignored")
        };
        done(self.rules.set(&self.shard, "learn", value).map(|_| Done::new(message)))
    }

    fn forget(&self, address: IpAddr) -> Response {
        let message = match self.learned.lock().forget(address) {
            0 => format!("{address} has no learned entry"),
            _ => format!("learned entry of {address} deleted: its next connection tries SCTP"),
        };
        Response::Done(Done::new(message))
    }

    fn host_key(&self) -> Response {
        let public = match self.signer.public() {
            Ok(public) => public,
            Err(error) => return refusal(error),
        };
        let words = public.words().into();
        match public.to_string().parse() {
            Ok(key) => Response::HostKey(HostKeyReport { key, words }),
            Err(error) => Response::error(ErrorCode::Failed, format!("{error}")),
        }
    }

    fn add_peer(&self, key: &HostKeyText, name: Option<&str>, addresses: &[IpAddr]) -> Response {
        if addresses.is_empty() {
            return Response::error(
                ErrorCode::Refused,
                "a key needs an address where its host is found".to_owned(),
            );
        }
        if let Err(error) = self.peers.lock().add(today(), key, name, addresses) {
            return Response::error(ErrorCode::Refused, error.to_string());
        }
        let at = addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        let message = format!("connections to {at} take this key only (setting encryption)");
        done(self.peers.save().map(|()| Done::new(message)))
    }

    fn pair_peer(&self, key: &HostKeyText, name: Option<&str>) -> Response {
        let paired = {
            let mut peers = self.peers.lock();
            peers
                .pair(today(), key, name)
                .map(|()| peers.of_key(key).is_some_and(|peer| peer.addresses.is_empty()))
        };
        let has_no_address = match paired {
            Ok(has_no_address) => has_no_address,
            Err(error) => return Response::error(ErrorCode::Refused, error.to_string()),
        };
        let mut message = format!("paired with the host that has the key {key}");
        if has_no_address {
            message +=
                ". Words prove no address: a connection of this host to it writes down where it is found";
        }
        done(self.peers.save().map(|()| Done::new(message)))
    }

    fn forget_peer(&self, which: &str) -> Response {
        let Some(peer) = self.peers.lock().forget(which) else {
            let text = format!("{which} is no known peer: `sctpify peers` lists them");
            return Response::error(ErrorCode::Refused, text);
        };
        let addresses = peer.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        let message = format!(
            "the key of {addresses} is forgotten: the next connection writes down the key that it finds"
        );
        done(self.peers.save().map(|()| Done::new(message)))
    }

    fn set_default(&self, chain: Chain, policy: Policy) -> Response {
        match self.rules.set_default(&self.shard, chain, policy) {
            Ok(()) => Response::DefaultPolicy(DefaultPolicy::of(&self.rules.lock(), chain)),
            Err(error) => refusal(error),
        }
    }
}

fn done(outcome: Result<Done, ArchiveError>) -> Response {
    outcome.map_or_else(refusal, Response::Done)
}

fn refusal(error: ArchiveError) -> Response {
    match error {
        ArchiveError::Refused(text) => Response::error(ErrorCode::Refused, text),
        ArchiveError::Failed(text) => Response::error(ErrorCode::Failed, text),
    }
}

/// Returns the warning for this number of rules that refused plain TCP and no longer do.
fn weaker_text(weaker: usize) -> String {
    match weaker {
        0 => String::new(),
        _ => format!(
            ". {weaker} of the old rules refused connections in plain TCP, and no new rule does for them"
        ),
    }
}
