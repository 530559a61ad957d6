//! The page.

use super::{Section, plot};
use crate::judge::{Outcome, Verdict};
use crate::manifest::{Manifest, Panel, Published};
use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = "body{font:16px/1.45 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
svg{max-width:100%;height:auto}table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:left;border-bottom:1px solid #ddd}\
code{background:#f4f4f4;padding:.1em .3em}.missed{color:#b00}.met{color:#070}.unmeasured{color:#777}";

/// All sections on a page.
///
/// # Errors
/// When a plot cannot be drawn.
pub(super) fn page(sections: &[Section]) -> Result<String> {
    let bodies = sections.iter().map(section).collect::<Result<Vec<_>>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "sctpify-lab" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "sctpify-lab" }
                ul { @for it in sections { li { a href={ "#" (it.name()) } { (it.name()) } ": " (it.manifest.title) } } }
                @for body in &bodies { (body) }
            }
        }
    };
    Ok(page.into_string())
}

fn section(section: &Section) -> Result<Markup> {
    let (manifest, meta, name) = (&section.manifest, &section.meta, section.name());
    let plots = manifest.panels.iter().map(|panel| panel_of(section, panel)).collect::<Result<Vec<_>>>()?;
    Ok(html! {
        h2 id=(name) { (manifest.title) }
        p { (manifest.question) }
        p { (manifest.topology) }
        p { "Source: " (source(manifest)) "." }
        p {
            "Made by " code { (meta.command) } " at commit " code { (meta.commit) } ", " (meta.began) " UTC, Linux " (meta.kernel)
            ", " (meta.processors) " processors: " (section.results.0.len()) " measurements. "
            a href={ (name) ".csv" } { "CSV" } ", " a href={ (name) ".json" } { "JSON" } "."
        }
        @for plot in &plots { (plot) }
        @for drawing in &section.drawings { (PreEscaped(drawing)) }
        (table(&section.verdicts))
    })
}

fn source(manifest: &Manifest) -> String {
    let source = &manifest.source;
    let figures = source.figures.iter().map(|figures| format!(", figures {figures}"));
    let page = source.page.iter().map(|page| format!(", page {page}"));
    source.document.clone() + &figures.chain(page).collect::<String>()
}

/// The plot of a panel, unless nothing of it was measured; below it where published curves come from.
fn panel_of(section: &Section, panel: &Panel) -> Result<Markup> {
    if section.results.series(panel.of()).is_empty() {
        return Ok(html! {});
    }
    let published = section.manifest.published.iter().filter(|published| published.panel == panel.id);
    let published: Vec<&Published> = published.collect();
    let svg = plot::draw(panel, &section.results, &published)?;
    Ok(html! {
        h3 { (panel.title) }
        (PreEscaped(svg))
        @for it in published {
            p { small {
                "Dashed: " (it.series) ", " (it.document)
                @if let Some(figure) = &it.figure { ", figure " (figure) }
                @if let Some(page) = it.page { ", page " (page) }
                "."
            } }
        }
    })
}

fn table(verdicts: &[Verdict]) -> Markup {
    html! {
        table {
            tr { th { "expected" } th { "at" } th { "band" } th { "found" } th { "" } th { "from" } }
            @for it in verdicts {
                tr {
                    td { @if it.control { "Control: " } (it.what) }
                    td { (it.at) }
                    td { (it.band) }
                    td { @if let Some(value) = it.value { (format!("{value:.3}")) } }
                    (outcome(it.outcome))
                    td { (it.source) }
                }
            }
        }
    }
}

fn outcome(outcome: Outcome) -> Markup {
    let (class, word) = match outcome {
        Outcome::Met => ("met", "met"),
        Outcome::Missed => ("missed", "missed"),
        Outcome::Unmeasured => ("unmeasured", "not measured"),
    };
    html! { td class=(class) { (word) } }
}
