//! Parses the name servers in the resolver's configuration, for commands in a separate network namespace.

use std::net::IpAddr;

/// Path of the resolver's configuration.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Returns the addresses of all name servers, in the order of the file.
pub fn name_servers(resolv_conf: &str) -> Vec<IpAddr> {
    resolv_conf.lines().filter_map(name_server).collect()
}

/// Returns the first name server if its address is on loopback. Such a server cannot be reached from another network namespace, because
/// each namespace has its own loopback interface.
pub fn loopback_name_server(resolv_conf: &str) -> Option<IpAddr> {
    resolv_conf.lines().find_map(name_server).filter(IpAddr::is_loopback)
}

/// Returns the configuration with `stand_in` in place of all its name servers.
pub fn with_name_server(resolv_conf: &str, stand_in: IpAddr) -> String {
    let others = resolv_conf.lines().filter(|line| name_server(line).is_none());
    let mut text = format!("nameserver {stand_in}\n");
    for line in others {
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn name_server(line: &str) -> Option<IpAddr> {
    let mut words = line.split_whitespace();
    if words.next() != Some("nameserver") {
        return None;
    }
    words.next()?.split('%').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUB: &str = "# made by a program\nnameserver 127.0.0.53\noptions edns0\nsearch example.org\n";

    #[test]
    fn a_loopback_name_server_is_found_only_if_it_is_the_first() {
        assert_eq!(loopback_name_server(STUB), Some([127, 0, 0, 53].into()));
        assert_eq!(loopback_name_server("nameserver 10.0.0.1\nnameserver 127.0.0.1\n"), None);
        assert_eq!(name_servers(STUB), [IpAddr::from([127, 0, 0, 53])]);
        assert_eq!(loopback_name_server("nameserver fe80::1%eth0\n"), None);
    }

    #[test]
    fn a_stand_in_takes_the_place_of_the_name_servers_and_of_nothing_else() {
        let text = with_name_server(STUB, [169, 254, 132, 2].into());
        let expected = "nameserver 169.254.132.2\n# made by a program\noptions edns0\nsearch example.org\n";
        assert_eq!(text, expected);
    }
}
