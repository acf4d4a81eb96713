//! What came of a scenario.

use mglru_core::OutOfMemory;
use std::time::Duration;

/// What happened.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How long it took, in its own world.
    pub time: Duration,
    /// The root first, then the scenario's tenants in their order.
    pub tenants: Vec<TenantRow>,
    /// What came of the actions.
    pub answers: Vec<Answered>,
    /// Who was killed to make room.
    pub kills: Vec<Killed>,
    /// Whose requests failed, as no page could be freed.
    pub refusals: Vec<Refused>,
    /// What was read of control files, at last at the end.
    pub readings: Vec<Read>,
    /// Why jobs failed.
    pub failures: Vec<String>,
}

/// What a tenant held and did.
#[derive(Debug, Clone)]
pub struct TenantRow {
    /// Empty: the root.
    pub path: String,
    /// Pages charged at the end.
    pub usage_pages: u64,
    /// The most that ever were.
    pub peak_pages: u64,
    /// Touches of pages that were there.
    pub hits: u64,
    /// Touches of others.
    pub misses: u64,
    /// Touches that failed because no page could be freed.
    pub out_of_memory: u64,
    /// By the kernel's names.
    pub counters: Vec<(&'static str, u64)>,
}

/// What came of an action.
#[derive(Debug, Clone)]
pub struct Answered {
    /// When it began.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// Why it did not do, or not all.
    pub error: Option<String>,
}

/// A tenant that was killed.
#[derive(Debug, Clone)]
pub struct Killed {
    /// When, where that is known.
    pub time: Option<Duration>,
    /// Who it was, because of whose limit, and why nothing else could be done.
    pub report: OutOfMemory,
}

/// The first request of a tenant that failed.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Its path.
    pub tenant: String,
    /// When.
    pub time: Duration,
    /// Because of whose limit, and why.
    pub report: OutOfMemory,
}

/// What was read.
#[derive(Debug, Clone)]
pub struct Read {
    /// When.
    pub time: Duration,
    /// The number of the file among the plan's.
    pub file: usize,
    /// The text, or why there is none.
    pub text: Result<String, String>,
}
