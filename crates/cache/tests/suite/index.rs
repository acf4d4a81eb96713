//! A tenant pays for the index memory that it causes: it counts against `memory.max`, `memory.stat`
//! shows it, and it takes nothing from what another tenant's `memory.min` protects.

use crate::common::{Disk, PAGE, Random, assert_same, page, pages, read};
use mglru_cache::{Advice, CachedFile, Error, Limits, OpenMode, PageCache, Tenant};
use std::fs;

/// The limit of the tenant that is watched.
const LIMIT: u64 = 1 << 20;
/// Pages of the neighbour, all of them protected.
const PROTECTED: usize = 9000;
/// Index memory that exists for the cache as a whole, and what rounding adds: a segment of leaves
/// and of directories each, for every batch of frees.
const SLACK: u64 = 256 << 10;

/// A cache of 48 MiB with tenant `t`, and with tenant `kept`, all of whose pages are in memory.
fn cache(disk: &Disk) -> (PageCache, CachedFile) {
    disk.set("kept", &pages(0..PROTECTED as u64));
    let cache = disk.builder(48 << 20).tenant("t", LIMIT).build().unwrap();
    let min_bytes = (PROTECTED + 200) as u64 * PAGE as u64;
    let kept = cache.add_tenant("kept", &Limits::default().with_min(min_bytes)).unwrap();
    let file = kept.open(disk.path("kept"), OpenMode::ReadOnly).unwrap();
    let mut buffer = vec![0; 64 * PAGE];
    for offset in (0..PROTECTED * PAGE).step_by(buffer.len()) {
        file.read_at(&mut buffer, offset as u64).unwrap();
    }
    assert_eq!(cached(&cache, "kept"), PROTECTED as u64, "all pages fit");
    (cache, file)
}

/// Cached file pages of a tenant.
fn cached(cache: &PageCache, tenant: &str) -> u64 {
    cache.tenant(tenant).unwrap().stats().counter("file").unwrap()
}

