//! Figures of a page that show a simulated run over time.

use crate::page::chart::{self, Axes, Heat, Series};
use crate::page::{Figure, Part};
use crate::table::{Table, count};
use mglru_lab::timeline::{Generation, Piece, TenantLine, Timeline};

/// Generations that can be live at the same time.
const RANKS: [&str; 4] = ["youngest", "2nd", "3rd", "oldest"];
/// Heat maps of one run at most: one per tenant.
const TENANTS_MAX: usize = 4;

/// The horizontal axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// Accesses.
    Accesses,
    /// Simulated time.
    Seconds,
}

/// Shares of the tenant's pages by generation, the youngest first. With fewer than four
/// generations, the last shares are 0.
fn shares(piece: &Piece) -> [f64; RANKS.len()] {
    let pages = |row: &Generation| row.anon + row.file;
    let all: u64 = piece.generations.iter().map(pages).sum();
    let mut shares = [0.0; RANKS.len()];
    for (share, row) in shares.iter_mut().zip(piece.generations.iter().rev()) {
        *share = pages(row) as f64 / all.max(1) as f64;
    }
    shares
}

/// The relation of the runs of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// None of them stands out.
    Alike,
    /// The others are compared with the first, which is grey as its bars are.
    AgainstFirst,
}

/// Hit ratios of runs in one chart, and a heat map of the generations of each run. `name` begins
/// the names of files, and `about` is the subject of the titles.
pub fn figures(name: &str, about: &str, timelines: &[Timeline], along: Along, runs: Runs) -> Vec<Part> {
    let mut parts = vec![Part::Figure(hit_ratios(name, about, timelines, along, runs))];
    for timeline in timelines {
        let living = timeline.tenants.iter().filter(|tenant| has_generations(tenant));
        for tenant in living.take(TENANTS_MAX) {
            let several = timeline.tenants.len() > 1;
            let of =
                if several { format!("{}, {}", timeline.label, tenant.name) } else { timeline.label.clone() };
            parts.push(Part::Figure(heat(name, about, &of, tenant, along)));
        }
    }
    parts
}

fn has_generations(tenant: &TenantLine) -> bool {
    tenant.pieces.iter().any(|piece| shares(piece).iter().any(|&share| share > 0.0))
}

fn places(tenant: &TenantLine, along: Along) -> impl Iterator<Item = f64> {
    tenant.pieces.iter().map(move |piece| match along {
        Along::Accesses => piece.access as f64,
        Along::Seconds => piece.seconds,
    })
}

fn axis(along: Along) -> &'static str {
    match along {
        Along::Accesses => "accesses",
        Along::Seconds => "seconds of simulated time",
    }
}

fn place_text(place: f64, along: Along) -> String {
    match along {
        Along::Accesses => count(place as u64),
        Along::Seconds => format!("{place:.3}"),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.2} %", 100.0 * share))
}

fn hit_ratios(name: &str, about: &str, timelines: &[Timeline], along: Along, runs: Runs) -> Figure {
    let mut lines: Vec<(String, &TenantLine)> = Vec::new();
    for timeline in timelines {
        for tenant in &timeline.tenants {
            let label = match (timelines.len(), timeline.tenants.len()) {
                (_, 1) => timeline.label.clone(),
                (1, _) => tenant.name.clone(),
                _ => format!("{}, {}", timeline.label, tenant.name),
            };
            lines.push((label, tenant));
        }
    }
    let series: Vec<Series> = lines
        .iter()
        .map(|(label, tenant)| {
            let ratios = tenant.pieces.iter().map(|piece| piece.hit_ratio.map(|ratio| 100.0 * ratio));
            Series { label: label.clone(), points: places(tenant, along).zip(ratios).collect() }
        })
        .collect();
    let headings = ["line", "until", "hit ratio"];
    let mut table = Table::new(headings);
    for (label, tenant) in &lines {
        for (place, piece) in places(tenant, along).zip(&tenant.pieces) {
            table.row([label.clone(), place_text(place, along), percent(piece.hit_ratio)]);
        }
    }
    // Most ratios are high and close together: the axis begins at the ten below the lowest.
    let ratios = series.iter().flat_map(|series| &series.points).filter_map(|point| point.1);
    let least = ratios.fold(100.0, f64::min);
    let range = ((least / 10.0).floor() * 10.0, 100.0);
    // With several tenants, the first line is only one of those of its run.
    let has_reference = runs == Runs::AgainstFirst && lines.len() == timelines.len();
    let axes = Axes { x: axis(along), y: "hit ratio, %", range, log: false, has_reference };
    let (title, caption) =
        (format!("Hit ratio over time: {about}."), "Share of the accesses since the previous point.");
    let chart = chart::lines(&title, &format!("{caption} Lines: {}.", labels(&lines)), axes, &series);
    Figure { name: format!("{name}-hits"), title, caption: caption.to_owned(), chart, table }
}

