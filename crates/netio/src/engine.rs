//! What carriers report of paths, in the engine's words.

use sctp::PathError;

use crate::error::{PathErrorKind, SendErrorKind, Unreachable};

/// The smallest MTU that SCTP can work with, for links that do not tell theirs.
const MTU_FALLBACK: u16 = 1280;

impl SendErrorKind {
    /// What a refused send says about the path, if anything.
    pub fn path_error(self) -> Option<PathError> {
        match self {
            SendErrorKind::NoRoute | SendErrorKind::NoCarrier => Some(PathError::NoRoute),
            SendErrorKind::Forbidden => Some(PathError::Unreachable(sctp::Unreachable::Prohibited)),
            SendErrorKind::TooLarge { mtu } => Some(PathErrorKind::FragmentationNeeded { mtu }.into()),
            SendErrorKind::Full | SendErrorKind::Other => None,
        }
    }
}

impl From<PathErrorKind> for PathError {
    fn from(kind: PathErrorKind) -> PathError {
        match kind {
            PathErrorKind::FragmentationNeeded { mtu } => {
                let mtu = mtu.and_then(|mtu| u16::try_from(mtu).ok()).unwrap_or(MTU_FALLBACK);
                PathError::TooBig { mtu }
            }
            PathErrorKind::Unreachable(what) => PathError::Unreachable(match what {
                Unreachable::Network | Unreachable::Host => sctp::Unreachable::Host,
                Unreachable::Protocol => sctp::Unreachable::Protocol,
                Unreachable::Port => sctp::Unreachable::Port,
                Unreachable::Admin => sctp::Unreachable::Prohibited,
            }),
        }
    }
}