/// A line of `memory.stat`, in bytes.
fn stat(cache: &PageCache, tenant: &str, line: &str) -> u64 {
    let text = cache.control().read(&format!("{tenant}/memory.stat")).unwrap();
    let value = text.lines().find_map(|known| known.strip_prefix(line)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {line} in {text}")).parse().unwrap()
}

/// Asserts that `t` took no more than its limit, since metadata of the cache was `before` bytes,
/// and that the neighbour still has its pages.
#[track_caller]
fn assert_within_limit(cache: &PageCache, before: u64, kept: &CachedFile) {
    let grown = cache.stats().metadata_bytes.saturating_sub(before);
    let t = cache.tenant("t").unwrap().stats();
    let anon = t.counter("anon").unwrap();
    assert!(grown <= LIMIT + SLACK, "{grown} bytes of metadata, limit {LIMIT}: {t:?}");
    assert!(t.usage_pages * PAGE as u64 <= LIMIT && t.peak_pages * PAGE as u64 <= LIMIT, "{t:?}");
    let slab = stat(cache, "t", "slab");
    assert!(t.usage_pages >= t.counter("file").unwrap() + anon + slab / PAGE as u64, "{slab}: {t:?}");
    assert_eq!(stat(cache, "t", "slab_reclaimable") + stat(cache, "t", "slab_unreclaimable"), slab);
    assert_eq!(cached(cache, "kept"), PROTECTED as u64, "memory.min keeps the neighbour's pages");
    assert_same(&read(kept, 0, PAGE), &page(0), "page");
    cache.validate().unwrap();
}

/// Asserts that `t` has nothing left but pages in batches of arrivals, each less than 32.
#[track_caller]
fn assert_all_given_back(cache: &PageCache) {
    let (usage, slab) = (cache.tenant("t").unwrap().stats().usage_pages, stat(cache, "t", "slab"));
    assert!(usage < 64 && slab == 0, "{usage} pages, {slab} bytes");
    cache.validate().unwrap();
}

#[test]
fn a_sparse_file_is_read_within_the_limit() {
    let disk = Disk::threads();
    let (cache, kept) = cache(&disk);
    let len = 1u64 << 40;
    fs::File::create(disk.path("sparse")).unwrap().set_len(len).unwrap();
    let tenant = cache.tenant("t").unwrap();
    let file = tenant.open(disk.path("sparse"), OpenMode::ReadOnly).unwrap();
    file.advise(Advice::Random, 0..0).unwrap();
    let before = cache.stats().metadata_bytes;
    let mut random = Random(1);
    for step in 0..12_000 {
        let offset = random.below(len / PAGE as u64) * PAGE as u64;
        let bytes = file.read_at(&mut [1; 8], offset);
        assert!(matches!(bytes, Ok(8)), "read {step}: {bytes:?}");
    }
    assert_within_limit(&cache, before, &kept);
    assert!(cached(&cache, "t") > 32, "the index leaves room for pages: {:?}", tenant.stats());
    assert!(stat(&cache, "t", "slab_reclaimable") > 64 << 10);
    drop(file);
    assert_all_given_back(&cache);
    cache.validate().unwrap();
}

#[test]
fn anonymous_pages_come_and_go_within_the_limit() {
    let disk = Disk::threads();
    let (cache, kept) = cache(&disk);
    let tenant = cache.tenant("t").unwrap();
    let len = 4u64 << 40;
    let region = tenant.anonymous(len).unwrap();
    let before = cache.stats().metadata_bytes;
    let mut random = Random(2);
    for step in 0..12_000 {
        let offset = random.below(len / PAGE as u64) * PAGE as u64;
        region.store(offset, &[7]).unwrap_or_else(|error| panic!("store {step}: {error}"));
        region.discard(offset..offset + PAGE as u64).unwrap();
    }
    assert_within_limit(&cache, before, &kept);
    drop(region);
    assert_all_given_back(&cache);
}

#[test]
fn pages_far_apart_need_an_index_that_the_limit_bounds() {
    let disk = Disk::threads();
    let (cache, kept) = cache(&disk);
    let region = cache.tenant("t").unwrap().anonymous(4 << 40).unwrap();
    let before = cache.stats().metadata_bytes;
    // A page and a directory each: without swap, none of them can be reclaimed.
    let stored = (0..1000u64).take_while(|number| region.store(number << 28, &[1]).is_ok()).count();
    assert!((100..256).contains(&stored), "{stored} pages");
    assert_within_limit(&cache, before, &kept);
    region.discard(0..region.len()).unwrap();
    region.store(5 << 28, &[1]).unwrap();
}

#[test]
fn tenants_below_a_tenant_count_against_its_limit() {
    let disk = Disk::threads();
    let (cache, kept) = cache(&disk);
    let tenant = cache.tenant("t").unwrap();
    let before = cache.stats().metadata_bytes;
    let mut made = 0;
    let error = loop {
        match tenant.add_child(&format!("child{made}"), &Limits::default()) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 2000, "no limit holds");
    };
    assert!(matches!(&error, Error::OutOfMemory(report) if report.tenant == "t"), "{error}");
    assert!(made > 100, "{made} children");
    assert_within_limit(&cache, before, &kept);
    assert!(stat(&cache, "t", "slab_unreclaimable") > LIMIT / 2);
    for number in 0..made {
        cache.remove_tenant(&format!("t/child{number}")).unwrap();
    }
    assert_all_given_back(&cache);
}

fn clone_until_refused(file: &CachedFile, most: usize) -> (Vec<CachedFile>, Error) {
    let mut clones = Vec::new();
    loop {
        match file.try_clone() {
            Ok(clone) => clones.push(clone),
            Err(error) => return (clones, error),
        }
        assert!(clones.len() < most, "no limit holds");
    }
}

