//! Measures the throughput of the carriers through a veth pair between two network namespaces. The program creates both
//! namespaces.
//!
//! Run as root: `cargo run --release -p sctp-engine-netio --example netio_bench [SECONDS]`. Prints the goodput at the receiver,
//! and each thread's CPU time per packet. The CPU time includes kernel work that is charged to the thread.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::{Carrier, Ecn, Route};
use common::{Namespace, pair};
use mio::{Events, Poll, Token};
use netio::{Carriers, SendErrorKind};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// UDP payload in bytes that fills an MTU of 1500 over IPv4.
const SEGMENT: usize = 1472;

/// A line of the printed table.
struct Case {
    name: &'static str,
    carrier: Carrier,
    packets_per_call: usize,
    is_offloaded: bool,
}

/// Counts and CPU time of one end.
struct End {
    packets: u64,
    calls: u64,
    cpu: Duration,
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(3, |text| text.parse().expect("SECONDS is a number"));
    let udp = Carrier::Udp { peer_port: netio::SCTP_OVER_UDP_PORT };
    let case = |name, carrier, packets_per_call, is_offloaded| Case {
        name,
        carrier,
        packets_per_call,
        is_offloaded,
    };
    let cases = [
        case("udp x 44, offloads on", udp, 44, true),
        case("udp x 16, offloads on", udp, 16, true),
        case("udp x 1, offloads on", udp, 1, true),
        case("udp x 44, offloads off", udp, 44, false),
        case("raw x 44, offloads on", Carrier::Ip, 44, true),
        case("raw x 1, offloads on", Carrier::Ip, 1, true),
    ];
    println!(
        "{:24} {:>8} {:>10} {:>10} {:>10} {:>10} {:>7}",
        "", "Gbit/s", "packets/s", "ns/p send", "ns/p recv", "p/recvcall", "lost"
    );
    for case in cases {
        run(&case, Duration::from_secs(seconds));
    }
}

fn run(case: &Case, duration: Duration) {
    let (a, b) = pair();
    if !case.is_offloaded {
        for namespace in [&a, &b] {
            namespace.exec("ethtool -K left tso off gso off gro off tx off sg off rx off");
        }
    }
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let (sent, received) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| b.within(|| receive(open(&b), &stop)));
        let sender = scope.spawn(|| a.within(|| send(open(&a), case, start, duration)));
        let sent = sender.join().expect("the sender ends");
        stop.store(true, Ordering::Relaxed);
        (sent, receiver.join().expect("the receiver ends"))
    });
    let per_second = received.packets as f64 / duration.as_secs_f64();
    println!(
        "{:24} {:8.2} {:10.0} {:10.0} {:10.0} {:10.1} {:6.2}%",
        case.name,
        per_second * SEGMENT as f64 * 8.0 / 1e9,
        per_second,
        sent.cpu.as_nanos() as f64 / sent.packets as f64,
        received.cpu.as_nanos() as f64 / received.packets.max(1) as f64,
        received.packets as f64 / received.calls as f64,
        (1.0 - received.packets as f64 / sent.packets as f64) * 100.0,
    );
}

fn open(namespace: &Namespace) -> Carriers {
    Carriers::new(Some(namespace.udp()), Some(namespace.raw()))
}

fn send(mut carriers: Carriers, case: &Case, start: Instant, duration: Duration) -> End {
    let route =
        Route { local: common::ip("10.9.1.1"), remote: common::ip("10.9.1.2"), carrier: case.carrier };
    let bytes = common::pattern(case.packets_per_call * SEGMENT);
    let mut poll = Poll::new().expect("a poll");
    carriers.register(poll.registry(), Token(0)).expect("registering works");
    let mut events = Events::with_capacity(16);
    while start.elapsed() < duration {
        match carriers.send(&common::train(&route, None, Ecn::Ect0, SEGMENT, &bytes)) {
            Ok(()) => {}
            Err(e) if e.kind == SendErrorKind::Full => {
                poll.poll(&mut events, Some(Duration::from_millis(100))).expect("polling works");
            }
            Err(e) => panic!("{e}"),
        }
    }
    end(&carriers, |c| (c.packets_sent, c.send_calls))
}

fn receive(mut carriers: Carriers, stop: &AtomicBool) -> End {
    let mut poll = Poll::new().expect("a poll");
    carriers.register(poll.registry(), Token(0)).expect("registering works");
    let mut events = Events::with_capacity(16);
    let mut bytes = 0;
    while !stop.load(Ordering::Relaxed) {
        poll.poll(&mut events, Some(Duration::from_millis(100))).expect("polling works");
        for event in &events {
            while carriers
                .recv_at(event.token().0, |_, _, packet| bytes += packet.len())
                .expect("it works")
                .more
            {}
        }
    }
    assert!(bytes > 0, "nothing arrived");
    end(&carriers, |c| (c.packets_received, c.recv_calls))
}

fn end(carriers: &Carriers, pick: impl Fn(netio::Counters) -> (u64, u64)) -> End {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("usage of this thread");
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    let counters = carriers.counters();
    let (packets, calls) = [counters.udp, counters.raw]
        .into_iter()
        .flatten()
        .map(pick)
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    End { packets, calls: calls.max(1), cpu: Duration::from_micros(micros.unsigned_abs()) }
}
