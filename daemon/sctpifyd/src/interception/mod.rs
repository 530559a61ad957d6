//! Manages the kernel's side of interception: held SYNs and their verdicts, diverted connections, connections to local
//! programs, and lost addresses that are kept for connections.
//!
//! [`holding`] selects the SYNs that the kernel holds. [`requiring`] selects the plain TCP that the kernel refuses. [`uplinks`]
//! selects the interfaces through which connections arrive. In a command's enclosed namespace, a [`Forwarder`] opens the
//! connections that stay plain TCP. The callers make all decisions about SCTP. Begin at [`Interception::next_syn`].

mod diversions;
mod holding;
mod requiring;
mod uplinks;
mod verdicts;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use base::Time;
use intercept::{
    Arrival, ClientState, Denial, FourTuple, HeldSyn, Interceptor, ListenerState, SpoofedConnection,
    TcpState, Verdict,
};
use mio::{Interest, Registry, Token};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use rules::Guarded;

use crate::addresses::AddressBook;
use crate::connection::Connections;
use crate::forwarding::{self, Forwarder};
use crate::manual::Socket;
use crate::rules_store::RulesStore;
use crate::timers::{Timer, Timers};
use diversions::{Diversions, Full};
use holding::Holding;
use uplinks::Unanswered;
use verdicts::Verdicts;

/// Limit on the listeners: one for each address family.
pub(crate) const LISTENERS_MAX: usize = 2;
/// Delay between the end of a connection to a local program and the removal of the kernel's state of this connection.
const FORGET_PAUSE: Duration = Duration::from_millis(20);
/// Client port that no connection uses, because the kernel does not assign it to programs.
const UNLIKELY_PORT: u16 = 1;

/// The interceptor, and the state of the intercepted connections.
pub(crate) struct Interception {
    interceptor: Interceptor,
    /// Forwarder of plain connections. It is set if this process serves a command's enclosed namespace.
    forwarder: Option<Forwarder>,
    verdicts: Verdicts,
    diversions: Diversions,
    /// Ended connections to local programs. The kernel still holds their state.
    over: BTreeSet<FourTuple>,
    /// Addresses that the host has lost and that the shim's interface keeps for local programs' connections.
    kept: BTreeSet<IpAddr>,
    /// Connections to local programs that got no answer.
    unanswered: Unanswered,
    /// State of the kernel's selection of SYNs.
    holding: Holding,
    /// Rules that require SCTP, as the kernel last accepted them; empty at the start.
    guarded: Vec<Guarded>,
    /// The queue may contain SYNs that this process has not read yet.
    has_syns: bool,
    /// For each listener, true if diverted connections may wait there.
    has_arrivals: [bool; LISTENERS_MAX],
}

/// State of the application whose SYN is held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applicant {
    /// The application waits for its connection.
    Waits,
    /// The application's socket is bound to an interface.
    IsBound,
    Gone,
}

/// The addresses of this host that a client may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// All addresses of this host. The program listens on all of them, or the settings offer all.
    All,
    /// Only the addresses on which the program listens.
    Bound,
}

impl Interception {
    /// Registers the interceptor's queue under `queue`, and its listeners under consecutive tokens from `first_listener` on.
    pub(crate) fn new(
        mut interceptor: Interceptor,
        registry: &Registry,
        queue: Token,
        first_listener: Token,
    ) -> io::Result<Interception> {
        registry.register(interceptor.queue(), queue, Interest::READABLE)?;
        for (place, listener) in interceptor.listeners().iter_mut().enumerate().take(LISTENERS_MAX) {
            registry.register(listener, Token(first_listener.0 + place), Interest::READABLE)?;
        }
        let diversions = Diversions::new(interceptor.diversions_max());
        Ok(Interception {
            interceptor,
            forwarder: None,
            verdicts: Verdicts::default(),
            diversions,
            over: BTreeSet::new(),
            kept: BTreeSet::new(),
            unanswered: Unanswered::default(),
            holding: Holding::new(),
            guarded: Vec::new(),
            has_syns: true,
            has_arrivals: [true; LISTENERS_MAX],
        })
    }

    /// Serves a command's enclosed namespace from now on.
    pub(crate) fn serve_command(&mut self, forwarder: Forwarder) {
        self.forwarder = Some(forwarder);
    }

    /// Reports whether this process serves a command's enclosed namespace instead of the host.
    pub(crate) const fn is_enclosed(&self) -> bool {
        self.forwarder.is_some()
    }

    pub(crate) const fn interceptor(&self) -> &Interceptor {
        &self.interceptor
    }

