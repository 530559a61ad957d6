//! Retransmissions that serve as probes: the tail-loss probe (RFC 8985 section 7), and the repetition of a silent
//! path's chunk on another path.

use crate::path::{PathIndex, Retired};

/// The repetition, on another path, of a chunk in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detour {
    /// The silent path.
    pub(crate) from: PathIndex,
    /// The path on which the earliest chunk of `from` is repeated.
    pub(crate) to: PathIndex,
}

/// The probes that wait to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probes {
    /// The path on which a tail-loss probe is due. The probe sends the path's last chunk again.
    tail: Option<PathIndex>,
    detour: Option<Detour>,
}

impl Probes {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.is_none() && self.detour.is_none()
    }

    /// Returns the path on which a tail-loss probe is due.
    #[inline]
    pub(crate) fn tail(&self) -> Option<PathIndex> {
        self.tail
    }

    pub(crate) fn set_tail(&mut self, path: Option<PathIndex>) {
        self.tail = path;
    }

    #[inline]
    pub(crate) fn detour(&self) -> Option<Detour> {
        self.detour
    }

    /// Returns the repetition that is due on `path`.
    #[inline]
    pub(crate) fn detour_by(&self, path: PathIndex) -> Option<Detour> {
        self.detour.filter(|detour| detour.to == path)
    }

    pub(crate) fn set_detour(&mut self, detour: Option<Detour>) {
        self.detour = detour;
    }

    /// Drops the probes that involve retired paths.
    pub(crate) fn leave_paths(&mut self, retired: &Retired) {
        self.tail = self.tail.filter(|path| !retired.has(*path));
        self.detour = self.detour.filter(|detour| !retired.has(detour.from) && !retired.has(detour.to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detour_probe_is_dropped_when_either_of_its_paths_is_removed() {
        let (one, two) = (PathIndex::new(1), PathIndex::new(2));
        for gone in [one, two] {
            let mut probes = Probes::default();
            probes.set_detour(Some(Detour { from: one, to: two }));
            probes.set_tail(Some(one));
            probes.leave_paths(&Retired { paths: smallvec::smallvec![gone], current: PathIndex::new(0) });
            assert!(probes.detour().is_none());
            assert_eq!(probes.tail().is_none(), gone == one);
        }
    }

    #[test]
    fn a_detour_probe_is_sent_only_on_its_destination_path() {
        let (one, two) = (PathIndex::new(1), PathIndex::new(2));
        let mut probes = Probes::default();
        probes.set_detour(Some(Detour { from: one, to: two }));
        assert!(probes.detour_by(one).is_none() && probes.detour_by(two).is_some());
    }
}
