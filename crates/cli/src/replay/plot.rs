//! Miss-ratio curves as a picture, SVG or PNG.
//!
//! The font comes with the program: a PNG looks the same on a machine without fonts.

use crate::error::Failure;
use mglru_lab::replay::rows::Curve;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Once;

const SIZE: (u32, u32) = (900, 560);
const FONT: &str = "sans-serif";
/// Dark enough on white, and told apart by people who do not see all colours (Okabe and Ito's,
/// without yellow).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

/// Where to draw, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlotFile {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Svg,
    Png,
}

impl FromStr for PlotFile {
    type Err = String;

    fn from_str(text: &str) -> Result<PlotFile, String> {
        let path = PathBuf::from(text);
        let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
        let kind = match extension.as_deref().and_then(|extension| extension.to_str()) {
            Some("svg") => Kind::Svg,
            Some("png") => Kind::Png,
            _ => return Err("a plot is a file that ends in .svg or .png".to_owned()),
        };
        Ok(PlotFile { path, kind })
    }
}

impl PlotFile {
    /// Where it is going to be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Draws the curves.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn draw(&self, curves: &[Curve], warm: bool) -> Result<(), Failure> {
        static REGISTER: Once = Once::new();
        REGISTER.call_once(|| {
            let registered = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
            assert!(registered.is_ok(), "the font that comes with the program can be read");
        });
        let drawn = match self.kind {
            Kind::Svg => draw(&SVGBackend::new(&self.path, SIZE).into_drawing_area(), curves, warm),
            Kind::Png => draw(&BitMapBackend::new(&self.path, SIZE).into_drawing_area(), curves, warm),
        };
        drawn.map_err(|error| {
            Failure::work(format_args!("{}: the plot cannot be written: {error}", self.path.display()))
        })
    }
}

fn draw<Backend: DrawingBackend>(
    area: &DrawingArea<Backend, plotters::coord::Shift>,
    curves: &[Curve],
    warm: bool,
) -> Result<(), Box<dyn Error>>
where
    Backend::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let pages =
        |curve: &Curve| curve.points.iter().map(|point| point.memory_pages as f64).collect::<Vec<_>>();
    let all: Vec<f64> = curves.iter().flat_map(pages).collect();
    let (least, most) = all.iter().fold((f64::MAX, 0.0_f64), |(a, b), &x| (a.min(x), b.max(x)));
    // A range of one point has no length.
    let most = if most > least { most } else { least * 2.0 };
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((least..most).log_scale(), 0.0..100.0)?;
    let counted = if warm { "miss ratio after warming up, %" } else { "miss ratio, %" };
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(220, 220, 220))
        .x_desc("memory, pages of 4 KiB")
        .y_desc(counted)
        .x_label_formatter(&|pages| crate::table::count(pages.round() as u64))
        .y_label_formatter(&|percent| format!("{percent:.0}"))
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 16))
        .draw()?;
    let several = curves.iter().any(|curve| curve.preset_or_policy() != curves[0].preset_or_policy());
    for (number, curve) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let mut points: Vec<(f64, f64)> = curve
            .points
            .iter()
            .map(|point| {
                let ratio = if warm { point.warm_miss_ratio } else { point.miss_ratio };
                (point.memory_pages as f64, ratio * 100.0)
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line = colour.stroke_width(2);
        // Where the colours begin again, lines are dashed.
        let dashed = number >= COLOURS.len();
        let drawn = match dashed {
            false => chart.draw_series(LineSeries::new(points.iter().copied(), line))?,
            true => chart.draw_series(DashedLineSeries::new(points.iter().copied(), 6, 4, line))?,
        };
        // The sample in the legend is as wide as two dashes.
        drawn.label(curve.name(several)).legend(move |(x, y)| {
            let gap = if dashed { 6 } else { 0 };
            let half = |from, to| PathElement::new([(from, y), (to, y)], line);
            EmptyElement::at((0, 0)) + half(x, x + 11 - gap / 2) + half(x + 11 + gap / 2, x + 22)
        });
        let fill = if dashed { line } else { colour.filled() };
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, fill)))?;
    }
    // Curves fall: below their beginning there is room.
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(220, 220, 220))
        .label_font((FONT, 15))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_lab::replay::rows::Point;

    fn curves() -> Vec<Curve> {
        let point = |pages: u64| Point {
            memory: format!("{pages}p"),
            memory_pages: pages,
            misses: 100,
            miss_ratio: 1.0 / pages as f64,
            warm_miss_ratio: 0.5 / pages as f64,
        };
        let curve = |policy: usize| Curve {
            trace: "a/b.txt".to_owned(),
            policy: ["a", "b", "c", "d", "e", "f", "g", "h", "i"][policy],
            preset: None,
            mechanisms: None,
            warm_from: 0,
            points: [1, 10, 100].map(point).into(),
        };
        (0..COLOURS.len() + 2).map(curve).collect()
    }

    #[test]
    fn pictures_are_drawn_without_system_fonts() {
        let folder = tempfile::tempdir().unwrap();
        let draw = |name: &str| {
            let file: PlotFile = folder.path().join(name).to_str().unwrap().parse().unwrap();
            file.draw(&curves(), false).unwrap();
            std::fs::read(file.path()).unwrap()
        };
        let svg = String::from_utf8(draw("x.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("b.txt") && svg.contains("miss ratio"), "{svg}");
        let png = draw("x.PNG");
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(draw("again.png"), png);
    }

    #[test]
    fn other_kinds_are_refused() {
        for name in ["x.pdf", "x", ".svg"] {
            assert!(name.parse::<PlotFile>().unwrap_err().contains(".svg or .png"), "{name}");
        }
        let nowhere: PlotFile = "/no/such/folder/x.svg".parse().unwrap();
        let Err(Failure::Work(text)) = nowhere.draw(&curves(), true) else { panic!("drawn") };
        assert!(text.contains("/no/such/folder/x.svg"), "{text}");
    }
}
