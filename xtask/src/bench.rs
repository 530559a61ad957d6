//! `./x bench shim` and [`./x bench sctp`](sctp).
//!
//! [`linkemu`]: accuracy of the link emulator. [`router`]: packets per second through our own router.
//! [`streams`]: connections that share an association, compared with plain TCP and with separate associations.
//! `shim`: one bulk TCP stream through the shim, compared with plain TCP and with usrsctp, on the same link in
//! one run, with the link's offloads and without (there also with bbr as the programs' TCP control), and on a
//! slow link; then connect latency through the shim compared with plain TCP. `connect`: that alone, [`unnamed`]
//! (also by itself) and [`fallback`]; with `--against DIR`, [`against`]. [`race`]: SCTP first, compared with
//! both at once. [`many`] (`connections`): a daemon with many connections. [`uplinks`]: processor time at the rates of uplinks, and
//! keystrokes.
//! [`sip`]: our SIP proxy compared with Kamailio; [`sip::memory`] (`sip-memory`): its memory; [`sip::page`]
//! (`sip-page`): its page.
//!
//! Absolute figures from a shared machine mean little: compare the ratios, which come from one run. The exit
//! status is 0 only when all printed goals are met.

mod against;
mod bulk;
mod fallback;
pub(crate) mod instructions;
mod latency;
mod linkemu;
mod many;
mod race;
mod router;
mod sctp;
mod sip;
mod stats;
mod streams;
mod unnamed;
mod uplinks;

use crate::tools::output;
use crate::{Outcome, optimised};
use anyhow::{Result, bail, ensure};
use std::path::Path;
use std::process::Command;
use testbed::Lab;
use testbed::pair::Tools;

/// Limit on the extra time of a connect to a server learned to have no SCTP, compared with plain TCP, in
/// microseconds.
const LEARNED_GOAL_US: f64 = 100.0;
/// Limit on the extra time of a connect over SCTP, compared with plain TCP, in microseconds.
const SHIM_GOAL_US: f64 = 150.0;
/// Limit on the time of a connect over SCTP, as a multiple of that by another build.
const AGAINST_GOAL_RATIO: f64 = 1.03;
/// Limit on the time of a connect without a matching rule, as a multiple of the time without a daemon.
const UNNAMED_GOAL_RATIO: f64 = 1.25;
/// Limit on the daemon's processor time for it, in microseconds.
const UNNAMED_GOAL_CPU_US: f64 = 1.0;
/// Limit on fallbacks of first contacts over a link that loses ten percent each way, in percent.
const LOSSY_GOAL_PERCENT: f64 = 0.5;
/// Limit on the time of the first connect to a host that drops SCTP, beyond the race timer, in milliseconds.
const SILENT_GOAL_MS: f64 = 5.0;

/// `./x bench`.
pub(crate) fn run(words: &[String]) -> Result<Outcome> {
    match words {
        [word] if word == "shim" => in_lab(word, shim),
        [word] if word == "connect" => in_lab(word, connect),
        [word, option, other] if word == "connect" && option == "--against" => {
            in_lab(word, |lab| connect_against(lab, Path::new(other)))
        }
        [word] if word == "unnamed" => in_lab(word, |lab| unnamed(lab, &optimised::tools()?)),
        [word] if word == "streams" => in_lab(word, |lab| streams::run(lab, &optimised::tools()?)),
        [word, rest @ ..] if word == "uplinks" => {
            in_lab(word, |lab| uplinks::run(lab, rest, &optimised::tools()?))
        }
        [word] if word == "linkemu" => in_lab(word, linkemu::run),
        [word] if word == "router" => in_lab(word, router::run),
        [word] if word == "race" => in_lab(word, |lab| race::run(lab, &optimised::tools()?)),
        [word] if word == "connections" => in_lab(word, |lab| many::run(lab, &optimised::tools()?)),
        [word, rest @ ..] if word == "instructions" => instructions::run(rest),
        [word, rest @ ..] if word == "sctp" => in_lab(word, |lab| sctp::run(lab, rest)),
        [word, rest @ ..] if word == "sip" => {
            in_lab(word, |lab| sip::run(lab, is_quick(rest)?, &optimised::sip_tools()?))
        }
        [word, rest @ ..] if word == "sip-memory" => {
            in_lab(word, |lab| sip::memory::run(lab, is_quick(rest)?, &optimised::sip_tools()?))
        }
        [word, rest @ ..] if word == "sip-page" => {
            in_lab(word, |lab| sip::page::run(lab, is_quick(rest)?, &optimised::sip_tools()?))
        }
        _ => bail!(
            "usage: ./x bench shim | connect [--against DIRECTORY OF ANOTHER BUILD] | unnamed | race | uplinks [RATE]... | streams | connections | linkemu | router | instructions [--update] | sip [--quick] | sip-memory [--quick] | sip-page [--quick] | sctp [--quick] [PART OF A FIGURE'S NAME]..."
        ),
    }
}

