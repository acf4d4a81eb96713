//! The state of a cache at one time, as JSON.

use mglru_cache::{Control, GenerationRow, PAGE_BYTES, PageCache, Pressure, Tenant, TenantStats};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of tenants in a state at most, besides the root: those that use most.
const TENANTS_MAX: usize = 1000;

/// Something that a [`crate::Watch`] can show.
///
/// Both methods are called on the thread of the watch. They should copy counters, and not wait.
pub trait Watched: Send + Sync + 'static {
    /// The state now.
    fn state(&self) -> State;
    /// All counters, in Prometheus' text format.
    fn metrics(&self) -> String;
}

impl Watched for PageCache {
    fn state(&self) -> State {
        State::of(self)
    }

    fn metrics(&self) -> String {
        self.prometheus_text()
    }
}

/// The state of a cache. Sizes are in bytes. Counts grow from the start of the cache on, so that
/// rates are differences between two states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct State {
    /// The user of the cache: a mounted directory, or the program's name.
    pub name: String,
    /// The process of the cache.
    pub pid: u32,
    /// The system's monotonic clock when the state was read, in milliseconds.
    pub at_ms: u64,
    /// The preset of mechanisms: `default`, `linux-6.12`, `linux-7.1` or `linux-7.2`.
    pub preset: String,
    /// How files are read and written: `io_uring` or `threads`.
    pub backend: String,
    /// The memory budget.
    pub budget_bytes: u64,
    /// Frames that hold no page.
    pub free_bytes: u64,
    /// Metadata about pages, files and tenants.
    pub metadata_bytes: u64,
    /// File pages that are dirty or under writeback.
    pub pending_bytes: u64,
    /// Requests of programs, where the cache serves a mount.
    pub requests: Option<Requests>,
    /// The root first, then by path. A tenant's figures include those of the tenants below it.
    pub tenants: Vec<TenantState>,
    /// Tenants that are not listed, because they use less than those that are.
    pub tenants_left_out: usize,
}

/// Requests of programs on a mount, since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Requests {
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of syncs.
    pub syncs: u64,
    /// Bytes that programs read.
    pub read_bytes: u64,
    /// Bytes that programs wrote.
    pub written_bytes: u64,
}

/// A tenant and all tenants below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TenantState {
    /// The tenant's path; empty for the root.
    pub path: String,
    /// Memory charged. For the root: pages and metadata of all tenants.
    pub usage_bytes: u64,
    /// `memory.max`; for the root, the budget.
    pub max_bytes: Option<u64>,
    /// `memory.high`.
    pub high_bytes: Option<u64>,
    /// `memory.low`.
    pub low_bytes: u64,
    /// `memory.min`.
    pub min_bytes: u64,
    /// Pages in swap.
    pub swap_bytes: u64,
    /// File pages.
    pub file_bytes: u64,
    /// Anonymous pages.
    pub anon_bytes: u64,
    /// Dirty file pages that are not under writeback.
    pub dirty_bytes: u64,
    /// Pages under writeback.
    pub writeback_bytes: u64,
    /// Accesses to pages that were in memory.
    pub hits: u64,
    /// Accesses through maps to pages that were in memory, at least: an estimate.
    pub mapped_hits: u64,
    /// Accesses to pages that were not in memory.
    pub misses: u64,
    /// Pages that were reclaimed and came back while their shadows were known.
    pub refaults: u64,
    /// Pages reclaimed.
    pub reclaimed: u64,
    /// Time that tasks waited for memory.
    pub pressure: Pressure,
    /// The lists, in the order in which reclaim looks at them: generations of this tenant alone if
    /// the multi-gen policy is in use, else `inactive` and `active` with the tenants below.
    pub lists: Vec<ListState>,
}

/// A generation or list of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ListState {
    /// The number of a generation, `inactive` or `active`.
    pub name: String,
    /// Time since the generation was opened.
    pub age_ms: Option<u64>,
    /// Its anonymous pages.
    pub anon_bytes: u64,
    /// Its file pages.
    pub file_bytes: u64,
}

