//! Privileges that the daemon's worker has given up since its set-up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The rights that the worker keeps, one field for each means of confinement.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Confinement {
    /// The user of the process, other than root.
    #[serde(default)]
    pub user: Measure,
    /// Capabilities given up, with no way to gain new ones.
    pub capabilities: Measure,
    /// System calls that the kernel refuses (seccomp).
    pub system_calls: Measure,
    /// Files out of reach (Landlock).
    pub files: Measure,
}

impl Confinement {
    /// Returns the measures with the names of their settings.
    pub fn measures(&self) -> [(&'static str, &Measure); 4] {
        [
            ("worker_user", &self.user),
            ("confine_capabilities", &self.capabilities),
            ("confine_system_calls", &self.system_calls),
            ("confine_files", &self.files),
        ]
    }
}

/// State of a restriction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Measure {
    /// In force.
    InForce {
        /// Privileges that the worker keeps.
        left: String,
    },
    /// A setting turned it off.
    #[default]
    Off,
    /// The kernel does not have it, or refused it.
    Unavailable {
        /// The reason.
        why: String,
    },
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Measure::InForce { left } => f.write_str(left),
            Measure::Off => f.write_str("not confined (setting)"),
            Measure::Unavailable { why } => write!(f, "not confined: {why}"),
        }
    }
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Confinement { user, capabilities, system_calls, files } = self;
        write!(f, "user: {user}; capabilities: {capabilities}; system calls: {system_calls}; files: {files}")
    }
}
