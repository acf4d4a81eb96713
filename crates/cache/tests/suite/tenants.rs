//! Tenants as a tree that changes while the cache runs: limits, control files, and the pages of
//! removed tenants.

use crate::common::{Disk, PAGE, Random, assert_same, counter, memory, page, pages, read};
use mglru_cache::{Advice, CachedFile, Error, Limits, Map, OpenMode, PageCache};
use mglru_core::{Errno, Lru, Mechanisms, Preset, Switch};

const MIB: u64 = 1 << 20;

/// A cache with a budget of `budget` bytes, and a file of `file_pages` pages.
fn cache(budget: u64, file_pages: u64) -> (Disk, PageCache) {
    let (disk, _files) = memory(1);
    disk.set("f", &pages(0..file_pages));
    let cache = disk.builder(budget).build().unwrap();
    (disk, cache)
}

fn open(cache: &PageCache, tenant: &str) -> CachedFile {
    cache.tenant(tenant).unwrap().open("f", OpenMode::ReadWrite).unwrap()
}

fn read_all(file: &CachedFile, range: std::ops::Range<u64>) {
    for number in range {
        assert_same(&read(file, number as usize * PAGE, PAGE), &page(number), number);
    }
}

fn usage(cache: &PageCache, tenant: &str) -> u64 {
    cache.tenant(tenant).unwrap().stats().usage_pages
}

fn errno(result: Result<impl std::fmt::Debug, Error>) -> &'static str {
    match result.unwrap_err() {
        Error::Control(error) => error.errno.name(),
        other => panic!("{other:?}"),
    }
}

/// The value of a line of a control file.
fn line(cache: &PageCache, path: &str, key: &str) -> u64 {
    let text = cache.control().read(path).unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {key} in {text}")).parse().unwrap()
}

#[test]
fn tenants_are_a_tree() {
    let (disk, _files) = memory(1);
    disk.set("f", &pages(0..100));
    let builder = disk.builder(8 * MIB).tenant("a", 4 * MIB).tenant("a/b", 2 * MIB);
    let cache = builder.build().unwrap();
    let c = cache.tenant("a/b").unwrap().add_child("c", &Limits::default()).unwrap();
    assert_eq!((c.name(), cache.tenant("a").unwrap().child("b/c").unwrap().name()), ("a/b/c", "a/b/c"));
    let file = c.open("f", OpenMode::ReadOnly).unwrap();
    read_all(&file, 0..50);
    let used = usage(&cache, "a/b/c");
    let [file_bytes, slab_bytes] = ["file", "slab"].map(|key| line(&cache, "a/b/c/memory.stat", key));
    assert!(file_bytes >= 50 * PAGE as u64 && used == (file_bytes + slab_bytes) / PAGE as u64);
    // Each tenant takes memory from its parent's limit.
    assert_eq!([usage(&cache, "a/b"), usage(&cache, "a")], [used + 1, used + 2]);
    assert_eq!(usage(&cache, ""), 0, "the root pays only for its own");
    assert_eq!(line(&cache, "a/memory.stat", "file"), file_bytes);
    assert!(line(&cache, "a/memory.stat", "slab_unreclaimable") > 4096);
    assert_eq!(cache.control().list("a").unwrap().last().unwrap(), "b/");
    cache.validate().unwrap();
}

#[test]
fn adding_or_removing_a_tenant_reports_why_it_failed() {
    let (disk, cache) = cache(4 * MIB, 1);
    cache.add_tenant("a", &Limits::default()).unwrap();
    cache.add_tenant("/a/b", &Limits::default()).unwrap();
    let add = |path: &str| cache.add_tenant(path, &Limits::default()).unwrap_err().to_string();
    assert!(add("a").contains("exists already") && add("a/b").contains("exists already"));
    assert!(add("none/x").contains("there is no tenant 'none'"));
    assert!(add("a/").contains("it is empty") && add("").contains("it is empty"));
    assert!(add("a/memory.max").contains("control files") && add("vmstat").contains("control files"));
    assert!(add("..").contains("'..' cannot be the name"));
    let remove = |path: &str| cache.remove_tenant(path).unwrap_err().to_string();
    assert!(remove("a").contains("below it") && remove("").contains("the root"));
    assert!(remove("a/c").contains("there is no tenant 'a/c'"));
    cache.remove_tenant("a/b").unwrap();
    cache.remove_tenant("a").unwrap();
    assert!(matches!(cache.tenant("a"), Err(Error::NoSuchTenant(path)) if path == "a"));
    assert_eq!(cache.stats().tenants, 1);
    // A parent must be named before its children.
    let error = disk.builder(4 * MIB).tenant("x/y", MIB).build().err().unwrap();
    assert!(error.to_string().contains("there is no tenant 'x'"), "{error}");
    cache.validate().unwrap();
}

