//! Decides whether the loop pauses before it waits for events. One turn then handles packets that would otherwise cause many wake-ups.
//!
//! A wake-up for one packet costs more processor time than handling the packet. The loop therefore pauses between turns, like a network
//! card that delays interrupts (`ethtool -C`, rx-usecs). A connection's traffic is a transfer (many bytes in one direction) or a
//! conversation (questions and answers). The loop pauses in two cases: while only transfers move bytes, and while traffic with
//! conversations is heavy. Pauses in the second case are shorter. The limit on a pause is a fraction of the shortest round trip: from 1/16
//! during conversations to 1/2 for a slow transfer. A pause gathers no more than [`BURST`] bytes, because the queues of routers would drop
//! longer bursts. New connections of local programs end a pause. This module does no I/O: the driver reports traffic and sleeps. Begin with
//! [`Coalescing::note`].

use std::time::Duration;

use base::Time;

/// Interval over which bytes are counted for one decision.
const WINDOW: Duration = Duration::from_millis(10);
/// Threshold of heavy traffic, in bytes per window (32 Mbit/s). Below this rate wake-ups are too rare to justify delayed answers.
const MUCH: u64 = 40_000;
/// Limit on the bytes that may gather in a pause and then leave at once: 22 packets. For comparison, TCP sends up to 64 KiB at once. With
/// bursts of 70 packets, a link with a queue of 200 packets lost a third of its throughput.
const BURST: u64 = 32 * 1024;
/// Minimum bytes that a useful pause gathers: two packets. A pause that gathers fewer bytes costs as many wake-ups as it saves.
const GATHERED_MIN: u64 = 2 * 1_400;
/// Bytes that a pause should gather while traffic is below [`MUCH`], if the round trip allows such a pause: four packets.
const GATHERED_SLOW: u64 = 4 * 1_400;
/// Divisor of the shortest round trip during conversations. The result limits a pause, so the pauses of both hosts together lengthen a
/// round trip by 1/8 or less.
const OF_ROUND_TRIP: u32 = 16;
/// Divisor of the shortest round trip while nobody waits for an answer.
const OF_ROUND_TRIP_BULK: u32 = 8;
/// Divisor of the shortest round trip while traffic is below [`MUCH`] and no connection has a conversation. The pause is shorter if
/// [`GATHERED_SLOW`] bytes gather sooner.
const OF_ROUND_TRIP_SLOW: u32 = 2;
/// Minimum divisor of the shortest round trip for the time [`NEIGHBOUR`] after a question or an answer on some connection.
const OF_ROUND_TRIP_NEIGHBOUR: u32 = 4;
/// The shortest useful pause.
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// The longest pause during conversations. A longer pause would save few further wake-ups.
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// The longest pause while nobody waits for an answer.
const PAUSE_MAX_BULK: Duration = Duration::from_millis(10);
/// Time after a question or an answer in which further questions and answers are expected.
const CONVERSATION: Duration = Duration::from_millis(250);
/// Time after a question or an answer in which the round trip of its connection still limits pauses. The connection's next question may
/// come at any time.
const NEIGHBOUR: Duration = Duration::from_secs(5);

/// Bytes that a connection must move one way to count as a transfer, not a conversation.
const TRANSFER: u32 = 64 * 1024;
/// Cap on the count of a connection's bytes in one direction. The margin above [`TRANSFER`] keeps the connection a transfer when a few
/// bytes go the other way.
const TRANSFER_MAX: u32 = 96 * 1024;
/// Number by which one byte in the opposite direction reduces the count. It is high because requests and application-level acknowledgements
/// are short.
const ANSWER_WEIGHT: u32 = 16;
/// Silence after which a connection's count restarts.
const SILENCE: Duration = Duration::from_millis(100);

/// Direction of a connection's bytes, and the count of bytes in this direction. Bytes in the opposite direction reduce the count
/// ([`ANSWER_WEIGHT`]).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transfer {
    is_sending: bool,
    bytes: u32,
    last: Time,
}

/// The kind of exchange that bytes belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Traffic {
    /// Many bytes in one direction. No program waits for an answer to one of these bytes.
    Transfer,
    /// Questions and answers.
    Conversation,
    /// Too few bytes for one of the other kinds.
    Unknown,
}

impl Transfer {
    /// Notes bytes that the connection moved. Returns the kind of exchange to which they belong.
    pub(crate) fn note(&mut self, now: Time, sent: u64, received: u64) -> Traffic {
        if now.since(self.last) > SILENCE {
            self.bytes = 0;
        }
        self.last = now;
        if self.bytes == 0 {
            self.is_sending = sent > received;
        }
        let (along, against) = if self.is_sending { (sent, received) } else { (received, sent) };
        let clamped = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let grown = self.bytes.saturating_add(clamped(along)).min(TRANSFER_MAX);
        self.bytes = grown.saturating_sub(clamped(against).saturating_mul(ANSWER_WEIGHT));
        match (self.bytes >= TRANSFER, against > 0) {
            (true, _) => Traffic::Transfer,
            (false, true) => Traffic::Conversation,
            (false, false) => Traffic::Unknown,
        }
    }
}

