//! Marks in our Record-Route, which prove that a request belongs to a dialog through this proxy. Only the participants of the dialog know
//! its mark.
//!
//! Any host can forge a To tag, and a Route with our address. A proxy that takes a To tag or a Route as proof of a dialog is an open
//! relay. Our Record-Route URIs therefore contain a MAC over the dialog's Call-ID and its caller's tag. The user agents return the MAC in
//! their Routes (RFC 3261 section 12.1). Requests without a valid mark are treated as outside of dialogs.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::keys::{bytes_of, keyed};
use super::leg::Leg;
use crate::digest::hex;
use crate::essentials::Essentials;
use crate::uri::Uri;

/// URI parameter that contains the mark. No RFC defines this parameter.
pub(super) const PARAM: &str = "dialog";

/// Length of the MAC in bytes: half of the hash's length. RFC 2104 section 5 recommends at least this half.
const LENGTH: usize = 16;

/// The maker and verifier of marks.
#[derive(Debug)]
pub(super) struct DialogMarks {
    secret: [u8; 32],
}

impl DialogMarks {
    pub(super) fn new(secret: [u8; 32]) -> DialogMarks {
        DialogMarks { secret }
    }

    /// Returns the mark of a request that may create a dialog.
    pub(super) fn mark(&self, known: &Essentials) -> String {
        let mac = self.mac(known, known.from_tag.as_deref().unwrap_or_default()).finalize();
        hex(&mac.into_bytes()[..LENGTH])
    }

    /// Returns the dialog that the mark in one of our URIs identifies, if the request belongs to that dialog. The caller's tag is in From
    /// in the caller's requests, and in To in the callee's requests.
    pub(super) fn marked(&self, uri: &Uri<'_>, known: &Essentials) -> Option<Leg> {
        let mark = uri.param(PARAM).flatten().and_then(bytes_of::<LENGTH>)?;
        let tags = [&known.from_tag, &known.to_tag];
        let mut tags = tags.into_iter().map(|tag| tag.as_deref().unwrap_or_default());
        let caller = tags.find(|tag| self.mac(known, tag).verify_truncated_left(&mark).is_ok())?;
        Some(Leg::new(&known.call_id, caller))
    }

    fn mac(&self, known: &Essentials, caller: &[u8]) -> Hmac<Sha256> {
        let mut mac = keyed(&self.secret);
        mac.update(&(known.call_id.len() as u64).to_be_bytes());
        mac.update(&known.call_id);
        mac.update(caller);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::request;

    fn known(call_id: &str, from: &str, to: &str) -> Essentials {
        let essentials = Essentials::of(&request("BYE sip:a@example.org")).unwrap();
        let tag = |tag: &str| Some(tag.to_owned().into());
        Essentials { call_id: call_id.to_owned().into(), from_tag: tag(from), to_tag: tag(to), ..essentials }
    }

    #[test]
    fn a_dialog_mark_is_valid_only_in_its_dialog_and_from_either_end() {
        let marks = DialogMarks::new([1; 32]);
        let uri = format!("sip:192.0.2.1;lr;{PARAM}={}", marks.mark(&known("call", "caller", "")));
        let uri = Uri::parse(uri.as_bytes()).unwrap();
        let leg = Some(Leg::new(b"call", b"caller"));
        assert_eq!(marks.marked(&uri, &known("call", "caller", "callee")), leg);
        assert_eq!(marks.marked(&uri, &known("call", "callee", "caller")), leg);
        assert_eq!(marks.marked(&uri, &known("call", "other", "callee")), None);
        assert_eq!(marks.marked(&uri, &known("other", "caller", "callee")), None);
        assert_eq!(DialogMarks::new([2; 32]).marked(&uri, &known("call", "caller", "callee")), None);
    }
}
