//! Tests the commands against a fake daemon on the control socket: output, error texts, exit status.

mod fake;
mod settings;
mod top;

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use control::{Check, Response, read_request, read_response};
use rules::{Chain, Failure, Outcome, UnixMs};
use tempfile::TempDir;

use fake::{FakeDaemon, answer_in, status};

const SCTPIFY: &str = env!("CARGO_BIN_EXE_sctpify");
const SHIMRULES: &str = env!("CARGO_BIN_EXE_shimrules");

/// Lock for the start of a process and for the writing of a program file. Without the lock, a child process of another test could inherit a
/// program file that is open for writing. The kernel would then refuse to run the program ("text file busy").
static FORKS: Mutex<()> = Mutex::new(());

impl FakeDaemon {
    fn run(&self, program: &str, args: &str) -> Ran {
        run(program, &self.socket(), args)
    }
}

/// Output and exit status of a command.
struct Ran {
    out: String,
    err: String,
    code: i32,
}

/// Runs a program. Hides the configuration file of the host from the program.
fn run(program: &str, socket: &Path, args: &str) -> Ran {
    let mut command = Command::new(program);
    command.args(args.split_whitespace()).env("SCTPIFY_CONTROL", socket);
    command.env("SCTPIFY_CONFIG", "/nonexistent/sctpify.toml");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = {
        let _alone = FORKS.lock();
        command.spawn().unwrap()
    };
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { out: text(stdout), err: text(stderr), code: status.code().unwrap() }
}

fn nowhere() -> PathBuf {
    PathBuf::from("/nonexistent/control.sock")
}

#[test]
fn shimrules_adds_lists_and_deletes() {
    let daemon = FakeDaemon::start();
    let added = daemon.run(SHIMRULES, "-A -c remote -p enable -d 10.1.2.0/24 -P 22 --name ssh");
    assert_eq!((added.out.as_str(), added.code), ("added to remote-enable\n", 0), "{}", added.err);
    daemon.run(SHIMRULES, "-A -clocal -penable -P1:1024");
    daemon.book.lock().unwrap().decide(Chain::Remote, "10.1.2.3".parse().unwrap(), 22);
    let listed = daemon.run(SHIMRULES, "-L");
    let expected = "\
default local  disable  0 hits; incoming: TCP unless a rule of local-enable allows SCTP
default remote disable  0 hits; outgoing: TCP unless a rule of remote-enable allows SCTP

CHAIN   POLICY  NUMBER  ADDRESS      PORTS   HITS  NAME
local   enable       1  any          1:1024     0
remote  enable       1  10.1.2.0/24  22         1  ssh
nothing learned (-C)
";
    assert_eq!(listed.out, expected);
    assert_eq!(daemon.run(SHIMRULES, "-D -c remote -p enable 1").code, 0);
    assert_eq!(daemon.run(SHIMRULES, "-D -c local -p enable -P 1-1024").code, 0);
    assert!(daemon.book.lock().unwrap().table.is_empty());
}

#[test]
fn rule_commands_add_delete_save_and_restore_rules() {
    let daemon = FakeDaemon::start();
    let added = daemon.run(SCTPIFY, "rule add 22,8000-8010 to 10.1.2.0/24 --name web --require");
    assert_eq!(
        (added.out.as_str(), added.code),
        ("added to remote-enable\nadded to remote-enable\n", 0),
        "{}",
        added.err
    );
    assert_eq!(daemon.run(SCTPIFY, "rule add any at 10.1.2.3 --tcp").code, 0);
    let saved = daemon.run(SCTPIFY, "rule save").out;
    let expected = "\
-A -c local -p disable -d 10.1.2.3
-A -c remote -p enable -d 10.1.2.0/24 -P 22 --require --name web
-A -c remote -p enable -d 10.1.2.0/24 -P 8000:8010 --require --name web
";
    assert_eq!(saved, expected);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules");
    std::fs::write(&file, &saved).unwrap();
    assert_eq!(daemon.run(SCTPIFY, "rule delete --tcp any at 10.1.2.3").code, 0);
    assert_eq!(daemon.run(SCTPIFY, "rule delete remote-enable 2").code, 0);
    assert_eq!(daemon.run(SCTPIFY, "rule save").out.lines().count(), 1);
    assert_eq!(daemon.run(SCTPIFY, &format!("rule restore {}", file.display())).code, 0);
    assert_eq!(daemon.run(SCTPIFY, "rule save").out, expected);
    std::fs::write(&file, saved + "-A -c nowhere\n").unwrap();
    let refused = daemon.run(SCTPIFY, &format!("rule restore {}", file.display()));
    assert!(refused.code == 1 && refused.err.contains("line 4"), "{}", refused.err);
    let own = daemon.run(SCTPIFY, "rule add 22 at any --own");
    assert!(own.code == 2 && own.err.contains("--own goes with `to`"), "{} {}", own.code, own.err);
    let wrong = daemon.run(SCTPIFY, "rule delete remote-enabled x");
    assert!(wrong.code == 2 && wrong.err.contains("did you mean `enable`?"), "{} {}", wrong.code, wrong.err);
}

