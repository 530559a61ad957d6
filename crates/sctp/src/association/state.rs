//! The states of an association (RFC 9260 section 4), each with what is true only in it.

use base::Time;
use bytes::Bytes;

use super::Opening;
use crate::info::StateName;

/// A retransmission timer with its count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub(crate) at: Time,
    pub(crate) count: u8,
}

/// State of an association beyond its INIT.
#[derive(Debug)]
pub(crate) enum State {
    /// The INIT ACK has come; nothing was sent yet. Lasts for one function call.
    CookieWaitOver,
    /// COOKIE ECHO sent; `opening` serves to begin again if the cookie is stale. `says_first` until it has gone out once with
    /// the message that was given with the command to connect.
    CookieEchoed { cookie: Bytes, t1: Retry, opening: Box<Opening>, says_first: bool },
    /// A good cookie came; the driver has not decided.
    Accepting,
    /// Up.
    Established,
    /// The driver wants to end it; data is outstanding.
    ShutdownPending,
    /// SHUTDOWN sent; `guard` is T5.
    ShutdownSent { t2: Retry, guard: Time },
    /// SHUTDOWN received; data is outstanding.
    ShutdownReceived,
    /// SHUTDOWN ACK sent.
    ShutdownAckSent { t2: Retry, guard: Time },
    /// Over.
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
            State::ShutdownReceived => StateName::ShutdownReceived,
            State::ShutdownAckSent { .. } => StateName::ShutdownAckSent,
            State::Closed => StateName::Closed,
        }
    }

    /// Whether the driver may hand over more to send.
    //= rfc9260#9.2-21
    pub(crate) fn takes_data_to_send(&self) -> bool {
        matches!(self, State::Accepting | State::Established)
    }

    /// Whether DATA may leave.
    //= rfc9260#6-1
    pub(crate) fn sends_data(&self) -> bool {
        matches!(self, State::Established | State::ShutdownPending | State::ShutdownReceived)
    }

    /// Whether new DATA may be in the packet that is written: behind the first COOKIE ECHO, too.
    //= rfc9260#section-5.1
    //# the COOKIE ECHO chunk MAY be bundled with any pending outbound DATA chunks, but it MUST be the first chunk in the packet
    pub(crate) fn sends_new_data(&self) -> bool {
        self.sends_data() || self.says_first()
    }

    /// Whether the COOKIE ECHO that is next is the first, and the driver's message goes with it.
    pub(crate) fn says_first(&self) -> bool {
        matches!(self, State::CookieEchoed { says_first: true, .. })
    }

    /// The packet with the first COOKIE ECHO has been written.
    pub(crate) fn end_first(&mut self) {
        if let State::CookieEchoed { says_first, .. } = self {
            *says_first = false;
        }
    }

    /// Whether DATA is taken (RFC 9260 section 6).
    //= rfc9260#6-2
    pub(crate) fn receives_data(&self) -> bool {
        matches!(
            self,
            State::Accepting | State::Established | State::ShutdownPending | State::ShutdownSent { .. }
        )
    }

    /// Whether SACKs may leave.
    pub(crate) fn acknowledges(&self) -> bool {
        self.receives_data() && !matches!(self, State::Accepting)
    }

    /// Whether requests about streams (RFC 6525) and addresses (RFC 5061 section 5.1.1, C4) are answered.
    pub(crate) fn answers_requests(&self) -> bool {
        matches!(
            self,
            State::Established
                | State::ShutdownPending
                | State::ShutdownSent { .. }
                | State::ShutdownReceived
        )
    }

    /// Whether paths are probed (RFC 9260 section 8.3).
    pub(crate) fn probes_paths(&self) -> bool {
        matches!(self, State::Established | State::ShutdownPending | State::ShutdownReceived)
    }
}
