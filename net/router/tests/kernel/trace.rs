//! Traces of packets for the kernel's queues and for ours.

use std::net::{IpAddr, Ipv4Addr};

use base::{Ecn, Time};
use sched::{Flow, Packet, Queue, View};
use serde_json::{Value, json};

/// A packet of a trace. Its position in the trace is its number. Its length includes the Ethernet header, as in the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) flow: u32,
    pub(crate) length: usize,
    pub(crate) ecn: Ecn,
}

/// A packet that left a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Came {
    pub(crate) id: u32,
    pub(crate) nanos: u64,
    pub(crate) is_marked: bool,
}

impl Offer {
    pub(crate) fn new(flow: u32, length: usize) -> Offer {
        Offer { flow, length, ecn: Ecn::NotEct }
    }

    /// Returns the packet in the form that `offer.py` reads.
    pub(crate) fn as_json(&self, id: u32) -> Value {
        json!([self.flow, self.length, id, self.ecn as u8])
    }

    fn packet(&self, id: u32) -> Packet<u32> {
        let flow = Flow {
            from: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + self.flow)),
            to: IpAddr::V4(Ipv4Addr::new(10, 255, 0, 1)),
            from_port: 40_000,
            to_port: 7,
        };
        let view = View { flow, has_data: true, said: None };
        Packet { body: id, length: self.length, view, ecn: self.ecn }
    }
}

/// Returns the numbers of the packets that leave our queue. The trace arrives at `at`, and the waiting packets leave at `then`.
/// As in the kernel's test, the first packet passes immediately.
pub(crate) fn order(queue: &mut impl Queue<u32>, trace: &[Offer], at: Time, then: Time) -> Vec<u32> {
    let mut out = fill(queue, trace, at);
    out.extend(std::iter::from_fn(|| queue.dequeue(then)).map(|packet| packet.body));
    out
}

/// Offers a trace to a queue, from which the first packet leaves immediately. Returns the number of that packet.
pub(crate) fn fill(queue: &mut impl Queue<u32>, trace: &[Offer], at: Time) -> Vec<u32> {
    let mut out = Vec::new();
    for (id, offer) in (0..).zip(trace) {
        queue.enqueue(at, offer.packet(id));
        if id == 0 {
            out.extend(queue.dequeue(at).map(|packet| packet.body));
        }
    }
    out
}

/// Returns a trace of `packets` packets from `flows` flows. Flows with higher numbers send more. All lengths are multiples of
/// eight, because older kernels count SFQ's turns in units of eight bytes.
pub(crate) fn mixed(packets: usize, flows: u32, seed: u64) -> Vec<Offer> {
    const LENGTHS: [usize; 4] = [104, 200, 800, 1512];
    let mut dice = fastrand::Rng::with_seed(seed);
    // The long first packet shuts the kernel's gate, so the other packets wait.
    let mut trace = vec![Offer::new(flows, 1512)];
    while trace.len() < packets {
        let flow = dice.u32(0..flows).max(dice.u32(0..flows));
        trace.push(Offer::new(flow, LENGTHS[dice.usize(..LENGTHS.len())]));
    }
    trace
}
