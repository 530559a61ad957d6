//! Prints the daemon's answers as text for people.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use control::{
    AddressUse, Association, Connection, DoctorReport, Encryption, Explanation, Fallback, HostKeyText,
    KnownBy, KnownPeer, LearnedRow, LearnedState, Level, LinkCap, LinkHistory, LinkState, LinkTest,
    PastAttempt, Path, PathEvent, PathState, PeerLink, PendingChange, RoundTrips,
};
use control::{Response, Role, SettingsReport, Status, Verdict, Via};

use rules::LearnedEntry;

use crate::bench;
use crate::shimrules::show_rules;
use crate::table::{Align, Table, bytes, millis, seconds};

use Align::{Left, Right};

/// Limit on the path changes that the status shows.
const EVENTS_SHOWN: usize = 8;

/// Prints the paths with all their details.
pub(crate) fn wide(out: &mut dyn Write, answer: &Response) -> io::Result<()> {
    match answer {
        Response::Paths(p) => paths(out, &p.associations, wide_path_table),
        other => self::answer(out, other),
    }
}

/// Prints any answer.
pub(crate) fn answer(out: &mut dyn Write, answer: &Response) -> io::Result<()> {
    match answer {
        Response::Status(s) => status(out, s),
        Response::Paths(p) => paths(out, &p.associations, path_table),
        Response::History(h) => history(out, &h.links),
        Response::Events(e) => events(out, &e.events),
        Response::Event(e) => writeln!(out, "{e}"),
        Response::Explanation(e) => explanation(out, e),
        Response::Settings(s) => settings(out, s),
        Response::Rules(r) => show_rules(out, r, false),
        Response::DefaultPolicy(d) => writeln!(out, "{} {}", d.chain, d.policy),
        Response::Doctor(d) => doctor(out, d),
        Response::Ping(p) => link_tests(&p.links).iter().try_for_each(|line| writeln!(out, "{line}")),
        Response::HostKey(k) => writeln!(out, "{}\n{}", k.key, k.words.join(" ")),
        Response::Peers(p) => peers(out, &p.peers),
        Response::Bench(b) => bench::show(out, b),
        Response::Done(d) => writeln!(out, "{}", d.message),
        Response::Error(e) => writeln!(out, "error: {}", e.message),
    }
}

fn status(out: &mut dyn Write, s: &Status) -> io::Result<()> {
    let switch =
        if s.enabled { "enabled" } else { "DISABLED (setting enable=0): all new connections are TCP" };
    writeln!(out, "sctpifyd {}, pid {}, up {}, {switch}", s.version, s.pid, seconds(s.uptime_s))?;
    let c = &s.counters;
    writeln!(
        out,
        "connects: {} seen, {} over SCTP, {} fell back to TCP, {} kept on TCP by rule, {} as learned",
        c.connects_seen, c.connects_sctp, c.connects_fallback, c.connects_by_rule_tcp, c.connects_learned_tcp
    )?;
    let (joined, opened) = (c.connects_shared, c.shared_associations);
    writeln!(
        out,
        "shared:   {joined} of them joined a shared association; {opened} shared associations opened"
    )?;
    writeln!(out, "accepts:  {} over SCTP, {} refused", c.accepts, c.accepts_refused)?;
    let (sent, received) = (bytes(c.bytes_sent), bytes(c.bytes_received));
    writeln!(out, "bytes:    {sent} sent, {received} received; {} path switches", c.path_switches)?;
    for carrier in &s.carriers {
        if let Some(problem) = &carrier.problem {
            writeln!(out, "{} is closed: {problem}", via(carrier.carrier))?;
        }
    }
    if !s.pending.is_empty() {
        let change = |c: &PendingChange| format!("{}={} (now {})", c.name, c.configured, shown(&c.in_force));
        let changes = s.pending.iter().map(change).collect::<Vec<_>>().join(", ");
        writeln!(out, "waiting for a restart: {changes}")?;
    }
    if c.encrypted + c.changed_peers + c.failed_keys > 0 {
        writeln!(
            out,
            "encryption: {} associations encrypted; {} connections met another key than before, or none; {} key handshakes failed",
            c.encrypted, c.changed_peers, c.failed_keys
        )?;
    }
    writeln!(out, "confined: {}", s.confinement)?;
    section(out, "Links", &link_table(&s.links))?;
    section(out, "Links with a cap", &cap_table(&s.link_caps))?;
    connections(out, &s.connections)?;
    associations(out, &s.associations)?;
    listeners(out, s)?;
    events(out, &s.recent_events)?;
    fallbacks(out, &s.recent_fallbacks)
}

