//! Loops and spirals (RFC 5393 section 4): the same request again, either unchanged or changed.

use sha2::{Digest as _, Sha256};

use super::Proxy;
use crate::essentials::Essentials;
use crate::header::Name;
use crate::message::Message;
use crate::via::{Via, parse_ip};

impl Proxy {
    /// Hashes the parts of a request as received that decide its route: "the Request-URI, … Route header fields, … Proxy-Require" and the
    /// dialog (RFC 3261 section 16.6, step 8). A key keeps others from faking a loop.
    pub(super) fn loop_mark(&self, request: &Message, known: &Essentials) -> String {
        self.mark_of(request, known, known.to_tag.as_deref().unwrap_or_default())
    }

    /// Computes the mark common to a request and the ACK for its rejection, which has another tag.
    pub(super) fn loop_mark_without_to_tag(&self, request: &Message, known: &Essentials) -> String {
        self.mark_of(request, known, &[])
    }

    fn mark_of(&self, request: &Message, known: &Essentials, to_tag: &[u8]) -> String {
        let mut hash = Sha256::new().chain_update(self.loop_secret);
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        part(request.request_uri());
        part(&known.call_id);
        part(&known.cseq.number.to_be_bytes());
        part(known.from_tag.as_deref().unwrap_or_default());
        part(to_tag);
        for name in [Name::Route, Name::ProxyRequire] {
            request.elements(name).for_each(&mut part);
        }
        hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reports whether a request with this mark has passed here before.
    pub(super) fn is_loop(&self, request: &Message, mark: &str) -> bool {
        request.elements(Name::Via).filter_map(|via| Via::parse(via).ok()).any(|via| {
            let is_marked = via.branch().is_some_and(|branch| branch.ends_with(mark.as_bytes()));
            is_marked && self.is_our_via(&via)
        })
    }

    /// Reports whether we wrote this Via.
    pub(super) fn is_our_via(&self, via: &Via<'_>) -> bool {
        let host = parse_ip(via.host);
        self.config
            .listeners
            .iter()
            .any(|listener| Some(listener.address.ip()) == host && via.port == Some(listener.address.port()))
    }
}
