//! `./x bench linkemu`: accuracy of the link emulator, judged from outside. The kernel's time stamps on both sides give the delay, and
//! iperf3 gives the rate.
//!
//! The emulator runs on a host between two others. A ping packet's delay is the difference of the kernel's time stamps at the sender's and
//! the receiver's interface (tcpdump). So the delay excludes the waits of the ping processes, but includes the two virtual interfaces.

use super::report::Report;
use crate::optimised;
use anyhow::{Context, Result};
use pages::stats::percentile;
use pages::{Limit, Table, grouped};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testbed::{Host, Lab, Process};

/// One-way delay that the measured pings must have.
const ONE_WAY: Duration = Duration::from_millis(20);
/// Limit on the 99th percentile of the pings' lateness on an idle link, in microseconds. Lateness is the measured delay minus [`ONE_WAY`].
const IDLE_GOAL_US: f64 = 300.0;
/// Limit on the 99th percentile of the pings' lateness under load, in microseconds.
const LOAD_GOAL_US: f64 = 1000.0;
/// Tolerated deviation of a measured rate, as a fraction of the set rate.
const RATE_GOAL: f64 = 0.03;
/// Number of measured pings.
const PINGS: &str = "2000";
/// Time between two pings, in seconds.
const INTERVAL: &str = "0.003";
/// Arguments of iperf3 for the load: UDP at 300 Mbit/s in datagrams of 1,400 bytes. The duration in seconds follows.
const LOAD: [&str; 6] = ["-u", "-b", "300M", "-l", "1400", "-t"];
/// Rates to set in bit/s. Each has its queue in packets, iperf3's duration in seconds, and the seconds that iperf3 omits at the start.
const RATES: [(f64, &str, &str, &str); 3] =
    [(1.5e6, "50", "12", "3"), (100e6, "200", "8", "2"), (1e9, "1000", "8", "2")];
/// Payload share of a 1,500-byte IP packet that carries TCP with time stamps.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;
/// Arguments of nice(1). Without a high priority, the machine's other load, instead of the link, could limit iperf3's rate.
const PRIORITY: [&str; 2] = ["-n", "-19"];
/// Beta's address.
const TO: &str = "10.9.0.2";
/// Limit on the duration of each command.
const LIMIT: Duration = Duration::from_secs(60);

/// Measures and judges everything.
pub(crate) fn run(lab: &Lab, report: &mut Report) -> Result<()> {
    let linkemu = optimised::linkemu()?;
    let setup = Setup::new(lab, &linkemu)?;
    let mut table = Table::new("Error of a delay of 20 ms, us", ["load", "p50", "p99", "max", "packets"]);
    for (name, load, goal) in [("idle", false, IDLE_GOAL_US), ("300 Mbit/s of UDP", true, LOAD_GOAL_US)] {
        let errors = setup.delay_errors(lab, load)?;
        let percentiles = [50, 99, 100].map(|percent| percentile(&errors, percent));
        let [p50, p99, max] = percentiles.map(|micros| format!("{micros:.1}"));
        table.row([name.to_owned(), p50, p99, max, errors.len().to_string()]);
        let figure = format!("99th percentile of the delay's error, {name}, us");
        report.judge(figure, &percentiles[1..2], Limit::AtMost(goal));
    }
    report.show(table);
    let mut table = Table::new("Rates", ["rate set, bit/s", "measured", "of it"]);
    for (rate, queue, seconds, omitted) in RATES {
        let share = setup.rate(rate, queue, &["-t", seconds, "-O", omitted])? / rate;
        let measured = [format!("{rate:.0}"), format!("{:.0}", share * rate), format!("{share:.4}")];
        table.row(measured);
        let figure = format!("rate measured, of {} bit/s", grouped(&format!("{rate:.0}")));
        report.judge(figure, &[share], Limit::Within(1.0 - RATE_GOAL, 1.0 + RATE_GOAL));
    }
    report.show(table);
    println!("{}", setup.linkemu_output(&["show"])?);
    setup.link.stop();
    Ok(())
}

