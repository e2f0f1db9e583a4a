//! The chart of `--plot`: times and bandwidths over the message size, measured and limit, and rates as text. It is written as
//! SVG or PNG, with a font of its own, so that it needs none of the system's fonts.

use std::error::Error;
use std::fs;
use std::io::BufWriter;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::plan::{Size, Unit};
use super::repetition::{Row, format_value};
use Axis::{Gigabytes, Time};

const WIDTH: u32 = 1680;
const HEIGHT: u32 = 720;
const MARGIN: u32 = 10;
/// Largest number of labels, of about 50 pixels each, that an axis of sizes has room for.
const SIZE_TICKS_MAX: usize = 12;
/// Height of a line of text.
const LINE_HEIGHT: u32 = 18;
/// Width of a line's sample in the legend.
const SAMPLE: i32 = 34;
/// Lengths of the dashes and gaps of limits.
const DASH: u32 = 6;
const GAP: u32 = 4;
const GRID: RGBColor = RGBColor(215, 215, 215);
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 92, 168),
    RGBColor(200, 82, 0),
    RGBColor(20, 130, 80),
    RGBColor(120, 60, 150),
    RGBColor(170, 30, 60),
    RGBColor(90, 90, 20),
];

type Result = std::result::Result<(), Box<dyn Error>>;

/// The file formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Svg,
    Png,
}

impl Kind {
    /// The format that belongs to the end of a file name.
    pub fn of(path: &Path) -> std::result::Result<Self, String> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(format!("{}: a chart needs a file name that ends with .svg or .png", path.display())),
        }
    }
}

/// Writes the chart.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, kind: Kind, rows: &[Row]) -> Result {
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| "the built-in font cannot be read")?;
    match kind {
        Kind::Svg => {
            let mut text = String::new();
            draw(&SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area(), rows)?;
            fs::write(path, text)?;
        }
        Kind::Png => {
            let mut pixels = vec![0; (WIDTH * HEIGHT * 3) as usize];
            draw(&BitMapBackend::with_buffer(&mut pixels, (WIDTH, HEIGHT)).into_drawing_area(), rows)?;
            let mut png = png::Encoder::new(BufWriter::new(fs::File::create(path)?), WIDTH, HEIGHT);
            png.set_color(png::ColorType::Rgb);
            let mut png = png.write_header()?;
            png.write_image_data(&pixels)?;
            png.finish()?;
        }
    }
    Ok(())
}

fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, rows: &[Row]) -> Result
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let area = area.titled("Towline between two processes, and the limits of the machine", font(18))?;
    let rates: Vec<_> = rows.iter().filter(|row| !is_time(row) && !is_bandwidth(row)).map(rate).collect();
    let (area, foot) = area.split_vertically(area.dim_in_pixel().1 - LINE_HEIGHT * rates.len() as u32 - MARGIN);
    for (rate, y) in rates.iter().zip((0..).step_by(LINE_HEIGHT as usize)) {
        foot.draw(&Text::new(rate.clone(), (2 * MARGIN as i32, y), font(14)))?;
    }
    let panels = [("time of an operation", is_time as fn(&Row) -> bool), ("bandwidth", is_bandwidth)];
    let panels: Vec<_> = panels.into_iter().map(|(title, of)| (title, series(rows, of))).collect();
    let panels: Vec<_> = panels.iter().filter(|(_, series)| !series.is_empty()).collect();
    for (area, (title, series)) in area.split_evenly((1, panels.len().max(1))).iter().zip(panels) {
        let unit = if *title == "bandwidth" { Gigabytes } else { Time };
        panel(area, title, unit, series)?;
    }
    area.present()?;
    Ok(())
}

fn is_time(row: &Row) -> bool {
    row.mode.unit() == Unit::Nanos
}

fn is_bandwidth(row: &Row) -> bool {
    row.mode.unit() == Unit::Gigabytes
}

fn rate(row: &Row) -> String {
    let (value, limit) = (format_value(row.mode, row.value), format_value(row.mode, row.limit));
    format!("{} {}: {value} of {}; limit {limit}", row.transport, row.mode, row.size)
}

/// One transport and mode over the sizes: a line for what was measured, and one for the limit.
struct Series {
    name: String,
    /// Bytes and value. No bytes are drawn as one, since the axis is logarithmic.
    measured: Vec<(f64, f64)>,
    limit: Vec<(f64, f64)>,
}

/// All series of the rows that `wanted` selects.
fn series(rows: &[Row], wanted: fn(&Row) -> bool) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in rows.iter().filter(|row| wanted(row)) {
        let name = format!("{} {}", row.transport, row.mode);
        if all.iter().all(|series| series.name != name) {
            all.push(Series { name: name.clone(), measured: Vec::new(), limit: Vec::new() });
        }
        let series = all.iter_mut().find(|series| series.name == name).into_iter();
        let bytes = row.size.0.max(1) as f64;
        // A logarithmic axis has no place for zero. A limit may be missing.
        for series in series {
            series.measured.extend((row.value > 0.0).then_some((bytes, row.value)));
            series.limit.extend((row.limit > 0.0).then_some((bytes, row.limit)));
        }
    }
    all.retain(|series| !series.measured.is_empty());
    all
}

