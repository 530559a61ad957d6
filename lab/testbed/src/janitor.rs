//! Cleans up after a lab, even if SIGKILL ends its owner.
//!
//! A small shell process holds the read end of a pipe. The owner reports each namespace, directory and process group
//! over the pipe. When the pipe closes for any reason, the shell process ends the processes, deletes the namespaces and
//! directories, and exits. Every cleanup happens in this way: [`Janitor::dismiss`] only closes the pipe and waits.
//! SIGINT, SIGTERM and SIGHUP first dismiss every janitor of the process, and then end the process.

use anyhow::{Context, Result};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Script of the shell process. It sends SIGTERM before SIGKILL, because daemons must remove their own rules.
const SCRIPT: &str = r#"
trap '' INT TERM HUP PIPE
namespaces= directories= groups=
while read -r what name; do
    case $what in
    namespace) namespaces="$namespaces $name" ;;
    directory) directories="$directories $name" ;;
    group) groups="$groups $name" ;;
    ended) groups=$(for group in $groups; do [ "$group" = "$name" ] || echo "$group"; done) ;;
    esac
done
namespaced() {
    for namespace in $namespaces; do ip netns pids "$namespace" 2>/dev/null; done
}
# One "pid" a line for members of our groups and namespaces that have not ended (a zombie has).
living() {
    { namespaced; echo groups; for group in $groups; do echo "$group"; done; ps -eo pid=,pgid=,stat=; } | awk '
        $1 == "groups" { in_groups = 1; next }
        NF == 1 && !in_groups { wanted[$1] = 1 }
        NF == 1 && in_groups { group[$1] = 1 }
        NF == 3 && $3 !~ /^Z/ && (($1 in wanted) || ($2 in group)) { print $1 }'
}
for signal in TERM KILL; do
    victims=$(living)
    [ -n "$victims" ] || break
    kill -s $signal $victims 2>/dev/null
    rounds=0
    while [ -n "$(living)" ] && [ $rounds -lt 30 ]; do sleep 0.05; rounds=$((rounds + 1)); done
done
for namespace in $namespaces; do ip netns del "$namespace" 2>/dev/null; done
for directory in $directories; do rm -rf -- "$directory"; done
"#;

/// Owner's end of the pipe. Its closing starts the cleanup.
#[derive(Debug)]
pub struct Janitor {
    child: Mutex<Option<Child>>,
}

impl Janitor {
    /// Starts the shell process. It has its own process group, so Ctrl-C does not reach it.
    ///
    /// # Errors
    /// When `sh` cannot be started, or signal handlers cannot be set.
    pub fn hire() -> Result<Arc<Self>> {
        let child = Command::new("sh")
            .args(["-c", SCRIPT, "testbed-janitor"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh, which cleans up after a lab")?;
        let janitor = Arc::new(Self { child: Mutex::new(Some(child)) });
        on_signals(&janitor)?;
        Ok(janitor)
    }

    /// Reports a line to the shell process. The lines "namespace NAME", "directory PATH" and "group PGID" name a
    /// namespace, a directory or a process group to clean up. The line "ended PGID" reports the end of a process group.
    ///
    /// # Errors
    /// When the shell process has died.
    pub fn note(&self, line: &str) -> Result<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let stdin =
            child.as_mut().and_then(|child| child.stdin.as_mut()).context("the lab is being cleaned up")?;
        writeln!(stdin, "{line}").context("the process that cleans up after a lab has died")
    }

    /// Closes the pipe, and waits until the shell process has cleaned up. Concurrent callers of this function and of
    /// [`Janitor::note`] wait too. After a signal, this wait keeps the lab's owner from creating anything new before
    /// the process ends. A second call does nothing.
    pub fn dismiss(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut child) = child.take() {
            drop(child.stdin.take());
            // The shell process exits by itself, and its status has no meaning.
            let _ = child.wait();
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// Janitors of this process that a signal must dismiss.
static HIRED: Mutex<Vec<Weak<Janitor>>> = Mutex::new(Vec::new());
/// Mark that the signal thread was started; set once.
static SIGNAL_THREAD: OnceLock<()> = OnceLock::new();

fn on_signals(janitor: &Arc<Janitor>) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    HIRED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(janitor));
    if SIGNAL_THREAD.set(()).is_err() {
        return Ok(());
    }
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            eprintln!("\nstopped by a signal: cleaning up");
            let hired = std::mem::take(&mut *HIRED.lock().unwrap_or_else(PoisonError::into_inner));
            hired.iter().filter_map(Weak::upgrade).for_each(|janitor| janitor.dismiss());
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}
