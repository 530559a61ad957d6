//! CoDel (RFC 8289). If packets wait for longer than `target` during an `interval`, CoDel drops packets from the head of the
//! queue. The longer the wait has exceeded `target`, the more often CoDel drops. Times and square roots are computed as in Linux:
//! in units of 1,024 ns, and with one Newton step per drop. Begin at [`Codel::judge`].

use std::time::Duration;

use base::Time;

/// Time in units of 1,024 ns. Values wrap, and are compared as serial numbers.
pub(crate) type Ticks = u32;

pub(crate) fn ticks(nanos: u64) -> Ticks {
    (nanos >> 10) as u32
}

pub(crate) fn ticks_of(duration: Duration) -> Ticks {
    ticks(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

fn is_after(a: Ticks, b: Ticks) -> bool {
    b.wrapping_sub(a).cast_signed() < 0
}

/// Number of bits of a 32-bit fraction that the stored root leaves out.
const ROOT_SHIFT: u32 = 16;
/// Stored value of 1 / √1.
const ROOT_OF_ONE: u16 = u16::MAX;

/// CoDel's state for one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codel {
    pub(crate) target: Ticks,
    pub(crate) interval: Ticks,
    count: u32,
    last_count: u32,
    is_dropping: bool,
    /// 1 / √count, in units of 2⁻¹⁶.
    root: u16,
    /// Time at which the wait will have exceeded the target for an interval; 0 while the wait is below the target.
    first_above: Ticks,
    drop_next: Ticks,
}

/// Decision on the packet at the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The packet leaves.
    Pass,
    /// The packet is dropped, or it is marked and leaves.
    Drop,
}

impl Codel {
    pub(crate) fn new(target: Duration, interval: Duration) -> Codel {
        Codel {
            target: ticks_of(target),
            interval: ticks_of(interval),
            count: 0,
            last_count: 0,
            is_dropping: false,
            root: 0,
            first_above: 0,
            drop_next: 0,
        }
    }

    /// Resets the state, because the queue has become empty.
    pub(crate) fn on_empty(&mut self) {
        self.first_above = 0;
        self.is_dropping = false;
    }

    /// Counts packets that were dropped because the queue was full. CoDel continues as if it had dropped these packets itself.
    pub(crate) fn on_dropped_otherwise(&mut self, packets: u32) {
        self.count = self.count.wrapping_add(packets);
    }

    /// Reports whether the packet at the head has waited for too long. The packet was enqueued at `since`. `is_short` is true if
    /// the other waiting packets have no more bytes than one MTU.
    fn is_too_late(&mut self, now: Ticks, since: Ticks, is_short: bool) -> bool {
        let waited = now.wrapping_sub(since);
        if is_after(self.target, waited) || is_short {
            self.first_above = 0;
            return false;
        }
        if self.first_above == 0 {
            self.first_above = now.wrapping_add(self.interval).max(1);
            return false;
        }
        is_after(now, self.first_above)
    }

    /// Decides on the packet at the head. `is_first` is true for the first packet of a dequeue, and false after a dropped packet.
    pub(crate) fn judge(&mut self, now: Time, since: Time, is_short: bool, is_first: bool) -> Verdict {
        let now = ticks(now.as_nanos());
        let is_late = self.is_too_late(now, ticks(since.as_nanos()), is_short);
        match (self.is_dropping, is_late) {
            (true, false) => self.is_dropping = false,
            (true, true) if !is_after(self.drop_next, now) => {
                self.count = self.count.wrapping_add(1);
                self.newton();
                self.drop_next = self.after(self.drop_next);
                return Verdict::Drop;
            }
            (false, true) if is_first => {
                self.begin(now);
                return Verdict::Drop;
            }
            _ => {}
        }
        Verdict::Pass
    }

    /// Begins to drop. If CoDel stopped dropping only recently, it resumes with about the frequency that it had reached.
    fn begin(&mut self, now: Ticks) {
        self.is_dropping = true;
        let delta = self.count.wrapping_sub(self.last_count);
        let is_recent = is_after(self.interval.wrapping_mul(16), now.wrapping_sub(self.drop_next));
        if delta > 1 && is_recent {
            self.count = delta;
            self.newton();
        } else {
            self.count = 1;
            self.root = ROOT_OF_ONE;
        }
        self.last_count = self.count;
        self.drop_next = self.after(now);
    }

