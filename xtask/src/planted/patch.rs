//! One planted bug: a unified diff with a head.
//!
//! The first line of the head describes the bug. A line `Caught by:` has parts of the names of the tests that should catch the bug. A line
//! `Not sealed:` has the reason for which tests with sealed packets cannot catch it.
//!
//! Line numbers are ignored. Instead, a hunk's removed lines and context must occur exactly once in the file. So a patch still applies
//! after its code has moved, and never applies in the wrong place. Begin at [`Patch::applied`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// A planted bug.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    /// Name of the patch file without its extension.
    pub(crate) name: String,
    /// Parts of the names of the tests that should catch the bug.
    pub(crate) filters: Vec<String>,
    /// Reason for which tests with sealed packets cannot catch the bug, if so.
    pub(crate) not_sealed: Option<String>,
    hunks: Vec<Hunk>,
}

/// One change in one file.
#[derive(Debug, PartialEq, Eq)]
struct Hunk {
    file: String,
    before: String,
    after: String,
}

impl Patch {
    /// Parses a patch file.
    pub(crate) fn read(path: &Path) -> Result<Patch> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Patch::parse(&name, &text).with_context(|| path.display().to_string())
    }

    fn parse(name: &str, text: &str) -> Result<Patch> {
        let (mut filters, mut not_sealed) = (Vec::new(), None);
        let mut hunks: Vec<Hunk> = Vec::new();
        let mut file = String::new();
        for line in text.lines() {
            if let Some(words) = line.strip_prefix("Caught by:").filter(|_| file.is_empty()) {
                filters = words.split_whitespace().map(str::to_owned).collect();
            } else if let Some(reason) = line.strip_prefix("Not sealed:").filter(|_| file.is_empty()) {
                not_sealed = Some(reason.trim().to_owned());
            } else if let Some(to) = line.strip_prefix("+++ b/") {
                file = to.trim().to_owned();
            } else if line.starts_with("@@") {
                hunks.push(Hunk { file: file.clone(), before: String::new(), after: String::new() });
            } else if let Some(hunk) = hunks.last_mut().filter(|_| !line.starts_with("---")) {
                hunk.take(line)?;
            }
        }
        ensure!(!filters.is_empty(), "no line `Caught by:` with names of tests");
        ensure!(!hunks.is_empty() && !file.is_empty(), "no change in it");
        Ok(Patch { name: name.to_owned(), filters, not_sealed, hunks })
    }

    /// Returns the files that the bug changes in the tree under `root`, each with its new text.
    pub(crate) fn applied(&self, root: &Path) -> Result<BTreeMap<PathBuf, String>> {
        let mut files = BTreeMap::new();
        for hunk in &self.hunks {
            let path = root.join(&hunk.file);
            if !files.contains_key(&path) {
                let text = fs::read_to_string(&path).with_context(|| hunk.file.clone())?;
                files.insert(path.clone(), without_citations(&text));
            }
            if let Some(text) = files.get_mut(&path) {
                *text = hunk.applied(text)?;
            }
        }
        Ok(files)
    }
}

/// Removes RFC citations. Patches omit citations, so a patch still applies after a citation is added or removed.
fn without_citations(text: &str) -> String {
    let is_citation =
        |line: &&str| line.trim_start().starts_with("//= ") || line.trim_start().starts_with("//# ");
    text.split_inclusive('\n').filter(|line| !is_citation(line)).collect()
}

impl Hunk {
    fn take(&mut self, line: &str) -> Result<()> {
        let (mark, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
        let sides = match mark {
            " " => [Some(&mut self.before), Some(&mut self.after)],
            "-" => [Some(&mut self.before), None],
            "+" => [Some(&mut self.after), None],
            _ => bail!("a line of a change must begin with ` `, `-` or `+`, not with {mark:?}"),
        };
        for side in sides.into_iter().flatten() {
            side.push_str(rest);
            side.push('\n');
        }
        Ok(())
    }

    fn applied(&self, text: &str) -> Result<String> {
        let places = text.matches(&self.before).count();
        let first = self.before.lines().next().unwrap_or_default().trim();
        ensure!(places == 1, "{}: the text that begins with `{first}` occurs {places} times", self.file);
        Ok(text.replacen(&self.before, &self.after, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::{Hunk, Patch};

    const TEXT: &str = "A wrong sign.\nCaught by: sums signs\n\n--- a/x/y.rs\n+++ b/x/y.rs\n@@ -7,3 +7,3 @@ fn f\n one\n-two\n+TWO\n three\n";

    #[test]
    fn a_patch_is_parsed_into_test_filters_and_hunks() {
        let patch = Patch::parse("sign", TEXT).unwrap();
        assert_eq!(patch.filters, ["sums", "signs"]);
        assert_eq!(patch.not_sealed, None);
        let hunk = Hunk {
            file: "x/y.rs".into(),
            before: "one\ntwo\nthree\n".into(),
            after: "one\nTWO\nthree\n".into(),
        };
        assert_eq!(patch.hunks, [hunk]);
    }

    #[test]
    fn a_patch_may_name_the_reason_against_sealed_packets() {
        let text = TEXT.replacen("\n\n", "\nNot sealed: seals nothing\n\n", 1);
        let patch = Patch::parse("sign", &text).unwrap();
        assert_eq!(patch.not_sealed.as_deref(), Some("seals nothing"));
        assert_eq!(patch.hunks.len(), 1);
    }

    #[test]
    fn a_change_is_applied_only_if_its_text_occurs_exactly_once() {
        let patch = Patch::parse("sign", TEXT).unwrap();
        let hunk = &patch.hunks[0];
        assert_eq!(hunk.applied("zero\none\ntwo\nthree\nfour\n").unwrap(), "zero\none\nTWO\nthree\nfour\n");
        assert!(hunk.applied("one\n2\nthree\n").unwrap_err().to_string().contains("0 times"));
        assert!(hunk.applied("one\ntwo\nthree\none\ntwo\nthree\n").is_err());
    }

    #[test]
    fn citations_are_removed_and_other_comments_stay() {
        let text = "one\n    //= rfc9260#6-1\n    //# The sentence.\n    // Why.\ntwo\n";
        assert_eq!(super::without_citations(text), "one\n    // Why.\ntwo\n");
    }

    #[test]
    fn a_patch_without_tests_or_changes_is_refused() {
        assert!(Patch::parse("x", &TEXT.replace("Caught", "Seen")).is_err());
        assert!(Patch::parse("x", "A bug.\nCaught by: y\n").is_err());
    }
}
