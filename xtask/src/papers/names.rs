//! Checks that the names on the page exist. Reads the sources as text, and builds nothing.

use super::page::Mention;
use crate::links::anchor;
use crate::sources::tests;
use crate::tools::PRODUCTS;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of the tests with real hosts. The page names these tests without the path of their crate.
const HOST_TESTS: &str = "lab/testbed/tests";

/// Folder of the experiments' manifests.
const EXPERIMENTS: &str = "lab/lab/experiments";

/// File with the table of the daemon's settings.
const SETTINGS: &str = "daemon/rules/src/settings.rs";

/// Returns the fault of a mention on `page` if the mentioned thing does not exist. `text` is the text of the page.
pub(super) fn fault(root: &Path, page: &str, text: &str, mention: &Mention) -> Option<String> {
    match mention {
        Mention::Test { file, function } => {
            let Some(path) = find(root, file) else { return Some(no_file(file)) };
            let source = fs::read_to_string(path).unwrap_or_default();
            let has = tests(&source).contains(function.as_str());
            (!has).then(|| format!("{file} has no test `{function}`"))
        }
        Mention::NoTest(code) => Some(format!("`{code}` is not a test: expected FILE.rs::function")),
        Mention::Experiment { id, expectation } => experiment(root, id, expectation.as_deref()),
        Mention::Setting(name) => {
            let table = fs::read_to_string(root.join(SETTINGS)).unwrap_or_default();
            let row = format!("name: \"{name}\",");
            let has = table.lines().any(|line| line.trim() == row);
            (!has).then(|| format!("unknown setting `{name}`"))
        }
        Mention::Path(path) => find(root, path).is_none().then(|| no_file(path)),
        Mention::Link { document, heading } => link(root, page, text, document, heading.as_deref()),
    }
}

fn no_file(path: &str) -> String {
    format!("no file `{path}`")
}

fn find(root: &Path, path: &str) -> Option<PathBuf> {
    let bases = ["", HOST_TESTS].into_iter().chain(PRODUCTS);
    bases.map(|base| root.join(base).join(path)).find(|path| path.exists())
}

fn experiment(root: &Path, id: &str, expectation: Option<&str>) -> Option<String> {
    let Ok(manifest) = fs::read_to_string(root.join(EXPERIMENTS).join(format!("{id}.toml"))) else {
        return Some(format!("no experiment `{id}`"));
    };
    let expectation = expectation?;
    let manifest: toml::Table = match toml::from_str(&manifest) {
        Ok(manifest) => manifest,
        Err(error) => return Some(format!("the manifest of experiment `{id}` cannot be read: {error}")),
    };
    let all = manifest.get("expect").and_then(toml::Value::as_array);
    let has = all.is_some_and(|all| {
        all.iter().any(|e| e.get("id").and_then(toml::Value::as_str) == Some(expectation))
    });
    (!has).then(|| format!("experiment `{id}` has no expectation `{expectation}`"))
}

fn link(root: &Path, page: &str, text: &str, document: &str, heading: Option<&str>) -> Option<String> {
    let (name, path) = if document.is_empty() {
        (page, None)
    } else {
        (document, Some(root.join(page).parent().unwrap_or(root).join(document)))
    };
    let text = match &path {
        Some(path) if !path.exists() => return Some(no_file(document)),
        // A folder, or a file that is not text, has no headings.
        Some(path) => fs::read_to_string(path).unwrap_or_default(),
        None => text.to_owned(),
    };
    let heading = heading?;
    let has = text.lines().filter_map(|line| line.strip_prefix('#')).any(|line| anchor(line) == heading);
    (!has).then(|| format!("{name} has no heading `#{heading}`"))
}
