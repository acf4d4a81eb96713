//! A page cache and its tenants as Python objects.

use crate::file::File;
use crate::held::{Held, State};
use crate::source::Function;
use crate::work::{exception as work_exception, usage};
use mglru_cache::{
    BackendKind, BlockSource, Error, Limits, OpenMode, PageCache, Tenant as CacheTenant, TenantStats,
};
use mglru_lab::cache_counts;
use mglru_lab::replay::grid::Choice;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// An open or a closed cache.
#[pyclass(frozen, module = "mglru._mglru")]
pub struct Cache(Arc<Held<State>>);

#[pymethods]
impl Cache {
    /// Starts a cache. `policy`: a preset, with switches and a policy as in replays.
    #[new]
    fn new(
        py: Python<'_>,
        budget_bytes: u64,
        policy: &str,
        backend: &str,
        source_deadline_ms: u64,
    ) -> PyResult<Cache> {
        let mechanisms = match policy.parse::<Choice>().map_err(|error| work_exception(py, &error))? {
            Choice::Engine(mechanisms) => mechanisms,
            Choice::Baseline(_) => {
                return Err(usage(
                    py,
                    format_args!("policy `{policy}`: only replays have it; a cache runs a preset"),
                ));
            }
        };
        let backend = match backend {
            "auto" => BackendKind::Auto,
            "io_uring" => BackendKind::Uring,
            "threads" => BackendKind::Threads,
            _ => {
                return Err(usage(
                    py,
                    format_args!("backend: unknown `{backend}`; expected auto, io_uring or threads"),
                ));
            }
        };
        let builder = PageCache::builder(budget_bytes)
            .mechanisms(mechanisms)
            .backend(backend)
            .source_deadline(Duration::from_millis(source_deadline_ms));
        let built = py.detach(|| builder.build());
        let cache = built.map_err(|error| crate::held::exception(py, &error))?;
        Ok(Cache(Arc::new(Held::new(State::new(cache)))))
    }

    /// Writes all dirty pages of all files.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.state().call(py, PageCache::sync)
    }

    /// Writes all dirty pages and stops the threads. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.state().check_process(py)?;
        let closed = py.detach(|| {
            let cache = self.state().cache.write().unwrap_or_else(PoisonError::into_inner).take();
            cache.map_or(Ok(()), PageCache::close)
        });
        closed.map_err(|error| crate::held::exception(py, &error))
    }

    fn is_closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.state().cache.read().unwrap_or_else(PoisonError::into_inner).is_none())
    }

    /// Sizes and counts of the whole cache.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.state().call(py, |cache| Ok(cache.stats()))?;
        let fields = PyDict::new(py);
        fields.set_item("backend", stats.backend)?;
        fields.set_item("why_not_uring", stats.why_not_uring)?;
        fields.set_item("registered_buffers", stats.registered_buffers)?;
        fields.set_item("huge_pages", stats.huge_pages)?;
        fields.set_item("preset", stats.preset)?;
        for (name, count) in [
            ("budget_bytes", stats.budget_bytes),
            ("frame_bytes", stats.frame_bytes),
            ("metadata_bytes", stats.metadata_bytes),
            ("free_pages", stats.free_pages),
            ("file_pages", stats.file_pages),
            ("tenants", stats.tenants as u64),
            ("io_threads_refused", stats.io_threads_refused as u64),
            ("source_calls", stats.source_calls),
            ("source_ranges", stats.source_ranges),
            ("source_bytes", stats.source_bytes),
            ("source_failures", stats.source_failures),
        ] {
            fields.set_item(name, count)?;
        }
        Ok(fields)
    }

    fn prometheus_text(&self, py: Python<'_>) -> PyResult<String> {
        self.state().call(py, |cache| Ok(cache.prometheus_text()))
    }

    fn tenant(&self, py: Python<'_>, path: &str) -> PyResult<Tenant> {
        let tenant = self.state().call(py, |cache| cache.tenant(path))?;
        Ok(Tenant::new(&self.0, tenant))
    }

    fn tenants(&self, py: Python<'_>) -> PyResult<Vec<Tenant>> {
        let tenants = self.state().call(py, |cache| Ok(cache.tenants()))?;
        Ok(tenants.into_iter().map(|tenant| Tenant::new(&self.0, tenant)).collect())
    }

    /// Adds a tenant with limits in bytes.
    fn add_tenant(
        &self,
        py: Python<'_>,
        path: &str,
        min: u64,
        low: u64,
        high: Option<u64>,
        max: Option<u64>,
    ) -> PyResult<Tenant> {
        let mut limits = Limits::default();
        (limits.min_bytes, limits.low_bytes, limits.high_bytes, limits.max_bytes) = (min, low, high, max);
        let tenant = self.state().call(py, |cache| cache.add_tenant(path, &limits))?;
        Ok(Tenant::new(&self.0, tenant))
    }

    fn remove_tenant(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        self.state().call(py, |cache| cache.remove_tenant(path))
    }
}

