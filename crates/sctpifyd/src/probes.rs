//! Probes: test whether a destination that is kept on TCP has SCTP by now. No application waits for them.
//!
//! A probe is an INIT from its own port, and ends with the INIT ACK: an ABORT then leaves the cookie unused, so no program of the
//! peer sees a connection. At most [`PROBES_MAX`] run at once, and one round begins per [`PAUSE`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::time::Duration;

use base::Time;
use rules::{Chain, Failure, LearnPolicy, Settings};
use sctp::{AssociationId, CloseReason, Connect, StateName};

use crate::client::evidence;
use crate::clock::today;
use crate::shard::{Shard, user_abort};
use crate::timers::Timer;
use crate::timing;

/// Limit on concurrent probes.
const PROBES_MAX: usize = 4;
/// Interval of the search for due probes.
const PAUSE: Duration = Duration::from_millis(500);
/// Time that a probe waits for its INIT ACK: the greatest race timer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Ports of associations that belong to no program: by default the kernel gives programs others.
const PORTS: RangeInclusive<u16> = 61_000..=65_535;

/// The probes under way.
#[derive(Default)]
pub(crate) struct Probes {
    running: BTreeMap<AssociationId, Probe>,
}

struct Probe {
    to: SocketAddr,
    began: Time,
}

/// Returns a port for an association that belongs to no program. It is random, so an attacker has to guess it.
pub(crate) fn random_port_of(ports: RangeInclusive<u16>) -> u16 {
    rand::random_range(ports)
}

impl Shard {
    /// Begins the probes that are due, and sets the timer for the next round.
    pub(crate) fn begin_probes(&mut self) {
        self.timers.set(self.now + PAUSE, Timer::Probes);
        let settings = self.policy.settings();
        if self.policy.is_stopping() || !settings.enable || !settings.learn {
            return;
        }
        for _ in self.probes.running.len()..PROBES_MAX {
            let Some(to) = self.policy.learned().lock().next_probe(today()) else { return };
            if let Err(failure) = self.begin_probe(to, &settings) {
                self.end_probe(to, Err(failure));
            }
        }
    }

    /// Sends an INIT. If it must not or cannot be sent, returns the known failure, which then stands until later.
    fn begin_probe(&mut self, to: SocketAddr, settings: &Settings) -> Result<(), Failure> {
        let known = self.policy.learned().lock().explain(to).and_then(|entry| entry.disabled);
        let unchanged = known.map_or(Failure::NoAnswer, |disabled| disabled.failure);
        let is_allowed =
            self.policy.rules().lock().explain(Chain::Remote, to.ip(), to.port()).policy.is_enable();
        let local = source_address(to).filter(|local| is_allowed && self.policy.addresses().is_own(*local));
        let Some(local) = local else { return Err(unchanged) };
        let local_port = random_port_of(PORTS);
        let connect = Connect {
            local_port,
            remote_port: to.port(),
            init_routes: self.policy.init_routes(
                self.now,
                SocketAddr::new(local, local_port),
                to.ip(),
                settings,
                &self.packet_io,
            ),
            local_addresses: self.policy.offered(self.now, local, to.ip()),
            config: self.policy.association_config(to.ip(), settings),
        };
        let association = self.engine.connect(self.now, connect).map_err(|error| {
            tracing::debug!(%error, %to, "no probe");
            unchanged
        })?;
        self.probes.running.insert(association, Probe { to, began: self.now });
        self.timers.set(self.now + PATIENCE, Timer::Probe(association));
        Ok(())
    }

    /// Finds probes that have received their INIT ACK; must be called before their COOKIE ECHO is transmitted.
    pub(crate) fn look_for_probed(&mut self) {
        let all: Vec<AssociationId> = self.probes.running.keys().copied().collect();
        for association in all {
            if self.state_of(association) == Some(StateName::CookieEchoed) {
                let Some(probe) = self.probes.running.remove(&association) else { continue };
                self.engine.abort(self.now, association, user_abort());
                let rtt = self.now.since(probe.began);
                self.end_probe(probe.to, Ok(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)));
            }
        }
    }

    /// Ends a probe that got no INIT ACK in time.
    pub(crate) fn on_probe_late(&mut self, association: AssociationId) {
        let is_late = |probe: &Probe| self.now.since(probe.began) >= PATIENCE;
        if self.probes.running.get(&association).is_some_and(is_late)
            && let Some(probe) = self.probes.running.remove(&association)
        {
            self.engine.abort(self.now, association, user_abort());
            self.end_probe(probe.to, Err(Failure::NoAnswer));
        }
    }

    /// Ends a probe whose association has ended before its INIT ACK.
    pub(crate) fn on_probe_closed(&mut self, association: AssociationId, reason: &CloseReason) {
        if let Some(probe) = self.probes.running.remove(&association) {
            self.end_probe(probe.to, Err(evidence(reason, false).unwrap_or(Failure::NoAnswer)));
        }
    }

    fn end_probe(&mut self, to: SocketAddr, outcome: Result<u64, Failure>) {
        tracing::debug!(%to, ?outcome, "probed");
        let settings = self.policy.settings();
        let (patience, _) = timing::init_patience(&settings);
        let patience_us = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
        self.policy.learned().lock().on_probe(today(), to, outcome, patience_us, &LearnPolicy::of(&settings));
    }
}

/// Returns the address that the kernel would send from; sends nothing.
pub(crate) fn source_address(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_associations_without_a_program_follow_no_order() {
        let ports: Vec<u16> = (0..64).map(|_| random_port_of(PORTS)).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        let steps = ports.windows(2).map(|pair| i32::from(pair[1]) - i32::from(pair[0]));
        assert!(steps.filter(|step| (0..=1).contains(step)).count() < 8, "{ports:?}");
    }

    #[test]
    fn the_kernel_tells_the_source_address_without_a_packet() {
        let source = source_address("127.0.0.1:9".parse().expect("an address"));
        assert_eq!(source, Some(IpAddr::from(Ipv4Addr::LOCALHOST)));
    }
}
