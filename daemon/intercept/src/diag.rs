//! Finds the socket of this host that a TCP packet would reach, through sock_diag.
//!
//! The kernel uses the same search as for an arriving packet: first a socket with exactly these addresses and ports, then a
//! listener. One query takes about 10 µs. The sock_diag socket must be opened in the host's namespace.

use std::fmt;
use std::io;
use std::net::IpAddr;

use netlink_packet_core::NLM_F_REQUEST;

use crate::flow::FourTuple;
use crate::netlink::{Message, Netlink};

/// `SOCK_DIAG_BY_FAMILY`.
const KIND: u16 = 20;
const ALL_STATES: u32 = u32::MAX;
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// A TCP state, in the kernel's numbering.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TcpState(pub u8);

impl TcpState {
    const SYN_SENT: TcpState = TcpState(2);
    const LISTEN: TcpState = TcpState(10);
    /// State of a closed connection that the kernel keeps for late packets. A new connection with the same addresses and ports
    /// may replace it.
    pub const TIME_WAIT: TcpState = TcpState(6);
    const NAMES: [&str; 13] = [
        "unknown",
        "ESTABLISHED",
        "SYN_SENT",
        "SYN_RECV",
        "FIN_WAIT1",
        "FIN_WAIT2",
        "TIME_WAIT",
        "CLOSE",
        "CLOSE_WAIT",
        "LAST_ACK",
        "LISTEN",
        "CLOSING",
        "NEW_SYN_RECV",
    ];
}

impl fmt::Display for TcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.get(usize::from(self.0)).unwrap_or(&Self::NAMES[0]))
    }
}

impl fmt::Debug for TcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// State of the application's end of a connection whose SYN is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientState {
    /// The socket waits for the connection.
    SynSent {
        /// The user that owns the socket.
        uid: u32,
        /// The interface that the socket is bound to, through SO_BINDTODEVICE or a link-local address. A connection from a bound
        /// socket cannot be diverted: packets from the veth would not reach the socket, so the connection would hang.
        bound_interface: Option<u32>,
    },
    /// The application has closed its socket, or has no TCP socket, because it sent the SYN through a raw socket.
    Gone,
    /// A socket with the SYN's addresses and ports exists, but the socket's state shows that the socket did not send the SYN.
    Other(TcpState),
}

/// State of the listener for a connection from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListenerState {
    /// A program listens on the port.
    Listening {
        /// True if the program listens on all addresses of the family.
        on_all: bool,
        /// The user that the socket belongs to.
        uid: u32,
        /// The socket's inode number, unique while the socket exists.
        inode: u32,
    },
    /// No program listens on the port, or only for other addresses.
    Nobody,
    /// A connection with these addresses and ports already exists, in this state. A second connection would hang, or harm the
    /// existing connection.
    Collision(TcpState),
}

/// A socket as the kernel describes it.
struct Found {
    state: TcpState,
    remote_port: u16,
    /// True if the local address is unspecified.
    on_all: bool,
    interface: u32,
    /// For a listener, `waiting` is the number of connections that wait for `accept`, and `waiting_max` is the limit on that
    /// number.
    waiting: u32,
    waiting_max: u32,
    uid: u32,
    inode: u32,
}

/// A sock_diag socket.
pub(crate) struct Diagnosis {
    netlink: Netlink,
}

impl Diagnosis {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Diagnosis> {
        Ok(Diagnosis { netlink: Netlink::open(netlink_sys::protocols::NETLINK_SOCK_DIAG)? })
    }

    /// Returns the state of the application's socket for a SYN that was leaving through the interface `out_interface`.
    pub(crate) fn client(&mut self, flow: &FourTuple, out_interface: u32) -> io::Result<ClientState> {
        Ok(match self.find(flow, out_interface)? {
            None => ClientState::Gone,
            Some(found) if found.state == TcpState::LISTEN => ClientState::Gone,
            Some(found) if found.state == TcpState::SYN_SENT && found.remote_port == flow.remote().port() => {
                let bound_interface = (found.interface != 0).then_some(found.interface);
                ClientState::SynSent { uid: found.uid, bound_interface }
            }
            Some(found) => ClientState::Other(found.state),
        })
    }

    /// Returns the state of the listener for a connection from `flow.remote()` to `flow.local()`.
    pub(crate) fn listener(&mut self, flow: &FourTuple) -> io::Result<ListenerState> {
        Ok(match self.find(flow, 0)? {
            None => ListenerState::Nobody,
            Some(found) if found.state == TcpState::LISTEN => {
                ListenerState::Listening { on_all: found.on_all, uid: found.uid, inode: found.inode }
            }
            Some(found) => ListenerState::Collision(found.state),
        })
    }

    /// Reports whether a connection would find its listener's backlog full. A listener with a full backlog accepts no connection.
    pub(crate) fn is_backlog_full(&mut self, flow: &FourTuple) -> io::Result<bool> {
        let found = self.find(flow, 0)?.filter(|found| found.state == TcpState::LISTEN);
        Ok(found.is_some_and(|listener| listener.waiting > listener.waiting_max))
    }

    fn find(&mut self, flow: &FourTuple, interface: u32) -> io::Result<Option<Found>> {
        let sequence = self.netlink.next_sequence();
        let query = query(flow, interface, sequence);
        let answer = self.netlink.ask(query, |kind, body| (kind == KIND).then(|| Found::parse(body)));
        match answer {
            Ok(Some(Some(found))) => Ok(Some(found)),
            Ok(_) => Err(io::Error::other("the kernel's answer about a socket is cut short")),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn query(flow: &FourTuple, interface: u32, sequence: u32) -> Message {
    const IPPROTO_TCP: u8 = 6;
    let family = if flow.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut message = Message::new(KIND, NLM_F_REQUEST, sequence);
    message.put(&[family as u8, IPPROTO_TCP, 0, 0]);
    message.put(&ALL_STATES.to_ne_bytes());
    message.put(&flow.local().port().to_be_bytes());
    message.put(&flow.remote().port().to_be_bytes());
    message.put(&padded(flow.local().ip()));
    message.put(&padded(flow.remote().ip()));
    message.put(&interface.to_ne_bytes());
    message.put(&NO_COOKIE);
    message
}

/// Returns an address in 16 bytes. An IPv4 address fills the first four.
fn padded(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl Found {
    fn parse(body: &[u8]) -> Option<Found> {
        let word = |offset: usize| body.get(offset..)?.first_chunk().map(|four| u32::from_ne_bytes(*four));
        Some(Found {
            state: TcpState(*body.get(1)?),
            remote_port: body.get(6..)?.first_chunk().map(|two| u16::from_be_bytes(*two))?,
            on_all: body.get(8..24)?.iter().all(|octet| *octet == 0),
            interface: word(40)?,
            waiting: word(56)?,
            waiting_max: word(60)?,
            uid: word(64)?,
            inode: word(68)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_72_bytes() {
        let address = |text: &str| text.parse::<std::net::SocketAddr>().expect("an address");
        let flow = FourTuple::new(address("10.0.0.1:1"), address("10.0.0.2:2")).expect("one family");
        let bytes = query(&flow, 3, 1).finish();
        assert_eq!(bytes.len(), 72);
        assert_eq!(bytes[24..36], [0, 1, 0, 2, 10, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(bytes[60..64], 3u32.to_ne_bytes());
    }

    #[test]
    fn an_answer_cut_short_is_no_socket() {
        assert!(Found::parse(&[2; 71]).is_none());
        assert!(Found::parse(&[2; 72]).is_some());
    }
}
