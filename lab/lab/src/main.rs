//! `sctpify-lab`: reruns the published experiments on which this project is based, and runs the project's
//! own experiments.
//!
//! An experiment has three parts:
//!
//! - a manifest (`experiments/ID.toml`) with the purpose, the parameters, the papers' figures and the
//!   expected bands
//! - a runner ([`experiments`]) that measures one cell after another
//! - a part of the report ([`report`])
//!
//! The lab stores measured cells ([`store`]), so the next run continues after an interrupted one. [`judge`]
//! compares figures of the cells with the expected bands. Only the runners depend on the measured subject.
//! Begin with [`experiment::Experiment`].

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