/// Recent traffic, and the pause derived from it.
#[derive(Debug)]
pub(crate) struct Coalescing {
    began: Time,
    bytes: u64,
    /// The shortest round trip of the connections that moved bytes in this window; `None` if none did.
    round_trip: Option<Duration>,
    /// End of the time in which a program or peer may wait for an answer.
    conversation_until: Time,
    /// The shortest round trip of recent conversations, valid until `nearest_until`.
    nearest: Duration,
    nearest_until: Time,
    /// The current pause, valid until `until`.
    pause: Duration,
    until: Time,
}

impl Coalescing {
    pub(crate) fn new() -> Coalescing {
        Coalescing {
            began: Time::ZERO,
            bytes: 0,
            round_trip: None,
            conversation_until: Time::ZERO,
            nearest: Duration::ZERO,
            nearest_until: Time::ZERO,
            pause: Duration::ZERO,
            until: Time::ZERO,
        }
    }

    /// Notes bytes that a connection moved. `round_trip` is the shortest round trip of its association, or `None` if not measured yet.
    pub(crate) fn note(&mut self, now: Time, bytes: u64, round_trip: Option<Duration>, traffic: Traffic) {
        let round_trip = round_trip.unwrap_or_default();
        self.bytes += bytes;
        self.round_trip = Some(self.round_trip.map_or(round_trip, |shortest| shortest.min(round_trip)));
        if traffic != Traffic::Transfer {
            self.conversation_until = now + CONVERSATION;
        }
        let is_nearest = round_trip <= self.nearest || now >= self.nearest_until;
        if traffic == Traffic::Conversation && is_nearest {
            (self.nearest, self.nearest_until) = (round_trip, now + NEIGHBOUR);
        }
        // A connection with a short round trip shortens the pause at once, without waiting for the next decision.
        self.pause = self.pause.min(self.bearable(now, round_trip));
        let elapsed = now - self.began;
        if elapsed >= WINDOW {
            self.pause = self.pause_at(now, elapsed);
            self.until = now + 2 * WINDOW;
            (self.began, self.bytes, self.round_trip) = (now, 0, None);
        }
    }

    /// Returns the longest pause that a connection with this round trip tolerates.
    fn bearable(&self, now: Time, round_trip: Duration) -> Duration {
        self.part_of(now, round_trip, OF_ROUND_TRIP_SLOW)
    }

    /// Returns the longest pause for this round trip. If no question or answer was seen for the time [`NEIGHBOUR`], the pause is 1/`bulk`
    /// of the round trip, up to [`PAUSE_MAX_BULK`].
    fn part_of(&self, now: Time, round_trip: Duration, bulk: u32) -> Duration {
        if now < self.conversation_until {
            return (round_trip / OF_ROUND_TRIP).min(PAUSE_MAX);
        }
        let pause = match now < self.nearest_until {
            true => round_trip.min(self.nearest) / bulk.max(OF_ROUND_TRIP_NEIGHBOUR),
            false => round_trip / bulk,
        };
        pause.min(PAUSE_MAX_BULK)
    }

    /// Returns the pause for the bytes moved in the elapsed time.
    fn pause_at(&self, now: Time, elapsed: Duration) -> Duration {
        let in_window = u128::from(self.bytes) * WINDOW.as_nanos() / elapsed.as_nanos();
        if in_window < u128::from(MUCH) && now < self.conversation_until {
            return Duration::ZERO;
        }
        let until = |bytes: u64| {
            Duration::from_nanos((WINDOW.as_nanos() * u128::from(bytes) / in_window.max(1)) as u64)
        };
        let round_trip = self.round_trip.unwrap_or_default();
        let usual = self.part_of(now, round_trip, OF_ROUND_TRIP_BULK);
        let slow = match in_window < u128::from(MUCH) {
            true => until(GATHERED_SLOW).min(self.bearable(now, round_trip)),
            false => Duration::ZERO,
        };
        let pause = usual.max(slow).min(until(BURST));
        if pause < PAUSE_MIN.max(until(GATHERED_MIN)) { Duration::ZERO } else { pause }
    }

