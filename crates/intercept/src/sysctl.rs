//! Sysctls of the network namespace: set, and put back as they were.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = "/proc/sys/net";

/// What interception needs beyond its own interfaces. `fwmark_reflect`: the RST of a closed port goes back to
/// the private namespace, not to the real client. `tcp_fwmark_accept`: an accepted connection keeps its mark,
/// so replies find the way back.
const NEEDED: [&str; 3] = ["ipv4/tcp_fwmark_accept", "ipv4/fwmark_reflect", "ipv6/fwmark_reflect"];

/// The sysctls that an interceptor changes, as they were before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedSysctls {
    values: Vec<(&'static str, String)>,
}

impl SavedSysctls {
    /// Reads the values of the calling thread's network namespace. Those the kernel does not have (IPv6 turned
    /// off) are left out.
    pub fn read() -> io::Result<SavedSysctls> {
        let mut values = Vec::new();
        for name in NEEDED {
            match fs::read_to_string(path(name)) {
                Ok(value) => values.push((name, value.trim().to_owned())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(SavedSysctls { values })
    }

    /// Turns all of them on.
    pub(crate) fn turn_on(&self) -> io::Result<()> {
        self.values.iter().try_for_each(|(name, _)| fs::write(path(name), "1"))
    }

    /// Puts back those that still have the value we gave them: someone else's later change stays.
    pub(crate) fn restore(&self) -> io::Result<()> {
        for (name, value) in &self.values {
            let is_ours = fs::read_to_string(path(name))?.trim() == "1";
            if is_ours && value != "1" {
                fs::write(path(name), value)?;
            }
        }
        Ok(())
    }
}

/// Whether this namespace has IPv6.
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
