//! `./x bench NAME ... [--write]`: runs benchmarks. Begin with [`BENCHES`], which has one row per benchmark.
//!
//! - `shim`: one bulk stream through the shim, compared with plain TCP and with usrsctp ([`bulk`]). Then the latency of connects
//!   ([`latency`]), which has no goals.
//! - `connect`: the latency of connects ([`latency`], [`unnamed`], [`fallback`]). With `--against DIR`, only the latency over SCTP,
//!   compared with another build's latency ([`against`]).
//! - `encryption`: the cost of encryption ([`encryption`]).
//! - `unnamed`: connects to destinations without a matching rule ([`unnamed`]).
//! - `race`: the duration of connects that start SCTP before TCP, compared with connects that start both at once ([`race`]).
//! - `uplinks`: processor time at the rates of uplinks, and the latency of keystrokes ([`uplinks`]).
//! - `streams`: connections that share an association, compared with plain TCP and with separate associations ([`streams`]).
//! - `connections`: a daemon with many connections ([`many`]).
//! - `idle`: the traffic of an idle link ([`idle`]).
//! - `linkemu`: the accuracy of the link emulator ([`linkemu`]).
//! - `router`: packets per second through our own router ([`router`]).
//! - `sip`: our SIP proxy compared with Kamailio ([`sip`]).
//! - `sip-memory`: the memory of our SIP proxy ([`sip::memory`]).
//! - `sip-page`: the set-up times of calls while browsers show our SIP proxy's page ([`sip::page`]).
//! - `sockets`: a program with SCTP sockets, compared with programs that are written for an SCTP stack ([`sockets`]).
//! - `sctp`: our SCTP stack compared with others ([`sctp`]).
//! - `instructions`: the engine's cost in instructions ([`instructions`]). It has no row in [`BENCHES`].
//!
//! Absolute figures from a shared machine mean little. Compare the ratios: both figures of a ratio come from the same run. The exit status
//! is 0 only if all printed goals are met.
//!
//! With `--write`, a full run replaces the benchmark's part of its page in `docs/results`, whether or not the goals are met.
//! [`Report::write`] lists the cases in which nothing is written.

mod against;
mod bulk;
mod encryption;
mod fallback;
mod idle;
pub(crate) mod instructions;
mod latency;
mod linkemu;
mod many;
mod race;
mod report;
mod router;
mod sctp;
mod sip;
mod sockets;
mod streams;
mod unnamed;
mod uplinks;

use crate::tools::root;
use crate::{Outcome, optimised};
use anyhow::{Result, bail, ensure};
use pages::{Limit, Origin, Place};
use report::Report;
use std::path::{Path, PathBuf};
use testbed::Lab;

/// Limit on the extra time of a connect to a server that is cached as not supporting SCTP, compared with plain TCP, in microseconds.
const LEARNED_GOAL_US: f64 = 100.0;
/// Limit on the extra time of a connect over SCTP, compared with plain TCP, in microseconds.
const SHIM_GOAL_US: f64 = 150.0;
/// Limit on the time of a connect over SCTP, as a multiple of the time with another build.
const AGAINST_GOAL_RATIO: f64 = 1.03;
/// The option that writes the results to a page.
const WRITE: &str = "--write";

/// A benchmark in a lab.
struct Bench {
    name: &'static str,
    /// Arguments after the name, as the usage message shows them. If this text is empty, the benchmark accepts no arguments.
    options: &'static str,
    /// Name of the benchmark's page in `docs/results`, without `.md`.
    page: Option<&'static str>,
    /// Function that measures and judges. Its second argument has the words after the benchmark's name.
    measure: fn(&Lab, &[String], &mut Report) -> Result<()>,
}

