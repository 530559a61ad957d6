//! The errors: each names the fault, its place, and a remedy.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of `sctpify-sip`.
#[derive(Debug, thiserror::Error)]
pub enum SipError {
    /// A file that cannot be read.
    #[error("{path}: {source}; name another file with --config")]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// An invalid configuration file.
    #[error("{path}: {problem}")]
    Toml {
        /// The file.
        path: PathBuf,
        /// The position in it, and the expected form.
        problem: String,
    },
    /// An invalid value.
    #[error("{path}: {key}: {problem}")]
    Config {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The fault, and a valid value.
        problem: String,
    },
    /// An address that cannot be bound.
    #[error("cannot listen at {transport} {address}: {source}; see `listen` in the configuration")]
    Listen {
        /// The transport.
        transport: &'static str,
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// An address of the user agent's command line that cannot be bound.
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
    /// TLS without a certificate and key.
    #[error("transport tls needs certificate and key in [tls]")]
    NoCertificate,
    /// The kernel's own SCTP would answer instead of us.
    #[error("{0}; or set carrier = \"udp\" in [sctp]")]
    KernelSctp(String),
    /// The store of bindings.
    #[error("store {address}: {problem}; see `store` in the configuration")]
    Store {
        /// Its file, or its URL without secrets.
        address: String,
        /// Its error.
        problem: String,
    },
    /// The control socket.
    #[error("control socket {path}: {source}; see `control` in the configuration, and --control")]
    Control {
        /// Its path.
        path: PathBuf,
        /// The error of the kernel or the other side.
        source: io::Error,
    },
    /// The port of the metrics.
    #[error("port {port} of 127.0.0.1: {source}; see `page_port` in the configuration")]
    Page {
        /// The port.
        port: u16,
        /// The kernel's error.
        source: io::Error,
    },
    /// Invalid use of the user agent's command line.
    #[error("{0}")]
    Usage(String),
    /// The user agent's calls or registration did not all succeed.
    #[error("{0}")]
    Calls(String),
    /// The kernel refused something else.
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
