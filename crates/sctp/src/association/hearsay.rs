//! What anybody can say who knows the tags, on an association that a shared key protects: that the peer has no such association (an
//! unsigned ABORT), or that a path leads nowhere (ICMP).
//!
//! It may be true: a host that has lost its state has lost the key's random numbers, too, and routers have no key. So it counts as a
//! question. The peer gets HEARTBEATs with a nonce of their own, an RTO apart, and what was said holds only if neither an answer nor an
//! acknowledgement of new data comes; an ABORT must be heard again, too, as a host without the association answers each
//! question by one. Until the time for answers is over the same is not asked again, so that what others send makes us send little.
//! Signed packets prove nothing here, for anybody who has seen them can send them again. Begin at
//! [`Association::hear_abort`] and [`Association::hear_unreachable`].

use std::time::Duration;

use base::Time;

use super::{Association, Context, Control, State};
use crate::event::{AbortCause, CloseReason, Unreachable};
use crate::extension::auth::AuthConfig;
use crate::memory::list;
use crate::path::PathIndex;

/// HEARTBEATs by each path before the peer is taken for gone: with a tenth of all packets lost each way all are lost once in half a
/// million times.
const PEER_QUESTIONS: u8 = 8;

/// HEARTBEATs before a path is taken for dead.
const PATH_QUESTIONS: u8 = 2;

/// What was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claim {
    /// The peer knows nothing of this association; the word came by this path.
    Forgotten(PathIndex),
    /// Nobody is at the peer's end of any path.
    Deserted,
    /// This path leads nowhere.
    Dead(PathIndex, Unreachable),
}

impl Claim {
    /// The path that it is about; none: the peer.
    fn path(self) -> Option<PathIndex> {
        match self {
            Claim::Dead(index, _) => Some(index),
            Claim::Forgotten(_) | Claim::Deserted => None,
        }
    }
}

/// The peer is asked about a claim.
#[derive(Clone, Copy, Debug)]
struct Question {
    claim: Claim,
    /// What the answers bring back.
    nonce: u64,
    /// HEARTBEATs that have left by each path.
    asked: u8,
    pause: Duration,
    began: Time,
    /// When it is asked again, or judged.
    next_at: Time,
    /// When it is judged.
    until: Time,
    /// Whether the claim was heard again after the first answer was due.
    is_repeated: bool,
    is_answered: bool,
}

impl Question {
    /// Whether the claim was heard again, if it is one that the peer's host answers each question by.
    fn holds(&self) -> bool {
        self.is_repeated || !matches!(self.claim, Claim::Forgotten(_))
    }

    /// The claim is false. The question stays until its time is over.
    fn answer(&mut self) {
        self.is_answered = true;
        self.next_at = self.until;
    }
}

/// The questions that are open: one of each kind about the peer, and one about each path, at most.
#[derive(Debug, Default)]
pub(super) struct Hearsay(Vec<Question>);

