//! Compares the protocol of the control socket with golden files, byte for byte, because scripts rely on it.
//!
//! A change of the protocol affects every script that reads `--json`. A new field changes the golden files. A removed field, or a new
//! meaning of a field, also changes `SCHEMA`. `UPDATE_GOLDEN=1 cargo test -p control` writes the files.

use std::fs;
use std::path::PathBuf;

use control::*;
use rules::{
    Chain, Failure, LearnPolicy, LearnedTable, Outcome, Policy, Rule, Rulebook, Settings, UnixMs,
    find_setting, parse_table,
};

fn rule() -> Rule {
    Rule {
        own: false,
        address: Some("10.1.2.0/24".parse().unwrap()),
        ports: Some("1:1024".parse().unwrap()),
        name: Some("low".into()),
        comment: Some("the \"low\" ports".into()),
        require: false,
        advertise: None,
        advertise_interval: None,
        framing: None,
        secure: None,
    }
}

fn path() -> Path {
    Path {
        local: Some("10.0.1.1".parse().unwrap()),
        remote: "10.0.1.2".parse().unwrap(),
        carrier: Via::SctpUdp,
        udp_port: Some(9899),
        state: PathState::PotentiallyFailed,
        primary: true,
        in_use: false,
        srtt_us: Some(20_400),
        rto_ms: 200,
        cwnd_bytes: 14_480,
        flight_bytes: 1_448,
        data_sent_bytes: 33_554_432,
        mtu_bytes: 1_500,
        errors: 1,
        interface: Some("eth1".into()),
        name: Some("fibre".into()),
        local_use: AddressUse::Secondary,
        remote_use: AddressUse::Backup,
        sent_bytes: 33_900_000,
        received_bytes: 700_000,
        last_switch_s: Some(7),
    }
}

fn host_key() -> HostKeyText {
    format!("sctpify1:{}", "A".repeat(43)).parse().unwrap()
}

fn known_peer() -> KnownPeer {
    KnownPeer {
        key: host_key(),
        name: Some("beta".into()),
        addresses: vec!["10.0.1.2".parse().unwrap(), "2001:db8::2".parse().unwrap()],
        by: KnownBy::FirstUse,
        first_seen: NOW,
        last_seen: NOW.plus(5),
    }
}

fn association() -> Association {
    let second = Path { local: None, srtt_us: None, last_switch_s: None, udp_port: None, ..path() };
    Association {
        id: 1,
        state: "ESTABLISHED".into(),
        peer: "10.0.1.2".parse().unwrap(),
        shim: ShimState::Hidden,
        local_port: 40_000,
        peer_port: 22,
        peer_is_sctpify: true,
        age_s: 12,
        bytes_sent: 67_108_864,
        bytes_received: 100,
        retransmissions: 3,
        queued_bytes: 0,
        peer_window_bytes: 1_048_576,
        shared_by: Some(2),
        encryption: Some(Encryption {
            peer: host_key(),
            name: None,
            by: Some(KnownBy::FirstUse),
            known_since: Some(UnixMs(1_700_000_000_000)),
            epoch: 3,
            words: vec!["badak".into(), "bodak".into()],
        }),
        paths: vec![path(), Path { carrier: Via::Sctp, state: PathState::Active, ..second }],
    }
}

fn fallback(reason: FallbackReason) -> Fallback {
    Fallback {
        when_unix_ms: 1_700_000_000_000,
        destination: "[2001:db8::2]:80".parse().unwrap(),
        held_us: 250_100,
        state: ShimState::Ready,
        reason,
    }
}

fn path_event() -> PathEvent {
    let ends = |interface: Option<&str>, net: u8| PathEnds {
        interface: interface.map(str::to_owned),
        name: interface.map(|_| "fibre".to_owned()),
        local: interface.map(|_| [10, 0, net, 1].into()),
        remote: [10, 0, net, 2].into(),
    };
    PathEvent {
        number: 3,
        when_unix_ms: 1_700_000_000_000,
        peer: [10, 0, 1, 2].into(),
        left_out: 2,
        change: PathChange::Switched { from: ends(Some("eth1"), 1), to: ends(None, 2) },
        reason: PathReason::Loss { percent: 7 },
        links_up: 1,
        links: 2,
    }
}

