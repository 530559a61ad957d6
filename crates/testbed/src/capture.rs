//! Captures packets in a host, and lets `tshark` judge them: which carrier was seen, what was wrong.
//!
//! `tshark` checks SCTP checksums only when told so in exactly the words used here; a test keeps a planted
//! bad packet for that. Judge captures of links with [`crate::Offloads::Off`]: a large segment that a card
//! would cut later is no packet.

use crate::host::{Host, output_of};
use crate::process::Process;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What in a packet makes a capture bad.
const FAULT_FIELDS: &[&str] = &[
    "sctp.checksum_bad.expert",
    "_ws.malformed",
    "sctp.chunk_length.bad",
    "sctp.parameter_length.bad",
    "sctp.sack_gap_block_malformed",
    "sctp.sack_gap_block_out_of_order",
    "sctp.retransmitted_after_ack",
];
/// How many faults are told one by one.
const FAULTS_TOLD_MAX: usize = 10;
/// How long `dumpcap` may take to begin or to end.
const LIMIT: Duration = Duration::from_secs(10);

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    process: Process,
    file: PathBuf,
}

/// What a capture holds.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Seen {
    /// TCP packets.
    pub tcp: u64,
    /// SCTP packets, bare or inside UDP.
    pub sctp: u64,
    /// SCTP packets by interface.
    pub sctp_by_interface: BTreeMap<String, u64>,
    /// Packets with a fault.
    pub faulty: u64,
    /// The first of them: frame number and what is wrong.
    pub faults: Vec<String>,
    /// Packets the capture missed; a verdict on counts is weak when this is not 0.
    pub missed: u64,
}

impl Capture {
    /// Begins to capture whole packets on interfaces of a host; returns when capturing runs.
    ///
    /// # Errors
    /// When `dumpcap` cannot be started or an interface does not exist.
    pub fn start(host: &Host, name: &str, interfaces: &[&str]) -> Result<Self> {
        let file = host.dir()?.join(format!("{name}.pcapng"));
        let mut command = host.command("dumpcap");
        command.args(["-q", "-B", "64", "-w"]).arg(&file);
        for interface in interfaces {
            command.args(["-i", interface]);
        }
        let mut process = host.spawn(&format!("dumpcap-{name}"), command)?;
        process.wait_until("capture file", LIMIT, |process| process.stderr().contains("File: "))?;
        Ok(Self { process, file })
    }

    /// Ends the capture and judges it.
    ///
    /// # Errors
    /// When `dumpcap` or `tshark` fails.
    pub fn judge(self) -> Result<Seen> {
        // What is on its way through the kernel's ring reaches the file.
        std::thread::sleep(Duration::from_millis(200));
        self.process.signal(nix::sys::signal::Signal::SIGINT)?;
        let finished = self.process.finish(LIMIT)?;
        let mut seen = judge_file(&self.file)?;
        seen.missed = missed(&finished.stderr);
        std::fs::remove_file(&self.file).with_context(|| format!("cannot remove {}", self.file.display()))?;
        Ok(seen)
    }
}

/// Lets `tshark` judge a capture file.
///
/// # Errors
/// When `tshark` fails.
pub fn judge_file(file: &Path) -> Result<Seen> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-Q", "-o", "sctp.checksum:CRC 32c", "-T", "fields", "-E", "separator=/t"]);
    for field in ["frame.number", "frame.interface_name", "frame.protocols"].iter().chain(FAULT_FIELDS) {
        command.args(["-e", field]);
    }
    command.arg("-r").arg(file);
    let text = output_of(command)?;
    let mut seen = Seen::default();
    for line in text.lines() {
        count(&mut seen, line)?;
    }
    Ok(seen)
}

/// Adds one packet: a line of tab-separated fields in the order asked for.
fn count(seen: &mut Seen, line: &str) -> Result<()> {
    let fields: Vec<&str> = line.split('\t').collect();
    ensure!(fields.len() == 3 + FAULT_FIELDS.len(), "tshark printed an unexpected line: {line}");
    let layers: Vec<&str> = fields[2].split(':').collect();
    let network = layers.iter().position(|layer| matches!(*layer, "ip" | "ipv6"));
    let transport = network.map_or(&[][..], |n| &layers[n + 1..]);
    match transport {
        ["tcp", ..] => seen.tcp += 1,
        ["sctp", ..] | ["udp", "sctp", ..] => {
            seen.sctp += 1;
            *seen.sctp_by_interface.entry(fields[1].to_owned()).or_default() += 1;
        }
        _ => {}
    }
    let wrong: Vec<&str> = FAULT_FIELDS
        .iter()
        .zip(&fields[3..])
        .filter(|(name, value)| is_fault(name, value))
        .map(|(name, _)| *name)
        .collect();
    if !wrong.is_empty() {
        seen.faulty += 1;
        if seen.faults.len() < FAULTS_TOLD_MAX {
            seen.faults.push(format!("frame {}: {}", fields[0], wrong.join(", ")));
        }
    }
    Ok(())
}

/// User data may look malformed to the dissector of the port it was sent to; that is no fault of the packet.
fn is_fault(name: &str, value: &str) -> bool {
    !value.is_empty()
        && (name != "_ws.malformed"
            || ["SCTP", "UDP", "IP"].iter().any(|layer| value.contains(&format!(": {layer}"))))
}

/// Packets that `dumpcap` says it dropped, on all interfaces: "Packets received/dropped on interface 'x': 5/0 (...)".
fn missed(stderr: &str) -> u64 {
    let lines = stderr.lines().filter(|line| line.contains("received/dropped on interface"));
    let counts = lines.filter_map(|line| {
        line.rsplit("': ").next()?.split_once('/')?.1.split(' ').next()?.parse::<u64>().ok()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::{Seen, count, missed};

    #[test]
    fn tcp_quoted_inside_icmp_is_not_counted_as_tcp() {
        let mut seen = Seen::default();
        count(&mut seen, "1\tpath1\teth:ethertype:ip:icmp:ip:tcp\t\t\t\t\t\t\t").unwrap();
        assert_eq!(seen, Seen::default());
    }

    #[test]
    fn sctp_is_counted_bare_and_inside_udp() {
        let mut seen = Seen::default();
        count(&mut seen, "1\tpath1\teth:ethertype:ip:sctp\t\t\t\t\t\t\t").unwrap();
        count(&mut seen, "2\tpath2\teth:ethertype:ipv6:udp:sctp:data\t\t\t\t\t\t\t").unwrap();
        assert_eq!((seen.sctp, seen.sctp_by_interface["path2"]), (2, 1));
    }

    #[test]
    fn user_data_that_looks_malformed_is_no_fault_but_a_malformed_packet_is() {
        let mut seen = Seen::default();
        count(
            &mut seen,
            "1\t\teth:ethertype:ip:sctp:http\t\t_ws.malformed,[Malformed Packet: HTTP]\t\t\t\t\t",
        )
        .unwrap();
        assert_eq!(seen.faulty, 0);
        count(&mut seen, "2\t\teth:ethertype:ip:sctp\t\t_ws.malformed,[Malformed Packet: SCTP]\t\t\t\t\t")
            .unwrap();
        assert_eq!(seen.faults, ["frame 2: _ws.malformed"]);
    }

    #[test]
    fn packets_that_the_capture_missed_are_summed_over_interfaces() {
        let text = "Packets received/dropped on interface 'path1': 5/2 (pcap:0/dumpcap:0)\n\
                    Packets received/dropped on interface 'path2': 9/3 (pcap:0/dumpcap:0)";
        assert_eq!(missed(text), 5);
    }
}
