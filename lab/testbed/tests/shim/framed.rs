//! Test of a program that sends SIP to a native SCTP peer. Each SIP message becomes one SCTP message
//! (`--framing sip`, RFC 4168).

use crate::world::{LIMIT, World};
use testbed::Programs;

const SIP_PORT: &str = "5060";
/// Number of messages.
const MESSAGES: usize = 20;
/// Length of a message, in bytes. One message nearly fills the send buffer, whose initial size is 64 KiB. The
/// daemon must therefore read the next message in parts.
const LENGTH: usize = 60_000;

/// Sends a ping of RFC 5626 to argv[1]:argv[2], and waits for its answer. Then writes argv[3] messages of
/// argv[4] bytes at once, and ends.
const BURST: &str = "
import socket, sys
count, length = int(sys.argv[3]), int(sys.argv[4])
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])))
stream.settimeout(20)
stream.sendall(b'\\r\\n\\r\\n')
assert stream.recv(2) == b'\\r\\n'
def message(body): return b'MESSAGE sip:b@b SIP/2.0\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body
head = len(message(bytes(length))) - length
stream.sendall(b''.join(message(b'x' * (length - head)) for _ in range(count)))
stream.shutdown(socket.SHUT_WR)
assert stream.recv(1) == b''
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_burst_of_sip_messages_and_a_ping_pass_to_a_native_peer() {
    let world = World::with("", false);
    let rule = ["-A", "-c", "remote", "-p", "enable", "-P", SIP_PORT, "--framing", "sip"];
    world.alphas.shimrules(&rule).unwrap().good().unwrap();
    let own = world.link.right_v4().to_string();
    let mut peer = world.beta.command(Programs::find().unwrap().path("peer"));
    peer.args(["--local", &own, "receive", SIP_PORT]);
    let mut peer = world.beta.spawn("peer", peer).unwrap();
    peer.wait_until("listening", LIMIT, |peer| peer.stdout().contains("listening")).unwrap();
    let (count, length) = (MESSAGES.to_string(), LENGTH.to_string());
    let burst = world.client("python3", &["-c", BURST, &own, SIP_PORT, &count, &length]);
    world.alpha.run("burst", burst, LIMIT).unwrap().good().unwrap();
    let output = peer.finish(LIMIT).unwrap().good().unwrap().stdout;
    let figures = output.lines().last().and_then(|line| line.split_once(' '));
    let bytes = figures.and_then(|(bytes, _)| bytes.parse().ok());
    assert_eq!(bytes, Some(MESSAGES * LENGTH), "{output}");
    assert_eq!(world.connects_sctp(), 1, "{}", world.fallbacks());
}