/// Prints the latest changes of paths.
fn events(out: &mut dyn Write, events: &[PathEvent]) -> io::Result<()> {
    let mut table = Table::new(&[("WHEN", Right), ("CHANGE OF PATHS", Left)]);
    for event in events.iter().take(EVENTS_SHOWN) {
        table.row([ago_unix(event.when_unix_ms), event.to_string()]);
    }
    section(out, "Recent events", &table)
}

/// Prints the status as Markdown: text as a list, tables as code.
pub(crate) fn markdown(out: &mut dyn Write, answer: &Response) -> io::Result<()> {
    let mut text = Vec::new();
    self::answer(&mut text, answer)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut in_code = false;
    for line in text.lines() {
        let is_row = line.starts_with("  ");
        if is_row != in_code {
            writeln!(out, "```")?;
            in_code = is_row;
        }
        match line {
            row if is_row => writeln!(out, "{}", &row[2..])?,
            "" => writeln!(out)?,
            title if title.ends_with(':') => writeln!(out, "### {}\n", title.trim_end_matches(':'))?,
            fact => writeln!(out, "- {fact}")?,
        }
    }
    if in_code { writeln!(out, "```") } else { Ok(()) }
}

fn section(out: &mut dyn Write, title: &str, table: &Table) -> io::Result<()> {
    if table.is_empty() {
        return writeln!(out, "\n{title}: none");
    }
    writeln!(out, "\n{title}:")?;
    table.print(out, "  ")
}

fn connections(out: &mut dyn Write, all: &[Connection]) -> io::Result<()> {
    let mut table = Table::new(&[
        ("ID", Right),
        ("ROLE", Left),
        ("LOCAL", Left),
        ("PEER", Left),
        ("STATE", Left),
        ("CARRIER", Left),
        ("SENT", Right),
        ("RECEIVED", Right),
        ("AGE", Right),
        ("ASSOC", Right),
    ]);
    for c in all {
        table.row([
            c.id.to_string(),
            role(c.role).into(),
            c.local.to_string(),
            c.peer.to_string(),
            c.state.name().into(),
            via(c.carrier).into(),
            bytes(c.bytes_sent),
            bytes(c.bytes_received),
            seconds(c.age_s),
            or_dash(c.association),
        ]);
    }
    section(out, "Connections", &table)
}

fn associations(out: &mut dyn Write, all: &[Association]) -> io::Result<()> {
    let mut table = Table::new(&[
        ("ID", Right),
        ("STATE", Left),
        ("PORTS", Left),
        ("PEER IS", Left),
        ("FOR", Left),
        ("PATHS", Left),
        ("ENCRYPTION", Left),
        ("SENT", Right),
        ("RECEIVED", Right),
        ("RETRANSMITTED", Right),
        ("QUEUED", Right),
        ("AGE", Right),
    ]);
    for a in all {
        let usable = a.paths.iter().filter(|p| p.state == PathState::Active).count();
        table.row([
            a.id.to_string(),
            a.state.clone(),
            format!("{}→{}", a.local_port, a.peer_port),
            if a.peer_is_sctpify { "sctpify" } else { "native SCTP" }.into(),
            users(a.shared_by),
            format!("{usable} of {} active", a.paths.len()),
            encryption(a.encryption.as_ref()),
            bytes(a.bytes_sent),
            bytes(a.bytes_received),
            a.retransmissions.to_string(),
            bytes(a.queued_bytes),
            seconds(a.age_s),
        ]);
    }
    section(out, "Associations (`sctpify paths` shows their paths)", &table)
}

