//! The requirements of one RFC, from `docs/compliance/rfcNNNN.toml`.
//!
//! ```toml
//! rfc = 9260
//! title = "Stream Control Transmission Protocol"
//! note = "..."    # optional paragraph below the heading of the RFC's page
//! open = 0        # limit on requirements that nobody has judged: it may only shrink
//! untested = 12   # limit on requirements that no test cites: it may only shrink
//! [requirements]
//! "5.1-6" = { level = "MUST NOT", text = "after INIT ACK, no state of the peer is kept" }
//! "6.2-3" = { level = "SHOULD", text = "...", not = "why we do otherwise" }
//! ```
//!
//! An id consists of the section and an ordinal, which counts the section's sentences with a requirement word. A text states the behaviour
//! that the RFC requires, also if the level is MUST NOT. A line has one of these fields or none:
//!
//! - `not`: we deviate, for the given reason.
//! - `gap`: we should comply and do not yet, for the given reason.
//! - `na`: the requirement does not apply to an implementation like this one, for the given reason.
//! - `same`: the sentence repeats the requirement with the given id.

use super::citations::Citation;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Section numbers, then the ordinal. Requirements are sorted by section, then by ordinal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) section: Vec<u32>,
    ordinal: u32,
}

impl FromStr for Id {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Id> {
        let (section, ordinal) = text.split_once('-').with_context(|| format!("`{text}` has no `-`"))?;
        let section = section.split('.').map(str::parse).collect::<Result<_, _>>();
        let bad = || format!("`{text}` is not a section with an ordinal");
        Ok(Id { section: section.with_context(bad)?, ordinal: ordinal.parse().with_context(bad)? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let section: Vec<String> = self.section.iter().map(u32::to_string).collect();
        write!(f, "{}-{}", section.join("."), self.ordinal)
    }
}

/// One line of the list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Requirement {
    pub(super) level: String,
    pub(super) text: String,
    pub(super) not: Option<String>,
    pub(super) gap: Option<String>,
    pub(super) na: Option<String>,
    pub(super) same: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rfc: u32,
    title: String,
    note: Option<String>,
    open: usize,
    untested: usize,
    requirements: BTreeMap<String, Requirement>,
}

/// The requirements of one RFC.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) rfc: u32,
    pub(super) title: String,
    /// Paragraph below the heading of the RFC's page, if any.
    pub(super) note: Option<String>,
    open: usize,
    untested: usize,
    pub(super) requirements: BTreeMap<Id, Requirement>,
}

/// The status of one requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    /// At least one test cites the requirement.
    Tested,
    /// Code cites the requirement, and no test cites it.
    Done,
    /// We deviate from the requirement, for a given reason.
    Not,
    /// We should comply with the requirement, and do not yet.
    Gap,
    /// The requirement does not apply to an implementation like this one.
    NotOurs,
    /// No judgement and no citation of the requirement exist.
    Open,
}

impl Document {
    pub(super) fn parse(text: &str) -> Result<Document> {
        let file: File = toml::from_str(text)?;
        let mut requirements = BTreeMap::new();
        for (id, requirement) in file.requirements {
            requirements.insert(id.parse()?, requirement);
        }
        if requirements.is_empty() {
            bail!("no requirements");
        }
        let (rfc, title, note) = (file.rfc, file.title, file.note);
        Ok(Document { rfc, title, note, open: file.open, untested: file.untested, requirements })
    }

