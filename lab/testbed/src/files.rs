//! Files with random content, their SHA-256, and the growth of a file.

use crate::host::run_tool;
use crate::process::now;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which [`Growth`] polls its file. The interval is also the resolution of the reported silence.
const GROWTH_POLL: Duration = Duration::from_millis(5);

/// Creates a file of `bytes` random bytes.
///
/// # Errors
/// When the file cannot be written.
pub fn make_random(path: &Path, bytes: u64) -> Result<()> {
    let mut from = File::open("/dev/urandom")?.take(bytes);
    let mut to = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    std::io::copy(&mut from, &mut to).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// Returns the SHA-256 of a file, in hexadecimal, computed by the host's `sha256sum`.
///
/// # Errors
/// When the file cannot be read.
pub fn sha256(path: &Path) -> Result<String> {
    let line = run_tool("sha256sum", &[&path.to_string_lossy()])?;
    Ok(line.split(' ').next().unwrap_or_default().trim_start_matches('\\').to_owned())
}

/// Watch on a file that another process writes.
#[derive(Debug)]
pub struct Growth {
    done: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Growth {
    /// Starts to poll the file's length every 5 ms. The measurement begins with the first byte.
    pub fn watch(path: &Path) -> Self {
        let (path, done) = (path.to_owned(), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            let (mut length, mut last, mut longest) = (0, now(), Duration::ZERO);
            while !flag.load(Ordering::Relaxed) {
                let new = std::fs::metadata(&path).map_or(0, |meta| meta.len());
                if new != length {
                    longest = if length == 0 { Duration::ZERO } else { longest.max(last.elapsed()) };
                    (length, last) = (new, now());
                }
                std::thread::sleep(GROWTH_POLL);
            }
            longest
        });
        Self { done, thread }
    }

    /// Returns the longest silence: the longest time without a new byte, between the first byte and the last
    /// byte. The resolution is 5 ms.
    pub fn longest_silence(self) -> Duration {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(Duration::MAX)
    }
}
