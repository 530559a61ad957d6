//! The program `sctpify-router`: runs the command line, and prints the error if it fails.

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
