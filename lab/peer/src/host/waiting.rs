//! Waits for packets without epoll: in a receiving call, by busy polling, or with a short sleep. This module serves
//! only hosts with one socket, and only while packets keep arriving.
//!
//! With the carrier IP, the kernel delivers packets one at a time. Without a pause, each packet would wake this
//! program. A wakeup costs more processor time than the reception of a packet. During a bulk transfer, the host
//! therefore sleeps briefly before it receives. Several packets then arrive in one turn, and share a SACK.
//!
//! Begin with [`Host::may_wait_in_receiving`].

use super::{Host, since};
use crate::awake::AWAKE;
use anyhow::{Context, Result};
use base::{Ecn, Route, Time};
use netio::PATIENCE;
use std::time::Duration;

/// Duration of the short sleep. The kernel may double this duration. Even then, it is small compared with the 200 ms
/// within which a SACK is due (RFC 9260 section 6.2).
const PAUSE: Duration = Duration::from_micros(50);

impl Host {
    /// Reports whether a receiving call may replace the poll. Three conditions must hold: a packet is likely to arrive
    /// soon, only packets of the socket can end the wait, and no timer expires before the receiving call times out.
    pub(super) fn may_wait_in_receiving(&self, until: Time) -> bool {
        let is_idle = !self.io.is_blocked() && self.post.is_none() && !self.io.has_unread();
        self.is_lively && is_idle && until.since(self.now()) > 2 * PATIENCE
    }

    /// Waits in a receiving call if the host has only one socket. With more sockets, returns false at once. If few
    /// packets passed since the last wait (`is_sparse`), may busy-poll first. If many packets passed and the kernel
    /// delivers them one at a time, first sleeps briefly.
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
