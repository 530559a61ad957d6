//! Decides whether and how a connection is tried over SCTP. The decision depends on the rules, the learned table, this host's
//! addresses and facts about peers.
//!
//! This module sends no packet. Its only reading of a clock is the date. Begin at [`Policy::decide`].

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::{Carrier, Route, Time};
use control::{EncryptionFault, FallbackReason, LinkCap, Requirement, ShimState, ShimStep};
use intercept::FourTuple;
use rules::{Chain, Decision, Encryption, Failure, LearnPolicy, Outcome, Settings, Streams};
use sctp::{AssociationConfig, Connect};

use crate::addresses::{AddressBook, Asker};
use crate::carriers::PacketIo;
use crate::clock::today;
use crate::connection::{CONNECTIONS_MAX, stepped};
use crate::learned_store::LearnedStore;
use crate::rules_store::RulesStore;

/// Limit on the peers remembered as reachable over UDP. At the limit, all of them are forgotten.
const UDP_PEERS_MAX: usize = 4096;
/// Lifetime of an entry in [`UdpPeers`]. Each success over UDP restarts the lifetime.
const UDP_PEER_LIFETIME: Duration = Duration::from_secs(600);

/// The rules and the facts on which decisions about connections are based.
pub(crate) struct Policy {
    rules: RulesStore,
    learned: LearnedStore,
    addresses: AddressBook,
    /// The traffic of the links with a cap.
    caps: Vec<LinkCap>,
    udp_peers: UdpPeers,
    /// New connections stay plain TCP because the operator has drained the daemon. The daemon itself continues.
    draining: bool,
    stopping: bool,
}

/// Reason why a SYN continues as plain TCP.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Plain {
    /// The rules or the kind of connection require plain TCP. The connection is not reported as a fallback.
    ByRule,
    /// The destination is cached as not supporting SCTP.
    Learned,
    /// The rules allow SCTP, but another reason prevents it.
    Because(FallbackReason),
}

/// The terms of a connection that may use SCTP.
#[derive(Debug)]
pub(crate) struct Terms {
    /// The settings. The connection's rule may have changed some of them.
    pub(crate) settings: Settings,
    /// Name or key of the only peer that may get the connection; `None` if any peer may.
    pub(crate) peer: Option<String>,
}

impl Terms {
    fn of(settings: &Settings, decision: &Decision) -> Result<Terms, Plain> {
        let mut settings = settings.clone();
        if decision.wants_own() {
            settings.streams = Streams::Own;
        }
        settings.set_advertisement(decision.advertisement(&settings));
        let Some(secure) = decision.secure() else { return Ok(Terms { settings, peer: None }) };
        if settings.encryption != Encryption::Off {
            settings.encryption = secure.encryption();
        } else if secure.is_required() {
            return Err(Plain::not_encrypted(EncryptionFault::OffHere));
        }
        Ok(Terms { settings, peer: secure.peer().map(str::to_owned) })
    }
}

impl Plain {
    pub(crate) const fn not_encrypted(found: EncryptionFault) -> Plain {
        Plain::Because(FallbackReason::NotEncrypted { found })
    }

    pub(crate) fn at_limit(of: &str) -> Plain {
        Plain::Because(FallbackReason::LimitReached { limit: of.to_owned() })
    }

    pub(crate) fn by_error(error: &impl ToString) -> Plain {
        Plain::Because(FallbackReason::LocalError { error: error.to_string() })
    }
}

impl Policy {
    pub(crate) fn new(rules: RulesStore, learned: LearnedStore, addresses: AddressBook) -> Policy {
        let udp_peers = UdpPeers::default();
        Policy { rules, learned, addresses, caps: Vec::new(), udp_peers, draining: false, stopping: false }
    }

    pub(crate) const fn rules(&self) -> &RulesStore {
        &self.rules
    }

    /// Returns the settings in force.
    pub(crate) fn settings(&self) -> Settings {
        self.rules.settings()
    }

    pub(crate) const fn learned(&self) -> &LearnedStore {
        &self.learned
    }

    pub(crate) const fn addresses(&self) -> &AddressBook {
        &self.addresses
    }

    /// Applies changes of the host's addresses.
    pub(crate) fn refresh_addresses(&mut self) {
        self.addresses.refresh();
    }

    /// Applies the link policies of the settings. Reports whether the policies have changed.
    pub(crate) fn follow_links(&mut self) -> bool {
        self.addresses.set_links(&self.rules.settings().links)
    }

