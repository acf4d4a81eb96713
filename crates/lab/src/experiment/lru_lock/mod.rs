//! E3: one LRU lock per memcg instead of one per node, and the refault clock that all memcgs write.
//!
//! Threads, each in a tenant of its own, read more than fits. They are real threads directly on the
//! core, without I/O ([`load`]). All settings alternate forwards and backwards, so that other
//! activity on the machine affects them equally.
//!
//! Two threads say little about the machines of the publications (40 and 104 threads). Counts carry
//! over: the lock acquisitions and clock writes per reclaimed page, and the share of time that one
//! thread holds the lock. The inverse of that share is the number of threads that saturate a single
//! lock.

mod load;

use super::crosscheck;
use super::evidence::{Check, Experiment, MetricRow, Published, Values};
use super::{Claim, Effort, ExperimentRequest, Registration};
use crate::statistics::median;
use crate::{Error, Stage, Unit, Watch};
use load::{Load, LockOutcome, Setting, Size, clock_writes_per_batch};
use mglru_core::{Lru, LruLock, Mechanisms, Preset, Switch};
use std::time::Duration;

pub const REGISTRATION: Registration = Registration {
    name: "lru-lock",
    claims: &[
        Claim { words: "threads do not wait for each other", metric: "reclaimed_per_second_2_threads" },
        Claim { words: "one clock write per batch", metric: "ancestor_clock_writes_per_batch" },
    ],
    in_real_world: true,
    quick_among_all: false,
    run,
};

/// 256 MiB.
const TENANT_PAGES: u32 = 65_536;
/// Duration of each run, in addition to filling the tenants.
const TIME: Duration = Duration::from_millis(200);
/// The publication reports deviations of 141 % with three samples, and recommends twelve.
const RUNS_MIN: u32 = 12;
const DEEP: u32 = 4;
/// Divisor of tenant sizes in runs with more threads or deeper trees.
const SMALLER: u32 = 4;
const MANY_THREADS: usize = 8;
/// The published remedies for the clock that no measured kernel has.
const REMEDIES: [Switch; 4] =
    [Switch::AgePerBatch, Switch::AgeAfterUnlock, Switch::AgeWithCost, Switch::AgeOncePerRefault];
/// With fewer processors available, two threads hardly ran in parallel.
const PROCESSORS_MIN: f64 = 1.8;
const PROCESSORS: &str = "processors_2_threads";

/// A value before, after and by default.
type Three<T> = [T; 3];
type Figure = fn(&LockOutcome) -> f64;

/// A row of the result: the settings that it compares, and the figure of their runs.
struct Wanted {
    metric: &'static str,
    unit: &'static str,
    published: Published,
    settings: Three<Setting>,
    figure: Figure,
}

/// The outcomes of a run, by setting.
type Outcomes = Vec<(Setting, LockOutcome)>;

impl Wanted {
    fn row(&self, runs: &[Outcomes]) -> MetricRow {
        let of = |setting| {
            let outcome = |run: &Outcomes| {
                let found = run.iter().find(|(ran, _)| *ran == setting);
                (self.figure)(&found.expect("every setting of the rows ran").1)
            };
            runs.iter().map(outcome).collect()
        };
        let [before, after, default] = self.settings.map(of);
        // Also for counts per page, which get no verdict.
        let values = Values::Timed;
        let &Wanted { metric, unit, published, .. } = self;
        MetricRow { metric, unit, values, published, before, after, default }
    }
}

/// The compared mechanisms, all with the classic LRU.
struct Compared {
    /// One lock per node, and one per lruvec.
    lock: Three<Mechanisms>,
    /// Without and with the published remedies alone. The default batches evictions besides.
    clock: Three<Mechanisms>,
    /// Without and with each remedy.
    one_by_one: [Three<Mechanisms>; 5],
    /// The remedies without and with batched evictions.
    evictions: Three<Mechanisms>,
}

