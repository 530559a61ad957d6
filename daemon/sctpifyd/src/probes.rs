//! Probes destinations whose connections are kept on TCP, to find out whether these destinations now support SCTP. No
//! application waits for a probe.
//!
//! A probe is an INIT from a port that no program uses. After the INIT ACK, the daemon aborts the association and sends no
//! COOKIE ECHO, so no program of the peer sees a connection. Up to [`PROBES_MAX`] probes run at once. The daemon searches for
//! due probes every [`PAUSE`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::time::Duration;

use base::Time;
use rules::{Chain, Failure, LearnPolicy};
use sctp::{AbortCause, AssociationId, CloseReason, Connect, Endpoint, StateName};

use crate::carriers::PacketIo;
use crate::clock::today;
use crate::evidence::evidence;
use crate::policy::Policy;
use crate::timers::{Timer, Timers};
use crate::timing;

/// Limit on concurrent probes.
const PROBES_MAX: usize = 4;
/// Interval between searches for due probes.
const PAUSE: Duration = Duration::from_millis(500);
/// Time that a probe waits for its INIT ACK: the maximum of the setting `race_timer_ms`.
const PATIENCE: Duration = Duration::from_secs(3);
/// Ports of associations that belong to no program. By default, the kernel assigns ports below this range to programs.
const PORTS: RangeInclusive<u16> = 61_000..=65_535;

/// Probes in progress.
#[derive(Default)]
pub(crate) struct Probes {
    running: BTreeMap<AssociationId, Probe>,
}

struct Probe {
    to: SocketAddr,
    began: Time,
}

/// Returns a random port for an association that belongs to no program. The port is random because an attacker should not be
/// able to guess it.
pub(crate) fn random_port_of(ports: RangeInclusive<u16>) -> u16 {
    rand::random_range(ports)
}

impl Probes {
    /// Begins the probes that are due, and sets the timer for the next search.
    pub(crate) fn begin_due(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        policy: &Policy,
        packet_io: &PacketIo,
        timers: &mut Timers<Timer>,
    ) {
        timers.set(now + PAUSE, Timer::Probes);
        let settings = policy.settings();
        if policy.is_stopping() || !settings.enable || !settings.learn {
            return;
        }
        for _ in self.running.len()..PROBES_MAX {
            let Some(to) = policy.learned().lock().next_probe(today()) else { return };
            let begun = connect_for(to, policy, now, packet_io).and_then(|(connect, unchanged)| {
                engine.connect(now, connect).map_err(|error| {
                    tracing::debug!(%error, %to, "no probe");
                    unchanged
                })
            });
            match begun {
                Ok(association) => {
                    self.running.insert(association, Probe { to, began: now });
                    timers.set(now + PATIENCE, Timer::Probe(association));
                }
                Err(failure) => end(to, Err(failure), policy),
            }
        }
    }

    /// Ends the probes that have received their INIT ACK. Callers must call this method before a probe's COOKIE ECHO is
    /// transmitted.
    pub(crate) fn take_answered(&mut self, now: Time, engine: &mut Endpoint, policy: &Policy) {
        self.running.retain(|association, probe| {
            if engine.state(*association) != Some(StateName::CookieEchoed) {
                return true;
            }
            engine.abort(now, *association, AbortCause::user(""));
            let rtt = now.since(probe.began);
            end(probe.to, Ok(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)), policy);
            false
        });
    }

    /// Ends a probe if no INIT ACK has arrived in time.
    pub(crate) fn on_late(
        &mut self,
        now: Time,
        association: AssociationId,
        engine: &mut Endpoint,
        policy: &Policy,
    ) {
        let is_late = |probe: &Probe| now.since(probe.began) >= PATIENCE;
        if self.running.get(&association).is_some_and(is_late)
            && let Some(probe) = self.running.remove(&association)
        {
            engine.abort(now, association, AbortCause::user(""));
            end(probe.to, Err(Failure::NoAnswer), policy);
        }
    }

    /// Ends a probe whose association has closed before an INIT ACK arrived.
    pub(crate) fn on_closed(&mut self, association: AssociationId, reason: &CloseReason, policy: &Policy) {
        if let Some(probe) = self.running.remove(&association) {
            end(probe.to, Err(evidence(reason, false).unwrap_or(Failure::NoAnswer)), policy);
        }
    }
}

/// Returns the request for a probe's association, and the failure in the cache. The failure stays in the cache if the probe
/// cannot begin.
///
/// # Errors
/// Returns the cached failure if the rules or this host's addresses do not allow the probe.
fn connect_for(
    to: SocketAddr,
    policy: &Policy,
    now: Time,
    packet_io: &PacketIo,
) -> Result<(Connect, Failure), Failure> {
    let known = policy.learned().lock().explain(to).and_then(|entry| entry.disabled);
    let unchanged = known.map_or(Failure::NoAnswer, |disabled| disabled.failure);
    let is_allowed = policy.rules().lock().explain(Chain::Remote, to.ip(), to.port()).policy.is_enable();
    let local = source_address(to).filter(|local| is_allowed && policy.addresses().is_own(*local));
    let Some(local) = local else { return Err(unchanged) };
    let ends = (SocketAddr::new(local, random_port_of(PORTS)), to);
    let config = timing::association_config;
    Ok((policy.connect(now, ends, &policy.settings(), packet_io, config), unchanged))
}

fn end(to: SocketAddr, outcome: Result<u64, Failure>, policy: &Policy) {
    tracing::debug!(%to, ?outcome, "probed");
    let settings = policy.settings();
    let (patience, _) = timing::init_patience(&settings);
    let patience_us = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
    policy.learned().lock().on_probe(today(), to, outcome, patience_us, &LearnPolicy::of(&settings));
}

/// Returns the address from which the kernel would send to `to`. Sends nothing.
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