#[test]
fn shimrules_lists_what_was_learned_apart_with_reason_age_and_expiry() {
    let daemon = FakeDaemon::start();
    let listed = daemon.run(SHIMRULES, "-L -c remote").out;
    let (rules, learned) = listed.split_once("\nlearned (-C):\n").expect(&listed);
    assert!(rules.ends_with("no rules\n"), "{rules}");
    let lines: Vec<Vec<&str>> =
        learned.lines().map(|line| line.split("  ").map(str::trim).collect()).collect();
    let cells: Vec<&str> = lines[1].iter().copied().filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[..3], ["192.0.2.1", "disable", "no answer"], "{learned}");
    assert!(cells[3].contains(" d ") && cells[4] == "probed at its next connection", "{learned}");
}

#[test]
fn shimrules_switches_automatic_configuration() {
    let daemon = FakeDaemon::start();
    assert_eq!(daemon.run(SHIMRULES, "-B").code, 0);
    assert!(!daemon.book.lock().unwrap().settings.learn);
    assert!(daemon.run(SHIMRULES, "-L").out.ends_with("nothing learned (-B: ignored)\n"));
    assert_eq!(daemon.run(SHIMRULES, "-C").code, 0);
    assert!(daemon.book.lock().unwrap().settings.learn);
}

#[test]
fn shimrules_shows_todays_calls_of_each_rule_when_asked_for_more() {
    let daemon = FakeDaemon::start();
    daemon.run(SHIMRULES, "-A -c remote -p enable -P 22 --comment why");
    let failed = Outcome::Tcp(Some(Failure::Refused));
    let address = "10.1.2.3".parse().unwrap();
    daemon.book.lock().unwrap().record(Chain::Remote, address, 22, UnixMs(1), failed);
    let listed = daemon.run(SHIMRULES, "-L -c remote -v").out;
    assert!(listed.contains("CALLS TODAY  FAILED TODAY"), "{listed}");
    let row = listed.lines().find(|line| line.starts_with("remote  enable")).expect(&listed);
    let words: Vec<&str> = row.split_whitespace().collect();
    assert!(
        row.contains(" 1             1  ") && row.contains("refused") && words.last() == Some(&"why"),
        "{row}"
    );
}

#[test]
fn forget_reports_the_forgotten_address() {
    let daemon = FakeDaemon::start();
    let forgotten = daemon.run(SCTPIFY, "forget 10.1.2.3");
    assert_eq!((forgotten.out.as_str(), forgotten.code), ("10.1.2.3 forgotten\n", 0), "{}", forgotten.err);
    assert_eq!(daemon.run(SCTPIFY, "forget [2001:db8::1]").out, "2001:db8::1 forgotten\n");
}

#[test]
fn shimrules_gets_and_sets_default_policies() {
    let daemon = FakeDaemon::start();
    assert_eq!(daemon.run(SHIMRULES, "-G -cremote").out, "remote disable\n");
    assert_eq!(daemon.run(SHIMRULES, "-S -cremote -penable").out, "remote enable\n");
    assert!(daemon.book.lock().unwrap().settings.default_remote_enable);
    assert_eq!(daemon.run(SCTPIFY, "get default_remote_enable").out, "1\n");
}

