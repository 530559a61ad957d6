//! Errors of `sctpify-sip` and `sctpify-ua`. The text of an error names the fault, its place and usually a remedy.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of `sctpify-sip` or `sctpify-ua`.
#[derive(Debug, thiserror::Error)]
pub enum SipError {
    /// A configuration file that cannot be read.
    #[error("{path}: {source}; name another file with --config")]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A configuration file that is not valid TOML, or has unknown keys.
    #[error("{path}: {problem}")]
    Toml {
        /// The file.
        path: PathBuf,
        /// The line, and the parser's message.
        problem: String,
    },
    /// A key with an invalid value.
    #[error("{path}: {key}: {problem}")]
    Config {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The fault, and a valid value.
        problem: String,
    },
    /// A listener's address that cannot be bound.
    #[error("cannot listen at {transport} {address}: {source}; see `listen` in the configuration")]
    Listen {
        /// The transport.
        transport: &'static str,
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// A failure to bind an address that the user agent's command line names.
    #[error("cannot listen at {transport} {address}: {source}; see {flag}")]
    Flag {
        /// The transport.
        transport: &'static str,
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
        /// The option that names the address.
        flag: &'static str,
    },
    /// Manual pages or completions that cannot be written.
    #[error(transparent)]
    Docs(#[from] ops::DocsError),
    /// A TLS listener without certificate and key.
    #[error("transport tls needs certificate and key in [tls]")]
    NoCertificate,
    /// An active SCTP stack in the kernel. This stack would also answer packets that are addressed
    /// to this program.
    #[error("{0}; or set carrier = \"udp\" in [sctp]")]
    KernelSctp(String),
    /// A key of this program that cannot be read, created or used.
    #[error("host key: {0}; see `host_key` in [sctp], and --host-key")]
    HostKey(String),
    /// A failure of the store of bindings.
    #[error("store {address}: {problem}; see `store` in the configuration")]
    Store {
        /// The store's file, or its URL without secrets.
        address: String,
        /// The store's error.
        problem: String,
    },
    /// A failure of the control socket.
    #[error("control socket {path}: {source}; see `control` in the configuration, and --control")]
    Control {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the kernel or of the other side.
        source: io::Error,
    },
    /// A failure to bind the HTTP port of the status page and the metrics.
    #[error("port {port} of 127.0.0.1: {source}; see `page_port` in the configuration")]
    Page {
        /// The port.
        port: u16,
        /// The kernel's error.
        source: io::Error,
    },
    /// Invalid use of a command line, or a configuration without a listener.
    #[error("{0}")]
    Usage(String),
    /// Failed calls or registrations of the user agent.
    #[error("{0}")]
    Calls(String),
    /// Another operation that the kernel refused.
    #[error("cannot {what}: {source}")]
    System {
        /// The failed action.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl SipError {
    /// Wraps an I/O error with the failed action, for `map_err`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> SipError {
        move |source| SipError::System { what, source }
    }
}
