//! `./x reference [--write]`: compares the pages of `docs/reference` with the sources that they describe, or writes these pages.
//!
//! The programs themselves write the pages of their command lines, settings and metrics. The examples of JSON and the reasons for a
//! fallback come from the golden files of `control`. The log messages come from the sources of the daemon. Begin with [`run`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use syn::visit::Visit;

use crate::tools::{built_programs, root, succeeds};
use crate::{Outcome, WRITERS};

/// Directory of the pages.
const PAGES: &str = "docs/reference";
const GOLDEN: &str = "daemon/control/tests/golden";
/// Sources of the daemon. The page of the log lists the messages in these sources.
const DAEMON: &str = "daemon/sctpifyd/src";

/// Runs `./x reference [--write]`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    let is_writing = match words {
        [] => false,
        [flag] if flag == "--write" => true,
        _ => bail!("usage: ./x reference [--write]"),
    };
    let dir = root().join(PAGES);
    if is_writing {
        for (name, text) in wanted()? {
            fs::write(dir.join(&name), text).with_context(|| format!("cannot write {PAGES}/{name}"))?;
        }
        return Ok(Outcome::Good);
    }
    let faults = faults()?;
    faults.iter().for_each(|fault| println!("{fault}"));
    Ok(if faults.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// Returns one sentence for each page that differs from the text of its sources, and for each page without a source.
pub(crate) fn faults() -> Result<Vec<String>> {
    let dir = root().join(PAGES);
    let wanted = wanted()?;
    let stale =
        wanted.iter().filter(|(name, text)| fs::read_to_string(dir.join(name)).ok().as_ref() != Some(text));
    let mut faults: Vec<String> = stale
        .map(|(name, _)| format!("{PAGES}/{name} is out of date: run `./x reference --write`"))
        .collect();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {PAGES}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !wanted.contains_key(&name) {
            faults.push(format!("{PAGES}/{name}: no source writes it: delete it"));
        }
    }
    Ok(faults)
}

/// Returns the text of each page, by file name.
fn wanted() -> Result<BTreeMap<String, String>> {
    let mut pages = of_programs()?;
    let golden = |name: &str| {
        let path = root().join(GOLDEN).join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    pages.insert("json.md".to_owned(), json(&golden("requests.jsonl")?, &golden("responses.jsonl")?)?);
    pages.insert("fallback.md".to_owned(), fallback(&golden("reasons.txt")?)?);
    pages.insert("log.md".to_owned(), log(&root().join(DAEMON))?);
    Ok(pages)
}

fn of_programs() -> Result<BTreeMap<String, String>> {
    let dir = tempfile::tempdir()?;
    let mut pages = BTreeMap::new();
    let programs = built_programs()?;
    for program in WRITERS {
        let mut command = Command::new(programs.join(program));
        // The help text would show the values of environment variables, so the program gets no such variables.
        command.arg("reference").arg(dir.path()).env_clear();
        ensure!(succeeds(&mut command)?, "no pages by {program}");
    }
    for entry in fs::read_dir(dir.path())? {
        let entry = entry?;
        let text = fs::read_to_string(entry.path())?;
        pages.insert(entry.file_name().to_string_lossy().into_owned(), format!("{}\n", text.trim_end()));
    }
    Ok(pages)
}

/// Returns the page of the control socket's requests and responses, with an example of each.
fn json(requests: &str, responses: &str) -> Result<String> {
    let mut page = "# JSON of the control socket\n\n\
        `sctpify --json` prints these responses, one object a line. Programs may also connect to the control socket, write one request a \
        line, and read one response a line. Names of numbers contain their unit. Fields may be added within a schema: ignore unknown ones.\n"
        .to_owned();
    for (title, lines, kind) in [("Requests", requests, "request"), ("Responses", responses, "response")] {
        let _ = write!(page, "\n## {title}\n");
        for line in lines.lines() {
            let value: serde_json::Value = serde_json::from_str(line)?;
            let name = value.get(kind).and_then(|name| name.as_str()).unwrap_or(kind).to_owned();
            let _ = write!(page, "\n`{name}`:\n\n```json\n{}\n```\n", serde_json::to_string_pretty(&value)?);
        }
    }
    Ok(page)
}

/// Returns the page of the reasons for plain TCP.
fn fallback(reasons: &str) -> Result<String> {
    let mut page = "# Reasons for plain TCP\n\n\
        `sctpify status` and `sctpify explain` show the message. `--json` shows the kind. The messages in this table contain example values. \
        [Troubleshooting](../how-to/troubleshooting.md) has the remedies.\n\n| kind | message |\n|---|---|\n"
        .to_owned();
    for line in reasons.lines() {
        let (json, message) = line.split_once('\t').context("a reason without its message")?;
        let value: serde_json::Value = serde_json::from_str(json)?;
        let fault = value.get("found").and_then(|found| found.get("fault"));
        let words = [value.get("kind"), fault].into_iter().flatten().filter_map(|word| word.as_str());
        let kind: Vec<String> = words.map(|word| format!("`{word}`")).collect();
        let _ = writeln!(page, "| {} | {} |", kind.join(" "), message.replace('|', "\\|"));
    }
    Ok(page)
}

/// Returns the page of the daemon's log messages.
fn log(sources: &Path) -> Result<String> {
    let mut found = Vec::new();
    let mut dirs = vec![sources.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = syn::parse_file(&fs::read_to_string(&path)?)
                    .with_context(|| format!("cannot parse {}", path.display()))?;
                let mut messages = Messages::default();
                messages.visit_file(&file);
                found.extend(messages.found);
            }
        }
    }
    found.sort();
    found.dedup();
    let mut page = "# Log messages of the daemon\n\n\
        `sctpifyd` writes them to standard error, or to the journal under systemd. `--log` selects levels. Fields follow a message as \
        `name=value`; `left_out` counts similar messages that were suppressed before.\n"
        .to_owned();
    for (title, level) in [("Errors", "error"), ("Warnings", "warn"), ("Information", "info")] {
        let _ = write!(page, "\n## {title}\n\n| message | fields |\n|---|---|\n");
        for (_, message, fields) in found.iter().filter(|(known, ..)| known == level) {
            let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
            let _ = writeln!(page, "| {} | {} |", message.replace('|', "\\|"), fields.join(", "));
        }
    }
    Ok(page)
}

