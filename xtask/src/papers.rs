//! Checks `docs/papers.md`, which lists how the project treats each item of the papers. Every name on the page must exist.
//!
//! Parses the page and the sources as text, and builds nothing. Only names in one of the page's forms are checked. A code span with `::`
//! must have the form of a test's name; otherwise it is a fault. Readers must judge whether a named test shows what the page states.
//!
//! Begin with [`page::Page::parse`] for the forms and [`names::fault`] for the checks.

mod names;
mod page;

use crate::tools::root;
use anyhow::{Context, Result};
use page::Page;
use std::fs;
use std::path::Path;

/// Path of the page from the workspace's root.
const PAGE: &str = "docs/papers.md";

/// Returns the faults of the page, with their lines. Prints the number of items for each verdict.
pub(crate) fn faults() -> Result<Vec<String>> {
    let root = root();
    let text = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let (summary, faults) = judge(&root, &text);
    println!("{summary}");
    Ok(faults)
}

/// Returns the summary of a page with this text, and one sentence for each fault.
fn judge(root: &Path, text: &str) -> (String, Vec<String>) {
    let page = Page::parse(text);
    let mut faults = page.faults.clone();
    let named = page.mentions.iter().map(|(line, what)| (*line, names::fault(root, PAGE, text, what)));
    faults.extend(named.filter_map(|(line, fault)| Some((line, fault?))));
    faults.sort();
    let messages = faults.into_iter().map(|(line, fault)| format!("{PAGE}:{line}: {fault}")).collect();
    (page.summary(), messages)
}

#[cfg(test)]
mod tests {
    use super::judge;
    use std::fs;
    use std::path::Path;

    /// Creates a workspace with a test, an experiment, a setting and two documents.
    fn workspace() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("lab/testbed/tests/shim/states.rs", "#[test]\nfn a_mark_asks() {}\nfn helper() {}\n");
        write("lab/lab/experiments/drt.toml", "id = \"drt\"\n[[expect]]\nid = \"gained\"\n");
        write("daemon/rules/src/settings.rs", "    Setting {\n        name: \"learn\",\n    },\n");
        write("docs/papers.md", "");
        write("docs/sip.md", "# SIP: `sctpify-sip`\n\n## What it does not do yet\n");
        root
    }

    fn faults(root: &Path, text: &str) -> Vec<String> {
        judge(root, text).1
    }

    const HEAD: &str = "| item | here | shown by | how it differs |\n|---|---|---|---|\n";

    #[test]
    fn names_that_lead_somewhere_are_no_faults() {
        let root = workspace();
        let text = "`shim/states.rs::a_mark_asks`, `testbed/tests/shim/states.rs::a_mark_asks`, `lab drt`, `lab drt#gained`, \
                    `setting learn`, `docs/sip.md`, `daemon/rules/`, [what is missing](sip.md#what-it-does-not-do-yet), \
                    [here](#here), [elsewhere](https://example.com/x), `-d 192.0.2.0/24`, `/etc/sctpify/rules`\n\n## Here\n";
        assert_eq!(faults(root.path(), text), Vec::<String>::new());
    }

    #[test]
    fn a_wrong_name_of_each_form_is_told_with_its_line() {
        let root = workspace();
        let wrong = [
            ("`shim/states.rs::a_mark_ask`", "shim/states.rs has no test `a_mark_ask`"),
            ("`shim/states.rs::helper`", "shim/states.rs has no test `helper`"),
            ("`shim/state.rs::a_mark_asks`", "no file `shim/state.rs`"),
            (
                "`shim::states::a_mark_asks`",
                "`shim::states::a_mark_asks` is not a test: expected FILE.rs::function",
            ),
            ("`lab dtr`", "no experiment `dtr`"),
            ("`lab drt#lost`", "experiment `drt` has no expectation `lost`"),
            ("`setting lern`", "unknown setting `lern`"),
            ("`sctpifyd/src/client.rs`", "no file `sctpifyd/src/client.rs`"),
            ("[a](sipp.md)", "no file `sipp.md`"),
            ("[a](sip.md#what-it-does)", "sip.md has no heading `#what-it-does`"),
            ("[a](#there)", "docs/papers.md has no heading `#there`"),
            ("`lab drt", "a code span that does not end on its line"),
        ];
        for (text, fault) in wrong {
            assert_eq!(faults(root.path(), &format!("\n\n{text}\n")), [format!("docs/papers.md:3: {fault}")]);
        }
    }

    #[test]
    fn names_in_blocks_of_code_are_not_looked_at() {
        let root = workspace();
        let block = "- Forms:\n\n  ```\n  `lab nothing` and [a](b.md)\n  ```\n";
        assert_eq!(faults(root.path(), block), Vec::<String>::new());
        assert_eq!(
            faults(root.path(), "```\n`lab nothing`\n"),
            ["docs/papers.md:1: a block of code that does not end"]
        );
    }

    #[test]
    fn a_row_needs_a_verdict_and_evidence_unless_its_item_is_missing() {
        let root = workspace();
        let good = "| a | b | `lab drt` | **same** |\n| a | b | - | **missing**: why |\n| a | b | no test: text | **differs** |\n";
        assert_eq!(faults(root.path(), &format!("{HEAD}{good}")), Vec::<String>::new());
        let bad = "| a | b | `lab drt` | same |\n| a | b | - | **same** |\n| a | b | **same** |\n| | b | `lab drt` | **same** |\n";
        let expected = [
            "docs/papers.md:3: the last cell begins with none of **same**, **more**, **differs**, **part**, **missing**, **background**",
            "docs/papers.md:4: no evidence: name a test, an experiment or a document, or write `no test` and the reason",
            "docs/papers.md:5: a row of 3 cells in a table of 4",
            "docs/papers.md:6: a row without an item",
        ];
        assert_eq!(faults(root.path(), &format!("{HEAD}{bad}")), expected);
    }

    #[test]
    fn the_summary_counts_the_rows_of_each_verdict() {
        let rows = "| a | b | `lab drt` | **same** |\n| `a \\| c` | b | - | **missing**: x |\n";
        let text = format!("| other | table |\n|---|---|\n| a | b |\n\n{HEAD}{rows}\n{HEAD}{rows}");
        let (summary, _) = judge(workspace().path(), &text);
        assert_eq!(summary, "papers: 4 items: 2 same, 0 more, 0 differs, 0 part, 2 missing, 0 background");
    }
}
