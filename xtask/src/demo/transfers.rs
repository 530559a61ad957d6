//! Steps 1 to 4: unmodified programs transfer bytes over SCTP.

use super::row::Row;
use super::world::{FILE_BYTES, World};
use anyhow::{Result, ensure};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};
use testbed::files::{Growth, make_random, sha256};
use testbed::process::wait_for;
use testbed::programs::{curl, roundtrip};
use testbed::{Finished, Seen};

/// Bytes that each roundtrip client sends and gets back.
const ROUNDTRIP_BYTES: u64 = 16 << 20;
/// Bytes that scp transfers while path 1 dies. The number is so large that scp is still running when path 1 dies.
pub(super) const SILENT_BYTES: u64 = 128 << 20;
/// Limit on scp's time before the death of path 1, and separately on its time afterwards.
const SILENT_LIMIT: Duration = Duration::from_secs(30);
/// Minimum number of bytes that have arrived when path 1 dies.
const SILENT_AFTER_BYTES: u64 = 8 << 20;

/// Runs step 1.
pub(crate) fn curl_from_nginx(world: &mut World) -> Result<Vec<Row>> {
    let copy = world.alpha.dir()?.join("by-curl");
    let mut rows = Vec::new();
    for (program, to) in [("curl, nginx", world.beta_v4()), ("curl, nginx, IPv6", world.beta_v6())] {
        let url = format!("http://{}/file", bracketed(to));
        let (finished, seen) =
            world.observe("curl", |world| world.run("curl", curl(&world.alpha, &url, Some(&copy))))?;
        let mut row = Row::new("1", program);
        row.measured(FILE_BYTES, finished.elapsed);
        row.require(world.is_whole(&copy)?, || "the file differs".into());
        row.require_sctp(&seen);
        let client = client_address(world, to);
        row.require(world.nginx.access_log().contains(&client), || {
            format!("nginx did not see the client {client}")
        });
        row.print();
        rows.push(row);
    }
    Ok(rows)
}

/// Runs step 2.
pub(crate) fn ssh_and_scp(world: &mut World) -> Result<Vec<Row>> {
    Ok(vec![ssh_command(world)?, scp(world, "scp to beta", true)?, scp(world, "scp from beta", false)?])
}

/// Runs a command over ssh, and checks the client's address. `SSH_CONNECTION` shows the address that the server's getpeername() returned.
/// The server's log shows the address that an administrator would see.
fn ssh_command(world: &mut World) -> Result<Row> {
    let to = world.beta_v4();
    let (finished, seen) = world
        .observe("ssh", |world| world.run("ssh", world.sshd.ssh(&world.alpha, to, "echo $SSH_CONNECTION")))?;
    let mut row = Row::new("2", "ssh command");
    row.measured(finished.stdout.len() as u64, finished.elapsed);
    row.require_sctp(&seen);
    let client = client_address(world, to);
    let peer = finished.stdout.trim();
    row.require(peer.starts_with(&format!("{client} ")), || format!("getpeername on beta returned {peer}"));
    let accepted = format!("Accepted publickey for root from {client} ");
    row.require(world.sshd.log().contains(&accepted), || format!("sshd did not log the client {client}"));
    row.note(format!("getpeername and sshd's log on beta: {peer}"));
    row.print();
    Ok(row)
}

fn scp(world: &mut World, program: &str, is_upload: bool) -> Result<Row> {
    let copy = world.lab_file("by-scp");
    let (finished, seen) = world.observe("scp", |world| {
        let (from, to) = (&world.alpha, world.beta_v4());
        let command = match is_upload {
            true => world.sshd.scp_to(from, &world.file, to, &copy),
            false => world.sshd.scp_from(from, to, &world.file, &copy),
        };
        world.run("scp", command)
    })?;
    let mut row = Row::new("2", program);
    row.measured(FILE_BYTES, finished.elapsed);
    row.require(world.is_whole(&copy)?, || "the file differs".into());
    row.require_sctp(&seen);
    row.print();
    std::fs::remove_file(&copy)?;
    Ok(row)
}

