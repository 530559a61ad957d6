//! A lab: the namespaces, links, processes and files of one run, and their end.

use crate::host::{Host, run_tool};
use crate::janitor::Janitor;
use crate::link::{Link, Offloads};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// State shared by a lab's hosts and processes.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dir: PathBuf,
    pub(crate) janitor: Arc<Janitor>,
    processes: AtomicU32,
}

impl Shared {
    /// Returns a number for each process, which makes log files ordered and unique.
    pub(crate) fn next_number(&self) -> u32 {
        self.processes.fetch_add(1, Ordering::Relaxed)
    }
}

/// The world of one run. Cleaned up on drop.
#[derive(Debug)]
pub struct Lab {
    id: String,
    shared: Arc<Shared>,
}

impl Lab {
    /// Makes an empty lab: a directory under the temporary directory, and a janitor.
    ///
    /// # Errors
    /// Without root, or when the directory or the janitor cannot be made.
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

    /// Returns the lab's directory; its content is removed with the lab.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Makes a host: a network namespace with its loopback up. `name` is unique within the lab.
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

    /// Adopts a namespace that its creator removes, as a host.
    pub fn adopt(&self, name: &str, namespace: String) -> Host {
        Host::new(name, namespace, Arc::clone(&self.shared))
    }

    /// Joins two hosts by link `number` (1 to 250): see [`Link`] for its names and addresses.
    ///
    /// # Errors
    /// When the link exists already, or a tool fails.
    pub fn join(&self, left: &Host, right: &Host, number: u8, offloads: Offloads) -> Result<Link> {
        Link::between(left, right, number, offloads)
    }

    /// Ends every process, deletes namespaces and files, and returns the leftovers, of which there should be
    /// none.
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

/// Returns the processes whose command line contains the directory.
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
