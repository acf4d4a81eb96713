//! Tests of OOM kills: victims, counters, and the errors of killed tenants.

use super::*;
use crate::charge::{ChargeStep, Charging};
use crate::mapping::Mapping;
use crate::reclaim::{Background, BackgroundStep, Watermarks};
use crate::testing::Harness;
use crate::{Arrival, ControlStep, FlushReason, FolioId, Kind, Options, PAGE_BYTES, Task, Time, UNLIMITED};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// The victim among candidates of (usage, protection, anonymous pages).
fn victim(candidates: &[[u64; 3]]) -> Option<u32> {
    let candidate = |(n, &[usage_pages, protected_pages, anon_pages]): (usize, &[u64; 3])| OomCandidate {
        memcg: MemcgId(n as u32),
        usage_pages,
        protected_pages,
        anon_pages,
    };
    choose_victim(candidates.iter().enumerate().map(candidate)).map(|victim| victim.0)
}

#[test]
fn the_victim_uses_most_above_its_protection() {
    assert_eq!(victim(&[]), None);
    assert_eq!(victim(&[[900, 0, 0], [800, 0, 0]]), None, "no tenant has memory that a kill frees");
    assert_eq!(victim(&[[100, 0, 10], [300, 0, 10], [200, 0, 10]]), Some(1));
    assert_eq!(victim(&[[900, 0, 0], [10, 0, 1]]), Some(1), "file pages alone make no victim");
    assert_eq!(victim(&[[300, 250, 300], [100, 0, 100]]), Some(1), "300 are 50 above 250");
    assert_eq!(victim(&[[300, 400, 300], [100, 200, 100]]), Some(0), "both spared: more is freed");
    assert_eq!(victim(&[[100, 0, 20], [100, 0, 30]]), Some(1), "as much, but more is freed");
    assert_eq!(victim(&[[100, 0, 20], [100, 0, 20]]), Some(0), "the lower number");
}

/// A host that reaps its victim when the test says so.
#[derive(Default)]
struct OomHost {
    kills: RefCell<Vec<MemcgId>>,
    decisions: RefCell<Vec<OomDecision>>,
    asked: RefCell<Vec<OutOfMemory>>,
    cannot_kill: Cell<bool>,
    now: Cell<Time>,
}

impl Host for OomHost {
    fn now(&self) -> Time {
        self.now.get()
    }
    fn wake_flusher(&self, _: FlushReason) {}
    fn wake_background(&self) {}
    fn wake_waiters(&self, _: FolioId) {}
    fn frame_retired(&self, _: FolioId) {}

    fn out_of_memory(&self, report: &OutOfMemory) -> OomDecision {
        self.asked.borrow_mut().push(report.clone());
        self.decisions.borrow_mut().pop().expect("one decision per report")
    }

    fn oom_kill(&self, victim: MemcgId) -> bool {
        self.kills.borrow_mut().push(victim);
        !self.cannot_kill.get()
    }
}

/// `top`, of 100 pages, with children `a`, `b` and `c`, each with a region.
struct World {
    core: Core,
    host: OomHost,
    top: MemcgId,
    children: Vec<(Task, Arc<Mapping>)>,
}

impl World {
    fn new(oom_policy: OomPolicy) -> World {
        let watermarks = Watermarks { min: 0, low: 0, high: 0 };
        World::with(Options { oom_policy, watermarks, ..Harness::multigen_options(300) }, 100)
    }

    fn with(options: Options, max_pages: u64) -> World {
        let core = Core::new(Options { batch_folios: 1, ..options }, Time::ZERO);
        let top = core.add_memcg("top", max_pages, Time::ZERO).unwrap().id();
        let child = |name| {
            let task = core.new_task(core.add_child(top, name, UNLIMITED, Time::ZERO).unwrap().id(), 0);
            let region = core.open_mapping(Kind::Anon);
            core.map(&task, &region, 512);
            (task, region)
        };
        let children = ["a", "b", "c"].map(child).into();
        World { core, host: OomHost::default(), top, children }
    }

    /// Brings one more page of a child in, or returns the report of the failure.
    fn bring(&self, child: usize, page: u32) -> Result<(), Box<OutOfMemory>> {
        self.bring_to(&self.children[child].1, child, page)
    }

