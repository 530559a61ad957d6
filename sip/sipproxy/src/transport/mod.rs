//! Transports as plug-ins. Each of them implements [`Plugin`], which is the loop's only interface to it.
//!
//! A plug-in has an index ([`ListenerIndex`]): the position of its listener in the configuration. The upper bits of its poll tokens and of
//! its [`ConnectionId`]s contain this index.
//!
//! Invariants:
//!
//! - A message passed to [`Plugin::send`] is sent, or its failure is reported once. A message over UDP may also be lost.
//! - Up to [`WAITING_MAX`] bytes wait for a connection. Messages that begin new work may fill only the first quarter of this limit.

mod sctp;
mod sctp_addresses;
mod sctp_host;
mod sctp_keys;
mod stream;
mod tcp;
mod tls;
mod udp;
mod udp_errors;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ::sctp::PathInfo;
use base::Time;
use bytes::Bytes;
use mio::{Registry, Token};
use sip::proxy::{Listener, LostRequest, Outgoing};
use sip::{ConnectionId, Hop, Limits, Transport};

use crate::config::{SctpCarrier, SctpConfig};
use crate::error::SipError;
use sctp::Sctp;
use sctp_keys::Keys;
pub(crate) use sctp_keys::{PeerKey, public_key};
use tcp::Tcp;
pub(crate) use tls::{TlsContext, TlsFiles};
use udp::Udp;

/// Limit on bytes that wait for one connection. It applies to messages that begin new work.
const WAITING_MAX_NEW: usize = 1 << 20;
/// Limit on bytes that wait for one connection.
const WAITING_MAX: usize = 4 * WAITING_MAX_NEW;
/// Number of bits below the plug-in's index in a token or connection number.
const INDEX_SHIFT: u32 = 48;

/// A plug-in's index among the listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListenerIndex(pub(crate) usize);

impl ListenerIndex {
    /// Returns the plug-in's token with this number.
    pub(crate) fn token(self, number: usize) -> Token {
        Token((self.0 << INDEX_SHIFT) | number)
    }

    /// Splits a token into the index of its plug-in and the number within the plug-in.
    pub(crate) fn of_token(token: Token) -> (ListenerIndex, usize) {
        (ListenerIndex(token.0 >> INDEX_SHIFT), token.0 & ((1 << INDEX_SHIFT) - 1))
    }

    /// Returns the plug-in's connection with this number.
    pub(crate) fn connection(self, number: usize) -> ConnectionId {
        ConnectionId(self.token(number).0 as u64)
    }

    /// Returns the number of a connection, if it is one of this plug-in's connections.
    pub(crate) fn number_of(self, connection: ConnectionId) -> Option<usize> {
        let (index, number) = ListenerIndex::of_token(Token(usize::try_from(connection.0).ok()?));
        (index == self).then_some(number)
    }
}

/// Messages and failures that the plug-ins report to the loop.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Received messages, with their sources.
    pub(crate) messages: Vec<(Hop, Bytes)>,
    /// The [`Outgoing::on_failure`] values of messages that could not be sent.
    pub(crate) failures: Vec<u64>,
    /// The [`Outgoing::on_failure`] values of messages that were rejected because too many bytes already wait.
    pub(crate) refused: Vec<u64>,
    /// Requests of the last [`Bounds::answer`] whose association has failed.
    pub(crate) lost: Vec<LostRequest>,
    /// Number of messages since the start that were rejected because too many bytes already waited.
    turned_away: u64,
    /// Reason for the most recent end of an association.
    pub(crate) ended: Option<&'static str>,
    /// Datagrams that ICMP reports as undeliverable: the destination and the beginning of each datagram.
    pub(crate) unreachable: Vec<(SocketAddr, Bytes)>,
}

impl Inbox {
    /// Reports whether nothing waits for the loop.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.failures.is_empty()
            && self.refused.is_empty()
            && self.lost.is_empty()
            && self.unreachable.is_empty()
    }

    /// Takes the values of [`Inbox::failures`] and [`Inbox::refused`].
    pub(crate) fn take_failures(&mut self) -> Vec<u64> {
        let mut all = std::mem::take(&mut self.failures);
        all.append(&mut self.refused);
        all
    }

    /// Reports whether a message may wait for its connection while `behind` bytes already wait. If not, records the failure.
    fn lets_wait(&mut self, message: &Outgoing, behind: usize) -> bool {
        let most = if message.is_new { WAITING_MAX_NEW } else { WAITING_MAX };
        if behind + message.bytes.len() <= most {
            return true;
        }
        self.turned_away += 1;
        // Logs a rejection only if its number is a power of two, because rejections may be very many.
        if self.turned_away.is_power_of_two() {
            let (peer, transport, so_far) =
                (message.hop.address, message.hop.transport.as_str(), self.turned_away);
            tracing::warn!(%peer, transport, waiting = behind, so_far, "the send queue of a peer is full: a message was not sent");
        }
        self.refused.extend(message.on_failure);
        false
    }
}

