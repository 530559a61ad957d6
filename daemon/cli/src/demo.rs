//! `sctpify demo`: two hosts on this machine, joined by two links, with a daemon each. A TCP program talks across a pulled cable.
//!
//! The hosts are network namespaces that belong to two threads of this process. The daemons end with these threads, also after SIGKILL, so
//! the namespaces disappear. Only a directory in the directory for temporary files then remains. Nothing outside the namespaces changes.
//! Begin with [`run`].

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use control::{LinkState, PeerLink, Request, Response, Status};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, gettid, mkdtemp};

use crate::session::{Session, unexpected};
use crate::{CliError, daemon, show, signals};

/// Number of links between the hosts.
const LINKS: u8 = 2;
/// Port of the program on beta.
const PORT: u16 = 8000;
/// Interval at which the program on alpha sends a number.
const RHYTHM: Duration = Duration::from_millis(10);
/// Time for which the program talks before the cable is pulled, while it is out, and after it is back.
const PART: Duration = Duration::from_secs(4);
/// Time limit on the start of a daemon, on the first answer, and on the last.
const LIMIT: Duration = Duration::from_secs(15);
/// Interval of checks while the demo waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Settings of both daemons: every connection may use SCTP.
const SETTINGS: &str = "default_local_enable = true\ndefault_remote_enable = true\n";

/// Runs the demo.
///
/// # Errors
/// If a host cannot be made, a daemon does not start, or a number does not come back.
pub(crate) fn run() -> Result<(), CliError> {
    if !Uid::effective().is_root() {
        return Err(failed("the demo makes network namespaces: run it as root"));
    }
    let stop = signals::stop_flag()?;
    let directory = Directory::new()?;
    let mut out = io::stdout();
    let (mut alpha, mut beta) = (Host::new("alpha")?, Host::new("beta")?);
    writeln!(out, "two hosts on this machine, each with an own network namespace, joined by two links:")?;
    for link in 1..=LINKS {
        join(&alpha, &beta, link)?;
        writeln!(out, "  alpha {} (eth{link}) ---- {} beta", address(link, 1), address(link, 2))?;
    }
    alpha.start_daemon(&directory.0, &stop)?;
    beta.start_daemon(&directory.0, &stop)?;
    writeln!(
        out,
        "sctpifyd runs on both; a TCP program on alpha sends a number every 10 ms, and beta returns it"
    )?;
    let talk = Talk::begin(&alpha, &beta, &stop)?;
    talk.go_on(PART)?;
    let status = alpha.status()?;
    check_carrier(&status)?;
    show_links(&mut out, &status)?;

    writeln!(out, "\nthe cable of eth1 is pulled:")?;
    let before = talk.take_longest_wait();
    beta.ip(&["link", "set", "eth1", "down"])?;
    talk.go_on(PART)?;
    let wait = talk.take_longest_wait();
    let status = alpha.status()?;
    show_links(&mut out, &status)?;
    check_move(&status)?;
    writeln!(
        out,
        "the longest wait for a number was {} ms; before, it was {} ms",
        wait.as_millis(),
        before.as_millis()
    )?;

    writeln!(out, "\nthe cable is back:")?;
    beta.ip(&["link", "set", "eth1", "up"])?;
    talk.go_on(PART)?;
    let status = alpha.status()?;
    show_links(&mut out, &status)?;
    let (sent, returned) = talk.end()?;
    check_return(sent, returned)?;
    drop((alpha, beta));
    directory.remove()?;
    writeln!(
        out,
        "\nall {sent} numbers came back in order, on one connection, over SCTP. Nothing of the demo is left."
    )?;
    writeln!(out, "next: `sctpify doctor` examines this host, and `sctpify up` starts its daemon")?;
    Ok(())
}

fn failed(text: impl Into<String>) -> CliError {
    CliError::Failed(text.into())
}

fn address(link: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, link, host)
}

