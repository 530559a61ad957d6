//! One line of the demo's result: the program, its carrier, and the verdict.

use testbed::Seen;

/// Result of one program's run.
#[derive(Debug)]
pub(crate) struct Row {
    step: &'static str,
    program: String,
    carrier: String,
    bytes: Option<u64>,
    seconds: Option<f64>,
    faults: Vec<String>,
    notes: Vec<String>,
}

impl Row {
    /// Creates a row without measurements or faults.
    pub(crate) fn new(step: &'static str, program: &str) -> Self {
        let program = program.to_owned();
        Self {
            step,
            program,
            carrier: "-".into(),
            bytes: None,
            seconds: None,
            faults: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Creates the row of an aborted step.
    pub(crate) fn broken(step: &'static str, program: &str, error: &anyhow::Error) -> Self {
        let mut row = Self::new(step, program);
        let report = format!("{error:#}");
        row.faults.push(report.split_whitespace().collect::<Vec<_>>().join(" "));
        row
    }

    /// Records the transferred bytes and the time taken.
    pub(crate) fn measured(&mut self, bytes: u64, elapsed: std::time::Duration) {
        (self.bytes, self.seconds) = (Some(bytes), Some(elapsed.as_secs_f64()));
    }

    /// Adds a fault when the condition does not hold.
    pub(crate) fn require(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(fault());
        }
    }

    /// Adds a remark that is not a verdict.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Requires that SCTP carried the bytes, and that no TCP packet and no faulty packet was captured. If the capture missed packets, does
    /// not judge the number of bytes.
    pub(crate) fn require_sctp(&mut self, seen: &Seen) {
        self.carrier = seen.carrier().to_owned();
        let carried = seen.sctp_ip_bytes + seen.sctp_udp_bytes;
        let least = self.bytes.unwrap_or(1);
        self.require(seen.tcp == 0, || format!("{} TCP packets between the hosts", seen.tcp));
        self.require(seen.missed > 0 || carried >= least, || format!("only {carried} bytes used SCTP"));
        self.no_faulty(seen);
    }

    /// Requires that TCP carried the bytes, and that no faulty packet was captured. If the capture missed packets, does not judge the
    /// number of bytes.
    pub(crate) fn require_tcp(&mut self, seen: &Seen) {
        self.carrier = seen.carrier().to_owned();
        let least = self.bytes.unwrap_or(1);
        self.require(seen.missed > 0 || seen.tcp_bytes >= least, || {
            format!("only {} bytes used TCP", seen.tcp_bytes)
        });
        self.no_faulty(seen);
    }

    fn no_faulty(&mut self, seen: &Seen) {
        self.require(seen.faulty == 0, || {
            format!("{} faulty packets: {}", seen.faulty, seen.faults.join("; "))
        });
        if seen.missed > 0 {
            self.note(format!("the capture missed {} packets", seen.missed));
        }
    }

    /// Reports whether all requirements hold.
    pub(crate) fn is_right(&self) -> bool {
        self.faults.is_empty()
    }

    /// Prints the result line, with notes below it.
    pub(crate) fn print(&self) {
        println!("   {}", self.line());
        self.notes.iter().for_each(|note| println!("       {note}"));
    }

    fn line(&self) -> String {
        let bytes = self.bytes.map_or("-".into(), |bytes| bytes.to_string());
        let seconds = self.seconds.map_or("-".into(), |seconds| format!("{seconds:.2}"));
        let verdict =
            if self.is_right() { "ok".to_owned() } else { format!("WRONG: {}", self.faults.join("; ")) };
        format!("{:<34.34} {:<9} {bytes:>11} {seconds:>8}  {verdict}", self.program, self.carrier)
    }
}

/// Prints the table of all rows.
pub(crate) fn print_table(rows: &[Row]) {
    println!("\nstep program                            carrier         bytes  seconds  verdict");
    rows.iter().for_each(|row| println!("{:<4} {}", row.step, row.line()));
}

#[cfg(test)]
mod tests {
    use super::Row;
    use std::time::Duration;
    use testbed::Seen;

    fn after(judge: fn(&mut Row, &Seen), seen: &Seen) -> Row {
        let mut row = Row::new("1", "curl");
        row.measured(1_000, Duration::from_secs(1));
        judge(&mut row, seen);
        row
    }

    #[test]
    fn one_tcp_packet_beside_sctp_makes_the_verdict_wrong() {
        let mut seen = Seen { sctp: 2, sctp_udp_bytes: 1_200, ..Seen::default() };
        assert!(after(Row::require_sctp, &seen).is_right());
        seen.tcp = 1;
        assert!(!after(Row::require_sctp, &seen).is_right());
    }

    #[test]
    fn fewer_bytes_on_the_wire_than_in_the_file_make_the_verdict_wrong() {
        let seen = Seen { sctp: 2, sctp_udp_bytes: 999, ..Seen::default() };
        assert!(!after(Row::require_sctp, &seen).is_right());
        assert!(!after(Row::require_tcp, &seen).is_right());
    }

    #[test]
    fn a_faulty_packet_makes_the_verdict_wrong_whatever_the_carrier() {
        let seen = Seen { tcp: 9, tcp_bytes: 1_200, faulty: 1, ..Seen::default() };
        assert!(!after(Row::require_tcp, &seen).is_right());
    }
}
