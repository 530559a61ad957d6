//! Kinds of peers, and the framing of bytes and their end for each.

/// Adaptation Layer Indication (RFC 5061 section 4.2.6) by which shims know each other: "sctf".
pub const ADAPTATION: u32 = 0x7363_7466;

/// Adaptation Layer Indication of an association that is to be a [shared association](crate::mux), in its INIT: "sctt". A peer that knows
/// it not sees an INIT to a port where nothing listens.
pub const SHARED_ADAPTATION: u32 = 0x7363_7474;

/// Payload protocol identifier of bytes between shims: "sctd".
pub const PPID_DATA: u32 = 0x7363_7464;

/// Payload protocol identifier of the end of one direction between shims, a message of one byte: "scte".
pub const PPID_END: u32 = 0x7363_7465;

/// Payload protocol identifier of bytes to native programs: unspecified.
pub const PPID_NATIVE: u32 = 0;

/// Kind of peer at the other end of the association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A shim: the end of each direction is a message, and half-close works both ways.
    Shim,
    /// A native SCTP program: the end of either direction is SHUTDOWN, and ends both.
    Native,
}

impl Peer {
    /// Returns the kind of peer by the Adaptation Layer Indication of the handshake.
    pub fn of_adaptation(adaptation: Option<u32>) -> Peer {
        if adaptation == Some(ADAPTATION) { Peer::Shim } else { Peer::Native }
    }

    /// The payload protocol identifier for bytes to this peer.
    pub(crate) fn data_ppid(self) -> u32 {
        match self {
            Peer::Shim => PPID_DATA,
            Peer::Native => PPID_NATIVE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_indication_makes_a_shim() {
        assert_eq!(Peer::of_adaptation(Some(ADAPTATION)), Peer::Shim);
        assert_eq!(Peer::of_adaptation(Some(ADAPTATION ^ 1)), Peer::Native);
        assert_eq!(Peer::of_adaptation(None), Peer::Native);
    }
}
