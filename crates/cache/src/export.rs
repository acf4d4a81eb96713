//! Statistics for monitoring: as Prometheus' text, and through the `metrics` facade.

use crate::cache::PageCache;
use crate::stat::TenantStats;
use mglru_core::Counter;
use mglru_core::lru::GenerationRow;
use std::fmt::Write;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It only grows.
    Counter,
    /// A size of now.
    Gauge,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// The whole cache's metrics: name, kind, description and value.
fn of_cache(cache: &PageCache) -> Vec<(&'static str, Kind, &'static str, u64)> {
    let stats = cache.stats();
    let mut metrics = vec![
        ("mglru_budget_bytes", Kind::Gauge, "The memory budget.", stats.budget_bytes),
        ("mglru_frame_bytes", Kind::Gauge, "Memory of all frames, used and free.", stats.frame_bytes),
        ("mglru_metadata_bytes", Kind::Gauge, "Memory of metadata.", stats.metadata_bytes),
        ("mglru_swap_bytes", Kind::Gauge, "Memory of compressed swap.", stats.swap_bytes),
        ("mglru_free_pages", Kind::Gauge, "Frames that hold no page.", stats.free_pages),
        ("mglru_file_pages", Kind::Gauge, "File pages on reclaim's lists.", stats.file_pages),
        ("mglru_anon_pages", Kind::Gauge, "Anonymous pages on reclaim's lists.", stats.anon_pages),
        ("mglru_pending_pages", Kind::Gauge, "Dirty pages and pages under writeback.", stats.pending_pages),
        ("mglru_tenants", Kind::Gauge, "Tenants, including the root.", stats.tenants as u64),
        ("mglru_io_uring", Kind::Gauge, "1: io_uring transfers pages.", (stats.backend == "io_uring").into()),
        (
            "mglru_registered_buffers",
            Kind::Gauge,
            "1: frames are registered with the kernel.",
            stats.registered_buffers.into(),
        ),
        (
            "mglru_io_threads_refused",
            Kind::Gauge,
            "Threads for transfers that the system did not grant.",
            stats.io_threads_refused as u64,
        ),
        ("mglru_source_ranges_total", Kind::Counter, "Ranges asked of sources.", stats.source_ranges),
        ("mglru_source_calls_total", Kind::Counter, "Calls of sources.", stats.source_calls),
        ("mglru_source_bytes_total", Kind::Counter, "Bytes that sources returned.", stats.source_bytes),
        ("mglru_source_failures_total", Kind::Counter, "Failed transfers of sources.", stats.source_failures),
        (
            "mglru_events_dropped_total",
            Kind::Counter,
            "Events that found their queue full.",
            stats.events_dropped,
        ),
        ("mglru_worker_panics_total", Kind::Counter, "Panics of the cache's threads.", stats.worker_panics),
    ];
    if let Some(tier) = stats.disk_tier {
        metrics.extend([
            ("mglru_disk_tier_file_bytes", Kind::Gauge, "The disk tier's file.", tier.file_bytes),
            ("mglru_disk_tier_slots", Kind::Gauge, "Slots of the disk tier.", tier.slots),
            ("mglru_disk_tier_used_slots", Kind::Gauge, "Slots that hold something.", tier.used_slots),
            ("mglru_disk_tier_memory_bytes", Kind::Gauge, "Memory of the disk tier.", tier.memory_bytes),
            ("mglru_disk_tier_hits_total", Kind::Counter, "Missing pages found there.", tier.hits),
            ("mglru_disk_tier_misses_total", Kind::Counter, "Missing pages not found there.", tier.misses),
            ("mglru_disk_tier_stored_total", Kind::Counter, "Pages written to slots.", tier.stored),
            ("mglru_disk_tier_skipped_total", Kind::Counter, "Pages not stored.", tier.skipped),
            ("mglru_disk_tier_damaged_total", Kind::Counter, "Pages with a wrong checksum.", tier.damaged),
            ("mglru_disk_tier_failures_total", Kind::Counter, "Failed transfers.", tier.failures),
        ]);
    }
    metrics
}

