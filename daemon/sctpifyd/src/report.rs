//! Creates the daemon's reports: the answers to `status`, `paths`, `explain` and `doctor`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::{Carrier, Route, Time};
use control::{
    Association, Check, Confinement, Connection, Direction, DoctorReport, Explanation, FallbackReason,
    KnownPeer, LearnedRow, Level, LinkBytes, LinkReading, LinkState, LinkSum, Listener, OpenCarrier,
    OwnAddress, Path, PathEnds, PathState, PeerLink, Role, ShimState, ShimStep, Status, TurnTimes, Verdict,
    Via, links_of,
};
use netio::LocalAddress;
use ops::LimitedBy;
use relay::Peer;
use rules::{Because, Chain, Decision, Secure};
use sctp::{AssociationId, AssociationInfo, Endpoint, PathInfo, Preference};

use crate::addresses::{AddressBook, Asker, LeftOut};
use crate::carriers::PacketIo;
use crate::clock::today;
use crate::connection::{Connection as Known, ConnectionId, Connections, Stage, stepped};
use crate::encryption::Encryption;
use crate::history::History;
use crate::link_bytes::Bytes;
use crate::listeners::Listed;
use crate::manual::Socket;
use crate::path_events::PathEvents;
use crate::policy::Policy;
use crate::probes::source_address;
use crate::shared::{SharedAssociation, SharedAssociations};
use crate::survey::{Found, Live};

/// An arbitrary port for a lookup of the route to a peer. The lookup sends no packet.
const ANY_PORT: u16 = 9;

/// Describes a path by its ends and its link. The link is the interface on which the path's packets arrive. If both hosts have
/// several interfaces, the link may differ from the interface of the local address.
pub(crate) fn path_ends(route: &Route, addresses: &AddressBook, packet_io: &PacketIo) -> PathEnds {
    let came_by = packet_io.came_by(route).and_then(|ifindex| addresses.name_of(ifindex));
    let interface = came_by.or_else(|| addresses.interface_name(route.local));
    let name = interface.as_deref().and_then(|interface| addresses.link_name(interface)).map(str::to_owned);
    let local = Some(route.local).filter(|address| !address.is_unspecified());
    PathEnds { interface, name, local, remote: route.remote }
}

/// References to the parts of the daemon that reports describe, and the time of the report.
pub(crate) struct Report<'a> {
    pub(crate) now: Time,
    pub(crate) engine: &'a Endpoint,
    pub(crate) policy: &'a Policy,
    pub(crate) packet_io: &'a PacketIo,
    pub(crate) connections: &'a Connections,
    pub(crate) shared: &'a SharedAssociations,
    pub(crate) encryption: &'a Encryption,
    pub(crate) history: &'a History,
    pub(crate) path_events: &'a PathEvents,
    pub(crate) started_unix_ms: u64,
}

