//! Flows of proxies that share users (RFC 5626 section 5.2). If a user is connected to one proxy, the other proxies send their requests
//! for this user to that proxy. These requests have a Route whose user part is a token of the flow.
//!
//! A token encodes the source of the REGISTER. A MAC with a key that the proxies share prevents forgery. Only the proxy that issued a
//! token uses its contents. A token for a connection is valid until its proxy restarts. A token for UDP remains valid after a restart,
//! because UDP needs no connection. Begin with [`Flows::route`] and [`Flows::flow_of`].

use std::net::SocketAddr;

use super::ProxyConfig;
use super::tokens::HopTokens;
use crate::address::Address;
use crate::fault::Fault;
use crate::header::Name;
use crate::message::Message;
use crate::transport::{Hop, Transport};
use crate::uri::Uri;

/// URI parameter with the TLS address of the proxy that the URI names. No RFC defines this parameter. Only proxies that share users
/// receive it.
const SECURE: &str = "tls";

/// The builder and reader of Routes to flows.
#[derive(Debug)]
pub(super) struct Flows {
    tokens: HopTokens,
}

impl Flows {
    pub(super) fn new(tokens: HopTokens) -> Flows {
        Flows { tokens }
    }

    /// Builds a Route through this proxy to a flow. For a TLS flow, the Route also contains our TLS address.
    pub(super) fn route(&self, config: &ProxyConfig, flow: Hop) -> Option<Box<[u8]>> {
        let home = config.listeners.first()?;
        let token = self.tokens.encode(flow);
        let (address, transport) = (home.address, home.transport.as_lower_str());
        let listener = config.listeners.get(flow.listener).filter(|_| flow.transport == Transport::Tls);
        let secure = listener.map(|listener| format!(";{SECURE}={}", listener.address)).unwrap_or_default();
        Some(format!("<sip:{token}@{address};transport={transport};lr{secure}>").into_bytes().into())
    }

    /// Returns the flow to which one of our Routes leads. A flow with a connection must be from this run of the program.
    ///
    /// # Errors
    /// Returns 403 for a token that was not issued with our key, and 430 if the token's connection is from an earlier run.
    pub(super) fn flow_of(&self, config: &ProxyConfig, route: &Uri<'_>) -> Result<Hop, Fault> {
        self.tokens.decode(&config.listeners, route.user.unwrap_or_default())
    }

    /// Reports whether a request's first Route leads to one of our flows.
    pub(super) fn leads_by_flow(&self, config: &ProxyConfig, request: &Message) -> bool {
        let first = request.elements(Name::Route).next();
        let uri = first.and_then(|route| Uri::parse(Address::parse(route).ok()?.uri).ok());
        uri.is_some_and(|uri| {
            config.is_ours(&uri) && is_flow_route(config, &uri) && self.flow_of(config, &uri).is_ok()
        })
    }

    /// Returns the flow to which the Route `through` of a binding leads, or the fault of its token. Returns `None` if the Route leads to
    /// another proxy.
    pub(super) fn own_flow(&self, config: &ProxyConfig, through: &[u8]) -> Option<Result<Hop, Fault>> {
        let address = Address::parse(through).ok()?;
        let uri = Uri::parse(address.uri).ok()?;
        config.is_ours(&uri).then(|| self.flow_of(config, &uri))
    }
}

/// Converts the Route of a flow to a Route over TLS, and returns it with its hop. Returns `None` if the Route has no TLS address.
pub(super) fn secure_route(config: &ProxyConfig, route: &[u8]) -> Option<(Box<[u8]>, Hop)> {
    let uri = Uri::parse(Address::parse(route).ok()?.uri).ok()?;
    let token = std::str::from_utf8(uri.user?).ok()?;
    let address = std::str::from_utf8(uri.param(SECURE).flatten()?).ok()?;
    let address: SocketAddr = address.parse().ok()?;
    let listener = config.listener_for(Transport::Tls, address.is_ipv4()).ok()?;
    let hop = Hop { listener, transport: Transport::Tls, address, connection: None };
    Some((format!("<sips:{token}@{address};lr>").into_bytes().into(), hop))
}

/// Reports whether a Route looks like a Route to a flow: its user part has the length of a token. Returns false if proxies share no
/// users.
pub(super) fn is_flow_route(config: &ProxyConfig, route: &Uri<'_>) -> bool {
    config.is_shared() && route.user.is_some_and(|user| user.len() == HopTokens::DIGITS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proxy::Shared;
    use crate::proxy::testing::{config, hop, request};

    fn flows() -> Flows {
        Flows::new(HopTokens::new([1; 32], 1))
    }

    #[test]
    fn a_route_to_a_flow_is_valid_only_at_the_proxy_that_issued_it() {
        let shared = ProxyConfig { shared: Some(Shared { origin: Duration::ZERO }), ..config() };
        let other = ProxyConfig { listeners: Vec::new(), domains: Vec::new(), ..shared.clone() };
        let flow = hop("192.0.2.7:5062");
        let route = flows().route(&shared, flow).unwrap();
        assert_eq!(flows().own_flow(&shared, &route), Some(Ok(flow)));
        assert_eq!(flows().own_flow(&other, &route), None);
        let text = format!("OPTIONS sip:a@example.org\nRoute: {}", String::from_utf8_lossy(&route));
        assert!(flows().leads_by_flow(&shared, &request(&text)));
        assert!(!flows().leads_by_flow(&other, &request(&text)));
        assert!(!flows().leads_by_flow(&config(), &request(&text)), "users are not shared");
    }

    #[test]
    fn only_a_route_to_a_tls_flow_has_a_sips_form() {
        let flow = Hop { listener: 2, transport: Transport::Tls, ..hop("192.0.2.7:40000") };
        let route = flows().route(&config(), flow).unwrap();
        let (secure, hop) = secure_route(&config(), &route).unwrap();
        assert!(secure.starts_with(b"<sips:") && secure.ends_with(b"@192.0.2.1:5061;lr>"));
        assert_eq!((hop.transport, hop.address), (Transport::Tls, "192.0.2.1:5061".parse().unwrap()));
        let udp = flows().route(&config(), super::super::testing::hop("192.0.2.7:5062")).unwrap();
        assert_eq!(secure_route(&config(), &udp), None);
    }
}
