//! Warnings about the start of a job, such as a transport that is left out. Each rank publishes its own with its cards, and rank 0
//! prints each once, with the ranks that it comes from. So a job of many ranks does not print it many times.

use std::collections::BTreeMap;

use towline_bootstrap::{Error, Job, format_ranks};

use crate::job::cards::component;
use crate::settings::warn::warn;

/// The component under which warnings are published.
const WARNINGS: &str = "warnings";
/// Most bytes of the warnings of a rank.
const MOST_BYTES: usize = 4096;
/// Separates what happened from its details.
const SEPARATOR: char = '\t';

/// A warning of a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Warning {
    /// What happened, in words that are the same at all ranks to which it happened.
    what: String,
    /// The details, which may differ between ranks. Those of the first rank are printed.
    details: String,
}

impl Warning {
    /// Control characters become spaces, since the text may come from a peer and be printed on a terminal.
    pub fn new(what: &str, details: &str) -> Self {
        let plain = |text: &str| text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        Self { what: plain(what), details: plain(details) }
    }

    /// The warning with the ranks, of `size`, that it comes from.
    fn with_ranks(&self, ranks: &[u32], size: u32) -> String {
        let Self { what, details } = self;
        match ranks {
            _ if size == 1 => format!("{what}: {details}"),
            all if all.len() == size as usize => format!("{what} (all ranks): {details}"),
            [rank] => format!("{what} (rank {rank}): {details}"),
            ranks => format!("{what} (ranks {}): {details}", format_ranks(ranks)),
        }
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.with_ranks(&[], 1))
    }
}

/// Publishes the warnings of this rank, if there are any.
pub(crate) fn publish(job: &mut Job, warnings: &[Warning]) -> Result<(), Error> {
    if warnings.is_empty() {
        return Ok(());
    }
    let line = |Warning { what, details }: &Warning| format!("{what}{SEPARATOR}{details}\n");
    let mut text: String = warnings.iter().map(line).collect();
    text.truncate(text.floor_char_boundary(MOST_BYTES));
    job.publish(&component(WARNINGS), text.as_bytes())
}

/// Whether some rank has published a warning that this happened.
pub(crate) fn contain(job: &Job, what: &str) -> bool {
    let texts = (0..job.size()).filter_map(|rank| job.card(&component(WARNINGS), rank).ok());
    let is_it =
        |line: &[u8]| line.strip_prefix(what.as_bytes()).is_some_and(|rest| rest.starts_with(&[SEPARATOR as u8]));
    texts.flat_map(|text| text.split(|byte| *byte == b'\n')).any(is_it)
}

/// Prints the warnings of all ranks, at rank 0. A restarted rank 0 does not print them again.
pub(crate) fn print(job: &Job) {
    if job.rank() != 0 || job.incarnation() != 1 {
        return;
    }
    let mut all = Gathered::default();
    for rank in 0..job.size() {
        if let Ok(text) = job.card(&component(WARNINGS), rank) {
            all.add(rank, text);
        }
    }
    all.texts(job.size()).iter().for_each(|text| warn(text));
}

/// The warnings of several ranks: for each kind, the first one and the ranks.
#[derive(Default)]
struct Gathered(BTreeMap<String, (Warning, Vec<u32>)>);

impl Gathered {
    /// Adds what a rank has published. Ranks are added in rising order.
    fn add(&mut self, rank: u32, text: &[u8]) {
        let text = String::from_utf8_lossy(&text[..text.len().min(MOST_BYTES)]);
        for (what, details) in text.lines().filter_map(|line| line.split_once(SEPARATOR)) {
            let warning = Warning::new(what, details);
            let ranks = &mut self.0.entry(warning.what.clone()).or_insert_with(|| (warning, Vec::new())).1;
            if ranks.last() != Some(&rank) {
                ranks.push(rank);
            }
        }
    }

    fn texts(&self, size: u32) -> Vec<String> {
        self.0.values().map(|(warning, ranks)| warning.with_ranks(ranks, size)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_several_ranks_is_one_text_with_the_ranks_and_the_first_details() {
        let mut all = Gathered::default();
        for (rank, text) in [(0, "a\tone\nb\t\n"), (1, "a\ttwo\n"), (2, ""), (3, "a\tthree\na\tfour\n"), (4, "cut off")]
        {
            all.add(rank, text.as_bytes());
        }
        assert_eq!(all.texts(5), ["a (ranks 0-1,3): one", "b (rank 0): "]);
        let mut both = Gathered::default();
        both.add(0, b"a\tone");
        assert_eq!(both.texts(1), ["a: one"]);
        both.add(1, b"a\t\x1b[1m\xff");
        assert_eq!(both.texts(2), ["a (all ranks): one"]);
        assert_eq!(Warning::new("a\n", "\u{1b}[1m").to_string(), "a :  [1m");
    }
}
