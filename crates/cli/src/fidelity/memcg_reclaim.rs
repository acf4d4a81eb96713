//! Rows of `memcg-reclaim.csv`: how evenly requests on the root are spread over many equal memcgs.
//!
//! Two phases of one machine are two rows. Touches are the kernel lab's, page by page; where a walk begins is chance there
//! and here, so that ours is the median over some seeds.

use super::kernel_run::{Filter, preset_of, rows};
use crate::equal_memcgs::{Draws, EqualMemcgs, Phase, Rounds};
use crate::error::Failure;
use crate::parallel;
use crate::statistics::{median, range};
use crate::table::Table;
use mglru_core::Mechanisms;
use mglru_core::lru::Refresh;
use mglru_sim::Machine;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Seeds of ours.
const SEEDS: u64 = 12;
/// What the sum may differ by, in points, and the spread, as a share of the kernel's.
const RATIO_POINTS: f64 = 3.0;
const DEVIATION_SHARE: f64 = 0.25;

/// A row.
#[derive(Debug, Clone, serde::Deserialize)]
struct Row {
    kernel: String,
    lru: String,
    memcgs: usize,
    pages_each: u32,
    rounds: u32,
    request_bytes: u64,
    touch_fraction: f64,
    ratio_percent: f64,
    stddev_over_mean_percent: f64,
    scan_per_steal: f64,
    first_quarter_percent: f64,
    first_round: u32,
    seconds: f64,
}

/// A row and what we make of it.
pub struct Compared {
    row: Row,
    ours: Vec<Rounds>,
    /// What kernels that do the same differ by in the spread: the classic LRU is the same on all of them.
    noise: f64,
}

/// Whether the file has such rows.
pub fn is_meant(header: &str) -> bool {
    header.contains("pages_each")
}

/// Replays the rows.
///
/// # Errors
/// The file cannot be read, or the simulator has a bug.
pub fn compare(path: &Path, filter: &Filter) -> Result<Vec<Compared>, Failure> {
    let wanted = |row: &Row| filter.wants(&row.kernel, &row.lru);
    let mut machines: Vec<Vec<Row>> = Vec::new();
    for row in rows::<Row>(path)?.into_iter().filter(wanted) {
        match machines.last_mut() {
            Some(phases) if row.first_round > 0 => phases.push(row),
            _ => machines.push(vec![row]),
        }
    }
    let tasks: Vec<(Vec<Row>, u64)> =
        machines.into_iter().flat_map(|phases| (1..=SEEDS).map(move |seed| (phases.clone(), seed))).collect();
    let runs = parallel::all(&tasks, parallel::threads(), |_, (phases, seed)| replay(phases, *seed))?;
    let mut compared: Vec<Compared> = Vec::new();
    for (tasks, runs) in tasks.chunks(SEEDS as usize).zip(runs.chunks(SEEDS as usize)) {
        for (phase, row) in tasks[0].0.iter().enumerate() {
            compared.push(Compared {
                noise: 0.0,
                row: row.clone(),
                ours: runs.iter().map(|run| run[phase].clone()).collect(),
            });
        }
    }
    let rows: Vec<Row> = compared.iter().map(|one| one.row.clone()).collect();
    for one in compared.iter_mut().filter(|one| one.row.lru == "classic") {
        let same = rows.iter().filter(|row| row.load() == one.row.load());
        let (least, most) = range(&same.map(|row| row.stddev_over_mean_percent).collect::<Vec<f64>>());
        one.noise = most - least;
    }
    Ok(compared)
}

impl Row {
    fn load(&self) -> (&str, usize, u32, u64) {
        (&self.lru, self.memcgs, self.pages_each, self.request_bytes)
    }
}

fn replay(phases: &[Row], seed: u64) -> Result<Vec<Rounds>, Failure> {
    let row = &phases[0];
    let (preset, lru) = preset_of(&row.kernel, &row.lru).map_err(Failure::work)?;
    let load = EqualMemcgs {
        memcgs: row.memcgs,
        pages_each: row.pages_each,
        touched: row.touch_fraction,
        draws: Draws::Lab,
        unsliced: false,
        seed: 1,
    };
    let machine = Machine {
        seed,
        access_time: Duration::from_micros(1),
        mechanisms: Mechanisms::preset(preset).with_lru(lru),
        // Of the classic LRU, when the kernel collected its statistics is chance, too.
        statistics_refresh: Refresh {
            first: Duration::from_millis(500) * (seed % 4) as u32,
            period: Duration::from_secs(2),
        },
        ..load.machine()
    };
    // The rest of a round's time in the lab: the statistics that the classic LRU decides by are refreshed by the clock.
    let touching = load.touches_per_round() * 1000;
    let phases_ours = phases.iter().map(|phase| Phase {
        rounds: phase.rounds,
        request_pages: phase.request_bytes / mglru_core::PAGE_BYTES,
        rest_nanos: ((phase.seconds * 1e9) as u64 / u64::from(phase.rounds)).saturating_sub(touching),
    });
    let bug = |error| Failure::work(format_args!("{} {}: {error}", row.kernel, row.lru));
    let mut running = load.start(machine, phases_ours.collect()).map_err(bug)?;
    phases.iter().map(|phase| running.run(phase.rounds as usize).map_err(bug)).collect()
}

