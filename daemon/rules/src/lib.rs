//! Decides whether connections may use SCTP. The decision depends on the shim's rules table, its default policies and its
//! settings.
//!
//! The crate uses no clock, no files and no sockets. [`Rulebook::decide`] decides on one connection and counts the hit.
//! [`Rulebook::explain`] returns the same decision and counts nothing. The outcomes of connections are counted per rule
//! ([`Usage`]) and learned per destination ([`LearnedTable`]).
//!
//! The crate refuses rules that cannot be printed and read back, and more than [`MAX_RULES`] rules. It also refuses unknown
//! settings, and the error names the nearest known setting. Invariants:
//! - Addresses are normalised: an IPv4-mapped IPv6 address is the IPv4 address, and host bits are zero.
//! - Only [`Settings`] contains the default policies.
//! - A printed table reads back as the same table.
//!
//! Begin with [`Rulebook`]. The line syntax is in [`RuleLine`], and the settings are in [`SETTINGS`].

#![forbid(unsafe_code)]

mod advertise;
mod book;
mod declared;
mod interfaces;
mod learned;
mod line;
mod links;
mod nearest;
mod net;
mod ports;
mod rule;
mod secure;
mod settings;
mod table;
mod traffic;
mod tried;
mod usage;
mod weights;
mod words;

pub use advertise::{Advertise, AdvertiseError, AdvertiseInterval, AdvertiseIntervalError, Advertisement};
pub use book::{Because, Decision, Guarded, Rulebook};
pub use declared::{DeclaredError, DeclaredRule, DeclaredRules};
pub use interfaces::{INTERFACES_MAX, Interfaces, Listed};
pub use learned::{Disabled, LearnPolicy, LearnedEntry, LearnedTable, MAX_LEARNED, OTHERS_MAX};
pub use line::{Action, LineError, RuleLine, parse_table, print_rule, print_table};
pub use links::{Cap, LINK_HEARTBEAT_S, LINKS_MAX, LinkError, LinkPolicy, LinkUse, Links};
pub use nearest::nearest;
pub use net::{IpNet, NetError, normalise};
pub use ports::{PortRange, PortsError};
pub use rule::{
    Chain, Framing, FramingWordError, MAX_COMMENT_BYTES, MAX_NAME_BYTES, Policy, Rule, RuleError, WordError,
};
pub use secure::{Secure, SecureError};
pub use settings::{Kind, SETTINGS, Setting, SettingError, Settings, find_setting, parse_bool};
pub use table::{Added, MAX_RULES, RuleMatch, RulesTable, TableError};
pub use traffic::{MonthTraffic, Reading, TrafficTable};
pub use tried::{DESTINATIONS_MAX, Destinations, Tried};
pub use usage::{Failure, Outcome, UnixMs, Usage};
pub use weights::{WEIGHTS_MAX, Weights};
pub use words::{Carriers, Congestion, Encryption, Multipath, Streams};
