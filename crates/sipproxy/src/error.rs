//! What can go wrong: what, where, and what to do about it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of `sctpify-sip`.
#[derive(Debug, thiserror::Error)]
pub enum SipError {
    /// A file that cannot be read.
    #[error("{path}: {source}; say another with --config")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// A file that is no configuration.
    #[error("{path}: {problem}")]
    Toml {
        /// Which.
        path: PathBuf,
        /// Where in it, and what would be right.
        problem: String,
    },
    /// A value that cannot be.
    #[error("{path}: {key}: {problem}")]
    Config {
        /// Which file.
        path: PathBuf,
        /// Which key.
        key: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// An address that cannot be listened at.
    #[error("cannot listen at {transport} {address}: {source}; `listen` in the configuration says where")]
    Listen {
        /// What was to be carried.
        transport: &'static str,
        /// Where.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
    /// An address of the user agent's command line that cannot be listened at.
    #[error("cannot listen at {transport} {address}: {source}; {flag} says where")]
    Flag {
        /// What was to be carried.
        transport: &'static str,
        /// Where.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
        /// The option that names the address.
        flag: &'static str,
    },
    /// A program that has no completions here.
    #[error("{0}")]
    Program(String),
    /// TLS without what it takes.
    #[error("transport tls needs certificate and key in [tls]")]
    NoCertificate,
    /// The kernel's own SCTP would answer in our place.
    #[error("{0}; or say carrier = \"udp\" in [sctp]")]
    KernelSctp(String),
    /// The store of bindings.
    #[error("store {place}: {problem}; `store` in the configuration says where it is")]
    Store {
        /// Its file, or its URL without what is secret.
        place: String,
        /// What it says.
        problem: String,
    },
    /// The control socket.
    #[error(
        "control socket {path}: {source}; `control` in the configuration says where it is, and --control where to ask"
    )]
    Control {
        /// Where it is.
        path: PathBuf,
        /// What the kernel or the other side says.
        source: io::Error,
    },
    /// The port of the metrics.
    #[error("port {port} of 127.0.0.1: {source}; `page_port` in the configuration says which")]
    Page {
        /// Which.
        port: u16,
        /// What the kernel says.
        source: io::Error,
    },
    /// What the command line of the user agent says cannot be.
    #[error("{0}")]
    Usage(String),
    /// The user agent's calls or registration did not all succeed.
    #[error("{0}")]
    Calls(String),
    /// The kernel refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

impl SipError {
    /// For `map_err`: what was tried.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> SipError {
        move |source| SipError::System { what, source }
    }
}
