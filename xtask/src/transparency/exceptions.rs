//! The list of tests that end differently over SCTP, each with its reason:
//! `tests/transparency/exceptions.toml`.

use super::results::Results;
use crate::tools::root;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The whole list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exceptions {
    #[serde(default)]
    exception: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    suite: String,
    test: String,
    reason: String,
    /// True if the test depends on timing, and passes over SCTP in some runs.
    #[serde(default)]
    passes_sometimes: bool,
}

impl Exceptions {
    /// Reads the list. An exception without a reason is an error.
    pub(crate) fn read() -> Result<Self> {
        let path = root().join("tests/transparency/exceptions.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let list: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        for one in &list.exception {
            ensure!(!one.reason.trim().is_empty(), "{}: {} has no reason", path.display(), one.test);
        }
        Ok(list)
    }

    /// Returns the reason why a test of a suite may end differently over SCTP, and whether the test may also pass.
    pub(crate) fn reason(&self, suite: &str, test: &str) -> Option<(&str, bool)> {
        let found = self.exception.iter().find(|one| one.suite == suite && one.test == test);
        found.map(|one| (one.reason.as_str(), one.passes_sometimes))
    }

    /// Returns the listed tests of a suite that are not among the suite's results.
    pub(crate) fn unknown<'a>(
        &'a self,
        suite: &'a str,
        results: &'a Results,
    ) -> impl Iterator<Item = &'a str> {
        let of_suite = self.exception.iter().filter(move |one| one.suite == suite);
        of_suite.map(|one| one.test.as_str()).filter(|test| !results.contains_key(*test))
    }
}
