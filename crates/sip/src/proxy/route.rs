//! Request routing (RFC 3261 sections 16.4 to 16.6): Routes, registered contacts, other domains.

use std::net::{IpAddr, SocketAddr};

use base::Time;
use bytes::Bytes;

use super::dialogs::Leg;
use super::flows::{is_flow_route, secure_route};
use super::names::{self, UNRESOLVED};
use super::target::{RoutedHop, Target, VerifiedHop};
use super::tokens::FLOW_FAILED;
use super::{Id, Mode, Proxy};
use crate::address::Address;
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::location::Binding;
use crate::message::{Message, Method, Start};
use crate::transport::{Hop, Transport};
use crate::uri::{Scheme, Uri};
use crate::via::parse_ip;

/// The rejection of a request that concerns neither our users nor our dialogs.
pub(super) const RELAYING_DENIED: Fault = Fault { status: 403, reason: "Relaying Denied" };

/// A request to forward, with the facts found about it so far.
#[derive(Debug)]
pub(super) struct Asked {
    /// Its server transaction.
    pub(super) server: Id,
    pub(super) from: Hop,
    pub(super) request: Message,
    pub(super) known: Essentials,
    /// The dialog for which one of our own Routes was marked.
    pub(super) leg: Option<Leg>,
    /// The loop mark for the branches of its copies: seen again here, it reveals a loop.
    pub(super) mark: String,
}

/// The contents of our own Routes.
#[derive(Debug)]
pub(super) struct Taken {
    /// The dialog for which one was marked, if it is this request's.
    pub(super) leg: Option<Leg>,
    /// The flow for which another proxy sent this here.
    pub(super) flow: Option<Hop>,
}

impl Proxy {
    /// Removes the Routes that lead here (section 16.4), and returns their contents.
    ///
    /// If proxies share users, this includes another proxy's Routes in a request that came here instead: that proxy is gone, or the
    /// user agent has other reasons. The mark proves that such a Route belongs to one of our proxies.
    pub(super) fn take_own_routes(&self, request: &mut Message, known: &Essentials) -> Result<Taken, Fault> {
        let marked = |uri: &Uri<'_>| known.to_tag.as_ref().and_then(|_| self.marks.marked(uri, known));
        let mut leg = Uri::parse(request.request_uri()).ok().and_then(|uri| marked(&uri));
        self.undo_strict_routing(request)?;
        // The host of the removed Route.
        let mut host: Option<Vec<u8>> = None;
        // Two of ours are adjacent if transports differ (RFC 5658); more than that is a loop.
        for _ in 0..2 {
            let Some(first) = request.elements(Name::Route).next() else { break };
            let address = Address::parse(first)?;
            let uri = Uri::parse(address.uri)?;
            let mark = marked(&uri);
            let is_ours = self.config.is_ours(&uri);
            if is_ours && is_flow_route(&self.config, &uri) {
                let flow = self.flows.flow_of(&self.config, &uri)?;
                request.pop_first(Name::Route);
                return Ok(Taken { leg, flow: Some(flow) });
            }
            let is_in_stead =
                self.config.is_shared() && mark.is_some() && host.as_ref().is_none_or(|h| *h == uri.host);
            if !is_ours && !is_in_stead {
                break;
            }
            host = Some(uri.host.to_vec());
            leg = leg.or(mark);
            request.pop_first(Name::Route);
        }
        Ok(Taken { leg, flow: None })
    }

    /// Undoes strict routing: a previous hop put our Record-Route into the Request-URI, and the real one after the Routes.
    fn undo_strict_routing(&self, request: &mut Message) -> Result<(), Fault> {
        let Ok(uri) = Uri::parse(request.request_uri()) else { return Ok(()) };
        let is_our_record = uri.user.is_none() && uri.param("lr").is_some() && self.config.is_ours(&uri);
        let routes: Vec<Vec<u8>> = request.elements(Name::Route).map(<[u8]>::to_vec).collect();
        let Some((last, rest)) = routes.split_last().filter(|_| is_our_record) else { return Ok(()) };
        let target = Bytes::copy_from_slice(Address::parse(last)?.uri);
        Uri::parse(&target)?;
        request.remove(Name::Route);
        if !rest.is_empty() {
            request.push(Header::of_bytes(Name::Route, &rest.join(&b", "[..])));
        }
        if let Start::Request { uri, .. } = &mut request.start {
            *uri = target;
        }
        Ok(())
    }

