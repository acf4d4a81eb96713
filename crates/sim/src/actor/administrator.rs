//! The administrator, which executes commands at their times (write control files, create and
//! remove tenants, move jobs), and the actor that reads control files.
//!
//! Commands run one after the other. A write takes as long as the reclaim that it causes; later
//! commands wait, as lines of a shell script do.
//!
//! A moved job changes its tenant at once, or after its current operation. When a tenant is
//! removed, its jobs end before their next batch of operations. A started operation finishes and is
//! charged to the parent, so that the jobs' progress does not matter.

use super::{rest, wait_out};
use crate::machine::Tenant;
use crate::world::{Pause, TenantState, World, add_tenant};
use mglru_core::{ControlError, ControlStep, ControlWrite, MemcgError, Time};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// The CPU of control file writes.
const CPU: usize = 0;

/// A command of the administrator. Jobs and tenants are numbers of the machine.
pub type Command = mglru_workload::scenario::Command<Range<usize>>;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The control file rejected the value or could not fulfil the request.
    Control(ControlError),
    /// The tenant cannot be created, removed or moved to.
    Tenant(MemcgError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Control(error) => error.fmt(f),
            Refusal::Tenant(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

/// Result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Start and end.
    pub time: (Time, Time),
    /// Whether the command succeeded.
    pub result: Result<(), Refusal>,
}

impl Answer {
    /// Why a control file was not written, or a request not fulfilled.
    pub fn control_error(&self) -> Option<&ControlError> {
        match &self.result {
            Err(Refusal::Control(error)) => Some(error),
            _ => None,
        }
    }
}

/// A write to a control file under way.
#[derive(Debug)]
pub(crate) struct Writing {
    began: Time,
    write: Box<ControlWrite>,
}

impl Writing {
    /// Begins to write, on a CPU. `None`: it was refused, which is an answer of the world.
    pub(crate) fn begin(world: &mut World, file: &str, value: &str, cpu: usize) -> Option<Writing> {
        let began = world.now();
        let write = world.core.write_control(file, value, cpu);
        let write = write.map_err(|error| answer(world, began, Err(error))).ok()?;
        Some(Writing { began, write: Box::new(write) })
    }

    /// Goes on, until a pause. Returns what is left; `None`: it has ended, and its result is an
    /// answer of the world.
    pub(crate) fn step(mut self, world: &mut World) -> (Pause, Option<Writing>) {
        match self.write.step(&world.core, &world.host) {
            Ok(ControlStep::More) => {
                let nanos = world.take_batch_nanos();
                (rest(world, nanos), Some(self))
            }
            Ok(ControlStep::Wait(throttle)) => (wait_out(world, throttle), Some(self)),
            Ok(ControlStep::Done) => (answer(world, self.began, Ok(())), None),
            Err(error) => (answer(world, self.began, Err(error)), None),
        }
    }
}

fn answer(world: &mut World, began: Time, result: Result<(), ControlError>) -> Pause {
    let time = (began, world.now());
    world.answers.push(Answer { time, result: result.map_err(Refusal::Control) });
    Pause::Ready
}

/// Text of a control file at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Time of the read.
    pub time: Time,
    /// Index of the file in the list of files to read.
    pub file: usize,
    /// The text, or an error if the file's tenant does not exist.
    pub text: Result<String, ControlError>,
}

#[derive(Debug)]
pub(crate) struct Administrator {
    /// Number of the first tenant that is created later.
    first_later: usize,
    later: Vec<Tenant>,
    commands: VecDeque<(Time, Command)>,
    writing: Option<Writing>,
}

impl Administrator {
    /// `first_later`: index of the first of the `later` tenants among all tenants, where the root
    /// is 0.
    pub(crate) fn new(
        first_later: usize,
        later: Vec<Tenant>,
        commands: Vec<(Time, Command)>,
    ) -> Administrator {
        Administrator { first_later, later, commands: commands.into(), writing: None }
    }

    pub(crate) fn step(&mut self, world: &mut World) -> Pause {
        if let Some(writing) = self.writing.take() {
            return self.go_on(world, writing);
        }
        let now = world.now();
        match self.commands.front() {
            None => return Pause::Done,
            Some((time, _)) if *time > now => return Pause::Until(*time),
            Some(_) => {}
        }
        let Some((_, command)) = self.commands.pop_front() else { unreachable!("it was there") };
        let result = match command {
            Command::Write { file, value } => {
                let writing = Writing::begin(world, &file, &value, CPU);
                return writing.map_or(Pause::Ready, |writing| self.go_on(world, writing));
            }
            Command::Create(number) => self.create(world, number + 1).map_err(Refusal::Tenant),
            Command::Remove(number) => remove(world, number + 1).map_err(Refusal::Tenant),
            Command::Move { job, to } => {
                move_jobs(world, job, to.map_or(0, |number| number + 1)).map_err(Refusal::Tenant)
            }
        };
        world.answers.push(Answer { time: (now, now), result });
        Pause::Ready
    }

