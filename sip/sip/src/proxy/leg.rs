//! The identity of a dialog. The mark in our Record-Route authenticates this identity.

/// The identity of a dialog: Call-ID and the caller's tag.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leg(Box<[u8]>);

impl Leg {
    pub(super) fn new(call_id: &[u8], caller_tag: &[u8]) -> Leg {
        // The zero byte separates the parts unambiguously, because a Call-ID contains no zero byte.
        Leg([call_id, &[0], caller_tag].concat().into())
    }
}
