//! `./x bench router`: packets per second through our own router on one core, compared with the kernel's
//! forwarding of the same load.
//!
//! A host in the middle forwards small SCTP packets of 64 flows. Each packet is carried in UDP and has an advertisement chunk. The
//! interface of the receiving host counts the arrivals. The maximum rate of one core is this count divided by the processor time of our
//! program.
//!
//! The kernel forwards within the processor time of the sender. So the kernel's cost is the extra time of the sender, compared with the
//! sender's time if the middle host discards the packets.

use super::report::Report;
use crate::optimised;
use anyhow::{Context, Result, ensure};
use pages::{Limit, Table, grouped};
use std::path::Path;
use std::time::Duration;
use testbed::{Host, Lab, Link, Offloads, cpu};

/// Required rate of one core, in packets per second.
const GOAL: f64 = 200_000.0;
/// Sending time, in seconds.
const SECONDS: &str = "5";
const LIMIT: Duration = Duration::from_secs(60);
/// Policies of the router to measure.
const POLICIES: [&str; 4] = ["fifo", "fq-codel", "ltf", "finish"];
/// Destination of the packets. No host has this address, so beta drops the arrivals.
const TO: &str = "10.99.0.9";

/// Python program that sends trains of 60 SCTP packets in UDP, from 64 flows in turn. Each packet has an advertisement and a DATA chunk
/// with 128 bytes of data. The program prints the number of packets, and its own processor time in microseconds.
const SENDER: &str = "
import resource, socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 9899))
s.setsockopt(17, 103, 12 + 8 + 144)
def packet(n):
    chunks = struct.pack('>BBHI', 150, n % 101, 8, n * 1000) + struct.pack('>BBHIHHI', 0, 3, 144, n, 0, 0, 0) + bytes(128)
    return struct.pack('>HHII', 1000 + n % 64, 7, 1, 0) + chunks
trains = [b''.join(packet(60 * t + n) for n in range(60)) for t in range(16)]
until, sent = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < until:
    for train in trains:
        s.sendto(train, (sys.argv[1], 9899))
        sent += 60
used = resource.getrusage(resource.RUSAGE_SELF)
print(sent, int((used.ru_utime + used.ru_stime) * 1e6))
";

/// Hosts of a measurement: alpha sends to beta through the middle host.
struct Setup {
    alpha: Host,
    beta: Host,
    middle: Host,
    link: Link,
}

/// Result of one run of the sender.
struct Passed {
    /// Number of packets sent.
    sent: f64,
    /// Number of packets that arrived.
    arrived: f64,
    /// Processor time of the sender, in microseconds.
    sender_us: f64,
}

/// Measures and judges everything.
pub(crate) fn run(lab: &Lab, report: &mut Report) -> Result<()> {
    let router = optimised::router()?;
    let discarded = Setup::routed(lab, 1, false)?.send()?;
    let forwarded = Setup::routed(lab, 3, true)?.send()?;
    let extra_us = forwarded.sender_us / forwarded.sent - discarded.sender_us / discarded.sent;
    let per_s = |rate: f64| grouped(&format!("{rate:.0}"));
    let mut table = Table::new("", ["by what", "sent/s", "arrived/s", "a core could pass/s"]);
    let mut row = |name: &str, passed: &Passed, most: String| {
        let [sent, arrived] = [passed.sent, passed.arrived].map(|packets| per_s(passed.rate(packets)));
        table.row([name.to_owned(), sent, arrived, most]);
    };
    let most = per_s(1e6 / extra_us.max(0.01));
    row("the kernel", &forwarded, format!("{most} (by {extra_us:.2} us more of the sender's time)"));
    let setup = Setup::gap(lab, 5)?;
    for policy in POLICIES {
        let (passed, used) = setup.by(&router, policy)?;
        let most = passed.arrived / used.as_secs_f64();
        row(policy, &passed, per_s(most));
        report.judge(format!("packets a core could pass by {policy}, 1/s"), &[most], Limit::AtLeast(GOAL));
    }
    report.show(table);
    Ok(())
}

impl Passed {
    fn rate(&self, packets: f64) -> f64 {
        packets / SECONDS.parse::<f64>().unwrap_or(1.0)
    }
}

impl Setup {
    /// Creates hosts where the middle host's kernel forwards packets. If `forwards` is false, this kernel discards the packets.
    fn routed(lab: &Lab, number: u8, forwards: bool) -> Result<Setup> {
        let [alpha, beta, middle] = Setup::hosts(lab, number)?;
        let first = lab.join(&alpha, &middle, number, Offloads::Off)?;
        let link = lab.join(&middle, &beta, number + 1, Offloads::Off)?;
        middle.tool("sysctl", &["-qw", &format!("net.ipv4.ip_forward={}", u8::from(forwards))])?;
        alpha.ip(&["route", "add", TO, "via", &first.right_v4().to_string()])?;
        middle.ip(&["route", "add", TO, "via", &link.right_v4().to_string()])?;
        Ok(Setup { alpha, beta, middle, link })
    }

    /// Creates hosts where only our program can forward through the middle host.
    fn gap(lab: &Lab, number: u8) -> Result<Setup> {
        let [alpha, beta, middle] = Setup::hosts(lab, number)?;
        let link = testbed::delay::gap(&alpha, &beta, number, &middle)?;
        alpha.ip(&["route", "add", TO, "via", &link.right_v4().to_string()])?;
        Ok(Setup { alpha, beta, middle, link })
    }

    fn hosts(lab: &Lab, number: u8) -> Result<[Host; 3]> {
        let host = |name: &str| lab.host(&format!("{name}{number}"));
        Ok([host("alpha")?, host("beta")?, host("middle")?])
    }

    /// Returns the number of packets that have arrived at beta's interface.
    fn arrived(&self) -> Result<f64> {
        let output = self.beta.ip(&["-s", "-j", "link", "show", &self.link.name()])?;
        let output: serde_json::Value = serde_json::from_str(&output)?;
        output[0]["stats64"]["rx"]["packets"].as_f64().context("no count of packets")
    }

    fn send(&self) -> Result<Passed> {
        let before = self.arrived()?;
        let mut sender = self.alpha.command("python3");
        sender.args(["-c", SENDER, TO, SECONDS]);
        let output = self.alpha.run("sender", sender, LIMIT)?.good()?.stdout;
        let mut numbers = output.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(sent)), Some(Ok(sender_us))) = (numbers.next(), numbers.next()) else {
            anyhow::bail!("the sender printed {output:?}");
        };
        Ok(Passed { sent, arrived: self.arrived()? - before, sender_us })
    }

    /// Sends through our router. Returns the result, and the router's processor time.
    fn by(&self, router: &Path, policy: &str) -> Result<(Passed, Duration)> {
        let mut command = self.middle.command(router);
        command.args(["run", "left", "right", "--rate", "unlimited", "--policy", policy, "--limit", "10000"]);
        let mut running = self.middle.spawn("router", command)?;
        running.wait_until("running", LIMIT, |it| it.stdout().contains("running"))?;
        let before = cpu::of_processes(&self.middle, "sctpify-router")?;
        let passed = self.send()?;
        let used = cpu::of_processes(&self.middle, "sctpify-router")?.saturating_sub(before);
        running.stop();
        ensure!(passed.arrived > 0.0 && !used.is_zero(), "nothing passed");
        Ok((passed, used))
    }
}
