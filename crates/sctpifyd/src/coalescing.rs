//! Whether the loop rests before it waits for events, so that one turn serves what would have woken it many times.
//!
//! To be woken for a packet costs more than the packet does. So, as network cards do it with interrupts (`ethtool -C`,
//! rx-usecs), the loop looks away for a moment between turns: while nothing but transfers moves bytes, or, more shortly, while
//! much is moved. That moment is little of the round trip of every connection that moves bytes, and never so long that a burst
//! follows that queues would not hold. New connections of local programs end it.
//! Pure; the driver tells what moved, and sleeps. Begin with [`Coalescing::note`].

use std::time::Duration;

use base::Time;

/// How long bytes are counted before the next judgement.
const WINDOW: Duration = Duration::from_millis(10);
/// What counts as much, in bytes of a window (32 Mbit/s): below it wake-ups are too few to matter beside what waits for an answer.
const MUCH: u64 = 40_000;
/// Bytes that may gather in a pause, and then leave at once: 22 packets. TCP sends up to 64 KiB at once; with 70 packets a queue
/// of 200 lost a third of its throughput.
const BURST: u64 = 32 * 1024;
/// A pause in which fewer bytes gather, two packets, costs as many wake-ups as it saves.
const GATHERED_MIN: u64 = 2 * 1_400;
/// While less than [`MUCH`] is moved a pause is long enough for so many, four packets, if the round trip allows that.
const GATHERED_SLOW: u64 = 4 * 1_400;
/// A pause is at most this part of the shortest round trip, so that the two hosts' together add an eighth.
const OF_ROUND_TRIP: u32 = 16;
/// The same while nobody waits for an answer.
const OF_ROUND_TRIP_BULK: u32 = 8;
/// The same for a transfer of which less than [`GATHERED_SLOW`] would gather, while nobody asks questions at all.
const OF_ROUND_TRIP_SLOW: u32 = 2;
/// The same where somebody asks one now and then.
const OF_ROUND_TRIP_NEIGHBOUR: u32 = 4;
/// Shorter pauses save too little.
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// Longer ones would save little more.
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// The same while nobody waits for an answer.
const PAUSE_MAX_BULK: Duration = Duration::from_millis(10);
/// How long after a question or an answer more of them are expected.
const CONVERSATION: Duration = Duration::from_millis(250);
/// How long after it a pause is still to be little of its round trip: the next question may come at any time.
const NEIGHBOUR: Duration = Duration::from_secs(5);

/// Bytes that a connection has moved one way before it is a transfer, and no conversation.
const TRANSFER: u32 = 64 * 1024;
/// How far it counts on: so far beyond [`TRANSFER`] a transfer keeps its name when something goes the other way.
const TRANSFER_MAX: u32 = 96 * 1024;
/// A byte the other way weighs as much as so many: requests, or acknowledgements of a program's own, are short.
const ANSWER_WEIGHT: u32 = 16;
/// After such a silence a connection begins anew.
const SILENCE: Duration = Duration::from_millis(100);

/// Which way the bytes of a connection go, and how many went that way without an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transfer {
    is_sending: bool,
    bytes: u32,
    last: Time,
}

/// What bytes of a connection are part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Traffic {
    /// Many that go one way: nobody waits for an answer to one of them.
    Transfer,
    /// Questions and answers.
    Conversation,
    /// One or the other.
    Unknown,
}

impl Transfer {
    /// The connection moved bytes; what they are part of.
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

/// What was moved lately, and the pause that follows from it.
#[derive(Debug)]
pub(crate) struct Coalescing {
    began: Time,
    bytes: u64,
    /// The shortest round trip of those who moved bytes; none before anyone did.
    round_trip: Option<Duration>,
    /// Until when somebody may wait for an answer.
    conversation_until: Time,
    /// The shortest round trip of those who lately did, and until when it counts.
    nearest: Duration,
    nearest_until: Time,
    /// The pause, and until when it holds.
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

