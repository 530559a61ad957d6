//! Tests in which an attacker speaks SCTP to the daemon under a false identity. The attacker is an unknown host, a
//! local user, or a neighbour behind the same address. In most tests, the daemon also serves honest hosts.

use crate::streams::{CLIENT, SERVER, client, shared};
use crate::world::{LIMIT, PORT, World};
use std::process::Command;
use testbed::{Daemon, Host, Link, Offloads, Process};

/// Prelude of the attacking programs: a small SCTP peer.
const STRANGER: &str = include_str!("stranger.py");
/// Makes a program continue as an unprivileged user.
const AS_NOBODY: &str = "
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)";

/// Alpha and beta, which connect to each other, and a third host with a link to each of them.
struct Three {
    world: World,
    mallory: Host,
    to_beta: Link,
    to_alpha: Link,
    _server: Process,
}

impl Three {
    /// Creates the hosts. Beta serves [`PORT`]. The rules of alpha and of beta enable SCTP for this port to every host.
    fn new() -> Three {
        let world = World::new();
        let mallory = world.lab.host("mallory").unwrap();
        let to_beta = world.lab.join(&mallory, &world.beta, 3, Offloads::On).unwrap();
        let to_alpha = world.lab.join(&mallory, &world.alpha, 4, Offloads::On).unwrap();
        let server = world.serve("python3", &["-c", SERVER, &PORT.to_string()]);
        allow(world.betas.as_ref().unwrap(), "remote");
        Three { world, mallory, to_beta, to_alpha, _server: server }
    }

    /// Asserts that beta serves connections of alpha, and that a later connection uses a shared association.
    fn serves_the_honest(&self) {
        let to = self.world.link.right_v4().to_string();
        let first = format!("{CLIENT}\nended(connect(b'n'))");
        let command = self.world.client("python3", &["-c", &first, &to, &PORT.to_string()]);
        self.world.alpha.run("first", command, LIMIT).unwrap().good().unwrap();
        let is_shared = || {
            let output = client(&self.world, "print(ended(connect(b'n')).decode().split()[0])");
            assert_eq!(output, self.world.link.left_v4().to_string());
            shared(&self.world) > 0
        };
        assert!(testbed::process::wait_for(LIMIT, is_shared), "{}", self.world.fallbacks());
    }

    /// Runs an attacking program on the third host until it ends, and returns its output.
    fn mallory_says(&self, body: &str, args: &[&str]) -> String {
        said(&self.mallory, python(&self.mallory, body, args))
    }
}

fn allow(daemon: &Daemon, chain: &str) {
    let words = ["-A", "-c", chain, "-p", "enable", "-P", &PORT.to_string()];
    daemon.shimrules(&words).unwrap().good().unwrap();
}

fn python(host: &Host, body: &str, args: &[&str]) -> Command {
    let mut command = host.command("python3");
    command.args(["-u", "-c", &format!("{STRANGER}\n{body}")]).args(args);
    command
}

/// Like [`python`], but the program runs as an unprivileged user.
pub(crate) fn unprivileged(host: &Host, body: &str, args: &[&str]) -> Command {
    python(host, &format!("{AS_NOBODY}\n{body}"), args)
}

fn said(host: &Host, command: Command) -> String {
    host.run("stranger", command, LIMIT).unwrap().good().unwrap().stdout.trim().to_owned()
}

pub(crate) fn begin(host: &Host, command: Command, word: &str) -> Process {
    let mut process = host.spawn("stranger", command).unwrap();
    process.wait_until(word, LIMIT, |process| process.stdout().contains(word)).unwrap();
    process
}