/// A tenant's metrics besides its counters.
fn of_tenant(stats: &TenantStats) -> [(&'static str, Kind, &'static str, Option<u64>); 11] {
    let stalled_us = stats.pressure.total_us;
    [
        ("mglru_tenant_hits_total", Kind::Counter, "Page accesses that hit.", Some(stats.hits)),
        ("mglru_tenant_misses_total", Kind::Counter, "Page accesses that missed.", Some(stats.misses)),
        (
            "mglru_tenant_mapped_hits_total",
            Kind::Counter,
            "Page accesses through maps that hit, at least.",
            Some(stats.mapped_hits),
        ),
        ("mglru_tenant_usage_pages", Kind::Gauge, "Pages charged.", Some(stats.usage_pages)),
        ("mglru_tenant_peak_pages", Kind::Gauge, "Maximum of pages charged.", Some(stats.peak_pages)),
        ("mglru_tenant_swap_pages", Kind::Gauge, "Pages in swap.", Some(stats.swap_pages)),
        ("mglru_tenant_min_pages", Kind::Gauge, "memory.min.", Some(stats.min_pages)),
        ("mglru_tenant_low_pages", Kind::Gauge, "memory.low.", Some(stats.low_pages)),
        ("mglru_tenant_high_pages", Kind::Gauge, "memory.high, if set.", stats.high_pages),
        ("mglru_tenant_max_pages", Kind::Gauge, "memory.max, if set.", stats.max_pages),
        (
            "mglru_tenant_pressure_us_total",
            Kind::Counter,
            "Time that tasks waited for memory.",
            Some(stalled_us),
        ),
    ]
}

