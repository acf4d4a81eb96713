//! The whole core under the interleavings of two threads: `make loom`.
//!
//! One page, one tenant: loom creates every word anew for each interleaving, so these tests race
//! single steps. Runs have at most three preemptions, fewer where three take minutes. loom's
//! shortcuts skip some runs with the last preemption, so that finding a race of two needs three.

use crate::lru::Swappiness;
use crate::mapping::Glance;
use crate::reclaim::{EffortKind, Orders, Scan, Watermarks, evict_step};
use crate::sync::Ordering::Relaxed;
use crate::*;

mod aging;
mod anon;
mod charges;
mod memcgs;
mod switches;

const PREEMPTIONS: usize = 3;

/// A core with one cached page, on a list.
struct World {
    core: Core,
    task: Task,
    mapping: Arc<Mapping>,
}

impl World {
    fn new() -> Arc<World> {
        let world = World::empty(World::options(), Kind::File);
        world.bring(0, |_| ());
        world
    }

    fn options() -> Options {
        let mut options = Options::new(2);
        options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
        options.batch_folios = 1;
        // Most tests are about generations, page table walks and one batch of eviction.
        options.mechanisms = options.mechanisms.with_lru(Lru::MultiGen);
        options
    }

    /// A core without pages.
    fn empty(options: Options, kind: Kind) -> Arc<World> {
        let core = Core::new(options, Time::ZERO);
        let memcg = core.add_memcg("tenant", 2, Time::ZERO).unwrap().id();
        World::of_memcg(core, memcg, kind)
    }

    fn of_memcg(core: Core, memcg: MemcgId, kind: Kind) -> Arc<World> {
        let task = core.new_task(memcg, 0);
        let mapping = core.open_mapping(kind);
        core.map(&task, &mapping, 64);
        Arc::new(World { core, task, mapping })
    }

    fn charge(&self) -> NewFolio<'_, Silent> {
        let mut charging = Charging::new(self.task.memcg, 0);
        loop {
            match charging.step(&self.core, &Silent) {
                ChargeStep::Charged(new) => return new,
                ChargeStep::More => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn bring(&self, page: u32, read: impl Fn(FolioId)) -> FolioId {
        let new = self.charge();
        let folio =
            self.core.insert(&Silent, &self.task, &self.mapping, page, new, Arrival::default()).unwrap();
        read(folio);
        self.core.publish(&Silent, &self.mapping, folio);
        folio
    }

    fn hit(&self) -> Option<Hit> {
        match self.core.lookup(&self.mapping, 0) {
            Lookup::Hit(hit) => Some(hit),
            _ => None,
        }
    }

    /// One eviction step. Returns the pages freed.
    fn evict(&self) -> u64 {
        self.evict_on(&Silent, Swappiness::FILE_ONLY)
    }

    fn evict_on(&self, host: &impl Host, swappiness: Swappiness) -> u64 {
        let orders = Orders::new(self.task.memcg, EffortKind::Limit, 1, swappiness, 0);
        let mut scan = Scan::default();
        let memcg = self.core.memcg(self.task.memcg);
        let cx = &mut lru::Context::new(&self.core, host, &orders, &mut scan);
        evict_step(cx, memcg, 1);
        scan.progress.reclaimed
    }
}

/// Explores the interleavings of two threads. `judge` checks the outcome and names it; the result
/// lists all names in alphabetical order.
fn explore<A: 'static, B: 'static>(
    prepare: impl Fn(&World) + Send + Sync + 'static,
    first: impl Fn(&World) -> A + Send + Sync + Copy + 'static,
    second: impl Fn(&World) -> B + Send + Sync + Copy + 'static,
    judge: impl Fn(&World, A, B) -> &'static str + Send + Sync + 'static,
) -> Vec<&'static str> {
    explore_with(PREEMPTIONS, prepare, first, second, judge)
}

/// [`explore`] with another number of preemptions.
fn explore_with<A: 'static, B: 'static>(
    preemptions: usize,
    prepare: impl Fn(&World) + Send + Sync + 'static,
    first: impl Fn(&World) -> A + Send + Sync + Copy + 'static,
    second: impl Fn(&World) -> B + Send + Sync + Copy + 'static,
    judge: impl Fn(&World, A, B) -> &'static str + Send + Sync + 'static,
) -> Vec<&'static str> {
    explore_in(World::new, preemptions, prepare, first, second, judge)
}

