//! Detection of paths that drop ECN-capable packets.
//!
//! Begin at [`PathEcn::on_sent`].

use base::Ecn;

/// Use of ECN on one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum PathEcn {
    /// No packet has been sent as ECT(0).
    #[default]
    Unused,
    /// A packet has been sent as ECT(0), and is not acknowledged yet.
    Tried,
    /// Data sent as ECT(0) has been acknowledged.
    Works,
    /// T3 expired before any data sent as ECT(0) was acknowledged, so the path is used without ECN.
    Off,
}

impl PathEcn {
    /// Returns the ECN codepoint for a packet of new data, and records the attempt.
    pub(crate) fn on_sent(&mut self) -> Ecn {
        match self {
            PathEcn::Unused => *self = PathEcn::Tried,
            PathEcn::Tried | PathEcn::Works => {}
            PathEcn::Off => return Ecn::NotEct,
        }
        Ecn::Ect0
    }

    /// Records that data was acknowledged.
    pub(crate) fn on_acknowledged(&mut self) {
        if *self == PathEcn::Tried {
            *self = PathEcn::Works;
        }
    }

    /// Handles expiry of T3.
    pub(crate) fn on_timeout(&mut self) {
        if *self == PathEcn::Tried {
            *self = PathEcn::Off;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_disables_ecn_on_a_path_only_if_no_ect_packet_was_acknowledged() {
        let mut blocked = PathEcn::default();
        assert_eq!(blocked.on_sent(), Ecn::Ect0);
        blocked.on_timeout();
        assert_eq!(blocked.on_sent(), Ecn::NotEct);
        let mut open = PathEcn::default();
        open.on_sent();
        open.on_acknowledged();
        open.on_timeout();
        assert_eq!(open.on_sent(), Ecn::Ect0);
    }
}