/// Each handle has counters of its own. 300,000 clones once took 163 MB outside of the budget.
#[test]
fn cloned_handles_count() {
    let disk = Disk::threads();
    let (cache, kept) = cache(&disk);
    let tenant = cache.tenant("t").unwrap();
    let file = tenant.open(disk.path("f"), OpenMode::Create).unwrap();
    let before = cache.stats().metadata_bytes;
    let (clones, error) = clone_until_refused(&file, 10_000);
    assert!(matches!(&error, Error::OutOfMemory(report) if report.tenant == "t"), "{error}");
    assert!(clones.len() > 1000, "{} clones", clones.len());
    assert_within_limit(&cache, before, &kept);
    assert!(cache.stats().metadata_bytes - before > (clones.len() * size_of::<CachedFile>()) as u64);
    drop(clones);
    assert!(tenant.stats().usage_pages <= 1, "{:?}", tenant.stats());
    assert!(cache.stats().metadata_bytes < before + SLACK);
    // Without a tenant, the budget holds.
    let (_clones, error) = clone_until_refused(&kept, 100_000);
    assert!(matches!(error, Error::TooManyFiles { .. } | Error::OutOfMemory(_)), "{error}");
    cache.validate().unwrap();
}

/// The parent pays for the index that a removed tenant made, and the number of the tenant is used
/// again: 300 tenants that come and go leave no trace but their pages.
#[test]
fn the_index_of_removed_tenants_passes_to_their_parent() {
    let disk = Disk::threads();
    let len = 300u64 << 28;
    fs::File::create(disk.path("sparse")).unwrap().set_len(len).unwrap();
    let cache = disk.builder(48 << 20).tenant("t", 8 << 20).build().unwrap();
    let tenant = cache.tenant("t").unwrap();
    let open = |tenant: &Tenant| {
        let file = tenant.open(disk.path("sparse"), OpenMode::ReadOnly).unwrap();
        file.advise(Advice::Random, 0..0).unwrap();
        file
    };
    let file = open(&tenant);
    let before = cache.stats().metadata_bytes;
    for number in 0..300 {
        let child = tenant.add_child("child", &Limits::default()).unwrap();
        open(&child).read_at(&mut [1; 8], number << 28).unwrap();
        drop(child);
        let slab = stat(&cache, "t", "slab_reclaimable");
        cache.remove_tenant("t/child").unwrap();
        assert_eq!(stat(&cache, "t", "slab_reclaimable"), slab, "after {number}");
    }
    assert!(stat(&cache, "t", "slab_reclaimable") >= 300 * 2500, "each has a leaf and a directory");
    let usage = tenant.stats().usage_pages;
    assert!(usage >= 300 + 300 * 2500 / PAGE as u64, "{usage} pages");
    let grown = cache.stats().metadata_bytes - before;
    assert!(grown < 300 * 2588 + 150 * 2376 + SLACK, "{grown} bytes: numbers are not used again");
    cache.validate().unwrap();
    drop(file);
    assert_all_given_back(&cache);
}

