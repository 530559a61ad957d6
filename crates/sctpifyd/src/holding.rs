//! Controls which SYNs the kernel holds: only those that the rules, or a mark, may send over SCTP.
//!
//! A change of the rules comes through [`Shard::put_in_force`]. First the kernel holds all SYNs, then the rulebook changes, the
//! kernel refuses what is required from now on, and the requester gets its answer. Once no further change follows, the kernel
//! receives the names of the destinations in batches and finally holds by name again. If a step fails, or the rules take too many
//! names, all SYNs stay held.
//!
//! Invariant: while the kernel holds by name, a destination that it lets pass is plain TCP by the rulebook. Destinations learned
//! to have no SCTP are held like others: requests for them decide what is probed.

use std::io;
use std::time::Duration;

use base::Time;
use intercept::{Destinations, HeldSyn, Named};
use rules::{Rulebook, Tried};

use crate::client::Plain;
use crate::connection::{ConnectionId, Stage};
use crate::rules_store::Draft;
use crate::shard::{Shard, Timer};

/// Delay from a change of the rules until the kernel is given names: further changes often follow.
const NAMING_PAUSE: Duration = Duration::from_millis(100);
/// Number of names given to the kernel at once. Each takes some 20 us, while packets wait.
const NAMES_AT_ONCE: usize = 32;
/// Pause between two batches of names, in which packets pass.
const NEXT_NAMES_PAUSE: Duration = Duration::from_millis(1);
/// Pause before a retry of a command that the kernel refused.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// State of the kernel's copy of the rules.
pub(crate) struct Holding {
    /// The naming in progress, if it has begun.
    naming: Option<Naming>,
    /// Time of its next step; never if there is nothing to do.
    due: Time,
}

impl Holding {
    pub(crate) const fn new() -> Holding {
        Holding { naming: None, due: Time::NEVER }
    }
}

struct Naming {
    named: Named,
    mark: Option<u32>,
    rest: Vec<Destinations>,
}

impl Naming {
    /// Follows the rules; None if all SYNs must be held.
    fn of(book: &Rulebook) -> Option<Naming> {
        let (named, ranges) = match book.tried() {
            Tried::Everything => return None,
            Tried::Only(ranges) => (Named::Held, ranges),
            Tried::AllBut(ranges) => (Named::Passed, ranges),
        };
        let settings = &book.settings;
        let mark = Some(settings.manual_mark).filter(|mark| settings.enable && *mark != 0);
        let range =
            |range: &rules::Destinations| Destinations { addresses: range.addresses(), ports: range.ports() };
        Some(Naming { named, mark, rest: ranges.iter().map(range).collect() })
    }
}

impl Shard {
    /// Puts a change of rules, settings or keys in force, in the kernel and here.
    ///
    /// # Errors
    /// The change is in force here, but the kernel holds SYNs by the rules before. It is tried again.
    pub(crate) fn put_in_force(&mut self, draft: Draft) -> Result<(), String> {
        let held = self.interceptor.hold_all();
        // The old rules decided about these connections.
        self.count_passed();
        self.rules.install(draft);
        let required = self.follow_required();
        self.let_go_of_unnamed();
        self.holding.naming = None;
        self.name_at(self.now + NAMING_PAUSE);
        held.map_err(|error| {
            tracing::error!(%error, "the kernel holds SYNs as the rules were before");
            format!(
                "written and in force, but the kernel still decides by the rules before which connections are looked at \
                 ({error}): it is asked again"
            )
        })?;
        required.map_err(|error| {
            format!(
                "written and in force, but the kernel does not refuse plain TCP as the rules with --require say ({error}): it is \
                 asked again"
            )
        })
    }

    fn name_at(&mut self, due: Time) {
        self.holding.due = due;
        self.timers.set(due, Timer::Naming);
    }

    /// Makes the kernel hold by name once the loop runs.
    pub(crate) fn begin_naming(&mut self) {
        self.name_at(self.now);
    }

    /// Handles the timer for naming.
    pub(crate) fn on_naming(&mut self) {
        // In a command's own namespace we answer every SYN.
        if self.now < self.holding.due || self.forwarder.is_some() {
            return;
        }
        self.holding.due = Time::NEVER;
        if let Err(error) = self.name_some() {
            self.holding.naming = None;
            tracing::warn!(%error, "the kernel cannot tell which SYNs to hold: all are");
            if self.interceptor.hold_all().is_err() {
                self.name_at(self.now + RETRY_PAUSE);
            }
        }
    }

    /// Gives the kernel some names, or switches it to holding by name once it has them all.
    fn name_some(&mut self) -> io::Result<()> {
        let mut naming = match self.holding.naming.take() {
            Some(naming) => naming,
            None => {
                self.interceptor.forget_names()?;
                let Some(naming) = Naming::of(&self.rules.lock()) else {
                    tracing::debug!("all SYNs are held");
                    return Ok(());
                };
                naming
            }
        };
        let some = naming.rest.split_off(naming.rest.len().saturating_sub(NAMES_AT_ONCE));
        if some.is_empty() {
            tracing::debug!(named = ?naming.named, mark = naming.mark, "SYNs are held by name");
            return self.interceptor.hold_by_name(naming.named, naming.mark);
        }
        self.interceptor.name(&some, naming.named)?;
        self.holding.naming = Some(naming);
        self.name_at(self.now + NEXT_NAMES_PAUSE);
        Ok(())
    }

    /// Counts connections that the kernel let pass, as if they had been looked at here.
    pub(crate) fn count_passed(&mut self) {
        let passed = match self.interceptor.passed() {
            Ok(passed) => passed,
            Err(error) => return tracing::warn!(%error, "what passed as plain TCP is not counted"),
        };
        let mut book = self.rules.lock();
        book.count_unnamed(passed.unnamed);
        passed.named.iter().for_each(|(to, count)| book.count_passed(to.ip(), to.port(), *count));
        let all = passed.unnamed + passed.named.iter().map(|(_, count)| count).sum::<u64>();
        self.history.count_passed(all);
    }

    /// Releases SYNs that the rules no longer send over SCTP: if sent again, they would pass.
    fn let_go_of_unnamed(&mut self) {
        let held: Vec<(ConnectionId, HeldSyn)> = self
            .connections
            .iter()
            .filter_map(|(id, connection)| match connection.stage {
                Stage::Init(syn) | Stage::Cookie(syn) | Stage::Asking(syn) => Some((id, syn)),
                _ => None,
            })
            .filter(|(_, syn)| !self.may_use_sctp(syn))
            .collect();
        for (id, syn) in held {
            self.drop_connection(id);
            self.transmit();
            self.go_plain(&syn, Plain::ByRule);
        }
    }
}
