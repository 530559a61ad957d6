//! `sctpify expose`: lets SCTP clients reach one of the caller's listeners while the command runs.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use control::{Client, Request, Response};

use crate::session::{ANSWER_TIMEOUT, Session, unexpected};
use crate::signals::stop_flag;
use crate::{CliError, show};

/// Interval at which the command checks for Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Asks the daemon to expose the listener, and keeps it exposed until a signal arrives. Fails if the daemon ends the exposure.
pub(crate) fn run(session: Session<'_>, listener: &str) -> Result<(), CliError> {
    let (address, port) = parse(listener)?;
    let stop = stop_flag()?;
    let mut client = Client::connect(session.control, ANSWER_TIMEOUT)?;
    match client.call(&Request::Expose { address, port })? {
        answer @ Response::Done(_) => session.print(&answer, show::answer)?,
        Response::Error(refusal) => return Err(CliError::Refused(refusal)),
        other => return Err(unexpected(&other)),
    }
    let cannot_wait = |e: io::Error| CliError::Failed(format!("cannot wait for the daemon: {e}"));
    let mut daemon = client.into_stream(LOOK_EVERY).map_err(cannot_wait)?;
    while !stop.load(Ordering::Relaxed) {
        match daemon.read(&mut [0; 64]) {
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Ok(_) | Err(_) => {
                let ended = format!("no program listens on {listener} any more, or the daemon has ended");
                return Err(CliError::Failed(ended));
            }
        }
    }
    Ok(())
}

/// Parses `ADDRESS:PORT`, or `PORT` alone for all addresses that the program listens on.
fn parse(listener: &str) -> Result<(Option<IpAddr>, u16), CliError> {
    let with_address = || listener.parse().map(|at: SocketAddr| (Some(at.ip()), at.port()));
    let found = listener.parse().map(|port: u16| (None, port)).or_else(|_| with_address()).ok();
    found.filter(|(_, port)| *port != 0).ok_or_else(|| {
        let takes = "expected a port, or an address and a port: 8000, 0.0.0.0:8000, [::]:8000";
        CliError::Usage(format!("invalid listener `{listener}`: {takes}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_a_port_or_an_address_and_a_port() {
        let read = |text: &str| parse(text).ok();
        assert_eq!(read("8000"), Some((None, 8000)));
        assert_eq!(read("0.0.0.0:8000"), Some((Some("0.0.0.0".parse().unwrap()), 8000)));
        assert_eq!(read("[2001:db8::1]:22"), Some((Some("2001:db8::1".parse().unwrap()), 22)));
        for wrong in ["", "0", "65536", "0.0.0.0", "::1:22:x", "host:22", "0.0.0.0:0"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
