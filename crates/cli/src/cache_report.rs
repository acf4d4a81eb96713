//! The `mglru` section of reports: counts of a cache and its tenants, as text and as JSON.

use crate::cache_options::Budget;
use crate::size;
use crate::table::{Table, count, percent};
use mglru_cache::{CacheStats, TenantStats};
use mglru_core::{Lru, Mechanisms};
use mglru_lab::mechanisms::Settings;
use mglru_lab::replay::rows::GenerationRow;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// A cache at the end of its work.
pub struct CacheReport {
    /// Memory it was given.
    pub budget: Budget,
    /// Mechanisms that were on.
    pub mechanisms: Mechanisms,
    /// Sizes at the end.
    pub stats: CacheStats,
    /// Counts of the tenants, the root first.
    pub tenants: Vec<TenantStats>,
    /// Time to write back the pages that were dirty at the end, if a job writes.
    pub sync: Option<Duration>,
}

/// The tenants with accesses; all of them if no tenant has any.
fn shown(tenants: &[TenantStats]) -> impl Iterator<Item = &TenantStats> {
    let busy = |tenant: &&TenantStats| tenant.hits + tenant.misses > 0;
    let any = tenants.iter().any(|tenant| busy(&tenant));
    tenants.iter().filter(move |tenant| !any || busy(tenant))
}

/// The name of a tenant; the root is `(root)`.
pub fn name_of(tenant: &TenantStats) -> &str {
    if tenant.name.is_empty() { "(root)" } else { &tenant.name }
}

/// A counter by name. An unknown name is a bug of this program, which its tests show.
fn counter(tenant: &TenantStats, name: &str) -> u64 {
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

fn pages(pages: u64) -> String {
    size::show(pages * mglru_core::PAGE_BYTES)
}

impl CacheReport {
    /// The whole section as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "mglru: {}\n\n{}\n  {} misses ran direct reclaim\n",
            self.settings(),
            self.table(),
            count(self.tenants.iter().map(|tenant| counter(tenant, "allocstall")).sum()),
        );
        if self.mechanisms.lru() == Lru::MultiGen {
            text.push('\n');
            text.push_str(&self.generations("generations, oldest first"));
        }
        text
    }

    /// Budget, preset and backend, in sentences.
    pub fn settings(&self) -> String {
        let stats = &self.stats;
        let default = match self.budget.of_machine {
            true => " (default: a quarter of the available memory, at most 1 GiB; --memory)",
            false => "",
        };
        let backend = match (stats.backend, stats.registered_buffers) {
            ("io_uring", true) => "io_uring with registered buffers".to_owned(),
            (backend, _) => backend.to_owned(),
        };
        let mut text = format!(
            "memory {}{default},\n       {} of it metadata; preset {}; backend {backend}",
            size::show(stats.budget_bytes),
            size::show(stats.metadata_bytes),
            stats.preset,
        );
        if let Some(why) = &stats.why_not_uring {
            text.push_str(&format!("\n       ({why})"));
        }
        if let Some(sync) = self.sync {
            text.push_str(&format!(
                "\n       dirty pages were written back at the end, in {}",
                seconds(sync)
            ));
        }
        text
    }

    /// A row per tenant.
    pub fn table(&self) -> String {
        let mut table = Table::new([
            "tenant",
            "limit",
            "cached",
            "hits",
            "misses",
            "hit ratio",
            "refaults",
            "evicted",
            "written",
            "protected",
        ]);
        for tenant in shown(&self.tenants) {
            table.row([
                name_of(tenant).to_owned(),
                tenant.max_pages.map_or("-".to_owned(), pages),
                pages(tenant.usage_pages),
                count(tenant.hits),
                count(tenant.misses),
                percent(tenant.hits, tenant.hits + tenant.misses),
                count(counter(tenant, "workingset_refault_file")),
                count(evictions(tenant)),
                count(counter(tenant, "nr_written")),
                count(counter(tenant, "pgprotected")),
            ]);
        }
        table.text()
    }

    /// A row per live generation of each tenant.
    pub fn generations(&self, title: &str) -> String {
        let mut table = Table::new([title, "number", "age", "file pages", "anon pages"]);
        for tenant in shown(&self.tenants) {
            for (position, generation) in tenant.generations.iter().enumerate() {
                let name = if position == 0 { name_of(tenant) } else { "" };
                table.row([
                    name.to_owned(),
                    generation.seq.to_string(),
                    seconds(Duration::from_millis(generation.age_ms)),
                    count(generation.file_pages),
                    count(generation.anon_pages),
                ]);
            }
        }
        table.text()
    }

    /// The section as JSON.
    pub fn json(&self) -> Value {
        let stats = &self.stats;
        json!({
            "budget_bytes": stats.budget_bytes,
            "backend": stats.backend,
            "why_not_uring": stats.why_not_uring,
            "registered_buffers": stats.registered_buffers,
            "huge_pages": stats.huge_pages,
            "preset": stats.preset,
            "mechanisms": Settings(self.mechanisms),
            "metadata_bytes": stats.metadata_bytes,
            "frame_bytes": stats.frame_bytes,
            "free_pages": stats.free_pages,
            "sync_ms": self.sync.map(|sync| sync.as_secs_f64() * 1000.0),
            "tenants": self.tenants.iter().map(tenant_json).collect::<Vec<_>>(),
        })
    }
}

fn tenant_json(tenant: &TenantStats) -> Value {
    let accesses = tenant.hits + tenant.misses;
    // Sums that memory.stat also has.
    let sums = [("pgscan", scanned(tenant)), ("pgsteal", evictions(tenant))];
    let counters: Map<String, Value> = sums
        .into_iter()
        .chain(tenant.counters.iter())
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    json!({
        "name": tenant.name,
        "max_pages": tenant.max_pages,
        "usage_pages": tenant.usage_pages,
        "peak_pages": tenant.peak_pages,
        "hits": tenant.hits,
        "misses": tenant.misses,
        "hit_ratio": (accesses > 0).then(|| tenant.hits as f64 / accesses as f64),
        "counters": counters,
        "generations": tenant.generations.iter().map(GenerationRow::from).collect::<Vec<_>>(),
    })
}

/// A time with its unit: `250 ms`, `1.5 s`.
pub fn seconds(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