/// docs/tenants.md has these sizes.
#[test]
fn metadata_has_the_documented_sizes() {
    let disk = Disk::threads();
    let cache = disk.builder(16 << 20).tenant("t", 8 << 20).build().unwrap();
    let tenant = cache.tenant("t").unwrap();
    let slab = || stat(&cache, "t", "slab_reclaimable") + stat(&cache, "t", "slab_unreclaimable");
    let mut before = 0;
    let mut added = || slab() - std::mem::replace(&mut before, slab());
    let file = tenant.open(disk.path("f"), OpenMode::Create).unwrap();
    let both = added();
    let _clone = file.try_clone().unwrap();
    let handle = added();
    let _region = tenant.anonymous(1 << 40).unwrap();
    let region = added();
    let _child = tenant.add_child("child", &Limits::default()).unwrap();
    let child = added();
    file.write_at(&[1], 0).unwrap();
    let leaf_and_directory = added();
    let documented =
        [("open file", both - handle), ("handle, map or clone", handle), ("anonymous region", region)];
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tenants.md")).unwrap();
    for (what, bytes) in documented {
        let row = page.lines().find_map(|line| line.strip_prefix("| ")?.strip_prefix(what)).unwrap();
        let about = row.trim_start_matches(" | about ").split(' ').next().unwrap().replace(',', "");
        let about: u64 = about.parse().unwrap_or_else(|_| panic!("{row}"));
        // Sizes of locks and lists are those of the platform.
        assert!(bytes.abs_diff(about) <= about / 10, "{what}: {bytes} bytes, the page has {about}");
    }
    assert_eq!(leaf_and_directory, 524 + 2064, "{page}");
    assert!(page.contains("| 524 |") && page.contains("| 2,064 |"));
    assert_eq!(child, 2376 + 4096, "as the page has it");
}

/// A mapped file has its slots side by side. It pays for them until it is forgotten, and its pages
/// come, change and go as those of any file.
#[test]
fn a_mapped_file_pays_for_its_slots() {
    const PAGES: u64 = 2000;
    let disk = Disk::threads();
    let (cache, kept) = cache(&disk);
    disk.set("mapped", &pages(0..PAGES));
    let tenant = cache.tenant("t").unwrap();
    let file = tenant.open(disk.path("mapped"), OpenMode::ReadWrite).unwrap();
    let before = stat(&cache, "t", "slab_unreclaimable");
    let map = file.map().unwrap();
    let paid = stat(&cache, "t", "slab_unreclaimable") - before;
    assert!((PAGES * 8..PAGES * 9).contains(&paid), "{paid} bytes");
    let second = file.map().unwrap();
    assert!(stat(&cache, "t", "slab_unreclaimable") - before < 2 * PAGES * 8, "paid for twice");

    let metadata = cache.stats().metadata_bytes;
    let word = |index: u64| u64::from_ne_bytes(*page(index).first_chunk().unwrap());
    let mut random = Random(3);
    for step in 0..20_000 {
        // Some pages often, so that they are hits, and the others evict each other.
        let index = if step % 4 == 0 { random.below(PAGES) } else { random.below(20) };
        let map = if step % 2 == 0 { &map } else { &second };
        assert_eq!(map.load_value::<u64>(index * PAGE as u64).unwrap(), word(index), "page {index}");
        let half: u32 = map.load_value(index * PAGE as u64 + 4).unwrap();
        assert_eq!(half, (word(index) >> 32) as u32);
    }
    assert_within_limit(&cache, metadata, &kept);

    map.store(7 * PAGE as u64, &[1; 8]).unwrap();
    // Settled by the first load, a page is read without a look at the length, unless it is cut.
    for _ in 0..3 {
        assert_eq!(map.load_value::<[u8; 8]>(7 * PAGE as u64).unwrap(), [1; 8]);
    }
    file.truncate(7 * PAGE as u64 + 3).unwrap();
    for _ in 0..3 {
        let beyond = map.load_value::<u64>(7 * PAGE as u64);
        assert!(matches!(beyond, Err(Error::BeyondEnd { .. })), "{beyond:?}");
        assert_eq!(map.load_value::<[u8; 3]>(7 * PAGE as u64).unwrap(), [1; 3]);
    }
    assert!(map.load_value::<u8>(8 * PAGE as u64).is_err());
    assert!(map.load_value::<u8>(u64::MAX - 1).is_err());
    // Beyond the slots, too.
    let end = 2 * PAGES * PAGE as u64;
    file.truncate(end).unwrap();
    assert_eq!(map.load_value::<[u8; 4]>(7 * PAGE as u64).unwrap(), [1, 1, 1, 0]);
    assert_eq!(map.load_value::<u64>(end - 8).unwrap(), 0);
    let mut words = [[9; 8]; 3];
    map.load_many(&[0, 8 * PAGE as u64, end - 8], &mut words).unwrap();
    assert_eq!(words, [word(0).to_ne_bytes(), [0; 8], [0; 8]]);
    file.sync_data().unwrap();
    drop((map, second, file));
    assert_all_given_back(&cache);
}