impl Compared {
    fn new() -> Result<Compared, Error> {
        let classic = |mechanisms: Mechanisms| mechanisms.with_lru(Lru::Classic);
        let linux = classic(Mechanisms::preset(Preset::Linux72));
        let turned = |with: &[Switch], without: &[Switch]| {
            Mechanisms::compose(Preset::Linux72, with, without).map(classic).map_err(Error::work)
        };
        let with = |switches: &[Switch]| turned(switches, &[]);
        let remedies = with(&REMEDIES)?;
        let default = classic(Mechanisms::default());
        Ok(Compared {
            lock: [linux.with_lru_lock(LruLock::Node), linux, default],
            clock: [linux, remedies, default],
            one_by_one: [
                [linux, with(&[Switch::AgePerBatch])?, default],
                [linux, with(&[Switch::AgeAfterUnlock])?, default],
                [turned(&[], &[Switch::CostReleasesLock])?, linux, default],
                [with(&[Switch::AgePerBatch])?, with(&[Switch::AgePerBatch, Switch::AgeWithCost])?, default],
                [linux, with(&[Switch::AgeOncePerRefault])?, default],
            ],
            evictions: [remedies, with(&[Switch::BatchNonresidentAge])?, default],
        })
    }

    /// All rows but that of a batch, in their order.
    fn wanted(&self) -> Vec<Wanted> {
        use Load::{Mapped, ReadTwice, Request};
        let &Compared { lock, clock, one_by_one, evictions } = self;
        let of = |three: Three<Mechanisms>, load, threads, depth| {
            three.map(|mechanisms| Setting { mechanisms, load, threads, depth, watched: false, smaller: 1 })
        };
        let watched = |load| of(lock, load, 1, 1).map(|setting| Setting { watched: true, ..setting });
        let smaller = |load, threads, depth| {
            of(clock, load, threads, depth).map(|setting| Setting { smaller: SMALLER, ..setting })
        };
        let row = |metric, unit, settings, figure: Figure| Wanted {
            metric,
            unit,
            published: Published::Nothing,
            settings,
            figure,
        };
        let rate = |metric, settings| row(metric, "pages/s", settings, |of| of.reclaimed_per_second);
        let taken = |metric, settings| {
            row(metric, "1/page", settings, |of| of.shared.taken as f64 / of.reclaimed as f64)
        };
        let waited = |metric, settings| {
            let figure: Figure = |of| 1000.0 * of.shared.waited as f64 / of.shared.taken.max(1) as f64;
            row(metric, "waits", settings, figure)
        };
        let held = |metric, settings| row(metric, "%", settings, |of| 100.0 * of.held);
        let writes = |metric, settings| {
            row(metric, "1/page", settings, |of| of.clock_writes as f64 / of.reclaimed as f64)
        };
        let published = |published, row| Wanted { published, ..row };
        let two = |load| of(lock, load, 2, 1);
        let deep = |three, load| of(three, load, 2, DEEP);
        vec![
            published(
                Published::Change { before: 1.0, after: 1.8 },
                rate("reclaimed_per_second_2_threads", two(ReadTwice)),
            ),
            rate("mapped_reclaimed_per_second_2_threads", two(Mapped)),
            rate("request_reclaimed_per_second_2_threads", two(Request)),
            row(PROCESSORS, "processors", two(ReadTwice), |of| of.processors),
            taken("shared_lock_taken_per_reclaimed", two(ReadTwice)),
            taken("mapped_shared_lock_taken_per_reclaimed", two(Mapped)),
            taken("request_shared_lock_taken_per_reclaimed", two(Request)),
            waited("shared_lock_waits_per_1000_taken", two(ReadTwice)),
            waited("mapped_shared_lock_waits_per_1000_taken", two(Mapped)),
            waited("request_shared_lock_waits_per_1000_taken", two(Request)),
            held("shared_lock_held_percent_1_thread", watched(ReadTwice)),
            held("mapped_shared_lock_held_percent_1_thread", watched(Mapped)),
            held("request_shared_lock_held_percent_1_thread", watched(Request)),
            rate("depth_4_reclaimed_per_second", deep(clock, ReadTwice)),
            rate("depth_4_mapped_reclaimed_per_second", deep(clock, Mapped)),
            rate("remedy_1_mapped_reclaimed_per_second", deep(one_by_one[0], Mapped)),
            rate("remedy_2_mapped_reclaimed_per_second", deep(one_by_one[1], Mapped)),
            rate("remedy_3_mapped_reclaimed_per_second", deep(one_by_one[2], Mapped)),
            rate("remedy_4_mapped_reclaimed_per_second", deep(one_by_one[3], Mapped)),
            rate("remedy_5_mapped_reclaimed_per_second", deep(one_by_one[4], Mapped)),
            rate("ours_mapped_reclaimed_per_second", deep(evictions, Mapped)),
            rate("ours_reclaimed_per_second", deep(evictions, ReadTwice)),
            writes("ours_mapped_ancestor_clock_writes_per_reclaimed", deep(evictions, Mapped)),
            writes("depth_4_ancestor_clock_writes_per_reclaimed", deep(clock, ReadTwice)),
            writes("depth_4_mapped_ancestor_clock_writes_per_reclaimed", deep(clock, Mapped)),
            rate("depth_1_mapped_reclaimed_per_second", smaller(Mapped, 2, 1)),
            rate("depth_2_mapped_reclaimed_per_second", smaller(Mapped, 2, 2)),
            rate("depth_3_mapped_reclaimed_per_second", smaller(Mapped, 2, 3)),
            rate("depth_4_reclaimed_per_second_8_threads", smaller(ReadTwice, MANY_THREADS, DEEP)),
            rate("depth_4_mapped_reclaimed_per_second_8_threads", smaller(Mapped, MANY_THREADS, DEEP)),
            published(
                Published::Same,
                rate("control_reclaimed_per_second_1_thread", of(lock, ReadTwice, 1, 1)),
            ),
            published(
                Published::Same,
                rate("control_depth_4_mapped_reclaimed_per_second_1_thread", of(clock, Mapped, 1, DEEP)),
            ),
        ]
    }

