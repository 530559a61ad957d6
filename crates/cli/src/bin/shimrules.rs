//! The shimrules command.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::shimrules_main()
}
