//! Limits the memory of processes with a control group, in version 1 or 2.
//!
//! The kernel enforces the limit. Invariant: when the [`MemoryGroup`] is dropped, the group is removed, and the
//! processes that remain in the group return to the root group. Memory that a process allocated before it joined the
//! group stays charged to the process's previous group.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// For version 2 and version 1: directory of memory groups, file with the limit, and file with the number of
/// kills.
const VERSIONS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup", "memory.max", "memory.events"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
];
const MEMBERS: &str = "cgroup.procs";

/// Group of processes with a common memory limit.
#[derive(Debug)]
pub struct MemoryGroup {
    root: PathBuf,
    dir: PathBuf,
    kills: PathBuf,
}

impl MemoryGroup {
    /// Creates a group whose processes together may allocate `bytes`. Memory that a process allocated before it joined
    /// does not count. Returns `None` if the kernel does not limit memory.
    ///
    /// # Errors
    /// When the group cannot be created, for example by a user other than root.
    pub fn new(name: &str, bytes: u64) -> Result<Option<Self>> {
        for (root, limit, kills) in VERSIONS {
            let root = Path::new(root);
            // In version 2, the root group has no limit file, so its file of members shows whether the hierarchy
            // exists.
            if !root.join(MEMBERS).exists() {
                continue;
            }
            // Version 2 needs this write, except under systemd, which has already enabled the controller.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            let dir = root.join(format!("sctpify-{name}-{}", std::process::id()));
            fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
            let group = Self { root: root.to_owned(), kills: dir.join(kills), dir };
            if group.kills.exists() {
                group.write(limit, bytes)?;
                // With swap, the kernel would swap out memory instead of killing a process. Each version has one of
                // these two files.
                let _ = fs::write(group.dir.join("memory.swap.max"), "0");
                let _ = fs::write(group.dir.join("memory.swappiness"), "0");
                return Ok(Some(group));
            }
        }
        Ok(None)
    }

    /// Adds a process to the group. The process's later allocations count.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn take(&self, process: u32) -> Result<()> {
        self.write(MEMBERS, process.into())
    }

    /// Returns the number of the group's processes that the kernel has killed.
    ///
    /// # Errors
    /// When the kernel does not report the number.
    pub fn kills(&self) -> Result<u64> {
        let output = fs::read_to_string(&self.kills)?;
        let line = output.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.context("no oom_kill")?.trim().parse().context("oom_kill is not a number")
    }

    fn write(&self, file: &str, value: u64) -> Result<()> {
        let file = self.dir.join(file);
        fs::write(&file, value.to_string())
            .with_context(|| format!("cannot write {value} to {}", file.display()))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let members = fs::read_to_string(self.dir.join(MEMBERS)).unwrap_or_default();
        for process in members.lines() {
            // The process may have ended meanwhile.
            let _ = fs::write(self.root.join(MEMBERS), process);
        }
        if let Err(error) = fs::remove_dir(&self.dir) {
            eprintln!("{} stays: {error}", self.dir.display());
        }
    }
}
