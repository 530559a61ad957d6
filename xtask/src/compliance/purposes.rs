//! The test purposes of ETSI TS 102 369, with the tests that implement them: `docs/compliance/etsi-ts-102-369.toml`.
//!
//! Each purpose names test functions, or gives the reason why no test implements it. The check verifies that the functions exist.

use anyhow::Result;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Purpose {
    text: String,
    #[serde(default)]
    tests: Vec<String>,
    not: Option<String>,
}

/// Checklist of the test purposes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Purposes {
    title: String,
    source: String,
    purposes: BTreeMap<String, Purpose>,
}

impl Purposes {
    pub(super) fn parse(text: &str) -> Result<Purposes> {
        Ok(toml::from_str(text)?)
    }

    /// Returns a message for each purpose that has neither a test nor a reason, and for each named test that does not exist.
    pub(super) fn faults(&self, functions: &BTreeSet<String>) -> Vec<String> {
        let mut faults = Vec::new();
        for (id, purpose) in &self.purposes {
            if purpose.tests.is_empty() && purpose.not.is_none() {
                faults.push(format!("{id}: neither a test nor a reason"));
            }
            for test in purpose.tests.iter().filter(|t| !functions.contains(*t)) {
                faults.push(format!("{id}: no test `{test}`"));
            }
        }
        faults
    }

    fn served(&self) -> usize {
        self.purposes.values().filter(|p| !p.tests.is_empty()).count()
    }

    pub(super) fn summary(&self) -> String {
        format!("{}: {} of {} purposes have a test", self.title, self.served(), self.purposes.len())
    }

    pub(super) fn table(&self) -> String {
        let mut out = format!("# {}\n\n{}\n\n{}.\n\n", self.title, self.source, self.summary());
        out.push_str("`./x compliance` writes this page from `etsi-ts-102-369.toml` in this folder.\n\n");
        out.push_str("| purpose | subject | tests, or the reason why no test exists |\n|---|---|---|\n");
        // Sort numerically, not alphabetically.
        let number = |part: &str| part.parse::<u32>().unwrap_or(0);
        let key = |id: &&String| id.split('_').map(|p| (number(p), p.to_owned())).collect::<Vec<_>>();
        let mut ids: Vec<&String> = self.purposes.keys().collect();
        ids.sort_by_key(key);
        for id in ids {
            let purpose = &self.purposes[id];
            let mut served: Vec<String> = purpose.tests.iter().map(|t| format!("`{t}`")).collect();
            served.extend(purpose.not.clone());
            let _ = writeln!(out, "| {id} | {} | {} |", purpose.text, served.join(", "));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"
        title = "T"
        source = "S"
        [purposes]
        "AS_V_1_10" = { text = "a", tests = ["exists"] }
        "AS_V_1_2" = { text = "b", not = "why" }
        "AS_V_1_3" = { text = "c" }
    "#;

    #[test]
    fn a_purpose_needs_a_test_that_exists_or_a_reason() {
        let purposes = Purposes::parse(LIST).unwrap();
        let functions = BTreeSet::from(["exists".to_owned()]);
        assert_eq!(purposes.faults(&functions), ["AS_V_1_3: neither a test nor a reason"]);
        assert_eq!(purposes.faults(&BTreeSet::new()).len(), 2);
    }

    #[test]
    fn purposes_are_sorted_by_number() {
        let table = Purposes::parse(LIST).unwrap().table();
        assert!(table.find("AS_V_1_2 ") < table.find("AS_V_1_10 "));
    }
}
