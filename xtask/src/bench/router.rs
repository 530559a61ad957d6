//! `./x bench router`: packets that our own router passes in a second on one core, beside the kernel's forwarding of the same load.
//!
//! A host between two passes small SCTP packets of many flows, in UDP, with the chunk. What arrives is counted at the far interface, and
//! what our program takes by its processor time: the most that one core could pass is their quotient. The kernel forwards in its
//! sender's time, so its own part is what the sender takes longer than where the host between discards.

use crate::optimised;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::Duration;
use testbed::{Host, Lab, Link, Offloads, cpu};

/// What a core must be able to pass, in packets a second.
const GOAL: f64 = 200_000.0;
/// How long is sent.
const SECONDS: &str = "5";
const LIMIT: Duration = Duration::from_secs(60);
/// Policies that are measured.
const POLICIES: [&str; 4] = ["fifo", "fq-codel", "ltf", "finish"];
/// Where packets are sent: nobody has this address, so that beta drops what arrives.
const TO: &str = "10.99.0.9";

/// Sends trains of 60 SCTP packets in UDP, of 64 flows in turn, with a DATA chunk of 128 bytes behind the advertisement; prints how many packets, and
/// the processor time taken in microseconds.
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

/// Alpha sends to beta by the middle.
struct Way {
    alpha: Host,
    beta: Host,
    middle: Host,
    link: Link,
}

/// What became of a load.
struct Passed {
    /// Packets sent, and that arrived.
    sent: f64,
    arrived: f64,
    /// Processor time of the sender, in microseconds.
    sender_us: f64,
}

/// Measures and prints everything; whether the goal is met.
pub(crate) fn run(lab: &Lab) -> Result<bool> {
    let router = optimised::router()?;
    let discarded = Way::routed(lab, 1, false)?.send()?;
    let forwarded = Way::routed(lab, 3, true)?.send()?;
    let extra_us = forwarded.sender_us / forwarded.sent - discarded.sender_us / discarded.sent;
    println!("\nby what           sent/s    arrived/s   a core could pass/s");
    let kernel = format!("{:.0} (by {extra_us:.2} us more of the sender's time)", 1e6 / extra_us.max(0.01));
    println!(
        "{:<14} {:>9.0} {:>12.0}   {kernel}",
        "the kernel",
        forwarded.rate(forwarded.sent),
        forwarded.rate(forwarded.arrived)
    );
    let way = Way::gap(lab, 5)?;
    let mut is_good = true;
    for policy in POLICIES {
        let (passed, used) = way.by(&router, policy)?;
        let most = passed.arrived / used.as_secs_f64();
        is_good &= most >= GOAL;
        println!(
            "{policy:<14} {:>9.0} {:>12.0}   {most:.0}, goal {GOAL:.0}",
            passed.rate(passed.sent),
            passed.rate(passed.arrived)
        );
    }
    Ok(is_good)
}

impl Passed {
    fn rate(&self, packets: f64) -> f64 {
        packets / SECONDS.parse::<f64>().unwrap_or(1.0)
    }
}

impl Way {
    /// The kernel of the middle forwards, or discards.
    fn routed(lab: &Lab, number: u8, forwards: bool) -> Result<Way> {
        let [alpha, beta, middle] = Way::hosts(lab, number)?;
        let first = lab.join(&alpha, &middle, number, Offloads::Off)?;
        let link = lab.join(&middle, &beta, number + 1, Offloads::Off)?;
        middle.tool("sysctl", &["-qw", &format!("net.ipv4.ip_forward={}", u8::from(forwards))])?;
        alpha.ip(&["route", "add", TO, "via", &first.right_v4().to_string()])?;
        middle.ip(&["route", "add", TO, "via", &link.right_v4().to_string()])?;
        Ok(Way { alpha, beta, middle, link })
    }

    /// Nothing passes the middle but by our program.
    fn gap(lab: &Lab, number: u8) -> Result<Way> {
        let [alpha, beta, middle] = Way::hosts(lab, number)?;
        let link = testbed::delay::gap(&alpha, &beta, number, &middle)?;
        alpha.ip(&["route", "add", TO, "via", &link.right_v4().to_string()])?;
        Ok(Way { alpha, beta, middle, link })
    }

    fn hosts(lab: &Lab, number: u8) -> Result<[Host; 3]> {
        let host = |name: &str| lab.host(&format!("{name}{number}"));
        Ok([host("alpha")?, host("beta")?, host("middle")?])
    }

    /// What arrives at beta's interface.
    fn arrived(&self) -> Result<f64> {
        let told = self.beta.ip(&["-s", "-j", "link", "show", &self.link.name()])?;
        let told: serde_json::Value = serde_json::from_str(&told)?;
        told[0]["stats64"]["rx"]["packets"].as_f64().context("no count of packets")
    }

    fn send(&self) -> Result<Passed> {
        let before = self.arrived()?;
        let mut sender = self.alpha.command("python3");
        sender.args(["-c", SENDER, TO, SECONDS]);
        let told = self.alpha.run("sender", sender, LIMIT)?.good()?.stdout;
        let mut numbers = told.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(sent)), Some(Ok(sender_us))) = (numbers.next(), numbers.next()) else {
            anyhow::bail!("the sender told {told:?}");
        };
        Ok(Passed { sent, arrived: self.arrived()? - before, sender_us })
    }

    /// What passes by our router, and its processor time.
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
