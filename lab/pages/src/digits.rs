//! Numbers as text.

/// Formats a number with `significant` significant digits. Digits before the decimal point are never cut.
/// Zeros at the end of a fraction are omitted. Infinity and NaN are formatted as a dash.
#[must_use]
pub fn digits(value: f64, significant: u8) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "–".to_owned() };
    }
    let decimals = (f64::from(significant) - 1.0 - value.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.decimals$}");
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    grouped(short)
}

/// Inserts commas between groups of thousands, in numbers from 10,000.
#[must_use]
pub fn grouped(text: &str) -> String {
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    if digits.len() < 5 {
        return text.to_owned();
    }
    let mut groups: Vec<String> = Vec::new();
    for (n, digit) in digits.chars().rev().enumerate() {
        if n % 3 == 0 {
            groups.insert(0, String::new());
        }
        groups[0].insert(0, digit);
    }
    format!("{sign}{}{rest}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn numbers_are_printed_with_their_significant_digits() {
        let printed = [1.085, 0.0004567, 12.0, 3651.03, 131_072.0, 0.0, 99.96].map(|value| digits(value, 3));
        assert_eq!(printed, ["1.08", "0.000457", "12", "3651", "131,072", "0", "100"]);
        assert_eq!([0.97641, 26_016.37].map(|value| digits(value, 4)), ["0.9764", "26,016"]);
    }
}
