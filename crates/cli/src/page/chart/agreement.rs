//! Pairs of values that should be equal, as dots beside the diagonal.

use super::{Chart, PLOT_LEFT, PLOT_RIGHT, at, gap, line, number, text, ticks};
use maud::html;

/// A pair.
#[derive(Debug, Clone)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Index into [`Axes::groups`].
    pub group: usize,
    /// It is labelled, because it is outside of what is allowed.
    pub is_off: bool,
    pub label: String,
}

/// Labels, and the allowed distance from the diagonal.
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    pub x: &'a str,
    pub y: &'a str,
    /// Names of the groups of dots.
    pub groups: [&'a str; 2],
    /// Allowed distance as a share of x.
    pub share: f64,
    /// Allowed distance, where that is more.
    pub points: f64,
}

/// Number of corners of each edge of the band.
const CORNERS: usize = 48;

/// The chart.
pub fn chart(title: &str, description: &str, axes: &Axes, points: &[Point]) -> Chart {
    const TOP: f64 = 40.0;
    const BOTTOM: f64 = 440.0;
    let values = || points.iter().flat_map(|point| [point.x, point.y]).filter(|value| value.is_finite());
    let (least, most) =
        values().fold((0.0f64, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    let room = if most > least { (most - least) * 0.05 } else { 1.0 };
    let (least, most) = (least - room, most + room);
    let share = |value: f64| ((value - least) / (most - least)).clamp(0.0, 1.0);
    let x = |value: f64| PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * share(value);
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * share(value);
    let allowed = |value: f64| (axes.share * value.abs()).max(axes.points);
    let corner = |number: usize| least + (most - least) * number as f64 / (CORNERS - 1) as f64;
    let edge = |number: usize, sign: f64| {
        let value = corner(number);
        format!("{},{} ", at(x(value)), at(y(value + sign * allowed(value))))
    };
    let band: String = (0..CORNERS)
        .map(|number| edge(number, 1.0))
        .chain((0..CORNERS).rev().map(|number| edge(number, -1.0)))
        .collect();
    let scale = ticks(least, most);
    let grid = |tick: f64| if tick == 0.0 { "zero" } else { "grid" };
    let right = |point: &Point| share(point.x) > 0.6;
    let body = html! {
        polygon class="band" points=(band.trim_end()) {}
        @for &tick in &scale {
            (line(grid(tick), [PLOT_LEFT, y(tick)], [PLOT_RIGHT, y(tick)]))
            (line(grid(tick), [x(tick), TOP], [x(tick), BOTTOM]))
            (text(PLOT_LEFT - 6.0, y(tick) + 4.0, "tick end", &number(tick, gap(&scale))))
            (text(x(tick), BOTTOM + 17.0, "tick middle", &number(tick, gap(&scale))))
        }
        (text((PLOT_LEFT + PLOT_RIGHT) / 2.0, BOTTOM + 34.0, "tick middle", axes.x))
        (text(4.0, TOP - 8.0, "tick", axes.y))
        @for (group, name) in axes.groups.iter().enumerate() {
            circle class=(format!("series-{}", group + 1)) cx=(at(PLOT_LEFT + 8.0 + 220.0 * group as f64)) cy="10" r="4.5" {}
            (text(PLOT_LEFT + 18.0 + 220.0 * group as f64, 14.0, "", name))
        }
        @for point in points {
            circle class=(format!("series-{}", point.group + 1)) cx=(at(x(point.x))) cy=(at(y(point.y))) r="4.5" {
                title { (point.label) (format!(": {:+.2} %, {:+.2} %", point.x, point.y)) }
            }
        }
        @for point in points.iter().filter(|point| point.is_off) {
            (text(
                x(point.x) + if right(point) { -9.0 } else { 9.0 },
                y(point.y) + 4.0,
                if right(point) { "figure end" } else { "figure" },
                &point.label,
            ))
        }
    };
    Chart::single(title, description, BOTTOM + 42.0, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: Axes<'_> = Axes { x: "x", y: "y", groups: ["a", "b"], share: 0.15, points: 0.5 };

    fn point(x: f64, y: f64, is_off: bool) -> Point {
        Point { x, y, group: 1, is_off, label: "p & q".to_owned() }
    }

    #[test]
    fn every_pair_is_a_dot_and_those_outside_have_labels() {
        let chart = chart("t", "d", &AXES, &[point(1.0, 1.0, false), point(10.0, -3.0, true)]).file();
        assert_eq!(chart.matches("p &amp; q: ").count(), 2, "each dot has its values");
        assert_eq!(chart.matches(">p &amp; q<").count(), 1, "{chart}");
    }

    #[test]
    fn no_pair_and_equal_pairs_are_drawn() {
        for points in [vec![], vec![point(0.0, 0.0, false)]] {
            let chart = chart("t", "d", &AXES, &points).file();
            assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
        }
    }
}
