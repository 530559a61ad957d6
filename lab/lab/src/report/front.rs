//! The front page of the report: all claims with their verdicts.

use super::claims::{Answered, Standing};
use super::{Section, page};
use crate::manifest::Manifest;
use maud::{Markup, html};

/// Renders the front page. `sections` are the measured experiments.
pub(super) fn page(manifests: &[Manifest], sections: &[Section]) -> String {
    let of = |standing| {
        let claims = sections.iter().flat_map(|it| &it.answers);
        claims.filter(|it| it.standing == standing).count()
    };
    page::whole(
        "Claims and answers",
        html! {
            h1 { "Claims and answers" }
            p {
                "Claims of papers and goals of this project, each with the answer of its measurement. Met: all expected bands hold; if a paper's \
                 result differs from the goal, the answer states it. Quick forms show that all cells can be measured; full forms measure as much \
                 as the papers did."
            }
            ul class="counts" {
                @for standing in [Standing::Met, Standing::Missed, Standing::Open] {
                    @let (class, word) = standing.words();
                    li { span class={ "verdict " (class) } { (of(standing)) " " (word) } }
                }
            }
            @for manifest in manifests {
                @let measured: Vec<&Section> = sections.iter().filter(|it| it.manifest.id == manifest.id).collect();
                h2 id=(manifest.id) { (manifest.title) }
                @for (n, claim) in manifest.claims.iter().enumerate() {
                    @let answers: Vec<(&Section, &Answered)> = measured.iter().map(|it| (*it, &it.answers[n])).collect();
                    @let worst = answers.iter().map(|(_, it)| it.standing).max().unwrap_or(Standing::Open);
                    div class={ "claim is-" (worst.words().0) } {
                        p { b { (claim.claim) } " " small { (claim.by) } }
                        @if answers.is_empty() { p class="dim" { "Not measured here." } }
                        @for (section, answered) in answers { (answer(section, answered)) }
                    }
                }
            }
        },
    )
}

fn answer(section: &Section, answered: &Answered) -> Markup {
    let (class, word) = answered.standing.words();
    html! {
        p {
            span class={ "verdict " (class) } { (word) } ", "
            a href={ (section.name()) ".html" } { (section.meta.form.to_string()) } ": " (answered.answer)
        }
    }
}
