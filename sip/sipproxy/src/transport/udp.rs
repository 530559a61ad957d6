//! SIP over UDP: one message per datagram. Nothing is queued. If the kernel's send buffer is full, the datagram is lost, as on the wire.

use std::io;
use std::net::SocketAddr;

use base::Time;
use bytes::Bytes;
use mio::net::UdpSocket;
use mio::{Interest, Registry};
use sip::proxy::Outgoing;
use sip::{Hop, Transport};

use super::{Inbox, ListenerIndex, Plugin, udp_errors};

/// Limit on datagrams per turn, so other sockets also get time.
const DATAGRAMS_PER_TURN: usize = 64;
/// Size of the receive buffer to request, in bytes. The buffer must hold the datagrams that arrive during a long turn.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A UDP socket.
#[derive(Debug)]
pub(crate) struct Udp {
    index: ListenerIndex,
    socket: UdpSocket,
    buffer: Box<[u8]>,
    has_more: bool,
}

impl Udp {
    /// Binds a socket.
    ///
    /// # Errors
    /// If the address is not local, or is in use.
    pub(crate) fn open(index: ListenerIndex, address: SocketAddr, registry: &Registry) -> io::Result<Udp> {
        let mut socket = UdpSocket::bind(address)?;
        // A failure is acceptable: the socket then has a smaller buffer.
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER);
        udp_errors::enable(&socket, address.is_ipv4())?;
        registry.register(&mut socket, index.token(0), Interest::READABLE)?;
        Ok(Udp { index, socket, buffer: vec![0; 65_536].into(), has_more: false })
    }

    fn receive(&mut self, inbox: &mut Inbox) {
        self.has_more = false;
        for _ in 0..DATAGRAMS_PER_TURN {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((length, address)) => {
                    let hop =
                        Hop { listener: self.index.0, transport: Transport::Udp, address, connection: None };
                    inbox.messages.push((hop, Bytes::copy_from_slice(&self.buffer[..length])));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The kernel reports an ICMP error for an earlier datagram once, in place of a datagram.
                Err(_) => udp_errors::take(&self.socket, &mut inbox.unreachable),
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
        let mut sent = self.socket.send_to(&message.bytes, message.hop.address);
        if sent.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
            // The error may belong to an earlier datagram, because the kernel reports a pending error at the next call on the socket.
            udp_errors::take(&self.socket, &mut inbox.unreachable);
            sent = self.socket.send_to(&message.bytes, message.hop.address);
        }
        // If the buffer is full, the datagram is lost. Other errors are permanent, such as a missing route or a message above 64 KiB.
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

    fn connections(&self) -> usize {
        0
    }

    fn next_timeout(&self) -> Time {
        if self.has_more { Time::ZERO } else { Time::NEVER }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;

    fn message(address: SocketAddr) -> Outgoing {
        let hop = Hop { listener: 0, transport: Transport::Udp, address, connection: None };
        Outgoing {
            hop,
            domain: None,
            bytes: Bytes::from_static(b"OPTIONS"),
            on_failure: Some(7),
            dialog: 0,
            is_new: true,
        }
    }

    /// Returns an address at which no socket listens any more.
    fn closed() -> SocketAddr {
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[test]
    fn an_icmp_error_is_reported_with_the_datagrams_address_and_beginning() {
        let mut poll = Poll::new().unwrap();
        let mut udp = Udp::open(ListenerIndex(0), "127.0.0.1:0".parse().unwrap(), poll.registry()).unwrap();
        let (mut inbox, gone) = (Inbox::default(), closed());
        udp.send(Time::ZERO, message(gone), &mut inbox);
        let mut ready = Events::with_capacity(1);
        poll.poll(&mut ready, Some(Duration::from_secs(5))).unwrap();
        udp.handle_ready(Time::ZERO, 0, &mut inbox);
        assert_eq!(inbox.unreachable, [(gone, Bytes::from_static(b"OPTIONS"))]);
        assert!(inbox.failures.is_empty());
    }

    #[test]
    fn an_icmp_error_is_not_attributed_to_the_next_datagram() {
        let mut poll = Poll::new().unwrap();
        let mut udp = Udp::open(ListenerIndex(0), "127.0.0.1:0".parse().unwrap(), poll.registry()).unwrap();
        let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        other.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut inbox = Inbox::default();
        udp.send(Time::ZERO, message(closed()), &mut inbox);
        poll.poll(&mut Events::with_capacity(1), Some(Duration::from_secs(5))).unwrap();
        udp.send(Time::ZERO, message(other.local_addr().unwrap()), &mut inbox);
        assert_eq!(other.recv(&mut [0; 64]).unwrap(), 7);
        assert_eq!((inbox.failures.len(), inbox.unreachable.len()), (0, 1));
    }
}
