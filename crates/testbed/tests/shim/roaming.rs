//! Hosts lose addresses and get others while a program's connection lives, and the program does not notice.

use crate::world::{BULK, LIMIT, PORT, World};
use std::time::Duration;
use testbed::process::wait_for;
use testbed::{Host, Offloads, Process};

/// How long a change may take to have been told to the peer and proved.
const PAUSE: Duration = Duration::from_secs(2);

/// A transfer that lasts long enough to be moved, begun and on its way.
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

    /// All that was sent has arrived, until the end.
    pub(crate) fn end(self, world: &World) {
        self.sender.finish(LIMIT).unwrap().good().unwrap();
        let told = self.receiver.finish(LIMIT).unwrap().good().unwrap().stdout;
        assert_eq!(world.connects_sctp(), 1, "the connection does not ride SCTP");
        let micros: u64 = told.split_whitespace().next_back().unwrap().parse().unwrap();
        assert!(micros > 7_500_000, "nothing arrived after {micros} microseconds: {told}");
    }
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
fn a_host_that_loses_its_only_address_goes_on_from_the_next_one() {
    let world = World::new();
    let transfer = Transfer::begin(&world);
    let name = world.link.name();
    world.alpha.ip(&["addr", "flush", "dev", &name, "scope", "global"]).unwrap();
    std::thread::sleep(PAUSE / 2);
    world.alpha.ip(&["addr", "add", "10.77.1.99/24", "dev", &name]).unwrap();
    transfer.end(&world);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_server_that_loses_an_address_keeps_it_for_its_program_and_no_longer() {
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
