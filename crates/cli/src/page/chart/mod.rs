//! Charts as SVG, inside a page or as a file of its own.
//!
//! Colours are classes (`chart.css`), so a chart follows the page into dark mode, and every chart
//! has a title and a description for screen readers. The plotters crate draws fixed colours and no
//! such text; that is why it is not used.

pub mod agreement;

use crate::table::printable;
use maud::{Markup, PreEscaped, html};

/// Width of every chart; one unit is a pixel on a page of this width.
const WIDTH: f64 = 720.0;
const STYLE: &str = include_str!("../chart.css");

/// A chart: one picture, or several below each other, between which a printed page may break.
#[derive(Debug, Clone)]
pub struct Chart {
    title: String,
    description: String,
    pictures: Vec<Picture>,
}

#[derive(Debug, Clone)]
struct Picture {
    title: String,
    description: String,
    height: f64,
    body: Markup,
}

impl Chart {
    fn single(title: &str, description: &str, height: f64, body: Markup) -> Chart {
        let (title, description) = (title.to_owned(), description.to_owned());
        let picture = Picture { title: title.clone(), description: description.clone(), height, body };
        Chart { title, description, pictures: vec![picture] }
    }

    /// Whether the chart is one picture.
    pub fn is_single(&self) -> bool {
        self.pictures.len() == 1
    }

    /// The SVG inside a page. `pictures` counts the pictures of the page, for unique ids.
    pub fn inline(&self, pictures: &mut usize) -> Markup {
        let first = *pictures + 1;
        *pictures += self.pictures.len();
        html! {
            @for (picture, number) in self.pictures.iter().zip(first..) {
                svg class="chart" viewBox=(format!("0 0 {WIDTH} {}", picture.height)) role="img"
                    aria-labelledby=(format!("title-{number} description-{number}")) {
                    title id=(format!("title-{number}")) { (picture.title) }
                    desc id=(format!("description-{number}")) { (picture.description) }
                    (picture.body)
                }
            }
        }
    }

    /// The SVG as a file.
    pub fn file(&self) -> String {
        let height: f64 = self.pictures.iter().map(|picture| picture.height).sum();
        let tops = self.pictures.iter().scan(0.0, |top, picture| {
            *top += picture.height;
            Some(*top - picture.height)
        });
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" class="chart alone" viewBox=(format!("0 0 {WIDTH} {height}"))
                width=(WIDTH) height=(height) role="img" aria-labelledby="title description" {
                title id="title" { (self.title) }
                desc id="description" { (self.description) }
                style { (PreEscaped(STYLE)) }
                rect class="ground" width=(WIDTH) height=(height) {}
                @for (picture, top) in self.pictures.iter().zip(tops) {
                    g transform=(format!("translate(0 {})", at(top))) { (picture.body) }
                }
            }
        };
        printable(&svg.into_string()).into_owned() + "\n"
    }
}

/// A coordinate with one decimal at most.
fn at(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn text(x: f64, y: f64, class: &str, words: &str) -> Markup {
    html! { text x=(at(x)) y=(at(y)) class=(class) { (words) } }
}

fn line(class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) -> Markup {
    html! { line class=(class) x1=(at(x1)) y1=(at(y1)) x2=(at(x2)) y2=(at(y2)) {} }
}

/// A range as a line with a whisker at each end.
fn whisker(low: f64, high: f64, y: f64, half: f64) -> Markup {
    html! {
        (line("whisker", [low, y], [high, y]))
        (line("whisker", [low, y - half], [low, y + half]))
        (line("whisker", [high, y - half], [high, y + half]))
    }
}

/// About five round numbers between two values.
fn ticks(least: f64, most: f64) -> Vec<f64> {
    let raw = (most - least).max(f64::MIN_POSITIVE) / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|&step| step >= raw).unwrap_or(raw);
    let (first, slack) = ((least / step).ceil(), step * 1e-6);
    let ticks = (0..12u8).map(|number| (first + f64::from(number)) * step);
    ticks.filter(|tick| tick.is_finite() && (least - slack..=most + slack).contains(tick)).collect()
}

