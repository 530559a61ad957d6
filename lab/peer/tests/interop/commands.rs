//! Builds the command lines of a cell: the cell's options in the syntax of each stack's program. Begin with
//! [`Cell::command`].

use crate::cell::{Carrier, Cell, Form, LIMIT, Limit, Load, Paths, Sharing, Stack};
use crate::stacks::BROUGHT;
use crate::world::World;
use std::process::Command;

impl Cell {
    /// Returns the command of a stack's program with the program's options. `words` are the program's mode
    /// and the mode's arguments.
    pub(crate) fn command(&self, world: &World, stack: Stack, load: &Load, words: &[&str]) -> Command {
        let host = stack.host();
        let mut command = world.command(host, &stack.program(world.dir()), LIMIT);
        let is_client = words.len() > 2;
        let locals = match self.paths {
            Paths::One | Paths::StreamsReset | Paths::Interleaved => 1,
            Paths::GivenUp(_)
            | Paths::Advertised(_)
            | Paths::Marked
            | Paths::ZeroChecksum
            | Paths::Sealed => 1,
            Paths::SecondAdded if is_client => 1,
            Paths::SecondAdded | Paths::FirstOfTwoCut | Paths::Shared(_) => 2,
        };
        for address in &host.addresses()[..locals] {
            command.args([if stack.is_usrsctp() { "-l" } else { "--local" }, address]);
        }
        match stack {
            Stack::Ours => {
                self.our_options(&mut command);
                command.args(words);
                if self.paths == Paths::SecondAdded && is_client {
                    command.args(["--add", host.addresses()[1]]);
                }
                if self.paths == Paths::StreamsReset && is_client {
                    command.arg("--reset");
                }
                if is_client && self.gives_up() {
                    command.args(["--gap", load.gap]).args(self.limit_words(stack));
                } else if is_client {
                    load_options(&mut command, load);
                }
            }
            Stack::Kernel => {
                load_options(&mut command, load);
                command.args(is_client.then(|| self.limit_words(stack)).into_iter().flatten());
                if self.paths == Paths::StreamsReset {
                    command.arg("--reconf").args(is_client.then_some("--reset"));
                }
                command.args(self.is_interleaved().then_some("--idata"));
                if self.paths == Paths::SecondAdded {
                    command.args(["--auth", "3"]);
                    command.args(is_client.then_some(["--add", host.addresses()[1]]).into_iter().flatten());
                }
                command.arg("--once").args(words);
            }
            Stack::Usrsctp | Stack::CurrentUsrsctp => {
                self.usrsctp_options(&mut command, load);
                command.args(is_client.then(|| self.limit_words(stack)).into_iter().flatten());
                if self.paths == Paths::SecondAdded {
                    command.arg("-a");
                    command.args(is_client.then_some(["-A", host.addresses()[1]]).into_iter().flatten());
                }
                command.args(words);
            }
            Stack::Pion | Stack::Aiortc => {
                command.env("PYTHONPATH", BROUGHT);
                command.args(["--streams", &load.streams.to_string(), "--window", &load.window.to_string()]);
                command.args(load.unordered.then_some("--unordered"));
                command.args((self.paths == Paths::ZeroChecksum).then_some("--zero-checksum"));
                command.args(self.is_interleaved().then_some("--idata"));
                command.args(words);
            }
            Stack::Openssl => {
                command.env("PYTHONPATH", BROUGHT).args(load.judge);
                command.args(["--streams", &load.streams.to_string(), "--window", &load.window.to_string()]);
                command.args(words);
            }
        }
        command
    }

    fn our_options(&self, command: &mut Command) {
        command.args(["--carrier", if self.carrier == Carrier::Udp { "udp" } else { "ip" }]);
        command.args(self.has_short_timers().then_some("--short-timers"));
        command.args(self.gives_up().then_some("--partial"));
        command.args((self.paths == Paths::StreamsReset).then_some("--reconf"));
        command.args(self.is_interleaved().then_some("--idata"));
        command.args((self.paths == Paths::ZeroChecksum).then_some("--zero-checksum"));
        command.args((self.paths == Paths::Sealed).then_some("--protect"));
        if let Paths::Advertised(form) = self.paths {
            command.args(["--sba", if form == Form::Percent { "percent" } else { "backlog" }]);
        }
        if let Paths::Shared(sharing) = self.paths {
            let word = if sharing == Sharing::Weighted { "weighted" } else { "redundant" };
            command.args(["--multipath", word]);
        }
        if self.paths == Paths::SecondAdded {
            command.args(["--auth", self.hmac()]);
        }
    }

    /// Returns the identifier of the HMAC: SHA-1 with libusrsctp, which supports no other HMAC, and SHA-256
    /// with the kernel.
    fn hmac(&self) -> &'static str {
        if self.stacks().iter().any(|stack| stack.is_usrsctp()) { "1" } else { "3" }
    }

    fn usrsctp_options(&self, command: &mut Command, load: &Load) {
        if self.carrier == Carrier::Udp {
            command.args(["-u", "9899", "-U", "9899"]);
        }
        command.args(self.has_short_timers().then_some("-f"));
        command.args((self.paths == Paths::StreamsReset).then_some("-r"));
        command.args(self.is_interleaved().then_some("-i"));
        command.args((self.paths == Paths::ZeroChecksum).then_some("-z"));
        command.args(["-s", &load.streams.to_string(), "-w", &load.window.to_string(), "-g", load.gap]);
        command.args(load.unordered.then_some("-o"));
    }

    /// Returns the option that makes a stack's client abandon messages, if the cell needs it.
    fn limit_words(&self, stack: Stack) -> &'static [&'static str] {
        let Paths::GivenUp(limit) = self.paths else { return &[] };
        match (limit, stack) {
            (Limit::Lifetime | Limit::InterleavedLifetime, Stack::Ours) => &["--lifetime", "0.1"],
            (Limit::Lifetime | Limit::InterleavedLifetime, Stack::Kernel) => &["--pr-ttl", "100"],
            (Limit::Lifetime | Limit::InterleavedLifetime, _) => &["-T", "100"],
            (Limit::Retransmissions, Stack::Ours) => &["--retransmissions", "0"],
            (Limit::Retransmissions, Stack::Kernel) => &["--pr-rtx", "0"],
            (Limit::Retransmissions, _) => &["-R", "0"],
            (Limit::Priority, _) => &["--priority"],
        }
    }
}

/// Adds the options of a load, in the syntax of the kernel's peer and of ours.
fn load_options(command: &mut Command, load: &Load) {
    command.args(["--gap", load.gap]);
    command.args(["--streams", &load.streams.to_string(), "--window", &load.window.to_string()]);
    command.args(load.unordered.then_some("--unordered"));
}
