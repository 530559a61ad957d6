//! Errors of `sctpify-router`. Each message names the fault, its location and, if one is known, a remedy.

use std::io;

/// An error of `sctpify-router`.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// A program (`tc` or `unshare`) could not be started.
    #[error("cannot run {program}: {source}; it is in the package {package}")]
    CannotRun {
        /// The program.
        program: &'static str,
        /// The package that contains the program.
        package: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// `tc` failed, or printed no JSON.
    #[error("tc {command}: {problem}")]
    Tc {
        /// The command that failed.
        command: String,
        /// The error message of `tc`, or the fault in its output.
        problem: String,
    },
    /// The interface has a queueing discipline that `sctpify-router` did not create.
    #[error(
        "{interface} has another queueing discipline ({kind} {handle}): `tc qdisc del dev {interface} root` deletes it, if it is not needed"
    )]
    Occupied {
        /// The interface.
        interface: String,
        /// Kind of the queueing discipline, as `tc` prints it.
        kind: String,
        /// Handle of the queueing discipline, as `tc` prints it.
        handle: String,
    },
    /// The interface has no classes of `sctpify-router`.
    #[error(
        "{interface} has no classes of sctpify-router: `sctpify-router tc up {interface} --rate RATE` creates them"
    )]
    Absent {
        /// The interface.
        interface: String,
    },
    /// The interface already has classes of `sctpify-router`.
    #[error(
        "{interface} already has classes of sctpify-router: run `sctpify-router tc down {interface}` first"
    )]
    Present {
        /// The interface.
        interface: String,
    },
    /// The interface's classes, leaves or filters differ from the requested ones.
    #[error("{interface} differs from the requested configuration:\n  {}\n`sctpify-router tc down {interface}`, then `tc up`, corrects it", .differences.join("\n  "))]
    Differs {
        /// The interface.
        interface: String,
        /// The differences, one sentence each.
        differences: Vec<String>,
    },
    /// An interface cannot be used.
    #[error(transparent)]
    Bridge(#[from] bridge::BridgeError),
    /// The port of the metrics page cannot be opened.
    #[error("cannot open port {port} of 127.0.0.1: {source}; use another --metrics-port")]
    Port {
        /// The port.
        port: u16,
        /// The kernel's error.
        source: io::Error,
    },
    /// The handlers of signals cannot be installed.
    #[error("cannot wait for signals: {0}")]
    Signals(#[source] io::Error),
    /// Manual pages or completions cannot be written.
    #[error(transparent)]
    Docs(#[from] ops::DocsError),
    /// Standard output cannot be written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}
