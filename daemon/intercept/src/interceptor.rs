//! Set-up, use and removal of an interceptor.
//!
//! Set-up has these steps:
//!
//! 1. Create the private namespace, which needs root.
//! 2. Create the owned table, which is also the lock against a second interceptor.
//! 3. Remove leftovers of a dead predecessor, and create the veth.
//! 4. Fill the private namespace: addresses, routes, table and listeners.
//! 5. Change the host: sysctls, addresses, routes and policy rules.
//! 6. Bind and configure the queue.
//! 7. Add the rule that fills the queue.
//!
//! The rule comes last, so no SYN is held before everything else works. An unconfigured queue would drop SYNs, so step 6
//! configures the queue before step 7 fills it. Removal reverses the order.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};

use crate::config::Config;
use crate::datagrams::DatagramListener;
use crate::diag::{ClientState, Diagnosis, ListenerState};
use crate::enclosure;
use crate::error::{SetUpError, TearDownError};
use crate::flow::{FourTuple, canonical};
use crate::links;
use crate::namespace::{self, Namespace};
use crate::netlink::Netlink;
use crate::nft::{self, Destinations, Guard, Holding, Named, Passed};
use crate::queue::SynQueue;
use crate::sockets::{self, Listener, SpoofedConnection};
use crate::stock::Stock;
use crate::sysctl::{self, SavedSysctls};
use crate::uplinks::{self, Lack, Uplinks};

/// Interception in one network namespace. `Drop` removes the interception. [`Interceptor::tear_down`] also removes it, and
/// reports errors.
///
/// Close all connections before the removal: sockets can send RST or FIN only while the private namespace exists.
pub struct Interceptor {
    config: Config,
    /// The socket that owns the nftables table.
    owner: Netlink,
    diagnosis: Diagnosis,
    guards: Vec<Guard>,
    holding: Holding,
    listeners: Vec<Listener>,
    queue: SynQueue,
    datagrams: Vec<DatagramListener>,
    host: HostChanges,
    uplinks: Result<Uplinks, Lack>,
    stock: Stock,
    namespace: Namespace,
}

impl Interceptor {
    /// Sets up interception in the calling thread's network namespace. From then on, the kernel holds SYNs, and the caller must
    /// serve [`SynQueue::recv`].
    pub fn set_up(config: &Config) -> Result<Interceptor, SetUpError> {
        check(config)?;
        let namespace = Namespace::create()
            .map_err(|error| SetUpError::from_io("create a private network namespace", error))?;
        let ipv6 = sysctl::has_ipv6();
        let mut owner = claim_table(config)?;
        let host = HostChanges::make(config, &namespace, ipv6)?;
        let listeners = fill_namespace(config, &namespace, ipv6)?;
        let mut host = host.finish()?;
        let uplinks = lead_by_uplinks(config, &namespace, &mut host)?;
        let diagnosis = Diagnosis::open().map_err(|error| {
            SetUpError::needing("sock_diag for TCP (CONFIG_INET_DIAG)", "open a sock_diag socket", error)
        })?;
        let queue = bind_queue(config)?;
        let datagrams = if config.encloses { bind_datagrams(config, &namespace, ipv6)? } else { Vec::new() };
        let holding = Holding::start(&mut owner, config).map_err(|refusal| {
            SetUpError::needing(refusal.part, "create the nftables rule that queues", refusal.error)
        })?;
        let config = config.clone();
        Ok(Interceptor {
            config,
            owner,
            diagnosis,
            guards: Vec::new(),
            holding,
            listeners,
            queue,
            datagrams,
            host,
            uplinks,
            stock: Stock::new(namespace.jobs()),
            namespace,
        })
    }

    /// Sets up interception in the network namespace `at`. From then on, packets leave `at` only through the private namespace:
    ///
    /// - A SYN arrives at the [listeners](Interceptor::listeners) even if it is released without diversion.
    /// - UDP arrives at the [listeners for datagrams](Interceptor::take_datagrams).
    /// - [`Verdict::Deny`](crate::Verdict::Deny) takes effect.
    ///
    /// The caller needs privileges only in the user namespace that owns `at`.
    pub fn enclose(at: &File, config: &Config) -> Result<Interceptor, SetUpError> {
        let config = Config { encloses: true, ..config.clone() };
        let mut outcome = None;
        namespace::run_in(at, || {
            outcome = Some(Interceptor::set_up(&config));
            Ok(())
        })
        .map_err(|error| SetUpError::from_io("enter the enclosed network namespace", error))?;
        outcome.unwrap_or_else(|| {
            let source = io::Error::other("the thread gave no answer");
            Err(SetUpError::System { doing: "enter the enclosed network namespace", source })
        })
    }

