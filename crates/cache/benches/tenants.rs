//! Costs of tenants: creating and removing many, and hits and misses at depth one and six.
//!
//! `cargo bench -p mglru-cache --bench tenants`. Files are in memory, so that a miss measures the
//! cache only.

use mglru_cache::backend::MemoryFiles;
use mglru_cache::{Advice, BackendKind, CachedFile, Limits, OpenMode, PageCache};
use mglru_core::{Core, MemcgId, Options, Silent, Time};
use std::time::Instant;

const PAGE: u64 = 4096;
const FILE_PAGES: u64 = 16 << 10;

/// Nanoseconds per operation.
fn per(count: u64, work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_nanos() as f64 / count as f64
}

fn churn(count: u64) {
    let core = Core::new(Options::new(1024), Time::ZERO);
    let mut memcgs: Vec<MemcgId> = Vec::new();
    let make = |memcgs: &mut Vec<MemcgId>, round| {
        memcgs.clear();
        for number in 0..count {
            memcgs.push(core.add_memcg(&format!("r{round}t{number}"), 64, Time::ZERO).unwrap().id());
        }
    };
    let remove = |memcgs: &[MemcgId]| {
        for &memcg in memcgs {
            core.remove_memcg(&Silent, memcg).unwrap();
            core.drop_handle(memcg);
        }
    };
    let first = per(count, || make(&mut memcgs, 0));
    let removed = per(count, || remove(&memcgs));
    let again = per(count, || make(&mut memcgs, 1));
    let removed_again = per(count, || remove(&memcgs));
    println!(
        "core,  {count:>7} memcgs: made {first:>6.0} ns each, removed {removed:>6.0}; again {again:>6.0}, {removed_again:>6.0}"
    );
    drop(core);
    let files = MemoryFiles::new(1);
    let cache = PageCache::builder(1 << 30).backend(BackendKind::Memory(files)).build().unwrap();
    let made = per(count, || {
        (0..count)
            .for_each(|number| drop(cache.add_tenant(&format!("t{number}"), &Limits::default()).unwrap()));
    });
    let found = per(count, || {
        (0..count).for_each(|number| drop(cache.tenant(&format!("t{number}")).unwrap()));
    });
    let read_stats = per(1000, || (0..1000).for_each(|_| drop(std::hint::black_box(cache.stats()))));
    let removed =
        per(count, || (0..count).for_each(|number| cache.remove_tenant(&format!("t{number}")).unwrap()));
    println!(
        "cache, {count:>7} tenants: made {made:>6.0} ns each, found {found:>6.0}, removed {removed:>6.0}; stats of the whole {read_stats:>6.0} ns"
    );
}

/// A file of a tenant at this depth; the lowest tenant is limited to `max` pages.
fn file_at_depth(depth: usize, max: u64) -> (PageCache, CachedFile) {
    let files = MemoryFiles::new(1);
    files.set_contents("f", &vec![7; (FILE_PAGES * PAGE) as usize]);
    let cache = PageCache::builder(256 << 20).backend(BackendKind::Memory(files)).build().unwrap();
    let mut path = String::new();
    for level in 1..=depth {
        path += if level == 1 { "a" } else { "/a" };
        let limits = if level == depth { Limits::max(max * PAGE) } else { Limits::max(200 << 20) };
        cache.add_tenant(&path, &limits).unwrap();
    }
    let file = cache.tenant(&path).unwrap().open("f", OpenMode::ReadOnly).unwrap();
    file.advise(Advice::Random, 0..0).unwrap();
    (cache, file)
}

fn read_pages(file: &CachedFile, pages: impl Iterator<Item = u64>) {
    let mut word = [0; 64];
    for page in pages {
        assert_eq!(file.read_at(&mut word, page * PAGE).unwrap(), 64);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    for count in [1000, 10_000, 100_000] {
        churn(count);
    }
    let depths = [1, 6];
    let small = depths.map(|depth| file_at_depth(depth, 1024));
    let large = depths.map(|depth| file_at_depth(depth, 2 * FILE_PAGES));
    large.iter().for_each(|(_, file)| read_pages(file, 0..FILE_PAGES));
    let mut times = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    // Alternating, so that other load affects both.
    for round in 0..15 {
        for at in 0..depths.len() {
            let stride = |step: u64| step * 7919 % FILE_PAGES;
            times[0][at].push(per(FILE_PAGES, || read_pages(&large[at].1, (0..FILE_PAGES).map(stride))));
            let first = round * FILE_PAGES;
            let missed =
                per(FILE_PAGES, || read_pages(&small[at].1, (first..first + FILE_PAGES).map(stride)));
            times[1][at].push(missed);
        }
    }
    for (what, times) in ["hit", "miss"].iter().zip(times) {
        let [one, six] = times.map(median);
        println!(
            "{what}: {one:.1} ns at depth 1, {six:.1} ns at depth 6 ({:+.1} %)",
            (six / one - 1.0) * 100.0
        );
    }
    for (cache, _) in &small {
        cache.validate().unwrap();
    }
}
