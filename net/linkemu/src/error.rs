//! Errors: their subject, their place and a remedy.

use std::io;
use std::path::PathBuf;

/// An error of `linkemu`.
#[derive(Debug, thiserror::Error)]
pub enum LinkemuError {
    /// Settings that cannot be.
    #[error("{subject}: {source}")]
    Spec {
        /// The direction, or the link in a file.
        subject: String,
        /// Which, and why.
        source: netem::SpecError,
    },
    /// An interface, or the wait for packets.
    #[error(transparent)]
    Bridge(#[from] bridge::BridgeError),
    /// A link from an interface to itself.
    #[error("both ends of the link are {end}: give two interfaces")]
    Same {
        /// The interface.
        end: String,
    },
    /// A name that cannot be that of a file.
    #[error("invalid link name `{name}`: use up to 64 letters, digits, `-`, `_` and `.` (--name)")]
    Name {
        /// The name.
        name: String,
    },
    /// A link of this name runs.
    #[error("link {name} already exists: use another --name, or `linkemu set {name} ...`")]
    Exists {
        /// The name.
        name: String,
    },
    /// No link of this name runs.
    #[error("no link {name} in {dir}: `linkemu show` lists the links")]
    Missing {
        /// The name.
        name: String,
        /// Directory that was searched.
        dir: PathBuf,
    },
    /// A file or directory.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file of links that cannot be read.
    #[error("{path}: {problem}")]
    Toml {
        /// Which.
        path: PathBuf,
        /// Location in it, and the accepted form.
        problem: String,
    },
    /// The link's process said so.
    #[error("link {name}: {problem}")]
    Refused {
        /// The link.
        name: String,
        /// Its message.
        problem: String,
    },
    /// Manual pages or completions cannot be written.
    #[error(transparent)]
    Docs(#[from] ops::DocsError),
    /// The kernel refused something else.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl LinkemuError {
    /// For `map_err`: what was tried.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> LinkemuError {
        move |source| LinkemuError::System { what, source: source.into() }
    }

    /// For `map_err`: at which file.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> LinkemuError {
        let path = path.to_owned();
        move |source| LinkemuError::File { path, source }
    }
}
