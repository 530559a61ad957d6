//! `./x api`: compares the public API of the published crates with the listing in each crate's folder. So a reviewer of a change sees every
//! change of the API.
//!
//! The listing is made from rustdoc's JSON, whose format is unstable. `rust-toolchain.toml` names a stable compiler, which writes this
//! format only if the variable `RUSTC_BOOTSTRAP` is set. The dependency `public-api` of xtask must know the format's version.
//!
//! Hidden items are not listed. For a derived trait, only the impl is listed, without the trait's items. An auto trait (`Send`) is listed
//! only if a type lacks it. Begin with [`listing`].

use super::{CRATES, Published, scratch};
use crate::Outcome;
use crate::tools::{cargo, root, succeeds};
use anyhow::{Context, Result, bail, ensure};
use public_api::Builder;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Trait that the compiler derives together with `PartialEq`. The listing omits it.
const COMPILERS_OWN: &str = "core::marker::StructuralPartialEq";

/// Runs `./x api [--write]`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    match words {
        [] => {
            let faults = faults()?;
            for fault in &faults {
                println!("{fault}");
            }
            Ok(if faults.is_empty() { Outcome::Good } else { Outcome::Bad })
        }
        [word] if word == "--write" => {
            for one in &CRATES {
                let path = kept(one);
                fs::write(&path, listing(one)?).with_context(|| path.display().to_string())?;
            }
            Ok(Outcome::Good)
        }
        _ => bail!("usage: ./x api [--write]"),
    }
}

/// Returns a line for each item that is new or gone since a listing was written.
pub(crate) fn faults() -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for one in &CRATES {
        let path = kept(one);
        let old = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = path.strip_prefix(root())?.display().to_string();
        faults.extend(differences(&old, &listing(one)?).into_iter().map(|line| format!("{name}: {line}")));
    }
    if !faults.is_empty() {
        faults.push(
            "the public API has changed: a line with - breaks programs; ./x api --write keeps the new one"
                .to_owned(),
        );
    }
    Ok(faults)
}

/// Returns the path of a crate's listing.
fn kept(one: &Published) -> PathBuf {
    one.folder().join("public-api.txt")
}

/// Returns the lines that only `old` has, marked with `-`, then the lines that only `new` has, marked with `+`.
fn differences(old: &str, new: &str) -> Vec<String> {
    let set = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (old, new) = (set(old), set(new));
    let gone = old.difference(&new).map(|line| format!("- {line}"));
    gone.chain(new.difference(&old).map(|line| format!("+ {line}"))).collect()
}

/// Returns the public items of a crate, one per line.
fn listing(one: &Published) -> Result<String> {
    let target = scratch()?;
    let target_word = target.to_string_lossy();
    let mut command = cargo(&["rustdoc", "--quiet", "--lib", "--package", one.package]);
    command.args(["--features", one.features, "--target-dir", &target_word]);
    command.args(["--", "-Z", "unstable-options", "--output-format", "json"]);
    ensure!(succeeds(command.env("RUSTC_BOOTSTRAP", "1"))?, "rustdoc failed for {}", one.package);
    let json = target.join("doc").join(one.name).with_extension("json");
    let essential = items(&json, true, true)?.into_iter().collect::<BTreeSet<_>>();
    let derived = items(&json, false, true)?.into_iter().collect::<BTreeSet<_>>();
    let is_listed = |item: &String| {
        essential.contains(item)
            || derived.contains(item) && item.starts_with("impl") && !item.contains(COMPILERS_OWN)
            || item.contains(" !core::marker::")
    };
    let mut text = items(&json, false, false)?.into_iter().filter(is_listed).collect::<Vec<_>>().join("\n");
    text.push('\n');
    Ok(text)
}

/// Returns the items in rustdoc's JSON, in the order of their paths. `omits_derived` leaves out derived impls, and `omits_auto` leaves out
/// impls of auto traits.
fn items(json: &Path, omits_derived: bool, omits_auto: bool) -> Result<Vec<String>> {
    let builder = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_derived_impls(omits_derived)
        .omit_auto_trait_impls(omits_auto);
    let api = builder.build().context(
        "this compiler's JSON is unknown to public-api: change its version in Cargo.toml with the compiler's",
    )?;
    Ok(api.items().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn items_that_went_come_before_those_that_are_new() {
        let lines = differences("pub fn a()\npub fn b()\n", "pub fn b()\npub fn c()\n");
        assert_eq!(lines, ["- pub fn a()", "+ pub fn c()"]);
    }

    #[test]
    fn equal_listings_differ_in_nothing() {
        assert!(differences("pub fn a()\n", "pub fn a()\n").is_empty());
    }
}
