//! One way to the peer: its state, RTO, congestion window and heartbeats; and the set of all ways.
//!
//! Never sends. Invariants: an unconfirmed path carries no data; `errors` is zero on an active path that has just
//! been heard. Begin at [`Path`], then [`Paths::choose`].

mod congestion;
mod delays;
mod ecn;
mod losses;
mod pacer;
mod paths;
mod pmtu;
mod prr;
mod rebinding;
mod rto;
mod sending;
mod vouching;
mod watch;

pub(crate) use congestion::Coupling;
pub(crate) use paths::Paths;
pub(crate) use pmtu::{Pmtu, SizeProbe};
pub(crate) use rebinding::{Answer, Asks, Pace};
pub(crate) use sending::{Outcome, Seen, Sending};

use std::num::NonZeroU16;
use std::time::Duration;

use base::{Carrier, Route, Time};

use crate::config::{AssociationConfig, Heartbeats, PathOptions, Timing};
use crate::info::{PathInfo, PathState};
use crate::random::Random;
use crate::tx::Seq;
use delays::DelayMeter;
use ecn::PathEcn;
use losses::LossMeter;
use rebinding::Rebinding;
use rto::Rto;
use vouching::Vouching;
use watch::Watch;

/// How long a NAT remembers a UDP mapping at least, and a little less: RFC 4787 section 4.3, REQ-5, asks for two minutes, but half a minute
/// is not rare.
const NAT_MEMORY: Duration = Duration::from_secs(25);

/// The place of a path in its association.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PathIndex(pub(crate) usize);

/// A change of a path's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transition {
    pub(crate) from: PathState,
    pub(crate) to: PathState,
}

/// A heartbeat that was sent and not yet answered.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Of the first one. Those sent again before its time count on from it.
    nonce: u64,
    /// When the last one left.
    sent_at: Time,
    deadline: Time,
    /// How often it was sent again.
    repeats: u8,
    /// It is to be sent again.
    is_due_again: bool,
}

/// How often a HEARTBEAT may be sent again before its time.
const REPEATS_MAX: u8 = 2;

/// A path that has been silent while data was in flight on it, and another one was asked why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    /// The chunk that another path carries now.
    pub(crate) seq: Seq,
    /// Until when an answer on the doubted path is waited for.
    pub(crate) judge_at: Time,
    /// The peer has that chunk.
    pub(crate) is_received: bool,
}

/// Whether packets come by a path that counts as failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Returned {
    No,
    /// They do again.
    Heard,
    /// It was asked since.
    Asked,
    /// It was asked, and did not answer: it may lead one way only.
    AskedInVain,
}

/// What a path counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCounters {
    pub(crate) packets_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) new_data: u64,
    pub(crate) retransmissions: u64,
    pub(crate) timeouts: u64,
}

/// One pair of addresses with a carrier.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) route: Route,
    state: PathState,
    confirmed: bool,
    /// One of its addresses has left the association; it only keeps its place.
    retired: bool,
    //= rfc9260#7.3-2
    pub(crate) pmtu: Pmtu,
    pub(crate) ecn: PathEcn,
    /// Marks of chunks before this one are no news: the window was reduced after they were sent.
    pub(crate) reduced_until: Seq,
    pub(crate) rebinding: Rebinding,
    pub(crate) vouching: Vouching,
    options: PathOptions,
    /// Bytes of new data by weight: where the path stands beside the others.
    pub(crate) turn: u64,
    //= rfc9260#8.2-1
    errors: u8,
    rto: Rto,
    //= rfc9260#7.2-3
    pub(crate) sending: Sending,
    pub(crate) losses: LossMeter,
    pub(crate) delays: DelayMeter,
    /// When T3-rtx expires.
    pub(crate) t3: Option<Time>,
    pub(crate) doubt: Option<Doubt>,
    /// Timers that wait for answers were put off, and no answer has come.
    is_put_off: bool,
    /// It works again after a failure, and is watched before it, being the primary path, is used again.
    watch: Watch,
    probe: Option<Probe>,
    next_heartbeat: Time,
    last_data: Time,
    /// When a packet last came by this path.
    heard: Time,
    returned: Returned,
    /// Chunks from this one on give the next round-trip sample: one sample a round trip (rule C4).
    rtt_from: Seq,
    pub(crate) counters: PathCounters,
}

impl Probe {
    /// It is sent again, now: the nonce. That puts off nothing.
    fn repeat(&mut self, now: Time) -> u64 {
        self.is_due_again = false;
        self.repeats = self.repeats.saturating_add(1);
        self.sent_at = now;
        self.last_nonce()
    }

