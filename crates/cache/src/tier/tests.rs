//! The disk tier under sources that do as they promise and that do not, and over files that are
//! whole, damaged, torn, too small or another's.

use super::DiskTier;
use super::format::FORMAT;
use crate::backend::{BackendKind, Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles, grants};
use crate::source::tests::{Manner, Object, PAGE, assert_page, content, kind, object, read};
use crate::{
    Advice, BlockSource, CachedFile, DiskTierStats, Error, OpenMode, PageCache, RangeRequest, SourceState,
};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const SLOT: u64 = 4 * PAGE as u64;
/// Room for 600 pages of sources.
const TIER: u64 = 160 * (SLOT + PAGE as u64);

fn tier() -> DiskTier {
    DiskTier::new("tier", TIER).slot_bytes(SLOT)
}

/// A cache with 100 pages or so, and a tier on this disk.
fn cache(files: &Arc<MemoryFiles>) -> Result<PageCache, Error> {
    PageCache::builder(1300 << 10)
        .tenant("t", 400 << 10)
        .backend(BackendKind::Memory(files.clone()))
        .source_deadline(Duration::from_millis(300))
        .disk_tier(tier())
        .build()
}

fn open(cache: &PageCache, object: &Arc<Object>) -> CachedFile {
    cache.tenant("t").unwrap().open_source(object.clone(), OpenMode::ReadOnly).unwrap()
}

fn stats(cache: &PageCache) -> DiskTierStats {
    cache.stats().disk_tier.unwrap()
}

/// Waits until everything is stored.
fn settle(cache: &PageCache) {
    cache.validate().unwrap();
    cache.shared.sources.tier.as_ref().unwrap().validate().unwrap();
}

/// Reads pages, and lets each be stored: no more are read ahead than there are spare frames.
fn read_all(cache: &PageCache, file: &CachedFile, pages: std::ops::Range<usize>, all: &[u8]) {
    for page in pages {
        assert_page(file, page, all);
        if page % 8 == 0 {
            settle(cache);
        }
    }
    settle(cache);
}

fn asked(object: &Object) -> u64 {
    std::mem::take(&mut *object.asked.lock().unwrap()).iter().map(|range| range.end - range.start).sum()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 31) % limit
    }
}

/// Pages that left memory are read from the tier, and after a restart all pages are.
#[test]
fn a_bucket_is_read_once() {
    for block_pages in [1, 16] {
        let (bytes, files) = (400 * PAGE + 777, MemoryFiles::new(1));
        let all = content(1, bytes);
        let object = Arc::new(Object { block_bytes: block_pages * PAGE as u64, ..object(bytes) });
        let first = cache(&files).unwrap();
        let file = open(&first, &object);
        read_all(&first, &file, 0..401, &all);
        assert_eq!(asked(&object), bytes as u64);
        assert_eq!(stats(&first).stored, 401, "{:?}", stats(&first));
        for step in 0..1200 {
            assert_page(&file, step * 37 % 401, &all);
        }
        let after = stats(&first);
        assert_eq!((asked(&object), after.hits > 800), (0, true), "{after:?}");
        assert_eq!((after.damaged, after.failures, after.skipped, after.used_slots), (0, 0, 0, 101));
        drop(file);
        first.close().unwrap();

        let second = cache(&files).unwrap();
        assert_eq!((stats(&second).found_slots, stats(&second).why_empty), (101, None));
        let file = open(&second, &object);
        let map = file.map().unwrap();
        for page in (0..401).rev() {
            assert_page(&file, page, &all);
            assert!(map.page(page as u32).unwrap()[..] == all[page * PAGE..bytes.min((page + 1) * PAGE)]);
        }
        let mut whole = vec![0; bytes];
        file.read_exact_at(&mut whole, 0).unwrap();
        assert!(whole == all);
        assert_eq!((asked(&object), stats(&second).misses), (0, 0));
        assert_eq!(second.stats().source_bytes, 0);
        settle(&second);
    }
}

