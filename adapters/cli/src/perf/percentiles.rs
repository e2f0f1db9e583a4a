//! Percentiles of the times of single operations.

use std::fmt;
use std::str::FromStr;

use hdrhistogram::Histogram;

/// The longest time that is told apart from longer ones, in nanoseconds: a minute.
const LONGEST: u64 = 60_000_000_000;
const WORD: &str = "percentiles";

/// Times of single operations, with an error of at most 0.1 %. The memory does not grow with their number.
#[derive(Debug)]
pub struct Samples {
    histogram: Histogram<u64>,
    longest: u64,
}

impl Default for Samples {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(LONGEST, 3).expect("the bounds of the histogram are constants");
        Self { histogram, longest: 0 }
    }
}

impl Samples {
    /// Adds a time in nanoseconds.
    #[inline]
    pub fn add(&mut self, nanos: u64) {
        self.histogram.saturating_record(nanos);
        self.longest = self.longest.max(nanos);
    }

    /// The percentiles of all times that were added, which are then forgotten. `None` if there is none.
    pub fn take(&mut self) -> Option<Percentiles> {
        let count = self.histogram.len();
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.longest) as f64;
        let nanos = [at(0.5), at(0.9), at(0.99), at(0.999), self.longest as f64];
        (self.histogram, self.longest) = (Self::default().histogram, 0);
        (count != 0).then_some(Percentiles { nanos })
    }
}

/// The 50th, 90th, 99th and 99.9th percentile and the maximum, in nanoseconds. As text it is one line of words.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Percentiles {
    pub nanos: [f64; 5],
}

impl Percentiles {
    /// Names of the values, for columns and keys.
    pub const NAMES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

    /// Whether a line of a rank has percentiles, and not a repetition.
    pub fn are_in(line: &str) -> bool {
        line.starts_with(WORD)
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WORD)?;
        self.nanos.iter().try_for_each(|nanos| write!(f, " {nanos}"))
    }
}

impl FromStr for Percentiles {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("a rank printed a malformed line: `{line}`");
        let numbers = line.strip_prefix(WORD).ok_or_else(wrong)?.split_whitespace();
        let numbers: Vec<f64> = numbers.map(|word| word.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        Ok(Self { nanos: numbers.try_into().map_err(|_| wrong())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let mut samples = Samples::default();
        assert_eq!(samples.take(), None);
        (1..=10_000).for_each(|nanos| samples.add(nanos));
        samples.add(123_456_789);
        let all = samples.take().unwrap();
        for (nanos, wanted) in all.nanos.into_iter().zip([5000.0, 9000.0, 9900.0, 9990.0, 123_456_789.0]) {
            assert!((nanos - wanted).abs() <= 0.002 * wanted, "{all:?}");
        }
        assert_eq!(all.to_string().parse(), Ok(all));
        assert_eq!(samples.take(), None, "they are forgotten");
        samples.add(u64::MAX);
        assert_eq!(samples.take().unwrap().nanos[4], u64::MAX as f64);
    }

    #[test]
    fn malformed_lines_are_refused() {
        for wrong in ["percentiles", "percentiles 1 2 3 4", "percentiles 1 2 3 4 5 6", "percentiles 1 2 3 4 x", "sm"] {
            assert!(wrong.parse::<Percentiles>().is_err(), "{wrong}");
        }
    }
}
