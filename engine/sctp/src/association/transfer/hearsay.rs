//! Unauthenticated claims about an association that a shared key protects. An attacker who knows the tags can claim
//! that the peer has no such association (an unsigned ABORT), or that a path is unreachable (ICMP).
//!
//! A claim may be true: a host that has lost its state has also lost the random numbers of its key, and routers have no
//! key. Each claim therefore starts a check, which this module calls a question. The peer gets HEARTBEATs with a
//! separate nonce, one RTO apart. The claim holds only if neither an answer nor an acknowledgement of new data arrives.
//! An ABORT must also be heard again, because a host without the association answers each HEARTBEAT with an ABORT.
//!
//! The same question is not asked again before its time for answers has ended. This limits the traffic that an attacker
//! can cause. Signed packets without such an answer or acknowledgement prove nothing, because an attacker can replay
//! them. Start at [`Transfer::hear_forgotten`] and [`Transfer::hear_unreachable`].

use std::time::Duration;

use base::Time;

use super::Transfer;
use crate::association::{Context, Control, State};
use crate::event::{AbortCause, CloseReason, Unreachable};
use crate::extension::auth::AuthConfig;
use crate::memory::list;
use crate::path::PathIndex;

/// Number of HEARTBEATs on each path before the peer counts as gone. With a loss of 10% in each direction, all of them
/// stay unanswered about once in half a million cases.
const PEER_QUESTIONS: u8 = 8;

/// Number of HEARTBEATs before a path counts as failed.
const PATH_QUESTIONS: u8 = 2;

/// An unauthenticated claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claim {
    /// The peer has no such association. The claim arrived on this path.
    Forgotten(PathIndex),
    /// The peer cannot be reached on any path.
    Deserted,
    /// This path is unreachable.
    Dead(PathIndex, Unreachable),
}

impl Claim {
    /// Returns the path that the claim is about, or `None` if it is about the peer.
    fn path(self) -> Option<PathIndex> {
        match self {
            Claim::Dead(index, _) => Some(index),
            Claim::Forgotten(_) | Claim::Deserted => None,
        }
    }
}

/// A pending check of a claim.
#[derive(Clone, Copy, Debug)]
struct Question {
    claim: Claim,
    /// The nonce of the HEARTBEATs, which the answers repeat.
    nonce: u64,
    /// Number of rounds of HEARTBEATs sent so far.
    asked: u8,
    pause: Duration,
    began: Time,
    /// Time of the next HEARTBEAT, or of the decision.
    next_at: Time,
    /// Time of the decision.
    until: Time,
    /// Set if the claim was heard again after the first answer was due.
    is_repeated: bool,
    is_answered: bool,
}

impl Question {
    /// Reports whether the claim holds if no answer has arrived. An ABORT must have been heard again. Other claims need
    /// no repetition, because they are no answers to our HEARTBEATs.
    fn holds(&self) -> bool {
        self.is_repeated || !matches!(self.claim, Claim::Forgotten(_))
    }

    /// Marks the claim as false. The question stays in the list until its time has ended, so the same question is not
    /// asked again before that time.
    fn answer(&mut self) {
        self.is_answered = true;
        self.next_at = self.until;
    }
}

/// The open questions: at most one of each kind about the peer, and one about each path.
#[derive(Debug, Default)]
pub(crate) struct Hearsay(Vec<Question>);

impl Hearsay {
    /// Returns the heap bytes of the list.
    pub(crate) fn memory(&self) -> usize {
        list::<Question>(self.0.capacity())
    }

    #[inline]
    fn next_timeout(&self) -> Time {
        if self.0.is_empty() { Time::NEVER } else { self.soonest() }
    }

    #[cold]
    fn soonest(&self) -> Time {
        self.0.iter().map(|question| question.next_at).min().unwrap_or(Time::NEVER)
    }

    /// Reports whether the same question is open already. If so, records that the claim was heard again.
    fn is_asked(&mut self, claim: Claim, now: Time) -> bool {
        let is_same = |question: &&mut Question| {
            let same_kind = std::mem::discriminant(&question.claim) == std::mem::discriminant(&claim);
            same_kind && question.claim.path() == claim.path()
        };
        let Some(question) = self.0.iter_mut().find(is_same) else { return false };
        question.is_repeated |= now >= question.began + question.pause;
        true
    }

    /// Handles a HEARTBEAT ACK. Returns whether it answers a question.
    pub(crate) fn on_answer(&mut self, nonce: u64) -> bool {
        let asked = self.0.iter_mut().find(|question| question.nonce == nonce);
        asked.map(Question::answer).is_some()
    }

    /// Marks questions as answered if the claim is refuted, because the path `index` works.
    #[inline]
    pub(crate) fn on_path_lives(&mut self, index: PathIndex) {
        for question in &mut self.0 {
            if question.claim.path().is_none_or(|path| path == index) {
                question.answer();
            }
        }
    }

    /// Drops all questions once the association is established.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

impl Transfer {
    /// Reports whether a key is in force. If so, only holders of the key can sign or seal packets in the peer's name.
    pub(crate) fn is_keyed(&self) -> bool {
        self.integrity.is_keyed()
    }

    /// Reports whether a shared key is in force, and the settings `auth` also contain this key.
    pub(crate) fn is_keyed_by(&self, auth: &AuthConfig) -> bool {
        self.is_keyed() && self.integrity.has_keys_of_settings() && self.config.auth.shares_key_with(auth)
    }