/// Files stay open when their tenant is removed: their old and new pages are charged to the parent.
#[test]
fn files_outlive_their_tenant() {
    let (_disk, cache) = cache(16 * MIB, 1000);
    cache.add_tenant("a", &Limits::max(4 * MIB)).unwrap();
    let b = cache.add_tenant("a/b", &Limits::max(2 * MIB)).unwrap();
    let file = open(&cache, "a/b");
    let map = file.map().unwrap();
    read_all(&file, 0..200);
    let mut word = [0; 8];
    map.load(10 * PAGE as u64, &mut word).unwrap();
    file.write_at(&page(5000), 3 * PAGE as u64).unwrap();
    let before = usage(&cache, "a");
    cache.remove_tenant("a/b").unwrap();
    assert!(!b.is_online());
    assert_eq!(usage(&cache, "a"), before);
    cache.validate().unwrap();
    assert!(
        matches!(b.set_low(1), Err(Error::Tenant(_))) && matches!(b.set_max(None), Err(Error::Tenant(_)))
    );
    // More than the parent's limit, so that pages are evicted.
    read_all(&file, 200..1000);
    assert_same(&read(&file, 3 * PAGE, PAGE), &page(5000), "written before");
    map.load(700 * PAGE as u64, &mut word).unwrap();
    assert_same(&word, &page(700)[..8], "through the map");
    let other = b.open("f", OpenMode::ReadOnly).unwrap();
    read_all(&other, 100..200);
    assert!(usage(&cache, "a") <= 1024 && usage(&cache, "a") > 900);
    cache.validate().unwrap();
    file.sync_data().unwrap();
    // The name can be reused at once.
    cache.add_tenant("a/b", &Limits::default()).unwrap();
    let again = open(&cache, "a/b");
    assert_ne!(again.memcg(), file.memcg());
    drop((map, file, other, b));
    cache.validate().unwrap();
    cache.remove_tenant("a/b").unwrap();
    drop(again);
    cache.remove_tenant("a").unwrap();
    cache.validate().unwrap();
}

/// New pages are charged to the other tenant; old ones stay charged.
#[test]
fn handles_move_to_other_tenants() {
    let (_disk, cache) = cache(8 * MIB, 400);
    for name in ["a", "b"] {
        cache.add_tenant(name, &Limits::default()).unwrap();
    }
    let mut file = open(&cache, "a");
    let mut region = cache.tenant("a").unwrap().anonymous(100 * PAGE as u64).unwrap();
    read_all(&file, 0..100);
    region.store(0, &[7; 10 * PAGE]).unwrap();
    let (a, b) = (cache.tenant("a").unwrap(), cache.tenant("b").unwrap());
    let before = usage(&cache, "a");
    file.move_to(&b).unwrap();
    region.move_to(&b).unwrap();
    read_all(&file, 200..300);
    region.store(20 * PAGE as u64, &[8; 10 * PAGE]).unwrap();
    assert_eq!((usage(&cache, "a"), counter(&cache, "b", "anon")), (before, 10));
    assert!(
        usage(&cache, "b") >= 110 && file.memcg() != cache.open("f", OpenMode::ReadOnly).unwrap().memcg()
    );
    assert!(a.stats().hits + a.stats().misses == 100 && b.stats().hits + b.stats().misses == 100);
    let (_other_disk, other) = self::cache(4 * MIB, 1);
    assert!(matches!(file.move_to(&other.tenant("").unwrap()), Err(Error::ForeignTenant(_))));
    let mut bytes = vec![0; 10 * PAGE];
    region.load(0, &mut bytes).unwrap();
    assert_same(&bytes, &[7; 10 * PAGE], "anonymous");
    cache.remove_tenant("a").unwrap();
    cache.remove_tenant("b").unwrap();
    read_all(&file, 0..400);
    cache.validate().unwrap();
}

