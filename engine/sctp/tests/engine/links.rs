//! Tests of the links of addresses. Failover prefers a path that shares no link with the failed path. In some tests, the driver sets the
//! link of each address. In the other tests, one end has only one address.

use std::time::Duration;

use base::Carrier;
use sctp::{AddressUse, EndpointConfig, PathReason, Preference};
use sim::{Change, Conversation, HostId, LinkConfig, LinkId, Loss, World};

use crate::failover::{config, cut, forget_silence, speak, stream, stream_of, switches};
use crate::support::{Two, seconds};
use crate::uses::{ip, reasons};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Addresses of the host with two links, by link.
const NEAR: [[&str; 2]; 2] = [["10.0.1.1", "fd00:1::1"], ["10.0.2.1", "fd00:2::1"]];
/// Addresses of the other host.
const FAR: [&str; 2] = ["10.1.0.1", "fd01::1"];

/// Creates a host with an address of each family on each of two links, and a host with one address of each family that both links reach.
/// The host with two links sends the INIT if `has_links` is set. Otherwise the other host sends the INIT. Paths over IPv6 are faster.
fn dual_stack(has_links: bool) -> Two {
    let mut world = World::new(3);
    let endpoint = EndpointConfig { association: config(), ..EndpointConfig::default() };
    let near = world.add_host(&NEAR.concat(), endpoint.clone());
    let far = world.add_host(&FAR, endpoint);
    let mut links: Vec<LinkId> = Vec::new();
    for of_link in NEAR {
        let link = world.add_link(LinkConfig { delay: MS(10), ..LinkConfig::default() });
        of_link.iter().zip(FAR).for_each(|(one, other)| world.join(link, one, other));
        links.push(link);
    }
    let (a, b) = if has_links { (near, far) } else { (far, near) };
    let mut t = Two { world, a, b, links };
    t.world.host_mut(b).app.template.keeps = false;
    t.world.connect(a, b, Carrier::Ip, config(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(3));
    t
}

/// Sets the link of each address at the host with two links, and announces it to the peer.
fn number_links(t: &mut Two, near: HostId) {
    for (link, addresses) in (1..).zip(NEAR) {
        for address in addresses {
            let (now, id) = (t.world.now(), t.id(near));
            let usage = AddressUse { link, ..AddressUse::default() };
            let endpoint = &mut t.world.host_mut(near).endpoint;
            endpoint.set_local_uses(now, id, &[(ip(address), usage)]).unwrap();
            endpoint.tell_local_use(now, id, ip(address)).unwrap();
        }
    }
    t.world.run_for(seconds(1));
}

/// Returns the index of the link on which `a` sends new data.
fn link_in_use(t: &Two) -> usize {
    let info = t.info(t.a);
    let route = info.paths.iter().find(|path| path.in_use).expect("a path in use").route;
    let ends = [route.local.to_string(), route.remote.to_string()];
    NEAR.iter()
        .position(|of_link| of_link.iter().any(|own| ends.contains(&(*own).to_owned())))
        .expect("a link")
}

#[test]
fn from_a_dead_link_data_goes_to_the_other_one_at_once_whatever_the_family() {
    for has_links in [true, false] {
        let mut t = dual_stack(has_links);
        let near = if has_links { t.a } else { t.b };
        number_links(&mut t, near);
        for address in [0, 1] {
            let from = link_in_use(&t);
            speak(&mut t, 20);
            let before = reasons(&t, t.a).len();
            cut(&mut t, from, true);
            forget_silence(&mut t);
            speak(&mut t, 30);
            assert_eq!(link_in_use(&t), 1 - from, "{has_links}, {address}");
            assert_eq!(reasons(&t, t.a)[before..], [PathReason::Silence], "{has_links}, {address}");
            assert!(t.talk(t.b).longest_silence < MS(400), "{has_links}: {:?}", t.talk(t.b).longest_silence);
            let now = t.world.now();
            t.world.at(now, Change::CutBoth(t.links[from], false));
            speak(&mut t, 100);
        }
    }
}

/// Creates a host with two links and one address on each, and a host with one address. `a` is the host with two links if `has_links` is
/// set.
fn one_address(seed: u64, has_links: bool) -> Two {
    let mut t = crate::uses::hosts(seed, &["10.1.0.1"], &config());
    if !has_links {
        (t.a, t.b) = (t.b, t.a);
        t.world.host_mut(t.b).app.template.keeps = false;
    }
    t.world.checks = false;
    for link in t.links.clone() {
        let config = &mut t.world.link_mut(link).config;
        *config = LinkConfig { rate: 100_000_000, queue_packets: 1000, ..config.clone() };
    }
    t.world.connect(t.a, t.b, Carrier::Ip, config(), Conversation::default());
    t.run_to_established();
    t.world.run_for(seconds(3));
    t
}

fn lose(t: &mut Two, link: usize, loss: f64) {
    let link = t.links[link];
    t.world.link_mut(link).config.loss = Loss::Uniform(loss);
}

#[test]
fn a_lossy_link_is_left_once_if_either_host_has_one_address() {
    for (seed, has_links) in (1..=20).flat_map(|seed| [(seed, true), (seed, false)]) {
        let mut t = one_address(seed, has_links);
        stream(&mut t, seconds(1));
        forget_silence(&mut t);
        let lossy = link_in_use(&t);
        lose(&mut t, lossy, 0.3);
        stream(&mut t, seconds(2));
        assert_eq!((link_in_use(&t), switches(&t)), (1 - lossy, 1), "seed {seed}, {has_links}");
        assert!(t.talk(t.b).longest_silence < MS(200), "seed {seed}: {:?}", t.talk(t.b).longest_silence);
    }
}

#[test]
fn losses_at_a_single_address_host_keep_no_data_on_a_backup_and_cause_few_switches() {
    for (seed, is_backup) in (1..=3).flat_map(|seed| [(seed, true), (seed, false)]) {
        let mut t = one_address(seed, true);
        if is_backup {
            let usage = AddressUse { preference: Preference::Backup, ..AddressUse::default() };
            let (now, id) = (t.world.now(), t.id(t.a));
            t.world.host_mut(t.a).endpoint.set_local_uses(now, id, &[(ip(NEAR[1][0]), usage)]).unwrap();
        }
        for link in [0, 1] {
            lose(&mut t, link, 0.1);
        }
        stream_of(&mut t, 1200, MS(3), seconds(200));
        let told = reasons(&t, t.a);
        let fled = told.iter().filter(|reason| matches!(reason, PathReason::Loss { .. })).count();
        // Sometimes a timeout of RFC 9260 also moves data. Then the path must work for a while before data returns.
        assert!(fled <= 1, "seed {seed}, {is_backup}: {told:?} in 200 s");
        let sent = t.info(t.a).paths.iter().map(|path| path.bytes_sent).collect::<Vec<_>>();
        assert!(sent[0] > sent[1], "seed {seed}, {is_backup}: {sent:?} bytes, {told:?}");
    }
}
