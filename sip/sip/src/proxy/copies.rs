//! Builds the copy of a request for one target (RFC 3261 section 16.6, steps 1 to 9). Begin with [`Copier::copy_within_udp_limit`].

use bytes::Bytes;

use super::marks::{self, DialogMarks};
use super::target::Target;
use super::{ProxyConfig, RecordName};
use crate::address::Address;
use crate::essentials::Essentials;
use crate::header::{Header, Name};
use crate::message::{Message, Method, Start};
use crate::transport::{Hop, Transport};
use crate::uri::{Scheme, Uri};
use crate::via::{Via, parse_ip};

/// Maximum length in bytes of a request over UDP. Longer requests use TCP. RFC 3261 section 18.1.1 requires TCP for a request that is
/// "larger than 1300 bytes and the path MTU is unknown".
const UDP_MAX: usize = 1300;

/// The builder of copies, with the settings and the key of dialog marks.
#[derive(Clone, Copy)]
pub(super) struct Copier<'a> {
    config: &'a ProxyConfig,
    marks: &'a DialogMarks,
}

impl<'a> Copier<'a> {
    pub(super) fn new(config: &'a ProxyConfig, marks: &'a DialogMarks) -> Copier<'a> {
        Copier { config, marks }
    }

    /// Builds the copy for a target. If the copy is too long for UDP, the target switches to TCP (section 18.1.1).
    pub(super) fn copy_within_udp_limit(
        &self,
        request: &Message,
        known: &Essentials,
        from: Hop,
        target: &mut Target,
        branch: &str,
    ) -> Message {
        let copy = self.copy_for(request, known, from, target, branch);
        let Some(hop) = (copy.length() > UDP_MAX).then(|| self.without_udp(target)).flatten() else {
            return copy;
        };
        // The target keeps its UDP hop as an alternate. If no TCP connection can be established, "the element SHOULD retry the request,
        // using UDP" (section 18.1.1).
        target.change_transport(hop);
        self.copy_for(request, known, from, target, branch)
    }

    fn without_udp(&self, target: &Target) -> Option<Hop> {
        let Hop { transport, address, .. } = target.hop();
        if transport != Transport::Udp || !target.may_change_transport() {
            return None;
        }
        let listener = self.config.listener_for(Transport::Tcp, address.is_ipv4()).ok()?;
        Some(Hop { listener, transport: Transport::Tcp, address, connection: None })
    }

    fn copy_for(
        &self,
        request: &Message,
        known: &Essentials,
        from: Hop,
        target: &Target,
        branch: &str,
    ) -> Message {
        let mut copy = request.clone();
        if let Start::Request { uri, .. } = &mut copy.start {
            *uri = target.uri().clone();
        }
        let hops = known.max_forwards.saturating_sub(1).to_string();
        copy.set(Header::new(Name::MaxForwards, &hops));
        copy.set(Header::new(Name::MaxBreadth, &target.breadth().to_string()));
        if may_make_dialog(&known.cseq.method) {
            let is_secure = Uri::parse(request.request_uri()).is_ok_and(|uri| uri.scheme == Scheme::Sips);
            self.record_route(&mut copy, from, target, is_secure, known);
        }
        for route in target.routes().rev() {
            copy.push_front(Header::of_bytes(Name::Route, route));
        }
        route_strictly_if_needed(&mut copy);
        if target.hop().transport.is_reliable() && copy.first(Name::ContentLength).is_none() {
            copy.push(Header::new(Name::ContentLength, &copy.body.len().to_string()));
        }
        push_via(self.config, &mut copy, target.hop(), branch);
        copy
    }

    /// Adds a Record-Route with our address and transport on the outgoing side. If the address or the transport on the incoming side
    /// differs, adds a second Record-Route for the incoming side (RFC 5658).
    fn record_route(
        &self,
        copy: &mut Message,
        from: Hop,
        target: &Target,
        is_secure: bool,
        known: &Essentials,
    ) {
        let mark = self.marks.mark(known);
        let side_from = self.side(from, named_by_via(known));
        let side_to = self.side(target.hop(), named_by_contact(copy, target));
        if side_from != side_to {
            copy.push_front(record_of(&side_from, is_secure, &mark));
        }
        copy.push_front(record_of(&side_to, is_secure, &mark));
    }

    /// Returns our address or name on the side of a hop, and the transport that the peer must use to reach us. `named` is the transport
    /// in the peer's Via or Contact. If a shim on the path translates TCP to SCTP, the peer uses TCP while we see SCTP. The peer can then
    /// send requests only over TCP, so the result has the named transport.
    fn side(&self, hop: Hop, named: Option<Transport>) -> (String, Transport) {
        let listener = self.config.listeners[hop.listener];
        let name = self.config.record_names.get(&hop.listener);
        let place = name.map_or_else(|| listener.address.to_string(), RecordName::to_string);
        let is_translated =
            |other: &Transport| is_unencrypted_stream(*other) && is_unencrypted_stream(listener.transport);
        (place, named.filter(is_translated).unwrap_or(listener.transport))
    }
}

