//! `sctpify-lab`: reruns the published experiments behind this project, and runs our own.
//!
//! An experiment is a manifest (`experiments/ID.toml`: purpose, parameters, the papers' figures, the expected
//! bands), a runner ([`experiments`]) that measures one cell after the other, and its part of the report
//! ([`report`]). The lab keeps measured cells ([`store`]), so an interrupted run resumes where it stopped;
//! [`judge`] compares them with the bands. Only the runners know the measured subject. Begin with
//! [`experiment::Experiment`].

#![forbid(unsafe_code)]

mod args;
mod commands;
mod experiment;
mod experiments;
mod judge;
mod manifest;
mod progress;
mod report;
mod results;
mod runner;
mod settings;
mod statistics;
mod store;
mod ttcp;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::run(args::Lab::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sctpify-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