    fn bring_to(&self, region: &Arc<Mapping>, child: usize, page: u32) -> Result<(), Box<OutOfMemory>> {
        let task = &self.children[child].0;
        let mut charging = Charging::new(task.memcg, 0);
        let new = loop {
            match charging.step(&self.core, &self.host) {
                ChargeStep::Charged(new) => break new,
                ChargeStep::More => self.reap(),
                ChargeStep::Wait(_) => {}
                ChargeStep::OutOfMemory(report) => return Err(report),
            }
        };
        let folio = self.core.insert(&self.host, task, region, page, new, Arrival::default()).unwrap();
        self.core.publish(&self.host, region, folio);
        Ok(())
    }

    fn bring_all(&self, child: usize, pages: u32) {
        (0..pages).for_each(|page| self.bring(child, page).unwrap());
    }

    /// Lowers `memory.max` of `top`, in pages, as a write to the file does.
    fn lower(&self, pages: u64) {
        let value = (pages * PAGE_BYTES).to_string();
        let mut write = self.core.write_control("top/memory.max", &value, 0).unwrap();
        for _ in 0..10_000_000 {
            match write.step(&self.core, &self.host).unwrap() {
                ControlStep::Done => return,
                ControlStep::More => self.reap(),
                ControlStep::Wait(_) => {}
            }
        }
        panic!("it ends")
    }

    fn core_folio(&self, mapping: &Mapping, page: u32) -> FolioId {
        match self.core.lookup(mapping, page) {
            crate::Lookup::Hit(hit) => hit.folio,
            other => panic!("page {page}: {other:?}"),
        }
    }

    fn usage(&self) -> u64 {
        self.core.memcg(self.top).usage_pages()
    }

    /// Reaps a victim as a host does, if there is one.
    fn reap(&self) {
        for victim in self.host.kills.take() {
            if self.host.cannot_kill.get() {
                continue;
            }
            let mut reaping = Reaping::new(&self.core, victim);
            loop {
                match reaping.step(&self.core, &self.host) {
                    ReapStep::Begin(_) | ReapStep::Taken(_) => {}
                    ReapStep::Wait(..) => panic!("no page is under work"),
                    ReapStep::Done => break,
                }
            }
        }
    }

    fn events(&self, memcg: MemcgId) -> [u64; 3] {
        [Counter::EventOom, Counter::EventOomKill, Counter::EventOomGroupKill]
            .map(|event| self.core.memcg(memcg).stat().get(event))
    }

    fn all_events(&self) -> Vec<[u64; 3]> {
        let children = self.children.iter().map(|(task, _)| task.memcg);
        std::iter::once(self.top).chain(children).map(|memcg| self.events(memcg)).collect()
    }

    fn report(&self, child: usize, page: u32) -> Box<OutOfMemory> {
        self.bring(child, page).expect_err("all is taken")
    }
}

#[test]
fn the_default_kills_no_tenant() {
    let world = World::new(OomPolicy::default());
    world.bring_all(0, 70);
    world.bring_all(1, 30);
    let report = world.report(1, 30);
    assert_eq!((report.tenant.as_str(), &report.victim), ("top", &None));
    assert_eq!((report.usage_pages, report.max_pages, report.anon_pages), (100, 100, 100));
    assert_eq!(report.generations.iter().map(|row| row.anon_pages).sum::<u64>(), 100, "{report}");
    assert_eq!(world.all_events(), [[1, 0, 0], [0; 3], [0; 3], [0; 3]]);
}

/// [book: memcgs#limits]: "then OOM kill inside the memcg"; `oom` counts in the memcg whose limit
/// was hit, `oom_kill` in the victim.
#[test]
fn a_victim_makes_room() {
    let world = World::new(OomPolicy::Victim);
    world.bring_all(0, 70);
    world.bring_all(1, 30);
    world.bring(1, 30).unwrap();
    assert_eq!(world.all_events(), [[1, 0, 0], [0, 1, 0], [0; 3], [0; 3]]);
    let events = world.core.read_control("top/memory.events", Time::ZERO).unwrap();
    assert!(events.contains("oom 1\noom_kill 1\noom_group_kill 0\n"), "of the subtree: {events}");
    assert_eq!(world.core.memcg(world.top).usage_pages(), 31);

    let refused = world.report(0, 0);
    assert_eq!((refused.tenant.as_str(), refused.victim.as_deref()), ("top", Some("top/a")));
    assert!(refused.to_string().contains("'top/a' was chosen to be killed"), "{refused}");
    assert_eq!(world.all_events()[0], [1, 0, 0], "the victim counts the kill and no other event");

    let a = world.children[0].0.memcg;
    assert!(world.core.oom_revive(a) && !world.core.oom_revive(a));
    world.bring(0, 0).unwrap();
    world.core.validate().unwrap();
}