/// [`explore_with`] in another world.
fn explore_in<A: 'static, B: 'static>(
    world: impl Fn() -> Arc<World> + Send + Sync + 'static,
    preemptions: usize,
    prepare: impl Fn(&World) + Send + Sync + 'static,
    first: impl Fn(&World) -> A + Send + Sync + Copy + 'static,
    second: impl Fn(&World) -> B + Send + Sync + Copy + 'static,
    judge: impl Fn(&World, A, B) -> &'static str + Send + Sync + 'static,
) -> Vec<&'static str> {
    let outcomes = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let seen = outcomes.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(move || {
        let world = world();
        prepare(&world);
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || second(&world))
        };
        let a = first(&world);
        let b = other.join().unwrap();
        world.core.validate().unwrap();
        let outcome = judge(&world, a, b);
        world.core.validate().unwrap();
        seen.lock().unwrap().insert(outcome);
    });
    let outcomes = outcomes.lock().unwrap();
    outcomes.iter().copied().collect()
}

/// Makes what a memcg has under the policy `ranked`: loom does not see that its first user makes it
/// for all others.
fn make_state_of_ranked(memcg: &Memcg) {
    _ = std::ops::Deref::deref(&memcg.lruvec.ranked);
}

fn stat(world: &World, counter: Counter) -> u64 {
    world.core.memcg(world.task.memcg).stat.get(counter)
}

/// Locks the page, changes its bytes and makes it dirty. `false`: the page was gone or locked.
fn write(world: &World) -> bool {
    let Some(hit) = world.hit() else { return false };
    let begun = world.core.begin_write(&Silent, &world.mapping, 0, &hit) == WriteAttempt::Begun;
    if begun {
        world.core.end_write(&Silent, &world.mapping, hit.folio);
    }
    begun
}

/// Takes the dirty pages and writes them. `false`: none was dirty.
fn flush(world: &World) -> bool {
    let Some(run) = world.core.start_writeback(&world.mapping, 0, 1 << 32, 1) else { return false };
    for folio in run.folios {
        world.core.end_writeback(&Silent, &world.mapping, folio, true, 0);
    }
    true
}

fn truncate(world: &World) -> bool {
    world.core.truncate(&Silent, &world.mapping, 0, 1 << 32).is_none()
}

fn load(world: &World) {
    if let Some(hit) = world.hit() {
        world.core.touch(&world.task, &world.mapping, 0, &hit);
    }
}

/// The aging that makes generation 4.
fn aging(world: &World) -> lru::Aging<'_, Silent> {
    let memcg = world.core.memcg(world.task.memcg);
    let (seq, swappiness) = (lru::Seq(3), Swappiness::FILE_ONLY);
    lru::Aging { core: &world.core, host: &Silent, memcg, seq, swappiness, force: false }
}

fn age(world: &World) -> bool {
    aging(world).run(&mut Default::default())
}

/// A writer that found the page meets the folio as another page, or as none: it leaves that alone.
#[test]
fn loom_a_writer_leaves_another_page_alone() {
    let another = |world: &World| {
        if truncate(world) {
            world.bring(1, |_| ());
        }
    };
    let outcomes = explore(
        |_| (),
        write,
        another,
        |world, written, ()| {
            let found = [0, 1].map(|page| world.core.lookup(&world.mapping, page));
            match (written, found) {
                (false, [Lookup::Miss, Lookup::Hit(_)]) => "another page",
                (true, [Lookup::Miss, Lookup::Hit(_)]) => "written before",
                (true, [Lookup::Hit(_), Lookup::Miss]) => "written meanwhile",
                other => panic!("{other:?}"),
            }
        },
    );
    assert_eq!(outcomes, ["another page", "written before", "written meanwhile"]);
}

