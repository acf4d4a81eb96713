//! Sizes and counts of a real cache and of its tenants.

use crate::document::{Map, document};
use crate::mechanisms::Settings;
use crate::replay::rows::GenerationRow;
use mglru_cache::{CacheStats, PageCache, Tenant, TenantStats};
use mglru_core::Mechanisms;
use serde::{Serialize, Serializer};
use std::time::Duration;

/// A cache at the end of its work.
#[derive(Debug, Clone)]
pub struct CacheCounts {
    /// Sizes at the end.
    pub stats: CacheStats,
    /// Mechanisms that were on.
    pub mechanisms: Mechanisms,
    /// Counts of the tenants, the root first. For jobs with mapped accesses, hits are accesses
    /// minus misses.
    pub tenants: Vec<TenantStats>,
    /// Time to write back the pages that were dirty at the end; `None` if all jobs only read.
    pub sync: Option<Duration>,
}

impl CacheCounts {
    /// The counts of a cache now.
    pub fn of(cache: &PageCache, mechanisms: Mechanisms) -> CacheCounts {
        let tenants = cache.tenants().iter().map(Tenant::stats).collect();
        CacheCounts { stats: cache.stats(), mechanisms, tenants, sync: None }
    }
}

impl Serialize for CacheCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stats = &self.stats;
        document!(serializer, {
            "budget_bytes": stats.budget_bytes,
            "backend": stats.backend,
            "why_not_uring": stats.why_not_uring,
            "io_threads_refused": stats.io_threads_refused,
            "registered_buffers": stats.registered_buffers,
            "huge_pages": stats.huge_pages,
            "preset": stats.preset,
            "mechanisms": Settings(self.mechanisms),
            "metadata_bytes": stats.metadata_bytes,
            "frame_bytes": stats.frame_bytes,
            "free_pages": stats.free_pages,
            "sync_ms": self.sync.map(|sync| sync.as_secs_f64() * 1000.0),
            "tenants": self.tenants.iter().map(Documented).collect::<Vec<_>>(),
        })
    }
}

/// A counter by name. An unknown name is a bug of this program, which its tests show.
pub fn counter(tenant: &TenantStats, name: &str) -> u64 {
    let value = tenant.counter(name);
    debug_assert!(value.is_some(), "no counter {name}");
    value.unwrap_or(0)
}

fn sum(tenant: &TenantStats, names: [&str; 3]) -> u64 {
    names.map(|name| counter(tenant, name)).iter().sum()
}

/// Pages that reclaim freed.
pub fn evictions(tenant: &TenantStats) -> u64 {
    sum(tenant, ["pgsteal_kswapd", "pgsteal_direct", "pgsteal_proactive"])
}

/// Pages that reclaim scanned on lists.
pub fn scanned(tenant: &TenantStats) -> u64 {
    sum(tenant, ["pgscan_kswapd", "pgscan_direct", "pgscan_proactive"])
}

struct Documented<'a>(&'a TenantStats);

impl Serialize for Documented<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tenant = self.0;
        let accesses = tenant.hits + tenant.misses;
        // Sums that memory.stat also has.
        let sums = [("pgscan", scanned(tenant)), ("pgsteal", evictions(tenant))];
        let counters: Vec<_> = sums.into_iter().chain(tenant.counters.iter()).collect();
        document!(serializer, {
            "name": tenant.name,
            "max_pages": tenant.max_pages,
            "usage_pages": tenant.usage_pages,
            "peak_pages": tenant.peak_pages,
            "hits": tenant.hits,
            "misses": tenant.misses,
            "hit_ratio": (accesses > 0).then(|| tenant.hits as f64 / accesses as f64),
            "counters": Map(&counters),
            "generations": tenant.generations.iter().map(GenerationRow::from).collect::<Vec<_>>(),
        })
    }
}
