//! Tests that the supervisor can stop its worker, and can kill a worker that hangs. The supervisor's
//! reduced privileges must suffice. Also tests that supervisor and worker run with a higher priority than
//! programs.

use crate::world::World;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{getpriority_process, setpriority_process};
use std::time::Duration;
use testbed::cpu;
use testbed::process::wait_for;

const LIMIT: Duration = Duration::from_secs(15);

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.try_into().unwrap())
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_supervisor_that_is_told_to_stop_stops_its_worker() {
    let mut world = World::with("", false);
    let worker =
        cpu::processes(&world.alpha, "sctpifyd").unwrap().into_iter().find(|id| *id != world.alphas.id());
    let worker = pid(worker.expect("a worker"));
    kill(pid(world.alphas.id()), Signal::SIGTERM).unwrap();
    assert!(wait_for(LIMIT, || !world.alphas.is_running()), "the supervisor still runs");
    assert!(wait_for(LIMIT, || kill(worker, None).is_err()), "the worker still runs");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_worker_that_stands_still_is_killed() {
    let mut world = World::with("", false);
    let first = world.alphas.id();
    for id in cpu::processes(&world.alpha, "sctpifyd").unwrap().into_iter().filter(|id| *id != first) {
        kill(pid(id), Signal::SIGSTOP).unwrap();
    }
    assert!(wait_for(LIMIT, || !world.alphas.is_running()), "it still runs: {}", world.alphas.log());
    assert!(world.alphas.log().contains("killing it"), "{}", world.alphas.log());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_daemon_runs_with_niceness_minus_10_unless_started_with_a_higher_priority() {
    for (given, kept) in [(0, -10), (-15, -15)] {
        // setpriority(2) changes the niceness of this thread only (see its NOTES). Child processes of the
        // thread inherit its niceness.
        setpriority_process(None, given).unwrap();
        let world = World::with("", false);
        let processes = cpu::processes(&world.alpha, "sctpifyd").unwrap();
        assert_eq!(processes.len(), 2, "supervisor and worker");
        for id in processes {
            let niceness =
                getpriority_process(rustix::process::Pid::from_raw(id.try_into().unwrap())).unwrap();
            assert_eq!(niceness, kept, "process {id} of a daemon started with niceness {given}");
        }
    }
}
