//! To tags of our own responses, which identify the ACKs for these responses without state (RFC 3261 sections 8.2.7 and 19.3).
//!
//! The hop that rejected an INVITE must not forward the ACK for the rejection (section 17.1.1.3). If this proxy still has the INVITE's
//! transaction, the transaction absorbs the ACK. A rejection because of overload, access, drain, a malformed request or a failed check has
//! no transaction. Without a transaction, the ACK would look like the ACK for a 2xx, and would be forwarded. Our To tag is therefore a MAC
//! of fields that are equal in a request and its ACK. An ACK with a correct tag is for a rejection of ours. Other hosts cannot forge the
//! tag.
//!
//! A request within a dialog already has a To tag, so its rejection does not get our tag. If no transaction absorbs the ACK for this
//! rejection, the ACK is forwarded to the other end, which ignores it. Begin with [`Tags::response`].

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::keys::keyed;
use crate::essentials::Essentials;
use crate::header::Name;
use crate::message::Message;
use crate::via::Via;

/// Length of the MAC in bytes, which exceeds the 32 bits of randomness that section 19.3 requires.
const LENGTH: usize = 8;

/// The tags of our own responses.
#[derive(Debug)]
pub(super) struct Tags {
    /// A MAC with the key already set. Each computed tag uses a clone, which is cheaper than setting the key again.
    mac: Hmac<Sha256>,
}

impl Tags {
    pub(super) fn new(secret: &[u8; 32]) -> Tags {
        Tags { mac: keyed(secret) }
    }

    /// Builds our own response to a request. The request's Via may already contain the source of the request.
    pub(super) fn response(&self, request: &Message, status: u16, reason: &str) -> Message {
        // A 100 gets no tag.
        let tag = if status > 100 { self.tag_for(request) } else { String::new() };
        request.response(status, reason, &tag)
    }

    /// Reports whether an ACK is for one of our own rejections.
    pub(super) fn is_for_own_refusal(&self, ack: &Essentials) -> bool {
        let tag = ack.to_tag.as_deref().filter(|tag| tag.len() == 2 * LENGTH);
        tag.is_some_and(|tag| *tag == *self.tag(&ack.via, &ack.call_id).as_bytes())
    }

    fn tag_for(&self, request: &Message) -> String {
        let via = request.elements(Name::Via).next().unwrap_or_default();
        let call_id = request.first(Name::CallId).map(|value| &value[..]).unwrap_or_default();
        self.tag(via, call_id)
    }

    fn tag(&self, via: &[u8], call_id: &[u8]) -> String {
        let via = Via::parse(via).ok();
        let branch = via.as_ref().and_then(Via::branch).unwrap_or_default();
        let sent_by = via.as_ref().map(Via::sent_by).unwrap_or_default();
        let mut mac = self.mac.clone();
        for part in [branch, sent_by, call_id] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let mac = mac.finalize().into_bytes();
        let first = mac.first_chunk::<LENGTH>().copied().unwrap_or_default();
        format!("{:016x}", u64::from_be_bytes(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::request;

    #[test]
    fn the_ack_for_a_rejection_of_ours_is_known_by_its_tag() {
        let tags = Tags::new(&[1; 32]);
        let invite = request("INVITE sip:a@example.org");
        let refused = Essentials::of(&tags.response(&invite, 486, "Busy Here")).unwrap();
        assert!(tags.is_for_own_refusal(&refused));
        assert!(!Tags::new(&[2; 32]).is_for_own_refusal(&refused));
        assert!(!tags.is_for_own_refusal(&Essentials { call_id: "other".into(), ..refused.clone() }));
        assert!(!tags.is_for_own_refusal(&Essentials { to_tag: Some("0123456789abcdef".into()), ..refused }));
    }

    #[test]
    fn a_100_has_no_tag() {
        let trying = Tags::new(&[1; 32]).response(&request("INVITE sip:a@example.org"), 100, "Trying");
        assert_eq!(Essentials::of(&trying).unwrap().to_tag, None);
    }
}
