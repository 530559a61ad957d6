//! Reasons why a connection is plain TCP.

use std::fmt;
use std::net::IpAddr;

use rules::{Because, Chain, Decision, Failure, print_rule};
use serde::{Deserialize, Serialize};

use crate::HostKeyText;

/// The reason why a connection is not carried over SCTP. `Display` gives a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FallbackReason {
    /// The peer did not answer before the race timer ended.
    NoSctpAnswer {
        /// Time that the connection waited, in milliseconds.
        waited_ms: u64,
    },
    /// The peer answered none of the INITs (setting `init_rtx_max`).
    InitUnanswered {
        /// Number of INITs sent over each encapsulation.
        inits: u32,
    },
    /// An ICMP message, or this host's routing, reports that the peer cannot be reached over SCTP.
    IcmpUnreachable {
        /// The message, such as "port unreachable" or "host unreachable".
        message: String,
    },
    /// The peer answered with an ABORT: no program listens for SCTP there, or the peer refuses the association.
    PeerAborted {
        /// The cause in the ABORT, or [`FallbackReason::NO_CAUSE`].
        cause: String,
    },
    /// A rule of this host keeps the connection on TCP.
    LocalRule {
        /// The chain of the rule.
        chain: Chain,
        /// Number of the rule, from 1.
        number: usize,
        /// The rule, as `shimrules` prints it.
        rule: String,
    },
    /// No rule of this host enables the connection, so the default policy keeps it on TCP.
    DefaultPolicy {
        /// The chain whose default policy applies.
        chain: Chain,
    },
    /// The setting `enable` is 0.
    DisabledGlobally,
    /// The destination is cached as not supporting SCTP.
    Learned {
        /// Outcome of the last attempt or probe.
        failure: Failure,
    },
    /// The destination is this host itself.
    LoopbackOrOwnAddress,
    /// The socket is bound to a network device. The shim cannot divert such a connection.
    DeviceBoundSocket,
    /// The source address does not belong to this host: another transparent proxy made the connection.
    ForeignSource,
    /// The client's port is below 1024. Over UDP, no peer trusts such a port without a key.
    PrivilegedPort {
        /// The port.
        port: u16,
    },
    /// The setting `interfaces` or `link` excludes the source address of the connection.
    InterfaceLeftOut {
        /// The excluded address.
        address: IpAddr,
    },
    /// The association came up and failed before the connection could use it.
    AssociationFailed {
        /// The cause of the failure.
        cause: String,
    },
    /// This host shares a key with the destination, but the handshake did not prove the key.
    KeyNotProved {
        /// The hosts for which this host has the key: a prefix, or "all hosts".
        key_for: String,
        /// The fault found.
        found: KeyFault,
    },
    /// The association lacks the encryption that rules and settings require.
    NotEncrypted {
        /// The fault found.
        found: EncryptionFault,
    },
    /// The connection failed instead of using TCP.
    Required {
        /// The rule or setting that forbids plain TCP.
        by: Requirement,
        /// The reason why the connection was not carried over SCTP.
        cause: Box<FallbackReason>,
    },
    /// A limit of the daemon was reached.
    LimitReached {
        /// The limit, such as "associations" or "held connections".
        limit: String,
    },
    /// The daemon is stopping and takes no new connections.
    DaemonStopping,
    /// An operation on this host failed.
    LocalError {
        /// The error.
        error: String,
    },
}

impl FallbackReason {
    /// Returns the name of the kind in JSON. For a refused connection ([`FallbackReason::Required`]), returns the kind of the cause.
    pub fn kind(&self) -> &'static str {
        match self {
            FallbackReason::NoSctpAnswer { .. } => "no_sctp_answer",
            FallbackReason::InitUnanswered { .. } => "init_unanswered",
            FallbackReason::IcmpUnreachable { .. } => "icmp_unreachable",
            FallbackReason::PeerAborted { .. } => "peer_aborted",
            FallbackReason::LocalRule { .. } => "local_rule",
            FallbackReason::DefaultPolicy { .. } => "default_policy",
            FallbackReason::DisabledGlobally => "disabled_globally",
            FallbackReason::Learned { .. } => "learned",
            FallbackReason::LoopbackOrOwnAddress => "loopback_or_own_address",
            FallbackReason::DeviceBoundSocket => "device_bound_socket",
            FallbackReason::ForeignSource => "foreign_source",
            FallbackReason::PrivilegedPort { .. } => "privileged_port",
            FallbackReason::InterfaceLeftOut { .. } => "interface_left_out",
            FallbackReason::AssociationFailed { .. } => "association_failed",
            FallbackReason::KeyNotProved { .. } => "key_not_proved",
            FallbackReason::NotEncrypted { .. } => "not_encrypted",
            FallbackReason::Required { cause, .. } => cause.kind(),
            FallbackReason::LimitReached { .. } => "limit_reached",
            FallbackReason::DaemonStopping => "daemon_stopping",
            FallbackReason::LocalError { .. } => "local_error",
        }
    }
}

