//! Reader of the table in `docs/differences.md`. Each row lists a scenario, the other engine's role, the
//! outcome, and the reason for the difference.

use std::path::Path;

/// An outcome that differs from our engine's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) scenario: String,
    /// The other engine and its role, such as `dcsctp opens`.
    pub(crate) role: String,
    pub(crate) outcome: String,
}

/// Reads the table. Panics if a row does not have four cells, or if the row's reason cites no RFC.
pub(crate) fn listed() -> Vec<Difference> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/differences.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    rows(&text)
}

fn rows(text: &str) -> Vec<Difference> {
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [scenario, role, outcome, reason] = cells[..] else { panic!("four cells in {line}") };
        assert!(reason.contains("RFC"), "the reason cites no RFC: {line}");
        Difference { scenario: scenario.to_owned(), role: role.to_owned(), outcome: outcome.to_owned() }
    })
    .collect()
}

#[test]
fn a_row_is_read_cell_by_cell() {
    let text = "# Title\n\n| a | b | c | d |\n|---|---|---|---|\n| set-up | dcsctp opens | up, opening | RFC 9260 5.1 |\n";
    let [difference] = &rows(text)[..] else { panic!("one row") };
    assert_eq!((&difference.scenario[..], &difference.role[..]), ("set-up", "dcsctp opens"));
    assert_eq!(difference.outcome, "up, opening");
}
