//! Captures packets at beta's end of the link, and decodes them with tshark.

use std::path::PathBuf;

use crate::world::{LIMIT, World};
use nix::sys::signal::Signal;
use testbed::Process;

/// Running tcpdump on beta.
pub(crate) struct Tap {
    file: PathBuf,
    tcpdump: Process,
}

impl Tap {
    /// Starts a capture, and returns once it is running.
    pub(crate) fn on(world: &World, name: &str) -> Tap {
        let file = world.beta.dir().unwrap().join(name).with_extension("pcap");
        let mut tcpdump = world.beta.command("tcpdump");
        tcpdump.args(["--immediate-mode", "-U", "-i", &world.link.name(), "-w"]).arg(&file);
        let mut tcpdump = world.beta.spawn("tcpdump", tcpdump).unwrap();
        tcpdump.wait_until("capture", LIMIT, |process| process.stderr().contains("listening on")).unwrap();
        Tap { file, tcpdump }
    }

    /// Ends the capture. Returns the values of `fields` in the packets that match `filter`, one packet per
    /// line.
    pub(crate) fn fields(self, world: &World, filter: &str, fields: &[&str]) -> String {
        self.tcpdump.signal(Signal::SIGINT).unwrap();
        self.tcpdump.finish(LIMIT).unwrap();
        let mut args = vec!["-n", "-r", self.file.to_str().unwrap(), "-Y", filter, "-T", "fields"];
        args.extend(fields.iter().flat_map(|field| ["-e", field]));
        world.beta.tool("tshark", &args).unwrap()
    }
}
