//! Shows the status repeatedly: `watch` prints lines of JSON, `top` draws on the terminal.
//!
//! `top` uses only features that every terminal has: the alternate screen, cursor home, and clearing. `q` or Ctrl-C ends `top`, which then
//! restores the previous screen.

use std::io::{self, IsTerminal, Stdin, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use control::{ErrorCode, EventsReport, PeerLink, Request, Response, Status, write_response};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::read;

use crate::session::{Session, unexpected};
use crate::signals::stop_flag;
use crate::table::{Align, Table, bytes, millis, seconds};
use crate::{CliError, show};

/// Longest interval between two requests for new events. The user may choose a shorter interval.
const EVENTS_EVERY: Duration = Duration::from_millis(200);
/// Pause between a failed request and the next request. A request fails, for example, after the daemon has ended.
const DAEMON_AGAIN: Duration = Duration::from_secs(1);
/// Interval at which `top` checks for a signal or a key.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Control sequence that enters the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Control sequence that shows the cursor and leaves the alternate screen.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Control sequence that moves the cursor to the top left corner.
const HOME: &str = "\x1b[H";
/// Control sequence that clears the rest of a line.
const CLEAR_LINE: &str = "\x1b[K";
/// Control sequence that clears the rest of the screen.
const CLEAR_REST: &str = "\x1b[J";
/// Indentation of a line that continues the previous line.
const CONTINUED: &str = "    ";
/// Assumed columns and rows of a terminal that does not report its size.
const USUAL_SIZE: (usize, usize) = (80, 24);

/// Interval and number of the reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    pub(crate) interval_ms: u64,
    /// Number of reports; `None` means no limit.
    pub(crate) count: Option<u64>,
}

impl Rhythm {
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    fn is_over(&self, done: u64) -> bool {
        self.count.is_some_and(|count| done >= count)
    }
}

fn status(session: Session<'_>) -> Result<Box<Status>, CliError> {
    match session.ask(&Request::Status)? {
        Response::Status(status) => Ok(status),
        other => Err(unexpected(&other)),
    }
}

/// Prints the status repeatedly, as one JSON object per line. Each object contains the schema version.
pub(crate) fn watch(session: Session<'_>, rhythm: Rhythm) -> Result<(), CliError> {
    for done in 1.. {
        let answer = Response::Status(status(session)?);
        write_response(&mut io::stdout().lock(), &answer)?;
        if rhythm.is_over(done) {
            break;
        }
        sleep(rhythm.pause());
    }
    Ok(())
}

/// Prints changes of links and paths when they occur, as one JSON object per line. Each object contains the schema version. Earlier changes
/// are not printed. If the daemon ends, waits for the next daemon.
pub(crate) fn events(session: Session<'_>, rhythm: Rhythm) -> Result<(), CliError> {
    let first = events_after(session, u64::MAX)?;
    let (mut last, mut started, mut is_lost) = (first.count, first.started_unix_ms, false);
    let mut printed = 0;
    while !rhythm.is_over(printed) {
        sleep(EVENTS_EVERY.min(rhythm.pause()));
        let report = match events_after(session, last) {
            Ok(report) => report,
            // While a daemon stops, requests fail with the code `Failed`. After any other refusal, waiting does not help.
            Err(CliError::Refused(refusal)) if refusal.code != ErrorCode::Failed => {
                return Err(CliError::Refused(refusal));
            }
            Err(error) => {
                if !std::mem::replace(&mut is_lost, true) {
                    eprintln!("sctpify: {error}; waiting for the daemon");
                }
                sleep(DAEMON_AGAIN);
                continue;
            }
        };
        if std::mem::take(&mut is_lost) {
            eprintln!("sctpify: the daemon answers again");
        }
        if report.started_unix_ms != started {
            // This is another daemon. Its event numbers begin at 1, so the next request asks for all of them.
            (started, last) = (report.started_unix_ms, 0);
            continue;
        }
        let missed = report.events.first().map_or(0, |event| event.number.saturating_sub(last + 1));
        if missed > 0 {
            eprintln!("sctpify: {missed} events were missed");
        }
        last = report.count;
        for event in report.events {
            if !rhythm.is_over(printed) {
                write_response(&mut io::stdout().lock(), &Response::Event(event))?;
                printed += 1;
            }
        }
    }
    Ok(())
}

