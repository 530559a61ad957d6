//! Sets and restores sysctls of the network namespace.
//!
//! The files in /proc/sys stay open, so a process that has lost the right to open them can still restore the values.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROOT: &str = "/proc/sys/net";

/// Sysctls that interception needs, except the sysctls of the veth's ends. With `fwmark_reflect`, the RST of a closed port goes
/// back to the private namespace, not to the real client. With `tcp_fwmark_accept`, an accepted connection keeps the mark of its
/// SYN, so replies go back to the private namespace.
const NEEDED: [&str; 3] = ["ipv4/tcp_fwmark_accept", "ipv4/fwmark_reflect", "ipv6/fwmark_reflect"];

/// The original values of the sysctls that an interceptor changes.
#[derive(Clone)]
pub struct SavedSysctls {
    values: Vec<Saved>,
}

#[derive(Clone)]
struct Saved {
    name: &'static str,
    file: Arc<File>,
    value: String,
}

impl SavedSysctls {
    /// Reads the values of the calling thread's network namespace. Omits sysctls that the kernel lacks, for example without IPv6.
    pub fn read() -> io::Result<SavedSysctls> {
        let mut values = Vec::new();
        for name in NEEDED {
            match open(&path(name)) {
                Ok(mut file) => {
                    let mut value = String::new();
                    file.read_to_string(&mut value)?;
                    values.push(Saved { name, file: Arc::new(file), value: value.trim().to_owned() });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(SavedSysctls { values })
    }

    /// Turns all saved sysctls on.
    pub(crate) fn turn_on(&self) -> io::Result<()> {
        self.values.iter().try_for_each(|saved| saved.set("1"))
    }

    /// Restores the sysctls that this interceptor turned on. If another program has changed a sysctl since then, that change
    /// stays.
    pub(crate) fn restore(&self) -> io::Result<()> {
        for saved in &self.values {
            if saved.value != "1" && saved.now()?.trim() == "1" {
                saved.set(&saved.value)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for SavedSysctls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.values.iter().map(|saved| (saved.name, &saved.value))).finish()
    }
}

impl Saved {
    fn now(&self) -> io::Result<String> {
        const LONGEST: usize = 32;
        let mut text = [0; LONGEST];
        let length = self.file.read_at(&mut text, 0)?;
        Ok(String::from_utf8_lossy(&text[..length]).into_owned())
    }

    fn set(&self, value: &str) -> io::Result<()> {
        self.file.write_at(value.as_bytes(), 0).map(drop)
    }
}

/// Opens the file for reading and writing, or only for reading if writing is not allowed. In the second case, a later change of
/// the sysctl fails.
fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path).or_else(|_| File::open(path))
}

/// Reports whether this namespace has IPv6.
pub(crate) fn has_ipv6() -> bool {
    path("ipv6").exists()
}

/// Sets `net.<name>` in the calling thread's namespace.
pub(crate) fn set(name: &str, value: &str) -> io::Result<()> {
    fs::write(path(name), value)
}

fn path(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}
