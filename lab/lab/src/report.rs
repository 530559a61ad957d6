//! The report of all measurements.
//!
//! `report/index.html` shows all claims. Each measured form of an experiment has three files: an HTML page
//! with plots, the cells as CSV, and the figures, verdicts and answers as JSON. [`write_pages`] writes full
//! results into the pages of `docs/results`.

mod claims;
mod front;
mod page;
mod plot;
mod results_page;

use crate::experiment::Only;
use crate::experiments::{self, Entry};
use crate::judge::{Judged, Verdict, judge};
use crate::manifest::{Form, Manifest};
use crate::results::{Results, Row};
use crate::store::{Meta, kept, kept_drawings};
use anyhow::{Context, Result, ensure};
use claims::Answered;
use pages::Place;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The results of one experiment in one form.
#[derive(Debug)]
struct Section {
    manifest: Manifest,
    meta: Meta,
    results: Results,
    /// Pictures in addition to the plots, as SVG.
    drawings: Vec<String>,
    verdicts: Vec<Verdict>,
    /// Answers to the manifest's claims, in the order of the claims.
    answers: Vec<Answered>,
}

/// The JSON form of a section.
#[derive(Debug, Serialize)]
struct ReportJson<'a> {
    /// Version of the format. It increases when the meaning of a field changes.
    schema: u32,
    meta: &'a Meta,
    figures: Vec<Row>,
    verdicts: &'a [Verdict],
    answers: &'a [Answered],
}

/// Writes the report, and returns the path of its front page.
///
/// # Errors
/// Fails if no measurements exist, or if a file cannot be read or written.
pub(crate) fn write(out: &Path) -> Result<PathBuf> {
    let (mut sections, mut manifests) = (Vec::new(), Vec::new());
    for entry in experiments::all()? {
        for form in [Form::Quick, Form::Full] {
            sections.extend(Section::stored(out, &entry, form)?);
        }
        manifests.push(entry.manifest);
    }
    ensure!(!sections.is_empty(), "nothing has been measured in {}: run an experiment first", out.display());
    let dir = out.join("report");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for section in &sections {
        let name = section.name();
        std::fs::write(dir.join(format!("{name}.csv")), section.csv()?)?;
        std::fs::write(dir.join(format!("{name}.json")), section.json()?)?;
        std::fs::write(dir.join(format!("{name}.html")), page::page(section)?)?;
    }
    let page = dir.join("index.html");
    std::fs::write(&page, front::page(&manifests, &sections))?;
    Ok(page)
}

/// Returns the command that writes an experiment's part of its page. The markers of the part name this
/// command.
pub(crate) fn writer(id: &str) -> String {
    format!("./x lab report {id} --write")
}

/// Writes stored full results into the experiments' pages in `docs/results`. Empty `ids` select all
/// experiments.
///
/// The function prints a line for each experiment, and returns the number of written parts. A part stays
/// unchanged if no full results are stored, or if the results come from sources with uncommitted changes.
///
/// # Errors
/// Fails if an experiment is unknown, if a file cannot be read or written, or if a page lacks its markers.
pub(crate) fn write_pages(out: &Path, ids: &[String]) -> Result<usize> {
    let entries = match ids {
        [] => experiments::all()?,
        ids => ids.iter().map(|id| experiments::one(id)).collect::<Result<_>>()?,
    };
    let mut written = 0;
    for entry in &entries {
        let (id, page) = (&entry.manifest.id, entry.manifest.page());
        match write_page(out, entry, &page)? {
            None => {
                written += 1;
                println!("{id}: written to {}", page.display());
            }
            Some(reason) => println!("{id}: left as it is: {reason}"),
        }
    }
    Ok(written)
}

/// Writes an experiment's part of a page. Returns the reason if the part is not written.
fn write_page(out: &Path, entry: &Entry, page: &Path) -> Result<Option<String>> {
    let id = &entry.manifest.id;
    let Some(section) = Section::stored(out, entry, Form::Full)? else {
        let quick = if kept(out, id, Form::Quick)?.is_some() { " (a quick form is not written)" } else { "" };
        return Ok(Some(format!("no full results in {}{quick}", out.display())));
    };
    if section.results.0.is_empty() {
        return Ok(Some(format!("nothing is measured yet in {}", out.display())));
    }
    let planned = entry.runner(Form::Full)?.points().iter().map(|it| it.repetitions as usize).sum();
    let origin = results_page::origin(&section);
    if let Err(error) = origin.ensure_clean() {
        return Ok(Some(format!("{error:#}")));
    }
    Place::find(page, &writer(id))?.write(&results_page::block(&section, planned))?;
    Ok(None)
}

