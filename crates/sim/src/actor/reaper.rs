//! The reaper as an actor: frees the anonymous memory of killed tenants, one region per step,
//! through [`Reaping`]. Tasks that need memory wait until it is done.

use super::{rest, wait_for};
use crate::world::{Pause, World};
use mglru_core::reclaim::ReapStep;

/// The actor that frees the memory of victims.
#[derive(Debug)]
pub(crate) struct Reaper;

impl Reaper {
    /// Processes one region, or sleeps.
    pub(crate) fn step(&mut self, world: &mut World) -> Pause {
        loop {
            let Some(victim) = world.victims.front_mut() else { return Pause::Called(None) };
            match victim.step(&world.core, &world.host) {
                // The victim's jobs end and no longer access it.
                ReapStep::Begin(_) => {}
                ReapStep::Taken(region) => {
                    world.note_cut(&region, 0, 1 << 32);
                    return rest(world, world.access_nanos);
                }
                ReapStep::Wait(region, folio) => {
                    world.note_cut(&region, 0, 1 << 32);
                    return wait_for(&world.core, folio);
                }
                ReapStep::Done => {
                    world.victims.pop_front();
                    return Pause::Ready;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Access, Command, DeviceModel, Interleaving, Kill, Machine, Operation, Report, Simulator, SwapDevice,
        SwapModel, Tenant,
    };
    use mglru_core::{Counter, OomPolicy, Time, UNLIMITED};
    use mglru_workload::Random;
    use std::time::Duration;

    /// `top`, with a limit of 100 pages, above `a` and `b`.
    fn machine(oom_policy: OomPolicy) -> Machine {
        let tenants =
            vec![Tenant::new("top", 100), Tenant::new("top/a", UNLIMITED), Tenant::new("top/b", UNLIMITED)];
        Machine { tenants, oom_policy, ..Machine::new(256) }
    }

    fn stores(region: u64, pages: u64) -> impl Iterator<Item = Operation> {
        (0..pages).map(move |page| Operation::from(Access::store(region << 32 | page).anon()))
    }

    /// `a` stores 70 pages, maps 10 pages of a file and sleeps; `b`, later, stores 60.
    fn run(oom_policy: OomPolicy) -> (Report, Simulator) {
        let mut simulator = Simulator::new(&machine(oom_policy)).unwrap();
        simulator.check_every(1);
        let file = (0..10).map(|page| Operation::from(Access::load(9 << 32 | page)));
        let sleep = [Operation::Rest { nanos: 1_000_000_000 }];
        simulator.add_job(1, stores(1, 70).chain(file).chain(sleep).chain(stores(1, 10)));
        let later = Operation::RestUntil { time: Time::ZERO + Duration::from_millis(100) };
        simulator.add_job(2, std::iter::once(later).chain(stores(2, 60)));
        let report = simulator.run().unwrap();
        simulator.finish().unwrap();
        (report, simulator)
    }

    #[test]
    fn a_victim_ends_and_gives_its_memory_up() {
        let (report, simulator) = run(OomPolicy::Victim);
        let [Kill { time, report: why }] = &report.kills[..] else { panic!("{:?}", report.kills) };
        assert_eq!((why.tenant.as_str(), why.victim.as_deref()), ("top", Some("top/a")));
        // Its ten file pages were reclaimed before, one by one.
        assert_eq!((why.usage_pages, why.anon_pages), (100, 100), "{why}");
        assert!((Time::ZERO + Duration::from_millis(100)..report.now).contains(time));
        assert!(report.now < Time::ZERO + Duration::from_millis(500), "it does not sleep on");
        let [_, top, a, b] = &report.tenants[..] else { panic!("four tenants") };
        let events = [Counter::EventOom, Counter::EventOomKill];
        assert_eq!(events.map(|event| top.total.counters.get(event)), [1, 0]);
        assert_eq!(events.map(|event| a.total.counters.get(event)), [0, 1]);
        assert_eq!((a.usage_pages, a.total.counts.accesses), (0, 80));
        assert_eq!((b.usage_pages, b.total.counts.out_of_memory), (60, 0));
        assert_eq!(simulator.core().memcg(simulator.core().memcgs().find("top").unwrap()).usage_pages(), 60);
    }

    #[test]
    fn by_default_requests_fail() {
        let (report, _) = run(OomPolicy::Fail);
        assert_eq!(report.kills, []);
        let [_, _, a, b] = &report.tenants[..] else { panic!("four tenants") };
        assert_eq!((a.usage_pages, a.total.counts.accesses), (70, 90));
        assert_eq!((b.usage_pages, b.total.counts.out_of_memory), (30, 30));
    }

    /// The requesting tenant may be the victim: its current store fails and is its last.
    #[test]
    fn the_greedy_kills_itself() {
        let mut simulator = Simulator::new(&machine(OomPolicy::Victim)).unwrap();
        simulator.check_every(1);
        simulator.add_job(1, stores(1, 1000));
        let report = simulator.run().unwrap();
        simulator.finish().unwrap();
        let counts = &report.tenants[2].total.counts;
        assert_eq!((report.kills.len(), counts.accesses, counts.out_of_memory), (1, 101, 1));
    }

    /// One job of `a` stores some pages, moves to `b` and stores more; another job of `a` stores
    /// 30. Then `c` does not fit.
    fn moved(before: u64, after: u64, third: u64) -> Report {
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let mut tenants = machine(OomPolicy::Victim).tenants;
        tenants.push(Tenant::new("top/c", UNLIMITED));
        let mut simulator = Simulator::new(&Machine { tenants, ..machine(OomPolicy::Victim) }).unwrap();
        simulator.check_every(1);
        simulator.administer(Vec::new(), vec![(at(50), Command::Move { job: 0..1, to: Some(2) })], None);
        let until = |millis| [Operation::RestUntil { time: at(millis) }];
        let all = stores(1, before).chain(until(60)).chain(stores(1, before + after)).chain(until(1000));
        simulator.add_job(1, all);
        simulator.add_job(1, stores(2, 30).chain(until(1000)));
        simulator.add_job(3, until(100).into_iter().chain(stores(3, third)));
        let report = simulator.run().unwrap();
        simulator.finish().unwrap();
        report
    }

    /// Like the exit of a killed process, which frees its address space.
    #[test]
    fn a_kill_takes_all_pages_of_its_jobs_and_none_of_jobs_that_moved_away() {
        let victims_and_usages = |report: &Report| {
            let victims: Vec<_> =
                report.kills.iter().map(|kill| kill.report.victim.clone().unwrap()).collect();
            let usages: Vec<u64> = report.tenants[2..].iter().map(|tenant| tenant.usage_pages).collect();
            (victims, usages)
        };
        // 40 of the pages of `a` are those of a job in `b`.
        assert_eq!(victims_and_usages(&moved(40, 10, 45)), (vec!["top/a".to_owned()], vec![40, 10, 45]));
        // 10 pages of the job killed in `b` are charged to `a`.
        assert_eq!(victims_and_usages(&moved(10, 50, 60)), (vec!["top/b".to_owned()], vec![30, 0, 60]));
    }

    /// Jobs of three tenants share a region larger than memory plus swap on a slow disk, until the
    /// last is killed; without the checker, the result is the same.
    #[test]
    fn kills_in_the_middle_of_swapping() {
        for seed in 1..=3 {
            let run = |checked: bool| {
                let mut tenants = machine(OomPolicy::Victim).tenants;
                tenants.push(Tenant::new("top/c", UNLIMITED));
                let device = SwapDevice::Disk { model: DeviceModel::slow(), cpu: 0 };
                let machine = Machine {
                    tenants,
                    swap: Some(SwapModel { pages: 80, device }),
                    swappiness: mglru_core::lru::Swappiness::new(100).unwrap(),
                    interleaving: Interleaving::Seeded,
                    cpus: 2,
                    seed,
                    ..machine(OomPolicy::Victim)
                };
                let mut simulator = Simulator::new(&machine).unwrap();
                simulator.set_shortcuts(!checked);
                if checked {
                    simulator.check_every(1);
                }
                for tenant in 1..=3 {
                    for job in 0..2 {
                        let mut random = Random::stream(seed, tenant * 2 + job);
                        let touches = std::iter::repeat_with(move || {
                            let (page, write) = (1 << 32 | random.below(400), random.below(3) > 0);
                            Operation::from(Access { write, ..Access::load(page).anon() })
                        });
                        simulator.add_job(tenant as usize, touches.take(3000));
                    }
                }
                let report = simulator.run().unwrap();
                simulator.finish().unwrap();
                report
            };
            let report = run(true);
            assert_eq!(report, run(false), "seed {seed}");
            let (all, left) = report.tenants[2..].split_at(3);
            assert!(left.is_empty() && !report.kills.is_empty(), "seed {seed}: {:?}", report.kills);
            for tenant in all {
                let killed =
                    report.kills.iter().any(|kill| kill.report.victim.as_deref() == Some(&tenant.name));
                let counts = &tenant.total.counts;
                assert_eq!(tenant.total.counters.get(Counter::EventOomKill), u64::from(killed), "{tenant:?}");
                assert_eq!(killed, counts.accesses < 6000, "seed {seed}: {tenant:?}");
                assert!(!killed || tenant.usage_pages == 0, "seed {seed}: {tenant:?}");
            }
        }
    }
}
