//! The axes of a panel: ranges and labelled ticks. They are logarithmic, and size 0 has a place of its own.

use std::ops::Range;

use super::super::plan::Size;

/// Largest number of labels, of about 50 pixels each, that an axis of sizes has room for.
const SIZE_TICKS_MAX: usize = 12;

/// The axis of sizes.
pub struct SizeAxis {
    pub range: Range<f64>,
    /// The places that have labels.
    pub ticks: Vec<f64>,
    /// The place of size 0, left of all others, if there is such a size.
    zero: Option<f64>,
    /// Whether there are other sizes.
    has_others: bool,
}

impl SizeAxis {
    /// The axis for these sizes. Ticks are powers of four, about half a decade apart, and the size itself if there is only one.
    pub fn new(sizes: impl Iterator<Item = usize> + Clone) -> Self {
        let has_zero = sizes.clone().any(|bytes| bytes == 0);
        let others = sizes.filter(|bytes| *bytes != 0).map(|bytes| bytes as f64);
        let has_others = others.clone().next().is_some();
        // The place of size 0 is where 1 would be if there is no other size.
        let (least, most) = if has_others { bounds(others) } else { (4.0, 4.0) };
        let (low, high) = (least / 2.0, most * 2.0);
        let powers = (0..20).map(|power| 4f64.powi(power)).filter(|tick| (low..=high).contains(tick));
        let ticks: Vec<_> = if least == most { vec![least] } else { powers.collect() };
        let step = ticks.len().div_ceil(SIZE_TICKS_MAX).max(1);
        let zero = has_zero.then(|| ticks.first().map_or(least, |first| first.min(least)) / 4.0);
        let ticks = ticks.into_iter().step_by(step).filter(|_| has_others);
        Self {
            range: zero.map_or(low, |zero| zero / 2.0)..if has_others { high } else { 2.0 },
            ticks: zero.into_iter().chain(ticks).collect(),
            zero,
            has_others,
        }
    }

    /// The place of a size.
    pub fn place(&self, bytes: usize) -> f64 {
        self.zero.filter(|_| bytes == 0).unwrap_or(bytes as f64)
    }

    /// The label of a place.
    pub fn label(&self, place: f64) -> String {
        match self.zero {
            Some(zero) if place < 1.5 * zero => "0".into(),
            _ => Size(place.round() as usize).to_string(),
        }
    }

    /// The place at which the axis is interrupted, between size 0 and the others.
    pub fn gap(&self) -> Option<f64> {
        self.zero.filter(|_| self.has_others).map(|zero| 2.0 * zero)
    }
}

/// The range and the labelled ticks of the axis of values: every decade and half a decade, and more if the range is short.
pub fn values_axis(values: impl Iterator<Item = f64> + Clone) -> (Range<f64>, Vec<f64>) {
    const LEAST_TICKS: usize = 4;
    let steps: [&[f64]; 4] = [
        &[1.0, 3.0],
        &[1.0, 2.0, 3.0, 5.0],
        &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0],
    ];
    let (least, most) = bounds(values);
    let (low, high) = (least / 1.5, most * 1.5);
    let ticks = |steps: &[f64]| {
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
        all.filter(|tick| (low..=high).contains(tick)).collect::<Vec<_>>()
    };
    let enough = steps.into_iter().map(ticks).find(|ticks| ticks.len() >= LEAST_TICKS);
    (low..high, enough.unwrap_or_else(|| ticks(steps[3])))
}

fn bounds(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_in_their_range_and_neither_few_nor_many() {
        for (least, most) in [(90.0, 90.0), (60.0, 300_000.0), (0.001, 1e9), (9.9, 10.1)] {
            let (range, ticks) = values_axis([least, most].into_iter());
            assert!(ticks.len() >= 4 && ticks.iter().all(|tick| range.contains(tick)), "{least} to {most}: {ticks:?}");
            assert!(ticks.is_sorted(), "{ticks:?}");
        }
        for sizes in [[8, 8], [1, 4 << 20], [100, 1 << 30], [8, 16], [0, 0], [0, 8], [0, 1], [0, 3]] {
            let axis = SizeAxis::new(sizes.into_iter());
            let (range, ticks) = (&axis.range, &axis.ticks);
            assert!((1..=SIZE_TICKS_MAX).contains(&ticks.len()) && ticks.is_sorted(), "{ticks:?}");
            assert!(ticks.iter().all(|tick| range.contains(tick)), "{ticks:?}");
        }
    }

    #[test]
    fn size_0_is_at_the_left_of_the_gap_and_all_others_at_the_right() {
        for others in [&[1][..], &[2], &[3, 4096], &[8, 64], &[5, 1 << 30]] {
            let axis = SizeAxis::new([0].iter().chain(others).copied());
            let (zero, gap) = (axis.place(0), axis.gap().unwrap());
            assert!(axis.range.contains(&zero) && zero < gap && axis.ticks[0] == zero, "{others:?}");
            assert!(others.iter().all(|bytes| gap < axis.place(*bytes)), "{others:?}");
            assert!(axis.ticks[1..].iter().all(|tick| gap < *tick && axis.label(*tick) != "0"), "{others:?}");
            assert_eq!(axis.label(zero), "0");
        }
        let axis = SizeAxis::new([0].into_iter());
        assert_eq!((axis.ticks.len(), axis.gap(), axis.label(axis.ticks[0])), (1, None, "0".to_string()));
        let axis = SizeAxis::new([1, 8].into_iter());
        assert_eq!((axis.gap(), axis.label(1.0)), (None, "1 B".to_string()));
    }
}