/// Formats the encryption of an association.
fn encryption(encryption: Option<&Encryption>) -> String {
    let Some(found) = encryption else { return "none".to_owned() };
    let since = found.known_since.map_or_else(|| "-".to_owned(), |at| date(at.day()));
    let peer = match (found.by, &found.name) {
        (None, _) => "peer unknown here".to_owned(),
        (Some(KnownBy::FirstUse), _) => format!("peer not verified, known since {since}"),
        (Some(_), Some(name)) => format!("{name}, known since {since}"),
        (Some(_), None) => format!("peer known since {since}"),
    };
    format!("encrypted, {peer}, {}, epoch {}", short(&found.peer), found.epoch)
}

/// Formats the beginning of a key.
fn short(key: &HostKeyText) -> String {
    const DIGITS: usize = 8;
    let (prefix, digits) = key.as_str().split_once(':').unwrap_or_default();
    format!("{prefix}:{}…", digits.get(..DIGITS).unwrap_or(digits))
}

fn peers(out: &mut dyn Write, all: &[KnownPeer]) -> io::Result<()> {
    if all.is_empty() {
        return writeln!(out, "no known peers");
    }
    let mut table = Table::new(&[
        ("NAME", Left),
        ("ADDRESSES", Left),
        ("KNOWN BY", Left),
        ("FIRST SEEN", Left),
        ("LAST SEEN", Left),
        ("KEY", Left),
    ]);
    for peer in all {
        table.row([
            peer.name.clone().unwrap_or_else(|| "-".into()),
            peer.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
            peer.by.to_string(),
            date(peer.first_seen.day()),
            date(peer.last_seen.day()),
            peer.key.to_string(),
        ]);
    }
    table.print(out, "")
}

/// Formats the number of connections that use an association.
fn users(shared_by: Option<u64>) -> String {
    match shared_by {
        None => "one connection".to_owned(),
        Some(0) => "shared, now by none".to_owned(),
        Some(n) => format!("shared by {n}"),
    }
}

fn listeners(out: &mut dyn Write, s: &Status) -> io::Result<()> {
    let mut table = Table::new(&[("ADDRESS", Left), ("STATE", Left), ("BECAUSE", Left)]);
    for l in &s.listeners {
        table.row([l.address.to_string(), l.state.name().into(), l.because.clone()]);
    }
    section(out, "Listening services (those in LISTEN are reachable over SCTP)", &table)
}

fn fallbacks(out: &mut dyn Write, all: &[Fallback]) -> io::Result<()> {
    let mut table = Table::new(&[
        ("WHEN", Right),
        ("DESTINATION", Left),
        ("STATE", Left),
        ("HELD", Right),
        ("REASON", Left),
    ]);
    let now = unix_ms_now();
    for f in all {
        table.row([
            ago(now, f.when_unix_ms),
            f.destination.to_string(),
            f.state.name().into(),
            millis(f.held_us),
            f.reason.to_string(),
        ]);
    }
    section(out, "Recent fallbacks to TCP", &table)
}

/// Creates the table of this host's links to peers.
fn link_table(links: &[PeerLink]) -> Table {
    let mut table = Table::new(&[
        ("PEER", Left),
        ("LINK", Left),
        ("USE", Left),
        ("STATE", Left),
        ("DATA", Left),
        ("SRTT", Right),
        ("SENT", Right),
        ("RECEIVED", Right),
    ]);
    for link in links {
        table.row([
            link.peer.to_string(),
            link.title(),
            link.usage.name().into(),
            link_state(link.state).into(),
            if link.in_use { "in use" } else { "" }.into(),
            link.srtt_us.map_or_else(|| "-".into(), millis),
            bytes(link.sent_bytes),
            bytes(link.received_bytes),
        ]);
    }
    table
}

