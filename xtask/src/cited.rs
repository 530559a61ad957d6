//! Tests that documents cite. A code span such as `` `strangers::a_peer_may_open_…` `` promises a test, so a test with this name must exist.
//!
//! A name has at least two underscores and lower-case letters. The filter of a `cargo test` command, and a name next to an ellipsis, may be
//! the beginning of a name. The module of the name must be a file or a directory in the path of the test's file. Begin with [`faults`].

use std::path::Path;

use anyhow::Result;

use crate::links::pages;
use crate::sources::{each_file, function};
use crate::tools::root;

/// Returns one sentence for each cited test that does not exist, with its page and line.
pub(crate) fn faults() -> Result<Vec<String>> {
    let mut functions = Vec::new();
    each_file(|path, text| {
        let declared = text.lines().map(str::trim).filter_map(function);
        functions.extend(declared.map(|name| (path.to_owned(), name.to_owned())));
        Ok(())
    })?;
    let mut faults = Vec::new();
    for (page, text) in pages(&root())? {
        // A separate check judges the names in the page of the papers.
        if page != Path::new("docs/papers.md") {
            let wrong = missing(&text, &functions);
            faults.extend(wrong.map(|(line, name)| format!("{}:{line}: no test `{name}`", page.display())));
        }
    }
    Ok(faults)
}

/// Returns the cited tests of a page that none of these functions is, each with its line.
fn missing<'a>(
    text: &'a str,
    functions: &'a [(String, String)],
) -> impl Iterator<Item = (usize, String)> + use<'a> {
    let citations = (1..).zip(text.lines()).flat_map(|(n, line)| {
        line.split('`').skip(1).step_by(2).flat_map(move |span| citations(span).map(move |it| (n, it)))
    });
    citations
        .filter(|(_, cited)| !functions.iter().any(|(path, name)| cited.is(path, name)))
        .map(|(n, cited)| (n, format!("{}::{}", cited.module, cited.name)))
}

/// A test that a document cites.
struct Citation<'a> {
    module: &'a str,
    name: &'a str,
    /// True if `name` may be the beginning of the test's name.
    is_beginning: bool,
}

impl Citation<'_> {
    /// Reports whether this function is the cited test.
    fn is(&self, path: &str, function: &str) -> bool {
        let is_named =
            if self.is_beginning { function.starts_with(self.name) } else { function == self.name };
        is_named && path.trim_end_matches(".rs").split('/').any(|part| part == self.module)
    }
}

/// Returns the citations in a code span.
fn citations(span: &str) -> impl Iterator<Item = Citation<'_>> {
    let is_command = span.starts_with("cargo test");
    span.split_whitespace().filter_map(move |word| {
        let (module, name) = word.trim_start_matches('…').rsplit_once("::")?;
        let module = module.trim_end_matches("::tests").rsplit(['/', ':']).next()?.trim_end_matches(".rs");
        let cut = name.trim_end_matches(['…', '.']);
        let is_name =
            |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let looks_like_a_test = cut.matches('_').count() >= 2 && is_name(cut) && is_name(module);
        let is_beginning = is_command || word.starts_with('…') || cut.len() < name.len();
        looks_like_a_test.then_some(Citation { module, name: cut, is_beginning })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cited_test_must_exist_in_its_module_and_a_cut_name_may_be_its_beginning() {
        let functions =
            [("lab/testbed/tests/shim/firewall.rs".to_owned(), "a_rule_holds_over_sctp".to_owned())];
        for (page, faults) in [
            ("`firewall::a_rule_holds_over_sctp`", 0),
            ("x `tests/shim/firewall.rs::a_rule_holds_over_sctp` y", 0),
            ("`firewall::tests::a_rule_holds_over_sctp`, `…firewall::a_rule_holds`", 0),
            ("`firewall::a_rule_holds_…`", 0),
            ("`cargo test -p testbed firewall::a_rule_holds`", 0),
            ("`firewall::a_rule_holds`", 1),
            ("`links::a_rule_holds_over_sctp`", 1),
            ("\n`firewall::a_rule_is_kept_…`, `firewall::no_rule_is_kept`", 2),
            ("`sctp::Endpoint::take_unsent_now`, `keying::protection`, firewall::no_rule_is_kept", 0),
        ] {
            let found: Vec<_> = missing(page, &functions).collect();
            assert_eq!(found.len(), faults, "{page}: {found:?}");
        }
        assert_eq!(missing("\n`firewall::no_rule_is_kept`", &functions).next().unwrap().0, 2);
    }
}
