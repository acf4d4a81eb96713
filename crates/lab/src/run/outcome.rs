//! Results of a scenario.

use super::plan::SUMS;
use super::{Plan, World};
use crate::columns::{Columns, Get, Values};
use crate::document::{Map, document, seconds};
use crate::error::Error;
use crate::mechanisms::Settings;
use mglru_core::{Counter, OutOfMemory, PAGE_BYTES};
use mglru_workload::scenario::{Action, Command, Scenario};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::time::Duration;

/// Result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct ScenarioOutcome {
    /// Name of the scenario.
    pub scenario: String,
    /// Where it ran.
    pub world: World,
    /// Memory in pages.
    pub memory_pages: u64,
    /// Name of the preset.
    pub preset: &'static str,
    /// Mechanisms of the run.
    pub mechanisms: Settings,
    /// Seed of all random choices.
    pub seed: u64,
    /// Duration on the clock of its world.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub time: Duration,
    /// The root first, then the scenario's tenants in order. Tenants that could not be created are
    /// missing.
    pub tenants: Vec<TenantRow>,
    /// Results of the actions.
    #[serde(rename = "actions")]
    pub answers: Vec<Answered>,
    /// Tenants killed to free memory.
    pub kills: Vec<Killed>,
    /// Tenants with failed requests for memory.
    pub refusals: Vec<Refused>,
    /// Readings of control files in order of time; the last are from the end.
    pub readings: Vec<Read>,
    /// Bad records of the jobs' traces that were skipped.
    pub skipped_records: u64,
    /// Errors of failed jobs.
    pub failures: Vec<String>,
}

/// Memory and counts of a tenant.
#[derive(Debug, Clone, Default)]
pub struct TenantRow {
    /// Path of the tenant; empty for the root.
    pub path: String,
    /// Time of its creation.
    pub created: Duration,
    /// Time of its removal; `None` if it lived to the end.
    pub removed: Option<Duration>,
    /// Pages charged at the end.
    pub usage_pages: u64,
    /// Highest number of charged pages.
    pub peak_pages: u64,
    /// Touches of cached pages.
    pub hits: u64,
    /// Touches of other pages.
    pub misses: u64,
    /// Touches that failed because no page could be freed.
    pub out_of_memory: u64,
    /// Counters by the kernel's names.
    pub counters: Vec<(&'static str, u64)>,
}

/// Result of an action.
#[derive(Debug, Clone)]
pub struct Answered {
    /// The time that the scenario has.
    pub at: Duration,
    /// The command, with the name of the job and paths of tenants.
    pub command: Command<Option<String>, String>,
    /// Start time.
    pub began: Duration,
    /// End time.
    pub ended: Duration,
    /// Error, if the action failed or was incomplete.
    pub error: Option<String>,
}

/// A killed tenant.
#[derive(Debug, Clone)]
pub struct Killed {
    /// Time of the kill, if known.
    pub time: Option<Duration>,
    /// The tenant, the limit that caused the kill, and why nothing else was possible.
    pub report: OutOfMemory,
}

/// First failed request of a tenant.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Path of the tenant.
    pub tenant: String,
    /// Time of the request.
    pub time: Duration,
    /// The limit that caused the failure, and why.
    pub report: OutOfMemory,
}

/// Memory that the readings of a run may take. A short `every` in a long run would take all.
const READINGS_BYTES_MAX: usize = 128 << 20;
/// The bytes of a reading beside its text.
const READING_BYTES: usize = 96;

/// Counts the memory of a run's readings.
#[derive(Debug, Default)]
pub(super) struct ReadingsSize {
    bytes: usize,
}

impl ReadingsSize {
    /// Counts one more. An error if together they take too much; `time` is the reading's.
    pub fn add(&mut self, plan: &Plan, time: Duration, text: &str) -> Result<(), Error> {
        self.bytes += READING_BYTES + text.len();
        if self.bytes <= READINGS_BYTES_MAX {
            return Ok(());
        }
        Err(Error::usage(format_args!(
            "{}: [print]: the files that are read `every` so often take more than {} MiB until {:.1} s: choose a \
             longer time, or fewer `files`",
            plan.scenario.path.display(),
            READINGS_BYTES_MAX >> 20,
            time.as_secs_f64()
        )))
    }
}

/// A reading of a control file.
#[derive(Debug, Clone)]
pub struct Read {
    /// Time of the reading.
    pub time: Duration,
    /// Path of the file.
    pub file: String,
    /// Contents of the file, or the error of reading it.
    pub text: Result<String, String>,
}

impl ScenarioOutcome {
    /// The outcome of a plan in which nothing happened but accesses.
    pub(super) fn new(plan: &Plan, time: Duration, mut tenants: Vec<TenantRow>) -> ScenarioOutcome {
        let mut of_scenario = plan.scenario.tenants.iter();
        for row in tenants.iter_mut().filter(|row| !row.path.is_empty()) {
            if let Some(tenant) = of_scenario.find(|tenant| tenant.path == row.path) {
                (row.created, row.removed) = (tenant.from, tenant.until);
            }
        }
        ScenarioOutcome {
            scenario: plan.scenario.name(),
            world: plan.world,
            memory_pages: plan.memory_bytes / PAGE_BYTES,
            preset: plan.mechanisms.name(),
            mechanisms: Settings(plan.mechanisms),
            seed: plan.scenario.machine.seed,
            time,
            tenants,
            answers: Vec::new(),
            kills: Vec::new(),
            refusals: Vec::new(),
            readings: Vec::new(),
            skipped_records: 0,
            failures: Vec::new(),
        }
    }
}

