//! Checks a scenario against the core: resolves names and rehearses actions.
//!
//! The rehearsal creates the tenants on a core without pages, and begins and cancels every write. A
//! missing control file or an invalid value is thus reported before anything runs, in the core's
//! words and with its place in the file.

use super::World;
use crate::error::Error;
use crate::load::RealLoad;
use crate::mechanisms::parse_switch;
use crate::memory;
use mglru_core::{
    ControlError, Core, Counter, Errno, Lru, Mechanisms, OomPolicy, Options, PAGE_BYTES, Preset, Switch,
    Time, UNLIMITED,
};
use mglru_sim::SimHost;
use mglru_workload::names;
use mglru_workload::scenario::{Command, Located, Place, Scenario, Work};

const REHEARSAL_PAGES: u32 = 64;

/// Sums of counters that `memory.stat` also has.
pub const SUMS: [(&str, [Counter; 2]); 2] = [
    ("pgscan", [Counter::PgscanAnon, Counter::PgscanFile]),
    ("pgsteal", [Counter::PgstealAnon, Counter::PgstealFile]),
];
/// Counters printed for each tenant by default.
const COUNTERS_DEFAULT: [&str; 2] = ["pgsteal", "workingset_refault_file"];

/// Options that override the scenario's file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Preset.
    pub preset: Option<Preset>,
    /// Switches to turn on.
    pub with: Vec<Switch>,
    /// Switches to turn off.
    pub without: Vec<Switch>,
    /// Reclaim policy.
    pub lru: Option<Lru>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Policy for allocations that find no memory.
    pub oom_policy: Option<OomPolicy>,
}

impl Overrides {
    /// The switches that are named.
    pub fn named(&self) -> Vec<Switch> {
        self.with.iter().chain(&self.without).copied().collect()
    }

    /// The mechanisms without a file.
    ///
    /// # Errors
    /// If the combination does not exist.
    pub fn mechanisms(&self) -> Result<Mechanisms, Error> {
        compose(self.preset.unwrap_or_default(), self.with.clone(), self.without.clone(), self.lru)
    }
}

/// A scenario that is ready to run.
#[derive(Clone)]
pub struct Plan {
    /// The scenario.
    pub scenario: Scenario,
    /// The environment of the run.
    pub world: World,
    /// Mechanisms of the run.
    pub mechanisms: Mechanisms,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Policy for allocations that find no memory.
    pub oom_policy: OomPolicy,
    /// Counters to print for each tenant.
    pub counters: Vec<String>,
}

impl Plan {
    /// Resolves names and rehearses the actions.
    ///
    /// # Errors
    /// The first error in the scenario, with its place.
    pub fn new(scenario: Scenario, world: World, overrides: &Overrides) -> Result<Plan, Error> {
        let mechanisms = mechanisms(&scenario, overrides)?;
        let of_file = scenario.machine.oom_policy.as_ref();
        let of_file = of_file.map(|name| parse(&scenario, name, OomPolicy::parse)).transpose()?;
        let oom_policy = overrides.oom_policy.or(of_file).unwrap_or_default();
        rehearse(&scenario, mechanisms)?;
        if world == World::Real {
            for job in &scenario.jobs {
                if let Work::Load { load, .. } = &job.work {
                    RealLoad::check(load).map_err(|failure| at(&scenario, job.place, failure.text()))?;
                }
            }
        }
        let known =
            || Counter::ALL.iter().map(|counter| counter.name()).chain(SUMS.iter().map(|(sum, _)| *sum));
        let is_unknown = |counter: &&Located<String>| !known().any(|name| name == counter.value);
        if let Some(unknown) = scenario.print.counters.iter().find(is_unknown) {
            let advice = match names::nearest(&unknown.value, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "docs/book/src/counters.md lists them".to_owned(),
            };
            return Err(at(
                &scenario,
                unknown.place,
                format!("unknown counter `{}`; {advice}", unknown.value),
            ));
        }
        let mut counters: Vec<String> =
            scenario.print.counters.iter().map(|counter| counter.value.clone()).collect();
        if counters.is_empty() {
            counters = COUNTERS_DEFAULT.map(str::to_owned).into();
        }
        let memory_bytes = overrides.memory_bytes.unwrap_or(scenario.machine.memory_bytes);
        let plan = Plan { world, mechanisms, memory_bytes, oom_policy, counters, scenario };
        let what = plan.scenario.path.display();
        let instead = "choose less memory, swap, records or warehouses";
        memory::check(plan.needed_bytes(), format_args!("{what}"), instead)?;
        Ok(plan)
    }

    /// Memory of this machine that the run needs at most, in bytes. Jobs in fio's language say
    /// themselves what they need in the real world.
    pub(crate) fn needed_bytes(&self) -> u64 {
        let pages = |bytes: u64| bytes / PAGE_BYTES;
        let swap_bytes = self.scenario.machine.swap.map_or(0, |swap| swap.bytes);
        let machine = match self.world {
            World::Real => self.memory_bytes,
            World::Sim => {
                let swap = memory::of_swap(pages(swap_bytes));
                memory::of_machine(pages(self.memory_bytes)).saturating_add(swap)
            }
        };
        let of_load = |work: &Work| match work {
            Work::Load { load, .. } => load.memory_bytes(),
            Work::Fio(_) | Work::Trace { .. } => 0,
        };
        let loads = self.scenario.jobs.iter().map(|job| of_load(&job.work));
        loads.fold(machine, u64::saturating_add)
    }
}

