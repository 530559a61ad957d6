//! Parses the page: names in the forms below, links, and the rows of the tables.
//!
//! | form | means |
//! |---|---|
//! | code span `FILE.rs::function` | a test |
//! | code span `lab ID`, `lab ID#EXPECTATION` | an experiment, an expectation of its manifest |
//! | code span `setting NAME` | a setting of the daemon |
//! | code span of a relative path with a `/` | a file or folder |
//! | `[text](target)` | a document, or a heading of one |
//!
//! Other code spans count as plain words. Code blocks are skipped. In a table with the header [`COLUMNS`], each row must have a verdict.

use std::fmt::Write;

/// Header of a table of items.
const COLUMNS: [&str; 4] = ["item", "here", "shown by", "how it differs"];

/// Verdicts. The last cell of a row begins with one of these words, in bold.
const VERDICTS: [&str; 6] = ["same", "more", "differs", "part", "missing", "background"];

/// Verdicts of rows that need no evidence.
const NOTHING_TO_SHOW: [&str; 2] = ["missing", "background"];

/// A mention of something that must exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mention {
    /// A test, by its file and its function.
    Test { file: String, function: String },
    /// A code span with `::` that is not a test.
    NoTest(String),
    /// An experiment, and optionally one of its expectations.
    Experiment { id: String, expectation: Option<String> },
    /// A setting of the daemon.
    Setting(String),
    /// A file or folder.
    Path(String),
    /// A document, and optionally one of its headings. An empty `document` means the page itself.
    Link { document: String, heading: Option<String> },
}

/// The parsed page. Lines are counted from 1.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) mentions: Vec<(usize, Mention)>,
    pub(super) faults: Vec<(usize, String)>,
    /// Number of rows for each of [`VERDICTS`].
    counts: [usize; VERDICTS.len()],
}

impl Page {
    pub(super) fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let (mut code_from, mut is_items, mut was_row) = (None, false, false);
        for (n, line) in text.lines().enumerate() {
            let n = n + 1;
            if line.trim_start().starts_with("```") {
                code_from = if code_from.is_none() { Some(n) } else { None };
                continue;
            }
            if code_from.is_some() {
                continue;
            }
            let Some(pieces) = pieces(line) else {
                page.faults.push((n, "a code span that does not end on its line".to_owned()));
                continue;
            };
            page.mentions.extend(mentions(&pieces).into_iter().map(|mention| (n, mention)));
            let cells = cells(&pieces);
            let is_row = !cells.is_empty();
            if is_row && !was_row {
                is_items = cells == COLUMNS;
            } else if is_row && is_items && !cells.iter().all(|cell| is_rule(cell)) {
                page.take(n, &cells);
            }
            was_row = is_row;
        }
        page.faults.extend(code_from.map(|n| (n, "a block of code that does not end".to_owned())));
        page
    }

    /// Processes one row of a table of items.
    fn take(&mut self, n: usize, cells: &[String]) {
        let [item, _, shown_by, verdict] = cells else {
            let fault = format!("a row of {} cells in a table of {}", cells.len(), COLUMNS.len());
            self.faults.push((n, fault));
            return;
        };
        if item.is_empty() {
            self.faults.push((n, "a row without an item".to_owned()));
        }
        let bold = |word: &str| format!("**{word}**");
        let Some(found) = VERDICTS.iter().position(|word| verdict.starts_with(&bold(word))) else {
            let all = VERDICTS.map(bold).join(", ");
            self.faults.push((n, format!("the last cell begins with none of {all}")));
            return;
        };
        self.counts[found] += 1;
        let is_shown = shown_by.starts_with("no test")
            || pieces(shown_by).is_some_and(|pieces| !mentions(&pieces).is_empty());
        if !is_shown && !NOTHING_TO_SHOW.contains(&VERDICTS[found]) {
            let fault =
                "no evidence: name a test, an experiment or a document, or write `no test` and the reason";
            self.faults.push((n, fault.to_owned()));
        }
    }

    /// Formats the total number of items, and the number for each verdict.
    pub(super) fn summary(&self) -> String {
        let mut out = format!("papers: {} items:", self.counts.iter().sum::<usize>());
        for (n, (verdict, count)) in VERDICTS.iter().zip(self.counts).enumerate() {
            let _ = write!(out, "{} {count} {verdict}", if n == 0 { "" } else { "," });
        }
        out
    }
}

/// Part of a line: words, or a code span.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Words(&'a str),
    Code(&'a str),
}

