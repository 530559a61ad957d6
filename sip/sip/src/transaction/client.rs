//! Client transactions (RFC 3261 figures 5 and 6, RFC 6026 section 7.2).

use std::time::Duration;

use base::Time;

use super::{Kind, Timers};

/// The actions that a response requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientVerdict {
    /// True if the response must be passed to the user of the transaction.
    pub pass: bool,
    /// True if an ACK must be sent for the response. A retransmitted rejection also requires an ACK.
    pub ack: bool,
}

/// The result of [`Client::on_timeout`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientTimeout {
    /// No timer is due.
    Nothing,
    /// The request must be retransmitted.
    Resend,
    /// No final response arrived in time, and the transaction has ended.
    TimedOut,
    /// The transaction has ended.
    Ended,
}

/// A client transaction, which waits for the responses to its request.
#[derive(Clone, Debug)]
pub struct Client {
    kind: Kind,
    timers: Timers,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Calling of an INVITE transaction, or Trying or Proceeding of a non-INVITE transaction.
    Waiting {
        resend: Time,
        interval: Duration,
        give_up: Time,
        is_proceeding: bool,
    },
    /// Proceeding of an INVITE transaction. The user of the transaction runs timer C.
    Proceeding,
    Completed {
        until: Time,
    },
    Accepted {
        until: Time,
    },
    Ended,
}

impl Client {
    /// Starts a transaction whose request was sent at `now`.
    pub fn start(kind: Kind, timers: Timers, now: Time) -> Client {
        let resend = if kind.is_reliable { Time::NEVER } else { now + timers.t1 };
        let give_up = now + timers.long();
        let state = State::Waiting { resend, interval: timers.t1, give_up, is_proceeding: false };
        Client { kind, timers, state }
    }

    /// Handles a response, and returns the required actions.
    pub fn on_response(&mut self, now: Time, status: u16) -> ClientVerdict {
        let (pass, ack) = if self.kind.is_invite {
            self.on_invite_response(now, status)
        } else {
            (self.on_other_response(now, status), false)
        };
        ClientVerdict { pass, ack }
    }

    fn on_invite_response(&mut self, now: Time, status: u16) -> (bool, bool) {
        match (self.state, status) {
            (State::Waiting { .. } | State::Proceeding, 100..=199) => {
                self.state = State::Proceeding;
                (true, false)
            }
            (State::Waiting { .. } | State::Proceeding, 200..=299) => {
                self.state = State::Accepted { until: now + self.timers.long() };
                (true, false)
            }
            (State::Waiting { .. } | State::Proceeding, _) => {
                // Timer D: at least 32 s over unreliable transports, and zero over reliable transports.
                let until = now + self.kind.unless_reliable(self.timers.long());
                self.state = State::Completed { until };
                (true, true)
            }
            // Retransmitted 2xx, and 2xx from other callees of a forked INVITE, are passed to the user (RFC 6026 section 7.2).
            (State::Accepted { .. }, 200..=299) => (true, false),
            (State::Completed { .. }, 300..) => (false, true),
            (State::Accepted { .. } | State::Completed { .. } | State::Ended, _) => (false, false),
        }
    }

    fn on_other_response(&mut self, now: Time, status: u16) -> bool {
        let State::Waiting { resend, give_up, .. } = self.state else { return false };
        self.state = match status {
            // "timer E is set to T2" in Proceeding (section 17.1.2.2).
            100..=199 => State::Waiting { resend, give_up, interval: self.timers.t2, is_proceeding: true },
            _ => State::Completed { until: now + self.kind.unless_reliable(self.timers.t4) },
        };
        true
    }

    /// Handles the time-out at [`Client::next_timeout`].
    pub fn on_timeout(&mut self, now: Time) -> ClientTimeout {
        match self.state {
            State::Waiting { give_up, .. } if now >= give_up => {
                self.state = State::Ended;
                ClientTimeout::TimedOut
            }
            State::Waiting { resend, interval, give_up, is_proceeding } if now >= resend => {
                let next =
                    if self.kind.is_invite { 2 * interval } else { (2 * interval).min(self.timers.t2) };
                let resend = now + next;
                self.state = State::Waiting { resend, interval: next, give_up, is_proceeding };
                ClientTimeout::Resend
            }
            State::Completed { until } | State::Accepted { until } if now >= until => {
                self.state = State::Ended;
                ClientTimeout::Ended
            }
            _ => ClientTimeout::Nothing,
        }
    }

    /// Returns the time at which [`Client::on_timeout`] must be called next.
    pub fn next_timeout(&self) -> Time {
        match self.state {
            State::Waiting { resend, give_up, .. } => resend.min(give_up),
            State::Completed { until } | State::Accepted { until } => until,
            State::Proceeding | State::Ended => Time::NEVER,
        }
    }