    /// Finds the targets and forwards, or answers.
    pub(super) fn route(&mut self, now: Time, asked: Asked) -> Result<(), Fault> {
        let uri = Uri::parse(asked.request.request_uri())?;
        let has_route = asked.request.first(Name::Route).is_some();
        if !has_route && self.config.is_ours(&uri) {
            return self.serve(now, asked);
        }
        if self.config.mode == Mode::Redirect {
            return Err(RELAYING_DENIED);
        }
        if asked.leg.is_none() && !self.config.may_relay(&asked.request, &uri) {
            return Err(RELAYING_DENIED);
        }
        let target = match &asked.leg {
            Some(leg) => self.target_within(now, leg, asked.from, &asked.request, &asked.known),
            None => self.target_outside(now, &asked.request, &uri),
        };
        if target.as_ref().is_err_and(|fault| *fault == UNRESOLVED) {
            return self.wait_for_name(now, asked);
        }
        self.begin(now, asked, vec![target?]);
        Ok(())
    }

    /// Serves a request for this domain.
    fn serve(&mut self, now: Time, asked: Asked) -> Result<(), Fault> {
        let Asked { server, from, request, known, .. } = &asked;
        let uri = Uri::parse(request.request_uri())?;
        if known.cseq.method == Method::Register {
            return self.register(now, *server, *from, request, known);
        }
        if uri.user.is_none() {
            return self.answer_for_ourselves(now, *server, known);
        }
        let user = self.config.user_of(&uri);
        let targets = self.targets_for(&uri, self.registered_targets(&user, now));
        if targets.is_empty() && self.config.is_shared() && self.location.of(&user, now).next().is_none() {
            return self.wait_for_record(now, user, asked);
        }
        self.serve_at(now, asked, &user, targets)
    }

    /// Serves a request for a user with these targets.
    pub(super) fn serve_at(
        &mut self,
        now: Time,
        asked: Asked,
        user: &str,
        targets: Vec<Target>,
    ) -> Result<(), Fault> {
        if self.config.mode == Mode::Redirect {
            let uri = Uri::parse(asked.request.request_uri())?;
            return self.redirect(now, asked.server, user, &uri);
        }
        if targets.is_empty() {
            let is_cut_off = self.config.is_shared() && self.location.of(user, now).next().is_some();
            return Err(if is_cut_off { CUT_OFF } else { self.config.nobody_there(user) });
        }
        self.begin(now, asked, targets);
        Ok(())
    }

    /// Forwards to a flow of ours that another proxy found; that proxy has authenticated the caller where required.
    pub(super) fn follow_flow(&mut self, now: Time, asked: Asked, flow: Hop) {
        if let Some(server) = self.servers.get_mut(&asked.server) {
            server.is_by_flow = true;
        }
        let uri = Bytes::copy_from_slice(asked.request.request_uri());
        self.begin(now, asked, vec![Target { is_settled: true, ..Target::new(uri, flow, None) }]);
    }

    /// Restricts a SIPS URI's targets: "each hop … MUST be secured with TLS" up to its domain (section 26.2.2), then RFC 5630 section
    /// 5.3.
    pub(super) fn targets_for(&self, uri: &Uri<'_>, targets: Vec<Target>) -> Vec<Target> {
        if uri.scheme != Scheme::Sips {
            return targets;
        }
        targets.into_iter().filter_map(|target| self.secured(target)).collect()
    }

    /// Restricts a target to TLS; `None` if that leaves no hop.
    fn secured(&self, mut target: Target) -> Option<Target> {
        target.alternates.retain(is_secure);
        target.fallback = target.fallback.and_then(|fallback| self.secured_hop(fallback));
        match self.secured_hop((target.verified_hop(), target.detour.take())) {
            Some(hop) => target.use_hop(hop),
            None if target.move_on() => {}
            None => return None,
        }
        Some(target)
    }

    fn secured_hop(&self, (hop, detour): RoutedHop) -> Option<RoutedHop> {
        if is_secure(&hop.0) {
            return Some((hop, detour));
        }
        let (detour, hop) = secure_route(&self.config, &detour?)?;
        // Proxies that share users serve the same domains, and must prove it.
        let domain = self.config.domains.first().map(|domain| domain.as_str().into());
        Some(((hop, domain), Some(detour)))
    }

    /// Answers requests to the proxy itself: only OPTIONS (section 11.2).
    fn answer_for_ourselves(&mut self, now: Time, id: Id, known: &Essentials) -> Result<(), Fault> {
        if known.cseq.method != Method::Options {
            return Err(Fault { status: 404, reason: "Nobody Of That Name" });
        }
        self.reply(now, id, 200, "OK", |response| {
            response.push(Header::new(Name::Allow, "INVITE, ACK, CANCEL, BYE, OPTIONS, REGISTER"));
            response.push(Header::new(Name::Supported, "path, outbound"));
        });
        Ok(())
    }

    pub(super) fn registered_targets(&self, user: &str, now: Time) -> Vec<Target> {
        self.targets_of(now, self.location.of(user, now))
    }

