//! Sends and receives SCTP packets through the kernel, in UDP (with GSO and GRO) or directly over IP. Also lists addresses and
//! routes.
//!
//! This crate sends and receives whole SCTP packets, and reports the ICMP errors about sent packets. It reads the contents of an
//! SCTP packet only to choose a shard (`steering`). It makes no protocol decisions, starts no thread and reads no clock.
//!
//! Sockets belong to the network namespace of the thread that opened them. Use the sockets only from threads in that namespace,
//! because a send may open a further socket. The first IPv6 packet through a given interface opens a send socket for this
//! interface. The limit is [`SENDERS_MAX`] interfaces.
//!
//! Begin with:
//! - [`PacketIo`] for the packets of an engine,
//! - [`Carriers`] for packets of any kind,
//! - [`FrameSocket`] for whole frames of one interface, for example in a link emulator,
//! - [`addresses`] for this host's addresses and their interfaces.

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

pub use addresses::{
    AddressEvent, InterfaceBytes, LinkKind, LocalAddress, Monitor, Scope, addresses, interface_bytes,
    source_address,
};
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
