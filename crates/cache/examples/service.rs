//! A service for several tenants in one budget: a shop that must stay fast, a search that takes
//! what is free, and nightly reports that read everything once.
//!
//! `cargo run --release -p mglru-cache --example service`

use mglru_cache::{Error, Limits, OpenMode, PageCache, Tenant};
use std::fmt::Write;
use std::path::Path;

const PAGE: u64 = 4096;

/// Reads `reads` pages of a file at random. `working_set_pages` pages of it are used.
fn look_up(tenant: &Tenant, path: &Path, working_set_pages: u64, reads: u64) -> Result<(), Error> {
    let file = tenant.open(path, OpenMode::ReadOnly)?;
    let mut state = working_set_pages;
    let mut page = [0; PAGE as usize];
    for _ in 0..reads {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = (state >> 33) % working_set_pages;
        file.read_at(&mut page, number * PAGE)?;
        assert_eq!(page[..8], number.to_le_bytes(), "page {number}");
    }
    Ok(())
}

/// Reads a file from its beginning to its end.
fn report(tenant: &Tenant, path: &Path) -> Result<(), Error> {
    let file = tenant.open(path, OpenMode::ReadOnly)?;
    let mut buffer = vec![0; 64 << 10];
    let mut offset = 0;
    loop {
        match file.read_at(&mut buffer, offset)? {
            0 => return Ok(()),
            read => offset += read as u64,
        }
    }
}

/// Runs the three at once. Returns what `main` prints.
pub fn run(directory: &Path) -> Result<String, Error> {
    let path = directory.join("data");
    let pages = 8000;
    let numbered = |number: u64| {
        let mut page = vec![0; PAGE as usize];
        page[..8].copy_from_slice(&number.to_le_bytes());
        page
    };
    std::fs::write(&path, (0..pages).flat_map(numbered).collect::<Vec<u8>>()).expect("the disk has room");
    let copy = |name: &str| {
        let to = directory.join(name);
        std::fs::copy(&path, &to).expect("the disk has room");
        to
    };

    // 16 MiB for all. The shop keeps 6 MiB whatever the others do; reports never take over 2 MiB.
    let cache = PageCache::builder(16 << 20)
        .tenant_with("shop", Limits::default().with_low(6 << 20))
        .tenant_with("search", Limits::default())
        .tenant_with("reports", Limits::max(2 << 20))
        .build()?;
    let tenant = |name| cache.tenant(name);
    let (shop, search, reports) = (tenant("shop")?, tenant("search")?, tenant("reports")?);
    let (of_shop, of_search) = (copy("shop"), copy("search"));
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(|| look_up(&shop, &of_shop, 1200, 60_000)),
            scope.spawn(|| look_up(&search, &of_search, pages, 30_000)),
            scope.spawn(|| report(&reports, &path)),
        ];
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;

    let mut text = String::from("tenant      memory    hits  misses  hit ratio\n");
    for tenant in [&shop, &search, &reports] {
        let stats = tenant.stats();
        let (hits, all) = (stats.hits, stats.hits + stats.misses);
        writeln!(
            text,
            "{:8} {:5} KiB {hits:7} {:7}  {:8.1} %",
            stats.name,
            stats.peak_pages * 4,
            stats.misses,
            100.0 * hits as f64 / all as f64
        )
        .expect("a string takes everything");
    }
    cache.close()?;
    Ok(text)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    print!("{}", run(directory.path())?);
    Ok(())
}