const BENCHES: &[Bench] = &[
    Bench { name: "shim", options: "", page: Some("throughput"), measure: shim },
    Bench {
        name: "connect",
        options: "[--against DIRECTORY OF ANOTHER BUILD]",
        page: Some("connects"),
        measure: connect,
    },
    Bench {
        name: "encryption",
        options: "",
        page: Some("encryption"),
        measure: |lab, _, report| encryption::run(lab, &optimised::tools()?, report),
    },
    Bench {
        name: "unnamed",
        options: "",
        page: None,
        measure: |lab, _, report| unnamed::run(lab, &optimised::tools()?, report),
    },
    Bench {
        name: "race",
        options: "",
        page: None,
        measure: |lab, _, _| race::run(lab, &optimised::tools()?),
    },
    Bench {
        name: "uplinks",
        options: "[RATE]...",
        page: Some("slow-uplinks"),
        measure: |lab, words, report| uplinks::run(lab, words, &optimised::tools()?, report),
    },
    Bench {
        name: "streams",
        options: "",
        page: Some("shared-associations"),
        measure: |lab, _, report| streams::run(lab, &optimised::tools()?, report),
    },
    Bench {
        name: "connections",
        options: "",
        page: Some("memory"),
        measure: |lab, _, report| many::run(lab, &optimised::tools()?, report),
    },
    Bench {
        name: "idle",
        options: "",
        page: Some("idle-links"),
        measure: |lab, _, report| idle::run(lab, &optimised::tools()?, report),
    },
    Bench {
        name: "linkemu",
        options: "",
        page: Some("linkemu"),
        measure: |lab, _, report| linkemu::run(lab, report),
    },
    Bench {
        name: "router",
        options: "",
        page: Some("router"),
        measure: |lab, _, report| router::run(lab, report),
    },
    Bench {
        name: "sip",
        options: "[--quick]",
        page: Some("sip-proxy"),
        measure: |lab, words, report| {
            sip::run(lab, is_quick(words, report)?, &optimised::sip_tools()?, report)
        },
    },
    Bench {
        name: "sip-memory",
        options: "[--quick]",
        page: Some("sip-proxy"),
        measure: |lab, words, report| {
            sip::memory::run(lab, is_quick(words, report)?, &optimised::sip_tools()?, report)
        },
    },
    Bench {
        name: "sip-page",
        options: "[--quick]",
        page: Some("sip-proxy"),
        measure: |lab, words, report| {
            sip::page::run(lab, is_quick(words, report)?, &optimised::sip_tools()?, report)
        },
    },
    Bench {
        name: "sockets",
        options: "",
        page: Some("sockets"),
        measure: |lab, _, report| sockets::run(lab, report),
    },
    Bench {
        name: "sctp",
        options: "[--quick] [PART OF A FIGURE'S NAME]...",
        page: Some("stack"),
        measure: sctp::run,
    },
];

/// Runs `./x bench`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    match words {
        [word, rest @ ..] if word == "instructions" => instructions::run(rest),
        _ => Plan::of(words)?.run(),
    }
}

/// Returns a pair for each benchmark with a page: the page's file name, and the command that writes the benchmark's part of the page.
pub(crate) fn writers() -> Vec<(String, String)> {
    BENCHES.iter().filter_map(|bench| Some((format!("{}.md", bench.page?), bench.writer()))).collect()
}

/// Benchmarks to run, one after the other.
struct Plan<'a> {
    benches: Vec<&'static Bench>,
    /// Arguments of the only benchmark. Empty if the plan has several benchmarks.
    words: Vec<&'a String>,
    is_written: bool,
}

impl<'a> Plan<'a> {
    fn of(words: &'a [String]) -> Result<Self> {
        let is_written = words.iter().any(|word| word == WRITE);
        let words: Vec<&String> = words.iter().filter(|word| *word != WRITE).collect();
        let named = |word: &&String| BENCHES.iter().find(|bench| bench.name == **word);
        let Some(first) = words.first().and_then(named) else { bail!("{}", usage()) };
        let all: Option<Vec<&Bench>> = words.iter().map(named).collect();
        let (benches, words) = match all {
            Some(benches) => (benches, Vec::new()),
            None if first.options.is_empty() => bail!("{}", usage()),
            None => (vec![first], words[1..].to_vec()),
        };
        if is_written {
            let parts: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
            ensure!(
                parts.is_empty(),
                "only the full form is written to a page: leave out {} or {WRITE}",
                parts.join(" ")
            );
            for bench in &benches {
                ensure!(
                    bench.page.is_some(),
                    "{} has no page in docs/results: leave out {WRITE}",
                    bench.name
                );
            }
        }
        Ok(Self { benches, words, is_written })
    }

    fn run(&self) -> Result<Outcome> {
        let words: Vec<String> = self.words.iter().map(|&word| word.clone()).collect();
        if self.is_written {
            ensure!(
                std::env::var_os("SCTPIFY_BIN_DIR").is_none(),
                "the programs in SCTPIFY_BIN_DIR are not those of this commit: unset it"
            );
            // Find the parts of all pages first, so a missing part does not waste a measurement.
            self.benches.iter().try_for_each(|bench| bench.place().map(drop))?;
        }
        let mut outcome = Outcome::Good;
        for bench in &self.benches {
            let is_good = bench.run(&words, self.is_written)?;
            outcome = if is_good { outcome } else { Outcome::Bad };
        }
        Ok(outcome)
    }
}

impl Bench {
    /// Returns the command that writes the benchmark's part of its page.
    fn writer(&self) -> String {
        format!("./x bench {} {WRITE}", self.name)
    }

    /// Returns the path of the benchmark's page, if it has one.
    fn page(&self) -> Option<PathBuf> {
        Some(root().join("docs/results").join(format!("{}.md", self.page?)))
    }

