//! Looks at the way to a host with real packets: INITs in UDP, which need no privilege.
//!
//! Whatever SCTP answers (INIT ACK, or ABORT where nothing is exposed) proves that UDP passes both ways, that somebody
//! speaks SCTP there, and that nobody rewrites checksums. A second, large INIT tells whether full packets pass. Nothing is
//! set up at the peer: it keeps nothing of an INIT (RFC 9260 section 5.1.3).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use control::{Check, Level};
use wire::{
    ChecksumMode, Chunk, CommonHeader, Init, Packet, PacketError, PacketWriter, Parameter, Parameters, Tsn,
    VerificationTag,
};

/// How long an answer may take, and how often is asked.
const PATIENCE: Duration = Duration::from_millis(700);
const TRIES: usize = 3;
/// Room for the largest packet.
const ROOM: usize = 1500;
/// Padding that makes an INIT of 1,400 bytes: with UDP and IP it fills most links' 1,500 well.
const PADDING: usize = 1364;
const A_RWND: u32 = 65_536;

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    /// SCTP, with the addresses that it offers besides.
    Sctp(Vec<IpAddr>),
    /// SCTP whose checksum is wrong: somebody between changed the packet.
    BadChecksum,
    /// The host says that nobody listens on the UDP port.
    Closed,
    /// This host has no way there.
    NoRoute(String),
    Silence,
}

/// Looks at the way to `peer`'s UDP port, SCTP port `sctp_port`.
pub(crate) fn checks(peer: IpAddr, udp_port: u16, sctp_port: u16) -> Vec<Check> {
    let to = SocketAddr::new(peer, udp_port);
    let small = ask(to, sctp_port, 0);
    let mut checks = vec![reachability(to, &small)];
    if let Answer::Sctp(addresses) = &small {
        checks.push(Check::ok("checksums", "arrive as they were sent"));
        checks.push(size(&ask(to, sctp_port, PADDING)));
        if !addresses.is_empty() {
            let list: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            checks.push(Check::ok("peer's addresses", list.join(", ")));
        }
    }
    checks
}

fn reachability(to: SocketAddr, answer: &Answer) -> Check {
    let bad = |found: String, remedy: &str| Check::bad("SCTP in UDP there", Level::Missing, found, remedy);
    match answer {
        Answer::Sctp(_) => Check::ok("SCTP in UDP there", format!("{to} answers")),
        Answer::BadChecksum => bad(
            format!("{to} answers, but with a wrong checksum"),
            "something on the way rewrites packets: a firewall or NAT that meddles with SCTP; leave UDP alone there",
        ),
        Answer::Closed => bad(
            format!("nobody listens on UDP port {} of {}", to.port(), to.ip()),
            "start sctpifyd there with `sctpify up`, or see its setting udp_port",
        ),
        Answer::NoRoute(why) => bad(format!("no way to {}: {why}", to.ip()), "look at `ip route get` for it"),
        Answer::Silence => bad(
            format!("no answer from {to}"),
            "let UDP pass to that port in firewalls on the way, both directions; or sctpifyd does not run there",
        ),
    }
}

fn size(answer: &Answer) -> Check {
    match answer {
        Answer::Sctp(_) => Check::ok("packet size", "1,400 bytes pass"),
        _ => Check::bad(
            "packet size",
            Level::Warning,
            "small packets are answered and those of 1,400 bytes are not",
            "the MTU is smaller somewhere and nobody says so; sctpify finds what passes, other programs may hang there",
        ),
    }
}

fn ask(to: SocketAddr, sctp_port: u16, padding: usize) -> Answer {
    let outcome = socket(to).and_then(|socket| {
        for _ in 0..TRIES {
            if let Some(answer) = exchange(&socket, sctp_port, padding)? {
                return Ok(answer);
            }
        }
        Ok(Answer::Silence)
    });
    outcome.unwrap_or_else(|error| match error.kind() {
        ErrorKind::ConnectionRefused => Answer::Closed,
        _ => Answer::NoRoute(error.to_string()),
    })
}

