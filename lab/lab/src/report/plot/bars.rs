//! A plot with a horizontal bar for each value of a category. The bars are horizontal, so long names of
//! categories fit on a phone.

use super::{Curve, Kind, WIDTH, class, diamond, number, value_axis};
use crate::manifest::Panel;
use crate::report::three_digits;
use crate::statistics::Figure;
use maud::{Markup, html};

const LEFT: f64 = 10.0;
/// Width of the space after the longest bar, for the text of the bar's value.
const RIGHT: f64 = 62.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 42.0;
/// Height of a line of a category's name.
const NAME: f64 = 18.0;
/// Limit on the characters of such a line. A longer name gets more lines.
const NAME_CHARS: usize = 58;
/// Height of a bar.
const BAR: f64 = 11.0;
/// Distance between the tops of two bars of a category.
const ROW: f64 = 14.0;
/// Height of the gap after a category.
const GAP: f64 = 8.0;

/// The value of a curve in a category.
struct Row<'a> {
    n: usize,
    kind: Kind,
    figure: &'a Figure,
}

/// Draws a panel whose x values are categories.
pub(super) fn draw(panel: &Panel, curves: &[Curve]) -> Markup {
    let width = WIDTH - LEFT - RIGHT;
    let axis = value_axis(panel, curves, 1.0, width);
    let rows: Vec<Vec<Row<'_>>> = (0..panel.categories.len()).map(|x| rows_of(curves, x as f64)).collect();
    let mut end = TOP;
    let names: Vec<Vec<String>> = panel.categories.iter().map(|name| lines(name)).collect();
    let tops: Vec<f64> = rows
        .iter()
        .zip(&names)
        .map(|(rows, name)| {
            let top = end;
            end += height_of(rows, name);
            top
        })
        .collect();
    let height = end + BOTTOM;
    let across = |value: f64| LEFT + axis.at(value);
    html! {
        svg class="plot" viewBox=(format!("0 0 {WIDTH} {}", number(height))) role="img" aria-label=(panel.title) {
            @for (value, text) in axis.ticks() {
                @let at = number(across(value));
                line class="grid" x1=(at) y1=(TOP) x2=(at) y2=(number(end)) {}
                text class="tick" x=(at) y=(number(end + 16.0)) text-anchor="middle" { (text) }
            }
            line class="axis" x1=(LEFT) y1=(number(end)) x2=(number(LEFT + width)) y2=(number(end)) {}
            text class="label" x=(number(LEFT + width / 2.0)) y=(number(height - 6.0)) text-anchor="middle" { (panel.y_label) }
            @for ((rows, top), name) in rows.iter().zip(&tops).zip(&names) {
                @if !rows.is_empty() {
                    @for (at, line) in name.iter().enumerate() {
                        text class="label" x=(LEFT) y=(number(top + NAME * at as f64 + 13.0)) { (line) }
                    }
                    @for (at, row) in rows.iter().enumerate() {
                        @let below = top + NAME * name.len() as f64;
                        g class=(class(row.n)) { (bar(row, below + ROW * at as f64, axis.low(), &across)) }
                    }
                }
            }
        }
    }
}

/// Returns the height of a category, or 0 if it is empty.
fn height_of(rows: &[Row<'_>], name: &[String]) -> f64 {
    if rows.is_empty() { 0.0 } else { NAME * name.len() as f64 + ROW * rows.len() as f64 + GAP }
}

/// Divides a category's name into lines of up to [`NAME_CHARS`] characters, at spaces.
fn lines(name: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split(' ') {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= NAME_CHARS) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn rows_of<'a>(curves: &'a [Curve], x: f64) -> Vec<Row<'a>> {
    let row = |(n, curve): (usize, &'a Curve)| {
        let (_, figure) = curve.points.iter().find(|(at, _)| *at == x)?;
        Some(Row { n, kind: curve.kind, figure })
    };
    curves.iter().enumerate().filter_map(row).collect()
}

fn bar(row: &Row<'_>, top: f64, low: f64, across: &dyn Fn(f64) -> f64) -> Markup {
    let (from, to, middle) = (across(low), across(row.figure.value), top + BAR / 2.0);
    let [least, most] = row.figure.interval.unwrap_or([row.figure.value; 2]);
    let text = match row.kind {
        Kind::Ranges(_) => format!("{} to {}", three_digits(least), three_digits(most)),
        Kind::Measured | Kind::Points(_) => three_digits(row.figure.value),
    };
    html! {
        @match row.kind {
            Kind::Measured => {
                rect class="bar" x=(number(from)) y=(number(top)) width=(number((to - from).max(0.5))) height=(BAR) {}
                line class="interval" x1=(number(across(least))) y1=(number(middle)) x2=(number(across(most))) y2=(number(middle)) {}
            }
            Kind::Points(_) => (diamond(to, middle)),
            Kind::Ranges(_) => {
                line class="range" x1=(number(across(least))) y1=(number(middle)) x2=(number(across(most))) y2=(number(middle)) {}
            }
        }
        text class="value" x=(number(across(most) + 7.0)) y=(number(middle + 4.0)) { (text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_divided_at_spaces_and_a_short_one_is_not() {
        assert_eq!(lines("end of a call"), ["end of a call"]);
        let long = "set-up of a call, the time until a person answered (T1) subtracted";
        let divided = lines(long);
        assert_eq!(divided.join(" "), long);
        assert!(divided.len() == 2 && divided.iter().all(|line| line.len() <= NAME_CHARS), "{divided:?}");
    }
}
