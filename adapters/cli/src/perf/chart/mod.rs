//! The chart of `--plot`: times, bandwidths and rates over the message size, measured and limit, in a panel each. It is SVG or
//! PNG, with a font of its own, so that it needs none of the system's fonts.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::figures::tick;
use super::repetition::Row;
use axes::{SizeAxis, values_axis};
use lines::{Line, Panel, panels};
use style::{DASH, GAP, MARGIN, Result, font};

mod axes;
mod legend;
mod lines;
mod markers;
mod style;

/// Width of a panel, and of one that has only one size, beside others.
const WIDTH: u32 = 720;
const NARROW_WIDTH: u32 = 420;
/// Height of a panel without its legend.
const HEIGHT: u32 = 600;
/// Height of the title of the page.
const TITLE_HEIGHT: u32 = 36;
const GRID: RGBColor = RGBColor(215, 215, 215);

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

/// Draws the chart. Returns the bytes of the file.
///
/// # Errors
/// If drawing fails, which no input is known to cause.
pub fn draw(kind: Kind, rows: &[Row]) -> Result<Vec<u8>> {
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| "the built-in font cannot be read")?;
    let panels = panels(rows);
    let width = panels.iter().map(|panel| width(panel, panels.len())).sum::<u32>().max(WIDTH);
    let height = TITLE_HEIGHT + legends_height(&panels) + HEIGHT;
    match kind {
        Kind::Svg => {
            let mut text = String::new();
            page(&SVGBackend::with_string(&mut text, (width, height)).into_drawing_area(), &panels)?;
            Ok(text.into_bytes())
        }
        Kind::Png => {
            let mut pixels = vec![0; (width * height * 3) as usize];
            page(&BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area(), &panels)?;
            let mut bytes = Vec::new();
            let mut png = png::Encoder::new(&mut bytes, width, height);
            png.set_color(png::ColorType::Rgb);
            let mut png = png.write_header()?;
            png.write_image_data(&pixels)?;
            png.finish()?;
            Ok(bytes)
        }
    }
}

/// The width of one of `count` panels.
fn width(panel: &Panel, count: usize) -> u32 {
    if count > 1 && panel.has_one_size() { NARROW_WIDTH } else { WIDTH }
}

/// The height of the highest legend. All panels leave as much room, so that their axes are in one line. The page grows with it,
/// and the panels keep their height.
fn legends_height(panels: &[Panel]) -> u32 {
    panels.iter().map(|panel| legend::height(panel, width(panel, panels.len()))).max().unwrap_or(0)
}

fn page<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panels: &[Panel]) -> Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let (title, mut rest) = area.split_vertically(TITLE_HEIGHT);
    let text = "Towline between two processes, and the limits of the machine";
    title.draw(&Text::new(text, (2 * MARGIN as i32, MARGIN as i32), font(18)))?;
    for each in panels {
        let (area, others) = rest.split_horizontally(width(each, panels.len()));
        let (head, area) = area.split_vertically(legends_height(panels));
        legend::draw(&head, each)?;
        plot(&area, each)?;
        rest = others;
    }
    area.present()?;
    Ok(())
}

