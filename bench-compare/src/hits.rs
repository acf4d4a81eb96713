//! Cost of a hit: eight bytes through a mapping, and a page through a descriptor.
//!
//! The library caches hold an eight-byte number per page: its place in the array in huge pages,
//! from which the bytes are then read. Their users do more, because they keep pages behind
//! reference-counted pointers to separate allocations; here nothing keeps a page from being reused
//! while it is read. quick_cache is also measured without reading the page. SQLite's page cache
//! stands for a storage engine's own pool; it serves one thread.

use crate::Failure;
use crate::file::{DataFile, PAGE_BYTES, zipf_words};
use crate::measure::{Effort, Figures, Way, compare, major_faults};
use crate::memory::Region;
use crate::sqlite::Pool;
use mglru_cache::{CachedFile, Map, OpenMode, PageCache};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

const PAGE: usize = PAGE_BYTES as usize;
/// Number of drawn offsets, more than any processor's cache remembers.
const OFFSETS: usize = 8 << 20;
/// Accesses per batched call.
const TOGETHER: usize = 64;
/// Capacity of the library caches relative to their content, so that they need not evict.
const ROOM: u64 = 2;
const HELD: &str = "the library caches evict nothing";

/// Memory for measuring hits on `pages` pages: the pages in our cache, in the kernel's and in an
/// array, the offsets, and the library caches' entries, measured as about 400 bytes for all of them
/// together, and SQLite's of some 600.
pub fn memory_bytes(pages: u64) -> u64 {
    pages * (3 * PAGE_BYTES + 64 + 512 + 640) + (OFFSETS * size_of::<u64>()) as u64
}

/// Measures hits of both kinds by each of these numbers of threads. `notes` receives deviations
/// from the intended setup.
///
/// # Errors
/// Memory cannot be mapped, the file cannot be read, or a cache does not hold what was inserted.
pub fn measure(
    data: &DataFile,
    effort: Effort,
    threads: &[usize],
    notes: &mut Vec<String>,
) -> Result<Vec<Figures>, Failure> {
    let pages = data.bytes() / PAGE_BYTES;
    let offsets = zipf_words(pages, OFFSETS);
    // First, while the kernel still has huge pages for it.
    let before = huge_bytes();
    let array = Region::huge_array(data.bytes() as usize, |offset| offset)
        .map_err(|error| format!("an array of {} bytes cannot be mapped: {error}", data.bytes()))?;
    if let (Some(before), Some(after)) = (before, huge_bytes())
        && after - before < data.bytes() / 10 * 9
    {
        notes.push(format!("{} of the array's {} bytes are in huge pages", after - before, data.bytes()));
    }
    // An eighth more than the pages, for metadata and so that reclaim never runs.
    let cache = PageCache::builder(data.bytes() / 8 * 9 + (64 << 20)).build()?;
    let file = cache.open(data.path(), OpenMode::ReadOnly)?;
    let map = file.map()?;
    bring_in(&file, &map)?;
    let mapped = Region::of_file(data.as_file(), data.bytes() as usize)
        .map_err(|error| format!("{} cannot be mapped: {error}", data.path().display()))?;
    let missed_before = cache.tenant("").unwrap().stats().misses;
    let faults_before = major_faults();
    let mut figures = mapped_hits(&array, &mapped, &map, &offsets, effort, threads)?;
    if let (Some(before), Some(after)) = (faults_before, major_faults())
        && after > before
    {
        notes.push(format!(
            "memory was short: the kernel dropped pages and read {} again while hits were measured; \
             should the spread be wide, ask for fewer --pages",
            after - before
        ));
    }
    figures.extend(descriptor_hits(&array, &file, data, &offsets, effort, threads));
    match cache.tenant("").unwrap().stats().misses - missed_before {
        0 => {}
        missed => notes.push(format!("{missed} accesses missed that should have hit our cache")),
    }
    Ok(figures)
}

/// Brings every page into memory and maps it.
fn bring_in(file: &CachedFile, map: &Map) -> Result<(), Failure> {
    let mut block = vec![0; 1 << 20];
    for offset in (0..file.len()).step_by(block.len()) {
        file.read_at(&mut block, offset)?;
    }
    for offset in (0..file.len()).step_by(PAGE) {
        let word = load(map, offset);
        assert_eq!(word, offset, "the file's words are their offsets");
    }
    Ok(())
}

/// Our cache's cheapest access to eight bytes.
#[inline]
pub fn load(map: &Map, offset: u64) -> u64 {
    map.load_value(offset).expect("a resident page can be read")
}

/// The same through a slice.
fn load_bytes(map: &Map, offset: u64) -> u64 {
    let mut word = [0; 8];
    map.load(offset, &mut word).expect("a resident page can be read");
    u64::from_ne_bytes(word)
}

/// The same, in batches.
fn load_many(map: &Map, offsets: &[u64]) -> u64 {
    let mut words = [[0; 8]; TOGETHER];
    offsets.chunks(TOGETHER).fold(0, |sum: u64, offsets| {
        let words = &mut words[..offsets.len()];
        map.load_many(offsets, words).expect("resident pages can be read");
        words.iter().fold(sum, |sum, &word| sum.wrapping_add(u64::from_ne_bytes(word)))
    })
}

