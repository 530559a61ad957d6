//! Distance of two paths: an estimate of how few links the paths share. The estimate uses the links of the paths'
//! addresses, as far as the links are known. Begin at [`apart`].

use std::net::IpAddr;

use super::Path;

/// Estimated distance of two addresses of one end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Distance {
    /// The same address, or addresses of the same link.
    Same,
    /// Addresses of different families, of which one or both are on an unknown link. Such addresses are as often on one
    /// link as on two.
    Unknown,
    /// Addresses of different links. Different addresses of one family also count as addresses of different links if a link
    /// is unknown.
    Apart,
}

impl Distance {
    fn between(one: (IpAddr, u8), other: (IpAddr, u8)) -> Distance {
        match (one.1, other.1) {
            _ if one.0 == other.0 => Distance::Same,
            (0, _) | (_, 0) if one.0.is_ipv4() == other.0.is_ipv4() => Distance::Apart,
            (0, _) | (_, 0) => Distance::Unknown,
            (one, other) if one == other => Distance::Same,
            _ => Distance::Apart,
        }
    }
}

/// Returns the distance of our addresses of two paths.
pub(super) fn local_distance(one: &Path, other: &Path) -> Distance {
    let end = |path: &Path| (path.route.local, path.usage.links().0);
    Distance::between(end(one), end(other))
}

/// Returns the distance of the peer's addresses of two paths.
pub(super) fn remote_distance(one: &Path, other: &Path) -> Distance {
    let end = |path: &Path| (path.route.remote, path.usage.links().1);
    Distance::between(end(one), end(other))
}

/// Minimum result of [`apart`] for two paths that probably share no link.
pub(super) const APART_LIKELY: u8 = 3;

/// Estimates how few links two paths share. The result ranges from 0 (the paths share the links of both ends) to 4 (the
/// links of both ends differ).
//= rfc9260#6.4.1-2
pub(super) fn apart(one: &Path, other: &Path) -> u8 {
    use Distance::{Apart, Same, Unknown};
    match (local_distance(one, other), remote_distance(one, other)) {
        (Apart, Apart) => 4,
        (Apart, Unknown) | (Unknown, Apart) => APART_LIKELY,
        (Unknown, Unknown) => 2,
        (Apart, Same) | (Same, Apart) => 1,
        (Same | Unknown, Same) | (Same, Unknown) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AddressUse;
    use crate::path::PathUse;
    use crate::path::paths::tests::path;

    #[test]
    //= rfc9260#6.4.1-2
    fn a_path_without_a_common_address_ranks_best_if_it_has_the_failed_paths_family() {
        let failed = path("10.0.1.1", "10.0.1.2");
        let others = [("10.0.2.1", "10.0.1.2"), ("fd00::1", "fd00::2"), ("10.0.2.1", "10.0.2.2")];
        let ranks = others.map(|(local, remote)| apart(&path(local, remote), &failed));
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
    }

    #[test]
    fn known_links_decide_which_paths_share_a_link_whatever_the_address_family() {
        let on = |link: u8, local: &str, remote: &str| {
            let mut path = path(local, remote);
            path.usage = PathUse::new(AddressUse { link, ..AddressUse::default() }, AddressUse::default());
            path
        };
        let failed = on(1, "10.0.1.1", "10.0.0.9");
        let others = [
            on(1, "fd00:1::1", "fd00::9"),
            on(2, "10.0.2.1", "10.0.0.9"),
            on(0, "fd00:2::1", "fd00::9"),
            on(2, "fd00:2::1", "fd00::9"),
            on(2, "10.0.2.1", "10.0.0.10"),
        ];
        let ranks = others.map(|other| apart(&other, &failed));
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
        assert_eq!(apart(&on(1, "10.0.1.77", "10.0.0.9"), &failed), 0, "two addresses of one link");
    }
}
