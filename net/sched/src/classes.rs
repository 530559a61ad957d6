//! Classes with an SFQ each, like classes of the kernel's HTB if each class may borrow the whole link. The classes take turns in
//! proportion to their quanta.
//!
//! The class is chosen for each packet. If packets of a flow fall into several classes, the flow is reordered, as in the 2016
//! project. The crate contains these classes for measurements, and does not recommend them. Begin at [`Classes::new`].

use base::Time;

use crate::packet::{Packet, View};
use crate::queue::{Backlog, Counters, Queue};
use crate::sfq::{Sfq, SfqConfig};

/// Quantum of the 2016 project's classes, in bytes: the greatest quantum that HTB computes.
const SEED_QUANTUM: usize = 200_000;
/// Quantum of a class with one part of the rate, in bytes. HTB computes the bytes that the class's rate allows in a tenth of a
/// second (`r2q 10`). Here, the whole rate is 75 Mbit/s and has 55 parts.
const RISING_QUANTUM: usize = 17_000;
/// Quantum of both classes of [`Classifier::Control`], in bytes.
const CONTROL_QUANTUM: usize = 1500;

/// Rule that chooses the class of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Classifier {
    /// Rule of the 2016 project's script. Tenths 1 to 9 have a class each, and the first class holds all other packets. All
    /// quanta are equal.
    SeedTenths,
    /// Rule of the 2016 project's report. There are 10 classes by tens of percent, whose quanta rise with the occupancy. An
    /// eleventh class holds packets without an advertisement.
    Rising,
    /// Two classes with equal quanta: packets without data, and all others.
    Control,
}

impl Classifier {
    fn class(self, view: &View) -> usize {
        let occupancy = view.said.map(|said| usize::from(said.occupancy));
        match (self, occupancy) {
            (Classifier::SeedTenths, Some(tenths @ 1..=9)) => tenths,
            (Classifier::Rising, Some(percent)) => 1 + (percent / 10).min(9),
            (Classifier::SeedTenths | Classifier::Rising, _) => 0,
            (Classifier::Control, _) => usize::from(view.has_data),
        }
    }

    fn quanta(self) -> Vec<usize> {
        match self {
            Classifier::SeedTenths => vec![SEED_QUANTUM; 11],
            Classifier::Rising => (0..=10).map(|class| class.max(1) * RISING_QUANTUM).collect(),
            Classifier::Control => vec![CONTROL_QUANTUM; 2],
        }
    }
}

#[derive(Debug)]
struct Class<T> {
    queue: Sfq<T>,
    quantum: i64,
    deficit: i64,
}

/// Queue of several classes.
#[derive(Debug)]
pub struct Classes<T> {
    classifier: Classifier,
    classes: Vec<Class<T>>,
    /// Index of the class whose turn it is.
    turn: usize,
}

impl<T> Classes<T> {
    /// Creates empty classes, each with an SFQ of these settings. `seed` initialises their hashes.
    pub fn new(classifier: Classifier, leaf: SfqConfig, seed: u64) -> Classes<T> {
        let class = |(n, quantum): (usize, usize)| Class {
            queue: Sfq::new(leaf, seed.wrapping_add(n as u64)),
            quantum: quantum as i64,
            deficit: 0,
        };
        let classes = classifier.quanta().into_iter().enumerate().map(class).collect();
        Classes { classifier, classes, turn: 0 }
    }
}

impl<T> Queue<T> for Classes<T> {
    fn enqueue(&mut self, now: Time, packet: Packet<T>) {
        let class = self.classifier.class(&packet.view);
        self.classes[class].queue.enqueue(now, packet);
    }

    fn dequeue(&mut self, now: Time) -> Option<Packet<T>> {
        for _ in 0..self.classes.len() {
            let turn = self.turn;
            let class = &mut self.classes[turn];
            if let Some(packet) = class.queue.dequeue(now) {
                class.deficit -= packet.length as i64;
                if class.deficit < 0 {
                    class.deficit += class.quantum;
                    self.turn = (turn + 1) % self.classes.len();
                }
                return Some(packet);
            }
            self.turn = (turn + 1) % self.classes.len();
        }
        None
    }

    fn backlog(&self) -> Backlog {
        self.classes.iter().map(|class| class.queue.backlog()).fold(Backlog::default(), |a, b| a + b)
    }

    fn counters(&self) -> Counters {
        self.classes.iter().map(|class| class.queue.counters()).fold(Counters::default(), |a, b| a + b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Said;
    use crate::tests::{control, data, says};

    fn class(classifier: Classifier, occupancy: u8) -> usize {
        classifier.class(&says(data(0, 1, 1500), Said { occupancy, backlog: None }).view)
    }

    #[test]
    fn classes_are_chosen_by_the_rules_of_the_2016_script_and_of_the_2016_report() {
        let seed: Vec<_> = [0, 1, 5, 9, 10, 100].map(|v| class(Classifier::SeedTenths, v)).into();
        assert_eq!(seed, [0, 1, 5, 9, 0, 0]);
        let rising: Vec<_> = [0, 9, 10, 55, 90, 99, 100].map(|v| class(Classifier::Rising, v)).into();
        assert_eq!(rising, [1, 1, 2, 6, 10, 10, 10]);
        assert_eq!(Classifier::Rising.class(&data(0, 1, 1500).view), 0);
        assert_eq!(Classifier::SeedTenths.class(&data(0, 1, 1500).view), 0);
    }

    /// Returns how many of 10,000 packets each class sends, if both classes always have packets.
    fn shares(classifier: Classifier, occupancies: [u8; 2]) -> [usize; 2] {
        let mut queue = Classes::new(classifier, SfqConfig::default(), 1);
        let packet = |n: usize| {
            let said = Said { occupancy: occupancies[n], backlog: None };
            says(data(n as u32, n as u32, 1500), said)
        };
        (0..40).for_each(|n| queue.enqueue(Time::ZERO, packet(n % 2)));
        let mut counts = [0; 2];
        for _ in 0..10_000 {
            let sent = queue.dequeue(Time::ZERO).unwrap();
            counts[sent.body as usize] += 1;
            queue.enqueue(Time::ZERO, packet(sent.body as usize));
        }
        counts
    }

    #[test]
    fn the_scripts_classes_share_equally_and_the_reports_classes_by_occupancy() {
        let [one, other] = shares(Classifier::SeedTenths, [2, 8]);
        assert!((4800..5200).contains(&one), "{one} and {other}");
        let [one, other] = shares(Classifier::Rising, [15, 75]);
        assert!((3.7..4.3).contains(&(other as f64 / one as f64)), "{one} and {other}");
    }

    #[test]
    fn a_flow_that_changes_its_class_is_reordered() {
        let mut queue = Classes::new(Classifier::Rising, SfqConfig::default(), 1);
        for (n, occupancy) in [(0, 90), (1, 90), (2, 10)] {
            queue.enqueue(Time::ZERO, says(data(n, 1, 1500), Said { occupancy, backlog: None }));
        }
        assert_eq!(crate::tests::drained(&mut queue), [2, 0, 1]);
    }

    #[test]
    fn control_packets_pass_a_full_queue_of_data() {
        let mut queue = Classes::new(Classifier::Control, SfqConfig::default(), 1);
        (0..500).for_each(|n| queue.enqueue(Time::ZERO, data(n, n, 1500)));
        queue.enqueue(Time::ZERO, control(1000, 1000));
        let first: Vec<_> = (0..2).map(|_| queue.dequeue(Time::ZERO).unwrap().body).collect();
        assert!(first.contains(&1000) && queue.counters().dropped_control == 0);
    }
}