/// Visitor that collects calls of `tracing`'s macros: level, message, names of fields.
#[derive(Default)]
struct Messages {
    found: Vec<(String, String, Vec<String>)>,
}

impl<'a> Visit<'a> for Messages {
    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if module.ident != "tests" {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let names: Vec<String> = call.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let [tracing, level] = &names[..]
            && tracing == "tracing"
            && let Some((message, fields)) = message(call)
            // Skip a message that is only a variable, because other code creates the variable's text.
            && !(message.starts_with('{') && message.ends_with('}') && !message.contains(' '))
        {
            self.found.push((level.clone(), message, fields));
        }
        syn::visit::visit_macro(self, call);
    }
}

/// Returns the message of a call and the names of the call's fields. The message is the first string literal that opens the call or
/// directly follows a comma.
fn message(call: &syn::Macro) -> Option<(String, Vec<String>)> {
    let (mut fields, mut part) = (Vec::new(), String::new());
    for token in call.tokens.clone() {
        let word = token.to_string();
        match syn::parse_str::<syn::LitStr>(&word) {
            Ok(literal) if part.is_empty() => return Some((literal.value(), fields)),
            _ if word == "," => {
                let name = part.split('=').next().unwrap_or(&part);
                fields.push(name.trim_start_matches(['%', '?']).to_owned());
                part.clear();
            }
            _ => part.push_str(&word),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_message_is_found_with_its_level_and_fields() {
        let code = "fn f() { tracing::info!(%client, why = NOT, left_out, \"refused: {}\", name); tracing::debug!(\"x\"); }\n\
                    mod tests { fn g() { tracing::info!(\"no\"); } }";
        let mut messages = Messages::default();
        messages.visit_file(&syn::parse_file(code).unwrap());
        let fields = ["client", "why", "left_out"].map(str::to_owned).to_vec();
        assert_eq!(messages.found[0], ("info".to_owned(), "refused: {}".to_owned(), fields));
        assert_eq!(messages.found.len(), 2);
    }

    #[test]
    fn a_reason_has_its_kind_and_its_message() {
        let page = fallback("{\"kind\":\"not_encrypted\",\"found\":{\"fault\":\"off_here\"}}\tit is off|on")
            .unwrap();
        assert!(page.ends_with("| `not_encrypted` `off_here` | it is off\\|on |\n"), "{page}");
        assert!(fallback("no tab").is_err());
    }

    #[test]
    fn each_request_and_response_is_an_example() {
        let page = json("{\"schema\":1,\"request\":\"status\"}", "{\"response\":\"done\"}").unwrap();
        assert!(
            page.contains("## Requests\n\n`status`:\n\n```json\n{") && page.contains("`done`:"),
            "{page}"
        );
    }
}
