//! Settings of an association between daemons, for engines in virtual time. They repeat the buffers, the
//! initial window and the first RTO of `sctpifyd::timing`. They omit the separate interval between INITs. Of
//! the daemon's extensions, they include only ECN.

use sctp::{AssociationConfig, CongestionAlgorithm, Timing};
use std::time::Duration;

/// Size of an association's buffer for each direction, in bytes.
const BUFFER: usize = 16 << 20;

/// Returns the settings of an association that carries one connection.
pub(super) fn association(congestion: CongestionAlgorithm) -> AssociationConfig {
    AssociationConfig {
        timing: Timing { rto_initial: Duration::from_millis(100), ..Timing::quick() },
        outbound_streams: 1,
        inbound_streams: 1,
        send_buffer: BUFFER,
        receive_buffer: BUFFER,
        congestion,
        initial_packets: 10,
        max_init_retransmits: u8::MAX,
        ..AssociationConfig::default()
    }
}