    /// Reports whether a provisional response has arrived, but no final response. In this state, CANCEL may be sent (section 9.1).
    pub fn is_proceeding(&self) -> bool {
        matches!(self.state, State::Proceeding | State::Waiting { is_proceeding: true, .. })
    }

    /// Reports whether the request is INVITE.
    pub fn is_invite(&self) -> bool {
        self.kind.is_invite
    }

    /// Starts the transaction anew, because its request is sent again at `now` over a new connection. Timer F, of requests other than INVITE,
    /// goes on: the sender of such a request gives up at its own timer F.
    pub fn restart(&mut self, now: Time) {
        let before = self.state;
        *self = Client::start(self.kind, self.timers, now);
        if let (false, State::Waiting { give_up: earlier, .. }, State::Waiting { give_up, .. }) =
            (self.kind.is_invite, before, &mut self.state)
        {
            *give_up = earlier;
        }
    }

    /// Reports whether no response has arrived.
    pub fn awaits_first_response(&self) -> bool {
        self.is_pending() && !self.is_proceeding()
    }

    /// Reports whether no final response has arrived.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, State::Proceeding | State::Waiting { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(is_invite: bool, is_reliable: bool) -> Client {
        Client::start(Kind { is_invite, is_reliable }, Timers::default(), Time::ZERO)
    }

    /// Runs a transaction to its end. Returns the times of the retransmissions in ms, the time of the end in ms, and the last result.
    fn run(client: &mut Client) -> (Vec<u64>, u64, ClientTimeout) {
        let mut resent = Vec::new();
        loop {
            let now = client.next_timeout();
            assert_ne!(now, Time::NEVER);
            match client.on_timeout(now) {
                ClientTimeout::Resend => resent.push(now.as_millis()),
                ClientTimeout::Nothing => panic!("woken for nothing"),
                end => return (resent, now.as_millis(), end),
            }
        }
    }

    #[test]
    fn an_invite_over_udp_is_repeated_at_doubling_intervals_for_32_s() {
        let (resent, end, how) = run(&mut client(true, false));
        assert_eq!(resent, [500, 1500, 3500, 7500, 15500, 31500]);
        assert_eq!((end, how), (32_000, ClientTimeout::TimedOut));
    }

    #[test]
    fn a_non_invite_request_over_udp_is_repeated_at_intervals_up_to_t2() {
        let (resent, end, _) = run(&mut client(false, false));
        assert_eq!(resent, [500, 1500, 3500, 7500, 11500, 15500, 19500, 23500, 27500, 31500]);
        assert_eq!(end, 32_000);
    }

    #[test]
    fn nothing_is_repeated_over_a_reliable_transport() {
        assert_eq!(run(&mut client(true, true)), (vec![], 32_000, ClientTimeout::TimedOut));
        assert_eq!(run(&mut client(false, true)), (vec![], 32_000, ClientTimeout::TimedOut));
    }

    #[test]
    fn every_copy_of_a_refusal_is_acknowledged_but_only_the_first_is_passed_on() {
        let mut client = client(true, false);
        let first = client.on_response(Time::ZERO, 486);
        assert_eq!(first, ClientVerdict { pass: true, ack: true });
        assert_eq!(client.on_response(Time::ZERO, 486), ClientVerdict { pass: false, ack: true });
        assert_eq!(client.on_response(Time::ZERO, 200), ClientVerdict { pass: false, ack: false });
        assert_eq!(run(&mut client), (vec![], 32_000, ClientTimeout::Ended));
    }

    #[test]
    fn every_2xx_is_passed_and_none_acknowledged() {
        let mut client = client(true, false);
        for _ in 0..3 {
            assert_eq!(client.on_response(Time::ZERO, 200), ClientVerdict { pass: true, ack: false });
        }
        assert_eq!(client.on_response(Time::ZERO, 486), ClientVerdict { pass: false, ack: false });
    }

    #[test]
    fn a_provisional_response_stops_an_invites_timers_for_good() {
        let mut client = client(true, false);
        assert!(!client.is_proceeding());
        client.on_response(Time::ZERO, 180);
        assert_eq!((client.next_timeout(), client.is_proceeding()), (Time::NEVER, true));
    }

    #[test]
    fn after_a_provisional_response_a_non_invite_request_is_repeated_every_t2() {
        let mut client = client(false, false);
        client.on_response(Time::ZERO, 100);
        assert_eq!(client.on_timeout(Time::from_millis(500)), ClientTimeout::Resend);
        assert_eq!(client.next_timeout(), Time::from_millis(4500));
    }

    #[test]
    fn timer_k_lasts_5_s_over_udp_and_zero_over_a_reliable_transport() {
        for (is_reliable, until) in [(false, 5000), (true, 0)] {
            let mut client = client(false, is_reliable);
            assert!(client.on_response(Time::ZERO, 200).pass);
            assert!(!client.on_response(Time::ZERO, 200).pass);
            assert_eq!(client.next_timeout(), Time::from_millis(until));
        }
    }
}
