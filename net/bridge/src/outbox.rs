//! Output of frames to an interface, in batches.

use std::io;

use base::Time;
use netio::{FRAMES_PER_CALL, FrameSocket};

use crate::clock;

/// Limit on the frames that are sent in one turn. After each turn, the program receives new frames.
pub const PACKETS_PER_TURN: usize = 4 * FRAMES_PER_CALL;

/// The current batch of frames, and the counts of sent and refused frames.
#[derive(Debug, Default)]
pub struct Outbox {
    frames: Vec<Vec<u8>>,
    sent: u64,
    refused: u64,
}

impl Outbox {
    /// Sends the frames that `next` returns. Stops when `next` returns `None`, or after [`PACKETS_PER_TURN`] frames. Returns the number of
    /// frames that `next` has returned, including frames that the kernel refused. `next` gets the current time, which is read once for each
    /// batch.
    ///
    /// # Errors
    /// Returns an error if the interface is down or gone. The batch is then lost.
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

    /// Returns the number of frames that the kernel accepted.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of frames that the kernel refused, because they were too long for the interface or memory was short.
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
