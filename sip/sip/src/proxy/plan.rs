//! The order of attempts for one request. A contact is tried after all contacts of higher preference have rejected the request (RFC 3261
//! section 16.6, serial forking). If a preference has more contacts than Max-Breadth permits, the excess contacts also wait (RFC 5393
//! section 5.3.3).

use std::collections::VecDeque;

use super::asked::Asked;
use super::target::{Target, groups, share};

/// The request to copy, and the targets not yet tried.
#[derive(Debug)]
pub(super) struct Plan {
    asked: Asked,
    /// Groups of targets that are tried in parallel, the most preferred group first.
    later: VecDeque<Vec<Target>>,
}

impl Plan {
    pub(super) fn new(asked: Asked, targets: Vec<Target>) -> Plan {
        let later = groups(targets, asked.known.max_breadth);
        Plan { asked, later }
    }

    pub(super) fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Takes the next group of targets. The request's Max-Breadth is divided among these targets.
    pub(super) fn next_group(&mut self) -> Vec<Target> {
        let mut targets = self.later.pop_front().unwrap_or_default();
        share(&mut targets, self.asked.known.max_breadth);
        targets
    }

    /// Reports whether there are further groups.
    pub(super) fn has_more(&self) -> bool {
        !self.later.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::{asked, hop};

    #[test]
    fn groups_come_by_preference_and_share_the_breadth() {
        let target = |q| Target::new(b"sip:a", (hop("192.0.2.7:5060"), None)).with_preference(q);
        let mut plan =
            Plan::new(asked(1, "INVITE sip:a\nMax-Breadth: 5"), [500, 1000, 1000].map(target).into());
        let mut next = || {
            let group = plan.next_group();
            let group: Vec<_> = group.iter().map(|target| (target.preference(), target.breadth())).collect();
            (group, plan.has_more())
        };
        assert_eq!(next(), (vec![(1000, 3), (1000, 2)], true));
        assert_eq!(next(), (vec![(500, 5)], false));
        assert_eq!(next(), (vec![], false));
    }
}