/// Prints the traffic of the last day and the total traffic of links.
fn history(out: &mut dyn Write, links: &[LinkHistory]) -> io::Result<()> {
    if links.is_empty() {
        return writeln!(out, "no history: it begins with the first association, at the end of a minute");
    }
    let mut table = Table::new(&[
        ("PEER", Left),
        ("LINK", Left),
        ("SENT 24 h", Right),
        ("RECEIVED 24 h", Right),
        ("MAX SRTT", Right),
        ("SENT", Right),
        ("RECEIVED", Right),
        ("SINCE", Left),
    ]);
    for link in links {
        let longest = link.day.srtt_us.iter().flatten().max();
        table.row([
            link.peer.to_string(),
            link.title(),
            bytes(link.day.sent_bytes.iter().sum()),
            bytes(link.day.received_bytes.iter().sum()),
            longest.map_or_else(|| "-".into(), |us| millis(*us)),
            bytes(link.sent_bytes),
            bytes(link.received_bytes),
            ago_unix(link.since_unix_ms),
        ]);
    }
    table.print(out, "")
}

/// Creates the table of this host's links with a cap.
fn cap_table(caps: &[LinkCap]) -> Table {
    let mut table = Table::new(&[
        ("LINK", Left),
        ("SINCE", Left),
        ("TRAFFIC", Right),
        ("CAP", Right),
        ("USED", Right),
        ("USE AT THE CAP", Left),
    ]);
    for cap in caps {
        let percent = cap.bytes.saturating_mul(100) / cap.cap_bytes.max(1);
        let now = if cap.is_reached { ", REACHED" } else { "" };
        table.row([
            cap.title(),
            cap.since.clone(),
            megabytes(cap.bytes),
            megabytes(cap.cap_bytes),
            format!("{percent} %"),
            format!("{}{now}", cap.at_cap.name()),
        ]);
    }
    table
}

/// Returns a number of bytes in megabytes (10^6 bytes), the unit of caps.
fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

/// Returns the word for a link's state, in capitals if it needs attention.
pub(crate) fn link_state(state: LinkState) -> &'static str {
    match state {
        LinkState::Up => "up",
        LinkState::Down => "DOWN",
        LinkState::Unproven => "unproven",
    }
}

fn paths(out: &mut dyn Write, all: &[Association], table_of: fn(&[Path]) -> Table) -> io::Result<()> {
    if all.is_empty() {
        return writeln!(out, "no associations");
    }
    for (i, a) in all.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let peer = if a.peer_is_sctpify { "sctpify" } else { "native SCTP" };
        writeln!(
            out,
            "Association {}: {}, ports {}→{}, peer is {peer}",
            a.id, a.state, a.local_port, a.peer_port
        )?;
        table_of(&a.paths).print(out, "  ")?;
    }
    Ok(())
}

fn path_table(paths: &[Path]) -> Table {
    let mut table = Table::new(&[
        ("LINK", Left),
        ("LOCAL", Left),
        ("REMOTE", Left),
        ("STATE", Left),
        ("ROLE", Left),
        ("SRTT", Right),
        ("SENT", Right),
    ]);
    for p in paths {
        table.row([
            or_dash(p.interface.as_ref()),
            or_dash(p.local),
            p.remote.to_string(),
            path_state(p.state).into(),
            path_role(p).into(),
            p.srtt_us.map_or_else(|| "-".into(), millis),
            bytes(p.data_sent_bytes),
        ]);
    }
    table
}

