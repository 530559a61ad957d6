//! Converts the status to metrics in the Prometheus text format, version 0.0.4.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use ops::MetricsText;

use crate::{
    AddressUse, Association, LinkBytes, LinkCap, LinkState, Path, PathState, PeerLink, Status, TurnTimes,
};

/// Limit on the links to peers for which a metric has series.
const LINKS_MAX: usize = 512;
/// Limit on the paths for which a metric has series. A busy host has more paths than a time series database handles well.
const PATHS_MAX: usize = 512;

/// Returns the metrics of a status. Each metric of paths, or of links to peers, has up to 512 series.
pub fn metrics(status: &Status) -> MetricsText {
    let mut out = MetricsText::default();
    let c = &status.counters;
    out.head("sctpify_build_info", "gauge", "1, with the version of the daemon.");
    out.series("sctpify_build_info", &[("version", &status.version)], 1);
    let start = status.started_unix_ms as f64 / 1e3;
    out.one("sctpify_start_time_seconds", "gauge", "Time of the daemon's start, since 1970.", start);
    out.one("sctpify_enabled", "gauge", "1 if the setting enable is on.", u8::from(status.enabled));
    out.head("sctpify_connects_total", "counter", "Connections of local programs, by outcome.");
    let outcomes = [
        ("sctp", c.connects_sctp),
        ("fallback", c.connects_fallback),
        ("rule", c.connects_by_rule_tcp),
        ("learned", c.connects_learned_tcp),
    ];
    for (outcome, value) in outcomes {
        out.series("sctpify_connects_total", &[("outcome", &outcome)], value);
    }
    out.head("sctpify_fallbacks_total", "counter", "Connections that fell back or were refused, by reason.");
    for fallback in &status.fallbacks {
        out.series("sctpify_fallbacks_total", &[("reason", &fallback.reason)], fallback.count);
    }
    out.head("sctpify_accepts_total", "counter", "Connections of peers, by outcome.");
    out.series("sctpify_accepts_total", &[("outcome", &"sctp")], c.accepts);
    out.series("sctpify_accepts_total", &[("outcome", &"refused")], c.accepts_refused);
    out.head("sctpify_bytes_total", "counter", "Bytes of local programs carried over SCTP.");
    out.series("sctpify_bytes_total", &[("direction", &"sent")], c.bytes_sent);
    out.series("sctpify_bytes_total", &[("direction", &"received")], c.bytes_received);
    out.one("sctpify_path_switches_total", "counter", "Path switches of data.", c.path_switches);
    let help =
        "Changes of paths by kind (switched, down, up) and reason. Each path of each association counts.";
    out.head("sctpify_path_changes_total", "counter", help);
    for changes in &status.path_changes {
        let labels: [(&str, &dyn Display); 2] = [("event", &changes.event), ("reason", &changes.reason)];
        out.series("sctpify_path_changes_total", &labels, changes.count);
    }
    out.one(
        "sctpify_encrypted_associations_total",
        "counter",
        "Encrypted associations that came up.",
        c.encrypted,
    );
    let help = "Connections of local programs to an address with another key than the known one, or with none any more.";
    out.one("sctpify_changed_peers_total", "counter", help, c.changed_peers);
    out.one("sctpify_failed_keys_total", "counter", "Failed handshakes about keys.", c.failed_keys);
    out.one("sctpify_connections", "gauge", "Current connections over SCTP.", status.connections.len());
    out.one("sctpify_associations", "gauge", "Current associations.", status.associations.len());
    link_bytes(&mut out, &status.link_bytes);
    link_caps(&mut out, &status.link_caps);
    links(&mut out, &status.links);
    turns(&mut out, &status.turns);
    paths(&mut out, &status.associations);
    out
}

fn turns(out: &mut MetricsText, turns: &TurnTimes) {
    const NAME: &str = "sctpify_loop_turn_seconds";
    out.head(NAME, "histogram", "Duration of a turn of the packet loop, during which packets wait.");
    let bounds: Vec<_> = turns.bounds_us.iter().copied().map(Duration::from_micros).collect();
    out.histogram(NAME, &[], &bounds, &turns.counts, Duration::from_micros(turns.sum_us));
}

fn link_bytes(out: &mut MetricsText, links: &[LinkBytes]) {
    const NAME: &str = "sctpify_link_bytes_total";
    out.head(NAME, "counter", "Bytes of SCTP packets by a link of this host, to and from all peers.");
    for link in links {
        let (interface, name) = link_labels(link.interface.as_deref(), link.name.as_deref());
        for (direction, bytes) in [("sent", link.sent_bytes), ("received", link.received_bytes)] {
            let labels: [(&str, &dyn Display); 3] =
                [("interface", &interface), ("name", &name), ("direction", &direction)];
            out.series(NAME, &labels, bytes);
        }
    }
}

