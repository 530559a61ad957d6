//! Tests `sctpify top` on a terminal of 80 columns.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};

use crate::fake::FakeDaemon;
use crate::{FORKS, SCTPIFY};

const COLUMNS: usize = 80;
/// Control sequence that enters the alternate screen.
const ENTER: &str = "\x1b[?1049h";
/// Control sequence that leaves the alternate screen.
const LEAVE: &str = "\x1b[?1049l";

/// Calls `look` until it returns true, for up to five seconds. Returns the last result.
fn wait_for(mut look: impl FnMut() -> bool) -> bool {
    (0..100).any(|_| {
        let seen = look();
        if !seen {
            thread::sleep(Duration::from_millis(50));
        }
        seen
    })
}

/// A running program. Dropping this value kills it, whatever the result of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn top_cuts_no_word_at_80_columns_and_ends_with_q() {
    let daemon = FakeDaemon::start();
    let size = Winsize { ws_row: 24, ws_col: COLUMNS as u16, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(&size, None).unwrap();
    let before = tcgetattr(&pty.slave).unwrap();
    let mut command = Command::new(SCTPIFY);
    command.args(["top", "--interval", "60000"]).env("SCTPIFY_CONTROL", daemon.socket());
    command.stdin(pty.slave.try_clone().unwrap()).stdout(pty.slave.try_clone().unwrap());
    let mut top = {
        let _alone = FORKS.lock();
        Running(command.spawn().unwrap())
    };
    drop(command);
    let shown = Arc::new(Mutex::new(String::new()));
    let (mut master, all) = (File::from(pty.master.try_clone().unwrap()), shown.clone());
    thread::spawn(move || {
        let mut part = [0; 4096];
        // At the end of the test, reading fails, because no process has the other side of the terminal open.
        while let Ok(length @ 1..) = master.read(&mut part) {
            all.lock().unwrap().push_str(&String::from_utf8_lossy(&part[..length]));
        }
    });
    let text = || shown.lock().unwrap().clone();
    let keys = || tcgetattr(&pty.slave).unwrap().local_flags;
    assert!(wait_for(|| text().contains("did not answer over SCTP") && !keys().contains(LocalFlags::ECHO)));
    let picture = text();
    let lines: Vec<&str> = picture.split_once(ENTER).unwrap().1.split("\x1b[K").collect();
    let plain = |line: &str| line.replace("\x1b[?25l", "").replace("\x1b[H", "").replace(['\r', '\n'], "");
    for line in &lines[..lines.len() - 1] {
        assert!(plain(line).chars().count() <= COLUMNS, "{line}");
    }
    for whole in ["1 connections, 1 associations, 0 accepted; 0 path switches", "0 TCP by rule, 0 as learned"]
    {
        assert!(picture.contains(whole), "{picture}");
    }
    let words: String = lines.iter().map(|line| plain(line) + " ").collect();
    let words: Vec<&str> = words.split_whitespace().collect();
    assert!(
        words.join(" ").contains("eth1 (fibre) 10.0.1.1 → 10.0.1.2 failed: silent while the peer"),
        "{picture}"
    );
    File::from(pty.master).write_all(b"xq").unwrap();
    assert!(wait_for(|| top.0.try_wait().unwrap().is_some_and(|status| status.success())), "q ends it");
    assert!(wait_for(|| text().contains(LEAVE)), "{}", text());
    assert_eq!(tcgetattr(&pty.slave).unwrap(), before);
}