/// Without a thread for its reads, the tier is read by the threads that want its pages. Threads
/// that the system grants later are started while pages are read.
#[test]
fn a_tier_works_with_the_threads_that_the_system_grants() {
    let (bytes, files) = (300 * PAGE + 9, MemoryFiles::new(7));
    let all = content(1, bytes);
    let object = Arc::new(object(bytes));
    let cache = cache(&files).unwrap();
    let before = cache.stats().io_threads_refused;
    // One calls the source, and one watches deadlines.
    grants::set(Some(2));
    let file = open(&cache, &object);
    assert_eq!(cache.stats().io_threads_refused, before + 4);
    read_all(&cache, &file, 0..200, &all);
    asked(&object);
    file.evict(0..u64::MAX).unwrap();
    read_all(&cache, &file, 0..200, &all);
    assert_eq!(asked(&object), 0, "{:?}", stats(&cache));
    // Of the last window, the tier has the first pages only.
    file.evict(0..u64::MAX).unwrap();
    file.advise(Advice::WillNeed, 190 * PAGE as u64..210 * PAGE as u64).unwrap();
    settle(&cache);
    (190..210).for_each(|page| assert_page(&file, page, &all));
    file.evict(0..u64::MAX).unwrap();
    assert_eq!(cache.stats().io_threads_refused, before + 4);
    grants::set(Some(1));
    file.advise(Advice::Random, 0..0).unwrap();
    for _ in 0..2 {
        (0..200).for_each(|page| assert_page(&file, page, &all));
        file.evict(0..u64::MAX).unwrap();
    }
    assert_eq!(cache.stats().io_threads_refused, before + 3);
    read_all(&cache, &file, 0..200, &all);
    settle(&cache);
}

/// A read of which the tier has parts asks the source for the others only.
#[test]
fn a_part_in_the_tier_is_not_asked_for_again() {
    let (bytes, files) = (300 * PAGE + 9, MemoryFiles::new(2));
    let all = content(1, bytes);
    let object = Arc::new(object(bytes));
    let cache = cache(&files).unwrap();
    let file = open(&cache, &object);
    file.advise(Advice::Random, 0..0).unwrap();
    for page in [3, 4, 10, 20, 21, 22, 39, 300] {
        assert_page(&file, page, &all);
    }
    settle(&cache);
    assert_eq!(asked(&object), 7 * PAGE as u64 + 9);
    file.evict(0..u64::MAX).unwrap();
    file.advise(Advice::WillNeed, 0..24 * PAGE as u64).unwrap();
    settle(&cache);
    assert_eq!(asked(&object), (24 - 6) * PAGE as u64);
    assert_eq!(file.pages_in(0..24 * PAGE as u64).cached, 24);
    (0..24).chain([39, 300]).for_each(|page| assert_page(&file, page, &all));
    assert_eq!(asked(&object), 0);
    read_all(&cache, &file, 24..64, &all);
    // If the source fails for one of the parts, the whole fails, and the page alone is read again.
    file.evict(0..u64::MAX).unwrap();
    object.set(1, Manner::Drops);
    file.advise(Advice::Normal, 0..0).unwrap();
    file.advise(Advice::WillNeed, 60 * PAGE as u64..70 * PAGE as u64).unwrap();
    assert_page(&file, 62, &all);
    assert_eq!(kind(read(&file, 66)), io::ErrorKind::Other);
    object.set(1, Manner::Right);
    (0..301).for_each(|page| assert_page(&file, page, &all));
    settle(&cache);
}

#[test]
fn sources_that_break_their_word_leave_no_wrong_bytes_in_the_tier() {
    use Manner::*;
    let (pages, files) = (200, MemoryFiles::new(3));
    let (first, second) = (content(1, pages * PAGE), content(2, pages * PAGE));
    let object = Arc::new(object(pages * PAGE));
    for (run, manner) in
        [Short, Whole, FailsEveryThird, Drops, Panics, Keeps, Later, Right].into_iter().enumerate()
    {
        let cache = cache(&files).unwrap();
        object.set(1, Right);
        let file = open(&cache, &object);
        object.set(1, manner);
        for page in (run * 10..run * 10 + 20).chain([150 + run]) {
            match read(&file, page) {
                Ok(bytes) => assert!(bytes == first[page * PAGE..][..PAGE], "page {page}, {manner:?}"),
                Err(error) => assert!(![Later, Right].contains(&manner), "page {page}, {manner:?}: {error}"),
            }
        }
        // Answers of another version than that of the file.
        object.set(2, Right);
        for page in 100..120 {
            if let Ok(bytes) = read(&file, page) {
                assert!(bytes == first[page * PAGE..][..PAGE], "page {page} of version 1");
            }
        }
        let newer = open(&cache, &object);
        (run * 10..run * 10 + 30).for_each(|page| assert_page(&newer, page, &second));
        let late = std::mem::take(&mut *object.kept.lock().unwrap());
        late.into_iter().for_each(|request| request.fulfil(Some("1"), &[0xee; PAGE]));
        settle(&cache);
        drop((file, newer));
        cache.close().unwrap();
    }
    for (version, expected) in [(1, first), (2, second)] {
        let cache = cache(&files).unwrap();
        object.set(version, Right);
        let file = open(&cache, &object);
        (0..pages).for_each(|page| assert_page(&file, page, &expected));
        assert!(stats(&cache).hits > 50 && stats(&cache).damaged == 0, "{:?}", stats(&cache));
        settle(&cache);
    }
}