    fn last_nonce(&self) -> u64 {
        self.nonce.wrapping_add(self.repeats.into())
    }

    /// Whether one of those that were sent had this nonce.
    fn has(&self, nonce: u64) -> bool {
        nonce.wrapping_sub(self.nonce) <= self.repeats.into()
    }
}

/// Bytes below SCTP in each packet: IP header, and UDP header where there is one.
//= rfc6951#5.6-1
fn overhead(route: &Route) -> u16 {
    let ip = if route.remote.is_ipv4() { 20 } else { 40 };
    match route.carrier {
        Carrier::Ip => ip,
        Carrier::Udp { .. } => ip + 8,
    }
}

impl Path {
    /// A path that has yet to be proven. Each pair of addresses has its own, so that another source address begins anew.
    //= rfc9260#7.2.5.2-1
    pub(crate) fn new(route: Route, config: &AssociationConfig, now: Time) -> Path {
        let pmtu = Pmtu::new(route.remote, config.mtu, now);
        let packet = usize::from(pmtu.current().saturating_sub(overhead(&route)));
        let mut sending = Sending::new(config.congestion, packet);
        sending.begin_with(config.initial_packets);
        Path {
            route,
            state: PathState::Unconfirmed,
            confirmed: false,
            retired: false,
            pmtu,
            ecn: PathEcn::default(),
            reduced_until: Seq(0),
            rebinding: Rebinding::default(),
            vouching: Vouching::default(),
            options: PathOptions::default(),
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

    /// Whether the peer has proved to be at the other end.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    pub(crate) fn errors(&self) -> u8 {
        self.errors
    }

    pub(crate) fn rto(&self) -> Duration {
        self.rto.rto()
    }

    /// The RTO as it was before any timeout.
    pub(crate) fn rto_without_back_off(&self, timing: &Timing) -> Duration {
        self.rto.without_back_off(timing)
    }

    /// Its part of new data beside those of other paths.
    pub(crate) fn weight(&self) -> u16 {
        self.options.weight.map_or(1, NonZeroU16::get)
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.rto.srtt()
    }

    /// Bytes of SCTP packet that fit into one IP packet, a multiple of four.
    //= rfc8899#3-1
    pub(crate) fn packet_size(&self) -> usize {
        self.packet_in(self.pmtu.current())
    }

    /// Bytes of SCTP packet in an IP packet of at most `mtu` bytes, a multiple of four.
    pub(crate) fn packet_in(&self, mtu: u16) -> usize {
        usize::from(mtu.saturating_sub(overhead(&self.route)) & !3)
    }

    /// Whether sizes are probed: not on a path that has yet to be proven, or has failed.
    fn may_probe_size(&self) -> bool {
        self.confirmed && self.state != PathState::Inactive
    }

    /// A probe of the path's MTU that is due.
    #[inline]
    pub(crate) fn poll_size_probe(&mut self, now: Time, random: &mut Random) -> Option<SizeProbe> {
        if now < self.pmtu.next_timeout() || !self.may_probe_size() {
            return None;
        }
        // Not the RTO that timeouts have doubled: the size may be why they expired.
        let rto = self.srtt().map_or(self.rto.rto(), |srtt| self.rto.rto().min(srtt * 4));
        self.pmtu.poll(now, rto, random)
    }

    /// The handshake proved this path.
    pub(crate) fn confirm(&mut self, now: Time, timing: &Timing, random: &mut Random) {
        self.confirmed = true;
        self.state = PathState::Active;
        self.schedule_heartbeat(now, timing, random);
    }

    /// The peer acknowledged data, or answered a heartbeat, on this path (RFC 9260 section 8.1 and 8.2).
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
        self.watch.on_answer();
        self.end_doubt();
        let from = std::mem::replace(&mut self.state, PathState::Active);
        if from != self.state && std::mem::replace(&mut self.confirmed, true) {
            self.on_recovery(now, timing);
        }
        self.confirmed = true;
        (from != self.state).then_some(Transition { from, to: self.state })
    }

    /// A packet came by this path. If the path counts as failed, it may work again: it is asked at once, and not when the heartbeat
    /// that was put off longer and longer is due. `asks`: heartbeats may be sent in this state of the association.
    #[inline]
    pub(crate) fn on_packet(&mut self, now: Time, asks: bool, timing: &Timing) {
        let before = std::mem::replace(&mut self.heard, now);
        if self.state != PathState::Active && self.confirmed && asks {
            self.on_packet_while_failed(now - before, now, timing);
        }
    }

