//! Terms for the causes that limit a flow's sending rate. Routers and the daemon use the same terms.

use serde::{Deserialize, Serialize};

/// Cause that limits a flow's sending rate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// The sending program has no more data to send.
    Application,
    /// The network path to the receiver.
    Network,
    /// The receiver, which accepts no more data.
    Receiver,
    /// The path or the receiver. The receiver's window is encrypted, so an observer cannot distinguish these two causes.
    NetworkOrReceiver,
    /// Unknown.
    Unknown,
}

impl LimitedBy {
    /// All causes, in the order of their declaration.
    pub const ALL: [LimitedBy; 5] = [
        LimitedBy::Application,
        LimitedBy::Network,
        LimitedBy::Receiver,
        LimitedBy::NetworkOrReceiver,
        LimitedBy::Unknown,
    ];

    /// Returns the word for tables and labels.
    pub const fn word(self) -> &'static str {
        match self {
            LimitedBy::Application => "application",
            LimitedBy::Network => "network",
            LimitedBy::Receiver => "receiver",
            LimitedBy::NetworkOrReceiver => "network-or-receiver",
            LimitedBy::Unknown => "unknown",
        }
    }
}