/// A tenant's averages of the share of time that tasks waited for memory, in percent.
fn averages(stats: &TenantStats) -> [(&'static str, f64); 3] {
    let pressure = &stats.pressure;
    [
        ("mglru_tenant_pressure_avg10_percent", pressure.avg10),
        ("mglru_tenant_pressure_avg60_percent", pressure.avg60),
        ("mglru_tenant_pressure_avg300_percent", pressure.avg300),
    ]
}

/// A number of a generation.
type OfGeneration = fn(&GenerationRow) -> u64;

/// Metrics of a generation: name, description and value. The label counts from the oldest, because
/// the generations' own numbers only grow, and each would be another series.
const GENERATION_METRICS: [(&str, &str, OfGeneration); 3] = [
    ("mglru_tenant_generation_age_ms", "Age of a generation; 0 is the oldest.", |row| row.age_ms),
    ("mglru_tenant_generation_anon_pages", "Anonymous pages of a generation.", |row| row.anon_pages),
    ("mglru_tenant_generation_file_pages", "File pages of a generation.", |row| row.file_pages),
];

/// The name and kind of a counter's metric.
fn of_counter(counter: Counter) -> (String, Kind) {
    match Counter::SIZES.contains(&counter) {
        true => (format!("mglru_tenant_{}", counter.name()), Kind::Gauge),
        false => (format!("mglru_tenant_{}_total", counter.name()), Kind::Counter),
    }
}

/// A label's value, escaped as Prometheus asks.
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl PageCache {
    /// All statistics in Prometheus' text format, for your HTTP server's `/metrics`. Names begin
    /// with `mglru_`. Those of tenants have the label `tenant`, the tenant's path, which is empty
    /// for the root. Counters have the kernel's names and `_total`.
    ///
    /// ```
    /// # let cache = mglru_cache::PageCache::builder(1 << 20).tenant("a", 1 << 19).build()?;
    /// let text = cache.prometheus_text();
    /// assert!(text.contains("mglru_tenant_max_pages{tenant=\"a\"} 128\n"));
    /// assert!(text.contains("mglru_budget_bytes 1048576\n"));
    /// # Ok::<(), mglru_cache::Error>(())
    /// ```
    pub fn prometheus_text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: std::fmt::Arguments<'_>| {
            text.write_fmt(line).expect("a string takes everything");
            text.push('\n');
        };
        for (name, kind, what, value) in of_cache(self) {
            line(format_args!("# HELP {name} {what}\n# TYPE {name} {}\n{name} {value}", kind.name()));
        }
        let tenants: Vec<_> = self.tenants().iter().map(crate::Tenant::stats).collect();
        let labels: Vec<_> = tenants.iter().map(|tenant| escaped(&tenant.name)).collect();
        let values: Vec<_> = tenants.iter().map(of_tenant).collect();
        // All values of a metric follow one another.
        for (at, (name, kind, what, _)) in values.first().into_iter().flatten().enumerate() {
            line(format_args!("# HELP {name} {what}\n# TYPE {name} {}", kind.name()));
            for (label, values) in labels.iter().zip(&values) {
                if let Some(value) = values[at].3 {
                    line(format_args!("{name}{{tenant=\"{label}\"}} {value}"));
                }
            }
        }
        let shares: Vec<_> = tenants.iter().map(averages).collect();
        for (at, (name, _)) in shares.first().into_iter().flatten().enumerate() {
            line(format_args!(
                "# HELP {name} Share of time that tasks waited for memory.\n# TYPE {name} gauge"
            ));
            for (label, shares) in labels.iter().zip(&shares) {
                line(format_args!("{name}{{tenant=\"{label}\"}} {}", shares[at].1));
            }
        }
        for (name, what, value) in GENERATION_METRICS {
            line(format_args!("# HELP {name} {what}\n# TYPE {name} gauge"));
            for (label, tenant) in labels.iter().zip(&tenants) {
                for (at, row) in tenant.generations_in_use().iter().enumerate() {
                    line(format_args!("{name}{{tenant=\"{label}\",generation=\"{at}\"}} {}", value(row)));
                }
            }
        }
        for &counter in Counter::ALL {
            let (name, kind) = of_counter(counter);
            line(format_args!("# TYPE {name} {}", kind.name()));
            for (label, tenant) in labels.iter().zip(&tenants) {
                line(format_args!("{name}{{tenant=\"{label}\"}} {}", tenant.counters[counter]));
            }
        }
        text
    }

    /// Sets all statistics through the `metrics` facade, under the names of
    /// [`Self::prometheus_text`]. Call it at the interval of your exporter; nothing is counted in
    /// between. Needs the crate's feature `metrics`.
    #[cfg(feature = "metrics")]
    pub fn record_metrics(&self) {
        let set = |name: String, kind, labels: Vec<metrics::Label>, value: u64| match kind {
            Kind::Counter => metrics::counter!(name, labels).absolute(value),
            Kind::Gauge => metrics::gauge!(name, labels).set(value as f64),
        };
        for (name, kind, _, value) in of_cache(self) {
            set(name.to_owned(), kind, Vec::new(), value);
        }
        for tenant in self.tenants() {
            let stats = tenant.stats();
            let labels = || vec![metrics::Label::new("tenant", stats.name.clone())];
            for (name, kind, _, value) in of_tenant(&stats) {
                value.into_iter().for_each(|value| set(name.to_owned(), kind, labels(), value));
            }
            for (name, share) in averages(&stats) {
                metrics::gauge!(name, labels()).set(share);
            }
            for (name, _, value) in GENERATION_METRICS {
                for (at, row) in stats.generations_in_use().iter().enumerate() {
                    let mut labels = labels();
                    labels.push(metrics::Label::new("generation", at.to_string()));
                    set(name.to_owned(), Kind::Gauge, labels, value(row));
                }
            }
            for &counter in Counter::ALL {
                let (name, kind) = of_counter(counter);
                set(name, kind, labels(), stats.counters[counter]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Counter, Mechanisms, OpenMode, PageCache, Preset};
    use std::collections::BTreeSet;

    /// The sums of all generations are the pages on the lists.
    #[test]
    fn the_text_has_the_generations_of_the_multi_gen_policy() {
        let directory = tempfile::tempdir().unwrap();
        let mechanisms = Mechanisms::compose(Preset::Linux71, &[], &[]).unwrap();
        let cache = PageCache::builder(1 << 20).mechanisms(mechanisms).build().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, vec![1; 4 << 20]).unwrap();
        let file = cache.open(&path, OpenMode::ReadOnly).unwrap();
        for page in 0..1024 {
            file.read_at(&mut [0; 4096], page * 4096).unwrap();
        }
        let text = cache.prometheus_text();
        let rows = cache.tenant("").unwrap().stats().generations;
        let sum = |name: &str| -> u64 {
            let start = format!("mglru_tenant_generation_{name}{{tenant=\"\",generation=\"");
            let lines = text.lines().filter_map(|line| line.strip_prefix(&start)?.split_once("\"} "));
            let lines: Vec<_> = lines.collect();
            let numbers: Vec<_> = lines.iter().map(|(at, _)| at.parse::<usize>().unwrap()).collect();
            assert_eq!(numbers, (0..rows.len()).collect::<Vec<_>>(), "{text}");
            lines.iter().map(|(_, value)| value.parse::<u64>().unwrap()).sum()
        };
        let pages = rows.iter().map(|row| row.file_pages).sum::<u64>();
        assert!(sum("file_pages") == pages && pages > 0 && sum("anon_pages") == 0, "{text}");
        assert!(sum("age_ms") > 0, "{text}");
    }

    /// Each line is a comment or a sample; each sample's metric has a type, once, and before it.
    #[test]
    fn the_text_is_prometheus_format_and_says_what_the_statistics_say() {
        let directory = tempfile::tempdir().unwrap();
        let cache =
            PageCache::builder(1 << 20).tenant("a", 1 << 19).tenant("a/\"b\\", 1 << 18).build().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, vec![1; 40_960]).unwrap();
        let file = cache.tenant("a").unwrap().open(&path, OpenMode::ReadOnly).unwrap();
        file.read_at(&mut [0; 40_960], 0).unwrap();
        file.read_at(&mut [0; 40_960], 0).unwrap();
        let text = cache.prometheus_text();
        let mut types = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(types.insert(name) && ["counter", "gauge"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            } else if !line.starts_with("# HELP ") {
                let (metric, value) = line.rsplit_once(' ').unwrap();
                assert!(types.contains(metric.split('{').next().unwrap()), "{line}");
                value.parse::<f64>().unwrap();
            }
        }
        assert_eq!(types.len(), 18 + 11 + 3 + 3 + Counter::ALL.len());
        let is_uring = u8::from(cache.stats().backend == "io_uring");
        assert!(text.contains(&format!("\nmglru_io_uring {is_uring}\n")), "{text}");
        assert!(text.contains("{tenant=\"a/\\\"b\\\\\"} "), "{text}");
        let stats = cache.tenant("a").unwrap().stats();
        for line in [
            format!("mglru_tenant_hits_total{{tenant=\"a\"}} {}\n", stats.hits),
            format!("mglru_tenant_file{{tenant=\"a\"}} {}\n", stats.counters[Counter::File]),
            format!("mglru_tenant_pressure_us_total{{tenant=\"a\"}} {}\n", stats.pressure.total_us),
            format!("mglru_tenant_pressure_avg10_percent{{tenant=\"a\"}} {}\n", stats.pressure.avg10),
            "mglru_tenant_max_pages{tenant=\"a\"} 128\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line}");
        }
        // The default policy has lists, no generations.
        assert!(!text.contains("generation_file_pages{"), "{text}");
        assert!(stats.hits >= 10 && !text.contains("mglru_tenant_max_pages{tenant=\"\"}"));
    }

    /// Keeps what is recorded, by name and labels.
    #[cfg(feature = "metrics")]
    #[derive(Default)]
    struct Recorded(std::sync::Mutex<std::collections::BTreeMap<String, std::sync::Arc<Value>>>);

    /// A counter's or a gauge's value.
    #[cfg(feature = "metrics")]
    #[derive(Default)]
    struct Value(std::sync::Mutex<f64>);

    #[cfg(feature = "metrics")]
    impl metrics::CounterFn for Value {
        fn increment(&self, by: u64) {
            panic!("counters are set, not increased: {by}");
        }

        fn absolute(&self, value: u64) {
            *self.0.lock().unwrap() = value as f64;
        }
    }

    #[cfg(feature = "metrics")]
    impl metrics::GaugeFn for Value {
        fn increment(&self, by: f64) {
            panic!("gauges are set, not increased: {by}");
        }

        fn decrement(&self, by: f64) {
            panic!("gauges are set, not decreased: {by}");
        }

        fn set(&self, value: f64) {
            *self.0.lock().unwrap() = value;
        }
    }

    #[cfg(feature = "metrics")]
    impl Recorded {
        /// The value of a metric, under the name that it has in the text.
        fn of(&self, key: &metrics::Key) -> std::sync::Arc<Value> {
            let labels = key.labels().map(|label| format!("{}=\"{}\"", label.key(), label.value()));
            let labels = labels.collect::<Vec<_>>().join(",");
            let name =
                if labels.is_empty() { key.name().into() } else { format!("{}{{{labels}}}", key.name()) };
            self.0.lock().unwrap().entry(name).or_default().clone()
        }
    }

    #[cfg(feature = "metrics")]
    impl metrics::Recorder for Recorded {
        fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

        fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

        fn describe_histogram(
            &self,
            _: metrics::KeyName,
            _: Option<metrics::Unit>,
            _: metrics::SharedString,
        ) {
        }

        fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
            metrics::Counter::from_arc(self.of(key))
        }

        fn register_gauge(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
            metrics::Gauge::from_arc(self.of(key))
        }

        fn register_histogram(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
            panic!("{key} is no histogram");
        }
    }

    /// The facade gets each sample of the text, and no other.
    #[cfg(feature = "metrics")]
    #[test]
    fn the_metrics_facade_gets_what_the_text_says() {
        let directory = tempfile::tempdir().unwrap();
        let mechanisms = Mechanisms::compose(Preset::Linux71, &[], &[]).unwrap();
        let builder = PageCache::builder(1 << 20).mechanisms(mechanisms);
        let cache = builder.tenant("a", 1 << 19).tenant("a/b", 1 << 18).build().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, vec![1; 40_960]).unwrap();
        let file = cache.tenant("a").unwrap().open(&path, OpenMode::ReadOnly).unwrap();
        file.read_at(&mut [0; 40_960], 0).unwrap();
        file.read_at(&mut [0; 40_960], 0).unwrap();
        let recorded = Recorded::default();
        metrics::with_local_recorder(&recorded, || cache.record_metrics());
        let text = cache.prometheus_text();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.map(|line| line.rsplit_once(' ').unwrap());
        // Time passes between both.
        let is_still = |name: &str| !name.contains("pressure") && !name.contains("age_ms");
        let said: std::collections::BTreeMap<String, f64> = samples
            .filter(|(name, _)| is_still(name))
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
            .collect();
        let recorded = recorded.0.into_inner().unwrap();
        let got: std::collections::BTreeMap<String, f64> = recorded
            .into_iter()
            .filter(|(name, _)| is_still(name))
            .map(|(name, value)| (name, *value.0.lock().unwrap()))
            .collect();
        assert_eq!(got, said);
        assert!(got["mglru_tenant_hits_total{tenant=\"a\"}"] >= 10.0 && got["mglru_budget_bytes"] > 0.0);
    }
}
