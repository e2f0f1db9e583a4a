//! One repetition of a measurement, as the ranks report it, and the summary of many.

use std::fmt;
use std::str::FromStr;

use super::percentiles::Percentiles;
use super::plan::{Mode, Size};

/// Largest relative difference between the bounces before and after a repetition. If they differ more, the machine has
/// changed its state.
const STEADY: f64 = 0.10;

/// A value and its limit, both measured between two bounces. As text it is one line of words.
#[derive(Clone, PartialEq, Debug)]
pub struct Repetition {
    /// The transport that was measured.
    pub transport: String,
    /// The kind of measurement.
    pub mode: Mode,
    /// Size of the messages.
    pub size: Size,
    /// The measured value, in the mode's unit.
    pub value: f64,
    /// The limit, measured without Towline, in the same unit.
    pub limit: f64,
    /// The bounce before and after, in nanoseconds.
    pub bounces: [f64; 2],
}

impl Repetition {
    /// Whether the machine was steady.
    pub fn is_steady(&self) -> bool {
        let [before, after] = self.bounces;
        (before - after).abs() <= STEADY * before.min(after)
    }
}

impl fmt::Display for Repetition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self { transport, mode, size, value, limit, .. }, [before, after]) = (self, self.bounces);
        write!(f, "{transport} {mode} {} {value:.6e} {limit:.6e} {before:.1} {after:.1}", size.0)
    }
}

impl FromStr for Repetition {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("a rank printed a malformed line: `{line}`");
        let words: Vec<_> = line.split_whitespace().collect();
        let [transport, mode, bytes, numbers @ ..] = &words[..] else { return Err(wrong()) };
        let numbers: Vec<f64> = numbers.iter().map_while(|number| number.parse().ok()).collect();
        let [value, limit, before, after] = numbers[..] else { return Err(wrong()) };
        Ok(Self {
            transport: (*transport).into(),
            mode: mode.parse().map_err(|_| wrong())?,
            size: bytes.parse().map_err(|_| wrong())?,
            value,
            limit,
            bounces: [before, after],
        })
    }
}

/// The summary of the repetitions of one measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The transport that was measured.
    pub transport: String,
    /// The kind of measurement.
    pub mode: Mode,
    /// Size of the messages.
    pub size: Size,
    /// Median value, in the mode's unit.
    pub value: f64,
    /// Median limit, in the same unit.
    pub limit: f64,
    /// Median bounce, in nanoseconds.
    pub bounce: f64,
    /// Number of steady repetitions, which count. If there was none, the medians are those of all repetitions.
    pub steady: usize,
    /// Number of repetitions in total.
    pub tried: usize,
    /// Times of single operations in all repetitions: half a round trip, a one-sided operation, or for a stream a message,
    /// on average over each window.
    pub percentiles: Option<Percentiles>,
}

impl Row {
    /// Summarizes repetitions of one measurement. `None` if there is none.
    pub fn of(all: &[Repetition]) -> Option<Self> {
        let first = all.first()?;
        let steady: Vec<_> = all.iter().filter(|repetition| repetition.is_steady()).collect();
        let count = if steady.is_empty() { all.iter().collect() } else { steady.clone() };
        let middle = |of: &dyn Fn(&Repetition) -> f64| median(count.iter().map(|repetition| of(repetition)).collect());
        Some(Self {
            transport: first.transport.clone(),
            mode: first.mode,
            size: first.size,
            value: middle(&|repetition| repetition.value),
            limit: middle(&|repetition| repetition.limit),
            bounce: middle(&|repetition| repetition.bounces.iter().sum::<f64>() / 2.0),
            steady: steady.len(),
            tried: all.len(),
            percentiles: None,
        })
    }

    /// The value as a multiple of the limit.
    pub fn ratio(&self) -> f64 {
        self.value / self.limit
    }

