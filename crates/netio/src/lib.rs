//! SCTP packets in and out of the kernel: UDP with GSO and GRO, raw IP, addresses and routes.
//!
//! Sends and receives whole SCTP packets and reports what ICMP says about them. Never looks inside an SCTP
//! packet, decides nothing of the protocol, starts no thread and reads no clock. Everything belongs to the
//! network namespace of the thread that opened it.

mod cmsg;
mod counters;
mod error;
mod gso;
mod pair;
mod raw;
mod sockaddr;
mod socket;
mod sys;
mod udp;

pub use counters::{Counters, SendErrors};
pub use error::{PathError, PathErrorKind, SendError, SendErrorKind, Unreachable};
pub use raw::RawCarrier;
pub use socket::{DATAGRAMS_PER_RECV, ERRORS_PER_CALL, Received};
pub use udp::{SCTP_OVER_UDP_PORT, UdpCarrier};
