//! Terms of the INIT ACK. The INIT may ask for a new association, or may concern an existing association (RFC 9260 sections
//! 5.2.1 and 5.2.2).

use std::net::IpAddr;

use base::Route;
use smallvec::SmallVec;
use wire::{Cause, CommonHeader, Tsn, VerificationTag};

use super::slots::Slot;
use super::{AssociationId, Endpoint, IncomingInit, InitDecision, Listener};
use crate::association::{Association, State};
use crate::config::AssociationConfig;
use crate::cookie::Tie;
use crate::extension::auth::{AuthConfig, Nonce};
use crate::negotiation::{self, PeerInit};
use crate::trace::DropReason;

/// Our parameters in the INIT ACK, and the cookie's record of an existing association.
pub(super) struct Terms {
    pub(super) tag: VerificationTag,
    pub(super) initial_tsn: Tsn,
    pub(super) tie: Option<Tie>,
    pub(super) local_addresses: SmallVec<[IpAddr; 4]>,
    pub(super) config: AssociationConfig,
    pub(super) nonce: Nonce,
}

impl Endpoint {
    pub(super) fn terms_for_new(
        &mut self,
        route: &Route,
        header: CommonHeader,
        peer: &PeerInit<'_>,
        listener: &mut dyn Listener,
    ) -> Option<Terms> {
        let init = IncomingInit {
            route: *route,
            local_port: header.source_port,
            remote_port: header.destination_port,
            adaptation: peer.adaptation,
            addresses: peer.addresses.to_vec(),
        };
        if !self.has_room(route.remote) {
            self.on_dropped(route, DropReason::OutOfResource);
            self.replies.refuse(*route, header, &[Cause::OutOfResource]);
            return None;
        }
        let mut config = self.config_for(route.remote, listener);
        match listener.on_init(&init) {
            InitDecision::Accept { local_addresses } => Some(self.new_terms(local_addresses, config)),
            InitDecision::AcceptOn { local_addresses, outbound_streams, inbound_streams, extensions } => {
                (config.outbound_streams, config.inbound_streams) = (outbound_streams, inbound_streams);
                config.extensions = extensions;
                Some(self.new_terms(local_addresses, config))
            }
            InitDecision::Refuse => {
                self.replies.refuse(*route, header, &[]);
                None
            }
            InitDecision::Ignore => None,
        }
    }

    fn new_terms(&mut self, local_addresses: Vec<IpAddr>, config: AssociationConfig) -> Terms {
        Terms {
            tag: self.new_tag(),
            initial_tsn: self.random.tsn(),
            tie: None,
            local_addresses: local_addresses.into(),
            nonce: self.nonce_for(&config),
            config,
        }
    }

    /// Returns a nonce for an association that begins. With a shared key, the nonce is marked, so this host recognizes the
    /// nonce in a reflected packet.
    pub(super) fn nonce_for(&mut self, config: &AssociationConfig) -> Nonce {
        let nonce = self.random.nonce();
        if config.auth.has_shared_key() { self.random.marked(nonce) } else { nonce }
    }

    /// Returns the initial settings of an association with this host.
    pub(super) fn config_for(&self, peer: IpAddr, listener: &mut dyn Listener) -> AssociationConfig {
        let config = self.config.association.clone();
        match listener.auth_for(peer) {
            Some(auth) => AssociationConfig { auth, ..config },
            None => config,
        }
    }

    /// Returns the terms for an INIT from a peer with which an association exists or is opening (RFC 9260 sections 5.2.1
    /// and 5.2.2). Returns `None` if the INIT gets no INIT ACK.
    pub(super) fn terms_for_existing(
        &mut self,
        id: AssociationId,
        route: &Route,
        header: CommonHeader,
        peer: &PeerInit<'_>,
        fresh: AuthConfig,
    ) -> Option<Terms> {
        let new_tag = self.new_tag();
        let new_tsn = self.random.tsn();
        let new_nonce = self.random.nonce();
        match self.slots.get_mut(id)? {
            //= rfc9260#5.2.1-3 5.2.1-5
            // The INIT ACK reveals our tag and TSN. Therefore the INIT ACK is sent only to a destination of our INIT: any
            // other host could name the peer's address in an INIT.
            Slot::Opening(opening) if !opening.has_asked_at(route) => None,
            // Keys are derived from one handshake. If two handshakes collide, the one whose INIT has the smaller random
            // number continues.
            Slot::Opening(opening) if opening.goes_on_before(peer) => None,
            //= rfc9260#5.2.1-1 5.2.1-11 5.2.2-10
            Slot::Opening(opening) => Some(Terms {
                tag: opening.local_tag,
                initial_tsn: opening.initial_tsn,
                tie: None,
                local_addresses: opening.local_addresses.iter().copied().collect(),
                config: opening.config.clone(),
                nonce: opening.nonce,
            }),
            Slot::Association(_) => {
                self.terms_for_association(id, route, header, peer, fresh, (new_tag, new_tsn, new_nonce))
            }
            Slot::Finished => None,
        }
    }