fn socket(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// One INIT and its answer; none in time is None.
fn exchange(socket: &UdpSocket, sctp_port: u16, padding: usize) -> io::Result<Option<Answer>> {
    let tag = random().max(1);
    let mut buffer = [0; ROOM];
    let length = write_init(&mut buffer, sctp_port, tag, padding);
    socket.send(&buffer[..length])?;
    match socket.recv(&mut buffer) {
        Ok(length) => Ok(read(&buffer[..length], tag)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_init(buffer: &mut [u8], sctp_port: u16, tag: u32, padding: usize) -> usize {
    // Any port of the dynamic range: the answer comes to our UDP port.
    let source_port = 49_152 | (random() as u16);
    // An INIT has no tag to verify yet (RFC 9260 section 8.5.1).
    let header = CommonHeader { source_port, destination_port: sctp_port, tag: VerificationTag(0) };
    let parameters = [Parameter::Padding { len: padding }];
    let used = if padding > 0 { &parameters[..] } else { &[] };
    let init = Init {
        tag: VerificationTag(tag),
        a_rwnd: A_RWND,
        outbound_streams: 1,
        inbound_streams: 1,
        initial_tsn: Tsn(random()),
        parameters: Parameters::from(used),
    };
    let mut writer = PacketWriter::new(buffer, header);
    // It fits: the buffer has room for more.
    let _ = writer.push(&Chunk::Init(init));
    writer.finish()
}

/// What a packet says, if it is an answer to the INIT with this tag.
fn read(bytes: &[u8], tag: u32) -> Option<Answer> {
    let header = CommonHeader::peek(bytes)?;
    if header.tag != VerificationTag(tag) && header.tag != VerificationTag(0) {
        return None;
    }
    let packet = match Packet::parse(bytes, ChecksumMode::Verify) {
        Ok(packet) => packet,
        Err(PacketError::Checksum { .. }) => return Some(Answer::BadChecksum),
        Err(_) => return None,
    };
    packet.chunks().flatten().find_map(|chunk| match chunk {
        Chunk::Abort(_) => Some(Answer::Sctp(Vec::new())),
        Chunk::InitAck(ack) => {
            let addresses = ack.parameters.iter().filter_map(|parameter| match parameter {
                Ok(Parameter::Ipv4Address(ip)) => Some(ip.into()),
                Ok(Parameter::Ipv6Address(ip)) => Some(ip.into()),
                _ => None,
            });
            Some(Answer::Sctp(addresses.collect()))
        }
        _ => None,
    })
}

/// Unpredictable enough for a probe that sets up nothing.
fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use wire::Abort;

    /// A host that answers INITs of up to `largest` bytes by ABORT, with `damage` to the packet.
    fn host(largest: usize, damage: u8) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 2000];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let packet = Packet::parse(&buffer[..length], ChecksumMode::Verify).unwrap();
                let Some(Ok(Chunk::Init(init))) = packet.chunks().next() else { panic!("no INIT") };
                let ports = (packet.header.destination_port, packet.header.source_port);
                let header = CommonHeader { source_port: ports.0, destination_port: ports.1, tag: init.tag };
                if length > largest {
                    continue;
                }
                let mut answer = [0; 100];
                let mut writer = PacketWriter::new(&mut answer, header);
                let abort = Abort { tag_reflected: false, causes: Default::default() };
                writer.push(&Chunk::Abort(abort)).unwrap();
                let length = writer.finish();
                answer[8] ^= damage;
                socket.send_to(&answer[..length], from).unwrap();
            }
        });
        address
    }

    fn levels(to: SocketAddr) -> Vec<(String, Level)> {
        checks(to.ip(), to.port(), 22).into_iter().map(|check| (check.name, check.level)).collect()
    }

    #[test]
    fn an_abort_proves_the_way_and_a_large_init_the_size() {
        let found = levels(host(2000, 0));
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["SCTP in UDP there", "checksums", "packet size"]);
        assert!(found.iter().all(|(_, level)| *level == Level::Ok), "{found:?}");
    }

    #[test]
    fn large_packets_that_vanish_are_a_warning() {
        let found = levels(host(1000, 0));
        assert_eq!(found.last().unwrap(), &("packet size".to_owned(), Level::Warning));
    }

    #[test]
    fn a_rewritten_checksum_is_told_apart_from_silence() {
        let to = host(2000, 1);
        let check = &checks(to.ip(), to.port(), 22)[0];
        assert!(check.found.contains("wrong checksum"), "{check:?}");
    }

    #[test]
    fn a_closed_port_says_to_start_the_daemon_there() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let check = &checks(free.ip(), free.port(), 22)[0];
        assert!(check.found.starts_with("nobody listens"), "{check:?}");
    }
}