/// A reader that takes a reference against reclaim: the page is freed or held, never both.
#[test]
fn loom_a_page_is_evicted_or_held() {
    let hold = |world: &World| {
        let hit = world.hit()?;
        world.core.try_get(&world.mapping, 0, &hit).then_some(hit.folio)
    };
    let outcomes = explore(
        |_| (),
        hold,
        World::evict,
        |world, held, freed| match held {
            None => {
                assert_eq!(freed, 1);
                "evicted"
            }
            Some(folio) => {
                assert_eq!(freed, 0);
                world.core.put(&Silent, folio);
                "held"
            }
        },
    );
    assert_eq!(outcomes, ["evicted", "held"]);
}

/// Lends the page. The borrower keeps it until the end of the test.
fn lend(world: &World) -> Option<FolioId> {
    let hit = world.hit()?;
    world.core.lend(&Silent, &world.mapping, 0, &hit).ok().map(|()| hit.folio)
}

/// A borrower against reclaim and against advice: the page goes or is lent, never both. Truncation
/// takes it all the same, and leaves the frame to the borrower.
#[test]
fn loom_a_page_is_removed_or_lent() {
    // Only a page that no map has is dropped.
    let unmap = |world: &World| world.core.unmap(&Silent, &world.task, &world.mapping);
    let advise = |world: &World| {
        world.core.invalidate(&Silent, &world.mapping, 0, 1 << 32, 1);
        world.hit().is_none()
    };
    let judge = |world: &World, lent: Option<FolioId>, is_gone: bool| {
        let Some(folio) = lent else {
            assert!(is_gone);
            return "gone";
        };
        assert!(!is_gone && world.hit().is_some());
        world.core.take_back(&Silent, folio);
        "lent"
    };
    let evicted = explore(|_| (), lend, |world| World::evict(world) == 1, judge);
    assert_eq!(evicted, ["gone", "lent"]);
    assert_eq!(explore(unmap, lend, advise, judge), ["gone", "lent"]);
    let truncated = explore(
        |_| (),
        lend,
        truncate,
        |world, lent, is_gone| {
            assert!(is_gone && world.hit().is_none());
            match lent {
                Some(folio) => {
                    assert!(world.core.folios().flags(folio).load().is_held());
                    world.core.take_back(&Silent, folio);
                    assert!(!world.core.folios().flags(folio).load().is_held());
                    "lent"
                }
                None => "gone",
            }
        },
    );
    assert_eq!(truncated, ["gone", "lent"]);
}

/// A lookup that another thread has held up may find a page of another mapping, which has taken the
/// leaf over. Its bytes are never lent as the page that was looked up, although that page comes
/// back into the same leaf meanwhile.
#[test]
fn loom_a_page_of_another_mapping_is_never_lent() {
    let other = |world: &World| world.core.mapping(MappingId(1)).expect("it stays open");
    let prepare = |world: &World| {
        assert!(truncate(world));
        let other = world.core.open_mapping(Kind::File);
        let core = &world.core;
        let new = world.charge();
        let folio = core.insert(&Silent, &world.task, &other, 0, new, Arrival::default()).unwrap();
        core.publish(&Silent, &other, folio);
    };
    let lend = move |world: &World| {
        let Lookup::Hit(found) = world.core.lookup(&other(world), 0) else { return None };
        world.core.lend(&Silent, &world.mapping, 0, &found).ok().map(|()| found.folio)
    };
    let replace = move |world: &World| {
        assert_eq!(world.core.truncate(&Silent, &other(world), 0, 1 << 32), None);
        world.bring(0, |_| ());
    };
    let outcomes = explore(prepare, lend, replace, |world, lent, ()| {
        let Some(folio) = lent else { return "not lent" };
        let page = (world.mapping.id(), 0);
        assert_eq!(world.core.folios().page_of(folio), page, "bytes of another mapping are lent");
        world.core.take_back(&Silent, folio);
        "lent in its new frame"
    });
    assert_eq!(outcomes, ["lent in its new frame", "not lent"]);
}