    /// Finds the benchmark's part on its page.
    fn place(&self) -> Result<Option<Place>> {
        self.page().map(|page| Place::find(&page, &self.writer())).transpose()
    }

    /// Runs the benchmark in a lab, and removes the lab afterwards. Returns true if all goals are met.
    fn run(&self, words: &[String], is_written: bool) -> Result<bool> {
        let name = self.name;
        ensure!(testbed::is_root(), "making hosts needs root: run `sudo ./x bench {name}`");
        let place = if is_written { self.place()? } else { None };
        let origin = Origin::now(&root(), &self.writer());
        if is_written {
            origin.ensure_clean()?;
        }
        let (lab, mut report) = (Lab::new()?, Report::default());
        println!("bench {name}: commit {}, {}", origin.commit, origin.machine);
        (self.measure)(&lab, words, &mut report)?;
        let left = lab.clear_up();
        ensure!(left.is_empty(), "left behind: {}", left.join("; "));
        let is_good = report.verdict();
        if let Some(place) = place {
            let is_same = pages::origin::commit(&root()) == origin.commit;
            ensure!(is_same, "not written: the sources changed during the run");
            report.write(&place, origin)?;
            println!("written to {}", self.page().unwrap_or_default().display());
        }
        Ok(is_good)
    }
}

fn usage() -> String {
    let benches = BENCHES.iter().map(|bench| format!("  {} {}", bench.name, bench.options));
    let lines: Vec<String> = benches.map(|line| line.trim_end().to_owned()).collect();
    format!(
        "usage: ./x bench NAME [OPTION]..., ./x bench NAME... [{WRITE}], or ./x bench instructions [--update]\n{}",
        lines.join("\n")
    )
}

/// Reports whether the arguments after a benchmark's name request its short form. If so, marks the report as short.
fn is_quick(words: &[String], report: &mut Report) -> Result<bool> {
    match words {
        [] => Ok(false),
        [word] if word == "--quick" => {
            report.is_short();
            Ok(true)
        }
        _ => bail!("{:?} means nothing here: say --quick, or nothing", words.join(" ")),
    }
}

fn connect(lab: &Lab, words: &[String], report: &mut Report) -> Result<()> {
    match words {
        [] => {}
        [option, other] if option == "--against" => return connect_against(lab, Path::new(other), report),
        _ => bail!("{:?} means nothing here: say --against DIRECTORY, or nothing", words.join(" ")),
    }
    let tools = optimised::tools()?;
    let extra = latency::run(lab, &tools, report)?;
    let figure = "learned connect, more than plain TCP, us";
    report.judge(figure, &[extra.learned_us], Limit::AtMost(LEARNED_GOAL_US));
    let figure = "connect over SCTP, more than plain TCP, us";
    report.judge(figure, &[extra.shim_us], Limit::AtMost(SHIM_GOAL_US));
    unnamed::run(lab, &tools, report)?;
    fallback::run(lab, &tools, report)?;
    fallback::lossy(lab, &tools, report)
}

fn connect_against(lab: &Lab, other: &Path, report: &mut Report) -> Result<()> {
    let ratio = against::run(lab, &optimised::tools()?, other)?;
    report.judge("connect over SCTP, by the other build's", &[ratio], Limit::AtMost(AGAINST_GOAL_RATIO));
    report.is_short();
    Ok(())
}

fn shim(lab: &Lab, _: &[String], report: &mut Report) -> Result<()> {
    let tools = optimised::tools()?;
    bulk::run(lab, &tools, report)?;
    latency::run(lab, &tools, report).map(drop)
}

#[cfg(test)]
mod tests {
    use super::Plan;

    /// Returns the names of the planned benchmarks, the number of their arguments, and whether the results are written.
    fn plan(line: &str) -> Result<(Vec<&'static str>, usize, bool), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let plan = Plan::of(&words).map_err(|error| error.to_string())?;
        Ok((plan.benches.iter().map(|bench| bench.name).collect(), plan.words.len(), plan.is_written))
    }

    #[test]
    fn several_benchmarks_run_in_turn_and_one_may_have_arguments() {
        assert_eq!(plan("connect linkemu --write"), Ok((vec!["connect", "linkemu"], 0, true)));
        assert_eq!(plan("uplinks 5 10"), Ok((vec!["uplinks"], 2, false)));
        assert_eq!(plan("sctp --quick"), Ok((vec!["sctp"], 1, false)));
        assert!(plan("").is_err() && plan("other").is_err());
    }

    #[test]
    fn a_short_form_a_part_and_a_benchmark_without_page_are_not_written() {
        for line in ["sip --quick --write", "--write uplinks 5", "connect --against DIR --write"] {
            assert!(plan(line).is_err_and(|error| error.starts_with("only the full form")), "{line}");
        }
        assert!(plan("race --write").is_err_and(|error| error.contains("has no page")));
    }
}
