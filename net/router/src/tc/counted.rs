//! Counters of each class, from the output of `tc`.

use std::collections::BTreeMap;

use crate::tc::kernel::Found;
use crate::tc::plan::{HASHED, MAJOR, first_hashed, tens};

/// Counters of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Guaranteed rate, in bit/s.
    pub rate: u64,
    /// Ceiling of the rate, in bit/s.
    pub ceil: u64,
    /// Bytes forwarded, including link headers.
    pub bytes: u64,
    /// Packets forwarded.
    pub packets: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets in the queue.
    pub waiting: u64,
    /// Minor number of the parent; 0 is the root.
    pub parent: u32,
}

/// Parses the output of `tc -s class show`. Returns all classes by their minor number.
pub(crate) fn parse(text: &str) -> BTreeMap<u32, Counted> {
    let mut classes = BTreeMap::new();
    let mut last = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["class", "htb", id, rest @ ..] = &words[..] {
            last = minor(id);
            if let Some(minor) = last {
                classes.insert(minor, class(rest));
            }
        } else if let Some(class) = last.and_then(|minor| classes.get_mut(&minor)) {
            count(class, &words);
        }
    }
    classes
}

/// Returns the minor number of an ID such as `5ba:10`; `None` for another major number.
pub(crate) fn minor(id: &str) -> Option<u32> {
    let (major, minor) = id.split_once(':')?;
    (u32::from_str_radix(major, 16) == Ok(MAJOR)).then(|| u32::from_str_radix(minor, 16).ok())?
}

fn after<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1)).copied()
}

fn class(words: &[&str]) -> Counted {
    let rate = |key| after(words, key).and_then(|text| netem::parse_rate(&text.to_lowercase()).ok());
    Counted {
        rate: rate("rate").unwrap_or_default(),
        ceil: rate("ceil").unwrap_or_default(),
        parent: after(words, "parent").and_then(minor).unwrap_or_default(),
        ..Counted::default()
    }
}

fn count(class: &mut Counted, words: &[&str]) {
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
    match words {
        ["Sent", bytes, "bytes", packets, ..] => {
            (class.bytes, class.packets) = (number(bytes), number(packets));
            class.dropped = after(words, "(dropped").map_or(0, number);
        }
        ["backlog", _, packets, ..] => class.waiting = number(packets),
        _ => {}
    }
}

/// Returns the counters of the eleven classes. The counters of a class include the drops and the backlog of its hashed leaves.
pub(crate) fn of(found: &Found) -> BTreeMap<u32, Counted> {
    let all = parse(&found.classes);
    let whole = |minor: u32| {
        let mut class = all.get(&minor).copied().unwrap_or_default();
        for (_, leaf) in all.range(first_hashed(minor)..first_hashed(minor) + HASHED) {
            class.dropped += leaf.dropped;
            class.waiting += leaf.waiting;
        }
        (minor, class)
    };
    tens().map(|(minor, _)| whole(minor)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tc::plan::WHOLE;

    const TOLD: &str = "class htb 5ba:10 parent 5ba:fff leaf 5010: prio 1 rate 1785Kbit ceil 100Mbit burst 1599b cburst 1600b \n \
        Sent 86 bytes 2 pkt (dropped 3, overlimits 0 requeues 0) \n backlog 12Kb 8p requeues 0\n lended: 1 borrowed: 0 giants: 0\n\
        class htb 5ba:fff root rate 100Mbit ceil 100Mbit burst 1600b cburst 1600b \n Sent 99 bytes 1 pkt (dropped 0, overlimits 0 requeues 0) \n";

    #[test]
    fn classes_are_read_with_rates_and_counts() {
        let classes = parse(TOLD);
        let class = Counted {
            rate: 1_785_000,
            ceil: 100_000_000,
            bytes: 86,
            packets: 2,
            dropped: 3,
            waiting: 8,
            parent: WHOLE,
        };
        assert_eq!(classes[&0x10], class);
        assert_eq!((classes[&WHOLE].parent, classes[&WHOLE].packets), (0, 1));
        assert_eq!(parse("class htb 1:10 root rate 1Mbit\n Sent 1 bytes 1 pkt (dropped 0,"), BTreeMap::new());
    }
}
