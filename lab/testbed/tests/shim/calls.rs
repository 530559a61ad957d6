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
fn socket_calls_over_sctp_behave_as_over_tcp_except_where_listed() {
    compare("streams = \"own\"\n", "calls", &["uring"], DIFFERENCES);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn socket_calls_on_a_shared_association_behave_as_over_tcp_except_where_listed() {
    compare("streams = \"shared\"\n", "calls", &["uring"], DIFFERENCES);
}
