//! Tests of a daemon that needs more memory than its control group allows. The kernel kills the daemon's
//! worker, and no connection hangs.

use crate::deaths::after_a_death;
use crate::world::{BULK, HTTP_PORT, LIMIT, PORT, World, status};
use testbed::process::wait_for;
use testbed::{Daemon, MemoryGroup, Programs, cpu};

/// Memory in bytes that the daemon may allocate after it has joined the control group. The setting
/// `memory_mib` allows 512 MiB by default, so the daemon does not limit itself before the kernel kills the
/// worker.
const LIMIT_BYTES: u64 = 8 << 20;
/// Number of concurrent connections, which need more memory than [`LIMIT_BYTES`].
const MANY: &str = "4000";

/// Opens connections until a daemon needs more memory than its group allows, and the kernel has killed the
/// daemon's worker.
fn fill(world: &World, is_at_alpha: bool, group: &MemoryGroup) {
    let host = if is_at_alpha { &world.alpha } else { &world.beta };
    for id in cpu::processes(host, "sctpifyd").unwrap() {
        group.take(id).unwrap();
    }
    let _keeper = world.serve(BULK, &["keep", &HTTP_PORT.to_string()]);
    let target = format!("{}:{HTTP_PORT}", world.link.right_v4());
    let _holder = world.alpha.spawn("holder", world.client(BULK, &["hold", &target, MANY])).unwrap();
    let is_killed = || group.kills().unwrap() > 0;
    assert!(wait_for(LIMIT, is_killed), "{}", status(&world.alphas)["connections"].as_array().unwrap().len());
}

fn is_out_of_memory(is_at_alpha: bool) {
    let name = if is_at_alpha { "client" } else { "server" };
    let Some(group) = MemoryGroup::new(name, LIMIT_BYTES).unwrap() else {
        return testbed::skip("this kernel does not bound the memory of control groups");
    };
    let mut world = after_a_death(is_at_alpha, |world| fill(world, is_at_alpha, &group));
    let dead = if is_at_alpha { &mut world.alphas } else { world.betas.as_mut().unwrap() };
    assert!(wait_for(LIMIT, || !dead.is_running()));
    assert!(dead.log().contains("the worker died"), "{}", dead.log());
    // Restarts the daemon, as systemd does.
    let host = if is_at_alpha { &world.alpha } else { &world.beta };
    let revived = Daemon::restart(host, &Programs::find().unwrap()).unwrap();
    *(if is_at_alpha { &mut world.alphas } else { world.betas.as_mut().unwrap() }) = revived;
    let before = world.connects_sctp();
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    let is_over_sctp = || {
        let connect = world.client(BULK, &["connect", &world.target(), "1"]);
        world.alpha.run("connect", connect, LIMIT).unwrap().good().unwrap();
        world.connects_sctp() > before
    };
    assert!(wait_for(LIMIT, is_over_sctp), "{}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces and control groups"]
fn a_client_daemon_out_of_memory_fails_live_connections_but_not_new_ones() {
    is_out_of_memory(true);
}

#[test]
#[ignore = "needs root: makes network namespaces and control groups"]
fn a_server_daemon_out_of_memory_fails_live_connections_but_not_new_ones() {
    is_out_of_memory(false);
}