/// One of the two figures that count.
struct Figure {
    counter: &'static str,
    kernel: f64,
    ours: f64,
    /// The most that they may be apart.
    tolerance: f64,
    /// Of our seeds, the least and the most.
    range: (f64, f64),
}

impl Figure {
    /// The kernel's row is one run: it may also be anywhere among ours.
    fn within(&self) -> bool {
        (self.ours - self.kernel).abs() <= self.tolerance
            || (self.range.0..=self.range.1).contains(&self.kernel)
    }
}

impl Compared {
    fn ours(&self, of: fn(&Rounds) -> f64) -> f64 {
        median(&self.ours.iter().map(of).collect::<Vec<f64>>())
    }

    fn figures(&self) -> [Figure; 2] {
        let figure = |counter, kernel: f64, of: fn(&Rounds) -> f64, tolerance| {
            let ours: Vec<f64> = self.ours.iter().map(of).collect();
            Figure { counter, kernel, ours: median(&ours), tolerance, range: range(&ours) }
        };
        let deviation = self.row.stddev_over_mean_percent;
        [
            figure(
                "pgsteal_over_requested_percent",
                self.row.ratio_percent,
                Rounds::ratio_percent,
                RATIO_POINTS,
            ),
            figure(
                "pgsteal_stddev_over_mean_percent",
                deviation,
                Rounds::deviation_percent,
                (DEVIATION_SHARE * deviation).max(self.noise),
            ),
        ]
    }

    fn name(&self) -> String {
        let Row { kernel, lru, memcgs, pages_each, request_bytes, .. } = &self.row;
        format!("{kernel} {lru} {memcgs} × {pages_each}, {} MiB", request_bytes >> 20)
    }
}

/// As text.
pub fn text(compared: &[Compared]) -> String {
    let mut table = Table::new([
        "kernel, memcgs × pages, request",
        "stolen/asked",
        "ours",
        "stddev/mean",
        "ours",
        "median",
        "1st qu.",
        "ours",
        "scan/st.",
        "ours",
        "",
    ])
    .with_words_last();
    for one in compared {
        let [ratio, deviation] = one.figures();
        let percent = |value: f64| format!("{value:.1} %");
        let scan_per_steal =
            one.ours(|rounds| rounds.scanned_pages as f64 / rounds.stolen_pages.iter().sum::<u64>() as f64);
        table.row([
            one.name(),
            percent(ratio.kernel),
            percent(ratio.ours),
            percent(deviation.kernel),
            format!("{:.0}–{:.0} %", deviation.range.0, deviation.range.1),
            percent(deviation.ours),
            percent(one.row.first_quarter_percent),
            percent(one.ours(Rounds::first_quarter_percent)),
            format!("{:.1}", one.row.scan_per_steal),
            format!("{scan_per_steal:.1}"),
            (if ratio.within() && deviation.within() { "" } else { "OUTSIDE" }).to_owned(),
        ]);
    }
    table.text()
}

/// As a document, in the form of the other rows.
pub fn document(compared: &[Compared]) -> Value {
    let rows = compared.iter().flat_map(|one| {
        one.figures().map(|figure| {
            json!({
                "workload": format!("memcg-reclaim {}x{} {}", one.row.memcgs, one.row.pages_each, one.row.request_bytes),
                "kernel": one.row.kernel,
                "lru": one.row.lru,
                "counter": figure.counter,
                "kernel_count": figure.kernel,
                "our_count": figure.ours,
                "difference_percent": 100.0 * (figure.ours / figure.kernel - 1.0),
                "tolerance_percent": 100.0 * figure.tolerance / figure.kernel,
                "within": figure.within(),
            })
        })
    });
    json!({"rows": rows.collect::<Vec<_>>()})
}

/// Names what is outside.
///
/// # Errors
/// Something is.
pub fn verdict(compared: &[Compared]) -> Result<(), Failure> {
    let outside: Vec<String> = compared
        .iter()
        .flat_map(|one| {
            one.figures().into_iter().filter(|figure| !figure.within()).map(|figure| (one.name(), figure))
        })
        .map(|(name, figure)| {
            format!("{name}: {} {:.1}, the kernel's {:.1}", figure.counter, figure.ours, figure.kernel)
        })
        .collect();
    if outside.is_empty() {
        return Ok(());
    }
    Err(Failure::work(format_args!("further from the kernel than allowed: {}", outside.join("; "))))
}
