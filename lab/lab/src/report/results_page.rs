//! An experiment's part of its page in `docs/results`: claims with their verdicts, goals, and each plot's
//! figures.

use super::claims::{self, Standing};
use super::{Section, three_digits};
use crate::experiment::Point;
use crate::judge::{Outcome, Verdict};
use crate::manifest::{Panel, Statistic};
use crate::results::Row;
use pages::{Block, Origin, Table, origin};

/// Maximum number of missed points that a row of the table of goals names.
const NAMED: usize = 3;
/// Limit on the rows of a plot's table. A plot with more rows has no table here, only in the report.
const ROWS_MAX: usize = 40;

/// Returns the experiment's part of its page. `planned` is the number of measurements in the full form.
pub(super) fn block(section: &Section, planned: usize) -> Block {
    let mut block = Block::new(origin(section));
    block.table(claims(section));
    block.table(goals(&section.verdicts));
    section.manifest.panels.iter().for_each(|panel| block.table(figures(section, panel)));
    let measured = section.results.0.len();
    let claims = section.answers.iter().filter(|it| it.standing == Standing::Open).count();
    let goals =
        ids(&section.verdicts).into_iter().filter(|id| Points::of(&section.verdicts, id).is_open()).count();
    if measured < planned || goals > 0 {
        block.remark(format!(
            "**A part of the full form:** {measured} of {planned} measurements. Not judged: {claims} of the claims, and {goals} of the \
             goals at some point or at all."
        ));
    }
    block
}

/// Returns the origin of the stored results.
pub(super) fn origin(section: &Section) -> Origin {
    let meta = &section.meta;
    Origin {
        command: command(&meta.command),
        commit: meta.commit.clone(),
        date: meta.began.clone(),
        machine: origin::machine(&meta.kernel, meta.processors, &meta.machine),
    }
}

/// Returns the command as a user types it in the repository: `./x lab` replaces the program's path.
pub(super) fn command(command: &str) -> String {
    let Some((before, rest)) = command.split_once("sctpify-lab ") else { return command.to_owned() };
    let priority = before.rfind(' ').map_or("", |end| &before[..=end]);
    format!("{priority}./x lab {rest}")
}

/// Returns the table of all judged claims.
fn claims(section: &Section) -> Table {
    let mut table = Table::new("Claims", ["claim", "answer of this run", "verdict"]);
    for it in section.answers.iter().filter(|it| it.standing != Standing::Open) {
        table.row([format!("{} ({})", it.claim, it.by), it.answer.clone(), word(it.standing)]);
    }
    table
}

fn word(standing: Standing) -> String {
    match standing {
        Standing::Missed => "**missed**".to_owned(),
        Standing::Met | Standing::Open => standing.words().1.to_owned(),
    }
}

/// Returns the IDs of all expectations, in order.
fn ids(verdicts: &[Verdict]) -> Vec<&str> {
    let mut ids: Vec<&str> = verdicts.iter().map(|it| &*it.id).collect();
    ids.dedup();
    ids
}

/// The verdicts on one expectation at all its points.
struct Points<'a>(Vec<&'a Verdict>);

impl<'a> Points<'a> {
    fn of(verdicts: &'a [Verdict], id: &str) -> Self {
        Self(verdicts.iter().filter(|it| it.id == id).collect())
    }

    /// Reports whether the expectation has a point without a measurement.
    fn is_open(&self) -> bool {
        self.0.iter().any(|it| it.value.is_none())
    }

    /// Returns the common start of the points' names. The start is usually the panel. If the expectation has
    /// only one point, the start is the whole name.
    fn place(&self) -> String {
        let mut common: Vec<&str> = self.0.first().map_or(Vec::new(), |it| it.at.split(", ").collect());
        for it in &self.0 {
            let same = common.iter().zip(it.at.split(", ")).take_while(|(a, b)| **a == *b).count();
            common.truncate(same);
        }
        common.join(", ")
    }

