//! Sends and receives rtnetlink messages about links, addresses and routes. Dumps lists of other netlink protocols as bytes.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Bytes of a message's header.
const HEADER: usize = 16;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Size of the buffer of one receive call, in bytes. The kernel writes up to 32 KiB of a dump in one call.
const BUFFER_BYTES: usize = 64 << 10;
/// Limit on the receive calls of one dump. The limit is enough for a list of a hundred thousand links.
const DUMP_CALLS_MAX: usize = 10_000;

/// Contents of a dumped list.
#[derive(Clone, Copy)]
pub(crate) enum Dump {
    Links,
    Addresses,
}

/// A netlink socket that is connected to the kernel.
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
    /// Opens an rtnetlink socket that receives the multicast groups in the mask `groups`.
    pub(crate) fn open(groups: u32, is_nonblocking: bool) -> io::Result<Netlink> {
        Netlink::open_for(NETLINK_ROUTE, groups, is_nonblocking)
    }

    /// Opens a socket of the netlink(7) protocol `protocol`. The socket receives the multicast groups in the mask `groups`.
    pub(crate) fn open_for(protocol: isize, groups: u32, is_nonblocking: bool) -> io::Result<Netlink> {
        let mut socket = Socket::new(protocol)?;
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
        self.request(request, NLM_F_DUMP)?;
        for _ in 0..DUMP_CALLS_MAX {
            if self.receive(&mut f)?.is_done {
                return Ok(());
            }
        }
        Err(io::Error::other("the kernel's list of links or addresses does not end"))
    }

    /// Sends a request that has one answer, and returns the answer.
    pub(crate) fn ask(&mut self, question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        self.request(question, 0)?;
        let mut answer = None;
        self.receive(|message| answer = Some(message))?;
        answer.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn request(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
        message.header.flags = flags | NLM_F_REQUEST;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Requests a list. Calls `f` with each message of the list, as the bytes behind the message's header.
    pub(crate) fn dump_bytes(
        &mut self,
        kind: u16,
        request: &[u8],
        mut f: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEADER + request.len());
        bytes.extend_from_slice(&((HEADER + request.len()) as u32).to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&(NLM_F_DUMP | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(request);
        self.socket.send(&bytes, 0)?;
        for _ in 0..DUMP_CALLS_MAX {
            let mut outcome = Ok(false);
            self.receive_bytes(|message| match message_kind(message) {
                DONE => outcome = Ok(true),
                ERROR => outcome = Err(error_of(message)),
                _ => f(&message[HEADER..]),
            })?;
            if outcome? {
                return Ok(());
            }
        }
        Err(io::Error::other("the kernel's list does not end"))
    }

    /// Discards all waiting messages, and reports whether a message was waiting. The socket must be non-blocking.
    pub(crate) fn has_news(&mut self) -> bool {
        let mut has_news = false;
        for _ in 0..DUMP_CALLS_MAX {
            match self.receive_bytes(|_| {}) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                _ => has_news = true,
            }
        }
        has_news
    }

    /// Makes one receive call, and calls `f` with each message. Fails with `WouldBlock` if no message waits, and with ENOBUFS if
    /// the kernel dropped messages.
    pub(crate) fn receive(&mut self, mut f: impl FnMut(RouteNetlinkMessage)) -> io::Result<Taken> {
        let (mut is_done, mut failure) = (false, None);
        self.receive_bytes(|bytes| {
            // The library keeps unknown attributes as bytes. A message that the library cannot read is thus no answer to a
            // request of this module.
            let Ok(message) = NetlinkMessage::deserialize(bytes) else { return };
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => f(inner),
                NetlinkPayload::Done(_) => is_done = true,
                NetlinkPayload::Error(error) => failure = Some(error.to_io()),
                _ => {}
            }
        })?;
        failure.map_or(Ok(Taken { is_done }), Err)
    }

    /// Calls `f` with each message of one receive call, including its header.
    fn receive_bytes(&mut self, mut f: impl FnMut(&[u8])) -> io::Result<()> {
        let len = self.socket.recv(&mut &mut self.buffer[..], libc::MSG_TRUNC)?;
        let mut rest = self
            .buffer
            .get(..len)
            .ok_or_else(|| io::Error::other(format!("a netlink message of {len} bytes is too long")))?;
        while let Some(message_len) = rest.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes) as usize) {
            let Some(bytes) = rest.get(..message_len).filter(|bytes| bytes.len() >= HEADER) else { break };
            f(bytes);
            rest = rest.get(message_len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }
}

fn message_kind(message: &[u8]) -> u16 {
    message.get(4..6).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

/// Returns the error that a message of kind [`ERROR`] contains.
fn error_of(message: &[u8]) -> io::Error {
    let code = message.get(HEADER..HEADER + 4).and_then(|bytes| bytes.try_into().ok());
    io::Error::from_raw_os_error(code.map_or(libc::EBADMSG, |code| -i32::from_ne_bytes(code)))
}

/// Result of a receive call.
pub(crate) struct Taken {
    /// True at the end of a dump.
    pub(crate) is_done: bool,
}