fn connection() -> Connection {
    Connection {
        id: 5,
        role: Role::Client,
        local: "10.0.1.1:40000".parse().unwrap(),
        peer: "10.0.1.2:22".parse().unwrap(),
        state: ShimState::Active,
        carrier: Via::SctpUdp,
        fallback: None,
        bytes_sent: 67_108_864,
        bytes_received: 100,
        open: Direction::Both,
        age_s: 12,
        association: Some(1),
    }
}

fn pending() -> PendingChange {
    PendingChange { name: "multipath".into(), configured: "redundant".into(), in_force: "off".into() }
}

fn status() -> Status {
    Status {
        version: "0.1.0".into(),
        pid: 4711,
        uptime_s: 3600,
        started_unix_ms: 1_700_000_000_000,
        enabled: true,
        counters: Counters {
            connects_seen: 3,
            connects_sctp: 1,
            connects_fallback: 1,
            ..Counters::default()
        },
        turns: TurnTimes { bounds_us: vec![50, 1_000], counts: vec![90, 7, 1], sum_us: 5_210 },
        connections: vec![connection()],
        associations: vec![association()],
        carriers: vec![OpenCarrier {
            carrier: Via::SctpUdp,
            udp_port: Some(9899),
            problem: Some("the port is taken".into()),
        }],
        listeners: vec![Listener {
            address: "0.0.0.0:22".parse().unwrap(),
            state: ShimState::Listen,
            because: "rule 1 of local-enable: -P 22".into(),
        }],
        recent_fallbacks: vec![fallback(FallbackReason::NoSctpAnswer { waited_ms: 250 })],
        path_changes: vec![PathChangeCount { event: "down".into(), reason: "silence".into(), count: 2 }],
        fallbacks: vec![FallbackCount { reason: "no_sctp_answer".into(), count: 3 }],
        links: links_of(&[association()]),
        link_bytes: vec![LinkBytes {
            interface: Some("wwan0".into()),
            name: Some("lte".into()),
            sent_bytes: 4_100_000,
            received_bytes: 37_000_000,
        }],
        link_caps: vec![LinkCap {
            interface: "wwan0".into(),
            name: Some("lte".into()),
            since: "2026-12-15".into(),
            bytes: 41_100_000,
            cap_bytes: 5_000_000_000,
            at_cap: AtCap::Never,
            is_reached: false,
        }],
        recent_events: vec![path_event()],
        draining: false,
        confinement: Confinement {
            user: Measure::InForce { left: "sctpify (uid 997)".into() },
            capabilities: Measure::InForce { left: "net_admin, net_raw".into() },
            system_calls: Measure::Off,
            files: Measure::Unavailable { why: "no Landlock".into() },
        },
        pending: vec![pending()],
    }
}

const NOW: UnixMs = UnixMs(1_700_000_000_000);

fn learned() -> Vec<LearnedRow> {
    let mut table = LearnedTable::default();
    let policy = LearnPolicy::of(&Settings::default());
    table.on_success(NOW, "[2001:db8::1]:443".parse().unwrap(), Some(900));
    table.on_failure(NOW, "10.0.0.1:22".parse().unwrap(), Failure::Refused, &policy);
    table.iter().map(|entry| LearnedRow::new(entry, NOW.plus(1000))).collect()
}

fn rules_report(book: &Rulebook) -> RulesReport {
    RulesReport { learned: learned(), ..RulesReport::new(book, None, None, NOW) }
}

