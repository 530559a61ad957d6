//! rtnetlink messages about links and addresses, in and out.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Bytes of one receive call; the kernel fills at most 32 KiB.
const BUFFER_BYTES: usize = 64 << 10;
/// Receive calls of one dump at most: enough for a hundred thousand links.
const DUMP_CALLS_MAX: usize = 10_000;

/// What to list.
#[derive(Clone, Copy)]
pub(crate) enum Dump {
    Links,
    Addresses,
}

/// A socket that talks to the kernel alone.
pub(crate) struct Netlink {
    socket: Socket,
    buffer: Vec<u8>,
}

impl AsRawFd for Netlink {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Netlink {
    /// Opens a socket that hears the multicast groups of the mask.
    pub(crate) fn open(groups: u32, is_nonblocking: bool) -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, groups))?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(is_nonblocking)?;
        Ok(Netlink { socket, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Calls `f` with each message of a list.
    pub(crate) fn dump(&mut self, what: Dump, mut f: impl FnMut(RouteNetlinkMessage)) -> io::Result<()> {
        let request = match what {
            Dump::Links => RouteNetlinkMessage::GetLink(LinkMessage::default()),
            Dump::Addresses => RouteNetlinkMessage::GetAddress(AddressMessage::default()),
        };
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
        message.header.flags = NLM_F_DUMP | NLM_F_REQUEST;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        for _ in 0..DUMP_CALLS_MAX {
            if self.receive(&mut f)?.is_done {
                return Ok(());
            }
        }
        Err(io::Error::other("the kernel's list of links or addresses does not end"))
    }

    /// Takes the messages of one receive call. `WouldBlock`: there are none; ENOBUFS: some were lost.
    pub(crate) fn receive(&mut self, mut f: impl FnMut(RouteNetlinkMessage)) -> io::Result<Taken> {
        let len = self.socket.recv(&mut &mut self.buffer[..], libc::MSG_TRUNC)?;
        let mut rest = self
            .buffer
            .get(..len)
            .ok_or_else(|| io::Error::other(format!("a netlink message of {len} bytes is too long")))?;
        let mut taken = Taken { is_done: false };
        while let Some(message_len) = rest.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes) as usize) {
            let Some(bytes) = rest.get(..message_len).filter(|bytes| bytes.len() >= 16) else { break };
            // A message that the library cannot read is none that we asked for: attributes it does not
            // know it keeps as bytes.
            if let Ok(message) = NetlinkMessage::deserialize(bytes) {
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => f(inner),
                    NetlinkPayload::Done(_) => taken.is_done = true,
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => {}
                }
            }
            rest = rest.get(message_len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(taken)
    }
}

/// What a receive call met.
pub(crate) struct Taken {
    /// The end of a dump.
    pub(crate) is_done: bool,
}