/// Rule or setting that forbids plain TCP for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requirement {
    /// A rule requires SCTP (`--require`, `--secure require`).
    Rule,
    /// The setting `encryption=require`. It forbids plain TCP to a host that has a known key or may be an impostor.
    Encryption,
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Requirement::Rule => "a rule requires SCTP",
            Requirement::Encryption => "encryption=require forbids plain TCP to a host with a known key",
        })
    }
}

/// Evidence, found in a handshake, that two hosts do not have the same key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyFault {
    /// The peer answered the INIT, but not the chunk that was signed with our key. The peer has another key, or none for this host.
    Unanswered,
    /// The peer offers no authentication.
    PeerHasNone,
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyFault::Unanswered => {
                "the peer did not answer packets signed with this host's key, so it has another key or none"
            }
            KeyFault::PeerHasNone => "the peer offers no authentication",
        })
    }
}

/// Reasons why an association does not have the required encryption.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum EncryptionFault {
    /// This host requires encryption, and the peer offers none.
    PeerHasNone,
    /// The peer requires encryption, and this host offers none.
    PeerRequires,
    /// The hosts agreed on no keys.
    NoKeys {
        /// The failure.
        cause: String,
    },
    /// The peer has another key than the known key of its address.
    OtherKey {
        /// The known key.
        known: HostKeyText,
        /// The key found.
        found: HostKeyText,
    },
    /// The peer offers no encryption, although it had a key before.
    KeyGone {
        /// The known key.
        known: HostKeyText,
    },
    /// A rule requires encryption, but the setting `encryption` turns encryption off.
    OffHere,
    /// The rules or keys changed while the connection was opened. They now require encryption, another peer or another key.
    RulesChanged,
    /// A rule requires a peer that is not known.
    UnknownPeer {
        /// Name or key of the required peer.
        peer: String,
    },
    /// The peer is not the one that a rule requires.
    NotThePeer {
        /// The key that the rule requires.
        required: HostKeyText,
        /// The key found.
        found: HostKeyText,
    },
}

impl EncryptionFault {
    /// Reports whether the peer may be another host than before.
    pub fn is_suspicious(&self) -> bool {
        matches!(self, EncryptionFault::OtherKey { .. } | EncryptionFault::KeyGone { .. })
    }
}

impl fmt::Display for EncryptionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use EncryptionFault as E;
        match self {
            E::PeerHasNone => {
                f.write_str("the peer offers no encryption, which this host requires (setting encryption, or a rule's --secure)")
            }
            E::PeerRequires => {
                f.write_str("the peer requires encryption, which is off here (setting encryption)")
            }
            E::NoKeys { cause } => write!(f, "the hosts agreed on no keys: {cause}"),
            E::OtherKey { known, found } => write!(
                f,
                "the peer has the key {found}, not {known} as before: it may be another host. If the change is right: sctpify \
                 peers forget ADDRESS"
            ),
            E::KeyGone { known } => write!(
                f,
                "the peer offers no encryption, and had the key {known} before: it may be another host. If the change is right: \
                 sctpify peers forget ADDRESS"
            ),
            E::OffHere => f.write_str(
                "the rule requires encryption (--secure), and the setting encryption=off turns it off on this host",
            ),
            E::RulesChanged => {
                f.write_str("the rules or keys have come to require encryption, another peer or another key while it was opened")
            }
            E::UnknownPeer { peer } => {
                write!(f, "the rule requires the peer {peer} (--secure), and none is known by that name or key (sctpify peers)")
            }
            E::NotThePeer { required, found } => {
                write!(f, "the peer has the key {found}, and the rule requires the one with {required} (--secure)")
            }
        }
    }
}

impl FallbackReason {
    /// Cause text for an ABORT without a cause.
    pub const NO_CAUSE: &str = "no cause given";
    /// Cause text that sctpify sends if no program listens, or if no rule allows the connection. Unknown hosts must not learn which case
    /// applies.
    pub const NOT_SERVED: &str = "no program listens there";

    /// Returns the reason why a decision keeps a connection on TCP; `None` if the decision allows SCTP.
    pub fn from_decision(decision: &Decision) -> Option<FallbackReason> {
        if decision.policy.is_enable() {
            return None;
        }
        Some(match &decision.because {
            Because::DisabledGlobally => FallbackReason::DisabledGlobally,
            Because::Default(chain) => FallbackReason::DefaultPolicy { chain: *chain },
            Because::Rule { chain, number, rule, .. } => {
                FallbackReason::LocalRule { chain: *chain, number: *number, rule: print_rule(rule) }
            }
        })
    }

