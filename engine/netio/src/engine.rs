//! Converts an engine's packets into trains for the carriers, and converts the carriers' errors into reports for the engine.

use base::Time;
use sctp::{Endpoint, PathError, Transmit};

use crate::error::{PathErrorKind, SendError, SendErrorKind, Unreachable};
use crate::train::Train;

/// MTU in bytes that is assumed if a link does not report its MTU.
const MTU_FALLBACK: u16 = 1280;

impl<'a> Train<'a> {
    /// Returns a train of the packets that an engine has written into `packets`, from byte `start` on.
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
    /// Reports this error to the engine that sends `train`, if the error concerns the path.
    pub fn tell(&self, train: &Train<'_>, engine: &mut Endpoint, now: Time) {
        if let Some(what) = self.kind.path_error() {
            let unsent = train.bytes[self.sent..].chunks(train.segment_size).next().unwrap_or_default();
            engine.handle_path_error(now, &train.route, what, unsent);
        }
    }
}

impl SendErrorKind {
    /// Returns the report about the path that this error implies, if any.
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
