//! The targets of a registered user. Each binding leads to the contact's address, to the flow of the REGISTER, or to the proxy that has
//! this flow.

use std::net::IpAddr;

use super::Routing;
use crate::address::Address;
use crate::fault::Fault;
use crate::location::Binding;
use crate::proxy::flows::secure_route;
use crate::proxy::target::{RoutedHop, Target, VerifiedHop, is_secure};
use crate::proxy::tokens::FLOW_FAILED;
use crate::transport::{Hop, Transport};
use crate::uri::{Scheme, Uri};
use crate::via::parse_ip;

impl Routing<'_> {
    pub(in crate::proxy) fn registered_targets(&self, user: &str) -> Vec<Target> {
        self.targets_of(self.location.of(user, self.now))
    }

    pub(in crate::proxy) fn targets_of<'b>(
        &self,
        bindings: impl Iterator<Item = &'b Binding>,
    ) -> Vec<Target> {
        bindings
            .filter_map(|binding| self.target_of(binding).ok())
            .take(self.config.limits.branches)
            .collect()
    }

    /// Restricts the targets to TLS if `uri` is a SIPS URI. Between the caller and the URI's domain, "each hop … MUST be secured with TLS"
    /// (section 26.2.2). RFC 5630 section 5.3 requires TLS for the hops between the domain and the user.
    pub(in crate::proxy) fn targets_for(&self, uri: &Uri<'_>, targets: Vec<Target>) -> Vec<Target> {
        if uri.scheme != Scheme::Sips {
            return targets;
        }
        targets.into_iter().filter_map(|target| target.secured(|hop| self.secured_hop(hop))).collect()
    }

    fn secured_hop(&self, (hop, detour): RoutedHop) -> Option<RoutedHop> {
        if is_secure(&hop.0) {
            return Some((hop, detour));
        }
        let (detour, hop) = secure_route(self.config, &detour?)?;
        // Proxies that share users serve the same domains. The certificate of such a proxy must name the first of these domains.
        let domain = self.config.domains.first().map(|domain| domain.as_str().into());
        Some(((hop, domain), Some(detour)))
    }

    fn target_of(&self, binding: &Binding) -> Result<Target, Fault> {
        if let Some(through) = binding.through.as_deref().filter(|_| binding.path.is_empty()) {
            return self.target_through(binding, through);
        }
        self.target_at(binding, binding.flow)
    }

    fn target_at(&self, binding: &Binding, flow: Hop) -> Result<Target, Fault> {
        let (hop, domain) = match binding.path.first() {
            Some(first) => self.hop_of(&Uri::parse(Address::parse(first)?.uri)?)?,
            // A NAT lets requests pass only over the flow of the REGISTER (RFC 5626 section 5.3).
            None if is_by_flow(binding) => (flow, None),
            None => self.hop_of_contact(binding, flow)?,
        };
        let target = Target::new(&binding.uri, (hop, domain)).settled(hop == flow && is_by_flow(binding));
        Ok(target.with_path(binding.path.clone()).with_preference(binding.q))
    }

    /// Returns the target for a user who registered with a proxy that shares users:
    ///
    /// - the same target as for a user of a single proxy, if this proxy has the flow;
    /// - the contact's address, if this proxy had the flow and has lost it;
    /// - the contact's address, if the user registered over UDP with another proxy;
    /// - otherwise the proxy that has the flow. The contact's address is the alternative to that proxy.
    ///
    /// If the user is reachable only over the flow ([`is_by_flow`]), the contact's address is never used.
    ///
    /// If the other proxy drains and no NAT seems to be between the user and us, the contact's address is tried first. Then the
    /// Record-Route of a call does not name the draining proxy. The draining proxy is the alternative to the contact's address. A proxy
    /// that is gone is not used.
    fn target_through(&self, binding: &Binding, through: &[u8]) -> Result<Target, Fault> {
        let contact = || self.hop_of(&Uri::parse(&binding.uri)?);
        let has_address = !is_by_flow(binding);
        let at = |hop: VerifiedHop| Target::new(&binding.uri, hop).with_preference(binding.q);
        match self.flows.own_flow(self.config, through) {
            Some(Ok(flow)) => return self.target_at(binding, flow),
            Some(Err(fault)) => return if has_address { contact().map(at) } else { Err(fault) },
            None => {}
        }
        let direct = contact().ok().filter(|_| has_address);
        if let Some(hop) = direct.clone().filter(|_| binding.flow.transport == Transport::Udp) {
            return Ok(at(hop));
        }
        let hop = self.hop_of(&Uri::parse(Address::parse(through)?.uri)?)?;
        if self.cluster.is_gone(self.now, hop.0.address) {
            return direct.map(at).ok_or(FLOW_FAILED);
        }
        let is_draining = self.cluster.is_draining(self.now, hop.0.address);
        let is_open = |(hop, _): &VerifiedHop| hop.address.ip() == binding.flow.address.ip();
        Ok(match direct {
            Some(direct) if is_draining && is_open(&direct) => {
                at(direct).with_fallback(Some((hop, Some(through.into()))))
            }
            direct => at(hop).with_detour(through.into()).with_fallback(direct.map(|direct| (direct, None))),
        })
    }

    /// Returns the hop to the contact's address. If the REGISTER came over a connection of the contact's transport, the hop uses this
    /// connection. If the transports differ, the result is the flow of the REGISTER.
    fn hop_of_contact(&self, binding: &Binding, flow: Hop) -> Result<VerifiedHop, Fault> {
        let (hop, domain) = self.hop_of(&Uri::parse(&binding.uri)?).unwrap_or((flow, None));
        let is_same = hop.transport == flow.transport;
        Ok(match flow.connection {
            Some(_) if is_same => (Hop { address: hop.address, ..flow }, domain),
            Some(_) => (flow, None),
            None => (hop, domain),
        })
    }
}

