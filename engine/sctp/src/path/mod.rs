//! One path to the peer: its state, RTO, congestion window and heartbeats. [`Paths`] is the set of all paths.
//!
//! This module sends no packets. Invariants: an unconfirmed path carries no data; `errors` is zero after an answer on the path.
//! Start at [`Path`], then [`Paths::choose`].

mod congestion;
mod delays;
mod distance;
mod ecn;
mod heartbeats;
mod index;
mod losses;
mod pacer;
mod paths;
mod pmtu;
mod prr;
mod rebinding;
mod rto;
mod sending;
mod usage;
mod vouching;
mod watch;

pub(crate) use congestion::Coupling;
pub(crate) use index::PathIndex;
#[cfg(test)]
pub(crate) use paths::tests::three_active;
pub(crate) use paths::{Paths, Retired};
pub(crate) use pmtu::{Pmtu, SizeProbe};
pub(crate) use rebinding::{Answer, Asks, Pace};
pub(crate) use sending::{Outcome, Seen, Sending};
pub(crate) use usage::Rank;

use std::num::NonZeroU16;
use std::time::Duration;

use base::{Carrier, Route, Time};

use crate::config::{AddressUse, AssociationConfig, Heartbeats, PathOptions, Timing};
use crate::info::{PathInfo, PathState};
use crate::random::Random;
use crate::tx::Seq;
use delays::DelayMeter;
use ecn::PathEcn;
use heartbeats::Probe;
use losses::LossMeter;
use rebinding::Rebinding;
use rto::Rto;
use usage::PathUse;
use vouching::Vouching;
use watch::Watch;

/// A change of a path's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transition {
    pub(crate) from: PathState,
    pub(crate) to: PathState,
}

/// Doubt about a path on which data is in flight and no answer arrives. A chunk that is repeated on another path shows whether
/// the peer still answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    /// The chunk that was repeated on another path.
    pub(crate) seq: Seq,
    /// End of the wait for an answer on the doubted path.
    pub(crate) judge_at: Time,
    /// True if the peer has received the repeated chunk.
    pub(crate) is_received: bool,
}

/// Signs of recovery of a path that counts as failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Returned {
    /// No packet has arrived since the failure.
    No,
    /// Packets arrive again.
    Heard,
    /// Packets arrive, and the path has been probed since the first of them.
    Asked,
    /// The path was probed without an answer, so it may work in one direction only.
    AskedInVain,
}

/// Counters of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCounters {
    pub(crate) packets_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    /// User bytes that were first sent on this path.
    pub(crate) new_data: u64,
    pub(crate) retransmissions: u64,
    /// Expiries of T3-rtx.
    pub(crate) timeouts: u64,
}

/// Pair of addresses with a carrier, and the state of the path between them.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) route: Route,
    state: PathState,
    confirmed: bool,
    /// True once the peer may have confirmed the path too: the peer has sent a HEARTBEAT on it, or the handshake used it.
    is_known_to_peer: bool,
    /// True once one of the path's addresses has left the association. A retired path only keeps its index.
    retired: bool,
    //= rfc9260#7.3-2
    pub(crate) pmtu: Pmtu,
    pub(crate) ecn: PathEcn,
    /// First chunk that was sent after the last reduction of the window. Congestion marks on earlier chunks are already
    /// accounted for.
    pub(crate) reduced_until: Seq,
    pub(crate) rebinding: Rebinding,
    pub(crate) vouching: Vouching,
    options: PathOptions,
    usage: PathUse,
    /// True while the path is a spare path: it carries no data, and data would not return to it. The uses of a spare path's
    /// addresses may make its heartbeats rarer.
    is_spare: bool,
    /// True after data has left another, failing path, until this path answers. This path may share a link with the failing
    /// path.
    is_assumed: bool,
    /// Bytes of new data divided by the path's weight. The path with the lowest value carries the next packet.
    pub(crate) turn: u64,
    //= rfc9260#8.2-1
    /// Number of consecutive timeouts. Verdicts of too much loss or delay also count.
    errors: u8,
    rto: Rto,
    //= rfc9260#7.2-3
    pub(crate) sending: Sending,
    pub(crate) losses: LossMeter,
    pub(crate) delays: DelayMeter,
    /// Expiry of T3-rtx.
    pub(crate) t3: Option<Time>,
    pub(crate) doubt: Option<Doubt>,
    /// True if deadlines for answers were postponed, and the path has not answered since the postponement.
    is_put_off: bool,
    /// Watch over a recovered path, before data returns to the path.
    watch: Watch,
    probe: Option<Probe>,
    next_heartbeat: Time,
    last_data: Time,
    /// Time at which a packet last arrived on this path.
    heard: Time,
    returned: Returned,
    /// First chunk of the next round-trip sample. Each round trip has one sample (rule C4).
    rtt_from: Seq,
    pub(crate) counters: PathCounters,
}