impl Report<'_> {
    /// Returns the status. `found` holds the connections, associations and listeners that have been gathered.
    pub(crate) fn status(&self, found: Found, turns: TurnTimes, confinement: Confinement) -> Status {
        Status {
            version: version::FULL.to_owned(),
            pid: std::process::id(),
            uptime_s: self.now.as_nanos() / 1_000_000_000,
            started_unix_ms: self.started_unix_ms,
            enabled: self.policy.settings().enable,
            counters: self.history.counters(),
            turns,
            connections: found.connections,
            carriers: self.packet_io.report(),
            listeners: found.listeners,
            recent_fallbacks: self.history.fallbacks(),
            path_changes: self.path_events.counts(),
            fallbacks: self.history.fallback_counts(),
            links: self.peer_links(&found.associations),
            link_bytes: self.link_bytes(&found.associations),
            link_caps: self.policy.caps().to_vec(),
            recent_events: self.path_events.latest(),
            draining: self.policy.is_draining(),
            confinement,
            pending: self.policy.rules().pending(),
            associations: found.associations,
        }
    }

    /// Returns the links to the peers of these associations. The links' bytes include the bytes of ended associations.
    fn peer_links(&self, associations: &[Association]) -> Vec<PeerLink> {
        let mut links = links_of(associations);
        for link in &mut links {
            let ended = self.history.link_bytes().of_pair(link.peer, link.interface.as_deref());
            link.sent_bytes += ended.sent;
            link.received_bytes += ended.received;
        }
        links
    }

    /// Returns the counts of these links of associations, and of the links of ended ones.
    pub(crate) fn link_readings(&self, links: LinkSum) -> Vec<LinkReading> {
        let of_live = links.into_links().into_iter().map(|link| LinkReading {
            peer: link.peer,
            is_live: true,
            srtt_us: link.srtt_us.filter(|_| link.state == LinkState::Up),
            sent_bytes: link.sent_bytes,
            received_bytes: link.received_bytes,
            interface: link.interface,
            name: link.name,
        });
        let mut readings: BTreeMap<_, _> =
            of_live.map(|reading| ((reading.peer, reading.interface.clone()), reading)).collect();
        for ((peer, interface), bytes) in self.history.link_bytes().by_pair() {
            let reading = readings.entry((*peer, interface.clone())).or_insert_with(|| LinkReading {
                peer: *peer,
                interface: interface.clone(),
                name: self.link_name(interface.as_deref()),
                is_live: false,
                srtt_us: None,
                sent_bytes: 0,
                received_bytes: 0,
            });
            reading.sent_bytes += bytes.sent;
            reading.received_bytes += bytes.received;
        }
        readings.into_values().collect()
    }

    /// Returns the operator's name for a link, if any.
    fn link_name(&self, interface: Option<&str>) -> Option<String> {
        self.policy.addresses().link_name(interface?).map(str::to_owned)
    }

    /// Returns the bytes of each link: the sum over these associations and all ended associations.
    fn link_bytes(&self, associations: &[Association]) -> Vec<LinkBytes> {
        let mut all = self.history.link_bytes().by_link();
        for path in associations.iter().flat_map(|association| &association.paths) {
            let bytes = Bytes { sent: path.sent_bytes, received: path.received_bytes };
            *all.entry(path.interface.clone()).or_default() += bytes;
        }
        let link = |(interface, bytes): (Option<String>, Bytes)| LinkBytes {
            name: self.link_name(interface.as_deref()),
            interface,
            sent_bytes: bytes.sent,
            received_bytes: bytes.received,
        };
        all.into_iter().map(link).collect()
    }

    /// Returns the oldest of the connections that began after this one.
    pub(crate) fn connection_after(&self, id: ConnectionId) -> Option<(ConnectionId, &Known)> {
        self.connections.after(id)
    }

    /// Returns all shared associations, oldest first.
    pub(crate) fn shared_associations(&self) -> impl Iterator<Item = AssociationId> {
        self.shared.iter().map(|(association, _)| association)
    }

    /// Returns the number of bytes that wait to be sent on an association.
    pub(crate) fn waiting_bytes(&self, association: AssociationId) -> u64 {
        self.engine.info(association).map_or(0, |info| info.send_waiting as u64)
    }

    pub(crate) fn connection(&self, id: ConnectionId, known: &Known) -> Connection {
        let info = self.engine.info(known.association());
        let (bytes_sent, bytes_received) = known.bytes();
        let in_use = info.as_ref().and_then(|info| info.paths.iter().find(|path| path.in_use));
        Connection {
            id: id.0,
            role: known.role(),
            local: known.flow().local(),
            peer: known.flow().remote(),
            state: known.shim(),
            carrier: in_use.map_or(Via::Sctp, |path| via(path.route.carrier)),
            fallback: None,
            bytes_sent,
            bytes_received,
            open: direction(known),
            age_s: seconds(self.now.since(known.began())),
            association: info.map(|_| self.number_of(id, known)),
        }
    }

    /// Returns the number that identifies a connection's association in reports. It is the shared association's number, or, for
    /// a separate association, the connection's number.
    fn number_of(&self, id: ConnectionId, known: &Known) -> u64 {
        let shared = known.channel().and_then(|_| self.shared.get(known.association()));
        shared.map_or(id, SharedAssociation::number).0
    }

    /// Describes a connection's separate association, if it has one.
    pub(crate) fn own_association(&self, id: ConnectionId, known: &Known) -> Option<Association> {
        let info = self.engine.info(known.association()).filter(|_| known.channel().is_none())?;
        let peer = known.flow().remote().ip();
        Some(self.association(id, known.association(), (known.role(), known.began(), peer), &info, None))
    }

    /// Describes a shared association.
    pub(crate) fn shared_association(&self, association: AssociationId) -> Option<Association> {
        let (state, info) = (self.shared.get(association)?, self.engine.info(association)?);
        let users = state.owners().len() as u64;
        let whose = (state.role(), state.began(), state.handshake().remote);
        Some(self.association(state.number(), association, whose, &info, Some(users)))
    }

    fn association(
        &self,
        id: ConnectionId,
        association: AssociationId,
        (role, began, peer): (Role, Time, IpAddr),
        info: &AssociationInfo,
        shared_by: Option<u64>,
    ) -> Association {
        let last_switch = |path: &PathInfo| {
            self.history.last_switch(association, &path.route).map(|at| seconds(self.now.since(at)))
        };
        Association {
            id: id.0,
            shared_by,
            state: info.state.as_str().to_owned(),
            peer,
            shim: shim_of_association(role),
            local_port: info.local_port,
            peer_port: info.remote_port,
            peer_is_sctpify: shared_by.is_some() || Peer::of_adaptation(info.adaptation) == Peer::Shim,
            age_s: seconds(self.now.since(began)),
            bytes_sent: info.counters.bytes_acknowledged,
            bytes_received: info.counters.bytes_received,
            retransmissions: info.counters.data_retransmitted,
            queued_bytes: info.send_buffered as u64,
            peer_window_bytes: info.peer_rwnd as u64,
            encryption: self.encryption.report(association),
            paths: info.paths.iter().map(|path| self.path(path, last_switch(path))).collect(),
        }
    }

    fn path(&self, path: &PathInfo, last_switch_s: Option<u64>) -> Path {
        let PathEnds { interface, name, .. } =
            path_ends(&path.route, self.policy.addresses(), self.packet_io);
        Path { interface, name, ..path_of(path, last_switch_s) }
    }

    /// Returns the listeners that other hosts can reach, with the listeners' sockets.
    pub(crate) fn reachable(&self, listeners: Vec<Listed>) -> BTreeMap<SocketAddr, Vec<Socket>> {
        let mut reachable: BTreeMap<SocketAddr, Vec<Socket>> = BTreeMap::new();
        for Listed { address, socket } in listeners {
            if !address.ip().is_loopback() || self.policy.addresses().is_own(address.ip()) {
                reachable.entry(address).or_default().push(socket);
            }
        }
        reachable
    }

    /// Describes a listener, with the shim state that the papers define after bind() and listen().
    pub(crate) fn listener(&self, address: SocketAddr, sockets: &[Socket]) -> Listener {
        let decision = self.policy.rules().lock().explain(Chain::Local, address.ip(), address.port());
        let is_asked_for = sockets.iter().any(|socket| self.policy.rules().is_asked_for(address, *socket));
        let obstacle = self.obstacle(address.ip());
        let enabled = match (&decision.because, is_asked_for, decision.policy.is_enable()) {
            (Because::DisabledGlobally, ..) => None,
            (_, true, _) => Some(Some(ShimStep::AskedFor)),
            (_, _, true) => Some(Some(ShimStep::Allowed)),
            _ => Some(None),
        };
        let created = enabled.map(|_| ShimStep::Created);
        let enabled = enabled.flatten();
        let listens = enabled.filter(|_| obstacle.is_none()).map(|_| ShimStep::Listens);
        let steps = [created, enabled, listens].into_iter().flatten();
        let state = steps.fold(ShimState::Notinit, stepped);
        let because = match obstacle.filter(|_| enabled.is_some()) {
            Some(obstacle) => obstacle,
            None if enabled == Some(ShimStep::AskedFor) => {
                "its program requested it (sctpify expose)".to_owned()
            }
            None => decision.because.to_string(),
        };
        Listener { address, state, because }
    }

    /// Returns the obstacle that keeps SCTP clients from reaching a listener that the rules allow. If there is an obstacle, the
    /// papers' bind() fails for SCTP.
    fn obstacle(&self, address: IpAddr) -> Option<String> {
        if !address.is_unspecified() && !self.policy.addresses().is_own(address) {
            return Some(format!("{address} is on no interface that sctpify uses"));
        }
        let carriers = self.packet_io.report();
        let is_closed = carriers.iter().all(|carrier| carrier.problem.is_some());
        is_closed.then(|| {
            carriers.into_iter().filter_map(|carrier| carrier.problem).collect::<Vec<_>>().join("; ")
        })
    }

    /// Explains the decision on connections to `destination`. `live` describes the existing connections to it.
    pub(crate) fn explain(&self, destination: SocketAddr, live: Live) -> Explanation {
        let (address, port) = (destination.ip(), destination.port());
        let decision = self.policy.rules().lock().explain(Chain::Remote, address, port);
        let own = self.policy.addresses().stays_plain(address);
        let learned = self.learned_of(destination);
        let reason = if own {
            Some(FallbackReason::LoopbackOrOwnAddress)
        } else {
            let is_ending = self.policy.is_ending();
            FallbackReason::from_decision(&decision)
                .or_else(|| is_ending.then_some(FallbackReason::DaemonStopping))
                .or_else(|| self.learned_reason(&decision, &learned))
        };
        let mut notes = Vec::new();
        if reason.is_none() && learned.as_ref().is_some_and(|row| row.entry.disabled.is_some()) {
            let beats = "a rule that names the host overrides its learned entry";
            let off = "automatic configuration is off, so learned entries are ignored";
            notes.push(if decision.is_order() { beats } else { off }.to_owned());
        }
        if live.is_native {
            notes.push("the peer is a native SCTP program: it does not support half-close".to_owned());
        }
        if reason.is_none() {
            notes.extend(self.shared_note(address));
        }
        if let Some(known) = self.known_peer(address) {
            notes.push(format!(
                "the host must prove the key {}, known by {} (sctpify peers)",
                known.key, known.by
            ));
        }
        if let Some(peer) = decision.secure().and_then(Secure::peer) {
            notes.push(match self.encryption.key_of(peer) {
                Some(key) => format!("the rule requires the peer {peer}, whose key is {key}"),
                None => {
                    format!("no peer is known by the name or key {peer}: connections fail (sctpify peers)")
                }
            });
        }
        if let Some(whose) = self.policy.rules().keys().whose(address) {
            notes.push(format!("both hosts must prove the key for {whose} (setting peer_keys)"));
        }
        Explanation {
            address,
            port,
            verdict: match reason {
                None if decision.is_required() => Verdict::SctpOnly,
                None => Verdict::SctpThenTcp,
                Some(_) => Verdict::Tcp,
            },
            because: decision.because.to_string(),
            reason,
            learned,
            connections: live.count,
            limited_by: live.limited_by,
            waiting_bytes: live.waiting_bytes,
            past: self.history.of(destination),
            notes,
        }
    }

    /// Returns the peer whose key must be proven on an encrypted association to this address.
    fn known_peer(&self, address: IpAddr) -> Option<KnownPeer> {
        let is_offered = self.policy.settings().encryption.is_offered();
        self.encryption.known(address).filter(|_| is_offered)
    }

    /// Returns the cause that limits a connection's sending, or `None` before bytes flow. Connections of a shared association
    /// share the association's limit, but each connection has its own window.
    pub(crate) fn limit_of(&self, known: &Known) -> Option<LimitedBy> {
        let info =
            self.engine.info(known.association()).filter(|_| matches!(known.stage(), Stage::Relaying(_)))?;
        let shared =
            known.channel().and_then(|channel| Some((channel, self.shared.get(known.association())?)));
        if shared.is_some_and(|(channel, state)| state.send_room(channel) == 0) {
            return Some(LimitedBy::Receiver);
        }
        Some(match info.limited_by {
            sctp::LimitedBy::Driver => LimitedBy::Application,
            sctp::LimitedBy::Receiver => LimitedBy::Receiver,
            sctp::LimitedBy::Network => LimitedBy::Network,
        })
    }

    /// Describes the shared association that connections to this host use, if one exists.
    fn shared_note(&self, address: IpAddr) -> Option<String> {
        let mut shared = self.shared.iter().filter(|(_, state)| state.speaks_for(address));
        let users = shared.next()?.1.owners().len();
        Some(format!("new connections to this host share an association, which now carries {users}"))
    }

    /// Returns the learned entry that keeps the destination on TCP. If no entry does, returns the entry of the destination's
    /// host.
    fn learned_of(&self, to: SocketAddr) -> Option<LearnedRow> {
        let table = self.policy.learned().lock();
        table.explain(to).or_else(|| table.host(to.ip())).map(|entry| LearnedRow::new(entry, today()))
    }

    fn learned_reason(&self, decision: &Decision, learned: &Option<LearnedRow>) -> Option<FallbackReason> {
        let disabled = learned.as_ref().and_then(|row| row.entry.disabled)?;
        let is_heeded = !decision.is_order() && self.policy.settings().learn;
        is_heeded.then_some(FallbackReason::Learned { failure: disabled.failure })
    }

    /// Returns the report of `sctpify doctor`. The arguments `delivery` and `process` are checks that the report includes: of
    /// the interception, and of the daemon's process.
    pub(crate) fn doctor(
        &self,
        peer: Option<IpAddr>,
        is_enclosed: bool,
        delivery: Vec<Check>,
        process: Vec<Check>,
    ) -> DoctorReport {
        let mut checks = vec![Check::ok("interception", "the queue and the private namespace are in place")];
        if is_enclosed {
            checks.push(Check::ok(
                "privileges",
                "none needed: this daemon serves one command in its own namespaces",
            ));
        }
        checks.extend(self.packet_io.report().iter().map(carrier_check));
        checks.push(match netio::kernel_sctp() {
            None => Check::ok("kernel SCTP", "not loaded, as it should be"),
            Some(found) => {
                let remedy = "unload it: modprobe -r sctp; or set carriers=udp";
                Check::bad("kernel SCTP", Level::Warning, found.to_string(), remedy)
            }
        });
        checks.extend(delivery);
        checks.extend(process);
        let keys = self.policy.rules().keys().len();
        if keys > 0 {
            let how = if self.policy.settings().peer_key_required { "required" } else { "not required" };
            checks.push(Check::ok("peer keys", format!("{keys} keys, {how}")));
        }
        let first =
            peer.and_then(|remote| Some((source_address(SocketAddr::new(remote, ANY_PORT))?, remote)));
        checks.extend(self.address_checks(first));
        checks.extend(peer.and_then(|peer| self.nat_check(peer)));
        let addresses = first.map_or(Vec::new(), |(local, remote)| self.own_addresses(local, remote));
        DoctorReport { checks, links: Vec::new(), addresses }
    }

    /// Describes the addresses of this host's uplinks, for connections that begin between `local` and `remote`.
    fn own_addresses(&self, local: IpAddr, remote: IpAddr) -> Vec<OwnAddress> {
        let learned = self.policy.learned().lock();
        let asker = Asker { local, remote, others: learned.others(remote), is_dialled: true };
        let book = self.policy.addresses();
        let own = |local: IpAddr, left_out: Option<LeftOut>| {
            let interface = book.interface_name(local);
            let name = interface.as_deref().and_then(|interface| book.link_name(interface));
            let is_down = left_out == Some(LeftOut::LinkDown);
            let unused = left_out.filter(|_| !is_down).map(|why| why.why().to_owned());
            OwnAddress { local, name: name.map(str::to_owned), interface, is_down, unused }
        };
        let offered = book.offered(self.now, asker).into_iter().map(|address| own(address, None));
        let others = book.unused_uplinks(self.now, asker);
        offered.chain(others.into_iter().map(|(address, why)| own(address, Some(why)))).collect()
    }

    /// Lists the addresses that connections use, and the addresses that are left out. If `first` is set, both lists apply to
    /// connections between these two addresses.
    fn address_checks(&self, first: Option<(IpAddr, IpAddr)>) -> Vec<Check> {
        let (told, whom, left_out) = match first {
            Some((local, remote)) => {
                let learned = self.policy.learned().lock();
                let asker = Asker { local, remote, others: learned.others(remote), is_dialled: true };
                let left_out = self.policy.addresses().all_left_out(self.now, asker);
                (self.policy.addresses().offered(self.now, asker), format!(" with {remote}"), left_out)
            }
            None => {
                let left_out = self.policy.addresses().generally_left_out(self.now);
                let is_told = |ip: &&IpAddr| left_out.iter().all(|(known, _)| known.addr != **ip);
                let told = self.policy.addresses().usable().iter().filter(is_told).copied().collect();
                (told, String::new(), left_out)
            }
        };
        let list = told.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        let addresses = match (told.len(), self.policy.addresses().usable().len()) {
            (_, 0) => {
                Check::bad("addresses", Level::Missing, "no usable address", "give an interface an address")
            }
            (0, _) => {
                let found = "no link has a default route: connections begin with the address of their route";
                let remedy = "`sctpify doctor HOST` lists the addresses announced to HOST";
                Check::bad("addresses", Level::Warning, found, remedy)
            }
            (1, _) => {
                let remedy = "a second uplink gives each connection a second path";
                Check::bad(
                    "addresses",
                    Level::Warning,
                    format!("one address{whom}, {list}: one path"),
                    remedy,
                )
            }
            (n, _) => Check::ok("addresses", format!("{n} addresses{whom}: {list}")),
        };
        let out = |(known, why): &(&LocalAddress, LeftOut)| {
            format!("{} of {} ({})", known.addr, known.ifname, why.why())
        };
        let left_out: Vec<String> = left_out.iter().map(out).collect();
        let left_out = (!left_out.is_empty()).then(|| Check::ok("left out", left_out.join("; ")));
        std::iter::once(addresses).chain(left_out).collect()
    }

    /// Reports a NAT that a shared association has revealed. The peer sees a translated address in place of this host's
    /// address.
    fn nat_check(&self, peer: IpAddr) -> Option<Check> {
        let shared = self.shared.iter().map(|(_, state)| state).filter(|state| state.speaks_for(peer));
        let address = shared.flat_map(|state| state.barred()).next()?;
        let found = format!("the peer sees {address} of this host as another address: a NAT is on the path");
        let remedy = "nothing: outgoing connections work, each on its own association";
        Some(Check::bad("NAT", Level::Warning, found, remedy))
    }
}