    /// Returns the pause to make now; zero means no pause.
    pub(crate) fn pause(&self, now: Time) -> Duration {
        if now < self.until && self.pause >= PAUSE_MIN { self.pause } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::Traffic::{Conversation, Transfer, Unknown};
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Bytes per millisecond that count as heavy traffic, but stay below [`BURST`] in a pause of one millisecond.
    const MUCH_PER_MS: u64 = 20_000;

    /// Moves `bytes` bytes each millisecond for `for_ms` milliseconds, beginning at `from`. Returns the pause at the end.
    fn moved(
        coalescing: &mut Coalescing,
        from: u64,
        for_ms: u64,
        (bytes, traffic): (u64, Traffic),
        round_trip: Duration,
    ) -> Duration {
        for at in from..from + for_ms {
            coalescing.note(Time::ZERO + ms(at), bytes, Some(round_trip), traffic);
        }
        coalescing.pause(Time::ZERO + ms(from + for_ms))
    }

    /// Returns the pause after 300 ms of this traffic, given in bytes per millisecond.
    fn settled(moves: (u64, Traffic), round_trip: Duration) -> Duration {
        moved(&mut Coalescing::new(), 1, 300, moves, round_trip)
    }

    #[test]
    fn heavy_conversations_pause_for_a_sixteenth_of_the_rtt_up_to_1_ms() {
        for (round_trip, pause) in [(ms(4), ms(1) / 4), (ms(8), ms(1) / 2), (ms(16), ms(1)), (ms(300), ms(1))]
        {
            assert_eq!(settled((MUCH_PER_MS, Conversation), round_trip), pause, "{round_trip:?}");
        }
    }

    #[test]
    fn a_transfer_pauses_for_an_eighth_of_the_rtt_up_to_10_ms() {
        for per_ms in [2_500, 3_000] {
            for (round_trip, pause) in [(ms(20), ms(5) / 2), (ms(40), ms(5)), (ms(300), ms(10))] {
                assert_eq!(settled((per_ms, Transfer), round_trip), pause, "{per_ms}, {round_trip:?}");
            }
        }
    }

    #[test]
    fn a_slow_transfer_pauses_for_two_to_four_packets_within_half_the_rtt() {
        assert_eq!(settled((700, Transfer), ms(20)), ms(8));
        assert_eq!(settled((1_400, Transfer), ms(20)), ms(4));
        assert_eq!(settled((1_400, Transfer), ms(6)), ms(3));
        for (per_ms, round_trip) in [(700, ms(7)), (1_400, ms(3)), (200, ms(300))] {
            assert_eq!(settled((per_ms, Transfer), round_trip), Duration::ZERO, "{per_ms}, {round_trip:?}");
        }
    }

    #[test]
    fn a_keystroke_limits_pauses_of_a_slow_transfer_to_a_quarter_of_the_rtt() {
        let mut coalescing = Coalescing::new();
        let transfer = (700, Transfer);
        coalescing.note(Time::ZERO + ms(1), 64, Some(ms(20)), Conversation);
        assert_eq!(moved(&mut coalescing, 2, 1_000, transfer, ms(20)), ms(5));
        assert_eq!(moved(&mut coalescing, 1_002, 4_500, transfer, ms(20)), ms(8));
    }

    #[test]
    fn a_pause_gathers_no_more_than_one_burst() {
        for moves in
            [(40_000, Conversation), (100_000, Conversation), (10_000, Transfer), (100_000, Transfer)]
        {
            let pause = settled(moves, ms(50));
            let gathered = moves.0 as f64 * pause.as_secs_f64() * 1e3;
            assert!((0.99..=1.0).contains(&(gathered / BURST as f64)), "{moves:?}: {gathered}");
        }
        // The burst is full before the shortest useful pause ends.
        assert_eq!(settled((500_000, Transfer), ms(50)), Duration::ZERO);
    }

    #[test]
    fn light_traffic_or_a_short_or_unknown_rtt_gives_no_pause() {
        assert_eq!(settled((3_500, Conversation), ms(20)), Duration::ZERO);
        assert_eq!(settled((MUCH_PER_MS, Conversation), ms(3)), Duration::ZERO);
        assert_eq!(settled((MUCH_PER_MS, Transfer), ms(1)), Duration::ZERO);
        let mut unmeasured = Coalescing::new();
        (1..30).for_each(|at| unmeasured.note(Time::ZERO + ms(at), MUCH_PER_MS, None, Transfer));
        assert_eq!(unmeasured.pause(Time::ZERO + ms(30)), Duration::ZERO);
    }

    #[test]
    fn traffic_with_a_near_peer_ends_pauses_at_once_and_while_it_lasts() {
        let mut coalescing = Coalescing::new();
        let bulk = (MUCH_PER_MS, Conversation);
        assert_eq!(moved(&mut coalescing, 1, 30, bulk, ms(20)), ms(1));
        coalescing.note(Time::ZERO + ms(31), 10, Some(ms(1)), Conversation);
        assert_eq!(coalescing.pause(Time::ZERO + ms(31)), Duration::ZERO);
        for at in 32..100 {
            coalescing.note(Time::ZERO + ms(at), MUCH_PER_MS, Some(ms(20)), Conversation);
            if at % 5 == 0 {
                coalescing.note(Time::ZERO + ms(at), 10, Some(ms(1)), Conversation);
            }
            assert_eq!(coalescing.pause(Time::ZERO + ms(at)), Duration::ZERO, "{at}");
        }
        assert_eq!(moved(&mut coalescing, 100, 30, bulk, ms(20)), ms(1));
    }

    #[test]
    fn a_keystroke_beside_a_transfer_ends_its_pauses_for_a_quarter_of_a_second() {
        let mut coalescing = Coalescing::new();
        let transfer = (2_500, Transfer);
        assert_eq!(moved(&mut coalescing, 1, 300, transfer, ms(20)), ms(5) / 2);
        coalescing.note(Time::ZERO + ms(301), 64, Some(ms(20)), Conversation);
        assert!(coalescing.pause(Time::ZERO + ms(301)) <= ms(20) / OF_ROUND_TRIP);
        assert_eq!(moved(&mut coalescing, 302, 240, transfer, ms(20)), Duration::ZERO);
        assert_eq!(moved(&mut coalescing, 542, 40, transfer, ms(20)), ms(5) / 2);
    }

    #[test]
    fn the_rtt_of_a_near_conversation_limits_the_pauses_of_a_far_transfer() {
        let mut coalescing = Coalescing::new();
        let transfer = (2_500, Transfer);
        coalescing.note(Time::ZERO + ms(1), 64, Some(ms(12)), Conversation);
        assert_eq!(moved(&mut coalescing, 2, 1_000, transfer, ms(80)), Duration::from_micros(2_240));
        coalescing.note(Time::ZERO + ms(1_002), 64, Some(ms(1)), Conversation);
        assert_eq!(moved(&mut coalescing, 1_003, 1_000, transfer, ms(80)), Duration::ZERO);
        assert_eq!(moved(&mut coalescing, 2_003, 5_000, transfer, ms(80)), ms(10));
        // The beginning of a transfer is not a conversation with a near peer.
        coalescing.note(Time::ZERO + ms(7_003), 1_444, Some(ms(1)), Unknown);
        assert_eq!(moved(&mut coalescing, 7_004, 300, transfer, ms(80)), ms(10));
    }

    #[test]
    fn pauses_end_without_traffic_and_do_not_restart_at_one_burst_after_silence() {
        let mut coalescing = Coalescing::new();
        assert_eq!(moved(&mut coalescing, 1, 30, (MUCH_PER_MS, Conversation), ms(20)), ms(1));
        assert_eq!(coalescing.pause(Time::ZERO + ms(60)), Duration::ZERO);
        coalescing.note(Time::ZERO + ms(1_000), 100_000, Some(ms(20)), Conversation);
        assert_eq!(coalescing.pause(Time::ZERO + ms(1_000)), Duration::ZERO);
    }

    /// Returns the kind of the last of these moves. The interval between moves is `apart_ms` milliseconds.
    fn last_of(apart_ms: u64, moves: impl IntoIterator<Item = (u64, u64)>) -> Traffic {
        let mut transfer = super::Transfer::default();
        let noted = (1..)
            .zip(moves)
            .map(|(at, (sent, received))| transfer.note(Time::ZERO + ms(at * apart_ms), sent, received));
        noted.last().unwrap()
    }

    #[test]
    fn traffic_is_a_transfer_after_64_kib_one_way_despite_acknowledgements() {
        assert_eq!(last_of(1, vec![(1_444, 0); 45]), Unknown);
        assert_eq!(last_of(1, vec![(1_444, 0); 46]), Transfer);
        assert_eq!(last_of(1, vec![(0, 1_444); 46]), Transfer);
        // This is a file copy whose receiver acknowledges every seven moves (28 KiB).
        assert_eq!(last_of(10, (0..100).map(|n| if n % 8 == 7 { (0, 44) } else { (4_096, 0) })), Transfer);
    }

    #[test]
    fn requests_with_answers_and_occasional_bursts_are_no_transfer() {
        // The peer answers each 600 bytes with 8 KiB, back to back.
        assert_ne!(last_of(20, (0..500).map(|n| if n % 2 == 0 { (600, 0) } else { (0, 8_192) })), Transfer);
        assert_ne!(last_of(1, vec![(4_096, 4_096); 500]), Transfer);
        assert_ne!(last_of(150, vec![(0, 40_000); 500]), Transfer);
        // The peer sends a screenful, and then answers keystrokes.
        let screenful = [(0, 200_000)].into_iter();
        assert_ne!(last_of(120, screenful.chain([(1, 0), (0, 40)])), Transfer);
    }
}