fn events_after(session: Session<'_>, number: u64) -> Result<EventsReport, CliError> {
    match session.ask(&Request::Events { after: number })? {
        Response::Events(report) => Ok(report),
        other => Err(unexpected(&other)),
    }
}

/// Draws the status repeatedly, until a signal arrives, `q` is pressed or the requested number of drawings is reached.
pub(crate) fn top(session: Session<'_>, rhythm: Rhythm) -> Result<(), CliError> {
    // This request reports a missing daemon before the screen changes.
    let mut before = status(session)?;
    redraw(rhythm, true, || {
        let now = status(session)?;
        let drawing = lines(&before, &now, rhythm);
        before = now;
        Ok(drawing)
    })?;
    Ok(())
}

/// Draws lines repeatedly, until a signal arrives, `q` is pressed or the requested number of drawings is reached. Returns true if the
/// alternate screen was used. Without a terminal, or if `may_use_screen` is false, prints each drawing below the previous one.
pub(crate) fn redraw(
    rhythm: Rhythm,
    may_use_screen: bool,
    mut drawing: impl FnMut() -> Result<Vec<String>, CliError>,
) -> Result<bool, CliError> {
    let stop = stop_flag()?;
    let screen = (may_use_screen && io::stdout().is_terminal()).then(Screen::enter).transpose()?;
    let keys = screen.as_ref().and_then(|_| Keys::of_terminal(io::stdin()));
    for done in 1.. {
        draw(screen.is_some(), drawing()?)?;
        if rhythm.is_over(done) || waited(rhythm.pause(), &stop, keys.as_ref()) {
            break;
        }
    }
    Ok(screen.is_some())
}

/// Waits for `pause`; returns true if a signal or the key `q` ended the wait.
fn waited(pause: Duration, stop: &AtomicBool, keys: Option<&Keys>) -> bool {
    let mut left = pause;
    while !left.is_zero() && !stop.load(Ordering::Relaxed) {
        let pause = left.min(LOOK_EVERY);
        match keys {
            Some(keys) if keys.has_quit() => return true,
            _ => sleep(pause),
        }
        left -= pause;
    }
    stop.load(Ordering::Relaxed)
}

/// A terminal that delivers each key at once and without echo. Dropping this value restores the previous mode. Ctrl-C still sends a signal.
struct Keys {
    input: Stdin,
    before: Termios,
}

impl Keys {
    /// Changes the mode of a terminal; `None` if `input` is not a terminal.
    fn of_terminal(input: Stdin) -> Option<Keys> {
        let before = tcgetattr(&input).ok()?;
        let mut now = before.clone();
        now.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        tcsetattr(&input, SetArg::TCSANOW, &now).ok()?;
        Some(Keys { input, before })
    }

    /// Reads the pressed keys, and reports whether `q` is among them.
    fn has_quit(&self) -> bool {
        let mut pressed = [0; 64];
        let mut ready = [PollFd::new(self.input.as_fd(), PollFlags::POLLIN)];
        if !poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count > 0) {
            return false;
        }
        let count = read(&self.input, &mut pressed).unwrap_or(0);
        pressed[..count].iter().any(|key| matches!(key, b'q' | b'Q'))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // A destructor cannot report the error.
        let _ = tcsetattr(&self.input, SetArg::TCSANOW, &self.before);
    }
}

/// The alternate screen. Dropping this value restores the usual screen.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Screen> {
        let mut out = io::stdout();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(Screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A destructor cannot report the errors.
        let _ = io::stdout().write_all(LEAVE.as_bytes());
        let _ = io::stdout().flush();
    }
}

