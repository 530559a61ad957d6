//! Captures packets in a host, and evaluates the packets with `tshark`. The result shows the carrier and the
//! faulty packets.
//!
//! `tshark` checks SCTP checksums only with the preferences in this module. A test with planted bad packets
//! verifies that `tshark` finds them. The captured links should have [`crate::Offloads::Off`]. Otherwise,
//! captures show large segments instead of the packets into which a card splits them.

use crate::host::{Host, output_of};
use crate::process::{Finished, Process};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time after which a capture file that does not grow is complete.
const RING_PAUSE: Duration = Duration::from_millis(300);
/// Maximum number of pauses before a capture file counts as complete, because endless traffic must not block
/// the verdict.
const RING_ROUNDS_MAX: usize = 20;
/// Preferences of `tshark`: check checksums, and do not reassemble user data. Reassembly takes minutes for a
/// large file.
const PREFERENCES: &[&str] = &[
    "sctp.checksum:CRC 32c",
    "sctp.reassembly:FALSE",
    "tcp.desegment_tcp_streams:FALSE",
    "tcp.analyze_sequence_numbers:FALSE",
];
/// Fields read from every packet.
const PACKET_FIELDS: &[&str] = &[
    "frame.number",
    "frame.len",
    "frame.interface_name",
    "frame.protocols",
    "sctp.checksum",
    "sctp.chunk_type",
];
/// The field of a checksum that differs from the packet's CRC32c.
const WRONG_CHECKSUM: &str = "sctp.checksum_bad.expert";
/// Fields whose presence marks a packet as faulty.
const FAULT_FIELDS: &[&str] = &[
    WRONG_CHECKSUM,
    "_ws.malformed",
    "sctp.chunk_length.bad",
    "sctp.parameter_length.bad",
    "sctp.sack_gap_block_malformed",
    "sctp.sack_gap_block_out_of_order",
    "sctp.retransmitted_after_ack",
];
/// Maximum number of faults listed individually.
const FAULTS_TOLD_MAX: usize = 10;
/// Size of the kernel's ring for each interface, in MiB.
const RING_MIB: &str = "128";
/// Limit on the bytes that `dumpcap` buffers in memory while the disk is slow. The default limit of 1,000
/// packets is too small.
const QUEUE_BYTES: &str = "536870912";
/// Limit on the time for the start, or for the end, of `dumpcap`.
const LIMIT: Duration = Duration::from_secs(20);
/// Limit on the run time of `tshark` for one capture.
const JUDGE_LIMIT: Duration = Duration::from_secs(120);

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    host: Host,
    process: Process,
    file: PathBuf,
}

/// Evaluated content of a capture.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Seen {
    /// TCP packets.
    pub tcp: u64,
    /// Bytes of frames with TCP.
    pub tcp_bytes: u64,
    /// SCTP packets, over IP (protocol 132) or inside UDP.
    pub sctp: u64,
    /// Bytes of frames with SCTP over IP.
    pub sctp_ip_bytes: u64,
    /// Bytes of frames with SCTP inside UDP.
    pub sctp_udp_bytes: u64,
    /// Bytes of frames with SCTP, for each interface.
    pub sctp_bytes_by_interface: BTreeMap<String, u64>,
    /// Number of packets with a fault.
    pub faulty: u64,
    /// Frame number and faults of up to ten faulty packets.
    pub faults: Vec<String>,
    /// Packets that the capture missed. The counts are reliable only if this number is 0.
    pub missed: u64,
}

impl Seen {
    /// Returns the protocol that carried the most bytes: "tcp", "sctp-udp", "sctp" (IP protocol 132), or
    /// "none".
    pub fn carrier(&self) -> &'static str {
        let sums = [(self.tcp_bytes, "tcp"), (self.sctp_udp_bytes, "sctp-udp"), (self.sctp_ip_bytes, "sctp")];
        let most = sums.into_iter().max_by_key(|(bytes, _)| *bytes);
        most.filter(|(bytes, _)| *bytes > 0).map_or("none", |(_, name)| name)
    }
}

impl Capture {
    /// Starts to capture whole packets on interfaces of a host. Returns once the capture is running.
    ///
    /// # Errors
    /// When `dumpcap` cannot be started or an interface does not exist.
    pub fn start(host: &Host, name: &str, interfaces: &[&str]) -> Result<Self> {
        let file = host.dir()?.join(format!("{name}.pcapng"));
        let mut command = host.command("dumpcap");
        command.args(["-q", "-B", RING_MIB, "-C", QUEUE_BYTES, "-w"]).arg(&file);
        for interface in interfaces {
            command.args(["-i", interface]);
        }
        let mut process = host.spawn(&format!("dumpcap-{name}"), command)?;
        process.wait_until("capture file", LIMIT, |process| process.stderr().contains("File: "))?;
        Ok(Self { host: host.clone(), process, file })
    }

