//! Restrictions on the daemon's worker after its set-up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Confinement of the worker, with one field for each mechanism.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Confinement {
    /// User under which the worker runs, instead of root.
    #[serde(default)]
    pub user: Measure,
    /// Dropped capabilities. The worker cannot gain new ones.
    pub capabilities: Measure,
    /// System calls that the kernel refuses to the worker (seccomp).
    pub system_calls: Measure,
    /// Files that the worker cannot access (Landlock).
    pub files: Measure,
}

impl Confinement {
    /// Returns each restriction with the name of its setting.
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
    /// The restriction is in force.
    InForce {
        /// Privileges that the worker keeps.
        left: String,
    },
    /// A setting turns the restriction off.
    #[default]
    Off,
    /// The kernel does not support the restriction, or refused it.
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
