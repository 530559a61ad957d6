//! The program `linkemu`: runs the command of its command line, and prints its error.

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
