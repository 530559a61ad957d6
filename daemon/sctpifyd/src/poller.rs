//! Waits for the event loop's events, and reads the clock.
//!
//! While a near peer's answer is due, the loop polls without sleeping. At other times, the loop may pause to let more traffic
//! gather. Begin at [`Poller::wait`].

use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use base::Time;
use mio::{Events, Poll, Registry};

use crate::clock::Clock;
use crate::interception::Interception;
use crate::pump::Pump;

/// The poll and the clock.
pub(crate) struct Poller {
    poll: Poll,
    clock: Clock,
    /// End of the time in which a near peer's answer, and the packets directly after this answer, may arrive.
    awake_until: Time,
}

impl Poller {
    pub(crate) fn new(clock: Clock) -> Result<Poller> {
        let poll = Poll::new().context("cannot create an event loop")?;
        Ok(Poller { poll, clock, awake_until: Time::ZERO })
    }

    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Makes [`Poller::wait`] poll without sleeping until this time.
    pub(crate) const fn stay_awake(&mut self, until: Time) {
        self.awake_until = until;
    }

    /// Waits for events, but not beyond `next`. Returns the time at the end of the wait. Returns without a wait if `more` is
    /// true or `pump` has ready connections.
    pub(crate) fn wait(
        &mut self,
        events: &mut Events,
        next: Time,
        more: bool,
        pump: &Pump,
        interception: &mut Interception,
    ) -> Result<Time> {
        let mut now = self.clock.now();
        if more || pump.len() > 0 {
            return self.poll_for(events, Duration::ZERO);
        }
        // Sleeping and waking take longer than the wait for a near peer's answer, so this loop polls. Each round yields the
        // processor to other programs.
        while now < self.awake_until.min(next) {
            now = self.poll_for(events, Duration::ZERO)?;
            if !events.is_empty() {
                return Ok(now);
            }
            std::thread::yield_now();
        }
        let pause = pump.pause(now);
        if pause > Duration::ZERO && now + pause < next {
            interception.rest(pause);
            now = self.clock.now();
        }
        self.poll_for(events, next.since(now))
    }

    fn poll_for(&mut self, events: &mut Events, pause: Duration) -> Result<Time> {
        match self.poll.poll(events, Some(pause)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error).context("polling failed"),
            _ => Ok(self.clock.now()),
        }
    }
}