    /// Clock writes of one batch that is put back once: the remedy's definition, and no
    /// measurement.
    fn batch(&self) -> Result<MetricRow, Error> {
        let per_batch =
            |mechanisms| clock_writes_per_batch(mechanisms, DEEP).map(|writes| vec![writes as f64]);
        let [before, after, default] = self.clock;
        Ok(MetricRow {
            metric: "ancestor_clock_writes_per_batch",
            unit: "writes",
            values: Values::Given,
            published: Published::Change { before: 31.0, after: 1.0 },
            before: per_batch(before)?,
            after: per_batch(after)?,
            default: per_batch(default)?,
        })
    }
}

/// Runs the experiment.
///
/// # Errors
/// If reclaim did not produce the batch that the count of clock writes requires.
fn run(order: &ExperimentRequest, watch: &dyn Watch) -> Result<Experiment, Error> {
    let &ExperimentRequest { effort, quick, .. } = order;
    let compared = Compared::new()?;
    let wanted = compared.wanted();
    let settings = distinct(wanted.iter().flat_map(|wanted| wanted.settings));
    let runs = if quick { effort.runs } else { effort.runs.max(RUNS_MIN) };
    let outcomes = run_in_turn(&settings, runs, effort, watch)?;
    let mut rows: Vec<MetricRow> = wanted.iter().map(|wanted| wanted.row(&outcomes)).collect();
    let processors = rows.iter().find(|row| row.metric == PROCESSORS).expect("one of the rows");
    let two_at_a_time = median(&processors.after) >= PROCESSORS_MIN;
    let batch = compared.batch()?;
    let checks = vec![
        Check {
            name: "a batch of 31 folios put back is 31 writes to each ancestor's clock without the fix, 1 with it"
                .to_owned(),
            holds: [&batch.before, &batch.after, &batch.default].map(|writes| writes[0]) == [31.0, 1.0, 1.0],
        },
        Check {
            name: "pages were reclaimed in every run".to_owned(),
            holds: outcomes.iter().flatten().all(|(_, outcome)| outcome.reclaimed > 0),
        },
        Check {
            name: format!(
                "two independent threads had {PROCESSORS_MIN} processors; otherwise only counts and shares are \
                 meaningful"
            ),
            holds: two_at_a_time,
        },
    ];
    rows.insert(1, batch);
    Ok(Experiment {
        name: "lru-lock",
        world: "real",
        workload: workload(),
        runs,
        quick,
        untimely: (!two_at_a_time).then_some("two threads hardly ran in parallel"),
        seconds: 0.0,
        rows,
        checks,
        crosschecks: crosscheck::REAL_TIME,
        shown: Vec::new(),
    })
}

