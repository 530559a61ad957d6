//! Limit on a flow's sending: the terms shared by routers and the daemon.

use serde::{Deserialize, Serialize};

/// The limit on a flow's sending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// Its program has no more data to send.
    Application,
    /// Its path.
    Network,
    /// Its receiver takes no more.
    Receiver,
    /// Its path or its receiver: the receiver's window is encrypted.
    NetworkOrReceiver,
    /// Not known.
    Unknown,
}

impl LimitedBy {
    /// All limits, in their order.
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