fn wide_path_table(paths: &[Path]) -> Table {
    let mut table = Table::new(&[
        ("LINK", Left),
        ("LOCAL", Left),
        ("REMOTE", Left),
        ("CARRIER", Left),
        ("STATE", Left),
        ("ROLE", Left),
        ("SRTT", Right),
        ("RTO", Right),
        ("CWND", Right),
        ("FLIGHT", Right),
        ("SENT", Right),
        ("MTU", Right),
        ("ERRORS", Right),
        ("LAST SWITCH", Right),
    ]);
    for p in paths {
        table.row([
            or_dash(p.interface.as_ref()),
            or_dash(p.local),
            p.remote.to_string(),
            p.udp_port.map_or_else(|| via(p.carrier).into(), |port| format!("{}:{port}", via(p.carrier))),
            path_state(p.state).into(),
            path_role(p).into(),
            p.srtt_us.map_or_else(|| "-".into(), millis),
            format!("{} ms", p.rto_ms),
            bytes(p.cwnd_bytes),
            bytes(p.flight_bytes),
            bytes(p.data_sent_bytes),
            p.mtu_bytes.to_string(),
            p.errors.to_string(),
            p.last_switch_s.map_or_else(|| "never".into(), |s| format!("{} ago", seconds(s))),
        ]);
    }
    table
}

fn path_role(p: &Path) -> &'static str {
    let is_backup = p.local_use.max(p.remote_use) == AddressUse::Backup;
    match (p.primary, p.in_use) {
        (_, true) if is_backup => "backup, in use",
        (_, false) if is_backup => "backup",
        (true, true) => "primary, in use",
        (true, false) => "primary",
        (false, true) => "in use",
        (false, false) => "secondary",
    }
}

fn explanation(out: &mut dyn Write, e: &Explanation) -> io::Result<()> {
    let verdict = match e.verdict {
        Verdict::SctpOnly => "SCTP only: a rule requires it",
        Verdict::SctpThenTcp => "SCTP is tried first, then TCP",
        Verdict::Tcp => "plain TCP",
    };
    writeln!(out, "{}: {verdict}", SocketAddr::new(e.address, e.port))?;
    match &e.reason {
        None => writeln!(out, "  because {}", e.because)?,
        Some(reason) if reason.is_of_rules() => writeln!(out, "  because {reason}")?,
        Some(reason) => writeln!(out, "  because {reason}; with the rules alone: {}", e.because)?,
    }
    if let Some(row) = &e.learned {
        learned(out, row)?;
    }
    if e.connections > 0 {
        writeln!(out, "  connections over SCTP now: {}{}", e.connections, limits(e))?;
    }
    let now = unix_ms_now();
    for attempt in &e.past {
        match attempt {
            PastAttempt::Sctp { when_unix_ms, setup_us } => {
                writeln!(out, "  {}: over SCTP, set up in {}", ago(now, *when_unix_ms), millis(*setup_us))?;
            }
            PastAttempt::Tcp(f) => {
                let held = millis(f.held_us);
                writeln!(out, "  {}: fell back to TCP after {held}: {}", ago(now, f.when_unix_ms), f.reason)?;
            }
        }
    }
    e.notes.iter().try_for_each(|note| writeln!(out, "  note: {note}"))
}

/// Formats the limits on the connections to a destination: `; limited by: network 2, application 1; 120000 bytes wait`.
fn limits(e: &Explanation) -> String {
    let by: Vec<String> =
        e.limited_by.iter().map(|(limit, count)| format!("{} {count}", limit.word())).collect();
    match (by.is_empty(), e.waiting_bytes) {
        (true, _) => String::new(),
        (false, 0) => format!("; limited by: {}", by.join(", ")),
        (false, bytes) => format!("; limited by: {}; {bytes} bytes wait", by.join(", ")),
    }
}