/// Reports whether a user is reachable only over the flow of the REGISTER. A contact with an instance requests the use of its flow (RFC
/// 5626). A user who registered over UDP is behind a NAT if the contact's address is private and the source address of the REGISTER is not.
pub(in crate::proxy) fn is_by_flow(binding: &Binding) -> bool {
    let contact = Uri::parse(&binding.uri).ok().and_then(|uri| parse_ip(uri.host));
    let is_behind_nat = contact.is_some_and(is_private) && !is_private(binding.flow.address.ip());
    binding.instance.is_some() || (binding.flow.transport == Transport::Udp && is_behind_nat)
}

/// Reports whether an address is private (RFC 1918, RFC 6598 or RFC 4193).
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            address.is_private() || (first == 100 && second & 0xc0 == 64)
        }
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::Time;

    use super::*;
    use crate::location::Change;
    use crate::proxy::testing::{Knowledge, hop};
    use crate::proxy::{Presence, Shared};
    use crate::transport::ConnectionId;

    fn binding(uri: &str, flow: Hop) -> Binding {
        Binding {
            uri: uri.as_bytes().into(),
            expires: Time::from_millis(60_000),
            call_id: b"c"[..].into(),
            cseq: 1,
            path: Vec::new(),
            instance: None,
            q: 1000,
            flow,
            through: None,
        }
    }

    fn hop_to(binding: &Binding) -> Hop {
        Knowledge::default().routing(Time::ZERO).target_of(binding).unwrap().hop()
    }

    #[test]
    fn a_contact_behind_a_nat_is_reached_by_its_flow_and_another_at_its_address() {
        let flow = hop("198.51.100.7:40000");
        assert_eq!(hop_to(&binding("sip:a@10.0.0.1:5062", flow)), flow);
        assert_eq!(hop_to(&binding("sip:a@198.51.100.7:5062", flow)), hop("198.51.100.7:5062"));
        let private = hop("10.0.0.2:40000");
        assert_eq!(hop_to(&binding("sip:a@10.0.0.1:5062", private)), hop("10.0.0.1:5062"));
        let asks = Binding { instance: Some(b"i;1"[..].into()), ..binding("sip:a@198.51.100.8", flow) };
        assert_eq!(hop_to(&asks), flow);
    }

    #[test]
    fn a_tcp_contact_is_reached_at_its_address_over_its_existing_connection() {
        let tcp =
            |address, connection| Hop { listener: 1, transport: Transport::Tcp, connection, ..hop(address) };
        let flow = tcp("198.51.100.7:40000", Some(ConnectionId(3)));
        let contact = binding("sip:a@198.51.100.7:5062;transport=tcp", flow);
        assert_eq!(hop_to(&contact), tcp("198.51.100.7:5062", Some(ConnectionId(3))));
        assert_eq!(hop_to(&binding("sip:a@198.51.100.7:5062", flow)), flow, "of another transport");
    }

    #[test]
    fn a_sips_uri_targets_only_the_secure_contacts_of_a_user() {
        let mut known = Knowledge::default();
        let mut put = |uri, q| {
            let binding = Binding { q, ..binding(uri, hop("198.51.100.7:5060")) };
            known.location.apply(&Change::Put { user: "a@example.org".into(), binding });
        };
        put("sip:a@198.51.100.7", 500);
        put("sips:a@198.51.100.8", 1000);
        let routing = known.routing(Time::ZERO);
        let addresses = |uri: &[u8]| -> Vec<String> {
            let targets = routing.registered_targets("a@example.org");
            let targets = routing.targets_for(&Uri::parse(uri).unwrap(), targets);
            targets.iter().map(|target| target.hop().address.to_string()).collect()
        };
        assert_eq!(addresses(b"sip:a@example.org"), ["198.51.100.7:5060", "198.51.100.8:5061"]);
        assert_eq!(addresses(b"sips:a@example.org"), ["198.51.100.8:5061"]);
    }

    #[test]
    fn a_draining_proxy_is_tried_after_its_users_contact_and_a_gone_proxy_never() {
        let mut known = Knowledge::default();
        known.config.shared = Some(Shared { origin: Duration::ZERO });
        let other = "192.0.2.2:5060";
        let flow = Hop { listener: 1, transport: Transport::Tcp, ..hop("198.51.100.7:40000") };
        let through = Some(format!("<sip:token@{other};transport=udp;lr>").into_bytes().into());
        let binding = Binding { through, ..binding("sip:a@198.51.100.7:5062;transport=tcp", flow) };
        let hops = |known: &Knowledge| -> Vec<String> {
            let target = known.routing(Time::ZERO).target_of(&binding).unwrap();
            assert_eq!(target.routes().count(), usize::from(target.hop().address.to_string() == other));
            target.hops().map(|hop| hop.address.to_string()).collect()
        };
        assert_eq!(hops(&known), [other, "198.51.100.7:5062"]);
        known.cluster.note(Time::ZERO, other.parse().unwrap(), Presence::Draining);
        assert_eq!(hops(&known), ["198.51.100.7:5062", other]);
        known.cluster.note(Time::ZERO, other.parse().unwrap(), Presence::Gone);
        assert_eq!(hops(&known), ["198.51.100.7:5062"]);
    }
}
