//! Waits for the event loop's events, and reads the clock.
//!
//! The loop does not sleep while a near peer's answer is due. It pauses to let more traffic gather. Begin at [`Poller::wait`].

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
    /// Time until which a near peer's answer, and the packets that follow it at once, may arrive.
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

    /// Keeps [`Poller::wait`] from sleeping before this time.
    pub(crate) const fn stay_awake(&mut self, until: Time) {
        self.awake_until = until;
    }

    /// Waits for events, but not beyond `next`. Returns the time at the end of the wait. Does not wait if `more` is true or
    /// `pump` has ready connections.
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
        // To sleep and wake takes longer than a near peer's answer. Each round yields the processor to other programs.
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
