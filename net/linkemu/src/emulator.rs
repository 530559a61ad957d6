//! One emulated link: two interfaces, two directions, and a loop that wakes up when the next packet is due.
//!
//! Each frame enters the link with the kernel's receive timestamp. The emulated delay begins at this timestamp. The time from the
//! timestamp until the frame is read therefore does not lengthen the delay. Begin at [`Emulator::open`] and [`Emulator::run`].

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Time;
use netio::{FRAMES_PER_CALL, FrameSocket};
use nix::errno::Errno;

use crate::control::Served;
use crate::direction::{Direction, warnings};
use crate::error::LinkemuError;
use crate::lateness::LatenessReport;
use crate::plan::{Plan, changed};
use crate::recent::RecentReport;
use crate::report::{Answer, Report, Request};
use bridge::{BridgeError, Claim, PACKETS_PER_TURN, PreciseSleep, clock};

/// Limit on the receive calls on one interface in a turn. The limit keeps the turn short, because due packets are sent only after
/// these calls.
const RECEIVES_PER_TURN: usize = 2;

/// One link.
pub(crate) struct Emulator {
    plan: Plan,
    names: [String; 2],
    seed: u64,
    sockets: [FrameSocket; 2],
    /// Claims on both interfaces, which prevent their use by other links; `None` after the link has stopped.
    claims: Option<[Claim; 2]>,
    /// The directions from a to b and from b to a.
    directions: [Direction; 2],
    sleep: PreciseSleep,
    began: Time,
    is_realtime: bool,
}

impl Emulator {
    /// Opens both interfaces.
    ///
    /// # Errors
    /// Returns an error if a setting is invalid, or if an interface cannot be used.
    pub(crate) fn open(plan: Plan) -> Result<Emulator, LinkemuError> {
        let [ab, ba] = plan.configs()?;
        let seed = plan.seed.unwrap_or_else(|| fastrand::u64(..));
        let (a, claim_a) = plan.a.open()?;
        let (b, claim_b) = plan.b.open()?;
        Ok(Emulator {
            names: [plan.a.to_string(), plan.b.to_string()],
            sockets: [a, b],
            claims: Some([claim_a, claim_b]),
            directions: [Direction::new(ab, seed), Direction::new(ba, seed.wrapping_add(1))],
            sleep: PreciseSleep::default(),
            began: clock::now(),
            is_realtime: false,
            plan,
            seed,
        })
    }

    /// Forwards packets until a client sends [`Request::Stop`], or until `stop` is set. Answers [`Request::Stop`] only after the
    /// link's name and interfaces are free again.
    ///
    /// # Errors
    /// Returns an error if an interface has been removed, or if the kernel refuses a call.
    pub(crate) fn run(&mut self, stop: &AtomicBool, served: Served) -> Result<(), LinkemuError> {
        self.is_realtime = clock::be_exact()?;
        let mut is_behind = false;
        while !stop.load(Ordering::Relaxed) {
            if !is_behind {
                self.sleep_until_due(&served.news)?;
            }
            is_behind = self.take(0)? | self.take(1)?;
            for n in 0..2 {
                let given = match self.directions[n].give(&mut self.sockets[1 - n]) {
                    Ok(given) => given,
                    Err(error) => self.judge(1 - n, error).map(|()| 0)?,
                };
                self.sleep.note(given);
                is_behind |= given == PACKETS_PER_TURN;
            }
            while let Ok(asked) = served.asked.try_recv() {
                let answer = self.answer(&asked.request);
                if asked.request == Request::Stop {
                    drop((served, self.claims.take()));
                    asked.answer_at_last(answer);
                    return Ok(());
                }
                asked.answer(answer);
            }
        }
        Ok(())
    }

    /// Sleeps until a frame arrives, a packet is due, or a request arrives.
    fn sleep_until_due(&mut self, news: &UnixStream) -> Result<(), LinkemuError> {
        let next = self.directions[0].next_wakeup().min(self.directions[1].next_wakeup());
        let [at_a, at_b] = &self.sockets;
        let [.., has_news] = self.sleep.until(next, [at_a.as_fd(), at_b.as_fd(), news.as_fd()])?;
        if has_news {
            // The read only empties the socket, so its content and its result are ignored.
            let _ = io::Read::read(&mut &*news, &mut [0; 64]);
        }
        Ok(())
    }

    /// Receives frames from end `n`. Returns true if further frames may wait in the socket.
    fn take(&mut self, n: usize) -> Result<bool, LinkemuError> {
        let [first, second] = &mut self.directions;
        let (there, back) = if n == 0 { (first, second) } else { (second, first) };
        for _ in 0..RECEIVES_PER_TURN {
            match self.sockets[n].receive(|frame| there.take(frame, back)) {
                Ok(FRAMES_PER_CALL) => {}
                Ok(_) => return Ok(false),
                Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => there.on_unfinishable(),
                Err(error) => return self.judge(n, error).map(|()| false),
            }
        }
        Ok(true)
    }

    /// Returns `Ok` if a call on interface `n` failed because the interface is down. This error does not end the link, because the
    /// interface may come up again.
    ///
    /// # Errors
    /// [`BridgeError::Interface`] if the interface has been removed, and for any error except `ENETDOWN`. This error ends the link.
    fn judge(&self, n: usize, error: io::Error) -> Result<(), LinkemuError> {
        let is_down = error.raw_os_error() == Some(Errno::ENETDOWN as i32);
        if is_down && self.sockets[n].is_up().is_ok() {
            return Ok(());
        }
        let hint = "it was removed: the link has ended";
        Err(BridgeError::Interface { end: self.names[n].clone(), source: error, hint }.into())
    }

    fn answer(&mut self, request: &Request) -> Answer {
        if let Request::Set { both, ab, ba } = request {
            let now = [self.directions[0].config(), self.directions[1].config()];
            let [ab, ba] =
                changed(now, both, [ab, ba]).map_err(|error| error.at(&self.plan.name).to_string())?;
            self.directions[0].set_config(ab);
            self.directions[1].set_config(ba);
        }
        Ok(Box::new(self.report()))
    }

    /// Returns the last report of the link. All warnings in this report cover the link's whole lifetime.
    pub(crate) fn last_report(&mut self) -> Report {
        let mut report = self.report();
        let seconds = report.uptime_s as u64;
        for direction in &mut report.directions {
            let LatenessReport { packets, late, max_us, .. } = direction.late;
            direction.recent =
                RecentReport { seconds, packets, late, max_us, missed: direction.frames.missed };
        }
        report.warnings = report.directions.iter().flat_map(warnings).collect();
        report
    }

    /// Returns the link's report.
    pub(crate) fn report(&mut self) -> Report {
        let [a, b] = [self.names[0].as_str(), self.names[1].as_str()];
        let [ab, ba] = &mut self.directions;
        let [at_a, at_b] = &mut self.sockets;
        let directions = [ab.report([a, b], at_a), ba.report([b, a], at_b)];
        Report {
            name: self.plan.name.clone(),
            a: a.to_owned(),
            b: b.to_owned(),
            pid: std::process::id(),
            seed: self.seed,
            realtime: self.is_realtime,
            uptime_s: clock::now().since(self.began).as_secs_f64(),
            warnings: directions.iter().flat_map(warnings).collect(),
            directions,
        }
    }
}
