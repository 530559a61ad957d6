//! Failures of the link in use, or of both links, during a stream.

use super::stage::Victim;
use anyhow::Result;
use std::time::Duration;
use testbed::process::now;

/// A failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::experiments) enum Fault {
    SilentBoth,
    SilentOneWay,
    LinkDown,
    AddressRemoved,
    Loss,
    Flap,
    NatRebinding,
    /// No failure. The figures show the silences that the machine itself causes.
    Nothing,
    /// Only one link works at a time. The links alternate, and each works for this number of milliseconds.
    Turns(u16),
    /// For a while, the NAT on the first link forwards no packets, and the second link drops all packets.
    /// Meanwhile, the NAT answers packets to its own address.
    NatOutage,
    /// Both links drop packets longer than a reduced MTU, and send no ICMP message.
    SizeHole,
    /// The link in use becomes slow for a while.
    Slow,
}

/// The failures, by their names in the manifest. The index is the x value.
pub(in crate::experiments) const FAULTS: [(&str, Fault); 13] = [
    ("silent-both", Fault::SilentBoth),
    ("silent-one-way", Fault::SilentOneWay),
    ("link-down", Fault::LinkDown),
    ("address-removed", Fault::AddressRemoved),
    ("loss-30", Fault::Loss),
    ("flap-2s", Fault::Flap),
    ("nat-rebinding", Fault::NatRebinding),
    ("none", Fault::Nothing),
    ("turns-200ms", Fault::Turns(200)),
    ("turns-2s", Fault::Turns(2000)),
    ("nat-outage", Fault::NatOutage),
    ("size-hole", Fault::SizeHole),
    ("slow-200k", Fault::Slow),
];

/// Finds a failure by its name.
pub(in crate::experiments) fn named(name: &str) -> Option<Fault> {
    FAULTS.iter().find(|(it, _)| *it == name).map(|(_, fault)| *fault)
}

/// Durations of temporary failures.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::experiments) struct Spans {
    /// Time that a flapping link stays down, which is also the time that the link stays up between its
    /// outages.
    pub(in crate::experiments) flap_s: f64,
    /// Duration of a NAT's outage.
    pub(in crate::experiments) outage_s: f64,
    /// Time that a link is slow.
    pub(in crate::experiments) slow_s: f64,
    /// Minimum duration of the failure in which the links alternate.
    pub(in crate::experiments) turns_s: f64,
}

/// Number of times that a flapping link goes down.
const FLAPS: u32 = 2;
/// Minimum number of turns of alternating links.
const TURNS_LEAST: u32 = 4;
/// Longest IP packet that passes the links during the failure [`Fault::SizeHole`], in bytes.
const HOLE_MTU: &str = "1000";
const SLOW_RATE: &str = "200kbit";

impl Fault {
    /// Returns the failure's duration in seconds, or `None` if the failure is permanent.
    pub(in crate::experiments) fn lasts_s(self, spans: Spans) -> Option<f64> {
        match self {
            // The failure consists of [`FLAPS`] outages and of the up phases between them.
            Self::Flap => Some(spans.flap_s * f64::from(2 * FLAPS - 1)),
            Self::Turns(period_ms) => {
                Some(f64::from(turns(period_ms, spans.turns_s)) * f64::from(period_ms) / 1e3)
            }
            Self::NatOutage => Some(spans.outage_s),
            Self::Slow => Some(spans.slow_s),
            Self::SilentBoth
            | Self::SilentOneWay
            | Self::LinkDown
            | Self::AddressRemoved
            | Self::Loss
            | Self::NatRebinding
            | Self::SizeHole
            | Self::Nothing => None,
        }
    }

    /// Reports whether the failure needs a NAT on the first link.
    pub(in crate::experiments) fn needs_nat(self) -> bool {
        matches!(self, Self::NatRebinding | Self::NatOutage)
    }

    /// Triggers the failure. If the failure is temporary, the function returns after the failure has ended. A
    /// failure of one link affects `link`. A failure of the NAT affects the first link.
    pub(in crate::experiments) fn happen(
        self,
        victim: &impl Victim,
        link: usize,
        spans: Spans,
    ) -> Result<()> {
        let (name, address) = victim.senders_end(link)?;
        match self {
            Self::SilentBoth => victim.set_link(link, &["--cut"]),
            // Cuts the direction of the stream. Acknowledgements pass.
            Self::SilentOneWay => victim.set_link(link, &["--ab", "cut=yes"]),
            Self::LinkDown => victim.senders_ip(&["link", "set", &name, "down"]),
            Self::AddressRemoved => victim.senders_ip(&["addr", "del", &address, "dev", &name]),
            Self::Loss => victim.set_link(link, &["--loss", "30%"]),
            Self::Flap => come_and_go(victim, link, Duration::from_secs_f64(spans.flap_s)),
            Self::NatRebinding => victim.rebind(),
            Self::Nothing => Ok(()),
            Self::Turns(period_ms) => take_turns(victim, link, period_ms, spans.turns_s),
            Self::NatOutage => {
                let silence = |cut: &str, is_silent| {
                    victim.set_nat_silent(is_silent).and_then(|()| victim.set_link(1, &[cut]))
                };
                silence("--cut=yes", true)?;
                std::thread::sleep(Duration::from_secs_f64(spans.outage_s));
                silence("--cut=no", false)
            }
            Self::SizeHole => LINKS
                .iter()
                .try_for_each(|link| victim.set_link(*link, &["--mtu", HOLE_MTU, "--mtu-report=no"])),
            Self::Slow => {
                victim.set_link(link, &["--rate", SLOW_RATE])?;
                std::thread::sleep(Duration::from_secs_f64(spans.slow_s));
                victim.set_link(link, &["--rate", super::world::RATE])
            }
        }
    }
}

const LINKS: [usize; 2] = [0, 1];

/// Returns the number of turns of `period_ms` that take `least_s` seconds or more, with a minimum of
/// [`TURNS_LEAST`].
fn turns(period_ms: u16, least_s: f64) -> u32 {
    ((least_s * 1e3 / f64::from(period_ms)).ceil() as u32).max(TURNS_LEAST)
}

/// Cuts the link and restores it, alternately.
fn come_and_go(victim: &impl Victim, link: usize, flap: Duration) -> Result<()> {
    let mut at = now();
    for settings in ["--cut=yes", "--cut=no"].iter().cycle().take(2 * FLAPS as usize) {
        std::thread::sleep(at.saturating_duration_since(now()));
        victim.set_link(link, &[settings])?;
        at += flap;
    }
    Ok(())
}

/// Cuts the links alternately, `link` first. Both links work afterwards.
fn take_turns(victim: &impl Victim, link: usize, period_ms: u16, least_s: f64) -> Result<()> {
    let mut at = now();
    for turn in 0..turns(period_ms, least_s) {
        std::thread::sleep(at.saturating_duration_since(now()));
        let away = (link + turn as usize) % LINKS.len();
        victim.set_link(1 - away, &["--cut=no"])?;
        victim.set_link(away, &["--cut=yes"])?;
        at += Duration::from_millis(period_ms.into());
    }
    std::thread::sleep(at.saturating_duration_since(now()));
    LINKS.iter().try_for_each(|link| victim.set_link(*link, &["--cut=no"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_alternate_at_least_four_times_and_for_the_minimum_duration() {
        assert_eq!(
            [(200, 4.0), (2000, 4.0), (2000, 30.0)].map(|(period, least)| turns(period, least)),
            [20, 4, 15]
        );
    }
}
