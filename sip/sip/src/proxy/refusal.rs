//! Rejections that several parts of the proxy use.

use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::Message;

/// The rejection of a request to another domain. The request is neither from one of our users nor within a dialog through this proxy, or
/// the mode is [`super::Mode::Redirect`].
pub(super) const RELAYING_DENIED: Fault = Fault { status: 403, reason: "Relaying Denied" };

/// The rejection of a request to a URI that is neither SIP nor SIPS (section 16.3).
pub(super) const UNSUPPORTED_SCHEME: Fault = Fault { status: 416, reason: "Unsupported URI Scheme" };

/// The rejection of a request for a user who is registered, but cannot be reached over any flow or contact.
pub(super) const CUT_OFF: Fault = Fault { status: 480, reason: "User Unreachable" };

/// The rejection of a request.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) fault: Fault,
    /// Fields of the response in addition to the fields that every response has.
    pub(super) fields: Vec<Header>,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal { fault, fields: Vec::new() }
    }
}

/// Returns the rejection of a request with Proxy-Require. This proxy supports no extension that Proxy-Require can name (section 16.3, step
/// 5).
pub(super) fn bad_extensions(request: &Message) -> Refusal {
    let wanted: Vec<_> = request.elements(Name::ProxyRequire).collect();
    let unsupported = Header::of_bytes(Name::Unsupported, &wanted.join(&b","[..]));
    Refusal { fault: Fault { status: 420, reason: "Bad Extension" }, fields: vec![unsupported] }
}