    pub(crate) fn tear_down(self) -> Result<()> {
        self.interceptor.tear_down().context("cleanup is incomplete")
    }

    /// Shows the kernel that SYNs are served.
    pub(crate) fn show_life(&mut self) {
        if let Err(error) = self.interceptor.show_life() {
            tracing::warn!(%error, "cannot signal to the kernel that SYNs are served: new connections are plain TCP");
        }
    }

    /// Sleeps for `pause`, or until a SYN arrives.
    pub(crate) fn rest(&mut self, pause: Duration) {
        let queue = self.interceptor.queue();
        let mut held = [PollFd::new(queue.as_fd(), PollFlags::POLLIN)];
        // A failure ends the sleep early. The event loop's next poll reports the failure again.
        let _ = ppoll(&mut held, Some(TimeSpec::from_duration(pause)), None);
    }

    /// Notes that the poll reported SYNs in the queue.
    pub(crate) const fn on_queue_ready(&mut self) {
        self.has_syns = true;
    }

    /// Notes that the poll reported connections at the listener with the index `place`.
    pub(crate) const fn on_listener_ready(&mut self, place: usize) {
        self.has_arrivals[place] = true;
    }

    /// Reports whether SYNs or diverted connections may wait to be taken.
    pub(crate) fn has_more(&self) -> bool {
        self.has_syns || self.has_arrivals.contains(&true)
    }

    /// Takes the next held SYN.
    pub(crate) fn next_syn(&mut self) -> Result<Option<HeldSyn>> {
        if !self.has_syns {
            return Ok(None);
        }
        let syn = self.interceptor.queue().recv().context("the queue of held SYNs failed")?;
        self.has_syns = syn.is_some();
        Ok(syn)
    }

