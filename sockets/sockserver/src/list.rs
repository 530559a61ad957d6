//! The list of sockets and associations, as lines of JSON.

use serde::{Deserialize, Serialize};

/// Limit on the length of a page, in bytes.
pub(crate) const PAGE_MAX: usize = 128 << 10;

/// One socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// `LISTEN`, the name of the association's state in RFC 9260, or `CLOSED`.
    pub state: String,
    /// User ID of the socket's program.
    pub uid: u32,
    /// Local addresses with the port, as `address:port`; `*:port` for all addresses of the host.
    pub local: Vec<String>,
    /// Addresses of the peer with the port, as `address:port`.
    pub peer: Vec<String>,
    /// Identifier of the association, if the socket has an association.
    pub association: Option<i32>,
    /// Numbers of inbound and outbound streams of the association.
    pub streams: Option<(u16, u16)>,
    /// Paths of the association.
    pub paths: Vec<Path>,
    /// Bytes in the engine that wait to be sent or acknowledged.
    pub send_queue: usize,
    /// Received bytes in the engine; for a socket without an association, the number of associations that wait for `accept`.
    pub receive_queue: usize,
}

/// One path of an association.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Local address.
    pub local: String,
    /// The peer's address.
    pub remote: String,
    /// `udp` or `ip`.
    pub carrier: String,
    /// `unconfirmed`, `active`, `potentially_failed` or `inactive`.
    pub state: String,
    /// True if the path carries new data.
    pub in_use: bool,
    /// Smoothed round-trip time in microseconds.
    pub srtt_us: Option<u64>,
}

impl From<sockets::Row> for Row {
    fn from(row: sockets::Row) -> Row {
        let port = row.port.unwrap_or(0);
        let of_all = (row.local.is_empty() && port != 0).then(|| format!("*:{port}"));
        let named = row.local.iter().map(|address| std::net::SocketAddr::new(*address, port).to_string());
        let local = named.chain(of_all);
        let info = row.info;
        let paths = info.iter().flat_map(|info| &info.paths).map(|path| Path {
            local: path.route.local.to_string(),
            remote: path.route.remote.to_string(),
            carrier: if matches!(path.route.carrier, base::Carrier::Ip) { "ip" } else { "udp" }.to_owned(),
            state: path.state.as_str().to_owned(),
            in_use: path.in_use,
            srtt_us: path.srtt.and_then(|srtt| u64::try_from(srtt.as_micros()).ok()),
        });
        Row {
            state: row.state.to_owned(),
            uid: row.uid,
            local: local.collect(),
            peer: row.peer.iter().map(ToString::to_string).collect(),
            association: row.association,
            streams: info.as_ref().map(|info| (info.inbound_streams, info.outbound_streams)),
            paths: paths.collect(),
            send_queue: info.as_ref().map_or(0, |info| info.send_buffered),
            receive_queue: info.as_ref().map_or(row.waiting, |info| info.receive_buffered),
        }
    }
}

/// Returns one page: the lines after the first `skip` lines, up to the page's limit. Also returns the value of `skip` for the next
/// page, if a next page exists.
pub(crate) fn page(rows: &[sockets::Row], skip: usize) -> (String, Option<usize>) {
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate().skip(skip) {
        let line = serde_json::to_string(&Row::from(row.clone())).unwrap_or_default();
        if text.len() + line.len() + 1 > PAGE_MAX {
            return (text, Some(number));
        }
        text.push_str(&line);
        text.push('\n');
    }
    (text, None)
}
