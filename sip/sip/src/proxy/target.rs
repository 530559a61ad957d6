//! One target of a request, and the hops to it. The hops are tried one after the other ([`Target::move_on`]).

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::essentials::MAX_BREADTH;
use crate::transport::{Hop, Transport};

/// A hop, and the domain that its TLS certificate must name.
pub(super) type VerifiedHop = (Hop, Option<Arc<str>>);

/// A verified hop, and an optional Route to insert into requests to this hop. The Route leads through the proxy that has the user's flow.
pub(super) type RoutedHop = (VerifiedHop, Option<Box<[u8]>>);

/// One target of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target {
    /// The new Request-URI.
    uri: Bytes,
    /// Routes to insert before the request's own Routes (RFC 3327).
    path: Vec<Box<[u8]>>,
    /// The next hop.
    hop: Hop,
    /// Domain that the hop's TLS certificate must name, if any.
    domain: Option<Arc<str>>,
    /// A Route through the proxy that has the user's flow.
    detour: Option<Box<[u8]>>,
    /// Alternative hops if `hop` fails, in their order.
    alternates: Vec<Hop>,
    /// Hop to try after `hop` and all `alternates` have failed. The Route of this hop replaces `detour`. If this hop has no Route,
    /// `detour` becomes `None`.
    fallback: Option<RoutedHop>,
    /// Preference among targets: a contact's q, in thousandths.
    preference: u16,
    /// The target's share of the request's Max-Breadth, set by [`share`].
    breadth: u8,
    /// True if the target must keep its transport. The reason is that the hop is a flow, or that the transport has already changed.
    is_settled: bool,
}

impl Target {
    /// Creates a target without alternatives.
    pub(super) fn new(uri: &[u8], (hop, domain): VerifiedHop) -> Target {
        Target {
            uri: Bytes::copy_from_slice(uri),
            path: Vec::new(),
            hop,
            domain,
            detour: None,
            alternates: Vec::new(),
            fallback: None,
            preference: 1000,
            breadth: MAX_BREADTH,
            is_settled: false,
        }
    }

    /// Creates a target that is reached only over this flow.
    pub(super) fn by_flow(uri: &[u8], flow: Hop) -> Target {
        Target::new(uri, (flow, None)).settled(true)
    }

    /// Sets whether the target must keep the transport of its hop.
    pub(super) fn settled(self, is_settled: bool) -> Target {
        Target { is_settled, ..self }
    }

    /// Sets a contact's q, in thousandths.
    pub(super) fn with_preference(self, preference: u16) -> Target {
        Target { preference, ..self }
    }

    /// Sets the Routes to insert.
    pub(super) fn with_path(self, path: Vec<Box<[u8]>>) -> Target {
        Target { path, ..self }
    }

    /// Sets the Route through the proxy that has the flow.
    pub(super) fn with_detour(self, detour: Box<[u8]>) -> Target {
        Target { detour: Some(detour), ..self }
    }

    /// Sets the hops to try if the first one fails.
    pub(super) fn with_alternates(self, alternates: Vec<Hop>) -> Target {
        Target { alternates, ..self }
    }

    /// Sets the hop to try if all other hops fail.
    pub(super) fn with_fallback(self, fallback: Option<RoutedHop>) -> Target {
        Target { fallback, ..self }
    }

    pub(super) fn uri(&self) -> &Bytes {
        &self.uri
    }

    /// Returns the Routes to insert before the request's own Routes.
    pub(super) fn routes(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.detour.iter().chain(&self.path).map(|route| &route[..])
    }

    /// Returns the current hop.
    pub(super) fn hop(&self) -> Hop {
        self.hop
    }

    /// Returns the current hop, and the domain that its TLS certificate must name.
    pub(super) fn verified_hop(&self) -> VerifiedHop {
        (self.hop, self.domain.clone())
    }

    /// Returns all hops that may be tried, in no particular order.
    pub(super) fn hops(&self) -> impl Iterator<Item = Hop> {
        let fallback = self.fallback.iter().map(|((hop, _), _)| *hop);
        self.alternates.iter().copied().chain([self.hop]).chain(fallback)
    }

    pub(super) fn preference(&self) -> u16 {
        self.preference
    }

    /// Returns the target's share of the request's Max-Breadth.
    pub(super) fn breadth(&self) -> u8 {
        self.breadth
    }

    /// Reports whether the target may change to another transport.
    pub(super) fn may_change_transport(&self) -> bool {
        !self.is_settled
    }

    /// Reports whether the target has alternative hops.
    pub(super) fn has_more(&self) -> bool {
        !self.alternates.is_empty() || self.fallback.is_some()
    }

    /// Advances to the next alternative hop. Returns false if no alternative exists.
    pub(super) fn move_on(&mut self) -> bool {
        if !self.alternates.is_empty() {
            self.hop = self.alternates.remove(0);
            return true;
        }
        let Some(fallback) = self.fallback.take() else { return false };
        self.use_hop(fallback);
        self.is_settled = false;
        true
    }

    fn use_hop(&mut self, (hop, detour): RoutedHop) {
        ((self.hop, self.domain), self.detour) = (hop, detour);
    }

