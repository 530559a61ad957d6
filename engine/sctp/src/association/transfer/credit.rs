//! Limit on the bytes that are sent to addresses which the peer has only claimed. These addresses may belong to other
//! hosts (RFC 5062 sections 5 and 6).

/// Bytes that may go to unconfirmed addresses, as a multiple of the bytes that the peer has sent.
const FACTOR: usize = 3;

/// Maximum number of bytes that may accumulate for unconfirmed addresses.
const MAX: usize = 4096;

/// Bytes that may still go to unconfirmed addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credit(usize);

impl Credit {
    /// Adds credit for a packet of `length` bytes from a confirmed address of the peer.
    pub(crate) fn earn(&mut self, length: usize) {
        self.0 = (self.0 + FACTOR * length).min(MAX);
    }

    pub(crate) fn covers(self, length: usize) -> bool {
        length <= self.0
    }

    /// Deducts `length` bytes. If less credit than `length` is left, deducts nothing and returns false.
    pub(crate) fn spend(&mut self, length: usize) -> bool {
        let covers = self.covers(length);
        if covers {
            self.0 -= length;
        }
        covers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_three_times_what_came_and_no_more() {
        let mut credit = Credit::default();
        assert!(!credit.spend(1));
        credit.earn(100);
        assert!(credit.spend(200) && !credit.spend(101) && credit.spend(100) && !credit.spend(1));
    }

    #[test]
    fn credit_does_not_accumulate_without_end() {
        let mut credit = Credit::default();
        (0..1000).for_each(|_| credit.earn(1500));
        assert!(credit.covers(MAX) && !credit.covers(MAX + 1));
    }
}