/// Round numbers of a logarithmic scale: 1, 2 and 5 of each power of ten, or the powers alone.
fn log_ticks(least: f64, most: f64) -> Vec<f64> {
    let powers = least.log10().floor() as i32..=most.log10().ceil() as i32;
    let steps: &[f64] = if powers.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    let inside: Vec<f64> = all.filter(|tick| (least..=most).contains(tick)).collect();
    // A range within one step has none of these.
    if inside.len() < 2 { ticks(least, most) } else { inside }
}

/// Drops the ticks whose labels would touch the one before. `x` is the place of a tick.
fn apart(ticks: Vec<f64>, x: impl Fn(f64) -> f64) -> Vec<f64> {
    /// Width of a character at the size of a label, and the least distance of two labels.
    const CHARACTER: f64 = 7.0;
    const DISTANCE: f64 = 8.0;
    let step = gap(&ticks);
    let mut end = f64::NEG_INFINITY;
    let mut kept = ticks;
    kept.retain(|&tick| {
        let half = number(tick, step).chars().count() as f64 * CHARACTER / 2.0;
        let fits = x(tick) - half >= end + DISTANCE;
        if fits {
            end = x(tick) + half;
        }
        fits
    });
    kept
}

/// The distance between two ticks.
fn gap(ticks: &[f64]) -> f64 {
    if let [first, second, ..] = ticks { second - first } else { 1.0 }
}

#[derive(Debug, Clone)]
pub struct Bar {
    pub label: String,
    pub value: f64,
    /// Low and high end of its interval.
    pub range: (f64, f64),
    /// The value with its unit.
    pub shown: String,
}

/// Bars of the same unit, with their own scale.
#[derive(Debug, Clone)]
pub struct BarGroup {
    /// Name of the metric.
    pub name: String,
    /// A remark at the right.
    pub note: String,
    pub bars: Vec<Bar>,
    /// A reference value, drawn as a dashed line, and its label.
    pub mark: Option<(f64, String)>,
}

/// Groups of horizontal bars, one picture per group.
pub fn bars(title: &str, description: &str, groups: &[BarGroup]) -> Chart {
    let pictures = groups.iter().map(bar_group).collect();
    Chart { title: title.to_owned(), description: description.to_owned(), pictures }
}

fn bar_group(group: &BarGroup) -> Picture {
    const LEFT: f64 = 84.0;
    const RIGHT: f64 = 590.0;
    const BAR: f64 = 15.0;
    const TOP: f64 = 24.0;
    let values = group.bars.iter().flat_map(|bar| [bar.value, bar.range.1]);
    let most = values.chain(group.mark.iter().map(|mark| mark.0)).fold(0.0, f64::max);
    let place =
        |value: f64| LEFT + (RIGHT - LEFT) * if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    let bottom = TOP + BAR * group.bars.len() as f64;
    let top = |number: usize| TOP + BAR * number as f64;
    let bar = |number: usize, bar: &Bar| {
        let (y, end) = (top(number), place(bar.value));
        html! {
            (text(LEFT - 6.0, y + BAR / 2.0 + 4.0, "end", &bar.label))
            rect class=(format!("series-{}", number % 6)) x=(at(LEFT)) y=(at(y)) width=(at((end - LEFT).max(1.0)))
                height=(at(BAR - 2.0)) {}
            @if bar.range.1 > bar.range.0 {
                (whisker(place(bar.range.0), place(bar.range.1), y + BAR / 2.0 - 1.0, 3.0))
            }
        }
    };
    // Drawn after the mark, so that it covers the mark.
    let shown = |number: usize, bar: &Bar| {
        let after = place(bar.value).max(place(bar.range.1)) + 6.0;
        text(after, top(number) + BAR / 2.0 + 4.0, "figure", &bar.shown)
    };
    let mark = group.mark.as_ref().map(|(value, words)| {
        let x = place(*value);
        let class = if x > (LEFT + RIGHT) / 2.0 { "marked end" } else { "marked" };
        html! { (line("mark", [x, TOP - 2.0], [x, bottom + 3.0])) (text(x, bottom + 13.0, class, words)) }
    });
    let body = html! {
        (text(4.0, 18.0, "name", &group.name))
        (text(WIDTH - 4.0, 18.0, "note end", &group.note))
        @for (number, of) in group.bars.iter().enumerate() { (bar(number, of)) }
        @if let Some(mark) = &mark { (mark) }
        @for (number, of) in group.bars.iter().enumerate() { (shown(number, of)) }
    };
    let words = group.bars.iter().map(|bar| format!("{} {}", bar.label, bar.shown));
    let mut words: Vec<String> = words.collect();
    words.extend(group.mark.iter().map(|(_, words)| words.clone()));
    words.extend((!group.note.is_empty()).then(|| group.note.clone()));
    Picture {
        title: group.name.clone(),
        description: words.join("; "),
        height: bottom + if group.mark.is_some() { 23.0 } else { 10.0 },
        body,
    }
}