/// Splits a line at its backticks. Returns `None` if a code span does not end on the line.
fn pieces(line: &str) -> Option<Vec<Piece<'_>>> {
    let parts: Vec<&str> = line.split('`').collect();
    let piece = |(n, part)| if n % 2 == 0 { Piece::Words(part) } else { Piece::Code(part) };
    (parts.len() % 2 == 1).then(|| parts.into_iter().enumerate().map(piece).collect())
}

fn mentions(pieces: &[Piece<'_>]) -> Vec<Mention> {
    let mut mentions = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Code(code) => mentions.extend(named(code)),
            // A link's text may contain code. The link's target still follows `](`.
            Piece::Words(words) => mentions.extend(words.split("](").skip(1).filter_map(link)),
        }
    }
    mentions
}

/// Returns the mention in a code span, if it has one.
fn named(code: &str) -> Option<Mention> {
    if code.contains("::") {
        let parts = code.split_once("::").filter(|(file, function)| {
            file.ends_with(".rs") && !function.is_empty() && function.chars().all(is_of_name)
        });
        return Some(parts.map_or_else(
            || Mention::NoTest(code.to_owned()),
            |(file, function)| Mention::Test { file: file.to_owned(), function: function.to_owned() },
        ));
    }
    if let Some(experiment) = code.strip_prefix("lab ") {
        let (id, expectation) =
            experiment.split_once('#').map_or((experiment, None), |(id, e)| (id, Some(e)));
        return Some(Mention::Experiment { id: id.to_owned(), expectation: expectation.map(str::to_owned) });
    }
    if let Some(setting) = code.strip_prefix("setting ") {
        return Some(Mention::Setting(setting.to_owned()));
    }
    let is_path = code.contains('/')
        && code.starts_with(is_of_name)
        && code.chars().all(|c| is_of_name(c) || matches!(c, '/' | '.' | '-'));
    is_path.then(|| Mention::Path(code.to_owned()))
}

/// Parses a text that begins with the target of a link. Returns `None` if the target is outside of the project.
fn link(text: &str) -> Option<Mention> {
    let target = text.split(')').next()?;
    if target.contains("://") {
        return None;
    }
    let (document, heading) = target.split_once('#').map_or((target, None), |(d, h)| (d, Some(h)));
    Some(Mention::Link { document: document.to_owned(), heading: heading.map(str::to_owned) })
}

/// Returns the trimmed cells of a table's row, or an empty list for any other line. `\|` and pipes in code do not split cells.
fn cells(pieces: &[Piece<'_>]) -> Vec<String> {
    let mut cells = vec![String::new()];
    for piece in pieces {
        match piece {
            Piece::Code(code) => add(&mut cells, &format!("`{code}`")),
            Piece::Words(words) => {
                let hidden = words.replace("\\|", "\u{0}");
                for (n, part) in hidden.split('|').enumerate() {
                    if n > 0 {
                        cells.push(String::new());
                    }
                    add(&mut cells, &part.replace('\u{0}', "|"));
                }
            }
        }
    }
    let is_row = cells.len() > 2 && cells[0].trim().is_empty() && cells[cells.len() - 1].trim().is_empty();
    if !is_row {
        return Vec::new();
    }
    cells[1..cells.len() - 1].iter().map(|cell| cell.trim().to_owned()).collect()
}

fn add(cells: &mut [String], text: &str) {
    if let Some(cell) = cells.last_mut() {
        cell.push_str(text);
    }
}

/// Reports whether a cell belongs to the line between a table's header and its rows.
fn is_rule(cell: &str) -> bool {
    !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':'))
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_links_are_found_in_text_and_other_code_spans_are_ignored() {
        let line = "See `a/b.rs::t_1`, `lab x#y`, [`shim` and more](z.md#h); not `-A -D`, `RTO 1 s`, `sctp`, `192.0.2.0/24 x`.";
        let test = Mention::Test { file: "a/b.rs".to_owned(), function: "t_1".to_owned() };
        let experiment = Mention::Experiment { id: "x".to_owned(), expectation: Some("y".to_owned()) };
        let link = Mention::Link { document: "z.md".to_owned(), heading: Some("h".to_owned()) };
        assert_eq!(mentions(&pieces(line).unwrap()), [test, experiment, link]);
    }

    #[test]
    fn a_bar_in_code_or_behind_a_backslash_parts_no_cells() {
        assert_eq!(cells(&pieces("| `a|b` | c \\| d |").unwrap()), ["`a|b`", "c | d"]);
        assert_eq!(cells(&pieces("a | b").unwrap()), Vec::<String>::new());
    }
}
