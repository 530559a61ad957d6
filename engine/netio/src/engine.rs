//! Conversion of an engine's packets for the carriers, and of their reports on paths for the engine.

use base::Time;
use sctp::{Endpoint, PathError, Transmit};

use crate::error::{PathErrorKind, SendError, SendErrorKind, Unreachable};
use crate::train::Train;

/// The smallest MTU that SCTP can work with, for links that do not tell theirs.
const MTU_FALLBACK: u16 = 1280;

impl<'a> Train<'a> {
    /// Returns the packets that an engine has written into `packets`, from `start` on.
    pub fn of(
        transmit: &Transmit,
        packets: &'a [u8],
        start: usize,
        source_ifindex: Option<u32>,
    ) -> Train<'a> {
        Train {
            route: transmit.route,
            source_ifindex,
            ecn: transmit.ecn,
            segment_size: transmit.segment_size,
            may_fragment: transmit.may_fragment,
            bytes: &packets[start..transmit.len],
        }
    }
}

impl SendError {
    /// Tells the engine that wants `train` sent what this says about the path, if anything.
    pub fn tell(&self, train: &Train<'_>, engine: &mut Endpoint, now: Time) {
        if let Some(what) = self.kind.path_error() {
            let unsent = train.bytes[self.sent..].chunks(train.segment_size).next().unwrap_or_default();
            engine.handle_path_error(now, &train.route, what, unsent);
        }
    }
}

impl SendErrorKind {
    /// Returns a refused send's report about the path, if any.
    fn path_error(self) -> Option<PathError> {
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
