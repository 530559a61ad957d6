//! Tests of the policies of links (`[[link]]`), of failover between links, and of the commands and metrics that
//! report on links.

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::process::wait_for;
use testbed::{Daemon, Link, Offloads, Process, Programs};

use crate::world::{BULK, LIMIT, PORT, TwoUplinks, World, status};

/// Two hosts that two links join, and a transfer from alpha to beta.
struct Story {
    world: World,
    second: Link,
    _programs: [Process; 2],
}

impl Story {
    /// Sets alpha's policies, and then begins the transfer. The links' names replace `%1` and `%2` in the
    /// policies.
    fn begin(policies: &str) -> Story {
        let world = World::new();
        let second = world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
        let story = |world: World, second: Link| {
            let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
            let send = world.client(BULK, &["send-paced", &world.target(), "200", "1000", "20000"]);
            let sender = world.alpha.spawn("sender", send).unwrap();
            Story { world, second, _programs: [receiver, sender] }
        };
        set(&world.alphas, policies, &world.link, &second);
        story(world, second)
    }

    /// Waits until each daemon reports two or more links, and reports `link` as the only link that carries
    /// data.
    fn await_data_by(&self, link: &Link) {
        let betas = self.world.betas.as_ref().unwrap();
        let name = link.name();
        for daemon in [&self.world.alphas, betas] {
            assert!(
                wait_for(LIMIT, || {
                    let links = links(daemon);
                    links.len() >= 2 && used(&links) == [name.as_str()]
                }),
                "{name}: {:?}",
                links(daemon)
            );
        }
    }
}

/// Sets the policies of a daemon's links.
fn set(daemon: &Daemon, policies: &str, first: &Link, second: &Link) {
    let policies = policies.replace("%1", &first.name()).replace("%2", &second.name());
    daemon.sctpify(&["set", &format!("link={policies}")]).unwrap().good().unwrap();
}

/// Returns the links in a daemon's status, as JSON objects.
fn links(daemon: &Daemon) -> Vec<Value> {
    status(daemon)["links"].as_array().unwrap().clone()
}

