//! Kinds of peers, their Adaptation Layer Indications, and their payload protocol identifiers.

/// Adaptation Layer Indication (RFC 5061 section 4.2.6) by which shims recognize each other: "sctf".
pub const ADAPTATION: u32 = 0x7363_7466;

/// Adaptation Layer Indication in the INIT of a [shared association](crate::mux): "sctt". To a peer that does not know this indication, the
/// INIT is a request to a port without a listener.
pub const SHARED_ADAPTATION: u32 = 0x7363_7474;

/// Payload protocol identifier of bytes between shims: "sctd".
pub const PPID_DATA: u32 = 0x7363_7464;

/// Payload protocol identifier of the end of one direction between shims: "scte". The message has one byte.
pub const PPID_END: u32 = 0x7363_7465;

/// Payload protocol identifier of bytes to native programs: unspecified.
pub const PPID_NATIVE: u32 = 0;

/// Kind of peer at the other end of the association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A shim. The end of each direction is a message, and half-close works both ways.
    Shim,
    /// A native SCTP program. The end of either direction is SHUTDOWN, which ends both directions.
    Native,
}

impl Peer {
    /// Returns the kind of peer according to the Adaptation Layer Indication of the handshake.
    pub fn of_adaptation(adaptation: Option<u32>) -> Peer {
        if adaptation == Some(ADAPTATION) { Peer::Shim } else { Peer::Native }
    }

    /// Returns the payload protocol identifier for bytes to this peer.
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
    fn only_the_shims_adaptation_indication_identifies_a_shim() {
        assert_eq!(Peer::of_adaptation(Some(ADAPTATION)), Peer::Shim);
        assert_eq!(Peer::of_adaptation(Some(ADAPTATION ^ 1)), Peer::Native);
        assert_eq!(Peer::of_adaptation(None), Peer::Native);
    }
}