#[test]
fn a_refused_command_has_exit_status_1_and_names_the_reason() {
    let daemon = FakeDaemon::start();
    let refused = daemon.run(SHIMRULES, "-D -c remote -p enable 7");
    assert_eq!((refused.err.as_str(), refused.code), ("error: remote-enable has no rule 7: it has 0\n", 1));
    let json = daemon.run(SHIMRULES, "-D -c remote -p enable 7 --json");
    let expected = "{\"schema\":1,\"response\":\"error\",\"code\":\"refused\",\"message\":\"remote-enable has no rule 7: it has 0\"}\n";
    assert_eq!((json.out.as_str(), json.code), (expected, 1));
}

#[test]
fn wrong_usage_has_exit_status_2() {
    for args in ["", "-A -c remote", "-A -c nowhere -p enable", "-L -F", "-A -c remote -p enable -P 70000"] {
        let ran = run(SHIMRULES, &nowhere(), args);
        assert_eq!(ran.code, 2, "{args}: {}", ran.err);
    }
    for args in ["", "explain 10.0.0.1", "set udp_port", "dance", "bench", "doctor 10.0.0.1:ssh", "ping"] {
        assert_eq!(run(SCTPIFY, &nowhere(), args).code, 2, "{args}");
    }
    let bench = run(SCTPIFY, &nowhere(), "bench").err;
    assert!(bench.contains("give a HOST to measure with, or --serve"), "{bench}");
    let doctor = run(SCTPIFY, &nowhere(), "doctor 10.0.0.1:ssh").err;
    assert!(doctor.contains("invalid destination `10.0.0.1:ssh`: give HOST:PORT"), "{doctor}");
    let forget = run(SCTPIFY, &nowhere(), "forget 10.0.0.1:22").err;
    assert!(forget.contains("`10.0.0.1:22` has a port: give the host alone"), "{forget}");
}

#[test]
fn without_a_daemon_commands_exit_with_3_and_say_how_to_start_it() {
    let expected = "no daemon is listening on /nonexistent/control.sock: start it with `sctpify up`\n";
    for args in [
        "status",
        "paths",
        "reload",
        "explain 10.0.0.1:22",
        "doctor 10.0.0.1",
        "doctor 10.0.0.1:22",
        "ping 10.0.0.1",
        "forget 10.0.0.1",
    ] {
        let ran = run(SCTPIFY, &nowhere(), args);
        assert!(ran.err.ends_with(expected), "{args}: {}", ran.err);
        assert_eq!(ran.code, 3, "{args}");
    }
    assert_eq!(run(SHIMRULES, &nowhere(), "-L").code, 3);
}

#[test]
fn json_errors_are_json_on_standard_output() {
    let ran = run(SCTPIFY, &nowhere(), "status --json");
    assert!(
        ran.out.starts_with("{\"schema\":1,\"response\":\"error\",\"code\":\"no_daemon\""),
        "{}",
        ran.out
    );
    assert_eq!((ran.err.as_str(), ran.code), ("", 3));
}

#[test]
fn status_shows_connections_associations_and_fallback_reasons() {
    let daemon = FakeDaemon::start();
    let status = daemon.run(SCTPIFY, "status").out;
    for part in [
        "sctpifyd 9.9.9, pid 4294967295, up 1 min 1 s, enabled",
        "   5  client  10.0.1.1:40000  10.0.1.2:22  ACTIVE  sctp-udp  64.0 MiB     100 B  12 s      1",
        "1 of 2 active  encrypted, peer not verified, known since 2023-11-14, sctpify1:AAAAAAAA…, epoch 3  ",
        "\nwaiting for a restart: multipath=redundant (now off)\n",
        "the peer did not answer over SCTP within 250 ms",
        "Listening services (those in LISTEN are reachable over SCTP): none",
    ] {
        assert!(status.contains(part), "{part} is not in:\n{status}");
    }
}