    /// Returns the requirement with this id. If the requirement repeats another requirement (`same`), returns the repeated requirement.
    /// Returns `None` if an id is unknown, or if the repeated requirement is itself a repetition.
    fn resolve<'a>(&'a self, id: &Id) -> Option<(Id, &'a Requirement)> {
        let requirement = self.requirements.get(id)?;
        match &requirement.same {
            None => Some((id.clone(), requirement)),
            Some(other) => {
                let other: Id = other.parse().ok()?;
                let requirement = self.requirements.get(&other).filter(|r| r.same.is_none())?;
                Some((other, requirement))
            }
        }
    }

    /// Returns the citations of a requirement, and of the requirement that it repeats, if any.
    pub(super) fn citations<'a>(&self, id: &Id, all: &'a [Citation]) -> Vec<&'a Citation> {
        let target = self.resolve(id).map(|(target, _)| target);
        let is_of = |c: &&Citation| c.rfc == self.rfc && (c.id == *id || Some(&c.id) == target.as_ref());
        all.iter().filter(is_of).collect()
    }

    pub(super) fn status(&self, id: &Id, all: &[Citation]) -> Status {
        let Some((_, requirement)) = self.resolve(id) else { return Status::Open };
        if requirement.not.is_some() {
            return Status::Not;
        }
        if requirement.gap.is_some() {
            return Status::Gap;
        }
        if requirement.na.is_some() {
            return Status::NotOurs;
        }
        let citations = self.citations(id, all);
        if citations.iter().any(|c| c.is_test) {
            Status::Tested
        } else if citations.is_empty() {
            Status::Open
        } else {
            Status::Done
        }
    }

    /// Returns the reason for a requirement's status, if the list gives one.
    pub(super) fn reason<'a>(&'a self, id: &Id) -> Option<&'a str> {
        let (_, requirement) = self.resolve(id)?;
        [&requirement.not, &requirement.gap, &requirement.na].into_iter().find_map(|r| r.as_deref())
    }

    pub(super) fn count(&self, status: Status, all: &[Citation]) -> usize {
        self.requirements.keys().filter(|id| self.status(id, all) == status).count()
    }

    /// Returns a message for each line with more than one judgement, and for each `same` that names no independent requirement.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (id, r) in &self.requirements {
            let said = [&r.not, &r.gap, &r.na, &r.same].iter().filter(|x| x.is_some()).count();
            if said > 1 {
                faults.push(format!("rfc{}#{id}: more than one of not, gap, na and same", self.rfc));
            }
            if r.same.is_some() && self.resolve(id).is_none() {
                faults.push(format!("rfc{}#{id}: `same` names no independent requirement", self.rfc));
            }
        }
        faults
    }

    /// Compares the counts of open and untested requirements with their limits in the file. Returns a message for each count above its
    /// limit. Prints a hint for each count below its limit.
    pub(super) fn ratchet(&self, all: &[Citation]) -> Vec<String> {
        let mut faults = Vec::new();
        let marks = [(Status::Open, self.open, "open"), (Status::Done, self.untested, "untested")];
        for (status, most, name) in marks {
            let found: Vec<String> = self
                .requirements
                .keys()
                .filter(|id| self.status(id, all) == status)
                .map(Id::to_string)
                .collect();
            if found.len() > most {
                faults.push(format!(
                    "rfc{}: {} requirements are {name}, and {most} may be: {}",
                    self.rfc,
                    found.len(),
                    found.join(" ")
                ));
            } else if found.len() < most {
                let now = found.len();
                println!("rfc{}: only {now} are {name} now: write `{name} = {now}`", self.rfc);
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"
        rfc = 9260
        title = "T"
        open = 0
        untested = 0
        [requirements]
        "5.1-10" = { level = "MUST", text = "a" }
        "5.1-2" = { level = "MUST", text = "b", not = "because" }
        "6-1" = { level = "MUST", text = "c", same = "5.1-10" }
    "#;

    fn cited(id: &str, is_test: bool) -> Citation {
        let (path, function) = (String::new(), String::new());
        Citation { rfc: 9260, id: id.parse().unwrap(), path, line: 1, function, is_test }
    }

    fn status(id: &str, citations: &[Citation]) -> Status {
        Document::parse(LIST).unwrap().status(&id.parse().unwrap(), citations)
    }

    #[test]
    fn a_requirement_is_done_by_code_tested_by_a_test_and_open_without_either() {
        assert_eq!(status("5.1-10", &[]), Status::Open);
        assert_eq!(status("5.1-10", &[cited("5.1-10", false)]), Status::Done);
        assert_eq!(status("5.1-10", &[cited("5.1-10", false), cited("5.1-10", true)]), Status::Tested);
        assert_eq!(status("5.1-2", &[cited("5.1-2", true)]), Status::Not);
    }

    #[test]
    fn a_requirement_takes_the_status_of_the_one_that_it_repeats() {
        assert_eq!(status("6-1", &[cited("5.1-10", true)]), Status::Tested);
        assert_eq!(status("5.1-10", &[cited("6-1", true)]), Status::Open);
    }

    #[test]
    fn more_open_requirements_than_allowed_are_a_fault() {
        let document = Document::parse(LIST).unwrap();
        assert_eq!(document.ratchet(&[]).len(), 1);
        assert!(document.ratchet(&[cited("5.1-10", true)]).is_empty());
    }

    #[test]
    fn numbers_are_sorted_as_numbers() {
        let document = Document::parse(LIST).unwrap();
        let ids: Vec<String> = document.requirements.keys().map(Id::to_string).collect();
        assert_eq!(ids, ["5.1-2", "5.1-10", "6-1"]);
    }

    #[test]
    fn a_requirement_with_contradictory_entries_or_an_invalid_reference_is_a_fault() {
        let list = LIST.replace("not = \"because\"", "not = \"because\", gap = \"too\"");
        assert_eq!(Document::parse(&list).unwrap().faults().len(), 1);
        let list = LIST.replace("same = \"5.1-10\"", "same = \"6-1\"");
        assert_eq!(Document::parse(&list).unwrap().faults().len(), 1);
    }
}
