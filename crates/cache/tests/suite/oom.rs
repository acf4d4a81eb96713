//! OOM kills of tenants: other tenants continue, files lose nothing, and users of lost memory get
//! an error.

use crate::common::{Disk, PAGE, assert_same, counter, page};
use mglru_cache::{AnonRegion, Error, Limits, OomDecision, OomPolicy, OpenMode, PageCache, Swap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const BUDGET: u64 = 8 << 20;
const LIMIT_PAGES: u64 = 400;

/// `top`, with a limit, and below it `greedy` and `calm`, without one.
fn tenants(builder: mglru_cache::Builder) -> PageCache {
    let builder = builder.tenant("top", LIMIT_PAGES * PAGE as u64);
    builder
        .tenant_with("top/greedy", Limits::default())
        .tenant_with("top/calm", Limits::default())
        .build()
        .unwrap()
}

/// Stores pages until a store fails. Returns their number and the error.
fn fill(region: &AnonRegion) -> (u64, Error) {
    fill_and_load(region, u64::MAX)
}

/// The same, with loads of 30 earlier pages side by side after each `every` stores.
fn fill_and_load(region: &AnonRegion, every: u64) -> (u64, Error) {
    let mut got = vec![0; PAGE];
    for number in 0.. {
        if let Err(error) = region.store(number * PAGE as u64, &page(number)) {
            return (number, error);
        }
        if (number + 1).is_multiple_of(every) {
            let first = number * 77 % (number - 29);
            for earlier in first..first + 30 {
                match region.load(earlier * PAGE as u64, &mut got) {
                    Ok(()) => assert_same(&got, &page(earlier), earlier),
                    Err(error) => return (number, error),
                }
            }
        }
    }
    unreachable!()
}

fn region(cache: &PageCache, tenant: &str) -> AnonRegion {
    cache.tenant(tenant).unwrap().anonymous(10_000 * PAGE as u64).unwrap()
}

fn killed_for(error: &Error) -> (&str, &str) {
    let Error::Killed(report) = error else { panic!("{error}") };
    (report.victim.as_deref().unwrap(), &report.tenant)
}

/// At its limit, a killed tenant is told so instead of being killed again, also for metadata.
#[test]
fn a_killed_tenant_at_its_limit_gets_no_child_until_it_is_revived() {
    let cache = tenants(PageCache::builder(BUDGET).oom_policy(OomPolicy::Victim));
    let region = region(&cache, "top/greedy");
    let (_, error) = fill(&region);
    assert_eq!(killed_for(&error), ("top/greedy", "top"));
    let greedy = cache.tenant("top/greedy").unwrap();
    let mut children = (0..2000).map(|n| greedy.add_child(&format!("child{n}"), &Limits::default()));
    let error = children.find_map(Result::err).unwrap();
    assert_eq!(killed_for(&error), ("top/greedy", "top"));
    for number in 0..10 {
        cache.remove_tenant(&format!("top/greedy/child{number}")).unwrap();
    }
    drop(region);
    assert!(greedy.revive());
    greedy.add_child("child", &Limits::default()).unwrap();
    cache.validate().unwrap();
}

/// A killed tenant loses its regions completely, wherever their pages are charged, and nothing
/// else.
#[test]
fn a_kill_takes_regions_whole_and_leaves_those_that_moved_away() {
    let (disk, _) = crate::common::memory(3);
    let store = |region: &AnonRegion, numbers: std::ops::Range<u64>| {
        numbers.into_iter().for_each(|number| region.store(number * PAGE as u64, &page(number)).unwrap());
    };
    for (before, after, victim) in [(100, 200, "top/calm"), (200, 20, "top/greedy")] {
        let cache = tenants(disk.builder(BUDGET).oom_policy(OomPolicy::Victim));
        let other = cache.add_tenant("top/other", &Limits::default()).unwrap();
        let mut moved = region(&cache, "top/greedy");
        store(&moved, 0..before);
        moved.move_to(&cache.tenant("top/calm").unwrap()).unwrap();
        store(&moved, before..before + after);
        let stayed = region(&cache, "top/greedy");
        store(&stayed, 0..50);
        assert_eq!(
            ["greedy", "calm"].map(|name| counter(&cache, &format!("top/{name}"), "anon")),
            [before + 50, after]
        );
        // These fit only after a kill.
        let next = other.anonymous(10_000 * PAGE as u64).unwrap();
        store(&next, 0..150);
        let mut bytes = vec![0; PAGE];
        let lost = |region: &AnonRegion, bytes: &mut [u8]| region.load(0, bytes).err();
        let (whole, left) = if victim == "top/calm" { (&moved, &stayed) } else { (&stayed, &moved) };
        assert_eq!(killed_for(&lost(whole, &mut bytes).unwrap()), (victim, "top"));
        assert!(lost(left, &mut bytes).is_none());
        assert_same(&bytes, &page(0), 0);
        let left = ["greedy", "calm"].map(|name| counter(&cache, &format!("top/{name}"), "anon"));
        assert_eq!(left, if victim == "top/calm" { [50, 0] } else { [before, after] });
        drop((moved, stayed, next, other));
        cache.validate().unwrap();
    }
}

#[test]
fn another_tenant_continues_when_the_greedy_one_is_killed() {
    for disk in Disk::each(7) {
        let cache = tenants(disk.builder(BUDGET).oom_policy(OomPolicy::Victim));
        let greedy = cache.tenant("top/greedy").unwrap();
        disk.set("file", &vec![0; 40 * PAGE]);
        let file = greedy.open(disk.path("file"), OpenMode::ReadWrite).unwrap();
        let lost = region(&cache, "top/greedy");
        (0..350).for_each(|number| lost.store(number * PAGE as u64, &page(number)).unwrap());
        (0..40)
            .for_each(|number| assert_eq!(file.write_at(&page(number), number * PAGE as u64).unwrap(), PAGE));

        // Each thread needs the others' memory: one tenant is killed, and all threads continue.
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let cache = &cache;
                scope.spawn(move || {
                    let region = region(cache, "top/calm");
                    for number in 0..100 {
                        region.store(number * PAGE as u64, &page(thread << 20 | number)).unwrap();
                    }
                    let mut got = vec![0; PAGE];
                    for number in 0..100 {
                        region.load(number * PAGE as u64, &mut got).unwrap();
                        assert_same(&got, &page(thread << 20 | number), number);
                    }
                });
            }
        });
        let events = ["oom", "oom_kill"];
        assert_eq!(events.map(|event| counter(&cache, "top/greedy", event)), [0, 1]);
        assert_eq!(events.map(|event| counter(&cache, "top", event)), [1, 0]);
        assert_eq!(counter(&cache, "top/greedy", "anon"), 0);

        // Loads of its lost memory fail; its file lost nothing.
        let mut got = vec![0; PAGE];
        for error in [
            lost.load(0, &mut got).unwrap_err(),
            lost.load(5000 * PAGE as u64, &mut got).unwrap_err(),
            lost.store(0, b"x").unwrap_err(),
            lost.discard(0..PAGE as u64).unwrap_err(),
            greedy.anonymous(PAGE as u64).map(|_| ()).unwrap_err(),
            file.write_at(&page(1), 1000 * PAGE as u64).unwrap_err(),
        ] {
            assert_eq!(killed_for(&error), ("top/greedy", "top"));
        }
        let message = greedy.killed().unwrap().to_string();
        assert!(message.contains("tenant 'top'") && message.contains("revive"), "{message}");
        file.sync_data().unwrap();
        let on_disk = disk.contents("file");
        (0..40).for_each(|number| {
            let at = number as usize * PAGE;
            assert_same(&on_disk[at..at + PAGE], &page(number), number);
        });

        // After its revival it continues, except for the lost memory.
        assert!(greedy.revive() && !greedy.revive() && greedy.killed().is_none());
        let anew = region(&cache, "top/greedy");
        anew.store(0, b"anew").unwrap();
        anew.load(0, &mut got[..4]).unwrap();
        assert_eq!(&got[..4], b"anew");
        file.write_at(&page(41), 40 * PAGE as u64).unwrap();
        assert_eq!(killed_for(&lost.load(0, &mut got).unwrap_err()), ("top/greedy", "top"));
        cache.validate().unwrap();
        drop((lost, anew, file));
        cache.validate().unwrap();
    }
}

