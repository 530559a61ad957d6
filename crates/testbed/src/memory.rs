//! A control group that bounds the memory of processes, by whichever version of control groups the host has.
//!
//! Refuses nothing but what the kernel refuses. Invariant: the group goes with its owner; processes still in it are then the
//! root group's again. What a process had before it was taken stays charged to where it came from.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Where each version has the memory of control groups, the file that bounds it, and the one that counts kills.
const VERSIONS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup", "memory.max", "memory.events"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
];
const MEMBERS: &str = "cgroup.procs";

/// A group of processes that have so much memory together and no more.
#[derive(Debug)]
pub struct MemoryGroup {
    root: PathBuf,
    dir: PathBuf,
    kills: PathBuf,
}

impl MemoryGroup {
    /// Makes a group for `bytes` of memory beside what its processes have when they are taken; none if this host's kernel
    /// does not bound memory.
    ///
    /// # Errors
    /// When the group cannot be made, as by other users than root.
    pub fn new(name: &str, bytes: u64) -> Result<Option<Self>> {
        for (root, limit, kills) in VERSIONS {
            let root = Path::new(root);
            // Version 2 has the file only in groups below; the first tells whether there are any.
            if !root.join(MEMBERS).exists() {
                continue;
            }
            // Version 2 must be told; it has been where systemd runs.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            let dir = root.join(format!("sctpify-{name}-{}", std::process::id()));
            fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            let group = Self { root: root.to_owned(), kills: dir.join(kills), dir };
            if group.kills.exists() {
                group.write(limit, bytes)?;
                // A host that swaps would not kill. Each version has one of these files.
                let _ = fs::write(group.dir.join("memory.swap.max"), "0");
                let _ = fs::write(group.dir.join("memory.swappiness"), "0");
                return Ok(Some(group));
            }
        }
        Ok(None)
    }

    /// Takes a process in: what it allocates from now on counts.
    ///
    /// # Errors
    /// When it has ended.
    pub fn take(&self, process: u32) -> Result<()> {
        self.write(MEMBERS, process.into())
    }

    /// How many of its processes the kernel has killed.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn kills(&self) -> Result<u64> {
        let told = fs::read_to_string(&self.kills)?;
        let line = told.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.context("no oom_kill")?.trim().parse().context("oom_kill is no number")
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
            // It may have ended meanwhile.
            let _ = fs::write(self.root.join(MEMBERS), process);
        }
        if let Err(error) = fs::remove_dir(&self.dir) {
            eprintln!("{} stays: {error}", self.dir.display());
        }
    }
}
