//! Finds the next hop of a request. The source of a next hop is an IP address in a URI, a configured route to another domain, a DNS
//! answer (RFC 3263), or a user's registered contact (`contacts`). This module only reads state. Begin with [`Routing::hop_of`].

mod contacts;

pub(super) use contacts::is_by_flow;

use std::net::{IpAddr, SocketAddr};

use base::Time;

use super::ProxyConfig;
use super::cluster::Cluster;
use super::flows::Flows;
use super::lookup::{Lookup, ResolvedTarget, UNRESOLVED};
use super::names::Names;
use super::refusal::UNSUPPORTED_SCHEME;
use super::target::{Target, VerifiedHop};
use crate::address::Address;
use crate::fault::Fault;
use crate::header::Name;
use crate::location::Location;
use crate::message::Message;
use crate::transport::{Hop, Transport};
use crate::uri::{Scheme, Uri};
use crate::via::parse_ip;

/// The rejection of a SIPS request whose next hop does not use TLS.
const NOT_SECURE: Fault = Fault { status: 416, reason: "No Secure Transport To The Next Hop" };

/// A view of the state from which requests are routed, at one time.
#[derive(Clone, Copy)]
pub(super) struct Routing<'a> {
    now: Time,
    config: &'a ProxyConfig,
    flows: &'a Flows,
    names: &'a Names,
    cluster: &'a Cluster,
    location: &'a Location,
}

impl<'a> Routing<'a> {
    pub(super) fn new(
        now: Time,
        config: &'a ProxyConfig,
        flows: &'a Flows,
        names: &'a Names,
        cluster: &'a Cluster,
        location: &'a Location,
    ) -> Routing<'a> {
        Routing { now, config, flows, names, cluster, location }
    }

    /// Returns the time at which this view was created.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Returns the target of a request that goes to its first Route, or to a Request-URI of another domain.
    pub(super) fn target_outside(&self, request: &Message) -> Result<Target, Fault> {
        let uri = Uri::parse(request.request_uri())?;
        let first = request.elements(Name::Route).next();
        let next = first.map_or(Ok(uri), |route| Uri::parse(Address::parse(route)?.uri))?;
        let (hop, domain) = self.hop_of(&next)?;
        let mut alternates = self.hops_of_name(&next);
        alternates.retain(|other| *other != hop);
        Ok(Target::new(request.request_uri(), (hop, domain)).with_alternates(alternates))
    }

    /// Returns the next hop for a URI. For a host name, a configured next hop comes before DNS answers.
    pub(super) fn hop_of(&self, uri: &Uri<'_>) -> Result<VerifiedHop, Fault> {
        // RFC 4475 section 3.3.2 requires 416 for unknown schemes.
        if uri.scheme == Scheme::Other {
            return Err(UNSUPPORTED_SCHEME);
        }
        let host = uri.param("maddr").flatten().unwrap_or(uri.host);
        let named = self.config.next_hops.iter().find(|hop| host.eq_ignore_ascii_case(hop.domain.as_bytes()));
        if let Some(next) = named {
            if uri.scheme == Scheme::Sips && next.transport != Transport::Tls {
                return Err(NOT_SECURE);
            }
            let listener = self.config.listener_for(next.transport, next.address.is_ipv4())?;
            let hop = Hop { listener, transport: next.transport, address: next.address, connection: None };
            let is_asked = next.transport == Transport::Tls;
            return Ok((hop, is_asked.then(|| next.domain.as_str().into())));
        }
        let transport = transport_of(uri)?;
        let Some(ip) = parse_ip(host) else { return self.hop_of_name(uri) };
        let address = SocketAddr::new(ip, uri.port.unwrap_or(transport.default_port()));
        let listener = self.config.listener_for(transport, address.is_ipv4())?;
        // If a Route names a TLS peer by address, the peer must prove the domain that a configured next hop or a DNS answer has at that
        // address.
        let mut secure = self.config.next_hops.iter().filter(|hop| hop.transport == Transport::Tls);
        let known = secure.find(|hop| transport == Transport::Tls && hop.address == address);
        let domain = known.map(|hop| hop.domain.as_str());
        let domain =
            domain.or_else(|| (transport == Transport::Tls).then(|| self.names.name_of(address)).flatten());
        let domain = domain.map(Into::into);
        Ok((Hop { listener, transport, address, connection: None }, domain))
    }

    fn hop_of_name(&self, uri: &Uri<'_>) -> Result<VerifiedHop, Fault> {
        if !self.config.names {
            return Err(Fault { status: 500, reason: "No Next Hop Is Configured For This Domain" });
        }
        let lookup = Lookup::of(uri).ok_or(UNRESOLVED)?;
        self.names.targets(self.now, &lookup).ok_or(UNRESOLVED)?;
        let hop = self.hops_of_name(uri).first().copied();
        let hop = hop.ok_or(Fault { status: 500, reason: "No Address Of The Next Hop" })?;
        Ok((hop, (hop.transport == Transport::Tls).then(|| lookup.name.into())))
    }

    /// Returns the hops that DNS answers give for a URI's host name. Answers without a suitable listener are left out. For an IP address
    /// or a configured next hop, the result is empty.
    fn hops_of_name(&self, uri: &Uri<'_>) -> Vec<Hop> {
        let is_configured = |name: &str| self.config.next_hops.iter().any(|hop| hop.domain == name);
        let lookup = Lookup::of(uri).filter(|lookup| !is_configured(&lookup.name));
        let targets = lookup.and_then(|lookup| self.names.targets(self.now, &lookup)).unwrap_or_default();
        let hop = |target: &ResolvedTarget| {
            let ResolvedTarget { transport, address } = *target;
            let listener = self.config.listener_for(transport, address.is_ipv4()).ok()?;
            Some(Hop { listener, transport, address, connection: None })
        };
        targets.iter().filter_map(hop).collect()
    }

    /// Reports whether requests within any dialog may go to an address. The result is true if the settings permit the address, or a
    /// REGISTER from this address made a binding.
    pub(super) fn is_known_address(&self, address: IpAddr) -> bool {
        self.config.relay_networks.iter().any(|network| network.contains(address))
            || self.config.next_hops.iter().any(|hop| hop.address.ip() == address)
            || self.location.is_registered_from(address)
    }
}

