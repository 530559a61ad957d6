//! `./x demo --sctp`: unmodified SCTP programs on two hosts whose kernel has no SCTP. Two Diameter nodes keep their association while a
//! path dies. A static Go program also gets SCTP sockets.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use testbed::process::{now, wait_for};
use testbed::programs::diameter::{PROGRAM, WATCHDOG, changes, is_open};
use testbed::programs::{Diameter, build_go};
use testbed::{Capture, Host, Lab, Link, Offloads, Process};

use super::row::{Row, print_table};
use crate::{Outcome, optimised};

/// Limit on each wait.
const LIMIT: Duration = Duration::from_secs(30);
const PORT: u16 = 7000;
const MESSAGES: &str = "1000";

/// Two hosts with two links.
struct World {
    alpha: Host,
    beta: Host,
    links: [Link; 2],
    bin: PathBuf,
    nodes: Diameter,
    lab: Lab,
}

/// The two running Diameter nodes, and the capture of both links.
struct Running {
    alphas: Process,
    betas: Process,
    capture: Capture,
}

impl World {
    fn new(bin: PathBuf) -> Result<World> {
        let lab = Lab::new()?;
        let (alpha, beta) = (lab.host("alpha")?, lab.host("beta")?);
        let links = [lab.join(&alpha, &beta, 1, Offloads::Off)?, lab.join(&alpha, &beta, 2, Offloads::Off)?];
        let nodes = Diameter::prepare(lab.dir())?;
        Ok(World { alpha, beta, links, bin, nodes, lab })
    }

    fn configuration(&self, own: &str, other: &str) -> Result<PathBuf> {
        let lefts = self.links.each_ref().map(Link::left_v4);
        let rights = self.links.each_ref().map(Link::right_v4);
        let (mine, theirs) = if own == "alpha" { (lefts, rights) } else { (rights, lefts) };
        self.nodes.configure(own, other, &mine, theirs[0])
    }

    /// Returns the command `sctpify run --sctp` on a host. The caller adds the program.
    fn sctp(&self, host: &Host) -> Command {
        let mut command = host.command(self.bin.join("sctpify"));
        command.args(["run", "--sctp", "--"]);
        command
    }

    /// Returns the addresses and the state of each path of alpha's association. A `*` marks the path in use.
    fn paths(&self) -> Result<Vec<String>> {
        let mut command = self.alpha.command(self.bin.join("sctpify"));
        command.args(["--json", "sctp"]);
        let text = self.alpha.run("sctp", command, LIMIT)?.good()?.stdout;
        let rows =
            text.lines().map(serde_json::from_str::<serde_json::Value>).collect::<Result<Vec<_>, _>>()?;
        let paths = rows.iter().filter_map(|row| row["paths"].as_array()).flatten();
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        Ok(paths
            .map(|path| {
                let mark = if path["in_use"] == true { "*" } else { "" };
                format!("{mark}{} > {} {}", word(&path["local"]), word(&path["remote"]), word(&path["state"]))
            })
            .collect())
    }
}

/// Runs `./x demo --sctp`.
pub(super) fn run() -> Result<Outcome> {
    if !testbed::is_root() {
        println!("demo: creating hosts requires root: run `sudo ./x demo --sctp`");
        return Ok(Outcome::Bad);
    }
    let bin = optimised::sockets()?;
    let start = now();
    println!("demo: creating hosts alpha and beta, two links, and certificates");
    let world = World::new(bin)?;
    let rows = steps(&world);
    println!("\ndemo: cleaning up");
    let left = world.lab.clear_up();
    let mut last = Row::new("", "cleaning up");
    last.require(left.is_empty(), || format!("left behind: {}", left.join("; ")));
    let mut rows = rows?;
    rows.push(last);
    print_table(&rows);
    let wrong = rows.iter().filter(|row| !row.is_right()).count();
    let (right, all) = (rows.len() - wrong, rows.len());
    println!("{right} of {all} verdicts right, in {:.0} s", start.elapsed().as_secs_f64());
    Ok(if wrong == 0 { Outcome::Good } else { Outcome::Bad })
}

fn steps(world: &World) -> Result<Vec<Row>> {
    println!("\n1. {PROGRAM} on this kernel");
    let bare = shown(without_sockets(world)?);
    println!("\n2. sctpify run --sctp -- {PROGRAM}, on both hosts");
    let (row, running) = two_nodes(world)?;
    let open = shown(row);
    println!("\n3. path 1 goes silent");
    let survived = shown(silent_path(world, running)?);
    println!("\n4. a static Go program, over the path that is left");
    let go = shown(static_program(world)?);
    Ok(vec![bare, open, survived, go])
}

