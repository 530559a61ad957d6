//! Tests of the guard with packets that the host forwards.

use intercept::{Guard, Namespace, Verdict};

use crate::Test;
use crate::world::*;

pub(crate) const TESTS: &[Test] = &[
    ("no forwarded SYN passes the guard in fragments", fragments),
    ("a SYN stays held while guards change", held_while_guards_change),
];

/// Python program that sends a SYN in two fragments: `python3 -c SEND SOURCE DESTINATION PORT`. The first fragment is too short
/// to contain the flags.
const SEND: &str = r#"
import socket, struct, sys
source, destination, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in source else socket.AF_INET
ends = socket.inet_pton(family, source) + socket.inet_pton(family, destination)
syn = struct.pack("!HHIIBBHHH", 33333, port, 1000, 0, 5 << 4, 2, 1000, 0, 0)
out = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
for offset, more, part in [(0, 1, syn[:8]), (8, 0, syn[8:])]:
    if family == socket.AF_INET:
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(part), 4242, more << 13 | offset // 8, 64, 6, 0) + ends
    else:
        fragment = struct.pack("!BBHI", 6, 0, offset | more, 4242)
        head = struct.pack("!IHBB", 6 << 28, 8 + len(part), 44, 64) + ends + fragment
    out.sendto(head + part, (destination, 0))
"#;

const INNER4: [&str; 2] = ["10.72.0.1", "10.72.0.2"];
const INNER6: [&str; 2] = ["2001:db8:72::1", "2001:db8:72::2"];
const PORT: u16 = 8080;

/// Returns the numbers of IPv4 and IPv6 fragments that have arrived at a host.
fn fragments_at(host: &Namespace) -> [u64; 2] {
    let v4 = run_program(host, "cat", &["/proc/net/snmp"]);
    let mut ip = v4.lines().filter(|line| line.starts_with("Ip:")).map(str::split_whitespace);
    let (names, values) = (ip.next().expect("names"), ip.next().expect("values"));
    let count = names.zip(values).find(|(name, _)| *name == "ReasmReqds").expect("a counter").1;
    let v6 = run_program(host, "cat", &["/proc/net/snmp6"]);
    let count6 = v6.lines().find_map(|line| line.strip_prefix("Ip6ReasmReqds")).expect("a counter");
    [count, count6].map(|text| text.trim().parse().expect("a number"))
}

fn fragments() {
    let world = World::new();
    let behind = Namespace::create().expect("a namespace");
    let thread = behind.run(|| nix::unistd::gettid().to_string()).expect("its thread");
    run_ip(
        &world.alpha,
        &["link", "add", "inner0", "type", "veth", "peer", "name", "inner0", "netns", &thread],
    );
    for (host, end) in [(&world.alpha, 0), (&behind, 1)] {
        run_ip(host, &["link", "set", "inner0", "addrgenmode", "none", "up"]);
        run_ip(host, &["addr", "add", &format!("{}/24", INNER4[end]), "dev", "inner0"]);
        run_ip(host, &["addr", "add", &format!("{}/64", INNER6[end]), "dev", "inner0", "nodad"]);
    }
    // A router needs a link-local address on each link for neighbour discovery.
    for (link, address) in [("path0", "fe80::71/64"), ("inner0", "fe80::72/64")] {
        run_ip(&world.alpha, &["addr", "add", address, "dev", link, "nodad"]);
    }
    run_ip(&behind, &["route", "add", "default", "via", INNER4[0]]);
    run_ip(&behind, &["route", "add", "default", "via", INNER6[0]]);
    run_ip(&world.beta, &["route", "add", "10.72.0.0/24", "via", ALPHA4]);
    run_ip(&world.beta, &["route", "add", "2001:db8:72::/64", "via", ALPHA6]);
    run_program(&world.alpha, "sysctl", &["-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]);
    let send = |before: [u64; 2], expected: u64| {
        for [source, to] in [[INNER4[1], BETA4], [INNER6[1], BETA6]] {
            run_program(&behind, "python3", &["-c", SEND, source, to, &PORT.to_string()]);
        }
        let arrived =
            || fragments_at(&world.beta).iter().zip(before).all(|(now, then)| now - then >= expected);
        wait_until("fragments have come", arrived);
    };
    let before = fragments_at(&world.beta);
    send(before, 2);
    let mut interceptor = world.intercept_alpha();
    let guard = Guard { network: None, ports: Some((PORT, PORT)), is_refused: true };
    interceptor.guard(&[guard]).expect("a guard");
    let before = fragments_at(&world.beta);
    // If the guard let second fragments pass, the second fragments of the first call would arrive before the first fragments of
    // the second call. The counts would then exceed two.
    send(before, 1);
    send(before, 2);
    let after = fragments_at(&world.beta);
    assert_eq!(after, before.map(|count| count + 2), "none of the second ones has come");
}

fn held_while_guards_change() {
    const PORT: u16 = 8080;
    let guard = |port| Guard { network: None, ports: Some((port, port)), is_refused: true };
    let world = World::new();
    let _server = listen(&world.beta, &format!("{BETA4}:{PORT}"));
    let mut interceptor = world.intercept_alpha();
    interceptor.guard(&[guard(1)]).expect("a guard");
    let client = connect(&world.alpha, at(BETA4, PORT));
    let syn = held(&mut interceptor);
    for guards in [&[guard(1), guard(2)][..], &[guard(3)]] {
        interceptor.guard(guards).expect("other guards");
    }
    interceptor.queue().verdict(syn.id, Verdict::Accept).expect("a verdict");
    assert!(!has_retransmitted(&world.alpha, &connected(client)), "the kernel dropped the SYN that was held");
}
