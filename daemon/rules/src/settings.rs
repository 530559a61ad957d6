//! Defines the settings of the shim in one table: names, types, ranges, defaults and documentation.
//!
//! The commands `sctpify get` and `set` read the table [`SETTINGS`]. The configuration file, its manual page and its printed
//! default use the same table.

mod kind;

use std::net::SocketAddr;

pub use kind::Kind;

use crate::nearest;
use crate::{
    Advertise, AdvertiseInterval, Advertisement, Carriers, Congestion, DeclaredRules, Encryption, Interfaces,
    Links, Multipath, Streams, Weights,
};

/// Prefix of the settings' names in the papers' FreeBSD kernel. The prefix is removed before a name is looked up.
const SYSCTL_PREFIX: &str = "net.inet.sctp.shim.";

/// The values of all settings.
///
/// Invariant: every value is in the range given by [`SETTINGS`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Global switch. If it is off, all new connections stay plain TCP.
    pub enable: bool,
    /// Default policy for programs that listen on this host.
    pub default_local_enable: bool,
    /// Default policy for programs that connect to other hosts.
    pub default_remote_enable: bool,
    /// Number of retransmissions of an INIT before the connection falls back to TCP; 0 to 12.
    pub init_rtx_max: u32,
    /// True if a listener that is bound to one address is offered to peers on all addresses of the host.
    pub force_bindall: bool,
    /// Limit on the time that a connection waits for SCTP before it falls back to TCP, in milliseconds; 10 to 3000.
    pub race_timer_ms: u32,
    /// UDP port of SCTP in UDP, on this host and at peers; 1 to 65535. If a peer's packet shows another port, that port is
    /// used.
    pub udp_port: u16,
    /// Encapsulations of SCTP packets.
    pub carriers: Carriers,
    /// Interfaces and addresses that SCTP uses and announces to peers.
    pub interfaces: Interfaces,
    /// Limit on the memory of all associations together, in MiB; 16 to 1048576.
    pub memory_mib: u32,
    /// TCP port on 127.0.0.1 of the status page and the metrics; 0 means that neither is served there.
    pub page_port: u16,
    /// Address and TCP port of the listener that serves the metrics to other hosts; `None` means no listener.
    pub metrics_listen: Option<SocketAddr>,
    /// File with the token that requests to `metrics_listen` must contain; empty means no token.
    pub metrics_token: String,
    /// True if the learned table records destinations that do not support SCTP.
    pub learn: bool,
    /// Number of consecutive failures that disable a destination which has worked within a day; 1 to 100.
    pub learned_failures: u32,
    /// Duration of a destination's first disabling, in seconds; 1 to 86400. Connections to a disabled destination are plain
    /// TCP.
    pub learned_hold_s: u32,
    /// Limit on the duration of a destination's disabling, in seconds; 1 to 604800.
    pub learned_hold_max_s: u32,
    /// URL of the Redis server through which several hosts share learned entries; empty means no sharing.
    pub learned_store: String,
    /// File with the trusted root certificates for the connection to `learned_store`; empty means the system's root
    /// certificates.
    pub learned_store_roots: String,
    /// Use of an association's paths for data: one at a time, or several at once.
    pub multipath: Multipath,
    /// Weights of the paths, if `multipath` is weighted.
    pub multipath_weights: Weights,
    /// Congestion control of associations.
    pub congestion: Congestion,
    /// True if the rules also apply to connections of this host to itself.
    pub loopback: bool,
    /// Packet mark of connections that are tried over SCTP regardless of the rules; 0 means no mark.
    pub manual_mark: u32,
    /// True if users may expose their own listeners to SCTP.
    pub manual_listen: bool,
    /// File with the keys that this host shares with other hosts; empty means no keys.
    pub peer_keys: String,
    /// True if hosts that have a key in `peer_keys` must prove this key.
    pub peer_key_required: bool,
    /// Encryption of associations.
    pub encryption: Encryption,
    /// True if the daemon gives up the capabilities that it does not need.
    pub confine_capabilities: bool,
    /// True if the daemon is restricted to the system calls that it needs.
    pub confine_system_calls: bool,
    /// True if the daemon can access only the files that it needs.
    pub confine_files: bool,
    /// User of the daemon's worker. If the value is empty: the user `sctpify`, or an unassigned user id if this user does not
    /// exist.
    pub worker_user: String,
    /// True if SCTP over IP may bypass parts of the kernel that would have no effect on the packets.
    pub ip_shortcuts: bool,
    /// True if peers' connections may arrive through the shim's own interface. The shim's interface is used only when the connections
    /// cannot arrive through the interfaces on which the peers' packets arrive.
    pub deliver_by_shim: bool,
    /// Sharing of associations by the connections to one host.
    pub streams: Streams,
    /// Time without connections after which a shared association ends, in seconds; 1 to 86400.
    pub shared_idle_s: u32,
    /// Form of the send-buffer advertisement of connections whose rule sets no form.
    pub advertise: Advertise,
    /// Interval of advertisements in the form `timer`, for connections whose rule sets no interval.
    pub advertise_interval: AdvertiseInterval,
    /// Chunk type of advertisements; 133 to 190. These chunk types are not assigned. A receiver that does not know the type
    /// skips the chunk silently (RFC 9260 section 3.2).
    pub advertise_type: u8,
    /// Policies of this host's links.
    pub links: Links,
    /// Rules that the configuration file declares.
    pub rules: DeclaredRules,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            enable: true,
            default_local_enable: false,
            default_remote_enable: false,
            init_rtx_max: 12,
            force_bindall: false,
            race_timer_ms: 250,
            udp_port: 9899,
            carriers: Carriers::Both,
            interfaces: Interfaces::default(),
            memory_mib: 512,
            page_port: 0,
            metrics_listen: None,
            metrics_token: String::new(),
            learn: true,
            learned_failures: 3,
            learned_hold_s: 60,
            learned_hold_max_s: 3600,
            learned_store: String::new(),
            learned_store_roots: String::new(),
            multipath: Multipath::Off,
            multipath_weights: Weights::default(),
            congestion: Congestion::Cubic,
            loopback: false,
            manual_mark: 0,
            manual_listen: false,
            peer_keys: String::new(),
            peer_key_required: true,
            encryption: Encryption::Try,
            confine_capabilities: true,
            confine_system_calls: true,
            confine_files: true,
            worker_user: String::new(),
            ip_shortcuts: true,
            deliver_by_shim: false,
            streams: Streams::Shared,
            shared_idle_s: 300,
            advertise: Advertise::Off,
            advertise_interval: AdvertiseInterval::default(),
            advertise_type: 150,
            links: Links::default(),
            rules: DeclaredRules::default(),
        }
    }
}

