//! Reads of 4 KiB with memory for an eighth of the pages, by many threads at once.
//!
//! The file lies in memory (`/dev/shm`), so that no device limits the threads: a miss costs a copy
//! by `pread` and the work of the cache. All caches read the same pages, drawn from the same Zipf
//! distribution or uniformly, and have the same capacity. The library caches hold a
//! reference-counted page per entry, in an allocation of its own, and drop the coldest.

use crate::Failure;
use crate::file::{DataFile, PAGE_BYTES, uniform_pages, zipf_pages};
use crate::hits::{pread, read, with_buffer};
use crate::measure::{Effort, Figures, Way, compare};
use mglru_cache::{Advice, CachedFile, OpenMode, PageCache, Tenant};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGES: u64 = 1 << 18;
const CAPACITY: u64 = PAGES / 8;
const OFFSETS: usize = 4 << 20;
/// Tenants of which each thread takes the next one.
const TENANTS: usize = 16;

type Page = Arc<[u8; PAGE_BYTES as usize]>;

/// Measures reads by each of these numbers of threads. `notes` receives the share of our cache's
/// hits, or why nothing was measured.
///
/// # Errors
/// The file cannot be created, or a cache cannot be built.
pub fn measure(effort: Effort, threads: &[usize], notes: &mut Vec<String>) -> Result<Vec<Figures>, Failure> {
    let directory = Path::new("/dev/shm");
    if !directory.is_dir() {
        notes.push("reads under pressure were not measured: there is no /dev/shm".to_owned());
        return Ok(Vec::new());
    }
    let data = DataFile::lay_out_in(directory, PAGES)?;
    let system = data.as_file();
    let open = |tenant: Tenant| -> Result<CachedFile, Failure> {
        let file = tenant.open(data.path(), OpenMode::ReadOnly)?;
        file.advise(Advice::Random, 0..0)?;
        Ok(file)
    };
    let one = PageCache::builder(CAPACITY * PAGE_BYTES).build()?;
    let file = open(one.tenant("")?)?;
    // Each tenant may use all memory, as threads share it in the other caches, too.
    let many = (0..TENANTS)
        .fold(PageCache::builder(CAPACITY * PAGE_BYTES), |builder, tenant| {
            builder.tenant(&format!("t{tenant}"), CAPACITY * PAGE_BYTES)
        })
        .build()?;
    let own = (0..TENANTS).map(|tenant| open(many.tenant(&format!("t{tenant}"))?));
    let own = own.collect::<Result<Vec<CachedFile>, Failure>>()?;
    let quick = quick_cache::sync::Cache::<u64, Page>::new(CAPACITY as usize);
    let moka = moka::sync::Cache::<u64, Page>::new(CAPACITY);
    let foyer: foyer_memory::Cache<u64, Page> = foyer_memory::CacheBuilder::new(CAPACITY as usize).build();
    // A page from a library's cache, or from the file into it.
    let through = |offset: u64, cached: Option<Page>, insert: &dyn Fn(Page)| {
        let page = cached.unwrap_or_else(|| {
            let page = page_of(system, offset);
            insert(page.clone());
            page
        });
        with_buffer(|buffer| buffer.copy_from_slice(&page[..]))
    };
    let from_foyer = |offset: u64| foyer.get(&offset).map(|entry| entry.value().clone());
    let mut figures = Vec::new();
    for (names, offsets) in [(ZIPF, zipf_pages(PAGES, OFFSETS)), (UNIFORM, uniform_pages(PAGES, OFFSETS))] {
        let ways = [
            Way::new(names[0], |offset| read(&file, offset)),
            Way::new(names[1], |offset| read(&own[tenant_of_thread()], offset)),
            Way::new(names[2], |at| through(at, quick.get(&at), &|page| quick.insert(at, page))),
            Way::new(names[3], |at| through(at, moka.get(&at), &|page| moka.insert(at, page))),
            Way::new(names[4], |at| through(at, from_foyer(at), &|page| _ = foyer.insert(at, page))),
            Way::new(names[5], |offset| pread(system, offset, PAGE_BYTES as usize)),
        ];
        let before = counts(&one.tenant("")?);
        figures.extend(compare(&ways, threads, &offsets, effort));
        let (hits, misses) = counts(&one.tenant("")?);
        let (hits, misses) = (hits - before.0, misses - before.1);
        let share = hits as f64 * 100.0 / (hits + misses).max(1) as f64;
        notes.push(format!("{}: {share:.0} % of the reads were hits", names[0]));
    }
    Ok(figures)
}

const ZIPF: [&str; 6] = [
    "zipf_pressure",
    "zipf_pressure_own_tenants",
    "zipf_pressure_quick_cache",
    "zipf_pressure_moka",
    "zipf_pressure_foyer",
    "zipf_pread",
];
const UNIFORM: [&str; 6] = [
    "uniform_pressure",
    "uniform_pressure_own_tenants",
    "uniform_pressure_quick_cache",
    "uniform_pressure_moka",
    "uniform_pressure_foyer",
    "uniform_pread",
];

/// Hits and misses so far.
fn counts(tenant: &Tenant) -> (u64, u64) {
    let stats = tenant.stats();
    (stats.hits, stats.misses)
}

/// A page read from the file, in an allocation of its own.
fn page_of(file: &File, offset: u64) -> Page {
    let mut page = Arc::new([0; PAGE_BYTES as usize]);
    let bytes = Arc::get_mut(&mut page).expect("it is not shared yet");
    file.read_exact_at(bytes, offset).expect("a page of the file can be read");
    page
}

/// The tenant of the calling thread.
fn tenant_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static TENANT: usize = NEXT.fetch_add(1, Ordering::Relaxed) % TENANTS);
    TENANT.with(|&tenant| tenant)
}
