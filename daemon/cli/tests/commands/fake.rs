//! A fake daemon on a control socket, for the tests of the commands.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use control::*;
use rules::{
    Chain, Failure, LearnPolicy, LearnedTable, Policy, Rule, Rulebook, Setting, Settings, UnixMs,
    find_setting,
};
use tempfile::TempDir;

/// A process ID that Linux never assigns.
const NO_SUCH_PID: u32 = u32::MAX;

/// A time on 14 November 2023.
const KNOWN_SINCE: UnixMs = UnixMs(1_700_000_000_000);

fn host_key() -> HostKeyText {
    format!("sctpify1:{}", "A".repeat(43)).parse().unwrap()
}

fn known_peer() -> KnownPeer {
    KnownPeer {
        key: host_key(),
        name: None,
        addresses: vec!["10.0.1.2".parse().unwrap(), "2001:db8::2".parse().unwrap()],
        by: KnownBy::FirstUse,
        first_seen: KNOWN_SINCE,
        last_seen: KNOWN_SINCE,
    }
}

/// A daemon without network or files. It keeps rules and settings in memory, and returns fixed values for all other data.
pub(crate) struct FakeDaemon {
    dir: TempDir,
    pub(crate) book: Arc<Mutex<Rulebook>>,
}

/// Returns the history of a link that has sent 2 MiB and received 8 MiB, half of it on the last day.
fn history() -> Vec<LinkHistory> {
    let reading = |mib: u64| LinkReading {
        peer: [10, 0, 1, 2].into(),
        interface: Some("wwan0".into()),
        name: Some("lte".into()),
        is_live: true,
        srtt_us: Some(20_400),
        sent_bytes: mib << 20,
        received_bytes: mib << 22,
    };
    let mut links = LinkHistories::default();
    links.note(KNOWN_SINCE, &[reading(1)]);
    let day_ms = 24 * 60 * 60 * 1000;
    links.note(UnixMs(KNOWN_SINCE.0 + 2 * day_ms), &[reading(2)]);
    links.iter().cloned().collect()
}

fn with_in_force(report: SettingsReport, book: &Rulebook) -> Response {
    Response::Settings(report.beside(&book.settings.until_restart(&Settings::default())))
}

pub(crate) fn status() -> Status {
    let path = |remote: &str, state| control::Path {
        local: None,
        remote: remote.parse().unwrap(),
        carrier: Via::SctpUdp,
        udp_port: Some(9899),
        state,
        primary: true,
        in_use: true,
        srtt_us: Some(20_400),
        rto_ms: 200,
        cwnd_bytes: 14_480,
        flight_bytes: 0,
        data_sent_bytes: 0,
        mtu_bytes: 1_500,
        errors: 0,
        interface: Some("eth1".into()),
        name: Some("fibre".into()),
        local_use: AddressUse::default(),
        remote_use: AddressUse::default(),
        sent_bytes: 1_000,
        received_bytes: 64 << 20,
        last_switch_s: None,
    };
    let link = |interface: &str, name: &str| PeerLink {
        peer: "10.0.1.2".parse().unwrap(),
        interface: Some(interface.into()),
        name: Some(name.into()),
        usage: AddressUse::Secondary,
        state: LinkState::Up,
        in_use: true,
        srtt_us: Some(20_400),
        sent_bytes: 2_000,
        received_bytes: 128 << 20,
    };
    Status {
        version: "9.9.9".into(),
        pid: NO_SUCH_PID,
        uptime_s: 61,
        started_unix_ms: 0,
        enabled: true,
        counters: Counters { connects_seen: 3, ..Counters::default() },
        turns: TurnTimes::default(),
        connections: vec![Connection {
            id: 5,
            role: Role::Client,
            local: "10.0.1.1:40000".parse().unwrap(),
            peer: "10.0.1.2:22".parse().unwrap(),
            state: ShimState::Active,
            carrier: Via::SctpUdp,
            fallback: None,
            bytes_sent: 64 << 20,
            bytes_received: 100,
            open: Direction::Both,
            age_s: 12,
            association: Some(1),
        }],
        associations: vec![Association {
            id: 1,
            state: "ESTABLISHED".into(),
            peer: "10.0.1.2".parse().unwrap(),
            shim: ShimState::Hidden,
            local_port: 40_000,
            peer_port: 22,
            peer_is_sctpify: true,
            age_s: 12,
            bytes_sent: 0,
            bytes_received: 0,
            retransmissions: 0,
            queued_bytes: 0,
            peer_window_bytes: 0,
            shared_by: None,
            encryption: Some(Encryption {
                peer: host_key(),
                name: None,
                by: Some(KnownBy::FirstUse),
                known_since: Some(KNOWN_SINCE),
                epoch: 3,
                words: vec!["badak".into(), "bodak".into()],
            }),
            paths: vec![path("10.0.1.2", PathState::Active), path("10.0.2.2", PathState::PotentiallyFailed)],
        }],
        carriers: Vec::new(),
        listeners: Vec::new(),
        recent_fallbacks: vec![Fallback {
            when_unix_ms: 0,
            destination: "10.0.1.2:80".parse().unwrap(),
            held_us: 250_000,
            state: ShimState::Ready,
            reason: FallbackReason::NoSctpAnswer { waited_ms: 250 },
        }],
        fallbacks: vec![],
        link_bytes: vec![],
        link_caps: vec![LinkCap {
            interface: "wwan0".into(),
            name: Some("lte".into()),
            since: "2026-12-15".into(),
            bytes: 5_000_000_001,
            cap_bytes: 5_000_000_000,
            at_cap: AtCap::Backup,
            is_reached: true,
        }],
        path_changes: Vec::new(),
        links: vec![link("eth1", "fibre"), {
            let (usage, state) = (AddressUse::Backup, LinkState::Down);
            PeerLink { usage, state, in_use: false, ..link("wwan0", "lte") }
        }],
        recent_events: vec![PathEvent {
            number: 1,
            when_unix_ms: 0,
            peer: "10.0.1.2".parse().unwrap(),
            left_out: 0,
            change: PathChange::Down {
                path: PathEnds {
                    interface: Some("eth1".into()),
                    name: Some("fibre".into()),
                    local: Some("10.0.1.1".parse().unwrap()),
                    remote: "10.0.1.2".parse().unwrap(),
                },
            },
            reason: PathReason::Silence,
            links_up: 1,
            links: 2,
        }],
        draining: false,
        confinement: control::Confinement::default(),
        pending: vec![PendingChange {
            name: "multipath".into(),
            configured: "redundant".into(),
            in_force: "off".into(),
        }],
    }
}

