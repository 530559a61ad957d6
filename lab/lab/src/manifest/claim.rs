//! Claims of papers, and goals of this project. Each claim has our answer, and the expectations that decide
//! it.

use serde::{Deserialize, Serialize};

/// A claim, which the report of an experiment shows at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// The claim, as one sentence.
    pub(crate) claim: String,
    /// Source of the claim: document and section.
    pub(crate) by: String,
    /// Our answer, as one sentence that is true for any result. In the answer, `{ID}` stands for the figure
    /// of the expectation with this ID.
    pub(crate) answer: String,
    /// IDs of the expectations that decide the claim.
    pub(crate) judged_by: Vec<String>,
}

/// A piece of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    /// ID of the expectation whose figure the answer contains.
    Figure(&'a str),
}

impl Claim {
    /// Splits the answer into pieces. An unmatched brace is text.
    pub(crate) fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let mut rest = &*self.answer;
        while let Some((before, behind)) = rest.split_once('{') {
            let Some((id, after)) = behind.split_once('}') else { break };
            pieces.extend([Piece::Text(before), Piece::Figure(id)]);
            rest = after;
        }
        pieces.push(Piece::Text(rest));
        pieces
    }

    /// Returns the IDs of all expectations that decide the claim, then of all expectations that the answer
    /// names.
    pub(super) fn named(&self) -> impl Iterator<Item = &str> {
        let figures = self.pieces().into_iter().filter_map(|piece| match piece {
            Piece::Figure(id) => Some(id),
            Piece::Text(_) => None,
        });
        self.judged_by.iter().map(String::as_str).chain(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_an_answer_are_told_from_its_text() {
        let claim = |answer: &str| Claim {
            claim: String::new(),
            by: String::new(),
            answer: answer.to_owned(),
            judged_by: vec!["a".to_owned()],
        };
        let pieces = [Piece::Text("It takes "), Piece::Figure("b"), Piece::Text(" s.")];
        assert_eq!(claim("It takes {b} s.").pieces(), pieces);
        assert_eq!(claim("It takes {b} s.").named().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(claim("{ and no more").pieces(), [Piece::Text("{ and no more")]);
    }
}
