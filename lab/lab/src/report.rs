//! The report of all measurements: `report/index.html` with all claims, and for each experiment and form a page
//! with plots, the cells as CSV, and the figures, verdicts and answers as JSON.

mod claims;
mod front;
mod page;
mod plot;

use crate::experiment::Only;
use crate::experiments;
use crate::judge::{Judged, Verdict, judge};
use crate::manifest::{Form, Manifest};
use crate::results::{Results, Row};
use crate::store::{Meta, kept, kept_drawings};
use anyhow::{Context, Result, ensure};
use claims::Answered;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One experiment in one form.
#[derive(Debug)]
struct Section {
    manifest: Manifest,
    meta: Meta,
    results: Results,
    /// Pictures shown with the plots, as SVG.
    drawings: Vec<String>,
    verdicts: Vec<Verdict>,
    /// In the order of the manifest's claims.
    answers: Vec<Answered>,
}

/// The JSON form of a section.
#[derive(Debug, Serialize)]
struct ReportJson<'a> {
    /// Incremented when the meaning of a field changes.
    schema: u32,
    meta: &'a Meta,
    figures: Vec<Row>,
    verdicts: &'a [Verdict],
    answers: &'a [Answered],
}

/// Writes the report and returns the path of its page.
///
/// # Errors
/// When there are no measurements, or files cannot be read or written.
pub(crate) fn write(out: &Path) -> Result<PathBuf> {
    let (mut sections, mut manifests) = (Vec::new(), Vec::new());
    for entry in experiments::all()? {
        for form in [Form::Quick, Form::Full] {
            let Some((meta, results)) = kept(out, &entry.manifest.id, form)? else { continue };
            let points = entry.runner(form)?.points();
            let results = results.ordered_as(&points);
            let run = Judged { manifest: &entry.manifest, form, points: &points, only: &Only::default() };
            let verdicts = judge(&run, &results);
            let drawings = kept_drawings(out, &entry.manifest.id, form)?;
            let claims = entry.manifest.claims.iter();
            let answers = claims.map(|claim| claims::answer(claim, &verdicts)).collect();
            let manifest = entry.manifest.clone();
            sections.push(Section { manifest, meta, results, drawings, verdicts, answers });
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

impl Section {
    fn name(&self) -> String {
        format!("{}-{}", self.meta.id, self.meta.form)
    }

    fn json(&self) -> Result<Vec<u8>> {
        let figures = self.results.rows(&self.manifest);
        let (meta, verdicts, answers) = (&self.meta, &*self.verdicts, &*self.answers);
        let report = ReportJson { schema: 2, meta, figures, verdicts, answers };
        Ok(serde_json::to_vec_pretty(&report)?)
    }

    /// Formats the cells as CSV: a line for each cell, a column for each measure.
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
