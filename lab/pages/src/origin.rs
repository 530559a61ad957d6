//! The origin of figures: command, commit, date and machine.

use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

/// Suffix of a commit whose sources had changes.
const DIRTY: &str = "-dirty";
/// Text in place of a value that the system does not report.
const UNKNOWN: &str = "unknown";
/// Git pathspec that excludes the pages with results. A change of these pages does not change the measured
/// programs, so it does not make a commit dirty.
const PAGES: &str = ":(exclude,top)docs/results";

/// The origin of figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The command that measured the figures.
    pub command: String,
    /// The commit of the sources, as [`commit`] returns it.
    pub commit: String,
    /// Start of the run in UTC, to the minute.
    pub date: String,
    /// Kernel, number of processors, processor model, memory, and load average before the run.
    pub machine: String,
}

impl Origin {
    /// Describes a run that begins now. The run's programs come from the sources in `root`.
    #[must_use]
    pub fn now(root: &Path, command: &str) -> Self {
        Self {
            command: priority() + command,
            commit: commit(root),
            date: date(),
            machine: machine(&kernel(), processors(), &hardware()),
        }
    }

    /// Checks that the commit alone identifies the measured sources.
    ///
    /// # Errors
    /// Fails if the sources had changes, or if the commit is unknown.
    pub fn ensure_clean(&self) -> Result<()> {
        ensure!(self.commit != UNKNOWN && !self.commit.is_empty(), "the commit of the sources is not known");
        ensure!(
            !self.commit.ends_with(DIRTY),
            "the sources differ from commit {}: commit the changes first",
            self.commit.trim_end_matches(DIRTY)
        );
        Ok(())
    }

    /// Formats the origin as a Markdown list.
    #[must_use]
    pub fn markdown(&self) -> String {
        let Self { command, commit, date, machine } = self;
        format!("- Command: `{command}`\n- Commit: {commit}\n- Date: {date} UTC\n- Machine: {machine}\n")
    }
}

/// Returns the commit of a working tree, with the suffix `-dirty` if a tracked file outside `docs/results`
/// has changes.
#[must_use]
pub fn commit(root: &Path) -> String {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(root).args(args);
        command
    };
    let name = said(&mut git(&["describe", "--always", "--exclude=*"]));
    let is_same = git(&["diff", "--quiet", "HEAD", "--", ":/", PAGES]).status().is_ok_and(|it| it.success());
    if is_same || name == UNKNOWN { name } else { name + DIRTY }
}

/// Returns a command as a user types it in a shell. Words with special characters are quoted.
pub fn typed(words: impl IntoIterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:,=+@%".contains(c);
    let quoted = |word: String| {
        let is_bare = !word.is_empty() && word.chars().all(is_plain);
        if is_bare { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Returns the prefix that gives a command the priority of this process, such as `nice -n 10 `. For the
/// default priority, the prefix is empty.
#[must_use]
pub fn priority() -> String {
    std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| scheduler(&stat)).unwrap_or_default()
}

/// Parses the priority from a line of `/proc/PID/stat` (proc(5)).
fn scheduler(stat: &str) -> Option<String> {
    /// Positions of nice, rt_priority and policy after the program's name.
    const FIELDS: [usize; 3] = [16, 37, 38];
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let [nice, real_time, policy] = FIELDS.map(|n| fields.get(n).copied().unwrap_or_default());
    Some(match (policy, nice) {
        ("1", _) => format!("chrt -f {real_time} "),
        ("2", _) => format!("chrt -r {real_time} "),
        (_, "0") => String::new(),
        (_, nice) => format!("nice -n {nice} "),
    })
}

/// Returns the current time in UTC, to the minute.
#[must_use]
pub fn date() -> String {
    said(Command::new("date").args(["-u", "+%F %R"]))
}

/// Returns the release of the kernel.
#[must_use]
pub fn kernel() -> String {
    said(Command::new("uname").arg("-r"))
}

/// Returns the number of processors that this process may use.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns the processor model, memory and load average. Values that the kernel does not report are left out.
#[must_use]
pub fn hardware() -> String {
    let line = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = line("/proc/meminfo", "MemTotal").and_then(|kib| kib.split(' ').next()?.parse::<u64>().ok());
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|load| load.split(' ').next().map(|load| format!("load average {load} before")));
    let memory = memory.map(|kib| format!("{} GiB", (kib + (1 << 19)) >> 20));
    [line("/proc/cpuinfo", "model name"), memory, load].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Formats the kernel's release, the number of processors, and the text of [`hardware`].
#[must_use]
pub fn machine(kernel: &str, processors: usize, hardware: &str) -> String {
    let separator = if hardware.is_empty() { "" } else { ", " };
    format!("Linux {kernel}, {processors} processors{separator}{hardware}")
}

/// Returns the output of a program, or [`UNKNOWN`] if the program fails.
fn said(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    output.map_or(UNKNOWN.to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;

    pub(crate) fn origin(commit: &str) -> Origin {
        let [command, date, machine] =
            ["./x bench shim --write", "2026-11-28 09:00", "Linux 6.18, 2 processors"].map(str::to_owned);
        Origin { command, commit: commit.to_owned(), date, machine }
    }

    #[test]
    fn a_commit_is_dirty_by_changes_of_sources_but_not_by_pages_or_new_files() {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
            let done =
                Command::new("git").arg("-C").arg(dir.path()).args(identity).args(args).output().unwrap();
            assert!(done.status.success(), "{args:?}: {done:?}");
        };
        fs::create_dir_all(dir.path().join("docs/results")).unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("source", "1");
        write("docs/results/page.md", "1");
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "first"]);
        let clean = commit(dir.path());
        assert!(!clean.is_empty() && !clean.ends_with(DIRTY), "{clean}");
        write("docs/results/page.md", "2");
        write("new", "1");
        assert_eq!(commit(dir.path()), clean);
        write("source", "2");
        assert_eq!(commit(&dir.path().join("docs")), clean + DIRTY);
    }

    #[test]
    fn a_non_default_scheduling_priority_is_shown_as_nice_or_chrt() {
        let line = |nice: &str, real_time: &str, policy: &str| {
            let fields = |count: usize| "0 ".repeat(count);
            format!("7 (a b) S {}{nice} {}{real_time} {policy} 0", fields(15), fields(20))
        };
        let told = |nice, real_time, policy| scheduler(&line(nice, real_time, policy)).unwrap();
        assert_eq!((told("0", "0", "0"), told("10", "0", "0")), (String::new(), "nice -n 10 ".to_owned()));
        assert_eq!(
            (told("0", "10", "1"), told("-5", "0", "3")),
            ("chrt -f 10 ".to_owned(), "nice -n -5 ".to_owned())
        );
    }

    #[test]
    fn a_command_is_quoted_for_the_shell() {
        let words = ["x", "--only", "bulk, 20 ms/tcp", "it's", ""].map(str::to_owned);
        assert_eq!(typed(words), r"x --only 'bulk, 20 ms/tcp' 'it'\''s' ''");
    }

    #[test]
    fn figures_of_a_changed_tree_or_of_no_known_commit_are_refused() {
        assert!(origin("1a2b3c4").ensure_clean().is_ok());
        let error = origin("1a2b3c4-dirty").ensure_clean().unwrap_err().to_string();
        assert_eq!(error, "the sources differ from commit 1a2b3c4: commit the changes first");
        assert!(origin(UNKNOWN).ensure_clean().is_err());
    }
}