/// Draws the axes and lines of a panel. Both axes are logarithmic.
fn plot<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panel: &Panel) -> Result<()>
where
    B::ErrorType: 'static,
{
    let points = || panel.lines.iter().flat_map(|line| line.measured.iter().chain(&line.limit));
    let sizes = SizeAxis::new(points().map(|(bytes, _)| *bytes));
    let (values, value_ticks) = values_axis(points().map(|(_, value)| *value));
    let bottom = values.start;
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .margin_right(3 * MARGIN)
        .x_label_area_size(40)
        .y_label_area_size(76)
        .build_cartesian_2d(
            sizes.range.clone().log_scale().base(4.0).with_key_points(sizes.ticks.clone()),
            values.log_scale().with_key_points(value_ticks.clone()),
        )?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(BLACK)
        .x_desc("size of a message")
        // All key points have labels.
        .x_labels(sizes.ticks.len() + 1)
        .y_labels(value_ticks.len() + 1)
        .x_label_formatter(&|place| sizes.label(*place))
        .y_label_formatter(&|value| tick(panel.unit, *value))
        .label_style(font(12))
        .draw()?;
    // The axis is interrupted between 0 and the other sizes.
    chart.draw_series(sizes.gap().map(|gap| markers::gap((gap, bottom))))?;
    let placed = |points: &[(usize, f64)]| -> Vec<_> {
        points.iter().map(|(bytes, value)| (sizes.place(*bytes), *value)).collect()
    };
    // No line leads to size 0, which has no place on a logarithmic axis.
    let joined = |points: &[(usize, f64)]| {
        let joined: Vec<_> = points.iter().copied().filter(|(bytes, _)| *bytes != 0).collect();
        placed(&joined)
    };
    // What was measured is above all limits.
    for Line { style, limit, .. } in &panel.lines {
        let pen = style.colour.stroke_width(1);
        chart.draw_series(DashedLineSeries::new(joined(limit), DASH, GAP, pen))?;
        chart.draw_series(placed(limit).into_iter().map(|point| markers::marker(point, *style, false)))?;
    }
    for Line { style, measured, .. } in &panel.lines {
        chart.draw_series(LineSeries::new(joined(measured), style.colour.stroke_width(2)))?;
        chart.draw_series(placed(measured).into_iter().map(|point| markers::marker(point, *style, true)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Mode, Size};
    use super::*;
    use crate::transports::ALL;

    /// A row whose limit is twice its value.
    pub fn row(transport: &str, mode: Mode, bytes: usize, value: f64) -> Row {
        Row {
            transport: transport.into(),
            mode,
            size: Size(bytes),
            value,
            limit: 2.0 * value,
            bounce: 60.0,
            steady: 7,
            tried: 7,
            percentiles: None,
        }
    }

    fn rows() -> Vec<Row> {
        vec![
            row("sm", Mode::Latency, 8, 90.0),
            row("sm", Mode::Latency, 4 << 20, 150_000.0),
            row("sm", Mode::Bandwidth, 4096, 8.0),
            row("sm", Mode::Rate, 8, 2e7),
            row("tcp", Mode::Latency, 8, 3000.0),
        ]
    }

    /// The texts of a chart in SVG.
    fn texts(rows: &[Row]) -> Vec<String> {
        let svg = String::from_utf8(draw(Kind::Svg, rows).unwrap()).unwrap();
        let texts = svg.split("<text").skip(1).filter_map(|rest| rest.split_once('>')?.1.split("</text").next());
        texts.map(|text| text.trim().to_string()).collect()
    }

    fn contain(texts: &[String], wanted: &[&str]) {
        for text in wanted {
            assert!(texts.iter().any(|each| each == text), "{text} is not in {texts:?}");
        }
    }

    fn size(png: &[u8]) -> (u32, u32) {
        let png = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        (png.info().width, png.info().height)
    }

    #[test]
    fn axes_have_labels_at_every_decade_and_half_and_limits_are_in_the_legend() {
        let texts = texts(&rows());
        contain(&texts, &["100 ns", "300 ns", "1 us", "3 us", "10 us", "30 us", "100 us", "300 us"]);
        contain(&texts, &["4 B", "16 B", "256 B", "4 MiB", "10 GB/s", "20 M/s"]);
        contain(&texts, &["sm latency", "tcp latency", "sm bandwidth", "sm rate", "its limit"]);
        assert_eq!(texts.iter().filter(|text| *text == "its limit").count(), 4, "{texts:?}");
    }

    #[test]
    fn rates_have_a_panel_with_axes_like_the_others() {
        let rates: Vec<_> = [8, 1024].map(|bytes| row("sm", Mode::Rate, bytes, 1e9 / bytes as f64)).into();
        let alone = texts(&rates);
        contain(&alone, &["messages or operations a second", "1 M/s", "3 M/s", "100 M/s", "16 B", "1 KiB"]);
        contain(&alone, &["sm rate", "its limit"]);
        for title in ["time of an operation", "bandwidth"] {
            assert!(!alone.iter().any(|text| text == title), "{title}: {alone:?}");
        }
        contain(&texts(&rows()), &["time of an operation", "bandwidth", "messages or operations a second"]);
    }

    #[test]
    fn one_size_has_labelled_axes() {
        for (mode, end) in [(Mode::Latency, " ns"), (Mode::Bandwidth, " GB/s"), (Mode::Rate, " M/s")] {
            let texts = texts(&[row("sm", mode, 8, if mode == Mode::Rate { 2e7 } else { 90.0 })]);
            contain(&texts, &["8 B"]);
            assert!(texts.iter().filter(|text| text.ends_with(end)).count() >= 4, "{texts:?}");
        }
    }

    #[test]
    fn size_0_is_labelled_so() {
        let texts_of = |sizes: &[usize]| {
            texts(&sizes.iter().map(|bytes| row("sm", Mode::Latency, *bytes, 90.0)).collect::<Vec<_>>())
        };
        for sizes in [&[0][..], &[0, 8], &[0, 1, 8, 4 << 20]] {
            let texts = texts_of(sizes);
            contain(&texts, &["0"]);
            assert_eq!(texts.iter().any(|text| text == "1 B"), sizes.contains(&1), "{texts:?}");
        }
        assert!(!texts_of(&[8, 64]).iter().any(|text| text == "0"));
    }

    /// The page grows with the legends, and the panels keep their size.
    #[test]
    fn a_long_legend_takes_no_room_from_the_panels() {
        let png = |rows: &[Row]| size(&draw(Kind::Png, rows).unwrap());
        let few = png(&[row("sm", Mode::Latency, 8, 90.0)]);
        let modes = Mode::ALL.into_iter().filter(|mode| mode.unit() == Mode::Latency.unit());
        let all = modes.flat_map(|mode| ALL.map(|transport| row(transport, mode, 8, 90.0)));
        let many = png(&all.collect::<Vec<_>>());
        assert!(many.0 == few.0 && many.1 > few.1, "{few:?} {many:?}");
        assert!(many.1 - few.1 <= 20 * ALL.len() as u32 * 2, "two columns: {few:?} {many:?}");
    }

    #[test]
    fn both_kinds_are_written() {
        let svg = String::from_utf8(draw(Kind::Svg, &rows()).unwrap()).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("4 MiB") && svg.contains("tcp"), "{svg}");
        let (width, height) = size(&draw(Kind::Png, &rows()).unwrap());
        // The bandwidth and the rate have one size.
        assert!(width == WIDTH + 2 * NARROW_WIDTH && height > HEIGHT, "{width} {height}");
    }

    #[test]
    fn nothing_measured_makes_an_empty_chart() {
        assert_eq!(texts(&[]).len(), 1, "the title");
    }

    #[test]
    fn the_format_follows_from_the_name() {
        let kind = |name: &str| Kind::of(Path::new(name));
        assert_eq!((kind("a/b.svg"), kind("c.png")), (Ok(Kind::Svg), Ok(Kind::Png)));
        assert!(kind("chart").unwrap_err().contains(".svg or .png"));
    }
}