    /// Takes the next diverted connection from the listener at `place`.
    pub(crate) fn next_arrival(&mut self, place: usize) -> Option<Arrival> {
        if !self.has_arrivals[place] {
            return None;
        }
        let listener = self.interceptor.listeners().get(place);
        let arrival = listener.and_then(|listener| {
            listener.accept().unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot accept a diverted connection");
                None
            })
        });
        self.has_arrivals[place] = arrival.is_some();
        arrival
    }

    /// Handles a retransmitted SYN. If a verdict was given, repeats it. Otherwise, holds this SYN in place of the earlier copy,
    /// and drops the earlier copy. Returns false if the SYN is new.
    pub(crate) fn judge_again(&mut self, syn: &HeldSyn) -> bool {
        if let Some(verdict) = self.verdicts.find(&syn.flow, syn.isn) {
            self.give_verdict(syn, verdict);
            return true;
        }
        let Some(replaced) = self.forwarder.as_mut().and_then(|forwarder| forwarder.hold_again(*syn)) else {
            return false;
        };
        self.drop_replaced(&replaced);
        true
    }

    /// Gives the verdict on a SYN, and remembers the verdict for retransmissions of the SYN.
    pub(crate) fn judge(&mut self, syn: &HeldSyn, verdict: Verdict) {
        self.verdicts.remember(syn.flow, syn.isn, verdict);
        self.give_verdict(syn, verdict);
    }

    /// Drops a SYN that was replaced by another SYN with the same addresses and ports. The drop frees the replaced SYN's place
    /// in the kernel's queue. The verdict is not remembered, because the new SYN may be a retransmission.
    pub(crate) fn drop_replaced(&mut self, syn: &HeldSyn) {
        self.give_verdict(syn, Verdict::Drop);
    }

    fn give_verdict(&mut self, syn: &HeldSyn, verdict: Verdict) {
        if let Err(error) = self.interceptor.queue().verdict(syn.id, verdict) {
            tracing::warn!(flow = %syn.flow, %error, "the kernel refused a verdict");
        }
    }

    /// Lets a SYN continue as plain TCP.
    pub(crate) fn release(&mut self, syn: &HeldSyn) {
        match &mut self.forwarder {
            Some(forwarder) => {
                if let Some(replaced) = forwarder.open(*syn) {
                    self.drop_replaced(&replaced);
                }
            }
            None => self.judge(syn, Verdict::Accept),
        }
    }

    /// Handles a SYN to a destination where plain TCP must be refused. Normally the SYN is released, and the kernel refuses the
    /// connection. In an enclosed namespace, or while the kernel lacks the current rules, the SYN is refused here.
    pub(crate) fn release_to_refusal(&mut self, syn: &HeldSyn, rules: &RulesStore) {
        match self.is_enclosed() || self.guarded != rules.lock().guarded() {
            true => self.refuse(syn),
            false => self.release(syn),
        }
    }

    /// Refuses a connection to a destination at which the kernel itself does not refuse plain TCP. In an enclosed namespace,
    /// the program gets "host unreachable". Elsewhere the SYN and its retransmissions are dropped, and the program waits until
    /// its own time limit.
    pub(crate) fn refuse(&mut self, syn: &HeldSyn) {
        match self.is_enclosed() {
            true => self.judge(syn, Verdict::Deny(Denial::HostUnreachable)),
            false => self.judge(syn, Verdict::Drop),
        }
    }

    /// Derives the verdict on a held SYN from the outcome of the plain connection that the forwarder has opened outside the
    /// enclosed namespace.
    pub(crate) fn on_opened(&mut self, flow: &FourTuple, outcome: &io::Result<()>) {
        let Some(syn) = self.forwarder.as_mut().and_then(|forwarder| forwarder.settle(flow)) else { return };
        let verdict = forwarding::verdict_on(outcome);
        tracing::debug!(%flow, ?outcome, ?verdict, "plain connection");
        self.judge(&syn, verdict);
    }

    /// Handles an arrived connection that does not use SCTP: passes its stream to the forwarder. Without a forwarder, the
    /// stream is dropped, which resets the connection.
    pub(crate) fn claim(&mut self, arrival: Arrival) {
        match &mut self.forwarder {
            Some(forwarder) => forwarder.claim(arrival),
            None => tracing::debug!(flow = %arrival.flow, "an unexpected connection"),
        }
    }

    /// Reports whether the address stands for the host's name server within the enclosed namespace.
    pub(crate) fn is_name_server(&self, ip: IpAddr) -> bool {
        self.forwarder.as_ref().is_some_and(|forwarder| forwarder.is_name_server(ip))
    }

    /// Returns the connection's local address and port on the wire. In an enclosed namespace, the address is this host's source
    /// address for the destination. Elsewhere it is the program's own address.
    pub(crate) fn wire_address(&self, flow: &FourTuple) -> SocketAddr {
        let source = self.forwarder.as_ref().and_then(|_| forwarding::source_of(flow.remote().ip()));
        source.map_or(flow.local(), |source| SocketAddr::new(source, flow.local().port()))
    }

    /// Returns the state of the application whose SYN is held.
    pub(crate) fn find_client(&mut self, syn: &HeldSyn) -> io::Result<Applicant> {
        Ok(match self.interceptor.find_client(&syn.flow, syn.out_interface)? {
            ClientState::SynSent { bound_interface: None, .. } => Applicant::Waits,
            ClientState::SynSent { bound_interface: Some(_), .. } => Applicant::IsBound,
            ClientState::Gone | ClientState::Other(_) => Applicant::Gone,
        })
    }

    /// Finds the listener that a connection from `client` to `server` would reach. Returns the addresses that a client may use,
    /// and the listener's socket. Returns `None` if no program listens. If the two addresses have different families, the
    /// lookup uses the server's address as the client's address.
    pub(crate) fn find_listener(
        &mut self,
        server: SocketAddr,
        client: SocketAddr,
    ) -> Option<(Offer, Socket)> {
        let stand_in = SocketAddr::new(server.ip(), client.port());
        let flow = FourTuple::new(server, client).or_else(|| FourTuple::new(server, stand_in))?;
        match self.interceptor.find_listener(&flow) {
            Ok(ListenerState::Listening { on_all, uid, inode }) => {
                Some((if on_all { Offer::All } else { Offer::Bound }, Socket { inode, uid }))
            }
            // A new connection may replace a connection in TIME-WAIT, as a new connection over TCP may. The lookup is repeated
            // with another client port.
            Ok(ListenerState::Collision(TcpState::TIME_WAIT)) if flow.remote() != another(flow.remote()) => {
                self.find_listener(server, another(flow.remote()))
            }
            _ => None,
        }
    }

    /// Reports whether the connection's local program accepts no connections because its backlog is full.
    pub(crate) fn is_backlog_full(&mut self, flow: &FourTuple) -> bool {
        FourTuple::new(flow.local(), another(flow.remote()))
            .is_some_and(|flow| self.interceptor.is_backlog_full(&flow).unwrap_or(false))
    }

    /// Begins a connection to a local program, with the address `client` as its source. The connection arrives through the
    /// interface `uplink`. If `uplink` is `None`, it arrives through the shim's own interface. Also returns the connection's
    /// addresses as the program sees them.
    pub(crate) fn connect_as(
        &mut self,
        client: SocketAddr,
        server: SocketAddr,
        uplink: Option<u32>,
    ) -> io::Result<(SpoofedConnection, FourTuple)> {
        let spoofed = self.interceptor.connect_as(client, server, uplink)?;
        let flow = FourTuple::new(server, spoofed.client)
            .ok_or_else(|| io::Error::other("client and server have different address families"))?;
        Ok((spoofed, flow))
    }

    /// Notes that a connection is diverted from now on.
    ///
    /// # Errors
    /// Fails if the limit is reached.
    pub(crate) fn begin_diversion(&mut self, flow: FourTuple) -> Result<(), Full> {
        self.diversions.begin(flow)
    }

    /// Notes that a connection has ended. Its packets stay diverted during the application's TIME-WAIT.
    pub(crate) fn end_diversion_later(&mut self, now: Time, flow: FourTuple, timers: &mut Timers<Timer>) {
        let was_empty = self.diversions.next().is_none();
        self.diversions.end_later(now, flow);
        if was_empty {
            self.await_diversions(timers);
        }
    }

    /// Ends the diversions whose time has expired.
    pub(crate) fn on_diversions_over(&mut self, now: Time, timers: &mut Timers<Timer>) {
        let over = self.diversions.take_over(now);
        self.undivert(&over);
        self.await_diversions(timers);
    }

    fn await_diversions(&self, timers: &mut Timers<Timer>) {
        if let Some(next) = self.diversions.next() {
            timers.set(next, Timer::Diversions);
        }
    }

    /// Stops the diversion of this flow's packets at once.
    pub(crate) fn end_diversion(&mut self, flow: &FourTuple) {
        if self.diversions.end(flow) {
            self.undivert(std::slice::from_ref(flow));
        }
    }

    fn undivert(&mut self, flows: &[FourTuple]) {
        if let Err(error) = self.interceptor.undivert(flows) {
            tracing::warn!(?flows, %error, "diversions stay in force");
        }
    }

    /// Handles the end of a connection to a local program. After [`FORGET_PAUSE`], the kernel's state of this connection is
    /// removed in one batch with the states of others. The next connection therefore does not wait for the removal.
    pub(crate) fn forget_served(&mut self, now: Time, flow: FourTuple, timers: &mut Timers<Timer>) {
        if self.over.is_empty() {
            timers.set(now + FORGET_PAUSE, Timer::Forget);
        }
        self.over.insert(flow);
    }

    /// Notes that a new connection to a local program has the addresses and ports of an ended one. The kernel's state is then
    /// not removed, because the new connection needs it.
    pub(crate) fn keep_served(&mut self, flow: &FourTuple) {
        self.over.remove(flow);
    }

    pub(crate) fn forget_all_served(&mut self) {
        let over: Vec<FourTuple> = std::mem::take(&mut self.over).into_iter().collect();
        if let Err(error) = self.interceptor.forget_served(&over) {
            tracing::warn!(flows = ?over, %error, "packets of local programs to it are still diverted to the shim");
        }
    }

    /// Releases kept addresses that no live connection or diversion needs any more.
    pub(crate) fn release_addresses(&mut self, connections: &Connections, addresses: &AddressBook) {
        if self.keeps_addresses() {
            self.keep_addresses(connections, addresses);
        }
    }

    /// Reports whether the shim's interface keeps any address that the host has lost.
    pub(crate) fn keeps_addresses(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Keeps those lost addresses of the host that live connections or diversions use, and no others.
    ///
    /// In an enclosed namespace, the programs' addresses never go away.
    pub(crate) fn keep_addresses(&mut self, connections: &Connections, addresses: &AddressBook) {
        if self.is_enclosed() {
            return;
        }
        let in_use = connections.iter().map(|(_, connection)| connection.flow().local().ip());
        let lingering = self.diversions.flows().map(|flow| flow.local().ip());
        let wanted: BTreeSet<IpAddr> = in_use.chain(lingering).filter(|ip| !addresses.is_own(*ip)).collect();
        for ip in wanted.difference(&self.kept) {
            if let Err(error) = self.interceptor.keep_address(*ip) {
                tracing::warn!(%ip, %error, "local programs lose the address of their connections");
            }
        }
        for ip in self.kept.difference(&wanted) {
            if let Err(error) = self.interceptor.release_address(*ip) {
                tracing::warn!(%ip, %error, "an unused address stays on our interface");
            }
        }
        self.kept = wanted;
    }
}

/// Returns the client's address with a port that no connection uses.
pub(crate) fn another(client: SocketAddr) -> SocketAddr {
    SocketAddr::new(client.ip(), UNLIKELY_PORT)
}