/// Returns the transport that a URI names. SIPS always means TLS, even if the URI names TCP (RFC 3261 section 19.1.2).
fn transport_of(uri: &Uri<'_>) -> Result<Transport, Fault> {
    let unknown = Fault { status: 500, reason: "Unknown Transport Of The Next Hop" };
    let named = uri.transport().map(|name| Transport::from_bytes(name).ok_or(unknown)).transpose()?;
    match (uri.scheme, named) {
        (Scheme::Sips, None | Some(Transport::Tcp | Transport::Tls)) => Ok(Transport::Tls),
        (Scheme::Sips, Some(Transport::Udp | Transport::Sctp)) => Err(NOT_SECURE),
        (_, named) => Ok(named.unwrap_or(Transport::Udp)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proxy::NextHop;
    use crate::proxy::testing::{Knowledge, request};

    fn knowledge() -> Knowledge {
        let mut knowledge = Knowledge::default();
        knowledge.config.names = true;
        knowledge.config.next_hops = vec![NextHop {
            domain: "example.com".into(),
            transport: Transport::Tls,
            address: "192.0.2.50:5061".parse().unwrap(),
        }];
        knowledge
    }

    fn hop_of(knowledge: &Knowledge, uri: &str) -> Result<(Transport, String, Option<String>), Fault> {
        let (hop, domain) = knowledge.routing(Time::ZERO).hop_of(&Uri::parse(uri.as_bytes()).unwrap())?;
        Ok((hop.transport, hop.address.to_string(), domain.map(|domain| domain.to_string())))
    }

    #[test]
    fn a_sips_uri_leads_over_tls_or_nowhere() {
        let known = knowledge();
        let tls = |address: &str| Ok((Transport::Tls, address.to_owned(), None));
        assert_eq!(hop_of(&known, "sips:192.0.2.9"), tls("192.0.2.9:5061"));
        assert_eq!(hop_of(&known, "sips:192.0.2.9;transport=tcp"), tls("192.0.2.9:5061"));
        assert_eq!(hop_of(&known, "sips:192.0.2.9;transport=udp"), Err(NOT_SECURE));
        let mut plain = knowledge();
        plain.config.next_hops[0].transport = Transport::Tcp;
        assert_eq!(hop_of(&plain, "sips:example.com"), Err(NOT_SECURE));
    }

    #[test]
    fn a_tls_next_hop_must_prove_its_domain_when_reached_by_name_or_address() {
        let expected = Ok((Transport::Tls, "192.0.2.50:5061".to_owned(), Some("example.com".to_owned())));
        assert_eq!(hop_of(&knowledge(), "sip:bob@EXAMPLE.com"), expected);
        assert_eq!(hop_of(&knowledge(), "sips:192.0.2.50"), expected);
    }

    #[test]
    fn a_name_is_unresolved_before_its_lookup_and_then_gives_all_usable_addresses() {
        let mut known = knowledge();
        let uri = "sip:bob@example.edu";
        assert_eq!(hop_of(&known, uri), Err(UNRESOLVED));
        let lookup = Lookup::of(&Uri::parse(uri.as_bytes()).unwrap()).unwrap();
        let udp =
            |address: &str| ResolvedTarget { transport: Transport::Udp, address: address.parse().unwrap() };
        // No listener serves the second address.
        let found = vec![udp("192.0.2.60:5060"), udp("[2001:db8::60]:5060"), udp("192.0.2.61:5060")];
        known.names.answer(Time::ZERO, &lookup, found, Duration::from_secs(60));
        assert_eq!(hop_of(&known, uri), Ok((Transport::Udp, "192.0.2.60:5060".to_owned(), None)));
        let target = known.routing(Time::ZERO).target_outside(&request(&format!("OPTIONS {uri}"))).unwrap();
        let hops: Vec<String> = target.hops().map(|hop| hop.address.to_string()).collect();
        assert_eq!(hops, ["192.0.2.61:5060", "192.0.2.60:5060"]);
        known.config.names = false;
        assert_eq!(hop_of(&known, uri).unwrap_err().reason, "No Next Hop Is Configured For This Domain");
    }

    #[test]
    fn a_route_decides_before_the_request_uri() {
        let known = knowledge();
        let request = request("OPTIONS sip:bob@192.0.2.9\nRoute: <sip:192.0.2.8:5070;transport=tcp;lr>");
        let target = known.routing(Time::ZERO).target_outside(&request).unwrap();
        assert_eq!(&target.uri()[..], b"sip:bob@192.0.2.9");
        assert_eq!(
            (target.hop().transport, target.hop().address),
            (Transport::Tcp, "192.0.2.8:5070".parse().unwrap())
        );
    }
}
