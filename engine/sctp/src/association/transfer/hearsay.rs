//! Unauthenticated claims about an association that a shared key protects. Anybody who knows the tags can
//! claim that the peer has no such association (an unsigned ABORT), or that a path is unreachable (ICMP).
//!
//! A claim may be true: a host that has lost its state has also lost the key's random numbers, and routers
//! have no key. So it raises a question. The peer gets HEARTBEATs with their own nonce, one RTO apart, and
//! the claim holds only if neither an answer nor an acknowledgement of new data comes. An ABORT must also be
//! heard again, since a host without the association answers each HEARTBEAT with one. The same question is
//! not asked again before its time for answers has ended, which limits the traffic that an attacker can
//! cause. Signed packets prove nothing here, since anybody who has seen them can replay them. Start at
//! [`Association::hear_abort`] and [`Transfer::hear_unreachable`].

use std::time::Duration;

use base::Time;

use super::Transfer;
use crate::association::{Context, Control, State};
use crate::event::{AbortCause, CloseReason, Unreachable};
use crate::extension::auth::AuthConfig;
use crate::memory::list;
use crate::path::PathIndex;

/// HEARTBEATs on each path before the peer is considered gone: with 10% loss each way, all are lost once in
/// half a million times.
const PEER_QUESTIONS: u8 = 8;

/// HEARTBEATs before a path is considered dead.
const PATH_QUESTIONS: u8 = 2;

/// An unauthenticated claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claim {
    /// The peer does not know this association; the claim came on this path.
    Forgotten(PathIndex),
    /// Nobody is at the far end of any path.
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
    /// The nonce that answers echo.
    nonce: u64,
    /// HEARTBEATs sent on each path.
    asked: u8,
    pause: Duration,
    began: Time,
    /// Time of the next HEARTBEAT, or of the verdict.
    next_at: Time,
    /// Time of the verdict.
    until: Time,
    /// Set if the claim was heard again after the first answer was due.
    is_repeated: bool,
    is_answered: bool,
}

impl Question {
    /// Returns whether the claim was repeated, or is of a kind that the peer's host does not repeat for each
    /// question.
    fn holds(&self) -> bool {
        self.is_repeated || !matches!(self.claim, Claim::Forgotten(_))
    }

    /// Marks the claim as false. The question remains until its time has ended.
    fn answer(&mut self) {
        self.is_answered = true;
        self.next_at = self.until;
    }
}

/// The open questions: at most one of each kind about the peer, and one about each path.
#[derive(Debug, Default)]
pub(crate) struct Hearsay(Vec<Question>);

impl Hearsay {
    /// Heap bytes of the list.
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

    /// Returns whether the same question is open already; if so, records that the claim was heard again.
    fn is_asked(&mut self, claim: Claim, now: Time) -> bool {
        let is_same = |question: &&mut Question| {
            let same_kind = std::mem::discriminant(&question.claim) == std::mem::discriminant(&claim);
            same_kind && question.claim.path() == claim.path()
        };
        let Some(question) = self.0.iter_mut().find(is_same) else { return false };
        question.is_repeated |= now >= question.began + question.pause;
        true
    }

    /// Handles a HEARTBEAT ACK; returns whether it answers a question.
    pub(crate) fn on_answer(&mut self, nonce: u64) -> bool {
        let asked = self.0.iter_mut().find(|question| question.nonce == nonce);
        asked.map(Question::answer).is_some()
    }

    /// Answers the questions that a working path refutes.
    #[inline]
    pub(crate) fn on_path_lives(&mut self, index: PathIndex) {
        for question in &mut self.0 {
            if question.claim.path().is_none_or(|path| path == index) {
                question.answer();
            }
        }
    }

    /// Drops all questions once the association is up.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

impl Transfer {
    /// Returns whether a shared key is in force, without which nobody can sign for the peer.
    pub(crate) fn is_keyed(&self) -> bool {
        self.integrity.is_keyed()
    }

    /// Returns whether a shared key is in force that these settings also contain.
    pub(crate) fn is_keyed_by(&self, auth: &AuthConfig) -> bool {
        self.is_keyed() && self.integrity.has_keys_of_settings() && self.config.auth.shares_key_with(auth)
    }

    /// Returns whether the settings for new associations permit a restart of this one. An association
    /// protected by a key restarts only with the same key, and not at all if its keys came by command, since
    /// these are not kept.
    pub(crate) fn may_begin_anew_by(&self, fresh: &AuthConfig) -> bool {
        // Before it has keys, the peer's own handshake may take the place of ours.
        if self.integrity.protection().is_some() {
            return matches!(self.state, State::CookieEchoed { .. });
        }
        let has_another = fresh.has_shared_key() && !self.config.auth.shares_key_with(fresh);
        !self.is_keyed() || (self.integrity.has_keys_of_settings() && !has_another)
    }

    /// Handles an ICMP error that reports a path unreachable. An unconfirmed path carries nothing and is
    /// probed anyway.
    pub(crate) fn hear_unreachable(&mut self, index: PathIndex, what: Unreachable, ctx: &mut Context<'_>) {
        let is_final = matches!(what, Unreachable::Protocol | Unreachable::Port);
        match self.state {
            // No HEARTBEAT is answered yet.
            State::CookieEchoed { .. } if is_final => self.hear_of_desertion(ctx),
            State::CookieEchoed { .. } => {}
            _ if self.paths.get(index).is_confirmed() => self.ask_about(Claim::Dead(index, what), ctx),
            _ => {}
        }
    }

    /// Handles an unsigned claim, heard on a path, that the peer does not know this association.
    pub(crate) fn hear_forgotten(&mut self, index: PathIndex, ctx: &mut Context<'_>) {
        self.ask_about(Claim::Forgotten(index), ctx);
    }

    /// Handles the failure of all paths according to ICMP.
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

    /// The time to wait for an answer on a path. The back-off of earlier timeouts does not count.
    fn patience_with(&self, index: PathIndex) -> Duration {
        self.paths.get(index).rto_without_back_off(&self.config.timing)
    }

    /// Time of the next HEARTBEAT or verdict.
    #[inline]
    pub(crate) fn hearsay_timeout(&self) -> Time {
        self.hearsay.next_timeout()
    }

    /// Asks again, and judges claims that were not refuted in time.
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

    /// Asks once. The first HEARTBEAT takes the path of the claim, which costs little if it is false; the
    /// others take all paths.
    fn ask(&mut self, question: &Question) {
        // The COOKIE ECHO is retransmitted and serves as the question.
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

    /// Acts on a claim that nobody has refuted.
    fn believe(&mut self, claim: Claim, ctx: &mut Context<'_>) {
        match claim {
            Claim::Dead(index, what) if self.paths.get(index).is_confirmed() => {
                self.on_unreachable(index, what, ctx);
            }
            Claim::Dead(..) => {}
            // Everything was delivered, and the peer's SHUTDOWN COMPLETE was lost.
            Claim::Forgotten(_) if matches!(self.state, State::ShutdownAckSent { .. }) => {
                self.close(CloseReason::Graceful);
            }
            Claim::Forgotten(_) => self.close(CloseReason::PeerAborted(AbortCause::default())),
            Claim::Deserted => self.on_deserted(ctx),
        }
    }
}
