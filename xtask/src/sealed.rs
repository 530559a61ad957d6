//! The engine's tests with sealed packets: the same worlds, in which all hosts offer protection by DTLS chunks.

use std::process::Command;

/// Environment variable that makes all hosts of the simulated worlds offer protection.
pub(crate) const SEALED: &str = "SIM_PROTECTED";

/// Modules of the engine's tests that do not run with sealed packets, because they offer protection themselves, or take long and test little
/// of sealing.
const NOT_SEALED: [&str; 3] = ["alternating::", "protection::", "size_holes::"];

/// Makes a test program of the engine, or cargo, run with sealed packets. Leaves out the modules that do not run so. With cargo, the
/// arguments of `command` must already end with `--`.
pub(crate) fn run_sealed(command: &mut Command) -> &mut Command {
    for module in NOT_SEALED {
        command.args(["--skip", module]);
    }
    command.env(SEALED, "1")
}
