//! Numbers and names that an interceptor uses within one network namespace.

/// Settings of an interceptor. The defaults suit every host on which nothing else uses these numbers and names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The number of the NFQUEUE that holds SYNs.
    pub queue_number: u16,
    /// Limit on the SYNs that the kernel holds. If the queue is full, further SYNs pass as plain TCP.
    pub queue_length: u32,
    /// Limit on the concurrently diverted connections of each address family.
    pub set_size: u32,
    /// Name of the veth end in the host's namespace, 1 to 15 bytes.
    pub host_interface: String,
    /// Name of the veth end in the private namespace, 1 to 15 bytes.
    pub shim_interface: String,
    /// The port of the transparent listeners in the private namespace. Programs in other namespaces do not see this port.
    pub tproxy_port: u16,
    /// The routing table that routes marked packets to the private namespace, 1 to 252.
    pub routing_table: u8,
    /// The preference of the routing policy rules. With a low preference, these rules precede a VPN's rules. If `loopback` is
    /// true, the rules in the host's namespace have preference 0 instead.
    pub rule_preference: u32,
    /// The packet marks.
    pub marks: Marks,
    /// True if connections of the host to itself can also be held and diverted. Connections to `::1` cannot be diverted, because
    /// the kernel accepts packets with this address only on the loopback interface.
    pub loopback: bool,
    /// True if packets leave the namespace only through the private namespace (see
    /// [`Interceptor::enclose`](crate::Interceptor::enclose)).
    pub encloses: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            queue_number: 132,
            queue_length: 8192,
            set_size: 65536,
            host_interface: "shim0".to_owned(),
            shim_interface: "shim1".to_owned(),
            tproxy_port: 9898,
            routing_table: 133,
            rule_preference: 132,
            marks: Marks::default(),
            loopback: false,
            encloses: false,
        }
    }
}

/// The bits of the packet mark that an interceptor reads and writes. Other bits stay unchanged, except on a SYN that
/// [`Verdict::Deny`](crate::Verdict::Deny) answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// The bits used by sctpify.
    pub mask: u32,
    /// Mark of packets that go to the private namespace.
    pub shim: u32,
    /// Mark of the daemon's own TCP connections, whose SYNs are not held. The daemon sets this mark as `SO_MARK` on its own TCP
    /// sockets in the host's namespace.
    pub own: u32,
    /// Mark of packets that come from the private namespace and that a filter redirects to a client's interface. No routing rule
    /// matches this mark. A reverse-path lookup (`rp_filter` with `src_valid_mark`) therefore finds the client's interface.
    pub served: u32,
    /// Marks of denied SYNs in an enclosed namespace. Each mark selects the answer to the SYN. The first mark selects "refused",
    /// the second mark "host unreachable", and the third mark "network unreachable".
    pub denials: [u32; 3],
}

impl Default for Marks {
    fn default() -> Marks {
        Marks {
            mask: 0x0f00_0000,
            shim: 0x0100_0000,
            own: 0x0200_0000,
            denials: [0x0300_0000, 0x0400_0000, 0x0500_0000],
            served: 0x0600_0000,
        }
    }
}
