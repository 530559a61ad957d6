//! Rules about source text that no lint covers: module docs, first words of comments and of test names, allowed places of `unsafe`, and
//! crates that must forbid `unsafe`.
//!
//! Works on lines, not on syntax trees. So the word `unsafe` in a multi-line string counts as code.

use crate::tools::{PRODUCTS, root};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The only crates that may contain `unsafe`. These crates make system calls, or replace functions of the C library.
const UNSAFE_CRATES: &[&str] =
    &["engine/netio", "daemon/intercept", "sockets/sockclient", "sockets/libsctpify", "sockets/usernotif"];
/// Maximum number of lines between an `unsafe` and the start of its `SAFETY:` comment above.
const SAFETY_LINES_MAX: usize = 8;

/// Checks that every module starts with `//!`.
pub(crate) fn module_docs() -> Result<Vec<String>> {
    judge(|path, text| {
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        if first.starts_with("//!") {
            Vec::new()
        } else {
            vec![format!("{path}:1: the module does not open with `//!`")]
        }
    })
}

/// Checks that `unsafe` occurs only in [`UNSAFE_CRATES`], each time with a reason, and that every other crate forbids `unsafe`.
pub(crate) fn unsafe_code() -> Result<Vec<String>> {
    judge(|path, text| {
        if UNSAFE_CRATES.iter().any(|name| path.starts_with(&format!("{name}/"))) {
            return without_reason(path, text);
        }
        let mut faults = misplaced(path, text);
        let is_crate_root =
            path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/");
        if is_crate_root && !text.contains("#![forbid(unsafe_code)]") {
            faults.push(format!("{path}:1: add #![forbid(unsafe_code)]"));
        }
        faults
    })
}

fn misplaced(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate().filter(|(_, line)| has_unsafe(line));
    lines
        .map(|(n, _)| format!("{path}:{}: unsafe is allowed only in {}", n + 1, UNSAFE_CRATES.join(" or ")))
        .collect()
}

/// Finds each `unsafe` without a reason. Declarations need no reason here, because Clippy requires a section `# Safety` in the docs of each
/// public unsafe function. `#[unsafe(no_mangle)]` only gives a function the name that the C library also has.
fn without_reason(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let has_reason =
        |n: usize| lines[n.saturating_sub(SAFETY_LINES_MAX)..=n].iter().any(|line| line.contains("SAFETY:"));
    let declares = |line: &str| {
        ["unsafe fn ", "unsafe extern \"C\" fn ", "#[unsafe(no_mangle)]"]
            .iter()
            .any(|words| line.contains(words))
    };
    let bare = (0..lines.len()).filter(|n| has_unsafe(lines[*n]) && !declares(lines[*n]) && !has_reason(*n));
    bare.map(|n| format!("{path}:{}: unsafe without a SAFETY: line", n + 1)).collect()
}

/// Reports whether the word `unsafe` occurs in the code of a line, outside strings and comments.
fn has_unsafe(line: &str) -> bool {
    let outside_strings: String =
        line.replace("\\\"", "").split('"').step_by(2).collect::<Vec<_>>().join("\"");
    let code = outside_strings.split("//").next().unwrap_or_default();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.split(|c: char| !is_name(c)).any(|word| word == "unsafe")
}

/// Words that begin a free relative clause. A sentence must begin with its subject instead (CONTRIBUTING.md).
const RELATIVES: [&str; 7] = ["What", "Whatever", "Who", "Whoever", "Whom", "Whose", "Whomever"];
/// Attributes of items whose comments are `--help` text.
const HELP: [&str; 3] = ["#[arg", "#[command", "#[derive("];
/// Number of lines below a comment that are searched for an attribute of [`HELP`].
const HELP_LINES: usize = 4;

/// Checks that no sentence of a comment and no name of a test opens with a free relative clause. Questions and `--help` text may open this
/// way.
pub(crate) fn comments() -> Result<Vec<String>> {
    judge(|path, text| {
        let lines: Vec<&str> = text.lines().collect();
        let opening = (0..lines.len()).filter(|&n| opens_with_relative(lines[n]) && !is_help(&lines[n..]));
        let mut faults: Vec<String> = opening
            .map(|n| {
                format!("{path}:{}: open the sentence with its subject, not with a relative clause", n + 1)
            })
            .collect();
        faults.extend(relative_names(path, text));
        faults
    })
}

/// Finds tests whose names open with a relative clause.
fn relative_names(path: &str, text: &str) -> Vec<String> {
    let is_relative = |name: &str| {
        let first = name.split('_').next().unwrap_or_default();
        RELATIVES.iter().any(|word| word.eq_ignore_ascii_case(first))
    };
    let named = numbered_tests(text).filter(|(_, name)| is_relative(name));
    named
        .map(|(n, name)| {
            let fault = "the name of a test opens with a relative clause: begin with the subject";
            format!("{path}:{n}: `{name}`: {fault}")
        })
        .collect()
}

fn opens_with_relative(line: &str) -> bool {
    let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
    let comment = comment.trim_start_matches(['/', '!']);
    let Some(comment) = comment.strip_prefix(' ') else { return false };
    // A quotation of an RFC begins with a quotation mark, so its first word is not in [`RELATIVES`].
    comment.split(". ").any(|sentence| {
        let first = sentence.split(' ').next().unwrap_or_default();
        RELATIVES.contains(&first) && !sentence.contains('?')
    })
}

