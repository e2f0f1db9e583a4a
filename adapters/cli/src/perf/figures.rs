//! Figures as people read them, with a suitable unit.

use super::plan::Unit;

/// The units of a kind of value, from the largest, each as a multiple of the unit in which values are kept.
const fn scales(unit: Unit) -> &'static [(f64, &'static str)] {
    match unit {
        Unit::Nanos => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
        Unit::Gigabytes => &[(1.0, "GB/s"), (1e-3, "MB/s"), (1e-6, "kB/s"), (1e-9, "B/s")],
        Unit::Messages | Unit::Operations => &[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")],
    }
}

/// A value as a multiple of the largest unit that is not above it, and that unit.
fn scaled(unit: Unit, value: f64) -> (f64, &'static str) {
    let scales = scales(unit);
    // 999.7 MB/s with three digits are 1.00 GB/s.
    let fits = scales.iter().find(|(scale, _)| value >= 0.9995 * scale);
    let (scale, name) = fits.unwrap_or(&scales[scales.len() - 1]);
    (value / scale, name)
}

/// A value: a time with one digit after the point, anything else with three significant digits.
pub fn format_value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Nanos if value < 10_000.0 => format!("{value:.1} ns"),
        Unit::Nanos => format!("{:.1} us", value / 1e3),
        _ => {
            let (value, name) = scaled(unit, value);
            let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
            format!("{value:.digits$} {name}")
        }
    }
}

/// The label of a tick. Numbers of ticks have few digits.
pub fn tick(unit: Unit, value: f64) -> String {
    let (value, name) = scaled(unit, value);
    format!("{} {name}", (value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_three_digits_and_a_unit_that_fits() {
        let bandwidths = [23.456, 1.0, 0.999_7, 0.999_4, 0.012_34, 0.000_046, 0.000_001, 2.5e-9, 0.0, 1234.5];
        assert_eq!(
            bandwidths.map(|value| format_value(Unit::Gigabytes, value)),
            [
                "23.5 GB/s",
                "1.00 GB/s",
                "1.00 GB/s",
                "999 MB/s",
                "12.3 MB/s",
                "46.0 kB/s",
                "1.00 kB/s",
                "2.50 B/s",
                "0.00 B/s",
                "1234 GB/s"
            ]
        );
        let rates = [2e7, 1_234_567.0, 4321.0, 12.0].map(|value| format_value(Unit::Messages, value));
        assert_eq!(rates, ["20.0 M/s", "1.23 M/s", "4.32 k/s", "12.0 /s"]);
        assert_eq!([90.0, 12_345.0].map(|nanos| format_value(Unit::Nanos, nanos)), ["90.0 ns", "12.3 us"]);
    }

    #[test]
    fn ticks_have_the_digits_that_they_need() {
        assert_eq!(
            [1.2, 300.0, 1e3, 3e6, 1e9].map(|nanos| tick(Unit::Nanos, nanos)),
            ["1.2 ns", "300 ns", "1 us", "3 ms", "1 s"]
        );
        let bandwidths = [3.0 * 10f64.powi(-5), 10f64.powi(-3), 10.0].map(|value| tick(Unit::Gigabytes, value));
        assert_eq!(bandwidths, ["30 kB/s", "1 MB/s", "10 GB/s"]);
        assert_eq!([1.5e7, 3e4, 0.5].map(|value| tick(Unit::Operations, value)), ["15 M/s", "30 k/s", "0.5 /s"]);
    }
}
