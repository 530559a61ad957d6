//! `sctpify-ua`: parses the command line, registers, calls or answers, reports errors.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match sipproxy::run_ua(&sipproxy::UaArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sctpify-ua: {error}");
            ExitCode::FAILURE
        }
    }
}
