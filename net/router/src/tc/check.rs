//! Compares the existing classes, rates, leaves and filters with the requested ones.

use std::collections::BTreeMap;

use crate::error::RouterError;
use crate::tc::counted::{minor, parse};
use crate::tc::kernel::Found;
use crate::tc::plan::{MAJOR, Plan};
use crate::tc::program::bytecode;

/// Limit on reported differences.
const TOLD_MAX: usize = 32;

/// Compares the found classes, leaves and filters with the plan.
///
/// # Errors
/// [`RouterError::Differs`] with the differences.
pub(crate) fn check(plan: &Plan, found: &Found) -> Result<(), RouterError> {
    let mut differences = classes(plan, found);
    differences.extend(queues(plan, found));
    differences.extend(filters(plan, found));
    if differences.is_empty() {
        return Ok(());
    }
    let more = differences.len().saturating_sub(TOLD_MAX);
    differences.truncate(TOLD_MAX);
    if more > 0 {
        differences.push(format!("and {more} more"));
    }
    Err(RouterError::Differs { interface: found.interface.clone(), differences })
}

/// Reports whether two rates are about equal. The kernel keeps rates in whole bytes per second, and `tc` prints few digits.
fn is_about(printed: u64, asked: u64) -> bool {
    printed.abs_diff(asked) <= 8 + asked / 100
}

fn classes(plan: &Plan, found: &Found) -> Vec<String> {
    let mut there = parse(&found.classes);
    let mut differences = Vec::new();
    for class in plan.classes() {
        let name = format!("class {MAJOR:x}:{:x}", class.minor);
        match there.remove(&class.minor) {
            None => differences.push(format!("{name} is missing")),
            Some(it) if it.parent != class.parent => differences.push(format!("{name} has another parent")),
            Some(it) if !is_about(it.rate, class.rate) || !is_about(it.ceil, class.ceil) => {
                let rates = [it.rate, it.ceil, class.rate, class.ceil].map(netem::rate_text);
                let [rate, ceil, asked_rate, asked_ceil] = rates;
                differences.push(format!(
                    "{name} has rate {rate}, ceil {ceil}, not rate {asked_rate}, ceil {asked_ceil}"
                ));
            }
            Some(_) => {}
        }
    }
    differences.extend(there.keys().map(|minor| format!("class {MAJOR:x}:{minor:x} was not requested")));
    differences
}

/// Compares the kinds of the leaves, and the class for packets that no filter matches, with the plan.
fn queues(plan: &Plan, found: &Found) -> Vec<String> {
    let kinds: BTreeMap<u32, &str> = found
        .queues
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|queue| Some((minor(queue["parent"].as_str()?)?, queue["kind"].as_str()?)))
        .collect();
    let wrong = |(minor, kind): (u32, &str)| {
        let there = kinds.get(&minor).copied().unwrap_or("no queue");
        (there != kind).then(|| format!("class {MAJOR:x}:{minor:x} has {there}, not {kind}"))
    };
    let mut differences: Vec<String> = plan.queue_kinds().into_iter().filter_map(wrong).collect();
    let root = found.queues.as_array().into_iter().flatten().find(|queue| queue["root"] == true);
    let default = root.and_then(|root| root["options"]["default"].as_str());
    if default != Some(&format!("{:#x}", plan.default_class())) {
        differences.push(format!("unclassified packets go to {}", default.unwrap_or("no class")));
    }
    differences
}

fn filters(plan: &Plan, found: &Found) -> Vec<String> {
    let mut differences = Vec::new();
    for (parent, text) in &found.filters {
        let there: Vec<String> = text.lines().filter_map(program).collect();
        let asked: Vec<String> = plan
            .programs()
            .into_iter()
            .filter(|(at, ..)| at == parent)
            .map(|(_, priority, instructions)| format!("{priority} {}", bytecode(&instructions)))
            .collect();
        if there != asked {
            differences.push(format!(
                "the BPF programs at {MAJOR:x}:{parent:x} are different ({} there, not {})",
                there.len(),
                asked.len()
            ));
        }
        let mut places: Vec<(u8, u32)> = text.lines().filter_map(place).collect();
        places.sort_unstable();
        let asked = if *parent == 0 { plan.places() } else { Vec::new() };
        if places != asked {
            differences.push(format!(
                "the u32 table at {MAJOR:x}:{parent:x} is different ({} buckets, not {})",
                places.len(),
                asked.len()
            ));
        }
    }
    differences
}

fn after<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    // `tc` puts a star before the key of a class that exists.
    line.split_whitespace().skip_while(|word| word.trim_start_matches('*') != key).nth(1)
}

/// Returns the priority and the instructions of a BPF filter.
fn program(line: &str) -> Option<String> {
    let (_, bytecode) = line.split_once("bytecode '")?;
    Some(format!("{} {}", after(line, "pref")?, bytecode.split_once('\'')?.0))
}

/// Returns an entry of u32 table 2: a value of the chunk's flags, and its class.
fn place(line: &str) -> Option<(u8, u32)> {
    (after(line, "ht")? == "2").then_some(())?;
    let value = u8::from_str_radix(after(line, "bkt")?, 16).ok()?;
    Some((value, minor(after(line, "flowid")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_as_tc_prints_them() {
        let bpf = "filter protocol all pref 10 bpf chain 0 handle 0x1 not_in_hw bytecode '2,48 0 0 4293918720,6 0 0 0' ";
        assert_eq!(program(bpf).unwrap(), "10 2,48 0 0 4293918720,6 0 0 0");
        let u32 = "filter protocol ip pref 10 u32 chain 0 fh 2:a:800 order 2048 key ht 2 bkt a *flowid 5ba:20 not_in_hw ";
        assert_eq!((place(u32), program(u32), place(bpf)), (Some((10, 0x20)), None, None));
    }
}
