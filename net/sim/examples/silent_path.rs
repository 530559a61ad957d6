//! Demonstration that needs no privileges: two hosts in virtual time transfer data over two links. The first link goes silent
//! during the transfer.
//!
//! `cargo run -p sim --example silent_path [SEED]`

use std::process::ExitCode;
use std::time::Duration;

use base::{Carrier, Time};
use sctp::{AssociationConfig, CloseReason, EndpointConfig};
use sim::{Change, Close, Conversation, HostId, LinkConfig, World};

/// Bytes to transfer: 16 MiB.
const BULK: u64 = 16 << 20;
/// Rate of each link in bits per second.
const RATE: u64 = 100_000_000;

fn main() -> ExitCode {
    let seed = match std::env::args().nth(1).map(|text| text.parse()) {
        None => 1,
        Some(Ok(seed)) => seed,
        Some(Err(_)) => {
            eprintln!("the seed must be a whole number");
            return ExitCode::from(2);
        }
    };
    let mut world = World::new(seed);
    world.checks = false;
    let alpha = world.add_host(&["10.0.1.1", "10.0.2.1"], EndpointConfig::default());
    let beta = world.add_host(&["10.0.1.2", "10.0.2.2"], EndpointConfig::default());
    let links = [1, 2].map(|i| {
        let delay = Duration::from_millis(10);
        let link = world.add_link(LinkConfig { rate: RATE, delay, ..LinkConfig::default() });
        world.join(link, &format!("10.0.{i}.1"), &format!("10.0.{i}.2"));
        link
    });
    world.host_mut(beta).app.template = Conversation { keeps: false, ..Conversation::default() };
    let talk = Conversation { bulk: BULK, close: Close::After(0), ..Conversation::default() };
    world.connect(alpha, beta, Carrier::Udp { peer_port: 9899 }, AssociationConfig::default(), talk);
    world.at(Time::from_millis(500), Change::CutBoth(links[0], true));
    world.run_until(Time::from_millis(120_000), |world| ended(world, beta).is_some());
    report(&world, beta)
}

fn ended(world: &World, host: HostId) -> Option<&CloseReason> {
    world.host(host).app.conversations.values().next()?.closed.as_ref()
}

fn report(world: &World, host: HostId) -> ExitCode {
    let Some(talk) = world.host(host).app.conversations.values().next() else {
        println!("the association never came up");
        return ExitCode::FAILURE;
    };
    println!("{} of {BULK} bytes arrived, {} packets in all", talk.received_bytes, world.packets());
    println!("path 1 went silent at 0.5 s; longest silence at the receiver {:?}", talk.longest_silence);
    println!("the association ended after {:?} of virtual time: {:?}", world.now() - Time::ZERO, talk.closed);
    let good = talk.received_bytes == BULK && talk.closed == Some(CloseReason::Graceful);
    println!("{}", if good { "ok" } else { "WRONG" });
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