/// A map keeps its mapped pages, whether it was its tenant's only map or not.
#[test]
fn maps_move_to_other_tenants() {
    let (_disk, cache) = cache(8 * MIB, 400);
    for name in ["a", "b"] {
        cache.add_tenant(name, &Limits::default()).unwrap();
    }
    let file = open(&cache, "a");
    // Disables reads around a miss, so that each page is charged to the tenant that loads it.
    file.advise(Advice::Random, 0..0).unwrap();
    let (b, root) = (cache.tenant("b").unwrap(), cache.tenant("").unwrap());
    let load = |map: &Map, pages: std::ops::Range<u64>| {
        let mut bytes = vec![0; PAGE];
        for number in pages {
            map.load(number * PAGE as u64, &mut bytes).unwrap();
            assert_same(&bytes, &page(number), number);
        }
    };
    let (mut first, mut second) = (file.map().unwrap(), file.map().unwrap());
    load(&first, 0..100);
    let before = usage(&cache, "a");
    for map in [&mut first, &mut second] {
        map.move_to(&b).unwrap();
        assert_eq!(counter(&cache, "a", "file_mapped"), 100, "still mapped, and charged where they were");
    }
    load(&first, 100..150);
    load(&second, 0..150);
    assert_eq!(["a", "b"].map(|tenant| counter(&cache, tenant, "file_mapped")), [100, 50]);
    assert_eq!(usage(&cache, "a"), before);
    second.move_to(&root).unwrap();
    drop(first);
    load(&second, 140..200);
    let (_other_disk, other) = self::cache(4 * MIB, 1);
    assert!(matches!(second.move_to(&other.tenant("").unwrap()), Err(Error::ForeignTenant(_))));
    drop((second, file, b, root));
    cache.remove_tenant("a").unwrap();
    cache.remove_tenant("b").unwrap();
    cache.validate().unwrap();
}

/// As in Linux, a tenant whose `memory.max` is 0 gets nothing. It had a page when it was made so,
/// and none when its limit was lowered to 0.
#[test]
fn a_limit_of_nothing_allows_nothing() {
    let (disk, _files) = memory(1);
    disk.set("f", &pages(0..4));
    let cache = disk.builder(8 * MIB).tenant("none", 0).build().unwrap();
    let tenant = cache.tenant("none").unwrap();
    assert_eq!(cache.control().read("none/memory.max").unwrap(), "0\n");
    let error = tenant.open("f", OpenMode::ReadOnly).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error:?}");
    tenant.set_max(Some(MIB)).unwrap();
    let file = open(&cache, "none");
    read_all(&file, 0..4);
    tenant.set_max(Some(0)).unwrap();
    assert!(matches!(file.read_at(&mut [0; 8], 0).unwrap_err(), Error::OutOfMemory(_)));
}

/// Limits below usage take effect at once, by setter and by control file. Usage that cannot be
/// reclaimed is reported.
#[test]
fn limits_are_lowered_while_pages_are_there() {
    let (_disk, cache) = cache(16 * MIB, 2000);
    let a = cache.add_tenant("a", &Limits::default()).unwrap();
    let file = open(&cache, "a");
    read_all(&file, 0..1500);
    a.set_max(Some(4 * MIB)).unwrap();
    assert!(usage(&cache, "a") <= 1024);
    cache.control().write("a/memory.max", "2M").unwrap();
    assert!(usage(&cache, "a") <= 512);
    a.set_high(Some(MIB)).unwrap();
    assert!(usage(&cache, "a") <= 256);
    assert_eq!(cache.control().read("a/memory.high").unwrap(), "1048576\n");
    let stats = a.stats();
    assert_eq!((stats.high_pages, stats.max_pages), (Some(256), Some(512)));
    cache.control().write("a/memory.reclaim", "256K").unwrap();
    assert_eq!(errno(cache.control().write("a/memory.reclaim", "64M")), "EAGAIN");
    assert_eq!(errno(cache.control().write("a/memory.max", "lots")), "EINVAL");
    assert_eq!(errno(cache.control().read("b/memory.max")), "ENOENT");
    assert!(matches!(cache.tenant("").unwrap().set_max(Some(MIB)), Err(Error::RootHasNoLimits)));
    // Lent pages stay.
    a.set_high(None).unwrap();
    let map = file.map().unwrap();
    let guards: Vec<_> = (0..100).map(|index| map.page(index).unwrap()).collect();
    a.set_max(Some(10 * PAGE as u64)).unwrap();
    assert!(usage(&cache, "a") >= 100 && line(&cache, "a/memory.events", "oom") == 1);
    let error = file.read_at(&mut [0; 10], 1900 * PAGE as u64).unwrap_err();
    assert!(matches!(&error, Error::OutOfMemory(report) if report.tenant == "a"), "{error}");
    drop(guards);
    read_all(&file, 1900..2000);
    assert!(usage(&cache, "a") <= 10 && line(&cache, "a/memory.events", "max") > 0);
    cache.validate().unwrap();
}

