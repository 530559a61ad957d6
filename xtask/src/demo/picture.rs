//! `./x demo --picture FILE`: draws the rate of one scp on each path while path 1 dies. The rates come from a capture of both links.

use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, ensure};
use testbed::Capture;
use testbed::files::{make_random, sha256};

use super::transfers::{SILENT_BYTES, scp_over_dying_path};
use super::world::World;

/// Length of the interval that one point shows, in seconds.
const INTERVAL: f64 = 0.02;
/// Time drawn before the death of path 1, in seconds.
const BEFORE: f64 = 0.2;
/// Time drawn after the death of path 1, in seconds.
const AFTER: f64 = 0.6;
/// Filter of the packets that count towards the rates: packets with the file's bytes.
const DATA: &str = "sctp && frame.len > 500";
/// Width of the picture, in units of SVG. All sizes below have the same unit.
const WIDTH: f64 = 720.0;
/// Height of the picture.
const HEIGHT: f64 = 260.0;
/// Width of the plot in the picture.
const PLOT_WIDTH: f64 = 620.0;
/// Height of the plot in the picture.
const PLOT_HEIGHT: f64 = 150.0;
/// Left edge of the plot.
const LEFT: f64 = 80.0;
/// Upper edge of the plot.
const TOP: f64 = 62.0;

/// Bits per second in each interval, on path 1 and on path 2. The first interval begins [`BEFORE`] seconds before the death of path 1.
type Rates = Vec<[f64; 2]>;

/// Runs scp, lets path 1 die, and returns the picture as SVG.
pub(crate) fn draw(world: &mut World) -> Result<String> {
    let (source, copy) = (world.lab_file("drawn"), world.lab_file("drawn-by-scp"));
    make_random(&source, SILENT_BYTES)?;
    let paths = [world.path1.name(), world.path2_name()];
    let capture = Capture::start(&world.alpha, "picture", &[&paths[0], &paths[1]])?;
    let ended = scp_over_dying_path(world, &source, &copy);
    world.path1.restore()?;
    let dying = ended?;
    ensure!(sha256(&copy)? == sha256(&source)?, "the file differs");
    let fields = ["-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.interface_name"];
    let packets = capture.dissect(&[&["-Y", DATA, "-T", "fields"][..], &fields].concat())?;
    let died = dying.died.duration_since(UNIX_EPOCH)?.as_secs_f64();
    let rates = rates(&packets, died, &paths)?;
    ensure!(rates.iter().any(|rate| rate[1] > 0.0), "nothing went over path 2");
    Ok(svg(&rates, dying.silence.as_millis()))
}

/// Computes the rates from lines of time, length and interface. `died` is the time of path 1's death, in seconds since 1970.
fn rates(packets: &str, died: f64, paths: &[String; 2]) -> Result<Rates> {
    let mut rates = vec![[0.0; 2]; ((BEFORE + AFTER) / INTERVAL) as usize];
    for line in packets.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [at, length, interface] = fields[..] else {
            anyhow::bail!("tshark printed an unexpected line: {line}")
        };
        let at: f64 = at.parse().with_context(|| format!("tshark gave no time: {line}"))?;
        let length: f64 = length.parse().with_context(|| format!("tshark gave no length: {line}"))?;
        let interval = ((at - died + BEFORE) / INTERVAL).floor();
        let path = paths.iter().position(|path| path == interface);
        if let (Some(path), true) = (path, interval >= 0.0)
            && let Some(rate) = rates.get_mut(interval as usize)
        {
            rate[path] += length * 8.0 / INTERVAL;
        }
    }
    Ok(rates)
}

