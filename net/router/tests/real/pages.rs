//! Tests of the router's web pages, as a browser draws them, and of the router's metrics for Prometheus.

use std::time::Duration;

use serde_json::Value;
use testbed::process::wait_for;
use testbed::{Browser, Process};

use crate::ends::{LIMIT, PORT, ROUTER};
use crate::world::World;

const PAGE: &str = "http://127.0.0.1:9896/";

impl World {
    fn get(&self, path: &str) -> String {
        let url = format!("{PAGE}{path}");
        self.middle.tool("curl", &["-s", "--max-time", "10", &url]).unwrap_or_default()
    }

    /// Starts a sender on alpha that sends for `seconds` seconds, and its receiver on beta.
    fn sending(&self, seconds: &str) -> [Process; 2] {
        let receiver = self.ends.serve(&self.ends.beta, &["receive", &PORT.to_string()]);
        let target = format!("{}:{PORT}", self.link.right_v4());
        [self.ends.bulk(&self.ends.alpha, &["send", &target, seconds, "65536"]), receiver]
    }

    /// Starts a command of the router that has a page.
    fn with_page(&self, words: &[&str]) -> Process {
        let mut command = self.middle.command(ROUTER);
        command.args(words).args(["--metrics-port", "9896"]);
        let router = self.middle.spawn("page", command).unwrap();
        assert!(wait_for(LIMIT, || !self.get("metrics").is_empty()), "{}", router.stderr());
        router
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_page_of_the_kernels_classes_draws_what_passes_and_the_metrics_count_as_tc_does() {
    let world = World::routed("udp", "percent");
    let link = world.link.name();
    world.router(&["tc", "up", &link, "--rate", "20mbit"]).good().unwrap();
    let _shown = world.with_page(&["tc", "show", &link, "--every", "1"]);
    let [sender, receiver] = world.sending("20");
    let passing = || -> f64 {
        let output: Value = serde_json::from_str(&world.get("classes.json")).unwrap();
        output["classes"].as_array().unwrap().iter().filter_map(|row| row["passing_bit_s"].as_f64()).sum()
    };
    assert!(wait_for(LIMIT, || passing() > 1e6), "{}", world.get("classes.json"));
    if let Some(browser) = Browser::find(&world.middle).unwrap() {
        let drawn = browser.drawn(PAGE).unwrap();
        assert!(drawn.contains("<td>90-100 %</td>") && drawn.contains("<td>5ba:100</td>"), "{drawn}");
        assert!(drawn.contains("Mbit/s") && drawn.contains("interval 1 s"), "{drawn}");
        browser.picture(PAGE).unwrap();
    }
    sender.finish(LIMIT).unwrap().good().unwrap();
    receiver.finish(LIMIT).unwrap().good().unwrap();
    let series = format!("sctpify_tc_packets_total{{interface=\"{link}\",class=\"");
    let counted = || -> std::collections::BTreeMap<String, u64> {
        let metrics = world.get("metrics");
        let rows = metrics.lines().filter_map(|line| line.strip_prefix(&series));
        let rows = rows.map(|row| {
            let (class, rest) = row.split_once('"').unwrap();
            (class.to_owned(), rest.rsplit_once(' ').unwrap().1.parse().unwrap())
        });
        rows.filter(|(class, packets)| class != "5ba:1" && *packets > 0).collect()
    };
    assert!(wait_for(LIMIT, || counted() == world.counted()), "{:?} {:?}", counted(), world.counted());
    assert!(counted().len() > 2, "{:?}", counted());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_page_of_flows_draws_each_flows_rate_and_verdict_and_finds_one() {
    let world = World::readable_gap("udp", "backlog");
    let _router = world.spawn_router(&["run", "left", "right", "--rate", "10mbit"]);
    let _flows = world.with_page(&["flows", "left", "right", "--every", "1"]);
    let _sending = world.sending("40");
    let flows =
        |query: &str| -> Value { serde_json::from_str(&world.get(&format!("flows.json{query}"))).unwrap() };
    assert!(wait_for(LIMIT, || flows("")["limited_by"]["network"] != 0), "{}", flows(""));
    let port = format!("port%20{PORT}");
    let found = flows(&format!("?search={port}&count=5"));
    assert!(found["flows"].as_array().unwrap().len() >= 2, "{found}");
    assert_eq!(flows("?search=port%207&count=5")["flows"], Value::Array(Vec::new()));
    let Some(browser) = Browser::find(&world.middle).unwrap() else { return };
    let drawn = browser.drawn(PAGE).unwrap();
    assert!(drawn.contains("<td>network</td>") && drawn.contains("limited by: network"), "{drawn}");
    assert!(drawn.contains(&format!("{} port {PORT}</td>", world.link.right_v4())), "{drawn}");
    let other = browser.drawn(&format!("{PAGE}#search=nowhere")).unwrap();
    assert!(other.contains("None seen recently.") && !other.contains("<td>network</td>"), "{other}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_page_of_our_own_queues_draws_both_directions() {
    let world = World::gap("udp", "backlog");
    let _router = world.with_page(&["run", "left", "right", "--rate", "10mbit"]);
    let _sending = world.sending("30");
    std::thread::sleep(Duration::from_secs(2));
    let Some(browser) = Browser::find(&world.middle).unwrap() else { return };
    let drawn = browser.drawn(PAGE).unwrap();
    for direction in ["left → right, ltf, 10.00 Mbit/s", "right → left, ltf, 10.00 Mbit/s"] {
        assert!(drawn.contains(direction), "{drawn}");
    }
}
