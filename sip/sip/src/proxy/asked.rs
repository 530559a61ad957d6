//! Requests on their way through the proxy, with the facts found about them so far.

use super::Id;
use super::leg::Leg;
use crate::essentials::Essentials;
use crate::message::Message;
use crate::transport::Hop;

/// A request to forward.
#[derive(Debug)]
pub(super) struct Asked {
    /// Its server transaction.
    pub(super) server: Id,
    pub(super) from: Hop,
    pub(super) request: Message,
    pub(super) known: Essentials,
    /// The dialog for which one of our own Routes was marked.
    pub(super) leg: Option<Leg>,
    /// The loop mark for the branches of its copies: seen again here, it reveals a loop.
    pub(super) mark: String,
}

/// An ACK to forward, which has no transaction.
#[derive(Clone, Debug)]
pub(super) struct Ack {
    pub(super) from: Hop,
    /// The request without the Routes that lead here.
    pub(super) request: Message,
    pub(super) known: Essentials,
    /// The dialog for which one of our own Routes was marked.
    pub(super) leg: Option<Leg>,
    pub(super) mark: String,
}
