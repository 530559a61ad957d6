//! Effect of a lossy link on a stream, in virtual time. The stream of 19 Mbit/s runs between two hosts with two links of 100
//! Mbit/s. After two seconds, the first link begins to lose a share of its packets. The example runs the stream without a
//! bound on the loss of a path, and then with the bound that daemons use. It uses SEEDS seeds each time.
//!
//! `cargo run -p sim --example lossy_path [SEEDS [LOSS_PERCENT [ROUND_TRIP_MS]]]`

use std::process::ExitCode;
use std::time::Duration;

use base::{Carrier, Time};
use sctp::{AssociationConfig, AssociationId, EndpointConfig, Event, Timing};
use sim::{Conversation, HostId, LinkConfig, Loss, Outgoing, World};

/// User bytes of each message.
const MESSAGE: usize = 1200;
/// Interval between two messages.
const PAUSE: Duration = Duration::from_micros(500);
/// Duration of the stream before the first link begins to lose packets.
const CLEAN: Duration = Duration::from_secs(2);
/// Duration of the stream on the lossy link.
const LOSSY: Duration = Duration::from_millis(3500);
/// Limit on the wait for the last bytes after the stream's end.
const LIMIT: Duration = Duration::from_secs(60);

/// Results of one stream.
struct Seen {
    silence: Duration,
    late: Duration,
    switches: usize,
}

fn main() -> ExitCode {
    let given = |n: usize, usual: f64| std::env::args().nth(n).map_or(Ok(usual), |text| text.parse());
    let (Ok(seeds), Ok(percent), Ok(rtt_ms)) = (given(1, 100.0), given(2, 30.0), given(3, 20.0)) else {
        eprintln!("SEEDS, LOSS_PERCENT and ROUND_TRIP_MS are numbers");
        return ExitCode::from(2);
    };
    for loss_max in [None, Some(5)] {
        let run = |seed| stream(seed, percent / 100.0, Duration::from_secs_f64(rtt_ms / 2e3), loss_max);
        let seen: Vec<Seen> = (1..=seeds as u64).map(run).collect();
        println!("{}", loss_max.map_or("no bound on losses".into(), |most| format!("at most {most} % lost")));
        tell("longest silence, s", seen.iter().map(|s| s.silence.as_secs_f64()));
        tell("last byte after the end, s", seen.iter().map(|s| s.late.as_secs_f64()));
        tell("changes of path", seen.iter().map(|s| s.switches as f64));
    }
    ExitCode::SUCCESS
}

fn tell(what: &str, values: impl Iterator<Item = f64>) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values.get((values.len() as f64 * part) as usize).or(values.last()).unwrap_or(&0.0);
    println!("  {what:27} median {:6.3}  95 % {:6.3}  most {:6.3}", at(0.5), at(0.95), at(1.0));
}

/// Returns the settings that two daemons use between them, except for the bound on losses.
fn config(loss_max: Option<u8>) -> AssociationConfig {
    AssociationConfig {
        timing: Timing { loss_max, ..Timing::quick() },
        send_buffer: 16 << 20,
        receive_buffer: 16 << 20,
        initial_packets: 10,
        ..AssociationConfig::default()
    }
}

fn stream(seed: u64, loss: f64, delay: Duration, loss_max: Option<u8>) -> Seen {
    let mut world = World::new(seed);
    world.checks = false;
    let config = config(loss_max);
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let [from, to] = [1, 2]
        .map(|end| world.add_host(&[&format!("10.0.1.{end}"), &format!("10.0.2.{end}")], endpoint.clone()));
    let links = [1, 2].map(|i| {
        let config = LinkConfig { rate: 100_000_000, delay, queue_packets: 1000, ..LinkConfig::default() };
        let link = world.add_link(config);
        world.join(link, &format!("10.0.{i}.1"), &format!("10.0.{i}.2"));
        link
    });
    world.host_mut(to).app.template.keeps = false;
    let carrier = Carrier::Udp { peer_port: 9899 };
    let id = world.connect(from, to, carrier, config, Conversation::default());
    let mut sent = speak(&mut world, (from, id), CLEAN);
    // The stream's beginning is independent of the loss, so its silences do not count.
    world.host_mut(to).app.conversations.values_mut().for_each(|talk| talk.longest_silence = Duration::ZERO);
    world.link_mut(links[0]).config.loss = Loss::Uniform(loss);
    sent += speak(&mut world, (from, id), LOSSY);
    let end = world.now();
    world.run_until(end + LIMIT, |world| received(world, to) >= sent);
    let changes = world.host(from).app.log.iter().filter(|(_, _, e)| matches!(e, Event::PathSwitched { .. }));
    Seen { silence: silence(&world, to), late: world.now() - end, switches: changes.count() }
}

/// Hands messages to the sender for the time `long`, and returns their bytes.
fn speak(world: &mut World, (from, id): (HostId, AssociationId), long: Duration) -> u64 {
    let end: Time = world.now() + long;
    let mut bytes = 0;
    while world.now() < end {
        if let Some(talk) = world.host_mut(from).app.conversations.get_mut(&id) {
            let message = Outgoing { stream: 0, unordered: false, bytes: vec![0x5a; MESSAGE].into() };
            talk.outgoing.push_back(message);
            bytes += MESSAGE as u64;
        }
        world.run_for(PAUSE);
    }
    bytes
}

fn received(world: &World, host: HostId) -> u64 {
    world.host(host).app.conversations.values().map(|talk| talk.received_bytes).sum()
}

fn silence(world: &World, host: HostId) -> Duration {
    let silences = world.host(host).app.conversations.values().map(|talk| talk.longest_silence);
    silences.max().unwrap_or_default()
}