fn labels(lines: &[(String, &TenantLine)]) -> String {
    lines.iter().map(|(label, _)| label.as_str()).collect::<Vec<_>>().join("; ")
}

fn heat(name: &str, about: &str, of: &str, tenant: &TenantLine, along: Along) -> Figure {
    let shares: Vec<[f64; RANKS.len()]> = tenant.pieces.iter().map(shares).collect();
    let row = |(rank, label): (usize, &&str)| {
        (label.to_string(), shares.iter().map(|shares| shares[rank]).collect())
    };
    let heat = Heat {
        ends: places(tenant, along).collect(),
        x: axis(along).to_owned(),
        rows: RANKS.iter().enumerate().map(row).collect(),
    };
    let created = tenant.pieces.last().and_then(|piece| piece.generations.last()).map_or(0, |row| row.seq);
    let mut table = Table::new(["until", "generations", RANKS[0], RANKS[1], RANKS[2], RANKS[3]]);
    for ((place, piece), shares) in places(tenant, along).zip(&tenant.pieces).zip(&shares) {
        let ends = (piece.generations.first(), piece.generations.last());
        let numbers = if let (Some(first), Some(last)) = ends {
            format!("{}–{}", first.seq, last.seq)
        } else {
            "-".to_owned()
        };
        let [a, b, c, d] = shares.map(|share| percent(Some(share)));
        table.row([place_text(place, along), numbers, a, b, c, d]);
    }
    let title = format!("Generations over time: {about}, {of}.");
    let caption = format!(
        "Shares of the tenant's pages, the youngest generation at the top. The last generation created is number {created}."
    );
    let chart = chart::heat(&title, &caption, &heat);
    let file: String = of.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Figure { name: format!("{name}-generations-{file}"), title, caption, chart, table }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_before_a_change_is_grey() {
        let timeline = |label: &str, tenants: &[&str]| {
            let piece = Piece { access: 2, seconds: 1.0, hit_ratio: Some(0.5), generations: Vec::new() };
            let line = |name: &&str| TenantLine {
                name: (*name).to_owned(),
                pieces: vec![piece.clone(), piece.clone()],
            };
            Timeline { label: label.to_owned(), tenants: tenants.iter().map(line).collect() }
        };
        let lines = |tenants: &[&str], runs| {
            let timelines = [timeline("before", tenants), timeline("after", tenants)];
            let parts = figures("x", "y", &timelines, Along::Seconds, runs);
            let [Part::Figure(figure)] = &parts[..] else { panic!("no generations") };
            let file = figure.chart.file();
            let classes = file.split("<path class=\"").skip(1).filter_map(|path| path.split('"').next());
            classes.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(&["a"], Runs::AgainstFirst), ["curve line-0", "curve line-1"]);
        assert_eq!(lines(&["a"], Runs::Alike), ["curve line-1", "curve line-2 dash-1"]);
        assert_eq!(lines(&["a", "b"], Runs::AgainstFirst).len(), 4);
        assert_eq!(lines(&["a", "b"], Runs::AgainstFirst)[0], "curve line-1");
    }
}
