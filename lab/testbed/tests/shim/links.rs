//! Policies of links: `[[link]]`, and the links of each peer in reports.

use serde_json::Value;
use testbed::process::wait_for;
use testbed::{Daemon, Link, Offloads, Process};

use crate::world::{BULK, LIMIT, PORT, World, status};

/// Two hosts on two links, and a transfer from alpha to beta.
struct Story {
    world: World,
    second: Link,
    _programs: [Process; 2],
}

impl Story {
    /// The transfer begins once alpha's policies are set. `%1` and `%2` in them stand for the links.
    fn begin(policies: &str) -> Story {
        let world = World::new();
        let second = world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
        let story = |world: World, second: Link| {
            let receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
            let send = world.client(BULK, &["send-paced", &world.target(), "200", "1000", "20000"]);
            let sender = world.alpha.spawn("sender", send).unwrap();
            Story { world, second, _programs: [receiver, sender] }
        };
        set(&world.alphas, policies, &world.link, &second);
        story(world, second)
    }

    /// Waits until both hosts send their data by this link, of two that are known.
    fn await_data_by(&self, link: &Link) {
        let betas = self.world.betas.as_ref().unwrap();
        let name = link.name();
        for daemon in [&self.world.alphas, betas] {
            assert!(
                wait_for(LIMIT, || {
                    let links = links(daemon);
                    links.len() >= 2 && used(&links) == [name.as_str()]
                }),
                "{name}: {:?}",
                links(daemon)
            );
        }
    }
}

/// Sets the policies of a daemon's links.
fn set(daemon: &Daemon, policies: &str, first: &Link, second: &Link) {
    let policies = policies.replace("%1", &first.name()).replace("%2", &second.name());
    daemon.sctpify(&["set", &format!("link={policies}")]).unwrap().good().unwrap();
}

/// The IPv4 links of a daemon's report, as JSON objects.
fn links(daemon: &Daemon) -> Vec<Value> {
    status(daemon)["links"].as_array().unwrap().clone()
}

/// The names of the links by which data goes.
fn used(links: &[Value]) -> Vec<&str> {
    let in_use = links.iter().filter(|link| link["in_use"] == true);
    in_use.map(|link| link["interface"].as_str().unwrap()).collect()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_backup_carries_data_of_both_hosts_only_while_the_other_link_is_cut() {
    let story = Story::begin("%1 name=lte use=backup; %2 name=fibre");
    let (first, second) = (&story.world.link, &story.second);
    story.await_data_by(second);
    let alphas = &story.world.alphas;
    let backup = links(alphas).into_iter().find(|link| link["interface"] == first.name().as_str()).unwrap();
    assert_eq!((&backup["name"], &backup["use"]), (&"lte".into(), &"backup".into()), "{backup}");
    let betas = story.world.betas.as_ref().unwrap();
    let is_told = || {
        let first = |link: &&Value| link["interface"] == first.name().as_str();
        links(betas).iter().find(first).is_some_and(|link| link["use"] == "backup")
    };
    assert!(wait_for(LIMIT, is_told), "{:?}", links(betas));
    second.silence().unwrap();
    story.await_data_by(first);
    second.restore().unwrap();
    story.await_data_by(second);
    let shown = alphas.sctpify(&["status"]).unwrap().good().unwrap().stdout;
    assert!(shown.contains(&format!("{} (fibre)", second.name())), "{shown}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn another_policy_moves_a_live_connection_and_never_takes_the_link_away() {
    let story = Story::begin("");
    let (first, second) = (&story.world.link, &story.second);
    story.await_data_by(first);
    set(&story.world.alphas, "%2 use=primary", first, second);
    story.await_data_by(second);
    set(&story.world.alphas, "%2 use=never", first, second);
    let alphas = &story.world.alphas;
    let own = second.left_v4().to_string();
    let paths = || alphas.sctpify(&["paths"]).unwrap().good().unwrap().stdout;
    assert!(wait_for(LIMIT, || !paths().contains(&own)), "{}", paths());
    assert!(wait_for(LIMIT, || used(&links(alphas)) == [first.name().as_str()]), "{:?}", links(alphas));
    set(alphas, "", first, second);
    assert!(wait_for(LIMIT, || paths().contains(&own)), "{}", paths());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn policies_are_tables_of_the_file_and_a_faulty_one_is_refused_with_its_line() {
    let world = World::with("[[link]]\nmatch = \"no-such*\"\nname = \"lte\"\nuse = \"backup\"\n", false);
    let shown = world.alphas.sctpify(&["get", "link"]).unwrap().good().unwrap().stdout;
    assert_eq!(shown.trim(), "no-such* name=lte use=backup");
    let refused = world.alphas.sctpify(&["set", "link=eth0 use=spare"]).unwrap();
    assert!(refused.good().is_err());
}
