//! Results of one benchmark. Tables and remarks are printed immediately, and the goals are printed at the end. A full run can be
//! written to its page.

use anyhow::{Result, ensure};
use pages::{Block, Goals, Limit, Origin, Place, Table};

/// The results of one benchmark.
#[derive(Debug, Default)]
pub(crate) struct Report {
    tables: Vec<Table>,
    goals: Goals,
    remarks: Vec<String>,
    is_short: bool,
}

impl Report {
    /// Prints a table and keeps it.
    pub(crate) fn show(&mut self, table: Table) {
        print!("\n{table}");
        self.tables.push(table);
    }

    /// Prints a remark and keeps it.
    pub(crate) fn remark(&mut self, text: impl Into<String>) {
        let text = text.into();
        println!("{text}");
        self.remarks.push(text);
    }

    /// Judges the median of a figure's samples against a limit. The figure's name includes the unit.
    pub(crate) fn judge(&mut self, figure: impl Into<String>, samples: &[f64], limit: Limit) {
        self.goals.judge(figure, samples, limit);
    }

    /// Judges a fact, which must be true.
    pub(crate) fn judge_fact(&mut self, fact: impl Into<String>, is_true: bool) {
        self.goals.judge(fact.into() + " (1 is yes)", &[f64::from(u8::from(is_true))], Limit::AtLeast(1.0));
    }

    /// Notes that the run is partial: a short form, or only some of the figures.
    pub(crate) fn is_short(&mut self) {
        self.is_short = true;
    }

    /// Prints the goals. Returns true if all are met.
    pub(crate) fn verdict(&self) -> bool {
        let table = self.goals.table();
        if !table.is_empty() {
            print!("\n{table}");
        }
        if self.is_short {
            println!("A short form or a part: not for a page.");
        }
        self.goals.are_met()
    }

    /// Writes the goals, the tables and the remarks, in this order, to their place on a page.
    ///
    /// # Errors
    /// When only a part was measured, a goal has no figure, the sources have uncommitted changes, or the page cannot be written.
    pub(crate) fn write(self, place: &Place, origin: Origin) -> Result<()> {
        ensure!(!self.is_short, "not written: only a part was measured");
        let unmeasured = self.goals.unmeasured();
        ensure!(unmeasured.is_empty(), "not written: not measured: {}", unmeasured.join("; "));
        let mut block = Block::new(origin);
        block.table(self.goals.table());
        self.tables.into_iter().for_each(|table| block.table(table));
        self.remarks.into_iter().for_each(|text| block.remark(text));
        place.write(&block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    const COMMAND: &str = "./x bench shim --write";

    fn page() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.md");
        let text = format!("<!-- results: written by `{COMMAND}` -->\n<!-- end of results -->\n");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn written(report: Report) -> Result<String> {
        let (_dir, path) = page();
        let [command, commit, date, machine] = [COMMAND, "1a2b3c4", "today", "here"].map(str::to_owned);
        let outcome = report.write(&Place::find(&path, COMMAND)?, Origin { command, commit, date, machine });
        outcome.map(|()| fs::read_to_string(&path).unwrap())
    }

    fn report(samples: &[f64]) -> Report {
        let mut report = Report::default();
        report.judge("extra time, us", samples, Limit::AtMost(150.0));
        report
    }

    #[test]
    fn a_page_gets_the_goals_before_the_tables_and_the_remarks_behind() {
        let mut report = report(&[22.0]);
        let mut table = Table::new("Connects", ["connect", "p50"]);
        table.row(["tcp", "57"]);
        report.show(table);
        report.remark("Processes only.");
        assert!(report.verdict());
        let page = written(report).unwrap();
        let parts = [
            "| extra time, us | 22 |  |  | 150 or less | met |",
            "| tcp | 57 |",
            "Processes only.",
            "- Commit",
        ];
        let at: Vec<Option<usize>> = parts.iter().map(|part| page.find(part)).collect();
        assert!(at.is_sorted() && at.iter().all(Option::is_some), "{page}");
    }

    #[test]
    fn a_missed_goal_is_written_and_one_that_was_not_measured_is_refused() {
        assert!(!report(&[151.0]).verdict());
        assert!(written(report(&[151.0])).unwrap().contains("**missed**"));
        assert!(written(report(&[])).unwrap_err().to_string().contains("not measured: extra time, us"));
    }

    #[test]
    fn a_short_form_is_refused() {
        let mut report = report(&[22.0]);
        report.is_short();
        assert!(written(report).unwrap_err().to_string().contains("only a part"));
    }
}