/// Returns the picture as SVG. The picture shows the rates of both paths over time, with path 2's rate stacked on path 1's.
fn svg(rates: &Rates, silence_ms: u128) -> String {
    let greatest = rates.iter().map(|[one, two]| one + two).fold(1.0, f64::max);
    let x = |interval: usize| LEFT + PLOT_WIDTH * interval as f64 / rates.len() as f64;
    let y = |rate: f64| TOP + PLOT_HEIGHT * (1.0 - rate / greatest);
    let area = |from: &dyn Fn(&[f64; 2]) -> f64, to: &dyn Fn(&[f64; 2]) -> f64| {
        let mut points = String::new();
        let upper =
            rates.iter().enumerate().flat_map(|(n, rate)| [(x(n), y(to(rate))), (x(n + 1), y(to(rate)))]);
        let lower =
            rates.iter().enumerate().flat_map(|(n, rate)| [(x(n), y(from(rate))), (x(n + 1), y(from(rate)))]);
        let lower: Vec<_> = lower.collect();
        for (x, y) in upper.chain(lower.into_iter().rev()) {
            let _ = write!(points, "{x:.1},{y:.1} ");
        }
        points.trim_end().to_owned()
    };
    let [one, two] = [area(&|_| 0.0, &|rate| rate[0]), area(&|rate| rate[0], &|rate| rate[0] + rate[1])];
    let death = LEFT + PLOT_WIDTH * BEFORE / (BEFORE + AFTER);
    let (right, bottom) = (LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT);
    let mut ticks = String::new();
    for tenth in 0..=((BEFORE + AFTER) * 10.0) as u32 {
        let at = LEFT + PLOT_WIDTH * f64::from(tenth) / ((BEFORE + AFTER) * 10.0);
        let label = f64::from(tenth) / 10.0 - BEFORE;
        let _ = writeln!(
            ticks,
            r##"<text x="{at:.0}" y="{:.0}" text-anchor="middle">{label:.1}</text>"##,
            bottom + 18.0
        );
    }
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" font-size="13">
<title>Rate of one scp by path: path 1 dies without a sign, path 2 carries on</title>
<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fbfbfd"/>
<g fill="#24292f">
<text x="{LEFT}" y="24" font-size="15" font-weight="bold">One scp: path 1 dies without a sign, path 2 carries on</text>
<text x="{LEFT}" y="42">The receiver's longest silence was {silence_ms} ms.</text>
<text x="{:.0}" y="{:.0}" text-anchor="end">{:.1} Gbit/s</text>
<text x="{:.0}" y="{bottom:.0}" text-anchor="end">0</text>
{ticks}<text x="{:.0}" y="{:.0}" text-anchor="middle">seconds from the death of path 1</text>
</g>
<polygon points="{one}" fill="#0969da"/>
<polygon points="{two}" fill="#e16f24"/>
<path d="M{LEFT} {bottom}H{right}" stroke="#24292f"/>
<path d="M{death:.1} {:.0}V{bottom}" stroke="#cf222e" stroke-width="2" stroke-dasharray="5 4"/>
<g font-weight="bold">
<text x="{:.0}" y="{:.0}" fill="#0969da" text-anchor="end">path 1</text>
<text x="{right}" y="{:.0}" fill="#e16f24" text-anchor="end">path 2</text>
</g>
</svg>
"##,
        LEFT - 6.0,
        TOP + 10.0,
        greatest / 1e9,
        LEFT - 6.0,
        LEFT + PLOT_WIDTH / 2.0,
        bottom + 38.0,
        TOP - 4.0,
        death - 8.0,
        TOP - 4.0,
        TOP - 4.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_count_for_their_interval_and_path() {
        let paths = ["p1".to_owned(), "p2".to_owned()];
        let packets = "99.79\t900\tp1\n99.805\t1000\tp1\n99.81\t500\tp2\n100.001\t1000\tp2\n101.0\t9\tp1\n100.0\t9\tlo\n";
        let rates = rates(packets, 100.0, &paths).unwrap();
        assert_eq!(rates.len(), 40);
        assert_eq!(rates[0].map(f64::round), [400_000.0, 200_000.0]);
        assert_eq!(rates[10].map(f64::round), [0.0, 400_000.0]);
        assert_eq!(rates.iter().flatten().filter(|rate| **rate > 0.0).count(), 3);
    }

    #[test]
    fn the_picture_has_an_area_for_each_path_and_says_how_long_the_receiver_was_silent() {
        let picture = svg(&vec![[1e9, 0.0], [0.0, 2e9]], 17);
        assert!(picture.contains("2.0 Gbit/s") && picture.contains("was 17 ms"), "{picture}");
        assert_eq!(picture.matches("<polygon").count(), 2);
    }
}
