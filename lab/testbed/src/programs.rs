//! Unmodified programs for tests: servers, clients and tools, such as nginx, OpenSSH, a static Go program and
//! Python's asyncio.
//!
//! Each program uses a configuration in its host's directory, never the machine's configuration.

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

/// Returns a `curl` command that fetches a URL into a file, or into `/dev/null`. Its exit status is the
/// verdict.
pub fn curl(host: &Host, url: &str, into: Option<&Path>) -> Command {
    let mut command = host.command("curl");
    command.args(["--silent", "--show-error", "--fail", "--max-time", "60", "--output"]);
    command.arg(into.unwrap_or(Path::new("/dev/null"))).arg(url);
    command
}