fn mapped_hits(
    array: &Region,
    mapped: &Region,
    map: &Map,
    offsets: &[u64],
    effort: Effort,
    threads: &[usize],
) -> Result<Vec<Figures>, Failure> {
    let pages = map.len() / PAGE_BYTES;
    let capacity = pages * ROOM;
    let quick = quick_cache::sync::Cache::new(capacity as usize);
    let moka = moka::sync::Cache::new(capacity);
    let foyer: foyer_memory::Cache<u64, u64> = foyer_memory::CacheBuilder::new(capacity as usize).build();
    for page in 0..pages {
        quick.insert(page, page);
        moka.insert(page, page);
        foyer.insert(page, page);
    }
    moka.run_pending_tasks();
    let (array, mapped) = (array.words(), mapped.words());
    let word_index = |offset: u64| offset as usize / size_of::<u64>();
    let from_quick = |page| quick.get(&page);
    let from_moka = |page| moka.get(&page);
    let from_foyer = |page| foyer.get(&page).map(|entry| *entry);
    for page in 0..pages {
        if [from_quick(page), from_moka(page), from_foyer(page)] != [Some(page); 3] {
            return Err(
                format!("a library cache with room for {capacity} entries lost one of {pages}").into()
            );
        }
    }
    let of_page = |page: Option<u64>, offset: u64| {
        array[word_index(page.expect(HELD) * PAGE_BYTES + offset % PAGE_BYTES)]
    };
    let ways = [
        Way::new("mapped_hit", |offset| load(map, offset)),
        Way::new("mapped_hit_as_bytes", |offset| load_bytes(map, offset)),
        Way::in_batches("mapped_hits_together", |offsets| load_many(map, offsets)),
        Way::new("mmap", |offset| mapped[word_index(offset)]),
        Way::new("huge_array", |offset| array[word_index(offset)]),
        Way::new("quick_cache", |offset| of_page(from_quick(offset / PAGE_BYTES), offset)),
        Way::new("quick_cache_lookup_only", |offset| from_quick(offset / PAGE_BYTES).expect(HELD)),
        Way::new("moka", |offset| of_page(from_moka(offset / PAGE_BYTES), offset)),
        Way::new("foyer", |offset| of_page(from_foyer(offset / PAGE_BYTES), offset)),
    ];
    let mut figures = compare(&ways, threads, offsets, effort);
    let pool = Mutex::new(Pool::new(pages)?);
    let from_pool = |offsets: &[u64]| {
        let mut pool = pool.lock().expect("no holder panics");
        let read = |&offset: &u64| of_page(pool.fetch(offset / PAGE_BYTES), offset);
        offsets.iter().map(read).fold(0, u64::wrapping_add)
    };
    let cursor = |offsets: &[u64]| {
        let mut cursor = map.cursor();
        // Eight loads from each page, as from a node of a tree.
        let words = |&offset: &u64| {
            let page = offset / PAGE_BYTES * PAGE_BYTES;
            (0..8).map(move |word| page + (offset + word * 520) % PAGE_BYTES / 8 * 8)
        };
        let load = |offset| cursor.load_value::<u64>(offset).expect("a resident page can be read");
        offsets[..offsets.len() / 8].iter().flat_map(words).map(load).fold(0, u64::wrapping_add)
    };
    let ways = [
        Way::new("mapped_hit_again", |offset| load(map, offset)),
        Way::in_batches("sqlite_pool", from_pool),
        Way::in_batches("cursor_of_eight_loads", cursor),
    ];
    figures.extend(compare(&ways, &[1], offsets, effort));
    Ok(figures)
}

/// Bytes of a small read.
const SMALL: usize = 256;

fn descriptor_hits(
    array: &Region,
    file: &CachedFile,
    data: &DataFile,
    offsets: &[u64],
    effort: Effort,
    threads: &[usize],
) -> Vec<Figures> {
    let (array, system) = (array.bytes(), data.as_file());
    let page_start = |offset: u64| offset / PAGE_BYTES * PAGE_BYTES;
    let small_start = |offset: u64| offset / SMALL as u64 * SMALL as u64;
    let copy = |offset: u64, bytes: usize| {
        let from = &array[offset as usize..][..bytes];
        with_buffer(|page| page[..bytes].copy_from_slice(from))
    };
    let ways = [
        Way::new("descriptor_hit", |offset| read(file, page_start(offset))),
        Way::new("bare_copy", |offset| copy(page_start(offset), PAGE)),
        Way::new("pread", |offset| pread(system, page_start(offset), PAGE)),
        Way::new("descriptor_hit_256", |offset| {
            with_buffer(|page| {
                file.read_at(&mut page[..SMALL], small_start(offset))
                    .expect("a page of the file can be read");
            })
        }),
        Way::new("bare_copy_256", |offset| copy(small_start(offset), SMALL)),
        Way::new("pread_256", |offset| pread(system, small_start(offset), SMALL)),
    ];
    compare(&ways, threads, offsets, effort)
}

/// Reads a page through a descriptor of our cache.
#[inline]
pub fn read(file: &CachedFile, offset: u64) -> u64 {
    with_buffer(|page| {
        file.read_at(page, offset).expect("a page of the file can be read");
    })
}

/// Reads bytes of a page by a system call.
#[inline]
pub fn pread(file: &File, offset: u64, bytes: usize) -> u64 {
    with_buffer(|page| {
        file.read_exact_at(&mut page[..bytes], offset).expect("a page of the file can be read");
    })
}

thread_local! {
    /// A thread's destination of page reads, reused like a user's buffer.
    static BUFFER: RefCell<[u8; PAGE]> = const { RefCell::new([0; PAGE]) };
}

/// Fills the thread's buffer and returns its first word.
#[inline]
pub fn with_buffer(fill: impl FnOnce(&mut [u8])) -> u64 {
    BUFFER.with_borrow_mut(|page| {
        fill(page);
        u64::from_ne_bytes(*page.first_chunk().expect("a page is longer than a word"))
    })
}

/// Bytes of this process in anonymous huge pages. `None`: unknown to the system.
fn huge_bytes() -> Option<u64> {
    let memory = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    crate::kib_of(&memory, "AnonHugePages:")
}
