//! The supervisor, confined as it is, still has power over its worker: to stop it, and to kill it when it hangs.

use crate::world::World;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
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
    kill(pid(world.alphas.id()), Signal::SIGTERM).unwrap();
    assert!(wait_for(LIMIT, || !world.alphas.is_running()), "it still runs");
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
