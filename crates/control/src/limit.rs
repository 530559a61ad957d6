//! Limit on a flow's sending: the terms that routers and the daemon share.

use serde::{Deserialize, Serialize};

/// The limit on a flow's sending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// Its program has nothing more to say.
    Application,
    /// Its path.
    Network,
    /// Its receiver takes no more.
    Receiver,
    /// Nobody says.
    Unknown,
}

impl LimitedBy {
    /// All of them, in their order.
    pub const ALL: [LimitedBy; 4] =
        [LimitedBy::Application, LimitedBy::Network, LimitedBy::Receiver, LimitedBy::Unknown];

    /// The word for tables and labels.
    pub const fn word(self) -> &'static str {
        match self {
            LimitedBy::Application => "application",
            LimitedBy::Network => "network",
            LimitedBy::Receiver => "receiver",
            LimitedBy::Unknown => "unknown",
        }
    }
}
