//! `./x bench sip-page [--quick]`: the set-up times of calls while browsers show our SIP proxy's page. The proxy has 100,000 users and
//! 1,000 standing calls.
//!
//! The first part measures the lengths of the answers to the page's requests, and their durations compared with the duration for
//! `/status.json`. The second part measures calls at a fixed rate without viewers, then with three browsers that search for a missing
//! entry. Then the second part measures calls while a program repeatedly requests the whole list of contacts. A ratio compares two set-up
//! times of the same round. The medians of the ratios are judged.

use super::super::report::Report;
use super::contender::{CALLED, Contender, Running};
use super::number;
use anyhow::{Context, Result, ensure};
use pages::stats::{percentile, spread};
use pages::{Limit, Table};
use std::time::Duration;
use testbed::pair::Tools;
use testbed::{Lab, Process};

const PAGE: &str = "http://127.0.0.1:9898/";
/// Maximum length of an answer to a request of the page, in KiB.
const PART_GOAL_KIB: f64 = 64.0;
/// Limit on the median set-up time of a call with viewers, as a multiple of the time without viewers.
const LOOKED_AT_GOAL: f64 = 1.5;
const LIMIT: Duration = Duration::from_secs(900);

/// Requests to measure. The page sends requests like the first five each second. Programs send the last two, which return whole lists.
const REQUESTS: [&str; 7] = [
    "status.json",
    "contacts.json?count=50",
    "contacts.json?count=50&search=nobody",
    "dialogs.json?count=50",
    "dialogs.json?count=50&search=nobody",
    "contacts.json",
    "dialogs.json",
];

/// Python program of a viewer. With the argument `page` it sends the requests of a browser that searches for a missing entry. With `whole`
/// it requests the whole list of contacts repeatedly.
const LOOKER: &str = r#"
import json, sys, time, urllib.parse, urllib.request
def ask(name):
    return urllib.request.urlopen("http://127.0.0.1:9898/" + name, timeout=60).read()
print("looks", flush=True)
while sys.argv[1] == "whole":
    ask("contacts.json")
while True:
    ask("status.json")
    for name in ["contacts", "dialogs", "connections"]:
        after = ""
        for _ in range(20):
            answer = json.loads(ask(name + ".json?search=nobody&count=50" + after))
            if answer.get("next") is None:
                break
            after = "&after=" + urllib.parse.quote(answer["next"])
    time.sleep(1)
"#;

/// Groups of viewers: a name, and the argument of each viewer's [`LOOKER`].
const VIEWERS: [(&str, &[&str]); 3] =
    [("nobody", &[]), ("three browsers", &["page"; 3]), ("one with all lists", &["whole"])];

struct Size {
    users: &'static str,
    standing: u32,
    rounds: usize,
    calls: &'static str,
}

/// Measures and judges.
///
/// # Errors
/// When a program is missing or does not start.
pub(crate) fn run(lab: &Lab, is_quick: bool, tools: &Tools, report: &mut Report) -> Result<()> {
    let size = if is_quick {
        Size { users: "10000", standing: 100, rounds: 1, calls: "200" }
    } else {
        Size { users: "100000", standing: 1000, rounds: 5, calls: "1000" }
    };
    let host = lab.host("page")?;
    let store = host.dir()?.join("sip.db");
    let keys = format!("page_port = 9898\nstore = \"{}\"\n", store.display());
    let proxy = Contender::Ours.start_with(host, tools, &keys)?;
    let many = proxy.spawn(tools, "udp", "many", &["--users", size.users, "--at-once", "64"])?;
    many.finish(LIMIT)?.good()?;
    let bob = super::callee(&proxy, tools, "udp")?;
    let standing = stand(&proxy, tools, size.standing)?;
    answers(&proxy, report)?;
    let ratios = (0..size.rounds).map(|_| round(&proxy, tools, size.calls)).collect::<Result<Vec<_>>>()?;
    drop((standing, bob));
    judge(&ratios, report);
    Ok(())
}

