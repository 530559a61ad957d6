//! The page of one experiment in one form: claims and answers, plots, expectations, and the origin of the
//! results.

use super::claims::Answered;
use super::{Section, plot};
use crate::judge::{Outcome, Verdict};
use crate::manifest::{Manifest, Panel, Published};
use crate::report::three_digits;
use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// Renders a complete HTML page with this title and body.
pub(super) fn whole(title: &str, body: Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    }
    .into_string()
}

/// Renders the page of an experiment in one form.
///
/// # Errors
/// Fails if a plot cannot be drawn, or if the daemons' settings are invalid.
pub(super) fn page(section: &Section) -> Result<String> {
    let (manifest, name) = (&section.manifest, section.name());
    let plots = manifest.panels.iter().map(|panel| panel_of(section, panel)).collect::<Result<Vec<_>>>()?;
    let body = html! {
        p { a href={ "index.html#" (manifest.id) } { "All claims" } }
        h1 { (manifest.title) }
        @for answered in &section.answers { (claim(answered)) }
        h2 { "Plots" }
        div class="plots" { @for plot in &plots { (plot) } }
        @for drawing in &section.drawings { div class="drawing" { (PreEscaped(drawing)) } }
        h2 { "Expected and found" }
        (table(&section.verdicts))
        h2 { "How it was measured" }
        p { (manifest.question) }
        p { (manifest.topology) }
        p { "Source: " (source(manifest)) "." }
        (settings(section)?)
        (made(section))
        p { a href={ (name) ".csv" } { "Measurements as CSV" } ", " a href={ (name) ".json" } { "figures and verdicts as JSON" } "." }
    };
    Ok(whole(&manifest.title, body))
}

fn claim(answered: &Answered) -> Markup {
    let (class, word) = answered.standing.words();
    html! {
        div class={ "claim is-" (class) } {
            p { b { (answered.claim) } " " small { (answered.by) } }
            p { span class={ "verdict " (class) } { (word) } ": " (answered.answer) }
        }
    }
}

/// Renders the command, the commit and the machine of the results.
fn made(section: &Section) -> Markup {
    let meta = &section.meta;
    let fallbacks: u32 = section.results.0.iter().map(|done| done.fallbacks).sum();
    html! {
        p {
            "Command: " code { (super::results_page::command(&meta.command)) } "." br;
            "Commit: " code { (meta.commit) } ", begun " (meta.began) " UTC, " (section.results.0.len()) " measurements." br;
            @if fallbacks > 0 {
                (fallbacks) " connections that should use SCTP stayed on plain TCP, and their cells were measured again." br;
            }
            "Machine: Linux " (meta.kernel) ", " (meta.processors) " processors"
            @if !meta.machine.is_empty() { ", " (meta.machine) }
            "."
        }
    }
}

/// Renders the daemons' non-default settings.
fn settings(section: &Section) -> Result<Markup> {
    let Some(settings) = section.manifest.daemon(section.meta.form)? else { return Ok(html! {}) };
    let changed = settings.changed()?;
    if changed.is_empty() {
        return Ok(html! { p { "The daemons have the shipped settings." } });
    }
    Ok(html! {
        p { "Settings of the daemons that are not as shipped:" }
        table {
            tr { th { "setting" } th { "here" } th { "shipped" } th { "series" } th { "why" } }
            @for it in changed {
                tr {
                    td { code { (it.name) } }
                    td data-name="here" { (it.value) }
                    td data-name="shipped" { (it.shipped) }
                    td data-name="series" { (it.series.as_deref().unwrap_or("all")) }
                    td { (it.why) }
                }
            }
        }
    })
}

fn source(manifest: &Manifest) -> String {
    let source = &manifest.source;
    let part = source.part.iter().map(|part| format!(", {part}"));
    source.document.clone() + &part.collect::<String>()
}

/// Renders the plot of a panel, its figures, and the sources of published values. Renders nothing if the
/// panel has no measurements.
fn panel_of(section: &Section, panel: &Panel) -> Result<Markup> {
    let published = section.manifest.published.iter().filter(|published| published.panel == panel.id);
    let published: Vec<&Published> = published.collect();
    let Some(plot) = plot::draw(panel, &section.results, &published)? else { return Ok(html! {}) };
    Ok(html! {
        section {
            h3 { (panel.title) }
            (plot)
            @if !published.is_empty() { (credits(&published)) }
            @if panel.measure.is_some() { (figures(section, panel)) }
        }
    })
}

/// Renders the sources of published values. One line names all series that have the source.
fn credits(published: &[&Published]) -> Markup {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for it in published {
        let rule = it.rule.iter().map(|rule| format!(". {rule}"));
        let line = format!("{}: {}{}", it.origin.label(), it.credit(), rule.collect::<String>());
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, series)) => series.push(&it.series),
            None => lines.push((line, vec![&it.series])),
        }
    }
    html! {
        ul class="credits" { @for (line, series) in &lines { li { (series.join("; ")) ", " (line) } } }
    }
}

fn figures(section: &Section, panel: &Panel) -> Markup {
    let rows = section.results.rows_of(panel);
    html! {
        details {
            summary { "Figures" }
            table {
                tr { th { "series" } th { (panel.x_label) } th { (panel.y_label) } th { "95 % confidence" } th { "measurements" } }
                @for row in rows {
                    tr {
                        td { (row.series) }
                        td data-name=(panel.x_label) { (row.x_name) }
                        td class="number" data-name=(panel.y_label) { (three_digits(row.figure.value)) }
                        td class="number" data-name="95 %" {
                            @if let Some([low, high]) = row.figure.interval { (three_digits(low)) " to " (three_digits(high)) }
                        }
                        td class="number" data-name="measurements" { (row.measurements) }
                    }
                }
            }
        }
    }
}

fn table(verdicts: &[Verdict]) -> Markup {
    html! {
        table {
            tr { th { "expected" } th { "at" } th { "band" } th { "found" } th { "" } th { "from" } }
            @for it in verdicts {
                tr {
                    td { @if it.control { "Control: " } (it.what) }
                    td data-name="at" { (it.at) }
                    td data-name="band" { (it.band) }
                    td class="number" data-name="found" { @if let Some(value) = it.value { (three_digits(value)) } }
                    (outcome(it.outcome))
                    td data-name="from" { (it.source) }
                }
            }
        }
    }
}

fn outcome(outcome: Outcome) -> Markup {
    let (class, word) = match outcome {
        Outcome::Met => ("met", "met"),
        Outcome::Missed => ("missed", "missed"),
        Outcome::Unmeasured | Outcome::LeftOut => ("open", "not measured"),
    };
    html! { td class={ "verdict " (class) } { (word) } }
}
