//! Rows of `memcg-reclaim.csv`: the distribution of reclaim from the root over many equal memcgs.
//!
//! Two phases on one machine are two rows. Touches are those of the kernel lab, page by page. The
//! starting point of a walk is random in both, so the engine's value is the median over several
//! seeds.

use super::compare::{FURTHER, difference_percent, refuse_outside};
use super::filter::Filter;
use super::kernel_run::preset_of;
use super::results::rows;
use crate::document::document;
use crate::equal_memcgs::{Draws, EqualMemcgs, Phase, Rounds};
use crate::memory::{self, Room};
use crate::parallel;
use crate::statistics::{median, range};
use crate::{Error, Stage, Unit, Watch};
use mglru_core::folio::MAX_FOLIOS;
use mglru_core::{Mechanisms, PAGE_BYTES, Refresh};
use mglru_sim::Machine;
use serde::{Serialize, Serializer};
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

const SEEDS: u64 = 12;
/// Most memcgs of a kernel, which numbers them with 16 bits.
const MEMCGS_MAX: usize = 65_535;
/// Memory of the simulator per memcg, in bytes. Assumed, to refuse what is far too much.
const MEMCG_BYTES: u64 = 8 << 10;
/// Allowed difference of the sum in percentage points, and of the spread as a share of the
/// kernel's.
const RATIO_POINTS: f64 = 3.0;
const DEVIATION_SHARE: f64 = 0.25;

/// A row of the table.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct ReclaimRow {
    /// Version of the kernel.
    pub kernel: String,
    /// The kernel lab's name of the policy.
    pub lru: String,
    /// Number of memcgs.
    pub memcgs: usize,
    /// Pages of each memcg.
    pub pages_each: u32,
    /// Number of requests.
    pub rounds: u32,
    /// Bytes per request.
    pub request_bytes: u64,
    /// Share of its pages that each memcg touched between two requests.
    pub touch_fraction: f64,
    /// Reclaimed pages in percent of requested ones.
    pub ratio_percent: f64,
    /// Standard deviation over the memcgs, in percent of the mean.
    pub stddev_over_mean_percent: f64,
    /// Scanned pages per reclaimed page.
    pub scan_per_steal: f64,
    /// Share reclaimed from the first quarter of the memcgs, in percent.
    pub first_quarter_percent: f64,
    /// Number of earlier rounds on this machine, whose rows come right before this one; 0 starts a
    /// new one.
    pub first_round: u32,
    /// Duration in seconds.
    pub seconds: f64,
}

/// A row and the engine's results.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The kernel's row.
    pub row: ReclaimRow,
    /// The engine's results, one per seed.
    pub ours: Vec<Rounds>,
    /// Difference in spread among kernels with equal behaviour.
    noise: f64,
}

/// Whether the file's header is that of this table.
pub(super) fn is_meant(header: &str) -> bool {
    header.contains("pages_each")
}

/// Runs the load of each row.
///
/// # Errors
/// If the file cannot be read, the filter selects no row, or of a bug in the simulator.
pub fn compare(path: &Path, filter: &Filter, watch: &dyn Watch) -> Result<Vec<Compared>, Error> {
    // Unselected kernels also show the difference among kernels with the same policy.
    let all = rows::<ReclaimRow>(path)?;
    if !filter.workloads.is_empty() {
        return Err(Error::usage("--workload: the rows of this table have one load"));
    }
    let checked: Vec<[&str; 3]> = all.iter().map(|row| [row.kernel.as_str(), "", row.lru.as_str()]).collect();
    filter.check(&[path], &checked)?;
    let wanted = |row: &&ReclaimRow| filter.wants(&row.kernel, &row.lru);
    let mut machines: Vec<Vec<ReclaimRow>> = Vec::new();
    for row in all.iter().filter(wanted).cloned() {
        row.check().map_err(|what| Error::work(format_args!("{}: {what}", path.display())))?;
        match machines.last_mut() {
            _ if row.first_round == 0 => machines.push(vec![row]),
            Some(phases) if row.continues(phases) => phases.push(row),
            _ => {
                let what = row.refused(format_args!(
                    "first_round is {}, and the rows before it are not {0} rounds of the same machine",
                    row.first_round
                ));
                return Err(Error::work(format_args!("{}: {what}", path.display())));
            }
        }
    }
    let needs = machines.iter().map(|phases| phases[0].needed_bytes());
    let instead = "choose rows with fewer or smaller memcgs";
    let room = Room::for_runs(parallel::threads().min(machines.len() * SEEDS as usize));
    room.check(needs.max().unwrap_or(0), path.display(), instead)?;
    let tasks: Vec<(Vec<ReclaimRow>, u64)> =
        machines.into_iter().flat_map(|phases| (1..=SEEDS).map(move |seed| (phases.clone(), seed))).collect();
    let stage = Stage::begin(watch, "requests among many memcgs", tasks.len() as u64, Unit::Steps);
    let runs = parallel::all(&tasks, parallel::threads(), |_, (phases, seed)| {
        let run = replay(phases, *seed, watch)?;
        stage.advance(1)?;
        Ok(run)
    })?;
    let mut compared: Vec<Compared> = Vec::new();
    for (tasks, runs) in tasks.chunks(SEEDS as usize).zip(runs.chunks(SEEDS as usize)) {
        for (phase, row) in tasks[0].0.iter().enumerate() {
            compared.push(Compared {
                noise: noise(row, &all),
                row: row.clone(),
                ours: runs.iter().map(|run| run[phase].clone()).collect(),
            });
        }
    }
    Ok(compared)
}