fn explain(book: &Rulebook, address: std::net::IpAddr, port: u16) -> Explanation {
    let decision = book.explain(Chain::Remote, address, port);
    let reason = FallbackReason::from_decision(&decision);
    Explanation {
        address,
        port,
        verdict: if reason.is_none() { Verdict::SctpThenTcp } else { Verdict::Tcp },
        because: decision.because.to_string(),
        reason,
        learned: None,
        connections: 0,
        limited_by: Default::default(),
        waiting_bytes: 0,
        past: Vec::new(),
        notes: Vec::new(),
    }
}

fn answer(book: &mut Rulebook, request: Request) -> Response {
    let answer = match request {
        Request::Settings => Ok(with_in_force(SettingsReport::all(&book.settings), book)),
        Request::Get { name } => find_setting(&name).map_err(to_text).map(|s| one(book, s)),
        Request::Set { name, value } => {
            book.settings.set(&name, &value).map_err(to_text).map(|s| one(book, s))
        }
        Request::RulesAdd { chain, policy, rule } => add(book, chain, policy, rule),
        Request::RulesDelete { chain, policy, which } => delete(book, chain, policy, &which),
        Request::RulesList { chain, policy } => Ok(Response::Rules(rules(book, chain, policy))),
        Request::DefaultGet { chain } => Ok(Response::DefaultPolicy(DefaultPolicy::of(book, chain))),
        Request::DefaultSet { chain, policy } => {
            let value = if policy.is_enable() { "1" } else { "0" };
            let set = book.settings.set(Rulebook::default_setting(chain), value).map_err(to_text);
            set.map(|_| Response::DefaultPolicy(DefaultPolicy::of(book, chain)))
        }
        Request::RulesFlush => {
            Ok(Response::Done(Done { removed: Some(book.table.flush(None, None)), ..Done::new("flushed") }))
        }
        Request::RulesRestore { text } => match rules::parse_table(&text) {
            Ok(table) => {
                book.table = table;
                Ok(Response::Done(Done::new("restored")))
            }
            Err((line, error)) => Err(format!("line {line}: {error}")),
        },
        // A client that begins to follow events gets no earlier events.
        Request::Events { after: u64::MAX } => {
            Ok(Response::Events(EventsReport { events: vec![], count: 0, started_unix_ms: 1 }))
        }
        Request::Events { .. } => Ok(Response::Events(EventsReport {
            events: status().recent_events,
            count: 1,
            started_unix_ms: 1,
        })),
        Request::Status => Ok(Response::Status(Box::new(status()))),
        Request::Paths => Ok(Response::Paths(PathsReport { associations: status().associations })),
        Request::History => Ok(Response::History(HistoryReport { links: history() })),
        Request::Explain { address, port } => {
            Ok(Response::Explanation(Box::new(explain(book, address, port))))
        }
        Request::Doctor { peer } => {
            let found = peer.map_or("nobody".to_owned(), |p| p.to_string());
            let mut checks = vec![Check::ok("asked about", found)];
            if peer == Some([127, 0, 0, 9].into()) {
                checks.push(Check::bad("the way there", Level::Missing, "none", "make one"));
            }
            Ok(Response::Doctor(DoctorReport { checks, links: Vec::new(), addresses: Vec::new() }))
        }
        Request::RuleAutoEn => Ok(learn(book, "1")),
        Request::RuleAutoDis => Ok(learn(book, "0")),
        Request::Forget { address } => Ok(Response::Done(Done::new(format!("{address} forgotten")))),
        Request::HostKey => Ok(Response::HostKey(HostKeyReport {
            key: host_key(),
            words: vec!["badak".into(), "bodak".into()],
        })),
        Request::Peers => Ok(Response::Peers(PeersReport { peers: vec![known_peer()] })),
        Request::PeersAdd { key, .. } => Ok(Response::Done(Done::new(format!("{key} added")))),
        Request::PeersPair { key, name } => {
            Ok(Response::Done(Done::new(format!("paired with {key} {}", name.unwrap_or_default()))))
        }
        Request::PeersForget { which } => Ok(Response::Done(Done::new(format!("{which} forgotten")))),
        Request::Reload => Ok(Response::Done(Done::new("read again"))),
        Request::Capture { .. } => Err("another capture is running".to_owned()),
        Request::Expose { .. } => Err("the program that listens there is another user's".to_owned()),
        Request::Drain => Ok(Response::Done(Done::new("draining"))),
        Request::Shutdown => Ok(Response::Done(Done::new("stopping"))),
    };
    answer.unwrap_or_else(|text| Response::error(ErrorCode::Refused, text))
}

