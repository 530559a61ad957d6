//! The generated part of a page: tables, remarks, and the origin of their figures.

use crate::{Markers, Origin, Table};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The figures of one run, as text for a page.
#[derive(Clone, Debug)]
pub struct Block {
    tables: Vec<Table>,
    remarks: Vec<String>,
    origin: Origin,
}

impl Block {
    /// Creates a block without figures.
    #[must_use]
    pub fn new(origin: Origin) -> Self {
        Self { tables: Vec::new(), remarks: Vec::new(), origin }
    }

    /// Adds a table. A table without rows is left out.
    pub fn table(&mut self, table: Table) {
        if !table.is_empty() {
            self.tables.push(table);
        }
    }

    /// Adds a paragraph below all tables.
    pub fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    /// Formats the block as Markdown.
    fn markdown(&self) -> String {
        let tables = self.tables.iter().map(|table| table.markdown() + "\n");
        let remarks = self.remarks.iter().map(|text| format!("{text}\n\n"));
        let parts: String = tables.chain(remarks).collect();
        format!("\n{parts}{}\n", self.origin.markdown())
    }
}

/// The part of a page that one command writes.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    markers: Markers,
}

impl Place {
    /// Finds the part of a page that `command` writes.
    ///
    /// # Errors
    /// Fails if the page cannot be read, or if it lacks the command's markers.
    pub fn find(path: &Path, command: &str) -> Result<Self> {
        let place = Self { path: path.to_owned(), markers: Markers::results(command) };
        place.with("")?;
        Ok(place)
    }

    /// Replaces the part with a block.
    ///
    /// # Errors
    /// Fails if the block's figures come from sources with uncommitted changes, or from an unknown commit.
    /// Also fails if the page cannot be read or written.
    pub fn write(&self, block: &Block) -> Result<()> {
        block.origin.ensure_clean().with_context(|| format!("not written to {}", self.path.display()))?;
        let page = self.with(&block.markdown())?;
        fs::write(&self.path, page).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn with(&self, text: &str) -> Result<String> {
        let name = self.path.display();
        let page = fs::read_to_string(&self.path).with_context(|| format!("cannot read {name}"))?;
        self.markers.replace(&page, text).with_context(|| format!("{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::tests::origin;

    const COMMAND: &str = "./x bench shim --write";
    const BEFORE: &str = "# Question?\n\n<!-- results: written by `./x bench shim --write` -->\n";
    const AFTER: &str = "<!-- end of results -->\n\nProse.\n";

    fn block(commit: &str) -> Block {
        let mut block = Block::new(origin(commit));
        let mut table = Table::new("", ["figure"]);
        table.row(["1"]);
        block.table(table);
        block.table(Table::new("Empty", ["figure"]));
        block.remark("A remark.");
        block
    }

    fn page(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.md");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn a_block_replaces_the_last_one_and_leaves_the_prose() {
        let (_dir, path) = page(&format!("{BEFORE}old\n{AFTER}"));
        Place::find(&path, COMMAND).unwrap().write(&block("1a2b3c4")).unwrap();
        let expected = "\n| figure |\n|---|\n| 1 |\n\nA remark.\n\n- Command: `./x bench shim --write`\n- Commit: 1a2b3c4\n\
                        - Date: 2026-11-28 09:00 UTC\n- Machine: Linux 6.18, 2 processors\n\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{BEFORE}{expected}{AFTER}"));
    }

    #[test]
    fn figures_of_a_changed_tree_leave_the_page_alone() {
        let text = format!("{BEFORE}old\n{AFTER}");
        let (_dir, path) = page(&text);
        let error = Place::find(&path, COMMAND).unwrap().write(&block("1a2b3c4-dirty")).unwrap_err();
        assert!(format!("{error:#}").contains("commit the changes first"), "{error:#}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_page_without_markers_is_found_out_before_anything_is_measured() {
        let (_dir, path) = page("# Question?\n");
        let error = format!("{:#}", Place::find(&path, COMMAND).unwrap_err());
        assert!(error.contains("page.md: the page lacks the line <!-- results"), "{error}");
    }
}