    /// Ends the capture and evaluates it.
    ///
    /// # Errors
    /// When `dumpcap` or `tshark` fails.
    pub fn judge(self) -> Result<Seen> {
        let (output, finished) = self.end(tshark)?;
        let mut seen = judgement(&output)?;
        seen.missed = missed(&finished.stderr);
        Ok(seen)
    }

    /// Ends the capture, runs `tshark` on its file, and removes the file. Returns the output of `tshark` and
    /// the result of `dumpcap`.
    fn end(self, tshark: impl FnOnce(&Path) -> Command) -> Result<(String, Finished)> {
        self.wait_for_the_ring();
        self.process.signal(nix::sys::signal::Signal::SIGINT)?;
        let finished = self.process.finish(LIMIT)?;
        let output = self.host.run("tshark", tshark(&self.file), JUDGE_LIMIT)?.good()?;
        std::fs::remove_file(&self.file).with_context(|| format!("cannot remove {}", self.file.display()))?;
        Ok((output.stdout, finished))
    }

    /// Ends the capture. Returns the output of `tshark` with these arguments, such as `["-T", "fields", "-e",
    /// "frame.time_epoch"]`.
    ///
    /// # Errors
    /// When `dumpcap` or `tshark` fails.
    pub fn dissect(self, words: &[&str]) -> Result<String> {
        let command = |file: &Path| {
            let mut command = Command::new("tshark");
            command.args(["-n", "-Q"]).args(words).arg("-r").arg(file);
            command
        };
        Ok(self.end(command)?.0)
    }

    /// Waits until the file stops growing, because packets in the kernel's ring reach the file late.
    fn wait_for_the_ring(&self) {
        let length = || std::fs::metadata(&self.file).map_or(0, |file| file.len());
        let mut before = length();
        for _ in 0..RING_ROUNDS_MAX {
            std::thread::sleep(RING_PAUSE);
            let now = length();
            if now == before {
                return;
            }
            before = now;
        }
    }
}

/// Evaluates a capture file with `tshark`.
///
/// # Errors
/// When `tshark` fails.
pub fn judge_file(file: &Path) -> Result<Seen> {
    judgement(&output_of(tshark(file))?)
}

fn tshark(file: &Path) -> Command {
    let mut command = Command::new("tshark");
    command.args(["-n", "-Q", "-T", "fields", "-E", "separator=/t"]);
    PREFERENCES.iter().for_each(|preference| _ = command.args(["-o", preference]));
    for field in PACKET_FIELDS.iter().chain(FAULT_FIELDS) {
        command.args(["-e", field]);
    }
    command.arg("-r").arg(file);
    command
}

fn judgement(fields: &str) -> Result<Seen> {
    let mut seen = Seen::default();
    for line in fields.lines() {
        count(&mut seen, line)?;
    }
    Ok(seen)
}

/// Adds one packet to `seen`. `line` has its tab-separated fields in the requested order.
fn count(seen: &mut Seen, line: &str) -> Result<()> {
    let fields: Vec<&str> = line.split('\t').collect();
    ensure!(
        fields.len() == PACKET_FIELDS.len() + FAULT_FIELDS.len(),
        "tshark printed an unexpected line: {line}"
    );
    let (packet, faults) = fields.split_at(PACKET_FIELDS.len());
    let bytes: u64 = packet[1].parse().with_context(|| format!("tshark gave no frame length: {line}"))?;
    count_carrier(seen, bytes, packet[2], packet[3]);
    let needs_no_checksum = needs_no_checksum(packet[3], packet[4], packet[5]);
    let values = FAULT_FIELDS.iter().zip(faults).filter(|(name, value)| is_fault(name, value));
    let wrong: Vec<&str> =
        values.map(|(name, _)| *name).filter(|name| *name != WRONG_CHECKSUM || !needs_no_checksum).collect();
    if !wrong.is_empty() {
        seen.faulty += 1;
        if seen.faults.len() < FAULTS_TOLD_MAX {
            seen.faults.push(format!("frame {}: {}", packet[0], wrong.join(", ")));
        }
    }
    Ok(())
}

