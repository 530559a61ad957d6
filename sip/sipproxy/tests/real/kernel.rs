//! Tests of Kamailio and SIPp with the Linux kernel's SCTP, in a guest: registrations, and calls in both directions.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::process::wait_for;
use testbed::{Guest, Host, Lab, Process};

use crate::world::{LIMIT, Site, scenario};

/// Kamailio's address in the guest.
const THEIRS: &str = "10.60.0.11";
/// The proxy's address, outside of the guest.
const OURS: &str = "10.60.0.1";
/// Path of Kamailio's SCTP module in Debian.
const MODULE: &str = "/usr/lib/x86_64-linux-gnu/kamailio/modules/sctp.so";
/// Time limit of a program in the guest, in seconds.
const RUN_S: u64 = 120;

/// Kamailio's configuration. Kamailio is the registrar of `k.example`, and forwards requests for our domain to our proxy.
const CONFIGURATION: &str = r#"#!KAMAILIO
debug=2
log_stderror=yes
children=1
enable_sctp=yes
auto_aliases=no
dns=no
rev_dns=no
alias="k.example"
listen=sctp:10.60.0.11:5060
mpath="/usr/lib/x86_64-linux-gnu/kamailio/modules/"
loadmodule "sctp.so"
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "maxfwd.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
loadmodule "textops.so"
loadmodule "siputils.so"
request_route {
    if (!mf_process_maxfwd_header("70")) { sl_send_reply("483", "Too Many Hops"); exit; }
    if (has_totag()) {
        if (loose_route()) { t_relay(); exit; }
        if (is_method("ACK")) { if (t_check_trans()) t_relay(); exit; }
        sl_send_reply("404", "Not here");
        exit;
    }
    if (is_method("REGISTER")) { save("location"); exit; }
    if (is_method("INVITE")) record_route();
    if ($rd == "a.example") { $du = "sip:10.60.0.1:5060;transport=sctp"; t_relay(); exit; }
    if (!lookup("location")) { sl_send_reply("404", "Not Found"); exit; }
    t_relay();
}
"#;

/// Kamailio in a guest, and our proxy on a host outside of the guest.
struct World {
    ours: Host,
    lab: Lab,
    _proxy: Process,
    kamailio: Process,
    // Last field: the other fields use the guest's namespaces, and must be dropped before the guest.
    guest: Guest,
}

impl World {
    /// Starts the guest, Kamailio and the proxy. Returns `None` if the guest or Kamailio is not installed.
    fn new() -> Option<World> {
        let missing = Guest::missing().or_else(|| (!Path::new(MODULE).exists()).then_some(MODULE));
        if let Some(what) = missing {
            testbed::skip(&format!("{what} is missing"));
            return None;
        }
        let guest = Guest::up("sip").unwrap();
        let lab = Lab::new().unwrap();
        let ours = lab.adopt("ours", guest.namespace("peer"));
        let path = guest.dir().join("kamailio.cfg");
        std::fs::write(&path, CONFIGURATION).unwrap();
        let mut command = guest.program(RUN_S);
        let inside = Guest::path_inside(&path);
        command.arg(format!("kamailio -DD -E -m 32 -Y /tmp -P /tmp/kamailio.pid -f {}", inside.display()));
        let kamailio = ours.spawn("kamailio", command).unwrap();
        assert!(wait_for(LIMIT, || listens(&guest, 5060)), "{}{}", kamailio.stdout(), kamailio.stderr());
        let site = Site::at(ours.clone(), lab.dir(), OURS, "a.example");
        let next_hop = format!(
            "[[next_hop]]\ndomain = \"k.example\"\ntransport = \"sctp\"\naddress = \"{THEIRS}:5060\"\n"
        );
        let proxy = site.proxy(&[site.listen("sctp"), next_hop]);
        Some(World { ours, lab, _proxy: proxy, kamailio, guest })
    }

