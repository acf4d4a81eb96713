//! Removal of memcgs beside other threads.

use super::anon::{DONE, grow_old, store, swap_out};
use super::*;
use crate::writeback::{Flusher, FlusherOptions, FlusherStep};

fn is_alone(world: &World) -> bool {
    world.core.memcgs.iter().count() == 1
}

/// A removed memcg below a removed one loses its last charge, a swap slot, while its last handle is
/// dropped: the memcg above is released, too.
#[test]
fn loom_a_removed_parent_is_released_with_its_child() {
    fn world() -> Arc<World> {
        let mut options = World::options();
        options.swap = SwapOptions { pages: 1, store: SwapStore::Memory };
        let core = Core::new(options, Time::ZERO);
        let parent = core.add_memcg("parent", 2, Time::ZERO).unwrap().id();
        let child = core.add_child(parent, "child", 2, Time::ZERO).unwrap().id();
        World::of_memcg(core, child, Kind::Anon)
    }
    let prepare = |world: &World| {
        let (core, child) = (&world.core, world.task.memcg);
        let parent = core.memcg(child).parent();
        assert!(store(world, 0, 5));
        grow_old(world);
        assert_eq!(swap_out(world), 1);
        for memcg in [child, parent] {
            core.remove_memcg(&DONE, memcg).unwrap();
        }
        core.drop_handle(parent);
    };
    let drop_handle = |world: &World| world.core.drop_handle(world.task.memcg);
    let outcomes = explore_in(world, PREEMPTIONS, prepare, truncate, drop_handle, |world, truncated, ()| {
        assert!(truncated && is_alone(world), "a removed memcg keeps its number");
        "released"
    });
    assert_eq!(outcomes, ["released"]);
}

/// The last page of a leaf is truncated while its memcg is removed and released: the shadows that
/// the leaf is left with belong to the heir or go.
#[test]
fn loom_no_shadows_are_left_to_a_released_memcg() {
    let prepare = |world: &World| {
        world.bring(1, |_| ());
        assert_eq!(world.evict(), 1);
        assert!(world.hit().is_none());
    };
    let truncate = |world: &World| world.core.truncate(&Silent, &world.mapping, 1, 2).is_none();
    let remove = |world: &World| {
        world.core.remove_memcg(&Silent, world.task.memcg).unwrap();
        world.core.drop_handle(world.task.memcg);
    };
    let outcomes = explore_with(2, prepare, truncate, remove, |world, truncated, ()| {
        assert!(truncated && is_alone(world));
        world.core.memcgs.settle_all();
        let root = world.core.memcg(MemcgId::ROOT);
        let (leaves, listed) = (world.core.leaves_in_use(), root.lruvec.shadow_leaves.lock().len());
        assert_eq!((leaves as usize, root.stat.get(Counter::WorkingsetNodes)), (listed, listed as u64));
        if leaves == 0 { "dropped" } else { "inherited" }
    });
    assert_eq!(outcomes, ["dropped", "inherited"]);
}

/// A page becomes dirty while the flusher looks which memcgs have too many dirty pages: it looks at
/// this one the next time.
#[test]
fn loom_too_many_dirty_pages_are_noted() {
    fn look(world: &World) -> bool {
        // The limit of all memory is out of reach.
        let options = FlusherOptions { memory_permille: 1000, ..FlusherOptions::default() };
        let mut flusher = Flusher::new(options, Time::ZERO);
        matches!(flusher.step(&world.core, &Silent), FlusherStep::Write(_))
    }
    let prepare = |world: &World| {
        assert!(write(world) && flush(world));
    };
    let outcomes = explore(prepare, write, look, |world, written, is_due| {
        assert!(written && look(world), "the memcg's dirty pages are above its threshold");
        if is_due { "due" } else { "due the next time" }
    });
    assert_eq!(outcomes, ["due", "due the next time"]);
}

