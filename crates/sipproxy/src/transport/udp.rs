//! SIP over UDP: a datagram, a message. Nothing is queued: what the kernel does not take is lost, as on the wire.

use std::io;
use std::net::SocketAddr;

use base::Time;
use bytes::Bytes;
use mio::net::UdpSocket;
use mio::{Interest, Registry};
use sip::proxy::Outgoing;
use sip::{Hop, Transport};

use super::{Inbox, Place, Plugin};

/// Datagrams of one turn at most: the others' turn comes, too.
const DATAGRAMS_PER_TURN: usize = 64;
/// Receive buffer to ask the kernel for, in bytes: what comes while a turn is long.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A socket.
#[derive(Debug)]
pub(crate) struct Udp {
    place: Place,
    socket: UdpSocket,
    buffer: Box<[u8]>,
    has_more: bool,
}

impl Udp {
    /// Binds a socket.
    ///
    /// # Errors
    /// When the address is not ours, or taken.
    pub(crate) fn open(place: Place, address: SocketAddr, registry: &Registry) -> io::Result<Udp> {
        let mut socket = UdpSocket::bind(address)?;
        // Less than asked for is no reason not to run.
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER);
        registry.register(&mut socket, place.token(0), Interest::READABLE)?;
        Ok(Udp { place, socket, buffer: vec![0; 65_536].into(), has_more: false })
    }

    fn receive(&mut self, inbox: &mut Inbox) {
        self.has_more = false;
        for _ in 0..DATAGRAMS_PER_TURN {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((length, address)) => {
                    let hop =
                        Hop { listener: self.place.0, transport: Transport::Udp, address, connection: None };
                    inbox.messages.push((hop, Bytes::copy_from_slice(&self.buffer[..length])));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An ICMP error for what was sent before: retransmissions deal with that.
                Err(_) => {}
            }
        }
        self.has_more = true;
    }
}

impl Plugin for Udp {
    fn handle_ready(&mut self, _: Time, _: usize, inbox: &mut Inbox) {
        self.receive(inbox);
    }

    fn send(&mut self, _: Time, message: Outgoing, inbox: &mut Inbox) {
        let sent = self.socket.send_to(&message.bytes, message.hop.address);
        // A full buffer is a lost datagram; no route, or a message beyond 64 KiB, stays so.
        if sent.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
            inbox.failures.extend(message.on_failure);
        }
    }

    fn finish_turn(&mut self, _: Time, _: &mut Inbox) {}

    fn begin_close(&mut self, _: Time) {}

    fn is_closed(&self) -> bool {
        true
    }

    fn handle_timeout(&mut self, _: Time, inbox: &mut Inbox) {
        if self.has_more {
            self.receive(inbox);
        }
    }

    fn next_timeout(&self) -> Time {
        if self.has_more { Time::ZERO } else { Time::NEVER }
    }
}