    /// A connection moved bytes whose association's shortest round trip is this, None if it was not measured yet.
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
        // Who cannot bear it does not wait for the next judgement.
        self.pause = self.pause.min(self.bearable(now, round_trip));
        let elapsed = now - self.began;
        if elapsed >= WINDOW {
            self.pause = self.pause_at(now, elapsed);
            self.until = now + 2 * WINDOW;
            (self.began, self.bytes, self.round_trip) = (now, 0, None);
        }
    }

    /// The longest pause that somebody with this round trip can bear.
    fn bearable(&self, now: Time, round_trip: Duration) -> Duration {
        self.part_of(now, round_trip, OF_ROUND_TRIP_SLOW)
    }

    /// The pause for a round trip of which a transfer bears this part.
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

    /// The pause for what was moved in so much time.
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

    /// How long to rest now; zero if not at all.
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

    /// Bytes a millisecond that are much, and so few that no burst ends a pause of a millisecond.
    const MUCH_PER_MS: u64 = 20_000;

    /// Moves so many bytes each millisecond, from `from` on for `for_ms`; tells the pause then.
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

    /// The pause after 300 ms of so many bytes a millisecond.
    fn settled(moves: (u64, Traffic), round_trip: Duration) -> Duration {
        moved(&mut Coalescing::new(), 1, 300, moves, round_trip)
    }

    #[test]
    fn much_over_a_long_way_is_worth_a_pause_of_a_sixteenth_or_a_millisecond() {
        for (round_trip, pause) in [(ms(4), ms(1) / 4), (ms(8), ms(1) / 2), (ms(16), ms(1)), (ms(300), ms(1))]
        {
            assert_eq!(settled((MUCH_PER_MS, Conversation), round_trip), pause, "{round_trip:?}");
        }
    }

    #[test]
    fn a_transfer_is_worth_a_pause_of_an_eighth_or_ten_milliseconds_at_any_rate_that_fills_it() {
        for per_ms in [2_500, 3_000] {
            for (round_trip, pause) in [(ms(20), ms(5) / 2), (ms(40), ms(5)), (ms(300), ms(10))] {
                assert_eq!(settled((per_ms, Transfer), round_trip), pause, "{per_ms}, {round_trip:?}");
            }
        }
    }

    #[test]
    fn a_slow_transfer_is_worth_a_pause_of_half_in_which_two_to_four_packets_gather() {
        assert_eq!(settled((700, Transfer), ms(20)), ms(8));
        assert_eq!(settled((1_400, Transfer), ms(20)), ms(4));
        assert_eq!(settled((1_400, Transfer), ms(6)), ms(3));
        for (per_ms, round_trip) in [(700, ms(7)), (1_400, ms(3)), (200, ms(300))] {
            assert_eq!(settled((per_ms, Transfer), round_trip), Duration::ZERO, "{per_ms}, {round_trip:?}");
        }
    }

    #[test]
    fn a_slow_transfer_beside_whom_somebody_types_now_and_then_has_pauses_of_a_quarter() {
        let mut coalescing = Coalescing::new();
        let transfer = (700, Transfer);
        coalescing.note(Time::ZERO + ms(1), 64, Some(ms(20)), Conversation);
        assert_eq!(moved(&mut coalescing, 2, 1_000, transfer, ms(20)), ms(5));
        assert_eq!(moved(&mut coalescing, 1_002, 4_500, transfer, ms(20)), ms(8));
    }

    #[test]
    fn what_gathers_in_a_pause_is_no_great_burst() {
        for moves in
            [(40_000, Conversation), (100_000, Conversation), (10_000, Transfer), (100_000, Transfer)]
        {
            let pause = settled(moves, ms(50));
            let gathered = moves.0 as f64 * pause.as_secs_f64() * 1e3;
            assert!((0.99..=1.0).contains(&(gathered / BURST as f64)), "{moves:?}: {gathered}");
        }
        // A burst is there at once.
        assert_eq!(settled((500_000, Transfer), ms(50)), Duration::ZERO);
    }

