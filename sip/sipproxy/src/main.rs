//! `sctpify-sip`: parses the command line, runs the proxy, reports errors.

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