fn learn(book: &mut Rulebook, value: &str) -> Response {
    book.settings.set("learn", value).unwrap();
    Response::Done(Done::new("automatic configuration is changed"))
}

/// Returns the rules, with 1 January 1970 as the current day of their usage counts. A request for the chain `remote` also gets an entry of
/// the capability cache.
fn rules(book: &Rulebook, chain: Option<Chain>, policy: Option<Policy>) -> RulesReport {
    let now = UnixMs::default();
    let mut table = LearnedTable::default();
    let host = "192.0.2.1:22".parse().unwrap();
    if chain == Some(Chain::Remote) {
        table.on_failure(now, host, Failure::NoAnswer, &LearnPolicy::of(&book.settings));
    }
    let learned = table.iter().map(|entry| LearnedRow::new(entry, now.plus(1_000_000))).collect();
    RulesReport { learned, ..RulesReport::new(book, chain, policy, now) }
}

fn to_text(error: impl ToString) -> String {
    error.to_string()
}

fn one(book: &Rulebook, setting: &Setting) -> Response {
    with_in_force(SettingsReport::one(setting, &book.settings), book)
}

fn add(book: &mut Rulebook, chain: Chain, policy: Policy, rule: Rule) -> Result<Response, String> {
    let added = Added::from(book.table.add(chain, policy, rule).map_err(to_text)?);
    let message = format!("added to {chain}-{policy}");
    Ok(Response::Done(Done { added: Some(added), ..Done::new(message) }))
}

fn delete(
    book: &mut Rulebook,
    chain: Chain,
    policy: Policy,
    which: &RuleSelector,
) -> Result<Response, String> {
    let deleted = match which {
        RuleSelector::Number(number) => book.table.delete_number(chain, policy, *number),
        RuleSelector::Match(rule) => book.table.delete(chain, policy, rule),
    };
    deleted.map_err(to_text)?;
    Ok(Response::Done(Done { removed: Some(1), ..Done::new("deleted") }))
}

/// Answers requests on the control socket in a directory, until a request shuts the daemon down.
pub(crate) fn answer_in(dir: &std::path::Path, book: Arc<Mutex<Rulebook>>) {
    let listener = UnixListener::bind(dir.join("control.sock")).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut is_shutdown = false;
            let _ = serve(&stream, ops::MAX_ORDER_BYTES, |request| {
                is_shutdown |= request == Request::Shutdown;
                answer(&mut book.lock().unwrap(), request)
            });
            if is_shutdown {
                return;
            }
        }
    });
}

impl FakeDaemon {
    pub(crate) fn start() -> FakeDaemon {
        let dir = tempfile::tempdir().unwrap();
        let book = Arc::new(Mutex::new(Rulebook::default()));
        answer_in(dir.path(), Arc::clone(&book));
        FakeDaemon { dir, book }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }
}