/// Returns the number of header bytes below SCTP in each packet: the IP header, and the UDP header if the carrier is UDP.
//= rfc6951#5.6-1
fn overhead(route: &Route) -> u16 {
    let ip = if route.remote.is_ipv4() { 20 } else { 40 };
    match route.carrier {
        Carrier::Ip => ip,
        Carrier::Udp { .. } => ip + 8,
    }
}

impl Path {
    /// Creates an unconfirmed path. Each pair of addresses has its own path, so a change of the source address starts with new
    /// state.
    //= rfc9260#7.2.5.2-1
    pub(crate) fn new(route: Route, config: &AssociationConfig, now: Time) -> Path {
        let pmtu = Pmtu::new(route.remote, config.mtu, now);
        let packet = usize::from(pmtu.current().saturating_sub(overhead(&route)));
        let mut sending = Sending::new(config.congestion, packet);
        sending.begin_with(config.initial_packets, false);
        Path {
            route,
            state: PathState::Unconfirmed,
            confirmed: false,
            is_known_to_peer: false,
            retired: false,
            pmtu,
            ecn: PathEcn::default(),
            reduced_until: Seq(0),
            rebinding: Rebinding::default(),
            vouching: Vouching::default(),
            options: PathOptions::default(),
            usage: PathUse::default(),
            is_spare: false,
            is_assumed: false,
            turn: 0,
            errors: 0,
            rto: Rto::new(&config.timing),
            sending,
            losses: LossMeter::default(),
            delays: DelayMeter::new(),
            t3: None,
            doubt: None,
            is_put_off: false,
            watch: Watch::new(now),
            probe: None,
            next_heartbeat: now,
            last_data: now,
            heard: now,
            returned: Returned::No,
            rtt_from: Seq(0),
            counters: PathCounters::default(),
        }
    }

    pub(crate) fn state(&self) -> PathState {
        self.state
    }

    /// Returns whether the peer has proven that it is at the path's remote address.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Returns whether the peer may have confirmed the path. A peer with the address proof `ConfirmedPath` accepts
    /// requests only over confirmed paths.
    pub(crate) fn is_known_to_peer(&self) -> bool {
        self.is_known_to_peer
    }

    /// Records that the peer has sent a HEARTBEAT on the path, which this end answers.
    pub(crate) fn on_asked(&mut self) {
        self.is_known_to_peer = true;
    }

    pub(crate) fn errors(&self) -> u8 {
        self.errors
    }

    pub(crate) fn rto(&self) -> Duration {
        self.rto.rto()
    }

    /// Returns the RTO without back-off.
    pub(crate) fn rto_without_back_off(&self, timing: &Timing) -> Duration {
        self.rto.without_back_off(timing)
    }

    /// Returns the path's weight in the distribution of new data.
    pub(crate) fn weight(&self) -> u16 {
        self.options.weight.map_or(1, NonZeroU16::get)
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.rto.srtt()
    }

    /// Returns the path's rank, which follows from the uses of its addresses.
    pub(crate) fn rank(&self) -> Rank {
        self.usage.rank()
    }

