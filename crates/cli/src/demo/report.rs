//! What the demo tells, as text and as JSON.

use super::tenant::{Done, TENANTS, Tenant};
use crate::cache_report::{CacheReport, seconds};
use crate::table::{Table, count};
use crate::{layout, size};
use mglru_core::PAGE_BYTES;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The same operations through the system's cache.
pub struct SystemRun {
    /// What each tenant did.
    pub done: [Done; TENANTS],
    /// How long the final fdatasync took.
    pub sync: Duration,
    /// By how much all cached files of the machine grew meanwhile.
    pub cached_bytes_growth: u64,
    /// What memory the machine had left before.
    pub available_bytes: Option<u64>,
}

/// Everything.
pub struct Report {
    /// Size of the file.
    pub file_bytes: u64,
    /// Where it was.
    pub directory: PathBuf,
    /// What decided every random choice.
    pub seed: u64,
    /// How long it took to write the file.
    pub layout: Duration,
    /// The tenants.
    pub tenants: [Tenant; TENANTS],
    /// What they did through our cache.
    pub done: [Done; TENANTS],
    /// What our cache did.
    pub cached: CacheReport,
    /// What they did through the system's cache.
    pub system: SystemRun,
}

/// What is about to happen.
pub fn introduction(
    tenants: &[Tenant; TENANTS],
    file_bytes: u64,
    budget_bytes: u64,
    directory: &Path,
) -> String {
    let mut text = format!(
        "A file of {} ({} pages) in {}, and a cache that may use {} in all.\nThree tenants share it:\n\n",
        size::show(file_bytes),
        count(file_bytes / PAGE_BYTES),
        directory.display(),
        size::show(budget_bytes),
    );
    let mut table = Table::new(["tenant", "its part", "may cache", "and does this"]).with_words_last();
    for tenant in tenants {
        table.row([
            tenant.name.to_owned(),
            size::show(tenant.part.end - tenant.part.start),
            size::show(tenant.max_bytes),
            tenant.what.to_owned(),
        ]);
    }
    text.push_str(&table.text());
    text.push_str(
        "\nEvery page that is read is verified: that it is the page asked for, in its last version, and whole\n\
         (crc32c).\n",
    );
    if layout::is_in_memory(directory) {
        text.push_str(
            "\nThis directory is in memory (tmpfs), so that nothing here meets a disk: choose one on a disk with\n\
             --directory.\n",
        );
    }
    text.push('\n');
    text
}

/// What the cache did.
pub fn cache_section(tenants: &[Tenant; TENANTS], done: &[Done; TENANTS], cached: &CacheReport) -> String {
    let checked = done.iter().map(|done| done.pages_checked).sum();
    let scan = tenants[1].name;
    format!(
        "mglru: {}\n\n{}\n{}\n{} pages were read and verified: no difference. ({scan} hits because pages are read \
         ahead of it.)\n\n",
        cached.settings(),
        cached.table(),
        cached.generations("generations, oldest first"),
        count(checked),
    )
}

/// Nanoseconds as microseconds.
pub fn microseconds(ns: f64) -> String {
    format!("{:.1}", ns / 1000.0)
}

fn longest(done: &[Done; TENANTS]) -> f64 {
    done.iter().map(|done| done.elapsed.as_secs_f64()).fold(0.0, f64::max)
}

impl Report {
    /// Whether the system's run came to its end.
    fn finished(&self) -> bool {
        self.done.iter().zip(&self.system.done).all(|(ours, theirs)| theirs.operations() == ours.operations())
    }

    /// Both caches side by side.
    pub fn comparison(&self) -> String {
        let mut table = Table::new([
            "tenant",
            "operations",
            "mglru MiB/s",
            "mean µs",
            "p99 µs",
            "system MiB/s",
            "mean µs",
            "p99 µs",
        ]);
        for ((tenant, ours), theirs) in self.tenants.iter().zip(&self.done).zip(&self.system.done) {
            let figures = |done: &Done| {
                [
                    size::mib(done.bytes_per_second()),
                    microseconds(done.latencies.mean_ns()),
                    microseconds(done.latencies.percentile_ns(99.0) as f64),
                ]
            };
            let head = [tenant.name.to_owned(), count(ours.operations())];
            table.row(head.into_iter().chain(figures(ours)).chain(figures(theirs)));
        }
        format!("{}\n{}", table.text(), self.verdict())
    }

