//! A plot as SVG: [`lines`] over numbers, or [`bars`] over categories, with 95 % confidence intervals.
//!
//! The page's style sheet gives the SVG classes their colours, for light and dark screens. A published
//! value is drawn as a single mark, or as a bar if only the value's range is known. The legend is HTML text
//! outside the picture.

pub(super) mod axis;
mod bars;
mod lines;

use crate::manifest::{Origin, Panel, Published};
use crate::results::Results;
use crate::statistics::Figure;
use anyhow::Result;
use maud::{Markup, html};

/// Width of all pictures. A phone can show a picture of this width without scaling its text.
const WIDTH: f64 = 420.0;
/// Factor for the space above the greatest value.
const HEADROOM: f64 = 1.06;
/// Number of colours in the style sheet.
const COLOURS: usize = 8;
/// Maximum number of values in a curve for which marks are drawn.
const MANY: usize = 40;

/// The origin of a curve, which decides its drawing style.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Measured,
    /// Single values.
    Points(Origin),
    /// Intervals, of which only the ends are known.
    Ranges(Origin),
}

/// A curve. If its kind is [`Kind::Ranges`], the interval of a figure is the known range, and the value is
/// the middle of the range.
struct Curve {
    name: String,
    kind: Kind,
    points: Vec<(f64, Figure)>,
}

/// Draws a panel with its legend. Returns `None` if the panel's measure was not measured, or if the panel
/// has no values.
///
/// # Errors
/// Fails if published values cannot be read.
pub(super) fn draw(panel: &Panel, results: &Results, published: &[&Published]) -> Result<Option<Markup>> {
    let mut curves: Vec<Curve> =
        results.series(panel.of()).into_iter().map(|name| measured(panel, results, name)).collect();
    let has_ours = panel.measure.is_none() || curves.iter().any(|curve| !curve.points.is_empty());
    for published in published {
        curves.push(others(published)?);
    }
    curves.retain(|curve| !curve.points.is_empty());
    if curves.is_empty() || !has_ours {
        return Ok(None);
    }
    let picture =
        if panel.categories.is_empty() { lines::draw(panel, &curves) } else { bars::draw(panel, &curves) };
    Ok(Some(html! { (legend(&curves)) (picture) }))
}

fn measured(panel: &Panel, results: &Results, name: &str) -> Curve {
    let xs = results.xs(panel.of(), name).into_iter();
    let points = xs.filter_map(|x| Some((x, results.shown(panel, name, x)?))).collect();
    Curve { name: name.to_owned(), kind: Kind::Measured, points }
}

fn others(published: &Published) -> Result<Curve> {
    let single = |[x, y]: [f64; 2]| (x, Figure { value: y, interval: None });
    let range = |&[x, low, high]: &[f64; 3]| {
        (x, Figure { value: f64::midpoint(low, high), interval: Some([low, high]) })
    };
    let (kind, points) = if published.ranges.is_empty() {
        (Kind::Points(published.origin), published.points()?.into_iter().map(single).collect())
    } else {
        (Kind::Ranges(published.origin), published.ranges.iter().map(range).collect())
    };
    Ok(Curve { name: published.series.clone(), kind, points })
}

/// Renders the legend: the names of the curves with their kinds.
fn legend(curves: &[Curve]) -> Markup {
    html! {
        ul class="legend" {
            @for (n, curve) in curves.iter().enumerate() {
                li class=(class(n)) {
                    svg width="18" height="12" viewBox="0 0 18 12" aria-hidden="true" { (sample(curve, n)) }
                    span { (curve.name) @if let Some(label) = label(curve.kind) { " (" (label) ")" } }
                }
            }
        }
    }
}

fn label(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Measured => None,
        Kind::Points(origin) | Kind::Ranges(origin) => Some(origin.label()),
    }
}

/// Renders the sample of a curve in the legend.
fn sample(curve: &Curve, n: usize) -> Markup {
    match curve.kind {
        Kind::Measured => html! { line class="line" x1="0" y1="6" x2="18" y2="6" {} (mark(n, 9.0, 6.0)) },
        Kind::Points(_) if curve.points.len() > MANY => {
            html! { line class="thin" x1="0" y1="6" x2="18" y2="6" {} }
        }
        Kind::Points(_) => diamond(9.0, 6.0),
        Kind::Ranges(_) => html! { line class="range" x1="9" y1="1" x2="9" y2="11" {} },
    }
}

fn class(n: usize) -> String {
    format!("c{}", n % COLOURS)
}

