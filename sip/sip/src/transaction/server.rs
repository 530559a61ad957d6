//! Server transactions (RFC 3261 figures 7 and 8, RFC 6026 section 7.1, RFC 4320 section 4.1).

use std::time::Duration;

use base::Time;

use super::{Kind, Timers};

/// The result of [`Server::on_timeout`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerTimeout {
    /// No timer is due.
    Nothing,
    /// No response was sent until timer E of the client reached T2. The user of the transaction must now send 100.
    SayTrying,
    /// The last response must be retransmitted.
    Resend,
    /// No ACK arrived in time, and the transaction has ended.
    NoAck,
    /// The transaction has ended.
    Ended,
}

/// A server transaction, which answers a request.
#[derive(Clone, Debug)]
pub struct Server {
    kind: Kind,
    timers: Timers,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No response was sent.
    Trying {
        say_so: Time,
    },
    Proceeding,
    /// An INVITE was rejected, and its ACK has not arrived.
    Refused {
        resend: Time,
        interval: Duration,
        give_up: Time,
    },
    /// A non-INVITE request was answered, or the ACK for a rejected INVITE has arrived.
    Done {
        until: Time,
    },
    /// An INVITE was accepted.
    Accepted {
        until: Time,
    },
    Ended,
}

impl Server {
    /// Starts a transaction whose request arrived at `now`. For INVITE, the user sends 100 at once, so no timer for a late 100 runs.
    pub fn start(kind: Kind, timers: Timers, now: Time) -> Server {
        let say_so = if kind.is_invite { Time::NEVER } else { now + timers.until_t2() };
        Server { kind, timers, state: State::Trying { say_so } }
    }

    /// Handles a retransmitted request. Returns true if the last response must be sent again.
    pub fn on_request(&self) -> bool {
        match self.state {
            State::Proceeding | State::Refused { .. } => true,
            State::Done { .. } => !self.kind.is_invite,
            // "any retransmissions of the INVITE … are absorbed" (RFC 6026 section 7.1).
            State::Trying { .. } | State::Accepted { .. } | State::Ended => false,
        }
    }

    /// Handles an ACK.
    pub fn on_ack(&mut self, now: Time) {
        if let State::Refused { .. } = self.state {
            self.state = State::Done { until: now + self.kind.unless_reliable(self.timers.t4) };
        }
    }

    /// Reports whether the user may send a response with this status. If the result is true, the state has changed for this response.
    pub fn on_response(&mut self, now: Time, status: u16) -> bool {
        match (self.state, status) {
            (State::Trying { .. } | State::Proceeding, 100..=199) => self.state = State::Proceeding,
            (State::Trying { .. } | State::Proceeding, 200..=299) if self.kind.is_invite => {
                self.state = State::Accepted { until: now + self.timers.long() };
            }
            (State::Trying { .. } | State::Proceeding, _) if self.kind.is_invite => {
                let resend = if self.kind.is_reliable { Time::NEVER } else { now + self.timers.t1 };
                let give_up = now + self.timers.long();
                self.state = State::Refused { resend, interval: self.timers.t1, give_up };
            }
            (State::Trying { .. } | State::Proceeding, _) => {
                self.state = State::Done { until: now + self.kind.unless_reliable(self.timers.long()) };
            }
            (State::Accepted { .. }, 200..=299) => {}
            _ => return false,
        }
        true
    }

    /// Handles the time-out at [`Server::next_timeout`].
    pub fn on_timeout(&mut self, now: Time) -> ServerTimeout {
        match self.state {
            State::Trying { say_so } if now >= say_so => {
                self.state = State::Trying { say_so: Time::NEVER };
                ServerTimeout::SayTrying
            }
            State::Refused { give_up, .. } if now >= give_up => {
                self.state = State::Ended;
                ServerTimeout::NoAck
            }
            State::Refused { resend, interval, give_up } if now >= resend => {
                let interval = (2 * interval).min(self.timers.t2);
                self.state = State::Refused { resend: now + interval, interval, give_up };
                ServerTimeout::Resend
            }
            State::Done { until } | State::Accepted { until } if now >= until => {
                self.state = State::Ended;
                ServerTimeout::Ended
            }
            _ => ServerTimeout::Nothing,
        }
    }