/// One row of the table of settings.
#[derive(Debug)]
pub struct Setting {
    /// Name, as in `sctpify set NAME=VALUE` and in the configuration file.
    pub name: &'static str,
    /// Type and range of the values.
    pub kind: Kind,
    /// Description, in full sentences.
    pub doc: &'static str,
    /// True if a change takes effect only at the next start of the daemon.
    pub needs_restart: bool,
    read: fn(&Settings) -> String,
    write: fn(&mut Settings, &str) -> Option<()>,
}

/// All settings, in display order.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "enable",
        kind: Kind::Bool,
        doc: "The global switch. With 0, all new connections stay plain TCP, whatever the rules; live connections \
              over SCTP continue.",
        needs_restart: false,
        read: |s| number(s.enable),
        write: |s, v| put(&mut s.enable, parse_bool(v)),
    },
    Setting {
        name: "default_local_enable",
        kind: Kind::Bool,
        doc: "Default policy for programs that listen on this host. With 0, SCTP reaches only listeners that a \
              local-enable rule allows. With 1, SCTP reaches every listener that TCP reaches, except those of \
              local-disable rules. A firewall that closes a port to TCP closes it to SCTP too.",
        needs_restart: false,
        read: |s| number(s.default_local_enable),
        write: |s, v| put(&mut s.default_local_enable, parse_bool(v)),
    },
    Setting {
        name: "default_remote_enable",
        kind: Kind::Bool,
        doc: "Default policy for programs that connect to other hosts. With 0, only destinations of remote-enable \
              rules are tried over SCTP. With 1, all are, except those of remote-disable rules.",
        needs_restart: false,
        read: |s| number(s.default_remote_enable),
        write: |s, v| put(&mut s.default_remote_enable, parse_bool(v)),
    },
    Setting {
        name: "init_rtx_max",
        kind: Kind::Number { min: 0, max: 12, unit: "times" },
        doc: "Number of retransmissions of an unanswered INIT before the connection falls back to TCP. They follow every 40 ms; \
              from the seventh on, the interval doubles each time. So 0 waits 40 ms, 1 waits 80 ms, 5 waits 240 ms, and 6 to 11 \
              wait 280, 360, 520, 840, 1480 and 2760 ms. The race timer (race_timer_ms) also ends the wait: with its 250 ms, all \
              values from 6 on have the same effect. With 12, only the race timer ends the wait.",
        needs_restart: false,
        read: |s| s.init_rtx_max.to_string(),
        write: |s, v| put(&mut s.init_rtx_max, v.parse().ok()),
    },
    Setting {
        name: "force_bindall",
        kind: Kind::Bool,
        doc: "With 1, a listener bound to one address is offered to SCTP peers on all addresses of the host, so its \
              connections have all paths. With 0, it is offered on the bound address only.",
        needs_restart: false,
        read: |s| number(s.force_bindall),
        write: |s, v| put(&mut s.force_bindall, parse_bool(v)),
    },
    Setting {
        name: "race_timer_ms",
        kind: Kind::Number { min: 10, max: 3000, unit: "ms" },
        doc: "Limit on the time that a new connection waits for SCTP before it falls back to TCP. After a fallback, \
              the wait counts as the connection's first round-trip sample, so values above 300 slow its first \
              retransmissions.",
        needs_restart: false,
        read: |s| s.race_timer_ms.to_string(),
        write: |s, v| put(&mut s.race_timer_ms, v.parse().ok()),
    },
    Setting {
        name: "udp_port",
        kind: Kind::Number { min: 1, max: 65535, unit: "" },
        doc: "UDP port of SCTP in UDP (RFC 6951) on this host and, until a packet shows another, at peers. A port below 1024 \
              is opened only at the start: busy peers get no separate sockets, and the daemon does not retry if it is in use.",
        needs_restart: true,
        read: |s| s.udp_port.to_string(),
        write: |s, v| put(&mut s.udp_port, v.parse().ok()),
    },
    Setting {
        name: "carriers",
        kind: Kind::Word(Carriers::WORDS),
        doc: "Encapsulation of SCTP packets: udp (SCTP in UDP, passes NATs and clouds), ip132 (IP protocol 132, as \
              native SCTP peers use it), or both (for each peer, the one that answers first).",
        needs_restart: true,
        read: |s| s.carriers.to_string(),
        write: |s, v| put(&mut s.carriers, v.parse().ok()),
    },
    Setting {
        name: "interfaces",
        kind: Kind::Interfaces,
        doc: "Interfaces and addresses of this host that SCTP uses and announces to peers: eth0 wwan* 192.0.2.0/24; ! excludes \
              one. If any is named without !, only the named ones are used, and all peers learn them. Otherwise, a connection \
              begins with the address that TCP would use, and the peer learns further addresses on links with a default route or \
              a route to it. A neighbour that this host connects to also learns those on other networks. These are announced only \
              if named: private addresses to a peer with a public one, container bridges, tunnels and VPNs, and bridges without \
              a default route. A connection that begins in a tunnel or VPN stays in it. `sctpify doctor` lists excluded ones with \
              the reason.",
        needs_restart: true,
        read: |s| s.interfaces.to_string(),
        write: |s, v| put(&mut s.interfaces, v.parse().ok()),
    },
    Setting {
        name: "memory_mib",
        kind: Kind::Number { min: 16, max: 1_048_576, unit: "MiB" },
        doc: "Limit on the memory of all SCTP associations together, for data in transit and its bookkeeping. Each \
              association begins with 64 KiB in each direction, and grows with its path up to 16 MiB. At three quarters of \
              the limit, none grows. At seven eighths, new connections stay plain TCP, and buffers shrink as they empty. The \
              associations with one host share a quarter of the limit, with the same steps.",
        needs_restart: true,
        read: |s| s.memory_mib.to_string(),
        write: |s, v| put(&mut s.memory_mib, v.parse().ok()),
    },
    Setting {
        name: "page_port",
        kind: Kind::Number { min: 0, max: 65_535, unit: "" },
        doc: "TCP port on 127.0.0.1 of the status page (/) and of metrics for Prometheus (/metrics); 0 for none. All users \
              of this host can read them, and nothing can be changed there. Requests for a host other than localhost or \
              127.0.0.1 are refused.",
        needs_restart: true,
        read: |s| s.page_port.to_string(),
        write: |s, v| put(&mut s.page_port, v.parse().ok()),
    },
    Setting {
        name: "metrics_listen",
        kind: Kind::Listen,
        doc: "Address and TCP port on which other hosts get the metrics for Prometheus (/metrics), and nothing else: \
              192.0.2.7:9898, [2001:db8::7]:9898, 0.0.0.0:9898 for all IPv4 addresses, or [::]:9898 for all addresses; empty for none. A request must have the \
              header Authorization with `Bearer` and the token of metrics_token. The metrics contain the addresses of this host and its \
              peers, and travel unencrypted.",
        needs_restart: true,
        read: |s| s.metrics_listen.map_or_else(String::new, |address| address.to_string()),
        write: |s, v| put(&mut s.metrics_listen, parse_listen(v)),
    },
    Setting {
        name: "metrics_token",
        kind: Kind::Path,
        doc: "File with the token of metrics_listen: 16 to 1024 printable ASCII characters without blanks (`openssl rand -hex \
              32`). Only root may have read access to the file. The daemon reads it at the start.",
        needs_restart: true,
        read: |s| s.metrics_token.clone(),
        write: |s, v| put(&mut s.metrics_token, is_path(v).then(|| v.to_owned())),
    },
    Setting {
        name: "learn",
        kind: Kind::Bool,
        doc: "Automatic configuration. With 1, the daemon learns destinations without SCTP, and connections to them use \
              plain TCP at once until a background probe is answered. With 0, it learns nothing and ignores learned \
              destinations. Rules for a single host override learned entries. `shimrules -C` and -B set this.",
        needs_restart: false,
        read: |s| number(s.learn),
        write: |s, v| put(&mut s.learn, parse_bool(v)),
    },
    Setting {
        name: "learned_failures",
        kind: Kind::Number { min: 1, max: 100, unit: "times" },
        doc: "Number of consecutive failures after which a destination that has worked within the last day is kept on \
              TCP; failures within one second count once. Any other destination is kept on TCP after its first failure.",
        needs_restart: false,
        read: |s| s.learned_failures.to_string(),
        write: |s, v| put(&mut s.learned_failures, v.parse().ok()),
    },
    Setting {
        name: "learned_hold_s",
        kind: Kind::Number { min: 1, max: 86_400, unit: "s" },
        doc: "Time that a failing destination is kept on TCP before its first probe. The time doubles with each failed probe.",
        needs_restart: false,
        read: |s| s.learned_hold_s.to_string(),
        write: |s, v| put(&mut s.learned_hold_s, v.parse().ok()),
    },
    Setting {
        name: "learned_hold_max_s",
        kind: Kind::Number { min: 1, max: 604_800, unit: "s" },
        doc: "Limit on the time between two probes of a destination that is kept on TCP and in use.",
        needs_restart: false,
        read: |s| s.learned_hold_max_s.to_string(),
        write: |s, v| put(&mut s.learned_hold_max_s, v.parse().ok()),
    },
    Setting {
        name: "learned_store",
        kind: Kind::Url(STORES),
        doc: "Redis server through which a group of hosts shares learned destinations, such as redis://192.0.2.9/0, \
              rediss://redis.example/0 with TLS or redis+unix:///run/redis.sock. If empty, each host learns alone, as it does \
              while the server does not answer. Clients with write access to the server decide which destinations the hosts \
              keep on TCP. A password in the URL is visible to all users who may read settings.",
        needs_restart: true,
        read: |s| s.learned_store.clone(),
        write: |s, v| put(&mut s.learned_store, is_store(v).then(|| v.to_owned())),
    },
    Setting {
        name: "learned_store_roots",
        kind: Kind::Path,
        doc: "PEM file of trusted root certificates for a learned_store with TLS, such as a private CA's. If empty: \
              /etc/ssl/certs/ca-certificates.crt. The daemon reads it at the start.",
        needs_restart: true,
        read: |s| s.learned_store_roots.clone(),
        write: |s, v| put(&mut s.learned_store_roots, is_path(v).then(|| v.to_owned())),
    },
    Setting {
        name: "multipath",
        kind: Kind::Word(Multipath::WORDS),
        doc: "Concurrent use of several paths by one connection, for data that this host sends. off: one path at a time \
              carries data, and another takes over when it fails. lowest-rtt: all paths carry data, the fastest first, so a \
              transfer gets the sum of its links; over a shared bottleneck, they together take one flow's share. weighted: \
              all paths carry data, in proportion to their weights in multipath_weights, while they have room. redundant: all \
              paths carry all data, and the first copy counts, so the loss of a packet or a path has no effect; this takes \
              twice the bandwidth or more.",
        needs_restart: true,
        read: |s| s.multipath.to_string(),
        write: |s, v| put(&mut s.multipath, v.parse().ok()),
    },
    Setting {
        name: "multipath_weights",
        kind: Kind::Weights,
        doc: "Weights of the paths if multipath is weighted. A path has the weight of the first network in this list that \
              contains its local or remote address, or else 1. 192.0.2.0/24=3 198.51.100.7=1 sends three times as much over \
              the first network's uplink as over the other. A change applies to paths that come up later.",
        needs_restart: false,
        read: |s| s.multipath_weights.to_string(),
        write: |s, v| put(&mut s.multipath_weights, v.parse().ok()),
    },
    Setting {
        name: "congestion",
        kind: Kind::Word(Congestion::WORDS),
        doc: "Congestion control of data that this host sends. cubic (RFC 9438), as most TCP stacks have it: each loss \
              signals congestion. rfc9260: the same, with the rules of SCTP's RFC, which equal TCP Reno's. loss-tolerant: for \
              links that lose packets without congestion, such as radio; it sends at the delivery rate, and slows down when \
              delay grows. On a congested link it takes more than a fair share, so do not use it on networks shared with \
              other users.",
        needs_restart: true,
        read: |s| s.congestion.to_string(),
        write: |s, v| put(&mut s.congestion, v.parse().ok()),
    },
    Setting {
        name: "loopback",
        kind: Kind::Bool,
        doc: "With 1, the rules also apply to connections of this host to itself. Those to 127.0.0.0/8 and to its own \
              addresses then pass this daemon twice, once for each end; this is slower than TCP, and useful to test programs. \
              Connections to ::1 are always plain TCP, because the kernel accepts that address from its loopback interface \
              only.",
        needs_restart: true,
        read: |s| number(s.loopback),
        write: |s, v| put(&mut s.loopback, parse_bool(v)),
    },
    Setting {
        name: "manual_mark",
        kind: Kind::Number { min: 0, max: u32::MAX, unit: "" },
        doc: "Packet mark of connections that are tried over SCTP whatever the rules and the learned table (the papers' \
              ENABLE_MANUAL); 0 for none. A program sets it with the socket option SO_MARK. An nftables chain at the output \
              hook with a priority below -155 sets it by user or cgroup: `meta skuid alice meta mark set 7`.",
        needs_restart: false,
        read: |s| s.manual_mark.to_string(),
        write: |s, v| put(&mut s.manual_mark, v.parse().ok()),
    },
    Setting {
        name: "manual_listen",
        kind: Kind::Bool,
        doc: "With 1, users with access to the control socket (root, and the group sctpify) may expose their own listeners to \
              SCTP, with `sctpify expose` or from a program: the papers' socket option of servers. This applies to that socket \
              only, while the requester stays connected to the control socket. It overrides the default policy only: \
              local-disable rules take precedence. Root may always expose any listener.",
        needs_restart: false,
        read: |s| number(s.manual_listen),
        write: |s, v| put(&mut s.manual_listen, parse_bool(v)),
    },
    Setting {
        name: "peer_keys",
        kind: Kind::Path,
        doc: "File of the keys that this host shares with other sctpify hosts. Each line has an address, a prefix or * for all \
              hosts, then blanks and a random key of at least 16 bytes, literal or as hex:00ff.... (`openssl rand -hex 32`); who \
              connects can try guesses of a passphrase. Only root may have read access to the \
              file. An association with a host of a line begins only if both ends prove that they have the same key. Where both \
              encrypt, the key is mixed into the keys of packets. Elsewhere packets are signed: signatures follow RFC 4895, but \
              with a key for each direction, which other SCTP implementations do not support. All hosts of a line can impersonate each other, so give each pair its own key. \
              `sctpify reload` reads the file again; existing associations keep their key.",
        needs_restart: true,
        read: |s| s.peer_keys.clone(),
        write: |s, v| put(&mut s.peer_keys, is_path(v).then(|| v.to_owned())),
    },
    Setting {
        name: "peer_key_required",
        kind: Kind::Bool,
        doc: "With 1, hosts that peer_keys names get no association without their key. With 0, hosts without a key are still \
              accepted, and a network that strips the proof is not noticed. Use 0 only until all hosts of a group have their \
              keys.",
        needs_restart: false,
        read: |s| number(s.peer_key_required),
        write: |s, v| put(&mut s.peer_key_required, parse_bool(v)),
    },
    Setting {
        name: "encryption",
        kind: Kind::Word(Encryption::WORDS),
        doc: "Encryption of associations with other sctpify hosts, and proof of their keys. off: none is offered. try: it is used \
              with each host that offers it, too. A host's key is written down at the first connection to one of its addresses. \
              If another key or none is found there later, connections to that address are plain TCP, with a warning, until \
              `sctpify peers forget`. require: hosts without it get no association. A connection to a host whose key is known is \
              encrypted or refused. Where a rule has no --require, connections to other hosts without encryption are plain TCP. \
              A rule may differ by `shimrules --secure`, except where this is off. \
              `sctpify status` shows which associations are encrypted.",
        needs_restart: true,
        read: |s| s.encryption.to_string(),
        write: |s, v| put(&mut s.encryption, v.parse().ok()),
    },
    Setting {
        name: "confine_capabilities",
        kind: Kind::Bool,
        doc: "With 1, the daemon drops all capabilities except CAP_NET_ADMIN and CAP_NET_RAW after setup, and cannot gain new \
              ones. 0 is for debugging. `sctpify status` shows the state in force.",
        needs_restart: true,
        read: |s| number(s.confine_capabilities),
        write: |s, v| put(&mut s.confine_capabilities, parse_bool(v)),
    },
    Setting {
        name: "confine_system_calls",
        kind: Kind::Bool,
        doc: "With 1, the kernel accepts only the system calls that the daemon needs (seccomp). Starting a program, entering a \
              namespace or loading a module kills it; other calls fail. 0 is for debugging.",
        needs_restart: true,
        read: |s| number(s.confine_system_calls),
        write: |s, v| put(&mut s.confine_system_calls, parse_bool(v)),
    },
    Setting {
        name: "confine_files",
        kind: Kind::Bool,
        doc: "With 1, the daemon's worker can access only the kernel's socket lists and, if learned_store names a host, the \
              files for name resolution. Its supervisor can access only the daemon's own files (Landlock, Linux 5.13 or \
              later). 0 is for debugging.",
        needs_restart: true,
        read: |s| number(s.confine_files),
        write: |s, v| put(&mut s.confine_files, parse_bool(v)),
    },
    Setting {
        name: "worker_user",
        kind: Kind::User,
        doc: "User that the daemon's worker changes to after setup, so it does not run as root. Its supervisor stays root, and \
              writes the daemon's files. If empty: the user sctpify, which the package creates, or else the first unassigned \
              user ID from 60899 on. Name a user without other processes and files. With a learned_store of redis+unix, the \
              worker keeps the user's groups; otherwise it has none. root is for debugging.",
        needs_restart: true,
        read: |s| s.worker_user.clone(),
        write: |s, v| put(&mut s.worker_user, is_user(v).then(|| v.to_owned())),
    },
    Setting {
        name: "ip_shortcuts",
        kind: Kind::Bool,
        doc: "With 1, long trains of SCTP packets over IP (protocol 132) go to the interface through a packet socket, which \
              takes two thirds of the time, if the host would not filter them: no nftables chain for IP except sctpify's, no \
              iptables, no IPsec policy. If any exists, or with 0, they pass the kernel's IP layer. tc sees all packets.",
        needs_restart: true,
        read: |s| number(s.ip_shortcuts),
        write: |s, v| put(&mut s.ip_shortcuts, parse_bool(v)),
    },
    Setting {
        name: "deliver_by_shim",
        kind: Kind::Bool,
        doc: "Treatment of peers' connections if this kernel cannot deliver them through the interface on which the peer's \
              packets arrived (`sctpify doctor` reports this, and the missing feature). With 0, they are refused over SCTP, and \
              use plain TCP. With 1, local programs get them through the interface shim0: firewall rules that match the \
              interface, to drop or to accept, do not apply to them; rules that match addresses and ports do.",
        needs_restart: false,
        read: |s| number(s.deliver_by_shim),
        write: |s, v| put(&mut s.deliver_by_shim, parse_bool(v)),
    },
    Setting {
        name: "streams",
        kind: Kind::Word(Streams::WORDS),
        doc: "Sharing of an association by connections to another sctpify host. shared: the first connection has its own \
              association. Later ones share a second association, with a pair of streams each: they begin after one round trip \
              and at its speed, and none waits for another's lost packets or slow program. own: each connection has its own \
              association. Sharing requires shared on both hosts.",
        needs_restart: false,
        read: |s| s.streams.to_string(),
        write: |s, v| put(&mut s.streams, v.parse().ok()),
    },
    Setting {
        name: "shared_idle_s",
        kind: Kind::Number { min: 1, max: 86_400, unit: "s" },
        doc: "Time without connections after which a shared association ends. The setting of its initiator applies.",
        needs_restart: false,
        read: |s| s.shared_idle_s.to_string(),
        write: |s, v| put(&mut s.shared_idle_s, v.parse().ok()),
    },
    Setting {
        name: "advertise",
        kind: Kind::Word(Advertise::WORDS),
        doc: "Form of the send-buffer advertisement of new connections, for data that this host sends. It tells routers how much \
              data waits, in a separate chunk (advertise_type) that receivers skip. off: none. timer: bytes and percent every \
              five seconds (advertise_interval_ms), in a separate packet if no data leaves in time. backlog: bytes and percent in \
              every packet with data. percent: percent in every packet with data. quantised: the same, in tens. economical: tens, \
              in the first packet of a burst, in every eighth, and after a change. seed-compat: tenths of the used buffer, as in \
              the experiments of 2016. Every observer on the path can read how much a program sends and when it pauses. A rule's \
              --advertise sets the form for some connections.",
        needs_restart: false,
        read: |s| s.advertise.to_string(),
        write: |s, v| put(&mut s.advertise, v.parse().ok()),
    },
    Setting {
        name: "advertise_interval_ms",
        kind: Kind::Number { min: AdvertiseInterval::MIN_MS, max: AdvertiseInterval::MAX_MS, unit: "ms" },
        doc: "Interval of new connections' advertisements in the form timer (advertise). A rule's \
              --advertise-interval sets it for some connections.",
        needs_restart: false,
        read: |s| s.advertise_interval.to_string(),
        write: |s, v| put(&mut s.advertise_interval, v.parse().ok()),
    },
    Setting {
        name: "advertise_type",
        kind: Kind::Number { min: 133, max: 190, unit: "" },
        doc: "Chunk type of new connections' advertisements, which routers look for (sctpify-router --chunk-type). 150, from \
              the project of 2016, is unassigned.",
        needs_restart: false,
        read: |s| s.advertise_type.to_string(),
        write: |s, v| put(&mut s.advertise_type, v.parse().ok()),
    },
    Setting {
        name: "link",
        kind: Kind::Links,
        doc: "Policies of this host's links; each is a table [[link]] of this file. The first whose match fits the name of an interface \
              counts for it. name: what status, events and the page call it. use: primary carries data as long as it works. secondary, \
              the default, carries data while no primary link works. backup carries data only while no other link works. never excludes \
              the link from SCTP. A link that loses more than 5 % or is very slow counts as one that does not work. If all links carry \
              data at once (multipath), secondary ones join the primary ones, and backups wait. heartbeat_s: interval of heartbeats on a \
              spare link, by which data neither goes nor would return; 30 s for a backup, otherwise as usual. A longer one costs less, \
              and the failure of the link is found later. cap_mb: cap on the traffic of the interface in a month, in megabytes, with SCTP \
              and without. From then on, the use is at_cap: never (default) or backup, until the month ends. cap_day: day on which it \
              begins (UTC), 1 by default. Peers that run sctpify send by the same rules. `sctpify set` replaces all tables.",
        needs_restart: false,
        read: |s| s.links.to_string(),
        write: |s, v| put(&mut s.links, v.parse().ok()),
    },
    Setting {
        name: "rule",
        kind: Kind::Rules,
        doc: "Rules that this file declares; each is a table [[rule]]. ports: a port, a range such as 8000-8010, or any (default). to: an \
              address, a network or any, for connections of this host's programs. at: the same for its listeners. tcp, require and own \
              take true or false; secure, advertise, advertise_interval, framing, name and comment are as in `sctpify rule add`. Declared \
              rules decide before those of `sctpify rule`, which does not change them. `sctpify set` replaces all tables.",
        needs_restart: false,
        read: |s| s.rules.to_string(),
        write: |s, v| put(&mut s.rules, v.parse().ok()),
    },
];

