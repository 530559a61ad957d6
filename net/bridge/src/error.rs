//! Errors about interfaces: the affected interface, the kernel's error and a remedy.

use std::io;
use std::path::PathBuf;

/// An interface that cannot be used, or a call that the kernel refused.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The text is not the name of an interface.
    #[error("invalid interface `{text}`: expected INTERFACE or NAMESPACE:INTERFACE")]
    LinkEnd {
        /// The text.
        text: String,
    },
    /// A network namespace cannot be entered.
    #[error(
        "cannot enter network namespace {path}: {source}; `ip netns list` lists them, and entering one requires root"
    )]
    Namespace {
        /// Path of the namespace.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// An interface cannot be used.
    #[error("cannot use interface {end}: {source}; {hint}")]
    Interface {
        /// The interface.
        end: String,
        /// The kernel's error.
        source: io::Error,
        /// A remedy.
        hint: &'static str,
    },
    /// An interface is down.
    #[error("interface {end} is down: `ip link set INTERFACE up` first")]
    Down {
        /// The interface.
        end: String,
    },
    /// Another program forwards the packets of an interface.
    #[error("interface {end} is an end of another link: see `linkemu show` and `ps -C sctpify-router`")]
    Taken {
        /// The interface.
        end: String,
    },
    /// The kernel refused another action.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl BridgeError {
    /// Returns a function for `map_err` that adds the failed action to an error.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> BridgeError {
        move |source| BridgeError::System { what, source: source.into() }
    }
}