/// A task stalls for a page whose memcg is removed meanwhile, and another memcg gets the number:
/// the stall counts in one memcg from the beginning to the end.
#[test]
fn loom_a_stall_ends_where_it_began() {
    let stall = |world: &World| {
        let stall = world.core.begin_stall(&Silent, world.task.memcg);
        world.core.end_stall(&Silent, stall);
    };
    let replace = |world: &World| {
        world.core.remove_memcg(&Silent, world.task.memcg).unwrap();
        world.core.drop_handle(world.task.memcg);
        world.core.add_memcg("next", 2, Time::ZERO).unwrap().id()
    };
    let prepare = |world: &World| assert!(truncate(world));
    let outcomes = explore_with(2, prepare, stall, replace, |world, (), next| {
        let is_reused = next == world.task.memcg;
        world.core.remove_memcg(&Silent, next).unwrap();
        world.core.drop_handle(next);
        assert!(is_alone(world));
        if is_reused { "reused" } else { "another number" }
    });
    assert_eq!(outcomes, ["another number", "reused"]);
}

/// A memcg is removed while it loses its last page: one of the two threads releases it.
#[test]
fn loom_a_removed_memcg_is_released() {
    let remove = |world: &World| {
        world.core.remove_memcg(&Silent, world.task.memcg).unwrap();
        world.core.drop_handle(world.task.memcg);
    };
    let give_back = |world: &World| world.core.uncharge_pages(world.task.memcg, 1);
    let prepare = |world: &World| {
        assert!(truncate(world));
        world.core.memcgs.charge_pages(world.task.memcg, 1).unwrap();
    };
    let outcomes = explore(prepare, give_back, remove, |world, (), ()| {
        assert!(is_alone(world), "it has no page");
        "released"
    });
    assert_eq!(outcomes, ["released"]);
}

/// A removed memcg's index goes to its heir, which is removed meanwhile: no memcg is released that
/// pays for a part of it.
#[test]
fn loom_no_released_memcg_pays_for_the_index() {
    fn world() -> Arc<World> {
        let options = Options { charge_metadata: true, frames: 8, ..World::options() };
        let core = Core::new(options, Time::ZERO);
        let parent = core.add_memcg("parent", 8, Time::ZERO).unwrap().id();
        let child = core.add_child(parent, "child", 8, Time::ZERO).unwrap().id();
        // The root pays for the directory, and the child for one leaf.
        let mut world = World::of_memcg(core, MemcgId::ROOT, Kind::File);
        world.bring(64, |_| ());
        let task = world.core.new_task(child, 0);
        Arc::get_mut(&mut world).unwrap().task = task;
        world.bring(0, |_| ());
        world
    }
    let prepare = |world: &World| world.core.remove_memcg(&Silent, world.task.memcg).unwrap();
    let remove_parent = |world: &World| {
        let (core, child) = (&world.core, world.task.memcg);
        let parent = core.memcg(child).parent();
        core.remove_memcg(&Silent, parent).unwrap();
        [parent, child].into_iter().for_each(|memcg| core.drop_handle(memcg));
    };
    let judge = |world: &World, (), ()| {
        let memcgs = (0..world.core.memcgs.numbers()).map(|number| world.core.memcg(MemcgId(number)));
        let mut released =
            memcgs.filter(|memcg| !world.core.memcgs.iter().any(|other| other.id() == memcg.id()));
        assert!(released.all(|memcg| memcg.index_bytes() == 0), "a released memcg pays");
        assert!(truncate(world));
        world.core.settle_index();
        assert!(is_alone(world));
        "removed"
    };
    let reparent = |world: &World| world.core.reparent_index();
    assert_eq!(explore_in(world, 2, prepare, reparent, remove_parent, judge), ["removed"]);
}

/// A core with a memcg that is removed, and one behind it; the first has a page.
fn siblings(mechanisms: Mechanisms) -> Arc<World> {
    let options = Options { mechanisms, ..World::options() };
    let world = World::empty(options, Kind::File);
    world.core.add_memcg("behind", 2, Time::ZERO).unwrap();
    world.bring(0, |_| ());
    world
}