    /// Takes the listeners that receive UDP of an enclosed namespace. Later calls return none.
    pub fn take_datagrams(&mut self) -> Vec<DatagramListener> {
        std::mem::take(&mut self.datagrams)
    }

    /// Removes everything. Held SYNs pass as plain TCP. Rules, links and the namespace are deleted, and sysctls are restored.
    pub fn tear_down(mut self) -> Result<(), TearDownError> {
        let guard = self.guard(&[]);
        let queue = self.release();
        // The listeners close while the veth still exists, so the RST of an unaccepted connection reaches its application.
        self.listeners.clear();
        let host = self.host.undo();
        let guard = guard.map_err(TearDownError::step("release plain TCP"));
        queue.map_err(TearDownError::step("release all held SYNs")).and(guard).and(host)
    }

    fn release(&mut self) -> io::Result<()> {
        let rule = nft::stop_queueing(&mut self.owner).map_err(|refusal| refusal.error);
        self.queue.release_all().and(rule)
    }

    /// Runs `job` on the thread of the private namespace. Linux keeps privileges per thread, so a job can drop the privileges of
    /// the namespace's thread alone.
    ///
    /// # Errors
    /// Fails if an earlier job panicked.
    pub fn run_inside<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        self.namespace.run(job)
    }

    /// Returns the queue of held SYNs.
    pub fn queue(&mut self) -> &mut SynQueue {
        &mut self.queue
    }

    /// Returns the listeners at which diverted connections arrive: one for IPv4, and one for IPv6 if this host has IPv6.
    pub fn listeners(&mut self) -> &mut [Listener] {
        &mut self.listeners
    }

    /// Shows the kernel that the queue is being served. After two seconds without this call, new SYNs pass as plain TCP. The
    /// first call must follow within 20 seconds of the set-up.
    ///
    /// # Errors
    /// The errors of nf_tables. SYNs then pass as plain TCP, as soon as the effect of the previous call ends.
    pub fn show_life(&mut self) -> io::Result<()> {
        nft::renew(&mut self.owner).map_err(|refusal| refusal.error)
    }

    /// Holds all SYNs from now on, as after set-up. Repeated calls are no error.
    ///
    /// # Errors
    /// The errors of nf_tables. The rules stay unchanged, so the kernel holds the same SYNs as before.
    pub fn hold_all(&mut self) -> io::Result<()> {
        self.holding.hold_all(&mut self.owner).map_err(|refusal| refusal.error)
    }

    /// Holds all SYNs, and forgets all destinations that [`Interceptor::name`] has named.
    ///
    /// # Errors
    /// The errors of nf_tables.
    pub fn forget_names(&mut self) -> io::Result<()> {
        self.holding.forget_names(&mut self.owner).map_err(|refusal| refusal.error)
    }

    /// Holds all SYNs, and names further destinations for [`Interceptor::hold_by_name`]. The ranges must not overlap. The kernel
    /// needs about 20 ms for a thousand ranges.
    ///
    /// # Errors
    /// The errors of nf_tables.
    pub fn name(&mut self, destinations: &[Destinations], named: Named) -> io::Result<()> {
        self.holding.name(&mut self.owner, destinations, named).map_err(|refusal| refusal.error)
    }

    /// With [`Named::Held`], holds only SYNs to named destinations. With [`Named::Passed`], holds only SYNs to destinations that
    /// are not named. In both cases, the kernel also holds SYNs of diverted connections, and SYNs whose whole mark is `mark`.
    ///
    /// # Errors
    /// The errors of nf_tables; the previous rules then stay. `Unsupported` in an enclosed namespace, where no SYN may pass.
    pub fn hold_by_name(&mut self, named: Named, mark: Option<u32>) -> io::Result<()> {
        if self.config.encloses {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.holding.hold_by_name(&mut self.owner, named, mark).map_err(|refusal| refusal.error)
    }

    /// Returns how many SYNs the rules of [`Interceptor::hold_by_name`] let pass since the last call. Counts of forgotten
    /// destinations are lost.
    ///
    /// # Errors
    /// The errors of nf_tables.
    pub fn passed(&mut self) -> io::Result<Passed> {
        self.holding.passed(&mut self.owner)
    }

    /// Replaces all guards. A guard refuses plain TCP to its destinations, or allows plain TCP to them. The guards survive a kill
    /// of the daemon. [`Interceptor::tear_down`] removes them.
    ///
    /// # Errors
    /// The errors of nf_tables; ENOENT if the kernel has no `reject`.
    pub fn guard(&mut self, guards: &[Guard]) -> io::Result<()> {
        nft::set_guards(&mut self.owner, &self.config, guards).map_err(|refusal| refusal.error)?;
        guards.clone_into(&mut self.guards);
        Ok(())
    }

    /// Checks the lasting table of [`Interceptor::guard`], which outlives the daemon. If another program has removed this table,
    /// restores it and returns true.
    ///
    /// # Errors
    /// The errors of nf_tables.
    pub fn restore_guard(&mut self) -> io::Result<bool> {
        if self.guards.is_empty() || nft::has_lasting(&mut self.owner)? {
            return Ok(false);
        }
        nft::set_lasting(&mut self.owner, &self.config, &self.guards).map_err(|refusal| refusal.error)?;
        Ok(true)
    }

    /// Returns the limit on concurrently diverted connections of each address family.
    #[must_use]
    pub fn diversions_max(&self) -> usize {
        self.config.set_size as usize
    }

    /// Ends diversions ([`Verdict::Divert`](crate::Verdict::Divert)). An unknown diversion is no error. One call for many
    /// diversions costs little more than a call for one diversion.
    ///
    /// End a diversion when the application can no longer send on the connection: 60 s after the connection's end, because of
    /// TIME-WAIT. Packets that the application sends later leave this host undiverted.
    ///
    /// # Errors
    /// The errors of nf_tables.
    pub fn undivert(&mut self, flows: &[FourTuple]) -> io::Result<()> {
        nft::delete_diverted(&mut self.owner, flows).map_err(|refusal| refusal.error)
    }

    /// Forgets ended connections of [`Interceptor::connect_as`]. `flows` are the connections as seen by the local programs. Until
    /// this call, the kernel diverts the programs' packets of these connections, regardless of the packets' marks. An unknown
    /// connection is no error. One call for many connections costs little more than a call for one connection.
    ///
    /// # Errors
    /// The errors of nf_tables.
    pub fn forget_served(&mut self, flows: &[FourTuple]) -> io::Result<()> {
        nft::delete_served(&mut self.owner, flows).map_err(|refusal| refusal.error)
    }

    /// Keeps an address local after its interface has lost it. SCTP can then carry connections from this address over other
    /// paths. Repeated calls are no error. Removal of the interceptor releases the address.
    ///
    /// # Errors
    /// The errors of rtnetlink(7).
    pub fn keep_address(&mut self, ip: IpAddr) -> io::Result<()> {
        links::keep_address(&mut self.host.netlink, self.host.index, ip)
    }

    /// Releases an address that [`Interceptor::keep_address`] keeps. An address that is not kept is no error.
    ///
    /// # Errors
    /// The errors of rtnetlink(7).
    pub fn release_address(&mut self, ip: IpAddr) -> io::Result<()> {
        links::release_address(&mut self.host.netlink, self.host.index, ip)
    }

    /// Returns the state of the application whose SYN is held. `out_interface` is the interface through which the SYN was
    /// leaving.
    pub fn find_client(&mut self, flow: &FourTuple, out_interface: u32) -> io::Result<ClientState> {
        self.diagnosis.client(flow, out_interface)
    }

    /// Returns the state of the listener for a connection from outside. `flow.local()` is the address on this host.
    pub fn find_listener(&mut self, flow: &FourTuple) -> io::Result<ListenerState> {
        self.diagnosis.listener(flow)
    }

    /// Reports whether a connection from outside would find its listener's backlog full, because the program accepts too slowly.
    pub fn is_backlog_full(&mut self, flow: &FourTuple) -> io::Result<bool> {
        self.diagnosis.is_backlog_full(flow)
    }

    /// Returns the kernel feature that [`Interceptor::set_uplink`] needs and that is missing or forbidden, or None. Without this
    /// feature, connections to local programs cannot arrive on clients' interfaces.
    pub fn lacks_for_uplinks(&self) -> Option<String> {
        let lack = self.uplinks.as_ref().err()?;
        Some(format!("{}: {}", lack.part, lack.error))
    }

    /// Begins a connection to the local `server` as `client`, from inside the private namespace. If a connection from the
    /// client's port to this server exists, the kernel chooses another port, which the result contains.
    ///
    /// The connection's packets arrive on the interface with the index `uplink`, as the client's own packets do. Without
    /// `uplink`, the packets arrive on the veth.
    ///
    /// # Errors
    /// ENODEV: the interface does not exist. `StorageFull`: too many interfaces are in use as uplinks. `Unsupported`: see
    /// [`Interceptor::lacks_for_uplinks`].
    pub fn connect_as(
        &mut self,
        client: SocketAddr,
        server: SocketAddr,
        uplink: Option<u32>,
    ) -> io::Result<SpoofedConnection> {
        let (client, server) = (canonical(client), canonical(server));
        let socket = self.spoofing_socket(server, uplink)?;
        match sockets::connect(&socket, client, server) {
            Ok(()) => Ok(sockets::into_connection(socket, client)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::EADDRINUSE)) => {
                let socket = self.spoofing_socket(server, uplink)?;
                sockets::connect(&socket, SocketAddr::new(client.ip(), 0), server)?;
                let client = sockets::local_address(&socket)?;
                Ok(sockets::into_connection(socket, client))
            }
            Err(error) => Err(error),
        }
    }

    fn spoofing_socket(&mut self, server: SocketAddr, uplink: Option<u32>) -> io::Result<socket2::Socket> {
        let socket = self.stock.take(server)?;
        if uplink.is_some() {
            self.set_uplink(&socket, uplink)?;
        }
        Ok(socket)
    }

    /// Changes the interface on which a connection's packets arrive, because the former interface is gone. The connection was
    /// made by [`Interceptor::connect_as`]. Without `uplink`, the packets arrive on the veth.
    ///
    /// # Errors
    /// The errors of [`Interceptor::connect_as`].
    pub fn set_uplink(&mut self, connection: &impl AsFd, uplink: Option<u32>) -> io::Result<()> {
        if let Some(uplink) = uplink {
            let Ok(uplinks) = &mut self.uplinks else { return Err(io::ErrorKind::Unsupported.into()) };
            uplinks.lead(&mut self.host.netlink, uplink)?;
        }
        uplinks::set_uplink(connection.as_fd(), uplink)
    }

    /// Reports whether packets can arrive on the interface: it exists, is up, and has a carrier.
    pub fn is_uplink_up(&mut self, uplink: u32) -> bool {
        links::is_up(&mut self.host.netlink, uplink).unwrap_or(false)
    }

    /// Returns the current name of the interface, or None if it does not exist.
    pub fn uplink_name(&mut self, uplink: u32) -> Option<String> {
        links::name(&mut self.host.netlink, uplink).ok().flatten()
    }

    /// Removes the filters of interfaces that no longer exist. Call this when an interface has disappeared.
    ///
    /// # Errors
    /// The errors of rtnetlink(7).
    pub fn forget_gone_uplinks(&mut self) -> io::Result<()> {
        let Ok(uplinks) = &mut self.uplinks else { return Ok(()) };
        uplinks.forget_gone(&mut self.host.netlink, links::is_there)
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        // The release uses two fields together, so it happens before the fields are dropped. The drops of the fields remove
        // everything else. An error cannot be reported here.
        let _ = self.release();
    }
}

