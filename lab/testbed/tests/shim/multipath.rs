//! Test of one connection of an unmodified program over two links at once.

use crate::world::{LIMIT, World};
use std::path::Path;
use std::time::Duration;
use testbed::process::now;
use testbed::programs::ssh::Sshd;
use testbed::{Offloads, files};

/// Traffic shaping of each link. The bucket of 32 kB lets GSO trains pass. The queue has room for 50 ms of
/// data at the shaped rate.
const SHAPE: &[&str] = &["root", "tbf", "rate", "30mbit", "burst", "32kb", "limit", "190kb"];
const FILE_BYTES: u64 = 16 << 20;

/// Copies a file with scp from alpha to beta over `links` shaped links, one or two. Returns the duration of
/// the copy.
fn scp(configuration: &str, links: u8) -> Duration {
    let world = World::with(configuration, true);
    if links == 2 {
        world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
    }
    for host in [&world.alpha, &world.beta] {
        for link in 1..=links {
            let device = format!("path{link}");
            host.tool("tc", &[&["qdisc", "add", "dev", &device], SHAPE].concat()).unwrap();
        }
    }
    let betas = world.betas.as_ref().unwrap();
    for (daemon, chain) in [(&world.alphas, "remote"), (betas, "local")] {
        daemon.shimrules(&["-A", "-c", chain, "-p", "enable", "-P", "22"]).unwrap().good().unwrap();
    }
    let sshd = Sshd::start(&world.beta).unwrap();
    let file = world.lab.dir().join("file");
    let copy = world.lab.dir().join("copy");
    files::make_random(&file, FILE_BYTES).unwrap();
    let begin = now();
    let to = world.link.right_v4().into();
    world.alpha.run("scp", sshd.scp_to(&world.alpha, &file, to, &copy), LIMIT).unwrap().good().unwrap();
    let time = begin.elapsed();
    let same = |a: &Path, b: &Path| files::sha256(a).unwrap() == files::sha256(b).unwrap();
    assert!(same(&file, &copy), "the copy differs");
    assert_eq!(world.connects_sctp(), 1, "the connection is not carried over SCTP: {}", world.fallbacks());
    sshd.stop();
    time
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn scp_over_two_links_at_once_takes_less_than_two_thirds_of_the_time_over_one() {
    let one = scp("", 1);
    let off = scp("", 2);
    let both = scp("multipath = \"lowest-rtt\"\n", 2);
    eprintln!("scp of {FILE_BYTES} bytes: one link {one:?}, two links in turn {off:?}, at once {both:?}");
    assert!(both.as_secs_f64() * 1.5 < one.as_secs_f64(), "{both:?} over two links, {one:?} over one");
    assert!(off.as_secs_f64() * 1.2 > one.as_secs_f64(), "{off:?} with multipath off, {one:?} over one");
}