fn workload() -> String {
    format!(
        "LRU locks: threads in tenants of {TENANT_PAGES} pages read files twice as large at random, without I/O \
         (classic LRU).\n  before: linux-7.2 with one lock per node; after: with one per lruvec.\n  depth_N, batch: \
         linux-7.2 without and with the published remedies alone (age_per_batch, age_after_unlock, age_with_cost, age_once_per_refault), for \
         tenants at level N (levels 1 to 3, and 8 threads: a quarter of the pages). remedy_…: each without and with, at level \
         4. ours: the remedies without and with age_evictions_per_batch.\n  control: one thread, without contention.\n  Published on 40 and 104 threads. The counts per page \
         and the share of time that one thread holds the shared lock also apply to more threads than run here."
    )
}

/// Outcomes of each setting, per run.
fn run_in_turn(
    settings: &[Setting],
    runs: u32,
    effort: Effort,
    watch: &dyn Watch,
) -> Result<Vec<Outcomes>, Error> {
    let steps = u64::from(runs) * settings.len() as u64;
    let stage = Stage::begin(watch, "threads on the core", steps, Unit::Steps);
    let one_run = |run: u32| {
        let tenant_pages = TENANT_PAGES / effort.shorter;
        let size = Size { tenant_pages, time: TIME / effort.shorter, seed: effort.seed + u64::from(run) };
        let mut order: Vec<&Setting> = settings.iter().collect();
        // Alternate the order, so that no setting is always first.
        if !run.is_multiple_of(2) {
            order.reverse();
        }
        let run_one = |setting: &Setting| {
            stage.advance(1)?;
            Ok((*setting, load::run(setting, size)))
        };
        order.into_iter().map(run_one).collect()
    };
    (0..runs).map(one_run).collect()
}

/// The settings without repetitions. Those that differ in their mechanisms only, and are compared,
/// run one after another.
fn distinct(settings: impl IntoIterator<Item = Setting>) -> Vec<Setting> {
    let mut distinct: Vec<Setting> = Vec::new();
    for setting in settings {
        if distinct.contains(&setting) {
            continue;
        }
        let is_alike = |other: &Setting| Setting { mechanisms: setting.mechanisms, ..*other } == setting;
        let after = distinct.iter().rposition(is_alike).map_or(distinct.len(), |last| last + 1);
        distinct.insert(after, setting);
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_runs_once_beside_those_it_is_compared_with() {
        let linux = Mechanisms::preset(Preset::Linux72);
        let setting = |mechanisms, threads| Setting {
            mechanisms,
            load: Load::Mapped,
            threads,
            depth: 1,
            watched: false,
            smaller: 1,
        };
        let node = linux.with_lru_lock(LruLock::Node);
        let default = Mechanisms::default();
        let (one, two) = ([setting(linux, 1), setting(node, 1)], [setting(linux, 2), setting(node, 2)]);
        let all = [one[0], one[1], two[0], one[0], setting(default, 1), two[1], two[0]];
        assert_eq!(distinct(all), [one[0], one[1], setting(default, 1), two[0], two[1]]);
    }
}
