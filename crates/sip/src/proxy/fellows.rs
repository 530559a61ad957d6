//! Which of the proxies that share users are there, by what they say of themselves every two seconds.
//!
//! A flow of one that is silent is taken to be gone, so that nobody waits for it; but only while others are heard, this one among
//! them: else it is the news that do not come. Invariant: who is silent is forgotten, and no more than [`FELLOWS_MAX`] are known.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;

/// Three of those times without a word, and a second for the news to come.
const SILENCE_MAX: Duration = Duration::from_secs(7);
/// Proxies that are known at once.
const FELLOWS_MAX: usize = 1000;

/// Those that are there, each by its first listener.
#[derive(Debug, Default)]
pub(super) struct Fellows {
    heard: BTreeMap<SocketAddr, Time>,
    /// Since when somebody has been heard all the time.
    since: Time,
}

impl Fellows {
    /// One says that it is there.
    pub(super) fn note(&mut self, now: Time, address: SocketAddr) {
        if !self.is_anybody_heard(now) {
            self.since = now;
        }
        self.heard.retain(|_, at| *at + SILENCE_MAX > now);
        if self.heard.len() < FELLOWS_MAX || self.heard.contains_key(&address) {
            self.heard.insert(address, now);
        }
    }

    fn is_anybody_heard(&self, now: Time) -> bool {
        self.heard.values().any(|at| *at + SILENCE_MAX > now)
    }

    /// Whether this one would have been heard if it were there.
    pub(super) fn is_gone(&self, now: Time, address: SocketAddr) -> bool {
        let is_heard = self.heard.get(&address).is_some_and(|at| *at + SILENCE_MAX > now);
        self.is_anybody_heard(now) && self.since + SILENCE_MAX <= now && !is_heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_while_others_speak_is_gone() {
        let (ours, other) = ("192.0.2.1:5060".parse().unwrap(), "192.0.2.2:5060".parse().unwrap());
        let mut fellows = Fellows::default();
        let second = |s: u64| Time::from_millis(1000 * s);
        for s in 100..=106 {
            fellows.note(second(s), ours);
            assert!(!fellows.is_gone(second(s), other), "it may have said nothing yet");
        }
        fellows.note(second(107), ours);
        assert!(fellows.is_gone(second(107), other));
        fellows.note(second(108), other);
        for s in 109..=114 {
            fellows.note(second(s), ours);
            assert!(!fellows.is_gone(second(s), other), "{s}");
        }
        fellows.note(second(115), ours);
        assert!(fellows.is_gone(second(115), other) && !fellows.is_gone(second(115), ours));
        // Nobody is heard: it is the news that do not come, and when they do again all get their time.
        assert!(!fellows.is_gone(second(130), other));
        fellows.note(second(130), ours);
        assert!(!fellows.is_gone(second(130), other));
    }
}
