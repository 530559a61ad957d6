//! Replay window: the received record numbers of one epoch (RFC 9147 section 4.5.1).
//!
//! The window covers [`WIDTH`] numbers, up to the highest one received. Older numbers are refused. The window is wide
//! because the packets of one association take several paths with different delays. Begin at [`ReplayWindow::expand`],
//! then [`ReplayWindow::take`].

/// Size of the window: half the range of 16 bits. A record carries only the lowest 16 bits of its number.
const WIDTH: u64 = 1 << 15;
const BITS: u64 = u64::BITS as u64;
const WORDS: usize = (WIDTH / BITS) as usize;

/// Reason for which a record is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stale {
    /// The record was received before.
    Seen,
    /// The record is older than the window.
    TooOld,
}

/// The received numbers, with one bit each.
#[derive(Debug)]
pub(super) struct ReplayWindow {
    bits: Box<[u64; WORDS]>,
    /// The highest number received, plus one.
    next: u64,
}

impl ReplayWindow {
    pub(super) fn new() -> ReplayWindow {
        ReplayWindow { bits: Box::new([0; WORDS]), next: 0 }
    }

    /// Returns the record number that ends with the 16 bits `low`, and that is nearest to the next expected number.
    pub(super) fn expand(&self, low: u16) -> u64 {
        const SPAN: u64 = 1 << 16;
        let near = (self.next & !(SPAN - 1)) | u64::from(low);
        match near {
            _ if near + SPAN / 2 < self.next => near + SPAN,
            _ if near > self.next + SPAN / 2 && near >= SPAN => near - SPAN,
            _ => near,
        }
    }

    /// Checks the number of a record before its decryption. Returns the reason if the record is refused.
    pub(super) fn check(&self, number: u64) -> Result<(), Stale> {
        if number + WIDTH < self.next {
            return Err(Stale::TooOld);
        }
        let (word, bit) = place(number);
        let is_seen = number < self.next && self.bits[word] & bit != 0;
        if is_seen { Err(Stale::Seen) } else { Ok(()) }
    }

    /// Marks a number as received. The caller calls this after it has authenticated the record.
    pub(super) fn take(&mut self, number: u64) {
        // The bits of numbers that leave the window are reused for numbers that enter the window, so these bits are
        // cleared first.
        let entering = (number + 1).saturating_sub(self.next);
        if entering >= WIDTH {
            self.bits.fill(0);
        } else {
            for entered in self.next..self.next + entering {
                let (word, bit) = place(entered);
                self.bits[word] &= !bit;
            }
        }
        let (word, bit) = place(number);
        self.bits[word] |= bit;
        self.next = self.next.max(number + 1);
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.bits)
    }
}

fn place(number: u64) -> (usize, u64) {
    let in_window = number % WIDTH;
    ((in_window / BITS) as usize, 1 << (in_window % BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Returns a window that has received `numbers`.
    fn window(numbers: &[u64]) -> ReplayWindow {
        let mut window = ReplayWindow::new();
        numbers.iter().for_each(|number| window.take(*number));
        window
    }

    #[test]
    fn a_number_is_taken_once_in_any_order() {
        let window = window(&[0, 5, 3]);
        for number in [0, 3, 5] {
            assert_eq!(window.check(number), Err(Stale::Seen));
        }
        for number in [1, 2, 4, 6, 7] {
            assert_eq!(window.check(number), Ok(()));
        }
    }

    #[test]
    fn a_number_older_than_the_window_is_refused() {
        let window = window(&[WIDTH + 10]);
        assert_eq!(window.check(10), Err(Stale::TooOld));
        assert_eq!(window.check(11), Ok(()));
    }

    #[test]
    fn numbers_that_leave_the_window_do_not_mark_new_ones_as_seen() {
        let mut window = window(&[7]);
        for number in [WIDTH, WIDTH + 7, 3 * WIDTH, 3 * WIDTH + 7] {
            assert_eq!(window.check(number), Ok(()), "{number}");
            window.take(number);
            assert_eq!(window.check(number), Err(Stale::Seen));
        }
        assert_eq!(window.check(3 * WIDTH + 1), Ok(()));
    }

    #[test]
    fn sixteen_bits_stand_for_the_nearest_number() {
        assert_eq!(window(&[]).expand(0xffff), 0xffff, "there is none before the first");
        assert_eq!(window(&[0x1_fffe]).expand(3), 0x2_0003);
        assert_eq!(window(&[0x2_0003]).expand(0xfffe), 0x1_fffe);
        assert_eq!(window(&[0x2_7ffe]).expand(0), 0x2_0000);
        assert_eq!(window(&[0x2_8000]).expand(0), 0x3_0000, "nearer to the one that is expected next");
        assert_eq!(window(&[0x2_8000]).expand(0xffff), 0x2_ffff);
        assert_eq!(window(&[0x2_8003]).expand(1), 0x3_0001);
    }

    #[test]
    fn the_replay_window_agrees_with_a_set_of_all_numbers() {
        let (mut window, mut seen, mut state) = (ReplayWindow::new(), BTreeSet::new(), 1u64);
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (jump, back) = ((state >> 33) % 40, (state >> 40) % (WIDTH + 100));
            let top = seen.last().map_or(0, |top| top + 1);
            let number = if state >> 63 == 0 { top + jump } else { top.saturating_sub(back) };
            let expected = match () {
                () if number + WIDTH < top => Err(Stale::TooOld),
                () if seen.contains(&number) => Err(Stale::Seen),
                () => Ok(()),
            };
            assert_eq!(window.check(number), expected, "{number} of {top}");
            let is_near = number + (1 << 15) > top && number < top + (1 << 15);
            assert!(!is_near || window.expand(number as u16) == number, "{number} of {top}");
            if expected.is_ok() {
                window.take(number);
                seen.insert(number);
            }
        }
    }
}
