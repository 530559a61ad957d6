//! Keeps payloads beyond the life of the packet they came in, several to an allocation.

use bytes::{Bytes, BytesMut};

/// Bytes allocated at once; small, because one payload kept for long keeps its whole block.
const BLOCK: usize = 16 * 1024;

/// Payloads from this length on share a block.
const SHARED_FROM: usize = 512;

/// Copies payloads out of packets.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    block: BytesMut,
}

impl Arena {
    /// A copy of `payload` that may be kept.
    pub(crate) fn keep(&mut self, payload: &[u8]) -> Bytes {
        if payload.len() < SHARED_FROM {
            return Bytes::copy_from_slice(payload);
        }
        if self.block.capacity() < payload.len() {
            self.block = BytesMut::with_capacity(BLOCK.max(payload.len()));
        }
        self.block.extend_from_slice(payload);
        self.block.split().freeze()
    }
}
