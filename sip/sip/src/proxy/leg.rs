//! The identity of a dialog, as its mark in Record-Route covers it.

/// The identity of a dialog: Call-ID and the caller's tag.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leg(Box<[u8]>);

impl Leg {
    pub(super) fn new(call_id: &[u8], caller_tag: &[u8]) -> Leg {
        // A Call-ID contains no zero byte.
        Leg([call_id, &[0], caller_tag].concat().into())
    }
}
