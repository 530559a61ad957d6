//! Tests of the daemon's web page, its metrics, `sctpify doctor`, draining, and settings that take effect at
//! a restart.

use crate::world::{BULK, LIMIT, PORT, World};
use serde_json::Value;
use testbed::process::wait_for;
use testbed::{Browser, Daemon, Lab, Programs};

const PAGE: &str = "page_port = 9897\n";

fn curl(world: &World, args: &[&str]) -> String {
    let words = [&["-s", "-i", "--max-time", "10"], args].concat();
    world.alpha.run("curl", world.client("curl", &words), LIMIT).unwrap().good().unwrap().stdout
}

/// Makes one connection from alpha. The connection has ended on return.
fn connect_once(world: &World) {
    let server = world.serve(BULK, &["accept", &PORT.to_string()]);
    let connect = world.client(BULK, &["connect", &world.target(), "1"]);
    world.alpha.run("connect", connect, LIMIT).unwrap().good().unwrap();
    drop(server);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn metrics_and_json_tell_of_a_connection_and_the_page_needs_nothing_from_elsewhere() {
    let world = World::with(PAGE, true);
    connect_once(&world);
    let metrics = curl(&world, &["http://127.0.0.1:9897/metrics"]);
    assert!(metrics.contains("\nsctpify_connects_total{outcome=\"sctp\"} 1\n"), "{metrics}");
    let status = curl(&world, &["http://localhost:9897/status.json"]);
    let body: Value = serde_json::from_str(status.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((&body["schema"], &body["response"]), (&1.into(), &"status".into()));
    let page = curl(&world, &["http://127.0.0.1:9897/"]);
    assert!(page.contains("Content-Security-Policy: default-src 'none'"), "{page}");
    assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_page_refuses_other_names_other_methods_and_other_hosts() {
    let world = World::with(PAGE, true);
    let page = "http://127.0.0.1:9897/";
    assert!(curl(&world, &["-H", "Host: evil.example:9897", page]).starts_with("HTTP/1.1 403"));
    assert!(curl(&world, &["-X", "POST", page]).starts_with("HTTP/1.1 405"));
    let from_outside = format!("http://{}:9897/", world.link.left_v4());
    let mut command = world.beta.command("curl");
    command.args(["-s", "--max-time", "5", &from_outside]);
    let refused = world.beta.run("curl", command, LIMIT).unwrap();
    assert_eq!(refused.status.code(), Some(7), "{refused:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_browser_draws_the_paths_of_a_live_connection() {
    let world = World::with(PAGE, true);
    let _receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
    let send = world.client(BULK, &["send", &world.target(), "60", "65536"]);
    let _sender = world.alpha.spawn("sender", send).unwrap();
    assert!(wait_for(LIMIT, || world.connects_sctp() == 1));
    let Some(browser) = Browser::find(&world.alpha).unwrap() else { return };
    let drawn = browser.drawn("http://127.0.0.1:9897/").unwrap();
    assert!(drawn.contains("class=\"path active in_use\""), "{drawn}");
    assert!(
        drawn.contains("its link works; data uses ") && drawn.contains("; encrypted, peer not verified."),
        "{drawn}"
    );
    assert!(drawn.contains("aria-label=\"last 60 s: sent at most "), "{drawn}");
    assert!(drawn.contains("<canvas "), "uPlot drew the charts: {drawn}");
    assert!(drawn.contains("remote enable"), "{drawn}");
    browser.picture("http://127.0.0.1:9897/").unwrap();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn doctor_reports_whether_a_daemon_answers_at_the_peer() {
    let (with, without) = (World::new(), World::with("", false));
    let output = |world: &World| {
        let peer = world.link.right_v4().to_string();
        world.alphas.sctpify(&["doctor", &peer]).unwrap().stdout
    };
    let found = output(&with);
    assert!(found.contains(":9899 answers") && found.contains("1,400 bytes pass"), "{found}");
    let (offered, bare) = (with.link.right_v6(), with.link.right_v4());
    assert!(found.contains("it offers") && found.contains(&offered.to_string()), "{found}");
    assert!(found.contains(&format!("{bare} answers")), "{found}");
    let missed = output(&without);
    assert!(missed.contains("no program listens on UDP port 9899"), "{missed}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_draining_daemon_lets_live_connections_end_and_explain_reports_that_it_stops() {
    let world = World::new();
    let port = PORT.to_string();
    let receiver = world.serve(BULK, &["receive", &port]);
    let sender = world.client(BULK, &["send", &world.target(), "3", "65536"]);
    let sender = world.alpha.spawn("sender", sender).unwrap();
    assert!(wait_for(LIMIT, || world.connects_sctp() == 1), "the connection is not carried over SCTP");
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| world.alphas.sctpify(&["down", "--drain", "--wait", "8"]).unwrap());
        let explanation = || world.alphas.sctpify(&["explain", &world.target()]).unwrap().stdout;
        let says_so = || explanation().contains("sctpifyd is stopping");
        assert!(wait_for(LIMIT, says_so), "{}", explanation());
        let output = drain.join().unwrap().good().unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
    });
    let (sent, received) = (sender.finish(LIMIT).unwrap(), receiver.finish(LIMIT).unwrap());
    assert!(sent.status.success() && received.status.success(), "{sent:?} {received:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_page_port_that_is_taken_is_refused_and_keeps_no_daemon_from_starting() {
    let lab = Lab::new().unwrap();
    let alpha = lab.host("alpha").unwrap();
    let mut server = alpha.command("python3");
    server.args(["-c", "import socket, time; s = socket.create_server(('127.0.0.1', 9897)); print('up', flush=True); time.sleep(60)"]);
    let mut server = alpha.spawn("server", server).unwrap();
    server.wait_until("up", LIMIT, |server| server.stdout().contains("up")).unwrap();
    let daemon = Daemon::start(&alpha, &Programs::find().unwrap(), PAGE).unwrap();
    assert!(daemon.log().contains("cannot open port 9897 of 127.0.0.1 for the page"), "{}", daemon.log());
    let doctor = daemon.sctpify(&["doctor"]).unwrap().stdout;
    assert!(doctor.contains("cannot open port 9897"), "{doctor}");
    daemon.sctpify(&["set", "page_port=9896"]).unwrap().good().unwrap();
    for taken in ["page_port=9897", "page_port=22"] {
        let refused = daemon.sctpify(&["set", taken]).unwrap();
        assert!(!refused.status.success() && refused.stderr.contains("for the page"), "{taken}: {refused:?}");
    }
    let output = daemon.sctpify(&["get", "page_port"]).unwrap().good().unwrap().stdout;
    assert!(output.contains("9896"), "{output}");
    let status = daemon.sctpify(&["status"]).unwrap().stdout;
    assert!(status.contains("waiting for a restart: page_port=9896 (now 0)"), "{status}");
    daemon.stop();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn settings_that_wait_for_a_restart_are_reported_until_the_daemon_restarts() {
    let lab = Lab::new().unwrap();
    let alpha = lab.host("alpha").unwrap();
    let programs = Programs::find().unwrap();
    let daemon = Daemon::start(&alpha, &programs, "race_timer_ms = 100\n").unwrap();
    let output = |daemon: &Daemon, words: &[&str]| daemon.sctpify(words).unwrap().good().unwrap().stdout;
    let json =
        |daemon: &Daemon| -> Value { serde_json::from_str(&output(daemon, &["status", "--json"])).unwrap() };
    let config = alpha.dir().unwrap().join("sctpifyd/sctpify.toml");
    std::fs::write(&config, "race_timer_ms = 200\nmultipath = \"redundant\"\nudp_port = 9900\n").unwrap();
    let reloaded = output(&daemon, &["reload"]);
    assert!(reloaded.ends_with("; 2 changes wait for a restart: udp_port, multipath\n"), "{reloaded}");
    assert!(output(&daemon, &["status"]).contains("udp_port=9900 (now 9899), multipath=redundant (now off)"));
    assert_eq!(json(&daemon)["pending"][1]["configured"], "redundant");
    output(&daemon, &["set", "udp_port=9899"]);
    let got = output(&daemon, &["get"]);
    assert!(got.contains("IN FORCE") && got.contains("multipath=redundant waits for a restart"), "{got}");
    assert!(!got.contains("udp_port=9899 waits"), "{got}");
    daemon.stop();
    let daemon = Daemon::restart(&alpha, &programs).unwrap();
    assert!(json(&daemon)["pending"].as_array().unwrap().is_empty());
    assert!(output(&daemon, &["reload"]).ends_with("reloaded\n"));
    daemon.stop();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_setting_made_without_a_daemon_is_in_force_from_its_next_start() {
    let lab = Lab::new().unwrap();
    let alpha = lab.host("alpha").unwrap();
    let programs = Programs::find().unwrap();
    let daemon = Daemon::start(&alpha, &programs, PAGE).unwrap();
    let sctpify = |words: &[&str]| {
        let dir = alpha.dir().unwrap().join("sctpifyd");
        let mut command = alpha.command(programs.path("sctpify"));
        command.args(words).env("SCTPIFY_CONTROL", dir.join("control.sock"));
        command.env("SCTPIFY_CONFIG", dir.join("sctpify.toml"));
        alpha.run("sctpify", command, LIMIT).unwrap()
    };
    daemon.stop();
    let set = sctpify(&["set", "page_port=9896", "multipath=redundant"]).good().unwrap();
    assert!(set.stderr.contains("no daemon is listening on"), "{set:?}");
    assert_eq!(sctpify(&["get", "page_port"]).good().unwrap().stdout, "9896\n");
    let daemon = Daemon::restart(&alpha, &programs).unwrap();
    let got = daemon.sctpify(&["get", "--json"]).unwrap().good().unwrap().stdout;
    assert!(got.contains("\"value\":\"redundant\",\"in_force\":\"redundant\""), "{got}");
    let mut curl = alpha.command("curl");
    curl.args(["-s", "--max-time", "5", "http://127.0.0.1:9896/status.json"]);
    alpha.run("curl", curl, LIMIT).unwrap().good().unwrap();
    daemon.stop();
}