/// Reports whether the comment that begins these lines is `--help` text.
fn is_help(lines: &[&str]) -> bool {
    let below = lines.iter().map(|line| line.trim_start()).filter(|line| !line.starts_with("///"));
    let is_of_clap = |line: &str| {
        let derives = line.starts_with(HELP[2])
            && ["Args", "Parser", "Subcommand", "ValueEnum"].iter().any(|name| line.contains(name));
        line.starts_with(HELP[0]) || line.starts_with(HELP[1]) || derives
    };
    below.take(HELP_LINES).any(is_of_clap)
}

/// Returns the faults that a rule finds in the Rust files of the workspace, sorted by file name.
fn judge(rule: impl Fn(&str, &str) -> Vec<String>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    each_file(|path, text| {
        faults.extend(rule(path, text));
        Ok(())
    })?;
    Ok(faults)
}

/// Reads every Rust file of the workspace, sorted by name. Passes the path and text of each file to `take`.
pub(crate) fn each_file(mut take: impl FnMut(&str, &str) -> Result<()>) -> Result<()> {
    let root = root();
    let mut files = Vec::new();
    for part in PRODUCTS.into_iter().chain(["xtask", "tests"]) {
        collect(&root.join(part), &mut files)?;
    }
    files.sort();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let path = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        take(&path, &text)?;
    }
    Ok(())
}

/// Returns the name of the function that a line declares, if it declares one.
pub(crate) fn function(line: &str) -> Option<&str> {
    let at = if line.starts_with("fn ") { 3 } else { line.find(" fn ")? + 4 };
    let is_comment = line.starts_with("//");
    let name = line.get(at..)?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!is_comment && !name.is_empty()).then_some(name)
}

/// Returns the names of a file's tests. A test is a function below `#[test]`, or below an attribute whose path ends with `test`, such as
/// `#[tokio::test]`.
pub(crate) fn tests(text: &str) -> BTreeSet<&str> {
    numbered_tests(text).map(|(_, name)| name).collect()
}

/// Returns the names of a file's tests, each with the line that declares it. Lines are counted from 1.
fn numbered_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_marked = false;
    (1..).zip(text.lines().map(str::trim)).filter_map(move |(n, line)| {
        is_marked |= is_test_attribute(line);
        let name = function(line)?;
        std::mem::take(&mut is_marked).then_some((n, name))
    })
}

fn is_test_attribute(line: &str) -> bool {
    let path = line.strip_prefix("#[").and_then(|rest| rest.split(['(', ']', ' ', '=']).next());
    path.and_then(|path| path.rsplit("::").next()) == Some("test")
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{has_unsafe, is_help, opens_with_relative, relative_names, tests, without_reason};

    #[test]
    fn a_comment_that_opens_a_sentence_with_a_relative_clause_is_found_and_a_question_is_not() {
        assert!(opens_with_relative("    /// What a packet says."));
        assert!(opens_with_relative("// Takes it. Whoever waits gets it."));
        assert!(!opens_with_relative("/// Contents of a packet: what it says."));
        assert!(!opens_with_relative("// What now?"));
        assert!(!opens_with_relative("let text = \"// What\";"));
    }

    #[test]
    fn a_test_whose_name_opens_with_a_relative_clause_is_found_and_other_names_are_not() {
        for name in ["what_waits_is_kept", "who_waits_is_told", "whatever_comes_is_read"] {
            let found =
                relative_names("f.rs", &format!("mod tests {{\n    #[test]\n    fn {name}() {{}}\n}}\n"));
            let fault = "the name of a test opens with a relative clause: begin with the subject";
            assert_eq!(found, [format!("f.rs:3: `{name}`: {fault}")]);
        }
        for good in [
            "#[test]\nfn whole_blocks_are_read() {}",
            "#[test]\nfn a_peer_who_waits() {}",
            "fn what_waits() {}",
        ] {
            assert!(relative_names("f.rs", good).is_empty(), "{good}");
        }
    }

    #[test]
    fn a_doc_comment_above_a_clap_attribute_is_help_text() {
        assert!(is_help(&["/// What to do", "#[command(subcommand)]"]));
        assert!(is_help(&["/// What to do.", "#[derive(Clone, Subcommand)]"]));
        assert!(!is_help(&["/// What to do.", "#[derive(Clone)]", "struct A;"]));
    }

    #[test]
    fn unsafe_in_a_comment_or_in_a_longer_word_is_not_unsafe_code() {
        assert!(!has_unsafe("#![forbid(unsafe_code)] // no unsafe here"));
        assert!(has_unsafe("    let n = unsafe { call() };"));
    }

    #[test]
    fn unsafe_in_a_string_is_not_unsafe_code_but_unsafe_after_a_string_is() {
        assert!(!has_unsafe("say(\"no unsafe here\");"));
        assert!(has_unsafe("say(\"this\"); unsafe { call() }"));
    }

    #[test]
    fn unsafe_without_its_reason_is_found() {
        assert_eq!(without_reason("f.rs", "fn a() {\n    unsafe { b() }\n}").len(), 1);
        assert_eq!(without_reason("f.rs", "// SAFETY: b has no conditions.\nunsafe { b() }").len(), 0);
        assert_eq!(without_reason("f.rs", "pub unsafe fn b() {}").len(), 0);
    }

    #[test]
    fn a_test_is_a_function_below_a_test_attribute_and_nothing_else_is() {
        let text = "#[cfg(test)]\nfn helper() {}\n\n#[test]\n#[ignore = \"needs root\"]\n// Why.\nfn a() {}\n\
                    fn after() {}\n    #[tokio::test(flavor = \"x\")]\n    async fn b() {}\n// #[test]\nfn commented() {}\n";
        assert_eq!(tests(text).into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }
}