/// The reason why a setting was not read or changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    /// No setting has this name.
    #[error("unknown setting `{name}`{}", hint(.nearest))]
    Unknown {
        /// The requested name.
        name: String,
        /// The nearest existing name.
        nearest: Option<&'static str>,
    },
    /// The value is of the wrong type or out of range.
    #[error("invalid value `{value}` for {name}: it takes {takes}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The requested value.
        value: String,
        /// The accepted values.
        takes: String,
    },
}

fn hint(nearest: &Option<&'static str>) -> String {
    nearest.map_or("; `sctpify get` lists all".into(), |n| format!("; did you mean `{n}`?"))
}

/// Schemes of a store's URL.
const STORES: &[&str] = &["redis://", "rediss://", "redis+unix://"];
/// Maximum length of a URL, in bytes.
const URL_BYTES_MAX: usize = 512;

/// Maximum length of a path, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// Maximum length of a user's name, in bytes.
const USER_BYTES_MAX: usize = 32;

fn is_path(value: &str) -> bool {
    let is_absolute = value.starts_with('/') && value.len() <= PATH_BYTES_MAX;
    value.is_empty() || (is_absolute && !value.contains(char::is_control))
}

/// Reports whether the text is empty, a user's name as useradd(8) accepts it, or a number.
fn is_user(value: &str) -> bool {
    let is_name_byte = |b: u8| b.is_ascii_alphanumeric() || b"_-.$".contains(&b);
    value.len() <= USER_BYTES_MAX && !value.starts_with('-') && value.bytes().all(is_name_byte)
}

