//! Conversion between quantities and text: rates, times, shares, sizes. Each error states the accepted form or the exceeded
//! limit.

use std::time::Duration;

/// Parses a rate such as `1.5mbit` into bits per second, with decimal prefixes. `0` and `unlimited` return 0, which means no
/// limit.
///
/// # Errors
/// If the text is not a rate. The error states the accepted form or the limit.
pub fn rate(text: &str) -> Result<u64, String> {
    if text == "unlimited" || text == "0" {
        return Ok(0);
    }
    let text = text.strip_suffix("/s").unwrap_or(text);
    let units = [("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
    let bits =
        number(text, &units, "a rate: expected a number and its unit, such as 1.5mbit, 64kbit or 1gbit")?;
    let whole = bits.round() as u64;
    if bits > 0.0 && whole == 0 {
        return Err("less than one bit a second".to_owned());
    }
    Ok(whole)
}

/// Returns a rate in bits per second as text that [`rate`] parses; 0 becomes `unlimited`.
pub fn rate_text(rate: u64) -> String {
    match rate {
        0 => "unlimited".to_owned(),
        r if r % 1_000_000_000 == 0 => format!("{}gbit", r / 1_000_000_000),
        r if r % 100_000 == 0 => format!("{}mbit", r as f64 / 1e6),
        r if r % 100 == 0 => format!("{}kbit", r as f64 / 1e3),
        r => format!("{r}bit"),
    }
}

/// Parses a time such as `35ms`, up to an hour.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let seconds = number(
        text,
        &units,
        "a time: expected a number and its unit (ns, us, ms or s), such as 35ms or 0.2s",
    )?;
    if seconds > 3600.0 {
        return Err("more than an hour".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(crate) fn time_text(time: Duration) -> String {
    match time.as_nanos() {
        0 => "0".to_owned(),
        n if n % 1_000_000_000 == 0 => format!("{}s", n / 1_000_000_000),
        n if n % 1_000 == 0 && n >= 1_000_000 => format!("{}ms", n as f64 / 1e6),
        n if n >= 1_000 => format!("{}us", n as f64 / 1e3),
        n => format!("{n}ns"),
    }
}

/// Parses a share such as `3%` or `0.03` into a number from 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share =
        number(text, &[("", 1.0), ("%", 0.01)], "a probability: expected a percentage such as 3%, or 0.03")?;
    if share > 1.0 {
        return Err(match text.contains('%') {
            true => "more than 100%".to_owned(),
            false => format!("more than 1: write {text}% for a percentage"),
        });
    }
    Ok(share)
}

pub(crate) fn share_text(share: f64) -> String {
    // Six digits hide the rounding errors of binary fractions.
    let percent = format!("{:.6}", share * 100.0);
    format!("{}%", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// Parses a number of bytes such as `1500`, `64kb` or `64kib`.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let units = [("", 1.0), ("b", 1.0), ("kb", 1e3), ("mb", 1e6), ("kib", 1024.0), ("mib", 1_048_576.0)];
    let bytes = number(text, &units, "a number of bytes, such as 1500, 64kb or 64kib")?;
    Ok(bytes.round() as usize)
}

/// Parses a number and its unit. Returns the number multiplied by the unit's factor in `units`. The number must not be negative.
/// Ignores case.
fn number(text: &str, units: &[(&str, f64)], wanted: &str) -> Result<f64, String> {
    let text = text.trim().to_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = units.iter().find(|(name, _)| *name == unit.trim_start());
    match (number.parse::<f64>(), unit) {
        (Ok(number), Some((_, factor))) if number.is_finite() => Ok(number * factor),
        _ => Err(format!("not {wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_units() {
        assert_eq!(rate("1.5mbit"), Ok(1_500_000));
        assert_eq!(rate("1 Gbit/s"), Ok(1_000_000_000));
        assert_eq!(rate("unlimited"), Ok(0));
        assert_eq!(time("35ms"), Ok(Duration::from_millis(35)));
        assert_eq!(time("0.2s"), Ok(Duration::from_millis(200)));
        assert_eq!(share("3%"), Ok(0.03));
        assert_eq!(share("0.5"), Ok(0.5));
        assert_eq!(bytes("64kib"), Ok(65_536));
    }

    #[test]
    fn an_invalid_quantity_is_refused() {
        for text in ["", "fast", "5", "1500000", "-3mbit", "1.5mbyte", "1e3", "1.2.3mbit"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["35", "ms", "-1ms", "2h", "3601s"] {
            assert!(time(text).is_err(), "{text}");
        }
        for text in ["-1%", "%"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!(share("3"), Err("more than 1: write 3% for a percentage".to_owned()));
        assert_eq!(share("150%"), Err("more than 100%".to_owned()));
    }

    #[test]
    fn a_written_quantity_reads_the_same() {
        for r in [0, 1, 64_000, 1_500_000, 2_000_000_000, 1_234_567] {
            assert_eq!(rate(&rate_text(r)), Ok(r));
        }
        for nanos in [0, 1, 300_000, 35_000_000, 1_500_000_000, 60_000_000_000] {
            let d = Duration::from_nanos(nanos);
            assert_eq!(time(&time_text(d)), Ok(d), "{}", time_text(d));
        }
        assert_eq!(share_text(0.03), "3%");
        assert_eq!(share_text(1.0 / 3.0), "33.333333%");
    }
}