fn carrier_check(carrier: &OpenCarrier) -> Check {
    let name = match carrier.carrier {
        Via::SctpUdp => "SCTP in UDP",
        Via::Sctp | Via::Tcp => "SCTP over IP",
    };
    match (&carrier.problem, carrier.udp_port) {
        (Some(problem), _) => {
            let remedy = "remove the obstacle, or change the named setting; the daemon retries by itself";
            Check::bad(name, Level::Missing, problem.clone(), remedy)
        }
        (None, Some(port)) => Check::ok(
            name,
            format!("listening on UDP port {port}; `sctpify doctor HOST` tests whether packets pass"),
        ),
        (None, None) if carrier.carrier == Via::SctpUdp => {
            Check::ok(name, "listening on a UDP port of the kernel's choice")
        }
        (None, None) => Check::ok(name, "listening on IP protocol 132"),
    }
}

const fn shim_of_association(role: Role) -> ShimState {
    match role {
        Role::Client => ShimState::Hidden,
        Role::Server => ShimState::Native,
    }
}

fn direction(known: &Known) -> Direction {
    let Stage::Relaying(flowing) = known.stage() else { return Direction::Both };
    match (flowing.relay().is_sending(), flowing.relay().is_receiving()) {
        (true, true) => Direction::Both,
        (true, false) => Direction::Sending,
        (false, true) => Direction::Receiving,
        (false, false) => Direction::Closing,
    }
}

