//! Snapshot of the effect of each chunk, with the right tag, in each state. A commit that changes the snapshot must give the reason.
//!
//! `UPDATE_GRID=1 cargo test -p sctp-engine --test engine state_grid` rewrites the snapshot.

use sim::InTheClear;
use std::fmt::Write;

use crate::states::{STATES, Subject};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engine/state_grid.txt");

fn grid() -> String {
    let mut text = String::from("# state + chunk → answer (– is none), then the new state if it changes\n");
    for state in STATES {
        for name in Subject::chunks() {
            let mut subject = Subject::in_state(state);
            let answer = subject.with_chunk(name, |s, tag, chunk| s.answer_to(tag, chunk));
            let answer = if answer.is_empty() { "–".to_owned() } else { answer.join(", ") };
            let after = subject.state();
            let moves = if after == state { String::new() } else { format!(" ⇒ {after:?}") };
            let _ = writeln!(text, "{:16} + {name:18} → {answer}{moves}", format!("{state:?}"));
        }
    }
    text
}

#[test]
//= rfc9260#6-1 6-2 6-4 6-7 5.2.3-1 5.2.5-1 5.2.6-2 8.3-2 8.5.1-11 9.2-22 9.2-24 9.2-26 3.3.6-2 3.3.7-4 5.2.1-1
//= rfc9260#5.2.1-6 5.2.1-11 5.2.2-1 5.2.2-9 6.4-2
fn the_state_grid_matches_its_snapshot() {
    let _clear = InTheClear::begin();
    let grid = grid();
    if std::env::var_os("UPDATE_GRID").is_some() {
        std::fs::write(FILE, &grid).expect("the snapshot can be written");
    }
    let snapshot = std::fs::read_to_string(FILE).unwrap_or_default();
    for (now, then) in grid.lines().zip(snapshot.lines()) {
        assert_eq!(now, then, "see {FILE}");
    }
    assert_eq!(grid.lines().count(), snapshot.lines().count(), "see {FILE}");
}
