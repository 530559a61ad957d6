//! Implements connection racing (RFC 8305), which sets up a connection even if its first path is dead. If no INIT ACK arrives
//! within the attempt delay, INITs also leave from the host's other addresses and to the peer's other known addresses. The
//! first INIT ACK wins.
//!
//! If the first path works, it wins because of the delay, so the server sees the client address that it would see with TCP. If
//! the first path is dead, the server sees the client's address on the path that wins.

use std::net::IpAddr;
use std::time::Duration;

use rules::Settings;

use crate::timing;

/// Time for which only the first path is tried (RFC 8305 section 5, "Connection Attempt Delay").
const ATTEMPT_DELAY: Duration = Duration::from_millis(100);
/// Limit on the additional pairs of addresses that are tried.
const OTHER_PAIRS_MAX: usize = 12;

/// Returns the delay before other paths are tried: [`ATTEMPT_DELAY`], but not more than half the time that a connection waits
/// for INIT ACK.
pub(crate) fn attempt_delay(settings: &Settings) -> Duration {
    ATTEMPT_DELAY.min(timing::init_patience(settings).0 / 2)
}

/// Returns the additional pairs of a local and a remote address. All pairs have the address family of the first pair. Pairs in
/// which both addresses differ from the first pair come before pairs in which one address differs.
pub(crate) fn other_pairs(
    local: IpAddr,
    remote: IpAddr,
    locals: &[IpAddr],
    remotes: &[IpAddr],
) -> Vec<(IpAddr, IpAddr)> {
    let other_locals = || locals.iter().copied().filter(move |l| *l != local);
    let other_remotes = || remotes.iter().copied().filter(move |r| *r != remote);
    let both = other_remotes().flat_map(|r| other_locals().map(move |l| (l, r)));
    let here = other_locals().map(|l| (l, remote));
    let there = other_remotes().map(|r| (local, r));
    let is_of_family = |ip: &IpAddr| ip.is_ipv4() == remote.is_ipv4();
    let all = both.chain(here).chain(there).filter(|(l, r)| is_of_family(l) && is_of_family(r));
    all.take(OTHER_PAIRS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn pairs_are_of_one_family_and_leave_out_the_first() {
        let locals = [ip("10.0.1.1"), ip("10.0.2.1"), ip("fd00::1")];
        let remotes = [ip("10.0.2.2"), ip("fd00::2"), ip("10.0.1.2")];
        let pairs = other_pairs(locals[0], ip("10.0.1.2"), &locals, &remotes);
        let expected = [("10.0.2.1", "10.0.2.2"), ("10.0.2.1", "10.0.1.2"), ("10.0.1.1", "10.0.2.2")]
            .map(|(l, r)| (ip(l), ip(r)));
        assert_eq!(pairs, expected);
    }

    #[test]
    fn the_attempt_delay_is_half_of_a_short_race_timer() {
        let settings = |race_timer_ms| Settings { race_timer_ms, ..Settings::default() };
        assert_eq!(attempt_delay(&settings(250)), Duration::from_millis(100));
        assert_eq!(attempt_delay(&settings(40)), Duration::from_millis(20));
    }
}