fn learned(out: &mut dyn Write, row: &LearnedRow) -> io::Result<()> {
    let (entry, usage) = (&row.entry, row.entry.usage);
    let today = format!("{} calls today, {} failed", usage.calls_today, usage.failures_today);
    let round_trip = usage.rtt_us.map(|us| format!(", round trip {}", millis(us))).unwrap_or_default();
    writeln!(out, "  learned about {}: {today}{round_trip}", destination(entry))?;
    let Some(disabled) = entry.disabled else { return Ok(()) };
    writeln!(
        out,
        "  kept on TCP since {} ({}); {}",
        ago_unix(disabled.since.0),
        disabled.failure,
        expiry(row)
    )
}

/// Formats a learned destination: the host, or the host with a port.
pub(crate) fn destination(entry: &LearnedEntry) -> String {
    entry.port.map_or_else(|| entry.host.to_string(), |port| SocketAddr::new(entry.host, port).to_string())
}

/// Formats the time of the next probe to a learned destination.
pub(crate) fn expiry(row: &LearnedRow) -> String {
    let until = row.entry.disabled.map_or(0, |d| d.until.0);
    match row.state {
        LearnedState::Enabled => "-".into(),
        LearnedState::Disabled => {
            format!("probed in {}", seconds(until.saturating_sub(unix_ms_now()).div_ceil(1000)))
        }
        LearnedState::Expired => "probed at its next connection".into(),
        LearnedState::Probing => "being probed".into(),
    }
}

/// Formats a day since 1970 as a date: `2026-11-22`; a dash for day 0, which means never.
pub(crate) fn date(day: u64) -> String {
    if day == 0 {
        return "-".into();
    }
    // Days are counted from 1 March of year 0, in eras of 400 years (146,097 days).
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

/// Prints settings. Adds a column with the values in force if any of them differs from the configured value.
fn settings(out: &mut dyn Write, report: &SettingsReport) -> io::Result<()> {
    let (default, takes) = (("DEFAULT", Right), ("TAKES", Left));
    if report.pending().is_empty() {
        let mut table = Table::new(&[("NAME", Left), ("VALUE", Right), default, takes]);
        for s in &report.settings {
            table.row([s.name.clone(), in_a_cell(&s.value), s.default.clone(), s.takes.clone()]);
        }
        return table.print(out, "");
    }
    let columns = [("NAME", Left), ("CONFIGURED", Right), ("IN FORCE", Right), default, takes];
    let mut table = Table::new(&columns);
    for s in &report.settings {
        let in_force = in_a_cell(s.in_force.as_ref().unwrap_or(&s.value));
        table.row([s.name.clone(), in_a_cell(&s.value), in_force, s.default.clone(), s.takes.clone()]);
    }
    table.print(out, "")?;
    report.pending().iter().try_for_each(|change| writeln!(out, "{}", pending(change)))
}

/// Formats the value of a setting for a cell of a table. Declared rules have a line each, and `sctpify rule list` shows them.
fn in_a_cell(value: &str) -> String {
    match value.lines().count() {
        0 | 1 => value.to_owned(),
        count => format!("{count} lines"),
    }
}

/// Formats a pending change for people.
pub(crate) fn pending(change: &PendingChange) -> String {
    let PendingChange { name, configured, in_force } = change;
    format!(
        "{name}={configured} waits for a restart (`sctpify down`, `sctpify up`); in force: {}",
        shown(in_force)
    )
}

/// Formats a value for a sentence; an empty value becomes `nothing`.
fn shown(value: &str) -> &str {
    if value.is_empty() { "nothing" } else { value }
}

/// Prints settings after a change.
pub(crate) fn changed(out: &mut dyn Write, report: &SettingsReport) -> io::Result<()> {
    report.settings.iter().try_for_each(|s| match s.pending() {
        Some(change) => writeln!(out, "{}", pending(&change)),
        None => writeln!(out, "{}={}", s.name, s.value),
    })
}

/// Prints findings, each fault with its remedy.
pub(crate) fn doctor(out: &mut dyn Write, report: &DoctorReport) -> io::Result<()> {
    let width = report.checks.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    for check in &report.checks {
        let level = match check.level {
            Level::Ok => "ok     ",
            Level::Warning => "warning",
            Level::Missing => "MISSING",
        };
        writeln!(out, "{level}  {:<width$}  {}", check.name, check.found)?;
        if let Some(remedy) = &check.remedy {
            writeln!(out, "{:9}{:width$}  → {remedy}", "", "")?;
        }
    }
    if !report.links.is_empty() {
        writeln!(out, "\nLinks:")?;
        link_tests(&report.links).iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    Ok(())
}

/// Returns a table with one line per link test. For a link that works, omits the peer's addresses that the link does not reach.
pub(crate) fn link_tests(tests: &[LinkTest]) -> Vec<String> {
    let works = |title: &str| tests.iter().any(|test| test.answered > 0 && test.own.title() == title);
    let mut table = Table::new(&[
        ("LINK", Left),
        ("LOCAL", Left),
        ("REMOTE", Left),
        ("SENT", Right),
        ("LOSS", Right),
        ("LAST", Right),
        ("MIN", Right),
        ("MEAN", Right),
        ("MAX", Right),
        ("MTU", Right),
        ("NOTE", Left),
    ]);
    for test in tests.iter().filter(|test| test.answered > 0 || !works(&test.own.title())) {
        let rtt =
            |pick: fn(&RoundTrips) -> u64| test.rtt.as_ref().map_or("-".into(), |rtt| millis(pick(rtt)));
        let nat = test.nat.then(|| "behind a NAT".to_owned());
        let unused = test.own.unused.as_ref().map(|why| format!("not used: {why}"));
        let notes: Vec<String> = test.fault.clone().into_iter().chain(nat).chain(unused).collect();
        table.row([
            test.own.title(),
            test.own.local.to_string(),
            test.remote.to_string(),
            test.sent.to_string(),
            format!("{} %", test.loss_percent()),
            rtt(|rtt| rtt.last_us),
            rtt(|rtt| rtt.min_us),
            rtt(|rtt| rtt.mean_us),
            rtt(|rtt| rtt.max_us),
            or_dash(test.mtu),
            notes.join("; "),
        ]);
    }
    table.lines()
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".into(), |v| v.to_string())
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Server => "server",
    }
}

const fn via(via: Via) -> &'static str {
    match via {
        Via::SctpUdp => "sctp-udp",
        Via::Sctp => "sctp",
        Via::Tcp => "tcp",
    }
}