    /// Notes the traffic of the links with a cap. Reports whether the use of a link has changed.
    pub(crate) fn note_caps(&mut self, caps: Vec<LinkCap>) -> bool {
        let reached = caps.iter().filter(|cap| cap.is_reached).map(|cap| cap.interface.clone());
        let is_changed = self.addresses.set_capped(reached.collect());
        self.caps = caps;
        is_changed
    }

    /// Returns the traffic of the links with a cap.
    pub(crate) fn caps(&self) -> &[LinkCap] {
        &self.caps
    }

    /// Returns the addresses whose links have gone down (false) or come up (true) since the last call.
    pub(crate) fn take_link_changes(&mut self) -> Vec<(IpAddr, bool)> {
        self.addresses.take_link_changes()
    }

    /// Makes new connections stay plain TCP from now on. The daemon continues.
    pub(crate) const fn drain(&mut self) {
        self.draining = true;
    }

    /// Makes new connections stay plain TCP from now on, because the daemon stops.
    pub(crate) const fn stop(&mut self) {
        self.stopping = true;
    }

    pub(crate) const fn is_draining(&self) -> bool {
        self.draining
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Reports whether new connections stay plain TCP.
    pub(crate) const fn is_ending(&self) -> bool {
        self.stopping || self.draining
    }

    /// Decides whether a connection may use SCTP. Returns its terms, and the shim state that shows why SCTP is allowed.
    ///
    /// - `mark`: the mark of the connection's SYN.
    /// - `is_order`: true if the learned table must be ignored.
    /// - `is_enclosed`: true if the connection begins in a command's enclosed namespace.
    /// - `connections`: the number of existing connections.
    ///
    /// # Errors
    /// Returns the reason why the connection stays plain TCP.
    pub(crate) fn decide(
        &self,
        flow: &FourTuple,
        (mark, is_order): (u32, bool),
        is_enclosed: bool,
        connections: usize,
    ) -> Result<(Terms, ShimState), Plain> {
        let (local, remote) = (flow.local(), flow.remote());
        // A socket that is connected to itself has no second end.
        if self.addresses.stays_plain(remote.ip()) || remote.ip().is_multicast() || local == remote {
            return Err(Plain::ByRule);
        }
        let (terms, step, is_rules_order) = self.ask_rules(remote, mark)?;
        if self.is_ending() {
            return Err(Plain::Because(FallbackReason::DaemonStopping));
        }
        if !is_enclosed && !self.addresses.is_own(local.ip()) {
            return Err(Plain::Because(FallbackReason::ForeignSource));
        }
        if self.addresses.is_left_out(local.ip()) {
            return Err(Plain::Because(FallbackReason::InterfaceLeftOut { address: local.ip() }));
        }
        if connections >= CONNECTIONS_MAX {
            return Err(Plain::at_limit("connections"));
        }
        if !is_order
            && !is_rules_order
            && terms.settings.learn
            && self.learned.lock().call(today(), remote).is_some()
        {
            self.rules.record(Chain::Remote, remote, Outcome::KeptOnTcp);
            return Err(Plain::Learned);
        }
        Ok((terms, stepped(stepped(ShimState::Notinit, ShimStep::Created), step)))
    }

    /// Returns the terms, the step that allows SCTP, and whether the request overrides the learned table.
    fn ask_rules(&self, remote: SocketAddr, mark: u32) -> Result<(Terms, ShimStep, bool), Plain> {
        let mut book = self.rules.lock();
        if is_asked_for(mark, &book.settings) {
            let decision = book.explain(Chain::Remote, remote.ip(), remote.port());
            return Ok((Terms::of(&book.settings, &decision)?, ShimStep::AskedFor, true));
        }
        let decision = book.decide(Chain::Remote, remote.ip(), remote.port());
        if !decision.policy.is_enable() {
            return Err(Plain::ByRule);
        }
        let terms = Terms::of(&book.settings, &decision)?;
        Ok((terms, ShimStep::Allowed, decision.is_order()))
    }

    /// Reports whether a rule refuses plain TCP to this destination.
    pub(crate) fn is_required(&self, remote: SocketAddr) -> bool {
        self.rules.lock().explain(Chain::Remote, remote.ip(), remote.port()).is_required()
    }

    /// Returns the terms of a connection that was already allowed to use SCTP. Does not count a hit of the rule.
    ///
    /// # Errors
    /// Fails if a rule requires encryption, and the setting `encryption` is off.
    pub(crate) fn terms(&self, remote: SocketAddr) -> Result<Terms, Plain> {
        let book = self.rules.lock();
        Terms::of(&book.settings, &book.explain(Chain::Remote, remote.ip(), remote.port()))
    }

    /// Reports whether the rules or a SYN's mark allow SCTP. Does not count a hit of the rule.
    pub(crate) fn may_use_sctp(&self, remote: SocketAddr, mark: u32) -> bool {
        let book = self.rules.lock();
        is_asked_for(mark, &book.settings)
            || book.explain(Chain::Remote, remote.ip(), remote.port()).policy.is_enable()
    }

    /// Returns the reason that reports show. If a rule requires SCTP, the reason is wrapped in [`FallbackReason::Required`],
    /// because the connection is then refused.
    pub(crate) fn told(&self, to: SocketAddr, reason: FallbackReason) -> FallbackReason {
        if self.is_required(to) {
            FallbackReason::Required { by: Requirement::Rule, cause: Box::new(reason) }
        } else {
            reason
        }
    }

    /// Returns the local addresses that this host offers to a peer to which it connects.
    pub(crate) fn offered(&self, now: Time, local: IpAddr, remote: IpAddr) -> Vec<IpAddr> {
        let learned = self.learned.lock();
        let others = learned.others(remote);
        self.addresses.offered(now, Asker { local, remote, others, is_dialled: true })
    }

    /// Returns the routes of an INIT: one for each open carrier, or only UDP if the peer was reached over UDP recently. From a
    /// port below 1024, the INIT uses only IP protocol 132, unless the hosts are keyed. Without a key, peers trust such ports
    /// only over that carrier ([`crate::accept_policy`]).
    pub(crate) fn init_routes(
        &self,
        now: Time,
        local: SocketAddr,
        remote: IpAddr,
        settings: &Settings,
        packet_io: &PacketIo,
    ) -> Vec<Route> {
        let udp = Carrier::Udp { peer_port: settings.udp_port };
        let wanted: &[Carrier] = match local.port() {
            port if is_privileged(port) && !self.rules.is_keyed(remote) => &[Carrier::Ip],
            _ if self.udp_peers.knows(remote, now) => &[udp],
            _ => &[udp, Carrier::Ip],
        };
        let routes = wanted.iter().map(|carrier| Route { local: local.ip(), remote, carrier: *carrier });
        routes.filter(|route| packet_io.has(route)).collect()
    }

    /// Returns the request for an association between these addresses and ports. The function `config` creates the
    /// association's configuration from an MTU and the settings.
    pub(crate) fn connect(
        &self,
        now: Time,
        (local, remote): (SocketAddr, SocketAddr),
        settings: &Settings,
        packet_io: &PacketIo,
        config: fn(u16, &Settings) -> AssociationConfig,
    ) -> Connect {
        Connect {
            local_port: local.port(),
            remote_port: remote.port(),
            init_routes: self.init_routes(now, local, remote.ip(), settings, packet_io),
            local_addresses: self.offered(now, local.ip(), remote.ip()),
            config: self.rules.keyed(remote.ip(), config(self.addresses.mtu(), settings)),
        }
    }

    /// Remembers the carrier over which this host reached a peer.
    pub(crate) fn on_reached(&mut self, now: Time, remote: IpAddr, carrier: Carrier) {
        if matches!(carrier, Carrier::Udp { .. }) {
            self.udp_peers.learn(remote, now);
        }
    }

    /// Records that a connection to this destination is carried over SCTP.
    pub(crate) fn on_success(&self, to: SocketAddr, rtt_us: Option<u64>) {
        self.rules.record(Chain::Remote, to, Outcome::Sctp { rtt_us });
        if self.rules.settings().learn {
            self.learned.lock().on_success(today(), to, rtt_us);
        }
    }

    /// Records that a connection continues as plain TCP although SCTP was allowed. `failure` is the evidence that concerns the
    /// destination, if any.
    pub(crate) fn on_failure(&mut self, to: SocketAddr, failure: Option<Failure>) {
        self.udp_peers.forget(to.ip());
        self.rules.record(Chain::Remote, to, Outcome::Tcp(failure));
        let settings = self.rules.settings();
        if let Some(failure) = failure.filter(|_| settings.learn) {
            self.learned.lock().on_failure(today(), to, failure, &LearnPolicy::of(&settings));
        }
    }
}

/// Reports whether the packet's mark requests SCTP.
const fn is_asked_for(mark: u32, settings: &Settings) -> bool {
    settings.enable && settings.manual_mark != 0 && mark == settings.manual_mark
}

/// Reports whether a port is traditionally reserved for privileged programs. Some servers trust clients that use such a port.
pub(crate) const fn is_privileged(port: u16) -> bool {
    port < 1024
}

/// Peers that were recently reached over UDP. An INIT to such a peer is not also sent over IP protocol 132, which is slower.
#[derive(Default)]
struct UdpPeers {
    seen: BTreeMap<IpAddr, Time>,
}

impl UdpPeers {
    fn knows(&self, peer: IpAddr, now: Time) -> bool {
        self.seen.get(&peer).is_some_and(|at| now.since(*at) < UDP_PEER_LIFETIME)
    }

