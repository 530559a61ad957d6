//! `./x compliance`: lists the requirements of RFCs, the code that implements each requirement, and the tests that check this code.
//!
//! The command joins two sources: the requirements in `docs/compliance/rfc*.toml` (one line each, in our own words), and the citations in
//! the code (`//= rfc9260#5.1-6`).
//!
//! Writes `docs/compliance.md` and a table for each RFC, and reports faults. With `--check`, the command writes nothing, and also reports
//! files that are out of date. The command cannot judge whether the code below a citation meets the requirement. Readers of the code must
//! judge this.
//!
//! Begin with [`data::Document`] and [`citations::Citation`].

mod citations;
mod data;
mod purposes;
mod report;

use crate::Outcome;
use crate::tools::root;
use anyhow::{Context, Result};
use citations::{Citation, Sources};
use data::Document;
use purposes::Purposes;
use std::fs;
use std::path::Path;

/// Folder of the requirements and of their tables.
const FOLDER: &str = "docs/compliance";

/// File of ETSI's test purposes, which are a second checklist.
const PURPOSES: &str = "docs/compliance/etsi-ts-102-369.toml";

/// All parsed input.
struct Compliance {
    documents: Vec<Document>,
    sources: Sources,
    purposes: Purposes,
}

/// Runs `./x compliance [--check]`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    let compliance = Compliance::read()?;
    let mut faults = compliance.faults();
    if words.iter().any(|word| word == "--check") {
        faults.extend(compliance.stale()?);
    } else {
        for (path, text) in compliance.reports() {
            fs::write(root().join(&path), text).with_context(|| format!("cannot write {path}"))?;
        }
    }
    for fault in &faults {
        eprintln!("compliance: {fault}");
    }
    for document in &compliance.documents {
        println!("{}", report::summary(document, &compliance.sources.citations));
    }
    println!("{}", compliance.purposes.summary());
    Ok(if faults.is_empty() { Outcome::Good } else { Outcome::Bad })
}

impl Compliance {
    fn read() -> Result<Compliance> {
        let purposes = root().join(PURPOSES);
        let text =
            fs::read_to_string(&purposes).with_context(|| format!("cannot read {}", purposes.display()))?;
        Ok(Compliance {
            documents: documents(&root().join(FOLDER))?,
            sources: Sources::read()?,
            purposes: Purposes::parse(&text)?,
        })
    }

    /// Returns one sentence for each fault.
    fn faults(&self) -> Vec<String> {
        let citations = &self.sources.citations;
        let mut faults: Vec<String> = citations.iter().filter_map(|c| self.dangling(c)).collect();
        for document in &self.documents {
            faults.extend(document.faults());
            faults.extend(document.ratchet(citations));
        }
        faults.extend(self.purposes.faults(&self.sources.functions));
        faults
    }

    /// Returns a citation's fault: its RFC has a list, and this list lacks the cited requirement. Citations of an RFC without a list have
    /// no fault.
    fn dangling(&self, citation: &Citation) -> Option<String> {
        let document = self.documents.iter().find(|d| d.rfc == citation.rfc)?;
        let known = document.requirements.contains_key(&citation.id);
        (!known).then(|| {
            format!(
                "{}:{}: rfc{} has no requirement {} in {FOLDER}",
                citation.path, citation.line, citation.rfc, citation.id
            )
        })
    }

    fn reports(&self) -> Vec<(String, String)> {
        let citations = &self.sources.citations;
        let table = |d: &Document| (format!("{FOLDER}/rfc{}.md", d.rfc), report::table(d, citations));
        let mut reports: Vec<_> = self.documents.iter().map(table).collect();
        reports.push(("docs/compliance.md".to_owned(), report::overview(&self.documents, citations)));
        reports.push((PURPOSES.replace(".toml", ".md"), self.purposes.table()));
        reports
    }

    /// Returns one sentence for each written file that differs from the report of the current sources.
    fn stale(&self) -> Result<Vec<String>> {
        let mut stale = Vec::new();
        for (path, text) in self.reports() {
            if fs::read_to_string(root().join(&path)).unwrap_or_default() != text {
                stale.push(format!("{path} is out of date: run `./x compliance`"));
            }
        }
        Ok(stale)
    }
}

/// Reads all `rfc*.toml` of a folder, sorted by number.
fn documents(folder: &Path) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("rfc") && name.ends_with(".toml") {
            let text = fs::read_to_string(&path)?;
            documents.push(Document::parse(&text).with_context(|| format!("in {}", path.display()))?);
        }
    }
    // The core protocol comes first.
    documents.sort_by_key(|d| (d.rfc != 9260, d.rfc));
    Ok(documents)
}