/// Removes the leftovers of a killed interceptor: policy rules and, if it still exists, the veth pair. Restores the sysctls to
/// `sysctls`, the values that were read before that interceptor was set up. The table of [`Interceptor::guard`] stays.
///
/// Fails while an interceptor exists in the calling thread's network namespace.
pub fn remove_leftovers(config: &Config, sysctls: &SavedSysctls) -> Result<(), TearDownError> {
    let step = TearDownError::step;
    let mut netfilter = Netlink::open(NETLINK_NETFILTER).map_err(step("open a netfilter socket"))?;
    if let Some(owner_port) = nft::owner_port(&mut netfilter) {
        return Err(TearDownError::StillRunning { owner_port });
    }
    let netlink = Netlink::open(NETLINK_ROUTE).map_err(step("open a route netlink socket"))?;
    let home = namespace::current().map_err(step("find this network namespace"))?;
    let ipv6 = sysctl::has_ipv6();
    let mut changes =
        HostChanges { netlink, index: 0, home, config: config.clone(), sysctls: sysctls.clone(), ipv6 };
    changes.undo()
}

/// An interceptor's changes to the host, except the nftables table. `Drop` undoes them.
struct HostChanges {
    netlink: Netlink,
    /// The index of the veth's host end, or 0 if it is not known yet.
    index: u32,
    /// The host's network namespace.
    home: File,
    config: Config,
    sysctls: SavedSysctls,
    ipv6: bool,
}