/// A floor keeps a tenant's pages while another tenant scans; without it they are evicted. The
/// kernel's memcg LRU takes pages below `memory.low` at its second visit; `subtree_lru` does not.
#[test]
fn a_floor_keeps_pages() {
    let kept = |low: u64| {
        let (disk, _files) = memory(1);
        disk.set("f", &pages(0..3000));
        let mechanisms = Mechanisms::compose(Preset::Default, &[Switch::SubtreeLru], &[]).unwrap();
        let cache = disk.builder(4 * MIB).mechanisms(mechanisms).build().unwrap();
        let a = cache.add_tenant("a", &Limits::default().with_low(low)).unwrap();
        cache.add_tenant("b", &Limits::default()).unwrap();
        let file = open(&cache, "a");
        read_all(&file, 0..200);
        let used = a.stats().usage_pages;
        read_all(&open(&cache, "b"), 300..3000);
        cache.validate().unwrap();
        (used, a.stats().usage_pages)
    };
    let (used, left) = kept(2 * MIB);
    assert_eq!(left, used, "nothing of a is taken");
    let (used, left) = kept(0);
    assert!(left < used, "{left} of {used}");
}

/// On real files: a tenant that uses 512 pages at random keeps them beside one that reads a file
/// much larger than memory, through descriptors and through a map.
#[test]
fn a_tenant_in_use_keeps_its_pages_beside_a_stream() {
    const USED: u64 = 512;
    for mapped in [false, true] {
        let disk = Disk::threads();
        disk.set("used", &pages(0..USED));
        disk.set("stream", &pages(0..8000));
        let cache = disk.builder(8 * MIB).build().unwrap();
        let [used, stream] = ["used", "stream"].map(|name| {
            let tenant = cache.add_tenant(name, &Limits::default()).unwrap();
            tenant.open(disk.path(name), OpenMode::ReadOnly).unwrap()
        });
        let (map, mut random, mut word) = (used.map().unwrap(), Random(1), [0; 8]);
        for number in 0..8000 {
            // Ten accesses for each page of the stream: each page is used 20 times per memory.
            for access in 0..10 {
                let at = if number * 10 + access < USED { number * 10 + access } else { random.below(USED) };
                if mapped {
                    map.load(at * PAGE as u64, &mut word).unwrap();
                    assert_same(&word, &page(at)[..8], at);
                } else {
                    assert_same(&read(&used, at as usize * PAGE, PAGE), &page(at), at);
                }
            }
            assert_same(&read(&stream, number as usize * PAGE, PAGE), &page(number), number);
        }
        let stats = |tenant: &str| cache.tenant(tenant).unwrap().stats();
        let (of_used, of_stream) = (stats("used"), stats("stream"));
        assert_eq!(of_stream.hits + of_stream.misses, 8000);
        let stolen = ["pgsteal_kswapd", "pgsteal_direct"].map(|name| of_stream.counter(name).unwrap());
        assert!(stolen.iter().sum::<u64>() > 5000, "the stream passes through memory: {stolen:?}");
        assert!(
            of_used.misses <= USED * 102 / 100,
            "mapped {mapped}: {} misses of {USED} pages",
            of_used.misses
        );
        cache.validate().unwrap();
    }
}