fn draw(on_screen: bool, lines: Vec<String>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if !on_screen {
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        return out.flush();
    }
    let (width, height) = size();
    let mut text = String::from(HOME);
    let lines = lines.iter().flat_map(|line| wrapped(line, width));
    for line in lines.take(height.saturating_sub(1)) {
        text.push_str(&line);
        text.push_str(CLEAR_LINE);
        text.push_str("\r\n");
    }
    text.push_str(CLEAR_REST);
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Breaks a line between words into lines of up to `width` columns. Truncates a word that is longer than a line.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    if length(line) <= width {
        return vec![line.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let is_full = lines.last().is_some_and(|last| length(last) + length(word.trim_end()) > width);
        if is_full {
            lines.push(CONTINUED.to_owned());
        }
        lines.last_mut().into_iter().for_each(|last| last.push_str(word));
    }
    lines.iter().map(|line| line.trim_end().chars().take(width).collect()).collect()
}

/// Returns the number of columns and rows of the terminal.
fn size() -> (usize, usize) {
    let found = terminal_size::terminal_size();
    found.map_or(USUAL_SIZE, |(width, height)| (usize::from(width.0), usize::from(height.0)))
}

/// Returns the lines of one drawing of `top`.
fn lines(before: &Status, now: &Status, rhythm: Rhythm) -> Vec<String> {
    let per_second = |bytes: u64| bytes * 1000 / rhythm.interval_ms.max(1);
    let c = &now.counters;
    let rate = |now: u64, before: u64| format!("{}/s", bytes(per_second(now.saturating_sub(before))));
    let state = match (now.enabled, now.draining) {
        (false, _) => "DISABLED",
        (true, true) => "draining",
        (true, false) => "enabled",
    };
    let mut text = Vec::new();
    let heads = [
        format!("sctpifyd {}, up {}, {state}", now.version, seconds(now.uptime_s)),
        format!(
            "{} connections, {} associations, {} accepted; {} path switches",
            now.connections.len(),
            now.associations.len(),
            c.accepts,
            c.path_switches
        ),
        format!(
            "connects: {} over SCTP, {} fell back to TCP, {} TCP by rule, {} as learned",
            c.connects_sctp, c.connects_fallback, c.connects_by_rule_tcp, c.connects_learned_tcp
        ),
        format!(
            "bytes: {} sent, {} received",
            rate(c.bytes_sent, before.counters.bytes_sent),
            rate(c.bytes_received, before.counters.bytes_received)
        ),
        String::new(),
    ];
    text.extend(heads);
    text.extend(link_lines(before, now, &per_second));
    text.push(String::new());
    let events = now.recent_events.iter().take(5);
    text.extend(events.map(|event| format!("{}: {event}", show::ago_unix(event.when_unix_ms))));
    text.extend(
        now.recent_fallbacks.iter().take(5).map(|f| {
            format!("{}: {} plain TCP: {}", show::ago_unix(f.when_unix_ms), f.destination, f.reason)
        }),
    );
    text
}

fn link_lines(before: &Status, now: &Status, per_second: &dyn Fn(u64) -> u64) -> Vec<String> {
    let mut table = Table::new(&[
        ("PEER", Align::Left),
        ("LINK", Align::Left),
        ("USE", Align::Left),
        ("STATE", Align::Left),
        ("SRTT", Align::Right),
        ("SENT", Align::Right),
        ("RECEIVED", Align::Right),
    ]);
    for link in &now.links {
        let is_same = |old: &&PeerLink| old.peer == link.peer && old.interface == link.interface;
        let old = before.links.iter().find(is_same);
        let rate = |now: u64, was: Option<u64>| {
            // A restarted daemon counts from zero again. The new count can then be below the old one, and the rate is shown as zero.
            format!("{}/s", bytes(per_second(now.saturating_sub(was.unwrap_or(now)))))
        };
        table.row([
            link.peer.to_string(),
            format!("{} {}", if link.in_use { "▶" } else { " " }, link.title()),
            link.usage.name().into(),
            show::link_state(link.state).into(),
            link.srtt_us.map_or_else(|| "-".into(), millis),
            rate(link.sent_bytes, old.map(|old| old.sent_bytes)),
            rate(link.received_bytes, old.map(|old| old.received_bytes)),
        ]);
    }
    table.lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_below_and_lose_no_word() {
        let line = "5 s ago: association 2: data left 10.91.1.1 → 10.91.1.7 for 10.91.2.1 → 10.91.2.7";
        assert_eq!(wrapped(line, 100), [line]);
        assert_eq!(
            wrapped(line, 40),
            [
                "5 s ago: association 2: data left",
                "    10.91.1.1 → 10.91.1.7 for 10.91.2.1",
                "    → 10.91.2.7"
            ]
        );
        assert!(wrapped("", 40) == [""] && wrapped(&"x".repeat(99), 10).iter().all(|line| line.len() <= 10));
    }
}