/// Opens a shareable association with host argv[1]. On this association, requests a connection from port argv[3] of
/// argv[2] to port argv[5] of argv[4]. Prints the outcome.
const OPEN: &str = "
association, answer = connect_shared(udp(), (sys.argv[1], PORT), 61000 + os.getpid() % 4000)
if not association: sys.exit('no association: %s' % answer)
association.hello()
association.open(1, (sys.argv[2], int(sys.argv[3])), (sys.argv[4], int(sys.argv[5])))
association.run(3, lambda a: a.answer(1))
kind, data = (association.answer(1) or [(b'none', b'')])[0]
print({b'scta': 'accepted', b'sctr': 'refused'}.get(kind, kind), data[4:5].hex() if kind == b'sctr' else '')";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_connection_is_accepted_only_from_the_peers_own_address_to_a_reachable_address() {
    let three = Three::new();
    three.serves_the_honest();
    let (beta, mallory) = (three.to_beta.right_v4().to_string(), three.to_beta.left_v4().to_string());
    let (port, alpha) = (PORT.to_string(), three.world.link.left_v4().to_string());
    let open =
        |client: &str, server: &str| three.mallory_says(OPEN, &[&beta, client, "40001", server, &port]);
    assert_eq!(open(&mallory, &beta), "accepted", "the control");
    // Gives beta another address. The third host has no route to the network of this address.
    three.world.beta.ip(&["link", "add", "lan", "type", "veth", "peer", "name", "lanpeer"]).unwrap();
    three.world.beta.ip(&["addr", "add", "10.99.0.1/24", "dev", "lan"]).unwrap();
    three.world.beta.ip(&["link", "set", "lan", "up"]).unwrap();
    three.world.beta.ip(&["link", "set", "lanpeer", "up"]).unwrap();
    assert!(open(&mallory, "10.99.0.1").starts_with("refused"));
    assert!(open(&alpha, &beta).starts_with("refused"));
    assert!(open(&mallory, "127.0.0.1").starts_with("refused"));
    three.serves_the_honest();
}

/// Opens associations with two daemons, with mirrored ports and verification tags. Each daemon then accepts the other
/// daemon's packets as packets of the attacker. Requests a connection from the serving daemon in the victim's name, and
/// accepts each request that one daemon sends to the other.
///
/// argv[1] is the serving daemon's address, argv[2] the victim's address, argv[3] the victim's address towards
/// the attacker, argv[4] the port.
const SPLICE: &str = "
served, victim, near = sys.argv[1], sys.argv[2], sys.argv[3]
bound = udp(PORT)
print('ready', flush=True)
own = mirror = shared = None
asked = 0
end = time.time() + 14
while time.time() < end:
    if shared and shared.is_up and mirror and time.time() - mirror.since > 1.5 and not asked:
        asked = shared.open(1, (victim, 50505), (served, int(sys.argv[4]))) or 1
        print('asked', flush=True)
    came = receive(bound, 0.05)
    if not came: continue
    source, to, tag, chunks = read(came[0])
    kind, value = chunks[0] if chunks else (None, b'')
    if came[1][0] == near and kind == INIT:
        init = read_init(value)
        if to != PORT:
            if own is None or own.ports != (to, source):
                own = Association(bound, came[1], (to, source), (0x0a0a0a0a, init['tag']), (500, init['tsn']))
            said = parameter(STATE_COOKIE, b'cookie') + parameter(ADAPTATION, struct.pack('!I', ALONE))
            bound.sendto(packet(to, source, init['tag'], chunk(INIT_ACK, init_value(own.tags[0], 500, said, 1))), came[1])
        else:
            if shared is None:
                shared, answer = connect(bound, (served, PORT), (source, PORT), init['tag'], shared_parameters([victim], 300), STREAMS)
                if shared is None: print('not shared', answer); break
                shared.hello()
            said = parameter(STATE_COOKIE, b'cookie') + shared_parameters([served], 0)
            bound.sendto(packet(PORT, source, init['tag'], chunk(INIT_ACK, init_value(shared.tags[1], 9000, said, STREAMS))), came[1])
            if mirror is None:
                mirror = Association(bound, came[1], (PORT, source), (shared.tags[1], init['tag']), (9000, init['tsn']))
                mirror.since = MASK
        continue
    for association in (own, shared, mirror):
        if association and association.tags[0] == tag and association.ports[0] == to:
            if kind == COOKIE_ECHO:
                association.transmit(chunk(COOKIE_ACK, b''))
                association.since = time.time()
                if association is mirror: mirror.hello()
                chunks = chunks[1:]
            association.on_chunks(chunks, came[1])
    for association in filter(None, (shared, mirror)):
        for stream, word, data in association.messages:
            if word == b'scta': print('TAKEN: served as', victim, flush=True)
            if word == b'scto':
                print('TAKEN: dialled', flush=True)
                association.send(stream, b'scta', struct.pack('!II', struct.unpack('!I', data[:4])[0], 1 << 18))
        association.messages.clear()