impl HostChanges {
    /// Removes a dead predecessor's leftovers and creates the veth pair.
    fn make(config: &Config, namespace: &Namespace, ipv6: bool) -> Result<HostChanges, SetUpError> {
        let netlink = Netlink::open(NETLINK_ROUTE)
            .map_err(|error| SetUpError::from_io("open a route netlink socket", error))?;
        let sysctls = SavedSysctls::read().map_err(|error| SetUpError::from_io("read sysctls", error))?;
        let home = namespace::current()
            .map_err(|error| SetUpError::from_io("find this network namespace", error))?;
        let mut host = HostChanges { netlink, index: 0, home, config: config.clone(), sysctls, ipv6 };
        host.remove_stale()
            .map_err(|error| SetUpError::from_io("remove the remains of a dead sctpify", error))?;
        links::create_veth(&mut host.netlink, config, namespace).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EEXIST) => SetUpError::InterfaceExists { name: config.host_interface.clone() },
                _ => SetUpError::needing("veth links (CONFIG_VETH)", "create a veth pair", error),
            }
        })?;
        Ok(host)
    }

    fn remove_stale(&mut self) -> io::Result<()> {
        links::delete_mark_rules(&mut self.netlink, &self.config, links::families(self.ipv6))?;
        links::delete_veth(&mut self.netlink, &self.config.host_interface)
    }

    /// Gives the host's end its addresses and routes, turns the sysctls on and adds the policy rules.
    fn finish(mut self) -> Result<HostChanges, SetUpError> {
        let ends = links::families(self.ipv6);
        let name = self.config.host_interface.clone();
        set_interface_sysctls(&name, self.ipv6, self.config.loopback)
            .and_then(|()| sysctl::set(&format!("ipv4/conf/{name}/src_valid_mark"), "1"))
            .and_then(|()| self.sysctls.turn_on())
            .map_err(|error| SetUpError::from_io("set sysctls", error))?;
        self.index = interface_index(&name).map_err(|error| SetUpError::from_io("find the veth", error))?;
        links::configure_host(&mut self.netlink, self.index, &self.config, ends)
            .and_then(|()| match self.config.encloses {
                true => enclosure::lead_all(&mut self.netlink, self.index, ends),
                false => Ok(()),
            })
            .map_err(|error| SetUpError::from_io("add addresses and routes to the veth", error))?;
        links::add_mark_rules(&mut self.netlink, &self.config, ends)
            .map_err(|error| SetUpError::from_io("add routing policy rules", error))?;
        Ok(self)
    }

    /// Undoes the changes. Tries every step, and returns the first failure. Repeated calls are allowed.
    fn undo(&mut self) -> Result<(), TearDownError> {
        let ends = links::families(self.ipv6);
        let step = TearDownError::step;
        let rules = links::delete_mark_rules(&mut self.netlink, &self.config, ends)
            .map_err(step("remove the routing policy rules"));
        let veth = links::delete_veth(&mut self.netlink, &self.config.host_interface)
            .map_err(step("remove the veth pair"));
        // The sysctls of an enclosed namespace disappear with the namespace. Its daemon has given up the privileges to enter it.
        let sysctls = match self.config.encloses {
            true => Ok(()),
            false => namespace::run_in(&self.home, || self.sysctls.restore()),
        };
        let sysctls = sysctls.map_err(step("restore the sysctls"));
        rules.and(veth).and(sysctls)
    }
}

