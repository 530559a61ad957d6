//! Bookkeeping of an echo client: the next message to send, and the messages that the peer must return. It
//! uses no socket, no clock and no SCTP.
//!
//! Invariant: each message is sent once and must return once. The ordered messages of a stream must return in
//! the order in which they were sent. Begin with [`Client::new`].

use crate::content;
use crate::options::Load;
use base::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use thiserror::Error;

/// Difference between a returned message and the sent messages.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// A message was sent ordered and returned unordered, or the reverse.
    #[error("a message of stream {0} returned with another order flag than it was sent")]
    Ordering(u16),
    /// The content differs from the message that must return next on the stream. With unordered messages, it
    /// differs from every message that the stream still waits for.
    #[error("a message of stream {0} returned changed or out of order")]
    Content(u16),
}

/// Sent and returned messages.
#[derive(Debug)]
pub struct Client {
    load: Load,
    sent: usize,
    back: usize,
    /// Numbers of the messages that were sent and have not returned, by stream.
    waiting: BTreeMap<u16, VecDeque<usize>>,
    next_at: Time,
    last_back: Time,
    longest_silence: Duration,
}

impl Client {
    /// Creates a client whose first message is due at `now`. The association must be established.
    pub fn new(load: Load, now: Time) -> Client {
        Client {
            load,
            sent: 0,
            back: 0,
            waiting: BTreeMap::new(),
            next_at: now,
            last_back: now,
            longest_silence: Duration::ZERO,
        }
    }

    /// Returns the message to send now, with its stream, if one is due.
    pub fn next(&self, now: Time) -> Option<(u16, Vec<u8>)> {
        (self.is_willing() && now >= self.next_at)
            .then(|| (self.next_stream(), content(self.sent, self.load.size)))
    }

    /// Returns the time at which [`next`](Client::next) has a message to send. Returns [`Time::NEVER`] if all
    /// messages are sent, or if the window is full.
    pub fn wakes_at(&self) -> Time {
        if self.is_willing() { self.next_at } else { Time::NEVER }
    }

    /// Records that the association accepted the message from [`next`](Client::next).
    pub fn on_sent(&mut self, now: Time) {
        self.waiting.entry(self.next_stream()).or_default().push_back(self.sent);
        self.sent += 1;
        self.next_at = now + Duration::from_secs_f64(self.load.gap.max(0.0));
    }

    /// Records a returned message.
    ///
    /// # Errors
    /// When the returned message is not the expected one of its stream, or differs from the sent message.
    pub fn on_back(
        &mut self,
        stream: u16,
        unordered: bool,
        message: &[u8],
        now: Time,
    ) -> Result<(), Mismatch> {
        if unordered != self.load.unordered {
            return Err(Mismatch::Ordering(stream));
        }
        let waiting = self.waiting.entry(stream).or_default();
        let candidates = if unordered { waiting.len() } else { waiting.len().min(1) };
        let is_it = |&number: &usize| content(number, self.load.size) == message;
        let place = waiting.iter().take(candidates).position(is_it).ok_or(Mismatch::Content(stream))?;
        waiting.remove(place);
        self.back += 1;
        self.longest_silence = self.longest_silence.max(now.since(self.last_back));
        self.last_back = now;
        Ok(())
    }

    /// Reports whether all messages have returned.
    pub fn is_done(&self) -> bool {
        self.back == self.load.count
    }

    /// Returns the number of returned messages.
    pub fn back(&self) -> usize {
        self.back
    }

    /// Returns the longest time between two successive returns of messages. The time from the start to the
    /// first return also counts.
    pub fn longest_silence(&self) -> Duration {
        self.longest_silence
    }

    fn is_willing(&self) -> bool {
        self.sent < self.load.count && self.sent - self.back < self.load.window
    }

    fn next_stream(&self) -> u16 {
        // The remainder is less than `streams`, a u16.
        (self.sent % usize::from(self.load.streams)) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::{Client, Mismatch};
    use crate::content;
    use crate::options::Load;
    use base::Time;

    const LOAD: Load = Load {
        count: 4,
        size: 10,
        streams: 2,
        window: 3,
        gap: 0.0,
        unordered: false,
        add: None,
        reset: false,
    };

    fn all_sent(load: Load) -> Client {
        let mut client = Client::new(load, Time::ZERO);
        while client.next(Time::ZERO).is_some() {
            client.on_sent(Time::ZERO);
        }
        client
    }

    #[test]
    fn no_more_messages_are_under_way_than_the_window_allows() {
        let mut client = all_sent(LOAD);
        assert_eq!((client.sent, client.wakes_at()), (3, Time::NEVER));
        client.on_back(0, false, &content(0, 10), Time::ZERO).unwrap();
        assert_eq!(client.next(Time::ZERO), Some((1, content(3, 10))));
    }

    #[test]
    fn a_gap_holds_the_next_message_back() {
        let mut client = Client::new(Load { gap: 0.5, ..LOAD }, Time::ZERO);
        client.on_sent(Time::ZERO);
        assert_eq!(client.next(Time::from_millis(499)), None);
        assert_eq!(client.wakes_at(), Time::from_millis(500));
        assert!(client.next(Time::from_millis(500)).is_some());
    }

    #[test]
    fn a_message_that_overtakes_another_message_of_its_stream_is_noticed() {
        let mut client = all_sent(LOAD);
        let early = client.on_back(0, false, &content(2, 10), Time::ZERO);
        assert_eq!(early, Err(Mismatch::Content(0)));
    }

    #[test]
    fn a_message_that_comes_back_twice_is_noticed() {
        let mut client = all_sent(LOAD);
        client.on_back(1, false, &content(1, 10), Time::ZERO).unwrap();
        assert_eq!(client.on_back(1, false, &content(1, 10), Time::ZERO), Err(Mismatch::Content(1)));
    }

    #[test]
    fn unordered_messages_may_overtake_each_other_but_not_change() {
        let mut client = all_sent(Load { unordered: true, ..LOAD });
        client.on_back(0, true, &content(2, 10), Time::ZERO).unwrap();
        assert_eq!(client.on_back(0, true, &content(7, 10), Time::ZERO), Err(Mismatch::Content(0)));
        assert_eq!(client.on_back(0, false, &content(0, 10), Time::ZERO), Err(Mismatch::Ordering(0)));
    }
}