/// A source with a length, a version or a name of its own, over the bytes of an object.
#[derive(Debug)]
struct Odd {
    object: Arc<Object>,
    name: &'static str,
    version: Option<&'static str>,
    says_version: bool,
    is_kept: bool,
}

impl BlockSource for Odd {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn state(&self) -> io::Result<SourceState> {
        Ok(SourceState { version: self.version.map(str::to_owned), ..self.object.state()? })
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        let all = content(1, 40 * PAGE);
        for request in requests {
            let range = request.range();
            self.object.asked.lock().unwrap().push(range.clone());
            let version = self.version.filter(|_| self.says_version);
            request.fulfil(version, &all[range.start as usize..range.end as usize]);
        }
    }

    fn is_kept_on_disk(&self) -> bool {
        self.is_kept
    }
}

#[test]
fn only_answers_of_a_known_version_are_kept() {
    let files = MemoryFiles::new(4);
    let odd = |name, version, says_version, is_kept| {
        Arc::new(Odd { object: Arc::new(object(40 * PAGE)), name, version, says_version, is_kept })
    };
    for (source, is_stored) in [
        (odd("a", Some("1"), true, true), true),
        (odd("b", None, true, true), false),
        (odd("c", Some("1"), false, true), false),
        (odd("d", Some("1"), true, false), false),
    ] {
        let mut before = 0;
        for run in 0..2 {
            let cache = cache(&files).unwrap();
            let file = cache.open_source(source.clone(), OpenMode::ReadOnly).unwrap();
            let all = content(1, 40 * PAGE);
            (0..40).for_each(|page| assert_page(&file, page, &all));
            settle(&cache);
            let now = asked(&source.object);
            assert_eq!(now, if run == 1 && is_stored { 0 } else { 40 * PAGE as u64 }, "{}", source.name);
            before = now;
        }
        assert_eq!(before == 0, is_stored);
    }
    // The same bytes under another name, version or length are another source.
    for other in [odd("a", Some("2"), true, true), odd("A", Some("1"), true, true)] {
        let cache = cache(&files).unwrap();
        let file = cache.open_source(other.clone(), OpenMode::ReadOnly).unwrap();
        read(&file, 3).unwrap();
        assert!(asked(&other.object) > 0);
    }
}

/// A tier smaller than the source keeps what is used again, and never grows.
#[test]
fn a_small_tier_evicts() {
    let (pages, files) = (3000, MemoryFiles::new(5));
    let all = content(1, pages * PAGE);
    let object = Arc::new(Object { block_bytes: SLOT, ..object(pages * PAGE) });
    let cache = cache(&files).unwrap();
    let file = open(&cache, &object);
    for step in 0..pages {
        assert_page(&file, step, &all);
        // These leave memory now and then, and are found in the tier.
        if step % 10 == 0 {
            (0..40).for_each(|page| assert_page(&file, page, &all));
        }
        // All pages are stored: no more are read than there are spare frames.
        if step % 4 == 0 {
            settle(&cache);
        }
        if step % 100 == 0 {
            file.evict(0..40 * PAGE as u64).unwrap();
        }
    }
    settle(&cache);
    let after = stats(&cache);
    assert!(after.used_slots <= after.slots && after.used_slots > after.slots * 8 / 10, "{after:?}");
    assert!(files.contents("tier").unwrap().len() as u64 <= TIER);
    asked(&object);
    file.evict(0..u64::MAX).unwrap();
    (0..40).for_each(|page| assert_page(&file, page, &all));
    assert_eq!(asked(&object), 0, "what was used again stayed");
    (1000..1100).for_each(|page| assert_page(&file, page, &all));
    assert_eq!(asked(&object), 100 * PAGE as u64, "what was not has left");
}