/// Fails unless the data has left the link whose cable is pulled.
fn check_move(status: &Status) -> Result<(), CliError> {
    let is_used = |link: &&PeerLink| link.in_use && link.state == LinkState::Up;
    match status.links.iter().find(is_used).and_then(|link| link.interface.as_deref()) {
        Some(name) if name != "eth1" => Ok(()),
        _ => Err(failed("the data has not moved to the other link")),
    }
}

/// Fails unless every number has come back.
fn check_return(sent: u64, returned: u64) -> Result<(), CliError> {
    if sent != returned {
        return Err(failed(format!("{returned} of {sent} numbers came back")));
    }
    Ok(())
}

/// Fails unless the connection uses SCTP.
fn check_carrier(status: &Status) -> Result<(), CliError> {
    if status.counters.connects_sctp == 1 {
        return Ok(());
    }
    let reason = status.recent_fallbacks.first().map(|fallback| fallback.reason.to_string());
    let reason = reason.unwrap_or_else(|| "no reason is known".to_owned());
    Err(failed(format!(
        "the connection fell back to plain TCP: {reason}. `sctpify doctor` shows what this host lacks"
    )))
}

fn show_links(out: &mut impl Write, status: &Status) -> io::Result<()> {
    let mut links: Vec<_> = status.links.iter().collect();
    links.sort_by_key(|link| link.interface.clone());
    for link in links {
        let data = if link.in_use { ", carries the data" } else { "" };
        let name = link.interface.as_deref().unwrap_or("unknown");
        writeln!(out, "  {name} {}{data}", show::link_state(link.state))?;
    }
    Ok(())
}

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Directory, CliError> {
        let form = std::env::temp_dir().join("sctpify-demo-XXXXXX");
        let made = mkdtemp(&form);
        made.map(Directory).map_err(|error| failed(format!("cannot make {}: {error}", form.display())))
    }

    fn remove(self) -> Result<(), CliError> {
        fs::remove_dir_all(&self.0)
            .map_err(|error| failed(format!("cannot remove {}: {error}", self.0.display())))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread with a network namespace of its own, and the daemon in it.
struct Host {
    name: &'static str,
    /// The thread's ID, by which `ip` finds the namespace.
    thread: Pid,
    jobs: Sender<Job>,
    daemon: Option<Child>,
    control: PathBuf,
}

impl Host {
    fn new(name: &'static str) -> Result<Host, CliError> {
        let (jobs, work) = channel::<Job>();
        let (tell, told) = channel();
        let thread = move || {
            let outcome = unshare(CloneFlags::CLONE_NEWNET).map(|()| gettid());
            if tell.send(outcome).is_ok() {
                work.into_iter().for_each(|job| job());
            }
        };
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(thread)
            .map_err(|error| failed(error.to_string()))?;
        let thread = told.recv().map_err(|_| failed("a thread has ended"))?;
        let thread = thread.map_err(|error| failed(format!("cannot make a network namespace: {error}")))?;
        let host = Host { name, thread, jobs, daemon: None, control: PathBuf::new() };
        host.ip(&["link", "set", "lo", "up"])?;
        Ok(host)
    }

    /// Runs a job in the host's namespace, and returns its result.
    fn inside<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, CliError> {
        let (reply, answer) = channel();
        let job: Job = Box::new(move || {
            let _ = reply.send(job());
        });
        self.jobs.send(job).map_err(|_| failed("a thread has ended"))?;
        answer.recv().map_err(|_| failed("a thread has ended"))
    }

    /// Runs ip(8) in the host.
    fn ip(&self, words: &[&str]) -> Result<(), CliError> {
        let mut command = Command::new("ip");
        command.args(words).stdin(Stdio::null());
        let output = self.inside(move || command.output())?;
        let output = output.map_err(|error| failed(format!("cannot run ip (package iproute2): {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(failed(format!("ip {} on {}: {}", words.join(" "), self.name, text.trim())))
    }

    /// Starts the daemon, and waits until it answers. The daemon is in a process group of its own, so Ctrl-C reaches this process alone.
    fn start_daemon(&mut self, directory: &Path, stop: &AtomicBool) -> Result<(), CliError> {
        let state = directory.join(self.name);
        let (control, config, log) =
            (state.join("control.sock"), state.join("sctpify.toml"), state.join("log"));
        let made = fs::create_dir(&state).and_then(|()| fs::write(&config, SETTINGS));
        let output = made.and_then(|()| fs::File::create(&log));
        let output = output.map_err(|error| failed(format!("cannot write {}: {error}", state.display())))?;
        let mut command = Command::new(daemon::find_daemon()?);
        command.arg("--control").arg(&control).arg("--config").arg(&config).arg("--state-dir").arg(&state);
        command.arg("--ends-with").arg(std::process::id().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).process_group(0);
        let child = self.inside(move || command.spawn())?;
        self.daemon = Some(child.map_err(|error| failed(format!("cannot start sctpifyd: {error}")))?);
        self.control = control;
        let found = daemon::look_until(LIMIT, LOOK_EVERY, || match () {
            () if stop.load(Ordering::Relaxed) => Some(Err(failed("interrupted"))),
            () if self.status().is_ok() => Some(Ok(())),
            () if self.has_ended() => Some(Err(self.not_started(&log))),
            () => None,
        });
        found.unwrap_or_else(|| Err(self.not_started(&log)))
    }

    fn has_ended(&mut self) -> bool {
        self.daemon.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn not_started(&self, log: &Path) -> CliError {
        let end = daemon::end_of(log);
        failed(format!("sctpifyd on {} did not start. Its log ends:\n{end}", self.name))
    }

    fn status(&self) -> Result<Status, CliError> {
        match (Session { control: &self.control, json: false }).ask(&Request::Status)? {
            Response::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }
}

impl Drop for Host {
    /// Stops the daemon, which removes its rules and namespaces.
    fn drop(&mut self) {
        let Some(mut child) = self.daemon.take() else { return };
        let pid = Pid::from_raw(child.id().cast_signed());
        let _ = kill(pid, Signal::SIGTERM);
        let ended = daemon::look_until(LIMIT, LOOK_EVERY, || child.try_wait().ok().flatten());
        if ended.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Joins the hosts by a veth pair.
fn join(alpha: &Host, beta: &Host, link: u8) -> Result<(), CliError> {
    // A thread's number alone could be the name of a namespace.
    let (name, there) = (format!("eth{link}"), format!("/proc/{}/ns/net", beta.thread));
    alpha.ip(&["link", "add", &name, "type", "veth", "peer", "name", &name, "netns", &there])?;
    for (host, number) in [(alpha, 1), (beta, 2)] {
        host.ip(&["address", "add", &format!("{}/24", address(link, number)), "dev", &name])?;
        host.ip(&["link", "set", &name, "up"])?;
    }
    Ok(())
}

/// The conversation of the two programs.
struct Talk {
    stream: TcpStream,
    ending: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    heard: Arc<Mutex<Heard>>,
    sender: thread::JoinHandle<u64>,
    receiver: thread::JoinHandle<()>,
}

/// The numbers that have come back.
struct Heard {
    next: u64,
    last_at: Instant,
    longest_wait: Duration,
    fault: Option<String>,
}

impl Talk {
    /// Starts both programs. They use plain TCP sockets.
    fn begin(alpha: &Host, beta: &Host, stop: &Arc<AtomicBool>) -> Result<Talk, CliError> {
        let listener = beta.inside(|| TcpListener::bind((address(1, 2), PORT)))?;
        let listener = listener.map_err(|error| failed(format!("cannot listen on beta: {error}")))?;
        thread::spawn(move || {
            if let Ok((mut stream, _)) = listener.accept()
                && let Ok(mut back) = stream.try_clone()
            {
                let _ = io::copy(&mut stream, &mut back);
            }
        });
        let stream = alpha.inside(|| {
            let stream = TcpStream::connect_timeout(&(address(1, 2), PORT).into(), LIMIT)?;
            stream.set_nodelay(true)?;
            Ok::<_, io::Error>(stream)
        })?;
        let stream = stream.map_err(|error| failed(format!("cannot connect to beta: {error}")))?;
        let clone = || stream.try_clone().map_err(|error| failed(error.to_string()));
        let (ending, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Heard::nothing())));
        let (writer, reader, until, ears) = (clone()?, clone()?, ending.clone(), heard.clone());
        Ok(Talk {
            sender: thread::spawn(move || send_numbers(writer, &until)),
            receiver: thread::spawn(move || hear_numbers(reader, &ears)),
            stream,
            ending,
            stop: stop.clone(),
            heard,
        })
    }

    fn heard<T>(&self, look: impl FnOnce(&mut Heard) -> T) -> T {
        look(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets the programs talk for this time.
    fn go_on(&self, time: Duration) -> Result<(), CliError> {
        let fault = || self.heard(|heard| heard.fault.clone());
        let is_over = || self.stop.load(Ordering::Relaxed) || fault().is_some();
        let _ = daemon::look_until(time, LOOK_EVERY, || is_over().then_some(()));
        match fault() {
            _ if self.stop.load(Ordering::Relaxed) => Err(failed("interrupted")),
            Some(fault) => Err(failed(fault)),
            None => Ok(()),
        }
    }

    /// Returns the longest wait for a number since the last call. A wait that goes on counts, too.
    #[allow(clippy::disallowed_methods, reason = "a program that measures waits")]
    fn take_longest_wait(&self) -> Duration {
        self.heard(|heard| std::mem::take(&mut heard.longest_wait).max(Instant::now() - heard.last_at))
    }

    /// Ends the conversation. Returns the numbers of sent and of returned numbers.
    fn end(self) -> Result<(u64, u64), CliError> {
        self.ending.store(true, Ordering::Relaxed);
        let sent = self.sender.join().map_err(|_| failed("the program on alpha has failed"))?;
        let _ = daemon::look_until(LIMIT, LOOK_EVERY, || self.receiver.is_finished().then_some(()));
        let _ = self.stream.shutdown(Shutdown::Both);
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.fault.clone().map_or(Ok((sent, heard.next)), |fault| Err(failed(fault)))
    }
}

impl Heard {
    #[allow(clippy::disallowed_methods, reason = "a program that measures waits")]
    fn nothing() -> Heard {
        Heard { next: 0, last_at: Instant::now(), longest_wait: Duration::ZERO, fault: None }
    }

    /// Takes a number that has come back. Returns false if it is not the next one.
    #[allow(clippy::disallowed_methods, reason = "a program that measures waits")]
    fn take(&mut self, number: u64) -> bool {
        if number != self.next {
            self.fault = Some(format!("number {number} came back instead of {}", self.next));
            return false;
        }
        let now = Instant::now();
        if number > 0 {
            self.longest_wait = self.longest_wait.max(now - self.last_at);
        }
        (self.next, self.last_at) = (number + 1, now);
        true
    }
}

/// Sends numbers until the end, and returns their count.
fn send_numbers(mut stream: TcpStream, ending: &AtomicBool) -> u64 {
    let mut number = 0_u64;
    while !ending.load(Ordering::Relaxed) && stream.write_all(&number.to_be_bytes()).is_ok() {
        number += 1;
        sleep(RHYTHM);
    }
    let _ = stream.shutdown(Shutdown::Write);
    number
}

/// Takes the numbers that come back, until the connection ends.
fn hear_numbers(mut stream: TcpStream, heard: &Mutex<Heard>) {
    let mut bytes = [0; 8];
    loop {
        let outcome = stream.read_exact(&mut bytes);
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) if heard.take(u64::from_be_bytes(bytes)) => {}
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return,
            Err(error) => {
                heard.fault = Some(format!("the connection broke: {error}"));
                return;
            }
        }
    }
}
