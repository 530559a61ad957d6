//! Citations in the sources: `//= rfc9260#5.1-6`, or several ids of one RFC: `//= rfc9260#5.1-6 5.1.3-1`.
//!
//! A citation stands directly above the line or the function that implements the requirement. In test code, a citation claims that the test
//! would fail if the code did not comply. Test code is in a `tests` folder, in a file `tests.rs`, or below `#[cfg(test)]` with a `mod` on
//! the next line.
//!
//! The parser works on lines, not on syntax trees. It ignores citations in the form `#section-5.1`, which have a quotation of the RFC below
//! them. Any other citation without a valid id is an error. Begin at [`Sources::read`].

use super::data::Id;
use crate::sources::{each_file, function};
use anyhow::{Context, Result};
use std::collections::BTreeSet;

/// One citation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Citation {
    pub(super) rfc: u32,
    pub(super) id: Id,
    /// Path from the workspace's root.
    pub(super) path: String,
    pub(super) line: usize,
    /// Name of the function directly below the citation. If no function is there, the name of the last function above the citation.
    pub(super) function: String,
    pub(super) is_test: bool,
}

/// Citations in all sources, and names of functions in test code.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) citations: Vec<Citation>,
    /// Names of all functions in test code.
    pub(super) functions: BTreeSet<String>,
}

impl Sources {
    pub(super) fn read() -> Result<Sources> {
        let mut sources = Sources::default();
        each_file(|path, text| sources.take(path, text))?;
        Ok(sources)
    }

    fn take(&mut self, path: &str, text: &str) -> Result<()> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let mut is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
        let mut last = "";
        for (n, line) in lines.iter().enumerate() {
            let next = lines.get(n + 1).unwrap_or(&"");
            is_test |= *line == "#[cfg(test)]" && next.split(' ').any(|word| word == "mod");
            if let Some(name) = function(line) {
                last = name;
                if is_test {
                    self.functions.insert(name.to_owned());
                }
            }
            let Some(rest) = line.strip_prefix("//= rfc") else { continue };
            let function = following(&lines[n + 1..]).unwrap_or(last).to_owned();
            for (rfc, id) in parse(rest).with_context(|| format!("{path}:{}: `{line}`", n + 1))? {
                let (path, function) = (path.to_owned(), function.clone());
                self.citations.push(Citation { rfc, id, path, line: n + 1, function, is_test });
            }
        }
        Ok(())
    }
}

/// Parses the text after `//= rfc`: the RFC's number and the ids. Ignores ids that begin with `section-`.
fn parse(text: &str) -> Result<Vec<(u32, Id)>> {
    let (rfc, ids) = text.split_once('#').context("no `#` after the RFC's number")?;
    let rfc = rfc.parse().context("not an RFC number")?;
    let ids = ids.split_whitespace().filter(|id| !id.starts_with("section-"));
    ids.map(|id| Ok((rfc, id.parse()?))).collect()
}

/// Skips comments and attributes. Returns the name of the function that the next line declares.
fn following<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let first = lines.iter().find(|line| !line.starts_with("//") && !line.starts_with("#["))?;
    function(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, text: &str) -> Vec<(String, String, bool)> {
        let mut sources = Sources::default();
        sources.take(path, text).unwrap();
        sources.citations.iter().map(|c| (c.id.to_string(), c.function.clone(), c.is_test)).collect()
    }

    fn found(id: &str, function: &str, is_test: bool) -> (String, String, bool) {
        (id.to_owned(), function.to_owned(), is_test)
    }

    #[test]
    fn a_citation_belongs_to_the_function_below_it_or_around_it() {
        let text =
            "//= rfc9260#1-1\n/// Docs.\npub(crate) fn a() {\n    //= rfc9260#1-2 1.1-3\n    b();\n}\n";
        let expected = [found("1-1", "a", false), found("1-2", "a", false), found("1.1-3", "a", false)];
        assert_eq!(read("engine/x/src/lib.rs", text), expected);
    }

    #[test]
    fn a_citation_in_a_test_module_or_test_folder_counts_as_a_test() {
        let text =
            "//= rfc9260#1-1\nfn a() {}\n#[cfg(test)]\nmod tests {\n//= rfc9260#1-1\n#[test]\nfn t() {}\n}";
        assert_eq!(read("engine/x/src/lib.rs", text), [found("1-1", "a", false), found("1-1", "t", true)]);
        assert_eq!(read("engine/x/tests/y.rs", "//= rfc9260#1-1\nfn t() {}"), [found("1-1", "t", true)]);
    }

    #[test]
    fn a_function_for_tests_only_makes_no_test_of_what_follows() {
        let text = "#[cfg(test)]\nfn helper() {}\n//= rfc9260#1-1\nfn a() {}\n";
        assert_eq!(read("engine/x/src/lib.rs", text), [found("1-1", "a", false)]);
    }

    #[test]
    fn an_invalid_citation_is_refused_and_quotations_are_ignored() {
        let mut sources = Sources::default();
        assert!(sources.take("a.rs", "//= rfc9260#5.1").is_err());
        assert!(sources.take("a.rs", "//= rfc9260").is_err());
        sources.take("a.rs", "//= rfc8260#section-2.1\n//# words\n").unwrap();
        assert!(sources.citations.is_empty());
    }
}
