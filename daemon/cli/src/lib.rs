//! The commands `sctpify` and `shimrules`, which send requests to the daemon's control socket and print its answers.
//!
//! The commands make no decisions: rules, settings and reasons come from the daemon. Without a daemon, only these commands work: `up`,
//! `down`, `run`, `sctp`, `doctor` without a host, `config`, `get`, `set`, `bench --serve`, and the commands that write documentation.
//! Command lines, manual pages and completions come from one definition.
//!
//! Exit status: 0 success, 1 refused or failed, 2 usage error, 3 no daemon. `sctpify run` exits with the status of its command, with 127 if
//! the command is not found, or with 126 if the command cannot be started.
//!
//! Begin with [`sctpify_main`]. The command lines are defined in [`Sctpify`] and [`Shimrules`].

#![forbid(unsafe_code)]

mod args;
mod bench;
mod capture;
mod commands;
mod daemon;
mod demo;
mod doctor;
mod error;
mod executable;
mod expose;
mod kernel;
mod live;
mod man;
mod pair;
mod ping;
mod private;
mod probe;
mod rule;
mod run;
mod sctp;
mod session;
mod settings;
mod shimrules;
mod show;
mod signals;
mod table;

use std::process::ExitCode;

use clap::Parser;

pub use args::{
    BenchArgs, Command, ConfigCommand, Other, PeersCommand, RunArgs, Sctpify, SocketArgs, SocketCarriers,
    UpArgs, WatchArgs,
};
pub use error::CliError;
pub use rule::{Match, RuleCommand, Side, Treatment};
pub use shimrules::Shimrules;

/// Runs `sctpify` with this process's arguments.
pub fn sctpify_main() -> ExitCode {
    let args = Sctpify::parse();
    let json = args.json;
    error::finish(commands::run(&args), json)
}

/// Runs `shimrules` with this process's arguments.
pub fn shimrules_main() -> ExitCode {
    let args = Shimrules::parse();
    let json = args.json;
    error::finish(shimrules::run(&args).map(|()| ExitCode::SUCCESS), json)
}
