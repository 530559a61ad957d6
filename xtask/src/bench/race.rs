//! Duration of connect(), and the resulting transport, for two strategies: *SCTP first*, with several race timers, and *both at once*.
//!
//! The other host has SCTP, rejects SCTP with ICMP, or drops SCTP silently. Each connection is a first contact: it has its own association,
//! and the daemon learns nothing. In the last rows (`shared`), the hosts already have a shared association.
//!
//! *Both at once* models a program that opens two connections and keeps the first one that is up. One connection is plain TCP. The daemon
//! holds the other connection until its association is up. The result is a lower bound for a daemon that starts SCTP and TCP at once.

use anyhow::{Context, Result, ensure};
use pages::stats::percentile;
use serde_json::Value;
use std::net::IpAddr;
use std::time::Duration;
use testbed::pair::{Daemons, Pair, SHIM_PORT, TCP_PORT, Tools};
use testbed::{Daemon, DelayedLink, Lab, Process};

/// Round-trip times, in milliseconds.
const ROUND_TRIPS_MS: [u64; 3] = [1, 20, 100];
/// Race timers of *SCTP first*, in milliseconds. The first timer is the minimum of the setting `race_timer_ms`.
const RACE_TIMERS_MS: [u64; 4] = [10, 50, 100, 250];
/// Race timer of *both at once* if the other host has SCTP, in milliseconds. It is long, so the daemon's connections do not fall back.
const RACING_MS: u64 = 3000;
/// Race timer of *both at once* if the other host has no SCTP, in milliseconds.
const FALLING_BACK_MS: u64 = 250;
/// Number of sequential connections of each kind.
const COUNT: u32 = 20;
/// Limit on the total time of all connections of one kind.
const LIMIT: Duration = Duration::from_secs(120);
const FIRST_CONTACTS: &str = "carriers = \"udp\"\nlearn = false\nstreams = \"own\"\n";
const SHARING: &str = "carriers = \"udp\"\nlearn = false\n";

/// Two hosts on a link, with servers on the right host.
struct World<'a> {
    pair: &'a Pair,
    tools: &'a Tools,
    rtt_ms: u64,
    to: IpAddr,
}

/// The left host with its running daemon.
struct Racer<'a> {
    world: &'a World<'a>,
    daemon: &'a Daemon,
    /// Treatment of SCTP by the other host, as printed.
    peer: &'static str,
}

/// Measures and prints the table.
pub(crate) fn run(lab: &Lab, tools: &Tools) -> Result<()> {
    println!("\nRTT ms  SCTP      tried                p50 ms     greatest   over SCTP");
    for rtt_ms in ROUND_TRIPS_MS {
        let pair = Pair::new(lab, &format!("-{rtt_ms}ms"))?;
        let (one_way, number) = (Duration::from_micros(rtt_ms * 500), u8::try_from(rtt_ms)?);
        let link = DelayedLink::between(lab, &pair.alpha, &pair.beta, number, one_way, &tools.linkemu)?;
        // Without this setting, the kernel limits the rate of its ICMP rejections.
        pair.beta.tool("sysctl", &["-qw", "net.ipv4.icmp_ratelimit=0"])?;
        let servers =
            [TCP_PORT, SHIM_PORT].map(|port| pair.serve(&tools.bulk, &["accept", &port.to_string()]));
        World { pair: &pair, tools, rtt_ms, to: IpAddr::V4(link.link.right_v4()) }.measure()?;
        servers.into_iter().try_for_each(|server| server.map(Process::stop))?;
    }
    Ok(())
}

impl World<'_> {
    fn measure(&self) -> Result<()> {
        let Self { pair, tools, .. } = self;
        let daemons = pair.start_daemons_with(tools, FIRST_CONTACTS)?;
        self.once()?;
        self.racer(&daemons.alphas, "present").first_contacts(RACING_MS)?;
        daemons.stop();

        let daemon = pair.start_alphas_with(tools, FIRST_CONTACTS)?;
        self.racer(&daemon, "refused").first_contacts(FALLING_BACK_MS)?;
        pair.beta.drop_sctp()?;
        self.racer(&daemon, "silent").first_contacts(FALLING_BACK_MS)?;
        pair.beta.pass_sctp()?;
        daemon.stop();

        let daemons = pair.start_daemons_with(tools, SHARING)?;
        daemons.connect_until_shared(|| self.once().map(drop))?;
        self.racer(&daemons.alphas, "shared").sharing(&daemons)?;
        daemons.stop();
        Ok(())
    }

    fn racer<'a>(&'a self, daemon: &'a Daemon, peer: &'static str) -> Racer<'a> {
        Racer { world: self, daemon, peer }
    }

    /// Makes one connection, so the hosts know each other's link-layer addresses afterwards.
    fn once(&self) -> Result<()> {
        self.pair.connect(self.to, self.tools, SHIM_PORT, 1).map(drop)
    }

    /// Returns the durations of connections to a port, in milliseconds.
    fn connect(&self, port: u16) -> Result<Vec<f64>> {
        let micros = self.pair.connect(self.to, self.tools, port, COUNT)?;
        Ok(micros.iter().map(|micros| micros / 1e3).collect())
    }
}

