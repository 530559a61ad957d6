//! INIT, INIT ACK and COOKIE ECHO: how associations begin, collide and restart (RFC 9260 sections 5.1 and 5.2).

use std::net::IpAddr;

use base::{Route, Time};
use smallvec::SmallVec;
use wire::{
    Cause, ChecksumMode, Chunk, ChunkType, CommonHeader, Init, Packet, PacketWriter, Parameter, Parameters,
    RawChunk, VerificationTag,
};

use super::demux::{Begin, reflect};
use super::slots::Slot;
use super::terms::Terms;
use super::{AssociationId, Endpoint, Listener};
use crate::association::{Association, Context, INIT_PACKET_MAX, INIT_PACKET_MIN, State, own_parameters};
use crate::config::{AssociationConfig, LEAST_WINDOW};
use crate::cookie::{Cookie, CookieError};
use crate::event::CloseReason;
use crate::extension::auth::{Auth, AuthConfig, Ports, said_in};
use crate::extension::{Offer, chunks_to_sign};
use crate::negotiation::{self, Agreed, PeerInit};
use crate::trace::DropReason;

/// Limit on the length of the answer to an INIT, as a multiple of the length of the INIT.
const ANSWER_FACTOR: usize = 3;

impl Endpoint {
    pub(super) fn on_init_packet(
        &mut self,
        now: Time,
        route: &Route,
        packet: &Packet<'_>,
        first: &RawChunk<'_>,
        listener: &mut dyn Listener,
    ) {
        self.counters.inits_received += 1;
        // RFC 9260 section 8.5.1 A: the verification tag must be zero, and the INIT must be the only chunk.
        //= rfc9260#12.3-2 8.5.1-2 8.5.1-3
        if packet.header.tag.0 != 0 || packet.raw_chunks().count() != 1 {
            return self.on_dropped(route, DropReason::BadTag);
        }
        let Ok(Chunk::Init(init)) = first.parse() else {
            return self.on_dropped(route, DropReason::Malformed);
        };
        if !self.inits.take(route.remote, now) {
            return self.on_dropped(route, DropReason::InitsLimited);
        }
        //= rfc9260#5.1-4 5.1-17 5.2.2-6
        let header = CommonHeader { tag: init.tag, ..reflect(&packet.header) };
        match negotiation::read(&init, &self.config.limits) {
            Ok(peer) if self.has_key_for(route.remote, listener) && self.is_reflected(route, &peer) => {
                self.on_dropped(route, DropReason::Reflected);
            }
            Ok(_) if self.is_own_init(route, &init) => self.on_dropped(route, DropReason::Reflected),
            Ok(peer) => self.on_init(now, (route, packet.len()), header, (&init, &peer), listener),
            // An INIT with an initiate tag of zero cannot be answered (section 3.3.2).
            //= rfc9260#3.3.2-7
            Err(_) if init.tag.0 == 0 => self.on_dropped(route, DropReason::Malformed),
            //= rfc9260#5.1.2-3 5.1-15 5.1-16 3.3.2-12 3.3.2-14
            Err(cause) => self.replies.refuse(*route, header, &[cause]),
        }
    }

    /// Reports whether this host itself sent an INIT or INIT ACK that came from another address. The nonce in the packet shows
    /// this. By reflecting packets, an attacker without the key could otherwise make a host talk to itself over a keyed
    /// association. A host may talk to itself over one address, or over loopback addresses.
    fn is_reflected(&self, route: &Route, peer: &PeerInit<'_>) -> bool {
        !is_to_itself(route) && peer.auth.random().is_some_and(|nonce| self.random.is_own_nonce(nonce))
    }

    /// Reports whether an INIT has the tag and the TSN of one of this endpoint's protected associations, and is therefore a
    /// reflected copy. A host that answered such an INIT would use one key as its own and as the peer's. A copy with a changed tag
    /// or TSN is harmless: both ends then derive different keys.
    fn is_own_init(&self, route: &Route, init: &Init<'_>) -> bool {
        let own = self.slots.by_tag(init.tag).and_then(|id| self.slots.get(id));
        let initial_tsn = match own {
            Some(Slot::Opening(opening)) if opening.config.protection.is_some() => opening.initial_tsn,
            Some(Slot::Association(association)) if association.is_protected() => association.initial_tsn(),
            _ => return false,
        };
        !is_to_itself(route) && initial_tsn == init.initial_tsn
    }