/// An effect, which may be positive or negative.
#[derive(Debug, Clone)]
pub struct Effect {
    pub label: String,
    pub value: f64,
    /// Low and high end of its interval.
    pub range: (f64, f64),
    /// Its interval contains 0.
    pub is_noise: bool,
    /// The value with its unit.
    pub shown: String,
}

/// A forest plot: effects with their intervals below each other, on one scale.
pub fn effects(title: &str, description: &str, unit: &str, effects: &[Effect]) -> Chart {
    const LEFT: f64 = 236.0;
    const RIGHT: f64 = 530.0;
    const ROW: f64 = 20.0;
    let all = effects.iter().flat_map(|effect| [effect.range.0, effect.range.1, effect.value]);
    let (least, most) =
        all.filter(|value| value.is_finite()).fold((0.0f64, 0.0f64), |(l, m), v| (l.min(v), m.max(v)));
    let room = if most > least { (most - least) * 0.04 } else { 1.0 };
    let (least, most) = (least - room, most + room);
    let place = |value: f64| LEFT + (RIGHT - LEFT) * ((value - least) / (most - least)).clamp(0.0, 1.0);
    let bottom = 8.0 + ROW * effects.len() as f64;
    let rows = effects.iter().enumerate().map(|(number, effect)| {
        let y = 8.0 + ROW * (number as f64 + 0.5);
        let class = if effect.is_noise { "noise" } else { "strong" };
        html! {
            g class=(class) {
                (text(LEFT - 10.0, y + 4.0, "end", &effect.label))
                (whisker(place(effect.range.0), place(effect.range.1), y, 4.0))
                circle class="dot" cx=(at(place(effect.value))) cy=(at(y)) r="4" {}
                (text(RIGHT + 10.0, y + 4.0, "figure", &effect.shown))
            }
        }
    });
    let scale = ticks(least, most);
    let body = html! {
        @for &tick in &scale {
            (line(if tick == 0.0 { "zero" } else { "grid" }, [place(tick), 4.0], [place(tick), bottom]))
            (text(place(tick), bottom + 14.0, "tick middle", &number(tick, gap(&scale))))
        }
        (text((LEFT + RIGHT) / 2.0, bottom + 30.0, "tick middle", unit))
        @for row in rows { (row) }
    };
    Chart::single(title, description, bottom + 38.0, body)
}

/// The label of a tick, given the distance between ticks.
fn number(value: f64, step: f64) -> String {
    match value.abs() {
        1e9.. => format!("{} G", at(value / 1e9)),
        1e6.. => format!("{} M", at(value / 1e6)),
        1e4.. => format!("{} k", at(value / 1e3)),
        0.0 => "0".to_owned(),
        _ if step < 1.0 => {
            let decimals = (-step.log10()).ceil().clamp(0.0, 6.0) as usize;
            format!("{value:.decimals$}")
        }
        _ => at(value),
    }
}

/// A line.
#[derive(Debug, Clone)]
pub struct Series {
    pub label: String,
    /// Places and values, in order; `None` is a gap.
    pub points: Vec<(f64, Option<f64>)>,
}

/// The axes of [`lines`].
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    /// Label of the horizontal axis.
    pub x: &'a str,
    /// Label of the vertical axis.
    pub y: &'a str,
    /// Smallest range of the vertical axis.
    pub range: (f64, f64),
    /// The horizontal axis is logarithmic.
    pub log: bool,
    /// The first of several lines is the one that others are compared with; it is grey.
    pub has_reference: bool,
}