    /// Reports whether no answer has arrived on this path since data left another, failing path.
    pub(crate) fn is_assumed(&self) -> bool {
        self.is_assumed
    }

    /// Sets whether the path is a spare path. When the path ceases to be a spare path, its last heartbeat may be old, so the
    /// path is probed at once.
    fn set_spare(&mut self, is_spare: bool, now: Time) {
        let was_spare = std::mem::replace(&mut self.is_spare, is_spare);
        if was_spare && !is_spare && !self.usage.heartbeat(Duration::ZERO).is_zero() {
            self.probe_now(now);
        }
    }

    /// Sets the use of one of the path's addresses; returns whether the use is new. If the preference or the heartbeats of a
    /// spare path change, the path is probed at once.
    fn set_use(&mut self, is_ours: bool, usage: AddressUse, now: Time) -> bool {
        let (local, remote) = (self.usage.local(), self.usage.remote());
        let before = if is_ours { local } else { remote };
        self.usage = if is_ours { PathUse::new(usage, remote) } else { PathUse::new(local, usage) };
        if self.is_spare && usage != (AddressUse { link: usage.link, ..before }) {
            self.probe_now(now);
        }
        usage != before
    }

    /// Returns whether heartbeats may be sent on the idle path, and thus can show that it works.
    pub(crate) fn is_asked_when_idle(&self) -> bool {
        self.options.heartbeats != Heartbeats::Off
    }

    /// Returns the length of an SCTP packet that fits into one IP packet, a multiple of four.
    //= rfc8899#3-1
    pub(crate) fn packet_size(&self) -> usize {
        self.packet_in(self.pmtu.current())
    }

    /// Returns the length of an SCTP packet in an IP packet of up to `mtu` bytes, a multiple of four.
    pub(crate) fn packet_in(&self, mtu: u16) -> usize {
        usize::from(mtu.saturating_sub(overhead(&self.route)) & !3)
    }

    /// Returns whether MTU probes may be sent: only on a confirmed path that has not failed.
    fn may_probe_size(&self) -> bool {
        self.confirmed && self.state != PathState::Inactive
    }

    /// Returns the MTU probe that is due, if any.
    #[inline]
    pub(crate) fn poll_size_probe(&mut self, now: Time, random: &mut Random) -> Option<SizeProbe> {
        if now < self.pmtu.next_timeout() || !self.may_probe_size() {
            return None;
        }
        // The back-off must not lengthen this wait, because the size may be the cause of the timeouts.
        let rto = self.srtt().map_or(self.rto.rto(), |srtt| self.rto.rto().min(srtt * 4));
        self.pmtu.poll(now, rto, random)
    }

    /// Confirms the path of the handshake.
    pub(crate) fn confirm(&mut self, now: Time, timing: &Timing, random: &mut Random) {
        self.confirmed = true;
        self.is_known_to_peer = true;
        self.state = PathState::Active;
        self.schedule_heartbeat(now, timing, random);
    }

    /// Handles acknowledged data or an answered heartbeat on this path (RFC 9260 sections 8.1 and 8.2).
    //= rfc9260#8.3-9
    //= rfc7829#3.2-14
    //= rfc9260#8.3-9
    pub(crate) fn on_success(&mut self, now: Time, timing: &Timing) -> Option<Transition> {
        if self.retired {
            return None;
        }
        self.errors = 0;
        self.returned = Returned::No;
        self.is_put_off = false;
        self.is_assumed = false;
        self.watch.on_answer();
        self.end_doubt();
        self.sending.on_heartbeat_answered();
        let from = std::mem::replace(&mut self.state, PathState::Active);
        if from != self.state && std::mem::replace(&mut self.confirmed, true) {
            self.on_recovery(now, timing);
        }
        self.confirmed = true;
        (from != self.state).then_some(Transition { from, to: self.state })
    }