    /// Returns the time at which [`Server::on_timeout`] must be called next.
    pub fn next_timeout(&self) -> Time {
        match self.state {
            State::Refused { resend, give_up, .. } => resend.min(give_up),
            State::Done { until } | State::Accepted { until } => until,
            State::Trying { say_so } => say_so,
            State::Proceeding | State::Ended => Time::NEVER,
        }
    }

    /// Reports whether no final response was sent.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, State::Trying { .. } | State::Proceeding)
    }

    /// Reports whether an INVITE was rejected, and its ACK has not arrived.
    pub fn awaits_ack(&self) -> bool {
        matches!(self.state, State::Refused { .. })
    }

    /// Reports whether the transaction is in the state Accepted: a 2xx to INVITE was sent. The ACK for a 2xx does not change this state
    /// (RFC 6026 section 7.1).
    pub fn is_accepted(&self) -> bool {
        matches!(self.state, State::Accepted { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(is_invite: bool, is_reliable: bool) -> Server {
        Server::start(Kind { is_invite, is_reliable }, Timers::default(), Time::ZERO)
    }

    #[test]
    fn a_refusal_over_udp_is_repeated_until_ack_comes() {
        let mut server = server(true, false);
        assert!(server.on_response(Time::ZERO, 486));
        let mut resent = Vec::new();
        while server.next_timeout() < Time::from_millis(9000) {
            resent.push(server.next_timeout().as_millis());
            assert_eq!(server.on_timeout(server.next_timeout()), ServerTimeout::Resend);
        }
        assert_eq!(resent, [500, 1500, 3500, 7500]);
        server.on_ack(Time::from_millis(9000));
        assert!(!server.on_request());
        assert_eq!(server.next_timeout(), Time::from_millis(14_000));
        assert_eq!(server.on_timeout(server.next_timeout()), ServerTimeout::Ended);
    }

    #[test]
    fn a_missing_ack_is_noticed_after_32_s() {
        let mut server = server(true, true);
        server.on_response(Time::ZERO, 600);
        assert_eq!(server.next_timeout(), Time::from_millis(32_000));
        assert_eq!(server.on_timeout(Time::from_millis(32_000)), ServerTimeout::NoAck);
    }

    #[test]
    fn after_a_2xx_repeated_invites_are_absorbed_and_further_2xx_are_sent() {
        let mut server = server(true, false);
        assert!(server.on_response(Time::ZERO, 200));
        assert!(!server.on_request());
        assert!(server.on_response(Time::ZERO, 200));
        assert!(!server.on_response(Time::ZERO, 486));
        assert_eq!(server.next_timeout(), Time::from_millis(32_000));
    }

    #[test]
    fn a_repeated_request_gets_the_last_response_again() {
        for is_invite in [false, true] {
            let mut server = server(is_invite, false);
            assert!(!server.on_request());
            server.on_response(Time::ZERO, 100);
            assert!(server.on_request());
        }
    }

    #[test]
    fn only_one_final_response_goes() {
        let mut server = server(false, false);
        assert!(server.on_response(Time::ZERO, 404));
        assert!(!server.on_response(Time::ZERO, 200));
        assert!(server.on_request());
        assert_eq!(server.next_timeout(), Time::from_millis(32_000));
    }

    #[test]
    fn a_non_invite_request_unanswered_for_3500_ms_gets_100_once() {
        for is_reliable in [false, true] {
            let mut server = server(false, is_reliable);
            assert_eq!(server.next_timeout(), Time::from_millis(3500));
            assert_eq!(server.on_timeout(Time::from_millis(3500)), ServerTimeout::SayTrying);
            assert_eq!((server.next_timeout(), server.is_pending()), (Time::NEVER, true));
        }
        assert_eq!(server(true, false).next_timeout(), Time::NEVER);
        let mut answered = server(false, true);
        answered.on_response(Time::ZERO, 200);
        assert_eq!(answered.on_timeout(Time::from_millis(3500)), ServerTimeout::Ended);
    }
}