/// The classes of a line: its colour and its dashes. The first 30 lines of a chart differ. Line 0
/// is grey, the others are coloured, and both 0 and 1 have no dashes.
fn line_class(number: usize) -> String {
    /// Dashes of the first lines of each colour; the next line of the colour has the next kind.
    const DASHES: [usize; 6] = [0, 0, 1, 2, 3, 4];
    const KINDS: usize = 5;
    let (colour, round) = (number % DASHES.len(), number / DASHES.len());
    match (DASHES[colour] + round) % KINDS {
        0 => format!("curve line-{colour}"),
        dashes => format!("curve line-{colour} dash-{dashes}"),
    }
}

/// The points that no line leads to, because their neighbours are missing.
fn alone(points: &[(f64, Option<f64>)]) -> Vec<(f64, f64)> {
    let is_gap =
        |at: Option<usize>| at.and_then(|at| points.get(at)).is_none_or(|(_, value)| value.is_none());
    let point = |(at, &(place, value)): (usize, &(f64, Option<f64>))| {
        value.filter(|_| is_gap(at.checked_sub(1)) && is_gap(Some(at + 1))).map(|value| (place, value))
    };
    points.iter().enumerate().filter_map(point).collect()
}

/// Horizontal extent of line charts and heat maps.
const PLOT_LEFT: f64 = 60.0;
const PLOT_RIGHT: f64 = WIDTH - 16.0;

/// Lines on a common axis.
pub fn lines(title: &str, description: &str, axes: Axes, series: &[Series]) -> Chart {
    // The legend is above the chart, with as many names per row as fit.
    let longest = series.iter().map(|series| series.label.chars().count()).max().unwrap_or(0);
    let column = 40.0 + 7.0 * longest as f64;
    let per_row = ((PLOT_RIGHT - PLOT_LEFT) / column).clamp(1.0, 6.0) as usize;
    let top = 18.0 * series.len().div_ceil(per_row) as f64 + 22.0;
    let bottom = top + 186.0;
    let points = || series.iter().flat_map(|series| &series.points);
    let (first, last) =
        points().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), point| (a.min(point.0), b.max(point.0)));
    let (first, last) = if last > first { (first, last) } else { (0.0, last.max(1.0)) };
    let (least, most) =
        points().filter_map(|point| point.1).fold(axes.range, |(l, m), value| (l.min(value), m.max(value)));
    let log = axes.log && first > 0.0;
    let scale = |value: f64| if log { value.ln() } else { value };
    let share = |value: f64| (scale(value) - scale(first)) / (scale(last) - scale(first));
    let x = |value: f64| PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * share(value);
    let y = |value: f64| bottom - (bottom - top) * (value - least) / (most - least).max(f64::MIN_POSITIVE);
    let path = |series: &Series| {
        let mut path = String::new();
        let mut up = true;
        for &(place, value) in &series.points {
            if let Some(value) = value {
                path += &format!("{}{} {}", if up { "M" } else { "L" }, at(x(place)), at(y(value)));
            }
            up = value.is_none();
        }
        path
    };
    let legend = |number: usize| {
        (PLOT_LEFT + column * (number % per_row) as f64, 18.0 * (number / per_row) as f64 + 8.0)
    };
    let (up, mut along) = (ticks(least, most), if log { log_ticks(first, last) } else { ticks(first, last) });
    if points().all(|point| point.0.fract() == 0.0) {
        // Runs and members are whole numbers.
        along.retain(|tick| (tick - tick.round()).abs() < 1e-9);
    }
    let spaced = apart(along.clone(), x);
    let powers: Vec<f64> = along.iter().copied().filter(|tick| tick.log10().fract() == 0.0).collect();
    // Where 1, 2 and 5 are too many, the powers of ten alone read better than what happens to fit.
    let along = if log && spaced.len() < along.len() && powers.len() > 1 { apart(powers, x) } else { spaced };
    let first = usize::from(!(axes.has_reference && series.len() > 1));
    let class = |number: usize| line_class(number + first);
    let body = html! {
        @for &tick in &up {
            (line("grid", [PLOT_LEFT, y(tick)], [PLOT_RIGHT, y(tick)]))
            (text(PLOT_LEFT - 6.0, y(tick) + 4.0, "tick end", &number(tick, gap(&up))))
        }
        @for &tick in &along {
            (line("grid", [x(tick), bottom], [x(tick), bottom + 4.0]))
            (text(x(tick), bottom + 17.0, "tick middle", &number(tick, gap(&along))))
        }
        (text((PLOT_LEFT + PLOT_RIGHT) / 2.0, bottom + 34.0, "tick middle", axes.x))
        (text(4.0, top - 12.0, "tick", axes.y))
        @for (number, series) in series.iter().enumerate() {
            path class=(class(number)) d=(path(series)) {}
            @for (place, value) in alone(&series.points) {
                circle class=(class(number)) cx=(at(x(place))) cy=(at(y(value))) r="3" {}
            }
            line class=(class(number)) x1=(at(legend(number).0)) y1=(at(legend(number).1)) x2=(at(legend(number).0 + 24.0))
                y2=(at(legend(number).1)) {}
            (text(legend(number).0 + 30.0, legend(number).1 + 4.0, "", &series.label))
        }
    };
    Chart::single(title, description, bottom + 42.0, body)
}

