//! The memcg LRU in the cache on real memory: the simulated experiment, scaled to the machine.
//!
//! Half of a tenant's memory is a mapped file, the other half is anonymous; swap is compressed
//! memory. Two threads load from the pages of all tenants and verify the contents. Then the root's
//! `memory.reclaim` is written. Requests are sliced, as are all writes to control files.
//!
//! The published proportions are kept: 128 tenants, and requests for 1/960 of the memory, of which
//! 40 % is touched in between. A tenant is 60 times smaller. It cannot be much smaller, because a
//! visit has a minimum size. With 16 MiB per tenant, priority 12 scans one page, and the kernel's
//! order is as unfair as it was on real kernels. With 4 MiB and requests of 64 pages, each tenant
//! loses less than a batch in total, and only batches are measured.

use super::{MEMCGS, TOUCHED};
use crate::Error;
use crate::equal_memcgs::Rounds;
use crate::layout::{self, Content};
use crate::parallel;
use mglru_cache::{AnonRegion, Limits, Map, OpenMode, PageCache, Swap, Tenant, available_memory_bytes};
use mglru_core::{Mechanisms, PAGE_BYTES};
use mglru_workload::{Random, verify};
use std::fs::File;
use std::path::Path;

/// As many as published.
const TENANTS: usize = MEMCGS;
/// File pages of each tenant, and as many anonymous ones: 4 GiB in total, or less on a smaller
/// machine.
const PAGES_EACH: u64 = 4096;
const PAGES_EACH_MIN: u64 = PAGES_EACH / 16;
/// Size for tests of the experiment itself.
const PAGES_EACH_QUICK: u64 = 128;
/// A third of the published number.
const REQUESTS: u32 = 200;
/// A request is for one page in this many, as published (65,536 of 128 × 491,520).
const SHARE: u64 = 960;
const WARM_REQUESTS: usize = 10;
const THREADS: usize = 2;
/// The cache's memory for tenants, in addition to the pages and a tenth of them.
const ROOM_BYTES: u64 = 16 << 20;
/// An anonymous page contains its number and zeroes.
const NUMBER_BYTES: u64 = 8;

pub(super) struct Size {
    /// File pages of each tenant, and as many anonymous ones.
    pages_each: u64,
    request_pages: u64,
    requests: usize,
}

impl Size {
    /// The size for this machine. `shorter` divides the number of requests, and `quick` uses small
    /// tenants. Tenants shrink further if they would take more than half of the available memory.
    pub(super) fn of_machine(shorter: u32, quick: bool) -> Size {
        let half = available_memory_bytes().map_or(u64::MAX, |bytes| bytes / 2);
        let mut pages_each = if quick { PAGES_EACH_QUICK } else { PAGES_EACH };
        while pages_each > PAGES_EACH_MIN && budget_bytes(pages_each) > half {
            pages_each /= 2;
        }
        let pages = 2 * pages_each * TENANTS as u64;
        Size { pages_each, request_pages: pages / SHARE, requests: (REQUESTS / shorter) as usize }
    }

    pub(super) fn workload(&self) -> String {
        let Size { pages_each, request_pages, requests } = self;
        format!(
            "memcg-lru, with the real cache: {TENANTS} tenants, each {pages_each} mapped and {pages_each} anonymous pages, swap \
             compressed; {THREADS} threads load 40 % of them between two of {requests} requests of {request_pages} pages to the root, \
             which are sliced.\n  before: linux-6.12, classic. after: linux-7.2. memcg_lru_alone: linux-7.2 without and with memcg_lru."
        )
    }
}

/// Budget for all pages, swap compressed to a quarter of them, and metadata.
fn budget_bytes(pages_each: u64) -> u64 {
    let bytes = 2 * pages_each * TENANTS as u64 * PAGE_BYTES;
    bytes + bytes / 10 + swap_bytes(pages_each) + ROOM_BYTES
}

