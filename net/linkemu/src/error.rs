//! Errors of `linkemu`. Each message names the subject and the cause. A message about the command line, a link or an interface also
//! names a remedy.

use std::io;
use std::path::PathBuf;

/// An error of `linkemu`.
#[derive(Debug, thiserror::Error)]
pub enum LinkemuError {
    /// Invalid settings.
    #[error("{subject}: {source}")]
    Spec {
        /// The link and the direction.
        subject: String,
        /// The invalid setting, and the reason.
        source: netem::SpecError,
    },
    /// The bridge cannot use an interface, or its wait for packets failed.
    #[error(transparent)]
    Bridge(#[from] bridge::BridgeError),
    /// Both ends of the link are the same interface.
    #[error("both ends of the link are {end}: give two interfaces")]
    Same {
        /// The interface.
        end: String,
    },
    /// The name of a link is not a valid file name.
    #[error("invalid link name `{name}`: use up to 64 letters, digits, `-`, `_` and `.` (--name)")]
    Name {
        /// The name.
        name: String,
    },
    /// A link of this name already runs.
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
    /// The kernel refused access to a file or directory.
    #[error("{path}: {source}")]
    File {
        /// Path of the file or directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The content of a file of links is invalid.
    #[error("{path}: {problem}")]
    Toml {
        /// Path of the file.
        path: PathBuf,
        /// The fault, its location in the file, and the accepted form.
        problem: String,
    },
    /// The link's process failed to start, refused a request, or sent an invalid answer.
    #[error("link {name}: {problem}")]
    Refused {
        /// Name of the link.
        name: String,
        /// Message of the link's process.
        problem: String,
    },
    /// Manual pages or completions cannot be written.
    #[error(transparent)]
    Docs(#[from] ops::DocsError),
    /// The kernel refused an action that concerns neither an interface nor a file.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl LinkemuError {
    /// Returns a function for `map_err` that adds the action `what` to the kernel's error.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> LinkemuError {
        move |source| LinkemuError::System { what, source: source.into() }
    }

    /// Returns a function for `map_err` that adds the path of the file to the kernel's error.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> LinkemuError {
        let path = path.to_owned();
        move |source| LinkemuError::File { path, source }
    }
}
