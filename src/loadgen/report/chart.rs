//! One chart: curves over two axes, each labelled where it ends, with a strip of marks below where that is wanted.
//!
//! Contract: whoever draws a chart lays it out first ([`Layout`]), because the texts at its sides decide how much is
//! left for the curves; then places everything in pixels of that layout. Nothing overlaps: labels at the ends of
//! curves are spread, strips have a row each. The chart is complete without scripts; read-outs are data for the one
//! script of the page.

use super::scale::spread;
use super::svg::{Anchor, FONT_PX, Svg};
use super::text::{escape, width_px};

/// Width of every chart; a page on a wide screen has two beside each other.
const WIDTH_PX: f64 = 560.0;
/// Distance between base lines of neighbouring labels.
const LINE_PX: f64 = 15.0;
/// Height of a strip's row.
const STRIP_PX: f64 = 14.0;
/// What they show.
pub(super) const STRIPS: &str = "errors";
/// From the plot to the first of them.
const STRIP_GAP_PX: f64 = 6.0;
/// From the plot to the labels at the ends of curves.
const LABEL_GAP_PX: f64 = 10.0;
/// Room for such labels; the rest of longer ones is cut off.
pub(super) const LABEL_ROOM_PX: f64 = 128.0;

/// Where the curves of a chart may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) left_px: f64,
    pub(super) right_px: f64,
    pub(super) top_px: f64,
    pub(super) bottom_px: f64,
}

impl Layout {
    /// A plot of that height between labels of the axis on its left and labels of curves on its right.
    pub(super) fn new(height_px: f64, axis_labels: &[String], curve_labels: &[String]) -> Layout {
        let widest_px =
            |labels: &[String]| labels.iter().map(|label| width_px(label, FONT_PX)).fold(0.0, f64::max);
        let left_px = widest_px(axis_labels).max(30.0) + 8.0;
        // Keys are bold, which is wider.
        let labels_px = (widest_px(curve_labels) * 1.08).max(14.0);
        let right_px = WIDTH_PX - (LABEL_GAP_PX + labels_px + 2.0);
        let top_px = 26.0;
        Layout { left_px, right_px, top_px, bottom_px: top_px + height_px }
    }

    /// Pixels from left to right, for a scale.
    pub(super) fn x_px(&self) -> (f64, f64) {
        (self.left_px, self.right_px)
    }

    /// Pixels from bottom to top, for a scale.
    pub(super) fn y_px(&self) -> (f64, f64) {
        (self.bottom_px, self.top_px)
    }
}

/// A curve and what it is called.
pub(super) struct Curve {
    /// Which of the page's colours it has.
    pub(super) colour: usize,
    /// Letter of the run, where there are several.
    pub(super) key: String,
    /// Name at its end.
    pub(super) label: String,
    /// The whole name.
    pub(super) title: String,
    /// Whether it steps back behind the others.
    pub(super) is_light: bool,
    /// Its points in pixels; none where there is nothing to show.
    pub(super) points: Vec<Option<(f64, f64)>>,
}

impl Curve {
    /// The text at its end, as wide as it is drawn.
    pub(super) fn end_label(&self) -> String {
        end_label(&self.key, &self.label)
    }

    fn end(&self) -> Option<(f64, f64)> {
        self.points.iter().rev().find_map(|point| *point)
    }
}

/// The text at the end of a curve.
pub(super) fn end_label(key: &str, label: &str) -> String {
    format!("{key} {label}").trim().to_owned()
}

/// A row of marks below the curves.
pub(super) struct Strip {
    /// Which of the page's colours they have.
    pub(super) colour: usize,
    /// Letter of the run, where there are several.
    pub(super) key: String,
    /// Sum at the end of the row.
    pub(super) label: String,
    /// Where the marks are, how wide, and what each says.
    pub(super) marks: Vec<(f64, f64, String)>,
}

/// A point that is named beside it.
pub(super) struct Note {
    pub(super) colour: usize,
    pub(super) at: (f64, f64),
    pub(super) text: String,
}

/// What the curves say at one place.
pub(super) struct ReadOut {
    pub(super) at_px: f64,
    pub(super) heading: String,
    /// One for each curve.
    pub(super) values: Vec<Option<String>>,
}

