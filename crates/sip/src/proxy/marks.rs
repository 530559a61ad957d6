//! Marks in our Record-Route, so that only participants of a dialog through this proxy can send requests in it.
//!
//! Anybody can forge a Route with our address and a To tag; a proxy that takes that for a dialog is an open relay.
//! So our Record-Route URIs carry a MAC over the dialog's Call-ID and its caller's tag, which the user agents return in
//! their Routes (RFC 3261 section 12.1). Requests without a valid mark are treated as outside of dialogs.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::Proxy;
use super::dialogs::Leg;
use super::flows::keyed;
use crate::digest::hex;
use crate::essentials::Essentials;
use crate::uri::Uri;

/// The URI parameter; not from an RFC.
pub(super) const PARAM: &str = "dialog";

/// Bytes of the MAC: half of the hash, the minimum in RFC 2104 section 5.
pub(super) const LENGTH: usize = 16;

impl Proxy {
    /// Returns the mark of a request that may create a dialog.
    pub(super) fn dialog_mark(&self, known: &Essentials) -> String {
        let mac = self.dialog_mac(known, known.from_tag.as_deref().unwrap_or_default()).finalize();
        hex(&mac.into_bytes()[..LENGTH])
    }

    /// Returns the dialog for which a URI of ours was marked, if it is this request's. The caller is in From in its own requests, in
    /// To in the callee's.
    pub(super) fn marked(&self, uri: &Uri<'_>, known: &Essentials) -> Option<Leg> {
        let mark = uri.param(PARAM).flatten().and_then(bytes_of::<LENGTH>)?;
        let tags = [&known.from_tag, &known.to_tag];
        let mut tags = tags.into_iter().map(|tag| tag.as_deref().unwrap_or_default());
        let caller = tags.find(|tag| self.dialog_mac(known, tag).verify_truncated_left(&mark).is_ok())?;
        Some(Leg::new(&known.call_id, caller))
    }

    fn dialog_mac(&self, known: &Essentials, caller: &[u8]) -> Hmac<Sha256> {
        let mut mac = keyed(&self.dialog_secret);
        mac.update(&(known.call_id.len() as u64).to_be_bytes());
        mac.update(&known.call_id);
        mac.update(caller);
        mac
    }
}

/// Decodes N bytes from twice as many hexadecimal digits.
pub(super) fn bytes_of<const N: usize>(hex: &[u8]) -> Option<[u8; N]> {
    let hex = std::str::from_utf8(hex).ok().filter(|hex| hex.len() == 2 * N && hex.is_ascii())?;
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}