fn reasons() -> Vec<FallbackReason> {
    use FallbackReason as R;
    vec![
        R::NoSctpAnswer { waited_ms: 250 },
        R::InitUnanswered { inits: 3 },
        R::IcmpUnreachable { message: "port unreachable".into() },
        R::PeerAborted { cause: "no cause given".into() },
        R::PeerAborted { cause: "the program there did not accept the connection".into() },
        R::LocalRule { chain: Chain::Remote, number: 2, rule: "-P 22".into() },
        R::DefaultPolicy { chain: Chain::Remote },
        R::DisabledGlobally,
        R::Learned { failure: Failure::NoAnswer },
        R::LoopbackOrOwnAddress,
        R::DeviceBoundSocket,
        R::ForeignSource,
        R::PrivilegedPort { port: 600 },
        R::InterfaceLeftOut { address: [192, 0, 2, 7].into() },
        R::AssociationFailed { cause: "all paths failed".into() },
        R::NotEncrypted { found: EncryptionFault::PeerHasNone },
        R::NotEncrypted { found: EncryptionFault::PeerRequires },
        R::NotEncrypted { found: EncryptionFault::NoKeys { cause: "TLS: decode error".into() } },
        R::NotEncrypted { found: EncryptionFault::OtherKey { known: host_key(), found: host_key() } },
        R::NotEncrypted { found: EncryptionFault::KeyGone { known: host_key() } },
        R::NotEncrypted { found: EncryptionFault::OffHere },
        R::NotEncrypted { found: EncryptionFault::RulesChanged },
        R::NotEncrypted { found: EncryptionFault::UnknownPeer { peer: "beta".into() } },
        R::NotEncrypted { found: EncryptionFault::NotThePeer { required: host_key(), found: host_key() } },
        R::Required { by: Requirement::Rule, cause: Box::new(R::NoSctpAnswer { waited_ms: 250 }) },
        R::Required { by: Requirement::Encryption, cause: Box::new(R::NoSctpAnswer { waited_ms: 250 }) },
        R::LimitReached { limit: "associations".into() },
        R::DaemonStopping,
        R::LocalError { error: "no buffer space".into() },
    ]
}

fn requests() -> Vec<Request> {
    let (chain, policy) = (Chain::Remote, Policy::Enable);
    vec![
        Request::Status,
        Request::Paths,
        Request::History,
        Request::Events { after: 2 },
        Request::Explain { address: "10.1.2.3".parse().unwrap(), port: 22 },
        Request::Settings,
        Request::Get { name: "udp_port".into() },
        Request::Set { name: "udp_port".into(), value: "9900".into() },
        Request::RulesAdd { chain, policy, rule: rule() },
        Request::RulesDelete { chain, policy, which: RuleSelector::Number(3) },
        Request::RulesDelete { chain, policy, which: RuleSelector::Match(Rule::default()) },
        Request::RulesList { chain: None, policy: Some(policy) },
        Request::RulesFlush,
        Request::RulesRestore { text: "-A -c local -p enable -P 22\n".into() },
        Request::DefaultGet { chain },
        Request::DefaultSet { chain, policy },
        Request::RuleAutoEn,
        Request::RuleAutoDis,
        Request::Forget { address: "10.1.2.3".parse().unwrap() },
        Request::HostKey,
        Request::Peers,
        Request::PeersAdd {
            key: format!("sctpify1:{}", "A".repeat(43)).parse().unwrap(),
            name: Some("beta".into()),
            addresses: vec!["10.1.2.3".parse().unwrap()],
        },
        Request::PeersPair {
            key: format!("sctpify1:{}", "A".repeat(43)).parse().unwrap(),
            name: Some("beta".into()),
        },
        Request::PeersForget { which: "10.1.2.3".into() },
        Request::Reload,
        Request::Shutdown,
        Request::Drain,
        Request::Expose { address: None, port: 8000 },
        Request::Expose { address: Some("::".parse().unwrap()), port: 8000 },
        Request::Doctor { peer: None },
        Request::Doctor { peer: Some("2001:db8::2".parse().unwrap()) },
    ]
}