/// Inserts our Via before all other Via values.
pub(super) fn push_via(config: &ProxyConfig, message: &mut Message, hop: Hop, branch: &str) {
    let (transport, address) = (hop.transport.as_str(), config.listeners[hop.listener].address);
    message
        .push_front(Header::new(Name::Via, &format!("SIP/2.0/{transport} {address};rport;branch={branch}")));
}

/// Builds a Record-Route field (RFC 3261 section 16.6, step 4). The URI in the field is SIPS if the Request-URI is SIPS and `transport` is
/// TLS. On a side without TLS, a SIPS URI would name an address at which we do not answer.
fn record_of((place, transport): &(String, Transport), is_secure: bool, mark: &str) -> Header {
    let uri = if is_secure && *transport == Transport::Tls {
        format!("sips:{place}")
    } else {
        format!("sip:{place};transport={}", transport.as_lower_str())
    };
    Header::new(Name::RecordRoute, &format!("<{uri};lr;{}={mark}>", marks::PARAM))
}

/// Reports whether a shim on the path can translate a transport.
fn is_unencrypted_stream(transport: Transport) -> bool {
    matches!(transport, Transport::Tcp | Transport::Sctp)
}

fn named_by_via(known: &Essentials) -> Option<Transport> {
    Transport::from_bytes(Via::parse(&known.via).ok()?.transport)
}

/// Returns the transport in the callee's Contact, if the copy goes directly to the callee. The Contact has become the Request-URI of the
/// copy. Returns `None` if the Contact contains a host name.
fn named_by_contact(copy: &Message, target: &Target) -> Option<Transport> {
    let has_route = copy.first(Name::Route).is_some() || target.routes().next().is_some();
    let uri = Uri::parse(copy.request_uri()).ok().filter(|_| !has_route)?;
    parse_ip(uri.host)?;
    Transport::from_bytes(uri.transport()?)
}

/// Reports whether a request with this method can create a dialog or change its route set. Requests with other methods get no
/// Record-Route.
pub(super) fn may_make_dialog(method: &Method) -> bool {
    match method {
        Method::Invite => true,
        Method::Other(token) => matches!(&token[..], b"SUBSCRIBE" | b"REFER" | b"NOTIFY"),
        _ => false,
    }
}

