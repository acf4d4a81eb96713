//! Charges that pay for the index of their page, beside other threads.

use super::*;

/// A core whose memcgs pay for the index, without pages.
fn world() -> Arc<World> {
    let options = Options { charge_metadata: true, frames: 8, ..World::options() };
    let core = Core::new(options, Time::ZERO);
    let memcg = core.add_memcg("tenant", 8, Time::ZERO).unwrap().id();
    World::of_memcg(core, memcg, Kind::File)
}

/// Charges a page with what it adds to the index, and brings it in. `false`: it did not come.
fn bring_paid(world: &World, page: u32) -> bool {
    let (core, mapping) = (&world.core, &world.mapping);
    let mut charging = Charging::new(world.task.memcg, 0).for_page(core, mapping, page);
    let new = loop {
        match charging.step(core, &Silent) {
            ChargeStep::Charged(new) => break new,
            ChargeStep::More => {}
            other => panic!("{other:?}"),
        }
    };
    let inserted = core.insert(&Silent, &world.task, mapping, page, new, Arrival::default());
    let inserted = inserted.map(|folio| core.publish(&Silent, mapping, folio));
    inserted.is_ok()
}

/// Checks that no page, leaf or charge is left.
fn is_empty(world: &World) {
    let (core, memcg) = (&world.core, world.core.memcg(world.task.memcg));
    assert!(truncate(world));
    core.settle_index();
    assert_eq!((memcg.index_bytes(), memcg.usage_pages()), (0, 0));
    core.validate().unwrap();
    assert!(core.close_mapping(&Silent, &world.mapping).is_none());
    core.settle_index();
    let unused = core.leaves.in_use();
    assert_eq!((unused, core.memcg(MemcgId::ROOT).index_bytes()), (0, 0));
}

/// A page comes while the last other page of its directory goes.
#[test]
fn loom_a_page_comes_while_its_directory_goes() {
    let prepare = |world: &World| assert!(bring_paid(world, 0));
    let bring = |world: &World| bring_paid(world, 64);
    let truncate = |world: &World| world.core.truncate(&Silent, &world.mapping, 0, 1).is_none();
    let outcomes = explore_in(world, 2, prepare, bring, truncate, |world, came, truncated| {
        assert!(truncated);
        is_empty(world);
        if came { "came" } else { "did not come" }
    });
    assert_eq!(outcomes, ["came"]);
}

/// A page comes while its file is closed.
#[test]
fn loom_a_page_comes_while_its_file_is_closed() {
    let close = |world: &World| world.core.close_mapping(&Silent, &world.mapping).is_none();
    let prepare = |world: &World| assert!(bring_paid(world, 0));
    let outcomes = explore_in(
        world,
        2,
        prepare,
        |world| bring_paid(world, 64),
        close,
        |world, came, closed| {
            assert!(closed || came);
            if !closed {
                assert!(world.core.close_mapping(&Silent, &world.mapping).is_none());
            }
            world.core.settle_index();
            let memcg = world.core.memcg(world.task.memcg);
            assert_eq!((memcg.index_bytes(), memcg.usage_pages()), (0, 0));
            assert_eq!(world.core.leaves.in_use(), 0);
            if came { "came" } else { "did not come" }
        },
    );
    assert_eq!(outcomes, ["came", "did not come"]);
}

/// A reader while its page's directory and leaf go to another file, whose page has the same index.
#[test]
fn loom_a_glance_never_takes_a_page_of_another_file() {
    use loom::sync::atomic::AtomicU64;
    loom::lazy_static! {
        static ref BYTES: [AtomicU64; 8] = std::array::from_fn(|_| AtomicU64::new(1));
    }
    let prepare = |world: &World| {
        assert!(bring_paid(world, 0));
        world.core.open_mapping(Kind::File);
    };
    let read = |world: &World| {
        let seen = world.core.glance(&world.mapping, 0).filter(Glance::is_readable)?;
        let bytes = BYTES[seen.folio().0 as usize].load(Relaxed);
        seen.still().then_some(bytes)
    };
    let replace = |world: &World| {
        assert!(truncate(world));
        let (core, other) = (&world.core, world.core.mapping(MappingId(1)).unwrap());
        let new = world.charge();
        let folio = core.insert(&Silent, &world.task, &other, 0, new, Arrival::default()).unwrap();
        BYTES[folio.0 as usize].store(2, Relaxed);
        core.publish(&Silent, &other, folio);
    };
    let outcomes = explore_in(world, 3, prepare, read, replace, |_, bytes, ()| {
        assert!(bytes.is_none_or(|bytes| bytes == 1));
        if bytes.is_some() { "read" } else { "missed" }
    });
    assert_eq!(outcomes, ["missed", "read"]);
}
