//! Queueing disciplines of the Linux kernel in a guest. An HTB class serves as a gate: it holds packets back while the test
//! offers a trace.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};
use testbed::Guest;

use crate::trace::{Came, Offer};

/// Limit on the time of one request to the guest, in seconds. A request may offer several traces.
const LIMIT_S: u64 = 60;
/// Rate in bit/s at which waiting packets leave, for tests that compare only their order.
const FAST: u64 = 1_000_000_000;
/// Limit on attempts. If the guest is delayed, its gate may open before all packets are offered.
const TRIES: usize = 3;

/// A guest with the kernel's queueing disciplines.
pub(crate) struct Kernel {
    guest: Guest,
}

impl Kernel {
    /// Boots a guest. If this host cannot boot one, prints the reason and returns `None`.
    pub(crate) fn up() -> Option<Kernel> {
        if let Some(what) = Guest::missing() {
            testbed::skip(&format!("{what} is missing"));
            return None;
        }
        Some(Kernel { guest: Guest::up("qdisc").unwrap() })
    }

    /// Offers each trace to a queue, which `leaf` describes in the words of `tc`. The first packet passes, and the others wait
    /// until all are offered. `pause_s` seconds pass between two traces. Returns the packets that left the queue, by trace.
    pub(crate) fn order(&self, leaf: &str, traces: &[&[Offer]], pause_s: f64) -> Vec<Vec<u32>> {
        let came = self.fills(leaf, traces, pause_s, FAST);
        came.iter().map(|fill| fill.iter().map(|packet| packet.id).collect()).collect()
    }

    /// Returns the packets of a trace that leave at `rate` bits per second, with their times.
    pub(crate) fn times(&self, leaf: &str, trace: &[Offer], rate: u64) -> Vec<Came> {
        self.fills(leaf, &[trace], 0.0, rate).remove(0)
    }

    fn fills(&self, leaf: &str, traces: &[&[Offer]], pause_s: f64, rate: u64) -> Vec<Vec<Came>> {
        let mut steps = Vec::new();
        for trace in traces {
            let packets: Vec<_> = (0..).zip(*trace).map(|(id, it)| it.as_json(id)).collect();
            steps.push(json!(["fill", packets, format!("{rate}bit")]));
            steps.push(json!(["wait", pause_s]));
        }
        let request = json!({ "leaf": leaf, "steps": steps });
        for _ in 0..TRIES {
            let fills = self.run(&request);
            if fills.iter().all(was_shut) {
                return fills.iter().map(came).collect();
            }
        }
        panic!("the gate opened before all packets of {leaf} had been offered, {TRIES} times");
    }

    fn run(&self, request: &Value) -> Vec<Value> {
        let mut command = self.guest.program(LIMIT_S);
        command.args(["/usr/bin/python3", "-c", include_str!("offer.py")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("boot.sh");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(request.to_string().as_bytes()).expect("the guest reads");
        drop(input);
        let output = child.wait_with_output().expect("boot.sh ends");
        assert!(output.status.success(), "offer.py failed with {}", output.status);
        serde_json::from_slice(&output.stdout).expect("a list of what came")
    }
}

/// Reports whether only the first packet left the queue before the last packet was offered.
fn was_shut(fill: &Value) -> bool {
    fill["came"][1][1].as_u64() > fill["offered"].as_u64()
}

fn came(fill: &Value) -> Vec<Came> {
    let number = |value: &Value| value.as_u64().expect("a number");
    let packets = fill["came"].as_array().expect("a list").iter();
    packets
        .map(|it| Came { id: number(&it[0]) as u32, nanos: number(&it[1]), is_marked: number(&it[2]) == 3 })
        .collect()
}
