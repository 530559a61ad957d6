//! Tests of rules that the configuration file declares (`[[rule]]`).

use std::fs;

use crate::world::{BULK, LIMIT, World};

const PORT: &str = "7001";
const AT_ALPHA: &str = "[[rule]]\nports = 7001\nto = \"any\"\nname = \"declared\"\n";
const AT_BETA: &str = "[[rule]]\nports = \"7001\"\nat = \"any\"\n";

/// Makes one connection to the port of the declared rules. Reports whether it used SCTP.
fn connects_over_sctp(world: &World) -> bool {
    let before = world.connects_sctp();
    let server = world.serve(BULK, &["accept", PORT]);
    let target = format!("{}:{PORT}", world.link.right_v4());
    let connect = world.client(BULK, &["connect", &target, "1"]);
    world.alpha.run("connect", connect, LIMIT).unwrap().good().unwrap();
    drop(server);
    world.connects_sctp() > before
}

/// Returns the output of `sctpify rule` with these words, on alpha.
fn rule(world: &World, words: &[&str]) -> String {
    let words = [&["rule"], words].concat();
    world.alphas.sctpify(&words).unwrap().good().unwrap().stdout
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn declared_rules_carry_connections_and_change_only_with_their_file() {
    let world = World::of_each(AT_ALPHA, Some(AT_BETA));
    assert!(connects_over_sctp(&world));
    let list = rule(&world, &["list"]);
    let first = list.lines().find(|line| line.starts_with("remote")).unwrap();
    assert!(
        first.contains("enable, declared") && first.contains(PORT) && first.contains("declared"),
        "{list}"
    );
    let refused = world.alphas.sctpify(&["rule", "delete", "remote-enable", "1"]).unwrap();
    assert!(refused.stderr.contains("the configuration file declares this rule"), "{refused:?}");
    let saved = rule(&world, &["save"]);
    assert!(saved.contains("7000") && !saved.contains(PORT), "{saved}");
    rule(&world, &["flush"]);
    let list = rule(&world, &["list"]);
    assert!(list.contains(PORT) && !list.contains("7000"), "{list}");
    assert!(connects_over_sctp(&world));

    let state = world.alpha.dir().unwrap().join("sctpifyd");
    let rules = fs::read_to_string(state.join("rules")).unwrap();
    assert!(!rules.contains(PORT), "the file of the other rules has none of these: {rules}");
    fs::write(state.join("sctpify.toml"), "[[rule]]\nports = 7001\n").unwrap();
    let faulty = world.alphas.sctpify(&["reload"]).unwrap();
    assert!(faulty.stderr.contains("line 2: a rule needs `to`"), "{faulty:?}");
    assert!(connects_over_sctp(&world), "a faulty file changes nothing");
    fs::write(state.join("sctpify.toml"), "").unwrap();
    world.alphas.sctpify(&["reload"]).unwrap().good().unwrap();
    assert!(!connects_over_sctp(&world));
}
