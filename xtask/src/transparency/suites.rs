//! The suites: their names, worlds and commands.

use super::field::{Field, World};
use super::results::{self, Results};
use crate::tools::{has, root};
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::Duration;

/// Limit on one run of a suite.
const LIMIT: Duration = Duration::from_secs(600);
/// The distribution's Python, which has Python's own tests. Another Python in PATH may lack these tests.
const PYTHON: &str = "/usr/bin/python3";

/// One suite.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) world: World,
    /// True if `./x test` includes the suite.
    pub(crate) is_quick: bool,
    /// Programs of scripts/packages-optional.txt that the suite needs.
    programs: &'static [&'static str],
    /// Minimum number of tests that pass over plain TCP. If fewer tests pass, the suite may not work on this host.
    pub(crate) passed_min: usize,
    /// Minimum number of connections over SCTP in the run with daemons.
    pub(crate) connections_min: u64,
    kind: Kind,
}

/// The command of a suite.
enum Kind {
    /// `go test` with these arguments.
    Go(&'static [&'static str]),
    /// `tests/transparency/unittest_by_name.py` with these arguments, which have the form of `python3 -m unittest`'s arguments.
    Python(&'static [&'static str]),
    /// A script in `tests/transparency`. The script runs outside of the hosts' namespaces.
    Script(&'static str),
}

/// All suites.
pub(crate) const SUITES: &[Suite] = &[
    Suite {
        name: "go-net",
        world: World::Alone,
        is_quick: false,
        programs: &[],
        passed_min: 150,
        connections_min: 150,
        kind: Kind::Go(&["net"]),
    },
    Suite {
        name: "go-http",
        world: World::Alone,
        is_quick: false,
        programs: &[],
        passed_min: 400,
        connections_min: 400,
        kind: Kind::Go(&["net/http"]),
    },
    Suite {
        name: "go-rpc",
        world: World::Alone,
        is_quick: true,
        programs: &[],
        passed_min: 10,
        connections_min: 10,
        kind: Kind::Go(&["net/rpc", "net/smtp"]),
    },
    Suite {
        name: "python-socket",
        world: World::Alone,
        is_quick: false,
        programs: &[],
        passed_min: 150,
        connections_min: 100,
        kind: Kind::Python(&[
            "-k",
            "TCP",
            "-k",
            "Sendfile",
            "-k",
            "FileObject",
            "-k",
            "NetworkConnection",
            "-k",
            "Interrupted",
            "-k",
            "BufferIO",
            "-k",
            "ContextManagers",
            "-k",
            "CreateServer",
            "test.test_socket",
        ]),
    },
    Suite {
        name: "python-net",
        world: World::Alone,
        is_quick: false,
        programs: &[],
        passed_min: 500,
        connections_min: 200,
        kind: Kind::Python(&[
            "test.test_httplib",
            "test.test_ftplib",
            "test.test_poplib",
            "test.test_smtplib",
            "test.test_ssl",
            "test.test_socketserver",
            "test.test_selectors",
        ]),
    },
    Suite {
        name: "python-asyncio",
        world: World::Alone,
        is_quick: false,
        programs: &[],
        passed_min: 100,
        connections_min: 50,
        kind: Kind::Python(&[
            "test.test_asyncio.test_streams",
            "test.test_asyncio.test_sock_lowlevel",
            "test.test_asyncio.test_server",
            "test.test_asyncio.test_sendfile",
            "test.test_asyncio.test_buffered_proto",
        ]),
    },
    Suite {
        name: "git",
        world: World::Pair,
        is_quick: true,
        programs: &[],
        passed_min: 8,
        connections_min: 8,
        kind: Kind::Script("git.sh"),
    },
    Suite {
        name: "rsync",
        world: World::Pair,
        is_quick: true,
        programs: &[],
        passed_min: 4,
        connections_min: 4,
        kind: Kind::Script("rsync.sh"),
    },
    Suite {
        name: "iperf3",
        world: World::Pair,
        is_quick: false,
        programs: &[],
        passed_min: 8,
        connections_min: 20,
        kind: Kind::Script("iperf3.sh"),
    },
    Suite {
        name: "redis",
        world: World::Pair,
        is_quick: false,
        programs: &[],
        passed_min: 7,
        connections_min: 700,
        kind: Kind::Script("redis.sh"),
    },
    Suite {
        name: "postgres",
        world: World::Pair,
        is_quick: false,
        programs: &[],
        passed_min: 7,
        connections_min: 120,
        kind: Kind::Script("postgres.sh"),
    },
    Suite {
        name: "ftp",
        world: World::Pair,
        is_quick: false,
        programs: &[],
        passed_min: 3,
        connections_min: 8,
        kind: Kind::Script("ftp.sh"),
    },
    Suite {
        name: "tls",
        world: World::Pair,
        is_quick: false,
        programs: &[],
        passed_min: 4,
        connections_min: 4,
        kind: Kind::Script("tls.sh"),
    },
    Suite {
        name: "websocket",
        world: World::Pair,
        is_quick: true,
        programs: &[],
        passed_min: 7,
        connections_min: 7,
        kind: Kind::Script("websocket.sh"),
    },
    Suite {
        name: "ssh",
        world: World::Pair,
        is_quick: false,
        programs: &[],
        passed_min: 9,
        connections_min: 8,
        kind: Kind::Script("ssh.sh"),
    },
    Suite {
        name: "telnet",
        world: World::Pair,
        is_quick: true,
        programs: &["telnet", "telnetd"],
        passed_min: 5,
        connections_min: 7,
        kind: Kind::Script("telnet.sh"),
    },
    Suite {
        name: "web",
        world: World::Pair,
        is_quick: true,
        programs: &["apache2", "ab", "chromium"],
        passed_min: 9,
        connections_min: 420,
        kind: Kind::Script("web.sh"),
    },
];

