//! Step 6: builds the rules with `shimrules` before the other steps, and lists them with their hits afterwards.

use super::row::Row;
use super::world::{CLOSED_PORT, ROUNDTRIP_PORT, World};
use anyhow::{Context, Result};
use serde_json::Value;

/// Ports that steps 1 to 5 use.
const PORTS: [u16; 4] = [22, 80, ROUNDTRIP_PORT, CLOSED_PORT];
/// Networks of path 1. The steps use beta's addresses in these networks.
const NETWORKS: [&str; 2] = ["10.77.1.0/24", "fd77:1::/64"];

/// Number of alpha's rules that the steps use: each port over IPv4, and port 80 (nginx) over IPv6.
const RULES_USED: usize = PORTS.len() + 1;

/// Builds the rules before the other steps. The rules let alpha try SCTP to [`PORTS`] of beta, and let beta accept SCTP on these ports.
pub(crate) fn built(world: &mut World) -> Result<Vec<Row>> {
    println!("demo: building the rules with shimrules");
    let mut row = Row::new("6", "shimrules -A");
    for port in PORTS.map(|port| port.to_string()) {
        for network in NETWORKS {
            let rule = ["-A", "-c", "remote", "-p", "enable", "-d", network, "-P", &port];
            world.alphas.shimrules(&rule)?.good()?;
            row.note(format!("alpha$ shimrules {}", rule.join(" ")));
        }
        let rule = ["-A", "-c", "local", "-p", "enable", "-P", &port];
        let betas = world.betas.as_ref().context("sctpifyd does not run on beta")?;
        betas.shimrules(&rule)?.good()?;
        row.note(format!("beta$  shimrules {}", rule.join(" ")));
    }
    row.print();
    Ok(vec![row])
}

/// Lists the rules after the other steps, and checks their hits.
pub(crate) fn listed(world: &mut World) -> Result<Vec<Row>> {
    let mut row = Row::new("6", "shimrules -L");
    let text = world.alphas.shimrules(&["-L"])?.good()?.stdout;
    row.note("alpha$ shimrules -L");
    text.lines().for_each(|line| row.note(format!("  {line}")));
    let json = world.alphas.shimrules(&["-L", "--json"])?.good()?.stdout;
    let json: Value = serde_json::from_str(&json)
        .with_context(|| format!("shimrules -L --json printed no JSON: {json}"))?;
    let hits = hits(&json);
    row.require(hits.len() == PORTS.len() * NETWORKS.len(), || {
        format!("{} rules listed on alpha", hits.len())
    });
    let used = hits.iter().filter(|hits| **hits > 0).count();
    row.require(used == RULES_USED, || {
        format!("{used} rules were hit, but {RULES_USED} were used: {hits:?}")
    });
    row.print();
    Ok(vec![row])
}

/// Returns the hits of every rule in the answer, at any depth. Default policies are left out. They have no number, because they are not
/// rules.
fn hits(value: &Value) -> Vec<u64> {
    match value {
        Value::Array(items) => items.iter().flat_map(hits).collect(),
        Value::Object(fields) if fields.contains_key("number") => {
            fields.get("hits").and_then(Value::as_u64).into_iter().collect()
        }
        Value::Object(fields) => fields.values().flat_map(hits).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::hits;
    use serde_json::json;

    #[test]
    fn hits_of_rules_are_found_and_those_of_default_policies_left_out() {
        let answer = json!({"defaults": [{"chain": "local", "hits": 9}],
            "rules": [{"number": 1, "hits": 3, "ports": "22"}, {"number": 2, "hits": 0}]});
        assert_eq!(hits(&answer), [3, 0]);
    }
}
