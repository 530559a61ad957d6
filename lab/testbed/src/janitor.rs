//! Cleans up after a lab, even when its owner is killed by SIGKILL.
//!
//! A small shell process holds the read end of a pipe, on which it learns each namespace, directory and process
//! group. When the pipe closes, for whatever reason, it ends the processes, deletes the namespaces and the
//! directories, and exits. All exits share this path: [`Janitor::dismiss`] only closes the pipe and waits.
//! SIGINT, SIGTERM and SIGHUP dismiss every janitor of the process, then end it.

use anyhow::{Context, Result};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Script of the shell process. It sends SIGTERM first, because daemons must remove their own rules.
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

/// The owner's end of the pipe. Closing it cleans up.
#[derive(Debug)]
pub struct Janitor {
    child: Mutex<Option<Child>>,
}

impl Janitor {
    /// Starts the shell process, in its own process group, so that Ctrl-C does not reach it.
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

    /// Records something to clean up, or the end of a process group: "namespace NAME", "directory PATH", "group
    /// PGID", "ended PGID".
    ///
    /// # Errors
    /// When the shell process has died.
    pub fn note(&self, line: &str) -> Result<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let stdin =
            child.as_mut().and_then(|child| child.stdin.as_mut()).context("the lab is being cleaned up")?;
        writeln!(stdin, "{line}").context("the process that cleans up after a lab has died")
    }

    /// Cleans everything up, and waits until that is done. Concurrent callers of this and of [`Janitor::note`]
    /// wait as well: after a signal, this stops the lab's owner until the process ends. A second call does
    /// nothing.
    pub fn dismiss(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut child) = child.take() {
            drop(child.stdin.take());
            // The shell process exits by itself; its status has no meaning.
            let _ = child.wait();
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// The janitors of this process that a signal must dismiss.
static HIRED: Mutex<Vec<Weak<Janitor>>> = Mutex::new(Vec::new());
/// Marks the signal thread as started; set once.
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
