//! The `mglru` section of fio's report: counts of a cache and its tenants, as text.

use crate::cache_options::Budget;
use crate::size;
use crate::table::{Table, count, percent};
use mglru_cache::TenantStats;
use mglru_core::Lru;
use mglru_lab::cache_counts::{CacheCounts, counter, evictions};
use std::time::Duration;

/// A cache at the end of its work.
pub struct CacheReport<'a> {
    /// Memory it was given.
    pub budget: Budget,
    /// Hits, misses and counters at the end of the run.
    pub counts: &'a CacheCounts,
}

/// The tenants with accesses; all of them if no tenant has any.
fn shown(tenants: &[TenantStats]) -> impl Iterator<Item = &TenantStats> {
    let busy = |tenant: &&TenantStats| tenant.hits + tenant.misses > 0;
    let any = tenants.iter().any(|tenant| busy(&tenant));
    tenants.iter().filter(move |tenant| !any || busy(tenant))
}

/// The name of a tenant with this path; the root is `(root)`.
pub fn name_of(path: &str) -> &str {
    if path.is_empty() { "(root)" } else { path }
}

fn pages(pages: u64) -> String {
    size::show(pages * mglru_core::PAGE_BYTES)
}

impl CacheReport<'_> {
    /// The whole section as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "mglru: {}\n\n{}\n  {} misses ran direct reclaim\n",
            self.settings(),
            self.table(),
            count(self.counts.tenants.iter().map(|tenant| counter(tenant, "allocstall")).sum()),
        );
        if self.counts.mechanisms.lru() == Lru::MultiGen {
            text.push('\n');
            text.push_str(&self.generations("generations, oldest first"));
        }
        text
    }

    /// Budget, preset and backend, in sentences.
    pub fn settings(&self) -> String {
        let stats = &self.counts.stats;
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
        if stats.io_threads_refused > 0 {
            text.push_str(&format!(
                "\n       ({} threads for reads and writes were refused: raise `ulimit -u` or `pids.max`)",
                stats.io_threads_refused
            ));
        }
        if let Some(sync) = self.counts.sync {
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
        for tenant in shown(&self.counts.tenants) {
            table.row([
                name_of(&tenant.name).to_owned(),
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
        for tenant in shown(&self.counts.tenants) {
            for (position, generation) in tenant.generations.iter().enumerate() {
                let name = if position == 0 { name_of(&tenant.name) } else { "" };
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
}

/// A time with its unit: `250 ms`, `1.5 s`.
pub fn seconds(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
