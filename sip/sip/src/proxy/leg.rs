//! The identity of a dialog, which its mark in Record-Route covers.

/// The identity of a dialog: Call-ID and the caller's tag.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leg(Box<[u8]>);

impl Leg {
    pub(super) fn new(call_id: &[u8], caller_tag: &[u8]) -> Leg {
        // The zero byte separates the parts, because a Call-ID contains none.
        Leg([call_id, &[0], caller_tag].concat().into())
    }
}
