//! Prose of the documents: the length of sentences, and words that the glossary replaces.
//!
//! Reads the paragraphs, list items and table cells of each `*.md` file. Code, targets of links, headings and generated parts do not count.
//! Begin with [`faults`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use unicode_segmentation::UnicodeSegmentation;

use crate::links::pages;
use crate::tools::root;

/// Limit on the number of words in a sentence.
const LONGEST: usize = 45;
/// Limit on the mean length of a page's sentences outside tables, in words.
const MEAN: usize = 22;
/// Minimum number of sentences for which a page's mean is judged.
const FEWEST: usize = 5;
/// Generated pages, which are not judged, because some of these pages quote RFCs.
const LEFT_OUT: &[&str] = &["docs/compliance", "docs/compliance.md", "docs/reference"];
const GLOSSARY: &str = "GLOSSARY.md";
/// Pages that list the replaced words, and therefore may contain them.
const NAMES_THEM: &[&str] = &[GLOSSARY, "CONTRIBUTING.md"];
/// Heading of the glossary's table of replaced words.
const REPLACED: &str = "## Words that are not used";

/// Text in the comment before a generated part.
const GENERATED: &str = ": written by `";

/// A sentence of a page.
struct Sentence {
    /// Line on which the sentence's paragraph, list item or cell begins, counted from 1.
    line: usize,
    is_cell: bool,
    text: String,
}

/// Returns one message for each sentence that is too long, each page whose sentences are too long on average, and each word that the
/// glossary replaces.
pub(crate) fn faults() -> Result<Vec<String>> {
    let pages = pages(&root())?;
    let replaced = replaced(&pages)?;
    let judged = pages.iter().filter(|(page, _)| !LEFT_OUT.iter().any(|dir| page.starts_with(dir)));
    Ok(judged.flat_map(|(page, text)| judge(page, text, &replaced)).collect())
}

/// Returns the words of the glossary's table in lower case, each with its replacement.
fn replaced(pages: &BTreeMap<PathBuf, String>) -> Result<Vec<(String, String)>> {
    let glossary = pages.get(Path::new(GLOSSARY)).context("GLOSSARY.md is missing")?;
    let (_, table) =
        glossary.split_once(REPLACED).with_context(|| format!("{GLOSSARY} has no `{REPLACED}`"))?;
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows: Vec<(String, String)> = rows
        .map_while(|line| line.strip_prefix('|'))
        .filter_map(|row| row.split_once('|'))
        .flat_map(|(words, instead)| {
            let instead = instead.trim_matches(['|', ' ']).to_owned();
            words.split(',').map(move |word| (word.trim().to_lowercase(), instead.clone()))
        })
        .collect();
    anyhow::ensure!(!rows.is_empty(), "the table below `{REPLACED}` in {GLOSSARY} is empty");
    Ok(rows)
}

fn judge(page: &Path, text: &str, replaced: &[(String, String)]) -> Vec<String> {
    let sentences = sentences(text);
    let page = page.display();
    let mut faults = Vec::new();
    for Sentence { line, text, .. } in &sentences {
        let count = words(text);
        if count > LONGEST {
            let start: String = text.chars().take(60).collect();
            faults.push(format!("{page}:{line}: a sentence of {count} words, limit {LONGEST}: {start}…"));
        }
        if !NAMES_THEM.contains(&page.to_string().as_str()) {
            let lower = format!(" {} ", text.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " "));
            let found = replaced.iter().filter(|(word, _)| lower.contains(&format!(" {word} ")));
            faults.extend(found.map(|(word, instead)| format!("{page}:{line}: `{word}`: write {instead}")));
        }
    }
    let counted: Vec<usize> =
        sentences.iter().filter(|sentence| !sentence.is_cell).map(|sentence| words(&sentence.text)).collect();
    let total: usize = counted.iter().sum();
    if counted.len() >= FEWEST && total > MEAN * counted.len() {
        let mean = total.div_ceil(counted.len());
        faults.push(format!("{page}: sentences of {mean} words in the mean, limit {MEAN}"));
    }
    faults
}

