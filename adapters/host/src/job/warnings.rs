//! Warnings about the start of a job, such as a transport that is left out. Each rank publishes its own with its cards, and rank 0
//! prints each text once, with the ranks that it comes from. So a job of many ranks does not print it many times.

use std::collections::BTreeMap;

use towline_bootstrap::{Error, Job, format_ranks};

use crate::job::cards::component;

/// The component under which warnings are published.
const WARNINGS: &str = "warnings";
/// Most bytes of the warnings of a rank.
const MOST_BYTES: usize = 4096;

/// Publishes the warnings of this rank, if there are any.
pub(crate) fn publish(job: &mut Job, warnings: &[String]) -> Result<(), Error> {
    if warnings.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> = warnings.iter().map(|warning| one_line(warning)).collect();
    let mut text = lines.join("\n");
    text.truncate(text.floor_char_boundary(MOST_BYTES));
    job.publish(&component(WARNINGS), text.as_bytes())
}

/// Prints the warnings of all ranks, at rank 0. A restarted rank 0 does not print them again.
pub(crate) fn print(job: &Job) {
    if job.rank() != 0 || job.incarnation() != 1 {
        return;
    }
    let mut ranks_of: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for rank in 0..job.size() {
        let Ok(text) = job.card(&component(WARNINGS), rank) else { continue };
        let text = String::from_utf8_lossy(&text[..text.len().min(MOST_BYTES)]).into_owned();
        text.lines().for_each(|line| ranks_of.entry(one_line(line)).or_default().push(rank));
    }
    for (warning, ranks) in ranks_of {
        warn(&described(&warning, &ranks, job.size()));
    }
}

/// A warning with the ranks that it comes from.
fn described(warning: &str, ranks: &[u32], size: u32) -> String {
    match ranks {
        _ if size == 1 => warning.into(),
        all if all.len() == size as usize => format!("{warning} (all ranks)"),
        [rank] => format!("{warning} (rank {rank})"),
        ranks => format!("{warning} (ranks {})", format_ranks(ranks)),
    }
}

/// Passes a warning to the program's logger, or prints it if the program has none.
fn warn(warning: &str) {
    if log::max_level() == log::LevelFilter::Off {
        eprintln!("towline: warning: {warning}");
    } else {
        log::warn!("{warning}");
    }
}

/// The text as one line without control characters, since it may come from a peer and be printed on a terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_names_its_ranks() {
        assert_eq!(described("a", &[0], 1), "a");
        assert_eq!(described("a", &[1], 4), "a (rank 1)");
        assert_eq!(described("a", &[0, 1, 3], 4), "a (ranks 0-1,3)");
        assert_eq!(described("a", &[0, 1], 2), "a (all ranks)");
        assert_eq!(one_line("a\u{1b}[1m\nb"), "a [1m b");
    }
}
