//! Counters of a carrier.

use std::ops::AddAssign;

use crate::error::SendErrorKind;

/// Counts since the socket was opened. They never decrease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// SCTP packets handed to the kernel.
    pub packets_sent: u64,
    /// Bytes of the sent packets, without UDP and IP headers.
    pub bytes_sent: u64,
    /// System calls made to send.
    pub send_calls: u64,
    /// Packets that a shortcut of the raw carrier handed directly to an interface.
    pub shortcut_packets: u64,
    /// Trains of more than one packet that were sent in one piece (UDP GSO).
    pub gso_batches: u64,
    /// Trains that the kernel or the interface refused. The packets of these trains were sent one by one.
    pub gso_refusals: u64,
    /// SCTP packets received.
    pub packets_received: u64,
    /// Bytes of the received packets, without UDP and IP headers.
    pub bytes_received: u64,
    /// System calls made to receive.
    pub recv_calls: u64,
    /// Trains of more than one packet that were received in one piece (UDP GRO).
    pub gro_batches: u64,
    /// Connected receive sockets that were opened for peers that send much.
    pub connected_rx: u64,
    /// Received packets that were discarded, because they were truncated or were not unicast.
    pub discarded: u64,
    /// ICMP reports that were read from the error queue and passed on.
    pub path_errors: u64,
    /// Send errors.
    pub send_errors: SendErrors,
}

/// Send errors by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendErrors {
    /// The send buffer was full.
    pub full: u64,
    /// The queue of the local interface was full and dropped the packet or train (ENOBUFS). The carrier's `send` nevertheless
    /// returns success, although the packets are lost. For IPv6 packets that are sent through a given interface, the kernel
    /// does not report such losses.
    pub dropped: u64,
    /// The packet was longer than the interface's MTU.
    pub too_large: u64,
    /// No route existed.
    pub no_route: u64,
    /// A local firewall forbade the packet.
    pub forbidden: u64,
    /// The carrier was not open, or another error occurred.
    pub other: u64,
}

impl SendErrors {
    pub(crate) fn count(&mut self, kind: SendErrorKind) {
        *match kind {
            SendErrorKind::Full => &mut self.full,
            SendErrorKind::TooLarge { .. } => &mut self.too_large,
            SendErrorKind::NoRoute => &mut self.no_route,
            SendErrorKind::Forbidden => &mut self.forbidden,
            SendErrorKind::NoCarrier | SendErrorKind::Other => &mut self.other,
        } += 1;
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.packets_sent += other.packets_sent;
        self.bytes_sent += other.bytes_sent;
        self.send_calls += other.send_calls;
        self.shortcut_packets += other.shortcut_packets;
        self.gso_batches += other.gso_batches;
        self.gso_refusals += other.gso_refusals;
        self.packets_received += other.packets_received;
        self.bytes_received += other.bytes_received;
        self.recv_calls += other.recv_calls;
        self.gro_batches += other.gro_batches;
        self.connected_rx += other.connected_rx;
        self.discarded += other.discarded;
        self.path_errors += other.path_errors;
        self.send_errors += other.send_errors;
    }
}

impl AddAssign for SendErrors {
    fn add_assign(&mut self, other: SendErrors) {
        self.full += other.full;
        self.dropped += other.dropped;
        self.too_large += other.too_large;
        self.no_route += other.no_route;
        self.forbidden += other.forbidden;
        self.other += other.other;
    }
}
