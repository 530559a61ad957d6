//! Calls that wait, and the order in which the supervisor checks them.

use std::collections::{HashMap, HashSet, VecDeque};

/// Items by number. All items have their turns equally often.
///
/// Invariant: each item is in the order once, regardless of how often it is removed and inserted again.
#[derive(Debug)]
pub(crate) struct Rounds<T> {
    all: HashMap<u64, T>,
    /// Numbers in the order of their turns. Some of their items may have been removed.
    order: VecDeque<u64>,
    queued: HashSet<u64>,
}

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        Rounds { all: HashMap::new(), order: VecDeque::new(), queued: HashSet::new() }
    }
}

impl<T> Rounds<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Inserts an item. A removed item that is inserted again keeps its place in the order.
    pub(crate) fn insert(&mut self, number: u64, it: T) {
        self.all.insert(number, it);
        if self.queued.insert(number) {
            self.order.push_back(number);
        }
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.all.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        self.all.remove(&number)
    }

    /// Returns up to `most` numbers whose turn it is. The next turn of these numbers comes after the turns of all other items.
    pub(crate) fn next(&mut self, most: usize) -> Vec<u64> {
        let mut due = Vec::new();
        for _ in 0..self.order.len() {
            if due.len() == most {
                break;
            }
            let Some(number) = self.order.pop_front() else { break };
            if self.all.contains_key(&number) {
                self.order.push_back(number);
                due.push(number);
            } else {
                self.queued.remove(&number);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_gets_its_turn_and_removed_items_take_no_memory() {
        let mut rounds = Rounds::default();
        // One item is removed and inserted again all the time, while others come and go.
        rounds.insert(1, ());
        for number in 10..10_000 {
            rounds.remove(1).unwrap();
            rounds.insert(1, ());
            rounds.insert(number, ());
            rounds.remove(number).unwrap();
        }
        rounds.insert(2, ());
        rounds.insert(3, ());
        assert_eq!((rounds.next(2), rounds.next(2), rounds.next(9)), (vec![1, 2], vec![3, 1], vec![2, 3, 1]));
        assert_eq!((rounds.order.len(), rounds.queued.len()), (3, 3), "nothing stays of those that are gone");
        for number in 1..4 {
            rounds.remove(number).unwrap();
        }
        assert!(rounds.next(1).is_empty() && rounds.is_empty() && rounds.order.is_empty());
    }
}
