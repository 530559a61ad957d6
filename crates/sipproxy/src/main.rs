//! `sctpify-sip`: reads the command line, runs the proxy, says what went wrong.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match sipproxy::run(&sipproxy::SipArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sctpify-sip: {error}");
            ExitCode::FAILURE
        }
    }
}
