//! Walks over page tables that several threads share, and what they leave behind.

use super::*;
use crate::lru::Seq;

/// A core with two address spaces that map a page each, which was accessed. Both tables are dense.
struct Spaces {
    world: Arc<World>,
    /// The mapping of the second address space.
    mapping: Arc<Mapping>,
}

impl Spaces {
    fn new() -> Arc<Spaces> {
        let core = Core::new(World::options(), Time::ZERO);
        let memcg = core.add_memcg("tenant", 2, Time::ZERO).unwrap().id();
        let [task, second] = [(); 2].map(|()| core.new_task(memcg, 0));
        let [mapping, mapping_of_second] = [(); 2].map(|()| core.open_mapping(Kind::File));
        core.map(&task, &mapping, 1);
        core.map(&second, &mapping_of_second, 1);
        let world = World { core, task, mapping };
        for (task, mapping) in [(&world.task, &world.mapping), (&second, &mapping_of_second)] {
            let folio =
                world.core.insert(&Silent, task, mapping, 0, world.charge(), Arrival::default()).unwrap();
            world.core.publish(&Silent, mapping, folio);
            let Lookup::Hit(hit) = world.core.lookup(mapping, 0) else { panic!("it was just inserted") };
            world.core.touch(task, mapping, 0, &hit);
        }
        Arc::new(Spaces { world: Arc::new(world), mapping: mapping_of_second })
    }
}

/// Two threads share a walk: each table that one of them walked is in the filter for the next walk,
/// and counted. The thread with the first address space once emptied the filter and the counts when
/// the other one had added to them already.
#[test]
fn loom_no_thread_of_a_walk_empties_the_filter_of_the_other() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(|| {
        let spaces = Spaces::new();
        let other = {
            let spaces = spaces.clone();
            loom::thread::spawn(move || age(&spaces.world))
        };
        assert!(age(&spaces.world) != other.join().unwrap());
        let world = &spaces.world;
        let lruvec = &world.core.memcg(world.task.memcg).lruvec;
        let mut walked = 0;
        for mapping in [&world.mapping, &spaces.mapping] {
            // The thread that ends the walk opens the generation, and the other one stops.
            if !mapping.slot(&world.core.leaves, 0).unwrap().load().accessed() {
                walked += 1;
                assert!(lruvec.filters.may_contain(Seq(4), mapping.id(), 0), "a table is forgotten");
            }
        }
        assert_eq!(lruvec.walked(), [walked; 4]);
        world.core.validate().unwrap();
    });
}

/// A page is accessed while a walk begins: the walk finds its page table accessed, or the next walk
/// visits the address space.
#[test]
fn loom_an_address_space_that_ran_is_walked() {
    fn walk(world: &World) -> bool {
        world.core.memcg(world.task.memcg).spaces.take_ran();
        world.mapping.clear_young_table(&world.core.leaves, 0)
    }
    fn of_two_walks(world: &World, (): (), found: bool) -> &'static str {
        let again = !world.core.memcg(world.task.memcg).spaces.take_ran().is_empty();
        assert!(found || again, "no walk finds the access");
        if found { "found" } else { "found by the next" }
    }
    let prepare = |world: &World| {
        load(world);
        assert!(world.mapping.clear_young_table(&world.core.leaves, 0));
    };
    let in_range = move |world: &World| {
        settle(world);
        prepare(world);
    };
    let both = ["found", "found by the next"];
    assert_eq!(explore(prepare, load, walk, of_two_walks), both);
    assert_eq!(explore(in_range, load, walk, of_two_walks), both);
}