/// The tenant that needs memory may be the victim.
#[test]
fn the_greedy_may_kill_itself() {
    let world = World::new(OomPolicy::Victim);
    world.bring_all(0, 30);
    world.bring_all(1, 70);
    assert_eq!(world.report(1, 70).victim.as_deref(), Some("top/b"));
    assert_eq!(world.core.memcg(world.top).usage_pages(), 30);
    world.core.validate().unwrap();
}

/// memory.oom.group, as the kernel documents it: "all tasks belonging to the cgroup or to its
/// descendants … are killed together or not at all". The group itself has no tasks.
#[test]
fn a_group_is_killed_together() {
    let world = World::new(OomPolicy::Victim);
    world.core.memcg(world.top).set_oom_group(true);
    world.bring_all(0, 70);
    world.bring_all(1, 30);
    assert_eq!(world.report(1, 30).victim.as_deref(), Some("top/b"), "it belongs to the group");
    assert_eq!(world.all_events(), [[1, 0, 1], [0, 1, 0], [0, 1, 0], [0, 1, 0]]);
    assert_eq!(world.core.memcg(world.top).usage_pages(), 0);
    assert!(world.core.oom_killed(world.top).is_none());
    let events = world.core.read_control("top/memory.events", Time::ZERO).unwrap();
    assert!(events.contains("oom 1\noom_kill 3\noom_group_kill 1\n"), "{events}");
}

/// Unlike in cgroup v2, a tenant may use memory itself and have others below it.
#[test]
fn a_group_with_memory_of_its_own_is_killed_too() {
    let world = World::new(OomPolicy::Victim);
    world.core.memcg(world.top).set_oom_group(true);
    let (task, region) = (world.core.new_task(world.top, 0), world.core.open_mapping(Kind::Anon));
    world.core.map(&task, &region, 512);
    world.bring_all(0, 100);
    assert_eq!(world.report(0, 100).victim.as_deref(), Some("top/a"));
    assert_eq!(world.all_events(), [[1, 1, 1], [0, 1, 0], [0, 1, 0], [0, 1, 0]]);
}

#[test]
fn protection_spares() {
    let world = World::new(OomPolicy::Victim);
    world.core.memcgs.set_min(world.children[0].0.memcg, 60);
    world.bring_all(0, 70);
    world.bring_all(1, 30);
    world.bring(2, 0).unwrap();
    assert_eq!(world.all_events(), [[1, 0, 0], [0; 3], [0, 1, 0], [0; 3]]);
}

#[test]
fn a_host_is_asked() {
    let world = World::new(OomPolicy::Ask);
    world.bring_all(0, 70);
    world.bring_all(1, 30);
    let kill = |path: &str| OomDecision::Kill(path.to_owned());
    // From the last to the first.
    *world.host.decisions.borrow_mut() =
        vec![kill("top/b"), kill("nobody"), OomDecision::Fail, OomDecision::Retry];
    assert_eq!(world.report(2, 0).victim, None, "again, then fail");
    assert_eq!(world.report(2, 0).victim, None, "no tenant has that name");
    world.bring(2, 0).unwrap();
    let asked = world.host.asked.borrow();
    assert_eq!((asked.len(), asked[0].victim.as_deref()), (4, Some("top/a")), "the would-be victim");
    assert_eq!(world.all_events(), [[4, 0, 0], [0; 3], [0, 1, 0], [0; 3]]);
}

#[test]
fn a_host_that_cannot_kill_fails_the_request() {
    let world = World::new(OomPolicy::Victim);
    world.host.cannot_kill.set(true);
    world.bring_all(0, 100);
    assert_eq!(world.report(1, 0).victim, None);
    assert_eq!(world.all_events(), [[1, 0, 0], [0; 3], [0; 3], [0; 3]]);
    let a = world.children[0].0.memcg;
    assert!(world.core.oom_killed(a).is_none());
}

