//! Tests of encrypted associations between two daemons, and of peers that are known by their keys.

use crate::confined::worker_of;
use crate::deaths::{Victims, kill_processes};
use crate::keys::{KEY, give_key};
use crate::roaming::Transfer;
use crate::strangers::{begin, unprivileged};
use crate::streams::shared;
use crate::world::{BULK, LIMIT, PORT, UNENCRYPTED, World, status};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Daemon, Host, Process, Programs};

const TRY: &str = "encryption = \"try\"\n";
const REQUIRE: &str = "encryption = \"require\"\n";
/// Port of shared associations.
const SHARED_PORT: u16 = 9899;
/// Text that no packet may contain.
const SECRET: &str = "the payload that nobody between the hosts may read";
/// Sends the text argv[2] a thousand times to each client on port argv[1].
const TELL: &str = "
import socket, sys
listener = socket.create_server(('', int(sys.argv[1])))
print('listening', flush=True)
while True:
    client, _ = listener.accept()
    try:
        client.sendall((sys.argv[2] * 1000).encode())
    except OSError:
        pass
    client.close()
";
/// Reads to the end, and prints the number of bytes.
const READ: &str = "
import socket, sys
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30)
count = 0
while True:
    piece = stream.recv(65536)
    if not piece: break
    count += len(piece)
print(count)
";

/// Begins 300 handshakes per second, each from a new port. Each handshake offers encryption, but no key management
/// follows. Prints "enough" after 700 associations, and runs until the test ends it.
const HANDSHAKES_WITHOUT_KEYS: &str = "
bound = udp()
peer, port, kind = (sys.argv[1], PORT), int(sys.argv[2]), sys.argv[3]
offer = parameter(0x8006, struct.pack('!IBB', 1, 1, 229))
said = (shared_parameters() if kind == 'shared' else own_parameters()) + offer
streams = STREAMS if kind == 'shared' else 1
made, tags, begun = 0, {}, time.time()
for n in range(10 ** 6):
    ports, tag = (1024 + n % 60000, port), 0x40000000 + n
    tags[tag] = ports
    bound.sendto(packet(*ports, 0, chunk(INIT, init_value(tag, 1000, said, streams))), peer)
    while came := receive(bound, max(0, begun + n / 300 - time.time())):
        source, to, tag, chunks = read(came[0])
        for kind, value in chunks:
            if kind == INIT_ACK and tag in tags:
                answer = read_init(value)
                cookie = dict(answer['parameters'])[STATE_COOKIE]
                bound.sendto(packet(*tags[tag], answer['tag'], chunk(COOKIE_ECHO, cookie)), peer)
            elif kind == COOKIE_ACK:
                made += 1
                if made == 700: print('enough', flush=True)";

/// Time during which packets get lost. It is longer than the time that a client waits for COOKIE ACK.
const LOSSES: Duration = Duration::from_secs(4);
/// Limit on the time until a program gets its error after the peer's daemon has died. No other process has the keys to
/// seal an ABORT, so the far end must detect the death by its timers.
const NOTICED: Duration = Duration::from_secs(40);

/// Starts a server of the secret text on beta.
fn teller(world: &World) -> Process {
    world.serve("python3", &["-c", TELL, &PORT.to_string(), SECRET])
}

/// Reads the text over a connection, and returns true if all of it arrived.
fn read(world: &World) -> bool {
    read_by(world, READ)
}

/// Like [`read`], but with a short timeout. It suits connections that should fail by a timeout.
fn read_in_vain(world: &World) -> bool {
    read_by(world, &READ.replace("timeout=30", "timeout=4"))
}

fn read_by(world: &World, reader: &str) -> bool {
    let target = world.link.right_v4().to_string();
    let command = world.client("python3", &["-c", reader, &target, &PORT.to_string()]);
    let output = world.alpha.run("read", command, LIMIT).unwrap();
    output.stdout.trim() == (SECRET.len() * 1000).to_string()
}

