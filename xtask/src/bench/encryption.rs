//! Cost of encryption: one bulk stream and many connects. Runs with encryption and without encryption alternate. The same bulk stream also
//! runs through WireGuard in user space.
//!
//! WireGuard is `wireguard-go`, which encrypts plain TCP between two separate hosts. If it is not installed, its row is left out.

use super::bulk::{self, Samples};
use super::report::Report;
use crate::tools::has;
use anyhow::{Context, Result, ensure};
use pages::stats::{percentile, spread};
use pages::{Limit, Table};
use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT, Tools};
use testbed::process::wait_for;
use testbed::{Capture, DelayedLink, Host, Lab, Link, Offloads, Process, cpu};

/// Settings of the daemons, in addition to `encryption`. Each connection has its own association, and so needs its own handshake.
const SETTINGS: &str = "carriers = \"udp\"\nstreams = \"own\"\n";
/// Number of runs of each kind.
const REPETITIONS: usize = 5;
/// Sending time, in seconds.
const SECONDS: &str = "2";
/// Size of writes, in bytes.
const SIZE: usize = 65_536;
/// Number of connects per run without delay. A run on a link with delay has a tenth of this number.
const CONNECTS: u32 = 200;
/// Round trips of the links for connects, in milliseconds.
const ROUND_TRIPS_MS: [u64; 3] = [0, 20, 100];

/// Minimum throughput with encryption, as a share of the throughput without encryption.
const BULK_GOAL: f64 = 0.75;
/// Limit on the extra processor time of an encrypted stream, compared with an unencrypted stream, in seconds per GB.
const CPU_GOAL_S_PER_GB: f64 = 0.5;
/// Minimum throughput with encryption, as a multiple of WireGuard's throughput.
const WIREGUARD_GOAL: f64 = 1.5;
/// Limit on the extra time of an encrypted connect, compared with an unencrypted connect, on a link without delay, in milliseconds.
const CONNECT_GOAL_MS: f64 = 0.2;
/// Limit on the extra time of an encrypted connect, compared with an unencrypted connect, on a link with delay, in milliseconds.
const DELAYED_GOAL_MS: f64 = 2.0;
/// Minimum number of handshakes that a server completes per second of processor time.
const HANDSHAKES_GOAL: f64 = 1_000.0;

/// UDP port of WireGuard.
const WIREGUARD_PORT: &str = "51820";
/// Addresses of alpha and beta inside WireGuard's tunnel.
const INSIDE: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// Limit on each step of WireGuard's start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Two hosts. Either both daemons encrypt, or neither daemon encrypts.
struct Side {
    pair: Pair,
    link: Link,
    daemons: Daemons,
}

/// Measures and judges everything.
pub(crate) fn run(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    stream(lab, tools, report)?;
    connects(lab, tools, report)?;
    report.remark("CPU: processes only; the kernel's interrupt work for packets is in no column.");
    Ok(())
}

fn settings(encryption: &str) -> String {
    format!("{SETTINGS}encryption = \"{encryption}\"\n")
}

