//! The supervisor's loop: calls come in, are done or wait, and are answered.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::call::{Verdict, Wait};
use crate::calls::Calls;
use crate::listener::Listener;
use crate::memory::Outcome;
use crate::programs::{Signalled, signalled};
use crate::rounds::Rounds;

/// How often calls that wait are looked at: for signals, time limits and programs that have ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Calls that are looked at each time. One costs some 20 us, so more of them have their turn later.
const LOOKS: usize = 64;
/// Events by turn.
const EVENTS: usize = 64;
/// The listener's number among the events. Calls have those of the kernel, which begin at random ones.
const LISTENER: u64 = 0;
/// `ERESTARTSYS`: the kernel gives `EINTR` or begins the call again, as the signal's action says.
const RESTART: i32 = 512;

/// Looks at a thread that perhaps has a signal, after which its call ends with `EINTR`.
const DOUBTS: u8 = 3;
/// Longest time that a request to the server may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A call that waits.
struct Parked {
    wait: Box<Wait>,
    deadline: Option<Instant>,
    doubts: u8,
}

/// Does the calls of all programs under the listener's filter, until the last one has ended.
///
/// # Errors
/// Those of the listener, and of epoll(7).
pub fn supervise(listener: &Listener) -> io::Result<()> {
    raise_descriptor_limit();
    sockclient::ask::set_limit(ANSWER_LIMIT);
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&ready, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let parked = Rounds::default();
    let mut supervisor = Supervisor { listener, ready, calls: Calls::default(), parked, looked_at: now() };
    while supervisor.turn()? {}
    Ok(())
}

struct Supervisor<'a> {
    listener: &'a Listener,
    ready: OwnedFd,
    calls: Calls,
    parked: Rounds<Parked>,
    looked_at: Instant,
}

impl Supervisor<'_> {
    /// Waits for something to do and does it. False: no program is left.
    fn turn(&mut self) -> io::Result<bool> {
        let mut events = Vec::with_capacity(EVENTS);
        let limit = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
        let limit = (!self.parked.is_empty()).then_some(&limit);
        match epoll::wait(&self.ready, spare_capacity(&mut events), limit) {
            Err(rustix::io::Errno::INTR) => return Ok(true),
            other => other?,
        };
        for event in events {
            let flags = event.flags;
            match event.data.u64() {
                LISTENER if flags.contains(epoll::EventFlags::IN) => self.take_call()?,
                LISTENER => return Ok(false),
                call => {
                    if let Some(parked) = self.unpark(call) {
                        self.resume(call, parked);
                    }
                }
            }
        }
        if self.looked_at.elapsed() >= LOOK_EVERY {
            self.look();
        }
        Ok(true)
    }

    fn take_call(&mut self) -> io::Result<()> {
        if let Some(notice) = self.listener.receive()? {
            let verdict = self.calls.handle(notice, || self.listener.is_waiting(notice.id));
            self.finish(notice.id, verdict, None);
        }
        Ok(())
    }

    /// Goes on with a call, unless its thread has ended: then nobody would get the message.
    fn resume(&mut self, call: u64, parked: Parked) {
        if self.listener.is_waiting(call) {
            let verdict = self.calls.resume(*parked.wait);
            self.finish(call, verdict, Some(parked.deadline));
        }
    }

    /// Answers a call, or lets it wait. One that has waited before keeps its time limit.
    fn finish(&mut self, call: u64, verdict: Verdict, waited: Option<Option<Instant>>) {
        match verdict {
            Verdict::Answer(outcome) => self.listener.answer(call, outcome),
            Verdict::Pass => self.listener.pass(call),
            Verdict::Give { fd, number, is_cloexec } => {
                if let Err(error) = self.listener.give(call, fd.as_fd(), number, is_cloexec) {
                    self.listener.answer(call, Err(error.raw_os_error().unwrap_or(libc::EMFILE)));
                }
            }
            Verdict::Park(wait) => {
                let limit = wait.limit.map(|(limit, _)| now() + limit);
                self.park(call, Parked { wait, deadline: waited.unwrap_or(limit), doubts: 0 });
            }
        }
    }

    fn park(&mut self, id: u64, parked: Parked) {
        let data = epoll::EventData::new_u64(id);
        if epoll::add(&self.ready, &parked.wait.fd, data, parked.wait.events).is_err() {
            return self.listener.answer(id, Err(libc::ENOBUFS));
        }
        self.parked.insert(id, parked);
    }

    fn unpark(&mut self, call: u64) -> Option<Parked> {
        let parked = self.parked.remove(call)?;
        // It was added, so it is there.
        let _ = epoll::delete(&self.ready, &parked.wait.fd);
        Some(parked)
    }

    /// Ends calls whose time is over, or whose thread has a signal to handle.
    fn look(&mut self) {
        self.looked_at = now();
        for id in self.parked.next(LOOKS) {
            if let Some(outcome) = self.end_of(id) {
                self.unpark(id);
                self.listener.answer(id, outcome);
            }
        }
    }

    /// Returns the outcome with which a call ends now; `None`: it goes on waiting, or does not wait any more.
    fn end_of(&mut self, id: u64) -> Option<Outcome> {
        let Parked { wait, deadline, doubts } = self.parked.get_mut(id)?;
        if !self.listener.is_waiting(id) {
            // Its thread has ended, and nobody gets the answer.
            return Some(Err(libc::EINTR));
        }
        if let Some((_, outcome)) = wait.limit
            && deadline.is_some_and(|deadline| self.looked_at >= deadline)
        {
            return Some(outcome);
        }
        // With a time limit a call does not begin again, as with the kernel's sockets.
        let again = if wait.limit.is_some() { libc::EINTR } else { RESTART };
        match signalled(wait.call.notice.thread) {
            Signalled::No => *doubts = 0,
            Signalled::Yes => return Some(wait.done().ok_or(wait.interrupted.unwrap_or(again))),
            // Without a signal RESTART would reach the program. Several threads that wait are rarely asked for one signal.
            Signalled::Perhaps => *doubts += 1,
        }
        (*doubts >= DOUBTS).then(|| wait.done().ok_or(libc::EINTR))
    }
}

/// Allows as many descriptors as the system lets and the table of descriptors has: each call that waits takes two.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Without it fewer calls can wait.
    let most = limit.maximum.unwrap_or(u64::MAX).min(sockclient::table::REMEMBERED as u64);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
}

/// The real clock: this crate serves real programs.
#[allow(clippy::disallowed_methods, reason = "this crate serves real programs")]
fn now() -> Instant {
    Instant::now()
}