fn link_caps(out: &mut MetricsText, caps: &[LinkCap]) {
    let mut family = |metric: &str, help, value: &dyn Fn(&LinkCap) -> u64| {
        out.head(metric, "gauge", help);
        for cap in caps {
            let (interface, name) = link_labels(Some(&cap.interface), cap.name.as_deref());
            let labels: [(&str, &dyn Display); 2] = [("interface", &interface), ("name", &name)];
            out.series(metric, &labels, value(cap));
        }
    };
    family(
        "sctpify_link_month_bytes",
        "Bytes of the interface of a link with a cap in this month.",
        &|cap| cap.bytes,
    );
    family("sctpify_link_cap_bytes", "Cap on the bytes of the interface in a month.", &|cap| cap.cap_bytes);
    family("sctpify_link_cap_reached", "1 if the cap is reached in this month.", &|cap| {
        u64::from(cap.is_reached)
    });
}

fn links(out: &mut MetricsText, links: &[PeerLink]) {
    let links = whole_peers(links, LINKS_MAX);
    let mut family = |metric: &str, help, value: &dyn Fn(&PeerLink) -> Option<f64>| {
        out.head(metric, "gauge", help);
        for link in links {
            if let Some(value) = value(link) {
                let (interface, name) = link_labels(link.interface.as_deref(), link.name.as_deref());
                let labels: [(&str, &dyn Display); 3] =
                    [("peer", &link.peer), ("interface", &interface), ("name", &name)];
                out.series(metric, &labels, value);
            }
        }
    };
    family("sctpify_peer_link_up", "1 if the peer is reached by the link.", &|link| {
        Some(f64::from(u8::from(link.state == LinkState::Up)))
    });
    family("sctpify_peer_link_in_use", "1 if new data for the peer goes by the link.", &|link| {
        Some(f64::from(u8::from(link.in_use)))
    });
    family(
        "sctpify_peer_link_backup",
        "1 if the link is a backup for the peer, by the policy of either host.",
        &|link| Some(f64::from(u8::from(link.usage == AddressUse::Backup))),
    );
    let help = "Smoothed round-trip time of the link's quickest path to the peer.";
    family("sctpify_peer_link_srtt_seconds", help, &|link| link.srtt_us.map(|us| us as f64 / 1e6));
}

/// Returns the first links, up to `max`. For each peer, the result contains either all links or none. Otherwise, an alert on the number of
/// a peer's links could be false. The links must be in the order of their peers.
fn whole_peers(links: &[PeerLink], max: usize) -> &[PeerLink] {
    let Some(next) = links.get(max) else { return links };
    let begins = links[..max].iter().position(|link| link.peer == next.peer).unwrap_or(max);
    &links[..begins]
}

/// Returns the labels `interface` and `name` of a link. A link without a name has its interface as its name.
fn link_labels(interface: Option<&str>, name: Option<&str>) -> (String, String) {
    let interface = interface.unwrap_or("unknown");
    (interface.to_owned(), name.unwrap_or(interface).to_owned())
}

fn paths(out: &mut MetricsText, associations: &[Association]) {
    let all: Vec<(&Association, &Path)> =
        associations.iter().flat_map(|a| a.paths.iter().map(move |p| (a, p))).take(PATHS_MAX).collect();
    let mut family = |name: &str, kind, help, value: &dyn Fn(&Path) -> Option<f64>| {
        out.head(name, kind, help);
        for (association, path) in &all {
            if let Some(value) = value(path) {
                let local = path.local.map_or_else(|| "any".to_owned(), |ip: IpAddr| ip.to_string());
                let labels: [(&str, &dyn Display); 3] =
                    [("association", &association.id), ("local", &local), ("remote", &path.remote)];
                out.series(name, &labels, value);
            }
        }
    };
    let seconds = |us: u64| us as f64 / 1e6;
    family("sctpify_path_active", "gauge", "1 if the path can carry data.", &|p| {
        Some(f64::from(u8::from(p.state == PathState::Active)))
    });
    family("sctpify_path_in_use", "gauge", "1 if new data uses the path.", &|p| {
        Some(f64::from(u8::from(p.in_use)))
    });
    family("sctpify_path_srtt_seconds", "gauge", "Smoothed round-trip time of the path.", &|p| {
        p.srtt_us.map(seconds)
    });
    family("sctpify_path_data_bytes_total", "counter", "Bytes of data sent on the path.", &|p| {
        Some(p.data_sent_bytes as f64)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_all_its_links_in_the_metrics_or_none() {
        let link = |peer: u8, interface: &str| PeerLink {
            peer: [192, 0, 2, peer].into(),
            interface: Some(interface.into()),
            name: None,
            usage: AddressUse::Primary,
            state: LinkState::Up,
            in_use: false,
            srtt_us: None,
            sent_bytes: 0,
            received_bytes: 0,
        };
        let links = [link(1, "a"), link(1, "b"), link(2, "a"), link(2, "b"), link(3, "a")];
        let kept = |max| whole_peers(&links, max).len();
        assert_eq!([0, 1, 2, 3, 4, 5, 9].map(kept), [0, 0, 2, 2, 4, 5, 5]);
    }
}
