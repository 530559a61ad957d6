//! Programs of the stacks: locations, builds, and missing parts. `scripts/setup.sh` installs the optional
//! stacks, if the host can run them. Begin with [`Stack::lacks`].

use crate::cell::Stack;
use crate::world::output;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installation directory of setup.sh.
pub(crate) const BROUGHT: &str = "/usr/local/lib/sctpify-tests";
/// Directory of the newer usrsctp. Its source comes from a Rust crate that bundles it.
const USRSCTP: &str = "/usr/local/lib/sctpify-tests/usrsctp-0.23.0";
const KERNEL_SCTP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/kernel-sctp");
const INTEROP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/interop");
/// Python code that fails if aiortc's SCTP cannot be loaded.
const LOAD_AIORTC: &str = "import google_crc32c, pyee.asyncio, importlib.metadata as m; m.version('aiortc')";

/// Python code that fails if the packages of the judge of sealed packets are missing.
const LOAD_OPENSSL: &str =
    "import cryptography.exceptions, _cffi_backend, importlib.metadata as m; m.version('psycopg-binary')";

impl Stack {
    /// Describes the part of this stack that this host lacks; `None` if nothing is missing.
    pub(crate) fn lacks(self) -> Option<String> {
        let why = match self {
            Self::Ours | Self::Kernel | Self::Usrsctp => return None,
            Self::CurrentUsrsctp => {
                (!Path::new(USRSCTP).exists()).then(|| "a usrsctp newer than Debian's".to_owned())
            }
            Self::Pion => {
                let error = output(go().args(["list", "-deps", "."])).err();
                error.map(|_| "Go 1.24 and the module pion/sctp".to_owned())
            }
            Self::Aiortc => lacks_python(LOAD_AIORTC).then(|| "Python 3.11 and aiortc".to_owned()),
            Self::Openssl => {
                lacks_python(LOAD_OPENSSL).then(|| "Python 3.11, psycopg-binary and cryptography".to_owned())
            }
        };
        why.map(|what| format!("SKIPPED: needs {what} (scripts/setup.sh)"))
    }

    /// Reports whether the stack is usrsctp in either version. Both versions use the same program.
    pub(crate) fn is_usrsctp(self) -> bool {
        matches!(self, Self::Usrsctp | Self::CurrentUsrsctp)
    }

    /// Builds the stack's program in `dir`, if it needs a build.
    pub(crate) fn make(self, dir: &Path) -> Result<()> {
        let source = Path::new(KERNEL_SCTP).join("usrsctp_peer.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-o"]).arg(self.program(dir));
        let made = match self {
            Self::Ours | Self::Kernel | Self::Aiortc | Self::Openssl => return Ok(()),
            Self::Usrsctp => output(gcc.arg(source).args(["-lusrsctp", "-lpthread"])),
            Self::CurrentUsrsctp => {
                let library = Path::new(USRSCTP).join("libusrsctp.a");
                output(gcc.arg("-I").arg(USRSCTP).arg(source).arg(library).arg("-lpthread"))
            }
            Self::Pion => output(go().args(["build", "-o"]).arg(self.program(dir)).arg(".")),
        };
        made.map(drop)
    }

    /// Returns the path of the stack's program. Built programs are in `dir`.
    pub(crate) fn program(self, dir: &Path) -> PathBuf {
        match self {
            Self::Ours => env!("CARGO_BIN_EXE_peer").into(),
            Self::Kernel => Path::new(KERNEL_SCTP).join("kernel_peer.py"),
            Self::Usrsctp => dir.join("usrsctp_peer"),
            Self::CurrentUsrsctp => dir.join("current_usrsctp_peer"),
            Self::Pion => dir.join("pion_peer"),
            Self::Aiortc => Path::new(INTEROP).join("aiortc_peer.py"),
            Self::Openssl => Path::new(INTEROP).join("sealed_peer.py"),
        }
    }
}

/// Reports whether Python fails to run `line` with the packages that setup.sh installs.
fn lacks_python(line: &str) -> bool {
    output(Command::new("python3").env("PYTHONPATH", BROUGHT).args(["-c", line])).is_err()
}

/// Returns a Go command that runs in the directory of pion's program, without network access.
fn go() -> Command {
    let mut command = Command::new("go");
    command.current_dir(Path::new(INTEROP).join("pion")).env("GOMODCACHE", format!("{BROUGHT}/go"));
    command.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")]);
    command
}