impl Drop for HostChanges {
    fn drop(&mut self) {
        // A caller that needs the result has called `undo` before the drop.
        let _ = self.undo();
    }
}

fn check(config: &Config) -> Result<(), SetUpError> {
    let is_name = |name: &str| (1..=15).contains(&name.len()) && !name.contains(['/', ' ', '\0']);
    let marks = config.marks;
    let used = [marks.shim, marks.own, marks.served];
    let has_two_alike = (0..used.len()).any(|n| used[..n].contains(&used[n]));
    let what = if !is_name(&config.host_interface) || !is_name(&config.shim_interface) {
        "an interface name must have 1 to 15 bytes and no slash or space"
    } else if used.contains(&0) || has_two_alike {
        "the marks must differ from each other and from 0"
    } else if (marks.shim | marks.own | marks.served) & !marks.mask != 0 {
        "a mark has bits outside the mask"
    } else if !(1..=252).contains(&config.routing_table) {
        "the routing table must be 1 to 252"
    } else {
        return Ok(());
    };
    Err(SetUpError::Config { what })
}

/// Installs the filters for uplinks at both ends of the veth. If the kernel lacks a feature, the inner result is a [`Lack`], and
/// the rest of the interceptor works. An enclosed namespace gets no filters, because the veth is its only interface.
fn lead_by_uplinks(
    config: &Config,
    namespace: &Namespace,
    host: &mut HostChanges,
) -> Result<Result<Uplinks, Lack>, SetUpError> {
    if config.encloses {
        let error = io::ErrorKind::Unsupported.into();
        return Ok(Err(Lack { part: "interfaces of clients in an enclosed namespace", error }));
    }
    let name = config.shim_interface.clone();
    let stamped = namespace.run(move || {
        let index = interface_index(&name)?;
        io::Result::Ok(uplinks::stamp_what_leaves(&mut Netlink::open(NETLINK_ROUTE)?, index))
    });
    let stamped = stamped
        .and_then(|inner| inner)
        .map_err(|error| SetUpError::from_io("configure the private network namespace", error))?;
    Ok(stamped.and_then(|()| Uplinks::set_up(&mut host.netlink, host.index, config.marks.served)))
}

