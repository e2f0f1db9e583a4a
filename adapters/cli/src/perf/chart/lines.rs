//! The lines of a chart: which rows they consist of, in which panel they are, and how they are told apart.

use super::super::plan::{Mode, Unit};
use super::super::repetition::Row;
use super::markers::{COLOURS, SHAPES, Style};

/// One transport and mode over the sizes: a line for what was measured, and one for the limit.
pub struct Line {
    pub name: String,
    /// Bytes and value.
    pub measured: Vec<(usize, f64)>,
    pub limit: Vec<(usize, f64)>,
    pub style: Style,
}

/// All lines with one kind of value.
pub struct Panel {
    pub title: &'static str,
    /// The unit of the values.
    pub unit: Unit,
    pub lines: Vec<Line>,
}

impl Panel {
    /// Whether all lines are points at one size.
    pub fn has_one_size(&self) -> bool {
        let mut sizes = self.lines.iter().flat_map(|line| &line.measured).map(|(bytes, _)| bytes);
        let first = sizes.next();
        sizes.all(|bytes| Some(bytes) == first)
    }
}

/// The panels for which there are values.
pub fn panels(rows: &[Row]) -> Vec<Panel> {
    let kinds: [(_, &[Unit]); 3] = [
        ("time of an operation", &[Unit::Nanos]),
        ("bandwidth", &[Unit::Gigabytes]),
        ("messages or operations a second", &[Unit::Messages, Unit::Operations]),
    ];
    let panel = |(title, units): (_, &[Unit])| Panel { title, unit: units[0], lines: lines(rows, units) };
    kinds.into_iter().map(panel).filter(|panel| !panel.lines.is_empty()).collect()
}

/// All lines of the rows in one of these units. The colour shows the transport, and the marker the mode. With one transport, the
/// colour shows the mode, too.
fn lines(rows: &[Row], units: &[Unit]) -> Vec<Line> {
    let transports = distinct(rows.iter().map(|row| &row.transport[..]));
    // A logarithmic axis has no place for the value zero.
    let drawn = || rows.iter().filter(|row| units.contains(&row.mode.unit()) && row.value > 0.0);
    let modes: Vec<Mode> = distinct(drawn().map(|row| row.mode));
    let mut all: Vec<Line> = Vec::new();
    for row in drawn() {
        let name = format!("{} {}", row.transport, row.mode);
        let at = all.iter().position(|line| line.name == name).unwrap_or_else(|| {
            let transport = transports.iter().position(|each| *each == row.transport).unwrap_or(0);
            let mode = modes.iter().position(|each| *each == row.mode).unwrap_or(0);
            let colour = if transports.len() == 1 { mode } else { transport };
            let style = Style { colour: COLOURS[colour % COLOURS.len()], shape: SHAPES[mode % SHAPES.len()] };
            all.push(Line { name, measured: Vec::new(), limit: Vec::new(), style });
            all.len() - 1
        });
        let bytes = row.size.0;
        all[at].measured.push((bytes, row.value));
        // A limit may be missing.
        all[at].limit.extend((row.limit > 0.0).then_some((bytes, row.limit)));
    }
    // Sizes may be asked for in any order.
    for line in &mut all {
        line.measured.sort_by_key(|(bytes, _)| *bytes);
        line.limit.sort_by_key(|(bytes, _)| *bytes);
    }
    all
}

/// Each value once, in the order of their first appearance.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut seen, value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
        seen
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;
    use crate::transports::ALL;

    fn rows(transports: &[&str], modes: &[Mode]) -> Vec<Row> {
        let of = |transport: &&str| modes.iter().map(|mode| row(transport, *mode, 8, 1.0)).collect::<Vec<_>>();
        transports.iter().flat_map(of).collect()
    }

    #[test]
    fn each_line_of_a_panel_has_a_pair_of_colour_and_marker_of_its_own() {
        for transports in [&ALL[..], &["sm"], &["tcp", "udp"]] {
            let panels = panels(&rows(transports, &Mode::ALL));
            assert_eq!(panels.len(), 3);
            assert_eq!(panels.iter().map(|panel| panel.lines.len()).sum::<usize>(), transports.len() * Mode::ALL.len());
            for panel in panels {
                let styles = distinct(panel.lines.iter().map(|line| line.style));
                assert_eq!(styles.len(), panel.lines.len(), "{}", panel.title);
            }
        }
    }

    #[test]
    fn a_transport_has_one_colour_and_a_mode_one_marker() {
        let panels = panels(&rows(&["sm", "tcp"], &[Mode::Latency, Mode::Put, Mode::PutRate]));
        let [sm_latency, sm_put, tcp_latency, _] = &panels[0].lines[..] else { panic!("four lines") };
        assert_eq!(sm_latency.style.colour, sm_put.style.colour);
        assert_eq!(sm_latency.style.colour, panels[1].lines[0].style.colour, "in each panel");
        assert_eq!(sm_latency.style.shape, tcp_latency.style.shape);
        let one = super::panels(&rows(&["sm"], &[Mode::Latency, Mode::Put]));
        assert_ne!(one[0].lines[0].style.colour, one[0].lines[1].style.colour);
    }

    #[test]
    fn a_panel_has_only_values_that_can_be_drawn() {
        let mut rows =
            vec![row("sm", Mode::Rate, 64, 2.0), row("sm", Mode::Rate, 8, 4.0), row("sm", Mode::Put, 8, 0.0)];
        rows[1].limit = 0.0;
        let panels = panels(&rows);
        let [panel] = &panels[..] else { panic!("one panel") };
        assert_eq!(panel.lines[0].measured, [(8, 4.0), (64, 2.0)]);
        assert_eq!(panel.lines[0].limit, [(64, 4.0)]);
        assert!(!panel.has_one_size() && super::panels(&rows[..1])[0].has_one_size());
    }
}
