//! `sctpify-router`: reads the command line, does it, says what went wrong.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match router::run(&router::Router::parse(), &mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sctpify-router: {error}");
            ExitCode::FAILURE
        }
    }
}