/// Difference in spread among kernels with equal behaviour: the classic LRU is the same in all of
/// them.
fn noise(of: &ReclaimRow, rows: &[ReclaimRow]) -> f64 {
    if of.lru != "classic" {
        return 0.0;
    }
    let same = rows.iter().filter(|row| row.load() == of.load());
    let (least, most) = range(&same.map(|row| row.stddev_over_mean_percent).collect::<Vec<f64>>());
    most - least
}

impl ReclaimRow {
    /// Checks that the load can be simulated.
    fn check(&self) -> Result<(), String> {
        let pages = u64::from(self.pages_each).saturating_mul(self.memcgs as u64);
        let what = if pages == 0 || self.rounds == 0 || self.request_bytes < PAGE_BYTES {
            "memcgs, pages_each and rounds are at least 1, and request_bytes a page"
        } else if !(0.0..1.0).contains(&self.touch_fraction) {
            "touch_fraction is at least 0 and less than 1"
        } else if !(0.0..f64::INFINITY).contains(&self.seconds) {
            "seconds is at least 0"
        } else if pages > u64::from(MAX_FOLIOS) / 2 {
            "all memcgs together have less than 4 TiB"
        } else if self.memcgs > MEMCGS_MAX {
            "there are at most 65,535 memcgs"
        } else {
            return preset_of(&self.kernel, &self.lru).map(drop);
        };
        Err(self.refused(what))
    }

    fn refused(&self, what: impl Display) -> String {
        let ReclaimRow { kernel, lru, memcgs, pages_each, .. } = self;
        format!("{kernel} {lru}, {memcgs} memcgs of {pages_each} pages: cannot be simulated: {what}")
    }

    /// Whether the rounds of this row follow those of a machine's earlier rows.
    fn continues(&self, earlier: &[ReclaimRow]) -> bool {
        let machine = |row: &ReclaimRow| {
            (row.kernel.clone(), row.lru.clone(), row.memcgs, row.pages_each, row.touch_fraction)
        };
        let rounds: u64 = earlier.iter().map(|row| u64::from(row.rounds)).sum();
        machine(self) == machine(&earlier[0]) && u64::from(self.first_round) == rounds
    }

    /// Memory that a run needs at most, in bytes.
    fn needed_bytes(&self) -> u64 {
        let pages = u64::from(self.pages_each) * self.memcgs as u64;
        memory::of_machine(pages) + self.memcgs as u64 * MEMCG_BYTES
    }

    fn load(&self) -> (&str, usize, u32, u64) {
        (&self.lru, self.memcgs, self.pages_each, self.request_bytes)
    }
}

fn replay(phases: &[ReclaimRow], seed: u64, watch: &dyn Watch) -> Result<Vec<Rounds>, Error> {
    let row = &phases[0];
    let (preset, lru) = preset_of(&row.kernel, &row.lru).map_err(Error::work)?;
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
        // For the classic LRU, the time at which the kernel collects its statistics is random, too.
        statistics_refresh: Refresh {
            first: Duration::from_millis(500) * (seed % 4) as u32,
            period: Duration::from_secs(2),
        },
        ..load.machine()
    };
    // The remaining time of a round in the lab. The statistics on which the classic LRU decides are
    // refreshed by the clock.
    let touching = load.touches_per_round() * 1000;
    let phases_ours = phases.iter().map(|phase| Phase {
        rounds: phase.rounds,
        request_pages: phase.request_bytes / PAGE_BYTES,
        rest_nanos: ((phase.seconds * 1e9) as u64 / u64::from(phase.rounds)).saturating_sub(touching),
    });
    let bug = |error: Error| error.at(&format!("{} {}", row.kernel, row.lru));
    let mut running = load.start(machine, phases_ours.collect()).map_err(Error::work).map_err(bug)?;
    phases.iter().map(|phase| running.run(phase.rounds as usize, watch).map_err(bug)).collect()
}