/// Sizes of the buffers for the largest batch and for the kernel's answers to it, in bytes. The largest batch has one rule for
/// each of 4,096 guards in each of two chains. A rule takes less than 700 bytes. The kernel's answer to a refused rule takes
/// about 1 kB.
const BATCH_BUFFER: usize = 8 * 1024 * 1024;
const ANSWERS_BUFFER: usize = 16 * 1024 * 1024;

/// Creates the nftables table. Its rules hold no SYN yet.
fn claim_table(config: &Config) -> Result<Netlink, SetUpError> {
    let mut owner = Netlink::open(NETLINK_NETFILTER).map_err(|error| {
        SetUpError::needing("nfnetlink (CONFIG_NETFILTER_NETLINK)", "open a netfilter socket", error)
    })?;
    owner
        .enlarge_send_buffer(BATCH_BUFFER)
        .and_then(|()| owner.enlarge_receive_buffer(ANSWERS_BUFFER))
        .map_err(|error| SetUpError::from_io("set the buffers of a netfilter socket", error))?;
    match nft::create_host_table(&mut owner, config) {
        Ok(()) => Ok(owner),
        Err(refusal) if refusal.is(nft::TABLE_PART, libc::EPERM) => {
            Err(SetUpError::AlreadyRunning { owner_port: nft::owner_port(&mut owner) })
        }
        Err(refusal) if refusal.is(nft::TABLE_PART, libc::EEXIST) => Err(SetUpError::ForeignTable),
        Err(refusal) => Err(SetUpError::needing(refusal.part, "create the nftables table", refusal.error)),
    }
}

/// Minimum, default and maximum buffer of a socket in the private namespace, in bytes. The kernel's own maximum (32 MiB) suits
/// paths with a long round trip. In this namespace, a buffer of 32 MiB would accept an application's data long before the other
/// end reads the data.
const RECEIVE_BUFFERS: &str = "4096 131072 2097152";
const SEND_BUFFERS: &str = "4096 65536 1048576";
/// Congestion control of sockets in the private namespace. The path to a local program shares no queue with other traffic. Reno
/// exists in every kernel and does not pace. The host's default may be BBR, which paces.
const CONGESTION_CONTROL: &str = "reno";

