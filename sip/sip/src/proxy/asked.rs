//! Requests that the proxy is serving, with the facts found about them so far.

use super::Id;
use super::leg::Leg;
use crate::essentials::Essentials;
use crate::message::Message;
use crate::transport::Hop;

/// A request to forward.
#[derive(Debug)]
pub(super) struct Asked {
    /// Number of the request's server transaction.
    pub(super) server: Id,
    pub(super) from: Hop,
    pub(super) request: Message,
    pub(super) known: Essentials,
    /// Dialog that the mark in one of our own Routes identifies.
    pub(super) leg: Option<Leg>,
    /// Loop mark, which the branch of each copy contains. If a request arrives with this mark in one of our Vias, the request has looped.
    pub(super) mark: String,
}

/// An ACK to forward. An ACK has no transaction.
#[derive(Clone, Debug)]
pub(super) struct Ack {
    pub(super) from: Hop,
    /// The request without the Routes that lead to this proxy.
    pub(super) request: Message,
    pub(super) known: Essentials,
    /// Dialog that the mark in one of our own Routes identifies.
    pub(super) leg: Option<Leg>,
    pub(super) mark: String,
}