    /// Returns the terms for an association after INIT ACK or COOKIE ECHO. The last argument has the tag, the TSN and the
    /// nonce of a restart.
    fn terms_for_association(
        &mut self,
        id: AssociationId,
        route: &Route,
        header: CommonHeader,
        peer: &PeerInit<'_>,
        fresh_auth: AuthConfig,
        (new_tag, new_tsn, new_nonce): (VerificationTag, Tsn, Nonce),
    ) -> Option<Terms> {
        let Slot::Association(association) = self.slots.get_mut(id)? else { return None };
        let added = added_addresses(association, route, peer);
        //= rfc9260#5.2.1-7 5.2.1-8 5.2.2-2 5.2.2-3
        if !added.is_empty() {
            let mut buf = [0; 512];
            //= rfc9260#5.2.1-9
            let raw = write_addresses(&added, &mut buf);
            self.replies.refuse(*route, header, &[Cause::RestartWithNewAddresses(raw)]);
            return None;
        }
        //= rfc9260#9.2-22
        if association.resend_shutdown_ack() {
            self.settle(id);
            return None;
        }
        // While our COOKIE ECHO is unanswered, the INIT ACK carries our old tag. Afterwards the INIT may be a restart, so
        // the INIT ACK carries a new tag.
        let (tag, initial_tsn, nonce) = match association.state() {
            //= rfc9260#5.2.1-6
            // The peer has already answered our INIT, with the tag of its own INIT. The peer continues with the handshake
            // of our INIT.
            State::CookieEchoed { opening, .. }
                if association.tags().1 == peer.tag
                    && (opening.config.auth.by_direction || association.is_protected()) =>
            {
                return None;
            }
            State::CookieEchoed { opening, .. } => {
                (association.tags().0, association.initial_tsn(), opening.nonce)
            }
            //= rfc9260#5.2.2-7
            _ if association.config().auth.has_shared_key() => {
                (new_tag, new_tsn, self.random.marked(new_nonce))
            }
            _ => (new_tag, new_tsn, new_nonce),
        };
        let mut local_addresses = SmallVec::<[IpAddr; 4]>::new();
        for address in association.local_addresses() {
            if !local_addresses.contains(&address) {
                local_addresses.push(address);
            }
        }
        //= rfc9260#5.2.1-12 5.2.2-5 5.2.2-8
        let (tie, mut config) = (self.cookies.tie(association.tags()), association.config().clone());
        if !association.transfer().is_keyed() {
            config.auth = fresh_auth;
        } else if !association.is_protected() {
            // A signed association restarts only with the key that signs it, not with protection.
            config.protection = None;
        }
        Some(Terms { tag, initial_tsn, tie: Some(tie), local_addresses, config, nonce })
    }
}

/// Returns the addresses of a restarting peer that the association does not have. An attacker could hijack the association
/// if such addresses were accepted.
fn added_addresses(association: &Association, route: &Route, peer: &PeerInit<'_>) -> SmallVec<[IpAddr; 4]> {
    let listed = peer.addresses.iter().copied().chain([route.remote]);
    listed.filter(|&a| !association.peer_has(a)).collect()
}

fn write_addresses<'b>(addresses: &[IpAddr], buf: &'b mut [u8]) -> &'b [u8] {
    let mut length = 0;
    for address in addresses {
        let mut out = wire::Writer::new(&mut buf[length..]);
        if negotiation::address_parameter(*address).write(&mut out).is_err() {
            break;
        }
        length += out.written().len();
    }
    &buf[..length]
}