/// Removes the first memcg, with its page, and makes another, which may get its number.
fn replace_first(world: &World) {
    let (core, first) = (&world.core, world.task.memcg);
    core.truncate(&Silent, &world.mapping, 0, 1 << 32);
    core.remove_memcg(&Silent, first).unwrap();
    core.drop_handle(first);
    let next = core.add_memcg("next", 2, Time::ZERO).unwrap().id();
    core.remove_memcg(&Silent, next).unwrap();
    core.drop_handle(next);
}

/// The name of a memcg while it is visited.
fn name_of_visited(memcg: &Memcg) -> String {
    let [before, after] = [(); 2].map(|()| memcg.name());
    assert_eq!(before, after, "another memcg has the number during the visit");
    before.to_string()
}

fn behind_is_seen(world: &World, visited: &[String]) {
    assert!(visited.iter().any(|name| name == "behind"), "the visit ended early: {visited:?}");
    let left: Vec<_> = world.core.memcgs.iter().map(|memcg| memcg.name().to_string()).collect();
    assert_eq!(left, ["", "behind"], "a memcg that was visited keeps its number");
}

/// All memcgs are visited, while one is removed and another gets its number.
#[test]
fn loom_a_visited_memcg_is_not_replaced() {
    let visit = |world: &World| world.core.subtree(MemcgId::ROOT).map(name_of_visited).collect::<Vec<_>>();
    let world = || siblings(World::options().mechanisms);
    let outcomes = explore_in(
        world,
        2,
        |_| (),
        visit,
        replace_first,
        |world, visited, ()| {
            behind_is_seen(world, &visited);
            match visited.iter().any(|name| name == "tenant") {
                true => "visited",
                false => "gone",
            }
        },
    );
    assert_eq!(outcomes, ["gone", "visited"]);
}

/// The same where an order names the memcgs: the kernel's memcg LRU, and our turns.
#[test]
fn loom_a_memcg_that_has_its_turn_is_not_replaced() {
    let visit = |world: &World| {
        let (core, root) = (&world.core, MemcgId::ROOT);
        let mut walk = lru::OrderWalk::new(core, root, 0, false);
        let (mut visited, mut before) = (Vec::new(), None);
        loop {
            let next = walk.next(core, root, before.map(|memcg| (memcg, lru::Visit::default())));
            if let Some(before) = before {
                core.end_visit(before, root);
            }
            let Some((memcg, _)) = next else { return visited };
            visited.push(name_of_visited(core.memcg(memcg)));
            before = Some(memcg);
        }
    };
    let of_lru = || siblings(Mechanisms::preset(Preset::Linux72));
    let outcomes = explore_in(
        of_lru,
        2,
        |_| (),
        visit,
        replace_first,
        |world, visited, ()| {
            behind_is_seen(world, &visited);
            if visited.iter().any(|name| name == "tenant") { "visited" } else { "gone" }
        },
    );
    assert_eq!(outcomes, ["gone", "visited"]);
    let in_turns = || {
        let world = siblings(Mechanisms::default());
        world.core.memcgs.iter().for_each(make_state_of_ranked);
        world
    };
    let outcomes = explore_in(
        in_turns,
        2,
        |_| (),
        visit,
        replace_first,
        |_, visited: Vec<String>, ()| {
            if visited.iter().any(|name| name == "tenant") { "visited" } else { "gone" }
        },
    );
    assert_eq!(outcomes, ["gone", "visited"]);
}

/// Two threads change the usage of a protected memcg: in the end, it claims as much of its
/// protection as it uses (`validate` compares them). A thread that was late once reported a usage
/// that was over.
#[test]
fn loom_a_memcg_claims_what_it_uses() {
    let prepare = |world: &World| {
        let (memcgs, memcg) = (&world.core.memcgs, world.task.memcg);
        assert!(truncate(world));
        memcgs.set_min(memcg, 5);
        memcgs.charge_pages(memcg, 2).unwrap();
    };
    let uncharge = |world: &World| world.core.uncharge_pages(world.task.memcg, 1);
    let outcomes = explore(prepare, uncharge, uncharge, |world, (), ()| {
        assert_eq!(world.core.memcg(world.task.memcg).usage_pages(), 0);
        "nothing"
    });
    assert_eq!(outcomes, ["nothing"]);
}
