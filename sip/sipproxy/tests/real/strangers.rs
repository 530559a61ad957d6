//! Tests with a flood over UDP, and with mutated messages of RFC 4475 over UDP, TCP and SCTP (`examples/strangers`).

use std::path::Path;

use testbed::{Lab, Offloads, cpu};

use crate::world::{LIMIT, Site};

/// Number of messages. `./x bench sip-memory` sends a million.
const MESSAGES: &str = "6000";

/// Python program that sends INVITEs with bodies of 60,000 octets. argv[1] is the proxy's address, argv[2] the user, and argv[3] the number
/// of INVITEs.
const FLOOD: &str = "
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 5070))
body = 'x' * 60000
for n in range(int(sys.argv[3])):
    head = [f'INVITE sip:{sys.argv[2]} SIP/2.0', f'Via: SIP/2.0/UDP 10.77.1.1:5070;branch=z9hG4bKf{n}', 'Max-Forwards: 70',
        'From: <sip:stranger@elsewhere.example>;tag=f', f'To: <sip:{sys.argv[2]}>', f'Call-ID: flood{n}', 'CSeq: 1 INVITE',
        'Contact: <sip:stranger@10.77.1.1:5070>', f'Content-Length: {len(body)}', '', body]
    s.sendto('\\r\\n'.join(head).encode(), (sys.argv[1], 5060))
    if n % 8 == 7: time.sleep(0.002)
print('sent')
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn in_a_flood_of_long_requests_memory_stays_bounded_and_other_calls_succeed() {
    const BUDGET_MIB: u64 = 64;
    /// Number of INVITEs, 360 MB in total. Without limits, the proxy would keep each of them three times.
    const REQUESTS: &str = "6000";
    let lab = Lab::new().unwrap();
    let site = Site::new(&lab, "proxy", "10.77.1.2", "example.com");
    let outside = lab.host("outside").unwrap();
    let _link = lab.join(&outside, &site.host, 1, Offloads::On).unwrap();
    let more = format!("limits.kept_mib = {BUDGET_MIB}\ndns.enabled = false\n");
    let mut proxy = site.proxy(&[more, site.listen("udp")]);
    let _callee = site.callee("udp");
    site.register("bob", "udp");
    let mut silent = site.host.command("python3");
    silent.args(["-u", "-c", "import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 5071)); print('bound'); time.sleep(300)"]);
    let mut silent = site.host.spawn("silent", silent).unwrap();
    silent.wait_until("bound", LIMIT, |process| process.stdout().contains("bound")).unwrap();
    site.register_at("silent", "udp", "5071");
    site.call("bob", site.domain, "udp", 5);
    let before = cpu::anonymous_memory_kib(&site.host, "sctpify-sip").unwrap();
    let mut flood = outside.command("python3");
    flood.args(["-c", FLOOD, "10.77.1.2", "silent@example.com", REQUESTS]);
    let mut flooding = outside.spawn("flood", flood).unwrap();
    flooding.wait_until("sent", LIMIT, |process| process.stdout().contains("sent")).unwrap();
    site.call("bob", site.domain, "udp", 20);
    let grown = (cpu::anonymous_memory_kib(&site.host, "sctpify-sip").unwrap() - before) / 1024;
    assert!(grown > BUDGET_MIB / 8, "the flood came through: {grown} MiB");
    assert!(grown < BUDGET_MIB * 3 / 2, "memory grew by {grown} MiB");
    assert!(proxy.is_running() && !proxy.stderr().contains("panicked"), "{}", proxy.stderr());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_proxy_serves_calls_after_mutated_messages_over_udp_tcp_and_sctp() {
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
