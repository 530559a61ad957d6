//! Tests the learned table at chosen times.

use super::*;

const POLICY: LearnPolicy = LearnPolicy { failures: 3, hold_ms: 60_000, hold_max_ms: 3_600_000 };
const PATIENCE_US: u64 = 250_000;
const MINUTE: u64 = 60_000;
/// An arbitrary point in time.
const T0: UnixMs = UnixMs(1_700_000_000_000);

fn to(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn table_after(failure: Failure) -> LearnedTable {
    let mut table = LearnedTable::default();
    table.on_failure(T0, to("10.0.0.1:22"), failure, &POLICY);
    table
}

/// Returns the minutes in which a destination is probed if a connection is requested every minute, and every probe fails.
fn probe_minutes(mut table: LearnedTable, minutes: u64) -> Vec<u64> {
    let mut probes = Vec::new();
    for minute in 0..=minutes {
        let now = T0.plus(minute * MINUTE);
        assert!(table.call(now, to("10.0.0.1:22")).is_some(), "TCP at once in minute {minute}");
        if let Some(to) = table.next_probe(now) {
            probes.push(minute);
            table.on_probe(now, to, Err(Failure::NoAnswer), PATIENCE_US, &POLICY);
        }
    }
    probes
}

#[test]
fn an_unknown_destination_is_tried_and_one_that_never_answered_is_not_tried_again() {
    let mut table = LearnedTable::default();
    assert_eq!(table.call(T0, to("10.0.0.1:22")), None);
    let mut table = table_after(Failure::NoAnswer);
    let kept = table.call(T0, to("10.0.0.1:22")).unwrap();
    assert_eq!(kept.disabled.unwrap().failure, Failure::NoAnswer);
    assert!(table.call(T0, to("10.0.0.1:80")).is_some(), "the whole host is silent");
    assert_eq!(table.call(T0, to("10.0.0.2:22")), None);
}

#[test]
fn a_refusal_disables_its_port_and_no_other() {
    let mut table = table_after(Failure::Refused);
    assert!(table.call(T0, to("10.0.0.1:22")).is_some());
    assert_eq!(table.call(T0, to("10.0.0.1:80")), None);
}

#[test]
fn a_mapped_address_is_the_same_host() {
    let mut table = table_after(Failure::NoAnswer);
    assert!(table.call(T0, to("[::ffff:10.0.0.1]:22")).is_some());
}

#[test]
fn a_host_that_worked_is_disabled_by_the_third_failure_in_a_row_only() {
    let mut table = LearnedTable::default();
    let host = to("10.0.0.1:22");
    table.on_success(T0, host, Some(900));
    for minute in 1..=2 {
        table.on_failure(T0.plus(minute * MINUTE), host, Failure::NoAnswer, &POLICY);
        assert_eq!(table.explain(host), None, "failure {minute}");
    }
    table.on_success(T0.plus(3 * MINUTE), host, Some(900));
    for minute in 4..=5 {
        table.on_failure(T0.plus(minute * MINUTE), host, Failure::NoAnswer, &POLICY);
        assert_eq!(table.explain(host), None, "a success begins the count anew");
    }
    table.on_failure(T0.plus(6 * MINUTE), host, Failure::NoAnswer, &POLICY);
    assert!(table.explain(host).is_some());
}

#[test]
fn failures_of_the_same_moment_count_as_one() {
    let mut table = LearnedTable::default();
    let host = to("10.0.0.1:22");
    table.on_success(T0, host, Some(900));
    (0..100).for_each(|ms| table.on_failure(T0.plus(ms), host, Failure::NoAnswer, &POLICY));
    assert_eq!(table.explain(host), None);
}

#[test]
fn a_day_after_the_last_success_one_failure_disables_a_host() {
    let mut table = LearnedTable::default();
    let host = to("10.0.0.1:22");
    table.on_success(T0, host, Some(900));
    table.on_failure(T0.plus(86_400_000), host, Failure::NoAnswer, &POLICY);
    assert!(table.explain(host).is_some());
}

#[test]
fn the_time_between_probes_doubles_up_to_the_limit() {
    let probes = probe_minutes(table_after(Failure::NoAnswer), 200);
    assert_eq!(probes, [1, 3, 7, 15, 31, 63, 123, 183]);
}

#[test]
fn a_host_is_probed_only_after_another_connection_to_it() {
    let mut table = table_after(Failure::NoAnswer);
    let later = T0.plus(1000 * MINUTE);
    assert_eq!(table.next_probe(later), None);
    assert!(table.call(later, to("10.0.0.1:22")).is_some(), "the application does not wait for the probe");
    assert_eq!(table.next_probe(later), Some(to("10.0.0.1:22")));
    assert_eq!(table.next_probe(later), None, "one probe at a time");
}

#[test]
fn a_probe_that_is_answered_enables_and_the_next_failure_disables_for_longer() {
    let mut table = table_after(Failure::NoAnswer);
    let (host, later) = (to("10.0.0.1:22"), T0.plus(2 * MINUTE));
    table.call(later, host);
    table.next_probe(later).unwrap();
    table.on_probe(later, host, Ok(900), PATIENCE_US, &POLICY);
    assert_eq!(table.call(later, host), None);
    table.on_failure(later, host, Failure::NoAnswer, &POLICY);
    assert_eq!(table.explain(host).unwrap().disabled.unwrap().until, later.plus(2 * MINUTE));
    table.on_success(later, host, Some(900));
    assert_eq!(table.iter().next().unwrap().hold_ms, 0, "a connection over SCTP ends the growth");
}

#[test]
fn a_host_that_answers_later_than_connections_wait_stays_on_tcp() {
    let mut table = table_after(Failure::NoAnswer);
    let (host, later) = (to("10.0.0.1:22"), T0.plus(2 * MINUTE));
    table.call(later, host);
    table.next_probe(later).unwrap();
    table.on_probe(later, host, Ok(PATIENCE_US), PATIENCE_US, &POLICY);
    assert_eq!(table.explain(host).unwrap().disabled.unwrap().failure, Failure::TooSlow);
}

#[test]
fn a_probe_that_is_refused_frees_the_host_and_disables_the_port() {
    let mut table = table_after(Failure::NoAnswer);
    let (host, later) = (to("10.0.0.1:22"), T0.plus(2 * MINUTE));
    table.call(later, host);
    table.next_probe(later).unwrap();
    table.on_probe(later, host, Err(Failure::Refused), PATIENCE_US, &POLICY);
    assert!(table.call(later, host).is_some());
    assert_eq!(table.call(later, to("10.0.0.1:80")), None);
}

#[test]
fn a_probe_of_what_was_forgotten_teaches_nothing() {
    let mut table = table_after(Failure::NoAnswer);
    let (host, later) = (to("10.0.0.1:22"), T0.plus(2 * MINUTE));
    table.call(later, host);
    table.next_probe(later).unwrap();
    assert_eq!(table.forget(host.ip()), 1);
    table.on_probe(later, host, Err(Failure::NoAnswer), PATIENCE_US, &POLICY);
    assert!(table.is_empty());
}

#[test]
fn a_clock_that_is_set_back_expires_an_entry_instead_of_pinning_it() {
    let mut table = table_after(Failure::NoAnswer);
    let last_year = UnixMs(T0.0 - 365 * 86_400_000);
    table.call(last_year, to("10.0.0.1:22"));
    assert!(table.next_probe(last_year).is_some());
}

#[test]
fn a_full_table_forgets_the_least_recently_used() {
    let mut table = LearnedTable::default();
    let host = |n: u32| SocketAddr::new(IpAddr::V4((0x0a00_0000 + n).into()), 22);
    for n in 0..MAX_LEARNED as u32 {
        table.on_failure(T0.plus(n.into()), host(n), Failure::NoAnswer, &POLICY);
    }
    let later = T0.plus(MINUTE);
    table.call(later, host(0));
    table.on_failure(later, host(1 << 20), Failure::NoAnswer, &POLICY);
    assert_eq!(table.len(), MAX_LEARNED);
    assert!(table.explain(host(0)).is_some() && table.explain(host(1)).is_none());
}

#[test]
fn an_invalid_destination_is_not_remembered() {
    let mut table = LearnedTable::default();
    for address in ["0.0.0.0:1", "127.0.0.1:1", "[ff02::1]:1"] {
        table.on_failure(T0, to(address), Failure::NoAnswer, &POLICY);
    }
    assert!(table.is_empty());
    let mut entry = table_after(Failure::NoAnswer).iter().next().unwrap().clone();
    entry.host = "::".parse().unwrap();
    assert!(!table.restore(entry));
}

#[test]
fn calls_are_counted_for_the_host_and_for_the_port_that_differs() {
    let mut table = table_after(Failure::Refused);
    table.call(T0, to("10.0.0.1:22"));
    let counts: Vec<_> =
        table.iter().map(|e| (e.port, e.usage.calls_today, e.usage.failures_today)).collect();
    assert_eq!(counts, [(None, 2, 1), (Some(22), 2, 1)]);
}

#[test]
fn a_kept_entry_cannot_claim_to_be_disabled_for_ever() {
    let mut entry = table_after(Failure::NoAnswer).iter().next().unwrap().clone();
    entry.hold_ms = u64::MAX;
    entry.disabled.as_mut().unwrap().until = UnixMs(u64::MAX);
    entry.wanted = true;
    let mut table = LearnedTable::default();
    assert!(table.restore(entry));
    assert!(table.next_probe(T0).is_some());
}

#[test]
fn of_a_hosts_other_addresses_the_latest_are_remembered() {
    let mut table = LearnedTable::default();
    let (host, other) = (to("10.0.0.1:22"), |n: u8| IpAddr::from([10, 0, 1, n]));
    table.note_address(host.ip(), other(0));
    assert!(table.others(host.ip()).is_empty(), "nothing is kept of a host that is not known");
    table.on_success(T0, host, None);
    (0..=OTHERS_MAX as u8).chain([3]).for_each(|n| table.note_address(host.ip(), other(n)));
    table.note_address(host.ip(), host.ip());
    let expected: Vec<IpAddr> = (1..=OTHERS_MAX as u8).map(other).collect();
    assert_eq!(table.others(host.ip()), expected);
}

#[test]
fn addresses_of_a_host_are_not_adopted_from_another_hosts_table() {
    let (known, unknown) = (to("10.0.0.1:22"), to("10.0.0.2:22"));
    let (own, foreign) = (IpAddr::from([10, 0, 1, 1]), IpAddr::from([192, 0, 2, 66]));
    let (mut here, mut there) = (LearnedTable::default(), LearnedTable::default());
    here.on_success(T0, known, None);
    here.note_address(known.ip(), own);
    for host in [known, unknown] {
        there.on_success(T0.plus(5), host, None);
        there.note_address(host.ip(), foreign);
        assert!(here.merge(T0.plus(9), there.host(host.ip()).unwrap().clone()));
    }
    assert_eq!((here.others(known.ip()), here.others(unknown.ip())), (&[own][..], &[][..]));
}

#[test]
fn a_newer_finding_of_another_host_is_adopted_and_counts_stay() {
    let host = to("10.0.0.1:22");
    let (mut here, mut there) = (table_after(Failure::NoAnswer), LearnedTable::default());
    there.on_success(T0.plus(5), host, Some(900));
    let found = there.host(host.ip()).unwrap().clone();
    assert!(here.merge(T0.plus(9), found.clone()), "newer");
    assert_eq!(here.explain(host), None);
    assert_eq!(here.host(host.ip()).unwrap().usage.failures_today, 1);
    assert!(!here.merge(T0.plus(9), found), "the same once more");
    let old = table_after(Failure::NoAnswer).host(host.ip()).unwrap().clone();
    assert!(!here.merge(T0.plus(9), old), "older");
}

#[test]
fn a_finding_dated_in_the_future_counts_as_of_now() {
    let mut found = table_after(Failure::NoAnswer).iter().next().unwrap().clone();
    found.judged = UnixMs(u64::MAX);
    let (mut here, host) = (LearnedTable::default(), to("10.0.0.1:22"));
    assert!(here.merge(T0, found));
    assert!(here.explain(host).is_some() && here.iter().all(|e| e.usage.calls_today == 0));
    here.on_success(T0.plus(1), host, None);
    assert_eq!(here.explain(host), None);
}
