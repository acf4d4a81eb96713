//! Changes of the policy at run time, beside other threads. `validate` finds a page on a list that
//! its state does not name, and sizes that differ from the lists.

use super::*;
use crate::lru::switch::SwitchStep;
use crate::reclaim::{NodeWalk, WalkStep};

const POLICIES: [Lru; 3] = [Lru::Classic, Lru::MultiGen, Lru::Ranked];

fn switch(world: &World, to: Lru) {
    let mut switch = world.core.switch_lru(to);
    while switch.step(&world.core, 1) == SwitchStep::More {}
}

/// A pass at the last priority. Returns the pages freed.
fn pass(world: &World) -> u64 {
    let orders = Orders::new(world.task.memcg, EffortKind::Limit, 1, Swappiness::FILE_ONLY, 0);
    let mut scan = Scan::default();
    let cx = &mut lru::Context::new(&world.core, &Silent, &orders, &mut scan);
    let mut walk = NodeWalk::new(cx, 0, true);
    loop {
        match walk.step(cx) {
            WalkStep::More => {}
            WalkStep::Wait(_) => loom::thread::yield_now(),
            WalkStep::Finished => break,
        }
    }
    scan.progress.reclaimed
}

/// A core with one cached page under `lru`.
fn world_under(lru: Lru) -> Arc<World> {
    let mut options = World::options();
    options.mechanisms = options.mechanisms.with_lru(lru);
    let world = World::empty(options, Kind::File);
    world.core.memcgs.iter().for_each(make_state_of_ranked);
    world.bring(0, |_| ());
    world
}

/// Explores a switch between each two policies beside `act`.
fn beside_switches<A: 'static>(
    prepare: impl Fn(&World) + Send + Sync + Copy + 'static,
    act: impl Fn(&World) -> A + Send + Sync + Copy + 'static,
    judge: impl Fn(&World, A) + Send + Sync + Copy + 'static,
) {
    for from in POLICIES {
        for to in POLICIES.into_iter().filter(|&to| to != from) {
            let switch = move |world: &World| switch(world, to);
            let judge = move |world: &World, (), acted| {
                judge(world, acted);
                assert_eq!(world.core.lru(), to);
                "switched"
            };
            explore_in(move || world_under(from), 2, prepare, switch, act, judge);
        }
    }
}

/// Reclaim finds the page, if it is left.
fn is_found(world: &World) {
    let left = u64::from(world.hit().is_some());
    let freed: u64 = (0..3).map(|_| pass(world)).sum();
    assert_eq!(freed, left, "{}", world.core.lru().name());
}

#[test]
fn loom_a_switch_beside_reclaim_loses_no_page() {
    beside_switches(
        |_| (),
        pass,
        |world, freed| {
            assert_eq!(freed == 1, world.hit().is_none());
            is_found(world);
        },
    );
}

#[test]
fn loom_a_switch_beside_truncation_loses_no_page() {
    beside_switches(
        |_| (),
        truncate,
        |world, truncated| {
            assert_eq!(truncated, world.hit().is_none());
            is_found(world);
        },
    );
}

#[test]
fn loom_a_switch_beside_a_new_page_loses_none() {
    let prepare = |world: &World| assert!(truncate(world));
    let bring = |world: &World| _ = world.bring(0, |_| ());
    beside_switches(prepare, bring, |world, ()| {
        assert!(world.hit().is_some());
        is_found(world);
    });
}

#[test]
fn loom_a_switch_beside_an_unlocked_page_loses_none() {
    let prepare = |world: &World| assert!(lock_in_memory(world) && pass(world) == 0);
    let unlock = |world: &World| {
        let folio = world.hit().expect("it was locked in memory").folio;
        world.core.set_mlocked(folio, false);
        world.core.rescue(folio);
    };
    beside_switches(prepare, unlock, |world, ()| is_found(world));
}

#[test]
fn loom_a_switch_beside_the_removal_of_a_memcg_loses_no_page() {
    let remove = |world: &World| {
        world.core.remove_memcg(&Silent, world.task.memcg).unwrap();
        world.core.drop_handle(world.task.memcg);
    };
    beside_switches(
        |_| (),
        remove,
        |world, ()| {
            assert!(world.hit().is_some() && truncate(world));
            assert_eq!(world.core.memcgs.iter().count(), 1, "it is empty");
        },
    );
}