print('paths', bool(shared and shared.is_up and mirror), flush=True)";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_attacker_that_relays_between_two_daemons_is_taken_for_neither() {
    let three = Three::new();
    allow(&three.world.alphas, "local");
    let alphas = three.world.alpha.spawn("server", {
        let mut command = three.world.alpha.command("python3");
        command.args(["-c", SERVER, &PORT.to_string()]);
        command
    });
    let mut alphas = alphas.unwrap();
    alphas.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    let (served, victim) = (three.to_beta.right_v4().to_string(), three.world.link.left_v4().to_string());
    let near = three.to_alpha.right_v4().to_string();
    let splice = python(&three.mallory, SPLICE, &[&served, &victim, &near, &PORT.to_string()]);
    let mut splice = begin(&three.mallory, splice, "ready");
    let talk = format!("{CLIENT}\nc = connect(b'e')\ntime.sleep(12)");
    let to_mallory = three.to_alpha.left_v4().to_string();
    let talk = three.world.client("python3", &["-c", &talk, &to_mallory, &PORT.to_string()]);
    let _talk = three.world.alpha.spawn("client", talk).unwrap();
    splice.wait_until("the attack", LIMIT, |process| process.stdout().contains("asked")).unwrap();
    // During the attack, beta connects to alpha's true address.
    let ask = format!("{CLIENT}\nprint(ended(connect(b'n')).decode().split()[0])");
    for _ in 0..3 {
        let mut honest = three.world.beta.command("python3");
        honest.args(["-c", &ask, &victim, &PORT.to_string()]);
        let output = three.world.beta.run("honest", honest, LIMIT).unwrap().good().unwrap().stdout;
        assert_eq!(output.trim(), three.world.link.right_v4().to_string());
    }
    let output = splice.finish(LIMIT).unwrap().stdout;
    assert!(!output.contains("TAKEN"), "{output}");
    assert!(output.contains("paths True"), "the attack did not come about: {output}");
    three.serves_the_honest();
}

/// Opens a shareable association from an arbitrary UDP port. Prints the connection requests that arrive on this
/// association.
const LURK: &str = "
association, answer = connect_shared(udp(), (sys.argv[1], PORT), 62000)
print('up', bool(association), answer if not association else '', flush=True)
if association:
    association.hello()
    association.run(8, lambda a: any(kind == b'scto' for _, kind, _ in a.messages))
    print('asked', [kind for _, kind, _ in association.messages], flush=True)";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_association_that_a_peer_opens_gets_no_connections_of_this_host() {
    let three = Three::new();
    let (beta, mallory) = (three.to_beta.right_v4().to_string(), three.to_beta.left_v4().to_string());
    let lurk = unprivileged(&three.mallory, LURK, &[&beta]);
    let lurk = begin(&three.mallory, lurk, "up True");
    let mut server = three.mallory.command("python3");
    server.args(["-c", SERVER, &PORT.to_string()]);
    let mut server = three.mallory.spawn("server", server).unwrap();
    server.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    let ask = format!("{CLIENT}\nprint(ended(connect(b'n')).decode().split()[0])");
    for _ in 0..2 {
        let mut client = three.world.beta.command("python3");
        client.args(["-c", &ask, &mallory, &PORT.to_string()]);
        let output = three.world.beta.run("client", client, LIMIT).unwrap().good().unwrap().stdout;
        assert_eq!(output.trim(), beta, "the host's own program answers");
    }
    let output = lurk.finish(LIMIT).unwrap().good().unwrap().stdout;
    assert!(!output.contains("scto"), "{output}");
    three.serves_the_honest();
}

