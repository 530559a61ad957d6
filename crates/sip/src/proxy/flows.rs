//! Flows of proxies that share users (RFC 5626 section 5.2): a user connected to one proxy is reached by the others through that
//! proxy, with a Route whose user part is a token of the flow.
//!
//! A token encodes the source of the REGISTER, with a MAC under a key that the proxies share, so tokens cannot be forged; only the
//! proxy that issued it uses its contents. A token is valid until its proxy restarts; one for UDP, which needs no connection, remains
//! valid after that. Begin with [`Proxy::flow_route`] and [`Proxy::flow_of`].

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::Proxy;
use super::marks;
use crate::address::Address;
use crate::digest::hex;
use crate::fault::Fault;
use crate::header::Name;
use crate::message::Message;
use crate::transport::{ConnectionId, Hop, Transport};
use crate::uri::Uri;

/// Listener, transport, address, port, connection, run.
const SAID: usize = 2 + 1 + 16 + 2 + 8 + 8;
/// The same with the MAC.
const LENGTH: usize = SAID + marks::LENGTH;
/// No connection has this number.
const NO_CONNECTION: u64 = u64::MAX;
/// The URI parameter with the TLS address of the same proxy; not from an RFC, and seen only by proxies that share users.
const SECURE: &str = "tls";
/// The flow is gone, or belonged to an earlier run of the proxy (RFC 5626 section 5.3.1).
pub(super) const FLOW_FAILED: Fault = Fault { status: 430, reason: "Flow Failed" };
/// "the flow token … has been tampered with" (the same).
const NO_TOKEN: Fault = Fault { status: 403, reason: "No Flow Of This Proxy" };

impl Proxy {
    /// Builds a Route to this proxy that leads on to this flow; for a TLS flow it has our TLS address, too.
    pub(super) fn flow_route(&self, flow: Hop) -> Option<Box<[u8]>> {
        let home = self.config.listeners.first()?;
        let token = hex(&self.token_of(flow, &self.flow_secret));
        let (address, transport) = (home.address, home.transport.as_lower_str());
        let listener = self.config.listeners.get(flow.listener).filter(|_| flow.transport == Transport::Tls);
        let secure = listener.map(|listener| format!(";{SECURE}={}", listener.address)).unwrap_or_default();
        Some(format!("<sip:{token}@{address};transport={transport};lr{secure}>").into_bytes().into())
    }

    /// Converts such a Route to one over TLS only, and returns it with its hop.
    pub(super) fn secure_route(&self, route: &[u8]) -> Option<(Box<[u8]>, Hop)> {
        let uri = Uri::parse(Address::parse(route).ok()?.uri).ok()?;
        let token = std::str::from_utf8(uri.user?).ok()?;
        let address = std::str::from_utf8(uri.param(SECURE).flatten()?).ok()?;
        let address: SocketAddr = address.parse().ok()?;
        let listener = self.listener_for(Transport::Tls, address.is_ipv4()).ok()?;
        let hop = Hop { listener, transport: Transport::Tls, address, connection: None };
        Some((format!("<sips:{token}@{address};lr>").into_bytes().into(), hop))
    }

