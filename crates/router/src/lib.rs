//! Routers that go by advertised send buffers (SBA): the program `sctpify-router`.
//!
//! [`tc`] writes, shows, checks and removes the kernel's classes by occupancy (HTB, a classifier, fair leaves). It refuses to
//! touch a queueing discipline that is not its own. Begin with [`run`] and [`Router`], the command line.

#![forbid(unsafe_code)]

mod args;
mod error;
mod tc;

pub use args::{Command, Flags, Leaves, Matcher, Router, Shape, ShowArgs, TcCommand, parse_rate};
pub use error::RouterError;
pub use tc::{Counted, Plan};

/// Does what the command line says; `out` is standard output.
///
/// # Errors
/// When it cannot be done.
pub fn run(router: &Router, out: &mut dyn std::io::Write) -> Result<(), RouterError> {
    match &router.command {
        Command::Tc(command) => tc::run(command, router.json, out),
    }
}
