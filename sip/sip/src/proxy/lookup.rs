//! Queries for the names of next hops (RFC 3263), and their answers.

use std::net::SocketAddr;

use crate::fault::Fault;
use crate::transport::Transport;
use crate::uri::{Scheme, Uri};
use crate::via::parse_ip;

/// The fault of a name that is not resolved yet. This fault makes the request wait, and is not sent as a response.
pub(super) const UNRESOLVED: Fault = Fault { status: 500, reason: "Name Not Looked Up" };

/// A query for an address. `name` is the host of a URI, or the host in the URI's `maddr` parameter. The other fields are the further inputs
/// of RFC 3263 section 4.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lookup {
    /// The host, in lower case.
    pub name: String,
    /// The port, if the URI has one. With a port, SRV records are not used.
    pub port: Option<u16>,
    /// The transport, if the URI names one.
    pub transport: Option<Transport>,
    /// True if TLS is required (SIPS).
    pub is_secure: bool,
}

/// An address that a name resolves to, with its transport (RFC 3263 section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolvedTarget {
    /// The transport.
    pub transport: Transport,
    /// The address.
    pub address: SocketAddr,
}

impl Lookup {
    /// Returns the query for a URI, or `None` if its host is an IP address.
    pub(super) fn of(uri: &Uri<'_>) -> Option<Lookup> {
        let host = uri.param("maddr").flatten().unwrap_or(uri.host);
        if parse_ip(host).is_some() {
            return None;
        }
        Some(Lookup {
            name: String::from_utf8_lossy(host).trim_end_matches('.').to_ascii_lowercase(),
            port: uri.port,
            transport: uri.transport().and_then(Transport::from_bytes),
            is_secure: uri.scheme == Scheme::Sips,
        })
    }
}