/// Opens argv[2] shareable associations with host argv[1]. Prints the number of associations that are still established
/// after a second.
const MANY: &str = "
bound, peer, count = udp(), (sys.argv[1], PORT), int(sys.argv[2])
made, refused = [], 0
for number in range(count):
    association, _ = connect(bound, peer, (20000 + number, PORT), 0x60000000 + number, shared_parameters(), STREAMS, 0.5)
    if association: made.append(association)
end = time.time() + 1
while time.time() < end:
    if came := receive(bound, 0.05):
        source, to, tag, chunks = read(came[0])
        for association in made:
            if association.tags[0] == tag: association.on_chunks(chunks, came[1])
print(sum(association.is_up for association in made))";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_peer_may_open_four_shared_associations_and_none_without_a_local_rule() {
    let three = Three::new();
    let beta = three.to_beta.right_v4().to_string();
    assert_eq!(three.mallory_says(MANY, &[&beta, "16"]), "4");
    three.serves_the_honest();
    let alpha = three.to_alpha.right_v4().to_string();
    assert_eq!(three.mallory_says(MANY, &[&alpha, "2"]), "0", "alpha has no local rule");
}

/// Gets a cookie for a shareable association from host argv[1], and waits for argv[2] seconds. Then sends the cookie
/// back, and prints the response.
const LATE_COOKIE: &str = "
bound, peer, answer = udp(), (sys.argv[1], PORT), None
init = packet(61001, PORT, 0, chunk(INIT, init_value(0x77, 1, shared_parameters(), STREAMS)))
while answer is None:
    bound.sendto(init, peer)
    came = receive(bound, 0.5)
    answer = read_init(read(came[0])[3][0][1]) if came and read(came[0])[3][0][0] == INIT_ACK else None
print('cookie', flush=True)
time.sleep(float(sys.argv[2]))
bound.sendto(packet(61001, PORT, answer['tag'], chunk(COOKIE_ECHO, dict(answer['parameters'])[STATE_COOKIE])), peer)
came = receive(bound, 3)
print({COOKIE_ACK: 'up', ABORT: 'refused'}.get(read(came[0])[3][0][0]) if came else 'silence')";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_shared_association_is_refused_if_the_last_rule_is_deleted_before_cookie_echo() {
    let three = Three::new();
    let beta = three.to_beta.right_v4().to_string();
    assert!(three.mallory_says(LATE_COOKIE, &[&beta, "0"]).ends_with("up"), "the control");
    let late = begin(&three.mallory, python(&three.mallory, LATE_COOKIE, &[&beta, "3"]), "cookie");
    let betas = three.world.betas.as_ref().unwrap();
    betas.shimrules(&["-F"]).unwrap().good().unwrap();
    let output = late.finish(LIMIT).unwrap().good().unwrap().stdout;
    assert!(output.trim().ends_with("refused"), "{output}");
}

/// Connects to argv[1], port argv[2], on a separate association, and claims the source port argv[3]. Prints the
/// server's answer.
const CLAIM: &str = "
association, answer = connect(udp(), (sys.argv[1], PORT), (int(sys.argv[3]), int(sys.argv[2])), 0x22220001, own_parameters())
if not association: sys.exit(print(answer))
association.transmit(chunk(0, struct.pack('!IHHI', association.tsn, 0, 0, letters(b'sctd')) + b'n', 3))
end = time.time() + 3
while time.time() < end:
    came = receive(association.bound, 0.1)
    for kind, value in read(came[0])[3] if came else []:
        if kind == 0: print(value[12:].decode()); sys.exit()
