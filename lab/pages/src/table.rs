//! A text table for a terminal or for a page.

use std::fmt;

/// A table with a caption. All rows have the same number of cells as the head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    caption: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows. An empty caption is left out.
    #[must_use]
    pub fn new<T: Into<String>>(caption: impl Into<String>, head: impl IntoIterator<Item = T>) -> Self {
        let head = head.into_iter().map(Into::into).collect();
        Self { caption: caption.into(), head, rows: Vec::new() }
    }

    /// Adds a row. Missing cells are empty, and surplus cells are dropped.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.head.len(), String::new());
        self.rows.push(cells);
    }

    /// Reports whether the table has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Formats the table as Markdown, with the caption in bold above it.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let caption =
            if self.caption.is_empty() { String::new() } else { format!("**{}**\n\n", self.caption) };
        let rule = format!("|{}\n", "---|".repeat(self.head.len()));
        caption + &line(&self.head) + &rule + &self.rows.iter().map(|row| line(row)).collect::<String>()
    }
}

/// Formats the table with aligned columns, for a terminal.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let plain = |cell: &String| cell.replace("**", "");
        let width = |column: usize| lines().map(|line| plain(&line[column]).chars().count()).max();
        let widths: Vec<usize> = (0..self.head.len()).filter_map(width).collect();
        if !self.caption.is_empty() {
            writeln!(f, "{}", self.caption)?;
        }
        for line in lines() {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}  ", plain(cell)));
            writeln!(f, "{}", cells.collect::<String>().trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    fn table() -> Table {
        let mut table = Table::new("Speeds", ["size", "Gbit/s"]);
        table.row(["1024", "3.49 (3.38-3.64)"]);
        table.row(["a|b", "**missed**"]);
        table.row(["short"]);
        table
    }

    #[test]
    fn a_page_gets_a_caption_a_rule_and_cells_without_bare_pipes() {
        let expected = "**Speeds**\n\n| size | Gbit/s |\n|---|---|\n| 1024 | 3.49 (3.38-3.64) |\n\
                        | a\\|b | **missed** |\n| short |  |\n";
        assert_eq!(table().markdown(), expected);
    }

    #[test]
    fn a_terminal_gets_aligned_columns_without_markup() {
        let expected = "Speeds\nsize   Gbit/s\n1024   3.49 (3.38-3.64)\na|b    missed\nshort\n";
        assert_eq!(table().to_string(), expected);
    }
}
