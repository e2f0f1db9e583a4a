//! The chart of `--plot`: latency and bandwidth over the message size, measured and limit. It is written as SVG or PNG,
//! with a font of its own, so that it needs none of the system's fonts.

use std::error::Error;
use std::fs;
use std::io::BufWriter;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::plan::{Mode, Size};
use super::repetition::{Row, format_value};

const WIDTH: u32 = 1280;
const HEIGHT: u32 = 560;
const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 92, 168), RGBColor(200, 82, 0), RGBColor(20, 130, 80), RGBColor(120, 60, 150)];

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
    let rates: Vec<_> = rows.iter().filter(|row| row.mode == Mode::Rate).map(rate).collect();
    let title = format!("Towline between two processes; dashed lines: the limit   {}", rates.join("   "));
    let area = area.titled(title.trim_end(), ("sans-serif", 18))?;
    let (left, right) = area.split_horizontally(WIDTH / 2);
    panel(&left, rows, Mode::Latency, "half round trip, us", 1e-3)?;
    panel(&right, rows, Mode::Bandwidth, "bandwidth, GB/s", 1.0)?;
    area.present()?;
    Ok(())
}

fn rate(row: &Row) -> String {
    format!("{}: {} messages of {}", row.transport, format_value(row.mode, row.value), row.size)
}

/// Draws one chart: a line and a dashed line for each transport. Both axes are logarithmic; 0 bytes are drawn at 1.
fn panel<B: DrawingBackend>(area: &DrawingArea<B, Shift>, rows: &[Row], mode: Mode, title: &str, scale: f64) -> Result
where
    B::ErrorType: 'static,
{
    let rows: Vec<_> = rows.iter().filter(|row| row.mode == mode).collect();
    let values = || rows.iter().flat_map(|row| [row.value * scale, row.limit * scale]).filter(|value| *value > 0.0);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if !least.is_finite() {
        return Ok(());
    }
    let place = |row: &Row| row.size.0.max(1) as f64;
    let (narrowest, widest) = (
        rows.iter().map(|row| place(row)).fold(f64::INFINITY, f64::min),
        rows.iter().map(|row| place(row)).fold(2.0, f64::max),
    );
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d((narrowest..widest * 1.5).log_scale().base(4.0), (least / 1.5..most * 1.5).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("bytes of a message")
        .x_labels(12)
        .x_label_formatter(&|bytes| Size(bytes.round() as usize).to_string())
        .label_style(("sans-serif", 12))
        .draw()?;
    let mut transports: Vec<&str> = rows.iter().map(|row| row.transport.as_str()).collect();
    transports.dedup();
    for (transport, colour) in transports.into_iter().zip(COLOURS.into_iter().cycle()) {
        let of_transport = || rows.iter().filter(|row| row.transport == transport);
        let measured: Vec<_> = of_transport().map(|row| (place(row), row.value * scale)).collect();
        let limit: Vec<_> = of_transport().map(|row| (place(row), row.limit * scale)).collect();
        let thick = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(measured, thick).point_size(3))?
            .label(transport)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], thick));
        chart.draw_series(DashedLineSeries::new(limit, 6, 4, colour.stroke_width(1)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 14))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
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
        };
        vec![
            row("sm", Mode::Latency, 0, 90.0, 60.0),
            row("sm", Mode::Latency, 4 << 20, 300_000.0, 290_000.0),
            row("sm", Mode::Bandwidth, 4096, 8.0, 9.0),
            row("sm", Mode::Rate, 8, 2e7, 1e8),
            row("tcp", Mode::Latency, 8, 3000.0, 2800.0),
        ]
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
