//! Parts of texts.

use towline_net::counted;

/// What a number of ranks does, such as `1 rank takes` or `2 ranks take`.
pub fn act(ranks: u64, verb: &str) -> String {
    format!("{} {verb}{}", counted(ranks, "rank"), if ranks == 1 { "s" } else { "" })
}

/// A number of bytes for people.
pub fn bytes(count: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| count >> shift != 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", count as f64 / (1u64 << shift) as f64),
        None => format!("{count} B"),
    }
}
