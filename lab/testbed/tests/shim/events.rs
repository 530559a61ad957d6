//! Tests of reports of path events in `status`, `watch --events` and the log.

use nix::sys::signal::Signal;

use crate::world::{BULK, LIMIT, PORT, World};
use serde_json::Value;
use testbed::process::wait_for;
use testbed::{Daemon, Link, Offloads, Process, Programs};

/// Two hosts on two links, a transfer from alpha to beta over the first link, and `sctpify watch --events` at alpha.
struct Story {
    world: World,
    second: Link,
    watcher: Process,
    _programs: [Process; 2],
}

impl Story {
    fn begin() -> Story {
        let world = World::new();
        let second = world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
        let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
        let send = world.client(BULK, &["send-paced", &world.target(), "100", "1000", "20000"]);
        let sender = world.alpha.spawn("sender", send).unwrap();
        // The test begins once the paths over both links are confirmed.
        let is_ready = || links(&world.alphas).len() == 2;
        assert!(wait_for(LIMIT, is_ready), "{:?}", world.alphas.sctpify(&["paths"]));
        let mut command = world.alpha.command(Programs::find().unwrap().path("sctpify"));
        command.args(["watch", "--events", "--interval", "50"]);
        command.env("SCTPIFY_CONTROL", world.alpha.dir().unwrap().join("sctpifyd/control.sock"));
        let watcher = world.alpha.spawn("watcher", command).unwrap();
        // During this pause, the watcher sends its first query. The watcher reports only events after its first query.
        std::thread::sleep(std::time::Duration::from_millis(500));
        Story { world, second, watcher, _programs: [receiver, sender] }
    }

    /// Waits until the watcher prints an event of this kind, and returns the event.
    fn await_event(&self, kind: &str) -> Value {
        let of_kind = || self.events().into_iter().find(|event| event["event"] == kind);
        assert!(
            wait_for(LIMIT, || of_kind().is_some()),
            "{}{}",
            self.watcher.stdout(),
            self.watcher.stderr()
        );
        of_kind().unwrap()
    }

    fn events(&self) -> Vec<Value> {
        self.watcher.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Returns the local IPv4 addresses of active paths.
fn links(daemon: &Daemon) -> std::collections::BTreeSet<String> {
    let report = daemon.sctpify(&["--json", "paths"]).unwrap().good().unwrap().stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    let associations = report["associations"].as_array().unwrap();
    let paths = associations.iter().flat_map(|association| association["paths"].as_array().unwrap());
    let active = paths.filter(|path| path["state"] == "active");
    active
        .map(|path| path["local"].as_str().unwrap().to_owned())
        .filter(|local| local.contains('.'))
        .collect()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn events_report_a_silent_link_and_its_return_with_name_reason_and_remaining_links() {
    let story = Story::begin();
    let (first, second) = (story.world.link.name(), story.second.name());
    story.world.link.silence().unwrap();
    let switched = story.await_event("switched");
    assert_eq!(switched["reason"], "silence", "{switched}");
    assert_eq!(switched["peer"], story.world.link.right_v4().to_string().as_str(), "{switched}");
    assert_eq!(
        (&switched["from"]["interface"], &switched["to"]["interface"]),
        (&first.as_str().into(), &second.as_str().into())
    );
    let down = story.await_event("down");
    assert_eq!(down["path"]["interface"], first.as_str(), "{down}");
    assert_eq!((&down["links_up"], &down["links"]), (&1.into(), &2.into()), "{down}");
    let status = || story.world.alphas.sctpify(&["status"]).unwrap().good().unwrap().stdout;
    assert!(wait_for(LIMIT, || status().contains("1 of 2 links work")), "{}", status());
    assert!(status().contains(&format!("data left {first} ")), "{}", status());
    story.world.link.restore().unwrap();
    let up = story.await_event("up");
    assert_eq!((&up["path"]["interface"], &up["reason"]), (&first.as_str().into(), &"answer".into()), "{up}");
    let returned = || story.events().into_iter().any(|event| event["reason"] == "primary_returned");
    assert!(wait_for(LIMIT, returned), "{:?}", story.events());
    let numbers: Vec<_> = story.events().iter().map(|event| event["number"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "none is missing: {numbers:?}");
    let log = story.world.alphas.log();
    assert!(log.contains("link works again"), "{log}");
    let downs = story.events().into_iter().filter(|event| event["event"] == "down").count();
    assert_eq!(downs, 1, "one link, one peer: {:?}", story.events());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn setting_a_link_down_is_reported_as_link_down_or_no_route() {
    let story = Story::begin();
    story.world.alpha.ip(&["link", "set", &story.world.link.name(), "down"]).unwrap();
    let switched = story.await_event("switched");
    assert!(["link_down", "no_route"].map(Value::from).contains(&switched["reason"]), "{switched}");
    assert_eq!(switched["from"]["interface"], story.world.link.name().as_str());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn loss_and_return_of_a_links_address_are_both_reported() {
    let story = Story::begin();
    let name = story.world.link.name();
    let address = format!("{}/24", story.world.link.left_v4());
    story.world.alpha.ip(&["addr", "flush", "dev", &name]).unwrap();
    let down = story.await_event("down");
    assert_eq!((&down["path"]["interface"], &down["links_up"]), (&name.as_str().into(), &1.into()), "{down}");
    assert_eq!(down["reason"], "address_removed", "{down}");
    story.world.alpha.ip(&["addr", "add", &address, "dev", &name]).unwrap();
    let up = story.await_event("up");
    assert_eq!((&up["path"]["interface"], &up["links_up"]), (&name.as_str().into(), &2.into()), "{up}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_watcher_waits_for_a_restarting_daemon_and_reads_all_its_events() {
    let mut story = Story::begin();
    let world = &mut story.world;
    world.alphas.signal(Signal::SIGTERM).unwrap();
    assert!(wait_for(LIMIT, || !world.alphas.is_running()));
    world.alphas = Daemon::restart(&world.alpha, &Programs::find().unwrap()).unwrap();
    assert!(
        wait_for(LIMIT, || story.watcher.stderr().contains("answers again")),
        "{}",
        story.watcher.stderr()
    );
    let _receiver = story.world.serve(BULK, &["receive", &PORT.to_string()]);
    let send = story.world.client(BULK, &["send-paced", &story.world.target(), "100", "1000", "20000"]);
    let _sender = story.world.alpha.spawn("second sender", send).unwrap();
    assert!(wait_for(LIMIT, || links(&story.world.alphas).len() == 2));
    story.world.link.silence().unwrap();
    assert_eq!(story.await_event("switched")["number"], 1);
}