fn swap_bytes(pages_each: u64) -> u64 {
    2 * pages_each * TENANTS as u64 * PAGE_BYTES / 4
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
    fn new(tenant: Tenant, number: u64, pages: u64, seed: u64, place: &Path) -> Result<Memory, Error> {
        let path = place.join(number.to_string());
        let fail = |error| Error::work(format_args!("cannot create {}: {error}", path.display()));
        let file = File::create(&path).map_err(fail)?;
        let content = Content::Verify { block_bytes: PAGE_BYTES as u32, seed };
        layout::fill(&file, 0..pages * PAGE_BYTES, content, &crate::Unwatched).map_err(fail)?;
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

    fn load_file(&self, page: u64) -> Result<(), Error> {
        let mut bytes = [0; PAGE_BYTES as usize];
        self.map.load(page * PAGE_BYTES, &mut bytes)?;
        verify::check_generation(&bytes, page * PAGE_BYTES, 1).map(drop).map_err(Error::work)
    }

    fn load_anonymous(&self, page: u64) -> Result<(), Error> {
        let mut bytes = [0; NUMBER_BYTES as usize];
        self.anonymous.load(page * PAGE_BYTES, &mut bytes)?;
        if bytes != self.stamp(page) {
            let (number, found) = (self.number, u64::from_le_bytes(bytes));
            return Err(Error::work(format_args!(
                "anonymous page {page} of tenant {number} holds {found:#x}"
            )));
        }
        Ok(())
    }

    fn touch(&self, share: f64, random: &mut Random) -> Result<(), Error> {
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
        self.tenant.stats().counter(name).expect("the counter exists")
    }
}

/// One run, with its files in a directory of their own below `directory`.
pub(super) fn run(mechanisms: Mechanisms, seed: u64, size: &Size, directory: &Path) -> Result<Rounds, Error> {
    let place = layout::temporary(directory)?;
    let &Size { pages_each, request_pages, requests } = size;
    let cache = PageCache::builder(budget_bytes(pages_each))
        .swap(Swap::compressed(swap_bytes(pages_each)))
        .mechanisms(mechanisms)
        .build()?;
    let mut memories = Vec::new();
    for number in 0..TENANTS {
        let tenant = cache.add_tenant(&format!("t{number}"), &Limits::default())?;
        memories.push(Memory::new(tenant, number as u64, pages_each, seed, place.path())?);
    }
    let touch_all = |share: f64, round: u64| {
        let touch = |(part, thread): (&[Memory], u64)| {
            let mut random = Random::stream(seed, round << 8 | thread);
            part.iter().try_for_each(|memory| memory.touch(share, &mut random))
        };
        let done = parallel::each(memories.chunks(TENANTS / THREADS).zip(0..), touch)?;
        done.into_iter().collect::<Result<(), Error>>()
    };
    let counters = |name| memories.iter().map(|memory| memory.counter(name)).collect::<Vec<u64>>();
    let now = || (counters("pgsteal_proactive"), counters("pgscan_proactive").into_iter().sum::<u64>());
    let mut before = now();
    let mut fell_short = 0;
    for request in 0..WARM_REQUESTS + requests {
        if request == WARM_REQUESTS {
            (before, fell_short) = (now(), 0);
        }
        touch_all(TOUCHED, request as u64)?;
        let bytes = (request_pages * PAGE_BYTES).to_string();
        fell_short += usize::from(cache.control().write("memory.reclaim", &bytes).is_err());
    }
    let after = now();
    // Read all pages once more to verify their contents.
    touch_all(1.0, u64::MAX >> 8)?;
    drop(memories);
    cache.close()?;
    Ok(Rounds {
        requested_pages: request_pages * requests as u64,
        stolen_pages: after.0.iter().zip(&before.0).map(|(after, before)| after - before).collect(),
        scanned_pages: after.1 - before.1,
        memcgs_visited: 0.0,
        fell_short,
    })
}
