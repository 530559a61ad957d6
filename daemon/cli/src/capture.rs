//! `sctpify capture`: writes the packets of the daemon's carriers to a pcapng file.
//!
//! The daemon produces the file's contents. This module writes only whole blocks, so the file is valid whenever the capture ends.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use control::{Client, Done, Request, Response};

use crate::session::{ANSWER_TIMEOUT, Session, unexpected};
use crate::signals::stop_flag;
use crate::{CliError, show};

/// Interval at which the capture checks for Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Size of the read buffer, in bytes.
const READ_BYTES: usize = 1 << 16;
/// Limit on the length of a block, in bytes. The daemon never writes a longer block.
const BLOCK_MAX: usize = 1 << 20;
/// pcapng type of an Enhanced Packet Block, which contains one packet.
const PACKET: u32 = 6;

/// Captures for this many seconds, or until a signal arrives.
pub(crate) fn run(session: Session<'_>, file: &Path, seconds: u32) -> Result<(), CliError> {
    let stop = stop_flag()?;
    let mut client = Client::connect(session.control, ANSWER_TIMEOUT)?;
    match client.call(&Request::Capture { seconds })? {
        Response::Done(_) => {}
        Response::Error(refusal) => return Err(CliError::Refused(refusal)),
        other => return Err(unexpected(&other)),
    }
    let cannot_read = |e: io::Error| CliError::Failed(format!("the daemon's packets cannot be read: {e}"));
    let mut from = client.into_stream(LOOK_EVERY).map_err(cannot_read)?;
    let out = File::create(file);
    let out = out.map_err(|e| CliError::Failed(format!("cannot create {}: {e}", file.display())))?;
    let packets = copy(&mut from, &mut BufWriter::new(out), &stop)
        .map_err(|e| CliError::Failed(format!("cannot capture to {}: {e}", file.display())))?;
    let message = format!("{packets} packets in {}", file.display());
    session.print(&Response::Done(Done::new(message)), show::answer)
}

/// Copies whole blocks until the stream ends or `stop` is set; returns the number of packets.
fn copy(from: &mut impl Read, to: &mut impl Write, stop: &AtomicBool) -> io::Result<u64> {
    let (mut waiting, mut packets) = (Vec::new(), 0);
    let mut bytes = vec![0; READ_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => waiting.extend_from_slice(&bytes[..length]),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            // If the daemon stops, the capture ends without an error.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
            Err(e) => return Err(e),
        }
        let (whole, found) = whole_blocks(&waiting)?;
        to.write_all(&waiting[..whole])?;
        waiting.drain(..whole);
        packets += found;
    }
    to.flush()?;
    Ok(packets)
}

/// Returns the length in bytes of the whole blocks at the beginning of `bytes`, and the number of packets in them.
fn whole_blocks(bytes: &[u8]) -> io::Result<(usize, u64)> {
    let (mut at, mut packets) = (0, 0);
    while let Some((head, _)) = bytes[at..].split_first_chunk::<8>() {
        let [kind, length] =
            [0, 4].map(|n| u32::from_le_bytes([head[n], head[n + 1], head[n + 2], head[n + 3]]));
        let length = length as usize;
        if !(12..=BLOCK_MAX).contains(&length) || !length.is_multiple_of(4) {
            return Err(io::Error::new(ErrorKind::InvalidData, "the daemon sent no pcapng block"));
        }
        if bytes.len() - at < length {
            break;
        }
        packets += u64::from(kind == PACKET);
        at += length;
    }
    Ok((at, packets))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, length: u32) -> Vec<u8> {
        let mut block = [kind.to_le_bytes(), length.to_le_bytes()].concat();
        block.resize(length as usize, 7);
        block
    }

    #[test]
    fn a_block_that_has_not_come_whole_is_not_written() {
        let all = [block(1, 20), block(PACKET, 40), block(PACKET, 32)].concat();
        let mut out = Vec::new();
        let packets = copy(&mut &all[..all.len() - 1], &mut out, &AtomicBool::new(false)).unwrap();
        assert_eq!((packets, &out[..]), (1, &all[..60]));
    }

    #[test]
    fn an_invalid_block_length_is_an_error_at_once() {
        for length in [0, 8, 14, u32::MAX] {
            let mut bytes = block(PACKET, 12);
            bytes[4..8].copy_from_slice(&length.to_le_bytes());
            assert!(whole_blocks(&bytes).is_err(), "{length}");
        }
    }
}
