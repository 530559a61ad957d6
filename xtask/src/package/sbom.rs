//! A list of the crates in the programs, in the format CycloneDX 1.5, for scanners of vulnerabilities and licences.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::build::{Build, PACKAGES};
use crate::tools::{cargo, output, root};

/// Writes the list in the directory `out`, and returns its path.
pub(super) fn make(build: &Build, out: &Path) -> Result<PathBuf> {
    let mut components: Vec<Value> = crates()?.into_values().collect();
    let rust = output(Command::new("rustc").arg("--version"))?;
    let version = rust.split_whitespace().nth(1).context("rustc reports no version")?;
    components.push(component("rust-std", version, "generic", "MIT OR Apache-2.0"));
    let mut program = component("sctpify", build.version(), "generic", "MIT OR Apache-2.0");
    program["type"] = json!("application");
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": program },
        "components": components,
    });
    let path = out.join(format!("sctpify-{}.cdx.json", build.version()));
    fs::write(&path, serde_json::to_string_pretty(&list)? + "\n")
        .with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Returns the crates of other projects that are compiled into the programs, by name and version.
fn crates() -> Result<BTreeMap<(String, String), Value>> {
    let mut words =
        vec!["tree", "--locked", "--quiet", "--edges", "normal,no-proc-macro", "--prefix", "none"];
    words.extend(["--format", "{p}|{l}"]);
    PACKAGES.iter().for_each(|package| words.extend(["--package", package]));
    let (text, checksums) = (output(&mut cargo(&words))?, checksums()?);
    let mut crates = BTreeMap::new();
    for line in text.lines() {
        let (package, licence) = line.trim_end_matches(" (*)").rsplit_once('|').unwrap_or((line, ""));
        let mut words = package.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        let key = (name.to_owned(), version.trim_start_matches('v').to_owned());
        // Crates without a checksum are parts of this project.
        let Some(checksum) = checksums.get(&key) else { continue };
        let mut found = component(&key.0, &key.1, "cargo", licence);
        found["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        crates.insert(key, found);
    }
    Ok(crates)
}

fn component(name: &str, version: &str, kind: &str, licence: &str) -> Value {
    json!({
        "type": "library",
        "name": name,
        "version": version,
        "purl": format!("pkg:{kind}/{name}@{}", version.replace('+', "%2B")),
        "licenses": [{ "expression": licence.replace('/', " OR ") }],
    })
}

/// Returns the checksums of the crates in Cargo.lock, by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = fs::read_to_string(root().join("Cargo.lock"))?.parse()?;
    let packages =
        lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock has no packages")?;
    let field = |package: &toml::Value, name: &str| Some(package.get(name)?.as_str()?.to_owned());
    let entry =
        |package| Some(((field(package, "name")?, field(package, "version")?), field(package, "checksum")?));
    Ok(packages.iter().filter_map(entry).collect())
}