/// The data of a heat map: columns along an axis, rows with names.
#[derive(Debug, Clone)]
pub struct Heat {
    /// The end of each column, on the axis; the first begins at 0.
    pub ends: Vec<f64>,
    pub x: String,
    /// From the top: a name, and a value from 0 to 1 per column.
    pub rows: Vec<(String, Vec<f64>)>,
}

pub fn heat(title: &str, description: &str, heat: &Heat) -> Chart {
    const ROW: f64 = 26.0;
    const TOP: f64 = 26.0;
    /// Number of shades; neighbouring cells of the same shade are one rectangle.
    const SHADES: f64 = 20.0;
    const LEFT: f64 = 76.0;
    let last = heat.ends.last().copied().unwrap_or(1.0);
    let x = |value: f64| LEFT + (PLOT_RIGHT - LEFT) * value / last;
    let bottom = TOP + ROW * heat.rows.len() as f64;
    let shade = |value: f64| (value.clamp(0.0, 1.0) * SHADES).round();
    let cells = |values: &[f64], top: f64| {
        let mut cells = Vec::new();
        let mut begin = 0;
        while begin < values.len() {
            let of = shade(values[begin]);
            let end = (begin..values.len()).find(|&at| shade(values[at]) != of).unwrap_or(values.len());
            let from = x(if begin == 0 { 0.0 } else { heat.ends[begin - 1] });
            if of > 0.0 {
                cells.push(html! {
                    rect class="heat" x=(at(from)) y=(at(top)) width=(at(x(heat.ends[end - 1]) - from)) height=(at(ROW - 2.0))
                        fill-opacity=(format!("{:.2}", of / SHADES)) {}
                });
            }
            begin = end;
        }
        cells
    };
    let along = ticks(0.0, last);
    let body = html! {
        (text(LEFT, 14.0, "tick", "share of the cached pages:"))
        @for step in 0..=4u8 {
            rect class="heat" x=(at(LEFT + 172.0 + 70.0 * f64::from(step))) y="4" width="18" height="12"
                fill-opacity=(format!("{:.2}", f64::from(step) / 4.0)) {}
            rect class="frame" x=(at(LEFT + 172.0 + 70.0 * f64::from(step))) y="4" width="18" height="12" {}
            (text(LEFT + 195.0 + 70.0 * f64::from(step), 14.0, "tick", &format!("{} %", 25 * step)))
        }
        @for (number, (name, values)) in heat.rows.iter().enumerate() {
            (text(LEFT - 6.0, TOP + ROW * (number as f64 + 0.5) + 3.0, "end", name))
            @for cell in cells(values, TOP + ROW * number as f64) { (cell) }
        }
        rect class="frame" x=(at(LEFT)) y=(at(TOP - 1.0)) width=(at(PLOT_RIGHT - LEFT)) height=(at(bottom - TOP)) {}
        @for &tick in &along {
            (line("grid", [x(tick), bottom], [x(tick), bottom + 4.0]))
            (text(x(tick), bottom + 17.0, "tick middle", &number(tick, gap(&along))))
        }
        (text((LEFT + PLOT_RIGHT) / 2.0, bottom + 34.0, "tick middle", &heat.x))
    };
    Chart::single(title, description, bottom + 42.0, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(-3.0, 3.0), [-2.0, 0.0, 2.0]);
        assert_eq!(log_ticks(90.0, 2100.0), [100.0, 200.0, 500.0, 1000.0, 2000.0]);
        for (least, most) in [(0.0, 0.0), (5.0, 5.0), (-1e300, -1e300), (0.0, 1e12), (0.0, f64::INFINITY)] {
            let ticks = ticks(least, most);
            let is_good = |tick: &f64| tick.is_finite() && (least..=most).contains(tick);
            assert!(ticks.iter().all(is_good), "{least} to {most}: {ticks:?}");
        }
        assert_eq!(
            [0.0, 0.05, 2.5, 12_000.0, 3e6, 2e9].map(|value| number(value, 0.05)),
            ["0", "0.05", "2.50", "12 k", "3 M", "2 G"]
        );
    }

    #[test]
    fn labels_of_ticks_do_not_touch() {
        // Without a round number of the logarithmic steps inside, the steps are even.
        assert_eq!(log_ticks(1100.0, 1900.0), [1200.0, 1400.0, 1600.0, 1800.0]);
        let place = |width: f64| move |tick: f64| width * (tick.log10() - 1.0) / 3.0;
        let all = log_ticks(10.0, 10_000.0);
        assert_eq!(apart(all.clone(), place(600.0)), all);
        assert_eq!(apart(all, place(120.0)), [10.0, 50.0, 500.0, 5000.0]);
        assert_eq!(apart(Vec::new(), place(1.0)), Vec::<f64>::new());
    }

    #[test]
    fn a_line_that_is_no_reference_is_coloured() {
        let series =
            ["a", "b"].map(|label| Series { label: label.to_owned(), points: vec![(1.0, Some(2.0))] });
        let first = |has_reference| {
            let axes = Axes { x: "", y: "", range: (0.0, 0.0), log: false, has_reference };
            let file = lines("", "", axes, &series).file();
            let (_, after) = file.split_once("<path class=\"").unwrap();
            after.split_once('"').unwrap().0.to_owned()
        };
        assert_eq!([true, false].map(first), ["curve line-0", "curve line-1"]);
    }

    #[test]
    fn lines_of_a_chart_differ_and_single_points_are_drawn() {
        let classes: std::collections::HashSet<String> = (0..30).map(line_class).collect();
        assert_eq!(classes.len(), 30);
        let points = vec![(1.0, Some(2.0)), (2.0, None), (3.0, Some(4.0)), (4.0, Some(5.0)), (5.0, None)];
        assert_eq!(alone(&points), [(1.0, 2.0)]);
        let axes = Axes { x: "", y: "", range: (0.0, 0.0), log: false, has_reference: false };
        let of = |points: &[(f64, Option<f64>)]| {
            let series = Series { label: String::new(), points: points.to_vec() };
            lines("", "", axes, &[series]).file().matches("<circle").count()
        };
        assert_eq!([of(&points[..1]), of(&points[2..4]), of(&[])], [1, 0, 0]);
    }

    #[test]
    fn words_are_escaped_and_cells_of_a_shade_are_one() {
        let of = Heat {
            ends: vec![1.0, 2.0, 3.0],
            x: "a < b".to_owned(),
            rows: vec![("r".to_owned(), vec![0.5, 0.51, 0.9])],
        };
        let file = heat("t & u", "d", &of).file();
        assert!(
            file.contains("a &lt; b") && file.contains("<title id=\"title\">t &amp; u</title>"),
            "{file}"
        );
        assert_eq!(file.matches("class=\"heat\"").count(), 5 + 2);
    }

    #[test]
    fn nothing_to_show_is_no_reason_to_fail() {
        let group = BarGroup {
            name: String::new(),
            note: String::new(),
            bars: vec![Bar { label: String::new(), value: 0.0, range: (0.0, 0.0), shown: String::new() }],
            mark: None,
        };
        let axes = Axes { x: "", y: "", range: (0.0, 0.0), log: false, has_reference: false };
        let empty = Heat { ends: Vec::new(), x: String::new(), rows: vec![(String::new(), Vec::new())] };
        let series = Series { label: String::new(), points: vec![(5.0, None)] };
        let charts = [
            bars("", "", &[group]),
            effects("", "", "", &[]),
            lines("", "", axes, &[]),
            lines("", "", axes, &[series]),
            heat("", "", &empty),
        ];
        assert!(charts.iter().all(|chart| !chart.file().contains("NaN") && !chart.file().contains("inf")));
    }
}
