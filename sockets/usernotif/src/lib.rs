//! SCTP sockets for programs that no preloaded library reaches: static ones, and those that make system calls by themselves (Go).
//!
//! A seccomp filter ([`Listener::install`]) lets the supervisor ([`supervise`]) hear of the program's calls on SCTP sockets before the
//! kernel does them (seccomp_unotify(2)). It does each by a copy of the program's descriptor and of its memory, with the same
//! functions that the preloaded library uses ([`sockclient`]), and answers in the kernel's place. All other calls run at full speed.
//!
//! The filter sees numbers, not files: sockets have descriptors from 512 on. A socket with a lower number, which another process
//! passed, is out of the supervisor's hearing.
//!
//! This is no sandbox: a program can get around the filter, and harms its own sockets by that. Memory and descriptors are those of the
//! thread that waits for the answer, also if another program takes its number meanwhile.
#![allow(unsafe_code, reason = "seccomp's ioctls take pointers")]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the filter knows the system calls of x86-64 and AArch64 only");

mod call;
mod calls;
mod filter;
mod listener;
mod memory;
mod messages;
mod programs;
mod rounds;
mod setup;
mod sockets;
mod supervisor;

use std::io;
use std::process::{Child, Command};

pub use listener::{InstallError, Listener};
pub use supervisor::supervise;

/// The reason why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// It could not be put under the filter.
    #[error("{0}")]
    Filter(#[from] InstallError),
    /// It could not be run.
    #[error("{0}")]
    Command(io::Error),
}

/// Starts a program under the filter. Its calls on SCTP sockets wait until [`supervise`] runs.
///
/// # Errors
/// See [`SpawnError`].
pub fn spawn(command: &mut Command) -> Result<(Child, Listener), SpawnError> {
    // A filter holds for a thread and those that it starts. This one ends at once: the supervisor has none.
    let spawn = || {
        let listener = Listener::install()?;
        Ok((command.spawn().map_err(SpawnError::Command)?, listener))
    };
    std::thread::scope(|scope| scope.spawn(spawn).join())
        .unwrap_or_else(|_| Err(SpawnError::Command(io::Error::other("the thread that starts it has ended"))))
}
