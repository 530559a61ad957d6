//! List of all queues, with their settings.

use crate::classes::{Classes, Classifier};
use crate::fifo::Fifo;
use crate::fq_codel::{FqCodel, FqCodelConfig};
use crate::queue::Queue;
use crate::served::{Served, ServedConfig};
use crate::sfq::{Sfq, SfqConfig};

/// Queueing policy of a router.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Policy {
    /// First in, first out, with this limit on packets.
    Fifo(usize),
    /// Stochastic fair queueing.
    Sfq(SfqConfig),
    /// Classes, each with stochastic fair queueing.
    Classes(Classifier, SfqConfig),
    /// Fair queueing with CoDel.
    FqCodel(FqCodelConfig),
    /// Least served first, or least left first.
    Served(ServedConfig),
}

impl Policy {
    /// Creates an empty queue. The same seed gives the same choices.
    pub fn queue<T: Send + 'static>(&self, seed: u64) -> Box<dyn Queue<T> + Send> {
        match *self {
            Policy::Fifo(packets) => Box::new(Fifo::new(packets)),
            Policy::Sfq(config) => Box::new(Sfq::new(config, seed)),
            Policy::Classes(classifier, leaf) => Box::new(Classes::new(classifier, leaf, seed)),
            Policy::FqCodel(config) => Box::new(FqCodel::new(config, seed)),
            Policy::Served(config) => Box::new(Served::new(config)),
        }
    }
}