    /// Reports whether the peer may be another host than before.
    pub fn is_suspicious(&self) -> bool {
        match self {
            FallbackReason::NotEncrypted { found } => found.is_suspicious(),
            FallbackReason::Required { cause, .. } => cause.is_suspicious(),
            _ => false,
        }
    }

    /// Reports whether the reason is a rule, a default policy or the setting `enable` of this host. SCTP was then not tried.
    pub fn is_of_rules(&self) -> bool {
        use FallbackReason as R;
        matches!(self, R::LocalRule { .. } | R::DefaultPolicy { .. } | R::DisabledGlobally)
    }
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FallbackReason as R;
        match self {
            R::NoSctpAnswer { waited_ms } => {
                write!(f, "the peer did not answer over SCTP within {waited_ms} ms")
            }
            R::InitUnanswered { inits } => write!(f, "the peer answered none of {inits} INITs"),
            R::IcmpUnreachable { message } => write!(f, "the peer is unreachable over SCTP: {message}"),
            R::PeerAborted { cause } => {
                write!(f, "the peer refused SCTP with an ABORT ({cause})")?;
                match cause.as_str() {
                    R::NO_CAUSE | R::NOT_SERVED => f.write_str(
                        ": no program listens at that port, or no rule there allows it (`sctpify rule add` there)",
                    ),
                    _ => Ok(()),
                }
            }
            R::LocalRule { chain, number, rule } if rule.is_empty() => {
                write!(f, "rule {number} of {chain}-disable keeps all connections on TCP")
            }
            R::LocalRule { chain, number, rule } => {
                write!(f, "rule {number} of {chain}-disable keeps it on TCP: {rule}")
            }
            R::DefaultPolicy { chain } => {
                write!(f, "no rule of {chain}-enable matches, and the default of {chain} is disable")
            }
            R::DisabledGlobally => f.write_str("sctpify is disabled (setting enable=0)"),
            R::Learned { failure } => {
                write!(f, "the destination is cached as not supporting SCTP ({failure})")
            }
            R::LoopbackOrOwnAddress => f.write_str("the destination is this host itself"),
            R::DeviceBoundSocket => f.write_str("the program bound its socket to a network device"),
            R::ForeignSource => {
                f.write_str("the source address is not one of this host (another proxy's connection)")
            }
            R::PrivilegedPort { port } => write!(
                f,
                "the client's port {port} is below 1024, which a peer accepts only over IP protocol 132 or with a key"
            ),
            R::InterfaceLeftOut { address } => {
                write!(f, "the settings exclude {address} of this host (interfaces, link)")
            }
            R::AssociationFailed { cause } => {
                write!(f, "the association failed while it was set up: {cause}")
            }
            R::KeyNotProved { key_for, found } => {
                write!(f, "{found} (setting peer_keys, the key for {key_for})")
            }
            R::NotEncrypted { found } => write!(f, "{found}"),
            R::Required { cause, .. } if cause.is_suspicious() => write!(f, "refused: {cause}"),
            R::Required { by, cause } => write!(f, "refused, because {by}: {cause}"),
            R::LimitReached { limit } => write!(f, "the daemon is at its limit of {limit}"),
            R::DaemonStopping => f.write_str("sctpifyd is stopping"),
            R::LocalError { error } => write!(f, "internal failure on this host: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::{Rulebook, Settings, parse_table};

    #[test]
    fn a_decision_to_stay_on_tcp_gives_its_reason_and_one_to_enable_gives_none() {
        let settings = Settings { default_remote_enable: true, ..Settings::default() };
        let table = parse_table("-A -c remote -p disable -P 22\n").unwrap();
        let book = Rulebook::new(settings, table);
        let reason = |port| {
            FallbackReason::from_decision(&book.explain(Chain::Remote, "10.0.0.1".parse().unwrap(), port))
        };
        assert_eq!(reason(22).unwrap().to_string(), "rule 1 of remote-disable keeps it on TCP: -P 22");
        assert_eq!(reason(23), None);
    }

    #[test]
    fn the_default_policy_names_its_chain() {
        let decision = Rulebook::default().explain(Chain::Local, "10.0.0.1".parse().unwrap(), 1);
        let reason = FallbackReason::from_decision(&decision);
        assert_eq!(reason, Some(FallbackReason::DefaultPolicy { chain: Chain::Local }));
    }
}