    pub(super) fn targets_of<'a>(
        &self,
        now: Time,
        bindings: impl Iterator<Item = &'a Binding>,
    ) -> Vec<Target> {
        bindings
            .filter_map(|binding| self.target_of(now, binding).ok())
            .take(self.config.limits.branches)
            .collect()
    }

    fn target_of(&self, now: Time, binding: &Binding) -> Result<Target, Fault> {
        if let Some(through) = binding.through.as_deref().filter(|_| binding.path.is_empty()) {
            return self.target_through(now, binding, through);
        }
        self.target_at(now, binding, binding.flow)
    }

    fn target_at(&self, now: Time, binding: &Binding, flow: Hop) -> Result<Target, Fault> {
        let uri = Bytes::copy_from_slice(&binding.uri);
        let routes = binding.path.clone();
        let (hop, domain) = match routes.first() {
            Some(first) => self.hop_of(now, &Uri::parse(Address::parse(first)?.uri)?)?,
            // Use the flow of the REGISTER (RFC 5626 section 5.3): a NAT lets that through.
            None if is_by_flow(binding) => (flow, None),
            None => self.hop_of_contact(now, binding, flow)?,
        };
        let (preference, is_settled) = (binding.q, hop == flow && is_by_flow(binding));
        Ok(Target { routes, preference, is_settled, ..Target::new(uri, hop, domain) })
    }

    /// Returns the target for a user who registered with a proxy that shares users: the flow if it is ours, the contact's address for
    /// UDP, otherwise that proxy. A draining proxy is avoided, and a call avoids its Record-Route, if nothing seems to stand between
    /// the user and us: its flow is then the alternative.
    fn target_through(&self, now: Time, binding: &Binding, through: &[u8]) -> Result<Target, Fault> {
        let uri = || Bytes::copy_from_slice(&binding.uri);
        let contact = || self.hop_of(now, &Uri::parse(&binding.uri)?);
        let has_address = !is_by_flow(binding);
        let preference = binding.q;
        let at = |(hop, domain): VerifiedHop| Target { preference, ..Target::new(uri(), hop, domain) };
        match self.flows.own_flow(&self.config, through) {
            Some(Ok(flow)) => return self.target_at(now, binding, flow),
            Some(Err(fault)) => return if has_address { contact().map(at) } else { Err(fault) },
            None => {}
        }
        let direct = contact().ok().filter(|_| has_address);
        if let Some(hop) = direct.clone().filter(|_| binding.flow.transport == Transport::Udp) {
            return Ok(at(hop));
        }
        let hop = self.hop_of(now, &Uri::parse(Address::parse(through)?.uri)?)?;
        if self.cluster.is_gone(now, hop.0.address) {
            return direct.map(at).ok_or(FLOW_FAILED);
        }
        let is_draining = self.cluster.is_draining(now, hop.0.address);
        let is_open = |(hop, _): &VerifiedHop| hop.address.ip() == binding.flow.address.ip();
        let detour = Some(through.into());
        Ok(match direct {
            Some(direct) if is_draining && is_open(&direct) => {
                Target { fallback: Some((hop, detour)), ..at(direct) }
            }
            direct => Target { detour, fallback: direct.map(|direct| (direct, None)), ..at(hop) },
        })
    }

    /// Returns the contact's address, with the connection of its REGISTER while that exists.
    fn hop_of_contact(&self, now: Time, binding: &Binding, flow: Hop) -> Result<VerifiedHop, Fault> {
        let (hop, domain) = self.hop_of(now, &Uri::parse(&binding.uri)?).unwrap_or((flow, None));
        let is_same = hop.transport == flow.transport;
        Ok(match flow.connection {
            Some(_) if is_same => (Hop { address: hop.address, ..flow }, domain),
            Some(_) => (flow, None),
            None => (hop, domain),
        })
    }

    /// Returns the target for the first Route, or for a Request-URI of another domain.
    pub(super) fn target_outside(
        &self,
        now: Time,
        request: &Message,
        uri: &Uri<'_>,
    ) -> Result<Target, Fault> {
        let first = request.elements(Name::Route).next();
        let first = first.map(|route| Uri::parse(Address::parse(route)?.uri)).transpose()?;
        let next = first.as_ref().unwrap_or(uri);
        let (hop, domain) = self.hop_of(now, next)?;
        let uri = Bytes::copy_from_slice(request.request_uri());
        let mut alternates = self.hops_of_name(now, next);
        alternates.retain(|other| *other != hop);
        Ok(Target { alternates, ..Target::new(uri, hop, domain) })
    }

    /// Returns the next hop for a URI. Names are looked up among the configured next hops, then among DNS answers.
    pub(super) fn hop_of(&self, now: Time, uri: &Uri<'_>) -> Result<VerifiedHop, Fault> {
        // RFC 4475 section 3.3.2.
        if uri.scheme == Scheme::Other {
            return Err(Fault { status: 416, reason: "Unsupported URI Scheme" });
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
        let Some(ip) = parse_ip(host) else { return self.hop_of_name(now, uri) };
        let address = SocketAddr::new(ip, uri.port.unwrap_or(transport.default_port()));
        let listener = self.config.listener_for(transport, address.is_ipv4())?;
        // A next hop in Record-Route by address must prove to be the domain that we know at that address.
        let mut secure = self.config.next_hops.iter().filter(|hop| hop.transport == Transport::Tls);
        let known = secure.find(|hop| transport == Transport::Tls && hop.address == address);
        let domain = known.map(|hop| hop.domain.as_str());
        let domain =
            domain.or_else(|| (transport == Transport::Tls).then(|| self.names.name_of(address)).flatten());
        let domain = domain.map(Into::into);
        Ok((Hop { listener, transport, address, connection: None }, domain))
    }
}