impl Answered {
    pub(super) fn new(
        scenario: &Scenario,
        action: &Action,
        (began, ended): (Duration, Duration),
        error: Option<String>,
    ) -> Answered {
        let job = |&job: &usize| scenario.jobs[job].name.clone();
        let command = action.command.map(job, |&tenant| scenario.tenants[tenant].path.clone());
        Answered { at: action.at, command, began, ended, error }
    }
}

impl Serialize for TenantRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document!(serializer, {
            "path": self.path,
            "created_seconds": self.created.as_secs_f64(),
            "removed_seconds": self.removed.map(|removed| removed.as_secs_f64()),
            "usage_pages": self.usage_pages,
            "peak_pages": self.peak_pages,
            "hits": self.hits,
            "misses": self.misses,
            "miss_ratio": self.miss_ratio(),
            "out_of_memory": self.out_of_memory,
            "counters": Map(&self.counters),
        })
    }
}

impl Serialize for Answered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("at_seconds", &self.at.as_secs_f64())?;
        map.serialize_entry("began_seconds", &self.began.as_secs_f64())?;
        map.serialize_entry("ended_seconds", &self.ended.as_secs_f64())?;
        match &self.command {
            Command::Write { file, value } => {
                map.serialize_entry("write", &std::collections::BTreeMap::from([(file, value)]))?;
            }
            Command::Create(tenant) => map.serialize_entry("create", tenant)?,
            Command::Remove(tenant) => map.serialize_entry("remove", tenant)?,
            Command::Move { job, to } => {
                map.serialize_entry("move", job)?;
                map.serialize_entry("to", to.as_deref().unwrap_or_default())?;
            }
        }
        map.serialize_entry("error", &self.error)?;
        map.end()
    }
}

impl Serialize for Killed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Killed { time, report } = self;
        document!(serializer, {
            "seconds": time.map(|time| time.as_secs_f64()),
            "victim": report.victim,
            "limit_of": report.tenant,
            "usage_pages": report.usage_pages,
            "max_pages": report.max_pages,
            "anon_pages": report.anon_pages,
            "report": report.to_string(),
        })
    }
}

impl Serialize for Refused {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document!(serializer, {
            "seconds": self.time.as_secs_f64(),
            "tenant": self.tenant,
            "limit_of": self.report.tenant,
            "report": self.report.to_string(),
        })
    }
}

impl Serialize for Read {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document!(serializer, {
            "seconds": self.time.as_secs_f64(),
            "file": self.file,
            "text": self.text.as_deref().ok(),
        })
    }
}

impl ScenarioOutcome {
    /// A row per tenant, with a column per counter.
    pub fn tenant_columns(&self) -> Columns {
        let tenants = &self.tenants;
        let mut columns = Columns::of(
            tenants,
            &[
                ("tenant", Get::Text(|tenant| Some(tenant.path.clone()))),
                ("usage_pages", Get::Whole(|tenant| Some(tenant.usage_pages))),
                ("peak_pages", Get::Whole(|tenant| Some(tenant.peak_pages))),
                ("hits", Get::Whole(|tenant| Some(tenant.hits))),
                ("misses", Get::Whole(|tenant| Some(tenant.misses))),
                ("miss_ratio", Get::Real(TenantRow::miss_ratio)),
                ("out_of_memory", Get::Whole(|tenant| Some(tenant.out_of_memory))),
            ],
        );
        let sums = SUMS.iter().map(|&(name, _)| name);
        for name in sums.chain(Counter::ALL.iter().map(|counter| counter.name())) {
            let value = |tenant: &TenantRow| {
                tenant.counters.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
            };
            columns.push(name, Values::Whole(tenants.iter().map(value).collect()));
        }
        columns
    }

    /// A row per action of the scenario.
    pub fn action_columns(&self) -> Columns {
        Columns::of(
            &self.answers,
            &[
                ("began_seconds", Get::Real(|answer| Some(answer.began.as_secs_f64()))),
                ("ended_seconds", Get::Real(|answer| Some(answer.ended.as_secs_f64()))),
                ("error", Get::Text(|answer| answer.error.clone())),
            ],
        )
    }

    /// A row per OOM kill.
    pub fn kill_columns(&self) -> Columns {
        Columns::of(
            &self.kills,
            &[
                ("seconds", Get::Real(|kill| Some(kill.time?.as_secs_f64()))),
                ("victim", Get::Text(|kill| kill.report.victim.clone())),
                ("tenant", Get::Text(|kill| Some(kill.report.tenant.clone()))),
                ("reason", Get::Text(|kill| Some(kill.report.to_string()))),
            ],
        )
    }

    /// A row per reading of a control file.
    pub fn reading_columns(&self) -> Columns {
        Columns::of(
            &self.readings,
            &[
                ("seconds", Get::Real(|read| Some(read.time.as_secs_f64()))),
                ("file", Get::Text(|read| Some(read.file.clone()))),
                ("text", Get::Text(|read| read.text.clone().ok())),
                ("error", Get::Text(|read| read.text.clone().err())),
            ],
        )
    }
}

impl TenantRow {
    /// Misses per touch; `None` without touches.
    pub fn miss_ratio(&self) -> Option<f64> {
        let touches = self.hits + self.misses;
        (touches > 0).then(|| self.misses as f64 / touches as f64)
    }
}