    /// The line of `--json`.
    pub fn json(&self) -> String {
        let Self { transport, mode, steady, tried, .. } = self;
        let (value, limit, ratio) = (digits(self.value), digits(self.limit), digits(self.ratio()));
        let times: String = self.times().map(|(name, nanos)| format!(r#","{name}":{nanos}"#)).collect();
        format!(
            r#"{{"transport":"{transport}","mode":"{mode}","bytes":{},"value":{value},"unit":"{}","limit":{limit},"ratio":{ratio}{times},"bounce_ns":{},"steady":{steady},"repetitions":{tried}}}"#,
            self.size.0,
            mode.unit().name(),
            digits(self.bounce),
        )
    }

    /// The first line of `--csv`.
    pub fn csv_header() -> String {
        let times = Percentiles::NAMES.map(|name| format!(",{}", key(name))).concat();
        format!("transport,mode,bytes,value,unit,limit,ratio{times},bounce_ns,steady,repetitions")
    }

    /// The line of `--csv`. No field needs quotes.
    pub fn csv(&self) -> String {
        let Self { transport, mode, size, bounce, steady, tried, .. } = self;
        let (value, limit, ratio) = (digits(self.value), digits(self.limit), digits(self.ratio()));
        let times: String = self.times().map(|(_, nanos)| format!(",{nanos}")).collect();
        let unit = mode.unit().name();
        format!(
            "{transport},{mode},{},{value},{unit},{limit},{ratio}{times},{},{steady},{tried}",
            size.0,
            digits(*bounce)
        )
    }

    /// The percentiles with their keys.
    fn times(&self) -> impl Iterator<Item = (String, String)> {
        let nanos = self.percentiles.map_or([f64::NAN; 5], |percentiles| percentiles.nanos);
        Percentiles::NAMES.into_iter().zip(nanos).map(|(name, nanos)| (key(name), digits(nanos)))
    }
}

/// The key of a percentile in files, such as `p999_ns` for `p99.9`.
fn key(name: &str) -> String {
    format!("{}_ns", name.replace('.', ""))
}

/// Formats a number with six significant digits.
fn digits(number: f64) -> String {
    if !number.is_finite() {
        return "null".into();
    }
    let before = number.abs().max(1e-9).log10().floor() as i32 + 1;
    format!("{number:.*}", usize::try_from(6 - before).unwrap_or(0))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repetition(value: f64, bounces: [f64; 2]) -> Repetition {
        Repetition { transport: "sm".into(), mode: Mode::Latency, size: Size(8), value, limit: 50.0, bounces }
    }

    #[test]
    fn a_repetition_is_parsed_back_from_its_line() {
        let one = repetition(91.25, [58.1, 60.0]);
        assert_eq!(one.to_string().parse(), Ok(one));
        for wrong in ["", "sm latency 8", "sm speed 8 1 2 3 4", "sm latency 8 1 2 3 x", "sm latency 8 1 2 3 4 5"] {
            assert!(wrong.parse::<Repetition>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_steady_repetitions_count_unless_there_is_none() {
        let (calm, wild) = (repetition(100.0, [60.0, 62.0]), repetition(500.0, [60.0, 250.0]));
        let row = Row::of(&[wild.clone(), calm.clone(), wild.clone()]).unwrap();
        assert_eq!((row.value, row.steady, row.tried), (100.0, 1, 3));
        assert_eq!(row.ratio(), 2.0);
        let row = Row::of(&[wild]).unwrap();
        assert_eq!((row.value, row.steady, row.bounce), (500.0, 0, 155.0));
        assert_eq!(Row::of(&[]), None);
    }

    #[test]
    fn a_line_of_json_has_the_keys_that_scripts_rely_on() {
        let mut row = Row::of(&[repetition(100.0, [60.0, 60.0])]).unwrap();
        row.percentiles = Some(Percentiles { nanos: [1.0, 20.0, 300.0, 4000.0, 50_000.0] });
        assert_eq!(
            row.json(),
            concat!(
                r#"{"transport":"sm","mode":"latency","bytes":8,"value":100.000,"unit":"ns","limit":50.0000,"ratio":2.00000,"#,
                r#""p50_ns":1.00000,"p90_ns":20.0000,"p99_ns":300.000,"p999_ns":4000.00,"max_ns":50000.0,"#,
                r#""bounce_ns":60.0000,"steady":1,"repetitions":1}"#
            )
        );
        assert_eq!(
            Row::csv_header(),
            "transport,mode,bytes,value,unit,limit,ratio,p50_ns,p90_ns,p99_ns,p999_ns,max_ns,bounce_ns,steady,repetitions"
        );
        let line = "sm,latency,8,100.000,ns,50.0000,2.00000,1.00000,20.0000,300.000,4000.00,50000.0,60.0000,1,1";
        assert_eq!(row.csv(), line);
        row.percentiles = None;
        assert!(row.json().contains(r#""max_ns":null,"#), "{}", row.json());
        // Both files have the same fields.
        let keys = row.json().replace(['{', '}', '"'], "");
        let keys: Vec<_> = keys.split(',').map(|field| field.split(':').next().unwrap()).collect();
        assert_eq!(keys.join(","), Row::csv_header());
    }

    #[test]
    fn numbers_have_six_digits() {
        let all = [26_123_456.0, 1.0, 0.002_123_456_7, 0.0, f64::NAN].map(digits);
        assert_eq!(all, ["26123456", "1.00000", "0.00212346", "0.00000000000000", "null"]);
    }

    #[test]
    fn medians() {
        assert_eq!([median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0, 2.0, 3.0])], [2.0, 2.5]);
    }
}