    /// What the comparison means, and what it does not.
    pub fn verdict(&self) -> String {
        let system = &self.system;
        let sync = |sync: Duration| format!("{} more to write what was dirty", seconds(sync));
        let budget = size::show(self.cached.stats.budget_bytes);
        let ours = format!(
            "mglru    {:5.1} s, and {}; it used {budget}.\n",
            longest(&self.done),
            sync(self.cached.sync.unwrap_or_default())
        );
        let share = || {
            let all: u64 = self.done.iter().map(Done::operations).sum();
            let made: u64 = system.done.iter().map(Done::operations).sum();
            made as f64 / all.max(1) as f64 * 100.0
        };
        let stopped = match self.finished() {
            true => String::new(),
            false => format!(" (stopped after {:.0} % of the operations)", share()),
        };
        let theirs = format!(
            "system   {:5.1} s{stopped}, and {};\n         cached files of this machine grew by {} meanwhile.\n",
            longest(&system.done),
            sync(system.sync),
            size::show(system.cached_bytes_growth)
        );
        let fits = system.available_bytes.is_some_and(|bytes| bytes > self.file_bytes);
        let why = match fits {
            true => format!(
                "The system's cache is not held to {budget}. This machine has {} left, in which the whole file\n\
                 fits: the system reads each page once and never has to choose what leaves. It says what the\n\
                 work costs with memory to spare, not which policy is better.\n",
                size::show(system.available_bytes.unwrap_or(0))
            ),
            false => format!(
                "The system's cache is not held to {budget}, but the file does not fit into what memory this\n\
                 machine has left: it had to choose what leaves, too.\n"
            ),
        };
        format!("{ours}{theirs}\n{why}")
    }

    /// Everything as one document.
    pub fn json(&self) -> Value {
        let side = |done: &[Done; TENANTS], sync: Duration| {
            json!({
                "seconds": longest(done),
                "sync_seconds": sync.as_secs_f64(),
                "tenants": self.tenants.iter().zip(done).map(|(tenant, done)| done_json(tenant, done))
                    .collect::<Vec<_>>(),
            })
        };
        let mut system = side(&self.system.done, self.system.sync);
        system["finished"] = self.finished().into();
        system["available_bytes"] = self.system.available_bytes.into();
        system["cached_bytes_growth"] = self.system.cached_bytes_growth.into();
        let tenants: Vec<Value> = self
            .tenants
            .iter()
            .map(|tenant| {
                json!({
                    "name": tenant.name,
                    "what": tenant.what,
                    "offset": tenant.part.start,
                    "bytes": tenant.part.end - tenant.part.start,
                    "max_bytes": tenant.max_bytes,
                })
            })
            .collect();
        json!({
            "demo": {
                "file_bytes": self.file_bytes,
                "directory": self.directory.display().to_string(),
                "in_memory": layout::is_in_memory(&self.directory),
                "seed": self.seed,
                "layout_seconds": self.layout.as_secs_f64(),
                "tenants": tenants,
                "pages_verified": self.done.iter().map(|done| done.pages_checked).sum::<u64>(),
                "pages_wrong": 0,
                "run": side(&self.done, self.cached.sync.unwrap_or_default()),
                "system": system,
            },
            "mglru": self.cached.json(),
        })
    }
}

fn done_json(tenant: &Tenant, done: &Done) -> Value {
    json!({
        "name": tenant.name,
        "operations": done.operations(),
        "reads": done.reads,
        "writes": done.writes,
        "bytes": done.bytes,
        "seconds": done.elapsed.as_secs_f64(),
        "bytes_per_second": done.bytes_per_second(),
        "latency_ns": {
            "mean": done.latencies.mean_ns(),
            "p50": done.latencies.percentile_ns(50.0),
            "p99": done.latencies.percentile_ns(99.0),
            "max": done.latencies.max_ns(),
        },
    })
}