impl Hearsay {
    /// Bytes that it takes beside itself.
    pub(super) fn memory(&self) -> usize {
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

    /// Whether the peer is being asked about this already, which has then been heard again.
    fn is_asked(&mut self, claim: Claim, now: Time) -> bool {
        let is_same = |question: &&mut Question| {
            let same_kind = std::mem::discriminant(&question.claim) == std::mem::discriminant(&claim);
            same_kind && question.claim.path() == claim.path()
        };
        let Some(question) = self.0.iter_mut().find(is_same) else { return false };
        question.is_repeated |= now >= question.began + question.pause;
        true
    }

    /// A HEARTBEAT ACK came; returns whether it answers a question.
    pub(super) fn on_answer(&mut self, nonce: u64) -> bool {
        let asked = self.0.iter_mut().find(|question| question.nonce == nonce);
        asked.map(Question::answer).is_some()
    }

    /// A path has just shown that it leads to the peer.
    #[inline]
    pub(super) fn on_path_lives(&mut self, index: PathIndex) {
        for question in &mut self.0 {
            if question.claim.path().is_none_or(|path| path == index) {
                question.answer();
            }
        }
    }

    /// The association is up: what was said before does not matter.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

impl Association {
    /// Whether a shared key is in force: only who has it can sign what is taken for the peer's.
    pub(crate) fn is_keyed(&self) -> bool {
        self.auth.as_ref().is_some_and(|auth| auth.has_shared_keys_only())
    }

    /// Whether a shared key is in force that these settings have, too.
    pub(crate) fn is_keyed_by(&self, auth: &AuthConfig) -> bool {
        self.is_keyed() && self.has_keys_of_settings() && self.config.auth.shares_key_with(auth)
    }

    /// Whether the association may be begun anew from where new ones begin by these settings. What a key protects is begun anew by that
    /// key alone: not by another one, and not at all if the keys came by command, for these are not kept.
    pub(crate) fn may_begin_anew_by(&self, fresh: &AuthConfig) -> bool {
        let has_another = fresh.has_shared_key() && !self.config.auth.shares_key_with(fresh);
        !self.is_keyed() || (self.has_keys_of_settings() && !has_another)
    }

    fn has_keys_of_settings(&self) -> bool {
        self.auth.as_ref().is_none_or(|auth| !auth.has_other_keys())
    }

    /// Whether the chunk in hand may be anybody's.
    pub(super) fn may_be_forged(&self) -> bool {
        !self.is_signed && self.is_keyed()
    }

    /// Somebody says in the peer's name, unsigned, that it has no such association.
    pub(super) fn hear_abort(&mut self, ctx: &mut Context<'_>) {
        if self.may_end_at_once() {
            let came_by = self.came_by.path().filter(|index| self.paths.get(*index).is_confirmed());
            self.ask_about(Claim::Forgotten(came_by.unwrap_or(self.paths.current())), ctx);
        }
    }

    /// ICMP says that a path leads nowhere. One that is not confirmed carries nothing, and is asked anyway.
    pub(super) fn hear_unreachable(&mut self, index: PathIndex, what: Unreachable, ctx: &mut Context<'_>) {
        let is_final = matches!(what, Unreachable::Protocol | Unreachable::Port);
        match self.state {
            // No HEARTBEAT is answered yet.
            State::CookieEchoed { .. } if is_final => self.hear_of_desertion(ctx),
            State::CookieEchoed { .. } => {}
            _ if self.paths.get(index).is_confirmed() => self.ask_about(Claim::Dead(index, what), ctx),
            _ => {}
        }
    }

    /// All paths are down, by what ICMP says.
    pub(super) fn hear_of_desertion(&mut self, ctx: &mut Context<'_>) {
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

    /// How long an answer by a path is waited for. Timeouts before have doubled the RTO; that is not waited for.
    fn patience_with(&self, index: PathIndex) -> Duration {
        self.paths.get(index).rto_without_back_off(&self.config.timing)
    }

    /// When the next question is to be asked, or judged.
    #[inline]
    pub(super) fn hearsay_timeout(&self) -> Time {
        self.hearsay.next_timeout()
    }

    /// Asks again, and judges what was not answered in time.
    pub(super) fn on_hearsay_timeout(&mut self, ctx: &mut Context<'_>) {
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

    /// The first HEARTBEAT goes where the word came from, which costs little if it is false; the others go by all paths.
    fn ask(&mut self, question: &Question) {
        // The COOKIE ECHO, which is sent again, asks by itself.
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
                self.control.push_back((index, Control::Heartbeat { nonce: question.nonce }));
            }
        }
    }

    /// Nobody has contradicted.
    fn believe(&mut self, claim: Claim, ctx: &mut Context<'_>) {
        match claim {
            Claim::Dead(index, what) if self.paths.get(index).is_confirmed() => {
                self.on_unreachable(index, what, ctx);
            }
            Claim::Dead(..) => {}
            // Everything was delivered, and the peer's SHUTDOWN COMPLETE is lost.
            Claim::Forgotten(_) if matches!(self.state, State::ShutdownAckSent { .. }) => {
                self.close(CloseReason::Graceful);
            }
            Claim::Forgotten(_) => self.close(CloseReason::PeerAborted(AbortCause::default())),
            Claim::Deserted => self.on_deserted(ctx),
        }
    }
}