/// Returns the number of words in a sentence. A word is a part between white space that has a letter or digit.
fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// Returns the sentences of a page. A code span counts as one word. A sentence may begin with a code span.
fn sentences(text: &str) -> Vec<Sentence> {
    let (mut found, mut block, mut begin, mut is_read) = (Vec::new(), String::new(), 0, true);
    let mut is_generated = false;
    let mut end = |block: &mut String, begin: usize, is_cell: bool| {
        let line = text[..begin].matches('\n').count() + 1;
        found.extend(block.unicode_sentences().map(|sentence| Sentence {
            line,
            is_cell,
            text: sentence.to_owned(),
        }));
        block.clear();
    };
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. } | Tag::CodeBlock(_) | Tag::HtmlBlock) => {
                end(&mut block, begin, false);
                is_read = false;
            }
            Event::End(TagEnd::Heading(_) | TagEnd::CodeBlock | TagEnd::HtmlBlock) => is_read = true,
            Event::Start(Tag::Paragraph | Tag::Item | Tag::TableCell) => {
                end(&mut block, begin, false);
                begin = range.start;
            }
            Event::End(TagEnd::Paragraph | TagEnd::Item) => end(&mut block, begin, false),
            Event::End(TagEnd::TableCell) => end(&mut block, begin, true),
            Event::Html(comment) if comment.contains(GENERATED) => is_generated = true,
            Event::Html(comment) if comment.contains("<!-- end of ") => is_generated = false,
            _ if is_generated => {}
            Event::Text(part) if is_read => block.push_str(&part),
            Event::Code(_) if is_read => block.push('X'),
            Event::SoftBreak | Event::HardBreak => block.push(' '),
            _ => {}
        }
    }
    end(&mut block, begin, false);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        judge(Path::new("p.md"), text, &[("old word".to_owned(), "new".to_owned())])
    }

    #[test]
    fn a_sentence_over_the_limit_is_found_with_its_line_and_one_at_the_limit_is_not() {
        let of = |count: usize| format!("# A title\n\nShort.\n\n- {}.\n", vec!["word"; count].join(" "));
        assert_eq!(faults(&of(LONGEST)), [""; 0]);
        let found = faults(&of(LONGEST + 1));
        assert!(found.len() == 1 && found[0].starts_with("p.md:5: a sentence of 46 words"), "{found:?}");
    }

    #[test]
    fn code_headings_and_the_next_item_add_no_words_to_a_sentence() {
        let half = vec!["word"; 30].join(" ");
        assert_eq!(
            faults(&format!("- {half}\n- {half}\n\n## {half} {half}\n\n```\n{half} {half}\n```\n")),
            [""; 0]
        );
        assert_eq!(faults(&format!("{half} `{half}` [link](to/word)\n")), [""; 0]);
        assert_eq!(faults(&format!("| {half} | {half} |\n|---|---|\n| {half} | {half} |\n")), [""; 0]);
    }

    #[test]
    fn generated_parts_are_left_out() {
        let part =
            |begin: &str| format!("{begin}\n\n- {}.\n\n<!-- end of x -->\n", vec!["word"; 50].join(" "));
        assert_eq!(faults(&part("<!-- x: written by `./x y` -->")), [""; 0]);
        assert_eq!(faults(&part("<!-- by hand -->")).len(), 1);
    }

    #[test]
    fn a_page_of_long_sentences_is_found() {
        let of = |count: usize| format!("{}. ", vec!["Word"; count].join(" ")).repeat(FEWEST);
        assert_eq!(faults(&of(MEAN)), [""; 0]);
        assert_eq!(faults(&of(MEAN + 1)), ["p.md: sentences of 23 words in the mean, limit 22"]);
    }

    #[test]
    fn a_replaced_word_is_found_in_prose_and_not_in_code() {
        assert_eq!(faults("It has an Old\nword, and `old word`.\n"), ["p.md:1: `old word`: write new"]);
        assert_eq!(faults("It is told words.\n"), [""; 0]);
    }

    #[test]
    fn the_words_come_from_the_glossary() {
        let page = |text: &str| BTreeMap::from([(PathBuf::from(GLOSSARY), text.to_owned())]);
        let text = format!(
            "{REPLACED}\n\n| not | but |\n|---|---|\n| Trunk, trunks | shared association |\n\nEnd.\n"
        );
        let pair = |word: &str| (word.to_owned(), "shared association".to_owned());
        assert_eq!(replaced(&page(&text)).unwrap(), [pair("trunk"), pair("trunks")]);
        assert!(replaced(&page("# Glossary\n")).is_err());
    }
}
