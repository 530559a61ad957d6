//! The states of an association (RFC 9260 section 4), each with the data valid only in it.

use base::Time;
use bytes::Bytes;

use super::Opening;
use crate::info::StateName;
use crate::path::PathIndex;

/// A retransmission timer with its count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub(crate) at: Time,
    pub(crate) count: u8,
}

/// State of an association beyond its INIT.
#[derive(Debug)]
pub(crate) enum State {
    /// The INIT ACK has arrived; nothing was sent yet. Lasts for one function call.
    CookieWaitOver,
    /// COOKIE ECHO sent; `opening` serves to restart if the cookie is stale. `says_first` is set until the
    /// COOKIE ECHO has been sent once with the message passed to the connect command.
    CookieEchoed { cookie: Bytes, t1: Retry, opening: Box<Opening>, says_first: bool },
    /// A valid cookie has arrived; the driver has not decided.
    Accepting,
    /// Up.
    Established,
    /// The driver has requested shutdown; data is outstanding.
    ShutdownPending,
    /// SHUTDOWN sent, the last time on the path `by`; `guard` is T5.
    ShutdownSent { t2: Retry, by: PathIndex, guard: Time },
    /// SHUTDOWN received; data is outstanding. `takes_messages` is set until the driver has handed over its last message.
    ShutdownReceived { takes_messages: bool },
    /// SHUTDOWN ACK sent, the last time on the path `by`.
    ShutdownAckSent { t2: Retry, by: PathIndex, guard: Time },
    /// Ended.
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

    /// Returns whether the driver may submit messages.
    //= rfc9260#9.2-21
    pub(crate) fn takes_data_to_send(&self) -> bool {
        matches!(self, State::Accepting | State::Established)
    }

    /// Returns the same, but also for the messages that the driver had when the peer shut down.
    pub(crate) fn takes_messages(&self) -> bool {
        self.takes_data_to_send() || matches!(self, State::ShutdownReceived { takes_messages: true })
    }

    /// Returns whether DATA may be sent.
    //= rfc9260#6-1
    pub(crate) fn sends_data(&self) -> bool {
        matches!(self, State::Established | State::ShutdownPending | State::ShutdownReceived { .. })
    }

    /// Returns whether the current packet may contain new DATA, which includes the one with the first COOKIE
    /// ECHO.
    //= rfc9260#section-5.1
    //# the COOKIE ECHO chunk MAY be bundled with any pending outbound DATA chunks, but it MUST be the first chunk in the packet
    pub(crate) fn sends_new_data(&self) -> bool {
        self.sends_data() || self.says_first()
    }

    /// Returns whether the next COOKIE ECHO is the first and carries the driver's message.
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