/// The requesting tenant may be the victim: then its request fails without a deadlock.
#[test]
fn the_greedy_kills_itself_under_the_budget_of_all() {
    let cache =
        Disk::each(3)[2].builder(BUDGET).oom_policy(OomPolicy::Victim).tenant("a", BUDGET).build().unwrap();
    let a = region(&cache, "a");
    let (stored, error) = fill(&a);
    assert!(stored > 1000, "{stored}");
    assert_eq!(killed_for(&error), ("a", ""));
    assert_eq!((counter(&cache, "a", "anon"), counter(&cache, "", "oom")), (0, 1));
    assert!(cache.tenant("a").unwrap().revive());
    let again = fill(&region(&cache, "a")).0;
    // Other CPUs and workers hold some free frames and charges. A kill that frees too little misses
    // nearly all.
    assert!(again.abs_diff(stored) < stored / 8, "{again} of {stored} were free again");
    cache.validate().unwrap();
}

/// Many threads request more than the memory, with repeated revivals, without and with swap: the
/// test ends, and all counts are right.
#[test]
fn kills_and_revivals_from_all_sides() {
    for swap_bytes in [0, 4 << 20] {
        let disk = &Disk::each(3)[2];
        let mut builder = disk.builder(BUDGET).oom_policy(OomPolicy::Victim);
        if swap_bytes > 0 {
            builder = builder.swap(Swap::file(disk.path("swap"), swap_bytes));
        }
        let cache = tenants(builder);
        let kills = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (cache, kills) = (&cache, &kills);
                scope.spawn(move || {
                    let name = ["top/greedy", "top/calm"][thread % 2];
                    let tenant = cache.tenant(name).unwrap();
                    for _ in 0..10 {
                        let Ok(region) = tenant.anonymous(10_000 * PAGE as u64) else {
                            tenant.revive();
                            continue;
                        };
                        let (stored, error) = fill_and_load(&region, 40);
                        assert!(matches!(error, Error::Killed(_) | Error::OutOfMemory(_)), "{error}");
                        let mut got = vec![0; PAGE];
                        for number in 0..stored {
                            match region.load(number * PAGE as u64, &mut got) {
                                Ok(()) => assert_same(&got, &page(number), number),
                                Err(error) => assert_eq!(killed_for(&error).1, "top"),
                            }
                        }
                        kills.fetch_add(u64::from(tenant.revive()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(kills.into_inner() > 0);
        cache.validate().unwrap();
        assert_eq!(["top/greedy", "top/calm"].map(|name| counter(&cache, name, "anon")), [0, 0]);
        let swapped_in = ["top/greedy", "top/calm"].map(|name| counter(&cache, name, "pswpin"));
        assert_eq!(swapped_in.iter().sum::<u64>() > 0, swap_bytes > 0);
    }
}

#[test]
fn the_user_decides() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let decide = move |report: &mglru_cache::OutOfMemory| {
        let mut seen = seen.lock().unwrap();
        seen.push((report.tenant.clone(), report.victim.clone()));
        match seen.len() {
            1 => OomDecision::Retry,
            2 => OomDecision::Fail,
            _ => OomDecision::Kill("top/calm".to_owned()),
        }
    };
    let cache = tenants(Disk::each(3)[2].builder(BUDGET).on_out_of_memory(decide));
    let (calm, greedy) = (region(&cache, "top/calm"), region(&cache, "top/greedy"));
    (0..50).for_each(|number| calm.store(number * PAGE as u64, &page(number)).unwrap());
    let (stored, error) = fill(&greedy);
    assert!(matches!(&error, Error::OutOfMemory(report) if report.anon_pages > 300), "{error}");
    greedy.store(stored * PAGE as u64, b"more").unwrap();
    assert_eq!(killed_for(&calm.load(0, &mut [0]).unwrap_err()), ("top/calm", "top"));
    assert_eq!(*asked.lock().unwrap(), vec![("top".to_owned(), Some("top/greedy".to_owned())); 3]);
    cache.validate().unwrap();
}

/// A limit below usage reclaims first, then applies the OOM policy, both by setter and by control
/// file.
#[test]
fn lowering_a_limit_ends_with_the_policy() {
    for policy in [OomPolicy::Victim, OomPolicy::Fail] {
        for by_file in [false, true] {
            let disk = &Disk::each(3)[2];
            let cache = tenants(disk.builder(BUDGET).oom_policy(policy));
            let (greedy, calm) = (region(&cache, "top/greedy"), region(&cache, "top/calm"));
            (0..200).for_each(|number| greedy.store(number * PAGE as u64, &page(number)).unwrap());
            (0..50).for_each(|number| calm.store(number * PAGE as u64, &page(number)).unwrap());
            disk.set("file", &vec![0; 40 * PAGE]);
            let file =
                cache.tenant("top/calm").unwrap().open(disk.path("file"), OpenMode::ReadWrite).unwrap();
            (0..40).for_each(|number| {
                assert_eq!(file.write_at(&page(number), number * PAGE as u64).unwrap(), PAGE)
            });
            let top = cache.tenant("top").unwrap();
            let lower = |pages: u64| match by_file {
                true => cache.control().write("top/memory.max", &(pages * PAGE as u64).to_string()).unwrap(),
                false => top.set_max(Some(pages * PAGE as u64)).unwrap(),
            };
            // Reclaiming its file's pages, including dirty ones, is enough.
            lower(255);
            assert_eq!(counter(&cache, "top", "oom"), 0);
            assert!(top.stats().usage_pages <= 255);
            let kills = policy == OomPolicy::Victim;
            lower(100);
            assert_eq!(top.stats().max_pages, Some(100), "the limit is written in any case");
            assert_eq!(counter(&cache, "top", "oom"), 1);
            assert_eq!(counter(&cache, "top/greedy", "oom_kill"), u64::from(kills));
            let mut got = vec![0; PAGE];
            if kills {
                assert!(top.stats().usage_pages <= 100);
                assert_eq!(killed_for(&greedy.load(0, &mut got).unwrap_err()), ("top/greedy", "top"));
                calm.store(60 * PAGE as u64, b"more").unwrap();
            } else {
                assert!(top.stats().usage_pages >= 250);
                greedy.load(0, &mut got).unwrap();
                let max = counter(&cache, "top", "max");
                assert!(matches!(calm.store(60 * PAGE as u64, b"more"), Err(Error::OutOfMemory(_))));
                assert!(counter(&cache, "top", "max") > max);
            }
            for number in 0..50 {
                calm.load(number * PAGE as u64, &mut got).unwrap();
                assert_same(&got, &page(number), number);
            }
            drop(file);
            let on_disk = disk.contents("file");
            (0..40).for_each(|number| {
                let at = number as usize * PAGE;
                assert_same(&on_disk[at..at + PAGE], &page(number), number);
            });
            cache.validate().unwrap();
        }
    }
}