/// A charge waits for a dying tenant, and no other is killed meanwhile.
#[test]
fn requests_wait_for_dying_tenants() {
    let world = World::new(OomPolicy::Victim);
    world.bring_all(0, 70);
    world.bring_all(1, 30);
    let charge = |until: fn(&ChargeStep<FolioId>) -> bool| {
        let mut charging = Charging::new(world.children[2].0.memcg, 0);
        let mut step = || charging.step(&world.core, &world.host).map(|new| new.folio());
        (0..10_000_000).map(|_| step()).find(until).expect("it ends")
    };
    // The first charge kills; the host is slow. The second waits, and fails after a while.
    charge(|step| matches!(step, ChargeStep::Wait(_)));
    let given_up = charge(|step| matches!(step, ChargeStep::OutOfMemory(_)));
    assert!(matches!(given_up, ChargeStep::OutOfMemory(report) if report.victim.is_none()));
    assert_eq!(world.all_events(), [[1, 0, 0], [0, 1, 0], [0; 3], [0; 3]]);
    let a = world.children[0].0.memcg;
    assert!(!world.core.oom_revive(a), "not before it is dead");
    world.reap();
    assert!(matches!(charge(|step| !matches!(step, ChargeStep::More)), ChargeStep::Charged(_)));
}

/// A host that is told of a kill knows the victim by its number, and may be slow. The number of a
/// removed victim could be another's by then.
#[test]
fn a_removed_victim_keeps_its_number_until_it_is_reaped() {
    let world = World::new(OomPolicy::Victim);
    world.bring_all(0, 70);
    world.bring_all(1, 30);
    let mut charging = Charging::new(world.children[2].0.memcg, 0);
    while world.host.kills.borrow().is_empty() {
        assert!(matches!(charging.step(&world.core, &world.host), ChargeStep::More | ChargeStep::Wait(_)));
    }
    charging.cancel(&world.core, &world.host);
    let (World { core, host, .. }, (task, region)) = (&world, &world.children[0]);
    let is_there = || core.memcgs.iter().any(|memcg| memcg.id() == task.memcg);
    assert!(core.truncate(host, region, 0, 512).is_none());
    core.end_task(task);
    core.remove_memcg(host, task.memcg).unwrap();
    core.drop_handle(task.memcg);
    assert!(is_there());
    world.reap();
    assert!(!is_there());
    core.validate().unwrap();
}

/// [book: memcgs#limits], the loop at `max`: optional charges retry once, after the stocks were
/// drained.
#[test]
fn an_optional_charge_fails_after_two_efforts_without_events() {
    for policy in [OomPolicy::Fail, OomPolicy::Victim] {
        let world = World::new(policy);
        world.bring_all(0, 100);
        let max = || world.core.memcg(world.top).stat().get(Counter::EventMax);
        let before = max();
        let mut charging = Charging::new(world.children[1].0.memcg, 0).optional();
        let mut steps = (0..1_000_000).map(|_| charging.step(&world.core, &world.host));
        let end = steps.find(|step| !matches!(step, ChargeStep::More)).expect("it ends");
        assert!(matches!(end, ChargeStep::OutOfMemory(report) if report.usage_pages == 100));
        assert_eq!(world.all_events(), [[0; 3]; 4], "no `oom`, and no kill");
        assert_eq!(max(), before + 2, "two efforts");
    }
}

/// [book: memcgs#limits]: "lowering `high`/`max` | … up to 16 fruitless tries; for `max` then OOM
/// kills": as many as needed, no more.
#[test]
fn lowering_the_limit_kills_as_many_as_it_takes() {
    for (limit, expected) in [
        (90, [[0; 3]; 4]),
        (50, [[1, 0, 0], [0, 1, 0], [0; 3], [0; 3]]),
        (20, [[2, 0, 0], [0, 1, 0], [0, 1, 0], [0; 3]]),
        (0, [[3, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]]),
    ] {
        let world = World::new(OomPolicy::Victim);
        world.bring_all(0, 50);
        world.bring_all(1, 30);
        world.bring_all(2, 10);
        world.lower(limit);
        let left = [90, 40, 10, 0][expected[0][0] as usize];
        assert_eq!((world.usage(), world.core.memcg(world.top).max_pages()), (left, limit));
        assert_eq!(world.all_events(), expected, "{limit}");
        world.core.validate().unwrap();
    }
}

/// If no tenant can be killed, the limit stays as written, and the next charge hits it.
#[test]
fn a_limit_below_unreclaimable_pages_fails_the_next_charge() {
    for (policy, cannot_kill) in [(OomPolicy::Fail, false), (OomPolicy::Victim, true)] {
        let world = World::new(policy);
        world.host.cannot_kill.set(cannot_kill);
        world.bring_all(0, 70);
        world.lower(40);
        assert_eq!((world.usage(), world.core.memcg(world.top).max_pages()), (70, 40));
        assert_eq!(world.all_events(), [[1, 0, 0], [0; 3], [0; 3], [0; 3]]);
        let max = || world.core.memcg(world.top).stat().get(Counter::EventMax);
        let before = max();
        let report = world.report(1, 0);
        assert_eq!((report.usage_pages, report.max_pages, report.victim), (70, 40, None));
        assert!(max() >= before + 16, "one per attempt: {} after {before}", max());
        assert_eq!(world.all_events()[0], [2, 0, 0]);
    }
}

