//! Results of a scenario.

use super::Plan;
use super::plan::SUMS;
use crate::columns::{Columns, Get, Values};
use mglru_core::{Counter, OutOfMemory};
use std::time::Duration;

/// Result of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Duration on the clock of its world.
    pub time: Duration,
    /// The root first, then the scenario's tenants in order.
    pub tenants: Vec<TenantRow>,
    /// Results of the actions.
    pub answers: Vec<Answered>,
    /// Tenants killed to free memory.
    pub kills: Vec<Killed>,
    /// Tenants with failed requests for memory.
    pub refusals: Vec<Refused>,
    /// Readings of control files in order of time; the last are from the end.
    pub readings: Vec<Read>,
    /// Errors of failed jobs.
    pub failures: Vec<String>,
}

/// Memory and counts of a tenant.
#[derive(Debug, Clone)]
pub struct TenantRow {
    /// Path of the tenant; empty for the root.
    pub path: String,
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

/// A reading of a control file.
#[derive(Debug, Clone)]
pub struct Read {
    /// Time of the reading.
    pub time: Duration,
    /// Index of the file in the plan.
    pub file: usize,
    /// Contents of the file, or the error of reading it.
    pub text: Result<String, String>,
}

impl Outcome {
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

    /// A row per reading of a control file of the plan.
    pub fn reading_columns(&self, plan: &Plan) -> Columns {
        let files = &plan.scenario.print.files;
        let lines: Vec<(&str, &Read)> =
            self.readings.iter().map(|read| (files[read.file].value.as_str(), read)).collect();
        Columns::of(
            &lines,
            &[
                ("seconds", Get::Real(|line| Some(line.1.time.as_secs_f64()))),
                ("file", Get::Text(|line| Some(line.0.to_owned()))),
                ("text", Get::Text(|line| line.1.text.clone().ok())),
                ("error", Get::Text(|line| line.1.text.clone().err())),
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
