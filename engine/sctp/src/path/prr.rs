//! Proportional rate reduction (RFC 6937): the data in flight falls to a reduced window within one round trip.
//!
//! During recovery, each SACK permits new data in proportion to the bytes delivered. Therefore the data in flight
//! converges to the new window without a pause or a burst. Start at [`Prr::on_ack`].

/// One reduction of a window. All sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prr {
    /// Bytes in flight at the start of the reduction; never zero.
    recover_flight: usize,
    delivered: usize,
    sent: usize,
    ssthresh: usize,
    mtu: usize,
    window: usize,
}

impl Prr {
    /// Starts a reduction to `ssthresh`. `flight` bytes were in flight before the loss was found, and `left` bytes
    /// are in flight now.
    pub(super) fn new(flight: usize, left: usize, ssthresh: usize, mtu: usize) -> Prr {
        // RFC 9260 section 7.2.4: the first packet does not wait for the window.
        Prr { recover_flight: flight.max(1), delivered: 0, sent: 0, ssthresh, mtu, window: left + mtu }
    }

    /// Counts `bytes` of sent data.
    pub(super) fn on_sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Handles the delivery of `bytes` bytes, after which `flight` bytes are still in flight (RFC 6937 section 3,
    /// with the slow start bound).
    pub(super) fn on_ack(&mut self, bytes: usize, flight: usize) {
        self.delivered += bytes;
        let quota = if flight > self.ssthresh {
            let share = self.delivered as u128 * self.ssthresh as u128;
            let share = usize::try_from(share.div_ceil(self.recover_flight as u128)).unwrap_or(usize::MAX);
            share.saturating_sub(self.sent)
        } else {
            let limit = self.delivered.saturating_sub(self.sent).max(bytes) + self.mtu;
            limit.min(self.ssthresh - flight)
        };
        // As long as no data was sent in this recovery, each SACK permits at least one packet.
        let least = if self.sent == 0 { self.mtu } else { 0 };
        self.window = flight + quota.max(least);
    }

    /// Returns the number of bytes that may be in flight.
    pub(super) fn window(&self) -> usize {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: usize = 1000;

    #[test]
    fn the_window_comes_down_in_proportion_to_what_is_delivered() {
        let mut prr = Prr::new(100_000, 98_000, 70_000, MTU);
        let mut flight = 98_000;
        while flight > 70_000 {
            flight -= 2000;
            prr.on_ack(2000, flight);
            let sent = prr.window() - flight;
            assert!(sent <= 2000, "seven for ten, not {sent}");
            prr.on_sent(sent);
            flight += sent;
        }
        assert!((69_000..=71_000).contains(&flight), "{flight}");
    }

    #[test]
    fn after_many_losses_the_window_is_refilled_as_slow_start_does_and_not_at_once() {
        let mut prr = Prr::new(100_000, 20_000, 70_000, MTU);
        prr.on_ack(2000, 18_000);
        assert_eq!(prr.window(), 18_000 + 2000 + MTU);
    }

    #[test]
    fn the_window_never_passes_the_threshold_when_it_is_refilled() {
        let mut prr = Prr::new(100_000, 69_500, 70_000, MTU);
        prr.on_sent(MTU);
        prr.on_ack(2000, 69_500);
        assert_eq!(prr.window(), 70_000);
    }
}
