//! Runs `tc`, and reads an interface's queueing disciplines.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::args::Leaves;
use crate::error::RouterError;
use crate::tc::plan::{MAJOR, Plan, removal};

/// The output of `tc` for an interface, as far as it is ours.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) interface: String,
    /// Of all queues: kind, handle, parent, options.
    pub(crate) queues: Value,
    /// The lines of all classes, with what was counted.
    pub(crate) classes: String,
    /// All filters of the root, and of the classes that have some of their own.
    pub(crate) filters: Vec<(u32, String)>,
}

fn no_tc(source: std::io::Error) -> RouterError {
    RouterError::CannotRun { program: "tc", package: "iproute2", source }
}

/// Runs `tc` with these words, and gives it the lines; tells what it prints.
fn tc(words: &[&str], lines: &[String]) -> Result<String, RouterError> {
    let mut child = Command::new("tc")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_tc)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that stops reading says why itself.
        let _ = stdin.write_all((lines.join("\n") + "\n").as_bytes());
    }
    let output = child.wait_with_output().map_err(no_tc)?;
    let problem = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // "Command failed -:7" counts the lines.
    let failed = problem.rsplit_once("Command failed -:").and_then(|(_, n)| n.trim().parse::<usize>().ok());
    let command = failed.and_then(|n| lines.get(n.checked_sub(1)?)).cloned();
    Err(RouterError::Tc { command: command.unwrap_or_else(|| words.join(" ")), problem })
}

fn json(words: &[&str]) -> Result<Value, RouterError> {
    let report = tc(&[&["-j"], words].concat(), &[])?;
    let report = if report.trim().is_empty() { "[]" } else { report.as_str() };
    serde_json::from_str(report).map_err(|error| RouterError::Tc {
        command: words.join(" "),
        problem: format!("it does not print JSON ({error}): it may be older than iproute2 5.0"),
    })
}

/// The leaves that this kernel has: SFQ is tried in a network namespace of its own, where it is gone with the process.
pub(crate) fn resolve(leaves: Leaves) -> Result<Leaves, RouterError> {
    if leaves != Leaves::Auto {
        return Ok(leaves);
    }
    let words = ["--net", "tc", "qdisc", "add", "dev", "lo", "root", "sfq"];
    let tried = Command::new("unshare").args(words).output().map_err(|source| RouterError::CannotRun {
        program: "unshare",
        package: "util-linux",
        source,
    })?;
    let problem = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
    match tried.status.success() {
        true => Ok(Leaves::Sfq),
        false if problem.contains("qdisc kind is unknown") => Ok(Leaves::Hashed),
        false => Err(RouterError::Tc {
            command: "qdisc add ... sfq, to test whether this kernel supports it".to_owned(),
            problem: format!("{problem}; it requires root, or use --leaves"),
        }),
    }
}

/// The root queueing discipline: its kind and handle, if it is not the kernel's own.
fn root(queues: &Value) -> Option<(String, String)> {
    let root = queues.as_array()?.iter().find(|queue| queue["root"] == true)?;
    let word = |key: &str| root[key].as_str().unwrap_or_default().to_owned();
    Some((word("kind"), word("handle"))).filter(|(_, handle)| handle != "0:")
}

fn is_ours(root: &(String, String)) -> bool {
    *root == ("htb".to_owned(), format!("{MAJOR:x}:"))
}

/// Makes what is planned; all of it or nothing.
pub(crate) fn make(plan: &Plan) -> Result<(), RouterError> {
    let interface = plan.interface();
    if let Some(root) = root(&json(&["qdisc", "show", "dev", interface])?) {
        if is_ours(&root) {
            return Err(RouterError::Present { interface: interface.to_owned() });
        }
        let (kind, handle) = root;
        return Err(RouterError::Occupied { interface: interface.to_owned(), kind, handle });
    }
    let outcome = tc(&["-batch", "-"], &plan.commands());
    if outcome.is_err() {
        // The first refusal matters; there may be nothing to remove.
        let _ = tc(&["-batch", "-"], &[removal(interface)]);
    }
    outcome.map(|_| ())
}

/// Takes away what is ours.
pub(crate) fn remove(interface: &str) -> Result<(), RouterError> {
    ours(interface)?;
    tc(&["-batch", "-"], &[removal(interface)]).map(|_| ())
}

/// The queues of an interface whose root is ours.
fn ours(interface: &str) -> Result<Value, RouterError> {
    let queues = json(&["qdisc", "show", "dev", interface])?;
    match root(&queues) {
        Some(root) if is_ours(&root) => Ok(queues),
        Some((kind, handle)) => Err(RouterError::Occupied { interface: interface.to_owned(), kind, handle }),
        None => Err(RouterError::Absent { interface: interface.to_owned() }),
    }
}

/// Reads the current state.
pub(crate) fn read(interface: &str) -> Result<Found, RouterError> {
    let queues = ours(interface)?;
    let classes = tc(&["-s", "class", "show", "dev", interface], &[])?;
    let mut filters = Vec::new();
    for minor in std::iter::once(0).chain(super::plan::tens().map(|(minor, _)| minor)) {
        let parent = if minor == 0 { format!("{MAJOR:x}:") } else { format!("{MAJOR:x}:{minor:x}") };
        filters.push((minor, tc(&["filter", "show", "dev", interface, "parent", &parent], &[])?));
    }
    Ok(Found { interface: interface.to_owned(), queues, classes, filters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_root_is_ours_and_the_kernels_default_is_none() {
        let queues = |kind: &str, handle: &str| serde_json::json!([{"kind": "pfifo", "handle": "5:"}, {"kind": kind, "handle": handle, "root": true}]);
        assert_eq!(root(&queues("noqueue", "0:")), None);
        assert!(is_ours(&root(&queues("htb", "5ba:")).unwrap()));
        assert!(!is_ours(&root(&queues("htb", "1:")).unwrap()));
        assert!(!is_ours(&root(&queues("fq", "5ba:")).unwrap()));
    }
}
