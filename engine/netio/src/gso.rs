//! Finds out if the kernel takes trains of packets in one piece.

use std::collections::BTreeMap;

/// Segments of one train at most. Newer kernels take 128; 64 holds for all since 4.18 (UDP_MAX_SEGMENTS).
pub(crate) const SEGMENTS_MAX: usize = 64;
/// Bytes of one train at most: the longest UDP payload over IPv4.
pub(crate) const TRAIN_BYTES_MAX: usize = 65_507;
/// Trains that go packet by packet over an interface that refused one, before GSO is tried again.
const RETRY_AFTER_TRAINS: u32 = 4096;
/// Interfaces remembered at most; beyond that the memory starts anew.
const INTERFACES_MAX: usize = 64;

/// Remembers which interfaces refused trains. Invariant: no more than [`INTERFACES_MAX`] entries, each above zero.
#[derive(Default)]
pub(crate) struct Refusals(BTreeMap<u32, u32>);

impl Refusals {
    /// Reports whether to try GSO over the interface now (0: the one the kernel chooses).
    pub(crate) fn allow(&mut self, ifindex: u32) -> bool {
        let Some(left) = self.0.get_mut(&ifindex) else { return true };
        *left -= 1;
        if *left == 0 {
            self.0.remove(&ifindex);
        }
        false
    }

    /// Notes that the interface refused a train whose packets it takes one by one.
    pub(crate) fn note(&mut self, ifindex: u32) {
        if self.0.len() >= INTERFACES_MAX {
            self.0.clear();
        }
        self.0.insert(ifindex, RETRY_AFTER_TRAINS);
    }
}

/// Returns the bytes of a train of packets of `segment_size` bytes: whole packets, one at least.
pub(crate) fn max_batch(segment_size: usize) -> usize {
    let segment_size = segment_size.max(1);
    segment_size * (TRAIN_BYTES_MAX / segment_size).clamp(1, SEGMENTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_has_64_packets_or_65507_bytes_at_most() {
        assert_eq!(max_batch(1000), 64_000);
        assert_eq!(max_batch(1472), 44 * 1472);
        assert_eq!(max_batch(40_000), 40_000);
        assert_eq!(max_batch(70_000), 70_000);
        assert_eq!(max_batch(0), 64);
    }

    #[test]
    fn a_refusal_holds_for_its_interface_until_the_retry() {
        let mut refusals = Refusals::default();
        refusals.note(3);
        assert!(refusals.allow(4));
        for _ in 0..RETRY_AFTER_TRAINS {
            assert!(!refusals.allow(3));
        }
        assert!(refusals.allow(3));
    }
}