/// Reports whether the arguments after a benchmark's name request its short form.
fn is_quick(words: &[String]) -> Result<bool> {
    match words {
        [] => Ok(false),
        [word] if word == "--quick" => Ok(true),
        _ => bail!("unknown argument {:?}: expected --quick or nothing", words.join(" ")),
    }
}

/// Runs a benchmark in a lab, and cleans the lab up afterwards; `work` returns whether all goals are met.
fn in_lab(name: &str, work: impl FnOnce(&Lab) -> Result<bool>) -> Result<Outcome> {
    ensure!(testbed::is_root(), "creating hosts requires root: run `sudo ./x bench {name}`");
    let lab = Lab::new()?;
    println!("bench: {}", machine());
    let is_good = work(&lab)?;
    let left = lab.clear_up();
    ensure!(left.is_empty(), "left behind: {}", left.join("; "));
    Ok(if is_good { Outcome::Good } else { Outcome::Bad })
}

fn connect(lab: &Lab) -> Result<bool> {
    let tools = optimised::tools()?;
    let extra = latency::run(lab, &tools)?;
    let is_unnamed_free = unnamed(lab, &tools)?;
    let silent_ms = fallback::run(lab, &tools)?;
    let lost_percent = fallback::lossy(lab, &tools)?;
    println!("learned: {:.0} us more than plain TCP; the goal is {LEARNED_GOAL_US}", extra.learned_us);
    println!("shim: {:.0} us more than plain TCP; the goal is {SHIM_GOAL_US}", extra.shim_us);
    println!("silent: {silent_ms:.1} ms more than the race timer; the goal is {SILENT_GOAL_MS}");
    println!("lossy: {lost_percent:.1} % fall back; the goal is {LOSSY_GOAL_PERCENT}");
    let is_quick = extra.learned_us <= LEARNED_GOAL_US && extra.shim_us <= SHIM_GOAL_US;
    Ok(is_quick && is_unnamed_free && silent_ms <= SILENT_GOAL_MS && lost_percent <= LOSSY_GOAL_PERCENT)
}

fn connect_against(lab: &Lab, other: &Path) -> Result<bool> {
    let ratio = against::run(lab, &optimised::tools()?, other)?;
    println!("connect: {ratio:.3} x the other build; the goal is {AGAINST_GOAL_RATIO}");
    Ok(ratio <= AGAINST_GOAL_RATIO)
}

fn unnamed(lab: &Lab, tools: &Tools) -> Result<bool> {
    let cost = unnamed::run(lab, tools)?;
    println!(
        "unnamed: {:.2} x no daemon, {:.1} us of its processor time; the goals are {UNNAMED_GOAL_RATIO} and {UNNAMED_GOAL_CPU_US}",
        cost.ratio, cost.cpu_us
    );
    Ok(cost.ratio <= UNNAMED_GOAL_RATIO && cost.cpu_us <= UNNAMED_GOAL_CPU_US)
}

fn shim(lab: &Lab) -> Result<bool> {
    let tools = optimised::tools()?;
    let is_good = bulk::run(lab, &tools)?;
    latency::run(lab, &tools)?;
    Ok(is_good)
}

/// Returns the context of the figures: commit, kernel, processors.
fn machine() -> String {
    let said = |program: &str, args: &[&str]| {
        let text = output(Command::new(program).args(args).current_dir(crate::tools::root()));
        text.map_or("unknown".to_owned(), |text| text.trim().to_owned())
    };
    let commit = said("git", &["rev-parse", "--short", "HEAD"]);
    format!("commit {commit}, Linux {}, {} processors", said("uname", &["-r"]), said("nproc", &[]))
}
