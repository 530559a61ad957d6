//! A list of the crates in the programs, in the format CycloneDX 1.5, for scanners of vulnerabilities and licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::build::{Build, LIBRARY_PACKAGE, LICENCE, PACKAGES};
use crate::tools::{cargo, output, root};

/// Version of the chart library on the status page.
const UPLOT_VERSION: &str = "1.6.32";
/// Its licence.
const UPLOT_LICENCE: &str = include_str!("../../../common/ops/src/page/uplot/LICENSE");

/// The licences of the crates of other projects in the programs.
#[derive(Debug, Default)]
pub(super) struct Licences {
    /// Licence of the programs with all these crates, as an SPDX expression.
    pub(super) expression: String,
    /// The texts: for each crate its name, version and licence, and the files with its licences and notices.
    pub(super) texts: String,
}

/// Collects the licences from cargo's copies of the crates.
///
/// # Errors
/// If a copy cannot be read.
pub(super) fn licences() -> Result<Licences> {
    let metadata: Value =
        serde_json::from_str(&output(&mut cargo(&["metadata", "--format-version", "1", "--locked"]))?)?;
    let packages = metadata["packages"].as_array().context("cargo reports no packages")?;
    let text = |package: &Value, field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let manifests: BTreeMap<_, _> = packages
        .iter()
        .map(|package| {
            ((text(package, "name"), text(package, "version")), PathBuf::from(text(package, "manifest_path")))
        })
        .collect();
    let (mut expressions, mut texts) = (BTreeSet::from([LICENCE.to_owned()]), String::new());
    for (key, found) in crates()? {
        let expression = found["licenses"][0]["expression"].as_str().unwrap_or_default().to_owned();
        let _ = writeln!(texts, "{} {}: {expression}\n", key.0, key.1);
        let directory = manifests.get(&key).and_then(|manifest| manifest.parent());
        let mut files: Vec<PathBuf> = fs::read_dir(directory.context("a crate without a directory")?)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        files.sort();
        let is_licence = |path: &&PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().to_uppercase()).unwrap_or_default();
            path.is_file()
                && ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|begin| name.starts_with(begin))
        };
        for file in files.iter().filter(is_licence) {
            let _ = writeln!(texts, "{}\n", String::from_utf8_lossy(&fs::read(file)?).trim_end());
        }
        expressions.insert(expression);
    }
    let _ = writeln!(texts, "uPlot {UPLOT_VERSION}: MIT\n\n{UPLOT_LICENCE}\n");
    let in_brackets = |expression: String| match expression.contains(' ') {
        true => format!("({expression})"),
        false => expression,
    };
    let expression = expressions.into_iter().map(in_brackets).collect::<Vec<_>>().join(" AND ");
    Ok(Licences { expression, texts })
}

/// Writes the list in the directory `out`, and returns its path.
pub(super) fn make(build: &Build, out: &Path) -> Result<PathBuf> {
    let mut components: Vec<Value> = crates()?.into_values().collect();
    let rust = output(Command::new("rustc").arg("--version"))?;
    let version = rust.split_whitespace().nth(1).context("rustc reports no version")?;
    components.push(component("rust-std", version, "generic", LICENCE));
    components.push(component("uplot", UPLOT_VERSION, "npm", "MIT"));
    let mut program = component("sctpify", build.version(), "generic", LICENCE);
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
    let packages = PACKAGES.iter().copied().chain([LIBRARY_PACKAGE]);
    packages.for_each(|package| words.extend(["--package", package]));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_in_the_programs_are_listed_with_the_texts_of_their_licences() {
        let crates = crates().unwrap();
        let names: BTreeSet<&str> = crates.keys().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains("rustls") && names.contains("mio"), "{names:?}");
        assert!(
            !names.contains("sctp-engine") && !names.contains("proptest"),
            "ours, and of tests: {names:?}"
        );
        let found = licences().unwrap();
        assert!(found.expression.contains("(MIT OR Apache-2.0)"), "{}", found.expression);
        assert!(found.texts.contains("Permission is hereby granted"));
        let script = include_str!("../../../common/ops/src/page/uplot/uPlot.iife.min.js");
        assert!(script.contains(&format!("uPlot (v{UPLOT_VERSION})")), "the named version is another one");
        assert!(crates.keys().all(|(name, version)| found.texts.contains(&format!("{name} {version}: "))));
    }
}