    /// Handles a packet that arrived on this path. A failed path may have recovered, so the path is probed at once, before its
    /// next regular heartbeat. `asks` is true if heartbeats may be sent in this state of the association.
    #[inline]
    pub(crate) fn on_packet(&mut self, now: Time, asks: bool, timing: &Timing) {
        let before = std::mem::replace(&mut self.heard, now);
        if self.state != PathState::Active && self.confirmed && asks {
            self.on_packet_while_failed(now - before, now, timing);
        } else if self.is_silent() && asks && timing.doubts_silence {
            self.on_packet_while_silent(now - before, now, timing);
        }
    }

    /// Returns whether the path is active, and has not answered its tail-loss probe.
    pub(crate) fn is_silent(&self) -> bool {
        self.state == PathState::Active && self.sending.is_probing()
    }

    /// If a packet has arrived after a silence of one RTO, probes the silent path again. The packet may mean that the path has
    /// recovered.
    #[cold]
    fn on_packet_while_silent(&mut self, silence: Duration, now: Time, timing: &Timing) {
        if silence >= self.rto_without_back_off(timing) {
            self.probe_again(now);
        }
    }

    /// Probes a failed path up to twice without waiting for its next regular heartbeat. If neither probe is answered, the path
    /// may work in one direction only, and the regular pace of heartbeats applies again. As an exception, a packet after a
    /// silence of one RTO causes a further probe, because the path may have recovered.
    #[cold]
    fn on_packet_while_failed(&mut self, silence: Duration, now: Time, timing: &Timing) {
        if self.options.heartbeats == Heartbeats::Off {
            return;
        }
        if self.returned == Returned::AskedInVain {
            if self.probe.is_none() && silence >= self.rto_without_back_off(timing) {
                self.request_heartbeat(now);
            }
            return;
        }
        // If a packet arrives after a silence, the path has just recovered. The outstanding probe may have been lost shortly
        // before.
        let usual = self.rto_without_back_off(timing);
        let patience = if silence >= usual { Duration::ZERO } else { usual };
        let is_asked = self.ask_again_after(patience, now);
        self.returned = match self.returned {
            Returned::Asked if is_asked => Returned::AskedInVain,
            Returned::No | Returned::Heard if is_asked => Returned::Asked,
            Returned::No => Returned::Heard,
            unchanged => unchanged,
        };
    }

    /// Returns the time at which a packet last arrived on this path.
    pub(crate) fn heard(&self) -> Time {
        self.heard
    }

    /// Returns whether the path counts as failed but may have just recovered: packets arrive, and the time for an answer to the
    /// probes has not passed.
    pub(crate) fn may_have_returned(&self) -> bool {
        matches!(self.returned, Returned::Heard | Returned::Asked)
    }

    /// Starts the watch over the path, which has recovered. During the watch, the path is probed more often.
    fn on_recovery(&mut self, now: Time, timing: &Timing) {
        self.pmtu.on_return(now);
        self.watch.begin(now, timing.primary_return);
        if let Some(pause) = self.heartbeat_pause(timing).filter(|_| self.watch.is_on()) {
            self.next_heartbeat = self.next_heartbeat.min(now + pause);
        }
    }

    /// Ends the watch over the path, or prevents the watch after its next recovery. Data left the path because of losses that
    /// another path also has.
    fn forgive(&mut self) {
        self.watch.forgive(self.state != PathState::Active);
    }

