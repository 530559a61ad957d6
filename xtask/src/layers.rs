//! The layer of each crate, and the check that dependencies point only downwards.
//!
//! Judges normal and build dependencies from `cargo metadata`; a dev-dependency may point upwards (an engine's
//! tests may use the simulator). Begin with [`LAYERS`].

use crate::Outcome;
use crate::tools::{cargo, output};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// The folder of every crate of the workspace, and its layer.
const LAYERS: &[(&str, u8)] = &[
    ("base", 0),
    ("version", 0),
    ("wire", 0),
    ("sctp", 1),
    ("netem", 1),
    ("sched", 1),
    ("relay", 1),
    ("rules", 1),
    ("control", 1),
    ("sip", 1),
    ("sim", 2),
    ("fuzzing", 4),
    ("differential", 4),
    ("netio", 3),
    ("stores", 3),
    ("bridge", 3),
    ("intercept", 3),
    ("sctpifyd", 4),
    ("cli", 4),
    ("linkemu", 4),
    ("router", 4),
    ("lab", 5),
    ("testbed", 4),
    ("peer", 4),
    ("sipproxy", 4),
    ("rivals", 4),
    ("xtask", 5),
];

/// The only edges allowed within a layer. Reasons: wire's types use base's, the control socket transports
/// rules, one program writes the manual pages of all, and a bridge handles frames.
const SAME_LAYER: &[(&str, &str)] =
    &[("wire", "base"), ("control", "rules"), ("cli", "linkemu"), ("cli", "router"), ("bridge", "netio")];

/// `./x layers`.
pub(crate) fn run(_: &[String]) -> Result<Outcome> {
    let text = output(&mut cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]))?;
    let faults = faults(&edges(&serde_json::from_str(&text)?)?);
    for fault in &faults {
        eprintln!("layers: {fault}");
    }
    Ok(if faults.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// Returns (crate, crate it depends on) for all crates of this workspace, plus each crate paired with itself.
fn edges(metadata: &Value) -> Result<Vec<(String, String)>> {
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array().context("cargo metadata without packages")? {
        let manifest = package["manifest_path"].as_str().context("a package without manifest")?;
        let name = Path::new(manifest).parent().and_then(folder).context("a package without folder")?;
        edges.push((name.to_owned(), name.to_owned()));
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let is_dev = dependency["kind"].as_str() == Some("dev");
            // Only those of this workspace have a path.
            let to = dependency["path"].as_str().and_then(|path| folder(Path::new(path)));
            if let Some(to) = to.filter(|_| !is_dev) {
                edges.push((name.to_owned(), to.to_owned()));
            }
        }
    }
    Ok(edges)
}

/// The folder's name, by which this project calls its crates; the published ones have others.
fn folder(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// Returns one sentence for each forbidden edge.
fn faults(edges: &[(String, String)]) -> Vec<String> {
    edges.iter().filter_map(|(from, to)| fault(from, to)).collect()
}

fn fault(from: &str, to: &str) -> Option<String> {
    let layer = |name: &str| LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer);
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
    use super::{edges, fault};
    use serde_json::json;

    #[test]
    fn an_arrow_down_is_allowed() {
        assert_eq!(fault("sctp", "wire"), None);
    }

    #[test]
    fn an_arrow_up_is_refused() {
        assert!(fault("rules", "netio").is_some_and(|text| text.contains("points up")));
    }

    #[test]
    fn an_arrow_sideways_is_refused_unless_named() {
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
}