/// One of the two compared values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Name in JSON documents.
    pub counter: &'static str,
    /// The kernel's value in percent.
    pub kernel: f64,
    /// The median of the engine's values in percent.
    pub ours: f64,
    /// Largest allowed difference in percentage points.
    pub tolerance: f64,
    /// Minimum and maximum over the seeds.
    pub range: (f64, f64),
}

/// Position of the engine's value relative to the kernel's, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Within the tolerance.
    Near,
    /// Outside the tolerance, but some seeds exceed the kernel's value, which is a single run.
    InOurRange,
    /// Outside the tolerance and the range of the seeds.
    Outside,
}

impl Place {
    /// Description; empty for [`Place::Near`].
    pub fn word(self) -> &'static str {
        match self {
            Place::Near => "",
            Place::InOurRange => "in our range",
            Place::Outside => "OUTSIDE",
        }
    }
}

impl Figure {
    /// Position relative to the kernel's value.
    pub fn place(&self) -> Place {
        if (self.ours - self.kernel).abs() <= self.tolerance {
            Place::Near
        } else if (self.range.0..=self.range.1).contains(&self.kernel) {
            Place::InOurRange
        } else {
            Place::Outside
        }
    }
}

impl Compared {
    /// The median of a value over the seeds.
    pub fn ours(&self, of: fn(&Rounds) -> f64) -> f64 {
        median(&self.ours.iter().map(of).collect::<Vec<f64>>())
    }

    /// The sum and the spread.
    pub fn figures(&self) -> [Figure; 2] {
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

    /// Name of the load in documents and columns.
    pub(super) fn workload(&self) -> String {
        let ReclaimRow { memcgs, pages_each, request_bytes, .. } = &self.row;
        format!("memcg-reclaim {memcgs}x{pages_each} {request_bytes}")
    }

    /// Description of the run.
    pub fn name(&self) -> String {
        let ReclaimRow { kernel, lru, memcgs, pages_each, request_bytes, .. } = &self.row;
        format!("{kernel} {lru} {memcgs} × {pages_each}, {} MiB", request_bytes >> 20)
    }
}

/// A value of a row, in the form of the other rows of `mglru fidelity --json`.
struct Value<'a>(&'a Compared, Figure);

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value(compared, figure) = self;
        document!(serializer, {
            "workload": compared.workload(),
            "kernel": compared.row.kernel,
            "lru": compared.row.lru,
            "counter": figure.counter,
            "kernel_count": figure.kernel,
            "our_count": figure.ours,
            "difference_percent": difference_percent(figure.kernel, figure.ours),
            "tolerance_percent": 100.0 * figure.tolerance / figure.kernel,
            "within": figure.place() == Place::Near,
            "in_our_range": figure.place() == Place::InOurRange,
        })
    }
}

/// A row serialises to two elements, one per compared value.
impl Serialize for Compared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.figures().map(|figure| Value(self, figure)).serialize(serializer)
    }
}

