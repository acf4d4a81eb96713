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

/// The three compared settings: before, after and default.
type Three = [Mechanisms; 3];

/// Runs the experiment.
///
/// # Errors
/// If reclaim did not produce the batch that the count of clock writes requires.
fn run(order: &ExperimentRequest, watch: &dyn Watch) -> Result<Experiment, Error> {
    let &ExperimentRequest { effort, quick, .. } = order;
    let classic = |mechanisms: Mechanisms| mechanisms.with_lru(Lru::Classic);
    let linux = classic(Mechanisms::preset(Preset::Linux72));
    let turned = |with: &[Switch], without: &[Switch]| {
        Mechanisms::compose(Preset::Linux72, with, without).map(classic).map_err(Error::work)
    };
    let remedies = turned(&REMEDIES, &[])?;
    let default = classic(Mechanisms::default());
    let lock: Three = [linux.with_lru_lock(LruLock::Node), linux, default];
    // The published remedies alone. The default batches evictions besides.
    let clock: Three = [linux, remedies, default];
    let one_by_one: [Three; 5] = [
        [linux, turned(&[Switch::AgePerBatch], &[])?, default],
        [linux, turned(&[Switch::AgeAfterUnlock], &[])?, default],
        [turned(&[], &[Switch::CostReleasesLock])?, linux, default],
        [
            turned(&[Switch::AgePerBatch], &[])?,
            turned(&[Switch::AgePerBatch, Switch::AgeWithCost], &[])?,
            default,
        ],
        [linux, turned(&[Switch::AgeOncePerRefault], &[])?, default],
    ];
    let evictions: Three = [remedies, turned(&[Switch::BatchNonresidentAge], &[])?, default];

    let of = |three: Three, load, threads, depth, watched| {
        three.map(|mechanisms| Setting { mechanisms, load, threads, depth, watched, smaller: 1 })
    };
    let smaller = |load, threads, depth| {
        of(clock, load, threads, depth, false).map(|setting| Setting { smaller: SMALLER, ..setting })
    };
    let groups = [
        of(lock, Load::ReadTwice, 2, 1, false),
        of(lock, Load::Mapped, 2, 1, false),
        of(lock, Load::Request, 2, 1, false),
        of(lock, Load::ReadTwice, 1, 1, false),
        of(lock, Load::ReadTwice, 1, 1, true),
        of(lock, Load::Mapped, 1, 1, true),
        of(lock, Load::Request, 1, 1, true),
        of(clock, Load::ReadTwice, 2, DEEP, false),
        of(clock, Load::Mapped, 2, DEEP, false),
        of(clock, Load::Mapped, 1, DEEP, false),
        smaller(Load::Mapped, 2, 1),
        smaller(Load::Mapped, 2, 2),
        smaller(Load::Mapped, 2, 3),
        smaller(Load::ReadTwice, MANY_THREADS, DEEP),
        smaller(Load::Mapped, MANY_THREADS, DEEP),
        of(one_by_one[0], Load::Mapped, 2, DEEP, false),
        of(one_by_one[1], Load::Mapped, 2, DEEP, false),
        of(one_by_one[2], Load::Mapped, 2, DEEP, false),
        of(one_by_one[3], Load::Mapped, 2, DEEP, false),
        of(one_by_one[4], Load::Mapped, 2, DEEP, false),
        of(evictions, Load::Mapped, 2, DEEP, false),
        of(evictions, Load::ReadTwice, 2, DEEP, false),
    ];
    let runs = if quick { effort.runs } else { effort.runs.max(RUNS_MIN) };
    let outcomes = run_in_turn(&groups, runs, effort, watch)?;
    let column = |group: usize, setting: usize, figure: &dyn Fn(&LockOutcome) -> f64| -> Vec<f64> {
        outcomes.iter().map(|run| figure(&run[group][setting])).collect()
    };
    let row = |metric, unit, published, group, figure: &dyn Fn(&LockOutcome) -> f64| MetricRow {
        metric,
        unit,
        // Also for counts per page, which get no verdict.
        values: Values::Timed,
        published,
        before: column(group, 0, figure),
        after: column(group, 1, figure),
        default: column(group, 2, figure),
    };
    let per_batch = |mechanisms| clock_writes_per_batch(mechanisms, DEEP).map(|writes| vec![writes as f64]);
    let [before, after, default] = clock;
    let batch = MetricRow {
        metric: "ancestor_clock_writes_per_batch",
        unit: "writes",
        // One batch, put back once: the remedy's definition, and no measurement.
        values: Values::Given,
        published: Published::Change { before: 31.0, after: 1.0 },
        before: per_batch(before)?,
        after: per_batch(after)?,
        default: per_batch(default)?,
    };
    let rate: &dyn Fn(&LockOutcome) -> f64 = &|outcome| outcome.reclaimed_per_second;
    let taken: &dyn Fn(&LockOutcome) -> f64 =
        &|outcome| outcome.shared.taken as f64 / outcome.reclaimed as f64;
    let waited: &dyn Fn(&LockOutcome) -> f64 =
        &|outcome| 1000.0 * outcome.shared.waited as f64 / outcome.shared.taken.max(1) as f64;
    let held: &dyn Fn(&LockOutcome) -> f64 = &|outcome| 100.0 * outcome.held;
    let writes: &dyn Fn(&LockOutcome) -> f64 =
        &|outcome| outcome.clock_writes as f64 / outcome.reclaimed as f64;
    let gain = Published::Change { before: 1.0, after: 1.8 };
    let (per_second, nothing) = ("pages/s", Published::Nothing);
    let two_at_a_time = median(&column(0, 1, &|outcome| outcome.processors)) >= PROCESSORS_MIN;
    let checks = vec![
        Check {
            name: "a batch of 31 folios put back is 31 writes to each ancestor's clock without the fix, 1 with it"
                .to_owned(),
            holds: [&batch.before, &batch.after, &batch.default].map(|writes| writes[0]) == [31.0, 1.0, 1.0],
        },
        Check {
            name: "pages were reclaimed in every run".to_owned(),
            holds: outcomes.iter().flatten().flatten().all(|outcome| outcome.reclaimed > 0),
        },
        Check {
            name: format!(
                "two independent threads had {PROCESSORS_MIN} processors; otherwise only counts and shares are \
                 meaningful"
            ),
            holds: two_at_a_time,
        },
    ];
    let rows = vec![
        row("reclaimed_per_second_2_threads", per_second, gain, 0, rate),
        batch,
        row("mapped_reclaimed_per_second_2_threads", per_second, nothing, 1, rate),
        row("request_reclaimed_per_second_2_threads", per_second, nothing, 2, rate),
        row("processors_2_threads", "processors", nothing, 0, &|outcome| outcome.processors),
        row("shared_lock_taken_per_reclaimed", "1/page", nothing, 0, taken),
        row("mapped_shared_lock_taken_per_reclaimed", "1/page", nothing, 1, taken),
        row("request_shared_lock_taken_per_reclaimed", "1/page", nothing, 2, taken),
        row("shared_lock_waits_per_1000_taken", "waits", nothing, 0, waited),
        row("mapped_shared_lock_waits_per_1000_taken", "waits", nothing, 1, waited),
        row("request_shared_lock_waits_per_1000_taken", "waits", nothing, 2, waited),
        row("shared_lock_held_percent_1_thread", "%", nothing, 4, held),
        row("mapped_shared_lock_held_percent_1_thread", "%", nothing, 5, held),
        row("request_shared_lock_held_percent_1_thread", "%", nothing, 6, held),
        row("depth_4_reclaimed_per_second", per_second, nothing, 7, rate),
        row("depth_4_mapped_reclaimed_per_second", per_second, nothing, 8, rate),
        row("remedy_1_mapped_reclaimed_per_second", per_second, nothing, 15, rate),
        row("remedy_2_mapped_reclaimed_per_second", per_second, nothing, 16, rate),
        row("remedy_3_mapped_reclaimed_per_second", per_second, nothing, 17, rate),
        row("remedy_4_mapped_reclaimed_per_second", per_second, nothing, 18, rate),
        row("remedy_5_mapped_reclaimed_per_second", per_second, nothing, 19, rate),
        row("ours_mapped_reclaimed_per_second", per_second, nothing, 20, rate),
        row("ours_reclaimed_per_second", per_second, nothing, 21, rate),
        row("ours_mapped_ancestor_clock_writes_per_reclaimed", "1/page", nothing, 20, writes),
        row("depth_4_ancestor_clock_writes_per_reclaimed", "1/page", nothing, 7, writes),
        row("depth_4_mapped_ancestor_clock_writes_per_reclaimed", "1/page", nothing, 8, writes),
        row("depth_1_mapped_reclaimed_per_second", per_second, nothing, 10, rate),
        row("depth_2_mapped_reclaimed_per_second", per_second, nothing, 11, rate),
        row("depth_3_mapped_reclaimed_per_second", per_second, nothing, 12, rate),
        row("depth_4_reclaimed_per_second_8_threads", per_second, nothing, 13, rate),
        row("depth_4_mapped_reclaimed_per_second_8_threads", per_second, nothing, 14, rate),
        row("control_reclaimed_per_second_1_thread", per_second, Published::Same, 3, rate),
        row("control_depth_4_mapped_reclaimed_per_second_1_thread", per_second, Published::Same, 9, rate),
    ];
    Ok(Experiment {
        name: "lru-lock",
        world: "real",
        workload: format!(
            "LRU locks: threads in tenants of {TENANT_PAGES} pages read files twice as large at random, without I/O \
             (classic LRU).\n  before: linux-7.2 with one lock per node; after: with one per lruvec.\n  depth_N, batch: \
             linux-7.2 without and with the published remedies alone (age_per_batch, age_after_unlock, age_with_cost, age_once_per_refault), for \
             tenants at level N (levels 1 to 3, and 8 threads: a quarter of the pages). remedy_…: each without and with, at level \
             4. ours: the remedies without and with age_evictions_per_batch.\n  control: one thread, without contention.\n  Published on 40 and 104 threads. The counts per page \
             and the share of time that one thread holds the shared lock also apply to more threads than run here."
        ),
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

/// Results of each setting of each group, per run. A setting of several groups runs once.
fn run_in_turn<const GROUPS: usize>(
    groups: &[[Setting; 3]; GROUPS],
    runs: u32,
    effort: Effort,
    watch: &dyn Watch,
) -> Result<Vec<[[LockOutcome; 3]; GROUPS]>, Error> {
    let settings = distinct(groups.as_flattened());
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
        let run_one = |setting| {
            stage.advance(1)?;
            Ok((setting, load::run(setting, size)))
        };
        let outcomes =
            order.into_iter().map(run_one).collect::<Result<Vec<(&Setting, LockOutcome)>, Error>>()?;
        let of = |setting| {
            let ran = outcomes.iter().find(|(ran, _)| **ran == setting);
            ran.expect("every setting of the groups ran").1
        };
        Ok(groups.map(|group| group.map(of)))
    };
    (0..runs).map(one_run).collect()
}

/// The settings without repetitions. Those that differ in their mechanisms only, and are compared,
/// run one after another.
fn distinct(settings: &[Setting]) -> Vec<Setting> {
    let mut distinct: Vec<Setting> = Vec::new();
    for &setting in settings {
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
        assert_eq!(distinct(&all), [one[0], one[1], setting(default, 1), two[0], two[1]]);
    }
}
