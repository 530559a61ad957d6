//! Remembers which interfaces refuse trains of packets in one piece (GSO).

use std::collections::BTreeMap;

/// Limit on the segments of one train. All kernels since 4.18 accept 64 segments (UDP_MAX_SEGMENTS). Newer kernels accept 128.
pub(crate) const SEGMENTS_MAX: usize = 64;
/// Limit on the bytes of one train: the longest UDP payload over IPv4.
pub(crate) const TRAIN_BYTES_MAX: usize = 65_507;
/// Number of trains that are sent packet by packet over an interface after the interface has refused a train. After these trains,
/// GSO is tried again.
const RETRY_AFTER_TRAINS: u32 = 4096;
/// Limit on the remembered interfaces. If another interface would exceed the limit, all interfaces are forgotten.
const INTERFACES_MAX: usize = 64;

/// Interfaces that refused trains, and the number of trains until the next try. Invariant: no more than [`INTERFACES_MAX`]
/// entries, each above zero.
#[derive(Default)]
pub(crate) struct Refusals(BTreeMap<u32, u32>);

impl Refusals {
    /// Reports whether to try GSO over the interface now. Index 0 stands for the interface that the kernel chooses.
    pub(crate) fn allow(&mut self, ifindex: u32) -> bool {
        let Some(left) = self.0.get_mut(&ifindex) else { return true };
        *left -= 1;
        if *left == 0 {
            self.0.remove(&ifindex);
        }
        false
    }

    /// Notes that the interface refused a train, but accepted the train's packets one by one.
    pub(crate) fn note(&mut self, ifindex: u32) {
        if self.0.len() >= INTERFACES_MAX {
            self.0.clear();
        }
        self.0.insert(ifindex, RETRY_AFTER_TRAINS);
    }
}

/// Returns the maximum length in bytes of a train whose packets have `segment_size` bytes. The train holds one or more whole
/// packets.
pub(crate) fn max_batch(segment_size: usize) -> usize {
    let segment_size = segment_size.max(1);
    segment_size * (TRAIN_BYTES_MAX / segment_size).clamp(1, SEGMENTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_is_limited_to_64_packets_and_65507_bytes() {
        assert_eq!(max_batch(1000), 64_000);
        assert_eq!(max_batch(1472), 44 * 1472);
        assert_eq!(max_batch(40_000), 40_000);
        assert_eq!(max_batch(70_000), 70_000);
        assert_eq!(max_batch(0), 64);
    }

    #[test]
    fn a_gso_refusal_disables_trains_on_its_interface_until_the_retry() {
        let mut refusals = Refusals::default();
        refusals.note(3);
        assert!(refusals.allow(4));
        for _ in 0..RETRY_AFTER_TRAINS {
            assert!(!refusals.allow(3));
        }
        assert!(refusals.allow(3));
    }
}
