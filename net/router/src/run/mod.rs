//! `sctpify-router run`: joins two interfaces like a cable, with a queue for each direction.
//!
//! Begin at [`run`]; [`direction`] is one direction of the link. The router changes nothing in a packet except the ECN mark. It
//! has no addresses and no routes. The limit of the queue bounds the waiting packets.

mod direction;
mod page;
mod report;

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::Time;
use bridge::{BridgeError, Claim, PACKETS_PER_TURN, PreciseSleep, clock};
use netio::{FRAMES_PER_CALL, FrameSocket};

use crate::args::RunArgs;
use crate::error::RouterError;
use crate::signals;
use direction::Direction;

pub(crate) use page::metrics;
pub use report::{DirectionReport, RunReport};

/// Limit on the receive calls for one interface in a turn, before packets are sent.
const RECEIVES_PER_TURN: usize = 2;
/// Interval at which the page's counters are updated.
const REPORT_PAUSE: Duration = Duration::from_secs(1);
/// Error of a receive call (EINVAL) for a frame whose offload the kernel cannot describe.
const UNFINISHABLE: i32 = 22;
/// Error of an interface that is down (ENETDOWN).
const DOWN: i32 = 100;

/// Last report, which the page reads.
type Shared = Arc<Mutex<RunReport>>;

/// State of the router.
struct Running {
    names: [String; 2],
    sockets: [FrameSocket; 2],
    _claims: [Claim; 2],
    directions: [Direction; 2],
    began: Time,
}

/// Forwards packets until a signal arrives, and then prints the counters.
///
/// # Errors
/// When an interface cannot be used or was removed, or when the page's port is taken.
pub(crate) fn run(args: &RunArgs, json: bool, out: &mut dyn Write) -> Result<(), RouterError> {
    let stop = signals::stop()?;
    let mut running = Running::open(args)?;
    let shared: Shared = Arc::new(Mutex::new(running.report()));
    page::serve(args.metrics_port, &shared)?;
    writeln!(out, "running")?;
    out.flush()?;
    let outcome = running.pass(&stop, &shared);
    let report = running.report();
    if json {
        writeln!(out, "{}", report.json())?;
    } else {
        write!(out, "{report}")?;
    }
    outcome
}

impl Running {
    fn open(args: &RunArgs) -> Result<Running, RouterError> {
        let ((a, claim_a), (b, claim_b)) = (args.a.open()?, args.b.open()?);
        let back = args.rate_back.unwrap_or(args.rate);
        Ok(Running {
            names: [args.a.to_string(), args.b.to_string()],
            sockets: [a, b],
            _claims: [claim_a, claim_b],
            directions: [Direction::new(args, args.rate, 1), Direction::new(args, back, 2)],
            began: clock::now(),
        })
    }

    fn pass(&mut self, stop: &AtomicBool, shared: &Shared) -> Result<(), RouterError> {
        // Without permission for real-time scheduling, the router still works, but packets leave a little later.
        clock::be_exact()?;
        let mut sleep = PreciseSleep::default();
        let mut is_behind = false;
        let mut next_report = clock::now() + REPORT_PAUSE;
        while !stop.load(Ordering::Relaxed) {
            if !is_behind {
                let due = self.directions.iter().map(Direction::next).min().unwrap_or(Time::NEVER);
                sleep.until(due.min(next_report), [self.sockets[0].as_fd(), self.sockets[1].as_fd()])?;
            }
            is_behind = self.take(0)? | self.take(1)?;
            for n in 0..2 {
                let given = match self.directions[n].give(&mut self.sockets[1 - n]) {
                    Ok(given) => given,
                    Err(error) => self.judge(1 - n, error).map(|()| 0)?,
                };
                sleep.note(given);
                is_behind |= given == PACKETS_PER_TURN;
            }
            if clock::now() >= next_report {
                next_report = clock::now() + REPORT_PAUSE;
                *shared.lock().unwrap_or_else(PoisonError::into_inner) = self.report();
            }
        }
        Ok(())
    }

    /// Receives frames of interface `n`. Returns whether more frames may wait.
    fn take(&mut self, n: usize) -> Result<bool, RouterError> {
        let direction = &mut self.directions[n];
        for _ in 0..RECEIVES_PER_TURN {
            match self.sockets[n].receive(|frame| direction.take(frame)) {
                Ok(FRAMES_PER_CALL) => {}
                Ok(_) => return Ok(false),
                Err(error) if error.raw_os_error() == Some(UNFINISHABLE) => direction.on_unfinishable(),
                Err(error) => return self.judge(n, error).map(|()| false),
            }
        }
        Ok(true)
    }

    /// Ignores the error of an interface that is down, because it may come back. Returns all other errors.
    fn judge(&self, n: usize, source: io::Error) -> Result<(), RouterError> {
        if source.raw_os_error() == Some(DOWN) && self.sockets[n].is_up().is_ok() {
            return Ok(());
        }
        let hint = "it was removed";
        Err(BridgeError::Interface { end: self.names[n].clone(), source, hint }.into())
    }

    fn report(&mut self) -> RunReport {
        let [a, b] = [self.names[0].as_str(), self.names[1].as_str()];
        let [ab, ba] = &mut self.directions;
        let [at_a, at_b] = &mut self.sockets;
        let directions = [ab.report([a, b], at_a), ba.report([b, a], at_b)];
        RunReport { uptime_s: clock::now().since(self.began).as_secs_f64(), directions }
    }
}