    /// Returns whether the path has recovered too recently to be trusted.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_on()
    }

    /// Returns the end of the watch, or [`Time::NEVER`] if the end is not known or no watch is on.
    fn watched_until(&self) -> Time {
        self.watch.ends_at(self.options.heartbeats != Heartbeats::Off)
    }

    /// Ends the watch if its time has come; returns whether the watch ended.
    pub(crate) fn ends_watch(&mut self, now: Time) -> bool {
        let is_over = self.watched_until() <= now;
        if is_over {
            self.watch.end();
        }
        is_over
    }

    /// Returns the time at which the doubt about the path becomes a failure; [`Time::NEVER`] without a doubt, or while the peer
    /// has not received the repeated chunk.
    #[inline]
    pub(crate) fn doubted_until(&self) -> Time {
        self.doubt.filter(|doubt| doubt.is_received).map_or(Time::NEVER, |doubt| doubt.judge_at)
    }

    /// Ends the doubt, because the path has answered, a timeout was counted, or the path has become potentially failed.
    fn end_doubt(&mut self) {
        if self.doubt.take().is_some() {
            self.sending.on_probe_answered();
        }
    }

    /// Takes the path out of use for good.
    fn retire(&mut self) {
        self.retired = true;
        self.confirmed = false;
        self.state = PathState::Inactive;
        self.stop_data_timers();
        self.rebinding = Rebinding::default();
        self.vouching = Vouching::default();
        self.doubt = None;
        self.watch.end();
        self.probe = None;
        self.next_heartbeat = Time::NEVER;
    }

    /// Counts a timeout on this path (RFC 9260 section 8.2, RFC 7829 section 3). Returns the change of the path's state, if any.
    pub(crate) fn on_error(&mut self, timing: &Timing) -> Option<Transition> {
        self.errors = self.errors.saturating_add(1);
        self.end_doubt();
        let from = self.state;
        let pf = timing.potentially_failed_max_retrans;
        //= rfc9260#8.2-2
        if self.errors > self.max_retrans(timing) {
            self.state = PathState::Inactive;
        } else if self.state == PathState::Active && pf.is_some_and(|pf| self.errors > pf) {
            //= rfc7829#3.2-2
            self.state = PathState::PotentiallyFailed;
        }
        if self.state != PathState::Active {
            self.watch.end();
        }
        (from != self.state).then_some(Transition { from, to: self.state })
    }

    /// Makes a working path potentially failed, because the path loses too much or is too slow.
    pub(crate) fn on_poor(&mut self) -> Option<Transition> {
        self.errors = self.errors.saturating_add(1);
        self.end_doubt();
        self.watch.end();
        let from = std::mem::replace(&mut self.state, PathState::PotentiallyFailed);
        (from != self.state).then_some(Transition { from, to: self.state })
    }

    /// Returns whether this path must lose its role as primary path (RFC 7829 section 5).
    //= rfc7829#5-3 5-4
    fn exceeds_switchover(&self, timing: &Timing) -> bool {
        let psmr = self.options.switchover_max_retrans.or(timing.primary_switchover_max_retrans);
        let least = timing.least_switchover(self.max_retrans(timing));
        psmr.is_some_and(|psmr| self.errors > psmr.max(least))
    }

    /// Handles an ICMP error that proves that no SCTP endpoint is at the peer's address.
    pub(crate) fn on_unreachable(&mut self, timing: &Timing) -> Option<Transition> {
        self.errors = self.errors.max(self.max_retrans(timing));
        self.on_error(timing)
    }

    /// Processes the round trip of the chunk `seq`. `next` is the number of the next chunk to be sent.
    pub(crate) fn on_round_trip(&mut self, seq: Seq, rtt: Duration, next: Seq, timing: &Timing) {
        //= rfc9260#6.3.1-1
        if seq >= self.rtt_from {
            self.rto.on_sample(rtt, timing);
            self.rtt_from = next;
        } else if self.rto.is_surprised_by(rtt) {
            // RFC 9260 section 6.3.1 (C4) permits only one measurement per round trip. Before the next measurement, a queue that
            // fills can make the round trip longer than the timeout. Without a further measurement, T3 would then expire
            // needlessly.
            self.rto.on_sample(rtt, timing);
        }
    }

    /// Doubles the RTO after T3 has expired.
    pub(crate) fn back_off(&mut self, timing: &Timing) {
        self.rto.on_timeout(timing);
    }

    /// Applies changed timers. Schedules the next heartbeat anew, unless a heartbeat is outstanding.
    pub(crate) fn on_new_timing(&mut self, now: Time, timing: &Timing, random: &mut Random) {
        self.rto.on_new_timing(timing);
        if self.probe.is_none() && self.confirmed {
            self.schedule_heartbeat(now, timing, random);
        }
    }

    /// Stops T3 and the timers that run with it.
    pub(crate) fn stop_data_timers(&mut self) {
        self.t3 = None;
        self.sending.stop_timers();
    }

    /// Handles the transmission of `length` user bytes on this path. Starts T3 unless it is running.
    pub(crate) fn on_data_sent(&mut self, length: usize, now: Time) {
        self.sending.on_sent(length);
        self.last_data = now;
        //= rfc9260#6.1-18 6.1-20
        if self.t3.is_none() {
            //= rfc9260#6.1-21 6.3.3-1
            self.t3 = Some(now + self.rto());
        }
    }

    /// Reduces the window if data starts again after a pause longer than the RTO (RFC 9260 section 7.2.1). `flight` is the
    /// number of user bytes in flight.
    //= rfc7829#3.2-15
    pub(crate) fn before_data(&mut self, now: Time, flight: usize) {
        let rto = self.rto();
        if flight == 0 && now - self.last_data > rto {
            let rtos = (now - self.last_data).as_nanos() / rto.as_nanos().max(1);
            self.sending.on_idle(u32::try_from(rtos).unwrap_or(u32::MAX));
            self.last_data = now;
        }
    }

    /// Sets the path's weight in the distribution of new data.
    pub(crate) fn set_weight(&mut self, weight: NonZeroU16) {
        self.options.weight = Some(weight);
    }

    /// Sets the path's own options.
    pub(crate) fn set_options(
        &mut self,
        options: PathOptions,
        now: Time,
        timing: &Timing,
        random: &mut Random,
    ) {
        self.options = options;
        self.on_new_timing(now, timing, random);
    }

    fn max_retrans(&self, timing: &Timing) -> u8 {
        self.options.max_retrans.unwrap_or(timing.path_max_retrans)
    }

    /// Returns the time of the path's next timer expiry. `heartbeats` is true if heartbeats may be sent in this state of the
    /// association.
    #[inline]
    pub(crate) fn next_timeout(&self, heartbeats: bool) -> Time {
        let heartbeat = match (heartbeats, &self.probe) {
            (false, _) => Time::NEVER,
            (true, Some(probe)) => probe.next_timeout(),
            (true, None) => self.next_heartbeat,
        };
        let size = if heartbeats && self.may_probe_size() { self.pmtu.next_timeout() } else { Time::NEVER };
        let watch = self.doubted_until().min(self.watched_until());
        let size = size.min(self.rebinding.next_timeout()).min(watch);
        self.t3.unwrap_or(Time::NEVER).min(heartbeat).min(size).min(self.sending.next_timeout())
    }

    pub(crate) fn info(&self, primary: bool, in_use: bool, flight: usize) -> PathInfo {
        PathInfo {
            route: self.route,
            state: self.state,
            confirmed: self.confirmed,
            primary,
            in_use,
            srtt: self.rto.srtt(),
            rto: self.rto.rto(),
            cwnd: self.sending.cwnd(),
            ssthresh: self.sending.ssthresh(),
            flight,
            mtu: self.pmtu.current(),
            mtu_is_proven: self.pmtu.is_proven(),
            mtu_probes_sent: self.pmtu.probes_sent,
            mtu_probes_lost: self.pmtu.probes_lost,
            options: self.options,
            local_use: self.usage.local(),
            remote_use: self.usage.remote(),
            errors: self.errors,
            packets_sent: self.counters.packets_sent,
            packets_received: self.counters.packets_received,
            bytes_sent: self.counters.bytes_sent,
            bytes_received: self.counters.bytes_received,
            new_data: self.counters.new_data,
            retransmissions: self.counters.retransmissions,
            timeouts: self.counters.timeouts,
        }
    }
}