    fn go_on(&mut self, world: &mut World, writing: Writing) -> Pause {
        let (pause, left) = writing.step(world);
        self.writing = left;
        pause
    }

    fn create(&self, world: &mut World, tenant: usize) -> Result<(), MemcgError> {
        let wanted = &self.later[tenant - self.first_later];
        let made = add_tenant(&world.core, wanted, world.now());
        let state = &mut world.tenants[tenant];
        match made {
            Ok(memcg) => state.memcg = Some(memcg),
            Err(_) => state.gone = true,
        }
        made.map(drop)
    }
}

fn remove(world: &mut World, tenant: usize) -> Result<(), MemcgError> {
    let state = &mut world.tenants[tenant];
    let memcg = state.memcg.ok_or(MemcgError::Gone)?;
    // Its jobs still use the number, and the report reads its counters.
    world.core.memcgs().add_handle(memcg);
    let removed = world.core.remove_memcg(&world.host, memcg);
    match removed {
        Ok(()) => state.gone = true,
        Err(_) => world.core.drop_handle(memcg),
    }
    removed
}

/// Jobs in the middle of an operation move after it.
fn move_jobs(world: &mut World, jobs: Range<usize>, tenant: usize) -> Result<(), MemcgError> {
    match &world.tenants[tenant] {
        TenantState { memcg: Some(_), gone: false, .. } => {
            world.moves.push((jobs, tenant));
            Ok(())
        }
        _ => Err(MemcgError::Gone),
    }
}

/// The actor that reads control files at intervals. It does not keep the machine running.
#[derive(Debug)]
pub(crate) struct ControlReader {
    every: Duration,
    files: Vec<String>,
    next: Time,
}

impl ControlReader {
    pub(crate) fn new(every: Duration, files: Vec<String>) -> ControlReader {
        assert!(!every.is_zero(), "a reader without an interval leaves no time");
        ControlReader { every, files, next: Time::ZERO }
    }

