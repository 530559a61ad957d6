//! The daemon: carries this host's TCP connections over SCTP according to the rules.
//!
//! The program runs as two processes. The [`supervisor`] stays root. It kills a worker that hangs, cleans up after a killed
//! worker, forwards signals to the worker, and reads and writes the files ([`archive`]). The [`worker`] does everything else
//! under a separate user id: one thread runs the event loop ([`shard`]), other threads run the [`control_server`].
//!
//! Other crates implement SCTP, netfilter access and the syntax of rules. Begin with [`shard`] (the loop) and [`driver`] (the
//! life of connections). Then read the parts that the driver uses: [`policy`], [`interception`], [`connection`], [`shared`],
//! [`flowing`] (bytes of a connection) and [`history`].
//!
//! Invariants:
//! - A held SYN always gets a verdict.
//! - If an attempt fails after INIT ACK, the daemon aborts the association with the peer before it releases the SYN.
//! - A connection whose association is lost is reset, never closed in order.

#![forbid(unsafe_code)]

mod accept_policy;
mod addresses;
mod archive;
mod by_host;
mod capture;
mod carriers;
mod channel_windows;
mod clock;
mod coalescing;
mod commands;
mod confinement;
mod connection;
mod control_group;
mod control_server;
mod driver;
mod encryption;
mod evidence;
mod flowing;
mod forwarding;
mod framing;
mod history;
mod interception;
mod learned_store;
mod link_bytes;
mod link_history;
mod listeners;
mod log_rate;
mod manual;
mod page;
mod path_events;
mod peer_keys;
mod peer_links;
mod peers_store;
mod policy;
mod poller;
mod probes;
mod pump;
mod racing;
mod report;
mod roaming;
mod rules_store;
mod shard;
mod shared;
mod shared_store;
mod supervisor;
mod survey;
mod timers;
mod timing;
mod traffic_keeper;
mod turns;
mod unproven;
mod worker;

use std::process::ExitCode;

use clap::Parser;
use control::DaemonArgs;

fn main() -> ExitCode {
    let args = DaemonArgs::parse();
    if args.inside.is_none() {
        raise_priority();
    }
    let outcome = if supervisor::is_worker() || args.no_supervisor || args.inside.is_some() {
        worker::run(&args)
    } else {
        supervisor::run(&args)
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sctpifyd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Raises this process's priority to a nice value of -10, because the kernel handles TCP ahead of all programs. If this process
/// waited for the processor behind busy programs, its connections would lose races and its timers would be late. If the process
/// already has a higher priority at its start, it keeps that priority.
fn raise_priority() {
    const NICENESS: i32 = -10;
    let raised = rustix::process::getpriority_process(None).and_then(|now| {
        if now > NICENESS { rustix::process::setpriority_process(None, NICENESS) } else { Ok(()) }
    });
    if let Err(error) = raised {
        eprintln!(
            "sctpifyd: cannot raise the priority ({error}): connections may fall back to TCP on a busy machine"
        );
    }
}
