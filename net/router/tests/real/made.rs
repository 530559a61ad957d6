//! Hand-made packets through the kernel's classes: every occupancy in every encapsulation, and packets that must not be
//! classified.

use std::collections::BTreeMap;

use testbed::{Host, Lab, Link, Offloads};

use crate::ends::{LIMIT, ROUTER, counted};

/// Sends each line of a file as an IP packet. A line holds the packet, including its IP header, in hexadecimal.
const SENDER: &str = "
import socket, sys
four = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
six = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
for line in open(sys.argv[1]):
    packet = bytes.fromhex(line)
    if packet[0] >> 4 == 4:
        four.sendto(packet, (sys.argv[2], 0))
    else:
        six.sendto(packet, (sys.argv[3], 0))
";
const SCTP: u8 = 132;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// A sending host with the classes, and a receiving host.
struct Hosts {
    middle: Host,
    _beta: Host,
    link: Link,
    lab: Lab,
}

impl Hosts {
    fn new() -> Hosts {
        let lab = Lab::new().unwrap();
        let (middle, beta) = (lab.host("middle").unwrap(), lab.host("beta").unwrap());
        let link = lab.join(&middle, &beta, 1, Offloads::Off).unwrap();
        // Resolves the neighbours first. Packets wait during the resolution, and the kernel drops packets if too many wait.
        for to in [link.right_v4().to_string(), link.right_v6().to_string()] {
            middle.tool("ping", &["-c", "1", "-W", "9", &to]).unwrap();
        }
        Hosts { middle, _beta: beta, link, lab }
    }

    fn router(&self, words: &[&str]) -> String {
        let mut command = self.middle.command(ROUTER);
        command.args(words);
        self.middle.run("router", command, LIMIT).unwrap().good().unwrap().stdout
    }

    fn v4(&self, protocol: u8, options: usize, fragment: u8, rest: &[u8]) -> Vec<u8> {
        let header = [0x45 + (options / 4) as u8, 0, 0, 0, 0, 0, 0, fragment, 64, protocol, 0, 0];
        let ends = [self.link.left_v4().octets(), self.link.right_v4().octets()].concat();
        [&header[..], &ends, &vec![1; options], rest].concat()
    }

    fn v6(&self, protocol: u8, rest: &[u8]) -> Vec<u8> {
        let [high, low] = (rest.len() as u16).to_be_bytes();
        let header = [0x60, 0, 0, 0, high, low, protocol, 64];
        let ends = [self.link.left_v6().octets(), self.link.right_v6().octets()].concat();
        [&header[..], &ends, rest].concat()
    }

    fn send(&self, packets: &[Vec<u8>]) {
        let hex =
            |packet: &Vec<u8>| packet.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
        let file = self.lab.dir().join("packets.txt");
        std::fs::write(&file, packets.iter().map(hex).collect::<String>()).unwrap();
        let [v4, v6] = [self.link.right_v4().to_string(), self.link.right_v6().to_string()];
        self.middle.tool("python3", &["-c", SENDER, file.to_str().unwrap(), &v4, &v6]).unwrap();
    }
}

fn sctp(chunks: &[u8]) -> Vec<u8> {
    [&[0x9c, 0x40, 0, 7, 1, 2, 3, 4, 0, 0, 0, 0], chunks, &[0, 3, 0, 17], &[0; 16]].concat()
}

fn udp(to: u16, rest: &[u8]) -> Vec<u8> {
    let length = (rest.len() as u16 + 8).to_be_bytes();
    [&[0x9c, 0x40], &to.to_be_bytes()[..], &length, &[0, 0], rest].concat()
}

/// Returns 101 packets in each of five encapsulations, and one packet whose advertisement has the backlog.
fn that_say_something(hosts: &Hosts) -> Vec<Vec<u8>> {
    let by_all_ways = |percent: u8| {
        let packet = sctp(&[150, percent, 0, 4]);
        [
            hosts.v4(SCTP, 0, 0, &packet),
            hosts.v4(SCTP, 4, 0, &packet),
            hosts.v4(UDP, 0, 0, &udp(9899, &packet)),
            hosts.v6(SCTP, &packet),
            hosts.v6(UDP, &udp(9899, &packet)),
        ]
    };
    let with_backlog = hosts.v4(SCTP, 0, 0, &sctp(&[150, 37, 0, 8, 0, 0, 1, 0]));
    (0..=100).flat_map(by_all_ways).chain([with_backlog]).collect()
}

/// Returns packets without a valid advertisement: other chunks, protocols and ports, invalid advertisements, a later fragment,
/// and a packet that ends within the chunk.
fn that_say_nothing(hosts: &Hosts) -> Vec<Vec<u8>> {
    let sound = sctp(&[150, 50, 0, 4]);
    let others = [
        [3, 50, 0, 16],
        [1, 50, 0, 20],
        [149, 50, 0, 4],
        [150, 101, 0, 4],
        [150, 255, 0, 4],
        [150, 50, 0, 3],
    ];
    let mut packets: Vec<_> = others.iter().map(|chunk| hosts.v4(SCTP, 0, 0, &sctp(chunk))).collect();
    packets.extend([
        hosts.v4(SCTP, 0, 0, &sctp(&[])),
        hosts.v4(TCP, 0, 0, &sound),
        hosts.v4(UDP, 0, 0, &udp(9898, &sound)),
        hosts.v4(SCTP, 0, 9, &sound),
        hosts.v4(SCTP, 0, 0, &sound[..14]),
        hosts.v6(TCP, &sound),
        hosts.v6(UDP, &udp(9898, &sound)),
    ]);
    packets
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn both_classifiers_put_crafted_packets_into_the_class_of_their_advertisement() {
    let hosts = Hosts::new();
    let link = hosts.link.name();
    let class = |n: u64| (format!("5ba:{}", n * 10), if n == 10 { 55 } else { 50 } + u64::from(n == 4));
    let expected: BTreeMap<String, u64> = (1..=10).map(class).collect();
    for classifier in ["bpf", "u32"] {
        let shape = [&link, "--rate", "100mbit", "--leaves", "pfifo", "--match", classifier];
        hosts.router(&[&["tc", "up"], &shape[..]].concat());
        let counted = || counted(&hosts.router(&["--json", "tc", "show", &link]));
        hosts.send(&that_say_nothing(&hosts));
        assert_eq!(counted(), BTreeMap::new(), "{classifier}");
        hosts.send(&that_say_something(&hosts));
        assert_eq!(counted(), expected, "{classifier}");
        hosts.router(&["tc", "down", &link]);
    }
}