fn fill(files: &Arc<MemoryFiles>, object: &Arc<Object>, pages: usize) {
    let cache = cache(files).unwrap();
    let file = open(&cache, object);
    read_all(&cache, &file, 0..pages, &content(1, object.claims as usize));
    drop(file);
    cache.close().unwrap();
}

#[test]
fn files_of_others_are_refused_and_those_of_other_formats_are_begun_anew() {
    let files = MemoryFiles::new(6);
    // The last two begin with zeros, as images of ISO 9660 and btrfs do.
    let [mut image, mut last] = [vec![0; 300 * PAGE], vec![0; 2 * TIER as usize + 1]];
    image[64 << 10..].fill(7);
    *last.last_mut().unwrap() = 1;
    for foreign in [&b"SQLite format 3\0 and a database behind it"[..], &[1; 10_000], &image, &last] {
        files.set_contents("tier", foreign);
        let error = cache(&files).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("other content"), "{error}");
        assert_eq!(files.contents("tier").unwrap(), foreign);
    }
    let (all, object) = (content(1, 100 * PAGE), Arc::new(object(100 * PAGE)));
    // Its space was set aside, or an earlier start ended before it wrote the header.
    files.set_contents("tier", &vec![0; TIER as usize]);
    fill(&files, &object, 100);
    let good = files.contents("tier").unwrap();
    for (at, byte, why) in
        [(8, FORMAT as u8 + 1, "format"), (20, good[20] ^ 1, "damaged"), (12, 8, "damaged")]
    {
        let mut changed = good.clone();
        changed[at] = byte;
        files.set_contents("tier", &changed);
        let cache = cache(&files).unwrap();
        let (now, file) = (stats(&cache), open(&cache, &object));
        assert!(now.found_slots == 0 && now.why_empty.is_some_and(|text| text.contains(why)), "{at}");
        asked(&object);
        (0..100).for_each(|page| assert_page(&file, page, &all));
        assert_eq!(asked(&object), 100 * PAGE as u64);
        settle(&cache);
    }
    // Another size or other slots.
    for other in
        [DiskTier::new("tier", TIER * 2).slot_bytes(SLOT), DiskTier::new("tier", TIER).slot_bytes(SLOT / 2)]
    {
        files.set_contents("tier", &good);
        let cache = PageCache::builder(2 << 20)
            .backend(BackendKind::Memory(files.clone()))
            .disk_tier(other)
            .build()
            .unwrap();
        assert!(stats(&cache).why_empty.is_some_and(|text| text.contains("are wanted")));
    }
    let tiny = PageCache::builder(2 << 20).disk_tier(DiskTier::new("tier", 10_000));
    assert!(tiny.build().unwrap_err().to_string().contains("too small"));
    let error = PageCache::builder(600 << 10).disk_tier(DiskTier::new("tier", 1 << 40)).build().unwrap_err();
    assert!(matches!(error, Error::BudgetTooSmall { least_bytes, .. } if least_bytes > 4 << 30), "{error}");
}