/// Describes a path without its link.
fn path_of(path: &PathInfo, last_switch_s: Option<u64>) -> Path {
    Path {
        local: (!path.route.local.is_unspecified()).then_some(path.route.local),
        remote: path.route.remote,
        carrier: via(path.route.carrier),
        udp_port: match path.route.carrier {
            Carrier::Udp { peer_port } => Some(peer_port),
            Carrier::Ip => None,
        },
        state: match path.state {
            _ if !path.confirmed => PathState::Unconfirmed,
            sctp::PathState::Unconfirmed => PathState::Unconfirmed,
            sctp::PathState::Active => PathState::Active,
            sctp::PathState::PotentiallyFailed => PathState::PotentiallyFailed,
            sctp::PathState::Inactive => PathState::Inactive,
        },
        primary: path.primary,
        in_use: path.in_use,
        srtt_us: path.srtt.map(|srtt| u64::try_from(srtt.as_micros()).unwrap_or(u64::MAX)),
        rto_ms: u64::try_from(path.rto.as_millis()).unwrap_or(u64::MAX),
        cwnd_bytes: path.cwnd as u64,
        flight_bytes: path.flight as u64,
        data_sent_bytes: path.new_data,
        mtu_bytes: u32::from(path.mtu),
        errors: u32::from(path.errors),
        interface: None,
        name: None,
        local_use: use_of(path.local_use),
        remote_use: use_of(path.remote_use),
        sent_bytes: path.bytes_sent,
        received_bytes: path.bytes_received,
        last_switch_s,
    }
}

fn use_of(usage: sctp::AddressUse) -> control::AddressUse {
    match usage.preference {
        Preference::Primary => control::AddressUse::Primary,
        Preference::Secondary => control::AddressUse::Secondary,
        Preference::Backup => control::AddressUse::Backup,
    }
}

fn via(carrier: Carrier) -> Via {
    match carrier {
        Carrier::Udp { .. } => Via::SctpUdp,
        Carrier::Ip => Via::Sctp,
    }
}

fn seconds(duration: Duration) -> u64 {
    duration.as_secs()
}
