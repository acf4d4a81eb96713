//! Anonymous pages: faults, stores, reclaim, writes to swap, and their release.

use super::*;
use crate::swap::SwapSlot;
use crate::sync::AtomicU64;

loom::lazy_static! {
    /// The content of frames and of swap slots.
    static ref FRAMES: [AtomicU64; 8] = std::array::from_fn(|_| AtomicU64::new(0));
    static ref SLOTS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
}

/// A swap store with such answers.
pub(super) struct Store(SwapOutcome);

impl Host for Store {
    fn now(&self) -> Time {
        Time::ZERO
    }

    fn wake_flusher(&self, _: FlushReason) {}

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {}

    fn frame_retired(&self, _: FolioId) {}

    fn swap_out(&self, write: SwapOut) -> SwapOutcome {
        if self.0 != SwapOutcome::Refused {
            let SwapSlot(slot) = write.slot;
            SLOTS[slot as usize].store(FRAMES[write.folio.0 as usize].load(Relaxed), Relaxed);
        }
        self.0
    }

    fn swap_freed(&self, SwapSlot(slot): SwapSlot) {
        SLOTS[slot as usize].store(99, Relaxed);
    }
}

pub(super) const DONE: Store = Store(SwapOutcome::Done);
const STARTED: Store = Store(SwapOutcome::Started);

fn world_with(pages: u32, store: SwapStore) -> Arc<World> {
    let mut options = World::options();
    options.swap = SwapOptions { pages, store };
    World::empty(options, Kind::Anon)
}

/// Reads a page. `None`: it is busy.
fn read(world: &World, page: u32) -> Option<u64> {
    let (core, region) = (&world.core, &world.mapping);
    let folio = match core.lookup(region, page) {
        Lookup::Hit(hit) => {
            let value = FRAMES[hit.folio.0 as usize].load(Relaxed);
            core.touch(&world.task, region, page, &hit);
            return core.confirm(region, page, &hit).then_some(value);
        }
        Lookup::Pending(_) => return None,
        Lookup::Miss => {
            let new = world.charge();
            core.insert(&Silent, &world.task, region, page, new, Arrival::default()).ok()?
        }
    };
    let value = core.swap_slot(folio).map_or(0, |SwapSlot(slot)| SLOTS[slot as usize].load(Relaxed));
    FRAMES[folio.0 as usize].store(value, Relaxed);
    core.publish(&DONE, region, folio);
    Some(value)
}

/// Writes to a page. `false`: it is busy.
pub(super) fn store(world: &World, page: u32, value: u64) -> bool {
    if read(world, page).is_none() {
        return false;
    }
    let Lookup::Hit(hit) = world.core.lookup(&world.mapping, page) else { return false };
    if world.core.try_lock(&DONE, &world.mapping, page, &hit) != LockAttempt::Locked {
        return false;
    }
    assert!(world.core.begin_content(&world.mapping, hit.folio));
    FRAMES[hit.folio.0 as usize].store(value, Relaxed);
    world.core.end_content(&world.mapping, hit.folio);
    world.core.set_dirty(&DONE, &world.mapping, hit.folio);
    world.core.unlock(&DONE, hit.folio);
    world.core.put(&DONE, hit.folio);
    true
}

pub(super) fn swap_out(world: &World) -> u64 {
    world.evict_on(&DONE, Swappiness::ANON_ONLY)
}

/// The write ends at once, by the same thread.
fn swap_out_later(world: &World) -> u64 {
    let freed = world.evict_on(&STARTED, Swappiness::ANON_ONLY);
    end_write(world);
    freed
}

fn end_write(world: &World) {
    for number in 0..world.core.folios.len() {
        let folio = FolioId(number);
        if world.core.folios.flags(folio).load().writeback() {
            world.core.end_writeback(&DONE, &world.mapping, folio, true, 0);
        }
    }
}

/// The content of a page, in memory or in swap; `None`: it was released or never written.
fn content(world: &World, page: u32) -> (Option<u64>, bool) {
    let core = &world.core;
    let slot = core.mapping_slot(&world.mapping, page);
    if let Some(folio) = slot.and_then(|slot| slot.folio()) {
        return (Some(FRAMES[folio.0 as usize].load(Relaxed)), true);
    }
    let entry = slot.and_then(|slot| slot.shadow());
    (entry.map(|entry| SLOTS[entry as u32 as usize].load(Relaxed)), false)
}

