//! SCTP packets in and out of the kernel: UDP with GSO and GRO, raw IP, addresses and routes.
//!
//! Sends and receives whole SCTP packets and reports what ICMP says about them. Never looks inside an SCTP
//! packet but to choose among shards (`steering`), decides nothing of the protocol, starts no thread and reads no clock. Everything belongs to the
//! network namespace of the thread that opened it, and must be used by threads in the same one: sending over
//! IPv6 by a given interface opens a socket the first time, for [`SENDERS_MAX`] interfaces at most.
//!
//! Begin with [`PacketIo`] for the packets of an engine, [`Carriers`] for packets of any kind, [`FrameSocket`] for whole frames of one interface (for emulators of links), and [`addresses`] for the ways out of this host.

mod addresses;
mod arrivals;
mod carriers;
mod cmsg;
mod connected_rx;
mod counters;
mod cut;
mod engine;
mod error;
mod frames;
mod gso;
mod heap;
mod inbound;
mod kernel;
mod netlink;
mod options;
mod packet_io;
mod pair;
mod raw;
mod routes;
mod shortcut;
mod sockaddr;
mod socket;
mod steering;
mod sys;
mod train;
mod tx_sockets;
mod udp;

pub use addresses::{AddressEvent, LinkKind, LocalAddress, Monitor, Scope, addresses, source_address};
pub use carriers::{CarrierCounters, Carriers};
pub use connected_rx::{CONNECTED_RX_MAX, Owner};
pub use counters::{Counters, SendErrors};
pub use error::{PathError, PathErrorKind, SendError, SendErrorKind, Unreachable};
pub use frames::{FRAMES_PER_CALL, Frame, FrameSocket, Offload, Segments, SentFrames, run_realtime};
pub use heap::give_back_free_memory;
pub use kernel::{KernelSctp, kernel_sctp};
pub use options::forbid_fragments;
pub use packet_io::{PacketIo, Transmitted};
pub use raw::RawCarrier;
pub use routes::{FoundRoute, Routes};
pub use shortcut::keep_filters_readable;
pub use socket::{DATAGRAMS_PER_RECV, ERRORS_PER_CALL, PATIENCE, Received};
pub use train::Train;
pub use tx_sockets::SENDERS_MAX;
pub use udp::{SCTP_OVER_UDP_PORT, UdpCarrier};