/// The page that [`Core::publish`] returns can be lent as one that was looked up, while it is
/// truncated and another page is brought in.
#[test]
fn loom_a_published_page_is_lent_or_gone() {
    let prepare = |world: &World| {
        assert!(truncate(world));
        let (core, new) = (&world.core, world.charge());
        core.insert(&Silent, &world.task, &world.mapping, 0, new, Arrival::default()).unwrap();
    };
    let publish = |world: &World| {
        let Lookup::Pending(folio) = world.core.lookup(&world.mapping, 0) else { panic!("it is locked") };
        let hit = world.core.publish(&Silent, &world.mapping, folio)?;
        assert_eq!(hit.folio, folio);
        world.core.lend(&Silent, &world.mapping, 0, &hit).ok().map(|()| folio)
    };
    let replace = |world: &World| {
        if truncate(world) {
            world.bring(0, |_| ());
        }
    };
    let outcomes = explore_with(2, prepare, publish, replace, |world, lent, ()| {
        let Some(folio) = lent else { return "gone" };
        assert_eq!(world.core.folios().page_of(folio), (world.mapping.id(), 0));
        world.core.take_back(&Silent, folio);
        "lent"
    });
    assert_eq!(outcomes, ["gone", "lent"]);
}

/// Locks the page in memory. `false`: it was gone, or is being removed.
fn lock_in_memory(world: &World) -> bool {
    let Some(hit) = world.hit().filter(|hit| world.core.try_get(&world.mapping, 0, hit)) else {
        return false;
    };
    world.core.set_mlocked(hit.folio, true);
    let stays = world.core.is_there(&world.mapping, 0, &hit);
    world.core.put(&Silent, hit.folio);
    stays
}

/// A page is locked in memory while reclaim or advice removes it: it goes or is locked, never both.
#[test]
fn loom_a_page_is_removed_or_locked_in_memory() {
    let unmap = |world: &World| world.core.unmap(&Silent, &world.task, &world.mapping);
    let advise = |world: &World| world.core.invalidate(&Silent, &world.mapping, 0, 1 << 32, 1);
    let judge = |world: &World, is_locked: bool| {
        assert!(!is_locked || world.hit().is_some(), "a page that is locked in memory was removed");
        if is_locked { "locked" } else { "gone" }
    };
    let evicted = explore(|_| (), lock_in_memory, World::evict, move |world, locked, _| judge(world, locked));
    assert_eq!(evicted, ["gone", "locked"]);
    let advised = explore(unmap, lock_in_memory, advise, move |world, locked, ()| judge(world, locked));
    assert_eq!(advised, ["gone", "locked"]);
}

/// A page is unlocked while reclaim puts it on the unevictable list: it does not stay there.
#[test]
fn loom_an_unlocked_page_can_be_reclaimed() {
    let unlock = |world: &World| {
        let folio = world.hit().expect("it was locked in memory").folio;
        world.core.set_mlocked(folio, false);
        world.core.rescue(folio);
    };
    let prepare = |world: &World| assert!(lock_in_memory(world));
    let outcomes = explore(prepare, World::evict, unlock, |world, _, ()| {
        let lruvec = &world.core.memcg(world.task.memcg).lruvec;
        assert_eq!(lruvec.unevictable_pages(), 0, "it is not locked in memory any more");
        if world.hit().is_some() { "there" } else { "evicted" }
    });
    assert_eq!(outcomes, ["evicted", "there"]);
}

/// A writer against reclaim: the written page stays and will be written out.
#[test]
fn loom_a_page_is_evicted_or_written_to() {
    let outcomes = explore_with(
        1,
        |_| (),
        write,
        World::evict,
        |world, written, freed| {
            let dirty = world.core.dirty_pages(&world.mapping);
            assert_eq!((dirty, freed == 0), if written { (1, true) } else { (0, freed == 0) });
            match (written, freed) {
                (true, _) => "written",
                (false, 1) => "evicted",
                (false, _) => "each in the way of the other",
            }
        },
    );
    assert!(outcomes.contains(&"evicted") && outcomes.contains(&"written"), "{outcomes:?}");
}

/// A writer against the flusher: a page dirtied again while it is taken is in the index or clean
/// (`validate` compares them).
#[test]
fn loom_a_page_that_is_dirtied_again_is_written_again() {
    let prepare = |world: &World| assert!(write(world));
    let outcomes = explore(prepare, write, flush, |world, written, flushed| {
        assert!(written && flushed);
        if world.core.dirty_pages(&world.mapping) == 1 { "dirty again" } else { "written with the rest" }
    });
    assert_eq!(outcomes, ["dirty again", "written with the rest"]);
}

