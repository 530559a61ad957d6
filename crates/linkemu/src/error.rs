//! What can go wrong: what, where, and what to do about it.

use std::io;
use std::path::PathBuf;

/// An error of `linkemu`.
#[derive(Debug, thiserror::Error)]
pub enum LinkemuError {
    /// Settings that cannot be.
    #[error("{place}: {source}")]
    Spec {
        /// The direction, or the link in a file.
        place: String,
        /// Which, and why.
        source: netem::SpecError,
    },
    /// An end of the link that is none.
    #[error("`{text}` is no end of a link: say INTERFACE or NAMESPACE:INTERFACE")]
    Place {
        /// What was said.
        text: String,
    },
    /// A link from an interface to itself.
    #[error("both ends of the link are {place}: say two interfaces")]
    Same {
        /// The interface.
        place: String,
    },
    /// A name that cannot be that of a file.
    #[error("`{name}` is no name of a link: use letters, digits, `-`, `_` and `.`, 64 at most (--name)")]
    Name {
        /// The name.
        name: String,
    },
    /// A network namespace that cannot be entered.
    #[error(
        "cannot enter network namespace {path}: {source}; `ip netns list` tells which there are, and it takes root"
    )]
    Namespace {
        /// Where it was looked for.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// An interface that cannot be used.
    #[error("cannot use interface {place}: {source}; {hint}")]
    Interface {
        /// The end of the link.
        place: String,
        /// What the kernel says.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// An interface that is down.
    #[error("interface {place} is down: `ip link set INTERFACE up` first")]
    Down {
        /// The end of the link.
        place: String,
    },
    /// An interface that is an end of another link.
    #[error(
        "interface {place} is an end of another link: `linkemu show` tells of which, `linkemu del` frees it"
    )]
    Taken {
        /// The end of the link.
        place: String,
    },
    /// A link of this name runs.
    #[error("there is a link {name} already: say another --name, or `linkemu set {name} ...`")]
    Exists {
        /// The name.
        name: String,
    },
    /// No link of this name runs.
    #[error("there is no link {name} in {dir}: `linkemu show` tells which there are")]
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
        /// What the kernel says.
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
        /// What it said.
        problem: String,
    },
    /// The kernel refused something else.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel says.
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