/// One transport at one address.
pub(crate) trait Plugin {
    /// Handles readiness of the plug-in's token with this number.
    fn handle_ready(&mut self, now: Time, number: usize, inbox: &mut Inbox);

    /// Sends a message at once, or when its connection is established.
    fn send(&mut self, now: Time, message: Outgoing, inbox: &mut Inbox);

    /// Ends a round of sending: all messages have been passed to [`Plugin::send`].
    fn finish_turn(&mut self, now: Time, inbox: &mut Inbox);

    /// Begins shutdown. Notifies peers if the transport has a message that announces the end.
    fn begin_close(&mut self, now: Time);

    /// Reports whether nothing is left to send, and peers have been notified.
    fn is_closed(&self) -> bool;

    /// Handles the plug-in's timers, at the time of [`Plugin::next_timeout`].
    fn handle_timeout(&mut self, now: Time, inbox: &mut Inbox);

    /// Sets the TLS context of future connections.
    fn set_tls(&mut self, _: &TlsContext) {}

    /// Sets [`Bounds::answer`] for requests from now on.
    fn set_answer(&mut self, _: Duration) {}

    /// Returns the number of connections or associations.
    fn connections(&self) -> usize;

    /// Iterates over the connections or associations whose number is greater than the argument, in ascending order.
    fn seen(&self, _after: usize) -> Box<dyn Iterator<Item = Seen> + '_> {
        Box::new(std::iter::empty())
    }

    /// Returns the time for [`Plugin::handle_timeout`]. If more input is left than one turn takes, the time is in the past.
    fn next_timeout(&self) -> Time;
}

/// The visible state of a connection or association.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Number of the connection.
    pub(crate) number: usize,
    /// Address of the peer. For an association, the peer's first address.
    pub(crate) peer: SocketAddr,
    /// `connecting`, then `connected`. For an association, the name of its state in RFC 9260.
    pub(crate) state: &'static str,
    /// Bytes that wait to be sent.
    pub(crate) waiting_bytes: usize,
    /// The proven key of the peer of an encrypted association.
    pub(crate) peer_key: Option<PeerKey>,
    /// Paths of an association.
    pub(crate) paths: Vec<PathInfo>,
}

/// Limits of a plug-in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Limits on each message.
    pub(crate) messages: Limits,
    /// Limit on connections or associations.
    pub(crate) connections: usize,
    /// Longest time for which a request waits for its first response (RFC 3261, timers B and F).
    pub(crate) answer: Duration,
}

/// Opens the plug-in of a listener.
///
/// # Errors
/// If the address is not local or is in use, privileges are missing, a TLS listener has no certificate, or the kernel's SCTP interferes.
pub(crate) fn open(
    index: ListenerIndex,
    listener: Listener,
    bounds: Bounds,
    sctp: &SctpConfig,
    tls: Option<&TlsContext>,
    registry: &Registry,
) -> Result<Box<dyn Plugin>, SipError> {
    let Listener { transport, address } = listener;
    let opened: io::Result<Box<dyn Plugin>> = match transport {
        Transport::Udp => Udp::open(index, address, registry).map(|udp| Box::new(udp) as _),
        Transport::Tcp => Tcp::open(index, address, bounds.messages, bounds.connections, None, registry)
            .map(|tcp| Box::new(tcp) as _),
        Transport::Tls => {
            let tls = tls.cloned().ok_or(SipError::NoCertificate)?;
            Tcp::open(index, address, bounds.messages, bounds.connections, Some(tls), registry)
                .map(|tls| Box::new(tls) as _)
        }
        Transport::Sctp => {
            if let Some(found) = netio::kernel_sctp().filter(|_| sctp.carrier == SctpCarrier::Ip) {
                return Err(SipError::KernelSctp(found.to_string()));
            }
            let keys = Keys::open(sctp)?;
            Sctp::open(index, address, sctp, bounds, keys, registry).map(|sctp| Box::new(sctp) as _)
        }
    };
    opened.map_err(|source| SipError::Listen { transport: transport.as_lower_str(), address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(is_new: bool, on_failure: Option<u64>) -> Outgoing {
        let address = "192.0.2.1:5060".parse().unwrap();
        let hop = Hop { listener: 0, transport: Transport::Sctp, address, connection: None };
        Outgoing { hop, domain: None, bytes: Bytes::from_static(&[0; 100]), on_failure, dialog: 0, is_new }
    }

    #[test]
    fn new_requests_are_refused_while_answers_still_have_room() {
        let mut inbox = Inbox::default();
        for (is_new, most) in [(true, WAITING_MAX_NEW), (false, WAITING_MAX)] {
            assert!(inbox.lets_wait(&message(is_new, Some(1)), most - 100));
            assert!(inbox.is_empty());
            assert!(!inbox.lets_wait(&message(is_new, Some(2)), most - 99));
            assert_eq!(inbox.take_failures(), [2]);
        }
        assert!(!inbox.lets_wait(&message(false, None), WAITING_MAX));
        assert!(inbox.is_empty());
    }
}
