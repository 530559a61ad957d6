//! The contenders, and the commands that run their programs.

use super::Effort;
use super::table::{Carrier, Job};
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use testbed::Link;

/// SCTP port and TCP port of the servers.
pub(crate) const PORT: &str = "5001";
/// UDP port of all contenders (RFC 6951 section 5.1).
const UDP_PORT: &str = "9899";

/// A contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contender {
    /// Our engine, in the program `peer` or alone.
    Ours,
    /// Debian's libusrsctp.
    Usrsctp,
    /// The kernel's TCP, with TCP_NODELAY.
    Tcp,
    /// The rtc-sctp engine alone.
    Rtc,
    /// The dcsctp engine alone, in its published form.
    Dcsctp,
}

impl Display for Contender {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Contender::Ours => "ours",
            Contender::Usrsctp => "usrsctp",
            Contender::Tcp => "tcp",
            Contender::Rtc => "rtc-sctp",
            Contender::Dcsctp => "dcsctp",
        })
    }
}

/// The contenders' programs.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) ours: PathBuf,
    pub(crate) usrsctp: PathBuf,
    pub(crate) tcp: PathBuf,
    /// Program that runs one engine without sockets: ours or another contender's.
    pub(crate) rivals: PathBuf,
}

/// A link, and the encapsulation of SCTP on this link. The client is at the link's left end, and the server is at its right end.
#[derive(Debug)]
pub(crate) struct LinkUse<'a> {
    pub(crate) link: &'a Link,
    pub(crate) carrier: Carrier,
}

impl LinkUse<'_> {
    /// Returns the UDP port for usrsctp. 0 selects SCTP directly over IP.
    fn udp_port(&self) -> &'static str {
        match self.carrier {
            Carrier::Udp => UDP_PORT,
            Carrier::Ip => "0",
        }
    }

    /// Returns the options of `peer` for an end with the address `local`.
    fn peer_options(&self, local: impl Display) -> Vec<String> {
        let carrier = match self.carrier {
            Carrier::Udp => "udp",
            Carrier::Ip => "ip",
        };
        words(["--carrier", carrier, "--local", &local.to_string()])
    }
}

impl Programs {
    /// Returns the program and arguments of the listening end, or `None` for an engine alone.
    pub(crate) fn server(
        &self,
        contender: Contender,
        job: Job,
        on: &LinkUse<'_>,
    ) -> Option<(&Path, Vec<String>)> {
        let mode = match job {
            Job::Alone { .. } => return None,
            Job::Bulk { .. } | Job::Messages { .. } => "receive",
            Job::Ping { .. } | Job::Connects => "serve",
        };
        let tcp_mode = match job {
            Job::Ping { .. } => "echo",
            Job::Connects => "accept",
            _ => mode,
        };
        Some(match contender {
            Contender::Usrsctp => (&self.usrsctp, words([mode, PORT, on.udp_port()])),
            Contender::Tcp => (&self.tcp, words([tcp_mode, PORT])),
            _ => {
                let options = on.peer_options(on.link.right_v4());
                (&self.ours, [options, words([mode, PORT])].concat())
            }
        })
    }

    /// Returns the program and arguments of the connecting end.
    pub(crate) fn client(
        &self,
        contender: Contender,
        job: Job,
        on: &LinkUse<'_>,
        effort: Effort,
    ) -> (&Path, Vec<String>) {
        let (mode, amounts) = amounts(job, effort);
        let to = on.link.right_v4().to_string();
        if let Job::Alone { .. } = job {
            return (&self.rivals, [words([&contender.to_string()]), amounts].concat());
        }
        match contender {
            Contender::Usrsctp => {
                (&self.usrsctp, [words([mode, &to, PORT, on.udp_port()]), amounts].concat())
            }
            Contender::Tcp => {
                let mode = if mode == "send" { "send-now" } else { mode };
                (&self.tcp, [words([mode, &format!("{to}:{PORT}")]), amounts].concat())
            }
            _ => {
                let options = on.peer_options(on.link.left_v4());
                (&self.ours, [options, words([mode, &to, PORT]), amounts].concat())
            }
        }
    }
}

/// Returns the client's mode, and its arguments for the amount of work. All programs accept these arguments.
fn amounts(job: Job, effort: Effort) -> (&'static str, Vec<String>) {
    match job {
        Job::Bulk { size } | Job::Messages { size } | Job::Alone { size } => {
            ("send", words([&effort.seconds.to_string(), &size.to_string()]))
        }
        Job::Ping { size } => ("ping", words([&effort.pings.to_string(), &size.to_string()])),
        Job::Connects => ("connects", words([&effort.connects.to_string()])),
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
