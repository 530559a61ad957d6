//! Transfers in real time between two namespaces, which a `linkemu` link joins.
//!
//! The transferring program is scp or `bulk`. The kernel's TCP carries the bytes, or two daemons carry them
//! over SCTP.

use super::{Control, LIMIT, ShimLoss, Tcp, Transfer, Transport};
use crate::experiment::{Environment, Measures};
use anyhow::{Context, Result, ensure};
use std::time::Duration;
use testbed::pair::{Daemons, Pair, TCP_PORT};
use testbed::programs::ssh::Sshd;
use testbed::{DelayedLink, Host, Lab, files};

/// Number of the link between the hosts.
const LINK: u8 = 1;
/// The port of ssh.
const SSH_PORT: u16 = 22;
/// Sysctls that make Linux's TCP similar to the TCP of FreeBSD 4.10: no SACK, no RACK, no tail-loss probe,
/// no timestamps.
const OLD: &[&str] = &["tcp_sack=0", "tcp_recovery=0", "tcp_early_retrans=0", "tcp_timestamps=0"];

/// Two hosts and their link.
struct Scene {
    pair: Pair,
    link: DelayedLink,
    lab: Lab,
}

impl ShimLoss {
    fn scene(&self, environment: &Environment, transfer: Transfer) -> Result<Scene> {
        let lab = Lab::new()?;
        let pair = Pair::new(&lab, "")?;
        let settings = [
            ("--rate", format!("{}bit", self.rate)),
            ("--delay", format!("{}ms", self.delay_ms)),
            ("--queue", self.queue_packets.to_string()),
            ("--loss", format!("{}%", transfer.loss * 100.0)),
            ("--seed", transfer.seed.to_string()),
        ];
        let settings: Vec<&str> = settings.iter().flat_map(|(key, value)| [*key, value]).collect();
        let linkemu = &environment.tools.linkemu;
        let link = DelayedLink::emulated(&lab, &pair.alpha, &pair.beta, LINK, &settings, linkemu)?;
        link.link.introduce()?;
        if let Transport::Tcp(tcp) = transfer.transport {
            for host in [&pair.alpha, &pair.beta] {
                make_it(tcp, host, &link)?;
            }
        }
        Ok(Scene { pair, link, lab })
    }

    /// Copies a file from beta to alpha with scp.
    ///
    /// The daemon's race may end in plain TCP. The measurement keeps such a transfer over TCP, with 0 in the
    /// measure `connections_by_sctp`.
    pub(super) fn scp(
        &self,
        environment: &Environment,
        transfer: Transfer,
        configuration: &str,
    ) -> Result<Measures> {
        let scene = self.scene(environment, transfer)?;
        let daemons = match transfer.transport {
            Transport::Tcp(_) => None,
            Transport::Shim(control) => Some(daemons(&scene.pair, environment, configuration, control)?),
        };
        let Pair { alpha, beta } = &scene.pair;
        let sshd = Sshd::start(beta)?;
        let [file, copy] = ["file", "copy"].map(|name| scene.lab.dir().join(name));
        files::make_random(&file, transfer.bytes)?;
        let command = sshd.scp_from(alpha, scene.link.link.right_v4().into(), &file, &copy);
        let finished = alpha.run("scp", command, LIMIT)?;
        let is_whole = finished.status.success() && files::sha256(&file)? == files::sha256(&copy)?;
        if !is_whole {
            eprintln!("scp failed after {:?}: {}{}", finished.elapsed, finished.stdout, finished.stderr);
        }
        let mut measures = measures(finished.elapsed, !is_whole);
        if let Some(daemons) = daemons {
            measures.insert("connections_by_sctp".to_owned(), daemons.connects_sctp()? as f64);
            daemons.stop();
        }
        sshd.stop();
        Ok(measures)
    }

    /// Transfers the bytes from beta to alpha without ssh.
    pub(super) fn fetch(&self, environment: &Environment, transfer: Transfer) -> Result<Measures> {
        let scene = self.scene(environment, transfer)?;
        let bulk = &environment.tools.bulk;
        let server = scene.pair.serve(bulk, &["give", &TCP_PORT.to_string()])?;
        let mut command = scene.pair.alpha.command(bulk);
        let to = format!("{}:{TCP_PORT}", scene.link.link.right_v4());
        command.args(["fetch", &to, "1", &transfer.bytes.to_string(), "1"]);
        let finished = scene.pair.alpha.run("fetch", command, LIMIT)?;
        server.stop();
        let failed = !finished.status.success();
        let reported = finished.stdout.split_whitespace().nth(1).map(str::parse).transpose()?;
        let elapsed = reported.map_or(finished.elapsed, Duration::from_micros);
        Ok(measures(elapsed, failed))
    }
}

/// Returns the measures of a transfer. A failed transfer has no duration.
fn measures(elapsed: Duration, failed: bool) -> Measures {
    let errors = ("errors".to_owned(), f64::from(u8::from(failed)));
    let seconds = (!failed).then(|| ("seconds".to_owned(), elapsed.as_secs_f64()));
    seconds.into_iter().chain([errors]).collect()
}

/// Configures a host's kernel for the implementation `tcp`. The route selects the congestion control,
/// because a namespace accepts only an unrestricted congestion control as its default.
fn make_it(tcp: Tcp, host: &Host, link: &DelayedLink) -> Result<()> {
    let control = match tcp {
        Tcp::WithoutSack | Tcp::Reno => "reno",
        Tcp::Cubic => "cubic",
        Tcp::Bbr => "bbr",
        Tcp::FreeBsd => anyhow::bail!("FreeBSD 4.10 exists only as a model"),
    };
    let network = format!("10.77.{LINK}.0/24");
    let device = link.link.name();
    let table = host.ip(&["-4", "route", "show", &network])?;
    let source = table.split_whitespace().skip_while(|word| *word != "src").nth(1);
    let source = source.context("the link's network has no route")?;
    let path = ["dev", &device, "proto", "kernel", "scope", "link", "src", source, "congctl", control];
    let wishes: &[&str] = match tcp {
        Tcp::WithoutSack => &["rto_min", "1s", "initcwnd", "2"],
        _ => &[],
    };
    host.ip(&[&["route", "replace", &network], &path[..], wishes].concat())
        .with_context(|| format!("this kernel has no {control}"))?;
    if tcp == Tcp::WithoutSack {
        for assignment in OLD {
            host.tool("sysctl", &["-q", "-w", &format!("net.ipv4.{assignment}")])?;
        }
    }
    Ok(())
}

/// Starts daemons that carry ssh, and checks their congestion control.
fn daemons(pair: &Pair, environment: &Environment, configuration: &str, control: Control) -> Result<Daemons> {
    let daemons = pair.start_daemons_with(&environment.tools, configuration)?;
    for (daemon, chain) in [(&daemons.alphas, "remote"), (&daemons.betas, "local")] {
        let port = SSH_PORT.to_string();
        daemon.shimrules(&["-A", "-c", chain, "-p", "enable", "-P", &port])?.good()?;
    }
    let output = daemons.alphas.sctpify(&["get", "congestion"])?.good()?.stdout;
    ensure!(
        output.contains(&control.to_string()),
        "the daemon's congestion control is {output}, not {control}"
    );
    Ok(daemons)
}
