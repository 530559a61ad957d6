//! The private namespace's table. TCP that enters through the veth goes to the socket of its connection. If no socket of the
//! connection exists, the packet goes to a transparent listener. The table needs no owner, because no other program can enter the
//! namespace.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use super::{BaseChain, Batch, NEWTABLE, Refusal, TABLE, add_chain, add_rule};
use crate::config::Config;
use crate::netlink::Netlink;

const CHAIN: BaseChain = BaseChain { name: "pre", kind: "filter", hook: 0, priority: -150 };
const PART: &str = "nftables rule with tproxy (CONFIG_NFT_TPROXY)";

/// IPPROTO_ICMP and IPPROTO_ICMPV6, each with its type of echo requests.
const ECHO_REQUESTS: [(u8, u8); 2] = [(1, 8), (58, 128)];

/// Creates the table over `netlink`, a socket of the private namespace. Without `ipv6`, the table has no rules for IPv6 TCP and
/// UDP.
pub(crate) fn create_shim_table(netlink: &mut Netlink, config: &Config, ipv6: bool) -> Result<(), Refusal> {
    let mut batch = Batch::new(netlink);
    batch.add(PART, NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, |message| message.string(1, TABLE));
    add_chain(&mut batch, PART, &CHAIN);
    let families = [libc::AF_INET as u8, libc::AF_INET6 as u8];
    let families = &families[..if ipv6 { 2 } else { 1 }];
    for &family in families {
        add_rule(&mut batch, PART, CHAIN.name, |rule| {
            rule.came_in_by(&config.shim_interface);
            rule.is_family(family);
            rule.is_tcp();
            rule.tproxy(family, config.tproxy_port);
            rule.accept();
        });
    }
    if config.encloses {
        enclose(&mut batch, families, config);
    }
    batch.commit()
}

/// Adds rules that send UDP to the listener for datagrams and refuse echo requests. This host must not answer echo requests for
/// another host.
fn enclose(batch: &mut Batch<'_>, families: &[u8], config: &Config) {
    const PROHIBITED: u8 = 3;
    for family in families {
        add_rule(batch, PART, CHAIN.name, |rule| {
            rule.came_in_by(&config.shim_interface);
            rule.is_family(*family);
            rule.is_udp();
            rule.tproxy(*family, config.tproxy_port);
            rule.accept();
        });
    }
    for (protocol, kind) in ECHO_REQUESTS {
        add_rule(batch, PART, CHAIN.name, |rule| {
            rule.came_in_by(&config.shim_interface);
            rule.is_echo_request(protocol, kind);
            rule.reject_by_icmp(PROHIBITED);
        });
    }
}
