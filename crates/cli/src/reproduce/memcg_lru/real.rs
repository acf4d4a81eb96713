//! The memcg LRU in the cache, on real memory: the simulator's experiment, scaled to the machine.
//!
//! Half of a tenant's memory is a file that it maps, the other half is anonymous; swap is compressed memory. Two threads load
//! from the pages of all tenants, and verify what they find; then the root's `memory.reclaim` is written to. Requests are sliced,
//! as everything that is written to control files is.

use super::TOUCHED;
use crate::equal_memcgs::Rounds;
use crate::error::Failure;
use crate::layout::{self, Content};
use indicatif::ProgressBar;
use mglru_cache::{AnonRegion, Limits, Map, OpenMode, PageCache, Swap, Tenant};
use mglru_core::{Mechanisms, PAGE_BYTES};
use mglru_workload::{Random, verify};
use std::fs::File;
use std::path::Path;

/// As many as published.
const TENANTS: usize = 128;
/// Of files, and as many anonymous ones: 512 MiB in all.
const PAGES_EACH: u64 = 512;
/// 256 KiB of 512 MiB: half a thousandth, where the publication has one.
const REQUEST_PAGES: u64 = 64;
const REQUESTS: usize = 120;
const WARM_REQUESTS: usize = 10;
const THREADS: usize = 2;
/// What the cache needs besides pages, a tenth of them, and this for its tenants.
const ROOM_BYTES: u64 = 16 << 20;
/// An anonymous page is its number, and the rest zeros.
const NUMBER_BYTES: u64 = 8;

/// What is said of it.
pub(super) fn workload() -> String {
    format!(
        "memcg-lru, with the real cache: {TENANTS} tenants, each {PAGES_EACH} mapped and {PAGES_EACH} anonymous pages, swap compressed;\n  \
         {THREADS} threads load 40 % of them between two of {REQUESTS} requests of {REQUEST_PAGES} pages to the root, which are sliced.\n  \
         before: linux-6.12, classic. after: linux-7.2. memcg_lru_alone: linux-7.2 without memcg_lru, and with."
    )
}

struct Memory {
    tenant: Tenant,
    map: Map,
    anonymous: AnonRegion,
    pages: u64,
    number: u64,
    seed: u64,
}

impl Memory {
    fn new(tenant: Tenant, number: u64, pages: u64, seed: u64, place: &Path) -> Result<Memory, Failure> {
        let path = place.join(number.to_string());
        let fail = |error| Failure::work(format_args!("cannot make {}: {error}", path.display()));
        let file = File::create(&path).map_err(fail)?;
        let content = Content::Verify { block_bytes: PAGE_BYTES as u32, seed };
        layout::fill(&file, 0..pages * PAGE_BYTES, content, &ProgressBar::hidden()).map_err(fail)?;
        layout::drop_from_system_cache(&file).map_err(fail)?;
        let map = tenant.open(&path, OpenMode::ReadOnly)?.map()?;
        let anonymous = tenant.anonymous(pages * PAGE_BYTES)?;
        let memory = Memory { tenant, map, anonymous, pages, number, seed };
        for page in 0..pages {
            memory.anonymous.store(page * PAGE_BYTES, &memory.stamp(page))?;
            memory.load_file(page)?;
        }
        Ok(memory)
    }

    fn stamp(&self, page: u64) -> [u8; NUMBER_BYTES as usize] {
        (self.seed ^ (self.number << 32 | page)).to_le_bytes()
    }

    fn load_file(&self, page: u64) -> Result<(), Failure> {
        let mut bytes = [0; PAGE_BYTES as usize];
        self.map.load(page * PAGE_BYTES, &mut bytes)?;
        verify::check_generation(&bytes, page * PAGE_BYTES, 1).map(drop).map_err(Failure::work)
    }

    fn load_anonymous(&self, page: u64) -> Result<(), Failure> {
        let mut bytes = [0; NUMBER_BYTES as usize];
        self.anonymous.load(page * PAGE_BYTES, &mut bytes)?;
        if bytes != self.stamp(page) {
            let (number, found) = (self.number, u64::from_le_bytes(bytes));
            return Err(Failure::work(format_args!(
                "anonymous page {page} of tenant {number} holds {found:#x}"
            )));
        }
        Ok(())
    }

    /// Loads some of all pages.
    fn touch(&self, share: f64, random: &mut Random) -> Result<(), Failure> {
        for page in 0..self.pages {
            if random.unit() < share {
                self.load_file(page)?;
            }
            if random.unit() < share {
                self.load_anonymous(page)?;
            }
        }
        Ok(())
    }

    fn counter(&self, name: &str) -> u64 {
        self.tenant.stats().counter(name).expect("a counter that there is")
    }
}

/// One run, with its files in a directory of their own below `directory`.
pub(super) fn run(
    mechanisms: Mechanisms,
    seed: u64,
    shorter: u32,
    directory: &Path,
) -> Result<Rounds, Failure> {
    let place = layout::temporary(directory)?;
    let pages_each = PAGES_EACH / u64::from(shorter);
    let request_pages = (REQUEST_PAGES / u64::from(shorter)).max(32);
    let bytes = 2 * pages_each * TENANTS as u64 * PAGE_BYTES;
    let swap_bytes = bytes / 4;
    let cache = PageCache::builder(bytes + bytes / 10 + swap_bytes + ROOM_BYTES)
        .swap(Swap::compressed(swap_bytes))
        .mechanisms(mechanisms)
        .build()?;
    let mut memories = Vec::new();
    for number in 0..TENANTS {
        let tenant = cache.add_tenant(&format!("t{number}"), &Limits::default())?;
        memories.push(Memory::new(tenant, number as u64, pages_each, seed, place.path())?);
    }
    let touch_all = |share: f64, round: u64| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = memories
                .chunks(TENANTS / THREADS)
                .zip(0..)
                .map(|(part, thread)| {
                    let mut random = Random::stream(seed, round << 8 | thread);
                    scope.spawn(move || part.iter().try_for_each(|memory| memory.touch(share, &mut random)))
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a thread does not panic"))
        })
    };
    let counters = |name| memories.iter().map(|memory| memory.counter(name)).collect::<Vec<u64>>();
    let now = || (counters("pgsteal_proactive"), counters("pgscan_proactive").into_iter().sum::<u64>());
    let mut before = now();
    let mut fell_short = 0;
    for request in 0..WARM_REQUESTS + REQUESTS {
        if request == WARM_REQUESTS {
            (before, fell_short) = (now(), 0);
        }
        touch_all(TOUCHED, request as u64)?;
        let bytes = (request_pages * PAGE_BYTES).to_string();
        fell_short += usize::from(cache.control().write("memory.reclaim", &bytes).is_err());
    }
    let after = now();
    // All of them once more, for what they hold.
    touch_all(1.0, u64::MAX >> 8)?;
    drop(memories);
    cache.close()?;
    Ok(Rounds {
        requested_pages: request_pages * REQUESTS as u64,
        stolen_pages: after.0.iter().zip(&before.0).map(|(after, before)| after - before).collect(),
        scanned_pages: after.1 - before.1,
        memcgs_visited: 0.0,
        fell_short,
    })
}