/// A tenant above `memory.high` is throttled, and the event is counted.
#[test]
fn a_tenant_above_high_is_throttled() {
    let (_disk, cache) = cache(16 * MIB, 2000);
    let a = cache.add_tenant("a", &Limits::default().with_high(MIB)).unwrap();
    let file = open(&cache, "a");
    read_all(&file, 0..2000);
    assert!(a.stats().usage_pages <= 256 + 64, "{}", a.stats().usage_pages);
    assert!(line(&cache, "a/memory.events", "high") > 10);
    assert_eq!(line(&cache, "a/memory.events", "max"), 0);
    cache.add_tenant("b", &Limits::default()).unwrap();
    let stalled = ["a/memory.pressure", "memory.pressure", "b/memory.pressure"].map(|path| {
        let text = cache.control().read(path).unwrap();
        let total = text.strip_prefix("some avg10=").and_then(|text| text.trim_end().split_once("total="));
        total.unwrap_or_else(|| panic!("{text}")).1.parse::<u64>().unwrap()
    });
    assert!(stalled[0] > 0 && stalled[0] == stalled[1] && stalled[2] == 0, "{stalled:?}");
    assert_eq!(errno(cache.control().write("a/memory.pressure", "some 150000 1000000")), "EOPNOTSUPP");
}

/// Tenants' metadata is charged to the budget and released with them.
#[test]
fn tenants_are_paid_for() {
    let (_disk, cache) = cache(4 * MIB, 100);
    let mut tenants = Vec::new();
    let error = loop {
        match cache.add_tenant(&format!("t{}", tenants.len()), &Limits::default()) {
            Ok(tenant) => tenants.push(tenant),
            Err(error) => break error,
        }
        if tenants.len() % 100 == 0 {
            cache.validate().unwrap();
        }
    };
    assert!(matches!(error, Error::TooManyTenants { .. }) && tenants.len() > 500, "{error}");
    let stats = cache.stats();
    assert!(stats.frame_bytes + stats.metadata_bytes <= stats.budget_bytes, "{stats:?}");
    assert_eq!(stats.tenants, tenants.len() + 1, "the last one was taken back");
    // After these are removed and released, new tenants reuse their memory.
    for tenant in tenants.drain(200..) {
        cache.remove_tenant(tenant.name()).unwrap();
    }
    for round in 0..3 {
        for (at, tenant) in tenants.iter_mut().enumerate().take(100) {
            cache.remove_tenant(tenant.name()).unwrap();
            let added = cache.add_tenant(&format!("r{round}-{at}"), &Limits::default());
            *tenant = added.unwrap_or_else(|error| panic!("round {round}, {at}: {error}"));
        }
    }
    read_all(&open(&cache, tenants[7].name()), 0..100);
    cache.validate().unwrap();
}

/// [book: control-files]: complete control files, as read by a user.
#[test]
fn control_files_have_the_kernels_errors() {
    let (_disk, cache) = cache(4 * MIB, 10);
    cache.add_tenant("a", &Limits::default()).unwrap();
    let control = cache.control();
    assert_eq!(errno(control.read("a/memory.reclaim")), "EINVAL");
    assert_eq!(errno(control.write("a/memory.current", "1")), "EINVAL");
    assert_eq!(errno(control.read("memory.current")), "ENOENT");
    assert_eq!(errno(control.list("nobody")), "ENOENT");
    assert!(control.read("lru_gen").unwrap().contains(" /a\n node     0\n"));
    let error = control.read("a/memory.none").unwrap_err();
    assert_eq!(error.to_string(), "'a/memory.none': there is no control file 'memory.none' (ENOENT)");
    let io = std::io::Error::from(error);
    assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(Errno::NoEntry.number(), libc::ENOENT);
    let numbers = [Errno::Io, Errno::Again, Errno::Exists, Errno::Invalid, Errno::Range, Errno::NotSupported];
    let systems = [libc::EIO, libc::EAGAIN, libc::EEXIST, libc::EINVAL, libc::ERANGE, libc::EOPNOTSUPP];
    assert_eq!(numbers.map(Errno::number), systems);
}