impl Racer<'_> {
    /// Measures plain TCP, SCTP first with each race timer, and *both at once*. The race timer of *both at once* is `racing_ms`.
    fn first_contacts(&self, racing_ms: u64) -> Result<()> {
        self.print("TCP alone", &self.world.connect(TCP_PORT)?, 0);
        for timer_ms in RACE_TIMERS_MS {
            self.set(timer_ms)?;
            let (millis, over_sctp) = self.sctp_first()?;
            self.print(&format!("SCTP first, {timer_ms} ms"), &millis, over_sctp);
        }
        self.set(racing_ms)?;
        let (millis, won) = self.both_at_once()?;
        // If the other host has no SCTP, a winning connection of the daemon has already fallen back to plain TCP. So the printed number of
        // connections over SCTP is 0.
        self.print("both at once", &millis, if racing_ms == RACING_MS { won } else { 0 });
        Ok(())
    }

    /// Measures connections over a shared association.
    fn sharing(&self, daemons: &Daemons) -> Result<()> {
        let before = daemons.connects_shared()?;
        let (millis, over_sctp) = self.sctp_first()?;
        ensure!(
            daemons.connects_shared()? - before == over_sctp,
            "some connections had associations of their own"
        );
        self.print("SCTP first, 250 ms", &millis, over_sctp);
        let (millis, won) = self.both_at_once()?;
        self.print("both at once", &millis, won);
        Ok(())
    }

    /// Connects with SCTP first. Returns the durations in milliseconds, and the number of connections over SCTP.
    fn sctp_first(&self) -> Result<(Vec<f64>, u64)> {
        let before = self.connects_sctp()?;
        let millis = self.world.connect(SHIM_PORT)?;
        Ok((millis, self.connects_sctp()? - before))
    }

    /// Opens a plain connection and a connection through the daemon at once, [`COUNT`] times. Returns the durations until the first of the
    /// two was up, in milliseconds. Also returns the number of times that the daemon's connection was first.
    fn both_at_once(&self) -> Result<(Vec<f64>, u64)> {
        let World { pair: Pair { alpha, .. }, tools, to, .. } = self.world;
        let mut command = alpha.command(&tools.bulk);
        command.arg("race").args([TCP_PORT, SHIM_PORT].map(|port| format!("{to}:{port}")));
        command.arg(COUNT.to_string());
        let output = alpha.run("race", command, LIMIT)?.good()?.stdout;
        let (mut millis, mut won) = (Vec::new(), 0);
        for line in output.lines() {
            let (micros, which) =
                line.split_once(' ').context("the program that races reported no winner")?;
            millis.push(micros.parse::<f64>()? / 1e3);
            won += u64::from(which == "2");
        }
        Ok((millis, won))
    }

    fn set(&self, timer_ms: u64) -> Result<()> {
        self.daemon.sctpify(&["set", &format!("race_timer_ms={timer_ms}")])?.good().map(drop)
    }

    fn connects_sctp(&self) -> Result<u64> {
        let output = self.daemon.sctpify(&["status", "--json"])?.good()?.stdout;
        let status: Value = serde_json::from_str(&output).context("sctpify status --json printed no JSON")?;
        status["counters"]["connects_sctp"].as_u64().context("sctpify status --json reports no connects_sctp")
    }

    fn print(&self, tried: &str, millis: &[f64], over_sctp: u64) {
        let [p50, greatest] = [50, 100].map(|percent| percentile(millis, percent));
        let (rtt_ms, peer) = (self.world.rtt_ms, self.peer);
        println!("{rtt_ms:<7} {peer:<9} {tried:<20} {p50:<10.3} {greatest:<10.3} {over_sctp} of {COUNT}");
    }
}
