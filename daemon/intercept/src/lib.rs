//! Interception of TCP connections: diverts some connections to the daemon, and releases all others as plain TCP.
//!
//! An application's kernel socket is never replaced. The kernel holds the socket's SYN in an NFQUEUE ([`SynQueue`]) while the daemon
//! tries SCTP:
//!
//! - If SCTP works, the daemon releases the SYN with [`Verdict::Divert`], and the kernel adds the connection to an nftables set.
//!   The connection then crosses a veth pair into a private network namespace. There, a transparent listener ([`Listener`])
//!   accepts it with both addresses and ports intact.
//! - If SCTP fails, the daemon releases the SYN unchanged, and the connection is ordinary TCP.
//!
//! On the server's side, [`Interceptor::connect_as`] opens the connection to the local program from inside the private namespace,
//! with the client's own address and port. The connection arrives on the interface on which the client's packets arrived
//! (`uplinks`). The host's firewall treats this connection like a connection from outside.
//!
//! This crate makes no decisions. The caller decides which connections are tried, when a SYN is released, and when a diverted
//! connection is forgotten. Sockets with the mark [`Marks::own`] are never held. Connections over the loopback interface are held
//! only with [`Config::loopback`].
//!
//! Invariants:
//! - The nftables table belongs to one netlink socket (`flags owner`). No other program can change it, and a second interceptor
//!   in the same network namespace is refused. The table disappears with the process.
//! - The private namespace has no name and exists only in this process. The veth pair disappears with this namespace.
//! - After SIGKILL, only routing policy rules, three sysctls, and the lasting table of [`Interceptor::guard`] remain.
//!   [`remove_leftovers`] removes the rules and restores the sysctls.
//! - Every local socket is armed: if it is closed without an orderly shutdown, it sends RST. A crash thus never looks like the
//!   end of a stream. [`disarm_linger`] precedes the orderly close.
//!
//! Administrators should know that connections from SCTP peers arrive at programs on the interface on which the peer's packets
//! arrived. Connections of the host to itself, and answers to its own programs, arrive on [`Config::host_interface`]. Programs
//! may see bits of [`Marks::served`] or [`Marks::shim`] in `SO_MARK` of connections that they accepted.
//!
//! This crate starts no other program, such as `ip`, `nft` or `iptables`. It uses netlink only. Begin with
//! [`Interceptor::set_up`].

mod bpf;
mod config;
mod datagrams;
mod diag;
mod enclosure;
mod error;
mod flow;
mod interceptor;
mod links;
mod namespace;
mod netlink;
mod nft;
mod queue;
mod sockets;
mod stock;
mod syn;
mod sysctl;
mod uplinks;

pub use config::{Config, Marks};
pub use datagrams::{Datagram, DatagramListener};
pub use diag::{ClientState, ListenerState, TcpState};
pub use enclosure::name_server;
pub use error::{SetUpError, TearDownError};
pub use flow::FourTuple;
pub use interceptor::{Interceptor, remove_leftovers};
pub use namespace::Namespace;
pub use nft::{Destinations, Guard, Named, Passed, TABLE};
pub use queue::{Denial, HeldSyn, HeldSynId, SynQueue, Verdict};
pub use sockets::{Arrival, Listener, SpoofedConnection, disarm_linger};
pub use sysctl::SavedSysctls;
