//! Tests that every system call on a connection behaves over SCTP as over TCP, at both ends.

use crate::cases::{Difference, compare};

/// Complete list of the differences between SCTP and TCP. docs/tcp-options.md documents them for
/// users.
const DIFFERENCES: &[Difference] = &[Difference {
    case: "MSG_OOB",
    by_sctp: "poll 1, apart EINVAL '-', in the stream 'abcd'",
    why: "SCTP has no urgent data: the byte comes in its place in the stream",
}];

#[test]
#[ignore = "needs root: makes network namespaces"]
fn every_call_on_a_connection_does_what_it_does_by_tcp() {
    compare("streams = \"own\"\n", "calls", &["uring"], DIFFERENCES);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn every_call_on_a_connection_that_shares_its_association_does_what_it_does_by_tcp() {
    compare("streams = \"shared\"\n", "calls", &["uring"], DIFFERENCES);
}
