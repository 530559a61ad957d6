//! Faults in requests that can still be answered.

/// A status and reason phrase for rejecting a request (RFC 3261 section 21).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{status} {reason}")]
pub struct Fault {
    /// Status code, 400 to 699.
    pub status: u16,
    /// A description of the fault, for the reason phrase.
    pub reason: &'static str,
}

impl Fault {
    /// 400: the request does not follow the grammar.
    pub const fn bad(reason: &'static str) -> Fault {
        Fault { status: 400, reason }
    }
}