    pub(crate) fn step(&mut self, world: &mut World) -> Pause {
        let time = world.now();
        if time >= self.next {
            let read = |(file, path): (usize, &String)| Reading {
                time,
                file,
                text: world.core.read_control(path, time),
            };
            let readings: Vec<Reading> = self.files.iter().enumerate().map(read).collect();
            world.readings.extend(readings);
            self.next = self.next + self.every;
        }
        Pause::Until(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Interleaving, Machine, Operation, Simulator, SwapDevice, SwapModel};
    use mglru_core::{OomPolicy, UNLIMITED};

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn write(millis: u64, file: &str, value: &str) -> (Time, Command) {
        (at(millis), Command::Write { file: file.to_owned(), value: value.to_owned() })
    }

    fn machine(seed: u64) -> Machine {
        Machine {
            tenants: vec![Tenant::new("a", 200)],
            swap: Some(SwapModel { pages: 1000, device: SwapDevice::zram() }),
            cpus: 2,
            access_time: Duration::from_micros(20),
            interleaving: Interleaving::Seeded,
            seed,
            ..Machine::new(256)
        }
    }

    /// An endless stream of accesses of every kind.
    fn touches(file: u64, seed: u64) -> impl Iterator<Item = Operation> {
        let mut random = mglru_workload::Random::stream(seed, file);
        std::iter::repeat_with(move || {
            let page = file << 32 | random.below(300);
            let (write, mapped, anon) = (random.below(3) == 0, random.below(2) == 0, random.below(3) == 0);
            Operation::Access(Access { page, write, mapped, anon, inside: false, fault: false })
        })
    }

    #[test]
    fn tenants_come_and_go_under_their_jobs() {
        for seed in 1..=2 {
            let mut simulator = Simulator::new(&machine(seed)).unwrap();
            simulator.check_every(1);
            let later = vec![Tenant::new("a/b", 100), Tenant::new("a/b", UNLIMITED), Tenant::new("c/d", 100)];
            let commands = vec![
                (at(1), Command::Create(1)),
                write(5, "a/b/memory.max", "200K"),
                (at(20), Command::Remove(1)),
                (at(20), Command::Create(2)),
                write(30, "memory.reclaim", "100K"),
                write(30, "a/b/memory.max", "soon"),
                // Tenant `c` does not exist: its job ends without starting.
                (at(31), Command::Create(3)),
                (at(31), Command::Remove(0)),
                (at(40), Command::Remove(2)),
            ];
            let files = ["a/b/memory.current", "a/memory.current"].map(str::to_owned).into();
            simulator.administer(later, commands, Some((Duration::from_millis(10), files)));
            simulator.add_job(0, touches(1, seed).take(2000));
            for tenant in 1..=3 {
                simulator.add_job(tenant, touches(tenant as u64 + 1, seed));
            }
            let report = simulator.run().unwrap();
            simulator.finish().unwrap();
            let refused: Vec<bool> =
                simulator.answers().iter().map(|answer| answer.result.is_err()).collect();
            assert_eq!(refused, [false, false, false, false, false, true, true, true, false]);
            let message = simulator.answers()[5].result.as_ref().unwrap_err().to_string();
            assert!(message.contains("'soon' is neither a size"), "{message}");
            let names: Vec<&str> = report.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
            assert_eq!(names, ["", "a", "a/b", "a/b"], "tenants that were never created are not reported");
            for tenant in &report.tenants[1..] {
                assert!(tenant.total.counts.accesses > 100, "{tenant:?}");
            }
            assert_eq!(
                report.tenants[2].usage_pages + report.tenants[3].usage_pages,
                0,
                "the parent has them"
            );
            assert!(report.tenants[1].usage_pages > 0 && report.now >= at(40));
            let of_child: Vec<(u64, bool)> = simulator
                .readings()
                .iter()
                .filter(|reading| reading.file == 0)
                .map(|reading| (reading.time.as_nanos() / 1_000_000, reading.text.is_ok()))
                .collect();
            // At 20 ms one tenant is removed and the next created; a read may fall in between.
            assert_eq!([0, 1, 3].map(|n| of_child[n]), [(0, false), (10, true), (30, true)]);
        }
    }

    /// Pages that it brings in after the move are charged and counted to the new tenant; earlier
    /// pages stay.
    #[test]
    fn a_job_moves_to_another_tenant() {
        let tenants = vec![Tenant::new("a", UNLIMITED), Tenant::new("b", UNLIMITED)];
        let mut simulator = Simulator::new(&Machine { tenants, ..machine(1) }).unwrap();
        simulator.check_every(1);
        let to = |job, to| Command::Move { job: job..job + 1, to };
        let commands = vec![
            (at(10), to(0, Some(1))),
            // Twice, before the job starts.
            (at(10), to(1, Some(1))),
            (at(10), to(1, None)),
            // This tenant does not exist yet.
            (at(10), to(0, Some(2))),
            (at(20), Command::Create(2)),
            (at(20), Command::Remove(2)),
            (at(20), to(0, Some(2))),
        ];
        simulator.administer(vec![Tenant::new("c", UNLIMITED)], commands, None);
        let store = |page: u64| Operation::from(Access::store(1 << 32 | page).anon());
        let read = |page: u64| Operation::from(Access::read(2 << 32 | page));
        let until = |millis| [Operation::RestUntil { time: at(millis) }];
        simulator.add_job(
            0,
            (0..50).map(store).chain(until(30)).chain((40..70).map(store)).chain((0..10).map(read)),
        );
        simulator.add_job(0, until(30).into_iter().chain((20..25).map(read)));
        let report = simulator.run().unwrap();
        simulator.finish().unwrap();
        let refused: Vec<_> =
            simulator.answers().iter().filter_map(|answer| answer.result.clone().err()).collect();
        assert_eq!(refused, [Refusal::Tenant(MemcgError::Gone), Refusal::Tenant(MemcgError::Gone)]);
        let tenants = report
            .tenants
            .iter()
            .map(|tenant| (&*tenant.name, tenant.usage_pages, tenant.total.counts.accesses));
        assert!(tenants.eq([("", 5, 5), ("a", 50, 50), ("b", 30, 40), ("c", 0, 0)]), "{:?}", report.tenants);
    }

    /// Switches from the default policy to both others and back while jobs of two tenants run. The
    /// last switch begins before the one before it is complete.
    #[test]
    fn the_policy_is_switched_under_load() {
        for seed in 1..=6 {
            let mut tenants = machine(seed).tenants;
            tenants.push(Tenant::new("b", 20_000));
            let (memory_pages, watermarks) = (30_000, Machine::new(30_000).watermarks);
            let machine = Machine { memory_pages, watermarks, tenants, swap: None, ..machine(seed) };
            let mut simulator = Simulator::new(&machine).unwrap();
            simulator.check_every(500);
            let file = "lru_gen/enabled";
            let commands = vec![
                write(20, file, "n"),
                write(60, file, "y"),
                write(90, file, "0"),
                write(90, file, "ranked"),
            ];
            simulator.administer(
                Vec::new(),
                commands,
                Some((Duration::from_millis(10), vec![file.to_owned()])),
            );
            let files = |file, pages, seed| {
                let mut random = mglru_workload::Random::stream(seed, file);
                std::iter::repeat_with(move || {
                    Operation::from(Access::read(file << 32 | random.below(pages)))
                })
            };
            simulator.add_job(0, files(1, 300, seed).take(6000));
            simulator.add_job(1, files(2, 40_000, seed).take(6000));
            simulator.run().unwrap();
            simulator.finish().unwrap();
            assert!(
                simulator.answers().iter().all(|answer| answer.result.is_ok()),
                "{:?}",
                simulator.answers()
            );
            let values: Vec<_> =
                simulator.readings().iter().map(|reading| reading.text.clone().unwrap()).collect();
            let at = |millis: usize| values[millis / 10].as_str();
            assert_eq!([at(10), at(40), at(80), at(100)], ["0x0006\n", "0x0000\n", "0x0007\n", "0x0000\n"]);
            assert_eq!(simulator.core().lru(), mglru_core::Lru::Ranked, "the default, and the last command");
        }
    }

    /// Lowers `memory.max` below the unreclaimable size. The write ends when there is room, or no
    /// tenant is left to kill under the policy.
    #[test]
    fn a_limit_that_is_lowered_kills() {
        for (oom_policy, kills) in [(OomPolicy::Victim, 1), (OomPolicy::Fail, 0)] {
            let tenants = vec![
                Tenant::new("a", 200),
                Tenant::new("a/big", UNLIMITED),
                Tenant::new("a/small", UNLIMITED),
            ];
            let machine = Machine { tenants, oom_policy, swap: None, ..machine(1) };
            let mut simulator = Simulator::new(&machine).unwrap();
            simulator.check_every(1);
            simulator.administer(Vec::new(), vec![write(50, "a/memory.max", "200K")], None);
            for (tenant, pages) in [(1, 100), (2, 30)] {
                let stores = (0..pages).map(move |page| Access::store((tenant as u64) << 32 | page).anon());
                let sleep = [Operation::Rest { nanos: 1_000_000_000 }];
                simulator.add_job(tenant, stores.map(Operation::from).chain(sleep));
            }
            let report = simulator.run().unwrap();
            simulator.finish().unwrap();
            assert_eq!(simulator.answers()[0].result, Ok(()), "written in any case");
            let victims = report.kills.iter().map(|kill| kill.report.victim.as_deref());
            assert!(victims.eq(std::iter::repeat_n(Some("a/big"), kills)), "{:?}", report.kills);
            assert_eq!(report.tenants[1].usage_pages, if kills == 1 { 30 } else { 130 });
        }
    }

    /// `memory.pressure` in virtual time: it never decreases, never exceeds the elapsed time, and
    /// the root's value equals that of the stalled tenant.
    #[test]
    fn stalls_take_virtual_time() {
        let mut tenants = machine(1).tenants;
        tenants[0].max_pages = 100;
        let mut simulator = Simulator::new(&Machine { tenants, ..machine(1) }).unwrap();
        let files: Vec<String> = ["a/memory.pressure", "memory.pressure"].map(str::to_owned).into();
        simulator.administer(Vec::new(), Vec::new(), Some((Duration::from_millis(10), files)));
        simulator.add_job(0, touches(1, 1).take(2000));
        simulator.run().unwrap();
        simulator.finish().unwrap();
        let totals: Vec<(u128, u128)> = simulator
            .readings()
            .iter()
            .map(|reading| {
                let text = reading.text.clone().unwrap();
                let (_, total) = text.trim_end().split_once("total=").unwrap();
                (u128::from(reading.time.as_nanos()) / 1000, total.parse().unwrap())
            })
            .collect();
        assert!(totals.len() > 4 && totals.last().unwrap().1 > 0, "{totals:?}");
        assert!(totals.iter().all(|(time, total)| total <= time), "{totals:?}");
        assert!(totals.is_sorted_by_key(|(_, total)| total), "{totals:?}");
        assert!(totals.chunks(2).all(|both| both[0] == both[1]), "{totals:?}");
    }

    #[test]
    fn a_source_has_an_end_in_time() {
        struct Endless;
        impl crate::Source for Endless {
            fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), crate::SourceError> {
                batch.push(Operation::RestUntil { time: at(3) });
                batch.extend((0..8).map(|page| Operation::from(Access::read(page))));
                Ok(())
            }

            fn end(&self) -> Option<Time> {
                Some(at(5))
            }
        }
        let mut simulator = Simulator::new(&machine(1)).unwrap();
        simulator.add_job(0, Endless);
        let report = simulator.run().unwrap();
        assert!((at(5)..at(6)).contains(&report.now), "{:?}", report.now);
    }
}