#[test]
fn the_hosts_key_comes_with_its_words_and_known_peers_with_their_addresses() {
    let daemon = FakeDaemon::start();
    let key = format!("sctpify1:{}", "A".repeat(43));
    assert_eq!(daemon.run(SCTPIFY, "key").out, format!("{key}\nbadak bodak\n"));
    let peers = daemon.run(SCTPIFY, "peers").out;
    assert!(
        peers.contains(&format!("10.0.1.2, 2001:db8::2  first use  2023-11-14  2023-11-14  {key}")),
        "{peers}"
    );
    assert_eq!(daemon.run(SCTPIFY, "peers forget 10.0.1.2").out, "10.0.1.2 forgotten\n");
    let json = daemon.run(SCTPIFY, "peers --json").out;
    let Some(Response::Peers(report)) = read_response(&mut json.as_bytes()).unwrap() else {
        panic!("{json}")
    };
    assert_eq!(report.peers.len(), 1);
}

#[test]
fn a_host_is_paired_by_the_words_of_its_association_only() {
    let daemon = FakeDaemon::start();
    let key = format!("sctpify1:{}", "A".repeat(43));
    let shown = daemon.run(SCTPIFY, "pair 10.0.1.2").out;
    assert!(shown.contains("    badak bodak\n") && shown.contains("--words"), "{shown}");
    let pair = |words| daemon.run(SCTPIFY, &format!("pair 10.0.2.2 --name beta --words {words}"));
    assert_eq!(pair(",badak,,bodak,").out, format!("paired with {key} beta\n"));
    for wrong in ["bodak,badak", "badak", "badak,bodak,badak"] {
        assert!(pair(wrong).err.contains("somebody is between"), "{wrong}");
    }
    assert!(daemon.run(SCTPIFY, "pair 10.9.9.9").err.contains("no connection to it lives"));
}

#[test]
fn history_shows_the_traffic_of_the_last_day_and_of_all_days() {
    let daemon = FakeDaemon::start();
    let history = daemon.run(SCTPIFY, "history").out;
    let words: Vec<&str> = history.lines().nth(1).unwrap().split_whitespace().collect();
    let expected = "10.0.1.2 wwan0 (lte) 1.0 MiB 4.0 MiB 20 ms 2.0 MiB 8.0 MiB";
    assert!(words.join(" ").starts_with(expected), "{history}");
}

#[test]
fn paths_shows_each_path_with_its_state() {
    let daemon = FakeDaemon::start();
    let paths = daemon.run(SCTPIFY, "paths").out;
    assert!(paths.contains("eth1  -      10.0.2.2  potentially failed"), "{paths}");
    let wide = daemon.run(SCTPIFY, "paths --wide").out;
    assert!(wide.contains("10.0.2.2  sctp-udp:9899  potentially failed"), "{wide}");
    assert_eq!(paths.lines().count(), 4, "{paths}");
}

#[test]
fn status_as_json_reads_back_as_the_daemon_said_it() {
    let daemon = FakeDaemon::start();
    let json = daemon.run(SCTPIFY, "status --json").out;
    let read = read_response(&mut json.as_bytes()).unwrap();
    assert_eq!(read, Some(Response::Status(Box::new(status()))));
}

#[test]
fn explain_names_the_rule_or_the_reason() {
    let daemon = FakeDaemon::start();
    let tcp = daemon.run(SCTPIFY, "explain 10.1.2.3:22").out;
    let expected = "10.1.2.3:22: plain TCP\n  because no rule of remote-enable matches, and the default of remote is disable\n";
    assert_eq!(tcp, expected);
    daemon.run(SHIMRULES, "-A -c remote -p enable -P 22");
    let sctp = daemon.run(SCTPIFY, "explain 10.1.2.3:22").out;
    let expected = "10.1.2.3:22: SCTP is tried first, then TCP\n  because rule 1 of remote-enable: -P 22\n";
    assert_eq!(sctp, expected);
}

#[test]
fn doctor_asks_the_daemon_about_a_peer() {
    let daemon = FakeDaemon::start();
    let json = daemon.run(SCTPIFY, "doctor 127.0.0.1 --json").out;
    let Some(Response::Doctor(report)) = read_response(&mut json.as_bytes()).unwrap() else {
        panic!("{json}")
    };
    assert!(report.checks.contains(&Check::ok("asked about", "127.0.0.1")), "{json}");
}

#[test]
fn doctor_ends_with_the_names_of_what_is_missing() {
    let daemon = FakeDaemon::start();
    let told = daemon.run(SCTPIFY, "doctor 127.0.0.9");
    assert!(told.err.starts_with("error: missing: "), "{}", told.err);
    // Names of features that this host lacks may come first.
    assert!(
        told.err.contains("the way there") && told.err.ends_with("; see the remedies in the report\n"),
        "{}",
        told.err
    );
    assert_eq!(told.code, 1);
}

