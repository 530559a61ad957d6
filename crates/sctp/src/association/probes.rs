//! Retransmissions that ask a question: the tail-loss probe (RFC 8985 section 7), and the chunk of a silent path that
//! another path repeats.

use crate::path::{PathIndex, Retired};

/// A chunk in flight to be repeated on another path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detour {
    /// The silent path.
    pub(super) from: PathIndex,
    /// The path that repeats its earliest chunk.
    pub(super) to: PathIndex,
}

/// The probes that wait to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probes {
    /// The path whose last chunk is repeated on it.
    tail: Option<PathIndex>,
    detour: Option<Detour>,
}

impl Probes {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.tail.is_none() && self.detour.is_none()
    }

    /// The path on which a tail-loss probe is due.
    #[inline]
    pub(super) fn tail(&self) -> Option<PathIndex> {
        self.tail
    }

    pub(super) fn set_tail(&mut self, path: Option<PathIndex>) {
        self.tail = path;
    }

    #[inline]
    pub(super) fn detour(&self) -> Option<Detour> {
        self.detour
    }

    /// The repetition that goes by `path`.
    #[inline]
    pub(super) fn detour_by(&self, path: PathIndex) -> Option<Detour> {
        self.detour.filter(|detour| detour.to == path)
    }

    pub(super) fn set_detour(&mut self, detour: Option<Detour>) {
        self.detour = detour;
    }

    /// Drops the probes of retired paths.
    pub(super) fn leave_paths(&mut self, retired: &Retired) {
        self.tail = self.tail.filter(|path| !retired.has(*path));
        self.detour = self.detour.filter(|detour| !retired.has(detour.from) && !retired.has(detour.to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_goes_with_either_of_its_paths() {
        let (one, two) = (PathIndex(1), PathIndex(2));
        for gone in [one, two] {
            let mut probes = Probes::default();
            probes.set_detour(Some(Detour { from: one, to: two }));
            probes.set_tail(Some(one));
            probes.leave_paths(&Retired { paths: smallvec::smallvec![gone], current: PathIndex(0) });
            assert!(probes.detour().is_none());
            assert_eq!(probes.tail().is_none(), gone == one);
        }
    }

    #[test]
    fn a_repetition_goes_by_its_own_path_only() {
        let (one, two) = (PathIndex(1), PathIndex(2));
        let mut probes = Probes::default();
        probes.set_detour(Some(Detour { from: one, to: two }));
        assert!(probes.detour_by(one).is_none() && probes.detour_by(two).is_some());
    }
}
