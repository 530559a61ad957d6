//! Two hosts with daemons, and a host between them on which the router runs. The classes are on a router, because a sender's own
//! queue sees whole trains (GSO). The sender's queue would classify a train by its first packet, whereas a router classifies each
//! packet.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use testbed::{Finished, Host, Lab, Link, Offloads, Process};

use crate::ends::{Ends, LIMIT, ROUTER, counted};

pub(crate) struct World {
    pub(crate) ends: Ends,
    pub(crate) middle: Host,
    /// Link from the router to beta.
    pub(crate) link: Link,
}

impl World {
    /// Builds a world in which the router's kernel forwards. The daemons advertise in this `form`, and use these carriers.
    pub(crate) fn routed(carriers: &str, form: &str) -> World {
        let (lab, [alpha, beta, middle]) = hosts();
        let first = lab.join(&alpha, &middle, 1, Offloads::Off).unwrap();
        let link = lab.join(&middle, &beta, 2, Offloads::Off).unwrap();
        middle.tool("sysctl", &["-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]).unwrap();
        for (host, to, via) in [
            (&alpha, link.right_v4().to_string(), first.right_v4().to_string()),
            (&alpha, link.right_v6().to_string(), first.right_v6().to_string()),
            (&beta, first.left_v4().to_string(), link.left_v4().to_string()),
            (&beta, first.left_v6().to_string(), link.left_v6().to_string()),
        ] {
            host.ip(&["route", "add", &to, "via", &via]).unwrap();
        }
        World { ends: Ends::new(lab, [alpha, beta], carriers, form, "try"), middle, link }
    }

    /// Builds a world in which the router's kernel does not forward between its interfaces `left` and `right`. Packets pass only
    /// if a program of this project forwards them.
    pub(crate) fn gap(carriers: &str, form: &str) -> World {
        World::gap_with(carriers, form, "try")
    }

    /// Builds a world like [`World::gap`], but without encryption. Programs on the path can then read all chunks.
    pub(crate) fn readable_gap(carriers: &str, form: &str) -> World {
        World::gap_with(carriers, form, "off")
    }

    fn gap_with(carriers: &str, form: &str, encryption: &str) -> World {
        let (lab, [alpha, beta, middle]) = hosts();
        let link = testbed::delay::gap(&alpha, &beta, 1, &middle).unwrap();
        World { ends: Ends::new(lab, [alpha, beta], carriers, form, encryption), middle, link }
    }

    /// Runs `sctpify-router` on the router to its end.
    pub(crate) fn router(&self, words: &[&str]) -> Finished {
        let mut command = self.middle.command(ROUTER);
        command.args(words);
        self.middle.run("router", command, LIMIT).unwrap()
    }

    /// Starts `sctpify-router` on the router, and waits until it prints "running".
    pub(crate) fn spawn_router(&self, words: &[&str]) -> Process {
        let mut command = self.middle.command(ROUTER);
        command.args(words);
        let mut router = self.middle.spawn("running", command).unwrap();
        router.wait_until("running", LIMIT, |it| it.stdout().contains("running")).unwrap();
        router
    }

    /// Stops the program, and returns its output.
    pub(crate) fn stop(&self, router: Process) -> String {
        router.signal(Signal::SIGINT).unwrap();
        router.finish(LIMIT).unwrap().good().unwrap().stdout
    }

    /// Returns the number of packets of each of the kernel's classes, without classes that had none.
    pub(crate) fn counted(&self) -> BTreeMap<String, u64> {
        let output = self.router(&["--json", "tc", "show", &self.link.name()]).good().unwrap().stdout;
        counted(&output)
    }
}

fn hosts() -> (Lab, [Host; 3]) {
    let lab = Lab::new().unwrap();
    let hosts = ["alpha", "beta", "middle"].map(|name| lab.host(name).unwrap());
    (lab, hosts)
}
