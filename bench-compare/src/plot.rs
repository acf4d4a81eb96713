//! Draws the medians as bars on a logarithmic scale.

use crate::Failure;
use crate::measure::Figures;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

const WIDTH: u32 = 900;
const BAR_HEIGHT: u32 = 30;
const FONT: (&str, i32) = ("sans-serif", 15);
/// Colours of our results and of the others, distinguishable with colour blindness (Okabe and Ito).
const OURS: RGBColor = RGBColor(0, 114, 178);
const OTHERS: RGBColor = RGBColor(230, 159, 0);
/// Parts of the names of ways that do without our cache.
const NAMES_OF_OTHERS: [&str; 9] =
    ["mmap", "array", "copy", "pread", "fio", "quick_cache", "moka", "foyer", "sqlite"];

/// Draws a bar with its spread for each way.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, figures: &[Figures]) -> Result<(), Failure> {
    bars(path, figures)
        .map_err(|error| format!("{}: the plot cannot be written: {error}", path.display()).into())
}

fn bars(path: &Path, figures: &[Figures]) -> Result<(), Box<dyn Error>> {
    let height = BAR_HEIGHT * figures.len() as u32 + 90;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = figures.iter().map(|figures| figures.quartiles_ns().upper).fold(10.0, f64::max);
    let count = figures.len() as f64;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(280)
        .build_cartesian_2d((1.0..most * 2.0).log_scale(), count..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(220, 220, 220))
        .x_desc("nanoseconds per operation: median, and quartiles")
        .x_label_formatter(&|ns| format!("{ns:.0}"))
        .label_style(FONT)
        .draw()?;
    for (row, figures) in figures.iter().enumerate() {
        let (top, middle, bottom) = (row as f64 + 0.2, row as f64 + 0.5, row as f64 + 0.8);
        let is_other = NAMES_OF_OTHERS.iter().any(|part| figures.name.contains(part));
        let colour = if is_other { OTHERS } else { OURS };
        let quartiles = figures.quartiles_ns();
        let spread = [(quartiles.lower.max(1.0), middle), (quartiles.upper, middle)];
        let bar = [(1.0, top), (quartiles.median.max(1.0), bottom)];
        chart.draw_series([Rectangle::new(bar, colour.filled())])?;
        chart.draw_series([PathElement::new(spread, BLACK)])?;
        let threads =
            if figures.threads == 1 { String::new() } else { format!(", {} threads", figures.threads) };
        let label = format!("{}{threads}: {:.0}", figures.name, quartiles.median);
        let (_, y) = chart.backend_coord(&(1.0, middle));
        area.draw(&Text::new(label, (16, y - FONT.1 / 2), FONT))?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_its_bar() {
        let figures = [("mapped_hit", 1, 20.0), ("fio", 2, 19_000.0), ("zipf_pressure", 1, 500.0)]
            .map(|(name, threads, ns)| Figures::new(name, threads, vec![ns]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.svg");
        draw(&path, &figures).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.contains("mapped_hit: 20") && svg.contains("fio, 2 threads: 19000"), "{svg}");
        let bars = [OURS, OTHERS].map(|RGBColor(red, green, blue)| {
            svg.matches(&format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"")).count()
        });
        assert_eq!(bars, [2, 1], "{svg}");
        let error = draw(Path::new("/no/such/folder/x.svg"), &figures).unwrap_err();
        assert!(error.to_string().contains("/no/such/folder/x.svg"), "{error}");
    }
}