impl ListState {
    /// All its pages, in bytes.
    pub fn bytes(&self) -> u64 {
        self.anon_bytes + self.file_bytes
    }
}

impl TenantState {
    /// All hits, with those through maps.
    pub fn all_hits(&self) -> u64 {
        self.hits + self.mapped_hits
    }

    /// Share of accesses that hit, from 0 to 1; `None` without accesses.
    pub fn hit_ratio(&self) -> Option<f64> {
        let accesses = self.all_hits() + self.misses;
        (accesses > 0).then(|| self.all_hits() as f64 / accesses as f64)
    }
}

/// Text of a control file of a tenant; empty if the tenant was removed meanwhile.
fn control_file(control: &Control, tenant: &str, name: &str) -> String {
    let path = if tenant.is_empty() { name.to_owned() } else { format!("{tenant}/{name}") };
    control.read(&path).unwrap_or_default()
}

/// The lines `name value` of a control file.
fn values(text: &str) -> BTreeMap<&str, u64> {
    let value = |line: &'_ str| line.split_once(' ').and_then(|(_, value)| value.parse().ok());
    text.lines().filter_map(|line| Some((line.split(' ').next()?, value(line)?))).collect()
}

/// A tenant's figures. Hits and misses are of this tenant alone.
fn tenant_state(control: &Control, stats: TenantStats, budget_bytes: u64) -> TenantState {
    let text = control_file(control, &stats.name, "memory.stat");
    let stat = values(&text);
    let of = |name: &str| stat.get(name).copied().unwrap_or(0);
    // A protection may be of `max` pages.
    let bytes = |pages: u64| pages.saturating_mul(PAGE_BYTES);
    let is_root = stats.name.is_empty();
    let used_by_all = of("file") + of("anon") + of("slab");
    let generation = |row: &GenerationRow| ListState {
        name: row.seq.to_string(),
        age_ms: Some(row.age_ms),
        anon_bytes: bytes(row.anon_pages),
        file_bytes: bytes(row.file_pages),
    };
    let side = |side: &str| ListState {
        name: side.to_owned(),
        age_ms: None,
        anon_bytes: of(&format!("{side}_anon")),
        file_bytes: of(&format!("{side}_file")),
    };
    let lists = match stats.generations_in_use() {
        [] => ["inactive", "active"].map(side).into(),
        rows => rows.iter().map(generation).collect(),
    };
    TenantState {
        usage_bytes: if is_root { used_by_all } else { bytes(stats.usage_pages) },
        max_bytes: if is_root { Some(budget_bytes) } else { stats.max_pages.map(bytes) },
        high_bytes: stats.high_pages.map(bytes),
        low_bytes: bytes(stats.low_pages),
        min_bytes: bytes(stats.min_pages),
        swap_bytes: bytes(stats.swap_pages),
        file_bytes: of("file"),
        anon_bytes: of("anon"),
        dirty_bytes: of("file_dirty"),
        writeback_bytes: of("file_writeback"),
        hits: stats.hits,
        mapped_hits: stats.mapped_hits,
        misses: stats.misses,
        refaults: of("workingset_refault_file") + of("workingset_refault_anon"),
        reclaimed: of("pgsteal"),
        pressure: stats.pressure,
        lists,
        path: stats.name,
    }
}

/// A tenant's path, and its own hits, mapped hits and misses.
type Accesses = (String, [u64; 3]);

/// Adds accesses of each tenant to all tenants above it that are listed.
fn include_children(tenants: &mut [TenantState], own: Vec<Accesses>) {
    let place: BTreeMap<String, usize> =
        tenants.iter().enumerate().map(|(at, tenant)| (tenant.path.clone(), at)).collect();
    for (path, [hits, mapped_hits, misses]) in own {
        let mut path = path.as_str();
        while !path.is_empty() {
            path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            if let Some(&at) = place.get(path) {
                tenants[at].hits += hits;
                tenants[at].mapped_hits += mapped_hits;
                tenants[at].misses += misses;
            }
        }
    }
}

