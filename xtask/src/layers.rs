//! The layer of each crate, and the check that dependencies point only downwards. Also the table of crates in `ARCHITECTURE.md`.
//!
//! Judges normal and build dependencies from `cargo metadata`. Dev-dependencies may point upwards. For example, an engine's tests may use
//! the simulator. The descriptions in the table come from the crates' manifests. Begin with [`LAYERS`].

use crate::Outcome;
use crate::tools::{cargo, output, root};
use anyhow::{Context, Result, bail};
use pages::Markers;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Folder of each crate of the workspace, and its layer as an index of [`LAYER_NAMES`].
const LAYERS: &[(&str, usize)] = &[
    ("base", 0),
    ("version", 0),
    ("ops", 0),
    ("wire", 0),
    ("sockproto", 0),
    ("sctp", 1),
    ("netem", 1),
    ("sched", 1),
    ("relay", 1),
    ("rules", 1),
    ("control", 1),
    ("sockets", 1),
    ("sip", 1),
    ("sim", 2),
    ("netio", 3),
    ("sctp_tokio", 3),
    ("keying", 3),
    ("stores", 3),
    ("bridge", 3),
    ("intercept", 3),
    ("sockserver", 3),
    ("sockclient", 3),
    ("usernotif", 3),
    ("sctpifyd", 4),
    ("cli", 4),
    ("libsctpify", 4),
    ("linkemu", 4),
    ("router", 4),
    ("sipproxy", 4),
    ("peer", 4),
    ("fuzzing", 5),
    ("differential", 5),
    ("pages", 5),
    ("rivals", 5),
    ("testbed", 5),
    ("lab", 6),
    ("xtask", 6),
];

/// Names of the layers, from the lowest on.
const LAYER_NAMES: [&str; 7] =
    ["foundations", "engines", "simulation", "input and output", "programs", "test tools", "experiments"];

/// The only allowed dependencies between crates of the same layer, for these reasons:
///
/// - `wire` uses the types of `base`.
/// - `control` carries the daemon's rules, whose types are in `rules`.
/// - `sockets` presents the engine's associations to programs.
/// - `sockserver`, `sctp_tokio` and `bridge` send and receive packets or frames with `netio`.
/// - `usernotif` performs the same calls as the library `sockclient`.
const SAME_LAYER: &[(&str, &str)] = &[
    ("wire", "base"),
    ("control", "rules"),
    ("sockets", "sctp"),
    ("sockserver", "netio"),
    ("sctp_tokio", "netio"),
    ("usernotif", "sockclient"),
    ("bridge", "netio"),
];

/// Page with the table of crates.
const PAGE: &str = "ARCHITECTURE.md";

