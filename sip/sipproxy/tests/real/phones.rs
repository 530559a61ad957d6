//! Tests with baresip, a softphone that is independent of this project. It registers with a password, calls, and hears the callee.

use std::fs;

use testbed::process::wait_for;
use testbed::{Capture, Host, Lab, Offloads, Process};

use crate::framed::World;
use crate::world::{LIMIT, Site};

/// A phone of a user of a.example.
struct Phone {
    user: &'static str,
    password: &'static str,
    transport: &'static str,
    /// Address of the phone.
    address: &'static str,
    /// Treatment of calls to the phone: `auto` answers them.
    answers: &'static str,
}

const CONFIG: &str = "audio_alert aubridge,alert
module_path /usr/lib/baresip/modules
module g711.so
module aubridge.so
module_tmp uuid.so
module_tmp account.so
module_app menu.so
";

impl Phone {
    /// Starts baresip with this phone's account. `more` holds further arguments.
    fn start(&self, lab: &Lab, host: &Host, more: &[&str]) -> Process {
        let Phone { user, password, transport, address, answers } = self;
        let dir = lab.dir().join(user);
        fs::create_dir_all(&dir).unwrap();
        // aubridge connects the phone's player to its source, so a phone plays and sends the same audio.
        let sound = format!("audio_player aubridge,{user}\naudio_source aubridge,{user}\n");
        fs::write(dir.join("config"), format!("sip_listen {address}:5070\n{sound}{CONFIG}")).unwrap();
        let outbound = format!("outbound=\"sip:10.77.1.1;transport={transport}\"");
        let account = format!(
            "<sip:{user}@a.example>;auth_user={user};auth_pass={password};{outbound};regint=120;answermode={answers};audio_codecs=pcmu\n"
        );
        fs::write(dir.join("accounts"), account).unwrap();
        fs::write(dir.join("contacts"), "").unwrap();
        // baresip finds its own address through the default route.
        host.ip(&["route", "add", "default", "via", "10.77.1.250"]).unwrap();
        let mut command = host.command("baresip");
        command.arg("-f").arg(&dir).args(["-t", "50"]).args(more);
        host.spawn(user, command).unwrap()
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_phones_register_with_passwords_and_the_caller_hears_the_callee_from_udp_to_tcp() {
    let lab = Lab::new().unwrap();
    let site = Site::new(&lab, "alpha", "10.77.1.1", "a.example");
    let far = lab.host("beta").unwrap();
    let _link = lab.join(&site.host, &far, 1, Offloads::On).unwrap();
    let users =
        "[authentication]\nalgorithms = [\"MD5\"]\nusers = { alice = \"secret\", bob = \"geheim\" }\n";
    let _proxy = site.proxy(&[site.listen("udp"), site.listen("tcp"), users.to_owned()]);
    let bob =
        Phone { user: "bob", password: "geheim", transport: "tcp", address: "10.77.1.2", answers: "auto" };
    let bob = bob.start(&lab, &far, &[]);
    assert!(wait_for(LIMIT, || bob.stdout().contains("200 OK")), "{}", bob.stdout());
    let alice = Phone {
        user: "alice",
        password: "secret",
        transport: "udp",
        address: "10.77.1.1",
        answers: "manual",
    };
    let alice = alice.start(&lab, &site.host, &["-e", "/dial sip:bob@a.example"]);
    for phone in [&alice, &bob] {
        assert!(wait_for(LIMIT, || phone.stdout().contains("Call established")), "{}", phone.stdout());
    }
    // Only the caller's reception is checked: a phone sends only audio that it has played, and the caller has not played any yet.
    let hears = || alice.stdout().contains("incoming rtp for 'audio' established");
    assert!(wait_for(LIMIT, hears), "{}", alice.stdout());
    alice.stop();
    assert!(wait_for(LIMIT, || bob.stdout().contains("session closed")), "BYE arrives: {}", bob.stdout());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_phone_with_a_wrong_password_does_not_register() {
    let lab = Lab::new().unwrap();
    let site = Site::new(&lab, "alpha", "10.77.1.1", "a.example");
    let far = lab.host("beta").unwrap();
    let _link = lab.join(&site.host, &far, 1, Offloads::On).unwrap();
    let users = "[authentication]\nalgorithms = [\"MD5\"]\nusers = { bob = \"geheim\" }\n";
    let _proxy = site.proxy(&[site.listen("udp"), users.to_owned()]);
    let bob =
        Phone { user: "bob", password: "wrong", transport: "udp", address: "10.77.1.2", answers: "auto" };
    let bob = bob.start(&lab, &far, &[]);
    let said = || bob.stdout() + &bob.stderr();
    assert!(wait_for(LIMIT, || said().contains("401 Unauthorized")), "{}", said());
    assert!(!said().contains("200 OK"));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_phone_that_knows_tcp_registers_calls_and_hangs_up_over_sctp_by_the_shim() {
    let World { proxys, callers, link, lab, .. } = &World::new();
    let _proxy = proxys.proxy(&[proxys.listen("udp"), proxys.listen("tcp"), proxys.listen("sctp")]);
    let _callee = proxys.callee("udp");
    proxys.register("alice", "udp");
    let capture = Capture::start(&callers.host, "phone", &[&link.name()]).unwrap();
    let bob =
        Phone { user: "bob", password: "none", transport: "tcp", address: "10.77.1.2", answers: "manual" };
    let bob = bob.start(lab, &callers.host, &["-e", "/dial sip:alice@a.example"]);
    assert!(wait_for(LIMIT, || bob.stdout().contains("Call established")), "{}", bob.stdout());
    bob.stop();
    let told =
        capture.dissect(&["-Y", "sip.CSeq.method == BYE", "-T", "fields", "-e", "frame.protocols"]).unwrap();
    assert!(told.lines().count() >= 2 && told.lines().all(|line| line.contains(":sctp:sip")), "{told}");
}