impl State {
    /// The state of a cache now, under the name of this program. Cost: a few microseconds per
    /// tenant. It does not stop the cache; counts may be of slightly different times.
    pub fn of(cache: &PageCache) -> State {
        let stats = cache.stats();
        let control = cache.control();
        let mut all: Vec<_> = cache.tenants().iter().map(Tenant::stats).collect();
        // Also of those that are left out.
        let accesses = |of: &TenantStats| (of.name.clone(), [of.hits, of.mapped_hits, of.misses]);
        let own = all.iter().map(accesses).collect();
        let mut left_out = 0;
        if all.len() > TENANTS_MAX + 1 {
            left_out = all.len() - TENANTS_MAX - 1;
            // The root comes first and stays.
            let mut others = all.split_off(1);
            others.sort_by_key(|stats| std::cmp::Reverse(stats.usage_pages));
            others.truncate(TENANTS_MAX);
            all.extend(others);
        }
        let mut tenants: Vec<TenantState> =
            all.into_iter().map(|of| tenant_state(&control, of, stats.budget_bytes)).collect();
        tenants.sort_by(|a, b| a.path.cmp(&b.path));
        include_children(&mut tenants, own);
        let now = clock_gettime(ClockId::Monotonic);
        State {
            name: program_name(),
            pid: std::process::id(),
            at_ms: now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000,
            preset: stats.preset.to_owned(),
            backend: stats.backend.to_owned(),
            budget_bytes: stats.budget_bytes,
            free_bytes: stats.free_pages * PAGE_BYTES,
            metadata_bytes: stats.metadata_bytes,
            pending_bytes: stats.pending_pages * PAGE_BYTES,
            requests: None,
            tenants,
            tenants_left_out: left_out,
        }
    }

    /// The state as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text can be written")
    }
}

fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        assert_eq!(
            values("anon 1\nfile 20\nbroken\nmax many\n"),
            BTreeMap::from([("anon", 1), ("file", 20)])
        );
    }

    #[test]
    fn tenants_include_those_below_them() {
        let of =
            |path: &str, hits, misses| TenantState { path: path.into(), hits, misses, ..Default::default() };
        let mut tenants = vec![of("", 1, 0), of("a", 10, 1), of("a/b", 100, 2), of("ab", 1000, 3)];
        let own = tenants.iter().map(|tenant| (tenant.path.clone(), [tenant.hits, 0, tenant.misses]));
        let own = own.collect();
        include_children(&mut tenants, own);
        let sums: Vec<_> = tenants.iter().map(|tenant| (tenant.hits, tenant.misses)).collect();
        assert_eq!(sums, [(1111, 6), (110, 3), (100, 2), (1000, 3)]);
        assert_eq!((tenants[1].hit_ratio(), of("", 0, 0).hit_ratio()), (Some(110.0 / 113.0), None));
    }

    /// A protection of `max` is more bytes than a number holds.
    #[test]
    fn a_protection_without_end_has_as_many_bytes_as_there_are() {
        let cache = PageCache::builder(1 << 20).tenant("db", 1 << 19).build().unwrap();
        cache.control().write("db/memory.low", "max").unwrap();
        let state = State::of(&cache);
        assert_eq!((state.tenants[1].low_bytes, state.tenants[1].min_bytes), (u64::MAX, 0));
    }

    #[test]
    fn a_state_of_another_version_can_be_read() {
        let state: State = serde_json::from_str(r#"{"name":"x","new":1,"tenants":[{"path":"a"}]}"#).unwrap();
        assert_eq!((state.name.as_str(), state.tenants[0].path.as_str(), state.pid), ("x", "a", 0));
    }
}
