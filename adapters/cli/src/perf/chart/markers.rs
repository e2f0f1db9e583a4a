//! Colours and markers, by which lines are told apart.

use plotters::element::ComposedElement;
use plotters::prelude::*;

pub const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 92, 168),
    RGBColor(200, 82, 0),
    RGBColor(20, 130, 80),
    RGBColor(150, 60, 170),
    RGBColor(170, 30, 60),
    RGBColor(90, 90, 20),
];
pub const SHAPES: [Shape; 4] = [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond];

/// The form of a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
}

impl Shape {
    /// The closed outline around the origin, in pixels.
    const fn outline(self) -> &'static [(i32, i32)] {
        match self {
            Self::Circle => &[(4, 0), (3, 3), (0, 4), (-3, 3), (-4, 0), (-3, -3), (0, -4), (3, -3), (4, 0)],
            Self::Square => &[(4, 4), (-4, 4), (-4, -4), (4, -4), (4, 4)],
            Self::Triangle => &[(0, -6), (6, 4), (-6, 4), (0, -6)],
            Self::Diamond => &[(0, -6), (6, 0), (0, 6), (-6, 0), (0, -6)],
        }
    }
}

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Style {
    pub colour: RGBColor,
    pub shape: Shape,
}

/// Pixels around a point.
type Pixels = (i32, i32);

/// A marker at a point: filled for what was measured, hollow for a limit.
pub fn marker<C, B: DrawingBackend>(
    at: C,
    style: Style,
    filled: bool,
) -> ComposedElement<C, B, Polygon<Pixels>, PathElement<Pixels>> {
    let inside = if filled { style.colour } else { WHITE };
    let outline = style.shape.outline();
    EmptyElement::at(at)
        + Polygon::new(outline, inside.filled())
        + PathElement::new(outline, style.colour.stroke_width(1))
}

/// Two strokes across an axis, which show that it is interrupted there.
pub fn gap<C, B: DrawingBackend>(at: C) -> ComposedElement<C, B, PathElement<Pixels>, PathElement<Pixels>> {
    let stroke = |x| PathElement::new([(x - 2, 6), (x + 2, -6)], BLACK.stroke_width(1));
    EmptyElement::at(at) + stroke(-2) + stroke(3)
}