/// Formats a number for plots and tables, with three digits.
fn three_digits(value: f64) -> String {
    pages::digits(value, 3)
}

impl Section {
    /// Reads and judges the stored results of an experiment in a form. Returns `None` if no results exist.
    fn stored(out: &Path, entry: &Entry, form: Form) -> Result<Option<Self>> {
        let Some((meta, results)) = kept(out, &entry.manifest.id, form)? else { return Ok(None) };
        let points = entry.runner(form)?.points();
        let results = results.ordered_as(&points);
        let run = Judged { manifest: &entry.manifest, form, points: &points, only: &Only::default() };
        let verdicts = judge(&run, &results);
        let drawings = kept_drawings(out, &entry.manifest.id, form)?;
        let claims = entry.manifest.claims.iter();
        let answers = claims.map(|claim| claims::answer(claim, &verdicts)).collect();
        let manifest = entry.manifest.clone();
        Ok(Some(Self { manifest, meta, results, drawings, verdicts, answers }))
    }

    fn name(&self) -> String {
        format!("{}-{}", self.meta.id, self.meta.form)
    }

    fn json(&self) -> Result<Vec<u8>> {
        let figures = self.results.rows(&self.manifest);
        let (meta, verdicts, answers) = (&self.meta, &*self.verdicts, &*self.answers);
        let report = ReportJson { schema: 2, meta, figures, verdicts, answers };
        Ok(serde_json::to_vec_pretty(&report)?)
    }

    /// Formats the cells as CSV, with a line for each cell and a column for each measure.
    fn csv(&self) -> Result<Vec<u8>> {
        let cells = &self.results.0;
        let measures: BTreeSet<&str> =
            cells.iter().flat_map(|done| done.measures.keys().map(String::as_str)).collect();
        let mut csv = csv::Writer::from_writer(Vec::new());
        let fixed = ["panel", "series", "x", "repetition", "seed", "took_s"];
        csv.write_record(fixed.iter().chain(&measures))?;
        for done in cells {
            let numbers = [
                done.x.to_string(),
                done.repetition.to_string(),
                done.seed.to_string(),
                format!("{:.3}", done.took_s),
            ];
            let values =
                measures.iter().map(|&name| done.measures.get(name).map_or(String::new(), f64::to_string));
            csv.write_record(
                [done.panel.clone(), done.series.clone()].into_iter().chain(numbers).chain(values),
            )?;
        }
        Ok(csv.into_inner()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::done;
    use crate::store::Store;

    /// Stores one measurement of the experiment `handshake`.
    fn store(out: &Path, form: Form, commit: &str) {
        let manifest = experiments::one("handshake").unwrap().manifest;
        let meta = Meta { commit: commit.to_owned(), ..Meta::now(&manifest, form) };
        Store::open(out, meta, false).unwrap().keep(done("time", "tcp", 20.0, 0, 40.0)).unwrap();
    }

    /// Creates a page with the experiment's markers, and calls [`write_page`]. Returns the reason for a
    /// refusal, and the page's content afterwards.
    fn written(out: &Path) -> (Option<String>, String) {
        let page = out.join("page.md");
        let command = writer("handshake");
        std::fs::write(&page, format!("<!-- results: written by `{command}` -->\n<!-- end of results -->\n"))
            .unwrap();
        let reason = write_page(out, &experiments::one("handshake").unwrap(), &page).unwrap();
        (reason, std::fs::read_to_string(page).unwrap())
    }

    #[test]
    fn a_page_gets_full_results_of_a_commit_and_says_which_part_was_measured() {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path(), Form::Full, "1a2b3c4");
        let (reason, page) = written(dir.path());
        assert_eq!(reason, None);
        assert!(page.contains("- Commit: 1a2b3c4\n") && page.contains("**A part of the full form:** 1 of "));
    }

    #[test]
    fn missing_quick_or_dirty_results_leave_the_page_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let reason = |dir: &Path| {
            let (reason, page) = written(dir);
            assert_eq!(page.lines().count(), 2);
            reason.unwrap_or_default()
        };
        assert!(reason(dir.path()).starts_with("no full results"));
        store(dir.path(), Form::Quick, "1a2b3c4");
        assert!(reason(dir.path()).ends_with("(a quick form is not written)"));
        store(dir.path(), Form::Full, "1a2b3c4-dirty");
        assert!(reason(dir.path()).contains("commit the changes first"));
    }
}
