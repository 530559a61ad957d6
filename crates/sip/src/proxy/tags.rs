//! To tags of our own responses, by which their ACKs are known with nothing kept (RFC 3261 sections 8.2.7 and 19.3).
//!
//! ACK for a refusal ends at the hop that refused (section 17.1.1.3). Where that kept a transaction, the ACK belongs to it. Where it kept
//! none (overload, access, drain, what is malformed), or none any more, the ACK would look like one for a 2xx, which goes on to the other
//! end. So our tag is a MAC of what ACK has in common with the request that it is for, and nobody else can have made it. A request within a
//! dialog has a tag already: ACK for its refusal is not known, and goes on to an end that ignores it. Begin with [`Proxy::own_response`].

use hmac::Mac;

use super::Proxy;
use crate::essentials::Essentials;
use crate::header::Name;
use crate::message::Message;
use crate::via::Via;

/// Bytes of the MAC: more than the 32 bits of randomness that section 19.3 asks for.
const LENGTH: usize = 8;

impl Proxy {
    /// A response of ours to a request as it came, or with its source noted in Via.
    pub(super) fn own_response(&self, request: &Message, status: u16, reason: &str) -> Message {
        // 100 gets none.
        let tag = if status > 100 { self.own_tag_for(request) } else { String::new() };
        request.response(status, reason, &tag)
    }

    /// Whether an ACK is for a refusal of ours.
    pub(super) fn is_for_own_refusal(&self, ack: &Essentials) -> bool {
        let tag = ack.to_tag.as_deref().filter(|tag| tag.len() == 2 * LENGTH);
        tag.is_some_and(|tag| *tag == *self.own_tag(&ack.via, &ack.call_id).as_bytes())
    }

    fn own_tag_for(&self, request: &Message) -> String {
        let via = request.elements(Name::Via).next().unwrap_or_default();
        let call_id = request.first(Name::CallId).map(|value| &value[..]).unwrap_or_default();
        self.own_tag(via, call_id)
    }

    fn own_tag(&self, via: &[u8], call_id: &[u8]) -> String {
        let via = Via::parse(via).ok();
        let branch = via.as_ref().and_then(Via::branch).unwrap_or_default();
        let sent_by = via.as_ref().map(Via::sent_by).unwrap_or_default();
        let mut mac = self.tag_mac.clone();
        for part in [branch, sent_by, call_id] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let mac = mac.finalize().into_bytes();
        let first = mac.first_chunk::<LENGTH>().copied().unwrap_or_default();
        format!("{:016x}", u64::from_be_bytes(first))
    }
}