/// The end of a write against truncation: the page is removed once, after the write.
#[test]
fn loom_a_page_that_is_being_written_is_truncated_later() {
    let prepare = |world: &World| assert!(write(world));
    let outcomes = explore(prepare, flush, truncate, |world, flushed, truncated| {
        assert_eq!(world.hit().is_none(), truncated);
        assert!(flushed || truncated);
        if truncated { "truncated" } else { "busy" }
    });
    assert_eq!(outcomes, ["busy", "truncated"]);
}

/// Reclaim against truncation: the page is uncharged once, and counted as evicted at most once.
#[test]
fn loom_a_page_leaves_once() {
    let outcomes = explore_with(
        2,
        |_| (),
        World::evict,
        truncate,
        |world, freed, truncated| {
            assert!(freed == 1 || truncated || world.hit().is_none());
            assert_eq!(world.core.memcg(world.task.memcg).usage_pages(), u64::from(world.hit().is_some()));
            if freed == 1 { "evicted" } else { "truncated" }
        },
    );
    assert_eq!(outcomes, ["evicted", "truncated"]);
}

/// A mapped access against reclaim and against truncation: in the end, removed pages do not count
/// as mapped.
#[test]
fn loom_mapped_pages_are_counted_once() {
    let judge = |world: &World| {
        let mapped = stat(world, Counter::FileMapped);
        assert_eq!(mapped, u64::from(world.hit().is_some_and(|hit| hit.flags.mapped())));
        assert!(truncate(world));
        assert_eq!(stat(world, Counter::FileMapped), 0);
        if mapped == 1 { "mapped" } else { "gone" }
    };
    let outcomes = explore(|_| (), load, World::evict, move |world, (), _| judge(world));
    assert_eq!(outcomes, ["gone", "mapped"]);
    let outcomes = explore(|_| (), load, truncate, move |world, (), _| judge(world));
    assert_eq!(outcomes, ["gone"]);
}

/// A mapped access while the page's entry is removed: no entry stays without the folio's `mapped`
/// flag, without which reclaim does not look at its accessed bit.
#[test]
fn loom_an_entry_has_its_flag() {
    let unmap = |world: &World| {
        let memcg = world.core.memcg(world.task.memcg);
        world.core.unmap_folio(&world.mapping, memcg, world.hit().expect("it stays").folio);
    };
    let judge = |world: &World, (), ()| {
        let is_flagged = world.hit().unwrap().flags.mapped();
        let has_entry = world.mapping.slot(&world.core.leaves, 0).unwrap().load().mapped();
        assert!(is_flagged || !has_entry, "an entry without a flag");
        assert_eq!(stat(world, Counter::FileMapped), u64::from(is_flagged));
        if has_entry { "mapped" } else { "not mapped" }
    };
    assert_eq!(explore(load, unmap, load, judge), ["mapped", "not mapped"]);
}

/// A walk against reclaim: sizes agree with labels, wherever the folio is (`validate` recounts
/// them).
#[test]
fn loom_a_walk_and_reclaim_agree_about_sizes() {
    let prepare = |world: &World| {
        world.core.accessed(&Silent, || 0, &world.hit().unwrap());
        load(world);
    };
    let outcomes = explore(prepare, age, World::evict, |world, opened, _| {
        assert!(opened);
        match world.hit() {
            // The walk cleared the accessed bit before reclaim looked, but gave the folio nothing,
            // since it was isolated by then.
            None => "evicted",
            Some(hit) if hit.flags.workingset() => "promoted",
            Some(_) => "activated",
        }
    });
    assert_eq!(outcomes, ["activated", "evicted", "promoted"]);
}

/// [book: aging#checks]: "Two threads asking to age the same `seq`: `max_seq` grows by exactly 1",
/// with a walk before it and without.
#[test]
fn loom_one_of_two_threads_ages() {
    let open = |world: &World| aging(world).open_generation();
    let judge = |world: &World, first: bool, second: bool| {
        assert!(first != second);
        assert_eq!(world.core.memcg(world.task.memcg).lruvec.max_seq(), lru::Seq(4));
        if first { "the first" } else { "the second" }
    };
    assert_eq!(explore(load, age, age, judge), ["the first", "the second"]);
    assert_eq!(explore(load, open, open, judge), ["the first", "the second"]);
}