const fn path_state(state: PathState) -> &'static str {
    match state {
        PathState::Active => "active",
        PathState::Inactive => "inactive",
        PathState::Unconfirmed => "unconfirmed",
        PathState::PotentiallyFailed => "potentially failed",
    }
}

#[allow(clippy::disallowed_methods, reason = "a program that shows how long ago something was")]
fn unix_ms_now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Formats the time since `then_ms`, in milliseconds since 1970: `5 s ago`.
pub(crate) fn ago_unix(then_ms: u64) -> String {
    ago(unix_ms_now(), then_ms)
}

/// Formats the time since `then_ms`, in milliseconds since 1970: `5 s`.
pub(crate) fn age(then_ms: u64) -> String {
    seconds(unix_ms_now().saturating_sub(then_ms) / 1000)
}

fn ago(now_ms: u64, then_ms: u64) -> String {
    format!("{} ago", seconds(now_ms.saturating_sub(then_ms) / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates_across_leap_years_and_centuries() {
        let days = [0, 1, 59, 11_016, 11_017, 19_675, 20_779, 47_540, 47_541];
        let dates = [
            "-",
            "1970-01-02",
            "1970-03-01",
            "2000-02-29",
            "2000-03-01",
            "2023-11-14",
            "2026-11-22",
            "2100-02-28",
            "2100-03-01",
        ];
        assert_eq!(days.map(date), dates);
    }
}