#[test]
fn up_finds_a_running_daemon_and_starts_no_second() {
    let daemon = FakeDaemon::start();
    let up = daemon.run(SCTPIFY, "up --state-dir /nonexistent");
    assert_eq!(
        (up.out.as_str(), up.code),
        ("sctpifyd is already running (pid 4294967295)\n", 0),
        "{}",
        up.err
    );
}

#[test]
fn down_waits_until_the_daemon_is_gone_and_does_nothing_the_second_time() {
    let daemon = FakeDaemon::start();
    let down = daemon.run(SCTPIFY, "down");
    assert_eq!((down.out.as_str(), down.code), ("sctpifyd is down (pid 4294967295)\n", 0), "{}", down.err);
    assert!(UnixStream::connect(daemon.socket()).is_err());
    assert_eq!(daemon.run(SCTPIFY, "down").code, 0);
}

/// Creates a directory with a copy of `sctpify`, and with this shell script as `sctpifyd`.
fn install_with_daemon(script: &str) -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let _alone = FORKS.lock();
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(SCTPIFY, dir.path().join("sctpify")).unwrap();
    let daemon = dir.path().join("sctpifyd");
    std::fs::write(&daemon, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&daemon, PermissionsExt::from_mode(0o755)).unwrap();
    dir
}

#[test]
fn up_prints_the_own_words_of_a_daemon_that_does_not_start() {
    let dir = install_with_daemon("echo 'cannot bind UDP port 9899: in use' >&2; exit 4");
    let state = dir.path().join("state");
    let args = format!("up --state-dir {}", state.display());
    let up = run(dir.path().join("sctpify").to_str().unwrap(), &dir.path().join("control.sock"), &args);
    assert!(up.err.contains("sctpifyd did not start (exit status: 4)"), "{}", up.err);
    assert!(up.err.contains("  cannot bind UDP port 9899: in use\n"), "{}", up.err);
    assert_eq!(up.code, 1);
}

#[test]
fn up_returns_when_the_daemon_answers_and_leaves_it_running() {
    let script = "cd \"${0%/*}\"; : > run; while [ -e run ]; do sleep 0.05; done; : > stopped";
    let dir = install_with_daemon(script);
    let here = dir.path().to_owned();
    let starting = thread::spawn(move || {
        while !here.join("run").exists() {
            thread::sleep(Duration::from_millis(10));
        }
        answer_in(&here, Arc::default());
    });
    let args = format!("up --state-dir {}", dir.path().display());
    let up = run(dir.path().join("sctpify").to_str().unwrap(), &dir.path().join("control.sock"), &args);
    starting.join().unwrap();
    assert!(up.out.starts_with("sctpifyd is up (pid 4294967295); its log is "), "{}{}", up.out, up.err);
    assert!(!dir.path().join("stopped").exists(), "the daemon outlives `sctpify up`");
}

#[test]
fn up_in_the_foreground_is_the_daemon_with_its_arguments() {
    let dir = install_with_daemon("echo \"$@\"; exit 5");
    let socket = dir.path().join("control.sock");
    let args = "up --foreground --config /c.toml --state-dir /s --log debug";
    let up = run(dir.path().join("sctpify").to_str().unwrap(), &socket, args);
    let expected = format!("--control {} --config /c.toml --state-dir /s --log debug\n", socket.display());
    assert_eq!((up.out, up.code), (expected, 5), "{}", up.err);
}

#[test]
fn a_daemon_that_closes_within_its_answer_is_not_reported_as_missing() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let hung_up = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let _ = read_request(&mut std::io::BufReader::new(&stream), ops::MAX_REQUEST_BYTES);
        stream.write_all(b"{\"schema\":1,").unwrap();
    });
    let ran = run(SCTPIFY, &socket, "status");
    hung_up.join().unwrap();
    assert!(ran.err.contains("closed the connection without an answer"), "{}", ran.err);
    assert_eq!(ran.code, 1);
}