/// Two threads miss the same page: one inserts it, the other gives its frame back.
#[test]
fn loom_a_page_is_brought_in_once() {
    let bring = |world: &World| {
        let new = world.charge();
        let inserted = world.core.insert(&Silent, &world.task, &world.mapping, 0, new, Arrival::default());
        inserted.map(|folio| world.core.publish(&Silent, &world.mapping, folio)).is_ok()
    };
    let prepare = |world: &World| assert!(truncate(world));
    let outcomes = explore(prepare, bring, bring, |world, first, second| {
        assert!(first != second && world.hit().is_some());
        assert_eq!(world.core.free_pages(), 1);
        if first { "the first" } else { "the second" }
    });
    assert_eq!(outcomes, ["the first", "the second"]);
}

/// An optimistic reader while the frame is given to another page: it never accepts the other page's
/// bytes, whether it checks the folio's state or only the slot.
#[test]
fn loom_a_reader_never_takes_another_page_for_its_own() {
    a_reader_of_a_reused_frame(|world, bytes| {
        let hit = world.hit()?;
        let bytes = bytes(hit.folio);
        world.core.confirm(&world.mapping, 0, &hit).then_some(bytes)
    });
    a_reader_of_a_reused_frame(|world, bytes| {
        let seen = world.core.glance(&world.mapping, 0)?;
        let bytes = bytes(seen.folio());
        seen.still().then_some(bytes)
    });
}

/// Puts the page's slot into a range and accesses it until its slot is settled.
fn settle(world: &World) {
    use crate::mapping::AtomicSlot;
    assert!(truncate(world));
    world.mapping.set_range(|| (0..64).map(|_| AtomicSlot::new()).collect());
    world.mapping.set_whole_pages(2);
    world.bring(0, |_| ());
    (0..2).for_each(|_| load(world));
    assert!(is_settled(world));
}

fn is_settled(world: &World) -> bool {
    world.mapping.range().unwrap().settled(0).is_some()
}

/// The shortest hit, which only looks at the slot in its range, while the frame is given to another
/// page.
#[test]
fn loom_a_settled_page_is_never_taken_for_another() {
    let read = |world: &World, bytes: fn(FolioId) -> u64| {
        let seen = world.mapping.range().unwrap().settled(0)?;
        let bytes = bytes(seen.folio());
        seen.still().then_some(bytes)
    };
    a_reader_of_a_reused_frame_after(settle, |world| u64::from(truncate(world)), read);
}

/// As [`loom_a_page_is_removed_or_lent`] for the shortest way, while the page is truncated and the
/// next one brought in.
#[test]
fn loom_a_settled_page_is_removed_or_lent() {
    let lend = |world: &World| {
        let seen = world.mapping.range().unwrap().settled(0)?;
        world.core.lend_settled(&Silent, &seen).then_some(seen.folio())
    };
    let is_new = |world: &World, folio: FolioId| world.core.folios().page_of(folio).1 == 1;
    let replace = |world: &World| {
        assert!(truncate(world));
        world.bring(1, |_| ());
    };
    let outcomes = explore_with(2, settle, lend, replace, move |world, lent, ()| match lent {
        Some(folio) => {
            assert!(!is_new(world, folio), "the lent frame was given to another page");
            world.core.take_back(&Silent, folio);
            "lent"
        }
        None => "gone",
    });
    assert_eq!(outcomes, ["gone", "lent"]);
}

/// A walk clears the accessed bits of a page table while the page is accessed. Afterwards, an
/// access that the next walk could not see would have to be slow.
#[test]
fn loom_no_slot_is_settled_in_an_old_table() {
    let prepare = |world: &World| {
        settle(world);
        assert!(world.mapping.clear_young_table(&world.core.leaves, 0) && !is_settled(world));
        load(world);
        assert!(is_settled(world));
    };
    let clear = |world: &World| world.mapping.clear_young_table(&world.core.leaves, 0);
    // The page is accessed: its slot is settled, or the walk made it look again.
    let check = move |world: &World, (), cleared: bool| {
        assert!(cleared);
        let is_settled = is_settled(world);
        assert!(clear(world) || !is_settled, "settled, and its table is old");
        if is_settled { "settled" } else { "not settled" }
    };
    assert_eq!(explore_with(2, prepare, load, clear, check), ["not settled"]);
    let unsettled = move |world: &World| {
        prepare(world);
        world.mapping.range().unwrap().unsettle_all(0, 1);
    };
    assert_eq!(explore_with(2, unsettled, load, clear, check), ["not settled", "settled"]);
}

