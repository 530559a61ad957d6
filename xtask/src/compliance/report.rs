//! The tables: `docs/compliance.md` and one for each RFC. The tables name functions instead of line numbers, so they stay valid when lines
//! move.

use super::citations::Citation;
use super::data::{Document, Id, Requirement, Status};
use crate::tools::PRODUCTS;
use std::fmt::Write;

/// Every status, in column order, with its label.
const STATUSES: &[(Status, &str)] = &[
    (Status::Tested, "done and tested"),
    (Status::Done, "done without a test"),
    (Status::Not, "deliberately not done"),
    (Status::Gap, "gap"),
    (Status::NotOurs, "not applicable"),
    (Status::Open, "not judged"),
];

fn word(status: Status) -> &'static str {
    STATUSES.iter().find(|(s, _)| *s == status).map_or("", |(_, word)| word)
}

/// Formats the counts of one RFC as a line.
pub(super) fn summary(document: &Document, citations: &[Citation]) -> String {
    let counts: Vec<String> =
        STATUSES.iter().map(|(s, word)| format!("{word}: {}", document.count(*s, citations))).collect();
    format!("RFC {}: {} requirements ({})", document.rfc, document.requirements.len(), counts.join("; "))
}

/// Renders `docs/compliance.md`.
pub(super) fn overview(documents: &[Document], citations: &[Citation]) -> String {
    let mut out = String::from(HEAD);
    let words: Vec<&str> = STATUSES.iter().map(|(_, word)| *word).collect();
    let _ = writeln!(out, "| RFC | requirements | {} |", words.join(" | "));
    let _ = writeln!(out, "|---|---|{}", "---|".repeat(words.len()));
    for d in documents {
        let counts: Vec<String> = STATUSES.iter().map(|(s, _)| d.count(*s, citations).to_string()).collect();
        let name = format!("[{0}](compliance/rfc{0}.md) {1}", d.rfc, d.title);
        let _ = writeln!(out, "| {name} | {} | {} |", d.requirements.len(), counts.join(" | "));
    }
    for (status, title) in [(Status::Gap, "Gaps"), (Status::Not, "Deliberately not done")] {
        let _ = writeln!(out, "\n## {title}\n");
        let mut any = false;
        for d in documents {
            // Leave out requirements that only repeat another requirement.
            let own = d.requirements.iter().filter(|(_, r)| r.same.is_none());
            for (id, r) in own.filter(|(id, _)| d.status(id, citations) == status) {
                let reason = d.reason(id).unwrap_or_default();
                let _ = writeln!(out, "- RFC {} {id}, {}: {}. **{reason}**", d.rfc, r.level, r.text);
                any = true;
            }
        }
        if !any {
            out.push_str("None.\n");
        }
    }
    out
}

/// Renders the table of one RFC.
pub(super) fn table(document: &Document, citations: &[Citation]) -> String {
    let mut out = format!("# RFC {}: {}\n\n", document.rfc, document.title);
    let _ = writeln!(out, "{}.\n", summary(document, citations));
    if let Some(note) = &document.note {
        let _ = writeln!(out, "{note}\n");
    }
    let _ = writeln!(
        out,
        "`./x compliance` writes this page from `rfc{}.toml` in this folder and from the citations in the sources.\n\
         [Requirements of the RFCs](../compliance.md) explains the columns.\n",
        document.rfc
    );
    out.push_str(
        "| id | level | required behaviour | status | code | tests, or reason |\n|---|---|---|---|---|---|\n",
    );
    for (id, requirement) in &document.requirements {
        let _ = writeln!(out, "{}", row(document, id, requirement, citations));
    }
    out
}

fn row(document: &Document, id: &Id, requirement: &Requirement, citations: &[Citation]) -> String {
    let cited = document.citations(id, citations);
    let code = places(&cited, false);
    let mut why: Vec<String> = document.reason(id).map(str::to_owned).into_iter().collect();
    why.extend(requirement.same.as_ref().map(|other| format!("repeats {other}")));
    why.extend(Some(places(&cited, true)).filter(|p| !p.is_empty()));
    let status = word(document.status(id, citations));
    let Requirement { level, text, .. } = requirement;
    format!("| {id} | {level} | {text} | {status} | {code} | {} |", why.join("; "))
}

/// Returns a path without the folder of its product.
fn below_product(path: &str) -> &str {
    let below = |product| path.strip_prefix(product)?.strip_prefix('/');
    PRODUCTS.into_iter().find_map(below).unwrap_or(path)
}

/// Returns the places of the citations in code or in tests: file and function for code, the function's name for tests.
fn places(citations: &[&Citation], tests: bool) -> String {
    let name = |c: &&Citation| {
        let path = below_product(&c.path).replace("/src/", "/").replace(".rs", "");
        if tests { format!("`{}`", c.function) } else { format!("`{path}` {}", c.function) }
    };
    let mut names: Vec<String> =
        citations.iter().filter(|c| c.is_test == tests).copied().map(|c| name(&c)).collect();
    names.sort();
    names.dedup();
    names.join(", ")
}

const HEAD: &str = "# Requirements of the RFCs, and their state

`./x compliance` writes this page from the lists in [compliance/](compliance/) and from the citations in the sources
(`//= rfc9260#5.1-6`). `./x check` fails in these cases: the page is out of date, a citation names a requirement that the RFC's list lacks, or
more requirements are unjudged or untested than a list permits.

An id consists of the section and an ordinal. The ordinal counts the section's sentences with MUST, SHOULD, SHALL, REQUIRED or
RECOMMENDED. The level is the requirement word of the sentence. The texts paraphrase the RFCs. Each text states the behaviour that the RFC
requires, also if the level is MUST NOT or SHOULD NOT. A text can refer to the requirement before it.

Each requirement has one of these statuses:

- done and tested: the code meets the requirement, and a test would fail if it did not.
- done without a test: the code meets the requirement, and no test cites it.
- deliberately not done: the code deviates, for the reason in bold type.
- gap: the code should meet the requirement, and does not yet.
- not applicable: the requirement does not apply to an implementation like this one.
- not judged: nobody has compared the code with the requirement yet.

The table below counts all requirements. A requirement that repeats another one has the status of the other one, and counts, too. The lists
below the table leave out requirements that repeat another one. An RFC can therefore have fewer entries in a list than the table counts.

Each RFC in the table has a separate page. The RFC's page names the code and the tests that cite each requirement.

RFC 7053 has no list, because RFC 9260 includes it. The text of RFC 9653 was not available. Its list has the rules that our code and other
stacks follow, with ordinals of this project. The second checklist is [ETSI TS 102 369](compliance/etsi-ts-102-369.md).

";