print('up')";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn over_udp_a_peer_cannot_claim_a_source_port_below_1024() {
    let three = Three::new();
    let (beta, port) = (three.to_beta.right_v4().to_string(), PORT.to_string());
    let claim = |claimed| said(&three.mallory, unprivileged(&three.mallory, CLAIM, &[&beta, &port, claimed]));
    assert!(claim("40600").contains("40600"), "the control");
    assert_eq!(claim("600"), "ABORT");
    let mallory = three.to_beta.left_v4().to_string();
    assert!(three.mallory_says(OPEN, &[&beta, &mallory, "600", &beta, &port]).starts_with("refused"));
    // Alpha's daemon uses the carrier IP, which needs root. Beta's daemon therefore accepts a source port below 1024,
    // and the server sees the port of the privileged program on alpha.
    let bound = "
c = socket.socket(); c.bind(('', 601)); c.connect(to); c.sendall(b'n')
print(c.recv(100).decode())";
    assert_eq!(client(&three.world, bound), format!("{} 601", three.world.link.left_v4()));
    assert_eq!(three.world.connects_sctp(), 1, "{}", three.world.fallbacks());
}

/// A program of another user has the same address as the client. It requests a connection with the addresses and ports
/// of the client's connection. The client's connection must survive.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn another_user_at_the_clients_address_cannot_end_the_clients_connection() {
    let (world, _server) = crate::streams::serving();
    let talk = format!(
        "{CLIENT}\nc = connect(b'e')\nprint('from', c.getsockname()[1], flush=True)\nfor n in range(40):\n    c.sendall(b'x')\n    \
         assert c.recv(1) == b'x'\n    time.sleep(0.1)\nprint('lives')"
    );
    let to = world.link.right_v4();
    let command = world.client("python3", &["-c", &talk, &to.to_string(), &PORT.to_string()]);
    let talk = begin(&world.alpha, command, "from");
    assert!(shared(&world) > 0, "{}", world.fallbacks());
    let from = talk.stdout().split_whitespace().nth(1).unwrap().to_owned();
    let (client, server, port) = (world.link.left_v4().to_string(), to.to_string(), PORT.to_string());
    let open = unprivileged(&world.alpha, OPEN, &[&server, &client, &from, &server, &port]);
    assert!(said(&world.alpha, open).starts_with("refused"));
    let claim = unprivileged(&world.alpha, CLAIM, &[&server, &port, &from]);
    let output = said(&world.alpha, claim);
    assert!(!output.ends_with(&format!(" {from}")), "{output}");
    let output = talk.finish(LIMIT).unwrap().good().unwrap().stdout;
    assert!(output.contains("lives"), "{output}");
}

/// Sends host argv[1] an INIT for a shareable association. The INIT lists the addresses argv[2..]. Prints the addresses
/// in the INIT ACK. If argv[2] is 'alone', the INIT is for a connection to port argv[3].
const ASK_ADDRESSES: &str = "
bound = udp()
said = shared_parameters(sys.argv[2:]) if sys.argv[2:3] != ['alone'] else own_parameters()
to = int(sys.argv[3]) if sys.argv[2:3] == ['alone'] else PORT
for _ in range(5):
    bound.sendto(packet(61000, to, 0, chunk(INIT, init_value(0x1234, 1, said, STREAMS))), (sys.argv[1], PORT))
    if came := receive(bound, 1): break