/// A truncation into a page while it is accessed unsettles the slot of the partial page, because
/// hits on settled slots skip the check of the file's length. From the truncation's end on, no
/// thread finds it settled, not even for the time until the access looks at the length again.
#[test]
fn loom_a_page_that_is_cut_is_not_settled() {
    let unsettled = |world: &World| {
        settle(world);
        world.mapping.range().unwrap().unsettle_all(0, 1);
    };
    fn cut(world: &World, is_read_late: bool) -> bool {
        let cut = || world.mapping.set_whole_pages(0);
        if is_read_late {
            cut();
        }
        let hit = world.hit().unwrap();
        assert_eq!(world.core.try_lock(&Silent, &world.mapping, 0, &hit), LockAttempt::Locked);
        assert!(world.core.begin_content(&world.mapping, hit.folio));
        if !is_read_late {
            cut();
        }
        world.core.end_cut(&world.mapping, hit.folio);
        world.core.unlock(&Silent, hit.folio);
        world.core.put(&Silent, hit.folio);
        is_settled(world)
    }
    let check = |world: &World, (), settled: bool| {
        assert!(!settled && !is_settled(world), "settled, and the file ends in the page");
        load(world);
        assert!(!is_settled(world));
        "not settled"
    };
    assert_eq!(explore_with(2, unsettled, load, |world| cut(world, false), check), ["not settled"]);
    // The page was not in memory when the truncation began, and came since.
    assert_eq!(explore(unsettled, load, |world| cut(world, true), check), ["not settled"]);
}

fn a_reader_of_a_reused_frame(read: fn(&World, fn(FolioId) -> u64) -> Option<u64>) {
    a_reader_of_a_reused_frame_after(|_| (), World::evict, read);
}

fn a_reader_of_a_reused_frame_after(
    prepare: fn(&World),
    free: fn(&World) -> u64,
    read: fn(&World, fn(FolioId) -> u64) -> Option<u64>,
) {
    use loom::sync::atomic::AtomicU64;
    // The bytes of the frames: page n consists of n + 1.
    loom::lazy_static! {
        static ref BYTES: [AtomicU64; 2] = [AtomicU64::new(1), AtomicU64::new(1)];
    }
    let read = move |world: &World| read(world, |folio| BYTES[folio.0 as usize].load(Relaxed));
    let reuse = move |world: &World| {
        let freed = free(world);
        let folio = world.bring(1, |folio| BYTES[folio.0 as usize].store(2, Relaxed));
        (freed, folio)
    };
    let outcomes = explore(prepare, read, reuse, |_, bytes, (freed, folio)| {
        assert_eq!((freed, folio), (1, FolioId(0)), "the same frame");
        assert!(bytes.is_none_or(|bytes| bytes == 1));
        if bytes.is_some() { "read" } else { "missed" }
    });
    assert_eq!(outcomes, ["missed", "read"]);
}

