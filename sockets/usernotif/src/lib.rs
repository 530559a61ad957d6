//! SCTP sockets for programs that no preloaded library reaches: static programs, and programs that make system calls themselves (Go).
//!
//! A seccomp filter ([`Listener::install`]) notifies the supervisor ([`supervise`]) of the program's calls on SCTP sockets, before the
//! kernel executes them (seccomp_unotify(2)). The supervisor executes each call on a copy of the program's descriptor, and copies data from
//! and to the program's memory. Like the preloaded library, the supervisor uses the functions of [`sockclient`], which query the socket
//! server ("the server" in this crate). It answers in the kernel's place. All other calls run at full speed.
//!
//! The filter sees numbers, not files, so the sockets have descriptors from 512 on. A socket that another process has passed to the program
//! may have a lower number. The supervisor is not notified of calls on such a socket.
//!
//! This is no sandbox. A program can bypass the filter, but it only harms its own sockets. The supervisor uses the memory and descriptors
//! of the thread that waits for the answer, even if another program takes the thread's number meanwhile.
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

/// Reason why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The filter could not be installed.
    #[error("{0}")]
    Filter(#[from] InstallError),
    /// The program could not be executed.
    #[error("{0}")]
    Command(io::Error),
}

/// Starts a program under the filter. Its calls on SCTP sockets wait until [`supervise`] runs.
///
/// # Errors
/// See [`SpawnError`].
pub fn spawn(command: &mut Command) -> Result<(Child, Listener), SpawnError> {
    // A filter applies to a thread and its later children. A temporary thread installs the filter, because the filter must not apply to the
    // supervisor's threads.
    let spawn = || {
        let listener = Listener::install()?;
        Ok((command.spawn().map_err(SpawnError::Command)?, listener))
    };
    std::thread::scope(|scope| scope.spawn(spawn).join())
        .unwrap_or_else(|_| Err(SpawnError::Command(io::Error::other("the thread that starts it has ended"))))
}
