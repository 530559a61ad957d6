//! Decisions about SCTP for connections: the rules table of the shim, its default policies and its settings.
//!
//! Pure: no clock, no files, no sockets. [`Rulebook::decide`] decides about one connection and counts the hit,
//! [`Rulebook::explain`] returns the same decision and counts nothing. The outcome of connections is counted per rule ([`Usage`])
//! and learned per destination ([`LearnedTable`]).
//!
//! Refuses: rules that cannot be printed and read back, unknown settings (naming the nearest), and more than [`MAX_RULES`] rules.
//! Invariants: addresses are kept normalised (IPv4-mapped IPv6 is IPv4, host bits are zero); only the [`Settings`] hold the
//! default policies; printing a table and reading it back gives the same table.
//!
//! Begin with [`Rulebook`]; the line syntax is in [`RuleLine`], the settings in [`SETTINGS`].

#![forbid(unsafe_code)]

mod advertise;
mod book;
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
mod tried;
mod usage;
mod weights;
mod words;

pub use advertise::{Advertise, AdvertiseError, AdvertiseInterval, AdvertiseIntervalError, Advertisement};
pub use book::{Because, Decision, Guarded, Rulebook};
pub use interfaces::{INTERFACES_MAX, Interfaces, Listed};
pub use learned::{Disabled, LearnPolicy, LearnedEntry, LearnedTable, MAX_LEARNED, OTHERS_MAX};
pub use line::{Action, LineError, RuleLine, parse_table, print_rule, print_table};
pub use links::{LINK_HEARTBEAT_S, LINKS_MAX, LinkError, LinkPolicy, LinkUse, Links};
pub use nearest::nearest;
pub use net::{IpNet, NetError, normalise};
pub use ports::{PortRange, PortsError};
pub use rule::{
    Chain, Framing, FramingWordError, MAX_COMMENT_BYTES, MAX_NAME_BYTES, Policy, Rule, RuleError, WordError,
};
pub use secure::{Secure, SecureError};
pub use settings::{Kind, SETTINGS, Setting, SettingError, Settings, find_setting, parse_bool};
pub use table::{Added, MAX_RULES, RuleMatch, RulesTable, TableError};
pub use tried::{DESTINATIONS_MAX, Destinations, Tried};
pub use usage::{Failure, Outcome, UnixMs, Usage};
pub use weights::{WEIGHTS_MAX, Weights};
pub use words::{Carriers, Congestion, Encryption, Multipath, Streams};
