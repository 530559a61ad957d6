//! The poll that the event loop waits on, and the clock.
//!
//! The loop does not sleep while a near peer's answer is due, and pauses while more traffic can gather. Begin at
//! [`Poller::wait`].

use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use base::Time;
use mio::{Events, Poll, Registry};

use crate::clock::Clock;
use crate::interception::Interception;
use crate::pump::Pump;

/// Poll and clock.
pub(crate) struct Poller {
    poll: Poll,
    clock: Clock,
    /// Time until which the answer of a near peer, and what follows at once from it, may come.
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

    /// Does not sleep before that time.
    pub(crate) const fn stay_awake(&mut self, until: Time) {
        self.awake_until = until;
    }

    /// Waits for events, until `next` if none come; returns the time then. If there is `more` to do, it does not wait.
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
        // Sleeping and waking would take longer than such an answer. Other programs that can use the processor get it.
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
