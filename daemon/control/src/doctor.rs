//! Report of `doctor`: missing requirements of a host, and remedies.

use serde::{Deserialize, Serialize};

/// Findings, in the order they should be read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DoctorReport {
    /// One entry for each check.
    pub checks: Vec<Check>,
}

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// In order.
    Ok,
    /// Works, but less well, or not for everyone.
    Warning,
    /// Does not work.
    Missing,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Name of the check, in a word or two.
    pub name: String,
    /// Its severity.
    pub level: Level,
    /// The finding.
    pub found: String,
    /// The remedy.
    pub remedy: Option<String>,
}

impl Check {
    /// Creates a check whose result is in order.
    pub fn ok(name: &str, found: impl Into<String>) -> Check {
        Check { name: name.into(), level: Level::Ok, found: found.into(), remedy: None }
    }

    /// Creates a check with a fault and its remedy.
    pub fn bad(name: &str, level: Level, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name: name.into(), level, found: found.into(), remedy: Some(remedy.into()) }
    }
}

impl DoctorReport {
    /// Returns the names of the checks whose subject does not work.
    pub fn missing(&self) -> Vec<&str> {
        let missing = self.checks.iter().filter(|check| check.level == Level::Missing);
        missing.map(|check| check.name.as_str()).collect()
    }
}
