//! Transfers in virtual time, with a model of TCP or with our engine.
//!
//! The engine has most settings of an association between two daemons ([`association`]). The simulation
//! does not model the hosts' processing time, the daemons' copying, the local TCP connections, Nagle's
//! algorithm, or the shim's race.

use super::{Control, LIMIT, ShimLoss, Tcp, Transfer, Transport};
use crate::experiment::Measures;
use crate::experiments::virtual_daemon::association;
use anyhow::{Context, Result};
use base::{Carrier, Time};
use sctp::{CongestionAlgorithm, EndpointConfig};
use sim::{Conversation, Exchange, HostId, LinkConfig, Loss, LossPlace, Side, Step, World};
use std::time::Duration;

/// The daemon's port.
const UDP_PORT: u16 = 9899;

/// Client and server, in the order in which they are added to the world.
const HOSTS: [(Side, HostId, &str); 2] =
    [(Side::Client, HostId(0), "10.0.0.1"), (Side::Server, HostId(1), "10.0.0.2")];

impl ShimLoss {
    pub(super) fn simulate(&self, transfer: Transfer, steps: Vec<Step>) -> Result<Measures> {
        let exchange = Exchange::new(steps);
        let link = self.link(transfer.loss);
        match transfer.transport {
            Transport::Tcp(tcp) => by_tcp(tcp, &exchange, &link, transfer.seed),
            Transport::Shim(control) => by_sctp(control, exchange, link, transfer.seed),
        }
    }

    fn link(&self, loss: f64) -> LinkConfig {
        LinkConfig {
            rate: self.rate,
            delay: Duration::from_millis(self.delay_ms),
            queue_packets: self.queue_packets,
            queue_bytes: usize::MAX,
            loss: if loss > 0.0 { Loss::Uniform(loss) } else { Loss::None },
            loss_place: LossPlace::BeforeQueue,
            ..LinkConfig::default()
        }
    }
}

fn measures(elapsed: Duration, timeouts: u64, retransmitted: u64) -> Measures {
    Measures::from([
        ("seconds".to_owned(), elapsed.as_secs_f64()),
        ("timeouts".to_owned(), timeouts as f64),
        ("retransmitted".to_owned(), retransmitted as f64),
    ])
}

fn by_tcp(tcp: Tcp, exchange: &Exchange, link: &LinkConfig, seed: u64) -> Result<Measures> {
    let run = sim::tcp::run(&tcp.model()?, exchange, link, seed, LIMIT).context("it took too long")?;
    let both = [run.client, run.server];
    Ok(measures(
        run.elapsed,
        both.iter().map(|end| end.timeouts).sum(),
        both.iter().map(|end| end.retransmitted).sum(),
    ))
}

fn congestion(control: Control) -> CongestionAlgorithm {
    match control {
        Control::Rfc9260 => CongestionAlgorithm::Rfc9260,
        Control::Default => CongestionAlgorithm::default(),
        Control::LossTolerant => CongestionAlgorithm::LossTolerant,
    }
}

fn by_sctp(control: Control, exchange: Exchange, link: LinkConfig, seed: u64) -> Result<Measures> {
    let config = association(congestion(control));
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut world = World::new(seed);
    world.checks = false;
    let [client, server] = HOSTS.map(|(_, _, address)| world.add_host(&[address], endpoint.clone()));
    let link = world.add_link(link);
    world.join(link, HOSTS[0].2, HOSTS[1].2);
    let conversation = Conversation { keeps: false, ..Conversation::default() };
    world.host_mut(server).app.template = conversation.clone();
    world.connect(client, server, Carrier::Udp { peer_port: UDP_PORT }, config, conversation);
    let mut talk = Talk { exchange, said: [0; 2] };
    let limit = Time::ZERO + LIMIT;
    while !talk.is_over(&world) {
        talk.go_on(&mut world);
        anyhow::ensure!(world.run_until(limit, |world| talk.has_turn(world)), "it took too long");
    }
    let counters = HOSTS.map(|(_, host, _)| {
        let host = world.host(host);
        let id = host.app.conversations.keys().next().copied();
        id.and_then(|id| host.endpoint.info(id))
            .map_or((0, 0), |info| (info.counters.timeouts, info.counters.data_retransmitted))
    });
    Ok(measures(
        world.now().since(Time::ZERO),
        counters.iter().map(|it| it.0).sum(),
        counters.iter().map(|it| it.1).sum(),
    ))
}

/// The exchange, and the number of bytes that each side has sent so far.
struct Talk {
    exchange: Exchange,
    said: [u64; 2],
}

fn received(world: &World, host: HostId) -> u64 {
    world.host(host).app.conversations.values().next().map_or(0, |it| it.received_bytes)
}

impl Talk {
    fn is_over(&self, world: &World) -> bool {
        self.exchange.is_over(received(world, HOSTS[0].1), received(world, HOSTS[1].1))
    }

    /// Returns the total number of bytes that the exchange allows a side to send by now. Returns 0 before
    /// the conversation exists.
    fn may_say(&self, world: &World, side: Side, host: HostId) -> u64 {
        let has_begun = !world.host(host).app.conversations.is_empty();
        if has_begun { self.exchange.may_have_sent(side, received(world, host)) } else { 0 }
    }

    fn has_turn(&self, world: &World) -> bool {
        let has_more = |(n, &(side, host, _))| self.may_say(world, side, host) > self.said[n];
        HOSTS.iter().enumerate().any(has_more) || self.is_over(world)
    }

    fn go_on(&mut self, world: &mut World) {
        for (n, (side, host, _)) in HOSTS.into_iter().enumerate() {
            let more = self.may_say(world, side, host) - self.said[n];
            self.said[n] += more;
            if let Some(conversation) = world.host_mut(host).app.conversations.values_mut().next() {
                conversation.bulk += more;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::one;
    use crate::manifest::Form;

    /// Returns the experiment in its quick form.
    fn experiment() -> ShimLoss {
        let manifest = one("shim-loss").unwrap().manifest;
        manifest.parameters(Form::Quick).try_into().unwrap()
    }

    fn seconds(transport: Transport, loss: f64) -> f64 {
        let experiment = experiment();
        let transfer = Transfer { bytes: 51_200, loss, transport, seed: 7 };
        let measured = experiment.simulate(transfer, experiment.scp_steps(51_200)).unwrap();
        measured["seconds"]
    }

    #[test]
    fn without_loss_tcp_and_the_shim_need_little_more_than_the_round_trips() {
        // TCP's handshake, the exchange of ssh versions, and sixteen answers, including the file, take 18
        // round trips of 70 ms. The file itself takes 0.3 s.
        let tcp = seconds(Transport::Tcp(Tcp::Cubic), 0.0);
        let shim = seconds(Transport::Shim(Control::Default), 0.0);
        assert!((1.4..2.2).contains(&tcp), "{tcp} s");
        assert!((tcp..tcp + 0.24).contains(&shim), "{shim} s beside TCP's {tcp} s");
    }

    #[test]
    fn loss_slows_down_every_transport_except_bbr() {
        for (_, transport) in super::super::TRANSPORTS.iter().filter(|it| it.1 != Transport::Tcp(Tcp::Bbr)) {
            let (clean, lossy) = (seconds(*transport, 0.0), seconds(*transport, 0.1));
            assert!(lossy > clean * 1.1, "{transport:?}: {lossy} s with loss, {clean} s without");
        }
    }
}
