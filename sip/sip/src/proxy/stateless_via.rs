//! The state that a stateless proxy puts into its Via (RFC 3261 section 16.11). Each response contains the request's Via, and so returns
//! this state. The parameter [`PARAM`] contains the source of the request, with a MAC. The branch is computed from fields that are equal
//! in a request, its retransmissions, its CANCEL, and the ACK for its rejection. All these messages therefore have the same branch, by
//! which the next hop matches them.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::ProxyConfig;
use super::keys::{derived, keyed};
use super::matching::server_key;
use super::tokens::HopTokens;
use crate::digest::hex;
use crate::essentials::Essentials;
use crate::message::{Message, Method};
use crate::transport::Hop;
use crate::via::Via;

/// Prefix of this proxy's stateless branches.
const BRANCH: &str = "z9hG4bKs";
/// Via parameter with the source of a request. No RFC defines this parameter.
const PARAM: &str = "source";
/// Length in bytes of the hash in a branch.
const HASH: usize = 16;

/// The writer and reader of the state in our Via values.
#[derive(Debug)]
pub(super) struct StatelessVia {
    mac: Hmac<Sha256>,
    sources: HopTokens,
}

impl StatelessVia {
    pub(super) fn new(dialog_secret: &[u8; 32], run: u64) -> StatelessVia {
        let sources = HopTokens::new(derived(dialog_secret, "sources"), run);
        StatelessVia { mac: keyed(&derived(dialog_secret, "branches")), sources }
    }

    /// Returns the branch of our Via, followed by `;` and the parameter [`PARAM`]. All messages of a transaction get the same branch.
    /// Section 16.11 derives our branch from the branch in the received Via, if the received branch begins with the magic cookie. `back`
    /// is the hop for responses.
    pub(super) fn branch(
        &self,
        via: &Via<'_>,
        request: &Message,
        known: &Essentials,
        mark: &str,
        back: Hop,
    ) -> String {
        let mut mac = self.mac.clone();
        mac.update(&server_key(request, known, via, &Method::Invite));
        let hash = hex(&mac.finalize().into_bytes()[..HASH]);
        format!("{BRANCH}{hash}.{mark};{PARAM}={}", self.sources.encode(back))
    }

    /// Returns the source of the request for which we wrote this Via, or `None` if we did not write it.
    pub(super) fn source_of(&self, config: &ProxyConfig, via: &Via<'_>) -> Option<Hop> {
        let is_ours =
            config.is_our_via(via) && via.branch().is_some_and(|b| b.starts_with(BRANCH.as_bytes()));
        let token = via.param(PARAM).flatten().filter(|_| is_ours)?;
        self.sources.decode(&config.listeners, token).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::{config, hop, request};

    fn written(by: &StatelessVia, text: &str) -> String {
        let request = request(text);
        let known = Essentials::of(&request).unwrap();
        let branch =
            by.branch(&Via::parse(&known.via).unwrap(), &request, &known, "mark", hop("192.0.2.7:5062"));
        format!("SIP/2.0/UDP 192.0.2.1:5060;rport;branch={branch}")
    }

    #[test]
    fn the_source_of_a_request_is_taken_only_from_our_own_via() {
        let ours = StatelessVia::new(&[1; 32], 1);
        let source = |via: &str| ours.source_of(&config(), &Via::parse(via.as_bytes()).unwrap());
        let via = written(&ours, "OPTIONS sip:a@example.org");
        assert_eq!(source(&via), Some(hop("192.0.2.7:5062")));
        assert_eq!(source(&via.replace("192.0.2.1", "192.0.2.9")), None);
        assert_eq!(source(&via.replace(BRANCH, "z9hG4bK7")), None);
        assert_eq!(source(&written(&StatelessVia::new(&[2; 32], 1), "OPTIONS sip:a@example.org")), None);
    }

    #[test]
    fn a_request_and_its_cancel_have_the_same_branch() {
        let ours = StatelessVia::new(&[1; 32], 1);
        let invite = written(&ours, "INVITE sip:a@example.org");
        assert_eq!(invite, written(&ours, "CANCEL sip:a@example.org"));
        let other = "INVITE sip:a@example.org\nVia: SIP/2.0/UDP 192.0.2.8;branch=z9hG4bKb";
        assert_ne!(invite, written(&ours, other));
    }
}
