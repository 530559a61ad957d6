//! `sctpify ping`: sends INITs to a peer repeatedly on each link of this host, and shows round-trip times and losses.

use std::io;
use std::time::Duration;

use control::{PingReport, Request, Response, write_response};

use crate::doctor::{Target, udp_port};
use crate::live::{Rhythm, redraw};
use crate::probe::Links;
use crate::session::{Session, unexpected};
use crate::{CliError, show};

/// Limit on the wait for each answer. A shorter interval between rounds shortens the wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tests the links repeatedly, until a signal arrives, `q` is pressed or the requested number of rounds is reached. Fails if no INIT was
/// answered.
pub(crate) fn run(session: Session<'_>, host: &str, rhythm: Rhythm) -> Result<(), CliError> {
    let target = Target::parse(host)?;
    let own = match session.ask(&Request::Doctor { peer: Some(target.peer) })? {
        Response::Doctor(report) => report.addresses,
        other => return Err(unexpected(&other)),
    };
    if own.is_empty() {
        return Err(CliError::Failed(format!("this host has no route to {}", target.peer)));
    }
    let udp_port = udp_port(session);
    let mut links = Links::open(&own, target.peer, udp_port);
    let mut is_first = true;
    let patience = rhythm.pause().min(PATIENCE);
    let is_json = session.json;
    let was_on_screen = redraw(rhythm, !is_json, || {
        links.round(target.sctp_port(), patience);
        if std::mem::take(&mut is_first) {
            links.add_offered();
        }
        if is_json {
            write_response(&mut io::stdout().lock(), &Response::Ping(PingReport { links: links.tests() }))?;
            return Ok(Vec::new());
        }
        Ok(show::link_tests(&links.tests()))
    })?;
    if was_on_screen {
        show::link_tests(&links.tests()).iter().for_each(|line| println!("{line}"));
    }
    if links.tests().iter().all(|test| test.answered == 0) {
        return Err(CliError::Failed(format!("nothing answers at {}, UDP port {udp_port}", target.peer)));
    }
    Ok(())
}