    /// Makes a hop with another transport the current hop. The former hop becomes the first alternate.
    pub(super) fn change_transport(&mut self, hop: Hop) {
        self.alternates.insert(0, self.hop);
        (self.hop, self.is_settled) = (hop, true);
    }

    /// Removes the alternates for which `may_send` returns false.
    pub(super) fn retain_alternates(&mut self, may_send: impl Fn(Hop) -> bool) {
        self.alternates.retain(|hop| may_send(*hop));
    }

    /// Restricts a target to TLS. Returns `None` if no hop with TLS remains. `secured` returns a hop itself if it uses TLS, and otherwise
    /// a hop over TLS to the same destination, if known.
    pub(super) fn secured(mut self, secured: impl Fn(RoutedHop) -> Option<RoutedHop>) -> Option<Target> {
        self.alternates.retain(is_secure);
        self.fallback = self.fallback.and_then(&secured);
        match secured((self.verified_hop(), self.detour.take())) {
            Some(hop) => self.use_hop(hop),
            None if self.move_on() => {}
            None => return None,
        }
        Some(self)
    }
}

pub(super) fn is_secure(hop: &Hop) -> bool {
    hop.transport == Transport::Tls
}

/// Divides a request's Max-Breadth among parallel targets: "MUST NOT allow the Outgoing Max-Breadth to exceed the Incoming"
/// (RFC 5393 section 5.3.3). There must be no more targets than `breadth`.
pub(super) fn share(targets: &mut [Target], breadth: u8) {
    let count = u8::try_from(targets.len()).unwrap_or(u8::MAX).max(1);
    for (at, target) in (0..count).zip(targets) {
        target.breadth = breadth / count + u8::from(at < breadth % count);
    }
}

/// Groups targets "in decreasing order of q-values" (RFC 3261 section 16.6). Targets with equal q are tried in parallel, up to `breadth`
/// at a time.
pub(super) fn groups(mut targets: Vec<Target>, breadth: u8) -> VecDeque<Vec<Target>> {
    let fits = |group: &[Target], target: &Target| {
        group[0].preference == target.preference && group.len() < usize::from(breadth)
    };
    targets.sort_by_key(|target| Reverse(target.preference));
    let mut groups: VecDeque<Vec<Target>> = VecDeque::new();
    for target in targets {
        match groups.back_mut() {
            Some(group) if fits(group, &target) => group.push(target),
            _ => groups.push_back(vec![target]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::hop;

    fn over(transport: Transport, address: &str) -> Hop {
        Hop { transport, ..hop(address) }
    }

    fn target(preference: u16) -> Target {
        Target::new(b"sip:a", (hop("192.0.2.7:5060"), None)).with_preference(preference)
    }

    #[test]
    fn hops_are_tried_in_order_and_the_fallback_last() {
        let detour = || Some(b"<sip:detour>"[..].into());
        let other = (hop("192.0.2.9:5060"), Some("example.com".into()));
        let mut target = target(1000)
            .with_alternates(vec![hop("192.0.2.8:5060")])
            .with_fallback(Some((other.clone(), detour())));
        assert!(target.has_more() && target.move_on());
        assert_eq!(target.verified_hop(), (hop("192.0.2.8:5060"), None));
        assert!(target.has_more() && target.move_on());
        assert_eq!(target.verified_hop(), other);
        assert_eq!(target.routes().collect::<Vec<_>>(), [b"<sip:detour>"]);
        assert!(!target.has_more() && !target.move_on());
    }

    #[test]
    fn a_target_changes_transport_once_and_keeps_the_old_transport_as_alternate() {
        let mut target = target(1000);
        assert!(target.may_change_transport());
        target.change_transport(over(Transport::Tcp, "192.0.2.7:5060"));
        assert!(!target.may_change_transport());
        assert_eq!(target.hop().transport, Transport::Tcp);
        assert!(target.move_on());
        assert_eq!(target.hop().transport, Transport::Udp);
    }

    #[test]
    fn a_target_restricted_to_tls_keeps_its_secure_hops() {
        let secure = over(Transport::Tls, "192.0.2.8:5061");
        let only_secure = |hop: RoutedHop| Some(hop).filter(|((hop, _), _)| is_secure(hop));
        assert_eq!(target(1000).secured(only_secure), None);
        let left = target(1000).with_alternates(vec![hop("192.0.2.9:5060"), secure]).secured(only_secure);
        assert_eq!(left.map(|target| (target.hop(), target.has_more())), Some((secure, false)));
    }

    #[test]
    fn parallel_targets_share_the_breadth_of_their_request() {
        let mut targets = vec![target(1000); 3];
        share(&mut targets, 8);
        assert_eq!(targets.iter().map(Target::breadth).collect::<Vec<_>>(), [3, 3, 2]);
    }

    #[test]
    fn groups_begin_with_the_most_preferred_and_are_no_wider_than_the_breadth() {
        let targets = [500, 1000, 500, 500].map(target).to_vec();
        let groups = groups(targets, 2);
        let preferences: Vec<Vec<u16>> =
            groups.iter().map(|group| group.iter().map(Target::preference).collect()).collect();
        assert_eq!(preferences, [vec![1000], vec![500, 500], vec![500]]);
    }
}
