//! `linkemu`: reads the command line, does it, says what went wrong.

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
