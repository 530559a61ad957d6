//! The states of an association (RFC 9260 section 4), each with the data that is valid only in this state.

use base::Time;
use bytes::Bytes;

use super::Opening;
use crate::info::StateName;
use crate::path::PathIndex;

/// A retransmission timer: its expiry time, and the number of retransmissions so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub(crate) at: Time,
    pub(crate) count: u8,
}

/// State of an association after the exchange of INIT and INIT ACK.
#[derive(Debug)]
pub(crate) enum State {
    /// The INIT ACK has arrived, but COOKIE ECHO is not queued yet. Lasts for one function call.
    CookieWaitOver,
    /// COOKIE ECHO was sent. `opening` is used for a new INIT if the cookie is stale. If a message accompanies the
    /// COOKIE ECHO, `says_first` is true until the first COOKIE ECHO is written.
    CookieEchoed { cookie: Bytes, t1: Retry, opening: Box<Opening>, says_first: bool },
    /// A valid cookie has arrived. The driver has not decided yet whether to accept the association.
    Accepting,
    /// The association is established, and neither end has begun a shutdown.
    Established,
    /// The driver has requested shutdown; data is outstanding.
    ShutdownPending,
    /// SHUTDOWN was sent, most recently on the path `by`. `guard` is the expiry of T5.
    ShutdownSent { t2: Retry, by: PathIndex, guard: Time },
    /// SHUTDOWN was received, and data is outstanding. With the setting `takes_late_messages`, `takes_messages` is true
    /// until the driver requests shutdown.
    ShutdownReceived { takes_messages: bool },
    /// SHUTDOWN ACK was sent, most recently on the path `by`. `guard` is the expiry of T5.
    ShutdownAckSent { t2: Retry, by: PathIndex, guard: Time },
    /// The association has ended.
    Closed,
}

impl State {
    pub(crate) fn name(&self) -> StateName {
        match self {
            State::CookieWaitOver => StateName::CookieWait,
            State::CookieEchoed { .. } => StateName::CookieEchoed,
            State::Accepting => StateName::Accepting,
            State::Established => StateName::Established,
            State::ShutdownPending => StateName::ShutdownPending,
            State::ShutdownSent { .. } => StateName::ShutdownSent,
            State::ShutdownReceived { .. } => StateName::ShutdownReceived,
            State::ShutdownAckSent { .. } => StateName::ShutdownAckSent,
            State::Closed => StateName::Closed,
        }
    }

    /// Reports whether the driver may submit new messages.
    //= rfc9260#9.2-21
    pub(crate) fn takes_data_to_send(&self) -> bool {
        matches!(self, State::Accepting | State::Established)
    }

    /// Reports whether messages of the driver are accepted. With the setting `takes_late_messages`, the driver may
    /// submit messages that it already had, even after the peer's SHUTDOWN.
    pub(crate) fn takes_messages(&self) -> bool {
        self.takes_data_to_send() || matches!(self, State::ShutdownReceived { takes_messages: true })
    }

    /// Returns whether DATA may be sent.
    //= rfc9260#6-1
    pub(crate) fn sends_data(&self) -> bool {
        matches!(self, State::Established | State::ShutdownPending | State::ShutdownReceived { .. })
    }

    /// Reports whether the current packet may contain new DATA. The packet with the first COOKIE ECHO may.
    //= rfc9260#section-5.1
    //# the COOKIE ECHO chunk MAY be bundled with any pending outbound DATA chunks, but it MUST be the first chunk in the packet
    pub(crate) fn sends_new_data(&self) -> bool {
        self.sends_data() || self.says_first()
    }

    /// Reports whether the next COOKIE ECHO is the first one, and a message accompanies it.
    pub(crate) fn says_first(&self) -> bool {
        matches!(self, State::CookieEchoed { says_first: true, .. })
    }

    /// Marks the first COOKIE ECHO as written.
    pub(crate) fn end_first(&mut self) {
        if let State::CookieEchoed { says_first, .. } = self {
            *says_first = false;
        }
    }

    /// Returns whether DATA is accepted (RFC 9260 section 6).
    //= rfc9260#6-2
    pub(crate) fn receives_data(&self) -> bool {
        matches!(
            self,
            State::Accepting | State::Established | State::ShutdownPending | State::ShutdownSent { .. }
        )
    }

    /// Returns whether SACKs may be sent.
    pub(crate) fn acknowledges(&self) -> bool {
        self.receives_data() && !matches!(self, State::Accepting)
    }

    /// Returns whether requests about streams (RFC 6525) and addresses (RFC 5061 section 5.1.1, C4) are
    /// answered.
    pub(crate) fn answers_requests(&self) -> bool {
        matches!(
            self,
            State::Established
                | State::ShutdownPending
                | State::ShutdownSent { .. }
                | State::ShutdownReceived { .. }
        )
    }

    /// Returns whether paths are probed (RFC 9260 section 8.3).
    pub(crate) fn probes_paths(&self) -> bool {
        matches!(self, State::Established | State::ShutdownPending | State::ShutdownReceived { .. })
    }
}
