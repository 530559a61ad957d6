//! Connections to one host share an association: its streams carry them, and each of them is as exact as alone.

use crate::world::{LIMIT, World, status};
use testbed::files::{make_random, sha256};
use testbed::process::wait_for;
use testbed::programs::{Nginx, curl};

const PARALLEL: usize = 100;

/// Makes a first connection with this command, and waits for the association that later ones share.
fn warm_up(world: &World, command: std::process::Command) {
    world.alpha.run("first", command, LIMIT).unwrap().good().unwrap();
    let is_there = || {
        let up = |daemon| status(daemon)["counters"]["trunks"].as_u64() == Some(1);
        up(&world.alphas) && world.betas.as_ref().is_none_or(up)
    };
    assert!(wait_for(LIMIT, is_there), "no association to share: {}", status(&world.alphas));
}

fn shared(world: &World) -> u64 {
    status(&world.alphas)["counters"]["connects_shared"].as_u64().unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_hundred_parallel_curls_share_one_association_and_arrive_whole() {
    let world = World::new();
    let nginx = Nginx::start(&world.beta).unwrap();
    let file = nginx.root().join("file");
    make_random(&file, 1 << 20).unwrap();
    let url = format!("http://{}/file", world.link.right_v4());
    warm_up(&world, curl(&world.alpha, &url, None));
    let copies = world.lab.dir().join("copies");
    std::fs::create_dir(&copies).unwrap();
    let into = copies.join("#1").display().to_string();
    let (all, url) = (PARALLEL.to_string(), format!("{url}?[1-{PARALLEL}]"));
    let parallel = ["--parallel", "--parallel-immediate", "--parallel-max", &all];
    let args = [&["--silent", "--show-error", "--fail", "--output", &into, &url], &parallel[..]].concat();
    world.alpha.run("curl", world.client("curl", &args), LIMIT).unwrap().good().unwrap();
    let hash = sha256(&file).unwrap();
    for n in 1..=PARALLEL {
        assert_eq!(sha256(&copies.join(n.to_string())).unwrap(), hash, "copy {n}");
    }
    assert_eq!(world.connects_sctp(), 1 + PARALLEL as u64, "rode SCTP; others: {}", world.fallbacks());
    assert_eq!(shared(&world), PARALLEL as u64, "shared one: {}", status(&world.alphas)["counters"]);
    assert_eq!(status(&world.alphas)["counters"]["trunks"], 1);
    world.wait_quiet();
}