    /// Reports whether new associations with this host begin with a shared key.
    fn has_key_for(&self, peer: IpAddr, listener: &mut dyn Listener) -> bool {
        match listener.auth_for(peer) {
            Some(auth) => auth.has_shared_key(),
            None => self.config.association.auth.has_shared_key(),
        }
    }

    /// Answers an INIT that came on `route` in a packet of `init_len` bytes. `header` is the header of the answer.
    fn on_init(
        &mut self,
        now: Time,
        (route, init_len): (&Route, usize),
        header: CommonHeader,
        (init, peer): (&Init<'_>, &PeerInit<'_>),
        listener: &mut dyn Listener,
    ) {
        let ports = (header.source_port, header.destination_port);
        let terms = match self.existing_for(route.remote, ports, &peer.addresses) {
            None => self.terms_for_new(route, header, peer, listener),
            Some(id) => {
                let fresh = self.config_for(route.remote, listener).auth;
                match self.may_begin_anew(now, id, route, &fresh) {
                    true => self.terms_for_existing(id, route, header, peer, fresh),
                    false => None,
                }
            }
        };
        if let Some(terms) = terms {
            self.send_init_ack(now, (route, init_len), header, (init, peer), terms);
        }
    }

    /// Returns the association that an INIT from `source` concerns. Either its peer has the address `source`, or the association is
    /// opening to an address that the INIT lists. An association that is up is not found by a listed address, because the source
    /// may not be its peer. Such a source could otherwise discover ports of other users. When the cookie returns, the listed
    /// addresses are checked ([`begin_from_cookie`](Self::begin_from_cookie)).
    fn existing_for(
        &self,
        source: IpAddr,
        (local, remote): (u16, u16),
        listed: &[IpAddr],
    ) -> Option<AssociationId> {
        let is_opening = |id: &AssociationId| matches!(self.slots.get(*id), Some(Slot::Opening(_)));
        let mut opening = listed.iter().filter_map(|a| self.owner_of(local, remote, *a)).filter(is_opening);
        self.owner_of(local, remote, source).or_else(|| opening.next())
    }

    /// Reports whether the peer of an association may restart it with an INIT that came on `route`. `fresh` is the authentication
    /// of new associations with that host. An INIT from another UDP port of the same address may come from another user's program,
    /// or from another host behind the same NAT. An INIT with another key may come from another host too. If the port or the key
    /// differs, the existing peer is first asked whether it is alive. If the peer answers, the INIT has no effect. If the peer does
    /// not answer, the association ends, and the next INIT begins a new association.
    fn may_begin_anew(&mut self, now: Time, id: AssociationId, route: &Route, fresh: &AuthConfig) -> bool {
        let may = self
            .association(id)
            .is_none_or(|a| a.may_begin_anew_from(route) && a.transfer().may_begin_anew_by(fresh));
        if !may {
            self.on_dropped(route, DropReason::OutOfTheBlue);
            self.with(id, now, |a, ctx| a.ask_whether_alive(ctx));
        }
        may
    }

    /// Returns the association whose peer has proved the address `address`, or that is opening to `address`. An association that
    /// merely lists an address must not keep out the owner of that address (RFC 5062 section 2: camping).
    pub(super) fn owner_of(
        &self,
        local_port: u16,
        remote_port: u16,
        address: IpAddr,
    ) -> Option<AssociationId> {
        let id = self.slots.by_peer(local_port, remote_port, address)?;
        let camps = self.association(id).is_some_and(|a| a.only_claims(address));
        (!camps).then_some(id)
    }

