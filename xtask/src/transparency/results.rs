//! Results of a suite's tests by name, and the parsers of the suites' output.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// The outcome of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Skipped,
    /// The test started and never ended, or the trial run lacks the test.
    Missing,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
            Verdict::Missing => "without an end",
        })
    }
}

/// Verdicts of tests by name.
pub(crate) type Results = BTreeMap<String, Verdict>;

/// Parses lines of "ok NAME", "not ok NAME" and "skip NAME". Ignores other lines.
pub(crate) fn of_lines(text: &str) -> Results {
    let verdicts = [("ok ", Verdict::Passed), ("not ok ", Verdict::Failed), ("skip ", Verdict::Skipped)];
    let read = |line: &str| {
        verdicts
            .iter()
            .find_map(|(word, verdict)| Some((line.strip_prefix(word)?.trim().to_owned(), *verdict)))
    };
    text.lines().filter_map(read).collect()
}

/// One line of `go test -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoEvent {
    action: String,
    package: String,
    test: Option<String>,
}

/// Parses the output of `go test -json`. Subtests are not listed, because their names can differ from run to run. The result of a test
/// includes the results of its subtests.
pub(crate) fn of_go(text: &str) -> Results {
    let mut results = Results::new();
    for event in text.lines().filter_map(|line| serde_json::from_str::<GoEvent>(line).ok()) {
        let Some(test) = event.test.filter(|test| !test.contains('/')) else { continue };
        let verdict = match event.action.as_str() {
            "run" => Verdict::Missing,
            "pass" => Verdict::Passed,
            "fail" => Verdict::Failed,
            "skip" => Verdict::Skipped,
            _ => continue,
        };
        results.insert(format!("{}.{test}", event.package), verdict);
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_of_go_that_was_begun_and_never_ended_is_missing() {
        let text = "{\"Action\":\"run\",\"Package\":\"net\",\"Test\":\"TestA\"}\n\
                    {\"Action\":\"run\",\"Package\":\"net\",\"Test\":\"TestB\"}\n\
                    {\"Action\":\"pass\",\"Package\":\"net\",\"Test\":\"TestA/sub\"}\n\
                    {\"Action\":\"pass\",\"Package\":\"net\",\"Test\":\"TestA\"}\n\
                    {\"Action\":\"fail\",\"Package\":\"net\"}\nnoise\n";
        let results = of_go(text);
        assert_eq!(results.get("net.TestA"), Some(&Verdict::Passed));
        assert_eq!(results.get("net.TestB"), Some(&Verdict::Missing));
        assert_eq!(results.len(), 2);
    }

    #[test]
    fn lines_name_tests_and_their_ends() {
        let results = of_lines("ok a b\nnot ok c\nskip d\nnoise ok e\n");
        let expected = [("a b", Verdict::Passed), ("c", Verdict::Failed), ("d", Verdict::Skipped)];
        assert_eq!(results, expected.map(|(name, verdict)| (name.to_owned(), verdict)).into());
    }
}
