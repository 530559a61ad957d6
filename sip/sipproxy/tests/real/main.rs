//! Tests of the proxy with foreign programs such as SIPp, sipsak and tshark, in network namespaces.

#![forbid(unsafe_code)]

mod agent;
mod association;
mod draining;
mod encryption;
mod framed;
mod kernel;
mod live_page;
mod modes;
mod names;
mod one_subnet;
mod operations;
mod phones;
mod pjsua;
mod secure;
mod sharing;
mod sharing_tls;
mod store_server;
mod strangers;
mod world;

use nix::sys::signal::Signal;
use testbed::Lab;
use world::Site;

#[test]
#[ignore = "needs root: makes a network namespace"]
fn sipsak_registers_and_unregisters_by_udp_and_tcp() {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    let _proxy = site.proxy(&[site.listen("udp"), site.listen("tcp")]);
    for transport in ["udp", "tcp"] {
        let contact = ["-C", "sip:alice@127.0.0.1:6666", "-x", "120"];
        let said = site.sipsak(&[&["-E", transport, "-i", "-v", "-U"], &contact[..]].concat());
        assert!(said.contains("All usrloc tests completed successful"), "{transport}: {said}");
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn an_options_request_to_the_proxy_returns_the_supported_methods() {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    let _proxy = site.proxy(&[site.listen("udp")]);
    let said = site.sipsak(&["-v"]);
    assert!(said.contains("Allow: INVITE, ACK, CANCEL, BYE, OPTIONS, REGISTER"), "{said}");
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn calls_go_through_by_udp_by_tcp_and_from_one_to_the_other() {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    let _proxy = site.proxy(&[site.listen("udp"), site.listen("tcp")]);
    let _callees = [site.callee("udp"), site.callee("tcp")];
    for (caller, callee) in [("udp", "udp"), ("tcp", "tcp"), ("udp", "tcp"), ("tcp", "udp")] {
        let user = format!("{caller}-{callee}");
        site.register(&user, callee);
        site.call(&user, site.domain, caller, 200);
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_registration_survives_a_kill_of_the_proxy() {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    let _callee = site.callee("udp");
    let proxy = site.proxy(&[site.listen("udp")]);
    site.register("bob", "udp");
    proxy.signal(Signal::SIGKILL).unwrap();
    proxy.stop();
    let _proxy = site.proxy(&[site.listen("udp")]);
    site.call("bob", site.domain, "udp", 10);
}
