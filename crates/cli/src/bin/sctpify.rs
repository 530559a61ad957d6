//! The sctpify command.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::sctpify_main()
}
