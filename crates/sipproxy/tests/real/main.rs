//! The proxy judged by others' programs: SIPp and sipsak, in a network namespace.

#![forbid(unsafe_code)]

mod world;

use nix::sys::signal::Signal;
use world::{LISTEN_TCP, LISTEN_UDP, World};

#[test]
#[ignore = "needs root: makes a network namespace"]
fn sipsak_registers_and_unregisters_by_udp_and_tcp() {
    let world = World::new();
    let _proxy = world.proxy("a", &[LISTEN_UDP, LISTEN_TCP]);
    for transport in ["udp", "tcp"] {
        let said =
            world.sipsak(&["-E", transport, "-i", "-v", "-U", "-C", "sip:alice@127.0.0.1:6666", "-x", "120"]);
        assert!(said.contains("All usrloc tests completed successful"), "{transport}: {said}");
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_proxy_asked_for_itself_says_what_it_can_do() {
    let world = World::new();
    let _proxy = world.proxy("a", &[LISTEN_UDP]);
    let said = world.sipsak(&["-v"]);
    assert!(said.contains("Allow: INVITE, ACK, CANCEL, BYE, OPTIONS, REGISTER"), "{said}");
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn calls_go_through_by_udp_by_tcp_and_from_one_to_the_other() {
    let world = World::new();
    let _proxy = world.proxy("a", &[LISTEN_UDP, LISTEN_TCP]);
    let _callees = [world.callee("udp"), world.callee("tcp")];
    for (caller, callee) in [("udp", "udp"), ("tcp", "tcp"), ("udp", "tcp"), ("tcp", "udp")] {
        let user = format!("{caller}-{callee}");
        world.register(&user, callee);
        world.call(&user, caller, 200);
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn who_was_registered_before_the_proxy_was_killed_is_so_after_it() {
    let world = World::new();
    let _callee = world.callee("udp");
    let proxy = world.proxy("a", &[LISTEN_UDP]);
    world.register("bob", "udp");
    proxy.signal(Signal::SIGKILL).unwrap();
    proxy.stop();
    let _proxy = world.proxy("a", &[LISTEN_UDP]);
    world.call("bob", "udp", 10);
}