    /// Two questions are asked at once. One that answers neither may lead one way only: from then on it is asked at its own pace, but for
    /// packets that come after a silence, which may mean that it has come back.
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
        // After a silence the path has just come back: the question that is out may have been lost a moment before.
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

    /// When a packet last came by this path.
    pub(crate) fn heard(&self) -> Time {
        self.heard
    }

    /// Whether the path counts as failed, but may have just come back: packets come by it, and it has had no time yet to answer.
    pub(crate) fn may_have_returned(&self) -> bool {
        matches!(self.returned, Returned::Heard | Returned::Asked)
    }

    /// It works again after a failure: it is watched before it is trusted, and asked more often meanwhile.
    fn on_recovery(&mut self, now: Time, timing: &Timing) {
        self.pmtu.on_return(now);
        self.watch.begin(now, timing.primary_return);
        if let Some(pause) = self.heartbeat_pause(timing).filter(|_| self.watch.is_on()) {
            self.next_heartbeat = self.next_heartbeat.min(now + pause);
        }
    }

    /// Whether it has failed, and works again, but not for long enough.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_on()
    }

    /// When its watch ends, if that is known.
    fn watched_until(&self) -> Time {
        self.watch.ends_at(self.options.heartbeats != Heartbeats::Off)
    }

    /// Whether the time for which it is watched is over, if it was.
    pub(crate) fn ends_watch(&mut self, now: Time) -> bool {
        let is_over = self.watched_until() <= now;
        if is_over {
            self.watch.end();
        }
        is_over
    }

    /// When a doubt becomes a failure.
    #[inline]
    pub(crate) fn doubted_until(&self) -> Time {
        self.doubt.filter(|doubt| doubt.is_received).map_or(Time::NEVER, |doubt| doubt.judge_at)
    }

    /// The path was heard: its silence was not its own fault, or is over.
    fn end_doubt(&mut self) {
        if self.doubt.take().is_some() {
            self.sending.on_probe_answered();
        }
    }

    /// The path carries nothing from now on.
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

    /// A timeout on this path (RFC 9260 section 8.2, RFC 7829 section 3).
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

    /// It works, but loses so much, or takes so long, that another path had better carry the data.
    pub(crate) fn on_poor(&mut self) -> Option<Transition> {
        self.errors = self.errors.saturating_add(1);
        self.end_doubt();
        self.watch.end();
        let from = std::mem::replace(&mut self.state, PathState::PotentiallyFailed);
        (from != self.state).then_some(Transition { from, to: self.state })
    }

    /// Whether, being the primary path, it has to be left (RFC 7829 section 5).
    //= rfc7829#5-3 5-4
    fn exceeds_switchover(&self, timing: &Timing) -> bool {
        let psmr = self.options.switchover_max_retrans.or(timing.primary_switchover_max_retrans);
        let least = timing.least_switchover(self.max_retrans(timing));
        psmr.is_some_and(|psmr| self.errors > psmr.max(least))
    }

    /// ICMP proved that nobody is there.
    pub(crate) fn on_unreachable(&mut self, timing: &Timing) -> Option<Transition> {
        self.errors = self.errors.max(self.max_retrans(timing));
        self.on_error(timing)
    }

    /// A round trip of a chunk up to `seq` was measured; `next` is the next chunk to be sent.
    pub(crate) fn on_round_trip(&mut self, seq: Seq, rtt: Duration, next: Seq, timing: &Timing) {
        //= rfc9260#6.3.1-1
        if seq >= self.rtt_from {
            self.rto.on_sample(rtt, timing);
            self.rtt_from = next;
        } else if self.rto.is_surprised_by(rtt) {
            // RFC 9260 section 6.3.1 (C4) wants no more than one measurement each round trip. But a queue that fills makes that
            // one longer than the timeout before it ends, and T3 would expire for nothing.
            self.rto.on_sample(rtt, timing);
        }
    }

    pub(crate) fn back_off(&mut self, timing: &Timing) {
        self.rto.on_timeout(timing);
    }

    pub(crate) fn on_new_timing(&mut self, now: Time, timing: &Timing, random: &mut Random) {
        self.rto.on_new_timing(timing);
        if self.probe.is_none() && self.confirmed {
            self.schedule_heartbeat(now, timing, random);
        }
    }

    /// T3 is not needed any more, nor are the timers that run beside it.
    pub(crate) fn stop_data_timers(&mut self) {
        self.t3 = None;
        self.sending.stop_timers();
    }

    /// `length` user bytes leave by this path: the heartbeat is put off, T3 runs.
    pub(crate) fn on_data_sent(&mut self, length: usize, now: Time) {
        self.sending.on_sent(length);
        self.last_data = now;
        //= rfc9260#6.1-18 6.1-20
        if self.t3.is_none() {
            //= rfc9260#6.1-21 6.3.3-1
            self.t3 = Some(now + self.rto());
        }
    }

    /// Before data is sent after a pause (RFC 9260 section 7.2.1).
    //= rfc7829#3.2-15
    pub(crate) fn before_data(&mut self, now: Time, flight: usize) {
        let rto = self.rto();
        if flight == 0 && now - self.last_data > rto {
            let rtos = (now - self.last_data).as_nanos() / rto.as_nanos().max(1);
            self.sending.on_idle(u32::try_from(rtos).unwrap_or(u32::MAX));
            self.last_data = now;
        }
    }

    /// A heartbeat is due: the nonce to send, unless the path is busy enough to prove itself, where data proves paths. Data that
    /// nothing is heard of proves none.
    //= rfc9260#8.3-1
    //= rfc7829#3.2-12
    //= rfc9260#8.3-1
    pub(crate) fn poll_heartbeat(
        &mut self,
        now: Time,
        data_proves: bool,
        timing: &Timing,
        random: &mut Random,
    ) -> Option<u64> {
        if let Some(probe) = &mut self.probe {
            return probe.is_due_again.then(|| probe.repeat(now));
        }
        if now < self.next_heartbeat {
            return None;
        }
        let is_certain = self.doubt.is_none() && self.pmtu.size_that_proves().is_none();
        if data_proves && self.t3.is_some() && self.state == PathState::Active && is_certain {
            self.schedule_heartbeat(now, timing, random);
            return None;
        }
        let nonce = random.u64();
        self.probe =
            Some(Probe { nonce, sent_at: now, deadline: now + self.rto(), repeats: 0, is_due_again: false });
        Some(nonce)
    }

    /// A HEARTBEAT ACK with `nonce`; returns whether it answers ours.
    pub(crate) fn on_heartbeat_ack(
        &mut self,
        nonce: u64,
        now: Time,
        timing: &Timing,
        random: &mut Random,
    ) -> bool {
        let Some(probe) = self.probe.filter(|p| p.has(nonce)) else { return false };
        self.probe = None;
        self.pmtu.on_least_proven();
        if nonce == probe.last_nonce() {
            //= rfc9260#8.3-12
            self.rto.on_sample(now - probe.sent_at, timing);
        }
        self.schedule_heartbeat(now, timing, random);
        true
    }

    /// Answers are waited for until then at least, but not again until the peer was heard on the path.
    pub(crate) fn put_off(&mut self, until: Time) {
        if self.is_put_off {
            return;
        }
        let t3 = self.t3.as_mut();
        let doubt = self.doubt.as_mut().map(|doubt| &mut doubt.judge_at);
        let probe = self.probe.as_mut().map(|probe| &mut probe.deadline);
        let early = [t3, doubt, probe].into_iter().flatten().filter(|at| **at < until);
        self.is_put_off = early.map(|at| *at = until).count() > 0;
    }

    /// The answer to a heartbeat is overdue; returns whether it was.
    pub(crate) fn expire_heartbeat(&mut self, now: Time, timing: &Timing, random: &mut Random) -> bool {
        if self.probe.is_none_or(|p| p.deadline > now) {
            return false;
        }
        self.probe = None;
        if self.returned != Returned::No {
            self.returned = Returned::AskedInVain;
        }
        // While data is in flight its timer backs off; twice would be too much.
        if self.t3.is_none() {
            self.rto.on_timeout(timing);
        }
        // Unconfirmed and potentially failed paths are probed once an RTO (RFC 9260 section 5.4, RFC 7829 section 3).
        let is_off = self.options.heartbeats == Heartbeats::Off && self.confirmed;
        if is_off || matches!(self.state, PathState::Inactive) || self.errors >= self.max_retrans(timing) {
            self.schedule_heartbeat(now, timing, random);
        } else {
            //= rfc7829#3.2-11
            self.next_heartbeat = now;
        }
        true
    }

    /// Asks for a heartbeat at once: the path has just become doubtful.
    pub(crate) fn probe_now(&mut self, now: Time) {
        if self.options.heartbeats != Heartbeats::Off || !self.confirmed {
            self.request_heartbeat(now);
        }
    }

    /// T3 expired for data about as long as the least MTU: short heartbeats, one of which may be out, say nothing of the path now.
    pub(crate) fn doubt_least_mtu(&mut self, now: Time) {
        if self.options.heartbeats != Heartbeats::Off && self.pmtu.doubt_least() {
            self.probe = None;
            self.probe_now(now);
        }
    }

    /// Asks for a heartbeat at once. One that left longer ago than answers take is sent again: after failures its own deadline may
    /// be seconds away. Returns whether this was news.
    pub(crate) fn ask_again(&mut self, now: Time, timing: &Timing) -> bool {
        self.ask_again_after(self.rto_without_back_off(timing), now)
    }

    fn ask_again_after(&mut self, patience: Duration, now: Time) -> bool {
        if self.options.heartbeats == Heartbeats::Off && self.confirmed {
            return false;
        }
        match &mut self.probe {
            Some(probe) => {
                let is_late = !probe.is_due_again && now - probe.sent_at >= patience;
                probe.is_due_again |= is_late;
                is_late
            }
            None => {
                let is_early = self.next_heartbeat > now;
                self.request_heartbeat(now);
                is_early
            }
        }
    }

    /// Asks for a heartbeat at once, whatever the settings.
    pub(crate) fn request_heartbeat(&mut self, now: Time) {
        if !self.retired {
            self.next_heartbeat = self.next_heartbeat.min(now);
        }
    }

    /// Whether the HEARTBEAT that is out has this nonce.
    pub(crate) fn is_asked(&self, nonce: u64) -> bool {
        self.probe.is_some_and(|p| p.has(nonce))
    }

    /// The peer may not have been able to answer the HEARTBEAT that is out, and can now: its nonce, to be sent once more.
    pub(crate) fn repeat_heartbeat(&mut self, now: Time) -> Option<u64> {
        let deadline = now + self.rto();
        let probe = self.probe.as_mut().filter(|p| p.repeats < REPEATS_MAX)?;
        probe.deadline = deadline;
        Some(probe.repeat(now))
    }

    /// A confirmed path is asked to vouch for this one; returns the nonce. If no answer comes, this one is asked anew.
    pub(crate) fn ask_voucher(
        &mut self,
        by: Duration,
        now: Time,
        timing: &Timing,
        random: &mut Random,
    ) -> u64 {
        let (nonce, tries) = self.vouching.ask(random);
        let pause = Vouching::pause(tries, self.rto().max(by), timing.heartbeat_interval);
        self.next_heartbeat = now + pause;
        nonce
    }

    /// The same, whatever was asked and not answered before: that could not be answered.
    pub(crate) fn ask_anew(&mut self, now: Time, timing: &Timing) {
        self.probe = None;
        self.rto.on_new_timing(timing);
        self.request_heartbeat(now);
    }

    /// Its part of new data from now on.
    pub(crate) fn set_weight(&mut self, weight: NonZeroU16) {
        self.options.weight = Some(weight);
    }

    /// Settings of its own.
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

    /// Whether a NAT on the way still remembers the path, so that it speaks for nobody: it is confirmed, and was heard within the time that
    /// a mapping lasts, or with rarer heartbeats has missed one at most. Without heartbeats silence means nothing.
    pub(crate) fn is_known_to_nats(&self, now: Time, timing: &Timing) -> bool {
        let rto = self.rto_without_back_off(timing);
        let limit = self.heartbeat_pause(timing).map(|pause| NAT_MEMORY.max(2 * (pause + rto)));
        self.confirmed && limit.is_none_or(|limit| now - self.heard < limit)
    }

    /// Between two heartbeats while the path is idle, but for the RTO; none is sent without one.
    fn heartbeat_pause(&self, timing: &Timing) -> Option<Duration> {
        let pause = match self.options.heartbeats {
            Heartbeats::AsAssociation => timing.heartbeat_interval,
            Heartbeats::Every(interval) => interval,
            //= rfc7829#3.2-13
            Heartbeats::Off if self.confirmed => return None,
            Heartbeats::Off => timing.heartbeat_interval,
        };
        Some(if self.watch.is_on() { pause / watch::PACE } else { pause })
    }

    fn schedule_heartbeat(&mut self, now: Time, timing: &Timing, random: &mut Random) {
        let pause = self.heartbeat_pause(timing);
        //= rfc9260#8.3-13
        self.next_heartbeat = pause.map_or(Time::NEVER, |pause| now + pause + random.jitter(self.rto()));
    }

    /// When this path wants to be looked at.
    #[inline]
    pub(crate) fn next_timeout(&self, heartbeats: bool) -> Time {
        let heartbeat = match (heartbeats, &self.probe) {
            (false, _) => Time::NEVER,
            (true, Some(probe)) if probe.is_due_again => probe.sent_at,
            (true, Some(probe)) => probe.deadline,
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
