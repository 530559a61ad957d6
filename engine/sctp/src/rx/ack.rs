//! Time of the next SACK (RFC 9260 section 6.2, RFC 7053).

use std::time::Duration;

use base::Time;

use crate::config::Timing;

/// Maximum delay of a SACK.
const DELAY_MAX: Duration = Duration::from_millis(500);

/// Number of packets with DATA after which a SACK leaves at once.
const PACKETS_PER_SACK: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Due {
    #[default]
    No,
    At(Time),
    Now,
}

/// State of delayed acknowledgements.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckTimer {
    due: Due,
    packets: u8,
    new_packet: bool,
}

impl AckTimer {
    /// Begins a received packet. All DATA chunks of one packet count once.
    pub(crate) fn on_packet(&mut self) {
        self.new_packet = true;
    }

    /// Handles a DATA chunk that arrived in order. If the sender has set the I bit, `immediate` is
    /// true.
    pub(crate) fn on_data(&mut self, immediate: bool, now: Time, timing: &Timing) {
        if std::mem::take(&mut self.new_packet) {
            self.packets = self.packets.saturating_add(1);
        }
        //= rfc9260#6.2-7 6.2-8 6.2-9 6.2-19
        //= rfc8260#2.1-2
        //= rfc9260#6.2-7 6.2-8 6.2-9 6.2-19
        if immediate || self.packets >= PACKETS_PER_SACK {
            self.due = Due::Now;
        } else if self.due == Due::No {
            //= rfc9260#6.2-13
            self.due = Due::At(now + timing.sack_delay.min(DELAY_MAX));
        }
    }

    /// Makes a SACK due at once, because of a gap, a duplicate, a dropped chunk or a reopened
    /// window.
    pub(crate) fn on_irregular(&mut self) {
        self.due = Due::Now;
    }

    pub(crate) fn on_timeout(&mut self, now: Time) {
        if matches!(self.due, Due::At(at) if at <= now) {
            self.due = Due::Now;
        }
    }

    /// Reports whether a SACK must leave at once, even in a packet without other chunks.
    pub(crate) fn is_due(&self) -> bool {
        self.due == Due::Now
    }

    /// Reports whether a packet that leaves for another reason should carry a SACK.
    pub(crate) fn is_pending(&self) -> bool {
        self.due != Due::No
    }

    pub(crate) fn next_timeout(&self) -> Time {
        match self.due {
            Due::At(at) => at,
            Due::No | Due::Now => Time::NEVER,
        }
    }

    //= rfc9260#6.2-10
    pub(crate) fn on_sent(&mut self) {
        *self = AckTimer::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    //= rfc9260#6.2-7 6.2-8 6.2-9
    fn the_second_packet_is_acknowledged_at_once_and_two_chunks_of_one_packet_are_not() {
        let (mut ack, timing) = (AckTimer::default(), Timing::default());
        ack.on_packet();
        ack.on_data(false, Time::ZERO, &timing);
        ack.on_data(false, Time::ZERO, &timing);
        assert!(!ack.is_due() && ack.is_pending());
        ack.on_packet();
        ack.on_data(false, Time::ZERO, &timing);
        assert!(ack.is_due());
    }

    #[test]
    //= rfc9260#6.2-8
    fn a_lone_packet_is_acknowledged_after_the_delay_and_not_before() {
        let (mut ack, timing) = (AckTimer::default(), Timing::default());
        ack.on_packet();
        ack.on_data(false, Time::ZERO, &timing);
        let due = Time::ZERO + timing.sack_delay;
        assert_eq!(ack.next_timeout(), due);
        ack.on_timeout(Time::from_nanos(due.as_nanos() - 1));
        assert!(!ack.is_due());
        ack.on_timeout(due);
        assert!(ack.is_due());
    }

    #[test]
    //= rfc9260#6.2-19
    fn the_i_bit_asks_for_a_sack_at_once() {
        let (mut ack, timing) = (AckTimer::default(), Timing::default());
        ack.on_packet();
        ack.on_data(true, Time::ZERO, &timing);
        assert!(ack.is_due());
    }

    //= rfc9260#6.2-13
    #[test]
    fn no_setting_delays_a_sack_by_more_than_half_a_second() {
        let timing = Timing { sack_delay: Duration::from_secs(9), ..Timing::default() };
        let mut ack = AckTimer::default();
        ack.on_packet();
        ack.on_data(false, Time::ZERO, &timing);
        assert_eq!(ack.next_timeout(), Time::from_millis(500));
    }
}