fn at(scenario: &Scenario, place: Place, reason: impl std::fmt::Display) -> Error {
    Error::usage(scenario.error(place, reason.to_string()))
}

fn parse<T, E: std::fmt::Display>(
    scenario: &Scenario,
    name: &Located<String>,
    parse: fn(&str) -> Result<T, E>,
) -> Result<T, Error> {
    parse(&name.value).map_err(|error| at(scenario, name.place, error))
}

fn compose(
    preset: Preset,
    with: Vec<Switch>,
    without: Vec<Switch>,
    lru: Option<Lru>,
) -> Result<Mechanisms, Error> {
    crate::mechanisms::Behaviours { preset, with, without, lru, ..Default::default() }.mechanisms()
}

fn mechanisms(scenario: &Scenario, args: &Overrides) -> Result<Mechanisms, Error> {
    let machine = &scenario.machine;
    let switches = |names: &[Located<String>], also: &[Switch], but: &[Switch]| {
        let of_file: Result<Vec<Switch>, Error> =
            names.iter().map(|name| parse(scenario, name, parse_switch)).collect();
        let of_file = of_file?.into_iter().filter(|switch| !but.contains(switch));
        Ok::<_, Error>(of_file.chain(also.iter().copied()).collect::<Vec<Switch>>())
    };
    let preset = machine.preset.as_ref().map(|name| parse(scenario, name, Preset::parse)).transpose()?;
    let lru = machine.lru.as_ref().map(|name| parse(scenario, name, Lru::parse)).transpose()?;
    let with = switches(&machine.with, &args.with, &args.without)?;
    let without = switches(&machine.without, &args.without, &args.with)?;
    let own = machine.with.iter().find(|name| machine.without.iter().any(|other| other.value == name.value));
    if let Some(name) = own {
        let reason = format!("`{}` is in `with` and in `without`: choose one", name.value);
        return Err(at(scenario, name.place, reason));
    }
    let composed = compose(args.preset.or(preset).unwrap_or_default(), with, without, args.lru.or(lru));
    // Names from the file have a place there.
    match machine.with.iter().chain(&machine.without).chain(&machine.preset).next() {
        Some(first) => composed.map_err(|failure| at(scenario, first.place, failure.text())),
        None => composed,
    }
}

/// Carries out all actions without pages.
fn rehearse(scenario: &Scenario, mechanisms: Mechanisms) -> Result<(), Error> {
    let core = Core::of_one_thread(Options { mechanisms, ..Options::new(REHEARSAL_PAGES) }, Time::ZERO);
    let host = SimHost::default();
    let create = |number: usize, place: Place| {
        let path = &scenario.tenants[number].path;
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let made =
            core.memcgs().find(parent).and_then(|parent| core.add_child(parent, name, UNLIMITED, Time::ZERO));
        made.map(drop).map_err(|error| at(scenario, place, error))
    };
    for (number, tenant) in scenario.first_tenants().iter().enumerate() {
        create(number, tenant.place)?;
    }
    let mut unread: Vec<&Located<String>> = scenario.print.files.iter().collect();
    unread.retain(|file| core.read_control(&file.value, Time::ZERO).is_err());
    for action in &scenario.actions {
        match &action.command {
            Command::Create(number) => create(*number, action.place)?,
            Command::Remove(number) => {
                let path = &scenario.tenants[*number].path;
                let removed = core.memcgs().find(path).and_then(|memcg| core.remove_memcg(&host, memcg));
                removed.map_err(|error| at(scenario, action.place, error))?;
            }
            Command::Move { to, .. } => {
                let path = to.map_or("", |to| &scenario.tenants[to].path);
                core.memcgs().find(path).map_err(|error| at(scenario, action.place, error))?;
            }
            Command::Write { file, value } => match core.write_control(file, value, 0) {
                Ok(write) => {
                    let checked = write.check();
                    write.cancel(&core, &host);
                    checked.map_err(|error| at(scenario, action.place, error))?;
                }
                Err(error) => return Err(at(scenario, action.place, with_advice(&core, error))),
            },
        }
        unread.retain(|file| core.read_control(&file.value, Time::ZERO).is_err());
    }
    match unread.first() {
        Some(file) => match core.read_control(&file.value, Time::ZERO) {
            Err(error) => Err(at(scenario, file.place, with_advice(&core, error))),
            Ok(_) => unreachable!("the rehearsal failed to read this file"),
        },
        None => Ok(()),
    }
}

/// Adds to the error of a file that does not exist which file there is.
fn with_advice(core: &Core, error: ControlError) -> String {
    let path = error.path.trim_matches('/');
    let (tenant, name) = path.rsplit_once('/').unwrap_or(("", path));
    if error.errno != Errno::NoEntry || core.memcgs().find(tenant).is_err() {
        return error.to_string();
    }
    let files = core.list_control(tenant).unwrap_or_default();
    match names::nearest(name, files.iter().map(String::as_str)) {
        Some(near) if near != name => format!("{error}; did you mean `{near}`?"),
        _ => format!("{error}; docs/book/src/control-files.md lists the files"),
    }
}
