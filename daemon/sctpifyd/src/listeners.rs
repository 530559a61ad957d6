//! Lists the TCP listeners of this host, as `/proc/net/tcp` and `/proc/net/tcp6` show them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::manual::Socket;

/// Code of the state LISTEN in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// Indices of the columns with a socket's owner and inode, counted from 0.
const UID: usize = 7;
const INODE: usize = 9;
/// Limit on the listeners that [`listeners`] returns.
const LISTED_MAX: usize = 1024;

/// The address of a listener, and the listener's socket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Listed {
    pub(crate) address: SocketAddr,
    pub(crate) socket: Socket,
}

/// Lists up to [`LISTED_MAX`] listeners of this network namespace, for display. If the kernel's files cannot be read, the list
/// is empty.
pub(crate) fn listeners() -> Vec<Listed> {
    let mut found = all_listeners();
    found.truncate(LISTED_MAX);
    found
}

/// Lists all listeners of this network namespace.
pub(crate) fn all_listeners() -> Vec<Listed> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut found = parse(&read("/proc/net/tcp"));
    found.extend(parse(&read("/proc/net/tcp6")));
    found
}

fn parse(table: &str) -> Vec<Listed> {
    let lines = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    lines.filter(|fields| fields.get(3) == Some(&LISTEN)).filter_map(|fields| listed(&fields)).collect()
}

fn listed(fields: &[&str]) -> Option<Listed> {
    let number = |place: usize| fields.get(place)?.parse().ok();
    let socket = Socket { uid: number(UID)?, inode: number(INODE)? };
    Some(Listed { address: address(fields[1])?, socket })
}

/// Parses an address as the kernel prints it: hexadecimal words of four bytes in host order, a colon, and the hexadecimal port.
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
        let is = |address: &str, uid, inode| Listed {
            address: address.parse().unwrap(),
            socket: Socket { uid, inode },
        };
        let rest =
            "00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0";
        let table = format!(
            "  sl  local_address rem_address   st\n\
             0: 0100007F:0016 00000000:0000 0A {rest}\n\
             1: 0100007F:0017 0100007F:9999 01 {rest}\n"
        );
        assert_eq!(parse(&table), [is("127.0.0.1:22", 1000, 4711)]);
        let v6 = format!("head\n 0: 00000000000000000000000001000000:0050 0:0 0A {rest}\n");
        assert_eq!(parse(&v6), [is("[::1]:80", 1000, 4711)]);
        assert_eq!(parse(&format!("head\n 0: nonsense:0050 0:0 0A {rest}\n")), []);
        assert_eq!(parse("head\n 0: 0100007F:0016 0:0 0A 0:0 0:0 0 1000 0\n"), [], "without a number");
    }
}