fn is_store(value: &str) -> bool {
    let is_url =
        STORES.iter().any(|scheme| value.starts_with(scheme)) && value.chars().all(|c| c.is_ascii_graphic());
    value.is_empty() || (is_url && value.len() <= URL_BYTES_MAX)
}

/// Parses an address with a port; an empty value means none. Refuses port 0, because the kernel would choose a port at each start.
fn parse_listen(value: &str) -> Option<Option<SocketAddr>> {
    if value.is_empty() {
        return Some(None);
    }
    value.parse().ok().filter(|address: &SocketAddr| address.port() != 0).map(Some)
}

fn put<T>(slot: &mut T, value: Option<T>) -> Option<()> {
    *slot = value?;
    Some(())
}

fn number(value: bool) -> String {
    u8::from(value).to_string()
}

/// Parses 0, 1, true, false, on, off, yes and no. Any other whole number means true, as for the papers' switches.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" => Some(true),
        "false" | "off" | "no" => Some(false),
        other => other.parse::<i64>().ok().map(|n| n != 0),
    }
}

/// Returns the row of a setting. Also accepts the papers' full names (`net.inet.sctp.shim.init_rtx_max`).
///
/// # Errors
/// Fails if no setting has this name. The error states the nearest name.
pub fn find_setting(name: &str) -> Result<&'static Setting, SettingError> {
    let last = name.strip_prefix(SYSCTL_PREFIX).unwrap_or(name);
    SETTINGS.iter().find(|s| s.name == last).ok_or_else(|| SettingError::Unknown {
        name: name.into(),
        nearest: nearest(last, SETTINGS.iter().map(|s| s.name)),
    })
}

