//! Writes recorded packets as a pcapng file.

use std::io::Write;

use base::Carrier;
use wire::pcapng::{self, Captured};

use crate::world::{ENCAPSULATION_PORT, Record};

pub(crate) fn write(out: &mut impl Write, records: &[Record]) -> std::io::Result<()> {
    pcapng::begin(out)?;
    records.iter().try_for_each(|record| pcapng::write(out, &captured(record)))
}

fn captured(record: &Record) -> Captured<'_> {
    Captured {
        at_ns: record.at.as_nanos(),
        from: record.route.local,
        to: record.route.remote,
        udp: match record.route.carrier {
            Carrier::Ip => None,
            Carrier::Udp { peer_port } => Some((ENCAPSULATION_PORT, peer_port)),
        },
        ecn: record.ecn,
        direction: None,
        comment: "",
        packet: &record.packet,
    }
}
