//! Runs of the experiments with the real cache, on real files with verified contents.
//!
//! The size is a quarter of the simulator's, and a run lasts seconds. Runs do not overlap, so that
//! two processors and one disk suffice. All loads swap to compressed memory, which comes on top of
//! the limit.

use super::workingset::{CLIENTS, Part, Run, SWEEP_THREADS, Task};
use crate::layout::{self, Content};
use crate::load::{RealLoad, Setup, Verified};
use crate::parallel;
use crate::{Error, Watch};
use mglru_cache::{CachedFile, OpenMode, PageCache, Swap, Tenant};
use mglru_core::PAGE_BYTES;
use mglru_workload::Random;
use mglru_workload::verify;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const LIMIT_PAGES: u64 = 4096;
/// Compressed memory beside the limit: anonymous memory of 1.5 times the limit that compresses to
/// half.
const SWAP_BYTES: u64 = LIMIT_PAGES * PAGE_BYTES;
/// Memory of the cache above the limit, so that only the limit matters.
const ROOM_BYTES: u64 = 8 << 20;
const TPCC_TIME: Duration = Duration::from_secs(3);
const SHORT_TIME: Duration = Duration::from_secs(2);
const CONTROL_PAGES: u64 = 2 * LIMIT_PAGES;

/// Description of the scale.
pub const SCALE: &str = "  With the real cache: limit 16 MiB, A 3 s on one warehouse, its control and B 2 s each; \
                         every page read is verified, and all pages at the end.";

/// A unit of work of a client, called until the time is over.
type Work<'a> = &'a (dyn Fn(u32) -> Result<u64, Error> + Sync);

/// Runs a part of an experiment, with its files in a directory of their own below `directory`.
pub fn run(task: &Task, directory: &Path, watch: &dyn Watch) -> Result<Run, Error> {
    let place = layout::temporary(directory)?;
    let cache = PageCache::builder(LIMIT_PAGES * PAGE_BYTES + SWAP_BYTES + ROOM_BYTES)
        .tenant("load", LIMIT_PAGES * PAGE_BYTES)
        .swap(Swap::compressed(SWAP_BYTES))
        .mechanisms(task.mechanisms)
        .build()?;
    let tenant = cache.tenant("load")?;
    let (clients, mapped, time) = match task.part {
        Part::Tpcc { mapped_percent } => (CLIENTS, mapped_percent > 0, TPCC_TIME),
        Part::Control => (2, false, SHORT_TIME),
        Part::Sweep => (SWEEP_THREADS, false, SHORT_TIME),
    };
    let time = time / task.shorter;
    let Some(load) = task.part.load(LIMIT_PAGES) else {
        return control(task.seed, &tenant, place.path(), time);
    };
    let (seed, directory) = (task.seed, place.path());
    let setup = Setup { load, clients, seed, tenant: &tenant, directory, name: "db", mapped };
    let load = RealLoad::new(&setup, watch)?;
    let run = during(time, clients, &tenant, &|client| {
        let mut touches = 0;
        load.step(client as usize, &mut |_| touches += 1)?;
        Ok(touches)
    })?;
    let Verified { pages } = load.verify(false)?;
    cache.sync()?;
    let on_device = load.verify(true)?.pages;
    drop(load);
    cache.close()?;
    Ok(Run { verified_pages: pages + on_device, ..run })
}

/// The control: reads random pages.
fn control(seed: u64, tenant: &Tenant, place: &Path, time: Duration) -> Result<Run, Error> {
    let path = place.join("control");
    let fail = |error| Error::work(format_args!("cannot create {}: {error}", path.display()));
    let file = File::create(&path).map_err(fail)?;
    let content = Content::Verify { block_bytes: PAGE_BYTES as u32, seed };
    layout::fill(&file, 0..CONTROL_PAGES * PAGE_BYTES, content, &crate::Unwatched).map_err(fail)?;
    layout::drop_from_system_cache(&file).map_err(fail)?;
    let file = tenant.open(&path, OpenMode::ReadOnly)?;
    let randoms = [0, 1].map(|reader| Mutex::new(Random::stream(seed, reader)));
    let run = during(time, 2, tenant, &|reader| {
        let page = randoms[reader as usize].lock().expect("no panic").below(CONTROL_PAGES);
        read_verified(&file, page).map(|()| 1)
    })?;
    (0..CONTROL_PAGES).try_for_each(|page| read_verified(&file, page))?;
    drop(file);
    Ok(Run { verified_pages: CONTROL_PAGES, ..run })
}

fn read_verified(file: &CachedFile, page: u64) -> Result<(), Error> {
    let mut bytes = [0; PAGE_BYTES as usize];
    file.read_at(&mut bytes, page * PAGE_BYTES)?;
    verify::check_generation(&bytes, page * PAGE_BYTES, 1).map(drop).map_err(Error::work)
}

/// Runs clients concurrently until the time is over, and returns the tenant's counts of that time.
fn during(time: Duration, clients: u32, tenant: &Tenant, work: Work<'_>) -> Result<Run, Error> {
    let (accesses, transactions, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    let client = |number| {
        let mut result = Ok(());
        while result.is_ok() && !stop.load(Relaxed) && began.elapsed() < time {
            result = work(number).map(|touches| {
                accesses.fetch_add(touches, Relaxed);
                transactions.fetch_add(1, Relaxed);
            });
        }
        if result.is_err() {
            stop.store(true, Relaxed);
        }
        result
    };
    parallel::each(0..clients, client)?.into_iter().collect::<Result<(), Error>>()?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Run {
        counters: tenant.stats().counters.iter().collect(),
        accesses: accesses.into_inner(),
        transactions: transactions.into_inner(),
        seconds,
        ..Run::default()
    })
}