    /// Encodes a hop, with a MAC.
    pub(super) fn token_of(&self, flow: Hop, secret: &[u8; 32]) -> [u8; LENGTH] {
        let transport = Transport::ALL.iter().position(|t| *t == flow.transport);
        let ip = match flow.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let said = [
            &u16::try_from(flow.listener).unwrap_or(u16::MAX).to_be_bytes()[..],
            &[transport.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)],
            &ip.octets(),
            &flow.address.port().to_be_bytes(),
            &flow.connection.map_or(NO_CONNECTION, |c| c.0).to_be_bytes(),
            &self.run.to_be_bytes(),
        ]
        .concat();
        let mac = mac_of(secret, &said).finalize().into_bytes();
        let mut token = [0; LENGTH];
        token[..SAID].copy_from_slice(&said);
        token[SAID..].copy_from_slice(&mac[..marks::LENGTH]);
        token
    }

    /// Returns the flow that a Route of ours leads to: one of this run, or one that needs no connection.
    ///
    /// # Errors
    /// 403 for a token that nobody here issued, 430 if its connection is of an earlier run.
    pub(super) fn flow_of(&self, route: &Uri<'_>) -> Result<Hop, Fault> {
        let token = route.user.and_then(marks::bytes_of::<LENGTH>).ok_or(NO_TOKEN)?;
        self.hop_in(token, &self.flow_secret)
    }

    /// Decodes the hop of a token: one of this run, or one that needs no connection.
    ///
    /// # Errors
    /// 403 for a token that nobody here issued with this key, 430 if its connection is of an earlier run.
    pub(super) fn hop_in(&self, token: [u8; LENGTH], secret: &[u8; 32]) -> Result<Hop, Fault> {
        let (said, mac) = token.split_at(SAID);
        mac_of(secret, said).verify_truncated_left(mac).map_err(|_| NO_TOKEN)?;
        let (hop, run) = parse(said).ok_or(NO_TOKEN)?;
        let is_here = self.config.listeners.get(hop.listener).is_some_and(|l| l.transport == hop.transport);
        if !is_here || (run != self.run && hop.connection.is_some()) {
            return Err(FLOW_FAILED);
        }
        Ok(hop)
    }

    /// Reports whether a request's first Route leads to a flow of ours.
    pub(super) fn leads_by_flow(&self, request: &Message) -> bool {
        let first = request.elements(Name::Route).next();
        let uri = first.and_then(|route| Uri::parse(Address::parse(route).ok()?.uri).ok());
        uri.is_some_and(|uri| self.is_ours(&uri) && self.is_flow_route(&uri) && self.flow_of(&uri).is_ok())
    }

    /// Reports whether a Route's user part looks like a token, judged by its length.
    pub(super) fn is_flow_route(&self, route: &Uri<'_>) -> bool {
        self.is_shared() && route.user.is_some_and(|user| user.len() == 2 * LENGTH)
    }

    /// Returns the flow of a binding's `through`, or the reason why it has none; `None` if it leads to another proxy.
    pub(super) fn own_flow(&self, through: &[u8]) -> Option<Result<Hop, Fault>> {
        let address = Address::parse(through).ok()?;
        let uri = Uri::parse(address.uri).ok()?;
        self.is_ours(&uri).then(|| self.flow_of(&uri))
    }
}

fn mac_of(secret: &[u8; 32], said: &[u8]) -> Hmac<Sha256> {
    let mut mac = keyed(secret);
    mac.update(said);
    mac
}

fn parse(said: &[u8]) -> Option<(Hop, u64)> {
    let (listener, rest) = said.split_first_chunk::<2>()?;
    let ([transport], rest) = rest.split_first_chunk::<1>()?;
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let (connection, rest) = rest.split_first_chunk::<8>()?;
    let run = u64::from_be_bytes(rest.try_into().ok()?);
    let connection = u64::from_be_bytes(*connection);
    let hop = Hop {
        listener: usize::from(u16::from_be_bytes(*listener)),
        transport: *Transport::ALL.get(usize::from(*transport))?,
        address: SocketAddr::new(Ipv6Addr::from(*ip).to_canonical(), u16::from_be_bytes(*port)),
        connection: (connection != NO_CONNECTION).then_some(ConnectionId(connection)),
    };
    Some((hop, run))
}

/// Returns a fingerprint for comparing keys between proxies without revealing them: 16 hexadecimal digits.
pub fn fingerprint(secret: &[u8; 32]) -> String {
    hex(&derived(secret, "fingerprint")[..8])
}

/// Derives a separate key for each use of the shared one.
pub(super) fn derived(secret: &[u8; 32], purpose: &str) -> [u8; 32] {
    let mut mac = keyed(secret);
    mac.update(purpose.as_bytes());
    mac.finalize().into_bytes().into()
}

/// Pads a key shorter than the hash's block with zeros (RFC 2104 section 2).
pub(super) fn keyed(secret: &[u8; 32]) -> Hmac<Sha256> {
    let mut key = [0; 64];
    key[..32].copy_from_slice(secret);
    Hmac::<Sha256>::new(&key.into())
}
