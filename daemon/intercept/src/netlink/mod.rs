//! Requests and acknowledgements over one netlink socket.
//!
//! The kernel processes a request inside `send`. The kernel's answer is in the receive buffer when `send` returns, so no function
//! of this module waits. A socket stays in the network namespace in which it was opened.

mod message;

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};

pub(crate) use message::{Attributes, Message, Messages, be_u32, be_u64, request_answer};

/// Size of the largest expected datagram, in bytes: a link with all its attributes.
const RECEIVE_BUFFER_SIZE: usize = 32 * 1024;
/// `NLMSG_ERROR`: an error, or an acknowledgement.
pub(crate) const ERROR_KIND: u16 = 2;
/// `NLMSG_DONE`: the end of a list.
const DONE_KIND: u16 = 3;
/// Length of `nfgenmsg`.
const NETFILTER_HEAD: usize = 4;

/// A netlink socket of one protocol.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket of `protocol` in the calling thread's network namespace.
    pub(crate) fn open(protocol: isize) -> io::Result<Netlink> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        socket.set_cap_ack(true)?;
        Ok(Netlink { socket, sequence: 0, buffer: vec![0; RECEIVE_BUFFER_SIZE] })
    }

    /// Returns the socket, whose options the caller can set.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Enlarges the socket's receive buffer. Without CAP_NET_ADMIN in the initial user namespace, the system's limit (rmem_max)
    /// applies.
    pub(crate) fn enlarge_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        match setsockopt(&self.socket, sockopt::RcvBufForce, &bytes) {
            Err(Errno::EPERM) => Ok(setsockopt(&self.socket, sockopt::RcvBuf, &bytes)?),
            outcome => Ok(outcome?),
        }
    }

    /// Enlarges the socket's send buffer. Without CAP_NET_ADMIN in the initial user namespace, the system's limit (wmem_max)
    /// applies.
    pub(crate) fn enlarge_send_buffer(&self, bytes: usize) -> io::Result<()> {
        match setsockopt(&self.socket, sockopt::SndBufForce, &bytes) {
            Err(Errno::EPERM) => Ok(setsockopt(&self.socket, sockopt::SndBuf, &bytes)?),
            outcome => Ok(outcome?),
        }
    }

    /// Returns a sequence number that differs from recent ones. It is never 0.
    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        self.sequence
    }

    /// Sends one or more complete messages.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.socket.send(bytes, 0)?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(io::Error::other("the kernel took part of a netlink message"))
        }
    }

    /// Returns the next datagram, or None if no datagram waits.
    pub(crate) fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            match self.socket.recv(&mut &mut self.buffer[..], 0) {
                Ok(length) => return Ok(self.buffer.get(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends one message, and passes the kind and body of each answer to `read`. Returns the first value that `read` returns. If
    /// the kernel answers with an error message, returns its error. If the kernel answers with an acknowledgement, returns None.
    pub(crate) fn ask<T>(
        &mut self,
        message: Message,
        mut read: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let sequence = message.sequence();
        self.send(&message.finish())?;
        while let Some(datagram) = self.receive()? {
            for part in Messages::new(datagram).filter(|part| part.sequence == sequence) {
                if part.kind == ERROR_KIND {
                    return part.outcome().map(|()| None);
                }
                if let Some(found) = read(part.kind, part.body) {
                    return Ok(Some(found));
                }
            }
        }
        Err(io::Error::other("the kernel gave no answer to a netlink request"))
    }

    /// Sends one message that asks netfilter for a list. Passes the body of each message of the list to `read`, without its
    /// `nfgenmsg`.
    pub(crate) fn dump(&mut self, message: Message, mut read: impl FnMut(&[u8])) -> io::Result<()> {
        let sequence = message.sequence();
        self.send(&message.finish())?;
        while let Some(datagram) = self.receive()? {
            for part in Messages::new(datagram).filter(|part| part.sequence == sequence) {
                match part.kind {
                    ERROR_KIND => return part.outcome(),
                    DONE_KIND => return Ok(()),
                    _ => read(part.body.get(NETFILTER_HEAD..).unwrap_or_default()),
                }
            }
        }
        Err(io::Error::other("the kernel did not end a list"))
    }

    /// Sends one message. Returns the error that the kernel's answer reports, if any.
    pub(crate) fn request(&mut self, message: Message) -> io::Result<()> {
        self.ask(message, |_, _| None::<()>).map(|_| ())
    }

    /// Sends one route message with `flags` in addition to REQUEST and ACK. Returns the error that the answer reports, if any.
    pub(crate) fn route_request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let message = self.route_message(message, NLM_F_ACK | flags);
        self.request(message)
    }

    /// Builds a route message with the next sequence number and `flags` in addition to REQUEST.
    pub(crate) fn route_message(&mut self, message: RouteNetlinkMessage, flags: u16) -> Message {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.next_sequence();
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        Message::from_bytes(bytes)
    }
}
