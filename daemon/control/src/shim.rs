//! The papers' shim states and their transitions (section IV and Figure 4 of the first paper).
//!
//! | the paper's kernel | here |
//! |---|---|
//! | a TCP socket with a hidden SCTP socket | a local program's connection with an association |
//! | `socket()` made the hidden socket | the daemon examines the connection, or finds the listener |
//! | a socket option enables the shim | a connection's packets carry the mark of setting `manual_mark`; for a listener, its program sends a request to the control socket ([`crate::Request::Expose`]) |
//! | `listen()` on the hidden socket | INITs for the listener are answered |
//!
//! Invariant: only [`ShimState::after`] leads from one state to another, and no step leads to or from HIDDEN and NATIVE.

use serde::{Deserialize, Serialize};

/// A shim state, named as in the paper without `SHIM_`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ShimState {
    /// The connection or listener is not examined yet, or sctpify is switched off.
    #[default]
    Notinit,
    /// The connection or listener is examined, but SCTP is not in use. Either SCTP is not allowed, or it was tried and the connection is
    /// plain TCP.
    Ready,
    /// The connection's mark, or the listener's program, requests SCTP, although no rule allows it.
    EnableManual,
    /// The rules allow SCTP, but it is not in use yet. A listener stays in this state while SCTP clients cannot reach it.
    EnableSrules,
    /// The connection is carried over SCTP.
    Active,
    /// A listener that both SCTP clients and TCP clients can reach.
    Listen,
    /// The association that carries the connection of a local client.
    Hidden,
    /// The connection of an SCTP client to a local listener.
    Native,
}

/// A step from one shim state to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShimStep {
    /// The daemon examines the connection or listener.
    Created,
    /// The connection's mark, or the listener's program, requests SCTP.
    AskedFor,
    /// The rules allow SCTP.
    Allowed,
    /// The association is up.
    Associated,
    /// No association exists: the connection is plain TCP.
    Failed,
    /// SCTP clients reach the listener.
    Listens,
}

impl ShimState {
    /// All states.
    pub const ALL: [ShimState; 8] = [
        ShimState::Notinit,
        ShimState::Ready,
        ShimState::EnableManual,
        ShimState::EnableSrules,
        ShimState::Active,
        ShimState::Listen,
        ShimState::Hidden,
        ShimState::Native,
    ];

    /// Returns the state to which this step leads; `None` if the step is not possible in this state.
    pub const fn after(self, step: ShimStep) -> Option<ShimState> {
        use ShimState as S;
        Some(match (self, step) {
            (S::Notinit, ShimStep::Created) => S::Ready,
            (S::Ready, ShimStep::AskedFor) => S::EnableManual,
            (S::Ready, ShimStep::Allowed) => S::EnableSrules,
            (S::EnableManual | S::EnableSrules, ShimStep::Associated) => S::Active,
            (S::EnableManual | S::EnableSrules, ShimStep::Failed) => S::Ready,
            (S::EnableManual | S::EnableSrules, ShimStep::Listens) => S::Listen,
            _ => return None,
        })
    }

    /// Returns the state's name in the paper, without `SHIM_`.
    pub const fn name(self) -> &'static str {
        match self {
            ShimState::Notinit => "NOTINIT",
            ShimState::Ready => "READY",
            ShimState::EnableManual => "ENABLE_MANUAL",
            ShimState::EnableSrules => "ENABLE_SRULES",
            ShimState::Active => "ACTIVE",
            ShimState::Listen => "LISTEN",
            ShimState::Hidden => "HIDDEN",
            ShimState::Native => "NATIVE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ShimState::{self as S, *};
    use super::ShimStep::{self, *};

    const STEPS: [ShimStep; 6] = [Created, AskedFor, Allowed, Associated, Failed, Listens];

    /// The arrows of Figure 4, and the return to READY, which section V describes. No other transition exists.
    const FIGURE_4: [(S, ShimStep, S); 9] = [
        (Notinit, Created, Ready),
        (Ready, AskedFor, EnableManual),
        (Ready, Allowed, EnableSrules),
        (EnableManual, Associated, Active),
        (EnableSrules, Associated, Active),
        (EnableManual, Failed, Ready),
        (EnableSrules, Failed, Ready),
        (EnableManual, Listens, Listen),
        (EnableSrules, Listens, Listen),
    ];

    #[test]
    fn state_transitions_are_exactly_those_of_figure_4() {
        for state in S::ALL {
            for step in STEPS {
                let arrow = FIGURE_4.iter().find(|(from, by, _)| (*from, *by) == (state, step));
                assert_eq!(state.after(step), arrow.map(|(_, _, to)| *to), "{state:?} {step:?}");
            }
        }
    }

    #[test]
    fn states_hidden_and_native_have_no_transitions() {
        let ends = [Hidden, Native];
        let reached = S::ALL.iter().flat_map(|from| STEPS.map(|step| (*from, from.after(step))));
        assert!(
            reached
                .into_iter()
                .all(|(from, to)| to.is_none_or(|to| !ends.contains(&from) && !ends.contains(&to)))
        );
    }

    #[test]
    fn names_of_states_match_json() {
        for state in S::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