/// Runs step 3.
pub(crate) fn go_and_python(world: &mut World) -> Result<Vec<Row>> {
    let to = world.roundtrip_address();
    let go = world.observe("go", |world| {
        world.run("go", world.roundtrip.go_client(&world.alpha, to, ROUNDTRIP_BYTES))
    })?;
    let go = roundtrip_row("static Go, client and server", &go);
    let python = world.observe("python", |world| {
        world.run("python", roundtrip::python_client(&world.alpha, to, ROUNDTRIP_BYTES))
    })?;
    Ok(vec![go, roundtrip_row("Python asyncio", &python)])
}

fn roundtrip_row(program: &str, (finished, seen): &(Finished, Seen)) -> Row {
    let mut row = Row::new("3", program);
    row.measured(2 * ROUNDTRIP_BYTES, finished.elapsed);
    row.require_sctp(seen);
    row.require(roundtrip::saw_the_client(finished), || {
        format!("the server saw another address: {}", finished.stdout.trim())
    });
    row.print();
    row
}

/// Runs step 4.
pub(crate) fn silent_path(world: &mut World) -> Result<Vec<Row>> {
    let (source, copy) = (world.lab_file("long"), world.lab_file("long-by-scp"));
    make_random(&source, SILENT_BYTES)?;
    let hash = sha256(&source)?;
    let observed = world.observe("silent", |world| scp_over_dying_path(world, &source, &copy));
    world.path1.restore()?;
    let (Dying { finished, silence, arrived, .. }, seen) = observed?;
    let mut row = Row::new("4", "scp, path 1 silent");
    row.measured(SILENT_BYTES, finished.elapsed);
    row.require(sha256(&copy)? == hash, || "the file differs".into());
    row.require_sctp(&seen);
    row.require(arrived < SILENT_BYTES, || "scp had ended before path 1 died: nothing was shown".into());
    let by_path2 = seen.sctp_bytes_by_interface.get(&world.path2_name()).copied().unwrap_or_default();
    row.require(by_path2 >= SILENT_BYTES - arrived || seen.missed > 0, || {
        format!("only {by_path2} bytes went over path 2")
    });
    row.note(format!(
        "path 1 died after {} MiB; longest silence at the receiver {} ms",
        arrived >> 20,
        silence.as_millis()
    ));
    row.print();
    Ok(vec![row])
}

/// Result of an scp during which path 1 died.
pub(super) struct Dying {
    finished: Finished,
    /// Longest time without a new byte in the receiver's file.
    pub(super) silence: Duration,
    /// Time of the death of path 1.
    pub(super) died: SystemTime,
    /// Number of bytes that had arrived when path 1 died.
    arrived: u64,
}

/// Runs scp, and silences path 1 once [`SILENT_AFTER_BYTES`] have arrived.
#[allow(clippy::disallowed_methods, reason = "captures have the real time")]
pub(super) fn scp_over_dying_path(world: &World, source: &Path, copy: &Path) -> Result<Dying> {
    let growth = Growth::watch(copy);
    let command = world.sshd.scp_to(&world.alpha, source, world.beta_v4(), copy);
    let scp = world.alpha.spawn("scp-silent", command)?;
    let length = || std::fs::metadata(copy).map_or(0, |meta| meta.len());
    let has_begun = wait_for(SILENT_LIMIT, || length() >= SILENT_AFTER_BYTES);
    world.path1.silence()?;
    let (died, arrived) = (SystemTime::now(), length());
    ensure!(has_begun, "scp moved only {arrived} bytes: {}", scp.stderr());
    let finished = scp.finish(SILENT_LIMIT)?.good()?;
    Ok(Dying { finished, silence: growth.longest_silence(), died, arrived })
}

/// Returns the address of alpha that a server at `to` must see.
fn client_address(world: &World, to: IpAddr) -> String {
    if to.is_ipv4() { world.path1.left_v4().to_string() } else { world.path1.left_v6().to_string() }
}

/// Formats an address for a URL. An IPv6 address gets brackets.
pub(crate) fn bracketed(address: IpAddr) -> String {
    if address.is_ipv6() { format!("[{address}]") } else { address.to_string() }
}