/// Configures the links of the private namespace, and creates its table and listeners.
fn fill_namespace(config: &Config, namespace: &Namespace, ipv6: bool) -> Result<Vec<Listener>, SetUpError> {
    let fail = |error| SetUpError::from_io("configure the private network namespace", error);
    let (name, loopback) = (config.shim_interface.clone(), config.loopback);
    let entered = namespace.run(move || {
        set_interface_sysctls(&name, ipv6, loopback)?;
        // A client's port may be below 1024, and this daemon may lack CAP_NET_BIND_SERVICE.
        sysctl::set("ipv4/ip_unprivileged_port_start", "0")?;
        sysctl::set("ipv4/tcp_rmem", RECEIVE_BUFFERS)?;
        sysctl::set("ipv4/tcp_wmem", SEND_BUFFERS)?;
        sysctl::set("ipv4/tcp_congestion_control", CONGESTION_CONTROL)?;
        let index = interface_index(&name)?;
        Ok((index, Netlink::open(NETLINK_ROUTE)?, Netlink::open(NETLINK_NETFILTER)?))
    });
    let (index, mut route, mut netfilter) = entered.and_then(|inner| inner).map_err(fail)?;
    links::configure_shim(&mut route, index, config, links::families(ipv6)).map_err(fail)?;
    nft::create_shim_table(&mut netfilter, config, ipv6).map_err(|refusal| {
        SetUpError::needing(refusal.part, "create the private namespace's nftables table", refusal.error)
    })?;
    let port = config.tproxy_port;
    let families: &[bool] = if ipv6 { &[false, true] } else { &[false] };
    let listeners = namespace.run(move || families.iter().map(|v6| Listener::bind(*v6, port)).collect());
    listeners
        .and_then(|inner: io::Result<Vec<Listener>>| inner)
        .map_err(|error| SetUpError::from_io("open the transparent listeners", error))
}

fn bind_datagrams(
    config: &Config,
    namespace: &Namespace,
    ipv6: bool,
) -> Result<Vec<DatagramListener>, SetUpError> {
    let port = config.tproxy_port;
    let families: &[bool] = if ipv6 { &[false, true] } else { &[false] };
    let jobs = namespace.jobs();
    let bound = namespace
        .run(move || families.iter().map(|v6| DatagramListener::bind(*v6, port, jobs.clone())).collect());
    bound
        .and_then(|inner: io::Result<Vec<DatagramListener>>| inner)
        .map_err(|error| SetUpError::from_io("open the transparent listeners for UDP", error))
}

/// Restricts the veth to the addresses that [`links`] adds. With `loopback`, the veth also accepts packets from the host's own
/// addresses.
fn set_interface_sysctls(name: &str, ipv6: bool, loopback: bool) -> io::Result<()> {
    const NO_ADDRESS_OF_ITS_OWN: &str = "1";
    if ipv6 {
        sysctl::set(&format!("ipv6/conf/{name}/disable_ipv6"), "0")?;
        sysctl::set(&format!("ipv6/conf/{name}/accept_ra"), "0")?;
        sysctl::set(&format!("ipv6/conf/{name}/addr_gen_mode"), NO_ADDRESS_OF_ITS_OWN)?;
    }
    if loopback {
        sysctl::set(&format!("ipv4/conf/{name}/route_localnet"), "1")?;
        sysctl::set(&format!("ipv4/conf/{name}/accept_local"), "1")?;
    }
    Ok(())
}

/// Returns the interface's index in the calling thread's namespace.
fn interface_index(name: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(name)?)
}

fn bind_queue(config: &Config) -> Result<SynQueue, SetUpError> {
    SynQueue::bind(config.queue_number, config.queue_length, config.marks).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EBUSY) => SetUpError::QueueNumberTaken { number: config.queue_number },
            Some(libc::EINVAL) => SetUpError::MissingKernelFeature {
                feature: "packet queues (CONFIG_NETFILTER_NETLINK_QUEUE)",
                source: error,
            },
            _ => SetUpError::from_io("bind the NFQUEUE", error),
        }
    })
}
