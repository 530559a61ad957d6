//! Changed messages of RFC 4475 at a running proxy, by UDP, TCP and SCTP (`examples/strangers`).

use std::path::Path;

use testbed::{Lab, Offloads};

use crate::world::{LIMIT, Site};

/// Messages; `./x bench sip-memory` sends a million.
const MESSAGES: &str = "6000";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_proxy_that_strangers_send_anything_answers_and_carries_calls_afterwards() {
    let lab = Lab::new().unwrap();
    let site = Site::new(&lab, "proxy", "10.77.1.2", "example.com");
    let outside = lab.host("outside").unwrap();
    let link = lab.join(&outside, &site.host, 1, Offloads::On).unwrap();
    let dns = "[dns]\nenabled = false\n".to_owned();
    let mut proxy = site.proxy(&[site.listen("udp"), site.listen("tcp"), site.listen("sctp"), dns]);
    // Cargo builds a package's examples with its tests.
    let programs = Path::new(env!("CARGO_BIN_EXE_sctpify-sip")).parent().unwrap();
    let mut command = outside.command(programs.join("examples/strangers"));
    command.args(["--local", &link.left_v4().to_string(), "--proxy", &site.proxy_address()]);
    command.args(["--messages", MESSAGES, "--watch", &proxy.id().to_string()]);
    let told = outside.run("strangers", command, LIMIT).unwrap().good().unwrap();
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    let sent = |transport: &str| told["sent"][transport].as_u64().unwrap();
    assert!(["udp", "tcp", "sctp"].into_iter().all(|transport| sent(transport) > 1900), "{told}");
    assert!(proxy.is_running() && !proxy.stderr().contains("panicked"), "{}", proxy.stderr());
    let _callees = [site.callee("udp"), site.callee("tcp")];
    for transport in ["udp", "tcp"] {
        site.register(transport, transport);
        site.call(transport, site.domain, transport, 20);
    }
}
