//! Runs `tc`, and reads an interface's queueing disciplines.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::args::Leaves;
use crate::error::RouterError;
use crate::tc::plan::{MAJOR, Plan, removal};

/// Output of `tc` for an interface with our classes.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) interface: String,
    /// Queueing disciplines: kind, handle, parent, options.
    pub(crate) queues: Value,
    /// Text of all classes, with their counters.
    pub(crate) classes: String,
    /// Minor number of each class for packets (0 is the root), and the text of its filters.
    pub(crate) filters: Vec<(u32, String)>,
}

fn no_tc(source: std::io::Error) -> RouterError {
    RouterError::CannotRun { program: "tc", package: "iproute2", source }
}

/// Runs `tc` with these arguments and lines of input. Returns its output.
fn tc(words: &[&str], lines: &[String]) -> Result<String, RouterError> {
    let mut child = Command::new("tc")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_tc)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A write error is ignored: if `tc` stops reading, its own error message states the reason.
        let _ = stdin.write_all((lines.join("\n") + "\n").as_bytes());
    }
    let output = child.wait_with_output().map_err(no_tc)?;
    let problem = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // In "Command failed -:7", 7 is the number of the input line.
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

/// Returns the kind of leaves to use. For [`Leaves::Auto`], returns [`Leaves::Sfq`] if this kernel supports SFQ, else
/// [`Leaves::Hashed`]. A child process tests SFQ in a separate network namespace, which ends with that process.
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

/// Returns the kind and the handle of the root queueing discipline; `None` for the kernel's default.
fn root(queues: &Value) -> Option<(String, String)> {
    let root = queues.as_array()?.iter().find(|queue| queue["root"] == true)?;
    let word = |key: &str| root[key].as_str().unwrap_or_default().to_owned();
    Some((word("kind"), word("handle"))).filter(|(_, handle)| handle != "0:")
}

fn is_ours(root: &(String, String)) -> bool {
    *root == ("htb".to_owned(), format!("{MAJOR:x}:"))
}

/// Creates the planned classes. If a step fails, all steps are undone.
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
        // Only the first error is reported. An error of the removal is ignored, because the root may not exist.
        let _ = tc(&["-batch", "-"], &[removal(interface)]);
    }
    outcome.map(|_| ())
}

/// Removes our classes.
pub(crate) fn remove(interface: &str) -> Result<(), RouterError> {
    ours(interface)?;
    tc(&["-batch", "-"], &[removal(interface)]).map(|_| ())
}

/// Returns the queueing disciplines of an interface, if the root is ours.
fn ours(interface: &str) -> Result<Value, RouterError> {
    let queues = json(&["qdisc", "show", "dev", interface])?;
    match root(&queues) {
        Some(root) if is_ours(&root) => Ok(queues),
        Some((kind, handle)) => Err(RouterError::Occupied { interface: interface.to_owned(), kind, handle }),
        None => Err(RouterError::Absent { interface: interface.to_owned() }),
    }
}

/// Reads the current state of an interface with our classes.
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
    fn only_htb_with_our_handle_is_our_root_qdisc_and_the_default_counts_as_none() {
        let queues = |kind: &str, handle: &str| serde_json::json!([{"kind": "pfifo", "handle": "5:"}, {"kind": kind, "handle": handle, "root": true}]);
        assert_eq!(root(&queues("noqueue", "0:")), None);
        assert!(is_ours(&root(&queues("htb", "5ba:")).unwrap()));
        assert!(!is_ours(&root(&queues("htb", "1:")).unwrap()));
        assert!(!is_ours(&root(&queues("fq", "5ba:")).unwrap()));
    }
}
