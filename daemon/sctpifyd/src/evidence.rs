//! Interprets the end of an association that carried no bytes: its evidence about the destination, and the reason reported to users.

use control::{FallbackReason, KeyFault};
use rules::Failure;
use sctp::{AbortCause, CloseReason, Unreachable};

use crate::encryption::fault_of;

/// Returns the evidence that the end of an unused association gives about its destination. The engine has verified this end: an ABORT
/// carried this host's verification tag, or an ICMP message quoted the tag.
pub(crate) fn evidence(reason: &CloseReason, was_answered: bool) -> Option<Failure> {
    match reason {
        CloseReason::Unreachable(Unreachable::Port) => Some(Failure::PortUnreachable),
        CloseReason::Unreachable(Unreachable::Protocol) => Some(Failure::ProtocolUnreachable),
        CloseReason::Unreachable(Unreachable::Prohibited) => Some(Failure::Prohibited),
        // The host supports SCTP, but requires encryption, which this host does not offer.
        CloseReason::PeerAborted(_) if fault_of(reason).is_some() => None,
        CloseReason::PeerAborted(_) if !was_answered => Some(Failure::Refused),
        CloseReason::PeerAborted(_) | CloseReason::LostContact => Some(Failure::HandshakeFailed),
        CloseReason::NoAnswer => Some(Failure::NoAnswer),
        // TCP cannot reach the destination either, or this host aborted the association.
        CloseReason::Unreachable(Unreachable::Host)
        | CloseReason::Aborted(_)
        | CloseReason::SamePeer(_)
        | CloseReason::Graceful
        | CloseReason::Restarted => None,
    }
}

/// Returns the reason to report. `key_for` names the key that the host should have proven, if any.
pub(crate) fn fallback_reason(reason: &CloseReason, key_for: Option<String>) -> FallbackReason {
    match (reason, key_for) {
        (CloseReason::PeerAborted(cause), _) => FallbackReason::PeerAborted { cause: cause_text(cause) },
        (CloseReason::Unreachable(what), _) => {
            FallbackReason::IcmpUnreachable { message: unreachable_text(*what).to_owned() }
        }
        (CloseReason::Aborted(_), Some(key_for)) => {
            FallbackReason::KeyNotProved { key_for, found: KeyFault::PeerHasNone }
        }
        (CloseReason::SamePeer(_), _) => FallbackReason::AssociationFailed { cause: "SamePeer".to_owned() },
        (other, _) => FallbackReason::AssociationFailed { cause: format!("{other:?}") },
    }
}

/// Describes the cause of an ABORT for users.
fn cause_text(cause: &AbortCause) -> String {
    let reason = String::from_utf8_lossy(&cause.reason);
    match (cause.code, reason.is_empty()) {
        (0, _) => FallbackReason::NO_CAUSE.to_owned(),
        (code, true) => format!("cause {code}"),
        (code, false) => format!("cause {code}: {reason}"),
    }
}

fn unreachable_text(what: Unreachable) -> &'static str {
    match what {
        Unreachable::Host => "host unreachable",
        Unreachable::Protocol => "protocol unreachable",
        Unreachable::Port => "port unreachable",
        Unreachable::Prohibited => "prohibited by a filter",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_is_a_refusal_only_before_the_host_has_answered() {
        let aborted = CloseReason::PeerAborted(AbortCause::user("busy"));
        assert_eq!(evidence(&aborted, false), Some(Failure::Refused));
        assert_eq!(evidence(&aborted, true), Some(Failure::HandshakeFailed));
        assert_eq!(evidence(&CloseReason::Unreachable(Unreachable::Host), false), None);
        let cause = "cause 12: busy".to_owned();
        assert_eq!(fallback_reason(&aborted, None), FallbackReason::PeerAborted { cause });
    }

    #[test]
    fn a_key_is_missed_only_where_this_host_has_given_up() {
        let key_for = || Some("10.0.0.0/8".to_owned());
        let ours = fallback_reason(&CloseReason::Aborted(AbortCause::default()), key_for());
        assert!(matches!(ours, FallbackReason::KeyNotProved { found: KeyFault::PeerHasNone, .. }));
        let lost = fallback_reason(&CloseReason::LostContact, key_for());
        assert_eq!(lost, FallbackReason::AssociationFailed { cause: "LostContact".to_owned() });
    }
}
