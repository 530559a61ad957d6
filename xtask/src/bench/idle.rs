//! Monthly traffic of an idle link, without a policy and as a backup link. Heartbeats cause this traffic.
//!
//! A client has two uplinks, and one idle connection with its own association to a server with one address. The benchmark counts all IP
//! packets that the interface of the second uplink sends and receives. One such pair of hosts runs for each policy. The pairs run at once,
//! because they mostly wait.

use super::report::Report;
use anyhow::{Context, Result, ensure};
use pages::stats::{percentile, spread};
use pages::{Limit, Table};
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, Tools};
use testbed::process::wait_for;
use testbed::{Host, Lab, Link, Offloads, Process};

/// Policies of the second uplink: name, link setting (empty for no policy), and limit on the traffic in MB a month.
const POLICIES: [(&str, &str, Option<f64>); 3] = [
    ("none (1 s)", "", None),
    ("use=backup (30 s)", "path2 use=backup", Some(50.0)),
    ("use=backup heartbeat_s=120", "path2 use=backup heartbeat_s=120", Some(50.0)),
];
/// Number of measured windows.
const WINDOWS: usize = 5;
/// Length of each window.
const WINDOW: Duration = Duration::from_secs(120);
/// Time before the first window, in which the daemons find the MTU of all paths.
const SETTLED: Duration = Duration::from_secs(45);
/// Length of a month, in seconds.
const MONTH_S: f64 = 30.0 * 24.0 * 3600.0;
/// Length of the Ethernet header in octets. A mobile link does not carry this header.
const ETHERNET: u64 = 14;
/// Limit on the wait until both paths work.
const LIMIT: Duration = Duration::from_secs(20);

/// Measures and judges everything.
pub(crate) fn run(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    let hosts = (1..).zip(POLICIES).map(|(n, (_, policy, _))| Idle::new(lab, tools, n, policy));
    let hosts: Vec<Idle> = hosts.collect::<Result<_>>()?;
    sleep(SETTLED);
    let mut months: [Vec<f64>; POLICIES.len()] = Default::default();
    let mut before: Vec<u64> = hosts.iter().map(Idle::octets).collect::<Result<_>>()?;
    for _ in 0..WINDOWS {
        sleep(WINDOW);
        for ((host, before), months) in hosts.iter().zip(&mut before).zip(&mut months) {
            let now = host.octets()?;
            let octets = now.saturating_sub(std::mem::replace(before, now)) as f64;
            months.push(octets / WINDOW.as_secs_f64() * MONTH_S / 1e6);
        }
    }
    let head = ["policy of the second uplink", "MB a month: median (least-greatest)"];
    let mut table = Table::new("One idle association, one path, both ways together", head);
    for ((name, _, limit), months) in POLICIES.iter().zip(&months) {
        table.row([(*name).to_owned(), spread(months)]);
        if let Some(limit) = limit {
            report.judge(format!("idle link, {name}, MB a month"), months, Limit::AtMost(*limit));
        }
    }
    report.show(table);
    let ratio = percentile(&months[0], 50) / percentile(&months[1], 50);
    report.remark(format!("Without a policy the link costs {ratio:.0} times as much as a backup."));
    for host in &hosts {
        ensure!(host.has_both(), "a path was lost during the run");
    }
    Ok(())
}

/// A pair of hosts with an idle connection.
struct Idle {
    client: Host,
    second: Link,
    daemons: Daemons,
    _links: Link,
    _programs: [Process; 2],
}

impl Idle {
    fn new(lab: &Lab, tools: &Tools, number: u8, policy: &str) -> Result<Idle> {
        let pair = Pair::new(lab, &number.to_string())?;
        let first = lab.join(&pair.alpha, &pair.beta, 1, Offloads::On)?;
        let second = lab.join(&pair.alpha, &pair.beta, 2, Offloads::On)?;
        // Both uplinks reach the server's one address.
        let (server, by, own) = (first.right_v4().to_string(), second.name(), second.left_v4().to_string());
        pair.alpha.ip(&["route", "add", &server, "dev", &by, "src", &own, "metric", "600"])?;
        let settings = "carriers = \"udp\"\nstreams = \"own\"\ninterfaces = ";
        let alphas = format!("{settings}\"10.77.0.0/16\"\n");
        let betas = format!("{settings}\"{server}\"\n");
        let daemons = pair.start_daemons_each(tools, &alphas, &betas)?;
        if !policy.is_empty() {
            daemons.alphas.sctpify(&["set", &format!("link={policy}")])?.good()?;
        }
        let kept = pair.serve(&tools.bulk, &["keep", &SHIM_PORT.to_string()])?;
        let mut hold = pair.alpha.command(&tools.bulk);
        hold.args(["hold", &format!("{server}:{SHIM_PORT}"), "1"]);
        let held = pair.alpha.spawn("holder", hold)?;
        let idle = Idle { client: pair.alpha, second, daemons, _links: first, _programs: [kept, held] };
        ensure!(
            wait_for(LIMIT, || idle.has_both()),
            "two links do not come up: {}",
            idle.daemons.alphas.log()
        );
        Ok(idle)
    }

    /// Reports whether both links work.
    fn has_both(&self) -> bool {
        let up = || -> Result<usize> {
            let status: Value =
                serde_json::from_str(&self.daemons.alphas.sctpify(&["status", "--json"])?.good()?.stdout)?;
            let links = status["links"].as_array().context("no links")?;
            Ok(links.iter().filter(|link| link["state"] == "up").count())
        };
        up().is_ok_and(|up| up == 2)
    }

    /// Returns the octets of all IP packets that the second uplink has sent and received so far.
    fn octets(&self) -> Result<u64> {
        let output: Value = serde_json::from_str(&self.client.ip(&[
            "-s",
            "-j",
            "link",
            "show",
            "dev",
            &self.second.name(),
        ])?)?;
        let count = |name: &str| {
            let value = output.pointer(&format!("/0/stats64/{name}")).and_then(Value::as_u64);
            value.with_context(|| format!("no {name}: {output}"))
        };
        let packets = count("tx/packets")? + count("rx/packets")?;
        Ok((count("tx/bytes")? + count("rx/bytes")?).saturating_sub(packets * ETHERNET))
    }
}