    /// Returns the shell command for SIPp in the guest. SIPp uses one association for all calls.
    fn sipp(&self, name: &str, words: &str) -> String {
        let file = self.guest.dir().join(name);
        std::fs::copy(scenario(name), &file).unwrap();
        let inside = Guest::path_inside(&file);
        format!("sipp -sf {} -t s1 -i {THEIRS} -nostdin -key from a.example {words}", inside.display())
    }

    fn agent(&self, user: &str, proxy: &str, port: u16, words: &[&str]) -> Process {
        let mut command = self.ours.command(env!("CARGO_BIN_EXE_sctpify-ua"));
        command.args(["--transport", "sctp", "--log", "info", "--user", user]);
        command.args(["--local", &format!("{OURS}:{port}"), "--proxy", &format!("{proxy}:5060")]);
        command.args(["--rtp-port", &(port - 1000).to_string()]).args(words);
        self.ours.spawn(user, command).unwrap()
    }

    fn callee(&self, user: &str, proxy: &str, port: u16) -> Process {
        let mut agent = self.agent(user, proxy, port, &[]);
        let is_registered = |agent: &Process| agent.stderr().contains("Registered");
        agent.wait_until("registered", LIMIT, is_registered).unwrap();
        agent
    }

    /// Makes ten calls from one user to another. All of them must succeed.
    fn calls(&self, user: &str, proxy: &str, port: u16, to: &str) {
        let words = ["--call", to, "--calls", "10", "--rate", "10", "--duration", "0.1"];
        let told = self.agent(user, proxy, port, &words).finish(LIMIT).unwrap();
        assert!(told.status.success(), "{}{}{}", told.stderr, self.kamailio.stdout(), self.kamailio.stderr());
        let told: Value = serde_json::from_str(&told.stdout).unwrap();
        assert_eq!(told["calls_completed"], 10, "{user} to {to}, in {}", self.lab.dir().display());
    }
}

/// Reports whether a program in the guest listens on this SCTP port.
fn listens(guest: &Guest, port: u16) -> bool {
    guest.run("cat /proc/net/sctp/eps").is_ok_and(|told| told.contains(&format!(" {port} ")))
}

#[test]
#[ignore = "needs root, Kamailio and a guest with the kernel's SCTP"]
fn sipp_registers_calls_and_is_called_over_the_kernels_sctp() {
    let Some(world) = World::new() else { return };
    let _alice = world.callee("alice@a.example", OURS, 5071);
    let mut command = world.guest.program(RUN_S);
    command.arg(world.sipp("answer.xml", "-p 6666"));
    let frank = world.ours.spawn("frank", command).unwrap();
    assert!(wait_for(LIMIT, || listens(&world.guest, 6666)), "{}{}", frank.stdout(), frank.stderr());
    let contact = world.guest.dir().join("contact.csv");
    std::fs::write(&contact, "SEQUENTIAL\n6666;sctp\n").unwrap();
    let words = format!("-p 6667 -s frank -inf {} -m 1 {OURS}:5060", Guest::path_inside(&contact).display());
    world.guest.run(&world.sipp("register.xml", &words)).unwrap();
    world.calls("carol@a.example", OURS, 5073, "sip:frank@a.example");
    let words = format!("-p 6668 -key to a.example -s alice -r 10 -m 20 -timeout 15 {OURS}:5060");
    world.guest.run(&world.sipp("call.xml", &words)).unwrap();
}

#[test]
#[ignore = "needs root, Kamailio and a guest with the kernel's SCTP"]
fn calls_go_between_our_users_and_kamailios_over_the_kernels_sctp_in_both_directions() {
    let Some(world) = World::new() else { return };
    let alice = world.callee("alice@a.example", OURS, 5071);
    let bob = world.callee("bob@k.example", THEIRS, 5072);
    world.calls("carol@a.example", OURS, 5073, "sip:bob@k.example");
    world.calls("dave@k.example", THEIRS, 5074, "sip:alice@a.example");
    // Kamailio's own users can also call each other.
    world.calls("erin@k.example", THEIRS, 5075, "sip:bob@k.example");
    for agent in [alice, bob] {
        agent.signal(Signal::SIGTERM).unwrap();
        agent.finish(LIMIT).unwrap().good().unwrap();
    }
}