/// Files with bits flipped, cut off, swapped, zeroed: every page is right, from the tier or the
/// source, or the cache refuses the file.
#[test]
fn no_damage_to_the_file_shows_in_the_bytes() {
    let (pages, files) = (200, MemoryFiles::new(7));
    let (all, object) = (content(1, pages * PAGE + 5), Arc::new(object(pages * PAGE + 5)));
    fill(&files, &object, pages + 1);
    let good = files.contents("tier").unwrap();
    let rounds = std::env::var("MGLRU_FUZZ").ok().and_then(|count| count.parse().ok()).unwrap_or(150);
    let mut random = Random(11);
    let (mut damaged, mut hits, mut refused) = (0, 0, 0);
    for round in 0..rounds {
        let mut bytes = good.clone();
        for _ in 0..=random.below(8) {
            let len = bytes.len() as u64;
            // The header and the table are a small part, and hit as often as the rest.
            let part = if random.below(2) == 0 { len } else { 8 * PAGE as u64 };
            let at = random.below(part.min(len).max(1)) as usize;
            let count = (random.below(3 * PAGE as u64) as usize).min(bytes.len().saturating_sub(at));
            match random.below(6) {
                _ if bytes.is_empty() => {}
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at..at + count].fill(0),
                2 => bytes[at..at + count].iter_mut().for_each(|byte| *byte = random.below(256) as u8),
                3 if random.below(8) == 0 => bytes.truncate(at),
                4 => {
                    let to = random.below((bytes.len() - count) as u64 + 1) as usize;
                    bytes.copy_within(at..at + count, to);
                }
                // Whole pages in each other's place, as after a write that went astray.
                _ => {
                    let (a, b) = (at / PAGE, random.below(len / PAGE as u64 + 1) as usize);
                    let end = (a.max(b) + 1) * PAGE;
                    if a != b && end <= bytes.len() {
                        let (low, high) = bytes.split_at_mut(a.max(b) * PAGE);
                        low[a.min(b) * PAGE..][..PAGE].swap_with_slice(&mut high[..PAGE]);
                    }
                }
            }
        }
        files.set_contents("tier", &bytes);
        let cache = match cache(&files) {
            Ok(cache) => cache,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "round {round}: {error}");
                refused += 1;
                continue;
            }
        };
        let file = open(&cache, &object);
        for step in 0..=pages {
            assert_page(&file, step * 5 % (pages + 1), &all);
        }
        settle(&cache);
        damaged += stats(&cache).damaged;
        hits += stats(&cache).hits;
    }
    assert!(damaged > rounds && hits > 50 * rounds && refused < rounds / 2, "{damaged} {hits} {refused}");
}

/// The power fails at any time, and sectors survive in any mixture.
#[test]
fn a_power_cut_leaves_a_tier_without_wrong_bytes() {
    let (pages, object) = (200, Arc::new(object(200 * PAGE)));
    let all = content(1, pages * PAGE);
    let (mut hits, mut found) = (0, 0);
    for seed in 0..25 {
        let files = MemoryFiles::new(seed);
        files.tear_sectors();
        for run in 0..4 {
            files.restore_power();
            let cut = Random(seed * 10 + run).below(900);
            files.cut_power_after(if run == 3 { u64::MAX } else { cut });
            let cache = match cache(&files) {
                Ok(cache) => cache,
                Err(error) => {
                    // The magic may be torn.
                    let kind = error.kind();
                    assert!(cut < 4 || kind == io::ErrorKind::AlreadyExists, "{seed}, cut {cut}: {error}");
                    files.set_contents("tier", &[]);
                    continue;
                }
            };
            let file = open(&cache, &object);
            for step in 0..2 * pages {
                assert_page(&file, (step * 7 + run as usize * 50) % pages, &all);
                if step % 8 == 0 {
                    settle(&cache);
                }
            }
            settle(&cache);
            found += stats(&cache).found_slots;
            hits += stats(&cache).hits;
            assert!(run < 3 || stats(&cache).failures == 0);
        }
    }
    assert!(hits > 25 * 200 && found > 25 * 20, "{hits} {found}");
}

#[test]
fn a_disk_that_fails_or_is_full_is_as_if_it_were_not_there() {
    let (pages, object) = (150, Arc::new(object(150 * PAGE)));
    let all = content(1, pages * PAGE);
    for operation in [FaultOperation::Read, FaultOperation::Write] {
        for trigger in [FaultTrigger::Always, FaultTrigger::OneIn(3)] {
            for effect in
                [FaultEffect::Error(libc::EIO), FaultEffect::Error(libc::ENOSPC), FaultEffect::Short(1000)]
            {
                let files = MemoryFiles::new(8);
                let cache = cache(&files).unwrap();
                let file = open(&cache, &object);
                files.inject(Fault { path: None, operation, trigger: trigger.clone(), effect });
                for _ in 0..3 {
                    read_all(&cache, &file, 0..pages, &all);
                    file.evict(0..u64::MAX).unwrap();
                }
                let after = stats(&cache);
                assert_eq!(after.damaged, 0, "{operation:?} {trigger:?} {effect:?}");
                assert_eq!(after.failures > 0, !matches!(effect, FaultEffect::Short(_)), "{after:?}");
                // Once the disk is well again, it is used again.
                files.clear_faults();
                read_all(&cache, &file, 0..pages, &all);
                file.evict(0..u64::MAX).unwrap();
                asked(&object);
                (0..pages).for_each(|page| assert_page(&file, page, &all));
                assert_eq!(asked(&object), 0);
            }
        }
    }
    // A disk that is full from the beginning cannot take the header.
    let files = MemoryFiles::new(9);
    files.set_capacity_pages(0);
    assert_eq!(kind(cache(&files).map(drop)), io::ErrorKind::StorageFull);
}

