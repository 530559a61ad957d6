//! Tests of many connections, concurrent and in sequence. All must succeed, and must leave nothing open.

use crate::world::{BULK, LIMIT, PORT, World};
use testbed::files::{make_random, sha256};
use testbed::programs::{Nginx, curl};

const PARALLEL: usize = 200;
const SEQUENTIAL: u64 = 2_000;

#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_hundred_parallel_curls_each_on_an_association_of_its_own_all_arrive_whole() {
    fetch_in_parallel(&World::with("streams = \"own\"\n", true));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_hundred_parallel_curls_on_a_shared_association_all_arrive_whole() {
    fetch_in_parallel(&World::new());
}

/// Fetches two hundred copies of a file at once, and checks that nothing is left open.
fn fetch_in_parallel(world: &World) {
    let nginx = Nginx::start(&world.beta).unwrap();
    let file = nginx.root().join("file");
    make_random(&file, 1 << 20).unwrap();
    let url = format!("http://{}/file", world.link.right_v4());
    let before = world.descriptors_after(curl(&world.alpha, &url, None));
    let copies = world.lab.dir().join("copies");
    std::fs::create_dir(&copies).unwrap();
    let url = format!("{url}?[1-{PARALLEL}]");
    let into = copies.join("#1").display().to_string();
    let all = PARALLEL.to_string();
    let parallel = ["--parallel", "--parallel-immediate", "--parallel-max", &all];
    let args = [&["--silent", "--show-error", "--fail", "--output", &into, &url], &parallel[..]].concat();
    world.alpha.run("curl", world.client("curl", &args), LIMIT).unwrap().good().unwrap();
    let hash = sha256(&file).unwrap();
    for n in 1..=PARALLEL {
        assert_eq!(sha256(&copies.join(n.to_string())).unwrap(), hash, "copy {n}");
    }
    assert_eq!(world.connects_sctp(), 1 + PARALLEL as u64, "over SCTP; others: {}", world.fallbacks());
    world.wait_quiet();
    world.wait_descriptors(before);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_thousand_connects_one_after_the_other_all_succeed_and_leave_nothing_open() {
    let world = World::new();
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    let before = world.descriptors_after(world.client(BULK, &["connect", &world.target(), "1"]));
    let connect = world.client(BULK, &["connect", &world.target(), &SEQUENTIAL.to_string()]);
    let output = world.alpha.run("connect", connect, LIMIT).unwrap().good().unwrap();
    assert_eq!(output.stdout.lines().count() as u64, SEQUENTIAL);
    assert_eq!(
        world.connects_sctp(),
        1 + SEQUENTIAL,
        "over SCTP: {}",
        world.alphas.sctpify(&["status"]).unwrap().stdout
    );
    world.wait_quiet();
    world.wait_descriptors(before);
}