#[test]
fn the_policy_is_switched_while_threads_read() {
    let (_disk, cache) = cache(16 * MIB, 3000);
    let file = open(&cache, "");
    let control = cache.control();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [1, 2].map(|seed| {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let mut random = crate::common::Random(seed);
                loop {
                    let first = random.below(2900);
                    read_all(file, first..first + 20);
                    if done.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                }
            })
        });
        for _ in 0..20 {
            control.write("lru_gen/enabled", "n").unwrap();
            assert_eq!(control.read("lru_gen/enabled").unwrap(), "0x0000\n");
            control.write("lru_gen/enabled", "7").unwrap();
            assert_eq!(control.read("lru_gen/enabled").unwrap(), "0x0007\n");
        }
        control.write("lru_gen/enabled", "n").unwrap();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    cache.validate().unwrap();
    assert!(line(&cache, "memory.stat", "file") > 0);
}

/// The cache's statistics equal the sum over all tenants, including pages of removed ones, but do
/// not iterate over tenants.
#[test]
fn the_whole_is_the_sum_of_its_tenants() {
    let (_disk, cache) = cache(16 * MIB, 1000);
    let mut files = Vec::new();
    for name in ["a", "a/b", "c"] {
        cache.add_tenant(name, &Limits::default()).unwrap();
        files.push(open(&cache, name));
    }
    for (file, first) in files.iter().zip([0, 200, 400]) {
        read_all(file, first..first + 100);
    }
    let region = cache.tenant("c").unwrap().anonymous(70 * PAGE as u64).unwrap();
    region.store(0, &[5; 70 * PAGE]).unwrap();
    (0..20).for_each(|number| _ = files[1].write_at(&page(number), number * PAGE as u64).unwrap());
    cache.remove_tenant("c").unwrap();
    // Reclaim first drains the per-CPU batches.
    cache.control().write("memory.reclaim", "4K").unwrap();
    let stats = cache.stats();
    let sum_of =
        |name| cache.tenants().iter().map(|tenant| tenant.stats().counter(name).unwrap()).sum::<u64>();
    assert_eq!((stats.tenants, cache.tenants().len()), (3, 3), "with the root");
    assert!(stats.file_pages > 250 && stats.anon_pages >= 70, "{stats:?}");
    assert_eq!((stats.file_pages, stats.anon_pages), (sum_of("file"), sum_of("anon")));
    // In this order: a page whose write begins meanwhile is then not counted twice.
    assert!(stats.pending_pages <= 20 && sum_of("file_writeback") + sum_of("file_dirty") <= 20);
    assert_eq!(cache.tenants()[0].name(), "", "the root is the first");
    cache.validate().unwrap();
}

/// A floor above `memory.max` protects only up to that limit and does not prevent its enforcement.
/// If a child's floor exceeds its parent's limit, nothing can be reclaimed.
#[test]
fn a_floor_above_the_limit() {
    let (_disk, cache) = cache(16 * MIB, 2000);
    let limits = Limits::max(MIB).with_min(8 * MIB);
    cache.add_tenant("a", &limits).unwrap();
    read_all(&open(&cache, "a"), 0..1000);
    assert!(usage(&cache, "a") <= 256 && line(&cache, "a/memory.events", "oom") == 0);
    assert_eq!(cache.control().read("a/memory.min").unwrap(), "8388608\n", "as it was written");

    cache.add_tenant("b", &Limits::max(MIB)).unwrap();
    cache.add_tenant("b/x", &Limits::default().with_min(4 * MIB)).unwrap();
    let file = open(&cache, "b/x");
    let error = (0..1000).find_map(|at| file.read_at(&mut [0; 8], at * PAGE as u64).err()).unwrap();
    let Error::OutOfMemory(report) = &error else { panic!("{error}") };
    assert!(report.tenant == "b" && error.to_string().contains("memory.min"), "{error}");
    assert!(line(&cache, "b/memory.events", "max") > 0 && line(&cache, "b/memory.events", "oom") > 0);
    cache.tenant("b/x").unwrap().set_min(0).unwrap();
    read_all(&file, 0..1000);
    cache.validate().unwrap();
}

