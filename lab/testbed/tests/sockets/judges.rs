//! Tests of SCTP sockets with the Linux kernel's SCTP, and with programs of other projects: Osmocom's 2G core and
//! freeDiameter.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testbed::process::wait_for;
use testbed::programs::{Diameter, diameter};
use testbed::{Guest, Host, Link, Programs};

use crate::world::{LIMIT, PORT, World, server_in};

/// Program that this machine runs in the namespace `peer` with `sctpify run --sctp`. The namespace has links to the
/// guest.
struct Beside {
    child: Child,
    output: PathBuf,
}

impl Beside {
    fn start(guest: &Guest, programs: &Programs, carriers: &str, words: &[&str]) -> Beside {
        let output = guest.dir().join("output");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &guest.namespace("peer")]).arg(programs.path("sctpify"));
        command.args(["run", "--sctp", "--carriers", carriers, "--"]).args(words);
        let file = fs::File::create(&output).unwrap();
        let child =
            command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Beside { child, output }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    fn ends(&mut self) -> bool {
        wait_for(LIMIT, || self.child.try_wait().unwrap().is_some()) && self.child.wait().unwrap().success()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // `kill` fails only if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The guest's addresses, one on each path.
const GUESTS: [&str; 2] = ["10.60.0.11", "10.60.1.11"];

#[test]
#[ignore = "needs root: makes network namespaces"]
fn files_pass_to_and_from_a_kernel_with_sctp_over_udp_and_over_ip() {
    if let Some(missing) = Guest::missing() {
        return testbed::skip(missing);
    }
    let guest = Guest::up("socks").unwrap();
    let programs = Programs::find().unwrap();
    let file = guest.dir().join("file");
    let bytes: Vec<u8> = (0..2_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
    fs::write(&file, &bytes).unwrap();
    let inside = Guest::path_inside(&file);
    for (carriers, over_udp) in [("udp", true), ("ip", false)] {
        guest.carry_over_udp(over_udp).unwrap();
        // The file passes from this machine to the guest.
        let from = format!("OPEN:{}", file.display());
        let mut there = guest.program(60);
        there.args(["sh", "-c", &format!("socat -u SCTP-LISTEN:{PORT} - | sha256sum")]);
        let there = there.stdout(Stdio::piped()).spawn().unwrap();
        assert!(wait_for(LIMIT, || guest.run("cat /proc/net/sctp/eps").is_ok_and(|eps| eps.contains(PORT))));
        let to = format!("SCTP:{}:{PORT}", GUESTS[0]);
        // The loop's previous pass used another carrier. Its socket server must have ended.
        assert!(wait_for(LIMIT, || server_in(&guest.namespace("peer")).is_none()));
        let mut here = Beside::start(&guest, &programs, carriers, &["socat", "-u", &from, &to]);
        assert!(here.ends(), "{carriers}: {}", here.text());
        let told = String::from_utf8(there.wait_with_output().unwrap().stdout).unwrap();
        let sum = guest.run(&format!("sha256sum < {}", inside.display())).unwrap();
        assert_eq!(told.split_whitespace().next(), sum.split_whitespace().next(), "{carriers}");
        // The file passes back from the guest to this machine.
        assert!(wait_for(LIMIT, || rows_beside(&guest, &programs).is_empty()));
        let copy = guest.dir().join("copy");
        let create = format!("OPEN:{},creat,trunc", copy.display());
        let listen = format!("SCTP-LISTEN:{PORT}");
        let mut here = Beside::start(&guest, &programs, carriers, &["socat", "-u", &listen, &create]);
        assert!(wait_for(LIMIT, || rows_beside(&guest, &programs).contains("LISTEN")), "{}", here.text());
        guest.run(&format!("socat -u OPEN:{} SCTP:10.60.0.1:{PORT}", inside.display())).unwrap();
        assert!(here.ends(), "{carriers}: {}", here.text());
        assert!(fs::read(&copy).unwrap() == bytes, "{carriers}: the copy differs");
        assert!(
            wait_for(LIMIT, || server_in(&guest.namespace("peer")).is_none()),
            "the server ends when nobody uses it"
        );
    }
}

fn rows_beside(guest: &Guest, programs: &Programs) -> String {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", &guest.namespace("peer")])
        .arg(programs.path("sctpify"))
        .args(["--json", "sctp"]);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// Returns the first of these programs that is not installed; `None` if all are installed.
fn missing_of(programs: &[&'static str]) -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&str| {
        std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
            || Path::new("/usr/sbin").join(name).is_file()
    };
    programs.iter().find(|name| !is_there(name)).copied()
}

/// Runs three programs of Osmocom on one host, with Debian's configurations: the signalling transfer point, the
/// mobile switching centre and the base station controller.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn osmocoms_2g_core_speaks_m3ua() {
    const PROGRAMS: [&str; 3] = ["osmo-stp", "osmo-msc", "osmo-bsc"];
    if let Some(missing) = missing_of(&PROGRAMS) {
        return testbed::skip(missing);
    }
    let world = World::new(1);
    let ask = |port: u16, line: &str| {
        let mut command = world.alpha.command("sh");
        command.args(["-c", &format!("(echo '{line}'; sleep 0.5) | socat - TCP:127.0.0.1:{port}")]);
        world.alpha.run("vty", command, LIMIT).unwrap().stdout
    };
    let mut started = Vec::new();
    for name in PROGRAMS {
        let mut command = world.sctp(&world.alpha);
        command.args([name, "-c", &format!("/etc/osmocom/{name}.cfg")]);
        // Some of these programs keep a database in their working directory.
        command.current_dir(world.alpha.dir().unwrap());
        started.push(world.alpha.spawn(name, command).unwrap());
        assert!(wait_for(LIMIT, || world.rows(&world.alpha).iter().any(|row| row["state"] == "LISTEN")));
    }
    let states = || ask(4239, "show cs7 instance 0 asp");
    assert!(wait_for(LIMIT, || states().matches("ASP_ACTIVE").count() == 2), "{}", states());
    let bsc = || ask(4254, "show bsc");
    assert!(wait_for(LIMIT, || bsc().contains("READY")), "{}", bsc());
}

/// Runs two Diameter nodes, which are peers of each other. Two links join their hosts, and the test cuts the first
/// link.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_diameter_nodes_stay_open_when_a_path_dies() {
    if let Some(missing) = missing_of(&["freeDiameterd", "openssl"]) {
        return testbed::skip(missing);
    }
    let world = World::new(2);
    let nodes = Diameter::prepare(&world.alpha.dir().unwrap()).unwrap();
    let of = |side: fn(&Link) -> Ipv4Addr| [0, 1].map(|at| side(&world.links[at]));
    let (lefts, rights) = (of(Link::left_v4), of(Link::right_v4));
    let start =
        |host: &Host, configuration: PathBuf| nodes.start(host, world.sctp(host), &configuration).unwrap();
    let mut betas = start(&world.beta, nodes.configure("beta", "alpha", &rights, lefts[0]).unwrap());
    let mut alphas = start(&world.alpha, nodes.configure("alpha", "beta", &lefts, rights[0]).unwrap());
    for node in [&mut alphas, &mut betas] {
        node.wait_until("open", LIMIT, diameter::is_open).unwrap();
    }
    let before = [&alphas, &betas].map(diameter::changes);
    world.links[0].silence().unwrap();
    let is_cut = || {
        world
            .rows(&world.alpha)
            .iter()
            .flat_map(|row| row["paths"].as_array().unwrap().clone())
            .any(|path| path["state"] == "inactive")
    };
    assert!(wait_for(LIMIT, is_cut), "{:?}", world.rows(&world.alpha));
    // In this time, the nodes must exchange watchdog messages over the second link. A node sends one after 6 s
    // without a message, with a jitter of up to 2 s (RFC 3539 section 3.4.1).
    std::thread::sleep(diameter::WATCHDOG * 2 + Duration::from_secs(2));
    assert_eq!([&alphas, &betas].map(diameter::changes), before, "{}", alphas.stdout());
}