/// A closure over a page runs again until the page did not change, and in the end writers wait for
/// it.
#[test]
fn a_page_that_changes_is_read_again() {
    let disk = Disk::threads();
    let cache = disk.builder(8 << 20).build().unwrap();
    disk.set("nodes", &[&page(0)[..], &page(1)[..], &[7; 100]].concat());
    let file = cache.open(disk.path("nodes"), OpenMode::ReadWrite).unwrap();
    let map = file.map().unwrap();
    let word = |index: u64| u64::from_ne_bytes(*page(index).first_chunk().unwrap());

    // Missing, then in memory, then settled.
    for _ in 0..3 {
        let first =
            map.read_page(1, |page| (page.len(), page.load_value::<u64>(0), page.load_value::<u64>(4089)));
        assert_eq!(first.unwrap(), (PAGE, Some(word(1)), None));
        let mut end = [0; 40];
        let last =
            map.read_page(2, |page| (page.len(), page.load(60, &mut end), page.load(61, &mut [0; 40])));
        assert_eq!((last.unwrap(), end), ((100, Some(()), None), [7; 40]));
        assert!(matches!(map.read_page(3, |_| ()), Err(Error::BeyondEnd { .. })));
    }

    let mut runs = 0;
    let seen = map.read_page(0, |page| {
        runs += 1;
        let seen = page.load_value::<u64>(0);
        let stored = map.store(0, &u64::to_ne_bytes(runs));
        (seen, stored.is_err_and(|error| matches!(error, Error::OwnGuard { .. })))
    });
    assert_eq!(seen.unwrap(), (Some(runs - 1), true), "the last run has a guard");
    assert!(runs > 2, "{runs}");

    let mut cursor = map.cursor();
    for round in 0..3 {
        map.store(8, &u64::to_ne_bytes(round)).unwrap();
        assert_eq!(cursor.load_value::<u64>(8).unwrap(), round);
        assert_eq!(cursor.load_value::<u64>(8).unwrap(), round);
        assert_eq!(cursor.load_value::<u64>(PAGE as u64).unwrap(), word(1));
        let second = u64::from_ne_bytes(page(1)[8..16].try_into().unwrap());
        assert_eq!(cursor.load_value::<u64>(PAGE as u64 + 8).unwrap(), second);
    }
    file.truncate(PAGE as u64 + 4).unwrap();
    assert!(matches!(cursor.load_value::<u64>(PAGE as u64), Err(Error::BeyondEnd { .. })));
    assert_eq!(cursor.load_value::<u32>(PAGE as u64).unwrap(), word(1) as u32);
}

/// Two words of a page are always written together: a reader never gets one without the other.
#[test]
fn a_view_is_of_one_moment() {
    const WRITES: u64 = 3000;
    let disk = Disk::threads();
    let cache = disk.builder(8 << 20).build().unwrap();
    disk.set("node", &[0; PAGE]);
    let file = cache.open(disk.path("node"), OpenMode::ReadWrite).unwrap();
    let map = file.map().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for write in 1..=WRITES {
                map.store(16, &[write.to_ne_bytes(), write.to_ne_bytes()].concat()).unwrap();
            }
        });
        let mut last = 0;
        while last < WRITES {
            let words = map.read_page(0, |page| [page.load_value(16), page.load_value(24)]).unwrap();
            let [Some(one), Some(other)]: [Option<u64>; 2] = words else { panic!("{words:?}") };
            assert_eq!(one, other);
            assert!(one >= last, "{one} after {last}");
            last = one;
        }
    });
}
