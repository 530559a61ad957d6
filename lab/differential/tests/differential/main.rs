//! Scenarios between our engine at one end and another engine at the other end, in both roles.
//!
//! Except dcSCTP, the other engines draw unseeded random numbers, so their packets differ from run to run.
//! The tests therefore compare outcomes, not packets. A test fails on a difference that
//! `docs/differences.md` does not list. The test also fails if a listed difference does not occur. Begin at
//! `scenarios::SCENARIOS`.

mod dcsctp_stack;
mod list;
mod network;
mod ours;
mod scenarios;
mod stack;
mod webrtc;

use list::{Difference, listed};
use scenarios::SCENARIOS;
use stack::Who;

#[test]
fn our_engine_at_both_ends_gives_the_outcome_of_each_scenario() {
    for scenario in SCENARIOS {
        assert_eq!((scenario.play)([Who::Ours; 2]), scenario.outcome, "{}", scenario.name);
    }
}

/// Returns the scenarios whose outcome changes when `other` replaces our engine at one end.
fn differences(other: Who) -> Vec<Difference> {
    let mut found = Vec::new();
    for scenario in SCENARIOS.iter().filter(|s| s.others.contains(&other)) {
        for (role, who) in [("opens", [other, Who::Ours]), ("listens", [Who::Ours, other])] {
            let outcome = (scenario.play)(who);
            if outcome != scenario.outcome {
                let (name, role) = (scenario.name.to_owned(), format!("{} {role}", other.name()));
                found.push(Difference { scenario: name, role, outcome });
            }
        }
    }
    found
}

fn compare(other: Who) {
    let listed: Vec<_> = listed().into_iter().filter(|d| d.role.starts_with(other.name())).collect();
    let found = differences(other);
    let unlisted: Vec<_> = found.iter().filter(|d| !listed.contains(d)).collect();
    let gone: Vec<_> = listed.iter().filter(|d| !found.contains(d)).collect();
    assert!(
        unlisted.is_empty() && gone.is_empty(),
        "mend them, or list them in docs/differences.md: {unlisted:#?}\nlisted, but not there: {gone:#?}"
    );
}

#[test]
fn outcomes_with_dcsctp_differ_only_where_listed() {
    compare(Who::Dcsctp);
}

#[test]
fn outcomes_with_sctp_proto_differ_only_where_listed() {
    compare(Who::SctpProto);
}

#[test]
fn outcomes_with_rtc_sctp_differ_only_where_listed() {
    compare(Who::RtcSctp);
}
