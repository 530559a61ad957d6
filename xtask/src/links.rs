//! Links of the documents. Each relative link in a `*.md` file of the repository must lead to a file. The link's anchor must lead to a
//! heading of that file.
//!
//! Reads Markdown line by line and ignores code. Links to other hosts are not followed. Reference-style links are not recognized, so write
//! inline links. Begin with [`faults`].

use crate::tools::root;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Directories without our own documents, at any depth. Directories whose names begin with a dot are skipped too, except `.github`.
const SKIPPED: &[&str] = &["target", "node_modules"];

/// Returns the broken links, each with its line, and the files of `docs` that the book's summary leaves out.
pub(crate) fn faults() -> Result<Vec<String>> {
    let root = root();
    let pages = pages(&root)?;
    let mut faults = broken(&root, &pages);
    faults.extend(unlisted(&pages));
    Ok(faults)
}

/// Returns the text of each document below `root`, by the document's path from `root`.
pub(crate) fn pages(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut pages = BTreeMap::new();
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_hidden = name.starts_with('.') && name != ".github";
            if path.is_dir() && !path.is_symlink() && !is_hidden && !SKIPPED.contains(&&*name) {
                dirs.push(path);
            } else if name.ends_with(".md") {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                pages.insert(path.strip_prefix(root)?.to_path_buf(), text);
            }
        }
    }
    Ok(pages)
}

/// Returns one sentence for each broken relative link of these pages.
fn broken(root: &Path, pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let headings: BTreeMap<&Path, BTreeSet<String>> =
        pages.iter().map(|(page, text)| (page.as_path(), anchors(text))).collect();
    let mut faults = Vec::new();
    for (page, text) in pages {
        for (line, target) in links(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let parent = page.parent().unwrap_or(Path::new(""));
            let to = if file.is_empty() { page.clone() } else { resolved(&parent.join(file)) };
            let fault = match headings.get(to.as_path()) {
                Some(known) if !anchor.is_empty() && !known.contains(anchor) => {
                    format!("{} has no heading `#{anchor}`", to.display())
                }
                Some(_) => continue,
                None if root.join(&to).exists() => continue,
                None => format!("the link to {target} is broken"),
            };
            faults.push(format!("{}:{line}: {fault}", page.display()));
        }
    }
    faults
}

/// Returns one sentence for each page of `docs` that `docs/SUMMARY.md` does not list.
fn unlisted(pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let docs = Path::new("docs");
    let Some(summary) = pages.get(&docs.join("SUMMARY.md")) else { return Vec::new() };
    let listed: BTreeSet<PathBuf> = links(summary).map(|(_, target)| docs.join(target)).collect();
    let is_missing = |page: &&PathBuf| {
        page.starts_with(docs) && !page.ends_with("SUMMARY.md") && !listed.contains(page.as_path())
    };
    pages
        .keys()
        .filter(is_missing)
        .map(|page| format!("docs/SUMMARY.md does not list {}", page.display()))
        .collect()
}

/// Returns the targets of inline links to files and headings of the repository, with their line numbers.
pub(crate) fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        let mut targets = Vec::new();
        let mut is_code = false;
        for (at, _) in line.char_indices().filter(|(_, c)| *c == '`' || *c == ']') {
            let rest = &line[at..];
            if rest.starts_with('`') {
                is_code = !is_code;
            } else if let Some(end) = rest.find(')').filter(|_| !is_code && rest.starts_with("](")) {
                targets.push(rest[2..end].split_whitespace().next().unwrap_or_default());
            }
        }
        targets
            .retain(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"));
        targets.into_iter().map(move |target| (number, target))
    })
}

/// Returns the anchors of a page's headings. The anchor of a repeated heading ends with a number, from 1 on.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts = BTreeMap::<String, usize>::new();
    let headings = prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| anchor(line));
    let numbered = headings.map(|heading| {
        let count = counts.entry(heading.clone()).or_default();
        *count += 1;
        if *count == 1 { heading } else { format!("{heading}-{}", *count - 1) }
    });
    numbered.collect()
}

/// Returns the anchor of a heading as GitHub and mdBook create it: in lower case, with hyphens for spaces, and without punctuation.
pub(crate) fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the lines outside fenced code, with their numbers from 1 on.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_fence && !is_code).then_some((index + 1, line))
    })
}

/// Returns the path without `.` and `..`. A path that leaves the repository keeps its `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut to = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if to.file_name().is_some() => drop(to.pop()),
            _ => to.push(part),
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::{broken, pages, unlisted};
    use std::fs;

    #[test]
    fn links_that_lead_nowhere_are_found_and_others_are_not() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "README.md",
            "# Top\n[a](docs/a.md#rules-with---require) [code](src/lib.rs) [web](https://example.com/#x)\n",
        );
        write("src/lib.rs", "");
        write("target/doc.md", "[gone](gone.md)\n");
        write("docs/SUMMARY.md", "- [A](a.md)\n");
        write(
            "docs/a.md",
            "# A\n## Rules with `--require`\n## Same\n## Same\n[b](../README.md#top) [c](#same-1) `[d](gone.md)`\n\
             ```\n[e](gone.md)\n# Not a heading\n```\n[f](gone.md)\n[g](#not-a-heading), [h](../README.md#rules)\n",
        );
        write("docs/b.md", "");
        let pages = pages(root.path()).unwrap();
        assert_eq!(
            broken(root.path(), &pages),
            [
                "docs/a.md:10: the link to gone.md is broken",
                "docs/a.md:11: docs/a.md has no heading `#not-a-heading`",
                "docs/a.md:11: README.md has no heading `#rules`",
            ]
        );
        assert_eq!(unlisted(&pages), ["docs/SUMMARY.md does not list docs/b.md"]);
    }
}