impl Setting {
    /// Reports whether only root may change the setting, and only in the file itself. Such a setting determines the daemon's
    /// confinement, the files that the daemon reads, or the servers that it connects to. It may also determine the hosts that
    /// the daemon admits, or the hosts to which it reports. If the daemon itself could change such a setting, a compromised
    /// daemon could weaken the next one.
    pub fn is_roots(&self) -> bool {
        let names_a_place = matches!(self.kind, Kind::Path | Kind::Url(_) | Kind::User | Kind::Listen);
        let admits = ["peer_key_required", "encryption"].contains(&self.name);
        names_a_place || self.name.starts_with("confine_") || admits
    }

    /// Returns the setting's value in `settings`, in a form that [`Setting::change`] parses.
    pub fn value(&self, settings: &Settings) -> String {
        (self.read)(settings)
    }

    /// Returns the value that applies if nothing is configured.
    pub fn default_value(&self) -> String {
        self.value(&Settings::default())
    }

    /// Changes the setting's value in `settings`.
    ///
    /// # Errors
    /// Fails if the value is of the wrong type or out of range. The settings then stay unchanged.
    pub fn change(&self, settings: &mut Settings, value: &str) -> Result<(), SettingError> {
        let value = value.trim();
        if self.is_in_range(value) && (self.write)(settings, value).is_some() {
            return Ok(());
        }
        let problem = (self.kind == Kind::Rules).then(|| value.parse::<DeclaredRules>().err()).flatten();
        let (value, takes) = (problem.unwrap_or_else(|| value.into()), self.kind.to_string());
        Err(SettingError::Value { name: self.name, value, takes })
    }