/// Futures of reads that the tier and a slow source answer, dropped before they are polled, while
/// they wait, and after they were answered.
#[cfg(feature = "async")]
#[test]
fn futures_can_be_dropped_at_any_point() {
    use std::pin::Pin;
    use std::task::{Context, Waker};
    let (pages, files) = (300, MemoryFiles::new(10));
    let (all, object) = (content(1, pages * PAGE), Arc::new(object(pages * PAGE)));
    fill(&files, &object, 150);
    let cache = cache(&files).unwrap();
    object.set(1, Manner::Later);
    let file = open(&cache, &object);
    let mut random = Random(3);
    for _ in 0..300 {
        let at = random.below(pages as u64 - 20) as usize * PAGE + random.below(PAGE as u64) as usize;
        let mut buffer = vec![0; 1 + random.below(16 * PAGE as u64) as usize];
        let expected = &all[at..at + buffer.len()];
        let mut read = file.read_at_async(&mut buffer, at as u64);
        let polls = random.below(5);
        let mut done = false;
        for _ in 0..polls {
            if !done
                && let std::task::Poll::Ready(result) =
                    Pin::new(&mut read).poll(&mut Context::from_waker(Waker::noop()))
            {
                assert_eq!(result.unwrap(), expected.len());
                done = true;
            }
            std::thread::yield_now();
        }
        drop(read);
        assert!(!done || buffer == expected);
    }
    (0..pages).for_each(|page| assert_page(&file, page, &all));
    settle(&cache);
    assert!(stats(&cache).hits > 100);
}

/// The file of a real disk: two caches, a restart, another user, no room.
#[test]
fn a_file_belongs_to_one_cache_at_a_time() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tier");
    let build = |path: &Path| {
        PageCache::builder(2 << 20).disk_tier(DiskTier::new(path, TIER).slot_bytes(SLOT)).build()
    };
    let (all, object) = (content(1, 90 * PAGE), Arc::new(object(90 * PAGE)));
    // A sparse file of another program.
    std::fs::write(directory.path().join("image"), b"a disk's").unwrap();
    let image = File::options().write(true).open(directory.path().join("image")).unwrap();
    image.write_all_at(&[0; 8], 0).unwrap();
    image.write_all_at(b"its bytes", 5 << 20).unwrap();
    let error = build(&directory.path().join("image")).unwrap_err();
    assert_eq!(
        (error.kind(), image.metadata().unwrap().len()),
        (io::ErrorKind::AlreadyExists, (5 << 20) + 9)
    );
    let first = build(&path).unwrap();
    let error = build(&path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("another cache uses the file"), "{error}");
    let file = first.open_source(object.clone(), OpenMode::ReadOnly).unwrap();
    (0..90).for_each(|page| assert_page(&file, page, &all));
    settle(&first);
    let metadata = std::fs::metadata(&path).unwrap();
    assert!(metadata.mode() & 0o77 == 0 && metadata.len() <= TIER && metadata.blocks() > 0);
    // Another process cuts the file off: its pages are read again.
    File::options().write(true).open(&path).unwrap().set_len(PAGE as u64 * 30).unwrap();
    file.evict(0..u64::MAX).unwrap();
    (0..90).for_each(|page| assert_page(&file, page, &all));
    drop(file);
    // As a child that is forked just now, and has its parent's open files until it calls exec.
    let forked = first.shared.sources.tier.as_ref().unwrap().lock.as_ref().unwrap().try_clone().unwrap();
    first.close().unwrap();
    let second = build(&path).unwrap();
    drop(forked);
    let file = second.open_source(object.clone(), OpenMode::ReadOnly).unwrap();
    asked(&object);
    (0..90).for_each(|page| assert_page(&file, page, &all));
    assert!(asked(&object) < 40 * PAGE as u64 && stats(&second).found_slots > 10, "{:?}", stats(&second));
    assert_eq!(
        object.kept.lock().unwrap().len() + second.shared.sources.reads.failures.load(Relaxed) as usize,
        0
    );
    for wrong in [directory.path().to_owned(), directory.path().join("no/such/directory")] {
        assert!(matches!(build(&wrong), Err(Error::Io { .. })));
    }
}