/// Starts `calls` calls that stay up, and waits until they are established.
fn stand(proxy: &Running, tools: &Tools, calls: u32) -> Result<Process> {
    let count = calls.to_string();
    let words = ["--no-register", "--call", CALLED, "--calls", &count, "--rate", "200", "--duration", "3600"];
    let standing = proxy.spawn(tools, "udp", "alice", &words)?;
    let counted = || -> Result<f64> {
        let output = proxy.host().tool("curl", &["-s", &format!("{PAGE}status.json")])?;
        number(&serde_json::from_str(&output).context("no status")?, "/dialogs")
    };
    let is_there = || counted().is_ok_and(|dialogs| dialogs >= f64::from(calls));
    ensure!(testbed::process::wait_for(LIMIT, is_there), "{calls} calls are not established");
    Ok(standing)
}

/// Shows the lengths and durations of the answers. Judges the length of the longest answer to the page.
fn answers(proxy: &Running, report: &mut Report) -> Result<()> {
    let (mut status_s, mut longest_kib) = (0.0, 0.0_f64);
    let mut table = Table::new("Answers", ["request", "KiB", "time, by status.json's"]);
    for request in REQUESTS {
        let mut looks = Vec::new();
        let mut bytes = 0.0_f64;
        for _ in 0..9 {
            let words = ["-s", "-o", "/dev/null", "-w", "%{size_download} %{time_total}"];
            let output = proxy.host().tool("curl", &[&words[..], &[&format!("{PAGE}{request}")]].concat())?;
            let (size, time) = output.trim().split_once(' ').context("curl reports nothing")?;
            bytes = size.parse()?;
            looks.push(time.parse()?);
        }
        let median_s = percentile(&looks, 50);
        if request == REQUESTS[0] {
            status_s = median_s;
        }
        let kib = bytes / 1024.0;
        table.row([request.to_owned(), format!("{kib:.1}"), format!("{:.1}", median_s / status_s)]);
        if request.contains("count") || request == REQUESTS[0] {
            longest_kib = longest_kib.max(kib);
        }
    }
    report.show(table);
    report.judge("longest answer to the page, KiB", &[longest_kib], Limit::AtMost(PART_GOAL_KIB));
    Ok(())
}

/// Measures one round. Returns the median and the 99th percentile of set-up times with each group of viewers, as multiples of the values
/// without viewers.
fn round(proxy: &Running, tools: &Tools, calls: &str) -> Result<Vec<[f64; 2]>> {
    let mut measured = Vec::new();
    for (name, kinds) in VIEWERS {
        let lookers = kinds.iter().map(|kind| look(proxy, kind)).collect::<Result<Vec<_>>>()?;
        let words = ["--no-register", "--call", CALLED, "--duration", "0", "--calls", calls, "--rate", "200"];
        let report = proxy.agent(tools, "udp", "carol", &words)?;
        lookers.into_iter().for_each(Process::stop);
        ensure!(number(&report, "/calls_failed")? == 0.0, "calls fail with viewer {name}: {report}");
        measured
            .push([number(&report, "/calls_answered/ms_p50")?, number(&report, "/calls_answered/ms_p99")?]);
    }
    let alone = measured[0];
    let ratios: Vec<[f64; 2]> =
        measured[1..].iter().map(|one| [one[0] / alone[0], one[1] / alone[1]]).collect();
    for ((name, _), [median, high]) in VIEWERS[1..].iter().zip(&ratios) {
        println!("set-up with viewer {name:<18}: p50 {median:.2}, p99 {high:.2} of that without viewers");
    }
    Ok(ratios)
}

fn look(proxy: &Running, kind: &str) -> Result<Process> {
    let mut command = proxy.host().command("python3");
    command.args(["-c", LOOKER, kind]);
    let mut looker = proxy.host().spawn("looker", command)?;
    looker.wait_until("looking", LIMIT, |looker| looker.stdout().contains("looks"))?;
    Ok(looker)
}

fn judge(rounds: &[Vec<[f64; 2]>], report: &mut Report) {
    let caption = "Set-up times while somebody looks, by those while nobody does: median (least-greatest)";
    let mut table = Table::new(caption, ["who looks", "p50", "p99"]);
    for (viewers, (name, _)) in VIEWERS[1..].iter().enumerate() {
        let of = |which: usize| rounds.iter().map(|ratios| ratios[viewers][which]).collect::<Vec<f64>>();
        let [p50, p99] = [0, 1].map(of);
        table.row([(*name).to_owned(), spread(&p50), spread(&p99)]);
        report.judge(format!("p50 of set-up with {name}"), &p50, Limit::AtMost(LOOKED_AT_GOAL));
    }
    report.show(table);
}
