//! The legend of a panel, above its axes and in columns.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::lines::{Line, Panel};
use super::markers::marker;
use super::style::{DASH, GAP, MARGIN, Result, font};

/// Height of a line of text.
const LINE_HEIGHT: u32 = 18;
/// Width of a line's sample, and the space after it.
const SAMPLE: u32 = 34;
const AFTER_SAMPLE: u32 = 6;
/// Space after a text.
const AFTER_TEXT: u32 = 18;
const FONT: u32 = 13;
const LIMIT: &str = "its limit";

/// The height that the title and legend of a panel of this width need.
pub fn height(panel: &Panel, width: u32) -> u32 {
    let rows = panel.lines.len().div_ceil(columns(panel, width)) as u32;
    LINE_HEIGHT * (rows + 1) + MARGIN
}

/// The number of entries that have room beside each other.
fn columns(panel: &Panel, width: u32) -> usize {
    (width.saturating_sub(3 * MARGIN) / entry_width(panel)).max(1) as usize
}

/// Width of an entry: two samples and two texts.
fn entry_width(panel: &Panel) -> u32 {
    2 * (SAMPLE + AFTER_SAMPLE + AFTER_TEXT) + name_width(panel) + text_width(LIMIT)
}

/// Width of the longest name.
fn name_width(panel: &Panel) -> u32 {
    panel.lines.iter().map(|line| text_width(&line.name)).max().unwrap_or(0)
}

fn text_width(text: &str) -> u32 {
    // A letter of this font is at most this wide.
    font(FONT).into_font().box_size(text).map_or(8 * text.len() as u32, |(width, _)| width)
}

/// Draws the title, and an entry for each line: what was measured, and its limit.
pub fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panel: &Panel) -> Result<()>
where
    B::ErrorType: 'static,
{
    let left = 2 * MARGIN as i32;
    area.draw(&Text::new(panel.title, (left, 2), font(15)))?;
    let rows = panel.lines.len().div_ceil(columns(panel, area.dim_in_pixel().0));
    let limit_at = (SAMPLE + AFTER_SAMPLE + AFTER_TEXT + name_width(panel)) as i32;
    for (at, line) in panel.lines.iter().enumerate() {
        let (column, row) = (at / rows, at % rows);
        let x = left + column as i32 * entry_width(panel) as i32;
        let y = (row as i32 + 1) * LINE_HEIGHT as i32 + 4;
        sample(area, (x, y), line, &line.name, true)?;
        if !line.limit.is_empty() {
            sample(area, (x + limit_at, y), line, LIMIT, false)?;
        }
    }
    Ok(())
}

/// A sample of a line, or of its limit, with a text.
fn sample<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    (x, y): (i32, i32),
    line: &Line,
    text: &str,
    measured: bool,
) -> Result<()>
where
    B::ErrorType: 'static,
{
    let (end, middle) = (x + SAMPLE as i32, y + LINE_HEIGHT as i32 / 2);
    let (dash, pen) = if measured { (SAMPLE, 2) } else { (DASH, 1) };
    for from in (x..end).step_by((dash + GAP) as usize) {
        let to = (from + dash as i32).min(end);
        area.draw(&PathElement::new([(from, middle), (to, middle)], line.style.colour.stroke_width(pen)))?;
    }
    area.draw(&marker((x + SAMPLE as i32 / 2, middle), line.style, measured))?;
    let beside = TextStyle::from(font(FONT)).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(text.to_string(), (end + AFTER_SAMPLE as i32, middle), beside))?;
    Ok(())
}
