//! The TCP listeners of this host, as the kernel lists them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The kernel's name for the state LISTEN in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// Listeners listed at most.
const LISTED_MAX: usize = 1024;

/// All listeners of this network namespace; empty when the kernel does not tell.
pub(crate) fn listeners() -> Vec<SocketAddr> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut found = parse(&read("/proc/net/tcp"));
    found.extend(parse(&read("/proc/net/tcp6")));
    found.truncate(LISTED_MAX);
    found
}

fn parse(table: &str) -> Vec<SocketAddr> {
    let lines = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    lines.filter(|fields| fields.get(3) == Some(&LISTEN)).filter_map(|fields| address(fields[1])).collect()
}

/// An address as the kernel prints it: words of four bytes in host order, a colon, the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = (0..ip.len()).step_by(8).map(|at| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok());
    let bytes: Vec<u8> =
        words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn listeners_are_found_among_other_sockets() {
        let table = "  sl  local_address rem_address   st\n\
             0: 0100007F:0016 00000000:0000 0A 00000000:00000000\n\
             1: 0100007F:0017 0100007F:9999 01 00000000:00000000\n";
        assert_eq!(parse(table), ["127.0.0.1:22".parse().unwrap()]);
        let v6 = "head\n 0: 00000000000000000000000001000000:0050 0:0 0A\n";
        assert_eq!(parse(v6), ["[::1]:80".parse().unwrap()]);
        assert_eq!(parse("head\n 0: nonsense:0050 0:0 0A\n"), []);
    }
}
