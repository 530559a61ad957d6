//! Tests settings with a daemon and without one, and the configuration file.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use control::{load_config, parse_config};
use tempfile::TempDir;

use crate::fake::FakeDaemon;
use crate::{Ran, SCTPIFY, nowhere, run};

/// A configuration file in its own directory, for commands that find no daemon.
struct File {
    _dir: TempDir,
    path: PathBuf,
}

impl File {
    fn with(text: &str) -> File {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sctpify.toml");
        fs::write(&path, text).unwrap();
        File { _dir: dir, path }
    }

    fn run(&self, words: &str) -> Ran {
        run(SCTPIFY, &nowhere(), &format!("{words} --config {}", self.path.display()))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap()
    }
}

#[test]
fn set_changes_settings_and_says_what_waits_for_a_restart() {
    let daemon = FakeDaemon::start();
    let set = daemon.run(SCTPIFY, "set race_timer_ms=100 udp_port=9900");
    let expected = "race_timer_ms=100\n\
                    udp_port=9900 waits for a restart (`sctpify down`, `sctpify up`); in force: 9899\n";
    assert_eq!((set.out.as_str(), set.code), (expected, 0), "{}", set.err);
    let settings = daemon.book.lock().unwrap().settings.clone();
    assert_eq!((settings.race_timer_ms, settings.udp_port), (100, 9900));
}

#[test]
fn a_slip_in_one_of_several_settings_changes_none() {
    let daemon = FakeDaemon::start();
    let set = daemon.run(SCTPIFY, "set enable=0 race_timer=100");
    let expected = "error: unknown setting `race_timer`; did you mean `race_timer_ms`?\n";
    assert_eq!((set.err.as_str(), set.code), (expected, 1));
    assert!(daemon.book.lock().unwrap().settings.enable);
}

#[test]
fn without_a_daemon_set_writes_the_file_and_get_reads_it() {
    let file = File::with("# mine\nrace_timer_ms = 100\n");
    fs::set_permissions(&file.path, PermissionsExt::from_mode(0o640)).unwrap();
    let set = file.run("set page_port=0 default_remote_enable=on");
    assert_eq!((set.out.as_str(), set.code), ("page_port=0\ndefault_remote_enable=1\n", 0), "{}", set.err);
    let told = format!(
        "no daemon is listening on /nonexistent/control.sock: written to {}, in force from its next start\n",
        file.path.display()
    );
    assert_eq!(set.err, told);
    assert_eq!(file.text(), "# mine\nrace_timer_ms = 100\npage_port = 0\ndefault_remote_enable = true\n");
    assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o640);
    let got = file.run("get race_timer_ms");
    assert_eq!((got.out.as_str(), got.code), ("100\n", 0), "{}", got.err);
    assert!(
        got.err.contains("these are the settings of") && got.err.contains("from its next start"),
        "{}",
        got.err
    );
    let all = file.run("get --json").out;
    assert!(all.contains("\"name\":\"race_timer_ms\",\"value\":\"100\",\"default\""), "{all}");
}

#[test]
fn without_a_daemon_set_refuses_what_the_next_start_would_not_have() {
    let file = File::with("enable = true\n");
    let page = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = page.local_addr().unwrap().port();
    for (words, told) in [
        (format!("udp_port=9900 page_port={port}"), "for the page"),
        ("peer_keys=/nonexistent/keys".to_owned(), "/nonexistent/keys: No such file"),
        ("worker_user=nobody-of-this-name".to_owned(), "user `nobody-of-this-name` does not exist"),
        ("enable=0 race_timer=100".to_owned(), "did you mean `race_timer_ms`?"),
    ] {
        let set = file.run(&format!("set {words}"));
        assert!(set.err.contains(told) && set.code == 1, "{words}: {}", set.err);
        assert_eq!(file.text(), "enable = true\n", "{words}");
    }
}

#[test]
fn a_udp_port_that_is_taken_is_set_with_a_warning() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (file, daemon) = (File::with(""), FakeDaemon::start());
    let words = format!("set udp_port={port}");
    for set in [file.run(&words), daemon.run(SCTPIFY, &words)] {
        assert!(set.err.contains(&format!("warning: UDP port {port} cannot be opened now")), "{}", set.err);
        assert_eq!(set.code, 0);
    }
    assert_eq!(load_config(&file.path).unwrap().udp_port, port);
}

#[test]
fn without_a_daemon_set_follows_no_symbolic_link() {
    let file = File::with("");
    let link = file.path.with_file_name("link.toml");
    symlink(&file.path, &link).unwrap();
    let set = run(SCTPIFY, &nowhere(), &format!("set enable=0 --config {}", link.display()));
    assert!(set.err.contains("is a symbolic link") && set.code == 1, "{}", set.err);
    assert_eq!(file.text(), "");
}

#[test]
fn get_shows_what_is_configured_beside_what_is_in_force() {
    let daemon = FakeDaemon::start();
    let columns = |text: &str| {
        text.lines().next().unwrap().split("  ").map(str::trim).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(columns(&daemon.run(SCTPIFY, "get").out).contains(&"VALUE".to_owned()));
    daemon.run(SCTPIFY, "set multipath=redundant");
    let all = daemon.run(SCTPIFY, "get").out;
    let heads = columns(&all);
    assert!(heads.contains(&"CONFIGURED".to_owned()) && heads.contains(&"IN FORCE".to_owned()), "{all}");
    let row: Vec<&str> =
        all.lines().find(|l| l.starts_with("multipath ")).unwrap().split_whitespace().collect();
    assert_eq!(row[1..3], ["redundant", "off"], "{all}");
    let one = daemon.run(SCTPIFY, "get multipath");
    assert_eq!(one.out, "redundant\n");
    assert!(one.err.contains("waits for a restart") && one.err.contains("in force: off"), "{}", one.err);
    let json = daemon.run(SCTPIFY, "get multipath --json").out;
    assert!(json.contains("\"value\":\"redundant\",\"in_force\":\"off\""), "{json}");
}

#[test]
fn a_configuration_file_that_is_named_must_be_there() {
    for words in ["config check", "config show"] {
        let missing = run(SCTPIFY, &nowhere(), &format!("{words} --config /nonexistent"));
        assert!(missing.err.contains("/nonexistent does not exist") && missing.code == 1, "{}", missing.err);
    }
    let file = File::with("enable = true\n");
    assert!(file.run("config check").out.ends_with("sctpify.toml is valid\n"));
}

#[test]
fn config_check_names_the_line_that_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sctpify.toml");
    std::fs::write(&file, "enable = true\nforce_bindal = true\n").unwrap();
    let checked = run(SCTPIFY, &nowhere(), &format!("config check --config {}", file.display()));
    let expected = "line 2: unknown key `force_bindal`; did you mean `force_bindall`?\n";
    assert!(checked.err.ends_with(expected), "{}", checked.err);
    assert_eq!(checked.code, 1);
}

#[test]
fn the_default_configuration_can_be_used_as_it_is_printed() {
    let shown = run(SCTPIFY, &nowhere(), "config show --default").out;
    assert_eq!(parse_config(&shown), Ok(rules::Settings::default()));
}
