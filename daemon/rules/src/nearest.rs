//! Finds the known word that is nearest to an unknown word, for the texts of errors.

/// Returns the candidate that is nearest to `word`, if it is near enough to be the intended word. One of these conditions must
/// be true:
/// - The edit distance between the candidate and `word` is within the limit. The limit is a third of the letters of `word`,
///   but at least 2.
/// - `word` has three letters or more, and the candidate begins with it.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let limit = (word.chars().count() / 3).max(2);
    let distance = |c: &str| match word.len() >= 3 && c.starts_with(&word) {
        true => limit,
        false => edit_distance(&word, c),
    };
    candidates
        .into_iter()
        .map(|c| (distance(c), c))
        .filter(|&(d, _)| d <= limit)
        .min_by_key(|&(d, _)| d)
        .map(|(_, c)| c)
}

/// Computes the Levenshtein distance row by row.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_the_word() {
        assert_eq!(nearest("race_timer", ["udp_port", "race_timer_ms"]), Some("race_timer_ms"));
        assert_eq!(nearest("remot", ["local", "remote"]), Some("remote"));
    }

    #[test]
    fn the_beginning_of_a_word_finds_it() {
        assert_eq!(nearest("udp", ["enable", "udp_port"]), Some("udp_port"));
    }

    #[test]
    fn a_wholly_different_word_finds_nothing() {
        assert_eq!(nearest("colour", ["udp_port", "enable"]), None);
    }

    #[test]
    fn distance_counts_single_letter_edits() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
    }
}
