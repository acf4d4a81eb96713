//! Results of a scenario.

use mglru_core::OutOfMemory;
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