    #[test]
    fn little_or_a_near_peer_is_not_worth_it() {
        assert_eq!(settled((3_500, Conversation), ms(20)), Duration::ZERO);
        assert_eq!(settled((MUCH_PER_MS, Conversation), ms(3)), Duration::ZERO);
        assert_eq!(settled((MUCH_PER_MS, Transfer), ms(1)), Duration::ZERO);
        let mut unmeasured = Coalescing::new();
        (1..30).for_each(|at| unmeasured.note(Time::ZERO + ms(at), MUCH_PER_MS, None, Transfer));
        assert_eq!(unmeasured.pause(Time::ZERO + ms(30)), Duration::ZERO);
    }

    #[test]
    fn a_near_peer_ends_it_at_once_and_for_as_long_as_it_is_heard() {
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
    fn beside_a_near_peer_a_far_transfer_has_the_pauses_that_the_near_one_bears() {
        let mut coalescing = Coalescing::new();
        let transfer = (2_500, Transfer);
        coalescing.note(Time::ZERO + ms(1), 64, Some(ms(12)), Conversation);
        assert_eq!(moved(&mut coalescing, 2, 1_000, transfer, ms(80)), Duration::from_micros(2_240));
        coalescing.note(Time::ZERO + ms(1_002), 64, Some(ms(1)), Conversation);
        assert_eq!(moved(&mut coalescing, 1_003, 1_000, transfer, ms(80)), Duration::ZERO);
        assert_eq!(moved(&mut coalescing, 2_003, 5_000, transfer, ms(80)), ms(10));
        // The beginning of a transfer is no near peer's conversation.
        coalescing.note(Time::ZERO + ms(7_003), 1_444, Some(ms(1)), Unknown);
        assert_eq!(moved(&mut coalescing, 7_004, 300, transfer, ms(80)), ms(10));
    }

    #[test]
    fn it_ends_when_nothing_moves_any_more_and_a_long_silence_is_not_much() {
        let mut coalescing = Coalescing::new();
        assert_eq!(moved(&mut coalescing, 1, 30, (MUCH_PER_MS, Conversation), ms(20)), ms(1));
        assert_eq!(coalescing.pause(Time::ZERO + ms(60)), Duration::ZERO);
        coalescing.note(Time::ZERO + ms(1_000), 100_000, Some(ms(20)), Conversation);
        assert_eq!(coalescing.pause(Time::ZERO + ms(1_000)), Duration::ZERO);
    }

    /// What the last of these moves, so many milliseconds apart, is part of.
    fn last_of(apart_ms: u64, moves: impl IntoIterator<Item = (u64, u64)>) -> Traffic {
        let mut transfer = super::Transfer::default();
        let noted = (1..)
            .zip(moves)
            .map(|(at, (sent, received))| transfer.note(Time::ZERO + ms(at * apart_ms), sent, received));
        noted.last().unwrap()
    }

    #[test]
    fn a_transfer_is_64_kib_one_way_whatever_little_goes_the_other() {
        assert_eq!(last_of(1, vec![(1_444, 0); 45]), Unknown);
        assert_eq!(last_of(1, vec![(1_444, 0); 46]), Transfer);
        assert_eq!(last_of(1, vec![(0, 1_444); 46]), Transfer);
        // A file copy whose other end acknowledges each 32 KiB.
        assert_eq!(last_of(10, (0..100).map(|n| if n % 8 == 7 { (0, 44) } else { (4_096, 0) })), Transfer);
    }

    #[test]
    fn questions_and_answers_are_no_transfer_nor_is_what_comes_now_and_then() {
        // 8 KiB for each 600 bytes, back to back.
        assert_ne!(last_of(20, (0..500).map(|n| if n % 2 == 0 { (600, 0) } else { (0, 8_192) })), Transfer);
        assert_ne!(last_of(1, vec![(4_096, 4_096); 500]), Transfer);
        assert_ne!(last_of(150, vec![(0, 40_000); 500]), Transfer);
        // A screenful, and then keystrokes.
        let screenful = [(0, 200_000)].into_iter();
        assert_ne!(last_of(120, screenful.chain([(1, 0), (0, 40)])), Transfer);
    }
}
