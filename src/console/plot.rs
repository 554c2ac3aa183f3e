//! Lines over time, as SVG.

use maud::{Markup, html};

/// Width and height in the picture's own units: it is stretched to where it is shown.
const WIDTH: usize = 600;
const HEIGHT: usize = 120;

/// A line of a plot.
#[derive(Debug)]
pub(super) struct Line {
    /// What it is.
    pub(super) name: &'static str,
    /// In order; `None` where there is nothing to tell.
    pub(super) values: Vec<Option<f64>>,
}

/// Several lines over the same time.
#[derive(Debug)]
pub(super) struct Plot {
    /// What is shown.
    pub(super) title: &'static str,
    /// What its numbers are.
    pub(super) unit: &'static str,
    /// All of the same length.
    pub(super) lines: Vec<Line>,
    /// How far back it goes.
    pub(super) since: String,
}

impl Plot {
    /// The picture with its legend, whose numbers are the latest: it says all without the picture.
    pub(super) fn markup(&self, id: &str) -> Markup {
        let values = self.lines.iter().flat_map(|line| line.values.iter().flatten());
        let top = nice(values.copied().fold(0.0, f64::max));
        let (width, height) = (WIDTH, HEIGHT);
        html! {
            figure.plot.card id=(id) {
                figcaption {
                    strong { (self.title) }
                    span.unit { (self.unit) }
                }
                div.picture {
                    span.top { (number(top)) }
                    svg viewBox=(format!("0 0 {width} {height}")) preserveAspectRatio="none" role="img"
                        aria-labelledby=(format!("{id}-says")) {
                        line.grid x1="0" x2=(width) y1=(height / 2) y2=(height / 2) {}
                        @for (index, line) in self.lines.iter().enumerate() {
                            @for path in paths(&line.values, top) {
                                polyline.(format!("line l{index}")) points=(path) {}
                            }
                        }
                    }
                    div.axis { span { (self.since) } span { "now" } }
                }
                ul.legend id=(format!("{id}-says")) {
                    @for (index, line) in self.lines.iter().enumerate() {
                        li {
                            svg.key viewBox="0 0 24 8" aria-hidden="true" {
                                line.(format!("line l{index}")) x1="1" x2="23" y1="4" y2="4" {}
                            }
                            span { (line.name) }
                            b { (line.values.last().copied().flatten().map_or("\u{2013}".to_owned(), number)) }
                        }
                    }
                }
            }
        }
    }
}

/// The points of a line, in pieces where something is missing. A single one is a short stroke, or nobody would see it.
fn paths(values: &[Option<f64>], top: f64) -> Vec<String> {
    let step = WIDTH as f64 / (values.len().max(2) - 1) as f64;
    let mut paths = Vec::new();
    let mut path = String::new();
    for (index, value) in values.iter().enumerate() {
        match value {
            Some(value) => {
                let (x, y) = (index as f64 * step, (1.0 - value / top).clamp(0.0, 1.0) * HEIGHT as f64);
                if path.is_empty() {
                    point(&mut path, (x - 1.0).max(0.0), y);
                }
                point(&mut path, x, y);
            }
            None if path.is_empty() => {}
            None => paths.push(std::mem::take(&mut path)),
        }
    }
    if !path.is_empty() {
        paths.push(path);
    }
    paths
}

fn point(path: &mut String, x: f64, y: f64) {
    path.push_str(&format!("{x:.1},{y:.1} "));
}

/// The next of 1, 2, 5, 10, ...: an axis that does not jump with each point.
fn nice(most: f64) -> f64 {
    let mut bound = 1.0;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            if most <= bound * factor {
                return bound * factor;
            }
        }
        bound *= 10.0;
    }
}

/// Short, and as exact as anybody needs.
fn number(value: f64) -> String {
    match value {
        value if value >= 100_000.0 => format!("{:.0}k", value / 1_000.0),
        value if value >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_round_number() {
        for (most, top) in [(0.0, 1.0), (1.0, 1.0), (1.1, 2.0), (4.0, 5.0), (7.0, 10.0), (10.0, 10.0), (130.0, 200.0)] {
            assert!((nice(most) - top).abs() < f64::EPSILON, "{most}");
        }
    }

    #[test]
    fn a_line_has_a_gap_where_nothing_is_known() {
        let values = [Some(0.0), Some(10.0), None, None, Some(5.0)];
        let paths = paths(&values, 10.0);
        assert_eq!(paths, ["0.0,120.0 0.0,120.0 150.0,0.0 ", "599.0,60.0 600.0,60.0 "]);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [(0.0, "0"), (0.25, "0.2"), (3.0, "3"), (12.4, "12"), (123_456.0, "123k")] {
            assert_eq!(number(value), text);
        }
    }
}
