//! Tests in which hosts lose and gain addresses during a program's connection. The connection must continue,
//! and the program must see no error.

use crate::keys::{KEY, give_key};
use crate::world::{BULK, LIMIT, PORT, UNENCRYPTED, World};
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Host, Offloads, Process};

/// Time within which a host announces a change of its addresses, and the peer confirms it.
const PAUSE: Duration = Duration::from_secs(2);

/// Running transfer of 8 s, during which addresses may change.
pub(crate) struct Transfer {
    receiver: Process,
    sender: Process,
}

impl Transfer {
    pub(crate) fn begin(world: &World) -> Transfer {
        let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
        let send = world.client(BULK, &["send", &world.target(), "8", "65536"]);
        let sender = world.alpha.spawn("sender", send).unwrap();
        std::thread::sleep(PAUSE);
        Transfer { receiver, sender }
    }

    /// Waits for the end of both programs. Asserts that both succeeded, that SCTP carried the connection, and
    /// that data arrived until the end of the transfer.
    pub(crate) fn end(self, world: &World) {
        self.sender.finish(LIMIT).unwrap().good().unwrap();
        let output = self.receiver.finish(LIMIT).unwrap().good().unwrap().stdout;
        assert_eq!(world.connects_sctp(), 1, "the connection is not carried over SCTP");
        let micros: u64 = output.split_whitespace().next_back().unwrap().parse().unwrap();
        assert!(micros > 7_500_000, "nothing arrived after {micros} microseconds: {output}");
    }
}

/// Gives both hosts a shared key. With the key, each host accepts that the other host replaces its only
/// address.
pub(crate) fn share_key(world: &World) {
    give_key(&world.alpha, &world.alphas, Some(KEY));
    give_key(&world.beta, world.betas.as_ref().unwrap(), Some(KEY));
}

fn addresses(host: &Host) -> String {
    host.ip(&["-brief", "address"]).unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_second_link_that_comes_later_carries_the_connection_when_the_first_goes() {
    let world = World::new();
    let transfer = Transfer::begin(&world);
    let second = world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
    std::thread::sleep(PAUSE);
    world.alpha.ip(&["route", "add", "default", "via", &second.right_v4().to_string()]).unwrap();
    world.alpha.ip(&["link", "del", &world.link.name()]).unwrap();
    transfer.end(&world);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_that_shares_a_key_and_loses_its_only_address_goes_on_from_the_next_one() {
    let world = World::with(UNENCRYPTED, true);
    share_key(&world);
    goes_on_from_the_next_address(&world);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_that_encrypts_and_loses_its_only_address_goes_on_from_the_next_one() {
    goes_on_from_the_next_address(&World::new());
}

fn goes_on_from_the_next_address(world: &World) {
    let transfer = Transfer::begin(world);
    let name = world.link.name();
    world.alpha.ip(&["addr", "flush", "dev", &name, "scope", "global"]).unwrap();
    std::thread::sleep(PAUSE / 2);
    world.alpha.ip(&["addr", "add", "10.77.1.99/24", "dev", &name]).unwrap();
    transfer.end(world);
}

/// Without a key, any observer of the handshake could claim that a host has a new address, so the peer does
/// not believe the claim. When the host has its old address again, the connection continues, as a TCP
/// connection would.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn without_a_key_a_new_address_is_rejected_and_data_resumes_at_the_old_address() {
    let world = World::with(UNENCRYPTED, true);
    let transfer = Transfer::begin(&world);
    let (name, old) = (world.link.name(), world.link.left_v4().to_string());
    let betas = world.betas.as_ref().unwrap();
    let paths = || betas.sctpify(&["paths"]).unwrap().good().unwrap().stdout;
    assert!(paths().contains(&old), "{}", paths());
    world.alpha.ip(&["addr", "flush", "dev", &name, "scope", "global"]).unwrap();
    std::thread::sleep(PAUSE / 2);
    world.alpha.ip(&["addr", "add", "10.77.1.99/24", "dev", &name]).unwrap();
    std::thread::sleep(PAUSE);
    assert!(!paths().contains("10.77.1.99"), "{}", paths());
    world.alpha.ip(&["addr", "add", &format!("{old}/24"), "dev", &name]).unwrap();
    transfer.end(&world);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_lost_server_address_is_kept_until_its_connections_end() {
    let world = World::new();
    world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
    let transfer = Transfer::begin(&world);
    let lost = world.link.right_v4().to_string();
    world.beta.ip(&["addr", "del", &format!("{lost}/24"), "dev", &world.link.name()]).unwrap();
    assert!(wait_for(PAUSE, || addresses(&world.beta).contains(&lost)), "{}", addresses(&world.beta));
    transfer.end(&world);
    world.wait_quiet();
    assert!(!addresses(&world.beta).contains(&lost), "{}", addresses(&world.beta));
}