fn responses() -> Vec<Response> {
    let table = parse_table("-A -c local -p enable -P 22 --name ssh\n-A -c remote -p enable\n").unwrap();
    let mut book = Rulebook::new(Settings::default(), table);
    book.decide(Chain::Local, "10.0.0.1".parse().unwrap(), 22);
    book.decide(Chain::Local, "10.0.0.1".parse().unwrap(), 23);
    let failed = Outcome::Tcp(Some(Failure::NoAnswer));
    book.record(Chain::Remote, "10.0.0.1".parse().unwrap(), 22, NOW, failed);
    let explanation = Explanation {
        address: "10.1.2.3".parse().unwrap(),
        port: 22,
        verdict: Verdict::SctpThenTcp,
        because: "rule 1 of remote-enable: -P 22".into(),
        reason: None,
        learned: learned().pop(),
        connections: 1,
        limited_by: [(ops::LimitedBy::Network, 1)].into(),
        waiting_bytes: 120_000,
        past: vec![
            PastAttempt::Sctp { when_unix_ms: 1_700_000_000_000, setup_us: 900 },
            PastAttempt::Tcp(fallback(FallbackReason::DaemonStopping)),
        ],
        notes: vec!["this peer does not support half-close".into()],
    };
    let checks = vec![
        Check::ok("kernel", "Linux 6.1"),
        Check::bad("carrier ip132", Level::Warning, "kernel SCTP is loaded", "modprobe -r sctp"),
    ];
    let mut responses = vec![
        Response::Status(Box::new(status())),
        Response::Paths(PathsReport { associations: vec![association()] }),
        Response::History(HistoryReport { links: history().at(NOW) }),
        Response::Events(EventsReport {
            events: vec![path_event()],
            count: 3,
            started_unix_ms: 1_700_000_000_000,
        }),
        Response::Event(path_event()),
        Response::Explanation(Box::new(explanation)),
        Response::Settings(SettingsReport::all(&Settings::default()).beside(&Settings::default())),
        Response::Settings(SettingsReport::one(find_setting("udp_port").unwrap(), &Settings::default())),
        Response::Rules(rules_report(&book)),
        Response::DefaultPolicy(DefaultPolicy::of(&book, Chain::Local)),
        Response::HostKey(HostKeyReport { key: host_key(), words: vec!["badak".into(), "bodak".into()] }),
        Response::Peers(PeersReport { peers: vec![known_peer()] }),
        Response::Doctor(DoctorReport { checks, links: vec![link_test()], addresses: vec![link_test().own] }),
        Response::Ping(PingReport { links: vec![link_test()] }),
        Response::Done(Done { added: Some(Added::New(3)), ..Done::new("rule 3 of remote-enable added") }),
        Response::Done(Done { removed: Some(2), ..Done::new("2 rules deleted") }),
        Response::Done(Done::new("reloaded")),
        Response::Done(Done { pending: vec![pending()], ..Done::new("reloaded") }),
    ];
    let codes = [ErrorCode::BadRequest, ErrorCode::NotPermitted, ErrorCode::Refused, ErrorCode::Failed];
    responses.extend(codes.map(|code| Response::error(code, "what is wrong and what to do")));
    responses
}

fn history() -> LinkHistories {
    let reading = |sent_bytes| LinkReading {
        peer: [198, 51, 100, 7].into(),
        interface: Some("wwan0".into()),
        name: Some("lte".into()),
        is_live: true,
        srtt_us: Some(51_000),
        sent_bytes,
        received_bytes: 37_000_000,
    };
    let mut links = LinkHistories::default();
    links.note(UnixMs(NOW.0 - 60_000), &[reading(4_100_000)]);
    links.note(NOW, &[LinkReading { srtt_us: None, ..reading(4_200_000) }]);
    links
}

fn link_test() -> LinkTest {
    LinkTest {
        own: OwnAddress {
            local: [192, 168, 8, 10].into(),
            interface: Some("wwan0".into()),
            name: Some("lte".into()),
            is_down: false,
            unused: Some("private, and the peer's address is public".into()),
        },
        remote: [198, 51, 100, 7].into(),
        udp_port: 9899,
        sent: 5,
        answered: 4,
        rtt: Some(RoundTrips { last_us: 51_000, min_us: 48_000, mean_us: 50_000, max_us: 55_000 }),
        mtu: Some(1420),
        nat: true,
        fault: Some("no answer".into()),
    }
}

