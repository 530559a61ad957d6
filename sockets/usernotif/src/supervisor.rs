//! The supervisor's event loop. It receives system calls, executes them or lets them wait, and answers them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::call::{Verdict, Wait};
use crate::calls::Calls;
use crate::listener::Listener;
use crate::memory::Outcome;
use crate::programs::{Signalled, is_killed, signalled};
use crate::rounds::Rounds;

/// Interval between checks of the waiting calls. A check finds signals, time limits that have passed, and threads that have ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Limit on the calls of one check. To check a call takes some 20 us, so further calls must wait for later checks.
const LOOKS: usize = 64;
/// Limit on the events of one turn.
const EVENTS: usize = 64;
/// Number of the listener in epoll's events. A call has the number that the kernel gave it. The kernel counts from a random number, so
/// a call with the listener's number is very unlikely.
const LISTENER: u64 = 0;
/// `ERESTARTSYS`. After this answer, the kernel returns `EINTR` to the program, or begins the call again. The signal's action decides
/// (`SA_RESTART`).
const RESTART: i32 = 512;

/// Number of consecutive checks after which a call ends, if each check finds that the call's thread may have a signal.
const DOUBTS: u8 = 3;
/// Time limit for a request to the server.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A call that waits.
struct Parked {
    wait: Box<Wait>,
    deadline: Option<Instant>,
    doubts: u8,
}

/// Executes the calls of all programs under the listener's filter, until the last program has ended.
///
/// # Errors
/// The errors of the listener and of epoll(7).
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
    /// Waits for events and handles them. Returns false after the last program has ended.
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

    /// Continues a call. If the call's thread has ended or was killed, does nothing: a received message would be lost, because no program
    /// would get it. A killed thread still waits until it gets a processor.
    fn resume(&mut self, call: u64, parked: Parked) {
        if self.listener.is_waiting(call) && !is_killed(parked.wait.call.notice.thread) {
            let verdict = self.calls.resume(*parked.wait);
            self.finish(call, verdict, Some(parked.deadline));
        }
    }

    /// Answers a call, or lets it wait. `waited` is the time limit of a call that has waited before. Such a call keeps its time limit.
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
        // The descriptor was added, so its removal succeeds.
        let _ = epoll::delete(&self.ready, &parked.wait.fd);
        Some(parked)
    }

    /// Checks up to [`LOOKS`] waiting calls, and ends the calls that must not wait any more.
    fn look(&mut self) {
        self.looked_at = now();
        for id in self.parked.next(LOOKS) {
            if let Some(outcome) = self.end_of(id) {
                self.unpark(id);
                self.listener.answer(id, outcome);
            }
        }
    }

    /// Returns the outcome of a call that ends now. A call ends if its thread has ended, if its time limit has passed, or if its thread
    /// has a signal to handle. Returns `None` if the call continues to wait, or no longer waits.
    fn end_of(&mut self, id: u64) -> Option<Outcome> {
        let Parked { wait, deadline, doubts } = self.parked.get_mut(id)?;
        if !self.listener.is_waiting(id) {
            // The thread has ended, so the kernel discards this answer.
            return Some(Err(libc::EINTR));
        }
        if let Some((_, outcome)) = wait.limit
            && deadline.is_some_and(|deadline| self.looked_at >= deadline)
        {
            return Some(outcome);
        }
        // A call with a time limit does not begin again after a signal. The kernel's own sockets behave in the same way.
        let again = if wait.limit.is_some() { libc::EINTR } else { RESTART };
        match signalled(wait.call.notice.thread) {
            Signalled::No => *doubts = 0,
            Signalled::Yes => return Some(wait.done().ok_or(wait.interrupted.unwrap_or(again))),
            // The kernel may have given the signal to another thread. If this thread has no signal, its program would see RESTART as an
            // error. The call therefore waits for further checks, and then ends with EINTR. This case is rare, because the main thread
            // usually gets the signal.
            Signalled::Perhaps => *doubts += 1,
        }
        (*doubts >= DOUBTS).then(|| wait.done().ok_or(libc::EINTR))
    }
}

/// Raises this process's soft limit on descriptors, because each waiting call takes two descriptors. The new limit is the hard limit, or
/// the size of `sockclient`'s table of descriptors if that is lower.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If this fails, fewer calls can wait.
    let most = limit.maximum.unwrap_or(u64::MAX).min(sockclient::table::REMEMBERED as u64);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
}

/// Returns the time of the real clock, because this crate serves real programs.
#[allow(clippy::disallowed_methods, reason = "this crate serves real programs")]
fn now() -> Instant {
    Instant::now()
}