/// The unit of a vertical axis.
#[derive(Clone, Copy)]
enum Axis {
    Time,
    Gigabytes,
}

impl Axis {
    fn label(self, value: f64) -> String {
        // Numbers of ticks have few digits.
        let short = |value: f64| format!("{}", (value * 1e4).round() / 1e4);
        match self {
            Gigabytes => format!("{} GB/s", short(value)),
            Time if value < 1e3 => format!("{} ns", short(value)),
            Time if value < 1e6 => format!("{} us", short(value / 1e3)),
            Time if value < 1e9 => format!("{} ms", short(value / 1e6)),
            Time => format!("{} s", short(value / 1e9)),
        }
    }
}

/// Draws one chart with its legend above it. Both axes are logarithmic.
fn panel<B: DrawingBackend>(area: &DrawingArea<B, Shift>, title: &str, axis: Axis, all: &[Series]) -> Result
where
    B::ErrorType: 'static,
{
    let (head, area) = area.split_vertically(LINE_HEIGHT * (all.len() as u32 + 1) + MARGIN);
    legend(&head, title, all)?;
    let points = || all.iter().flat_map(|series| series.measured.iter().chain(&series.limit));
    let (x, x_ticks) = sizes_axis(points().map(|(bytes, _)| *bytes));
    let (y, y_ticks) = decades_axis(points().map(|(_, value)| *value));
    let mut chart = ChartBuilder::on(&area)
        .margin(MARGIN)
        .margin_right(3 * MARGIN)
        .x_label_area_size(40)
        .y_label_area_size(76)
        .build_cartesian_2d(
            x.log_scale().base(4.0).with_key_points(x_ticks.clone()),
            y.log_scale().with_key_points(y_ticks.clone()),
        )?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(BLACK)
        .x_desc("size of a message")
        // All key points have labels.
        .x_labels(x_ticks.len() + 1)
        .y_labels(y_ticks.len() + 1)
        .x_label_formatter(&|bytes| Size(bytes.round() as usize).to_string())
        .y_label_formatter(&|value| axis.label(*value))
        .label_style(font(12))
        .draw()?;
    for (series, colour) in all.iter().zip(COLOURS.into_iter().cycle()) {
        chart.draw_series(DashedLineSeries::new(series.limit.clone(), DASH, GAP, colour.stroke_width(1)))?;
        chart.draw_series(series.limit.iter().map(|point| Circle::new(*point, 3, colour.stroke_width(1))))?;
        chart.draw_series(LineSeries::new(series.measured.clone(), colour.stroke_width(2)))?;
        chart.draw_series(series.measured.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    Ok(())
}

/// A line with two samples and two texts for each series: what was measured, and its limit.
fn legend<B: DrawingBackend>(area: &DrawingArea<B, Shift>, title: &str, all: &[Series]) -> Result
where
    B::ErrorType: 'static,
{
    let left = 2 * MARGIN as i32;
    area.draw(&Text::new(title.to_string(), (left, 2), font(15)))?;
    // Letters of this size are at most this wide.
    let longest = all.iter().map(|series| series.name.len()).max().unwrap_or(0) as i32 * 8;
    for ((series, colour), row) in all.iter().zip(COLOURS.into_iter().cycle()).zip(1..) {
        let y = row * LINE_HEIGHT as i32 + 4;
        let middle = y + 7;
        let (first, second) = (left, left + SAMPLE + 16 + longest);
        area.draw(&PathElement::new([(first, middle), (first + SAMPLE, middle)], colour.stroke_width(2)))?;
        area.draw(&Circle::new((first + SAMPLE / 2, middle), 3, colour.filled()))?;
        area.draw(&Text::new(series.name.clone(), (first + SAMPLE + 6, y), font(13)))?;
        if series.limit.is_empty() {
            continue;
        }
        for at in (second..second + SAMPLE).step_by(DASH as usize + GAP as usize) {
            let end = (at + DASH as i32).min(second + SAMPLE);
            area.draw(&PathElement::new([(at, middle), (end, middle)], colour.stroke_width(1)))?;
        }
        area.draw(&Circle::new((second + SAMPLE / 2, middle), 3, colour.stroke_width(1)))?;
        area.draw(&Text::new(format!("limit of {}", series.name), (second + SAMPLE + 6, y), font(13)))?;
    }
    Ok(())
}

/// The range and the labelled ticks of the axis of sizes. Ticks are powers of four, about half a decade apart, and the size
/// itself if there is only one.
fn sizes_axis(bytes: impl Iterator<Item = f64> + Clone) -> (std::ops::Range<f64>, Vec<f64>) {
    let (least, most) = bounds(bytes);
    let (low, high) = (least / 2.0, most * 2.0);
    let powers = (0..20).map(|power| 4f64.powi(power)).filter(|tick| (low..=high).contains(tick));
    let ticks: Vec<_> = if least == most { vec![least] } else { powers.collect() };
    let step = ticks.len().div_ceil(SIZE_TICKS_MAX);
    (low..high, ticks.into_iter().step_by(step.max(1)).collect())
}

/// The range and the labelled ticks of the axis of values: every decade and half a decade, and more if the range is short.
fn decades_axis(values: impl Iterator<Item = f64> + Clone) -> (std::ops::Range<f64>, Vec<f64>) {
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

fn font(size: u32) -> (&'static str, u32) {
    ("sans-serif", size)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Mode;
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |transport: &str, mode, bytes: usize, value, limit| Row {
            transport: transport.into(),
            mode,
            size: Size(bytes),
            value,
            limit,
            bounce: 60.0,
            steady: 7,
            tried: 7,
            percentiles: None,
        };
        vec![
            row("sm", Mode::Latency, 0, 90.0, 60.0),
            row("sm", Mode::Latency, 4 << 20, 300_000.0, 290_000.0),
            row("sm", Mode::Bandwidth, 4096, 8.0, 9.0),
            row("sm", Mode::Rate, 8, 2e7, 1e8),
            row("tcp", Mode::Latency, 8, 3000.0, 2800.0),
        ]
    }

    /// The texts of a chart that is written as SVG.
    fn texts(name: &str, rows: &[Row]) -> Vec<String> {
        let path = std::env::temp_dir().join(format!("towline-{name}-{}.svg", std::process::id()));
        write(&path, Kind::Svg, rows).unwrap();
        let svg = fs::read_to_string(&path).unwrap();
        fs::remove_file(path).unwrap();
        let texts = svg.split("<text").skip(1).filter_map(|rest| rest.split_once('>')?.1.split("</text").next());
        texts.map(|text| text.trim().to_string()).collect()
    }

    #[test]
    fn axes_have_labels_at_every_decade_and_half_and_limits_are_in_the_legend() {
        let texts = texts("decades", &rows());
        for text in [
            "100 ns", "300 ns", "1 us", "3 us", "10 us", "30 us", "100 us", "300 us", "1 B", "4 B", "16 B", "256 B",
            "4 MiB",
        ] {
            assert!(texts.iter().any(|each| each == text), "{text} is not in {texts:?}");
        }
        for text in ["sm latency", "limit of sm latency", "limit of tcp latency", "limit of sm bandwidth"] {
            assert!(texts.iter().any(|each| each == text), "{text} is not in {texts:?}");
        }
        assert!(texts.iter().any(|text| text.contains("sm rate: 20.00 M/s of 8 B; limit 100.00 M/s")), "{texts:?}");
    }

    #[test]
    fn one_size_has_labelled_axes_and_two_visible_points() {
        let one = [rows().swap_remove(0)];
        let texts = texts("one", &one);
        assert!(texts.iter().any(|text| text == "1 B"), "{texts:?}");
        assert!(texts.iter().filter(|text| text.ends_with(" ns")).count() >= 4, "{texts:?}");
    }

    #[test]
    fn ticks_are_in_their_range_and_neither_few_nor_many() {
        for (least, most) in [(90.0, 90.0), (60.0, 300_000.0), (0.001, 1e9), (9.9, 10.1)] {
            let (range, ticks) = decades_axis([least, most].into_iter());
            assert!(ticks.len() >= 4 && ticks.iter().all(|tick| range.contains(tick)), "{least} to {most}: {ticks:?}");
            assert!(ticks.is_sorted(), "{ticks:?}");
        }
        for (least, most) in [(8.0, 8.0), (1.0, 4e6), (100.0, 1e9), (8.0, 16.0)] {
            let (range, ticks) = sizes_axis([least, most].into_iter());
            assert!(
                (1..=SIZE_TICKS_MAX).contains(&ticks.len()) && ticks.iter().all(|tick| range.contains(tick)),
                "{ticks:?}"
            );
        }
    }

    #[test]
    fn both_kinds_are_written() {
        let folder = std::env::temp_dir();
        let path = |end| folder.join(format!("towline-plot-{}.{end}", std::process::id()));
        write(&path("svg"), Kind::Svg, &rows()).unwrap();
        let svg = fs::read_to_string(path("svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("4 MiB") && svg.contains("tcp"), "{svg}");
        write(&path("png"), Kind::Png, &rows()).unwrap();
        let png = png::Decoder::new(std::io::BufReader::new(fs::File::open(path("png")).unwrap()));
        let info = png.read_info().unwrap();
        assert_eq!((info.info().width, info.info().height), (WIDTH, HEIGHT));
        for end in ["svg", "png"] {
            fs::remove_file(path(end)).unwrap();
        }
    }

    #[test]
    fn nothing_measured_makes_an_empty_chart() {
        let path = std::env::temp_dir().join(format!("towline-empty-{}.svg", std::process::id()));
        write(&path, Kind::Svg, &[]).unwrap();
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_format_follows_from_the_name() {
        let kind = |name: &str| Kind::of(Path::new(name));
        assert_eq!((kind("a/b.svg"), kind("c.png")), (Ok(Kind::Svg), Ok(Kind::Png)));
        assert!(kind("chart").unwrap_err().contains(".svg or .png"));
    }
}
