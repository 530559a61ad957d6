//! Frames out of an interface, by the batch.

use std::io;

use base::Time;
use netio::{FRAMES_PER_CALL, FrameSocket};

use crate::clock;

/// Packets given out in one turn at most, before frames are taken again.
pub const PACKETS_PER_TURN: usize = 4 * FRAMES_PER_CALL;

/// Frames on their way out, and what became of those before.
#[derive(Debug, Default)]
pub struct Outbox {
    frames: Vec<Vec<u8>>,
    sent: u64,
    refused: u64,
}

impl Outbox {
    /// Sends what `next` gives until it gives nothing, [`PACKETS_PER_TURN`] frames at most; tells how many it gave. `next` is told
    /// the time, which it is once for each batch.
    ///
    /// # Errors
    /// When the interface is down or gone; the batch is lost.
    pub fn give(
        &mut self,
        to: &mut FrameSocket,
        mut next: impl FnMut(Time) -> Option<Vec<u8>>,
    ) -> io::Result<usize> {
        let mut given = 0;
        for _ in 0..PACKETS_PER_TURN / FRAMES_PER_CALL {
            let now = clock::now();
            self.frames.extend(std::iter::from_fn(|| next(now)).take(FRAMES_PER_CALL));
            if self.frames.is_empty() {
                break;
            }
            given += self.frames.len();
            self.send(to)?;
        }
        Ok(given)
    }

    /// Frames that the kernel took.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Frames that it did not: too long for the interface, or no memory.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn send(&mut self, to: &mut FrameSocket) -> io::Result<()> {
        let frames: Vec<&[u8]> = self.frames.iter().map(Vec::as_slice).collect();
        let count = frames.len();
        let outcome = to.send(&frames);
        self.frames.clear();
        let sent = outcome?.sent;
        self.sent += sent as u64;
        self.refused += (count - sent) as u64;
        Ok(())
    }
}
