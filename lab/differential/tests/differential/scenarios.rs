//! The scenarios, with their required outcomes.
//!
//! A scenario returns its outcome in words: the delivered messages, and the final state of each end.
//! [`SCENARIOS`] gives the outcome with our engine at both ends. With another engine at one end, the
//! outcome must be the same, unless `docs/differences.md` gives a reason.

use std::time::Duration;

use crate::network::{Faults, Network, messages};
use crate::stack::{Effort, End, Features, Message, Who};

/// A scenario: its name, its required outcome, the other engines that can play it, and its script.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) outcome: &'static str,
    /// Other engines that support all features of the scenario.
    pub(crate) others: &'static [Who],
    pub(crate) play: fn([Who; 2]) -> String,
}

const ALL: &[Who] = &Who::OTHERS;
const DCSCTP: &[Who] = &[Who::Dcsctp];
/// The engines with a call that sends ABORT. sctp-proto has no such call.
const ABORTING: &[Who] = &[Who::Dcsctp, Who::RtcSctp];

const PLAIN: Features = Features {
    partial_reliability: false,
    interleaving: false,
    zero_checksum: false,
    stream_reset: false,
    receive_buffer: 1 << 20,
};

const fn scenario(
    name: &'static str,
    outcome: &'static str,
    others: &'static [Who],
    play: fn([Who; 2]) -> String,
) -> Scenario {
    Scenario { name, outcome, others, play }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario("set-up", "up, up", ALL, |who| set_up(who, None)),
    scenario("set-up, INIT lost", "up, up", ALL, |who| set_up(who, Some(1))),
    scenario("set-up, INIT ACK lost", "up, up", ALL, |who| set_up(who, Some(2))),
    scenario("set-up, COOKIE ECHO lost", "up, up", ALL, |who| set_up(who, Some(10))),
    scenario("set-up, COOKIE ACK lost", "up, up", ALL, |who| set_up(who, Some(11))),
    scenario("both open at once", "up, up", ALL, both_open),
    scenario("ordered, good network", WHOLE, ALL, |who| transfer(who, Kind::Ordered, Faults::default())),
    scenario("ordered, bad network", WHOLE, ALL, |who| transfer(who, Kind::Ordered, BAD)),
    scenario("unordered, bad network", WHOLE, ALL, |who| transfer(who, Kind::Unordered, BAD)),
    scenario("long messages, bad network", WHOLE, ALL, |who| transfer(who, Kind::Long, BAD)),
    scenario("damaged packets", WHOLE, ALL, |who| transfer(who, Kind::Ordered, DAMAGE)),
    scenario("zero checksum", WHOLE, DCSCTP, zero_checksum),
    scenario("interleaving, bad network", WHOLE, DCSCTP, interleaving),
    scenario("given up after no retransmission", "in order, the last one there, up, up", ALL, |who| {
        partial(who, Effort::Retransmissions(0))
    }),
    scenario("given up after a lifetime", "in order, the last one there, up, up", ALL, |who| {
        partial(who, Effort::Lifetime(Duration::from_millis(50)))
    }),
    scenario("stream reset by the opener", "all, up, up", ALL, |who| stream_reset(who, 0)),
    scenario("stream reset by the listener", "all, up, up", ALL, |who| stream_reset(who, 1)),
    scenario("window closed for a minute", "all, graceful, graceful", ALL, zero_window),
    scenario("shutdown by the opener", "graceful, graceful", ALL, |who| shutdown(who, &[0])),
    scenario("shutdown by the listener", "graceful, graceful", ALL, |who| shutdown(who, &[1])),
    scenario("shutdown by both at once", "graceful, graceful", ALL, |who| shutdown(who, &[0, 1])),
    scenario("shutdown with data queued", "all, graceful, graceful", ALL, shutdown_with_data),
    scenario("shutdown, SHUTDOWN lost", "graceful, graceful", ALL, |who| shutdown_without(who, 7)),
    scenario("shutdown, SHUTDOWN ACK lost", "graceful, graceful", ALL, |who| shutdown_without(who, 8)),
    scenario("shutdown, SHUTDOWN COMPLETE lost", "graceful, graceful", ALL, |who| shutdown_without(who, 14)),
    scenario("abort by the opener", "broken, broken", ABORTING, |who| abort(who, 0)),
    scenario("abort by the listener", "broken, broken", ABORTING, |who| abort(who, 1)),
    scenario("restart of the opener", "up, up, talks again", ALL, restart),
];

const WHOLE: &str = "all, all, graceful, graceful";

/// Faults of a bad network: 5% of the packets lost, 3% duplicated, 10% late.
const BAD: Faults = Faults { lost: 50, doubled: 30, late: 100, damaged: 0 };

const DAMAGE: Faults = Faults { lost: 0, doubled: 0, late: 0, damaged: 50 };

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ordered,
    Unordered,
    Long,
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Opening => "opening",
        End::Up => "up",
        End::Graceful => "graceful",
        End::Broken => "broken",
    }
}