impl Core {
    fn mapping_slot(&self, mapping: &Mapping, page: u32) -> Option<mapping::Slot> {
        mapping.slot(&self.leaves, page).map(|slot| slot.load())
    }
}

fn judge_content(world: &World, expected: &[u64]) -> &'static str {
    let (value, is_there) = content(world, 0);
    let value = value.expect("its content is somewhere");
    assert!(expected.contains(&value), "{value}");
    let again = read(world, 0).expect("no other thread runs");
    assert_eq!(again, value);
    if is_there { "there" } else { "swapped out" }
}

fn stored(world: &World) {
    assert!(store(world, 0, 5));
    grow_old(world);
}

/// Opens generations, so that reclaim takes the pages next.
pub(super) fn grow_old(world: &World) {
    let memcg = world.core.memcg(world.task.memcg);
    for _ in 0..2 {
        let (seq, swappiness) = (memcg.lruvec.max_seq(), Swappiness::ANON_ONLY);
        lru::Aging { core: &world.core, host: &DONE, memcg, seq, swappiness, force: false }.open_generation();
    }
}

fn swapped(world: &World) {
    stored(world);
    assert_eq!(swap_out(world), 1);
    assert!(!content(world, 0).1, "it is swapped out");
}

fn cached(world: &World) {
    swapped(world);
    assert_eq!(read(world, 0), Some(5));
    grow_old(world);
}

/// A page with content in memory, in swap, and in both.
const STATES: [fn(&World); 3] = [stored, swapped, cached];

/// Explores what two threads do, with a store that is written at once and one that is not. The
/// result lists the outcomes of all.
fn explore_stores<A: 'static, B: 'static>(
    preemptions: usize,
    prepare: fn(&World),
    first: fn(&World) -> A,
    second: fn(&World) -> B,
    judge: fn(&World, A, B) -> &'static str,
) -> Vec<&'static str> {
    let stores = [(1, SwapStore::Memory), (2, SwapStore::Device)];
    let mut outcomes: Vec<_> = stores
        .into_iter()
        .flat_map(|(pages, store)| {
            explore_in(move || world_with(pages, store), preemptions, prepare, first, second, judge)
        })
        .collect();
    outcomes.sort_unstable();
    outcomes.dedup();
    outcomes
}

fn swap_out_old(world: &World) -> u64 {
    grow_old(world);
    swap_out(world)
}

/// A fault while the page is written to swap and evicted: it finds the content that was stored.
#[test]
fn loom_a_fault_finds_what_was_stored() {
    let judge = |world: &World, got: Option<u64>, _| {
        assert!(got.is_none_or(|got| got == 5), "{got:?}");
        judge_content(world, &[5])
    };
    for prepare in STATES {
        explore_stores(2, prepare, |world| read(world, 0), swap_out_later, judge);
        let outcomes = explore_stores(2, prepare, |world| read(world, 0), swap_out_old, judge);
        assert_eq!(outcomes, ["swapped out", "there"]);
    }
    let judge = |world: &World, first, second| {
        assert!([first, second].iter().flatten().all(|&got| got == 5), "{first:?} {second:?}");
        judge_content(world, &[5])
    };
    assert_eq!(explore_stores(2, swapped, |world| read(world, 0), |world| read(world, 0), judge), ["there"]);
}

/// A store while the page is written to swap and evicted: it is not lost.
#[test]
fn loom_a_store_is_not_lost() {
    let judge = |world: &World, is_stored, _| judge_content(world, if is_stored { &[7] } else { &[5] });
    for prepare in STATES {
        explore_stores(1, prepare, |world| store(world, 0, 7), swap_out_later, judge);
        let outcomes = explore_stores(1, prepare, |world| store(world, 0, 7), swap_out_old, judge);
        assert!(outcomes.contains(&"there"), "{outcomes:?}");
    }
}