    /// Improves the stored root by one Newton step: root ← root (3 − count root²) / 2.
    fn newton(&mut self) {
        let root = u64::from(u32::from(self.root) << ROOT_SHIFT);
        let square = (root * root) >> 32;
        let factor = (3_u64 << 32).wrapping_sub(u64::from(self.count) * square) >> 2;
        self.root = ((factor.wrapping_mul(root) >> 31) as u32 >> ROOT_SHIFT) as u16;
    }

    /// Returns the time that is interval / √count after `at`.
    fn after(&self, at: Ticks) -> Ticks {
        let root = u64::from(u32::from(self.root) << ROOT_SHIFT);
        at.wrapping_add(((u64::from(self.interval) * root) >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    fn codel() -> Codel {
        Codel::new(Duration::from_millis(5), Duration::from_millis(100))
    }

    /// Returns the times of drops, in ms. One packet arrives per millisecond, and each has waited for 50 ms.
    fn drops(until: u64) -> Vec<u64> {
        let mut codel = codel();
        let late = |codel: &mut Codel, ms: &u64| {
            let verdict = codel.judge(MS(*ms), MS(*ms - 50), false, true);
            verdict == Verdict::Drop
        };
        (100..until).filter(|ms| late(&mut codel, ms)).collect()
    }

    #[test]
    fn codel_drops_after_one_interval_and_then_faster_by_the_root_of_the_drop_count() {
        let found = drops(1000);
        // The first drop comes one interval after the wait became too long. Later drops are 1/√count intervals apart, with one
        // Newton step each.
        let (mut expected, mut root) = (201.0, 1.0_f64);
        for (n, found) in found.iter().enumerate() {
            assert!((*found as f64 - expected).abs() < 3.0, "{found} {expected}");
            let count = (n + 1) as f64;
            root *= (3.0 - count * root * root) / 2.0;
            expected += 100.0 * root;
        }
        assert!(found.len() > 20 && (root * (found.len() as f64).sqrt() - 1.0).abs() < 0.02);
    }

    #[test]
    fn drops_for_want_of_room_make_codel_drop_more_often() {
        let drops = |otherwise: u32| {
            let mut codel = codel();
            let late = |ms: &u64| {
                if *ms == 1500 {
                    codel.on_dropped_otherwise(otherwise);
                }
                codel.judge(MS(*ms), MS(*ms - 50), false, true) == Verdict::Drop
            };
            (100..2500).filter(late).filter(|ms| *ms >= 1500).count()
        };
        let (without, with) = (drops(0), drops(40));
        // At 1,500 ms, the count of drops is 49. With 40 further drops because of a full queue, it is 89. The next n drops take 2
        // (√(49 + n) - √49) or 2 (√(89 + n) - √89) intervals of 100 ms. They take one second if n = 95, or n = 119.
        assert!((90..100).contains(&without) && (114..124).contains(&with), "{without} {with}");
    }

    #[test]
    fn codel_drops_nothing_if_the_wait_or_the_queue_is_short() {
        let mut codel = codel();
        for ms in 100..1000 {
            assert_eq!(codel.judge(MS(ms), MS(ms - 4), false, true), Verdict::Pass);
        }
        for ms in 1000..2000 {
            assert_eq!(codel.judge(MS(ms), MS(ms - 50), true, true), Verdict::Pass);
        }
    }

    #[test]
    fn one_packet_below_the_target_delay_ends_the_dropping_state() {
        let mut codel = codel();
        let dropped = (100..300).any(|ms| codel.judge(MS(ms), MS(ms - 50), false, true) == Verdict::Drop);
        assert!(dropped);
        assert_eq!(codel.judge(MS(300), MS(299), false, true), Verdict::Pass);
        let next = (301..500).find(|ms| codel.judge(MS(*ms), MS(*ms - 50), false, true) == Verdict::Drop);
        assert!(next.is_some_and(|ms| (401..404).contains(&ms)), "{next:?}");
    }
}
