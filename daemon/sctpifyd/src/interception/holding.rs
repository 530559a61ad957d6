//! Controls which SYNs the kernel holds: only SYNs of connections that the rules, or a SYN's mark, may send over SCTP.
//!
//! A *name* is an entry of destinations in the kernel's list. The kernel *holds by name* if it holds only SYNs to the named
//! destinations, or all SYNs except SYNs to the named destinations. A change of the rules takes these steps:
//!
//! 1. The kernel holds all SYNs ([`Interception::begin_change`]).
//! 2. The rulebook changes.
//! 3. The kernel refuses plain TCP where a rule now requires SCTP ([`Interception::follow_change`]).
//! 4. The requester gets its answer.
//! 5. After a pause without further changes, the kernel receives the names of the destinations in batches.
//! 6. The kernel holds by name again.
//!
//! If the naming fails, or the rules need too many names, all SYNs stay held.
//!
//! Invariant: while the kernel holds by name, the rulebook requires plain TCP for every destination whose SYNs the kernel lets
//! pass. The kernel also holds SYNs to destinations that are cached as not supporting SCTP, because the daemon probes a
//! destination only if programs connect to it.

use std::io;
use std::time::Duration;

use base::Time;
use intercept::{Destinations, Named};
use rules::{Rulebook, Tried};

use super::Interception;
use crate::history::History;
use crate::rules_store::RulesStore;
use crate::timers::{Timer, Timers};

/// Delay between a change of the rules and the first batch of names. Further changes often follow within this delay.
const NAMING_PAUSE: Duration = Duration::from_millis(100);
/// Number of names in one batch. The kernel needs some 20 us for each name, and packets wait during a batch.
const NAMES_AT_ONCE: usize = 32;
/// Pause between two batches of names, in which packets pass.
const NEXT_NAMES_PAUSE: Duration = Duration::from_millis(1);
/// Pause before a retry of a command that the kernel refused.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// State of the kernel's copy of the rules.
pub(super) struct Holding {
    /// Naming in progress; `None` before the first batch, and while no naming is in progress.
    naming: Option<Naming>,
    /// Time of the next step; [`Time::NEVER`] if no step is due.
    due: Time,
}

impl Holding {
    pub(super) const fn new() -> Holding {
        Holding { naming: None, due: Time::NEVER }
    }
}

struct Naming {
    named: Named,
    mark: Option<u32>,
    rest: Vec<Destinations>,
}

impl Naming {
    /// Derives the names from the rules. Returns `None` if all SYNs must be held.
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

impl Interception {
    /// Makes the kernel hold all SYNs before the rules change. Counts the connections that the kernel let pass under the old
    /// rules.
    ///
    /// # Errors
    /// Fails if the kernel still selects SYNs by the previous rules. The daemon retries the update.
    pub(crate) fn begin_change(&mut self, rules: &RulesStore, history: &mut History) -> Result<(), String> {
        let held = self.interceptor.hold_all();
        self.count_passed(rules, history);
        held.map_err(|error| {
            tracing::error!(%error, "the kernel holds SYNs according to the previous rules");
            format!(
                "written and in force, but the kernel still selects connections by the previous rules ({error}): the update is retried"
            )
        })
    }

    /// Makes the kernel follow rules that have changed.
    ///
    /// # Errors
    /// Fails if the kernel still refuses plain TCP by the previous rules. The daemon retries the update.
    pub(crate) fn follow_change(
        &mut self,
        now: Time,
        rules: &RulesStore,
        timers: &mut Timers<Timer>,
    ) -> Result<(), String> {
        self.holding.naming = None;
        self.name_at(now + NAMING_PAUSE, timers);
        self.follow_required(rules).map_err(|error| {
            format!(
                "written and in force, but the kernel does not refuse plain TCP for the rules with --require ({error}): the \
                 update is retried"
            )
        })
    }

    fn name_at(&mut self, due: Time, timers: &mut Timers<Timer>) {
        self.holding.due = due;
        timers.set(due, Timer::Naming);
    }

    /// Schedules the first naming for the start of the event loop.
    pub(crate) fn begin_naming(&mut self, now: Time, timers: &mut Timers<Timer>) {
        self.name_at(now, timers);
    }

    /// Handles the timer for naming.
    pub(crate) fn on_naming(&mut self, now: Time, rules: &RulesStore, timers: &mut Timers<Timer>) {
        // In a command's enclosed namespace, this process handles every SYN, so the kernel needs no names.
        if now < self.holding.due || self.is_enclosed() {
            return;
        }
        self.holding.due = Time::NEVER;
        if let Err(error) = self.name_some(now, rules, timers) {
            self.holding.naming = None;
            tracing::warn!(%error, "the kernel cannot select SYNs: all are held");
            if self.interceptor.hold_all().is_err() {
                self.name_at(now + RETRY_PAUSE, timers);
            }
        }
    }

    /// Sends the next batch of names to the kernel. After the last batch, makes the kernel hold by name.
    fn name_some(&mut self, now: Time, rules: &RulesStore, timers: &mut Timers<Timer>) -> io::Result<()> {
        let mut naming = match self.holding.naming.take() {
            Some(naming) => naming,
            None => {
                self.interceptor.forget_names()?;
                let Some(naming) = Naming::of(&rules.lock()) else {
                    tracing::debug!("all SYNs are held");
                    return Ok(());
                };
                naming
            }
        };
        let some = naming.rest.split_off(naming.rest.len().saturating_sub(NAMES_AT_ONCE));
        if some.is_empty() {
            tracing::debug!(named = ?naming.named, mark = naming.mark, "SYNs to named destinations are held");
            return self.interceptor.hold_by_name(naming.named, naming.mark);
        }
        self.interceptor.name(&some, naming.named)?;
        self.holding.naming = Some(naming);
        self.name_at(now + NEXT_NAMES_PAUSE, timers);
        Ok(())
    }

    /// Adds the connections that the kernel let pass to the usage of the rules and to the history.
    pub(crate) fn count_passed(&mut self, rules: &RulesStore, history: &mut History) {
        let passed = match self.interceptor.passed() {
            Ok(passed) => passed,
            Err(error) => {
                return tracing::warn!(%error, "connections that passed as plain TCP are not counted");
            }
        };
        let mut book = rules.lock();
        book.count_unnamed(passed.unnamed);
        passed.named.iter().for_each(|(to, count)| book.count_passed(to.ip(), to.port(), *count));
        let all = passed.unnamed + passed.named.iter().map(|(_, count)| count).sum::<u64>();
        history.count_passed(all);
    }
}

#[cfg(test)]
mod tests {
    use rules::{RulesTable, Settings};

    use super::*;

    fn naming(default_remote_enable: bool, manual_mark: u32) -> Option<Naming> {
        let settings = Settings { default_remote_enable, manual_mark, ..Settings::default() };
        Naming::of(&Rulebook::new(settings, RulesTable::default()))
    }

    #[test]
    fn without_rules_the_kernel_holds_all_syns_or_those_with_the_mark_alone() {
        assert!(naming(true, 0).is_none());
        let nothing = naming(false, 7).expect("names");
        assert!(matches!(nothing.named, Named::Held) && nothing.rest.is_empty());
        assert_eq!(nothing.mark, Some(7));
        assert_eq!(naming(false, 0).expect("names").mark, None);
    }
}
