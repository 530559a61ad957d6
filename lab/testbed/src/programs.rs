//! The unmodified programs of the transparency tests: nginx, OpenSSH, a static Go program, Python's asyncio.
//!
//! Each uses its own configuration below its host's directory, never the system's.

pub mod audio;
pub mod diameter;
pub mod icecast;
pub mod nginx;
pub mod roundtrip;
pub mod ssh;

use crate::host::Host;
use std::path::Path;
use std::process::Command;

pub use diameter::Diameter;
pub use icecast::Icecast;
pub use nginx::Nginx;
pub use roundtrip::{Roundtrip, build_go};
pub use ssh::Sshd;

/// Returns a `curl` command for a URL into a file (or nowhere), with its exit status as the verdict.
pub fn curl(host: &Host, url: &str, into: Option<&Path>) -> Command {
    let mut command = host.command("curl");
    command.args(["--silent", "--show-error", "--fail", "--max-time", "60", "--output"]);
    command.arg(into.unwrap_or(Path::new("/dev/null"))).arg(url);
    command
}