/// Removes a tenant while its pages are lent, dirty and mapped, and then moves its handles away and
/// back.
#[test]
fn a_tenant_goes_while_its_pages_are_in_use() {
    let (disk, cache) = cache(8 * MIB, 400);
    cache.add_tenant("a", &Limits::default()).unwrap();
    let b = cache.add_tenant("a/b", &Limits::default()).unwrap();
    let mut file = open(&cache, "a/b");
    let map = file.map().unwrap();
    let lent: Vec<_> = (0..50).map(|index| map.page(index).unwrap()).collect();
    (100..150).for_each(|number| _ = file.write_at(&page(7), number * PAGE as u64).unwrap());
    cache.remove_tenant("a/b").unwrap();
    cache.validate().unwrap();
    assert!(usage(&cache, "a") >= 100);
    lent.iter().zip(0..).for_each(|(lent, number)| assert_same(&lent[..], &page(number), number));
    // A handle moved to a removed tenant charges the parent.
    file.move_to(&b).unwrap();
    let before = usage(&cache, "a");
    read_all(&file, 200..300);
    assert!(usage(&cache, "a") > before);
    cache.remove_tenant("a").unwrap();
    file.move_to(&cache.tenant("").unwrap()).unwrap();
    drop(lent);
    assert!(cache.control().write("memory.reclaim", "600K").is_ok());
    read_all(&file, 0..100);
    file.sync_data().unwrap();
    assert_same(&disk.contents("f")[100 * PAGE..101 * PAGE], &page(7), "written before");
    drop((map, file, b));
    cache.validate().unwrap();
    // A path starts at the root, regardless of extra slashes, and a tenant is never created below a
    // missing parent.
    for path in ["a/b", "a//b/", "/", "x/y"] {
        assert!(cache.add_tenant(path, &Limits::default()).is_err(), "{path}");
    }
    assert_eq!(cache.add_tenant("/a", &Limits::default()).unwrap().name(), "a");
    assert_eq!(cache.tenant("/a/").unwrap().name(), "a");
}

/// A tenant that reads through a map shows its hits: never more than there were, and most of them
/// while reclaim looks at its pages.
#[test]
fn mapped_hits_are_estimated_from_accessed_bits() {
    for preset in [Preset::Default, Preset::Linux72, Preset::Linux612] {
        for classic in [false, true] {
            // Background reclaim may lose its CPU in the middle of a walk for longer than the
            // kernels' sixteen efforts take, which is no failure here.
            let mut mechanisms = Mechanisms::compose(preset, &[Switch::WaitBeforeOom], &[]).unwrap();
            if classic {
                mechanisms = mechanisms.with_lru(Lru::Classic);
            }
            let (disk, _files) = memory(31);
            disk.set("hot", &pages(0..60));
            disk.set("cold", &pages(0..3000));
            let builder = disk.builder(1 << 20).mechanisms(mechanisms);
            let cache = builder.tenant("mapped", 1 << 20).tenant("once", 1 << 20).build().unwrap();
            let [mapped, once] = ["mapped", "once"].map(|name| cache.tenant(name).unwrap());
            let map = mapped.open("hot", OpenMode::ReadOnly).unwrap().map().unwrap();
            let cold = cache.open("cold", OpenMode::ReadOnly).unwrap();
            let name = (mechanisms.name(), classic);
            let mut loads = 0;
            let mut before = 0;
            // Background reclaim decides when it looks at the tenant's pages.
            for round in 0.. {
                for _ in 0..5 {
                    (0..60).for_each(|number| map.load(number * PAGE as u64, &mut [0; 8]).unwrap());
                    loads += 60;
                }
                (0..50).for_each(|step| drop(read(&cold, (round * 50 + step) % 3000 * PAGE, PAGE)));
                let stats = mapped.stats();
                assert!(stats.hits == 0 && stats.mapped_hits >= before, "{stats:?}");
                assert!(stats.mapped_hits + stats.misses <= loads, "{stats:?}");
                before = stats.mapped_hits;
                if round >= 60 && stats.counter("pgyoung") > Some(0) {
                    break;
                }
                assert!(round < 2000, "{name:?}: {stats:?}");
            }
            let stats = mapped.stats();
            assert!(stats.hit_ratio() > Some(0.5), "{name:?}: {stats:?}");
            // Pages that are loaded once are no hits, although each has its accessed bit found.
            let file = once.open("cold", OpenMode::ReadOnly).unwrap();
            file.advise(Advice::Random, 0..0).unwrap();
            let map = file.map().unwrap();
            for number in 0..3000 {
                map.load(number * PAGE as u64, &mut [0; 8]).unwrap();
            }
            let stats = once.stats();
            assert!(stats.misses > 2800 && stats.mapped_hits <= 3000 - stats.misses, "{name:?}: {stats:?}");
            cache.validate().unwrap();
        }
    }
}
