//! The table that `towline perf` prints.

use super::affinity;
use super::figures::format_value;
use super::percentiles::Percentiles;
use super::plan::Unit;
use super::repetition::Row;

/// The lines above the rows.
pub fn header(between_hosts: bool) -> String {
    let processes = match affinity::two_processors() {
        _ if between_hosts => "two processes on two hosts; medians".to_string(),
        Some([one, other]) => format!("two processes, pinned to processors {one} and {other}; medians"),
        None => "two processes share one processor, so the figures include its switches between them; medians".into(),
    };
    format!(
        "{processes}\n{:9} {:20} {:>8} {:>11} {:>11} {:>7} {:>8}{}\n",
        "transport",
        "mode",
        "size",
        "value",
        "limit",
        "ratio",
        "bounce",
        Percentiles::NAMES.map(|name| format!(" {name:>9}")).concat()
    )
}

/// The line of a row.
pub fn row(row: &Row) -> String {
    let Row { transport, mode, size, bounce, .. } = row;
    let unit = mode.unit();
    let (value, limit) = (format_value(unit, row.value), format_value(unit, row.limit));
    let unsteady = if row.steady == 0 { "  unsteady" } else { "" };
    let (mode, size) = (mode.name(), size.to_string());
    // Percentiles of streams are in the files only, since their unit is another one.
    let times = row.percentiles.filter(|_| unit == Unit::Nanos).map_or_else(String::new, |percentiles| {
        percentiles.nanos.map(|nanos| format!(" {:>9}", format_value(unit, nanos))).concat()
    });
    let bounce = format_value(Unit::Nanos, *bounce);
    format!(
        "{transport:9} {mode:20} {size:>8} {value:>11} {limit:>11} {:>7.2} {bounce:>8}{times}{unsteady}\n",
        row.ratio()
    )
}

/// The lines below the rows: what the columns are, and which repetitions count.
pub fn footer(rows: &[Row]) -> String {
    let (tried, steady) = rows.iter().fold((0, 0), |(tried, steady), row| (tried + row.tried, steady + row.steady));
    let bounces = || rows.iter().map(|row| row.bounce);
    let (least, most) = (bounces().fold(f64::INFINITY, f64::min), bounces().fold(0.0, f64::max));
    let unsteady = rows.iter().filter(|row| row.steady == 0).count();
    let counted = if steady == 0 {
        ", since it has other work. So all values are medians of all repetitions, and are not reliable.".to_string()
    } else if unsteady == 0 {
        "; values, limits and bounces are medians of these only.".to_string()
    } else {
        format!(
            "; values, limits and bounces are medians of these only.\nIn {unsteady} of {} measurements, marked as unsteady, the \
             machine was never steady, since it has other work. There the medians are of all repetitions, and are not reliable.",
            rows.len()
        )
    };
    format!(
        "\nlatency is half a round trip; ratio is value / limit; bounce is half a round trip of a cache line (between hosts, of \
         one byte) without Towline.\n\
         bounce: {least:.0} to {most:.0} ns; the machine was steady in {steady} of {tried} repetitions{counted}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Mode, Size};
    use super::*;

    fn measured(mode: Mode, value: f64, steady: usize) -> Row {
        Row {
            transport: "sm".into(),
            mode,
            size: Size(8),
            value,
            limit: value * 2.0,
            bounce: 60.0,
            steady,
            tried: 3,
            percentiles: None,
        }
    }

    #[test]
    fn the_footer_says_which_repetitions_count() {
        let of = |steady: &[usize]| {
            footer(&steady.iter().map(|steady| measured(Mode::Latency, 90.0, *steady)).collect::<Vec<_>>())
        };
        let all = of(&[3, 2]);
        assert!(all.contains("steady in 5 of 6 repetitions; values") && all.contains("of these only"), "{all}");
        assert!(!all.contains("all repetitions"), "{all}");
        let some = of(&[2, 0]);
        assert!(some.contains("steady in 2 of 6 repetitions; values") && some.contains("of these only"), "{some}");
        assert!(some.contains("In 1 of 2 measurements") && some.contains("There the medians are of all"), "{some}");
        let none = of(&[0]);
        assert!(none.contains("steady in 0 of 3 repetitions, since it has other work"), "{none}");
        assert!(none.contains("medians of all repetitions") && !none.contains("these only"), "{none}");
    }

    #[test]
    fn a_small_stream_shows_its_digits() {
        let line = row(&measured(Mode::Bandwidth, 0.00046, 0));
        assert!(line.contains("460 kB/s    920 kB/s    0.50") && line.ends_with("  unsteady\n"), "{line}");
        assert_eq!(header(true).lines().count(), 2);
    }
}