/// A page is released while it is written to swap, evicted or brought in: in the end it has no
/// slot.
#[test]
fn loom_a_released_page_has_no_slot() {
    fn judge<T>(world: &World, is_gone: bool, _: T) -> &'static str {
        assert!(truncate(world));
        assert_eq!((world.core.used_swap_pages(), content(world, 0)), (0, (None, false)));
        if is_gone { "gone" } else { "busy" }
    }
    for prepare in STATES {
        for out in [swap_out_later, swap_out_old] {
            let outcomes = explore_stores(1, prepare, truncate, out, judge);
            assert!(outcomes.contains(&"gone"), "{outcomes:?}");
        }
        let outcomes = explore_stores(1, prepare, truncate, |world| read(world, 0), judge);
        assert!(outcomes.contains(&"gone"), "{outcomes:?}");
    }
}

/// The slot of a page that returns or is released goes to another page at once: neither gets the
/// other's content.
#[test]
fn loom_a_slot_has_one_page() {
    fn prepare(world: &World) {
        swapped(world);
        assert!(store(world, 1, 6));
        grow_old(world);
    }
    let outcomes = explore_stores(
        1,
        prepare,
        |world| read(world, 0),
        |world| swap_out(world) + swap_out(world),
        |world, got, _| {
            assert!(got.is_none_or(|got| got == 5), "{got:?}");
            assert_eq!(content(world, 1).0, Some(6));
            judge_content(world, &[5])
        },
    );
    assert!(outcomes.contains(&"there"), "{outcomes:?}");
    let outcomes = explore_stores(1, prepare, truncate, swap_out, |world, is_gone, _| {
        assert!(!is_gone || content(world, 0).0.is_none());
        assert!(truncate(world));
        assert_eq!(world.core.used_swap_pages(), 0);
        if is_gone { "gone" } else { "busy" }
    });
    assert!(outcomes.contains(&"gone"), "{outcomes:?}");
}

/// Removes the memcg of the task, and the task's handle on it.
fn remove(world: &World) {
    world.core.remove_memcg(&DONE, world.task.memcg).unwrap();
    world.core.drop_handle(world.task.memcg);
}

/// Releases the page, in memory or in swap, whose content must be right.
fn release_page(world: &World) {
    if content(world, 0).0.is_some() {
        judge_content(world, &[5]);
    }
    assert!(truncate(world));
    world.core.drain_all(&DONE);
}

/// A memcg is removed while its page is written to swap, evicted, brought in or released: in the
/// end nothing is left of the memcg.
#[test]
fn loom_a_memcg_with_swap_goes_meanwhile() {
    fn judge<T>(world: &World, _: T, (): ()) -> &'static str {
        release_page(world);
        assert_eq!(world.core.memcgs.iter().count(), 1);
        assert_eq!(world.core.memcg(MemcgId::ROOT).usage_pages(), 0);
        "gone"
    }
    for prepare in STATES {
        assert_eq!(explore_stores(1, prepare, swap_out_old, remove, judge), ["gone"]);
        assert_eq!(explore_stores(1, prepare, swap_out_later, remove, judge), ["gone"]);
        assert_eq!(explore_stores(2, prepare, truncate, remove, judge), ["gone"]);
    }
}

/// The same where a memcg pays for the index of its pages: what it has paid is given back once,
/// also for a page in swap.
#[test]
fn loom_a_memcg_that_pays_for_swapped_pages_goes_meanwhile() {
    fn world() -> Arc<World> {
        let mut options = Options { charge_metadata: true, frames: 8, ..World::options() };
        options.swap = SwapOptions { pages: 2, store: SwapStore::Memory };
        let core = Core::new(options, Time::ZERO);
        let memcg = core.add_memcg("tenant", 8, Time::ZERO).unwrap().id();
        World::of_memcg(core, memcg, Kind::Anon)
    }
    fn judge<T>(world: &World, _: T, (): ()) -> &'static str {
        release_page(world);
        world.core.reparent_index();
        world.core.settle_index();
        assert_eq!(world.core.memcgs.iter().count(), 1);
        assert_eq!(world.core.memcg(MemcgId::ROOT).index_bytes(), 0);
        "gone"
    }
    for prepare in STATES {
        let bring = |world: &World| read(world, 0);
        assert_eq!(explore_in(world, 1, prepare, swap_out_old, remove, judge), ["gone"]);
        assert_eq!(explore_in(world, 1, prepare, truncate, remove, judge), ["gone"]);
        assert_eq!(explore_in(world, 1, prepare, bring, remove, judge), ["gone"]);
    }
}
