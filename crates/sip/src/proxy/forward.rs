//! Forwards a request (RFC 3261 section 16.6): the copies, their fields, their client transactions.

use base::Time;
use bytes::Bytes;

use super::target::{Target, VerifiedHop};
use super::{Client, Id, Outgoing, Output, Proxy, RecordName, dialog_number, marks};
use crate::address::Address;
use crate::essentials::Essentials;
use crate::header::{Header, Name};
use crate::message::{Message, Method, Start};
use crate::transaction::{self, Kind};
use crate::transport::{Hop, Transport};
use crate::uri::{Scheme, Uri};
use crate::via::{Via, parse_ip};

impl Proxy {
    #[allow(clippy::too_many_arguments, reason = "the parts of one client transaction")]
    pub(super) fn start_client(
        &mut self,
        now: Time,
        id: Id,
        kind: Kind,
        server: Option<Id>,
        (hop, domain): VerifiedHop,
        request: Message,
        branch: String,
    ) {
        let bytes = request.to_bytes();
        let dialog = request.first(Name::CallId).map_or(0, |call_id| dialog_number(call_id));
        let is_proxied_invite = kind.is_invite && server.is_some();
        let is_new = server.is_some() && is_outside_of_dialogs(&request);
        let mut client = Client {
            machine: transaction::Client::start(kind, self.config.timers, now),
            server,
            hop,
            domain: domain.clone(),
            dialog,
            branch: branch.into_bytes().into(),
            request: Some(request),
            bytes: bytes.clone(),
            target: None,
            cancel: None,
            wants_cancel: false,
            timer_c: if is_proxied_invite { now + self.config.timers.c } else { Time::NEVER },
            wake: Time::NEVER,
            charge: self.memory_budget.charge(0),
        };
        client.charge.set(client.weight());
        self.clients.insert(id, Box::new(client));
        self.note_begun(id);
        if let Some(server) = server.and_then(|server| self.servers.get_mut(&server)) {
            server.branches.push(id);
            server.open += 1;
        }
        let message = Outgoing { hop, domain, bytes, on_failure: Some(id), dialog, is_new };
        self.outbox.push(Output::Send(message));
        self.schedule_client(id);
    }

    /// Builds the copy for one target, steps 1 to 9.
    pub(super) fn copy_for(
        &self,
        request: &Message,
        known: &Essentials,
        from: Hop,
        target: &Target,
        branch: &str,
    ) -> Message {
        let mut copy = request.clone();
        if let Start::Request { uri, .. } = &mut copy.start {
            *uri = target.uri.clone();
        }
        let hops = known.max_forwards.saturating_sub(1).to_string();
        copy.set(Header::new(Name::MaxForwards, &hops));
        copy.set(Header::new(Name::MaxBreadth, &target.breadth.to_string()));
        if may_make_dialog(&known.cseq.method) {
            let is_secure = Uri::parse(request.request_uri()).is_ok_and(|uri| uri.scheme == Scheme::Sips);
            self.record_route(&mut copy, from, target, is_secure, known);
        }
        for route in target.routes.iter().rev() {
            copy.push_front(Header::of_bytes(Name::Route, route));
        }
        if let Some(detour) = &target.detour {
            copy.push_front(Header::of_bytes(Name::Route, detour));
        }
        route_strictly_if_needed(&mut copy);
        if target.hop.transport.is_reliable() && copy.first(Name::ContentLength).is_none() {
            copy.push(Header::new(Name::ContentLength, &copy.body.len().to_string()));
        }
        self.push_via(&mut copy, target.hop, branch);
        copy
    }

    pub(super) fn push_via(&self, message: &mut Message, hop: Hop, branch: &str) {
        let (transport, address) = (hop.transport.as_str(), self.config.listeners[hop.listener].address);
        message.push_front(Header::new(
            Name::Via,
            &format!("SIP/2.0/{transport} {address};rport;branch={branch}"),
        ));
    }

    /// Adds our address on the outgoing side, and on the incoming side if that differs (RFC 5658).
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
        let side_to = self.side(target.hop, named_by_contact(copy, target));
        if side_from != side_to {
            copy.push_front(record_of(&side_from, is_secure, &mark));
        }
        copy.push_front(record_of(&side_to, is_secure, &mark));
    }

    /// Returns our address or name on a hop's side, and our transport as the peer there sees it. If a shim translates on the way
    /// (TCP to SCTP), that is the transport that the peer's Via or Contact names: it can return by no other.
    fn side(&self, hop: Hop, named: Option<Transport>) -> (String, Transport) {
        let listener = self.config.listeners[hop.listener];
        let name = self.config.record_names.get(&hop.listener);
        let place = name.map_or_else(|| listener.address.to_string(), RecordName::to_string);
        let is_translated = |other: &Transport| is_bare_stream(*other) && is_bare_stream(listener.transport);
        (place, named.filter(is_translated).unwrap_or(listener.transport))
    }
}

/// Builds the field, with a SIPS URI for a SIPS request (RFC 3261 section 16.6, step 4).
fn record_of((place, transport): &(String, Transport), is_secure: bool, mark: &str) -> Header {
    let uri = if is_secure && *transport == Transport::Tls {
        format!("sips:{place}")
    } else {
        format!("sip:{place};transport={}", transport.as_lower_str())
    };
    Header::new(Name::RecordRoute, &format!("<{uri};lr;{}={mark}>", marks::PARAM))
}

/// Reports whether a transport is reliable and can be translated on the way.
fn is_bare_stream(transport: Transport) -> bool {
    matches!(transport, Transport::Tcp | Transport::Sctp)
}

fn named_by_via(known: &Essentials) -> Option<Transport> {
    Transport::from_bytes(Via::parse(&known.via).ok()?.transport)
}

/// Returns the transport named by the Contact that is now the Request-URI, if the copy goes directly there.
fn named_by_contact(copy: &Message, target: &Target) -> Option<Transport> {
    let has_route = copy.first(Name::Route).is_some() || !target.routes.is_empty() || target.detour.is_some();
    let uri = Uri::parse(copy.request_uri()).ok().filter(|_| !has_route)?;
    parse_ip(uri.host)?;
    Transport::from_bytes(uri.transport()?)
}

fn is_outside_of_dialogs(request: &Message) -> bool {
    let to = request.first(Name::To).and_then(|to| Address::parse(to).ok());
    to.is_some_and(|to| to.tag().is_none())
}

/// Reports whether requests may create a dialog or change its route set: only those need Record-Route.
pub(super) fn may_make_dialog(method: &Method) -> bool {
    match method {
        Method::Invite => true,
        Method::Other(token) => matches!(&token[..], b"SUBSCRIBE" | b"REFER" | b"NOTIFY"),
        _ => false,
    }
}

/// If the first Route is a strict router's, swaps it into the Request-URI, and that into the last Route (section 16.6, step 6).
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
