//! Every system call on a connection does by SCTP what it does by TCP, at both ends of it.

use crate::cases::{Difference, compare};

/// All of the differences that there are; docs/tcp-options.md tells users of them.
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
