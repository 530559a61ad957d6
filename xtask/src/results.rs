//! Checks the pages of `docs/results`. Each part that a command writes must be on its page, with the origin of its figures. The front page
//! must link to each page that has figures.
//!
//! `xtask/src/bench.rs` names the pages of benchmarks, and the experiments' manifests name the pages of experiments. A part may be empty
//! until the first run of its command. The other parts of the page are valid without it. Begin with [`faults`].

use crate::bench;
use crate::links::links;
use crate::tools::root;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Directory of the pages.
const PAGES: &str = "docs/results";
/// Front page, which links to the other pages.
const FRONT: &str = "README.md";
/// Manifests of the lab's experiments.
const EXPERIMENTS: &str = "lab/lab/experiments";
/// Beginnings of the lines with the origin of figures.
const ORIGIN: [&str; 4] = ["- Command: ", "- Commit: ", "- Date: ", "- Machine: "];

/// Returns one sentence for each fault of the pages.
///
/// # Errors
/// If a page or a manifest cannot be read.
pub(crate) fn faults() -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    for (name, text) in files(&root().join(PAGES), "md")? {
        pages.insert(name, text);
    }
    let mut writers = bench::writers();
    for (_, text) in files(&root().join(EXPERIMENTS), "toml")? {
        writers.push(experiment(&text)?);
    }
    Ok(page_faults(&pages, &writers))
}

/// Returns the names and texts of the files with this extension in a directory.
fn files(dir: &Path, extension: &str) -> Result<Vec<(String, String)>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|it| it == extension) {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.push((name, text));
        }
    }
    Ok(files)
}

/// Returns an experiment's page, and the command that writes the experiment's part of the page.
fn experiment(manifest: &str) -> Result<(String, String)> {
    let manifest: toml::Table = manifest.parse()?;
    let text = |key: &str| {
        let value = manifest.get(key).and_then(toml::Value::as_str);
        value.with_context(|| format!("an experiment without {key}"))
    };
    Ok((format!("{}.md", text("page")?), format!("./x lab report {} --write", text("id")?)))
}

/// Returns one sentence for each fault of the pages. `pages` has the pages' texts by file name. An item of `writers` is a page's file name,
/// and the command that writes a part of this page.
fn page_faults(pages: &BTreeMap<String, String>, writers: &[(String, String)]) -> Vec<String> {
    let front = pages.get(FRONT).map_or("", String::as_str);
    let linked: BTreeSet<&str> = links(front).filter_map(|(_, target)| target.split('#').next()).collect();
    let expected: BTreeSet<(&str, &str)> =
        writers.iter().map(|(page, command)| (&**page, &**command)).collect();
    let mut missing = expected.clone();
    let mut faults = Vec::new();
    for (page, text) in pages {
        let parts = pages::results(text).unwrap_or_else(|error| {
            faults.push(format!("{PAGES}/{page}: {error:#}"));
            Vec::new()
        });
        for (command, part) in parts {
            if !expected.contains(&(page, command)) {
                faults.push(format!("{PAGES}/{page}: `{command}` does not write to this page"));
            } else if !missing.remove(&(page, command)) {
                faults.push(format!("{PAGES}/{page}: `{command}` has two parts"));
            }
            if part.trim().is_empty() {
                continue;
            }
            let has = |start: &&str| part.lines().any(|line| line.starts_with(*start));
            let lacking: Vec<&str> = ORIGIN.into_iter().filter(|start| !has(start)).collect();
            if !lacking.is_empty() {
                faults.push(format!("{PAGES}/{page}: the part of `{command}` lacks {}", lacking.join("")));
            }
            if !linked.contains(&**page) {
                faults.push(format!("{PAGES}/{FRONT} does not link to {page}, which has figures"));
            }
        }
    }
    let absent = missing.into_iter();
    faults.extend(absent.map(|(page, command)| format!("{PAGES}/{page} has no part for `{command}`")));
    faults
}

#[cfg(test)]
mod tests {
    use super::{experiment, page_faults};
    use std::collections::BTreeMap;

    const WHOLE: &str = "- Command: `c`\n- Commit: 1a2b3c4\n- Date: today\n- Machine: here\n";

    fn part(command: &str, text: &str) -> String {
        format!("<!-- results: written by `{command}` -->\n{text}<!-- end of results -->\n")
    }

    fn faults(front: &str, page: &str) -> Vec<String> {
        let pages =
            [("README.md", front), ("a.md", page)].map(|(name, text)| (name.to_owned(), text.to_owned()));
        page_faults(&BTreeMap::from(pages), &[("a.md".to_owned(), "c".to_owned())])
    }

    #[test]
    fn a_part_with_its_origin_on_a_linked_page_and_an_empty_part_are_valid() {
        assert_eq!(faults("[a](a.md#x)", &part("c", WHOLE)), [""; 0]);
        assert_eq!(faults("", &part("c", "\n")), [""; 0]);
    }

    #[test]
    fn unlinked_missing_duplicate_and_unknown_parts_and_parts_without_origin_are_faults() {
        let count = |front: &str, page: &str, problem: &str| {
            let faults = faults(front, page);
            assert!(faults.iter().any(|fault| fault.contains(problem)), "{problem}: {faults:?}");
        };
        count("", &part("c", WHOLE), "README.md does not link to a.md");
        count("[a](a.md)", &part("c", "| 1 |\n"), "lacks - Command: - Commit: ");
        count("", "", "docs/results/a.md has no part for `c`");
        count("", &part("d", ""), "`d` does not write to this page");
        count("", &(part("c", "") + &part("c", "")), "has two parts");
        count("", "<!-- end of results -->\n", "without a beginning");
    }

    #[test]
    fn an_experiment_names_its_page() {
        let found = experiment("id = \"drt\"\npage = \"fallback\"\n").unwrap();
        assert_eq!(found, ("fallback.md".to_owned(), "./x lab report drt --write".to_owned()));
        assert!(experiment("id = \"drt\"\n").is_err());
    }
}
