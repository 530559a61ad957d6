//! `sctpify-lab`: the published experiments this project comes from, run again, and beside them ours.
//!
//! An experiment is a manifest (`experiments/ID.toml`: what is shown, parameters, the papers' figures, the bands expected), a
//! runner ([`experiments`]) that measures one cell after the other, and its part of the report ([`report`]). Cells measured are
//! kept ([`store`]), so a run that was interrupted goes on where it stopped; [`judge`] holds them against the bands. Nothing
//! here knows what is measured but the runners. Begin with [`experiment::Experiment`].

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