/// Everything in a chart.
pub(super) struct Chart {
    pub(super) title: String,
    /// What it shows and how to read it; plain text.
    pub(super) caption: String,
    pub(super) layout: Layout,
    pub(super) y_title: String,
    pub(super) y_ticks: Vec<(f64, String)>,
    pub(super) x_title: String,
    pub(super) x_ticks: Vec<(f64, String)>,
    pub(super) curves: Vec<Curve>,
    pub(super) strips: Vec<Strip>,
    pub(super) notes: Vec<Note>,
    pub(super) read_outs: Vec<ReadOut>,
    /// Whether it takes two rows of the page.
    pub(super) is_tall: bool,
}

impl Chart {
    /// The chart as a `figure`.
    pub(super) fn html(&self) -> String {
        let class = match (self.is_tall, self.curves.len()) {
            (true, _) => "chart tall",
            (_, 5..) => "chart crowded",
            _ => "chart",
        };
        format!(
            "<figure class=\"{class}\" data-read=\"{}\" data-keys=\"{}\">\n<figcaption><h3>{}</h3>\
             <p class=\"read\">{}</p></figcaption>\n{}</figure>\n",
            escape(&self.read_outs_json()),
            escape(&self.keys_json()),
            escape(&self.title),
            escape(&self.caption),
            self.svg(),
        )
    }

    fn svg(&self) -> String {
        let Layout { left_px, right_px, bottom_px, .. } = self.layout;
        let base_px = bottom_px
            + if self.strips.is_empty() { 0.0 } else { STRIP_GAP_PX + self.strips.len() as f64 * STRIP_PX };
        let mut svg = Svg::new(WIDTH_PX, base_px + 40.0);
        self.draw_axes(&mut svg, base_px);
        self.draw_strips(&mut svg);
        for curve in self.curves.iter().rev() {
            let weight = if curve.is_light { " light" } else { "" };
            svg.curve(&format!("curve c{}{weight}", curve.colour), &curve.points);
        }
        self.draw_end_labels(&mut svg);
        self.draw_notes(&mut svg);
        if self.curves.iter().all(|curve| curve.end().is_none()) {
            let middle = ((left_px + right_px) / 2.0, (self.layout.top_px + bottom_px) / 2.0);
            svg.text("quiet", middle, Anchor::Middle, "nothing was measured");
        }
        svg.line("cursor", (left_px, self.layout.top_px), (left_px, base_px));
        svg.finish(&format!("{}: {}", self.title, self.caption))
    }

    fn draw_axes(&self, svg: &mut Svg, base_px: f64) {
        let Layout { left_px, right_px, .. } = self.layout;
        svg.text("title", (0.0, 11.0), Anchor::Start, &self.y_title);
        for (y_px, label) in &self.y_ticks {
            svg.line("grid", (left_px, *y_px), (right_px, *y_px));
            svg.text("tick", (left_px - 6.0, y_px + 4.0), Anchor::End, label);
        }
        svg.line("axis", (left_px, base_px), (right_px, base_px));
        for (x_px, label) in &self.x_ticks {
            svg.line("axis", (*x_px, base_px), (*x_px, base_px + 4.0));
            svg.text("tick", (*x_px, base_px + 17.0), Anchor::Middle, label);
        }
        svg.text("title", (right_px, base_px + 34.0), Anchor::End, &self.x_title);
    }

    fn draw_strips(&self, svg: &mut Svg) {
        let Layout { left_px, right_px, bottom_px, .. } = self.layout;
        for (row, strip) in self.strips.iter().enumerate() {
            let top_px = bottom_px + STRIP_GAP_PX + row as f64 * STRIP_PX;
            if row == 0 {
                svg.text("tick", (left_px - 6.0, top_px + 11.0), Anchor::End, STRIPS);
            }
            for (at_px, width_px, title) in &strip.marks {
                svg.mark(
                    &format!("mark c{}", strip.colour),
                    (*at_px, top_px + 2.0),
                    (*width_px, 10.0),
                    title,
                );
            }
            let at = (right_px + LABEL_GAP_PX, top_px + 11.0);
            svg.keyed_text(
                &format!("label c{}", strip.colour),
                at,
                Anchor::Start,
                &strip.key,
                &strip.label,
                "",
            );
        }
    }