/// A reader while the bytes of its page change, by each of the three ways to see the page: it
/// accepts whole copies only, of a page that was clean or dirty.
#[test]
fn loom_a_reader_never_takes_half_a_write() {
    use loom::sync::atomic::AtomicU64;
    type Copy = fn() -> [u64; 2];
    fn check(prepare: fn(&World), read: fn(&World, Copy) -> Option<[u64; 2]>) {
        loom::lazy_static! {
            static ref WORDS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        }
        let copy = || [0, 1].map(|at: usize| WORDS[at].load(Relaxed));
        let read = move |world: &World| read(world, copy);
        let write = |world: &World| {
            let hit = world.hit().expect("it is there");
            let attempt = world.core.begin_write(&Silent, &world.mapping, 0, &hit);
            assert_eq!(attempt, WriteAttempt::Begun);
            WORDS.iter().for_each(|word| word.store(1, Relaxed));
            world.core.end_write(&Silent, &world.mapping, hit.folio);
        };
        let outcomes = explore(prepare, write, read, |world, (), copy| {
            assert!(world.hit().is_some_and(|hit| hit.flags.dirty() && hit.flags.references() > 0));
            match copy {
                None => "refused",
                Some([0, 0]) => "before",
                Some([1, 1]) => "after",
                Some(words) => panic!("{words:?}"),
            }
        });
        assert_eq!(outcomes, ["after", "before", "refused"]);
    }
    let looked_up: fn(&World, Copy) -> Option<[u64; 2]> = |world, copy| {
        let hit = world.hit()?;
        let copy = copy();
        world.core.confirm(&world.mapping, 0, &hit).then_some(copy)
    };
    let glanced: fn(&World, Copy) -> Option<[u64; 2]> = |world, copy| {
        let seen = world.core.glance(&world.mapping, 0).filter(Glance::is_readable)?;
        let copy = copy();
        seen.still().then_some(copy)
    };
    for read in [looked_up, glanced] {
        check(|_| (), read);
        check(|world| assert!(write(world)), read);
    }
    let settled: fn(&World, Copy) -> Option<[u64; 2]> = |world, copy| {
        let seen = world.mapping.range().unwrap().settled(0)?;
        let copy = copy();
        seen.still().then_some(copy)
    };
    check(settle, settled);
}

/// A memcg is removed while its page is evicted, dropped, written to or brought in: in the end the
/// page is the root's or gone, and nothing is left of the memcg.
#[test]
fn loom_a_memcg_goes_meanwhile() {
    fn check(prepare: fn(&World), act: fn(&World) -> bool, expected: &[&str]) {
        let remove = |world: &World| world.core.remove_memcg(&Silent, world.task.memcg).is_ok();
        let outcomes = explore_with(2, prepare, remove, act, |world, removed, _| {
            assert!(removed);
            let cached = world.hit().is_some();
            assert_eq!(world.core.memcg(MemcgId::ROOT).usage_pages(), u64::from(cached));
            assert_eq!(world.core.memcg(world.task.memcg).usage_pages(), 0);
            world.core.drop_handle(world.task.memcg);
            assert_eq!(world.core.memcgs.iter().count(), 1);
            if cached { "there" } else { "gone" }
        });
        assert_eq!(outcomes, expected);
    }
    check(|_| (), |world| world.evict() == 1, &["gone", "there"]);
    check(|_| (), truncate, &["gone"]);
    check(|_| (), write, &["there"]);
    check(|world| assert!(truncate(world)), |world| world.bring(0, |_| ()).0 == 0, &["there"]);
}

/// Two batches of evictions under the classic LRU: each page gets a different time.
#[test]
fn loom_evictions_share_no_time() {
    fn times(world: &World) -> Vec<u64> {
        let (core, memcg) = (&world.core, world.core.memcg(world.task.memcg));
        let folio = world.hit().expect("no thread takes it").folio;
        let flags = core.folios.flags(folio).load();
        let mut evictions = lru::Evictions::begin(core, memcg.id(), 2);
        // One more than the batch announced.
        let mut time = || evictions.evicted(core, memcg, folio, (Kind::File, flags));
        let times = [(); 3].map(|()| time().token);
        evictions.end(core, memcg);
        times.into()
    }
    let outcomes = explore(
        |world| _ = world.core.switch_lru(Lru::Classic),
        times,
        times,
        |_, first, second| {
            assert!(!first.iter().any(|time| second.contains(time)), "{first:?}, {second:?}");
            if first[0] < second[0] { "first" } else { "second" }
        },
    );
    assert_eq!(outcomes, ["first", "second"]);
}

/// Two threads switch the policy: in the end, no folio is on a list of the other policy, where
/// reclaim would not find it (`validate` looks there).
#[test]
fn loom_of_two_switches_one_is_the_last() {
    fn switch(world: &World, to: Lru) {
        let mut switch = world.core.switch_lru(to);
        while switch.step(&world.core, 1) == lru::switch::SwitchStep::More {}
    }
    let outcomes = explore(
        |_| (),
        |world| switch(world, Lru::Classic),
        |world| switch(world, Lru::Ranked),
        |world, (), ()| world.core.lru().name(),
    );
    // loom does not look at the word that names the policy, so the first switch begins first.
    assert_eq!(outcomes, ["ranked"]);
}