#[test]
fn manual_pages_and_completions_come_for_the_programs_of_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man");
    assert_eq!(run(SCTPIFY, &nowhere(), &format!("man {}", pages.display())).code, 0);
    for page in ["sctpify.8", "sctpify-explain.8", "shimrules.8", "sctpifyd.8", "sctpify.toml.5"] {
        assert!(pages.join(page).exists(), "{page}");
    }
    for program in ["sctpify", "shimrules", "sctpifyd"] {
        let completions = run(SCTPIFY, &nowhere(), &format!("completions bash --for {program}"));
        assert!(completions.out.contains(&format!("_{program}()")), "{program}");
    }
    let refused = run(SCTPIFY, &nowhere(), "completions bash --for other");
    let expected = "unknown program `other`: expected sctpify or shimrules or sctpifyd";
    assert!(refused.err.contains(expected) && refused.code == 2, "{}", refused.err);
}

#[test]
fn watch_prints_one_object_a_line_each_with_the_schema() {
    let daemon = FakeDaemon::start();
    let watched = daemon.run(SCTPIFY, "watch --interval 50 --count 3");
    let lines: Vec<serde_json::Value> =
        watched.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), watched.code), (3, 0), "{}", watched.err);
    assert!(lines.iter().all(|line| line["schema"] == 1 && line["uptime_s"] == 61));
}

/// The fake daemon's event in the form that people read.
const EVENT: &str =
    "eth1 (fibre) 10.0.1.1 → 10.0.1.2 failed: silent while the peer answered elsewhere; 1 of 2 links work";

#[test]
fn changes_of_paths_are_in_the_status_and_followed_as_they_come() {
    let daemon = FakeDaemon::start();
    let shown = daemon.run(SCTPIFY, "status");
    assert!(shown.out.contains(EVENT), "{}", shown.out);
    assert!(shown.out.contains("10.0.1.2  eth1 (fibre)  secondary  up     in use  20 ms"), "{}", shown.out);
    let shown = daemon.run(SCTPIFY, "watch --events --interval 50 --count 1");
    let event: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((&event["response"], &event["event"]), (&"event".into(), &"down".into()));
    assert_eq!((&event["reason"], &event["path"]["interface"]), (&"silence".into(), &"eth1".into()));
    assert_eq!((&event["links_up"], &event["links"]), (&1.into(), &2.into()));
}

#[test]
fn top_without_a_terminal_prints_each_picture_and_no_control_sequences() {
    let daemon = FakeDaemon::start();
    let shown = daemon.run(SCTPIFY, "top --interval 50 --count 1");
    assert!(shown.out.contains("wwan0 (lte)   backup     DOWN"), "{}", shown.out);
    assert!(shown.out.contains("▶ eth1 (fibre)  secondary  up"), "{}", shown.out);
    assert!(shown.out.contains(EVENT), "{}", shown.out);
    assert!(!shown.out.contains('\x1b') && shown.code == 0, "{}", shown.err);
}

#[test]
fn markdown_has_its_tables_in_code_that_is_closed() {
    let daemon = FakeDaemon::start();
    let shown = daemon.run(SCTPIFY, "status --markdown").out;
    assert!(shown.contains("\n### Connections\n\n```\nID  ROLE"), "{shown}");
    assert_eq!(shown.matches("```").count() % 2, 0, "{shown}");
}

#[test]
fn a_drain_that_takes_too_long_says_how_many_connections_are_cut() {
    let daemon = FakeDaemon::start();
    let stopped = daemon.run(SCTPIFY, "down --drain --wait 0");
    assert!(stopped.err.starts_with("1 connection still open after 0 s; closing it\n"), "{}", stopped.err);
    assert_eq!(stopped.code, 0);
}

#[test]
fn exposing_a_listener_says_why_it_is_refused_and_how_a_listener_is_written() {
    let daemon = FakeDaemon::start();
    let refused = daemon.run(SCTPIFY, "expose 8000");
    assert!(refused.code == 1 && refused.err.contains("another user's"), "{}", refused.err);
    let wrong = daemon.run(SCTPIFY, "expose host.example:8000");
    assert!(wrong.code == 2 && wrong.err.contains("8000, 0.0.0.0:8000, [::]:8000"), "{}", wrong.err);
    assert_eq!(run(SCTPIFY, &nowhere(), "expose 8000").code, 3);
}
