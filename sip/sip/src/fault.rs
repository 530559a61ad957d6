//! Error responses to invalid or refused requests.

/// A status and reason phrase for rejecting a request (RFC 3261 section 21).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{status} {reason}")]
pub struct Fault {
    /// Status code, 400 to 699.
    pub status: u16,
    /// Reason phrase of the response.
    pub reason: &'static str,
}

impl Fault {
    /// Returns a 400, for a request that does not follow the grammar.
    pub const fn bad(reason: &'static str) -> Fault {
        Fault { status: 400, reason }
    }
}
