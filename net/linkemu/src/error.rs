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
    #[error("both ends of the link are {end}: say two interfaces")]
    Same {
        /// The interface.
        end: String,
    },
    /// A name that cannot be that of a file.
    #[error("`{name}` is no name of a link: use letters, digits, `-`, `_` and `.`, 64 at most (--name)")]
    Name {
        /// The name.
        name: String,
    },
    /// A link of this name runs.
    #[error("there is a link {name} already: say another --name, or `linkemu set {name} ...`")]
    Exists {
        /// The name.
        name: String,
    },
    /// No link of this name runs.
    #[error("there is no link {name} in {dir}: `linkemu show` lists them")]
    Missing {
        /// The name.
        name: String,
        /// Where it was looked for.
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
        /// Where in it, and what would be right.
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
