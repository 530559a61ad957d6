//! A guest that routes between two network namespaces through its kernel's netem.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::statistics::EmulatedLink;

/// The guest's name, which `boot.sh` uses within this test's namespaces.
const GUEST: &str = "k1";

/// A running guest. The guest stops when this value is dropped.
pub(crate) struct Guest {
    boot: PathBuf,
    prefix: String,
}

impl Guest {
    /// Boots the guest. The boot takes about 5 s. The first boot on a machine takes about a minute. Returns `None` if the machine
    /// cannot run the guest.
    pub(crate) fn up() -> Option<Guest> {
        let has_apt = Path::new("/usr/bin/apt-get").is_file();
        if !has_apt || !Path::new("/dev/net/tun").exists() {
            return None;
        }
        let boot = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kernel-sctp/boot.sh");
        let guest = Guest { boot, prefix: format!("linkemu{}", std::process::id()) };
        guest.must(&["up", GUEST]);
        guest.must(&["router", GUEST]);
        Some(guest)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.boot);
        command.args(words).env("KSCTP_PREFIX", &self.prefix);
        command
    }

    fn must(&self, words: &[&str]) {
        let output = self.command(words).output().expect("boot.sh");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "boot.sh {words:?}: {errors}");
    }
}

impl EmulatedLink for Guest {
    fn near(&self, program: &str) -> Command {
        self.command(&["peer", program])
    }

    fn far(&self, program: &str) -> Command {
        self.command(&["peer2", program])
    }

    fn address(&self) -> &'static str {
        "10.60.1.2"
    }

    fn set(&self, settings: &str) {
        self.must(&["exec", GUEST, &format!("tc qdisc replace dev eth1 root netem limit 1000 {settings}")]);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // If the guest never started, the failure of this command does not matter.
        let _ = self.command(&["down-all"]).output();
        let work = std::env::var_os("KSCTP_WORK").map(PathBuf::from).or_else(|| {
            let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            cache
                .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")))
                .map(|dir| dir.join("ksctp"))
        });
        if let Some(work) = work {
            let _ = std::fs::remove_dir_all(work.join(format!("run-{}", self.prefix)));
        }
    }
}
