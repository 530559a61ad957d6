//! Taking over TCP connections and giving them back.
//!
//! An application's kernel socket is never replaced. Its SYN is held in an NFQUEUE ([`SynQueue`]) while the daemon tries SCTP. If
//! that works, the SYN is released with [`Verdict::Divert`], and the kernel adds the connection's addresses to an nftables set.
//! The connection now travels over a veth pair into a private network namespace, where a transparent listener ([`Listener`])
//! accepts it with both addresses and ports intact. If SCTP fails, the SYN is released unchanged, and the connection is ordinary
//! TCP. On the server's side, [`Interceptor::connect_as`] opens the local connection from inside that namespace with the client's
//! own address and port. It arrives by the interface that the client's packets came by (`uplinks`), and passes the host's rules
//! as a packet from outside would.
//!
//! This crate makes no decisions: the caller decides which connections are tried, when a SYN is released and when a diverted
//! connection is forgotten. Loopback and sockets that carry the mark [`Marks::own`] are never held.
//!
//! Invariants:
//! - The nftables table belongs to one netlink socket (`flags owner`): nobody else can change it, a second
//!   interceptor in the same network namespace is refused, and it is gone when the process is.
//! - The private namespace has no name and lives only in this process; the veth pair goes with it.
//! - After SIGKILL only two routing policy rules and three sysctls stay: [`remove_leftovers`] takes them away.
//! - Every local socket is armed to reset when it is closed without a word ([`disarm_linger`] before the
//!   orderly close), so that a crash never looks like the end of a stream.
//!
//! For administrators: connections from SCTP peers reach programs by the interface that the peer's packets came by; those of the
//! host itself, and answers to its own programs, by [`Config::host_interface`]. Programs may see bits of [`Marks::served`] or
//! [`Marks::shim`] in `SO_MARK` of connections they accepted.
//!
//! It runs no other program, neither `ip` nor `nft` nor `iptables`: it uses netlink only. Begin with [`Interceptor::set_up`].

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
