//! Writes SVG: lines, paths and texts with finite coordinates and escaped content.
//!
//! Contract: what is written is well-formed. Colours and fonts come from the classes in `page.css`; sizes of texts
//! are fixed here, because they decide what overlaps.

use std::fmt::Write;

use super::text::escape;

/// Size of all text in charts. `page.css` says the same.
pub(super) const FONT_PX: f64 = 12.0;

/// Which end of a text its position is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing in the making.
pub(super) struct Svg {
    width_px: f64,
    height_px: f64,
    body: String,
}

impl Svg {
    /// An empty drawing.
    pub(super) fn new(width_px: f64, height_px: f64) -> Svg {
        Svg { width_px, height_px, body: String::new() }
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(coordinate);
        self.push(format_args!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    /// A line through points. None interrupts it; a point without neighbours is a dot.
    pub(super) fn curve(&mut self, class: &str, points: &[Option<(f64, f64)>]) {
        let mut path = String::new();
        for piece in points.split(|point| point.is_none()) {
            let piece: Vec<(f64, f64)> = piece.iter().flatten().copied().collect();
            match &*piece {
                [] => {}
                [lone] => self.dot(class, *lone, 2.5),
                several => path.push_str(&path_through(several)),
            }
        }
        if !path.is_empty() {
            self.push(format_args!(r#"<path class="{class}" d="{path}"/>"#));
        }
    }

    /// A filled circle.
    pub(super) fn dot(&mut self, class: &str, at: (f64, f64), radius_px: f64) {
        let [x, y, radius] = [at.0, at.1, radius_px].map(coordinate);
        self.push(format_args!(r#"<circle class="{class}" cx="{x}" cy="{y}" r="{radius}"/>"#));
    }

    /// A small upright mark on a base line, with a text that shows when it is pointed at.
    pub(super) fn mark(&mut self, class: &str, at: (f64, f64), size_px: (f64, f64), title: &str) {
        let [x, y, width, height] = [at.0 - size_px.0 / 2.0, at.1, size_px.0, size_px.1].map(coordinate);
        let title = escape(title);
        self.push(format_args!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"><title>{title}</title></rect>"#
        ));
    }

    /// A text on one line, its base line at `at`.
    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, content: &str) {
        self.keyed_text(class, at, anchor, "", content, "");
    }

    /// A text that begins with a key in the colour of its class; the title shows when it is pointed at.
    pub(super) fn keyed_text(
        &mut self,
        class: &str,
        at: (f64, f64),
        anchor: Anchor,
        key: &str,
        content: &str,
        title: &str,
    ) {
        let [x, y] = [at.0, at.1].map(coordinate);
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let title =
            if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) };
        let key = match key {
            "" => String::new(),
            _ if content.is_empty() => format!(r#"<tspan class="key">{}</tspan>"#, escape(key)),
            _ => format!(r#"<tspan class="key">{}</tspan> "#, escape(key)),
        };
        let content = escape(content);
        self.push(format_args!(
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{title}{key}{content}</text>"#
        ));
    }

    /// The drawing as an element. `label` is what it is called for those who cannot see it.
    pub(super) fn finish(self, label: &str) -> String {
        let [width, height] = [self.width_px, self.height_px].map(coordinate);
        let label = escape(label);
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
             aria-label=\"{label}\">\n{}</svg>\n",
            self.body
        )
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{element}").expect("a string takes everything");
    }
}

fn path_through(points: &[(f64, f64)]) -> String {
    let mut path = String::with_capacity(points.len() * 12);
    for (index, (x, y)) in points.iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        write!(path, "{command}{} {}", coordinate(*x), coordinate(*y)).expect("a string takes everything");
    }
    path
}

/// A coordinate to a tenth of a pixel.
pub(super) fn coordinate(value_px: f64) -> String {
    assert!(value_px.is_finite(), "a place in a drawing: {value_px}");
    let tenths = (value_px * 10.0).round();
    let value_px = if tenths == 0.0 { 0.0 } else { tenths / 10.0 };
    format!("{value_px}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short() {
        for (value_px, text) in [(0.0, "0"), (-0.04, "0"), (12.34, "12.3"), (100.0, "100"), (-2.26, "-2.3")] {
            assert_eq!(coordinate(value_px), text);
        }
    }

    #[test]
    #[should_panic(expected = "a place in a drawing: NaN")]
    fn nothing_is_drawn_nowhere() {
        coordinate(f64::NAN);
    }

    #[test]
    fn gaps_interrupt_a_curve_and_lone_points_are_dots() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.curve("c0", &[Some((0.0, 1.0)), Some((2.0, 3.0)), None, Some((5.0, 5.0)), None, None]);
        let text = svg.finish("a & b");
        assert!(text.contains(r#"<path class="c0" d="M0 1L2 3"/>"#), "{text}");
        assert!(text.contains(r#"<circle class="c0" cx="5" cy="5" r="2.5"/>"#), "{text}");
        assert!(text.contains(r#"aria-label="a &amp; b""#), "{text}");

        let mut empty = Svg::new(10.0, 10.0);
        empty.curve("c0", &[]);
        empty.curve("c0", &[None]);
        assert!(!empty.finish("").contains("class"));
    }

    #[test]
    fn texts_are_escaped() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.keyed_text("c0", (1.0, 2.0), Anchor::End, "<", "<b>", "\"&\"");
        svg.mark("c0", (1.0, 2.0), (2.0, 8.0), "<i>");
        let text = svg.finish("");
        for escaped in
            ["<title>&quot;&amp;&quot;</title>", ">&lt;</tspan> &lt;b&gt;</text>", "<title>&lt;i&gt;</title>"]
        {
            assert!(text.contains(escaped), "{text}");
        }
    }
}
