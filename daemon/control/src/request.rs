//! Requests to the daemon.

use std::net::IpAddr;

use rules::{Chain, Policy, Rule};
use serde::{Deserialize, Serialize};

use crate::known_peers::HostKeyText;

/// One question or order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The status; answered by [`crate::Response::Status`].
    Status,
    /// The paths of all associations; answered by [`crate::Response::Paths`].
    Paths,
    /// The changes of paths after the one with this number, oldest first; answered by [`crate::Response::Events`].
    Events {
        /// Its number; 0 for all that are kept.
        after: u64,
    },
    /// The decision on a connection to this address; answered by [`crate::Response::Explanation`].
    Explain {
        /// The destination.
        address: IpAddr,
        /// Its TCP port.
        port: u16,
    },
    /// All settings; answered by [`crate::Response::Settings`].
    Settings,
    /// One setting; answered by [`crate::Response::Settings`] with one row.
    Get {
        /// Its name.
        name: String,
    },
    /// Changes one setting, now and in the configuration file; answered by [`crate::Response::Settings`] with one
    /// row.
    Set {
        /// Its name.
        name: String,
        /// The new value, as text.
        value: String,
    },
    /// Adds a rule, now and in the rules file; answered by [`crate::Response::Done`].
    RulesAdd {
        /// Its chain.
        chain: Chain,
        /// Its policy.
        policy: Policy,
        /// The rule.
        rule: Rule,
    },
    /// Removes a rule; answered by [`crate::Response::Done`].
    RulesDelete {
        /// Its chain.
        chain: Chain,
        /// Its policy.
        policy: Policy,
        /// The rule.
        which: RuleSelector,
    },
    /// The rules of the matching chains; answered by [`crate::Response::Rules`].
    RulesList {
        /// Only rules for these; none means both.
        chain: Option<Chain>,
        /// Only rules with this policy; none means both.
        policy: Option<Policy>,
    },
    /// Removes all rules, and forgets what was learned; answered by [`crate::Response::Done`].
    RulesFlush,
    /// Replaces all rules, now and in the rules file, if each line is right; answered by [`crate::Response::Done`].
    RulesRestore {
        /// The rules in the syntax of the rules file: one `-A -c CHAIN -p POLICY ...` in each line.
        text: String,
    },
    /// The default policy of a chain; answered by [`crate::Response::DefaultPolicy`].
    DefaultGet {
        /// The chain.
        chain: Chain,
    },
    /// Changes the default policy of a chain; answered by [`crate::Response::DefaultPolicy`].
    DefaultSet {
        /// The chain.
        chain: Chain,
        /// The new policy.
        policy: Policy,
    },
    /// Turns automatic configuration on: the second paper's socket option SO_SHIM_RULE_AUTO_EN, for the whole host; answered by
    /// [`crate::Response::Done`].
    RuleAutoEn,
    /// Turns automatic configuration off: SO_SHIM_RULE_AUTO_DIS; answered by [`crate::Response::Done`].
    RuleAutoDis,
    /// Forgets what was learned of a host; answered by [`crate::Response::Done`].
    Forget {
        /// The host.
        address: IpAddr,
    },
    /// This host's public key; answered by [`crate::Response::HostKey`].
    HostKey,
    /// The known peers; answered by [`crate::Response::Peers`].
    Peers,
    /// Takes over the key of a host at these addresses; answered by [`crate::Response::Done`].
    PeersAdd {
        /// Its key.
        key: HostKeyText,
        /// Its name here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Its addresses.
        addresses: Vec<IpAddr>,
    },
    /// Notes that people have compared the words of an association with the host that has this key; answered by [`crate::Response::Done`].
    PeersPair {
        /// The key.
        key: HostKeyText,
        /// The host's name here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Forgets a known peer: the next connection to it takes any key. Answered by [`crate::Response::Done`].
    PeersForget {
        /// Its name, key, or one of its addresses.
        which: String,
    },
    /// Reads configuration and rules files again; answered by [`crate::Response::Done`].
    Reload,
    /// Stops the daemon; answered by [`crate::Response::Done`] before it ends.
    Shutdown,
    /// Leaves new connections to TCP from now on, so that the daemon can be stopped once the live ones have ended; answered by
    /// [`crate::Response::Done`].
    Drain,
    /// Captures the daemon's carriers from now on. Answered by [`crate::Response::Done`]; after that, the connection carries a
    /// pcapng file until the time is over or the client hangs up.
    Capture {
        /// Duration in seconds.
        seconds: u32,
    },
    /// Enables SCTP for a listener of the client's own that no rule names (the papers' SHIM_ENABLE_MANUAL of a server). Answered
    /// by [`crate::Response::Done`], and in force until the client hangs up or sends anything more, or the listener ends: then
    /// the daemon hangs up. For users only with the setting `manual_listen`.
    Expose {
        /// The address that it listens on; none: all of the client's listeners on this port.
        address: Option<IpAddr>,
        /// Its TCP port.
        port: u16,
    },
    /// The daemon's findings; answered by [`crate::Response::Doctor`].
    Doctor {
        /// Check the route to this peer as well.
        peer: Option<IpAddr>,
    },
}

/// Selects a rule of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSelector {
    /// The one with this number, from 1.
    Number(usize),
    /// The one with this address and these ports; name and comment do not count.
    Match(Rule),
}

impl Request {
    /// Reports whether the request changes nothing, and so can be allowed to more users.
    pub fn is_read_only(&self) -> bool {
        match self {
            Request::Status | Request::Paths | Request::Explain { .. } | Request::Settings => true,
            Request::Events { .. } => true,
            Request::Get { .. } | Request::RulesList { .. } | Request::DefaultGet { .. } => true,
            Request::Doctor { .. } | Request::HostKey | Request::Peers => true,
            Request::Set { .. } | Request::RulesAdd { .. } | Request::RulesDelete { .. } => false,
            Request::RuleAutoEn | Request::RuleAutoDis | Request::Forget { .. } => false,
            Request::PeersAdd { .. } | Request::PeersPair { .. } | Request::PeersForget { .. } => false,
            Request::RulesRestore { .. } => false,
            Request::RulesFlush | Request::DefaultSet { .. } | Request::Reload | Request::Shutdown => false,
            Request::Drain | Request::Capture { .. } | Request::Expose { .. } => false,
        }
    }

    /// Reports whether the data after the answer on the connection is not another answer.
    pub fn is_last(&self) -> bool {
        matches!(self, Request::Capture { .. } | Request::Expose { .. })
    }
}