/// Makes two connections over SCTP: the first on its own association, the second on a shared association. Returns the
/// captured packets.
fn captured_transfers(world: &World) -> Vec<u8> {
    let _server = teller(world);
    let file = world.beta.dir().unwrap().join("transfers.pcap");
    let mut tcpdump = world.beta.command("tcpdump");
    tcpdump.args(["--immediate-mode", "-U", "-i", &world.link.name(), "-w"]).arg(&file);
    let mut tcpdump = world.beta.spawn("tcpdump", tcpdump).unwrap();
    tcpdump.wait_until("capture", LIMIT, |process| process.stderr().contains("listening on")).unwrap();
    assert!(read(world));
    assert!(wait_for(LIMIT, || counter(&world.alphas, "shared_associations") == 1));
    assert!(read(world));
    assert_eq!(world.connects_sctp(), 2, "{:?}", world.fallbacks());
    assert_eq!(counter(&world.alphas, "connects_shared"), 1);
    let is_there = || fs::metadata(&file).is_ok_and(|status| status.len() as usize > 2000 * SECRET.len());
    assert!(wait_for(LIMIT, is_there), "the data is not there");
    tcpdump.signal(nix::sys::signal::Signal::SIGINT).unwrap();
    tcpdump.finish(LIMIT).unwrap();
    fs::read(&file).unwrap()
}

fn shows_text(capture: &[u8]) -> bool {
    capture.windows(SECRET.len()).any(|w| w == SECRET.as_bytes())
}

fn state_file(host: &Host, name: &str) -> PathBuf {
    host.dir().unwrap().join("sctpifyd").join(name)
}

fn key(daemon: &Daemon) -> String {
    let output = daemon.sctpify(&["key"]).unwrap().good().unwrap().stdout;
    output.lines().next().unwrap().to_owned()
}

fn counter(daemon: &Daemon, name: &str) -> u64 {
    status(daemon)["counters"][name].as_u64().unwrap()
}

fn peers(daemon: &Daemon) -> Vec<Value> {
    let output = daemon.sctpify(&["peers", "--json"]).unwrap().good().unwrap().stdout;
    let report: Value = serde_json::from_str(&output).unwrap();
    report["peers"].as_array().unwrap().clone()
}