/// Two hosts, and a middle host with an interface to each. The emulator runs on the middle host.
struct Setup<'a> {
    alpha: Host,
    beta: Host,
    middle: Host,
    linkemu: &'a Path,
    dir: PathBuf,
    link: Process,
}

impl<'a> Setup<'a> {
    /// Creates the hosts and starts the emulator. The interfaces keep their default offloads, so hosts do not split segments that exceed
    /// the MTU.
    fn new(lab: &Lab, linkemu: &'a Path) -> Result<Setup<'a>> {
        let (alpha, beta, middle) = (lab.host("alpha")?, lab.host("beta")?, lab.host("middle")?);
        for (host, far, address) in [(&alpha, "left", "10.9.0.1/24"), (&beta, "right", "10.9.0.2/24")] {
            let there = middle.namespace();
            host.ip(&["link", "add", "e0", "type", "veth", "peer", "name", far, "netns", there])?;
            host.ip(&["addr", "add", address, "dev", "e0"])?;
            host.ip(&["link", "set", "e0", "up"])?;
            middle.ip(&["link", "set", far, "up"])?;
        }
        let dir = middle.dir()?;
        let mut command = middle.command(linkemu);
        command.arg("--dir").arg(&dir).args(["run", "left", "right", "--name", "x"]);
        command.args(["--delay", &format!("{}ms", ONE_WAY.as_millis())]);
        let mut link = middle.spawn("linkemu", command)?;
        link.wait_until("a link", LIMIT, |process| process.stdout().contains("ready"))?;
        Ok(Setup { alpha, beta, middle, linkemu, dir, link })
    }

    /// Runs a command of the emulator, and returns its output.
    fn linkemu_output(&self, words: &[&str]) -> Result<String> {
        let mut command = self.middle.command(self.linkemu);
        command.arg("--dir").arg(&self.dir).args(words);
        Ok(self.middle.run("linkemu", command, LIMIT)?.good()?.stdout)
    }

    /// Returns the lateness of each ping: its delay minus [`ONE_WAY`], in microseconds. With `load`, the traffic of [`LOAD`] shares the
    /// link.
    fn delay_errors(&self, lab: &Lab, load: bool) -> Result<Vec<f64>> {
        let (out, arrived) = (self.capture(lab, &self.alpha)?, self.capture(lab, &self.beta)?);
        let server = self.serve()?;
        let flow = if load {
            let mut client = self.alpha.command("iperf3");
            client.args(["-c", TO]).args(LOAD).arg("10");
            let flow = self.alpha.spawn("iperf3", client)?;
            std::thread::sleep(Duration::from_secs(1));
            Some(flow)
        } else {
            None
        };
        let mut ping = self.alpha.command("ping");
        ping.args(["-q", "-c", PINGS, "-i", INTERVAL, TO]);
        self.alpha.run("ping", ping, LIMIT)?.good()?;
        if let Some(flow) = flow {
            flow.finish(LIMIT)?.good()?;
        }
        server.stop();
        let (sent, seen) = (out.stop()?, arrived.stop()?);
        let late = |number: &u16, at: &f64| sent.iter().find(|(n, _)| n == number).map(|(_, t)| at - t);
        let delays = seen.iter().filter_map(|(number, at)| late(number, at));
        Ok(delays.map(|delay| (delay - ONE_WAY.as_secs_f64()) * 1e6).collect())
    }

    /// Starts a capture of the echo requests at a host's interface.
    fn capture(&self, lab: &Lab, host: &Host) -> Result<Stamps> {
        let file = lab.dir().join(format!("{}.pcap", host.name()));
        let mut command = host.command("tcpdump");
        command.args(["-i", "e0", "-n", "-U", "-j", "host", "--time-stamp-precision=nano"]);
        command.args(["-s", "96", "-w"]).arg(&file).arg("icmp[icmptype]=icmp-echo");
        let mut process = host.spawn("tcpdump", command)?;
        process.wait_until("listening", LIMIT, |process| process.stderr().contains("listening on"))?;
        Ok(Stamps { file, process })
    }

    fn serve(&self) -> Result<Process> {
        let mut server = self.beta.command("nice");
        server.args(PRIORITY).args(["iperf3", "-s", "--forceflush"]);
        let mut server = self.beta.spawn("iperf3-server", server)?;
        server.wait_until("listening", LIMIT, |process| process.stdout().contains("listening"))?;
        Ok(server)
    }

    /// Returns the throughput at a set rate, in bit/s of IP packets. `words` are iperf3's arguments.
    fn rate(&self, rate: f64, queue: &str, words: &[&str]) -> Result<f64> {
        self.linkemu_output(&[
            "set",
            "x",
            "--rate",
            &format!("{rate}bit"),
            "--queue",
            queue,
            "--delay",
            "2ms",
        ])?;
        let server = self.serve()?;
        let mut client = self.alpha.command("nice");
        client.args(PRIORITY).args(["iperf3", "-J", "-c", TO]).args(words);
        let output = self.alpha.run("iperf3", client, LIMIT)?.good()?.stdout;
        server.stop();
        let output: serde_json::Value = serde_json::from_str(&output)?;
        let bits = output["end"]["sum_received"]["bits_per_second"].as_f64();
        Ok(bits.context("iperf3 reports no rate")? / PAYLOAD_SHARE)
    }
}

/// A capture of echo requests.
struct Stamps {
    file: PathBuf,
    process: Process,
}

impl Stamps {
    /// Ends the capture. Returns the sequence number of each request, with the request's time in seconds modulo 100,000.
    fn stop(self) -> Result<Vec<(u16, f64)>> {
        // tcpdump reads the kernel's ring once a second, so wait for the last packets.
        std::thread::sleep(Duration::from_millis(1500));
        self.process.stop();
        let bytes = std::fs::read(&self.file)?;
        let records = bytes.get(24..).context("tcpdump wrote nothing")?;
        Ok(stamps(records))
    }
}

/// Parses the records of a capture file. A record has four words in host byte order, then the frame. The words are seconds, nanoseconds,
/// captured length and length on the wire. Leaves out an incomplete record.
fn stamps(mut records: &[u8]) -> Vec<(u16, f64)> {
    /// Offset of an echo request's sequence number: the Ethernet header, an IPv4 header without options, and 6 bytes of ICMP.
    const NUMBER: usize = 14 + 20 + 6;
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_ne_bytes)
    };
    let mut stamps = Vec::new();
    while let (Some(seconds), Some(nanos), Some(length)) =
        (word(records, 0), word(records, 4), word(records, 8))
    {
        let Some(frame) = records.get(16..16 + length as usize) else { break };
        if let Some(&[high, low]) = frame.get(NUMBER..NUMBER + 2) {
            stamps.push((
                u16::from_be_bytes([high, low]),
                f64::from(seconds % 100_000) + f64::from(nanos) * 1e-9,
            ));
        }
        records = &records[16 + length as usize..];
    }
    stamps
}

#[cfg(test)]
mod tests {
    use super::stamps;

    #[test]
    fn numbers_and_times_of_echo_requests_are_read_and_a_cut_record_is_left_out() {
        let mut records = Vec::new();
        for (seconds, nanos, number) in [(7u32, 500_000_000u32, 1u16), (8, 0, 2)] {
            for word in [seconds, nanos, 60, 60] {
                records.extend(word.to_ne_bytes());
            }
            let mut frame = [0; 60];
            frame[40..42].copy_from_slice(&number.to_be_bytes());
            records.extend(frame);
        }
        assert_eq!(stamps(&records), [(1, 7.5), (2, 8.0)]);
        assert_eq!(stamps(&records[..100]), [(1, 7.5)]);
    }
}