fn compare(file: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    for (i, (line, golden)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(line, golden, "{file}, line {}", i + 1);
    }
    assert_eq!(text.lines().count(), golden.lines().count(), "{file}");
}

#[test]
fn requests_match_the_golden_file_and_read_back() {
    let mut lines = Vec::new();
    requests().iter().for_each(|r| write_request(&mut lines, r).unwrap());
    compare("requests.jsonl", &String::from_utf8(lines.clone()).unwrap());
    let mut from = &lines[..];
    for request in requests() {
        assert_eq!(read_request(&mut from, ops::MAX_REQUEST_BYTES).unwrap(), Some(request));
    }
}

#[test]
fn responses_match_the_golden_file_and_read_back() {
    let mut lines = Vec::new();
    responses().iter().for_each(|r| write_response(&mut lines, r).unwrap());
    compare("responses.jsonl", &String::from_utf8(lines.clone()).unwrap());
    let mut from = &lines[..];
    for response in responses() {
        assert_eq!(read_response(&mut from).unwrap(), Some(response));
    }
}

#[test]
fn the_kind_of_a_reason_matches_json_and_required_has_its_causes_kind() {
    for reason in reasons() {
        let FallbackReason::Required { cause, .. } = &reason else {
            assert_eq!(serde_json::to_value(&reason).unwrap()["kind"], reason.kind());
            continue;
        };
        assert_eq!(reason.kind(), cause.kind());
    }
}

#[test]
fn json_and_text_of_reasons_match_the_golden_file() {
    let lines = reasons().into_iter().map(|r| format!("{}\t{r}\n", serde_json::to_string(&r).unwrap()));
    compare("reasons.txt", &lines.collect::<String>());
}

#[test]
fn a_reader_ignores_response_fields_it_does_not_know() {
    let line = "{\"schema\":1,\"response\":\"done\",\"message\":\"x\",\"later_ms\":1}\n";
    assert_eq!(read_response(&mut line.as_bytes()).unwrap(), Some(Response::Done(Done::new("x"))));
}

#[test]
fn a_request_with_a_misspelt_field_of_a_rule_is_refused() {
    let add = |field: &str| {
        let rule = format!("{{\"ports\":\"22\",{field}}}");
        let line = format!(
            "{{\"schema\":1,\"request\":\"rules_add\",\"chain\":\"remote\",\"policy\":\"enable\",\"rule\":{rule}}}\n"
        );
        let deletion = format!(
            "{{\"schema\":1,\"request\":\"rules_delete\",\"chain\":\"remote\",\"policy\":\"enable\",\"which\":{{\"match\":{rule}}}}}\n"
        );
        [line, deletion]
            .map(|line| read_request(&mut line.as_bytes(), 1 << 16).map(|request| request.is_some()))
    };
    for right in ["\"require\":true", "\"require\":false", "\"name\":null", "\"own\":true"] {
        assert!(add(right).iter().all(|read| matches!(read, Ok(true))), "{right}: {:?}", add(right));
    }
    for read in add("\"requier\":true") {
        assert!(read.unwrap_err().to_string().contains("no field `requier`"));
    }
}

#[test]
fn requests_that_change_state_are_not_read_only() {
    let orders = [
        "set",
        "rules_add",
        "rules_delete",
        "rules_flush",
        "rules_restore",
        "default_set",
        "reload",
        "shutdown",
        "drain",
        "rule_auto_en",
        "rule_auto_dis",
        "forget",
        "peers_add",
        "peers_pair",
        "peers_forget",
        "expose",
    ];
    for request in requests() {
        let json = serde_json::to_value(&request).unwrap();
        let is_order = orders.contains(&json["request"].as_str().unwrap());
        assert_eq!(request.is_read_only(), !is_order, "{json}");
    }
}

#[test]
fn a_request_without_fields_is_refused_if_it_has_one() {
    for request in ["rules_flush", "reload", "shutdown", "status"] {
        let line = format!("{{\"schema\":1,\"request\":\"{request}\",\"chain\":\"local\"}}\n");
        assert!(read_request(&mut line.as_bytes(), 1 << 16).is_err(), "{request}");
    }
}
