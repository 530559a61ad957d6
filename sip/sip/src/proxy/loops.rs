//! Detection of loops (RFC 5393 section 4). A request that returns to this proxy unchanged has looped. A request that returns with
//! another Request-URI is a spiral, which is permitted.

use sha2::{Digest as _, Sha256};

use super::ProxyConfig;
use crate::essentials::Essentials;
use crate::header::Name;
use crate::message::Message;
use crate::via::Via;

/// The source of loop marks, which our branches contain.
#[derive(Debug)]
pub(super) struct Loops {
    secret: [u8; 32],
}

impl Loops {
    pub(super) fn new(secret: [u8; 32]) -> Loops {
        Loops { secret }
    }

    /// Hashes the parts of a received request that decide its route: "the Request-URI, … Route header fields, … Proxy-Require", the
    /// fields that identify the dialog, and the CSeq number (RFC 3261 section 16.6, step 8). The hash includes a secret, so other hosts
    /// cannot fake a loop.
    pub(super) fn mark(&self, request: &Message, known: &Essentials) -> String {
        self.mark_of(request, known, known.to_tag.as_deref().unwrap_or_default())
    }

    /// Computes a mark without the To tag. The ACK for a rejection has a To tag, and its INVITE has none. With this function, both get
    /// the same mark.
    pub(super) fn mark_without_to_tag(&self, request: &Message, known: &Essentials) -> String {
        self.mark_of(request, known, &[])
    }

    fn mark_of(&self, request: &Message, known: &Essentials, to_tag: &[u8]) -> String {
        let mut hash = Sha256::new().chain_update(self.secret);
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
}

/// Reports whether a request with this mark has passed this proxy before.
pub(super) fn is_loop(config: &ProxyConfig, request: &Message, mark: &str) -> bool {
    request.elements(Name::Via).filter_map(|via| Via::parse(via).ok()).any(|via| {
        let is_marked = via.branch().is_some_and(|branch| branch.ends_with(mark.as_bytes()));
        is_marked && config.is_our_via(&via)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::{config, request};

    fn mark(secret: u8, text: &str) -> String {
        let request = request(text);
        Loops::new([secret; 32]).mark(&request, &Essentials::of(&request).unwrap())
    }

    #[test]
    fn the_loop_mark_depends_on_request_uri_and_route_but_not_on_via() {
        let first = mark(1, "OPTIONS sip:a@example.org");
        assert_eq!(first, mark(1, "OPTIONS sip:a@example.org\nVia: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bKb"));
        assert_ne!(first, mark(1, "OPTIONS sip:b@example.org"));
        assert_ne!(first, mark(1, "OPTIONS sip:a@example.org\nRoute: <sip:192.0.2.9;lr>"));
        assert_ne!(first, mark(2, "OPTIONS sip:a@example.org"));
    }

    #[test]
    fn a_loop_is_detected_only_by_our_own_via_with_the_same_mark() {
        let passed = |via: &str| {
            let request = request(&format!("OPTIONS sip:a@example.org\nVia: SIP/2.0/UDP {via}"));
            is_loop(&config(), &request, "0123456789abcdef")
        };
        assert!(passed("192.0.2.1:5060;branch=z9hG4bK1.2.0123456789abcdef"));
        assert!(!passed("192.0.2.1:5060;branch=z9hG4bK1.2.ffff456789abcdef"));
        assert!(!passed("192.0.2.9:5060;branch=z9hG4bK1.2.0123456789abcdef"));
    }
}