    /// Sends the INIT ACK, limited to three times the length of the INIT. The source address of the INIT may be forged, and the
    /// answer would then reach a victim (RFC 5062 section 9). Parameters that do not fit are left out in this order: reports of
    /// unrecognized parameters, our addresses, and the Adaptation Layer Indication.
    fn send_init_ack(
        &mut self,
        now: Time,
        (route, init_len): (&Route, usize),
        header: CommonHeader,
        (init, peer): (&Init<'_>, &PeerInit<'_>),
        mut terms: Terms,
    ) {
        let offer = Offer::answering(&terms.config, terms.nonce, peer);
        let mut agreed = match Agreed::new(&terms.config, &offer, peer) {
            Ok(agreed) => agreed,
            Err(cause) => return self.replies.refuse(*route, header, &[cause]),
        };
        let max = init_len.saturating_mul(ANSWER_FACTOR).min(INIT_PACKET_MAX);
        let by_direction = terms.config.auth.by_direction && agreed.key_vectors.is_some();
        let is_bound = by_direction || agreed.protection.is_some();
        // No hash covers the padding of an INIT. If an attacker has removed the padding, our addresses may not fit into the answer.
        if is_bound && init_len < INIT_PACKET_MIN {
            return self.on_dropped(route, DropReason::InitTooShort);
        }
        let said = is_bound.then(|| said_in(init));
        let mut reports = &peer.unrecognized[..];
        loop {
            let own = own_parameters(&terms.local_addresses, &terms.config, &offer);
            let answer = Init {
                tag: terms.tag,
                a_rwnd: u32::try_from(terms.config.first_window()).unwrap_or(u32::MAX),
                //= rfc9260#3.3.3-11
                outbound_streams: terms.config.outbound_streams.min(peer.inbound_streams),
                inbound_streams: terms.config.inbound_streams,
                initial_tsn: terms.initial_tsn,
                parameters: Parameters::from(&own[..]),
            };
            if let Some(said) = said {
                let ports = (header.destination_port, header.source_port);
                agreed.bind(ports, said, said_in_own(&answer), by_direction);
            }
            let cookie = self.cookie(now, route, header, peer, &agreed, &terms);
            let sealed = self.cookies.seal(&cookie, now, &mut self.random);
            let mut parameters: SmallVec<[Parameter<'_>; 8]> = SmallVec::new();
            //= rfc9260#5.1-5 5.2.2-1
            parameters.push(Parameter::StateCookie(&sealed));
            parameters.extend(own.iter().copied());
            //= rfc9260#3.2.2-1
            parameters.extend(reports.iter().map(|raw| Parameter::UnrecognizedParameter(raw)));
            let init_ack = Chunk::InitAck(Init { parameters: Parameters::from(&parameters[..]), ..answer });
            //= rfc9260#3.3.2-4 5.1-3 5.1-6 5.2.2-9
            if self.replies.push_within(*route, header, &init_ack, max) {
                return;
            }
            // The least needed parameters are left out first. The peer learns one address in any case: the source of the answer.
            if let Some((_, fewer)) = reports.split_last() {
                reports = fewer;
            } else if terms.local_addresses.pop().is_none() && terms.config.adaptation.take().is_none() {
                return self.on_dropped(route, DropReason::InitTooShort);
            }
        }
    }

    fn cookie(
        &self,
        now: Time,
        route: &Route,
        header: CommonHeader,
        peer: &PeerInit<'_>,
        agreed: &Agreed,
        terms: &Terms,
    ) -> Cookie {
        let config = &terms.config;
        // RFC 9260 section 5.2.6: the peer may ask for a longer cookie life, up to twice the configured life.
        let wish = std::time::Duration::from_millis(peer.cookie_preservative.into());
        Cookie {
            expires: now + self.config.cookie_lifetime + wish.min(self.config.cookie_lifetime),
            local_port: header.source_port,
            remote_port: header.destination_port,
            local_tag: terms.tag,
            peer_tag: peer.tag,
            tie: terms.tie,
            local_initial_tsn: terms.initial_tsn,
            peer_initial_tsn: peer.initial_tsn,
            peer_rwnd: peer.a_rwnd,
            outbound_streams: config.outbound_streams.min(peer.inbound_streams),
            inbound_streams: config.inbound_streams.min(peer.outbound_streams),
            adaptation: peer.adaptation,
            extensions: agreed.extensions,
            zero_checksum: agreed.zero_checksum,
            key_vectors: agreed.key_vectors.clone(),
            protection: agreed.protection,
            route: *route,
            local_addresses: terms.local_addresses.iter().copied().filter(|a| *a != route.local).collect(),
            peer_addresses: peer.addresses.clone(),
        }
    }

    /// Handles an INIT ACK, which came in a packet of `length` bytes.
    pub(super) fn on_init_ack(
        &mut self,
        now: Time,
        id: AssociationId,
        (route, length): (&Route, usize),
        init: &Init<'_>,
    ) {
        //= rfc9260#5.2.3-1
        let Some(Slot::Opening(opening)) = self.slots.get(id) else { return };
        let header = CommonHeader {
            source_port: opening.local_port,
            destination_port: opening.remote_port,
            tag: init.tag,
        };
        let peer = match negotiation::read(init, &self.config.limits) {
            Ok(peer) if peer.cookie.is_some() => peer,
            Ok(_) => return self.refuse_init_ack(id, route, header, &missing_cookie()),
            //= rfc9260#3.3.3-9
            // The receive window is too small. The INIT ACK is refused, but the attempt continues.
            Err(cause) if init.a_rwnd < LEAST_WINDOW && init.tag.0 != 0 => {
                return self.replies.refuse(*route, header, &[cause]);
            }
            Err(cause) => return self.refuse_init_ack(id, route, header, &cause),
        };
        if opening.config.auth.has_shared_key() && self.is_reflected(route, &peer) {
            return self.on_dropped(route, DropReason::Reflected);
        }
        let ports = (opening.local_port, opening.remote_port);
        if let Some(other) = self.association_with(id, ports, route.remote, &peer.addresses) {
            self.close_opening(id, CloseReason::SamePeer(other));
            // The attempt had taken an address that this association lists.
            return self.slots.rename(other);
        }
        let offer = opening.offer();
        let mut agreed = match Agreed::new(&opening.config, &offer, &peer) {
            Ok(agreed) => agreed,
            Err(cause) => return self.refuse_init_ack(id, route, header, &cause),
        };
        let by_direction = opening.config.auth.by_direction && agreed.key_vectors.is_some();
        if by_direction || agreed.protection.is_some() {
            let own = own_parameters(&opening.local_addresses, &opening.config, &offer);
            let ports = (opening.local_port, opening.remote_port);
            let said = said_in_own(&opening.init(&own));
            agreed.bind(ports, said, said_in(init), by_direction);
        }
        // The answer must use the carrier of an INIT, and come from the UDP port to which that INIT was sent. The answering host
        // must be one to which an INIT was sent. A multi-homed host may answer from any address that its INIT ACK lists. If several
        // answers come, the first one wins.
        let asked = opening.init_routes.iter().filter(|r| r.carrier == route.carrier);
        let is_answer = |r: &&Route| r.remote == route.remote || peer.addresses.contains(&r.remote);
        let exact = asked.clone().find(|r| r.remote == route.remote);
        let Some(asked) = exact.or_else(|| asked.clone().find(is_answer)).copied() else { return };
        let first = Route { remote: asked.remote, ..*route };
        let opening = (**opening).clone();
        let mut ctx = Context {
            now,
            random: &mut self.random,
            limits: &self.config.limits,
            replies: &mut self.replies,
        };
        let mut association = Association::from_init_ack(opening, first, &peer, agreed, &mut ctx);
        association.on_bytes_from_peer(length);
        association.report_unrecognized(&peer.unrecognized, &ctx);
        self.slots.replace(id, Slot::Association(Box::new(association)));
        self.record_start(id);
        self.settle(id);
    }

    /// Returns another association with the host that answers an INIT of the attempt `id`, with the same ports. This host has proved one of
    /// the association's addresses, and now lists this address. Such an association began at another address of the host, and the address
    /// of the attempt was not proved yet. A COOKIE ECHO would restart the association at the peer, and so lose its data.
    fn association_with(
        &self,
        id: AssociationId,
        (local, remote): (u16, u16),
        source: IpAddr,
        listed: &[IpAddr],
    ) -> Option<AssociationId> {
        let all = std::iter::once(source).chain(listed.iter().copied());
        let mut owners = all.filter_map(|address| self.owner_of(local, remote, address));
        owners.find(|owner| *owner != id && self.association(*owner).is_some())
    }

    //= rfc9260#3.3.3-12 5.1-15 5.1-16
    fn refuse_init_ack(&mut self, id: AssociationId, route: &Route, header: CommonHeader, cause: &Cause<'_>) {
        //= rfc9260#3.3.3-6
        match self.slots.get(id) {
            Some(Slot::Opening(opening)) if header.tag.0 == 0 => {
                let header = CommonHeader { tag: opening.local_tag, ..header };
                self.replies.abort_reflecting(*route, header);
            }
            _ => self.replies.refuse(*route, header, &[*cause]),
        }
        let cause = crate::event::AbortCause::from_wire(cause);
        self.close_opening(id, CloseReason::Aborted(cause));
    }

    /// Handles a COOKIE ECHO. `auth` is the AUTH chunk before the COOKIE ECHO, if any.
    pub(super) fn on_cookie_echo(
        &mut self,
        now: Time,
        route: &Route,
        packet: &Packet<'_>,
        (echo, auth): (&RawChunk<'_>, Option<&RawChunk<'_>>),
        listener: &mut dyn Listener,
    ) {
        let header = packet.header;
        // RFC 9260 section 5.1.5, steps 1 to 4. The signature of the cookie covers the ports and the tag.
        let (cookie, staleness) = match self.cookies.open(echo.value, &header, now) {
            Ok(cookie) => (cookie, None),
            Err(CookieError::Stale(cookie, by)) => (*cookie, Some(by)),
            Err(CookieError::Forged) => {
                return self.on_dropped(route, DropReason::BadCookie);
            }
        };
        let by_tag = self.slots.by_tag(cookie.local_tag);
        // The tag in the cookie was free when the cookie was made. Since then, an association with another peer may have got this
        // tag.
        if by_tag.is_some_and(|id| !self.ports_match(id, &header)) {
            return self.on_dropped(route, DropReason::BadCookie);
        }
        // This association accepts only sealed packets now, so the COOKIE ECHO is an old one.
        if by_tag.and_then(|id| self.association(id)).is_some_and(Association::is_enforced) {
            return self.on_dropped(route, DropReason::Unsealed);
        }
        let owner = |e: &Self| e.owner_of(cookie.local_port, cookie.remote_port, cookie.route.remote);
        let existing = by_tag.or_else(|| owner(self));
        let mut config = self.config_for(cookie.route.remote, listener);
        // A keyed association restarts only with its own key, from any address of the peer. So the restarted association keeps that
        // key.
        let replaced = existing.filter(|_| by_tag.is_none()).and_then(|id| self.association(id));
        let may_replace =
            replaced.is_none_or(|association| association.transfer().may_begin_anew_by(&config.auth));
        if let Some(association) = replaced.filter(|association| association.transfer().is_keyed()) {
            config.auth = association.config().auth.clone();
        }
        let keys = self.keys_of(&cookie, &config);
        // The cookie may date from a time when no key was required. If packets will be sealed, a missing key does no harm: the
        // caller's key management requires the key later. However, an existing signed association is not replaced before the new
        // one has proved its key.
        let is_sealed = cookie.protection.is_some()
            && replaced.is_none_or(|association| !association.transfer().is_keyed());
        let is_outdated = by_tag.is_none() && !is_sealed && lacks_key(keys.as_ref(), &config);
        if !may_replace || is_outdated || !is_authentic(keys.as_ref(), auth) {
            listener.on_unauthenticated(route);
            return self.on_dropped(route, DropReason::UnauthenticatedCookie);
        }
        let known = existing.and_then(|id| self.known_tags(id));
        // A cookie of the existing association is never stale (step 5).
        if let (Some(by), true) = (staleness, known != Some((cookie.local_tag, Some(cookie.peer_tag)))) {
            self.on_dropped(route, DropReason::StaleCookie);
            if !self.may_answer_stray(route, now) {
                return;
            }
            let staleness = u32::try_from(by.as_micros()).unwrap_or(u32::MAX);
            //= rfc9260#5.1.5-4 5.2.4-1
            let cause = Cause::StaleCookie { staleness };
            return self.replies.error(*route, cookie.answer_header(), &[cause], keys.as_ref());
        }
        if by_tag.is_none() && self.spent.has(&cookie) {
            return self.on_spent_cookie(now, route, &packet.header, existing);
        }
        //= rfc9260#5.1.5-3
        if let Some(id) = self.place_cookie(now, route, &cookie, existing, config) {
            let is_authenticated = auth.is_some();
            let begin =
                //= rfc4895#6.3-9
                Begin { chunk: 1 + usize::from(is_authenticated), is_authenticated, ..Begin::default() };
            self.dispatch(now, id, route, packet, begin);
        }
    }

    /// Handles a cookie whose association has ended. A peer that has missed the end of the association gets an ABORT. If an
    /// attacker sends the COOKIE ECHO again, no association begins, and no other answer follows (RFC 5062 section 6).
    fn on_spent_cookie(
        &mut self,
        now: Time,
        route: &Route,
        header: &CommonHeader,
        existing: Option<AssociationId>,
    ) {
        self.on_dropped(route, DropReason::SpentCookie);
        if existing.is_none() && self.may_answer_stray(route, now) {
            // The T bit shows that this end has no such association. A peer that has lost our SHUTDOWN COMPLETE then ends its
            // association.
            self.replies.abort_reflecting(*route, super::demux::reflect(header));
        }
    }

    /// Returns the keys that verify a COOKIE ECHO and sign its answers. The keys come from the random numbers "obtained from the
    /// COOKIE-ECHO chunk" (RFC 4895 section 6.3). The association may not exist yet, or may be an older one with other numbers.
    //= rfc4895#6.3-8
    fn keys_of(&self, cookie: &Cookie, fresh: &AssociationConfig) -> Option<Auth> {
        let config = match self.slots.by_tag(cookie.local_tag).and_then(|id| self.slots.get(id)) {
            Some(Slot::Opening(opening)) => &opening.config,
            Some(Slot::Association(association)) => association.config(),
            Some(Slot::Finished) | None => fresh,
        };
        keys_with(cookie, config)
    }

    /// Returns our verification tag and, if known, the peer's.
    fn known_tags(&self, id: AssociationId) -> Option<(VerificationTag, Option<VerificationTag>)> {
        match self.slots.get(id)? {
            Slot::Opening(opening) => Some((opening.local_tag, None)),
            Slot::Association(a) => Some((a.tags().0, Some(a.tags().1))),
            Slot::Finished => None,
        }
    }

    /// Decides what a valid cookie does, by RFC 9260 section 5.2.4, table 12. Returns the association that gets the rest of the
    /// packet, if any.
    //= rfc9260#5.1.5-8 5.2.4-3 5.2.4-8 5.2.4-9
    fn place_cookie(
        &mut self,
        now: Time,
        route: &Route,
        cookie: &Cookie,
        existing: Option<AssociationId>,
        config: AssociationConfig,
    ) -> Option<AssociationId> {
        let Some(id) = existing else { return self.begin_from_cookie(now, cookie, config) };
        let (local, peer) = self.known_tags(id)?;
        let ties_match = peer.is_some_and(|peer| cookie.tie == Some(self.cookies.tie((local, peer))));
        match (local == cookie.local_tag, peer == Some(cookie.peer_tag)) {
            // D: the cookie belongs to this association. Either the peer missed our COOKIE ACK, or both ends have sent a COOKIE
            // ECHO.
            (true, true) if self.is_of_same_handshake(id, cookie) => {
                // Our own INIT has begun this association, so no cookie of ours was recorded as used yet.
                if self.association(id).is_some_and(|a| matches!(a.state(), State::CookieEchoed { .. })) {
                    self.spent.spend(cookie, &config.auth, now);
                }
                self.with(id, now, |a, ctx| {
                    let path = a.path_of(route, ctx);
                    a.on_duplicate_cookie(path, ctx);
                });
                Some(id)
            }
            // B: both ends have sent an INIT, and the peer's INIT came after our INIT had left. The peer has signed with the keys
            // of this cookie.
            (true, _) => self.collide(now, id, cookie),
            // A: the peer has restarted.
            (false, false) if ties_match && self.may_begin_anew(now, id, &cookie.route, &config.auth) => {
                self.restart(now, route, id, cookie, config)
            }
            // C and all other cases: the cookie is late, or belongs to another host.
            (false, _) => None,
        }
    }

    /// Reports whether a cookie with the tags of the association also has the association's keys. With keys by direction, two
    /// colliding handshakes have different keys.
    fn is_of_same_handshake(&self, id: AssociationId, cookie: &Cookie) -> bool {
        let of_cookie = cookie.key_vectors.as_ref().and_then(|vectors| vectors.handshake);
        let is_same = |association: &Association| {
            association.handshake() == of_cookie
                && association.protection_terms() == cookie.protection.as_ref()
        };
        self.association(id).is_some_and(is_same)
    }

    fn begin_from_cookie(
        &mut self,
        now: Time,
        cookie: &Cookie,
        config: AssociationConfig,
    ) -> Option<AssociationId> {
        if !self.has_room(cookie.route.remote) || self.spent.is_full_for(cookie, &config.auth, now) {
            let (keys, causes) = (keys_with(cookie, &config), [Cause::OutOfResource]);
            self.replies.refuse_signed(cookie.route, cookie.answer_header(), &causes, keys.as_ref());
            return None;
        }
        let mut cookie = cookie.clone();
        // An address that another association with the same ports already has stays with the other association.
        cookie.peer_addresses.retain(|a| self.owner_of(cookie.local_port, cookie.remote_port, *a).is_none());
        let mut association = self.build(now, &cookie, agreed_in(&cookie, config));
        association.announce();
        let id = self.slots.insert(Slot::Association(Box::new(association)));
        self.record_start(id);
        self.settle(id);
        Some(id)
    }

    fn build(&mut self, now: Time, cookie: &Cookie, config: AssociationConfig) -> Association {
        self.spent.spend(cookie, &config.auth, now);
        // Key management costs the server more than a cookie. Therefore the token of a protected association's client is refunded
        // only after both ends have agreed on keys.
        if cookie.protection.is_none() {
            self.inits.give_back(cookie.route.remote);
        }
        let mut ctx = Context {
            now,
            random: &mut self.random,
            limits: &self.config.limits,
            replies: &mut self.replies,
        };
        Association::from_cookie(cookie, config, &mut ctx)
    }

    /// Replaces the association that our INIT has begun with the one that the peer's cookie begins (case B). The driver has
    /// requested an association with this peer, so no listener needs to accept it.
    //= rfc9260#5.2.4-7
    fn collide(&mut self, now: Time, id: AssociationId, cookie: &Cookie) -> Option<AssociationId> {
        let (config, first) = match self.slots.get(id)? {
            Slot::Opening(opening) => (opening.config.clone(), opening.first_message.clone()),
            Slot::Association(a) if matches!(a.state(), State::CookieEchoed { .. }) => {
                (a.config().clone(), a.first_message())
            }
            Slot::Association(_) | Slot::Finished => return None,
        };
        if self.spent.is_full_for(cookie, &config.auth, now) {
            return None;
        }
        let mut association = self.build(now, cookie, config);
        // The peer may have received the first message with our COOKIE ECHO, so the message keeps its TSN.
        first.into_iter().for_each(|first| association.queue_first(first));
        self.slots.replace(id, Slot::Association(Box::new(association)));
        self.record_start(id);
        self.with(id, now, |a, ctx| a.accept(ctx));
        Some(id)
    }

    fn restart(
        &mut self,
        now: Time,
        route: &Route,
        id: AssociationId,
        cookie: &Cookie,
        config: AssociationConfig,
    ) -> Option<AssociationId> {
        if self.spent.is_full_for(cookie, &config.auth, now) {
            self.on_dropped(route, DropReason::OutOfResource);
            return None;
        }
        let closing = self.with(id, now, |a, _| a.resend_shutdown_ack());
        if closing == Some(true) {
            //= rfc9260#5.2.4-6
            let (keys, causes) = (keys_with(cookie, &config), [Cause::CookieReceivedWhileShuttingDown]);
            self.replies.error(*route, cookie.answer_header(), &causes, keys.as_ref());
            return None;
        }
        self.with(id, now, |a, _| a.on_restart());
        //= rfc9260#5.2.4-5 7.2.5-1
        self.slots.forget_names(id);
        self.begin_from_cookie(now, cookie, config)
    }
}

/// Returns the hash of the contents of our INIT or INIT ACK, as the peer reads them.
fn said_in_own(init: &Init<'_>) -> [u8; 32] {
    let header = CommonHeader { source_port: 0, destination_port: 0, tag: VerificationTag(0) };
    let mut buf = [0; INIT_PACKET_MAX];
    let mut writer = PacketWriter::new(&mut buf, header);
    // A chunk that does not fit into the buffer is not sent either, so its hash does not matter.
    let length = writer.push(&Chunk::Init(*init)).map_or(0, |()| writer.finish());
    let packet = Packet::parse(&buf[..length], ChecksumMode::Ignore);
    let chunk = packet.ok().and_then(|packet| packet.chunks().next());
    let Some(Ok(Chunk::Init(read))) = chunk else { return [0; 32] };
    said_in(&read)
}

/// Returns the keys that are derived from the shared keys and the random numbers in a cookie.
fn keys_with(cookie: &Cookie, config: &AssociationConfig) -> Option<Auth> {
    let ports = Ports { local: cookie.local_port, peer: cookie.remote_port };
    cookie.key_vectors.clone().map(|vectors| Auth::new(vectors, ports, &config.auth))
}

/// Reports whether a required key is missing: the handshake of the cookie has no keys, or asked the peer to sign fewer chunks than
/// required.
fn lacks_key(keys: Option<&Auth>, config: &AssociationConfig) -> bool {
    config.auth.required && !keys.is_some_and(|keys| keys.requires_all(chunks_to_sign(config)))
}

/// Reports whether the AUTH chunk before a COOKIE ECHO is valid, or none is needed.
fn is_authentic(keys: Option<&Auth>, auth: Option<&RawChunk<'_>>) -> bool {
    match (keys, auth) {
        (None, auth) => auth.is_none(),
        (Some(keys), Some(raw)) => keys.verify(raw).is_ok(),
        (Some(keys), None) => !keys.requires(ChunkType::COOKIE_ECHO),
    }
}

/// Returns the settings of an accepted association. The listener may have granted this peer more streams and extensions than other
/// peers. The cookie preserves these grants, and a restart gets them too.
fn agreed_in(cookie: &Cookie, config: AssociationConfig) -> AssociationConfig {
    AssociationConfig {
        outbound_streams: config.outbound_streams.max(cookie.outbound_streams),
        inbound_streams: config.inbound_streams.max(cookie.inbound_streams),
        extensions: config.extensions.iter().chain(cookie.extensions.iter()).collect(),
        ..config
    }
}

fn missing_cookie() -> Cause<'static> {
    const STATE_COOKIE: &[u16] = &[7];
    Cause::MissingMandatoryParameter { missing: STATE_COOKIE.into() }
}

/// Reports whether this host has sent a packet to itself: to the same address, or from one loopback address to another.
fn is_to_itself(route: &Route) -> bool {
    route.local == route.remote || (route.local.is_loopback() && route.remote.is_loopback())
}
