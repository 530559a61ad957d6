//! Errors: their subject, their place and a remedy.

use std::io;

/// An error of `sctpify-router`.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// `tc` could not be started.
    #[error("cannot run tc: {source}; it is in the package iproute2")]
    NoTc {
        /// The kernel's error.
        source: io::Error,
    },
    /// `tc` refused.
    #[error("tc {command}: {problem}")]
    Tc {
        /// The command.
        command: String,
        /// Its message.
        problem: String,
    },
    /// The interface has a queueing discipline that is not ours.
    #[error(
        "{interface} has another queueing discipline ({kind} {handle}): `tc qdisc del dev {interface} root` deletes it, if it is not needed"
    )]
    Occupied {
        /// Where.
        interface: String,
        /// Its kind.
        kind: String,
        /// Its handle.
        handle: String,
    },
    /// The interface has none of ours.
    #[error(
        "{interface} has no classes of sctpify-router: `sctpify-router tc up {interface} --rate RATE` creates them"
    )]
    Absent {
        /// Where.
        interface: String,
    },
    /// The interface has classes of ours already.
    #[error(
        "{interface} already has classes of sctpify-router: run `sctpify-router tc down {interface}` first"
    )]
    Present {
        /// Where.
        interface: String,
    },
    /// The interface's classes differ from those asked for.
    #[error("{interface} differs from the requested configuration:\n  {}\n`sctpify-router tc down {interface}`, then `tc up`, corrects it", .differences.join("\n  "))]
    Differs {
        /// Where.
        interface: String,
        /// One sentence each.
        differences: Vec<String>,
    },
    /// An interface cannot be used.
    #[error(transparent)]
    Bridge(#[from] bridge::BridgeError),
    /// The page's port is taken.
    #[error("cannot open port {port} of 127.0.0.1: {source}; use another --metrics-port")]
    Port {
        /// The port.
        port: u16,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel does not tell of signals.
    #[error("cannot wait for signals: {0}")]
    Signals(#[source] io::Error),
    /// Manual pages or completions cannot be written.
    #[error(transparent)]
    Docs(#[from] ops::DocsError),
    /// Standard output is closed.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}