    /// Returns the text of the verdict. The text names the points that miss the goal. If no point misses the
    /// goal and some points were not measured, the text gives the number of measured points.
    fn verdict(&self) -> String {
        let place = self.place();
        let rest = |it: &&&Verdict| it.at[place.len()..].trim_start_matches(", ").to_owned();
        let missed: Vec<String> =
            self.0.iter().filter(|it| it.outcome == Outcome::Missed).map(|it| rest(&it)).collect();
        let measured = self.0.iter().filter(|it| it.value.is_some()).count();
        match (&missed[..], self.0.len()) {
            ([], all) if measured < all => format!("met at {measured} of {all} points"),
            ([], _) | (_, 1) => word(claims::standing(&self.0)),
            (missed, _) => {
                let more = missed.len().saturating_sub(NAMED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("**missed** at {}{more}", missed[..missed.len().min(NAMED)].join("; "))
            }
        }
    }
}

/// Returns the table of goals, with a row for each measured expectation. A row has the figure of the
/// expectation, or the range of the figures at all its points.
fn goals(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new("Goals", ["figure", "at", "measured", "goal", "verdict"]);
    for id in ids(verdicts) {
        let points = Points::of(verdicts, id);
        let (Ok(measured), Some(first)) = (claims::figures(&points.0), points.0.first()) else { continue };
        let control = if first.control { "Control: " } else { "" };
        let figure = format!("{control}{}", first.what);
        table.row([figure, points.place(), measured, first.band.clone(), points.verdict()]);
    }
    table
}

/// Returns the table of a plot's figures, with a row for each series and a column for each x. If there are
/// more x values than series, rows and columns are exchanged.
fn figures(section: &Section, panel: &Panel) -> Table {
    let rows = section.results.rows_of(panel);
    let mut by_x: Vec<&Row> = rows.iter().collect();
    by_x.sort_by(|a, b| a.x.total_cmp(&b.x));
    let (mut series, mut xs) = (Vec::new(), Vec::new());
    rows.iter().for_each(|row| add(&mut series, &row.series));
    by_x.iter().for_each(|row| add(&mut xs, &row.x_name));
    let is_series_down = series.len() >= xs.len();
    let corner = if is_series_down && !panel.x_label.is_empty() {
        format!("by {}", panel.x_label)
    } else {
        panel.x_label.clone()
    };
    let (down, across) = if is_series_down { (series, xs) } else { (xs, series) };
    let head = std::iter::once(corner).chain(across.iter().map(|&name| name.to_owned()));
    let mut table = Table::new(caption(panel, &rows), head);
    if down.len() > ROWS_MAX {
        return table;
    }
    for &name in &down {
        let cell = |&other: &&str| {
            let (series, x) = if is_series_down { (name, other) } else { (other, name) };
            let row = rows.iter().find(|row| row.series == series && row.x_name == x);
            row.map_or(String::new(), |row| figure(section, panel, row))
        };
        table.row(std::iter::once(name.to_owned()).chain(across.iter().map(cell)));
    }
    table
}

fn add<'a>(names: &mut Vec<&'a str>, name: &'a str) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// Formats a figure. With several measurements, adds the least and the greatest one.
fn figure(section: &Section, panel: &Panel, row: &Row) -> String {
    let value = three_digits(row.figure.value);
    let point = Point::new(panel.of(), &row.series, row.x);
    let end = |statistic| {
        let measure =
            panel.measure.as_deref().filter(|_| panel.ratio_to.is_none() && row.measurements > 1)?;
        Some(three_digits(section.results.figure(&point, measure, statistic)?.value))
    };
    match (end(Statistic::Min), end(Statistic::Max)) {
        (Some(least), Some(greatest)) if least != greatest => format!("{value} ({least}-{greatest})"),
        _ => value,
    }
}

/// Formats the caption of a plot's table: title, measure, statistic, and number of measurements.
fn caption(panel: &Panel, rows: &[Row]) -> String {
    let counts = || rows.iter().map(|row| row.measurements);
    let (least, most) = (counts().min().unwrap_or_default(), counts().max().unwrap_or_default());
    let count = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let (title, unit) = (&panel.title, &panel.y_label);
    match panel.ratio_to.as_deref() {
        Some(other) => format!("{title}. Divided by {other}'s; {} of {count}", panel.statistic),
        None if most == 1 => format!("{title}. {unit}"),
        None => format!("{title}. {unit}: {} (least-greatest) of {count}", panel.statistic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Form, Manifest};
    use crate::results::{Results, tests::done};
    use crate::store::Meta;

    fn section(cells: &[(&str, f64, u32, f64)], verdicts: Vec<Verdict>) -> Section {
        let manifest = Manifest::read(include_str!("../../experiments/handshake.toml")).unwrap();
        let meta = Meta {
            commit: "1a2b3c4".into(),
            command: "/somewhere/sctpify-lab run handshake --full".into(),
            ..Meta::now(&manifest, Form::Full)
        };
        let cells = cells.iter().map(|&(series, x, repetition, value)| {
            let mut done = done("time", series, x, repetition, value);
            done.measures.insert("milliseconds".into(), value);
            done
        });
        let results = Results(cells.collect());
        Section { manifest, meta, results, drawings: vec![], verdicts, answers: vec![] }
    }

    fn verdict(id: &str, at: &str, value: Option<f64>, outcome: Outcome) -> Verdict {
        Verdict {
            id: id.into(),
            what: format!("what {id} is"),
            at: at.into(),
            value,
            band: "<= 5".into(),
            outcome,
            control: id == "control",
            source: String::new(),
        }
    }

    #[test]
    fn a_table_has_series_as_columns_if_points_outnumber_series() {
        let cells = [("tcp", 20.0, 0, 41.0), ("tcp", 20.0, 1, 43.0), ("tcp", 100.0, 0, 201.0)];
        let section = section(&cells, vec![]);
        let expected = "**From connect() to the whole answer. time, ms: median (least-greatest) of 1 to 2**\n\n\
                        | round trip, ms | tcp |\n|---|---|\n| 20 | 41 (41-43) |\n| 100 | 201 |\n";
        assert_eq!(figures(&section, &section.manifest.panels[0]).markdown(), expected);
        assert!(figures(&section, &section.manifest.panels[1]).is_empty());
    }

    #[test]
    fn a_goal_has_the_range_of_its_points_and_names_those_that_miss_it() {
        let verdicts = [
            verdict("control", "bulk, 20 ms, tcp", Some(1.0), Outcome::Met),
            verdict("e", "bulk, 20 ms, here", Some(2.0), Outcome::Met),
            verdict("e", "bulk, 20 ms, there", Some(6.0), Outcome::Missed),
            verdict("part", "bulk, 20 ms, here", Some(2.0), Outcome::Met),
            verdict("part", "bulk, 0 ms, here", None, Outcome::Unmeasured),
            verdict("unmeasured", "here", None, Outcome::Unmeasured),
        ];
        let table = goals(&verdicts).markdown();
        let rows: Vec<&str> = table.lines().skip(4).collect();
        let expected = [
            "| Control: what control is | bulk, 20 ms, tcp | 1 | <= 5 | met |",
            "| what e is | bulk, 20 ms | 2 to 6 | <= 5 | **missed** at there |",
            "| what part is | bulk | 2 | <= 5 | met at 1 of 2 points |",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_origin_is_the_runs_own_and_its_command_can_be_typed() {
        let origin = origin(&section(&[], vec![]));
        assert_eq!((&*origin.command, &*origin.commit), ("./x lab run handshake --full", "1a2b3c4"));
        assert_eq!(command("nice -n 10 /a/sctpify-lab run x"), "nice -n 10 ./x lab run x");
        assert_eq!(command("sctpify-lab run x"), "./x lab run x");
        assert_eq!(command("chrt -f 10 other"), "chrt -f 10 other");
    }
}