/// `memory.high` kills no tenant. A host is asked about `memory.max` as about a charge.
#[test]
fn a_host_is_asked_about_a_limit() {
    let world = World::new(OomPolicy::Ask);
    world.bring_all(0, 70);
    world.bring_all(1, 30);
    let mut write = world.core.write_control("top/memory.high", "4K", 0).unwrap();
    while write.step(&world.core, &world.host).unwrap() != ControlStep::Done {}
    assert_eq!(world.all_events(), [[0; 3]; 4]);
    *world.host.decisions.borrow_mut() =
        vec![OomDecision::Fail, OomDecision::Kill("top/b".to_owned()), OomDecision::Retry];
    world.lower(40);
    assert_eq!((world.usage(), world.host.asked.borrow().len()), (70, 3));
    assert_eq!(world.all_events(), [[3, 0, 0], [0; 3], [0, 1, 0], [0; 3]]);
}

/// A write that lowers a limit waits for a dying tenant, and no other is killed for the same limit.
#[test]
fn lowering_a_limit_waits_for_a_dying_tenant() {
    let world = World::new(OomPolicy::Victim);
    world.bring_all(0, 70);
    world.bring_all(1, 30);
    let mut charging = Charging::new(world.children[2].0.memcg, 0);
    while !matches!(charging.step(&world.core, &world.host), ChargeStep::Wait(_)) {}
    charging.cancel(&world.core, &world.host);
    // The host is slow: the victim is reaped after the next step.
    let mut write = world.core.write_control("top/memory.max", "160K", 0).unwrap();
    while !matches!(write.step(&world.core, &world.host).unwrap(), ControlStep::Wait(_)) {}
    assert_eq!(world.all_events(), [[1, 0, 0], [0, 1, 0], [0; 3], [0; 3]]);
    world.reap();
    while write.step(&world.core, &world.host).unwrap() != ControlStep::Done {}
    assert_eq!((world.usage(), world.all_events()[0]), (30, [1, 0, 0]));
}

/// `a` and `b` have 70 and 30 anonymous pages, and `a` 200 of a file, on a node that is short of
/// memory. Makes one step of background reclaim `age_ms` later. Returns the killed memcgs and the
/// root's events.
fn thrash(
    options: Options,
    min_ttl_ms: u64,
    age_ms: u64,
    prepare: impl Fn(&World),
) -> (World, Vec<MemcgId>, [u64; 3]) {
    let watermarks = Watermarks { min: 0, low: 4580, high: 4590 };
    let world = World::with(Options { watermarks, ..options }, 4400);
    world.bring_all(0, 70);
    world.bring_all(1, 30);
    let file = world.core.open_mapping(Kind::File);
    (0..4200).for_each(|page| world.bring_to(&file, 0, page).unwrap());
    world.core.tunables.set_min_ttl_ms(min_ttl_ms);
    prepare(&world);
    world.host.now.set(Time::from_nanos(age_ms * 1_000_000));
    let mut background = Background::new(&world.core, 0);
    assert_eq!(background.step(&world.core, &world.host), BackgroundStep::More);
    let kills = world.host.kills.borrow().clone();
    let events = world.events(MemcgId::ROOT);
    (world, kills, events)
}

fn victim_of_4600() -> Options {
    Options { oom_policy: OomPolicy::Victim, ..Harness::multigen_options(4600) }
}

/// [book: aging#checks]: "`min_ttl = 1000`: with one memcg, all pages younger than 1 s, kswapd
/// active → killer invoked; with an old memcg of ≥ 2^priority pages present → not invoked".
#[test]
fn a_young_working_set_is_killed_for() {
    for (min_ttl_ms, age_ms, killed) in
        [(0, 0, false), (1000, 500, true), (1000, 1000, true), (1000, 1001, false)]
    {
        let (world, kills, events) = thrash(victim_of_4600(), min_ttl_ms, age_ms, |_| ());
        let a = world.children[0].0.memcg;
        assert_eq!(kills, if killed { vec![a] } else { vec![] }, "{min_ttl_ms} {age_ms}");
        assert_eq!((events, world.events(a)[1]), ([u64::from(killed), 0, 0], u64::from(killed)));
        assert_eq!(world.core.oom_killed(a).map(|report| report.tenant), killed.then(String::new));
    }
}

