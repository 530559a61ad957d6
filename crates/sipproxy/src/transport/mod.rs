//! Transports as plug-ins: whatever carries messages implements [`Plugin`], and the loop knows nothing else of it.
//!
//! Each plug-in has a place in the configuration's order; its tokens in the poll, and the numbers of its connections, begin
//! with that place ([`Place`]). Invariant: a message handed to [`Plugin::send`] is sent, or its failure reported once.

mod sctp;
mod sctp_host;
mod stream;
mod tcp;
mod tls;
mod udp;
mod udp_errors;

use std::io;
use std::net::SocketAddr;

use base::Time;
use bytes::Bytes;
use mio::{Registry, Token};
use sip::proxy::{Listener, Outgoing};
use sip::{ConnectionId, Hop, Limits, Transport};

use crate::config::{SctpCarrier, SctpConfig};
use crate::error::SipError;
use sctp::Sctp;
use tcp::Tcp;
pub(crate) use tls::{TlsContext, TlsFiles, USUAL_ROOTS};
use udp::Udp;

/// Bits of a token or connection number below the plug-in's place.
const PLACE_SHIFT: u32 = 48;

/// A plug-in's place among the listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(pub(crate) usize);

impl Place {
    /// The plug-in's token of this number.
    pub(crate) fn token(self, number: usize) -> Token {
        Token((self.0 << PLACE_SHIFT) | number)
    }

    /// Whose token this is, and its number there.
    pub(crate) fn of_token(token: Token) -> (Place, usize) {
        (Place(token.0 >> PLACE_SHIFT), token.0 & ((1 << PLACE_SHIFT) - 1))
    }

    /// The plug-in's connection of this number.
    pub(crate) fn connection(self, number: usize) -> ConnectionId {
        ConnectionId(self.token(number).0 as u64)
    }

    /// The number of one of the plug-in's own connections.
    pub(crate) fn number_of(self, connection: ConnectionId) -> Option<usize> {
        let (place, number) = Place::of_token(Token(usize::try_from(connection.0).ok()?));
        (place == self).then_some(number)
    }
}

/// What plug-ins bring in.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Messages, and how they came.
    pub(crate) messages: Vec<(Hop, Bytes)>,
    /// What [`Outgoing::on_failure`] said of messages that could not be sent.
    pub(crate) failures: Vec<u64>,
    /// Datagrams that ICMP says did not arrive and never will: where they went, and how they begin.
    pub(crate) unreachable: Vec<(SocketAddr, Bytes)>,
}

impl Inbox {
    /// Whether nothing is to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.failures.is_empty() && self.unreachable.is_empty()
    }
}

/// One transport at one address.
pub(crate) trait Plugin {
    /// One of its tokens is ready.
    fn handle_ready(&mut self, now: Time, number: usize, inbox: &mut Inbox);

    /// Sends a message, now or when its connection is there.
    fn send(&mut self, now: Time, message: Outgoing, inbox: &mut Inbox);

    /// All messages of this turn were handed over.
    fn finish_turn(&mut self, now: Time, inbox: &mut Inbox);

    /// The program ends: says so to peers, where the transport has a word for it.
    fn begin_close(&mut self, now: Time);

    /// Whether nothing is left to be sent, and peers know that it ends.
    fn is_closed(&self) -> bool;

    /// Time has come to [`Plugin::next_timeout`].
    fn handle_timeout(&mut self, now: Time, inbox: &mut Inbox);

    /// Connections to come are made with this.
    fn set_tls(&mut self, _: &TlsContext) {}

    /// Connections or associations that there are.
    fn connections(&self) -> usize;

    /// When to call [`Plugin::handle_timeout`]; at once while more is to be read than one turn takes.
    fn next_timeout(&self) -> Time;
}

/// Bounds on what a plug-in keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Of each message.
    pub(crate) messages: Limits,
    /// Connections or associations.
    pub(crate) connections: usize,
}

/// Opens the plug-in of a listener.
///
/// # Errors
/// When its address is not ours or taken, rights are missing, or the kernel's SCTP is in the way.
pub(crate) fn open(
    place: Place,
    listener: Listener,
    bounds: Bounds,
    sctp: &SctpConfig,
    tls: Option<&TlsContext>,
    registry: &Registry,
) -> Result<Box<dyn Plugin>, SipError> {
    let Listener { transport, address } = listener;
    let opened: io::Result<Box<dyn Plugin>> = match transport {
        Transport::Udp => Udp::open(place, address, registry).map(|udp| Box::new(udp) as _),
        Transport::Tcp => Tcp::open(place, address, bounds.messages, bounds.connections, None, registry)
            .map(|tcp| Box::new(tcp) as _),
        Transport::Tls => {
            let tls = tls.cloned().ok_or(SipError::NoCertificate)?;
            Tcp::open(place, address, bounds.messages, bounds.connections, Some(tls), registry)
                .map(|tls| Box::new(tls) as _)
        }
        Transport::Sctp => {
            if let Some(found) = netio::kernel_sctp().filter(|_| sctp.carrier == SctpCarrier::Ip) {
                return Err(SipError::KernelSctp(found.to_string()));
            }
            Sctp::open(place, address, sctp, bounds.connections, registry).map(|sctp| Box::new(sctp) as _)
        }
    };
    opened.map_err(|source| SipError::Listen { transport: transport.as_lower_str(), address, source })
}