/// Stops a host's daemon, calls `change`, and starts the daemon again. `change` may change the daemon's files.
fn restart(host: &Host, daemon: &mut Option<Daemon>, change: impl FnOnce()) {
    daemon.take().unwrap().stop();
    change();
    *daemon = Some(Daemon::restart(host, &Programs::find().unwrap()).unwrap());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_encrypted_transfer_arrives_and_no_packet_shows_it() {
    // The control: without encryption, the search finds the text in the packets.
    assert!(shows_text(&captured_transfers(&World::of_each(TRY, Some(UNENCRYPTED)))));
    let world = World::of_each(TRY, Some(TRY));
    let betas = world.betas.as_ref().unwrap();
    let capture = captured_transfers(&world);
    assert!(!shows_text(&capture), "in the clear");
    for (daemon, other, by) in
        [(&world.alphas, betas, Value::from("first_use")), (betas, &world.alphas, Value::Null)]
    {
        let report = status(daemon);
        let associations = report["associations"].as_array().unwrap();
        assert!(!associations.is_empty());
        for association in associations {
            let encryption = &association["encryption"];
            assert_eq!(encryption["peer"].as_str(), Some(key(other).as_str()), "{report}");
            assert_eq!((&encryption["by"], &encryption["epoch"]), (&by, &3.into()), "{report}");
        }
    }
    let text = world.alphas.sctpify(&["status"]).unwrap().stdout;
    assert!(text.contains("encrypted, peer not verified"), "{text}");
    let known = peers(&world.alphas);
    assert_eq!(known[0]["key"].as_str(), Some(key(betas).as_str()));
    assert_eq!(known[0]["addresses"][0].as_str(), Some(world.link.right_v4().to_string().as_str()));
    assert!(peers(betas).is_empty(), "beta has connected to nobody");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_without_encryption_is_served_where_none_is_required() {
    for (alphas, betas) in [(TRY, UNENCRYPTED), (UNENCRYPTED, TRY)] {
        let world = World::of_each(alphas, Some(betas));
        let _server = teller(&world);
        assert!(read(&world));
        assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
        assert_eq!(counter(&world.alphas, "encrypted"), 0);
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn if_only_one_host_encrypts_and_requires_it_the_client_falls_back_and_logs_why() {
    for (alphas, betas, fault) in
        [(REQUIRE, UNENCRYPTED, "peer_has_none"), (UNENCRYPTED, REQUIRE, "peer_requires")]
    {
        let world = World::of_each(alphas, Some(betas));
        let _server = teller(&world);
        assert!(read(&world), "over plain TCP");
        assert_eq!(world.connects_sctp(), 0);
        let reason = world.fallbacks()[0]["reason"].take();
        assert_eq!((&reason["kind"], &reason["found"]["fault"]), (&"not_encrypted".into(), &fault.into()));
        assert!(world.alphas.log().contains("encryption"), "{}", world.alphas.log());
        let learned = world.alphas.shimrules(&["-L"]).unwrap().stdout;
        assert!(!learned.contains("probed"), "nothing is learned: {learned}");
        // If the rule requires SCTP, the connection is refused instead of using plain TCP.
        let rule = ["-A", "-c", "remote", "-p", "enable", "-P", &PORT.to_string(), "--require"];
        world.alphas.shimrules(&["-D", "-c", "remote", "-p", "enable", "-P", &PORT.to_string()]).unwrap();
        world.alphas.shimrules(&rule).unwrap().good().unwrap();
        assert!(!read_in_vain(&world));
        assert_eq!(world.fallbacks()[0]["reason"]["kind"], "required");
    }
}

/// Sets the encryption mode of the rule for [`PORT`].
fn secure(daemon: &Daemon, chain: &str, mode: &str) {
    let rule = ["-A", "-c", chain, "-p", "enable", "-P", &PORT.to_string(), "--secure", mode];
    daemon.shimrules(&rule).unwrap().good().unwrap();
}

/// Makes a connection that alpha's daemon must refuse. Returns the fault that the daemon reports.
fn refused_for(world: &World) -> String {
    assert!(!read_in_vain(world));
    let mut reason = world.fallbacks()[0]["reason"].take();
    assert_eq!(reason["kind"], "required", "{reason}");
    reason["cause"]["found"]["fault"].take().as_str().expect("a fault").to_owned()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_rule_requires_encryption_with_one_peer_where_the_setting_requires_none() {
    let world = World::of_each(TRY, Some(TRY));
    let _server = teller(&world);
    let (alphas, there) = (&world.alphas, world.link.right_v4().to_string());
    let add = |key: &str, name: &str, address: &str| {
        alphas.sctpify(&["peers", "add", key, address, "--name", name]).unwrap().good().unwrap();
    };
    secure(alphas, "remote", "require=beta");
    assert_eq!(refused_for(&world), "unknown_peer");
    add(&format!("sctpify1:{}", "A".repeat(43)), "gamma", "192.0.2.1");
    secure(alphas, "remote", "require=gamma");
    assert_eq!(refused_for(&world), "not_the_peer");
    assert_eq!(world.connects_sctp(), 0);
    add(&key(world.betas.as_ref().unwrap()), "beta", &there);
    secure(alphas, "remote", "require=beta");
    // The second connection may use a shared association.
    assert!(read(&world) && read(&world));
    assert_eq!((world.connects_sctp(), counter(alphas, "changed_peers")), (2, 0), "{:?}", world.fallbacks());
    // A shared association may exist now. The next connection must not use it, because the peer of the association is
    // not gamma.
    secure(alphas, "remote", "require=gamma");
    assert_eq!(refused_for(&world), "not_the_peer");
    let told = alphas.sctpify(&["explain", &world.target()]).unwrap().stdout;
    assert!(told.contains("the rule requires the peer gamma"), "{told}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_rule_that_requires_encryption_refuses_where_either_host_has_none() {
    for (alphas, betas, fault) in [(TRY, UNENCRYPTED, "peer_has_none"), (UNENCRYPTED, TRY, "off_here")] {
        let world = World::of_each(alphas, Some(betas));
        let _server = teller(&world);
        secure(&world.alphas, "remote", "require");
        assert_eq!(refused_for(&world), fault);
        secure(&world.alphas, "remote", "try");
        assert!(read(&world));
        assert_eq!((world.connects_sctp(), counter(&world.alphas, "encrypted")), (1, 0));
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_rule_turns_encryption_off_also_to_a_host_whose_key_is_known() {
    let world = World::of_each("encryption = \"try\"\nstreams = \"own\"\n", Some(TRY));
    let _server = teller(&world);
    let key = key(world.betas.as_ref().unwrap());
    let there = world.link.right_v4().to_string();
    world.alphas.sctpify(&["peers", "add", &key, &there]).unwrap().good().unwrap();
    secure(&world.alphas, "remote", "off");
    assert!(read(&world));
    assert_eq!((world.connects_sctp(), counter(&world.alphas, "encrypted")), (1, 0));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_local_rule_refuses_unencrypted_associations_and_peers_other_than_the_named_one() {
    let world = World::of_each(UNENCRYPTED, Some(TRY));
    let _server = teller(&world);
    secure(world.betas.as_ref().unwrap(), "local", "require");
    assert!(read(&world), "over plain TCP");
    assert_eq!(world.connects_sctp(), 0);
    drop(world);
    let world = World::of_each(TRY, Some(TRY));
    let server = teller(&world);
    let betas = world.betas.as_ref().unwrap();
    secure(betas, "local", "require");
    assert!(read(&world) && read(&world));
    assert_eq!(world.connects_sctp(), 2, "{:?}", world.fallbacks());
    drop(server);
    // Beta refuses the connection on the shared association, and then on a separate association. The server program
    // sees neither attempt.
    let told = TELL.replace("listener.accept()", "listener.accept(); print('accepted', flush=True)");
    let server = world.serve("python3", &["-c", &told, &PORT.to_string(), SECRET]);
    secure(betas, "local", "require=alpha");
    assert!(!read(&world) && !server.stdout().contains("accepted"));
    let here = world.link.left_v4().to_string();
    betas.sctpify(&["peers", "add", &key(&world.alphas), &here, "--name", "alpha"]).unwrap().good().unwrap();
    assert!(read(&world) && server.stdout().contains("accepted"));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_connection_that_is_opened_while_its_rule_changes_is_as_the_new_rule_requires() {
    let world = World::of_each(TRY, Some(UNENCRYPTED));
    let _server = teller(&world);
    // Until the table is removed, alpha drops COOKIE ACKs.
    let chain = "{ chain in { type filter hook input priority 0; udp sport 9899 udp length < 32 drop; }; }";
    world.alpha.tool("nft", &[&format!("table inet short {chain}")]).unwrap();
    let reader = READ.replace("timeout=30", "timeout=4");
    let command =
        world.client("python3", &["-c", &reader, &world.link.right_v4().to_string(), &PORT.to_string()]);
    let reader = world.alpha.spawn("read", command).unwrap();
    let is_begun = || status(&world.alphas)["associations"][0]["state"] == "COOKIE-ECHOED";
    assert!(wait_for(LIMIT, is_begun), "{}", status(&world.alphas));
    secure(&world.alphas, "remote", "require");
    world.alpha.tool("nft", &["delete", "table", "inet", "short"]).unwrap();
    assert!(!reader.finish(LIMIT).unwrap().status.success());
    let reason = world.fallbacks()[0]["reason"].take();
    assert_eq!(reason["cause"]["found"]["fault"], "rules_changed", "{reason}");
    assert_eq!(world.connects_sctp(), 0);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_hosts_that_require_encryption_have_it() {
    let world = World::of_each(REQUIRE, Some(REQUIRE));
    let _server = teller(&world);
    assert!(read(&world));
    assert_eq!(
        (world.connects_sctp(), counter(&world.alphas, "failed_keys")),
        (1, 0),
        "{:?}",
        world.fallbacks()
    );
    assert!(counter(&world.alphas, "encrypted") > 0);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_restart_keeps_the_key_and_the_known_peers() {
    let mut world = World::of_each(TRY, Some(TRY));
    let _server = teller(&world);
    assert!(read(&world));
    let (alphas_key, betas_key) = (key(&world.alphas), key(world.betas.as_ref().unwrap()));
    assert_ne!(alphas_key, betas_key);
    restart(&world.beta, &mut world.betas, || {});
    assert_eq!(key(world.betas.as_ref().unwrap()), betas_key);
    let mut alphas = Some(world.alphas);
    restart(&world.alpha, &mut alphas, || {});
    world.alphas = alphas.unwrap();
    assert_eq!((key(&world.alphas), peers(&world.alphas).len()), (alphas_key, 1));
    assert!(read(&world));
    assert_eq!(
        (world.connects_sctp(), counter(&world.alphas, "changed_peers")),
        (1, 0),
        "{:?}",
        world.fallbacks()
    );
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn another_key_at_a_known_address_causes_fallback_until_the_old_key_is_forgotten() {
    let mut world = World::of_each(TRY, Some(TRY));
    let _server = teller(&world);
    assert!(read(&world));
    let beta = world.beta.clone();
    let (old, file) = (key(world.betas.as_ref().unwrap()), state_file(&beta, "host.key"));
    restart(&beta, &mut world.betas, || fs::remove_file(&file).unwrap());
    let new = key(world.betas.as_ref().unwrap());
    assert!(read(&world), "over plain TCP");
    let reason = world.fallbacks()[0]["reason"].take();
    assert_eq!(reason["found"]["fault"], "other_key", "{reason}");
    assert_eq!(
        (reason["found"]["known"].as_str(), reason["found"]["found"].as_str()),
        (Some(old.as_str()), Some(new.as_str()))
    );
    assert_eq!(counter(&world.alphas, "changed_peers"), 1);
    assert!(world.alphas.log().contains("it may be another host"), "{}", world.alphas.log());
    let address = world.link.right_v4().to_string();
    let output = world.alphas.sctpify(&["peers", "forget", &address]).unwrap().good().unwrap().stdout;
    assert!(output.contains("is forgotten"), "{output}");
    assert!(read(&world));
    assert_eq!(peers(&world.alphas)[0]["key"].as_str(), Some(new.as_str()));
    assert!(world.fallbacks().as_array().unwrap().len() == 1, "{:?}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn another_key_is_refused_where_encryption_is_required() {
    let mut world = World::of_each(REQUIRE, Some(TRY));
    let _server = teller(&world);
    assert!(read(&world));
    let beta = world.beta.clone();
    let file = state_file(&beta, "host.key");
    restart(&beta, &mut world.betas, || fs::remove_file(&file).unwrap());
    assert!(!read_in_vain(&world));
    assert_eq!(world.fallbacks()[0]["reason"]["kind"], "required");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn where_encryption_is_required_a_known_host_without_it_or_without_sctp_is_refused() {
    let mut world = World::of_each(&format!("{REQUIRE}learned_failures = 1\n"), Some(TRY));
    let _server = teller(&world);
    assert!(read(&world));
    let beta = world.beta.clone();
    let file = state_file(&beta, "sctpify.toml");
    restart(&beta, &mut world.betas, || fs::write(&file, UNENCRYPTED).unwrap());
    assert!(!read_in_vain(&world));
    let reason = world.fallbacks()[0]["reason"].take();
    assert_eq!(
        (&reason["kind"], &reason["cause"]["found"]["fault"]),
        (&"required".into(), &"key_gone".into())
    );
    assert_eq!(counter(&world.alphas, "changed_peers"), 1);
    // An attacker that blocks SCTP must not cause a fallback to plain TCP: not for this connection, and not for later
    // connections through the learned table.
    world.betas.take().unwrap().stop();
    for _ in 0..2 {
        assert!(!read_in_vain(&world));
    }
    assert_eq!(counter(&world.alphas, "connects_learned_tcp"), 0);
    let address = world.link.right_v4().to_string();
    world.alphas.sctpify(&["peers", "forget", &address]).unwrap().good().unwrap();
    assert!(read(&world), "over plain TCP");
    assert_eq!(counter(&world.alphas, "connects_learned_tcp"), 0, "SCTP was tried again");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_that_had_a_key_and_offers_no_encryption_any_more_is_noticed() {
    let mut world = World::of_each(TRY, Some(TRY));
    let _server = teller(&world);
    assert!(read(&world));
    let beta = world.beta.clone();
    let file = state_file(&beta, "sctpify.toml");
    restart(&beta, &mut world.betas, || fs::write(&file, UNENCRYPTED).unwrap());
    assert!(read(&world), "over plain TCP");
    let reason = world.fallbacks()[0]["reason"].take();
    assert_eq!(reason["found"]["fault"], "key_gone", "{reason}");
    assert_eq!(counter(&world.alphas, "changed_peers"), 1);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_workers_user_cannot_read_the_hosts_key_and_the_supervisor_alone_has_it() {
    let world = World::of_each(TRY, None);
    let file = state_file(&world.alpha, "host.key");
    let status = fs::metadata(&file).unwrap();
    assert_eq!((status.mode() & 0o7777, status.uid()), (0o600, 0));
    let worker = worker_of(&world.alpha, &world.alphas);
    let open = fs::read_dir(format!("/proc/{worker}/fd")).unwrap();
    let has_it = |entry: std::io::Result<fs::DirEntry>| {
        fs::read_link(entry.unwrap().path()).is_ok_and(|to| to == file)
    };
    assert!(!open.into_iter().any(has_it), "an open descriptor");
    // The worker's memory does not contain the secret part of the key (PKCS #8).
    let der = fs::read(&file).unwrap();
    let seed = &der[16..48];
    assert!(!memory_has(worker, seed), "in the worker's memory");
    assert!(memory_has(world.alphas.id(), seed), "in the supervisor's");
}

/// Reports whether a process's writable memory contains these bytes.
fn memory_has(process: u32, bytes: &[u8]) -> bool {
    use std::os::unix::fs::FileExt;
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{process}/mem")).unwrap();
    let ranges =
        maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|mode| mode.starts_with("rw")));
    ranges.into_iter().any(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let mut part = vec![0; usize::try_from(to - from).unwrap()];
        let read = memory.read_at(&mut part, from).unwrap_or(0);
        part[..read].windows(bytes.len()).any(|w| w == bytes)
    })
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_key_readable_by_others_keeps_an_encrypting_daemon_from_starting() {
    let world = World::with("", false);
    let file = state_file(&world.alpha, "host.key");
    assert!(file.exists(), "made although nothing is encrypted");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let alpha = world.alpha.clone();
    world.alphas.stop();
    fs::write(state_file(&alpha, "sctpify.toml"), TRY).unwrap();
    let error = Daemon::restart(&alpha, &Programs::find().unwrap()).map(|_| ()).unwrap_err();
    assert!(format!("{error:#}").contains("mode 600"), "{error:#}");
    fs::write(state_file(&alpha, "sctpify.toml"), UNENCRYPTED).unwrap();
    let daemon = Daemon::restart(&alpha, &Programs::find().unwrap()).unwrap();
    assert!(daemon.log().contains("mode 600"), "{}", daemon.log());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_encrypted_connection_ends_with_an_error_when_the_peers_worker_dies() {
    for victims in [Victims::All, Victims::AllButFirst] {
        let world = World::of_each(TRY, Some(TRY));
        let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
        let command = world.client(BULK, &["send", &world.target(), "60", "65536"]);
        let sender = world.alpha.spawn("sender", command).unwrap();
        assert!(wait_for(LIMIT, || world.connects_sctp() == 1), "{:?}", world.fallbacks());
        kill_processes(&world.beta, world.betas.as_ref().unwrap(), victims);
        let output = sender.finish(NOTICED).unwrap();
        println!("noticed after {:?}", output.elapsed);
        assert!(!output.status.success(), "{victims:?}");
        assert!(!receiver.finish(LIMIT).unwrap().status.success(), "{victims:?}");
    }
}

/// Makes alpha drop the server's first message of the key management. The filter drops packets over 1000 bytes: this
/// message is longer, and INIT ACK and COOKIE ACK are shorter.
fn drop_keys(world: &World) {
    let chain = "{ chain in { type filter hook input priority 0; udp sport 9899 udp length > 1000 drop; }; }";
    world.alpha.tool("nft", &[&format!("table inet long {chain}")]).unwrap();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_that_gave_no_keys_in_time_delays_the_next_connection_less_and_is_tried_again() {
    let world = World::of_each(TRY, Some(TRY));
    let _server = teller(&world);
    drop_keys(&world);
    assert!(read(&world) && read(&world));
    let fallbacks = world.fallbacks();
    let causes: Vec<String> =
        fallbacks.as_array().unwrap().iter().map(|fallback| fallback["reason"].to_string()).collect();
    for limit in ["10 s", "3 s"] {
        let count = causes.iter().filter(|cause| cause.contains(&format!("longer than {limit}"))).count();
        assert_eq!((count, causes.len()), (1, 2), "{causes:?}");
    }
    world.alpha.tool("nft", &["delete", "table", "inet", "long"]).unwrap();
    assert!(read(&world));
    assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_client_waits_longer_for_keys_than_for_cookie_ack_if_packets_are_lost() {
    let world = World::of_each(TRY, Some(TRY));
    let _server = teller(&world);
    drop_keys(&world);
    let target = world.link.right_v4().to_string();
    let command = world.client("python3", &["-c", READ, &target, &PORT.to_string()]);
    let reader = world.alpha.spawn("read", command).unwrap();
    thread::sleep(LOSSES);
    // The removal of the table also makes the kernel drop the held SYN, which the client's kernel then retransmits.
    world.alpha.tool("nft", &["delete", "table", "inet", "long"]).unwrap();
    let output = reader.finish(LIMIT).unwrap().good().unwrap();
    assert_eq!(output.stdout.trim(), (SECRET.len() * 1000).to_string());
    assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
    assert!(counter(&world.alphas, "encrypted") > 0);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn hosts_that_share_a_key_encrypt_with_it() {
    for is_required in [true, false] {
        let world = World::of_each(TRY, Some(TRY));
        let betas = world.betas.as_ref().unwrap();
        give_key(&world.alpha, &world.alphas, Some(KEY));
        give_key(&world.beta, betas, Some(KEY));
        // When an operator introduces a key, one host requires the key earlier than the other host. Here, only beta
        // requires the key.
        if !is_required {
            world.alphas.sctpify(&["set", "peer_key_required=0"]).unwrap().good().unwrap();
        }
        let _server = teller(&world);
        assert!(read(&world) && read(&world));
        assert_eq!(world.connects_sctp(), 2, "{:?}", world.fallbacks());
        assert!(counter(&world.alphas, "encrypted") > 0 && counter(betas, "encrypted") > 0);
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_without_the_required_shared_key_gets_no_association_although_it_encrypts() {
    let world = World::of_each(TRY, Some(TRY));
    give_key(&world.beta, world.betas.as_ref().unwrap(), Some(KEY));
    let _server = teller(&world);
    assert!(read(&world), "over plain TCP");
    assert_eq!(world.connects_sctp(), 0);
    let betas = world.betas.as_ref().unwrap();
    assert!(wait_for(LIMIT, || counter(betas, "wrong_keys") > 0));
    assert!(betas.log().contains("another key"), "{}", betas.log());
    let reason = world.fallbacks()[0]["reason"].take();
    assert!(reason.to_string().contains("pre-shared key differs"), "{reason}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_flood_of_handshakes_without_keys_does_not_keep_out_a_client_with_a_key() {
    let world = World::of_each(TRY, Some(TRY));
    let betas = world.betas.as_ref().unwrap();
    give_key(&world.alpha, &world.alphas, Some(KEY));
    give_key(&world.beta, betas, Some(KEY));
    let _server = teller(&world);
    let to = world.link.right_v4().to_string();
    let in_vain = |port: u16, kind: &str| {
        let command = unprivileged(&world.alpha, HANDSHAKES_WITHOUT_KEYS, &[&to, &port.to_string(), kind]);
        begin(&world.alpha, command, "enough")
    };
    let _own = in_vain(PORT, "own");
    let _shared = in_vain(SHARED_PORT, "shared");
    for _ in 0..3 {
        assert!(read(&world));
    }
    assert_eq!(world.connects_sctp(), 3, "{:?}", world.fallbacks());
    assert!(wait_for(LIMIT, || read(&world) && shared(&world) > 0), "{:?}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn hosts_whose_people_compare_the_words_of_a_connection_are_paired() {
    let world = World::of_each(TRY, Some(TRY));
    let transfer = Transfer::begin(&world);
    let betas = world.betas.as_ref().unwrap();
    let (here, there) = (world.link.left_v4().to_string(), world.link.right_v4().to_string());
    let words = |daemon: &Daemon, host: &str| {
        let shown = daemon.sctpify(&["pair", host]).unwrap().good().unwrap().stdout;
        shown.lines().find_map(|line| line.strip_prefix("    ")).expect("words").to_owned()
    };
    let (alphas_words, betas_words) = (words(&world.alphas, &there), words(betas, &here));
    assert_eq!(alphas_words, betas_words);
    let wrong = world.alphas.sctpify(&["pair", &there, "--words", "badak bodak"]).unwrap();
    assert!(!wrong.status.success() && wrong.stderr.contains("somebody is between"), "{wrong:?}");
    for (daemon, host, name) in [(&world.alphas, &there, "beta"), (betas, &here, "alpha")] {
        let pair = ["pair", host, "--words", &alphas_words, "--name", name];
        daemon.sctpify(&pair).unwrap().good().unwrap();
        let known = peers(daemon);
        assert_eq!((&known[0]["by"], &known[0]["name"]), (&"paired".into(), &name.into()), "{known:?}");
    }
    // The compared words prove only the key. Beta records no address for alpha, because beta has never connected to
    // alpha.
    assert_eq!(peers(betas)[0]["addresses"], Value::from(Vec::<Value>::new()));
    transfer.end(&world);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_hosts_addresses_belong_to_one_known_peer() {
    let world = World::of_each(TRY, Some(TRY));
    let _server = teller(&world);
    assert!(read(&world));
    let reader = READ.replace("sys.argv[1]", &format!("'{}'", world.link.right_v6()));
    let command = world.client("python3", &["-c", &reader, "-", &PORT.to_string()]);
    let server = TELL.replace("('', int(sys.argv[1]))", "('::', int(sys.argv[1])), family=socket.AF_INET6");
    let server = world.serve("python3", &["-c", &server, &PORT.to_string(), SECRET]);
    world.alpha.run("read", command, LIMIT).unwrap().good().unwrap();
    drop(server);
    let known = peers(&world.alphas);
    assert_eq!(known.len(), 1, "{known:?}");
    let addresses = [world.link.right_v4().to_string(), world.link.right_v6().to_string()];
    assert_eq!(known[0]["addresses"], Value::from(addresses.to_vec()), "{known:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_configured_key_is_checked_already_at_the_first_connection() {
    let world = World::of_each(REQUIRE, Some(TRY));
    let _server = teller(&world);
    let (address, right) = (world.link.right_v4().to_string(), key(world.betas.as_ref().unwrap()));
    let wrong = key(&world.alphas);
    let add = |key: &str| world.alphas.sctpify(&["peers", "add", key, &address, "--name", "beta"]).unwrap();
    add(&wrong).good().unwrap();
    assert!(!read_in_vain(&world));
    assert_eq!(world.fallbacks()[0]["reason"]["cause"]["found"]["fault"], "other_key");
    let refused = add(&right);
    assert!(
        !refused.status.success() && refused.stderr.contains("forget that one first"),
        "{}",
        refused.stderr
    );
    world.alphas.sctpify(&["peers", "forget", "beta"]).unwrap().good().unwrap();
    add(&right).good().unwrap();
    assert!(read(&world));
    let known = peers(&world.alphas);
    assert_eq!((&known[0]["name"], &known[0]["by"]), (&"beta".into(), &"configured".into()));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_damaged_peers_file_keeps_an_encrypting_daemon_from_starting() {
    let world = World::of_each(TRY, Some(TRY));
    let _server = teller(&world);
    assert!(read(&world));
    let alpha = world.alpha.clone();
    let file = state_file(&alpha, "peers");
    world.alphas.stop();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text[..text.len() - 10]).unwrap();
    let error = Daemon::restart(&alpha, &Programs::find().unwrap()).map(|_| ()).unwrap_err();
    assert!(format!("{error:#}").contains("line 2 is no known peer"), "{error:#}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn routers_read_the_advertisements_of_encrypted_associations() {
    let advertises = format!("{TRY}advertise = \"backlog\"\n");
    let world = World::of_each(&advertises, Some(&advertises));
    let capture = captured_transfers(&world);
    assert_eq!(counter(&world.alphas, "encrypted"), 2);
    assert!(!shows_text(&capture));
    // An advertisement chunk of 8 octets (type 0x96), followed by a DTLS chunk (type 65).
    let advertised = |w: &[u8]| w[0] == 0x96 && w[2..4] == [0, 8] && w[8] == 65;
    assert!(capture.windows(9).filter(|w| advertised(w)).count() > 10);
}
