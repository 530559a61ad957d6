//! Requests to the daemon.

use std::net::IpAddr;

use rules::{Chain, Policy, Rule};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::known_peers::HostKeyText;

/// One request: a question or a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The status; answered by [`crate::Response::Status`].
    Status,
    /// The paths of all associations; answered by [`crate::Response::Paths`].
    Paths,
    /// The history of links over an hour and a day; answered by [`crate::Response::History`].
    History,
    /// The changes of paths after a given event, oldest first; answered by [`crate::Response::Events`].
    Events {
        /// Number of the given event; 0 requests all events that the daemon still has.
        after: u64,
    },
    /// The decision on a connection to this address; answered by [`crate::Response::Explanation`].
    Explain {
        /// The destination.
        address: IpAddr,
        /// TCP port of the destination.
        port: u16,
    },
    /// All settings; answered by [`crate::Response::Settings`].
    Settings,
    /// One setting; answered by [`crate::Response::Settings`] with one row.
    Get {
        /// Name of the setting.
        name: String,
    },
    /// Changes one setting, now and in the configuration file; answered by [`crate::Response::Settings`] with one
    /// row.
    Set {
        /// Name of the setting.
        name: String,
        /// The new value, as text.
        value: String,
    },
    /// Adds a rule, now and in the rules file; answered by [`crate::Response::Done`].
    RulesAdd {
        /// Chain of the rule.
        chain: Chain,
        /// Policy of the rule.
        policy: Policy,
        /// The rule.
        #[serde(deserialize_with = "known_fields_only")]
        rule: Rule,
    },
    /// Removes a rule; answered by [`crate::Response::Done`].
    RulesDelete {
        /// Chain of the rule.
        chain: Chain,
        /// Policy of the rule.
        policy: Policy,
        /// Number or match of the rule.
        which: RuleSelector,
    },
    /// The rules of a chain and a policy; answered by [`crate::Response::Rules`].
    RulesList {
        /// Chain of the listed rules; `None` means both chains.
        chain: Option<Chain>,
        /// Policy of the listed rules; `None` means both policies.
        policy: Option<Policy>,
    },
    /// Removes all rules and all learned entries; answered by [`crate::Response::Done`].
    RulesFlush,
    /// Replaces all rules, now and in the rules file. Changes nothing if a line is not valid or the text has no rule. Answered by
    /// [`crate::Response::Done`].
    RulesRestore {
        /// The rules in the syntax of the rules file: one rule per line, as `-A -c CHAIN -p POLICY ...`.
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
    /// Turns automatic configuration on for the whole host, like the second paper's socket option SO_SHIM_RULE_AUTO_EN. Answered by
    /// [`crate::Response::Done`].
    RuleAutoEn,
    /// Turns automatic configuration off for the whole host, like the socket option SO_SHIM_RULE_AUTO_DIS. Answered by
    /// [`crate::Response::Done`].
    RuleAutoDis,
    /// Forgets the learned entries of a host; answered by [`crate::Response::Done`].
    Forget {
        /// The host.
        address: IpAddr,
    },
    /// This host's public key; answered by [`crate::Response::HostKey`].
    HostKey,
    /// The known peers; answered by [`crate::Response::Peers`].
    Peers,
    /// Records the key of a host for its addresses; answered by [`crate::Response::Done`].
    PeersAdd {
        /// Key of the host.
        key: HostKeyText,
        /// Local name of the host, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Addresses of the host.
        addresses: Vec<IpAddr>,
    },
    /// Records that people at both ends have compared the words of an association. Answered by [`crate::Response::Done`].
    PeersPair {
        /// The other host's key.
        key: HostKeyText,
        /// Local name of the host, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Forgets a known peer; the next connection to the peer accepts any key. Answered by [`crate::Response::Done`].
    PeersForget {
        /// Name, key or one of the addresses of the peer.
        which: String,
    },
    /// Reads configuration and rules files again; answered by [`crate::Response::Done`].
    Reload,
    /// Stops the daemon. The answer, [`crate::Response::Done`], arrives before the daemon ends.
    Shutdown,
    /// Carries new connections over TCP from now on. The daemon can then be stopped after the open connections have ended. Answered by
    /// [`crate::Response::Done`].
    Drain,
    /// Captures the packets of the daemon's carriers from now on. Answered by [`crate::Response::Done`]. After the answer, the connection
    /// carries a pcapng file until the duration has passed or the client closes the connection.
    Capture {
        /// Duration in seconds.
        seconds: u32,
    },
    /// Enables SCTP for one of the user's listeners, although no rule enables it (the papers' SHIM_ENABLE_MANUAL of a server). Answered by
    /// [`crate::Response::Done`]. SCTP stays enabled until the client closes the connection or sends more data, or until the listener ends.
    /// The daemon then closes the connection. Users other than root need the setting `manual_listen`.
    Expose {
        /// Address on which the program listens; `None` means all of the user's listeners on this port.
        address: Option<IpAddr>,
        /// TCP port of the listener.
        port: u16,
    },
    /// The daemon's findings; answered by [`crate::Response::Doctor`].
    Doctor {
        /// Peer whose route is checked in addition, if any.
        peer: Option<IpAddr>,
    },
}

/// Selects a rule of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSelector {
    /// The rule with this number, from 1.
    Number(usize),
    /// The rule with this address and these ports. All other properties of the rule are ignored.
    Match(#[serde(deserialize_with = "known_fields_only")] Rule),
}

/// Reads a rule, and refuses fields that rules do not have. Otherwise a misspelt `require` would silently permit plain TCP. [`Rule`] itself
/// ignores unknown fields, because a later daemon may report more of them.
fn known_fields_only<'de, D: Deserializer<'de>>(from: D) -> Result<Rule, D::Error> {
    let given = Map::deserialize(from)?;
    let rule = Rule::deserialize(&Value::Object(given.clone())).map_err(D::Error::custom)?;
    refuse_unknown("a rule", &given, &rule).map_err(D::Error::custom)?;
    Ok(rule)
}

/// Refuses fields that the type of `read` does not have. A known field of `given` either has its default value or is written again.
fn refuse_unknown(
    what: &str,
    given: &Map<String, Value>,
    read: &impl Serialize,
) -> Result<(), serde_json::Error> {
    let written = serde_json::to_value(read)?;
    let is_default = |value: &Value| matches!(value, Value::Null | Value::Bool(false));
    match given.iter().find(|(name, value)| written.get(name).is_none() && !is_default(value)) {
        Some((name, _)) => Err(serde_json::Error::custom(format!("{what} has no field `{name}`"))),
        None => Ok(()),
    }
}

impl Request {
    /// Reads a request from its JSON object. Also refuses fields of requests that have none, which serde would ignore.
    pub(crate) fn read(given: Map<String, Value>) -> Result<Request, serde_json::Error> {
        let request = Request::deserialize(&Value::Object(given.clone()))?;
        refuse_unknown("this request", &given, &request)?;
        Ok(request)
    }

    /// Reports whether the request only reads. All users who can open the control socket may make such requests.
    pub fn is_read_only(&self) -> bool {
        match self {
            Request::Status | Request::Paths | Request::Explain { .. } | Request::Settings => true,
            Request::Events { .. } | Request::History => true,
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

    /// Reports whether the request is the last one on its connection. The data after its answer is not another answer.
    pub fn is_last(&self) -> bool {
        matches!(self, Request::Capture { .. } | Request::Expose { .. })
    }
}