fn ends(network: &Network) -> String {
    let [a, b] = [0, 1].map(|side| end_name(network.sides[side].stack.end()));
    format!("{a}, {b}")
}

/// Returns the type of a packet's first chunk.
fn first_chunk(packet: &[u8]) -> Option<u8> {
    packet.get(12).copied()
}

/// Drops the first packet whose first chunk has the type `chunk`.
fn lose_first(network: &mut Network, chunk: u8) {
    let mut lost = false;
    network.set_filter(move |_, packet| {
        let passes = lost || first_chunk(packet) != Some(chunk);
        lost |= !passes;
        passes
    });
}

fn set_up(who: [Who; 2], lost: Option<u8>) -> String {
    let mut network = Network::new(who, PLAIN);
    if let Some(chunk) = lost {
        lose_first(&mut network, chunk);
    }
    network.open();
    // The pause shows that both ends remain in their states.
    network.run_for(Duration::from_secs(10));
    ends(&network)
}

fn both_open(who: [Who; 2]) -> String {
    let mut network = Network::new(who, PLAIN);
    let now = network.now;
    network.sides[1].stack.connect(now);
    network.open();
    network.run_for(Duration::from_secs(10));
    ends(&network)
}

/// Compares the messages that `side` received with the messages in `sent`. Returns "all", "a part" (some
/// messages are missing), or "wrong".
fn judge(network: &Network, side: usize, sent: &[Message]) -> String {
    let received = &network.sides[side].received;
    for stream in 0..64 {
        let mut expected: Vec<&[u8]> =
            sent.iter().filter(|m| m.stream == stream).map(|m| &m.bytes[..]).collect();
        let mut found: Vec<&[u8]> = received.get(&stream).into_iter().flatten().map(Vec::as_slice).collect();
        if sent.iter().any(|m| m.unordered) {
            expected.sort_unstable();
            found.sort_unstable();
        }
        if expected != found {
            let part = found.len() < expected.len() && found.iter().all(|bytes| expected.contains(bytes));
            return if part { "a part" } else { "wrong" }.to_owned();
        }
    }
    "all".to_owned()
}

fn kind_of_messages(kind: Kind, count: usize) -> Vec<Message> {
    match kind {
        Kind::Ordered => messages(count, 1000, 4),
        Kind::Long => messages(count / 8, 60_000, 2),
        Kind::Unordered => {
            let mut list = messages(count, 1000, 4);
            list.iter_mut().for_each(|m| m.unordered = true);
            list
        }
    }
}

/// Sends messages in both directions. Then the opener shuts the association down.
fn transfer(who: [Who; 2], kind: Kind, faults: Faults) -> String {
    let network = Network::new(who, PLAIN);
    talk(network, kind, faults)
}

fn talk(mut network: Network, kind: Kind, faults: Faults) -> String {
    if !network.open() {
        return format!("not up: {}", ends(&network));
    }
    network.set_faults(faults);
    let sent = [kind_of_messages(kind, 400), kind_of_messages(kind, 160)];
    let total = sent.clone().map(|list| list.iter().map(|m| m.bytes.len()).sum::<usize>());
    for (side, list) in network.sides.iter_mut().zip(&sent) {
        side.outgoing.extend(list.iter().cloned());
    }
    network.run_until(Duration::from_mins(20), |sides| {
        sides[1].received_bytes() >= total[0] && sides[0].received_bytes() >= total[1]
    });
    // Lets the last acknowledgements pass.
    network.run_for(Duration::from_secs(5));
    network.set_faults(Faults::default());
    let now = network.now;
    network.sides[0].stack.shutdown(now);
    network.run_to_end();
    format!("{}, {}, {}", judge(&network, 1, &sent[0]), judge(&network, 0, &sent[1]), ends(&network))
}

fn zero_checksum(who: [Who; 2]) -> String {
    let mut network = Network::new(who, Features { zero_checksum: true, ..PLAIN });
    let seen = std::rc::Rc::new(std::cell::Cell::new([0; 2]));
    let counts = seen.clone();
    network.set_filter(move |from, packet| {
        let mut n = counts.get();
        n[from] += usize::from(packet[8..12] == [0; 4]);
        counts.set(n);
        true
    });
    let outcome = talk(network, Kind::Ordered, Faults::default());
    let [a, b] = seen.get().map(|n| n > 20);
    if a && b { outcome } else { format!("{outcome}, without checksum: {a}, {b}") }
}

fn interleaving(who: [Who; 2]) -> String {
    talk(Network::new(who, Features { interleaving: true, ..PLAIN }), Kind::Long, BAD)
}

