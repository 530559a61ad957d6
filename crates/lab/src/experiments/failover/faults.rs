//! What happens to the link in use in the middle of a stream.

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
    /// None: what the machine by itself does to a stream.
    Nothing,
}

/// The failures, by their names in the manifest; the place of one is its x.
pub(in crate::experiments) const FAULTS: [(&str, Fault); 8] = [
    ("silent-both", Fault::SilentBoth),
    ("silent-one-way", Fault::SilentOneWay),
    ("link-down", Fault::LinkDown),
    ("address-removed", Fault::AddressRemoved),
    ("loss-30", Fault::Loss),
    ("flap-2s", Fault::Flap),
    ("nat-rebinding", Fault::NatRebinding),
    ("none", Fault::Nothing),
];

impl Fault {
    /// Lets it happen to a link; `flap` is how long one that comes and goes is away, and there. A NAT is on the first link alone.
    pub(in crate::experiments) fn happen(
        self,
        victim: &impl Victim,
        link: usize,
        flap: Duration,
    ) -> Result<()> {
        let (name, address) = victim.senders_end(link)?;
        match self {
            Self::SilentBoth => victim.set_link(link, &["--cut"]),
            // What the stream takes; answers get through.
            Self::SilentOneWay => victim.set_link(link, &["--ab", "cut=yes"]),
            Self::LinkDown => victim.senders_ip(&["link", "set", &name, "down"]),
            Self::AddressRemoved => victim.senders_ip(&["addr", "del", &address, "dev", &name]),
            Self::Loss => victim.set_link(link, &["--loss", "30%"]),
            Self::Flap => come_and_go(victim, link, flap),
            Self::NatRebinding => victim.rebind(),
            Self::Nothing => Ok(()),
        }
    }
}

/// Away, there, away, there.
fn come_and_go(victim: &impl Victim, link: usize, flap: Duration) -> Result<()> {
    let mut at = now();
    for settings in ["--cut=yes", "--cut=no", "--cut=yes", "--cut=no"] {
        std::thread::sleep(at.saturating_duration_since(now()));
        victim.set_link(link, &[settings])?;
        at += flap;
    }
    Ok(())
}
