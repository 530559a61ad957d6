//! Test bed for tests, the demo and benchmarks: hosts in network namespaces, unmodified programs, and
//! captures that `tshark` checks.
//!
//! Everything is inside a [`Lab`], which has its own namespaces, directory and processes. The machine's own
//! network namespace is never changed. Concurrent labs do not collide.
//!
//! Invariant: the lab's namespaces, processes and files are removed however the owner ends: return, error,
//! panic, Ctrl-C or SIGKILL (see [`janitor`]). Begin with [`Lab::new`], [`Lab::host`] and [`Lab::join`], then
//! [`Host::command`] and [`Host::spawn`]. Verdicts about packets come from `tshark` (see [`Capture`]).

#![forbid(unsafe_code)]

pub mod browser;
pub mod c_programs;
pub mod capture;
pub mod cpu;
pub mod daemon;
pub mod delay;
pub mod files;
pub mod guest;
pub mod host;
pub mod janitor;
pub mod kamailio;
pub mod lab;
pub mod link;
pub mod memory;
pub mod pair;
pub mod process;
pub mod programs;
pub mod skip;

pub use browser::Browser;
pub use capture::{Capture, Seen};
pub use daemon::{Daemon, Programs};
pub use delay::{DelayedLink, Emulator};
pub use guest::Guest;
pub use host::Host;
pub use lab::Lab;
pub use link::{Link, Offloads};
pub use memory::MemoryGroup;
pub use pair::Pair;
pub use process::{Finished, Process};
pub use skip::skip;

/// Reports whether this process may create network namespaces, that is, whether its effective user is root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
