//! The peer's receive window as the sender sees it, and probes of a closed window (RFC 9260 section 6.1 A).
//!
//! Start at [`PeerWindow::on_sack`].

/// State of a window probe: a chunk that is sent into a closed window of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    /// No probe is outstanding.
    No,
    /// The probe was sent.
    Sent,
    /// A SACK has answered the probe, and the window is still closed.
    Answered,
}

/// The peer's a_rwnd minus the bytes in flight, and the state of a window probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerWindow {
    room: usize,
    probe: Probe,
}

impl PeerWindow {
    pub(crate) fn new(a_rwnd: usize) -> Self {
        PeerWindow { room: a_rwnd, probe: Probe::No }
    }

    /// Returns the number of bytes for which the peer has room, in addition to the bytes in flight.
    #[inline]
    pub(crate) fn room(self) -> usize {
        self.room
    }

    /// Reports whether a probe is outstanding.
    #[inline]
    pub(crate) fn is_probed(self) -> bool {
        self.probe != Probe::No
    }

    /// Reports whether the peer has answered a probe while its window stays closed. The answer proves that the peer is alive.
    pub(crate) fn is_probe_answered(self) -> bool {
        self.probe == Probe::Answered
    }

    /// Accounts for the sending of a chunk of `length` bytes; `flight` counts all bytes in flight, this chunk included. The chunk uses up
    /// room in the window. If it does not fit and is alone in flight, it is a window probe.
    pub(crate) fn on_sent(&mut self, length: usize, flight: usize) {
        // If other chunks are in flight, a SACK will arrive anyway, so this chunk is no probe.
        let is_alone = flight <= length;
        if self.room < length && is_alone && self.probe == Probe::No {
            self.probe = Probe::Sent;
        }
        self.room = self.room.saturating_sub(length);
    }

    /// Adds the room of `bytes` bytes that are no longer in flight.
    #[inline]
    pub(crate) fn on_lost(&mut self, bytes: usize) {
        self.room += bytes;
    }

    /// Sets the window from a SACK. The caller must not pass a SACK that is older than the last one applied.
    //= rfc9260#6.2.1-1
    #[inline]
    pub(crate) fn on_sack(&mut self, a_rwnd: usize, flight: usize) {
        self.room = a_rwnd.saturating_sub(flight);
    }

    /// Ends the probe, because something was acknowledged or nothing is in flight.
    pub(crate) fn end_probe(&mut self) {
        self.probe = Probe::No;
    }

    /// Handles a SACK that acknowledged nothing. `length` is the size of the first chunk in flight, and `flight` counts all bytes in
    /// flight. Returns true if the peer has dropped the probe and its window is open now. A chunk also becomes a probe if the window was
    /// open when the chunk left, and closed when it arrived.
    pub(crate) fn on_unmoved(&mut self, a_rwnd: usize, length: usize, flight: usize) -> bool {
        let finds_no_room = a_rwnd == 0 && flight == length;
        if self.probe == Probe::No && !finds_no_room {
            return false;
        }
        if a_rwnd < length {
            self.probe = Probe::Answered;
            return false;
        }
        self.probe = Probe::No;
        true
    }

    /// Handles the expiry of T3. Returns whether the peer has answered the probe while its window stays closed. Such a timeout counts
    /// against no path (RFC 9260 section 6.1 A).
    //= rfc9260#6.1-6
    pub(crate) fn on_timeout(&mut self) -> bool {
        let was_answered = self.is_probe_answered();
        if was_answered {
            self.probe = Probe::Sent;
        }
        was_answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_alone_in_a_window_too_small_for_it_is_a_probe() {
        let mut window = PeerWindow::new(10);
        window.on_sent(100, 100);
        assert!(window.is_probed() && window.room() == 0);
        let mut busy = PeerWindow::new(10);
        busy.on_sent(100, 200);
        assert!(!busy.is_probed(), "a SACK for the other chunk comes anyway");
    }

    #[test]
    fn a_window_probe_is_answered_by_a_zero_window_and_lost_once_the_window_opens() {
        let mut window = PeerWindow::new(0);
        window.on_sent(100, 100);
        assert!(!window.on_timeout(), "nobody has answered");
        assert!(!window.on_unmoved(0, 100, 100));
        assert!(window.is_probe_answered());
        assert!(window.on_timeout() && !window.on_timeout(), "each answer excuses one timeout");
        assert!(window.on_unmoved(100, 100, 100));
        assert!(!window.is_probed());
    }

    #[test]
    fn a_chunk_that_finds_the_window_closed_becomes_a_probe() {
        let mut window = PeerWindow::new(1000);
        window.on_sent(100, 100);
        assert!(!window.on_unmoved(500, 100, 100) && !window.is_probed());
        assert!(!window.on_unmoved(0, 100, 100) && window.is_probe_answered());
    }

    #[test]
    fn the_room_in_the_peers_window_follows_the_flight() {
        let mut window = PeerWindow::new(1000);
        window.on_sent(300, 300);
        window.on_sent(300, 600);
        assert_eq!(window.room(), 400);
        window.on_lost(300);
        assert_eq!(window.room(), 700);
        window.on_sack(200, 300);
        assert_eq!(window.room(), 0);
    }
}