/// Prepares a copy whose first Route names a strict router (section 16.6, step 6). The URI of this Route becomes the Request-URI, and the
/// old Request-URI becomes the last Route. Other copies stay unchanged.
fn route_strictly_if_needed(copy: &mut Message) {
    let Some(first) = copy.elements(Name::Route).next() else { return };
    let Ok(address) = Address::parse(first) else { return };
    let is_loose = Uri::parse(address.uri).is_ok_and(|uri| uri.param("lr").is_some());
    if is_loose {
        return;
    }
    let next = Bytes::copy_from_slice(address.uri);
    copy.pop_first(Name::Route);
    let last = [b"<", copy.request_uri(), b">"].concat();
    let rest: Vec<Vec<u8>> = copy.elements(Name::Route).map(<[u8]>::to_vec).chain([last]).collect();
    copy.remove(Name::Route);
    copy.push(Header::of_bytes(Name::Route, &rest.join(&b", "[..])));
    if let Start::Request { uri, .. } = &mut copy.start {
        *uri = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::{config, hop, request};

    fn copy(text: &str, target: &mut Target) -> Message {
        let request = request(text);
        let known = Essentials::of(&request).unwrap();
        let (config, marks) = (config(), DialogMarks::new([1; 32]));
        Copier::new(&config, &marks).copy_within_udp_limit(
            &request,
            &known,
            hop("192.0.2.7:5060"),
            target,
            "z9hG4bKours",
        )
    }

    fn fields(message: &Message, name: Name) -> Vec<String> {
        message.elements(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    }

    fn target() -> Target {
        Target::new(b"sip:a@192.0.2.9:5070", (hop("192.0.2.9:5070"), None))
    }

    #[test]
    fn a_copy_has_our_via_one_hop_less_and_the_targets_uri() {
        let copy = copy("OPTIONS sip:a@example.org\nMax-Forwards: 7", &mut target());
        assert_eq!(copy.request_uri(), b"sip:a@192.0.2.9:5070");
        assert_eq!(fields(&copy, Name::Via)[0], "SIP/2.0/UDP 192.0.2.1:5060;rport;branch=z9hG4bKours");
        assert_eq!(fields(&copy, Name::MaxForwards), ["6"]);
        assert!(fields(&copy, Name::RecordRoute).is_empty(), "OPTIONS creates no dialog");
    }

    #[test]
    fn the_route_to_the_proxy_with_the_flow_precedes_the_targets_path() {
        let mut target =
            target().with_path(vec![b"<sip:edge;lr>"[..].into()]).with_detour(b"<sip:peer;lr>"[..].into());
        let copy = copy("OPTIONS sip:a@example.org\nRoute: <sip:old;lr>", &mut target);
        assert_eq!(fields(&copy, Name::Route), ["<sip:peer;lr>", "<sip:edge;lr>", "<sip:old;lr>"]);
    }

    #[test]
    fn both_sides_are_recorded_if_their_transports_differ() {
        let records = |to: Hop| {
            let mut target = Target::new(b"sip:a@192.0.2.9", (to, None));
            fields(&copy("INVITE sip:a@example.org", &mut target), Name::RecordRoute)
        };
        let udp = hop("192.0.2.9:5060");
        assert_eq!(records(udp).len(), 1);
        let [to, from] = &records(Hop { listener: 1, transport: Transport::Tcp, ..udp })[..] else {
            panic!()
        };
        assert!(to.starts_with("<sip:192.0.2.1:5060;transport=tcp;lr;dialog="), "{to}");
        assert!(from.starts_with("<sip:192.0.2.1:5060;transport=udp;lr;dialog="), "{from}");
    }

    #[test]
    fn a_long_request_goes_over_tcp_unless_its_target_has_a_fixed_transport() {
        let long = format!("MESSAGE sip:a@example.org\nSubject: {}", "x".repeat(1300));
        let (mut open, mut settled) = (target(), target().settled(true));
        assert!(fields(&copy(&long, &mut open), Name::Via)[0].starts_with("SIP/2.0/TCP"));
        assert_eq!((open.hop().transport, open.has_more()), (Transport::Tcp, true));
        assert!(fields(&copy(&long, &mut settled), Name::Via)[0].starts_with("SIP/2.0/UDP"));
    }

    #[test]
    fn a_strict_routers_uri_changes_places_with_the_request_uri() {
        let copy = copy("OPTIONS sip:a@example.org\nRoute: <sip:strict>, <sip:next;lr>", &mut target());
        assert_eq!(copy.request_uri(), b"sip:strict");
        assert_eq!(fields(&copy, Name::Route), ["<sip:next;lr>", "<sip:a@192.0.2.9:5070>"]);
    }
}
