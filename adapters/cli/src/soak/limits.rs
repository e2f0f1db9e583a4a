//! Options that cannot work together, or not on this machine.

use super::job::Setting;
use crate::transports;

/// How often a rank has a message at the same time: it sends one and receives one, and compares what it has received with the
/// bytes that it expects.
const COPIES: u64 = 3;

/// Checks the options of jobs.
///
/// # Errors
/// The text for options that cannot work.
pub fn check(setting: &Setting) -> Result<(), String> {
    let ignored = transports::ignored_links(&[&setting.transport], setting.links);
    ignored.map_or(Ok(()), Err)?;
    memory().map_or(Ok(()), |memory| fits(setting, memory))
}

/// Checks whether the longest message fits into this memory, in bytes.
fn fits(setting: &Setting, memory: u64) -> Result<(), String> {
    let Setting { ranks, most, .. } = *setting;
    let possible = memory / (u64::from(ranks) * COPIES);
    if most <= possible {
        return Ok(());
    }
    Err(format!(
        "--most {most}: each of {ranks} ranks has to hold {COPIES} copies of a message at the same time, and this machine has \
         {memory} bytes of memory; possible: 0 to {possible}, or fewer ranks (--ranks)"
    ))
}

/// The bytes of memory of this machine, as far as they are known.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = total.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(transport: &str, links: u32, most: u64) -> Setting {
        Setting { transport: transport.into(), ranks: 4, links, most, through: None }
    }

    #[test]
    fn a_message_fits_into_the_memory_of_all_ranks() {
        assert!(memory().is_none_or(|memory| memory > 1 << 20));
        assert_eq!(fits(&setting("sm", 1, 100), 1200), Ok(()));
        let why = fits(&setting("sm", 1, 101), 1200).unwrap_err();
        assert!(why.contains("--most 101") && why.contains("possible: 0 to 100"), "{why}");
    }

    #[test]
    fn several_links_need_a_transport_with_links() {
        for (transport, links, works) in [("sm", 1, true), ("sm", 2, false), ("tcp", 3, true), ("udp", 2, true)] {
            assert_eq!(check(&setting(transport, links, 100)).is_ok(), works, "{transport} {links}");
        }
    }
}
