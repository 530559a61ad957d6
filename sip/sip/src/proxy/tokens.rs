//! Tokens that encode a hop, and the run of the program in which the hop was known. Other hosts return our tokens to us. A MAC in each
//! token prevents forgery.
//!
//! Begin with [`HopTokens::encode`].

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::Listener;
use super::keys::{bytes_of, keyed};
use crate::digest::hex;
use crate::fault::Fault;
use crate::transport::{ConnectionId, Hop, Transport};

/// Length in bytes of the encoded fields, in their order: listener, transport, address, port, connection and run.
const SAID: usize = 2 + 1 + 16 + 2 + 8 + 8;
/// Length of the MAC in bytes: half of the hash's length. RFC 2104 section 5 recommends at least this half.
const MAC: usize = 16;
/// Length of a token in bytes: the encoded fields and the MAC.
const LENGTH: usize = SAID + MAC;
/// Number that encodes a missing connection. No connection has this number.
const NO_CONNECTION: u64 = u64::MAX;
/// The rejection of a request whose flow is gone, or belonged to an earlier run of the proxy (RFC 5626 section 5.3.1).
pub(super) const FLOW_FAILED: Fault = Fault { status: 430, reason: "Flow Failed" };
/// The rejection of a token that was not issued with our key: "the flow token … has been tampered with" (RFC 5626 section 5.3.1).
const NO_TOKEN: Fault = Fault { status: 403, reason: "No Flow Of This Proxy" };

/// The encoder and decoder of tokens with one key.
#[derive(Debug)]
pub(super) struct HopTokens {
    secret: [u8; 32],
    /// The number of this run of the program.
    run: u64,
}

impl HopTokens {
    /// Length of a token in hexadecimal digits.
    pub(super) const DIGITS: usize = 2 * LENGTH;

    pub(super) fn new(secret: [u8; 32], run: u64) -> HopTokens {
        HopTokens { secret, run }
    }

    /// Encodes a hop with a MAC, in hexadecimal digits.
    pub(super) fn encode(&self, hop: Hop) -> String {
        let transport = Transport::ALL.iter().position(|t| *t == hop.transport);
        let ip = match hop.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let said = [
            &u16::try_from(hop.listener).unwrap_or(u16::MAX).to_be_bytes()[..],
            &[transport.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)],
            &ip.octets(),
            &hop.address.port().to_be_bytes(),
            &hop.connection.map_or(NO_CONNECTION, |c| c.0).to_be_bytes(),
            &self.run.to_be_bytes(),
        ]
        .concat();
        let mac = self.mac(&said).finalize().into_bytes();
        hex(&said) + &hex(&mac[..MAC])
    }

    /// Decodes the hop of a token. A hop with a connection must be from this run of the program.
    ///
    /// # Errors
    /// Returns 403 for a token that was not issued with this key. Returns 430 if the hop's connection is from an earlier run. Also returns
    /// 430 if no listener has the hop's listener index and transport.
    pub(super) fn decode(&self, listeners: &[Listener], token: &[u8]) -> Result<Hop, Fault> {
        let token = bytes_of::<LENGTH>(token).ok_or(NO_TOKEN)?;
        let (said, mac) = token.split_at(SAID);
        self.mac(said).verify_truncated_left(mac).map_err(|_| NO_TOKEN)?;
        let (hop, run) = parse(said).ok_or(NO_TOKEN)?;
        let is_here = listeners.get(hop.listener).is_some_and(|l| l.transport == hop.transport);
        if !is_here || (run != self.run && hop.connection.is_some()) {
            return Err(FLOW_FAILED);
        }
        Ok(hop)
    }

    fn mac(&self, said: &[u8]) -> Hmac<Sha256> {
        let mut mac = keyed(&self.secret);
        mac.update(said);
        mac
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::{config, hop};

    fn decode(run: u64, token: &str) -> Result<Hop, Fault> {
        HopTokens::new([1; 32], run).decode(&config().listeners, token.as_bytes())
    }

    fn tcp(connection: Option<u64>) -> Hop {
        let connection = connection.map(ConnectionId);
        Hop { listener: 1, transport: Transport::Tcp, connection, ..hop("[2001:db8::7]:4711") }
    }

    #[test]
    fn a_token_returns_its_hop() {
        for hop in [hop("192.0.2.7:5062"), tcp(None), tcp(Some(3))] {
            let token = HopTokens::new([1; 32], 1).encode(hop);
            assert_eq!((token.len(), decode(1, &token)), (HopTokens::DIGITS, Ok(hop)));
        }
    }

    #[test]
    fn after_a_restart_tokens_of_connections_fail_but_tokens_of_addresses_work() {
        let token = |hop| HopTokens::new([1; 32], 1).encode(hop);
        assert_eq!(decode(2, &token(tcp(Some(3)))), Err(FLOW_FAILED));
        assert_eq!(decode(2, &token(tcp(None))), Ok(tcp(None)));
    }

    #[test]
    fn a_changed_or_foreign_token_is_refused() {
        let token = HopTokens::new([1; 32], 1).encode(tcp(None));
        let changed = token.replacen("0001", "0000", 1);
        assert_eq!(decode(1, &changed), Err(NO_TOKEN));
        assert_eq!(decode(1, &HopTokens::new([2; 32], 1).encode(tcp(None))), Err(NO_TOKEN));
        assert_eq!(decode(1, &token[1..]), Err(NO_TOKEN));
    }

    #[test]
    fn a_token_fails_if_its_listener_now_has_another_transport() {
        let token = HopTokens::new([1; 32], 1).encode(Hop { listener: 0, ..tcp(None) });
        assert_eq!(decode(1, &token), Err(FLOW_FAILED));
    }
}
