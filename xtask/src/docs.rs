//! `./x docs`: builds a book of all documents with mdBook, in `target/book`.
//!
//! Some pages in `docs` link to pages outside of `docs`, which mdBook cannot include. So this command copies all documents to
//! `target/book-src` with the same paths. The copied summary names the documents by their paths from the root. Links then need no change,
//! except links to README.md. mdBook would turn README.md into `index.html`, but would not change the links to it. So the copies of
//! README.md are called `index.md`.
//!
//! The command refuses to build the book while a link is broken.

use crate::tools::{has, root, succeeds};
use crate::{Outcome, links};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directory of the pictures, which are SVG files.
const PICTURES: &str = "docs/pictures";

/// Runs `./x docs`.
pub(crate) fn run(_: &[String]) -> Result<Outcome> {
    let faults = links::faults()?;
    for fault in &faults {
        eprintln!("{fault}");
    }
    if !faults.is_empty() {
        println!("links: {} are broken", faults.len());
        return Ok(Outcome::Bad);
    }
    if !has("mdbook") {
        println!("mdbook is not installed: cargo install mdbook --locked");
        return Ok(Outcome::Bad);
    }
    let root = root();
    let (source, book) = (root.join("target/book-src"), root.join("target/book"));
    stage(&root, &source)?;
    let mut mdbook = Command::new("mdbook");
    mdbook.arg("build").arg(&source).arg("--dest-dir").arg(&book);
    if !succeeds(&mut mdbook)? {
        return Ok(Outcome::Bad);
    }
    println!("book: {}", book.join("index.html").display());
    Ok(Outcome::Good)
}

/// Copies the documents, the summary and mdBook's settings to an empty directory.
fn stage(root: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    let mut pages = links::pages(root)?;
    pages.retain(|page, _| !page.starts_with(".github"));
    let summary = pages.remove(Path::new("docs/SUMMARY.md")).context("docs/SUMMARY.md is missing")?;
    let outside = pages.iter().filter(|(page, _)| !page.starts_with("docs"));
    let outside: Vec<(&PathBuf, &str)> = outside.map(|(page, text)| (page, title(text))).collect();
    write(&to.join("SUMMARY.md"), &as_index(&whole(&summary, &outside)))?;
    for (page, text) in &pages {
        write(&to.join(as_index(&page.to_string_lossy())), &as_index(text))?;
    }
    fs::copy(root.join("docs/book.toml"), to.join("book.toml")).context("cannot copy docs/book.toml")?;
    for picture in fs::read_dir(root.join(PICTURES)).with_context(|| format!("cannot read {PICTURES}"))? {
        let picture = picture?.path();
        write(&to.join(picture.strip_prefix(root)?), &fs::read_to_string(&picture)?)?;
    }
    Ok(())
}

/// Writes a file, and creates its directory.
fn write(path: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Renames each README.md to index.md, in a path or in the links of a text.
fn as_index(text: &str) -> String {
    if text.ends_with("README.md") && !text.contains('\n') {
        return text.replace("README.md", "index.md");
    }
    text.replace("README.md)", "index.md)").replace("README.md#", "index.md#")
}

/// Returns the summary for the whole repository: README.md first, then the pages of `docs`, then the other pages.
fn whole(summary: &str, outside: &[(&PathBuf, &str)]) -> String {
    let body = summary.strip_prefix("# Summary\n").unwrap_or(summary).replace("](", "](docs/");
    let mut whole = format!("# Summary\n\n[Introduction](README.md)\n{body}\n# The project\n\n");
    for (page, title) in outside.iter().filter(|(page, _)| *page != Path::new("README.md")) {
        let _ = writeln!(whole, "- [{title}]({})", page.display());
    }
    whole
}

/// Returns the first top-level heading of a page.
fn title(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("Without a title")
}

#[cfg(test)]
mod tests {
    use super::{as_index, whole};
    use std::path::PathBuf;

    #[test]
    fn the_summary_of_the_book_names_pages_inside_and_outside_docs() {
        let (readme, map) = (PathBuf::from("README.md"), PathBuf::from("ARCHITECTURE.md"));
        assert_eq!(
            whole(
                "# Summary\n\n# How-to\n\n- [Tuning](how-to/tuning.md)\n",
                &[(&map, "Architecture"), (&readme, "Top")]
            ),
            "# Summary\n\n[Introduction](README.md)\n\n# How-to\n\n- [Tuning](docs/how-to/tuning.md)\n\n# The project\n\n\
             - [Architecture](ARCHITECTURE.md)\n"
        );
    }

    #[test]
    fn the_book_calls_a_readme_index_in_paths_and_links_alone() {
        assert_eq!(as_index("tests/interop/README.md"), "tests/interop/index.md");
        assert_eq!(as_index("[a](../README.md#b) README.md\n"), "[a](../index.md#b) README.md\n");
    }
}
