//! The numbers and names of an interceptor, all within one network namespace.

/// Settings of an interceptor. The default suits every host where nothing else uses these numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The number of the NFQUEUE that holds SYNs.
    pub queue_number: u16,
    /// Limit on the SYNs that the kernel holds; more pass as plain TCP.
    pub queue_length: u32,
    /// Limit on the concurrently diverted connections of each address family.
    pub set_size: u32,
    /// The veth end in the host's namespace, 1 to 15 bytes.
    pub host_interface: String,
    /// The veth end in the private namespace, 1 to 15 bytes.
    pub shim_interface: String,
    /// The port of the transparent listeners in the private namespace. No other program can see it.
    pub tproxy_port: u16,
    /// The routing table that leads marked packets to the private namespace, 1 to 252.
    pub routing_table: u8,
    /// The preference of the two routing policy rules; low, so that they precede a VPN's rules.
    pub rule_preference: u32,
    /// The packet marks.
    pub marks: Marks,
    /// Connections of the host to itself can also be held and diverted, except those to `::1`, whose packets the kernel accepts
    /// only from the loopback interface.
    pub loopback: bool,
    /// The namespace has no way out except the private one: everything that leaves it goes there (see
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

/// The bits of the packet mark that an interceptor reads and writes; it leaves the others unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// The bits used by sctpify.
    pub mask: u32,
    /// "Goes to the private namespace."
    pub shim: u32,
    /// "The daemon's own TCP, do not hold it": for `SO_MARK` on such sockets in the host's namespace.
    pub own: u32,
    /// "Came from the private namespace, and arrives by a client's interface". No routing rule matches it, so a lookup of the way
    /// back to a packet's source (`rp_filter` with `src_valid_mark`) finds the client's.
    pub served: u32,
    /// "Refused", "host unreachable", "network unreachable": the answer to a SYN in an enclosed namespace.
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
