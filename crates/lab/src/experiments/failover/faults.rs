//! What happens to the first link in the middle of a stream.

use super::world::World;
use anyhow::{Context, Result};
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
}

/// The failures, by their names in the manifest; the place of one is its x.
pub(in crate::experiments) const FAULTS: [(&str, Fault); 7] = [
    ("silent-both", Fault::SilentBoth),
    ("silent-one-way", Fault::SilentOneWay),
    ("link-down", Fault::LinkDown),
    ("address-removed", Fault::AddressRemoved),
    ("loss-30", Fault::Loss),
    ("flap-2s", Fault::Flap),
    ("nat-rebinding", Fault::NatRebinding),
];

impl Fault {
    /// Lets it happen; `flap` is how long a link that comes and goes is away, and there.
    pub(in crate::experiments) fn happen(self, world: &World, flap: Duration) -> Result<()> {
        let (first, alpha) = (&world.first, &world.pair.alpha);
        let name = first.link.name();
        match self {
            Self::SilentBoth => first.set(&["--cut"]),
            // What the stream takes; answers get through.
            Self::SilentOneWay => first.set(&["--ab", "cut=yes"]),
            Self::LinkDown => alpha.ip(&["link", "set", &name, "down"]).map(drop),
            Self::AddressRemoved => {
                let own = format!("{}/24", first.link.left_v4());
                alpha.ip(&["addr", "del", &own, "dev", &name]).map(drop)
            }
            Self::Loss => first.set(&["--loss", "30%"]),
            Self::Flap => come_and_go(world, flap),
            Self::NatRebinding => world.nat.as_ref().context("there is no NAT")?.rebind(),
        }
    }
}

/// Away, there, away, there.
fn come_and_go(world: &World, flap: Duration) -> Result<()> {
    let mut at = now();
    for settings in ["--cut=yes", "--cut=no", "--cut=yes", "--cut=no"] {
        std::thread::sleep(at.saturating_duration_since(now()));
        world.first.set(&[settings])?;
        at += flap;
    }
    Ok(())
}
