//! A lab: creates and removes the namespaces, links, processes and files of one run.

use crate::host::{Host, run_tool};
use crate::janitor::Janitor;
use crate::link::{Link, Offloads};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// State that a lab's hosts and processes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dir: PathBuf,
    pub(crate) janitor: Arc<Janitor>,
    processes: AtomicU32,
}

impl Shared {
    /// Returns the next process number. The number makes the names of log files unique, and gives their
    /// order.
    pub(crate) fn next_number(&self) -> u32 {
        self.processes.fetch_add(1, Ordering::Relaxed)
    }
}

/// Namespaces, links, processes and files of one run. All of them are removed when this value is dropped.
#[derive(Debug)]
pub struct Lab {
    id: String,
    shared: Arc<Shared>,
}

impl Lab {
    /// Creates an empty lab: a directory under the temporary directory, and a janitor.
    ///
    /// # Errors
    /// When the user is not root, or when the directory or the janitor cannot be created.
    pub fn new() -> Result<Self> {
        ensure!(crate::is_root(), "creating network namespaces requires root");
        let janitor = Janitor::hire()?;
        let dir = tempfile::Builder::new()
            .prefix("sctpify-lab-")
            .tempdir()
            .context("cannot create a directory")?
            .keep();
        janitor.note(&format!("directory {}", dir.display()))?;
        std::fs::create_dir(dir.join("logs"))?;
        let random = dir.to_string_lossy().rsplit('-').next().unwrap_or_default().to_owned();
        let id = format!("sctpify-{}-{random}", std::process::id());
        Ok(Self { id, shared: Arc::new(Shared { dir, janitor, processes: AtomicU32::new(0) }) })
    }

    /// Returns the lab's directory, which is removed with the lab.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Creates a host: a network namespace whose loopback interface is up. `name` must be unique within the
    /// lab.
    ///
    /// # Errors
    /// When `ip netns add` fails.
    pub fn host(&self, name: &str) -> Result<Host> {
        let namespace = format!("{}-{name}", self.id);
        self.shared.janitor.note(&format!("namespace {namespace}"))?;
        run_tool("ip", &["netns", "add", &namespace])?;
        run_tool("ip", &["-n", &namespace, "link", "set", "lo", "up"])?;
        Ok(Host::new(name, namespace, Arc::clone(&self.shared)))
    }

    /// Returns a host for an existing namespace. The creator of the namespace removes it, not the lab.
    pub fn adopt(&self, name: &str, namespace: String) -> Host {
        Host::new(name, namespace, Arc::clone(&self.shared))
    }

    /// Joins two hosts with link `number` (1 to 250). Module [`link`](crate::link) describes the names and
    /// addresses of links.
    ///
    /// # Errors
    /// When the link already exists, or a tool fails.
    pub fn join(&self, left: &Host, right: &Host, number: u8, offloads: Offloads) -> Result<Link> {
        Link::between(left, right, number, offloads)
    }

    /// Ends every process, and deletes namespaces and files. Returns a description of each leftover; an empty
    /// list means success.
    pub fn clear_up(self) -> Vec<String> {
        self.shared.janitor.dismiss();
        let mut left = Vec::new();
        if self.shared.dir.exists() {
            left.push(format!("directory {}", self.shared.dir.display()));
        }
        left.extend(
            files_starting_with("/run/netns", &self.id).into_iter().map(|name| format!("namespace {name}")),
        );
        left.extend(processes_naming(&self.shared.dir).into_iter().map(|line| format!("process {line}")));
        left
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.shared.janitor.dismiss();
    }
}

fn files_starting_with(dir: &str, start: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(start))
        .collect()
}

/// Returns the processes whose command line contains the path `dir`.
fn processes_naming(dir: &Path) -> Vec<String> {
    let dir = dir.to_string_lossy();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| {
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        words.contains(&*dir).then(|| format!("{}: {words}", entry.file_name().to_string_lossy()))
    });
    lines.collect()
}
