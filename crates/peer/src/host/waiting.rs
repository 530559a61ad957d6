//! Waiting without a poll: in a receiving call, awake, or in a nap. For hosts with one socket, while packets keep coming.
//!
//! Over IP each packet comes alone and would wake this program, which costs both ends more than to receive it; so in a bulk
//! transfer it first naps. More packets then share a turn and a SACK.
//!
//! Begin with [`Host::may_wait_in_receiving`].

use super::{Host, since};
use crate::awake::AWAKE;
use anyhow::{Context, Result};
use base::{Ecn, Route, Time};
use netio::{Carriers, PATIENCE, Received};
use std::io;
use std::time::Duration;

/// How long to nap; the kernel may double it. Of what may be late it is little: SACKs have 200 ms (RFC 9260 section 6.2).
const NAP: Duration = Duration::from_micros(50);

impl Host {
    /// Whether a receiving call may be the wait: a packet is expected soon, nothing else is, and no timer before the call
    /// gives up.
    pub(super) fn may_wait_in_receiving(&self, until: Time) -> bool {
        let is_idle = self.waiting.is_none() && self.post.is_none() && !self.unread.contains(&true);
        self.is_lively && is_idle && until.since(self.now()) > 2 * PATIENCE
    }

    /// Waits in a receiving call where there is but one socket; false if there are more. Where few packets come awake at
    /// first, where many come one by one napping at first.
    pub(super) fn receive_waiting(&mut self, is_sparse: bool) -> Result<bool> {
        if !self.carriers.is_lone() {
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
            std::thread::sleep(NAP);
        }
        self.receive_at_once(|carriers, f| carriers.recv_waiting(f))?;
        Ok(true)
    }

    /// Asks the socket again and again for a while; whether a packet came.
    fn receive_awake(&mut self) -> Result<bool> {
        let end = self.now() + AWAKE;
        while self.now() < end {
            self.receive_at_once(|carriers, f| carriers.recv(f))?;
            if self.is_lively {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Feeds the engine by one call of the carriers' that receives from all sockets, of which there is one.
    fn receive_at_once(
        &mut self,
        receive: impl FnOnce(&mut Carriers, &mut dyn FnMut(&Route, Ecn, &[u8])) -> io::Result<Received>,
    ) -> Result<()> {
        let (engine, door, start) = (&mut self.engine, &mut self.door, self.start);
        let mut now = None;
        let received = receive(&mut self.carriers, &mut |route: &Route, ecn: Ecn, packet: &[u8]| {
            let now = *now.get_or_insert_with(|| since(start));
            engine.handle_datagram(now, route, ecn, packet, door);
        });
        let received = received.context("receiving failed")?;
        self.is_lively = received.packets > 0;
        self.packets += received.packets;
        // Whichever socket it was: the others are not there.
        self.unread = [received.more; Carriers::TOKENS];
        if received.errors_waiting {
            self.take_errors();
        }
        Ok(())
    }
}