/// Checks that all values are inside.
///
/// # Errors
/// A message that names the values outside.
pub fn check(compared: &[Compared]) -> Result<(), Error> {
    let outside = compared
        .iter()
        .flat_map(|one| {
            one.figures()
                .into_iter()
                .filter(|figure| figure.place() == Place::Outside)
                .map(|figure| (one.name(), figure))
        })
        .map(|(name, figure)| {
            format!("{name}: {} {:.1}, the kernel's {:.1}", figure.counter, figure.ours, figure.kernel)
        });
    refuse_outside(FURTHER, outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kernel: &str, lru: &str, stddev_over_mean_percent: f64) -> ReclaimRow {
        ReclaimRow {
            kernel: kernel.to_owned(),
            lru: lru.to_owned(),
            memcgs: 128,
            pages_each: 2048,
            rounds: 1,
            request_bytes: 1 << 20,
            touch_fraction: 0.5,
            ratio_percent: 100.0,
            stddev_over_mean_percent,
            scan_per_steal: 1.0,
            first_quarter_percent: 25.0,
            first_round: 0,
            seconds: 1.0,
        }
    }

    /// `--kernel 6.12.117` must not filter out the rows that determine its tolerance.
    #[test]
    fn unselected_kernels_still_widen_the_tolerance() {
        let rows =
            [row("7.2.12", "classic", 117.0), row("6.12.117", "classic", 87.0), row("7.2.12", "mglru", 41.0)];
        assert_eq!(rows.each_ref().map(|of| noise(of, &rows)), [30.0, 30.0, 0.0]);
        let file = tempfile::NamedTempFile::new().unwrap();
        let header = "kernel,lru,memcgs,pages_each,rounds,request_bytes,touch_fraction,ratio_percent,stddev_over_mean_percent,\
                      scan_per_steal,first_quarter_percent,first_round,seconds\n";
        let of = |kernel: &str, deviation| {
            format!("{kernel},classic,4,256,2,65536,0.5,100,{deviation},1,25,0,1\n")
        };
        std::fs::write(file.path(), format!("{header}{}{}", of("6.12.117", 60), of("7.2.12", 90))).unwrap();
        let filter = Filter { kernels: vec!["6.12.117".to_owned()], ..Filter::default() };
        let compared = compare(file.path(), &filter, &crate::Unwatched).unwrap();
        assert_eq!(compared.iter().map(|one| one.noise).collect::<Vec<_>>(), [30.0]);
    }

    /// All rounds of a small load fit into a step of the simulator. It was an assertion.
    #[test]
    fn small_loads_are_counted_by_phase() {
        let phases = [0, 2].map(|first_round| ReclaimRow {
            memcgs: 4,
            pages_each: 256,
            rounds: 2,
            request_bytes: 65_536,
            touch_fraction: 0.5,
            first_round,
            ..row("7.2.12", "mglru", 41.0)
        });
        let rounds = replay(&phases, 1, &crate::Unwatched).unwrap();
        let requested: Vec<u64> = rounds.iter().map(|rounds| rounds.requested_pages).collect();
        assert_eq!(requested, [32, 32]);
        assert!(rounds.iter().all(|rounds| rounds.stolen_pages.iter().sum::<u64>() > 0), "{rounds:?}");
    }

    /// The first divided by zero, the last ended in an assertion, and one ran for ever.
    #[test]
    fn rows_that_cannot_be_simulated_are_refused() {
        let good = row("7.2.12", "mglru", 41.0);
        assert_eq!(good.check(), Ok(()));
        let wrong = [
            ReclaimRow { rounds: 0, ..good.clone() },
            ReclaimRow { memcgs: 0, ..good.clone() },
            ReclaimRow { pages_each: 0, ..good.clone() },
            ReclaimRow { request_bytes: 4095, ..good.clone() },
            ReclaimRow { touch_fraction: 1.0, ..good.clone() },
            ReclaimRow { touch_fraction: f64::NAN, ..good.clone() },
            ReclaimRow { seconds: -1.0, ..good.clone() },
            ReclaimRow { seconds: f64::NAN, ..good.clone() },
            ReclaimRow { memcgs: usize::MAX, ..good.clone() },
            ReclaimRow { memcgs: MEMCGS_MAX + 1, pages_each: 1, ..good.clone() },
        ];
        for row in wrong {
            assert!(row.check().unwrap_err().contains("cannot be simulated: "), "{row:?}");
        }
        let unknown = ReclaimRow { kernel: "5.4".to_owned(), ..good };
        assert!(unknown.check().unwrap_err().contains("no preset for kernel 5.4"));
    }

    /// Such a row ran on the machine of the row before it, with that one's kernel and load.
    #[test]
    fn rows_that_continue_no_machine_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let header = "kernel,lru,memcgs,pages_each,rounds,request_bytes,touch_fraction,ratio_percent,stddev_over_mean_percent,\
                      scan_per_steal,first_quarter_percent,first_round,seconds\n";
        let first = "7.2.12,mglru,4,256,2,65536,0.5,100,60,1,25,0,1\n";
        let compared = |rows: &[&str]| {
            std::fs::write(&path, header.to_owned() + &rows.concat()).unwrap();
            compare(&path, &Filter::default(), &crate::Unwatched)
        };
        let second = "7.2.12,mglru,4,256,2,131072,0.5,100,60,1,25,2,1\n";
        assert_eq!(compared(&[first, second]).unwrap().len(), 2);
        for row in [
            second.replace("7.2.12", "6.12.117"),
            second.replace("mglru", "classic"),
            second.replace(",4,", ",8,"),
            second.replace(",256,", ",512,"),
            second.replace(",0.5,", ",0.25,"),
            second.replace(",2,1\n", ",3,1\n"),
        ] {
            let error = compared(&[first, &row]).unwrap_err();
            assert!(error.text().contains(" rounds of the same machine"), "{row}: {error}");
        }
        assert!(compared(&[second]).is_err(), "no row is before it");
    }

    #[test]
    fn a_value_within_the_range_of_our_seeds_is_marked() {
        let place = |ours, range| Figure { counter: "c", kernel: 8.0, ours, tolerance: 2.0, range }.place();
        assert_eq!(place(9.0, (8.5, 10.0)), Place::Near);
        assert_eq!(place(11.0, (7.0, 14.0)), Place::InOurRange);
        assert_eq!(place(11.0, (9.0, 14.0)), Place::Outside);
        assert_eq!(Place::Near.max(Place::InOurRange).word(), "in our range");
    }
}
