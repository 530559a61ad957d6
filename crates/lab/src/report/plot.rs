//! One plot as SVG: lines over numbers or bars over categories, with 95 % confidence intervals, published curves dashed.

use crate::experiment::Point;
use crate::manifest::{Panel, Published};
use crate::results::Results;
use crate::statistics::Figure;
use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

const SIZE: (u32, u32) = (760, 440);
/// Colours that the colour-blind can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
];
/// How much of a category its bars fill.
const BARS: f64 = 0.8;
/// Room above the greatest value.
const HEADROOM: f64 = 1.08;

/// One curve.
struct Curve<'a> {
    name: &'a str,
    points: Vec<(f64, Figure)>,
    is_published: bool,
}

/// Draws a panel.
///
/// # Errors
/// When the plot cannot be drawn.
pub(super) fn draw(panel: &Panel, results: &Results, published: &[&Published]) -> Result<String> {
    let mut curves: Vec<Curve<'_>> =
        results.series(panel.of()).into_iter().map(|name| measured(panel, results, name)).collect();
    curves.extend(published.iter().map(|published| Curve {
        name: &published.series,
        points: published.points.iter().map(|&[x, y]| (x, Figure { value: y, interval: None })).collect(),
        is_published: true,
    }));
    let (x, y) = (x_range(panel, &curves), y_range(panel, &curves));
    let mut svg = String::new();
    match (panel.x_log, panel.y_log) {
        (false, false) => on(&mut svg, panel, &curves, x, y),
        (false, true) => on(&mut svg, panel, &curves, x, y.log_scale()),
        (true, false) => on(&mut svg, panel, &curves, x.log_scale(), y),
        (true, true) => on(&mut svg, panel, &curves, x.log_scale(), y.log_scale()),
    }
    .map_err(|error| anyhow!("plot {:?} cannot be drawn: {error}", panel.id))?;
    Ok(svg)
}

fn measured<'a>(panel: &Panel, results: &Results, name: &'a str) -> Curve<'a> {
    let xs = results.xs(panel.of(), name).into_iter();
    let figure = |x| results.figure(&Point::new(panel.of(), name, x), &panel.measure, panel.statistic);
    Curve { name, points: xs.filter_map(|x| Some((x, figure(x)?))).collect(), is_published: false }
}

fn x_range(panel: &Panel, curves: &[Curve<'_>]) -> Range<f64> {
    if !panel.categories.is_empty() {
        return -0.5..panel.categories.len() as f64 - 0.5;
    }
    let xs = curves.iter().flat_map(|curve| curve.points.iter().map(|(x, _)| *x));
    let (low, high) = bounds(xs);
    if low == high { low - 0.5..high + 0.5 } else { low..high }
}

fn y_range(panel: &Panel, curves: &[Curve<'_>]) -> Range<f64> {
    let ends = |figure: &Figure| figure.interval.unwrap_or([figure.value; 2]);
    let ys = curves.iter().flat_map(|curve| curve.points.iter().flat_map(move |(_, figure)| ends(figure)));
    let (low, high) = bounds(ys.filter(|y| !panel.y_log || *y > 0.0));
    let low = if panel.y_log { low / HEADROOM / HEADROOM } else { 0.0 };
    if high > low { low..high * HEADROOM } else { low..low + 1.0 }
}

/// The least and the greatest; 0 and 1 of nothing.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let wider = |range: Option<(f64, f64)>, value: f64| {
        Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    };
    values.fold(None, wider).unwrap_or((0.0, 1.0))
}

type Failure = Box<dyn std::error::Error>;

fn on<X, Y>(svg: &mut String, panel: &Panel, curves: &[Curve<'_>], x: X, y: Y) -> Result<(), Failure>
where
    X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(10)
        .x_label_area_size(45)
        .y_label_area_size(65)
        .build_cartesian_2d(x, y)?;
    let name = |x: &f64| panel.x_name(*x);
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(&panel.x_label).y_desc(&panel.y_label).light_line_style(WHITE).x_label_formatter(&name);
    if !panel.categories.is_empty() {
        mesh.disable_x_mesh().x_labels(panel.categories.len() + 1);
    }
    mesh.draw()?;
    for (n, curve) in curves.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let elements = match (panel.categories.is_empty(), curve.is_published) {
            (true, true) => {
                let points = curve.points.iter().map(|(x, figure)| (*x, figure.value));
                chart.draw_series(DashedLineSeries::new(points, 6, 4, colour.stroke_width(1)))?
            }
            (true, false) => {
                chart.draw_series(curve.points.iter().map(|(x, figure)| whiskers(*x, figure, colour)))?;
                let points = curve.points.iter().map(|(x, figure)| (*x, figure.value));
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            }
            (false, _) => {
                let width = BARS / curves.len() as f64;
                let left = width * n as f64 - BARS / 2.0;
                let middle = |x: f64| x + left + width / 2.0;
                let bars = curve.points.iter().map(|(x, figure)| {
                    let from = x + left;
                    Rectangle::new([(from, 0.0), (from + width, figure.value)], colour.filled())
                });
                chart.draw_series(bars)?;
                chart.draw_series(curve.points.iter().map(|(x, it)| whiskers(middle(*x), it, BLACK)))?
            }
        };
        let label =
            if curve.is_published { format!("{} (published)", curve.name) } else { curve.name.to_owned() };
        elements
            .label(label)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 16, y + 4)], colour.filled()));
    }
    let place = SeriesLabelPosition::UpperLeft;
    chart
        .configure_series_labels()
        .position(place)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

/// The confidence interval of a point, as a line.
fn whiskers(x: f64, figure: &Figure, colour: RGBColor) -> PathElement<(f64, f64)> {
    let [low, high] = figure.interval.unwrap_or([figure.value; 2]);
    PathElement::new([(x, low), (x, high)], colour.stroke_width(1))
}
