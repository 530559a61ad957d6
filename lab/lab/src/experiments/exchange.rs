//! The short exchange that several experiments measure.
//!
//! The client connects, and sends 8 bytes. The server answers with 100 bytes, and closes the connection.

use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use std::time::Duration;
use testbed::pair::Tools;
use testbed::{Pair, Process};

/// Length of the server's answer, in bytes.
pub(super) const ANSWER: &str = "100";
/// Limit on the duration of an exchange.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// Starts a server for exchanges on beta. The server listens when the function returns.
///
/// # Errors
/// Fails if the server does not start.
pub(super) fn serve(pair: &Pair, port: u16, tools: &Tools) -> Result<Process> {
    pair.serve(&tools.bulk, &["give", &port.to_string()])
}

/// Runs one exchange, and returns its duration from connect() to the end of the connection.
///
/// # Errors
/// Fails if the exchange fails, or if it takes longer than [`LIMIT`].
pub(super) fn once(pair: &Pair, to: Ipv4Addr, port: u16, tools: &Tools) -> Result<Duration> {
    let mut command = pair.alpha.command(&tools.bulk);
    command.args(["fetch", &format!("{to}:{port}"), "1", ANSWER, "1"]);
    let output = pair.alpha.run("fetch", command, LIMIT)?.good()?.stdout;
    let micros = output.split_whitespace().nth(1).context("the client reported no time")?;
    Ok(Duration::from_micros(micros.parse()?))
}