    fn learn(&mut self, peer: IpAddr, now: Time) {
        if self.seen.len() >= UDP_PEERS_MAX {
            self.seen.clear();
        }
        self.seen.insert(peer, now);
    }

    fn forget(&mut self, peer: IpAddr) {
        self.seen.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use rules::{Interfaces, Links, parse_table};

    use super::*;

    const MARK: u32 = 7;

    /// Returns the policy of a host whose loopback addresses count as its own.
    fn policy(default_remote_enable: bool, table: &str) -> Policy {
        let settings = Settings { default_remote_enable, manual_mark: MARK, ..Settings::default() };
        let rules = RulesStore::of(settings, parse_table(table).expect(table));
        let addresses = AddressBook::open(Interfaces::default(), Links::default(), true).expect("addresses");
        Policy::new(rules, LearnedStore::empty(), addresses)
    }

    fn flow(local: &str) -> FourTuple {
        let there = "192.0.2.1:80".parse().expect("an address");
        FourTuple::new(local.parse().expect("an address"), there).expect("one family")
    }

    fn outcome(policy: &Policy, local: &str, mark: u32) -> Result<ShimState, Plain> {
        policy.decide(&flow(local), (mark, false), false, 0).map(|(_, state)| state)
    }

    #[test]
    fn rules_decide_unless_the_socket_mark_requests_sctp() {
        let policy = policy(false, "");
        assert_eq!(outcome(&policy, "127.0.0.1:5000", 0), Err(Plain::ByRule));
        assert_eq!(outcome(&policy, "127.0.0.1:5000", MARK), Ok(ShimState::EnableManual));
        assert!(policy.may_use_sctp(flow("127.0.0.1:5000").remote(), MARK));
        assert!(!policy.may_use_sctp(flow("127.0.0.1:5000").remote(), 0));
    }

    #[test]
    fn a_mark_requests_sctp_and_keeps_the_security_terms_of_the_rule() {
        let policy = policy(false, "-A -c remote -p enable -d 192.0.2.1 --secure require=beta");
        let (terms, state) = policy.decide(&flow("127.0.0.1:5000"), (MARK, false), false, 0).unwrap();
        assert_eq!((state, terms.peer.as_deref()), (ShimState::EnableManual, Some("beta")));
        assert_eq!(terms.settings.encryption, Encryption::Require);
    }

    #[test]
    fn obstacles_of_this_host_come_before_evidence_on_the_destination() {
        let mut policy = policy(true, "");
        assert_eq!(outcome(&policy, "127.0.0.1:5000", 0), Ok(ShimState::EnableSrules));
        let foreign = Err(Plain::Because(FallbackReason::ForeignSource));
        assert_eq!(outcome(&policy, "198.51.100.1:5000", 0), foreign);
        let full = policy.decide(&flow("127.0.0.1:5000"), (0, false), false, CONNECTIONS_MAX);
        assert_eq!(full.map(drop), Err(Plain::at_limit("connections")));
        policy.on_failure(flow("127.0.0.1:5000").remote(), Some(Failure::PortUnreachable));
        assert_eq!(outcome(&policy, "127.0.0.1:5000", 0), Err(Plain::Learned));
        assert_eq!(outcome(&policy, "127.0.0.1:5000", MARK), Ok(ShimState::EnableManual), "an order");
        policy.drain();
        let ending = Err(Plain::Because(FallbackReason::DaemonStopping));
        assert_eq!(outcome(&policy, "127.0.0.1:5000", 0), ending);
        assert!(!policy.is_stopping());
    }

    #[test]
    fn a_peer_counts_as_reached_over_udp_for_ten_minutes_or_until_forgotten() {
        let (peer, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut peers = UdpPeers::default();
        peers.learn(peer, Time::ZERO);
        assert!(peers.knows(peer, Time::from_millis(599_999)) && !peers.knows(other, Time::ZERO));
        assert!(!peers.knows(peer, Time::from_millis(600_000)));
        peers.forget(peer);
        assert!(!peers.knows(peer, Time::ZERO));
    }
}
