//! The answer to a claim: a verdict, and a text with measured figures.

use crate::judge::{Outcome, Verdict};
use crate::manifest::{Claim, Piece};
use crate::report::three_digits;
use serde::Serialize;

/// The verdict on a claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    Met,
    /// An expectation that decides the claim was not measured, or is not judged in this form.
    Open,
    Missed,
}

impl Standing {
    /// Returns the CSS class and the label.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Met => ("met", "met"),
            Self::Missed => ("missed", "missed"),
            Self::Open => ("open", "not judged"),
        }
    }
}

/// A claim, with the answer from the results of one run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Answered {
    pub(super) claim: String,
    pub(super) by: String,
    pub(super) answer: String,
    pub(super) standing: Standing,
}

/// Answers a claim with the verdicts of a run.
pub(super) fn answer(claim: &Claim, verdicts: &[Verdict]) -> Answered {
    let of = |id: &str| verdicts.iter().filter(|it| it.id == id).collect::<Vec<_>>();
    let standings = claim.judged_by.iter().map(|id| standing(&of(id)));
    let text = |piece: Piece<'_>| match piece {
        Piece::Text(text) => Ok(text.to_owned()),
        Piece::Figure(id) => figures(&of(id)),
    };
    let pieces: Result<String, Gap> = claim.pieces().into_iter().map(text).collect();
    Answered {
        claim: claim.claim.clone(),
        by: claim.by.clone(),
        answer: pieces.unwrap_or_else(|gap| gap.text().to_owned()),
        standing: standings.max().unwrap_or(Standing::Open),
    }
}

/// Returns the verdict on one expectation over all its points.
pub(super) fn standing(verdicts: &[&Verdict]) -> Standing {
    let one = |it: &&Verdict| match it.outcome {
        Outcome::Met => Standing::Met,
        Outcome::Missed => Standing::Missed,
        Outcome::Unmeasured | Outcome::LeftOut => Standing::Open,
    };
    verdicts.iter().map(one).max().unwrap_or(Standing::Open)
}

/// The reason why an answer has no figures. If any figure is missing, this reason replaces the whole
/// answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gap {
    OtherForm,
    Unmeasured,
}

impl Gap {
    fn text(self) -> &'static str {
        match self {
            Self::OtherForm => "This form of the experiment does not measure the claim. The other form does.",
            Self::Unmeasured => "A figure of the answer was not measured.",
        }
    }
}

/// Formats the figure of an expectation. If its points have different figures, formats the range from the
/// smallest to the greatest figure.
pub(super) fn figures(verdicts: &[&Verdict]) -> Result<String, Gap> {
    if verdicts.is_empty() {
        return Err(Gap::OtherForm);
    }
    let mut values: Vec<f64> = verdicts.iter().filter_map(|it| it.value).collect();
    values.sort_by(f64::total_cmp);
    match (values.first().copied().map(three_digits), values.last().copied().map(three_digits)) {
        (Some(least), Some(greatest)) if least != greatest => Ok(format!("{least} to {greatest}")),
        (Some(only), _) => Ok(only),
        _ => Err(Gap::Unmeasured),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(id: &str, value: Option<f64>, outcome: Outcome) -> Verdict {
        Verdict {
            id: id.into(),
            what: String::new(),
            at: String::new(),
            value,
            band: String::new(),
            outcome,
            control: false,
            source: String::new(),
        }
    }

    fn answered(verdicts: &[Verdict]) -> (Standing, String) {
        let claim = Claim {
            claim: String::new(),
            by: String::new(),
            answer: "It takes {a} of {b}.".into(),
            judged_by: vec!["a".into(), "b".into()],
        };
        let answered = answer(&claim, verdicts);
        (answered.standing, answered.answer)
    }

    #[test]
    fn a_claim_is_met_if_all_its_expectations_are_met_and_missed_if_one_is_missed() {
        let (a, b) = (verdict("a", Some(2.0), Outcome::Met), verdict("b", Some(4.0), Outcome::Met));
        let other = verdict("a", Some(1.0), Outcome::Missed);
        let met = answered(&[a.clone(), b.clone()]);
        assert_eq!(met, (Standing::Met, "It takes 2 of 4.".to_owned()));
        assert_eq!(answered(&[a.clone(), other, b]), (Standing::Missed, "It takes 1 to 2 of 4.".to_owned()));
        assert_eq!(answered(std::slice::from_ref(&a)), (Standing::Open, Gap::OtherForm.text().to_owned()));
        let unmeasured = verdict("b", None, Outcome::Unmeasured);
        assert_eq!(answered(&[a, unmeasured]), (Standing::Open, Gap::Unmeasured.text().to_owned()));
    }
}