fn shown(row: Row) -> Row {
    row.print();
    row
}

fn without_sockets(world: &World) -> Result<Row> {
    let mut row = Row::new("1", PROGRAM);
    if Path::new("/proc/net/sctp").exists() {
        row.note("this kernel has SCTP: the program runs without sctpify, too");
        return Ok(row);
    }
    let configuration = world.configuration("alpha", "beta")?;
    let node = world.nodes.start(&world.alpha, world.alpha.command("env"), &configuration)?;
    let output = node.finish(LIMIT)?;
    let told = format!("{}{}", output.stdout, output.stderr);
    let line = told.lines().find(|line| line.contains("Protocol not supported"));
    row.require(line.is_some(), || "it does not say that SCTP is missing".to_owned());
    row.note(line.unwrap_or_default().trim());
    Ok(row)
}

fn two_nodes(world: &World) -> Result<(Row, Running)> {
    let mut row = Row::new("2", "two Diameter nodes open");
    let names = world.links.each_ref().map(Link::name);
    let capture = Capture::start(&world.alpha, "links", &[&names[0], &names[1]])?;
    let begun = now();
    let start = |host: &Host, own: &str, other: &str| {
        world.nodes.start(host, world.sctp(host), &world.configuration(own, other)?)
    };
    let mut betas = start(&world.beta, "beta", "alpha")?;
    let mut alphas = start(&world.alpha, "alpha", "beta")?;
    for node in [&mut alphas, &mut betas] {
        node.wait_until("STATE_OPEN", LIMIT, is_open).context("the nodes do not find each other")?;
    }
    row.note(format!("both report STATE_OPEN after {:.1} s", begun.elapsed().as_secs_f64()));
    let has_second = |path: &String| path.contains(&format!("> {} active", world.links[1].right_v4()));
    let both = || world.paths().is_ok_and(|paths| paths.iter().any(has_second));
    row.require(wait_for(LIMIT, both), || "the association does not use both links".to_owned());
    world.paths()?.into_iter().for_each(|path| row.note(path));
    Ok((row, Running { alphas, betas, capture }))
}

/// Silences path 1, and waits until the association uses path 2. Then both nodes must stay open for two watchdog intervals.
fn silent_path(world: &World, running: Running) -> Result<Row> {
    let mut row = Row::new("3", "both stay open on path 2");
    let Running { alphas, betas, capture } = running;
    let before = [&alphas, &betas].map(changes);
    world.links[0].silence()?;
    let cut = now();
    let second = format!("*{} >", world.links[1].left_v4());
    let has_moved = || world.paths().is_ok_and(|paths| paths.iter().any(|path| path.starts_with(&second)));
    row.require(wait_for(LIMIT, has_moved), || "the association does not use path 2".to_owned());
    row.note(format!(
        "path 2 in use {:.1} s after the cut: it is noticed with the next message",
        cut.elapsed().as_secs_f64()
    ));
    std::thread::sleep(WATCHDOG * 2 + Duration::from_secs(2));
    row.require([&alphas, &betas].map(changes) == before, || "a node has noticed".to_owned());
    world.paths()?.into_iter().for_each(|path| row.note(path));
    let seen = capture.judge()?;
    row.require_sctp(&seen);
    alphas.stop();
    betas.stop();
    Ok(row)
}

fn static_program(world: &World) -> Result<Row> {
    let mut row = Row::new("4", "Go, static, by system calls alone");
    let binary = build_go("sctp_echo", world.lab.dir())?;
    let to = format!("{}:{PORT}", world.links[1].right_v4());
    let mut server = world.sctp(&world.beta);
    server.arg(&binary).args(["serve", &to]);
    let mut server = world.beta.spawn("echo", server)?;
    server.wait_until("listening", LIMIT, |server| server.stdout().contains("listening"))?;
    let capture = Capture::start(&world.alpha, "path2", &[&world.links[1].name()])?;
    let mut client = world.sctp(&world.alpha);
    client.arg(&binary).args(["ask", &to, MESSAGES]);
    let begun = now();
    let output = world.alpha.run("ask", client, LIMIT)?.good()?.stdout;
    row.note(format!("{} in {:.2} s", output.trim(), begun.elapsed().as_secs_f64()));
    row.require(output.contains("messages came back"), || "no echo".to_owned());
    row.require_sctp(&capture.judge()?);
    server.stop();
    Ok(row)
}
