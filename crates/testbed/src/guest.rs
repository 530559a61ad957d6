//! A guest with the Linux kernel's own SCTP, and two namespaces of this machine beside it: `tests/kernel-sctp`.
//!
//! The names are this process's own, so that two runs do not meet. A small shell process waits at the end of a pipe
//! and takes everything down when the pipe closes, however this process ends. Begin with [`Guest::up`].

use crate::host::output_of;
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What the process at the end of the pipe does: ends what runs in our namespaces, then the guest and them.
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
/// How long a command in the guest may take, in seconds, as [`Guest::run`] has it.
const LIMIT_S: &str = "20";

/// A running guest and its namespaces, until dropped.
#[derive(Debug)]
pub struct Guest {
    boot: PathBuf,
    prefix: String,
    dir: PathBuf,
    undertaker: Child,
}

impl Guest {
    /// What a guest needs and this machine lacks, beside root; none if it can be booted.
    pub fn missing() -> Option<&'static str> {
        const NEEDED: &[&str] = &["/dev/net/tun", "/usr/bin/apt-get"];
        NEEDED.iter().find(|path| !Path::new(path).exists()).copied()
    }

    /// Boots a guest (5 s; a minute the first time on a machine). All names begin with `word` and this process's id.
    ///
    /// # Errors
    /// Without root, `/dev/net/tun` or Debian's packages, with what `boot.sh` said.
    pub fn up(word: &str) -> Result<Self> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").canonicalize()?;
        let boot = tests.join("kernel-sctp/boot.sh");
        let dir = tempfile::Builder::new().prefix(&format!("{word}{}", std::process::id())).tempdir()?.keep();
        // Several guests of one process do not meet either.
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

    /// A command of `boot.sh`, which lies in `tests/kernel-sctp`.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.boot);
        command.args(words).env("KSCTP_PREFIX", &self.prefix);
        command
    }

    /// Runs a command of `boot.sh`; its standard output.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn boot(&self, words: &[&str]) -> Result<String> {
        output_of(self.command(words))
    }

    /// A program to be run in the guest for at most `seconds`, with the program's words to follow.
    pub fn program(&self, seconds: u64) -> Command {
        self.command(&["exec", NAME, "-t", &seconds.to_string()])
    }

    /// Runs a shell line in the guest, at most 20 s; its standard output.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn run(&self, line: &str) -> Result<String> {
        self.boot(&["exec", NAME, "-t", LIMIT_S, line])
    }

    /// Has the guest's kernel carry SCTP in UDP, or over IP.
    ///
    /// # Errors
    /// When its kernel refuses.
    pub fn carry_over_udp(&self, on: bool) -> Result<()> {
        self.boot(&["encap", NAME, if on { "9899" } else { "0" }]).map(drop)
    }

    /// The name of one of its namespaces: "peer", "peer2" or "net", which has the bridges.
    pub fn namespace(&self, which: &str) -> String {
        format!("{}-{which}", self.prefix)
    }

    /// Where `boot.sh` and its companions lie.
    pub fn scripts(&self) -> &Path {
        self.boot.parent().unwrap_or(&self.boot)
    }

    /// A directory that goes with the guest.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path by which the guest sees a file of this machine, also what its own `/tmp` hides.
    pub fn path_inside(file: &Path) -> PathBuf {
        Path::new("/run/host").join(file.strip_prefix("/").unwrap_or(file))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(self.undertaker.stdin.take());
        // Its status says nothing; it is waited for so that nothing is left when the tests have ended.
        let _ = self.undertaker.wait();
    }
}