impl Cache {
    fn state(&self) -> &State {
        self.0.get()
    }
}

/// A tenant of a cache.
#[pyclass(frozen, module = "mglru._mglru")]
pub struct Tenant {
    // Dropped first: the cache's threads end with the last reference to it.
    tenant: Held<CacheTenant>,
    state: Arc<Held<State>>,
}

#[pymethods]
impl Tenant {
    fn name(&self) -> String {
        self.tenant.get().name().to_owned()
    }

    fn is_online(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |tenant| Ok(tenant.is_online()))
    }

    /// Sets one limit, in bytes; `None` removes it.
    fn set_limit(&self, py: Python<'_>, name: &str, bytes: Option<u64>) -> PyResult<()> {
        self.call(py, |tenant| match name {
            "min" => tenant.set_min(bytes.unwrap_or(0)),
            "low" => tenant.set_low(bytes.unwrap_or(0)),
            "high" => tenant.set_high(bytes),
            _ => tenant.set_max(bytes),
        })
    }

    /// Sizes, limits and counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.call(py, |tenant| Ok(tenant.stats()))?;
        let TenantStats { name, counters, generations, .. } = &stats;
        let fields = PyDict::new(py);
        fields.set_item("name", name)?;
        for (name, pages) in [("high_pages", stats.high_pages), ("max_pages", stats.max_pages)] {
            fields.set_item(name, pages)?;
        }
        for (name, count) in [
            ("min_pages", stats.min_pages),
            ("low_pages", stats.low_pages),
            ("usage_pages", stats.usage_pages),
            ("peak_pages", stats.peak_pages),
            ("hits", stats.hits),
            ("misses", stats.misses),
        ] {
            fields.set_item(name, count)?;
        }
        let of_counters = PyDict::new(py);
        // Sums that `memory.stat` also has.
        let sums = [("pgscan", cache_counts::scanned(&stats)), ("pgsteal", cache_counts::evictions(&stats))];
        for (name, count) in sums.into_iter().chain(counters.iter()) {
            of_counters.set_item(name, count)?;
        }
        fields.set_item("counters", of_counters)?;
        let mut rows = Vec::new();
        for row in generations {
            let columns = PyDict::new(py);
            columns.set_item("seq", row.seq)?;
            columns.set_item("age_ms", row.age_ms)?;
            columns.set_item("file_pages", row.file_pages)?;
            columns.set_item("anon_pages", row.anon_pages)?;
            rows.push(columns);
        }
        fields.set_item("generations", rows)?;
        Ok(fields)
    }

    /// Opens a file; `create`: also if it is missing.
    fn open(&self, py: Python<'_>, path: PathBuf, writable: bool, create: bool) -> PyResult<File> {
        let mode = match (writable, create) {
            (false, _) => OpenMode::ReadOnly,
            (true, false) => OpenMode::ReadWrite,
            (true, true) => OpenMode::Create,
        };
        let file = self.call(py, |tenant| tenant.open(&path, mode))?;
        File::new(&self.state, file, &path)
    }

    /// Opens a source: a function of ranges that returns bytes for each.
    fn open_source(
        &self,
        py: Python<'_>,
        read: Py<PyAny>,
        name: String,
        len: u64,
        version: Option<String>,
        block_bytes: u64,
    ) -> PyResult<File> {
        let path = PathBuf::from(&name);
        let source: Arc<dyn BlockSource> = Arc::new(Function { name, len, version, block_bytes, read });
        let file = self.call(py, move |tenant| tenant.open_source(source, OpenMode::ReadOnly))?;
        Ok(File::of_source(&self.state, file, path))
    }
}

impl Tenant {
    fn new(state: &Arc<Held<State>>, tenant: CacheTenant) -> Tenant {
        Tenant { tenant: Held::new(tenant), state: state.clone() }
    }

    fn call<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&CacheTenant) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let tenant = self.tenant.get();
        self.state.get().work(py, || work(tenant))
    }
}