    /// Reports whether `fresh`, the settings for new associations, permits a restart of this association. With a key in
    /// force, only an association with the same key may replace this one. If a command set the keys, no restart is
    /// possible, because such keys are not kept.
    pub(crate) fn may_begin_anew_by(&self, fresh: &AuthConfig) -> bool {
        // In COOKIE-ECHOED, no keys exist yet, so the peer's handshake may replace ours. Later, a protected association
        // cannot restart.
        if self.integrity.protection().is_some() {
            return matches!(self.state, State::CookieEchoed { .. });
        }
        let has_another = fresh.has_shared_key() && !self.config.auth.shares_key_with(fresh);
        !self.is_keyed() || (self.integrity.has_keys_of_settings() && !has_another)
    }

    /// Handles an ICMP error that reports a path as unreachable. Ignores an unconfirmed path, which carries no data and
    /// is probed anyway.
    pub(crate) fn hear_unreachable(&mut self, index: PathIndex, what: Unreachable, ctx: &mut Context<'_>) {
        let is_final = matches!(what, Unreachable::Protocol | Unreachable::Port);
        match self.state {
            // In COOKIE-ECHOED, the peer may answer no HEARTBEAT, so a single path cannot be checked.
            State::CookieEchoed { .. } if is_final => self.hear_of_desertion(ctx),
            State::CookieEchoed { .. } => {}
            _ if self.paths.get(index).is_confirmed() => self.ask_about(Claim::Dead(index, what), ctx),
            _ => {}
        }
    }

    /// Handles an unsigned claim that the peer does not know this association. `index` is the path of the claim.
    pub(crate) fn hear_forgotten(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        self.ask_about(Claim::Forgotten(index), ctx);
    }

    /// Handles ICMP reports that the peer is unreachable on all paths.
    pub(crate) fn hear_of_desertion(&mut self, ctx: &mut Context<'_>) {
        self.ask_about(Claim::Deserted, ctx);
    }

    fn ask_about(&mut self, claim: Claim, ctx: &mut Context<'_>) {
        let may_ask = !matches!(self.state, State::CookieWaitOver | State::Accepting | State::Closed);
        if !may_ask || self.hearsay.is_asked(claim, ctx.now) {
            return;
        }
        let (pause, questions) = match claim {
            Claim::Dead(index, _) => (self.patience_with(index), PATH_QUESTIONS),
            Claim::Forgotten(_) | Claim::Deserted => {
                let confirmed = self.paths.indices().filter(|index| self.paths.get(*index).is_confirmed());
                let longest = confirmed.map(|index| self.patience_with(index)).max();
                (longest.unwrap_or(self.config.timing.rto_initial), PEER_QUESTIONS)
            }
        };
        self.hearsay.0.push(Question {
            claim,
            nonce: ctx.random.u64(),
            asked: 0,
            pause,
            next_at: ctx.now,
            until: ctx.now + pause * questions.into(),
            began: ctx.now,
            is_repeated: false,
            is_answered: false,
        });
        self.on_hearsay_timeout(ctx);
    }

    /// Returns the time to wait for an answer on a path. The back-off of earlier timeouts does not count.
    fn patience_with(&self, index: PathIndex) -> Duration {
        self.paths.get(index).rto_without_back_off(&self.config.timing)
    }

    /// Returns the time of the next HEARTBEAT or decision.
    #[inline]
    pub(crate) fn hearsay_timeout(&self) -> Time {
        self.hearsay.next_timeout()
    }

    /// Sends the next HEARTBEAT of each question that is due, and decides on claims if the time of their question has
    /// ended.
    pub(crate) fn on_hearsay_timeout(&mut self, ctx: &mut Context<'_>) {
        while let Some(place) = self.hearsay.0.iter().position(|question| question.next_at <= ctx.now) {
            let question = &mut self.hearsay.0[place];
            if question.until > ctx.now {
                question.next_at = (ctx.now + question.pause).min(question.until);
                question.asked += 1;
                let question = *question;
                self.ask(&question);
                continue;
            }
            let question = self.hearsay.0.swap_remove(place);
            if !question.is_answered && question.holds() {
                self.believe(question.claim, ctx);
            }
            if matches!(self.state, State::Closed) {
                return;
            }
        }
    }

    /// Queues one HEARTBEAT per path for a question. A claim about one path concerns this path only. After an ABORT,
    /// the first HEARTBEAT takes only the path of the ABORT, because one HEARTBEAT costs little if the ABORT is forged.
    /// Later HEARTBEATs take all paths.
    fn ask(&mut self, question: &Question) {
        // The COOKIE ECHO serves as the question, because it is retransmitted.
        if matches!(self.state, State::CookieEchoed { .. }) {
            return;
        }
        let only = match question.claim {
            Claim::Dead(index, _) => Some(index),
            Claim::Forgotten(index) if question.asked == 1 => Some(index),
            Claim::Forgotten(_) | Claim::Deserted => None,
        };
        for index in self.paths.indices() {
            if self.paths.get(index).is_confirmed() && only.is_none_or(|only| only == index) {
                self.out.queue(index, Control::Heartbeat { nonce: question.nonce });
            }
        }
    }

    /// Acts on a claim that was not refuted.
    fn believe(&mut self, claim: Claim, ctx: &mut Context<'_>) {
        match claim {
            Claim::Dead(index, what) if self.paths.get(index).is_confirmed() => {
                self.on_unreachable(index, what, ctx);
            }
            Claim::Dead(..) => {}
            // All data was delivered, and the peer's SHUTDOWN COMPLETE was lost.
            Claim::Forgotten(_) if matches!(self.state, State::ShutdownAckSent { .. }) => {
                self.close(CloseReason::Graceful);
            }
            Claim::Forgotten(_) => self.close(CloseReason::PeerAborted(AbortCause::default())),
            Claim::Deserted => self.on_deserted(ctx),
        }
    }
}