/// Runs `./x layers [--write]`.
pub(crate) fn run(args: &[String]) -> Result<Outcome> {
    let text = output(&mut cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]))?;
    let metadata = serde_json::from_str(&text)?;
    let mut faults = faults(&edges(&metadata)?);
    let page = fs::read_to_string(root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let markers = Markers::new("layers", "./x layers --write");
    let wanted = markers.replace(&page, &table(&metadata)?).context(PAGE)?;
    match args {
        [] if page != wanted => {
            faults.push(format!("the table in {PAGE} is out of date: run `./x layers --write`"))
        }
        [] => {}
        [flag] if flag == "--write" => fs::write(root().join(PAGE), wanted)?,
        _ => bail!("usage: ./x layers [--write]"),
    }
    for fault in &faults {
        eprintln!("layers: {fault}");
    }
    Ok(if faults.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// Returns the table of all crates, from the highest layer down.
fn table(metadata: &Value) -> Result<String> {
    let mut rows = Vec::new();
    for package in packages(metadata)? {
        let path = crate_path(package)?;
        let name = folder(path).context("a package without folder")?;
        let below_root = path.strip_prefix(root()).unwrap_or(path).display().to_string();
        let description = package["description"].as_str().unwrap_or_default();
        rows.push((layer(name).unwrap_or_default(), below_root, name, description));
    }
    rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let mut text = "| layer | crate | contents |\n|---|---|---|\n".to_owned();
    let mut last = None;
    for (layer, path, name, description) in rows {
        let heading =
            if last == Some(layer) { String::new() } else { format!("{layer} {}", LAYER_NAMES[layer]) };
        last = Some(layer);
        writeln!(text, "| {heading} | [`{name}`]({path}) | {description} |")?;
    }
    Ok(text)
}

/// Returns a pair of crates for each dependency within this workspace: the dependent crate, then its dependency. Also returns each crate
/// paired with itself, so a crate without dependencies is checked too.
fn edges(metadata: &Value) -> Result<Vec<(String, String)>> {
    let mut edges = Vec::new();
    for package in packages(metadata)? {
        let name = folder(crate_path(package)?).context("a package without folder")?;
        edges.push((name.to_owned(), name.to_owned()));
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let is_dev = dependency["kind"].as_str() == Some("dev");
            // Only crates of this workspace have a path.
            let to = dependency["path"].as_str().and_then(|path| folder(Path::new(path)));
            if let Some(to) = to.filter(|_| !is_dev) {
                edges.push((name.to_owned(), to.to_owned()));
            }
        }
    }
    Ok(edges)
}

fn packages(metadata: &Value) -> Result<&Vec<Value>> {
    metadata["packages"].as_array().context("cargo metadata without packages")
}

/// Returns the crate's directory.
fn crate_path(package: &Value) -> Result<&Path> {
    let manifest = package["manifest_path"].as_str().context("a package without manifest")?;
    Path::new(manifest).parent().context("a manifest without folder")
}

/// Returns the name of a crate's folder. This project calls the crate by this name, but a published crate has another package name.
fn folder(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// Returns one sentence for each forbidden dependency.
fn faults(edges: &[(String, String)]) -> Vec<String> {
    edges.iter().filter_map(|(from, to)| fault(from, to)).collect()
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

fn fault(from: &str, to: &str) -> Option<String> {
    let Some(above) = layer(from) else {
        return Some(format!("{from} has no layer: add it to LAYERS in xtask/src/layers.rs"));
    };
    let below = layer(to)?;
    if from == to || above > below || SAME_LAYER.contains(&(from, to)) {
        return None;
    }
    let direction = if above == below { "sideways" } else { "up" };
    Some(format!("{from} (layer {above}) depends on {to} (layer {below}): that arrow points {direction}"))
}

#[cfg(test)]
mod tests {
    use super::{edges, fault, table};
    use serde_json::json;

    #[test]
    fn a_dependency_on_a_lower_layer_is_allowed() {
        assert_eq!(fault("sctp", "wire"), None);
    }

    #[test]
    fn a_dependency_on_a_higher_layer_is_refused() {
        assert!(fault("rules", "netio").is_some_and(|text| text.contains("points up")));
    }

    #[test]
    fn a_dependency_within_a_layer_is_refused_unless_listed() {
        assert!(fault("relay", "sctp").is_some_and(|text| text.contains("sideways")));
        assert_eq!(fault("control", "rules"), None);
    }

    #[test]
    fn a_crate_without_layer_is_refused() {
        assert!(fault("newcomer", "newcomer").is_some());
    }

    #[test]
    fn dev_dependencies_and_other_peoples_crates_are_not_judged() {
        let metadata = json!({"packages": [{"name": "sctp-engine", "manifest_path": "/p/sctp/Cargo.toml", "dependencies": [
            {"name": "sim", "path": "/p/sim", "kind": "dev"}, {"name": "bytes", "kind": null},
            {"name": "sctp-engine-wire", "path": "/p/wire", "kind": null}]}]});
        let edges = edges(&metadata).unwrap();
        assert_eq!(edges, [("sctp".into(), "sctp".into()), ("sctp".into(), "wire".into())]);
    }

    #[test]
    fn the_table_has_the_highest_layer_first_and_names_each_layer_once() {
        let metadata = json!({"packages": [
            {"manifest_path": "/p/engine/wire/Cargo.toml", "description": "packets"},
            {"manifest_path": "/p/daemon/sctpifyd/Cargo.toml", "description": "the daemon"},
            {"manifest_path": "/p/engine/base/Cargo.toml", "description": "time"}]});
        let expected = "| layer | crate | contents |\n|---|---|---|\n\
                        | 4 programs | [`sctpifyd`](/p/daemon/sctpifyd) | the daemon |\n\
                        | 0 foundations | [`base`](/p/engine/base) | time |\n|  | [`wire`](/p/engine/wire) | packets |\n";
        assert_eq!(table(&metadata).unwrap(), expected);
    }
}