/// Counts a packet by the layer after its first IP header. An ICMP packet may quote another packet, which
/// must not count.
fn count_carrier(seen: &mut Seen, bytes: u64, interface: &str, protocols: &str) {
    let layers: Vec<&str> = protocols.split(':').collect();
    let network = layers.iter().position(|layer| matches!(*layer, "ip" | "ipv6"));
    let sum = match network.map_or(&[][..], |n| &layers[n + 1..]) {
        ["tcp", ..] => {
            seen.tcp += 1;
            seen.tcp_bytes += bytes;
            return;
        }
        ["sctp", ..] => &mut seen.sctp_ip_bytes,
        ["udp", "sctp", ..] => &mut seen.sctp_udp_bytes,
        _ => return,
    };
    *sum += bytes;
    seen.sctp += 1;
    *seen.sctp_bytes_by_interface.entry(interface.to_owned()).or_default() += bytes;
}

/// Reports whether a packet has a checksum of zero and may have it: it consists of one DTLS chunk, over UDP (RFC 9653).
fn needs_no_checksum(protocols: &str, checksum: &str, chunk_types: &str) -> bool {
    const DTLS: &str = "65";
    protocols.contains(":udp:sctp") && checksum == "0x00000000" && chunk_types == DTLS
}

/// Reports whether a field is a fault. A malformed layer counts only if it is SCTP, UDP or IP. User data may
/// look malformed, because the dissector of the port may expect another protocol.
fn is_fault(name: &str, value: &str) -> bool {
    !value.is_empty()
        && (name != "_ws.malformed"
            || ["SCTP", "UDP", "IP"].iter().any(|layer| value.contains(&format!(": {layer}"))))
}

/// Returns the number of packets that `dumpcap` reports as dropped, on all interfaces. For each interface,
/// `dumpcap` prints "Packets received/dropped on interface 'x': 5/0 (...)".
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

    fn seen(lines: &[&str]) -> Seen {
        let mut seen = Seen::default();
        lines.iter().for_each(|line| count(&mut seen, line).unwrap());
        seen
    }

    #[test]
    fn tcp_quoted_inside_icmp_is_not_counted_as_tcp() {
        assert_eq!(seen(&["1\t90\tpath1\teth:ethertype:ip:icmp:ip:tcp\t\t\t\t\t\t\t\t\t"]), Seen::default());
    }

    #[test]
    fn sctp_is_counted_bare_and_inside_udp() {
        let seen = seen(&[
            "1\t100\tpath1\teth:ethertype:ip:sctp\t\t\t\t\t\t\t\t\t",
            "2\t900\tpath2\teth:ethertype:ipv6:udp:sctp:data\t\t\t\t\t\t\t\t\t",
        ]);
        assert_eq!((seen.sctp, seen.sctp_ip_bytes, seen.sctp_udp_bytes), (2, 100, 900));
        assert_eq!((seen.sctp_bytes_by_interface["path2"], seen.carrier()), (900, "sctp-udp"));
    }

    #[test]
    fn user_data_that_looks_malformed_is_no_fault_but_a_malformed_packet_is() {
        let seen = seen(&[
            "1\t90\t\teth:ethertype:ip:sctp:http\t\t\t\t_ws.malformed,[Malformed Packet: HTTP]\t\t\t\t\t",
            "2\t90\t\teth:ethertype:ip:sctp\t\t\t\t_ws.malformed,[Malformed Packet: SCTP]\t\t\t\t\t",
        ]);
        assert_eq!(seen.faults, ["frame 2: _ws.malformed"]);
    }

    #[test]
    fn a_checksum_of_zero_is_no_fault_only_for_one_dtls_chunk_over_udp() {
        let expert = "sctp.checksum_bad.expert";
        let line = |number: u8, layers: &str, checksum: &str, chunks: &str| {
            format!("{number}\t90\tpath1\teth:ethertype:{layers}\t{checksum}\t{chunks}\t{expert}\t\t\t\t\t\t")
        };
        let lines = [
            line(1, "ip:udp:sctp", "0x00000000", "65"),
            line(2, "ip:udp:sctp", "0x00000000", "65,0"),
            line(3, "ip:udp:sctp", "0x00000001", "65"),
            line(4, "ip:sctp", "0x00000000", "65"),
            line(5, "ip:udp:sctp", "0x00000000", "0"),
        ];
        let seen = seen(&lines.each_ref().map(String::as_str));
        assert_eq!(seen.faults, [2, 3, 4, 5].map(|number| format!("frame {number}: {expert}")));
    }

    #[test]
    fn packets_that_the_capture_missed_are_summed_over_interfaces() {
        let text = "Packets received/dropped on interface 'path1': 5/2 (pcap:0/dumpcap:0)\n\
                    Packets received/dropped on interface 'path2': 9/3 (pcap:0/dumpcap:0)";
        assert_eq!(missed(text), 5);
    }
}
