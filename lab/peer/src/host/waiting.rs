//! Waits for packets without epoll: in a receiving call, by busy polling, or with a short sleep. It serves hosts with
//! one socket, while packets keep arriving.
//!
//! Over IP, the kernel delivers packets one at a time. Each would wake this program, which costs both ends more time
//! than its reception. During a bulk transfer, the host therefore sleeps briefly before it receives. More packets then
//! share a turn and a SACK.
//!
//! Begin with [`Host::may_wait_in_receiving`].

use super::{Host, since};
use crate::awake::AWAKE;
use anyhow::{Context, Result};
use base::{Ecn, Route, Time};
use netio::PATIENCE;
use std::time::Duration;

/// Duration of the short sleep, which the kernel may double. It is small compared with the 200 ms within which a SACK
/// is due (RFC 9260 section 6.2).
const PAUSE: Duration = Duration::from_micros(50);

impl Host {
    /// Reports whether a receiving call may replace the poll. A packet must be likely to arrive soon, nothing else may
    /// be due to end the wait, and no timer may expire before the call gives up.
    pub(super) fn may_wait_in_receiving(&self, until: Time) -> bool {
        let is_idle = !self.io.is_blocked() && self.post.is_none() && !self.io.has_unread();
        self.is_lively && is_idle && until.since(self.now()) > 2 * PATIENCE
    }

    /// Waits in a receiving call if the host has only one socket. Returns false at once if it has more. With few
    /// packets (`is_sparse`), it may busy-poll first. With many packets that arrive one at a time, it first sleeps
    /// briefly.
    pub(super) fn receive_waiting(&mut self, is_sparse: bool) -> Result<bool> {
        if !self.io.is_lone() {
            return Ok(false);
        }
        if is_sparse && self.awake.is_worth_it() {
            let came = self.receive_awake()?;
            self.awake.note(came);
            if came {
                return Ok(true);
            }
        }
        if !is_sparse && self.come_singly {
            std::thread::sleep(PAUSE);
        }
        self.receive_at_once(true)?;
        Ok(true)
    }

    /// Polls the socket repeatedly for up to [`AWAKE`]. Returns true if a packet arrived.
    fn receive_awake(&mut self) -> Result<bool> {
        let end = self.now() + AWAKE;
        while self.now() < end {
            self.receive_at_once(false)?;
            if self.is_lively {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Receives once from the only socket, and hands the packets to the engine. Waits for a packet if `may_wait` is
    /// set.
    fn receive_at_once(&mut self, may_wait: bool) -> Result<()> {
        let (engine, door, start) = (&mut self.engine, &mut self.door, self.start);
        let mut now = None;
        let received = self.io.receive_once(may_wait, |route: &Route, ecn: Ecn, packet: &[u8]| {
            let now = *now.get_or_insert_with(|| since(start));
            engine.handle_datagram(now, route, ecn, packet, door);
        });
        let received = received.context("receiving failed")?;
        self.is_lively = received.packets > 0;
        self.packets += received.packets;
        let now = self.now();
        self.io.take_errors(now, &mut self.engine, received);
        Ok(())
    }
}