/// Measures one bulk stream without encryption, with encryption, and through WireGuard.
fn stream(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    let side = |name: &str, number, encryption: &str| -> Result<Side> {
        let pair = Pair::new(lab, name)?;
        let link = lab.join(&pair.alpha, &pair.beta, number, Offloads::On)?;
        let daemons = pair.start_daemons_with(tools, &settings(encryption))?;
        Ok(Side { pair, link, daemons })
    };
    let (clear, sealed) = (side("-clear", 1, "off")?, side("-sealed", 2, "require")?);
    ensure_is_sealed(&sealed, tools)?;
    let tunnel = if has("wireguard-go") && has("wg") { Some(Tunnel::new(lab)?) } else { None };
    let mut all = [Samples::default(), Samples::default(), Samples::default()];
    for _ in 0..REPETITIONS {
        for (side, samples) in [&clear, &sealed].into_iter().zip(&mut all) {
            let to = (side.link.right_v4(), SHIM_PORT);
            samples
                .take(&side.pair, bulk::DAEMON, || bulk::by_tcp(&side.pair, tools, to, (SECONDS, SIZE)))?;
        }
        if let Some(tunnel) = &tunnel {
            let to = (INSIDE[1].parse()?, TCP_PORT);
            let stream = || bulk::by_tcp(&tunnel.pair, tools, to, (SECONDS, SIZE));
            all[2].take(&tunnel.pair, "wireguard-go", stream)?;
        }
    }
    let names = ["shim, clear", "shim, encrypted", "wireguard-go"];
    let mut table = Table::new(
        "One bulk stream, 64 KiB writes, offloads on: median (least-greatest)",
        ["", "Gbit/s", "CPU s/GB", "x clear"],
    );
    let median = |samples: &[f64]| percentile(samples, 50);
    for (name, samples) in names.into_iter().zip(&all).filter(|(_, s)| !s.gbit_per_s.is_empty()) {
        let ratio = median(&samples.gbit_per_s) / median(&all[0].gbit_per_s);
        let (speed, cpu) = (spread(&samples.gbit_per_s), spread(&samples.cpu_s_per_gb));
        table.row([name.to_owned(), speed, cpu, format!("{ratio:.2}")]);
    }
    report.show(table);
    let [clear_speed, sealed_speed] = [0, 1].map(|n: usize| median(&all[n].gbit_per_s));
    report.judge(
        "encrypted by clear, 65,536 bytes",
        &[sealed_speed / clear_speed],
        Limit::AtLeast(BULK_GOAL),
    );
    let more = median(&all[1].cpu_s_per_gb) - median(&all[0].cpu_s_per_gb);
    report.judge("CPU of encryption, s/GB", &[more], Limit::AtMost(CPU_GOAL_S_PER_GB));
    if tunnel.is_some() {
        let ratio = sealed_speed / median(&all[2].gbit_per_s);
        report.judge("encrypted by wireguard-go, 65,536 bytes", &[ratio], Limit::AtLeast(WIREGUARD_GOAL));
    } else {
        report.remark("wireguard-go is not installed and was left out: run  ./x setup  as root.");
    }
    [clear, sealed].into_iter().for_each(|side| side.daemons.stop());
    Ok(())
}

/// Checks with a capture that the stream is SCTP, and with the daemon's status that the stream is encrypted.
fn ensure_is_sealed(side: &Side, tools: &Tools) -> Result<()> {
    let capture = Capture::start(&side.pair.alpha, "is-sctp", &[&side.link.name()])?;
    bulk::by_tcp(&side.pair, tools, (side.link.right_v4(), SHIM_PORT), ("0.1", SIZE))?;
    let seen = capture.judge()?;
    ensure!(seen.tcp == 0 && seen.sctp > 0, "the stream used {}", seen.carrier());
    let status = side.daemons.alphas.sctpify(&["status", "--json"])?.good()?.stdout;
    ensure!(
        !status.contains("\"encrypted\":0,") && status.contains("\"encrypted\""),
        "nothing was encrypted"
    );
    Ok(())
}

/// Measures connects on links with different delays. Each connect opens its own association.
fn connects(lab: &Lab, tools: &Tools, report: &mut Report) -> Result<()> {
    let mut table = Table::new(
        "Connects with an association each: p50, median of the runs (least-greatest)",
        ["round trip", "clear, ms", "encrypted, ms", "more, ms", "server's CPU, clear, us", "encrypted, us"],
    );
    for (number, round_trip) in (10..).zip(ROUND_TRIPS_MS) {
        let side = |encryption: &str, number| -> Result<_> {
            let pair = Pair::new(lab, &format!("-{encryption}-{round_trip}"))?;
            let one_way = Duration::from_millis(round_trip / 2);
            let link = DelayedLink::between(lab, &pair.alpha, &pair.beta, number, one_way, &tools.linkemu)?;
            let daemons = pair.start_daemons_with(tools, &settings(encryption))?;
            let server = pair.serve(&tools.bulk, &["accept", &SHIM_PORT.to_string()])?;
            Ok((pair, link, daemons, server))
        };
        let sides = [side("off", number)?, side("require", number + 10)?];
        let count = if round_trip == 0 { CONNECTS } else { CONNECTS / 10 };
        let (mut times, mut cpus) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for _ in 0..REPETITIONS {
            for (n, (pair, link, daemons, _)) in sides.iter().enumerate() {
                let (cpu, before) = (cpu::of_processes(&pair.beta, bulk::DAEMON)?, daemons.connects_sctp()?);
                let micros = pair.connect(IpAddr::V4(link.link.right_v4()), tools, SHIM_PORT, count)?;
                ensure!(daemons.connects_sctp()? - before == u64::from(count), "not all by SCTP");
                let cpu = cpu::of_processes(&pair.beta, bulk::DAEMON)? - cpu;
                times[n].push(percentile(&micros, 50) / 1e3);
                cpus[n].push(cpu.as_secs_f64() * 1e6 / f64::from(count));
            }
        }
        let median = |samples: &[f64]| percentile(samples, 50);
        let more = median(&times[1]) - median(&times[0]);
        table.row([
            format!("{round_trip} ms"),
            spread(&times[0]),
            spread(&times[1]),
            format!("{more:.3}"),
            spread(&cpus[0]),
            spread(&cpus[1]),
        ]);
        let goal = if round_trip == 0 { CONNECT_GOAL_MS } else { DELAYED_GOAL_MS };
        let figure = format!("more time of an encrypted connect, {round_trip} ms there and back, ms");
        report.judge(figure, &[more], Limit::AtMost(goal));
        if round_trip == 0 {
            let rate = 1e6 / median(&cpus[1]);
            report.judge(
                "encrypted connects per second of a server's core",
                &[rate],
                Limit::AtLeast(HANDSHAKES_GOAL),
            );
        }
        for (.., daemons, server) in sides {
            server.stop();
            daemons.stop();
        }
    }
    report.show(table);
    Ok(())
}

