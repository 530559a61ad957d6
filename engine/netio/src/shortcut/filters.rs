//! Detects whether nftables, iptables or IPsec may filter the packets of this host.
//!
//! These count as filters:
//!
//! - A base chain of nftables' families ip, ip6 or inet, at any hook, unless the chain is in sctpify's own table. Chains for
//!   arriving packets also count. They may use connection tracking, which must also see leaving packets. Rules of iptables-nft
//!   are in base chains of these families.
//! - A table of iptables-legacy that is in use.
//! - An IPsec policy.
//!
//! If the kernel refuses an answer, the module assumes that filters exist. The module only reads the kernel's state.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_XFRM};

use crate::netlink::Netlink;

/// Mask of the netlink group that reports changes of nftables (`NFNLGRP_NFTABLES` is 7).
const NFTABLES_GROUP: u32 = 1 << 6;
/// Request for the chains of nftables: `NFT_MSG_GETCHAIN` of `NFNL_SUBSYS_NFTABLES`.
const GET_CHAIN: u16 = 10 << 8 | 4;
/// A `struct nfgenmsg` that selects all families, with version 0.
const ALL_FAMILIES: [u8; 4] = [0; 4];
/// Families of IP packets: `NFPROTO_INET`, `NFPROTO_IPV4`, `NFPROTO_IPV6`.
const IP_FAMILIES: [u8; 3] = [1, 2, 10];
/// Attributes of a chain: `NFTA_CHAIN_TABLE`, and `NFTA_CHAIN_HOOK`. Only base chains have the attribute `NFTA_CHAIN_HOOK`.
const CHAIN_TABLE: u16 = 1;
const CHAIN_HOOK: u16 = 4;
/// Bits of an attribute's type that are flags.
const ATTRIBUTE_FLAGS: u16 = 0xc000;
/// Request for IPsec policies: `XFRM_MSG_GETPOLICY`, and the length of `struct xfrm_userpolicy_id` in bytes.
const GET_POLICY: u16 = 0x15;
const POLICY_ID: usize = 64;
/// Files that list the tables of iptables-legacy in use. They are absent if the kernel has not loaded iptables-legacy.
const LEGACY: [&str; 2] = ["/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"];

/// Files that [`keep_filters_readable`] holds open.
static KEPT: OnceLock<[Option<File>; 2]> = OnceLock::new();

/// Opens the kernel's lists of tables of iptables-legacy, in the calling thread's network namespace. The files stay open until the
/// process ends. Only root may open them, but a process that has given up root can still read the open files.
pub fn keep_filters_readable() {
    KEPT.get_or_init(|| LEGACY.map(|path| File::open(path).ok()));
}

/// Query that asks the kernel whether filters exist, with the stored last answer.
pub(super) struct Filters {
    news: Netlink,
    own_table: Option<String>,
    answer: Option<bool>,
}

impl Filters {
    /// Opens a socket that receives the kernel's reports of changes of nftables. Chains in the table `own_table` do not count.
    ///
    /// # Errors
    /// The errors of netlink(7).
    pub(super) fn open(own_table: Option<&str>) -> io::Result<Filters> {
        let news = Netlink::open_for(NETLINK_NETFILTER, NFTABLES_GROUP, true)?;
        Ok(Filters { news, own_table: own_table.map(str::to_owned), answer: None })
    }

    /// Reports whether nftables changed since the last call.
    pub(super) fn has_news(&mut self) -> bool {
        self.news.has_news()
    }

    /// Discards the last answer, so the next query asks the kernel.
    pub(super) fn forget(&mut self) {
        self.answer = None;
    }

    /// Reports whether filters exist, or may exist. Asks the kernel only if no answer is stored.
    pub(super) fn are_there(&mut self) -> bool {
        if let Some(answer) = self.answer {
            return answer;
        }
        let answer = self.has_base_chain().unwrap_or(true)
            || has_policy().unwrap_or(true)
            || (0..LEGACY.len()).any(is_in_use);
        self.answer = Some(answer);
        answer
    }