impl Suite {
    /// Returns the suite's name among the results of `./x test`.
    pub(crate) fn label(&self) -> String {
        format!("suite {}", self.name)
    }

    /// Returns the first program that the suite needs and this host lacks.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        self.programs.iter().find(|name| !has(name)).copied()
    }

    /// Runs the suite to its end. Returns the results of its tests.
    pub(crate) fn run(&self, field: &Field) -> Result<Results> {
        let finished = field.alpha.run(self.name, self.command(field)?, LIMIT)?;
        let results = match self.kind {
            Kind::Go(_) => results::of_go(&finished.stdout),
            Kind::Python(_) | Kind::Script(_) => results::of_lines(&finished.stdout),
        };
        ensure!(!results.is_empty(), "it named no test: {}{}", finished.stdout, finished.stderr);
        Ok(results)
    }

    fn command(&self, field: &Field) -> Result<Command> {
        let tests = root().join("tests/transparency");
        Ok(match self.kind {
            Kind::Go(words) => {
                let mut command = field.alpha.command("go");
                command
                    .args(["test", "-json", "-count=1", "-short", "-vet=off", "-timeout=300s"])
                    .args(words);
                command
            }
            Kind::Python(words) => {
                let mut command = field.alpha.command(PYTHON);
                command.arg(tests.join("unittest_by_name.py")).args(words);
                command
            }
            Kind::Script(name) => {
                let (beta, link) = field.beta.as_ref().context("a script needs two hosts")?;
                let mut command = Command::new("bash");
                command.arg(tests.join(name)).current_dir(field.lab.dir());
                command.env("ALPHA", field.alpha.namespace()).env("BETA", beta.namespace());
                command
                    .env("ALPHA_IP", link.left_v4().to_string())
                    .env("BETA_IP", link.right_v4().to_string());
                command.env("BETA_IP6", link.right_v6().to_string());
                command
            }
        })
    }
}