/// Two hosts with WireGuard in user space between them.
struct Tunnel {
    pair: Pair,
    _link: Link,
    _processes: [Process; 2],
}

impl Tunnel {
    fn new(lab: &Lab) -> Result<Tunnel> {
        let pair = Pair::new(lab, "-wg")?;
        let link = lab.join(&pair.alpha, &pair.beta, 3, Offloads::On)?;
        let ((own, public), (others, others_public)) = (keys(&pair.alpha)?, keys(&pair.beta)?);
        let alphas = start(&pair.alpha, (&own, &others_public), INSIDE, &link.right_v4().to_string())?;
        let inside = [INSIDE[1], INSIDE[0]];
        let betas = start(&pair.beta, (&others, &public), inside, &link.left_v4().to_string())?;
        Ok(Tunnel { pair, _link: link, _processes: [alphas, betas] })
    }
}

/// Creates a key pair. Returns the path of the private key's file, and the public key. The file is in the host's directory.
fn keys(host: &Host) -> Result<(String, String)> {
    let file = host.dir()?.join("wg.key");
    let private = host.run("wg", command(host, "wg", &["genkey"]), START_LIMIT)?.good()?.stdout;
    fs::write(&file, &private)?;
    let file = file.to_string_lossy().into_owned();
    let public = command(host, "sh", &["-c", &format!("wg pubkey < {file}")]);
    let public = host.run("wg", public, START_LIMIT)?.good()?.stdout.trim().to_owned();
    Ok((file, public))
}

/// Starts WireGuard on a host. `own` is the file of the host's private key, and `other` is the other host's public key. `here` and `there`
/// are the addresses of this host and of the other host inside the tunnel. `outside` is the other host's address outside of the tunnel.
fn start(
    host: &Host,
    (own, other): (&str, &str),
    [here, there]: [&str; 2],
    outside: &str,
) -> Result<Process> {
    // All hosts share the directory of wireguard-go's sockets. A socket has the name of its interface, so the interfaces of all hosts must
    // have different names.
    let number = here.rsplit('.').next().unwrap_or_default();
    let name = &format!("wg{}-{number}", std::process::id());
    let process = host.spawn("wireguard", command(host, "wireguard-go", &["-f", name]))?;
    let is_there = || {
        let run = host.run("ip", command(host, "ip", &["link", "show", name]), START_LIMIT);
        run.is_ok_and(|output| output.status.success())
    };
    ensure!(wait_for(START_LIMIT, is_there), "wireguard-go makes no interface: {}", process.stderr());
    let (endpoint, inside) = (format!("{outside}:{WIREGUARD_PORT}"), format!("{here}/24"));
    let allowed = format!("{there}/32");
    let peer = ["peer", other, "endpoint", &endpoint, "allowed-ips", &allowed];
    let set = [&["set", name, "listen-port", WIREGUARD_PORT, "private-key", own][..], &peer].concat();
    for (program, args) in [
        ("wg", &set[..]),
        ("ip", &["address", "add", &inside, "dev", name]),
        ("ip", &["link", "set", name, "up"]),
    ] {
        host.run(program, command(host, program, args), START_LIMIT)?.good().context("WireGuard")?;
    }
    Ok(process)
}

fn command(host: &Host, program: &str, args: &[&str]) -> Command {
    let mut command = host.command(program);
    command.args(args);
    command
}