/// [book: aging#checks]: "Memcg A below min, memcg B too small at this priority, `min_ttl` set →
/// killer invoked", although both are old.
#[test]
fn protected_and_small_tenants_do_not_count() {
    let (world, kills, _) = thrash(victim_of_4600(), 1000, 5000, |world| {
        world.core.memcgs.set_min(world.top, 4270);
        world.core.memcgs.set_min(world.children[0].0.memcg, 4400);
    });
    // All of `a` is protected, so that `b` uses more above its protection.
    assert_eq!(kills, [world.children[1].0.memcg]);
}

/// While the victim is dying, no other is killed; once it is dead, the next one is.
#[test]
fn thrashing_kills_one_at_a_time() {
    let (world, kills, _) = thrash(victim_of_4600(), 1000, 500, |_| ());
    let step = || Background::new(&world.core, 0).step(&world.core, &world.host);
    step();
    assert_eq!(*world.host.kills.borrow(), kills, "it is dying");
    world.reap();
    step();
    assert_eq!(*world.host.kills.borrow(), [world.children[1].0.memcg]);
    world.core.validate().unwrap();
}

#[test]
fn thrashing_follows_the_policy() {
    let (_, kills, events) = thrash(Harness::multigen_options(4600), 1000, 500, |_| ());
    assert_eq!((kills, events), (vec![], [1, 0, 0]), "by default no tenant is killed; the event is counted");
    let (world, kills, _) = thrash(
        Options { oom_policy: OomPolicy::Ask, ..Harness::multigen_options(4600) },
        1000,
        500,
        |world| {
            world.host.decisions.borrow_mut().push(OomDecision::Kill("top/b".to_owned()));
        },
    );
    assert_eq!(kills, [world.children[1].0.memcg]);
    assert_eq!(world.host.asked.borrow()[0].victim.as_deref(), Some("top/a"), "the would-be victim");
    let mut classic = victim_of_4600();
    classic.mechanisms = classic.mechanisms.with_lru(crate::Lru::Classic);
    assert_eq!(thrash(classic, 1000, 500, |_| ()).1, [], "it is the multi-gen LRU's");
}

/// A kill takes the regions that the victim's address space maps, the last one first and as a
/// whole; of regions that others map, only pages charged to the victim. Files stay, and pages under
/// writeback are waited for.
#[test]
fn a_kill_takes_the_regions_that_the_victim_maps() {
    let world = World::new(OomPolicy::Victim);
    let [(a, of_a), (b, _)] = &world.children[..2] else { panic!("three children") };
    let (second, shared) = (world.core.open_mapping(Kind::Anon), world.core.open_mapping(Kind::Anon));
    let file = world.core.open_mapping(Kind::File);
    for region in [&second, &shared, &file] {
        world.core.map(a, region, 512);
    }
    world.core.map(b, &shared, 512);
    (0..10).for_each(|page| world.bring(0, page).unwrap());
    (0..5).for_each(|page| world.bring_to(&second, 0, page).unwrap());
    (0..4).for_each(|page| world.bring_to(&shared, 0, page).unwrap());
    (4..7).for_each(|page| world.bring_to(&shared, 1, page).unwrap());
    // Charged to another memcg, in a region that only the victim maps.
    world.bring_to(of_a, 1, 20).unwrap();
    (0..3).for_each(|page| world.bring_to(&file, 0, page).unwrap());

    let mut reaping = Reaping::new(&world.core, a.memcg);
    let flags = world.core.folios().flags(world.core_folio(&second, 2));
    assert!(flags.try_lock());
    let mut steps = Vec::new();
    loop {
        let (name, region) = match reaping.step(&world.core, &world.host) {
            ReapStep::Begin(region) => ("begin", region),
            ReapStep::Taken(region) => ("taken", region),
            ReapStep::Wait(region, _) => {
                flags.unlock();
                ("wait", region)
            }
            ReapStep::Done => break,
        };
        steps.push((name, region.id(), region.folios()));
    }
    let expected = [
        ("begin", shared.id(), 7),
        ("taken", shared.id(), 3),
        ("begin", second.id(), 5),
        ("wait", second.id(), 3),
        ("taken", second.id(), 0),
        ("begin", of_a.id(), 11),
        ("taken", of_a.id(), 0),
    ];
    assert_eq!(steps, expected);
    assert_eq!(file.folios(), 3);
    world.core.validate().unwrap();
}