    fn draw_end_labels(&self, svg: &mut Svg) {
        let Layout { right_px, top_px, bottom_px, .. } = self.layout;
        let labelled: Vec<(&Curve, (f64, f64))> =
            (self.curves.iter().filter(|curve| !curve.end_label().is_empty()))
                .filter_map(|curve| Some((curve, curve.end()?)))
                .collect();
        let wanted: Vec<f64> = labelled.iter().map(|(_, end)| end.1).collect();
        // The lowest label stays clear of the sum beside the first strip.
        let placed =
            spread(&wanted, LINE_PX, (top_px, bottom_px - if self.strips.is_empty() { 0.0 } else { 6.0 }));
        for ((curve, end), y_px) in labelled.iter().zip(placed) {
            let is_aside = (end.1 - y_px).abs() > 3.0 || right_px - end.0 > 12.0;
            if is_aside {
                let turn = (right_px.max(end.0) - 2.0, end.1);
                let leader = [Some(*end), Some(turn), Some((right_px + LABEL_GAP_PX - 3.0, y_px))];
                svg.curve(&format!("leader c{}", curve.colour), &leader);
            }
            let at = (right_px + LABEL_GAP_PX, y_px + 4.0);
            let class = format!("label c{}", curve.colour);
            svg.keyed_text(&class, at, Anchor::Start, &curve.key, &curve.label, &curve.title);
        }
    }

    /// Names points beside the only curve, where there is room for it: a curve that grows leaves free what is right
    /// of a point and below it, or left of it and above it.
    fn draw_notes(&self, svg: &mut Svg) {
        let Layout { left_px, right_px, bottom_px, .. } = self.layout;
        let mut taken: Vec<Bounds> = Vec::new();
        for note in &self.notes {
            svg.dot(&format!("point c{}", note.colour), note.at, 3.0);
            let (x_px, y_px) = note.at;
            let length_px = width_px(&note.text, FONT_PX);
            let corners =
                [(x_px + 6.0, y_px + 16.0), (x_px - 6.0 - length_px, y_px - 6.0), (x_px - 4.0, y_px - 8.0)];
            let place = corners.into_iter().map(|corner| Bounds::of(corner, length_px)).find(|bounds| {
                let is_inside =
                    bounds.left >= left_px && bounds.right <= right_px && bounds.bottom < bottom_px - 1.0;
                let is_clear = taken.iter().all(|other| !bounds.overlaps(other))
                    && self.curves.iter().all(|curve| !bounds.is_crossed_by(&curve.points));
                is_inside && is_clear
            });
            if let Some(bounds) = place {
                svg.text("note", (bounds.left, bounds.bottom - DESCENT_PX), Anchor::Start, &note.text);
                taken.push(bounds);
            }
        }
    }

    /// `[[x, heading, [value or null, ...]], ...]`
    fn read_outs_json(&self) -> String {
        let rows = self.read_outs.iter().map(|read_out| {
            serde_json::json!([(read_out.at_px * 10.0).round() / 10.0, read_out.heading, read_out.values])
        });
        serde_json::Value::Array(rows.collect()).to_string()
    }

    /// `[[colour, name], ...]`
    fn keys_json(&self) -> String {
        let keys = self.curves.iter().map(|curve| {
            let name = if curve.key.is_empty() { &curve.label } else { &curve.key };
            serde_json::json!([curve.colour, name])
        });
        serde_json::Value::Array(keys.collect()).to_string()
    }
}

/// What of a letter is below its base line.
const DESCENT_PX: f64 = 3.0;

/// What a line of text covers.
#[derive(Debug)]
struct Bounds {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Bounds {
    fn of(start: (f64, f64), length_px: f64) -> Bounds {
        let bottom = start.1 + DESCENT_PX;
        Bounds { left: start.0, right: start.0 + length_px, top: bottom - FONT_PX, bottom }
    }

    fn overlaps(&self, other: &Bounds) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Whether a curve from left to right that never falls passes through.
    fn is_crossed_by(&self, points: &[Option<(f64, f64)>]) -> bool {
        let segments = points.windows(2).filter_map(|pair| Some((pair[0]?, pair[1]?)));
        segments.into_iter().any(|(from, to)| {
            let (left, right) = (from.0.max(self.left), to.0.min(self.right));
            let y_at = |x: f64| {
                if to.0 > from.0 { from.1 + (to.1 - from.1) * (x - from.0) / (to.0 - from.0) } else { to.1 }
            };
            left <= right && y_at(left) >= self.top && y_at(right) <= self.bottom
        })
    }
}