/// Sends partially reliable messages over a bad network. Then sends a last, reliable message over a good
/// network. The delivered messages must be in order, and the last message must arrive.
fn partial(who: [Who; 2], effort: Effort) -> String {
    let mut network = Network::new(who, Features { partial_reliability: true, ..PLAIN });
    if !network.open() {
        return format!("not up: {}", ends(&network));
    }
    network.set_faults(Faults { lost: 100, doubled: 0, late: 0, damaged: 0 });
    let mut sent = messages(200, 1000, 1);
    sent.iter_mut().for_each(|m| m.effort = effort);
    network.sides[0].outgoing.extend(sent.iter().cloned());
    network.run_for(Duration::from_secs(60));
    network.set_faults(Faults::default());
    let mut last = sent[0].clone();
    (last.effort, last.bytes) = (Effort::Full, vec![0xff; 9].into());
    network.sides[0].outgoing.push_back(last);
    network.run_for(Duration::from_secs(60));
    let received = network.sides[1].received.remove(&0).unwrap_or_default();
    let ordered = received.is_sorted() && received.windows(2).all(|pair| pair[0] != pair[1]);
    let known = received.iter().all(|bytes| bytes.len() == 9 || sent.iter().any(|m| m.bytes == *bytes));
    let last = received.last().is_some_and(|bytes| bytes.len() == 9);
    let words = [
        if ordered && known { "in order" } else { "out of order" },
        if last { "the last one there" } else { "the last one missing" },
    ];
    format!("{}, {}", words.join(", "), ends(&network))
}

/// Sends messages, resets the stream, then sends more messages on the stream.
fn stream_reset(who: [Who; 2], by: usize) -> String {
    let mut network = Network::new(who, Features { stream_reset: true, ..PLAIN });
    if !network.open() {
        return format!("not up: {}", ends(&network));
    }
    let sent = messages(40, 500, 1);
    network.sides[by].outgoing.extend(sent[..20].iter().cloned());
    network.run_for(Duration::from_secs(10));
    let now = network.now;
    network.sides[by].stack.reset(now, 0);
    network.run_for(Duration::from_secs(10));
    network.sides[by].outgoing.extend(sent[20..].iter().cloned());
    network.run_for(Duration::from_secs(60));
    format!("{}, {}", judge(&network, 1 - by, &sent), ends(&network))
}

/// Pauses the reader for a minute. Afterwards, all messages must still arrive.
fn zero_window(who: [Who; 2]) -> String {
    let mut network = Network::new(who, Features { receive_buffer: 100_000, ..PLAIN });
    if !network.open() {
        return format!("not up: {}", ends(&network));
    }
    let sent = messages(500, 1000, 1);
    network.sides[1].reads = false;
    network.sides[0].outgoing.extend(sent.iter().cloned());
    network.run_for(Duration::from_secs(60));
    network.sides[1].reads = true;
    network.run_until(Duration::from_mins(20), |sides| sides[1].received_bytes() >= 500_000);
    network.run_for(Duration::from_secs(5));
    let now = network.now;
    network.sides[0].stack.shutdown(now);
    network.run_to_end();
    format!("{}, {}", judge(&network, 1, &sent), ends(&network))
}

fn up(who: [Who; 2]) -> Network {
    let mut network = Network::new(who, PLAIN);
    network.open();
    network.run_for(Duration::from_secs(1));
    network
}

fn shutdown(who: [Who; 2], by: &[usize]) -> String {
    let mut network = up(who);
    let now = network.now;
    by.iter().for_each(|&side| network.sides[side].stack.shutdown(now));
    network.run_to_end();
    ends(&network)
}

fn shutdown_without(who: [Who; 2], chunk: u8) -> String {
    let mut network = up(who);
    lose_first(&mut network, chunk);
    let now = network.now;
    network.sides[0].stack.shutdown(now);
    network.run_to_end();
    ends(&network)
}

/// Requests the shutdown as soon as the engine has accepted all messages.
fn shutdown_with_data(who: [Who; 2]) -> String {
    let mut network = up(who);
    let sent = messages(100, 1000, 1);
    network.sides[0].outgoing.extend(sent.iter().cloned());
    network.run_until(Duration::from_secs(60), |sides| sides[0].outgoing.is_empty());
    let now = network.now;
    network.sides[0].stack.shutdown(now);
    network.run_to_end();
    format!("{}, {}", judge(&network, 1, &sent), ends(&network))
}

fn abort(who: [Who; 2], by: usize) -> String {
    let mut network = up(who);
    let now = network.now;
    network.sides[by].stack.abort(now);
    network.run_for(Duration::from_secs(60));
    ends(&network)
}

/// Replaces the opener with an engine without state, which opens the association again. The listener must
/// treat the new INIT as a restart.
fn restart(who: [Who; 2]) -> String {
    let mut network = up(who);
    // Another seed gives other verification tags.
    network.replace(0, who[0].stack(PLAIN, 2));
    network.open();
    network.run_for(Duration::from_secs(10));
    let sent = messages(10, 100, 1);
    network.sides[0].outgoing.extend(sent.iter().cloned());
    network.run_for(Duration::from_secs(60));
    let talks = if judge(&network, 1, &sent) == "all" { "talks again" } else { "is not heard" };
    format!("{}, {talks}", ends(&network))
}