/// Renders the mark of a measured curve. If several curves have the same colour, their marks have different
/// shapes.
fn mark(n: usize, x: f64, y: f64) -> Markup {
    match n / COLOURS {
        0 => html! { circle class="mark" cx=(number(x)) cy=(number(y)) r="3" {} },
        1 => html! { rect class="mark" x=(number(x - 3.0)) y=(number(y - 3.0)) width="6" height="6" {} },
        _ => html! { path class="mark" d=(format!("M{} {}l4 7h-8z", number(x), number(y - 4.0))) {} },
    }
}

/// Renders the mark of a published value.
fn diamond(x: f64, y: f64) -> Markup {
    html! { path class="diamond" d=(format!("M{} {}l5 5l-5 5l-5 -5z", number(x), number(y - 5.0))) {} }
}

/// Formats a coordinate with one decimal. A smaller fraction would be invisible.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

/// Returns the range of all drawn values, including intervals.
fn ends<'a>(curves: &'a [Curve], is_shown: impl Fn(f64) -> bool + 'a) -> (f64, f64) {
    let of = |(_, figure): &(f64, Figure)| figure.interval.unwrap_or([figure.value; 2]);
    let all = curves.iter().flat_map(move |curve| curve.points.iter().flat_map(of));
    bounds(all.filter(|value| is_shown(*value)))
}

/// Returns the smallest and the greatest value, or 0 and 1 if there are no values.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let wider = |range: Option<(f64, f64)>, value: f64| {
        Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    };
    values.fold(None, wider).unwrap_or((0.0, 1.0))
}

/// Creates the axis for the values of a plot.
fn value_axis(panel: &Panel, curves: &[Curve], headroom: f64, length: f64) -> axis::Axis {
    if let Some([low, high]) = panel.y_range {
        return axis::Axis::new(low, high, panel.y_log, length);
    }
    if panel.y_log {
        let (low, high) = ends(curves, |value| value > 0.0);
        return axis::Axis::new(low / HEADROOM / HEADROOM, high * (headroom * headroom), true, length);
    }
    let (low, high) = ends(curves, |_| true);
    axis::Axis::new(low.min(0.0), if high > 0.0 { high * headroom } else { 1.0 }, false, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::done;

    fn panel(rest: &str) -> Panel {
        let text = format!("id = \"p\"\ntitle = \"t\"\nx_label = \"x\"\ny_label = \"y\"\n{rest}");
        toml::from_str(&text).unwrap()
    }

    fn published(rest: &str) -> Published {
        let text = format!("panel = \"p\"\nseries = \"theirs\"\ndocument = \"d\"\n{rest}");
        toml::from_str(&text).unwrap()
    }

    fn drawn(panel: &Panel, published: &[&Published]) -> String {
        let results = Results(vec![done("p", "ours", 0.0, 0, 3.0), done("p", "ours", 1.0, 0, 5.0)]);
        draw(panel, &results, published).unwrap().unwrap().into_string()
    }

    #[test]
    fn a_single_published_value_has_a_mark_and_a_range_a_bar_and_both_say_what_they_are() {
        let point = published("origin = \"published\"\npoints = [[1, 4]]");
        let range = published("origin = \"derived\"\nrule = \"r\"\nranges = [[1, 4, 6]]");
        for categories in ["", "categories = [\"a\", \"b\"]"] {
            let panel = panel(&format!("measure = \"seconds\"\n{categories}"));
            let svg = drawn(&panel, &[&point, &range]);
            // The plot and the legend contain one mark of each kind.
            assert_eq!(svg.matches("class=\"diamond\"").count(), 2, "{svg}");
            assert_eq!(svg.matches("class=\"range\"").count(), 2, "{svg}");
            assert!(svg.contains("theirs (published)") && svg.contains("theirs (derived)"), "{svg}");
        }
    }

    #[test]
    fn a_panel_without_measure_shows_published_values_alone_and_one_that_was_not_measured_nothing() {
        let point = published("origin = \"published\"\npoints = [[1, 4]]");
        assert!(!drawn(&panel(""), &[&point]).contains("ours"));
        let unmeasured = panel("measure = \"bytes\"");
        assert!(draw(&unmeasured, &Results::default(), &[&point]).unwrap().is_none());
    }

    #[test]
    fn a_ratio_is_drawn_of_all_series_but_the_one_that_they_are_divided_by() {
        let results = Results(vec![done("p", "ours", 1.0, 0, 3.0), done("p", "tcp", 1.0, 0, 6.0)]);
        let panel = panel("measure = \"seconds\"\nratio_to = \"tcp\"");
        assert_eq!(results.shown(&panel, "ours", 1.0).unwrap().value, 0.5);
        let svg = draw(&panel, &results, &[]).unwrap().unwrap().into_string();
        assert!(svg.contains(">ours<") && !svg.contains(">tcp<"), "{svg}");
    }
}
