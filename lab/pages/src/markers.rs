//! The marker lines around a generated part of a page. They are HTML comments, which a rendered page does not
//! show.

use anyhow::{Context, Result, bail};

/// Subject of the markers around measured figures.
const RESULTS: &str = "results";

/// The two lines around the part of a page that one command writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Markers {
    begin: String,
    end: String,
}

impl Markers {
    /// Returns the markers for a subject, such as "layers", and the command that writes the part.
    #[must_use]
    pub fn new(subject: &str, command: &str) -> Self {
        let (opening, closing) = (opening(subject), closing(subject));
        Self { begin: format!("{opening}{command}{CLOSE}\n"), end: format!("{closing}\n") }
    }

    /// Returns the markers of the figures that a command measures.
    #[must_use]
    pub fn results(command: &str) -> Self {
        Self::new(RESULTS, command)
    }

    /// Returns the page with `text` between the two marker lines.
    ///
    /// # Errors
    /// Fails if a marker line is missing.
    pub fn replace(&self, page: &str, text: &str) -> Result<String> {
        let (before, rest) = page
            .split_once(&self.begin)
            .with_context(|| format!("the page lacks the line {}", self.begin.trim_end()))?;
        let (_, after) = rest.split_once(&self.end).with_context(|| {
            format!("the page lacks the line {} after {}", self.end.trim_end(), self.begin.trim_end())
        })?;
        Ok(format!("{before}{}{text}{}{after}", self.begin, self.end))
    }
}

/// End of the line that begins a part.
const CLOSE: &str = "` -->";

fn opening(subject: &str) -> String {
    format!("<!-- {subject}: written by `")
}

fn closing(subject: &str) -> String {
    format!("<!-- end of {subject} -->")
}

/// Returns all parts of a page that contain measured figures, each as the command and the text. The text is
/// empty before the first run.
///
/// # Errors
/// Fails if a part has no end line, or if an end line has no beginning.
pub fn results(page: &str) -> Result<Vec<(&str, String)>> {
    let (opening, closing) = (opening(RESULTS), closing(RESULTS));
    let mut parts = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in page.lines() {
        let command = line.strip_prefix(&opening).and_then(|rest| rest.strip_suffix(CLOSE));
        match (command, open.as_mut()) {
            (Some(command), None) => open = Some((command, String::new())),
            (Some(_), Some((outer, _))) => bail!("the part of `{outer}` has no line {closing}"),
            (None, _) if line == closing => {
                parts.push(open.take().with_context(|| format!("{closing} without a beginning"))?);
            }
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    match open {
        Some((command, _)) => bail!("the part of `{command}` has no line {closing}"),
        None => Ok(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::{Markers, results};

    #[test]
    fn only_the_lines_between_the_commands_own_markers_are_replaced() {
        let [a, b] = ["a", "b"].map(Markers::results);
        let page = |of_a: &str, of_b: &str| {
            format!("top\n{}{of_a}{}middle\n{}{of_b}{}bottom\n", a.begin, a.end, b.begin, b.end)
        };
        assert_eq!(b.replace(&page("1\n", ""), "2\n").unwrap(), page("1\n", "2\n"));
        assert_eq!(a.replace(&page("1\n", "2\n"), "").unwrap(), page("", "2\n"));
        assert_eq!(results(&page("1\n", "")).unwrap(), [("a", "1\n".to_owned()), ("b", String::new())]);
    }

    #[test]
    fn a_page_without_a_marker_is_refused_and_the_missing_line_is_named() {
        let markers = Markers::results("./x bench shim --write");
        let error = markers.replace("text\n", "").unwrap_err().to_string();
        assert_eq!(error, "the page lacks the line <!-- results: written by `./x bench shim --write` -->");
        let error = markers.replace(&markers.begin, "").unwrap_err().to_string();
        assert!(error.contains("end of results"), "{error}");
    }

    #[test]
    fn a_part_that_does_not_end_or_does_not_begin_is_a_fault() {
        let Markers { begin, end } = Markers::results("a");
        assert!(results(&begin).is_err() && results(&end).is_err());
        assert!(results(&format!("{begin}{begin}{end}")).is_err());
    }
}