impl Proxy {
    fn hop_of_name(&self, now: Time, uri: &Uri<'_>) -> Result<VerifiedHop, Fault> {
        if !self.config.names {
            return Err(Fault { status: 500, reason: "No Next Hop Is Configured For This Domain" });
        }
        let lookup = names::lookup_of(uri).ok_or(UNRESOLVED)?;
        self.names.targets(now, &lookup).ok_or(UNRESOLVED)?;
        let hop = self.hops_of_name(now, uri).first().copied();
        let hop = hop.ok_or(Fault { status: 500, reason: "No Address Of The Next Hop" })?;
        Ok((hop, (hop.transport == Transport::Tls).then(|| lookup.name.into())))
    }

    /// Returns all DNS answers for a URI's name for which we have listeners; none for an address or a configured next hop.
    fn hops_of_name(&self, now: Time, uri: &Uri<'_>) -> Vec<Hop> {
        let is_configured = |name: &str| self.config.next_hops.iter().any(|hop| hop.domain == name);
        let lookup = names::lookup_of(uri).filter(|lookup| !is_configured(&lookup.name));
        let targets = lookup.and_then(|lookup| self.names.targets(now, &lookup)).unwrap_or_default();
        let hop = |target: &names::ResolvedTarget| {
            let names::ResolvedTarget { transport, address } = *target;
            let listener = self.config.listener_for(transport, address.is_ipv4()).ok()?;
            Some(Hop { listener, transport, address, connection: None })
        };
        targets.iter().filter_map(hop).collect()
    }

    /// Forwards the request, after a 100 to INVITE.
    fn begin(&mut self, now: Time, asked: Asked, targets: Vec<Target>) {
        // One that waited for a name has sent its 100 already.
        let is_told = self.servers.get(&asked.server).is_some_and(|server| server.last.is_some());
        if asked.known.cseq.method == Method::Invite && !is_told {
            self.reply(now, asked.server, 100, "Trying", |_| {});
        }
        self.forward(now, asked, targets);
    }
}

fn is_secure(hop: &Hop) -> bool {
    hop.transport == Transport::Tls
}

/// Reports whether a user is reachable only by the flow of the REGISTER: the contact asks for that (RFC 5626), or over UDP it names a
/// private address but came from a public one.
pub(super) fn is_by_flow(binding: &Binding) -> bool {
    let contact = Uri::parse(&binding.uri).ok().and_then(|uri| parse_ip(uri.host));
    let is_behind_nat = contact.is_some_and(is_private) && !is_private(binding.flow.address.ip());
    binding.instance.is_some() || (binding.flow.transport == Transport::Udp && is_behind_nat)
}

/// Reports whether an address is private by RFC 1918, RFC 6598 or RFC 4193.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            address.is_private() || (first == 100 && second & 0xc0 == 64)
        }
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

/// The user is registered, but all ways there are gone or unsuitable.
pub(super) const CUT_OFF: Fault = Fault { status: 480, reason: "No Way To The User" };

/// A SIPS request that would have to be sent without TLS.
const NOT_SECURE: Fault = Fault { status: 416, reason: "No Secure Way To The Next Hop" };

/// Returns the transport named by a URI; SIPS always means TLS, over TCP if that is named (RFC 3261 section 19.1.2).
fn transport_of(uri: &Uri<'_>) -> Result<Transport, Fault> {
    let unknown = Fault { status: 500, reason: "Unknown Transport Of The Next Hop" };
    let named = uri.transport().map(|name| Transport::from_bytes(name).ok_or(unknown)).transpose()?;
    match (uri.scheme, named) {
        (Scheme::Sips, None | Some(Transport::Tcp | Transport::Tls)) => Ok(Transport::Tls),
        (Scheme::Sips, Some(Transport::Udp | Transport::Sctp)) => Err(NOT_SECURE),
        (_, named) => Ok(named.unwrap_or(Transport::Udp)),
    }
}
