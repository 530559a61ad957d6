//! A guest with the Linux kernel's own SCTP, and two namespaces of this machine with links to the guest. The
//! scripts in `tests/kernel-sctp` create and remove the guest and the namespaces.
//!
//! The names are unique to this process, so concurrent runs do not collide. A small shell process reads a
//! pipe from this process. When the pipe closes, the shell process removes the guest and the namespaces. The
//! pipe closes in every case when this process ends. Begin with [`Guest::up`].

use crate::host::output_of;
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Script of the process at the end of the pipe. It ends the processes in our namespaces, and removes the
/// guest and the namespaces.
const UNDERTAKER: &str = r#"
trap '' INT TERM HUP PIPE
cat >/dev/null
for namespace in peer peer2 net; do
    kill $(ip netns pids "$KSCTP_PREFIX-$namespace" 2>/dev/null) 2>/dev/null
done
"$1" down-all
rm -rf "$2" "${KSCTP_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/ksctp}/run-$KSCTP_PREFIX"
"#;

/// The name of the guest.
const NAME: &str = "k1";
/// Limit on the run time of a command of [`Guest::run`], in seconds.
const LIMIT_S: &str = "20";

/// Running guest and its namespaces, which exist until this value is dropped.
#[derive(Debug)]
pub struct Guest {
    boot: PathBuf,
    prefix: String,
    dir: PathBuf,
    undertaker: Child,
}

impl Guest {
    /// Returns the first prerequisite, other than root, that this machine lacks to boot a guest; `None` if it
    /// has all.
    pub fn missing() -> Option<&'static str> {
        const NEEDED: &[&str] = &["/dev/net/tun", "/usr/bin/apt-get"];
        NEEDED.iter().find(|path| !Path::new(path).exists()).copied()
    }

    /// Boots a guest. The boot takes about 5 s. On a machine's first run, it takes a minute. All names start
    /// with `word` and this process's id.
    ///
    /// # Errors
    /// Without root, `/dev/net/tun` or Debian's packages. The error has the output of `boot.sh`.
    pub fn up(word: &str) -> Result<Self> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").canonicalize()?;
        let boot = tests.join("kernel-sctp/boot.sh");
        let dir = tempfile::Builder::new().prefix(&format!("{word}{}", std::process::id())).tempdir()?.keep();
        // The random part of the name keeps several guests of one process apart.
        let prefix = dir.file_name().map(|name| name.to_string_lossy().replace('.', "")).unwrap_or_default();
        let undertaker = Command::new("sh")
            .args(["-c", UNDERTAKER, "undertaker"])
            .args([&boot, &dir])
            .env("KSCTP_PREFIX", &prefix)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        let guest = Self { boot, prefix, dir, undertaker };
        guest.boot(&["up", NAME])?;
        Ok(guest)
    }

    /// Returns a command that runs `boot.sh` of `tests/kernel-sctp` with these arguments.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.boot);
        command.args(words).env("KSCTP_PREFIX", &self.prefix);
        command
    }

    /// Runs `boot.sh` with these arguments, and returns its standard output.
    ///
    /// # Errors
    /// When `boot.sh` fails, with its output.
    pub fn boot(&self, words: &[&str]) -> Result<String> {
        output_of(self.command(words))
    }

    /// Returns a command that runs a program in the guest for up to `seconds`. The caller appends the program
    /// and its arguments.
    pub fn program(&self, seconds: u64) -> Command {
        self.command(&["exec", NAME, "-t", &seconds.to_string()])
    }

    /// Runs a shell line in the guest for up to 20 s, and returns its standard output.
    ///
    /// # Errors
    /// When the command fails, with its output.
    pub fn run(&self, line: &str) -> Result<String> {
        self.boot(&["exec", NAME, "-t", LIMIT_S, line])
    }

    /// Makes the guest's kernel carry SCTP in UDP (port 9899) if `on` is set, and over IP otherwise.
    ///
    /// # Errors
    /// When the guest's kernel refuses.
    pub fn carry_over_udp(&self, on: bool) -> Result<()> {
        self.boot(&["encap", NAME, if on { "9899" } else { "0" }]).map(drop)
    }

    /// Returns the full name of a namespace: "peer", "peer2", or "net", which has the bridges.
    pub fn namespace(&self, which: &str) -> String {
        format!("{}-{which}", self.prefix)
    }

    /// Returns the directory of `boot.sh` and its related scripts.
    pub fn scripts(&self) -> &Path {
        self.boot.parent().unwrap_or(&self.boot)
    }

    /// Returns a directory that is removed with the guest.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path under which the guest sees a file of this machine. This path also works for files
    /// below `/tmp`, which the guest's own `/tmp` hides.
    pub fn path_inside(file: &Path) -> PathBuf {
        Path::new("/run/host").join(file.strip_prefix("/").unwrap_or(file))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(self.undertaker.stdin.take());
        // The exit status has no meaning. The wait ensures that the guest and the namespaces are removed
        // before the tests end.
        let _ = self.undertaker.wait();
    }
}
