//! One place that a request may be forwarded to, and the ways there, which are tried one after the other ([`Target::move_on`]).

use std::sync::Arc;

use bytes::Bytes;

use crate::essentials::MAX_BREADTH;
use crate::transport::Hop;

/// A hop, and whom it has to prove to be.
pub(super) type Way = (Hop, Option<Arc<str>>);

/// A way, and the Route to send a request with there: [`Target::detour`].
pub(super) type Otherwise = (Way, Option<Box<[u8]>>);

/// One place to forward a request to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The new Request-URI.
    pub(super) uri: Bytes,
    /// Routes to add before those that are there (RFC 3327).
    pub(super) routes: Vec<Box<[u8]>>,
    /// Whom to send it to.
    pub(super) hop: Hop,
    /// Whom that has to prove to be, where it is asked to.
    pub(super) domain: Option<Arc<str>>,
    /// Where else it may be sent, if it cannot be sent there.
    pub(super) alternates: Vec<Hop>,
    /// How much it is preferred to others: a contact's q, in thousandths.
    pub(super) preference: u16,
    /// Its part of the request's Max-Breadth: [`share`].
    pub(super) breadth: u8,
    /// Whether there is no other transport than this: it is a flow, or the other one was tried.
    pub(super) is_settled: bool,
    /// A Route through the proxy that has the flow.
    pub(super) detour: Option<Box<[u8]>>,
    /// The other way, if nothing else can be reached: without that Route, or with it.
    pub(super) otherwise: Option<Otherwise>,
}

impl Target {
    /// One with no other way to it.
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
            otherwise: None,
        }
    }

    pub(super) fn way(&self) -> Way {
        (self.hop, self.domain.clone())
    }

    /// Whether there are other places.
    pub(super) fn has_more(&self) -> bool {
        !self.alternates.is_empty() || self.otherwise.is_some()
    }

    /// Goes on to the next place; false if there is none.
    pub(super) fn move_on(&mut self) -> bool {
        if !self.alternates.is_empty() {
            self.hop = self.alternates.remove(0);
            return true;
        }
        let Some(otherwise) = self.otherwise.take() else { return false };
        self.go(otherwise);
        self.is_settled = false;
        true
    }

    /// Takes this way.
    pub(super) fn go(&mut self, (way, detour): Otherwise) {
        ((self.hop, self.domain), self.detour) = (way, detour);
    }
}

/// Divides a request's Max-Breadth among targets that it is sent to at once: "MUST NOT allow the Outgoing Max-Breadth to exceed the Incoming"
/// (RFC 5393 section 5.3.3). There are not more of them than that.
pub(super) fn share(targets: &mut [Target], breadth: u8) {
    let count = u8::try_from(targets.len()).unwrap_or(u8::MAX).max(1);
    for (at, target) in (0..count).zip(targets) {
        target.breadth = breadth / count + u8::from(at < breadth % count);
    }
}