kind, value = read(came[0])[3][0]
print(*sorted(addresses_in(read_init(value))) if kind == INIT_ACK else ['refused'])";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_init_ack_to_an_unknown_host_lists_only_addresses_that_the_host_can_reach() {
    let three = Three::new();
    let beta = &three.world.beta;
    for (name, kind, address) in [
        ("lan0", &["veth", "peer", "name", "lanx"][..], "10.99.0.1/24"),
        ("docker0", &["bridge"], "172.17.0.1/16"),
        ("br7", &["bridge"], "10.97.0.1/24"),
    ] {
        beta.ip(&[&["link", "add", name, "type"], kind].concat()).unwrap();
        beta.ip(&["addr", "add", address, "dev", name]).unwrap();
        beta.ip(&["link", "set", name, "up"]).unwrap();
    }
    beta.ip(&["link", "set", "lanx", "up"]).unwrap();
    let asked = three.to_beta.right_v4().to_string();
    let (port, other) = (PORT.to_string(), three.world.link.right_v4().to_string());
    let answer = |args: &[&str]| three.mallory_says(ASK_ADDRESSES, &[&[&*asked], args].concat());
    let wait = || std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(answer(&[]), asked);
    assert_eq!(answer(&["alone", &port]), asked);
    assert_eq!(answer(&["alone", "7001"]), "refused", "no rule serves it");
    // If the peer lists an address in another network of beta, the INIT ACK also has beta's address in that network.
    // The peer can use it for a second path.
    assert_eq!(answer(&["10.77.1.77"]), [&*other, &*asked].join(" "));
    wait();
    // Each interface with a default route is an uplink, regardless of the routes' metrics.
    beta.ip(&["route", "add", "default", "via", &three.to_beta.left_v4().to_string()]).unwrap();
    beta.ip(&["route", "add", "default", "via", &three.world.link.left_v4().to_string(), "metric", "900"])
        .unwrap();
    wait();
    assert_eq!(answer(&[]), [&*other, &*asked].join(" "));
    // A bridge that carries a default route is an uplink.
    beta.ip(&["route", "add", "default", "via", "10.97.0.2", "metric", "901"]).unwrap();
    wait();
    assert_eq!(answer(&[]), [&*other, &*asked, "10.97.0.1"].join(" "));
    let doctor = three.world.betas.as_ref().unwrap().sctpify(&["doctor"]).unwrap().stdout;
    assert!(doctor.contains("172.17.0.1 of docker0 (an interface to containers"), "{doctor}");
    assert!(doctor.contains("10.99.0.1 of lan0 (no default route"), "{doctor}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_setting_interfaces_limits_the_addresses_used_and_offered_to_peers() {
    let world = World::with("interfaces = \"path1 lan*\"\n", true);
    world.alpha.ip(&["link", "add", "lan0", "type", "veth", "peer", "name", "lanx"]).unwrap();
    world.alpha.ip(&["addr", "add", "10.99.0.1/24", "dev", "lan0"]).unwrap();
    for name in ["lan0", "lanx"] {
        world.alpha.ip(&["link", "set", name, "up"]).unwrap();
    }
    let second = world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
    let _server = world.serve("python3", &["-c", SERVER, &PORT.to_string()]);
    assert_eq!(client(&world, "print(ended(connect(b'n')).decode().split()[0])"), "10.77.1.1");
    let locals = || {
        let status = crate::world::status(&world.alphas);
        let associations = status["associations"].as_array().unwrap().clone();
        let paths = associations.iter().flat_map(|one| one["paths"].as_array().unwrap().clone());
        paths
            .map(|path| path["local"].as_str().unwrap().to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let is_told = || locals().contains("10.99.0.1");
    assert!(testbed::process::wait_for(LIMIT, is_told), "{:?}", locals());
    assert!(!locals().contains(&second.left_v4().to_string()), "{:?}", locals());
    let to = second.right_v4().to_string();
    let ask = format!("{CLIENT}\nprint(ended(connect(b'n')).decode().split()[0])");
    let other = world.client("python3", &["-c", &ask, &to, &PORT.to_string()]);
    let output = world.alpha.run("client", other, LIMIT).unwrap().good().unwrap().stdout;
    assert_eq!(output.trim(), second.left_v4().to_string());
    assert!(world.fallbacks().to_string().contains("interface_left_out"), "{}", world.fallbacks());
}

/// Opens a shareable association with argv[1] from argv[2], and lists argv[3] as a second address. Then alternately
/// requests each of the two addresses as the primary one. Sends 40 ASCONFs with 32 requests each, signed with the empty
/// key.
const WISHES: &str = "
import hashlib, hmac
beta, one, other = sys.argv[1:4]
first, second = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
first.bind((one, 0))
second.bind((other, first.getsockname()[1]))
def plain(kind, value): return struct.pack('!HH', kind, 4 + len(value)) + value
own = [(0x8002, os.urandom(32)), (0x8003, bytes([0xC1, 0x80])), (0x8004, struct.pack('!HH', 3, 1))]
said = parameter(EXTENSIONS, bytes([64, 194, 15, 0xC1, 0x80])) + parameter(ADAPTATION, struct.pack('!I', SHARED))
said += parameter(0xC000, b'') + b''.join(parameter(*p) for p in own) + address(other) + parameter(PADDING, bytes(200))
association, answer = connect(first, (beta, PORT), (61000, PORT), 0x33330001, said, STREAMS)
if not association: sys.exit('no association: %s' % answer)
its = dict(answer['parameters'])
vectors = [b''.join(plain(*p) for p in own), b''.join(plain(k, its[k]) for k in (0x8002, 0x8003, 0x8004))]
key = b''.join(sorted(vectors, key=lambda v: (len(v), v)))
association.hello()
acks, asked = 0, set()
def serve(seconds, is_over):
    global acks
    end = time.time() + seconds
    while time.time() < end and not is_over():
        for bound in select.select([first, second], [], [], 0.05)[0]:
            data, source = bound.recvfrom(65535)
            for kind, value in read(data)[3]:
                if kind == HEARTBEAT:
                    bound.sendto(packet(*association.ports, association.tags[1], chunk(HEARTBEAT_ACK, value)), source)
                    asked.add(bound)
                elif kind == 0x80: acks += 1
                else: association.on_chunks([(kind, value)], source)
serve(5, lambda: second in asked)
serve(0.3, lambda: False)
for n in range(40):
    wishes = b''.join(parameter(0xC004, struct.pack('!I', i) + address((one, other)[i % 2])) for i in range(32))
    asconf = padded(chunk(0xC1, struct.pack('!I', 1000 + n) + address(one) + wishes))
    head = chunk(15, struct.pack('!HH', 0, 3) + bytes(32))
    mac = hmac.new(key, head + asconf, hashlib.sha256).digest()
    association.transmit(chunk(15, struct.pack('!HH', 0, 3) + mac), asconf)
    serve(1, lambda: acks > n)
print('granted', acks)";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_flood_of_set_primary_requests_writes_few_lines_to_the_log() {
    let three = Three::new();
    three.serves_the_honest();
    let (beta, mallory) = (three.to_beta.right_v4().to_string(), three.to_beta.left_v4().to_string());
    three.mallory.ip(&["addr", "add", "10.77.3.77/24", "dev", &three.to_beta.name()]).unwrap();
    let log = || three.world.betas.as_ref().unwrap().log();
    let before = log().lines().count();
    assert_eq!(three.mallory_says(WISHES, &[&beta, &mallory, "10.77.3.77"]), "granted 40");
    let log = log();
    let lines: Vec<&str> = log.lines().skip(before).collect();
    let switches = lines.iter().filter(|line| line.contains("path switched")).count();
    // The log gets up to twenty lines about switches in ten seconds, and up to twenty more if the attack takes longer
    // than ten seconds.
    assert!((20..=40).contains(&switches) && lines.len() < 60, "{} lines, {switches} switches", lines.len());
    three.serves_the_honest();
}
