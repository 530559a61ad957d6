//! A plot with curves over numeric x values.

use super::axis::Axis;
use super::{Curve, HEADROOM, Kind, MANY, WIDTH, bounds, class, diamond, mark, number, value_axis};
use crate::manifest::Panel;
use maud::{Markup, html};

const HEIGHT: f64 = 290.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 44.0;
/// Maximum number of x values for which each x value gets a tick.
const OWN_TICKS: usize = 8;
/// Minimum distance between two ticks of the x axis, in units of the picture. The text of a tick needs this
/// width.
const TICK_ROOM: f64 = 30.0;

/// Draws a panel with numeric x values.
pub(super) fn draw(panel: &Panel, curves: &[Curve]) -> Markup {
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let y = value_axis(panel, curves, HEADROOM, height);
    let xs = || curves.iter().flat_map(|curve| curve.points.iter().map(|(x, _)| *x));
    let (low, high) = bounds(xs().filter(|x| !panel.x_log || *x > 0.0));
    let x = Axis::new(low, high, panel.x_log, width);
    let across = |value: f64| LEFT + x.at(value);
    let down = |value: f64| TOP + height - y.at(value);
    html! {
        svg class="plot" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(panel.title) {
            text class="label" x="0" y="14" { (panel.y_label) }
            text class="label" x=(number(LEFT + width / 2.0)) y=(number(HEIGHT - 6.0)) text-anchor="middle" { (panel.x_label) }
            @for (value, text) in y.ticks() {
                @let at = number(down(value));
                line class="grid" x1=(LEFT) y1=(at) x2=(number(WIDTH - RIGHT)) y2=(at) {}
                text class="tick" x=(number(LEFT - 6.0)) y=(number(down(value) + 4.0)) text-anchor="end" { (text) }
            }
            @for (value, text) in x_ticks(panel, &x, xs().collect()) {
                @let at = number(across(value));
                line class="axis" x1=(at) y1=(number(TOP + height)) x2=(at) y2=(number(TOP + height + 4.0)) {}
                text class="tick" x=(at) y=(number(TOP + height + 18.0)) text-anchor="middle" { (text) }
            }
            line class="axis" x1=(LEFT) y1=(number(TOP + height)) x2=(number(WIDTH - RIGHT)) y2=(number(TOP + height)) {}
            @for (n, curve) in curves.iter().enumerate() {
                g class=(class(n)) { (curve_of(curve, n, &across, &down)) }
            }
        }
    }
}

/// Returns the ticks of the x axis. If the plot has up to [`OWN_TICKS`] x values, each x value gets a tick
/// if its text has room. With more x values, the ticks are at round numbers.
fn x_ticks(panel: &Panel, axis: &Axis, mut xs: Vec<f64>) -> Vec<(f64, String)> {
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    if xs.len() > OWN_TICKS {
        return axis.ticks();
    }
    let mut last = f64::NEG_INFINITY;
    let has_room = |x: &f64| {
        let is_free = axis.at(*x) - last >= TICK_ROOM;
        if is_free {
            last = axis.at(*x);
        }
        is_free
    };
    xs.into_iter().filter(has_room).map(|x| (x, panel.x_name(x))).collect()
}

fn curve_of(curve: &Curve, n: usize, across: &dyn Fn(f64) -> f64, down: &dyn Fn(f64) -> f64) -> Markup {
    let line = match curve.kind {
        Kind::Measured | Kind::Points(_) if curve.points.len() > MANY => "thin",
        Kind::Measured => "line",
        Kind::Points(_) => "others",
        Kind::Ranges(_) => "none",
    };
    let path: Vec<String> = curve
        .points
        .iter()
        .map(|(x, figure)| format!("{},{}", number(across(*x)), number(down(figure.value))))
        .collect();
    html! {
        @if line != "none" && path.len() > 1 { polyline class=(line) points=(path.join(" ")) {} }
        @for (x, figure) in &curve.points {
            @let (at, y) = (across(*x), down(figure.value));
            @if let Some([low, high]) = figure.interval {
                @let class = if matches!(curve.kind, Kind::Ranges(_)) { "range" } else { "whisker" };
                line class=(class) x1=(number(at)) y1=(number(down(low))) x2=(number(at)) y2=(number(down(high))) {}
            }
            @if curve.points.len() <= MANY {
                @match curve.kind {
                    Kind::Measured => (mark(n, at, y)),
                    Kind::Points(_) => (diamond(at, y)),
                    Kind::Ranges(_) => {},
                }
            }
        }
    }
}
