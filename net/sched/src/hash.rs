//! Keyed hash of flows to buckets. Senders cannot predict a flow's bucket, because they do not know the key.

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use crate::packet::Flow;

/// A keyed hash. Another key scatters the flows differently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowHash {
    key: [u64; 2],
}

impl FlowHash {
    pub(crate) fn new(seed: u64) -> FlowHash {
        FlowHash { key: [seed, !seed] }
    }

    /// Changes to the next key, which only the holder of the current key can compute.
    pub(crate) fn perturb(&mut self) {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        hasher.write_u64(self.key[0]);
        let low = hasher.finish();
        hasher.write_u64(low);
        self.key = [low, hasher.finish()];
    }

    /// Returns the bucket of a flow, a number below `buckets`.
    pub(crate) fn bucket(&self, flow: &Flow, buckets: usize) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        flow.hash(&mut hasher);
        (hasher.finish() % buckets.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::flow;

    fn places(hash: FlowHash) -> Vec<usize> {
        (0..1000).map(|n| hash.bucket(&flow(n), 1024)).collect()
    }

    #[test]
    fn flows_are_scattered_evenly_and_anew_by_another_key() {
        let mut hash = FlowHash::new(7);
        let before = places(hash);
        let mut distinct = before.clone();
        distinct.sort_unstable();
        distinct.dedup();
        // The expected number is 1024 (1 - e^(-1000/1024)) = 638.
        assert!((600..680).contains(&distinct.len()), "{} buckets", distinct.len());
        hash.perturb();
        let same = before.iter().zip(places(hash)).filter(|(a, b)| **a == *b).count();
        assert!(same < 10, "{same} of 1000 stayed");
    }
}