/// Returns the names of the links that carry data.
fn used(links: &[Value]) -> Vec<&str> {
    let in_use = links.iter().filter(|link| link["in_use"] == true);
    in_use.map(|link| link["interface"].as_str().unwrap()).collect()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_backup_carries_data_of_both_hosts_only_while_the_other_link_is_cut() {
    let story = Story::begin("%1 name=lte use=backup; %2 name=fibre");
    let (first, second) = (&story.world.link, &story.second);
    story.await_data_by(second);
    let alphas = &story.world.alphas;
    let backup = links(alphas).into_iter().find(|link| link["interface"] == first.name().as_str()).unwrap();
    assert_eq!((&backup["name"], &backup["use"]), (&"lte".into(), &"backup".into()), "{backup}");
    let betas = story.world.betas.as_ref().unwrap();
    let is_told = || {
        let first = |link: &&Value| link["interface"] == first.name().as_str();
        links(betas).iter().find(first).is_some_and(|link| link["use"] == "backup")
    };
    assert!(wait_for(LIMIT, is_told), "{:?}", links(betas));
    second.silence().unwrap();
    story.await_data_by(first);
    second.restore().unwrap();
    story.await_data_by(second);
    let shown = alphas.sctpify(&["status"]).unwrap().good().unwrap().stdout;
    assert!(shown.contains(&format!("{} (fibre)", second.name())), "{shown}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_new_link_policy_moves_a_live_connection_and_an_excluded_link_loses_its_path() {
    let story = Story::begin("");
    let (first, second) = (&story.world.link, &story.second);
    story.await_data_by(first);
    set(&story.world.alphas, "%2 use=primary", first, second);
    story.await_data_by(second);
    set(&story.world.alphas, "%2 use=never", first, second);
    let alphas = &story.world.alphas;
    let own = second.left_v4().to_string();
    let paths = || alphas.sctpify(&["paths"]).unwrap().good().unwrap().stdout;
    assert!(wait_for(LIMIT, || !paths().contains(&own)), "{}", paths());
    assert!(wait_for(LIMIT, || used(&links(alphas)) == [first.name().as_str()]), "{:?}", links(alphas));
    set(alphas, "", first, second);
    assert!(wait_for(LIMIT, || paths().contains(&own)), "{}", paths());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_uplink_that_gets_its_route_after_its_address_carries_live_connections_again() {
    let world = TwoUplinks::new();
    // Events about addresses of IPv6 would make the daemon look at the routes, too.
    world.alpha.tool("sysctl", &["-q", "-w", "net.ipv6.conf.all.disable_ipv6=1"]).unwrap();
    let _receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
    let mut send = world.alpha.command(BULK);
    send.args(["send-paced", &world.target(), "200", "1000", "20000"]);
    let _sender = world.alpha.spawn("sender", send).unwrap();
    let (address, name) = (world.uplinks[1].left_v4().to_string(), world.uplinks[1].name());
    let paths = || world.alphas.sctpify(&["paths"]).unwrap().good().unwrap().stdout;
    // The connection's association and the shared one.
    let is_whole = || paths().matches(&address).count() == 2 && !paths().contains("unconfirmed");
    assert!(wait_for(LIMIT, is_whole), "{}", paths());
    let with_prefix = format!("{address}/24");
    world.alpha.ip(&["address", "del", &with_prefix, "dev", &name]).unwrap();
    assert!(wait_for(LIMIT, || !paths().contains(&address)), "{}", paths());
    world.alpha.ip(&["address", "add", &with_prefix, "dev", &name]).unwrap();
    // The daemon has seen the address before its route comes.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let via = world.uplinks[1].right_v4().to_string();
    world.alpha.ip(&["route", "add", "default", "via", &via, "dev", &name, "metric", "20"]).unwrap();
    assert!(wait_for(LIMIT, is_whole), "{}", paths());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_address_that_may_be_used_again_while_its_removal_is_pending_comes_back() {
    let story = Story::begin("");
    let (first, second) = (&story.world.link, &story.second);
    story.await_data_by(first);
    let alphas = &story.world.alphas;
    let own = second.left_v4().to_string();
    first.silence().unwrap();
    story.await_data_by(second);
    // The peer cannot answer before the first link works again.
    set(alphas, "%2 use=never", first, second);
    set(alphas, "", first, second);
    first.restore().unwrap();
    let is_removed = || alphas.log().contains(&format!("Remove({own})"));
    assert!(wait_for(LIMIT, is_removed), "{}", alphas.log());
    let paths = || alphas.sctpify(&["paths"]).unwrap().good().unwrap().stdout;
    assert!(wait_for(LIMIT, || paths().contains(&own)), "{}", paths());
}

/// Sends bytes over a link for a second, as plain TCP.
fn burden(world: &World, link: &Link) {
    let plain_port = (PORT + 200).to_string();
    let receiver = world.serve(BULK, &["receive", &plain_port]);
    let send = world.client(BULK, &["send", &format!("{}:{plain_port}", link.right_v4()), "1", "65536"]);
    world.alpha.run("plain sender", send, LIMIT).unwrap().good().unwrap();
    receiver.finish(LIMIT).unwrap().good().unwrap();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_link_that_reaches_its_cap_is_a_backup_or_unused_also_after_a_restart() {
    let mut story = Story::begin("%2 name=lte use=primary cap_mb=5 at_cap=backup");
    story.await_data_by(&story.second);
    let caps = |daemon: &Daemon| status(daemon)["link_caps"].as_array().unwrap().clone();
    let is_reached = |daemon: &Daemon| caps(daemon).first().is_some_and(|cap| cap["is_reached"] == true);
    assert!(wait_for(LIMIT, || caps(&story.world.alphas).len() == 1), "no count");
    assert!(!is_reached(&story.world.alphas), "{:?}", caps(&story.world.alphas));
    burden(&story.world, &story.second);
    assert!(wait_for(LIMIT, || is_reached(&story.world.alphas)), "{:?}", caps(&story.world.alphas));
    story.await_data_by(&story.world.link);
    let cap = caps(&story.world.alphas).remove(0);
    assert_eq!((&cap["name"], &cap["at_cap"]), (&"lte".into(), &"backup".into()), "{cap}");
    let shown = story.world.alphas.sctpify(&["status"]).unwrap().good().unwrap().stdout;
    assert!(
        shown.contains(&format!("{} (lte)", story.second.name())) && shown.contains("REACHED"),
        "{shown}"
    );
    // A policy that never uses the link at the cap applies at once.
    set(&story.world.alphas, "%2 use=primary cap_mb=5", &story.world.link, &story.second);
    let own = story.second.left_v4().to_string();
    let has_path =
        |daemon: &Daemon| daemon.sctpify(&["paths"]).unwrap().good().unwrap().stdout.contains(&own);
    assert!(wait_for(LIMIT, || !has_path(&story.world.alphas)), "the path stays");
    // A new daemon goes on counting.
    let alphas = &mut story.world.alphas;
    alphas.signal(Signal::SIGTERM).unwrap();
    assert!(wait_for(LIMIT, || !alphas.is_running()));
    *alphas = Daemon::restart(&story.world.alpha, &Programs::find().unwrap()).unwrap();
    assert!(wait_for(LIMIT, || is_reached(&story.world.alphas)), "{:?}", caps(&story.world.alphas));
    let bytes = caps(&story.world.alphas)[0]["bytes"].as_u64().unwrap();
    assert!(bytes >= cap["bytes"].as_u64().unwrap(), "{bytes}, {cap}");
    // A higher cap ends the restriction.
    set(&story.world.alphas, "%2 use=primary cap_mb=900000", &story.world.link, &story.second);
    assert!(wait_for(LIMIT, || !is_reached(&story.world.alphas)), "{:?}", caps(&story.world.alphas));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_history_of_links_outlives_associations_and_daemons() {
    let mut world = World::new();
    let total = |daemon: &Daemon| -> u64 {
        let report = daemon.sctpify(&["--json", "history"]).unwrap().good().unwrap().stdout;
        let report: Value = serde_json::from_str(&report).unwrap();
        let links = report["links"].as_array().unwrap().iter();
        links.map(|link| link["sent_bytes"].as_u64().unwrap()).sum()
    };
    let mut sum = 0;
    for round in 1..=2_u64 {
        let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
        let send = world.client(BULK, &["send", &world.target(), "1", "65536"]);
        world.alpha.run("sender", send, LIMIT).unwrap().good().unwrap();
        receiver.finish(LIMIT).unwrap().good().unwrap();
        let sent = status(&world.alphas)["counters"]["bytes_sent"].as_u64().unwrap();
        assert!(sent > 0, "round {round} used TCP");
        // The daemon reads the counts a last time before it ends.
        world.alphas.signal(Signal::SIGTERM).unwrap();
        assert!(wait_for(LIMIT, || !world.alphas.is_running()));
        world.alphas = Daemon::restart(&world.alpha, &Programs::find().unwrap()).unwrap();
        let now = total(&world.alphas);
        assert!(now >= sum + sent, "round {round}: {now} bytes, {sum} before, {sent} sent");
        sum = now;
    }
    let shown = world.alphas.sctpify(&["history"]).unwrap().good().unwrap().stdout;
    assert!(
        shown.contains(&world.link.name()) && shown.contains(&world.link.right_v4().to_string()),
        "{shown}"
    );
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn link_policies_are_read_from_the_config_file_and_an_unknown_use_is_refused() {
    let world = World::with("[[link]]\nmatch = \"no-such*\"\nname = \"lte\"\nuse = \"backup\"\n", false);
    let shown = world.alphas.sctpify(&["get", "link"]).unwrap().good().unwrap().stdout;
    assert_eq!(shown.trim(), "no-such* name=lte use=backup");
    let refused = world.alphas.sctpify(&["set", "link=eth0 use=spare"]).unwrap();
    assert!(refused.good().is_err());
}

/// Returns the report of `sctpify doctor`, and true if the command succeeded. It fails if a requirement is
/// missing. A fault of one of several links is only a warning.
fn doctor(world: &TwoUplinks, destination: &str) -> (Value, bool) {
    let output = world.alphas.sctpify(&["--json", "doctor", destination]).unwrap();
    (serde_json::from_str(&output.stdout).unwrap(), output.status.success())
}

/// Returns the result of a check in a report of `sctpify doctor`.
fn found<'a>(report: &'a Value, check: &str) -> &'a str {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().rev().find(|known| known["name"] == check);
    check.unwrap_or_else(|| panic!("{report}"))["found"].as_str().unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn doctor_tests_each_uplink_and_names_failed_uplinks_with_the_reason() {
    let world = TwoUplinks::new();
    let [first, second] = &world.uplinks;
    set(&world.alphas, "%1 name=fibre; %2 name=lte use=backup", first, second);
    let (report, is_good) = doctor(&world, &world.server());
    assert!(is_good, "{report}");
    assert_eq!(found(&report, "links"), "SCTP works by 2 of 2 links");
    for (test, link) in report["links"].as_array().unwrap().iter().zip([first, second]) {
        assert_eq!((&test["interface"], &test["answered"]), (&link.name().into(), &5.into()), "{test}");
        assert_eq!((&test["mtu"], &test["nat"]), (&1500.into(), &false.into()), "{test}");
        assert!(test["rtt"]["min_us"].as_u64().unwrap() > 0, "{test}");
    }
    // The kernel's route to the server uses the first uplink. `doctor` still succeeds without this uplink,
    // because connections can use the second uplink.
    first.silence().unwrap();
    let (report, is_good) = doctor(&world, &world.server());
    assert!(is_good, "{report}");
    let expected = format!("SCTP works by 1 of 2 links; {} (fibre): no answer", first.name());
    assert_eq!(found(&report, "links"), expected);
    assert_eq!(report["links"][0]["interface"], first.name().as_str(), "{report}");
    second.silence().unwrap();
    let (report, is_good) = doctor(&world, &world.server());
    assert!(!is_good && found(&report, "links").starts_with("SCTP works by 0 of 2 links"), "{report}");
    second.restore().unwrap();
    first.restore().unwrap();
    world.alpha.ip(&["link", "set", &second.name(), "down"]).unwrap();
    let told = || found(&doctor(&world, &world.server()).0, "links").to_owned();
    let expected = format!("SCTP works by 1 of 2 links; {} (lte): the link is down", second.name());
    assert!(wait_for(LIMIT, || told() == expected), "{}", told());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn doctor_of_a_port_reports_whether_the_peer_accepts_sctp_for_this_port() {
    let world = TwoUplinks::new();
    let port = |target: &str| found(&doctor(&world, target).0, "port").to_owned();
    assert!(port(&world.target()).contains("refuses SCTP for port"), "{}", port(&world.target()));
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    assert_eq!(port(&world.target()), format!("{} accepts SCTP for port {PORT}", world.server()));
    let other = format!("{}:{}", world.server(), PORT + 1);
    assert!(port(&other).contains("connections to it are plain TCP"), "{}", port(&other));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn ping_counts_the_losses_of_each_uplink() {
    let world = TwoUplinks::new();
    world.uplinks[1].silence().unwrap();
    let words = ["--json", "ping", &world.server(), "--count", "3", "--interval", "200"];
    let output = world.alphas.sctpify(&words).unwrap().good().unwrap().stdout;
    let rounds: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts = |link: &Value| [&link["sent"], &link["answered"]].map(|count| count.as_u64().unwrap());
    let last = rounds.last().unwrap()["links"].as_array().unwrap();
    assert_eq!((rounds.len(), last.iter().map(counts).collect()), (3, vec![[3, 3], [3, 0]]), "{output}");
    world.uplinks[0].silence().unwrap();
    assert!(world.alphas.sctpify(&words).unwrap().good().is_err(), "nothing answers");
}

/// Tests the most common setup of two uplinks. The client has two default routes and no policy routing, and the
/// server has one address.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_transfer_over_two_default_routes_survives_the_loss_of_each_uplink_in_turn() {
    let world = TwoUplinks::new();
    let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
    let mut send = world.alpha.command(BULK);
    send.args(["send-paced", &world.target(), "25", "1000", "20000"]);
    let sender = world.alpha.spawn("sender", send).unwrap();
    for uplink in [0, 1, 0] {
        let (carries, other) = (&world.uplinks[uplink], &world.uplinks[1 - uplink]);
        let is_used = || used(&links(&world.alphas)) == [carries.name().as_str()];
        assert!(wait_for(LIMIT, is_used), "{}: {:?}", carries.name(), links(&world.alphas));
        carries.silence().unwrap();
        let has_moved = || used(&links(&world.alphas)) == [other.name().as_str()];
        assert!(wait_for(LIMIT, has_moved), "{}: {:?}", other.name(), links(&world.alphas));
        carries.restore().unwrap();
    }
    let (sent, received) = (sender.finish(LIMIT * 3).unwrap(), receiver.finish(LIMIT).unwrap());
    assert!(sent.status.success() && received.status.success(), "{sent:?} {received:?}");
}

/// Returns the number of bytes that a link has carried in both directions since the daemon's start, for all
/// peers together.
fn bytes_of(daemon: &Daemon, link: &Link) -> u64 {
    let status = status(daemon);
    let all = status["link_bytes"].as_array().unwrap();
    let of_link = all.iter().find(|bytes| bytes["interface"] == link.name().as_str());
    of_link
        .map_or(0, |bytes| bytes["sent_bytes"].as_u64().unwrap() + bytes["received_bytes"].as_u64().unwrap())
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_byte_counts_of_a_link_outlive_its_associations() {
    let world = World::with("page_port = 9897\nstreams = \"own\"\n", true);
    let mut before = 0;
    for _ in 0..3 {
        let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
        let send = world.client(BULK, &["send-paced", &world.target(), "1", "10000", "10000"]);
        world.alpha.run("send", send, LIMIT).unwrap().good().unwrap();
        receiver.finish(LIMIT).unwrap().good().unwrap();
        let has_ended = || status(&world.alphas)["associations"].as_array().unwrap().is_empty();
        assert!(wait_for(LIMIT, has_ended), "{}", status(&world.alphas)["associations"]);
        let now = bytes_of(&world.alphas, &world.link);
        assert!(now > before + 900_000, "{before} and then {now} bytes");
        before = now;
    }
    let metrics = world.alpha.tool("curl", &["-s", "http://127.0.0.1:9897/metrics"]).unwrap();
    let series = format!("sctpify_link_bytes_total{{interface=\"{}\"", world.link.name());
    assert!(metrics.contains(&series), "{metrics}");
}