    fn is_in_range(&self, value: &str) -> bool {
        match self.kind {
            Kind::Number { min, max, .. } => value.parse::<u32>().is_ok_and(|n| (min..=max).contains(&n)),
            Kind::Bool
            | Kind::Word(_)
            | Kind::Url(_)
            | Kind::Listen
            | Kind::Path
            | Kind::User
            | Kind::Weights
            | Kind::Links
            | Kind::Rules
            | Kind::Interfaces => true,
        }
    }
}

impl Settings {
    /// Returns the send-buffer advertisement of connections whose rule sets no form.
    pub fn advertisement(&self) -> Advertisement {
        Advertisement { form: self.advertise, interval: self.advertise_interval }
    }

    /// Changes the form and the interval of the send-buffer advertisement.
    pub fn set_advertisement(&mut self, told: Advertisement) {
        (self.advertise, self.advertise_interval) = (told.form, told.interval);
    }

    /// Returns the value of the setting with this name.
    ///
    /// # Errors
    /// Fails if no setting has this name.
    pub fn get(&self, name: &str) -> Result<String, SettingError> {
        find_setting(name).map(|s| s.value(self))
    }

    /// Changes the setting with this name, and returns its row.
    ///
    /// # Errors
    /// Fails if no setting has this name, or the value is not valid for the setting. The settings then stay unchanged.
    pub fn set(&mut self, name: &str, value: &str) -> Result<&'static Setting, SettingError> {
        let setting = find_setting(name)?;
        setting.change(self, value)?;
        Ok(setting)
    }

    /// Returns these settings without the changes that need a restart. Settings that need a restart have their values from
    /// `running`.
    #[must_use]
    pub fn until_restart(&self, running: &Settings) -> Settings {
        let mut in_force = self.clone();
        for setting in SETTINGS.iter().filter(|setting| setting.needs_restart) {
            // A printed value can always be parsed.
            let _ = setting.change(&mut in_force, &setting.value(running));
        }
        in_force
    }
}

#[cfg(test)]
mod tests;