    fn has_base_chain(&self) -> io::Result<bool> {
        let own = self.own_table.as_deref().map(str::as_bytes);
        let mut found = false;
        let mut netlink = Netlink::open_for(NETLINK_NETFILTER, 0, false)?;
        netlink.dump_bytes(GET_CHAIN, &ALL_FAMILIES, |chain| found |= is_foreign_base_chain(chain, own))?;
        Ok(found)
    }
}

/// Reports whether a chain is a base chain for IP packets in a table other than `own`. `chain` begins with a `struct nfgenmsg`.
fn is_foreign_base_chain(chain: &[u8], own: Option<&[u8]>) -> bool {
    let [family, _, _, _, rest @ ..] = chain else { return false };
    let (mut is_base, mut is_own) = (false, false);
    for_each_attribute(rest, |kind, value| match kind {
        CHAIN_HOOK => is_base = true,
        // The name ends with a zero byte.
        CHAIN_TABLE => is_own = own.is_some_and(|own| value.strip_suffix(&[0]) == Some(own)),
        _ => {}
    });
    IP_FAMILIES.contains(family) && is_base && !is_own
}

fn for_each_attribute(mut bytes: &[u8], mut f: impl FnMut(u16, &[u8])) {
    while let [a, b, c, d, ..] = *bytes {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let Some(value) = bytes.get(4..length) else { return };
        f(u16::from_ne_bytes([c, d]) & !ATTRIBUTE_FLAGS, value);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Reports whether IPsec policies exist.
fn has_policy() -> io::Result<bool> {
    let mut netlink = match Netlink::open_for(NETLINK_XFRM, 0, false) {
        // The kernel has no IPsec.
        Err(e) if e.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(false),
        outcome => outcome?,
    };
    let mut found = false;
    netlink.dump_bytes(GET_POLICY, &[0; POLICY_ID], |_| found = true)?;
    Ok(found)
}

/// Reports whether the list `number` names a table. If the list exists but cannot be read, returns true. A process without root
/// cannot read the list if the kernel loaded iptables-legacy after [`keep_filters_readable`].
fn is_in_use(number: usize) -> bool {
    let kept = KEPT.get().and_then(|kept| kept[number].as_ref());
    // If the kernel has unloaded iptables-legacy, a read of the open file fails. The path is then read instead.
    if let Some(Ok(length)) = kept.map(|file| file.read_at(&mut [0], 0)) {
        return length > 0;
    }
    match fs::read(LEGACY[number]) {
        Ok(text) => !text.is_empty(),
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn chain(family: u8, table: &[u8], is_base: bool) -> Vec<u8> {
        let mut bytes = vec![family, 0, 0, 0];
        bytes.extend(attribute(CHAIN_TABLE, table));
        if is_base {
            bytes.extend(attribute(CHAIN_HOOK | 0x8000, &[]));
        }
        bytes
    }

    #[test]
    fn a_base_chain_for_ip_is_a_filter_unless_its_table_is_ours() {
        for family in IP_FAMILIES {
            assert!(is_foreign_base_chain(&chain(family, b"filter\0", true), Some(b"shim")));
            assert!(is_foreign_base_chain(&chain(family, b"shimmer\0", true), Some(b"shim")));
            assert!(!is_foreign_base_chain(&chain(family, b"shim\0", true), Some(b"shim")));
            assert!(!is_foreign_base_chain(&chain(family, b"filter\0", false), None));
        }
    }

    #[test]
    fn arp_bridge_and_netdev_chains_do_not_count_as_filters() {
        for family in [3, 5, 7] {
            assert!(!is_foreign_base_chain(&chain(family, b"filter\0", true), None));
        }
    }

    #[test]
    fn a_truncated_chain_message_does_not_count_as_a_filter() {
        let whole = chain(1, b"filter\0", true);
        for cut in 0..whole.len() {
            assert!(!is_foreign_base_chain(&whole[..cut], None), "{cut}");
        }
    }
}
