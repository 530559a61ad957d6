//! Step 5: connections that stay TCP or are refused, and the reasons that `sctpify explain` shows.

use super::row::Row;
use super::world::{CLOSED_PORT, FILE_BYTES, LIMIT, World};
use anyhow::{Context, Result};
use testbed::Daemon;
use testbed::programs::curl;

/// Python program that connects once. It prints "connected" or the name of the error.
const CONNECT_ONCE: &str = "
import errno, socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
    print('connected')
except OSError as error:
    print(errno.errorcode.get(error.errno, error))
";

/// Runs step 5.
pub(crate) fn all(world: &mut World) -> Result<Vec<Row>> {
    let mut rows = vec![refused(world, "closed port, both daemons")?];
    if let Some(daemon) = world.betas.take() {
        daemon.stop();
    }
    rows.push(without_peer_daemon(world)?);
    rows.push(refused(world, "closed port, no daemon at beta")?);
    world.betas =
        Some(Daemon::restart(&world.beta, &world.programs).context("sctpifyd does not start again on beta")?);
    rows.push(disabled_by_rule(world)?);
    Ok(rows)
}

fn refused(world: &mut World, program: &str) -> Result<Row> {
    let to = world.beta_v4();
    let mut command = world.alpha.command("python3");
    command.args(["-c", CONNECT_ONCE, &to.to_string(), &CLOSED_PORT.to_string()]);
    let finished = world.alpha.run("connect", command, LIMIT)?.good()?;
    let mut row = Row::new("5", program);
    row.measured(0, finished.elapsed);
    let said = finished.stdout.trim();
    row.require(said == "ECONNREFUSED", || format!("connect() returned {said} instead of ECONNREFUSED"));
    row.note(format!("connect() to port {CLOSED_PORT}: {said}"));
    row.print();
    Ok(row)
}

fn without_peer_daemon(world: &mut World) -> Result<Row> {
    let mut row = curl_by_tcp(world, "curl, no daemon at beta")?;
    let target = format!("{}:80", world.beta_v4());
    let outcome = explain_json(world, &target)?["past"][0]["outcome"].as_str().map(str::to_owned);
    row.require(outcome.as_deref() == Some("tcp"), || format!("explain reports no fallback: {outcome:?}"));
    explain(world, &target, &mut row)?;
    row.print();
    Ok(row)
}

fn disabled_by_rule(world: &mut World) -> Result<Row> {
    let to = world.beta_v4().to_string();
    let rule = ["-c", "remote", "-p", "disable", "-d", &to, "-P", "80"];
    world.alphas.sctpify(&["set", "default_remote_enable=1"])?.good()?;
    world.alphas.shimrules(&[&["-A"], &rule[..]].concat())?.good()?;
    let mut row = curl_by_tcp(world, "curl, rule disables it")?;
    let target = format!("{to}:80");
    let verdict = explain_json(world, &target)?["verdict"].as_str().map(str::to_owned);
    row.require(verdict.as_deref() == Some("tcp"), || format!("explain would have tried {verdict:?}"));
    explain(world, &target, &mut row)?;
    row.print();
    world.alphas.shimrules(&[&["-D"], &rule[..]].concat())?.good()?;
    world.alphas.sctpify(&["set", "default_remote_enable=0"])?.good()?;
    Ok(row)
}

fn curl_by_tcp(world: &mut World, program: &str) -> Result<Row> {
    let copy = world.alpha.dir()?.join("by-curl");
    let url = format!("http://{}/file", world.beta_v4());
    let (finished, seen) =
        world.observe("curl-tcp", |world| world.run("curl", curl(&world.alpha, &url, Some(&copy))))?;
    let mut row = Row::new("5", program);
    row.measured(FILE_BYTES, finished.elapsed);
    row.require(world.is_whole(&copy)?, || "the file differs".into());
    row.require_tcp(&seen);
    Ok(row)
}

fn explain_json(world: &World, target: &str) -> Result<serde_json::Value> {
    let text = world.alphas.sctpify(&["explain", target, "--json"])?.good()?.stdout;
    serde_json::from_str(&text).with_context(|| format!("sctpify explain --json printed no JSON: {text}"))
}

/// Adds the output of `sctpify explain` to the row as notes.
fn explain(world: &World, target: &str, row: &mut Row) -> Result<()> {
    let text = world.alphas.sctpify(&["explain", target])?.good()?.stdout;
    row.note(format!("alpha$ sctpify explain {target}"));
    text.lines().for_each(|line| row.note(format!("  {line}")));
    Ok(())
}
