//! The program `linkemu`. Runs the command that its command line names, and prints the command's error.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match linkemu::run(linkemu::Linkemu::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("linkemu: {error}");
            ExitCode::FAILURE
        }
    }
}
