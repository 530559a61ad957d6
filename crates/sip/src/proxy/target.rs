//! One target of a request, and the hops to it, which are tried one after the other ([`Target::move_on`]).

use std::sync::Arc;

use bytes::Bytes;

use crate::essentials::MAX_BREADTH;
use crate::transport::Hop;

/// A hop, and the domain that it must prove to be.
pub(super) type VerifiedHop = (Hop, Option<Arc<str>>);

/// Such a hop, and the Route for a request through it: [`Target::detour`].
pub(super) type RoutedHop = (VerifiedHop, Option<Box<[u8]>>);

/// One target of a request.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The new Request-URI.
    pub(super) uri: Bytes,
    /// Routes to insert before the existing ones (RFC 3327).
    pub(super) routes: Vec<Box<[u8]>>,
    /// The next hop.
    pub(super) hop: Hop,
    /// The domain that it must prove to be, if any.
    pub(super) domain: Option<Arc<str>>,
    /// Alternative hops if that one fails.
    pub(super) alternates: Vec<Hop>,
    /// Preference over other targets: a contact's q, in thousandths.
    pub(super) preference: u16,
    /// Its share of the request's Max-Breadth: [`share`].
    pub(super) breadth: u8,
    /// True if no other transport may be used: it is a flow, or the other transport was tried.
    pub(super) is_settled: bool,
    /// A Route through the proxy that has the flow.
    pub(super) detour: Option<Box<[u8]>>,
    /// The alternative if all hops fail: without that Route, or with it.
    pub(super) fallback: Option<RoutedHop>,
}

impl Target {
    /// Creates a target without alternatives.
    pub(super) fn new(uri: Bytes, hop: Hop, domain: Option<Arc<str>>) -> Target {
        Target {
            uri,
            routes: Vec::new(),
            hop,
            domain,
            alternates: Vec::new(),
            preference: 1000,
            breadth: MAX_BREADTH,
            is_settled: false,
            detour: None,
            fallback: None,
        }
    }

    /// Returns the current hop.
    pub(super) fn verified_hop(&self) -> VerifiedHop {
        (self.hop, self.domain.clone())
    }

    /// Reports whether there are alternatives.
    pub(super) fn has_more(&self) -> bool {
        !self.alternates.is_empty() || self.fallback.is_some()
    }

    /// Advances to the next alternative; returns false if there is none.
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

    /// Uses this hop next.
    pub(super) fn use_hop(&mut self, (hop, detour): RoutedHop) {
        ((self.hop, self.domain), self.detour) = (hop, detour);
    }
}

/// Divides a request's Max-Breadth among parallel targets: "MUST NOT allow the Outgoing Max-Breadth to exceed the Incoming"
/// (RFC 5393 section 5.3.3). There must be no more targets than that.
pub(super) fn share(targets: &mut [Target], breadth: u8) {
    let count = u8::try_from(targets.len()).unwrap_or(u8::MAX).max(1);
    for (at, target) in (0..count).zip(targets) {
        target.breadth = breadth / count + u8::from(at < breadth % count);
    }
}
