//! A job: performs a stream of operations, one after the other, as one task of one tenant.
//!
//! ```text
//!        ┌──────────── hit ─────────────┐
//! Next ──┴─► Look ── miss ──► Charge ──► Read ──► Look ── hit ──► Next
//!              ▲ └─ pending: wait ─┘▲ └─ more, wait ─┘
//! ```
//!
//! As long as pages are cached and nobody else wants to act, it does not leave its loop, and the event queue is not
//! touched. That is only faster: an actor that is alone runnable, rests, and is resumed before anything else
//! happens, notices nothing of it.

mod sync;
mod window;

use self::sync::Syncing;
use self::window::{Awaited, Window};
use super::rest;
use crate::checker::judge_out_of_memory;
use crate::files::FileNumber;
use crate::host::{PageTouch, SimHost};
use crate::operation::{Access, Operation, Request, Source, SourceError};
use crate::report::Refusal;
use crate::report::RequestReport;
use crate::world::{Pause, TenantState, World};
use mglru_core::lru::switch::{LruSwitch, SwitchStep};
use mglru_core::mapping::{LEAF_SLOTS, TABLE_PAGES};
use mglru_core::readahead::Readahead;
use mglru_core::reclaim::{Proactive, RequestStep};
use mglru_core::writeback::Dirtier;
use mglru_core::{
    Arrival, ChargeStep, Charging, Core, FolioId, Hit, Host, InsertError, Kind, Lookup, Mapping, NewFolio,
    Stall, Task, Throttle, Time,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Accesses after which a job returns to the simulator although nobody else wants to act, so that the caller
/// can show progress.
const ACCESSES_PER_STEP: u32 = 1 << 16;
/// Pages that a job looks up together before it touches them one by one: their memory is waited for together.
const AHEAD_PAGES: usize = 32;
/// How often a job looks whether its tenant is there.
const TENANT_PAUSE: Duration = Duration::from_millis(1);
/// Who pauses for write-back goes on after this time anyhow: the device may be failing for good.
const DIRTY_WAIT: Duration = Duration::from_secs(20);

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Touch(Touch),
    Loads(Loads),
    Other(Operation),
}

/// A touch of one page on its way.
#[derive(Clone, Copy, Debug)]
struct Touch {
    file: FileNumber,
    index: u32,
    write: bool,
    /// Through a mapping, as all touches of anonymous memory.
    mapped: bool,
    anon: bool,
    /// It was counted as a miss.
    missed: bool,
    /// Observers saw it.
    told: bool,
    /// Nothing is read beside it: with others it could not be read, or did not stay.
    alone: bool,
}

impl Touch {
    fn of(file: FileNumber, index: u32, access: Access) -> Touch {
        let Access { write, mapped, anon, .. } = access;
        Touch { file, index, write, mapped: mapped || anon, anon, missed: false, told: false, alone: false }
    }
}

/// Loads through a mapping from pages of one leaf, as bits.
#[derive(Clone, Copy, Debug)]
struct Loads {
    file: FileNumber,
    first: u32,
    pages: u64,
}

impl Loads {
    const NONE: Loads = Loads { file: FileNumber(0), first: 0, pages: 0 };

    /// Takes one of them.
    fn pop(&mut self) -> Option<Touch> {
        let at = self.pages.trailing_zeros();
        self.pages &= self.pages.checked_sub(1)?;
        Some(Touch::of(self.file, self.first + at, Access::load(0)))
    }
}

#[derive(Debug, Default)]
enum State {
    /// The next operation comes.
    #[default]
    Next,
    /// The page is looked up (again).
    Look(Touch),
    /// A page is paid for.
    Charge(Touch, Charging),
    /// The device reads it.
    Read(Touch, Reading),
    /// The device reads it, with others.
    Await(Touch, Awaited),
    /// It may have dirtied too much, and pauses until that time at the latest.
    Balance(Time),
    Sync(FileNumber, Syncing),
    /// From this page on, before that one.
    Truncate(FileNumber, u32, u64),
    Close(Arc<Mapping>),
    SwitchLru(LruSwitch, u32),
    /// So many pages are to be reclaimed.
    Reclaim(u64, Box<Proactive>),
}

/// A read under way.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) index: u32,
    pub(crate) folio: FolioId,
    ok: bool,
    /// The page was in use before.
    stall: Option<Stall>,
}

/// What a job has open.
#[derive(Clone, Copy, Debug, Default)]
struct Descriptor {
    /// The position of the last access, plus 1.
    previous: u64,
    /// The file is in the job's address space.
    mapped: bool,
}

impl Descriptor {
    /// An access to a page. `false`: the last one was to the same page.
    #[inline]
    fn goes_to(&mut self, index: u32) -> bool {
        let position = u64::from(index) + 1;
        std::mem::replace(&mut self.previous, position) != position
    }
}

/// Pages that were looked up before their turn.
#[derive(Debug, Default)]
struct Ahead {
    /// Their places in the batch.
    range: std::ops::Range<usize>,
    /// Those that are cached and only to be read.
    hits: [Option<Hit>; AHEAD_PAGES],
}

/// One of the processes as which a job acts: whose it is, and what it has open.
#[derive(Debug)]
pub(crate) struct Process {
    number: usize,
    tenant: usize,
    task: Task,
    /// By file number.
    descriptors: Vec<Descriptor>,
    /// What it reads ahead, by file number, as far as it did.
    readahead: Vec<Readahead>,
    /// They are right as long as this is the number of files that were replaced.
    replacements: u64,
    /// How many errors of write-back it was told of, where it was. It counts as having had every file open all the time.
    told: BTreeMap<(FileNumber, u64), u64>,
}

impl Process {
    /// `number`: of all processes.
    pub(crate) fn new(number: usize, tenant: usize, task: Task) -> Process {
        Process {
            number,
            tenant,
            task,
            descriptors: Vec::new(),
            readahead: Vec::new(),
            replacements: 0,
            told: BTreeMap::new(),
        }
    }

    /// Enters its tenant, if that was made meanwhile or is another. `false`: it is not there yet.
    fn enter(&mut self, world: &mut World) -> bool {
        let &TenantState { memcg, gone, .. } = &world.tenants[self.tenant];
        match memcg {
            Some(memcg) if memcg != self.task.memcg => world.move_task(&mut self.task, memcg),
            Some(_) => {}
            None => return gone,
        }
        true
    }
}

/// One job.
pub(crate) struct Job {
    process: Process,
    /// Which of its processes that is, from 0.
    number: usize,
    /// Its other processes; in the place of the one that it is, the one that it was first.
    others: Vec<Process>,
    source: Box<dyn Source>,
    batch: Vec<Operation>,
    /// The batch, with the places of pages found.
    located: Vec<Next>,
    next: usize,
    /// Of the operation before, what is still to be touched.
    loads: Loads,
    ahead: Ahead,
    state: State,
    /// The tenant that it goes to after what it is doing.
    moving: Option<usize>,
    /// Pages that are brought in before it goes on.
    window: Option<Box<Window>>,
    dirtier: Dirtier,
    /// When its last access began, as long as that is under way and somebody wants to know.
    began: Option<Time>,
    /// Accesses until it returns to the simulator in any case.
    left: u32,
    /// Nobody else is runnable during this step.
    alone: bool,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Job { process, state, .. } = self;
        f.debug_struct("Job").field("tenant", &process.tenant).field("state", state).finish_non_exhaustive()
    }
}

impl Job {
    /// `others`: the processes 1, 2, … as which it may go on; it begins as the first.
    pub(crate) fn new(first: Process, others: Vec<Process>, source: Box<dyn Source>) -> Job {
        Job {
            process: first,
            number: 0,
            others,
            source,
            batch: Vec::new(),
            located: Vec::new(),
            next: 0,
            loads: Loads::NONE,
            ahead: Ahead::default(),
            state: State::Next,
            moving: None,
            window: None,
            dirtier: Dirtier::default(),
            began: None,
            left: 0,
            alone: false,
        }
    }

    /// The read that it waits for.
    pub(crate) fn reading(&self) -> Option<&Reading> {
        if let State::Read(_, reading) = &self.state { Some(reading) } else { None }
    }

    /// The payment that it is making.
    pub(crate) fn charging(&self) -> Option<&Charging> {
        match (&self.window, &self.state) {
            (Some(window), _) => window.charging(),
            (None, State::Charge(_, charging)) => Some(charging),
            _ => None,
        }
    }

    /// The window that it brings in.
    pub(crate) fn window(&self) -> Option<&Window> {
        self.window.as_deref()
    }

    /// Goes on until it has to wait, or somebody else may want to act.
    pub(crate) fn step(&mut self, world: &mut World, alone: bool) -> Result<Pause, SourceError> {
        if !self.process.enter(world) {
            return Ok(Pause::Until(world.now() + TENANT_PAUSE));
        }
        self.notice_replacements(world);
        self.left = ACCESSES_PER_STEP;
        self.alone = alone;
        self.ahead.range = 0..0;
        loop {
            self.go_on_moving(world);
            if self.is_cut_short(world) {
                return Ok(self.die(world));
            }
            if let Some(window) = self.window.take() {
                let pause = self.fill(world, window);
                if !self.skips(world, pause) {
                    return Ok(pause);
                }
                continue;
            }
            let pause = match std::mem::take(&mut self.state) {
                State::Next => self.run(world)?,
                State::Look(touch) => self.look(world, touch),
                State::Charge(touch, charging) => self.charge(world, touch, charging),
                State::Read(touch, reading) => self.arrive(world, touch, reading),
                State::Await(touch, awaited) => self.await_page(world, touch, awaited),
                State::Balance(until) => self.balance(world, until),
                State::Sync(file, syncing) => self.sync(world, file, syncing),
                State::Truncate(file, from, end) => self.truncate(world, file, from, end),
                State::Close(mapping) => self.close(world, mapping),
                State::SwitchLru(switch, folios) => self.switch_lru(world, switch, folios),
                State::Reclaim(pages, request) => self.reclaim(world, pages, request),
            };
            if !self.skips(world, pause) {
                return Ok(pause);
            }
        }
    }

    /// Moves to another tenant, all its processes together. What it is doing is finished first, where it began. Who is to end
    /// because its tenant was killed does not get away.
    pub(crate) fn move_to(&mut self, world: &mut World, tenant: usize) {
        self.moving = Some(tenant);
        self.go_on_moving(world);
    }

    fn go_on_moving(&mut self, world: &mut World) {
        if !matches!(self.state, State::Next) || self.is_cut_short(world) {
            return;
        }
        let Some(tenant) = self.moving.take() else { return };
        for process in std::iter::once(&mut self.process).chain(&mut self.others) {
            process.tenant = tenant;
            process.enter(world);
        }
    }

    /// Whether it ends now, because its tenant was killed. A read and what is done to whole files is finished first.
    pub(crate) fn is_cut_short(&self, world: &World) -> bool {
        world.tenants[self.process.tenant].killed
            && self.window.is_none()
            && matches!(self.state, State::Next | State::Look(_) | State::Charge(..) | State::Balance(_))
    }

    /// Ends all its processes. The access under way fails.
    #[cold]
    fn die(&mut self, world: &mut World) -> Pause {
        let under_way = match std::mem::take(&mut self.state) {
            State::Charge(touch, charging) => {
                charging.cancel(&world.core, &world.host);
                Some(touch)
            }
            State::Look(touch) => Some(touch),
            _ => None,
        };
        if let Some(touch) = under_way {
            self.fail(world, touch);
        }
        world.end_task(&self.process.task);
        self.others.iter().for_each(|process| world.end_task(&process.task));
        Pause::Done
    }

    /// A page cannot be had.
    fn fail(&self, world: &mut World, touch: Touch) {
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.out_of_memory += 1;
        counts.misses += u64::from(!touch.missed);
    }

    /// What was open of a file that was replaced is not open any more.
    fn notice_replacements(&mut self, world: &World) {
        if self.process.replacements != world.files.replacements() {
            self.process.descriptors.fill(Descriptor::default());
            self.process.readahead.clear();
            self.process.replacements = world.files.replacements();
        }
    }

    /// Goes on at once after a pause in which nobody else acts.
    #[inline]
    fn skips(&self, world: &World, pause: Pause) -> bool {
        self.left > 0 && world.skips(pause, world.horizon(self.alone))
    }

    /// Takes operations. Touches of cached pages are dealt with here and now, one after the other.
    fn run(&mut self, world: &mut World) -> Result<Pause, SourceError> {
        let horizon = world.horizon(self.alone);
        loop {
            if world.times_accesses {
                self.note_latency(world);
            }
            let touch = match self.loads.pop() {
                Some(touch) => touch,
                None => {
                    if self.next == self.located.len() {
                        self.refill(world)?;
                        if self.located.is_empty() {
                            return Ok(Pause::Done);
                        }
                    }
                    let together = self.alone && !world.host.observes();
                    if together {
                        self.touch_ahead(world, horizon);
                    }
                    let Some(&next) = self.located.get(self.next) else { continue };
                    self.next += 1;
                    match next {
                        Next::Touch(touch) => touch,
                        Next::Loads(loads) => {
                            self.loads = loads;
                            if together {
                                self.load_together(world, horizon);
                            }
                            continue;
                        }
                        Next::Other(operation) => return Ok(self.begin(world, operation)),
                    }
                }
            };
            if world.looks() {
                world.look();
            }
            if world.times_accesses {
                self.began = Some(world.now());
            }
            world.accesses += 1;
            world.tenants[self.process.tenant].counts.accesses += 1;
            let pause = self.look(world, touch);
            self.left -= 1;
            let goes_on = matches!(self.state, State::Next) && self.window.is_none();
            if self.left == 0 || !goes_on || !world.skips(pause, horizon) {
                return Ok(pause);
            }
        }
    }

    /// The last access is over, if there was one.
    fn note_latency(&mut self, world: &mut World) {
        if let Some(began) = self.began.take() {
            let nanos = world.now().since(began).as_nanos() as u64;
            world.tenants[self.process.tenant].latencies.record(nanos);
        }
    }

    /// Reads pages as [`Self::run`] would, as long as they are cached and nothing else happens: looked up some at a
    /// time, and counted together.
    fn touch_ahead(&mut self, world: &mut World, horizon: Time) {
        let most = world.accesses_before(horizon).min(u64::from(self.left - 1));
        let mut reads = 0;
        while reads < most && self.next < self.located.len() {
            if !self.ahead.range.contains(&self.next) {
                self.look_ahead(world);
            }
            let Some(hit) = &self.ahead.hits[self.next - self.ahead.range.start] else { break };
            let Next::Touch(touch) = self.located[self.next] else {
                unreachable!("only reads are looked up")
            };
            let process = &mut self.process;
            if touch.mapped {
                world.core.touch(&process.task, &world.files.get(touch.file).mapping, touch.index, hit);
            } else if process.descriptors[touch.file.0 as usize].goes_to(touch.index) || world.count_repeats {
                world.core.accessed(&world.host, || process.task.cpu, hit);
            }
            self.next += 1;
            reads += 1;
        }
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.accesses += reads;
        counts.hits += reads;
        if world.times_accesses {
            world.tenants[self.process.tenant].latencies.record_many(world.access_nanos, reads);
        }
        self.left -= reads as u32;
        world.pass(reads);
    }

    /// Loads from those pages that are mapped, without a look at each.
    fn load_together(&mut self, world: &mut World, horizon: Time) {
        let Loads { file, first, pages } = self.loads;
        let mapping = &world.files.get(file).mapping;
        let is_mapped = self.process.descriptors[file.0 as usize].mapped
            && mapping.mapped_pages() >= u64::from(first) + LEAF_SLOTS as u64;
        let most = world.accesses_before(horizon).min(u64::from(self.left - 1));
        if !is_mapped || u64::from(pages.count_ones()) > most {
            return;
        }
        self.loads.pages = world.core.touch_mapped(&self.process.task, mapping, first, pages);
        let reads = pages.count_ones() - self.loads.pages.count_ones();
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.accesses += u64::from(reads);
        counts.hits += u64::from(reads);
        if world.times_accesses {
            world.tenants[self.process.tenant].latencies.record_many(world.access_nanos, u64::from(reads));
        }
        self.left -= reads;
        world.pass(u64::from(reads));
    }

    /// Looks up the pages that come next. What is found is true until pages are reclaimed or others act.
    fn look_ahead(&mut self, world: &World) {
        let end = self.located.len().min(self.next + AHEAD_PAGES);
        self.ahead.range = self.next..end;
        let coming = &self.located[self.next..end];
        let mut peeked = [None; AHEAD_PAGES];
        for (peeked, next) in peeked.iter_mut().zip(coming) {
            if let Next::Touch(touch) = next {
                *peeked = world.core.peek(&world.files.get(touch.file).mapping, touch.index);
            }
        }
        for ((hit, next), peeked) in self.ahead.hits.iter_mut().zip(coming).zip(peeked) {
            *hit = match next {
                Next::Touch(touch) if !touch.write => {
                    let mapping = &world.files.get(touch.file).mapping;
                    let maps = || {
                        self.process.descriptors[touch.file.0 as usize].mapped
                            && mapping.mapped_pages() > u64::from(touch.index)
                    };
                    match world.core.lookup_peeked(mapping, touch.index, peeked) {
                        // A fault is more than a touch.
                        // And what asks for more to be read.
                        Lookup::Hit(hit) if hit.readahead() => None,
                        Lookup::Hit(hit) if !touch.mapped || hit.flags.mapped() && maps() => Some(hit),
                        _ => None,
                    }
                }
                _ => None,
            };
        }
    }

    /// Takes the next operations, and finds the places of their pages.
    fn refill(&mut self, world: &mut World) -> Result<(), SourceError> {
        self.batch.clear();
        self.located.clear();
        self.ahead.range = 0..0;
        self.next = 0;
        if world.tenants[self.process.tenant].gone || self.source.end().is_some_and(|end| world.now() >= end)
        {
            return Ok(());
        }
        self.source.at(world.now());
        self.source.fill(&mut self.batch)?;
        let mut files = 0;
        for &operation in &self.batch {
            let next = match operation {
                Operation::Access(access) => {
                    let kind = if access.anon { Kind::Anon } else { Kind::File };
                    let (file, index) = world.files.locate(&world.core, kind, access.page);
                    files = files.max(file.0 as usize + 1);
                    Next::Touch(Touch::of(file, index, access))
                }
                Operation::Loads { first, pages } => {
                    let (file, first) = world.files.locate(&world.core, Kind::File, first);
                    files = files.max(file.0 as usize + 1);
                    Next::Loads(Loads { file, first, pages })
                }
                other => Next::Other(other),
            };
            self.located.push(next);
        }
        if self.process.descriptors.len() < files {
            self.process.descriptors.resize(files, Descriptor::default());
        }
        Ok(())
    }

    /// Looks a page up, and touches it if it is there.
    #[inline]
    fn look(&mut self, world: &mut World, mut touch: Touch) -> Pause {
        if touch.mapped {
            self.map(world, touch);
        }
        match world.core.lookup(&world.files.get(touch.file).mapping, touch.index) {
            Lookup::Hit(hit) => self.touch(world, touch, &hit),
            Lookup::Pending(folio) => {
                world.tenants[self.process.tenant].counts.waits += 1;
                self.state = State::Look(touch);
                wait_for(&world.core, folio)
            }
            Lookup::Miss => {
                let mapping = &world.files.get(touch.file).mapping;
                let is_new = touch.anon && world.core.is_untouched(mapping, touch.index);
                let zeros = is_new && !touch.write;
                tell(world, &mut touch, is_new, !zeros);
                let counts = &mut world.tenants[self.process.tenant].counts;
                if zeros {
                    // All zeros, as the page that all such loads share.
                    counts.hits += u64::from(!touch.missed);
                    return rest(world, world.access_nanos);
                }
                counts.misses += u64::from(!touch.missed && !is_new);
                if touch.mapped && !touch.anon && !touch.missed {
                    self.map_around(world, touch);
                }
                let charging = Charging::new(self.process.task.memcg, self.process.task.cpu);
                let touch = Touch { missed: touch.missed || !is_new, ..touch };
                if self.skips(world, Pause::Ready) {
                    return self.charge(world, touch, charging);
                }
                self.state = State::Charge(touch, charging);
                Pause::Ready
            }
        }
    }

    /// Touches a cached page.
    #[inline]
    fn touch(&mut self, world: &mut World, mut touch: Touch, hit: &Hit) -> Pause {
        tell(world, &mut touch, true, false);
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.hits += u64::from(!touch.missed);
        if touch.mapped {
            let is_fault = !touch.missed && !hit.flags.mapped();
            counts.minor_faults += u64::from(is_fault);
            world.core.touch(&self.process.task, &world.files.get(touch.file).mapping, touch.index, hit);
            if is_fault && !touch.anon {
                self.map_around(world, touch);
            }
        } else if !(touch.write && world.overwrite)
            && (self.process.descriptors[touch.file.0 as usize].goes_to(touch.index) || world.count_repeats)
        {
            world.core.accessed(&world.host, || self.process.task.cpu, hit);
        }
        if hit.readahead() {
            self.read_on(world, touch, hit);
        }
        if touch.write {
            self.dirty(world, touch, hit);
        }
        rest(world, world.access_nanos)
    }

    /// Takes a file into the job's address space, as far as the page needs it: whole page tables.
    fn map(&mut self, world: &World, touch: Touch) {
        let mapping = &world.files.get(touch.file).mapping;
        let mapped = &mut self.process.descriptors[touch.file.0 as usize].mapped;
        if !*mapped || mapping.mapped_pages() <= u64::from(touch.index) {
            let tables = u64::from(touch.index / TABLE_PAGES) + 1;
            world.core.map(&self.process.task, mapping, tables * u64::from(TABLE_PAGES));
            *mapped = true;
        }
    }

    fn dirty(&mut self, world: &mut World, touch: Touch, hit: &Hit) {
        let flags = &world.core.folios().flags(hit.folio);
        assert!(flags.try_lock(), "between steps only pages without content are locked");
        let was_clean = world.core.set_dirty(&world.host, &world.files.get(touch.file).mapping, hit.folio);
        if flags.unlock() {
            world.host.wake_waiters(hit.folio);
        }
        if let (Some(model), false) = (&world.host.model, touch.anon) {
            let place = (world.files.get(touch.file).mapping.id(), touch.index);
            model.borrow_mut().content.dirtied(place);
        }
        if was_clean && self.dirtier.dirtied() && world.has_flusher {
            self.state = State::Balance(world.now() + DIRTY_WAIT);
        }
    }

    fn charge(&mut self, world: &mut World, touch: Touch, mut charging: Charging) -> Pause {
        let step = charging.step(&world.core, &world.host).map(|new| self.insert(world, touch, new));
        if !matches!(step, ChargeStep::Charged(_)) {
            // Pages may have been reclaimed.
            self.ahead.range = 0..0;
        }
        let pause = match step {
            ChargeStep::More => {
                let nanos = world.take_batch_nanos();
                rest(world, nanos)
            }
            ChargeStep::Wait(throttle) => wait_out(world, throttle),
            ChargeStep::Charged(inserted) => return self.bring(world, touch, inserted),
            ChargeStep::OutOfMemory(report) => {
                // To whoever was killed before, everything is refused, for the reason of that time.
                if let Some(model) = &world.host.model
                    && !world.kills.iter().any(|kill| kill.report == *report)
                    && let Some(wrong) = judge_out_of_memory(world, &report)
                {
                    model.borrow_mut().complain(wrong);
                }
                let tenant = self.process.tenant;
                if world.tenants[tenant].counts.out_of_memory == 0 {
                    let path = world
                        .memcg(tenant)
                        .map_or_else(String::new, |memcg| world.core.memcg_path(memcg.id()));
                    world.refusals.push(Refusal { time: world.now(), tenant: path, report: *report });
                }
                self.fail(world, touch);
                // The caller may want to give up.
                self.left = self.left.min(1);
                return rest(world, world.access_nanos);
            }
        };
        self.state = State::Charge(touch, charging);
        pause
    }

    /// The page is paid for: into its slot with it.
    fn insert(
        &self,
        world: &World,
        touch: Touch,
        new: NewFolio<'_, SimHost>,
    ) -> Result<FolioId, InsertError> {
        let mapping = &world.files.get(touch.file).mapping;
        let arrival =
            Arrival { in_fault: touch.mapped, overwrite: overwrites(world, touch), ..Arrival::default() };
        world.core.insert(&world.host, &self.process.task, mapping, touch.index, new, arrival)
    }

    /// The page is in its slot: to the device for its content.
    fn bring(
        &mut self,
        world: &mut World,
        touch: Touch,
        inserted: Result<FolioId, InsertError>,
    ) -> Pause {
        let Ok(folio) = inserted else {
            // Somebody else brought it meanwhile.
            self.state = State::Look(touch);
            return Pause::Ready;
        };
        let mapping = &world.files.get(touch.file).mapping;
        let overwrite = overwrites(world, touch);
        let swapped = world.core.swap_slot(folio).is_some();
        let zeros = touch.anon && !swapped;
        world.tenants[self.process.tenant].counts.zero_fills += u64::from(zeros);
        if overwrite || zeros {
            world.core.publish(&world.host, mapping, folio);
            return self.look(world, touch);
        }
        if let Some(window) = self.window_of(world, touch) {
            return self.bring_window(world, touch, window, folio);
        }
        let now = world.now();
        let completion = match &mut world.swap {
            Some(swap) if swapped => swap.read(now),
            _ => world.device.read(now, 1),
        };
        let stall = world.core.begin_refault(&world.host, folio);
        if completion.ok && self.skips(world, Pause::Until(completion.at)) {
            end_stall(world, stall);
            let mapping = &world.files.get(touch.file).mapping;
            world.core.publish(&world.host, mapping, folio);
            return self.look(world, touch);
        }
        let mapping = world.files.get(touch.file).mapping.clone();
        let reading = Reading { mapping, index: touch.index, folio, ok: completion.ok, stall };
        self.state = State::Read(touch, reading);
        Pause::Until(completion.at)
    }

    /// The device has read the page, or failed to.
    fn arrive(&mut self, world: &mut World, touch: Touch, reading: Reading) -> Pause {
        end_stall(world, reading.stall);
        if reading.ok {
            world.core.publish(&world.host, &reading.mapping, reading.folio);
            return self.look(world, touch);
        }
        world.core.abandon(&world.host, &reading.mapping, reading.folio);
        world.note_dropped(&reading.mapping, reading.index, u64::from(reading.index) + 1);
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.read_errors += 1;
        // New when it was looked for, and told so; meanwhile another job wrote it, and it went to swap.
        counts.hits += u64::from(!touch.missed);
        rest(world, world.access_nanos)
    }

    /// Rests where it dirties pages faster than they are written.
    fn balance(&mut self, world: &mut World, until: Time) -> Pause {
        let memcg = self.process.task.memcg;
        let pause = world.core.balance_dirty(&world.host, memcg, &mut self.dirtier);
        let Some(pause) = pause.filter(|_| world.now() < until) else { return Pause::Ready };
        world.tenants[self.process.tenant].counts.dirty_pauses += 1;
        self.state = State::Balance(until);
        wait_out(world, pause)
    }

    /// Operations on whole files.
    fn begin(&mut self, world: &mut World, operation: Operation) -> Pause {
        self.ahead.range = 0..0;
        match operation {
            Operation::Access(_) | Operation::Loads { .. } => unreachable!("touches are dealt with before"),
            Operation::Sync { page } => {
                let file = world.files.file_of(&world.core, page);
                self.begin_sync(world, file);
                Pause::Ready
            }
            Operation::Truncate { page } => {
                let (file, from) = world.files.locate(&world.core, Kind::File, page);
                self.state = State::Truncate(file, from, 1 << 32);
                Pause::Ready
            }
            Operation::Release { page, pages } => {
                let (region, from) = world.files.locate(&world.core, Kind::Anon, page);
                let end = (u64::from(from) + u64::from(pages)).min(1 << 32);
                self.state = State::Truncate(region, from, end);
                Pause::Ready
            }
            Operation::Discard { page, pages } => {
                let (file, from) = world.files.locate(&world.core, Kind::File, page);
                let end = (u64::from(from) + u64::from(pages)).min(1 << 32);
                let mapping = &world.files.get(file).mapping;
                world.core.invalidate(&world.host, mapping, from, end, self.process.task.cpu);
                world.note_dropped(mapping, from, end);
                rest(world, world.access_nanos)
            }
            Operation::Unmap { page } => {
                let file = world.files.file_of(&world.core, page);
                world.core.unmap(&world.host, &self.process.task, &world.files.get(file).mapping);
                if let Some(descriptor) = self.process.descriptors.get_mut(file.0 as usize) {
                    descriptor.mapped = false;
                }
                rest(world, world.access_nanos)
            }
            Operation::Switch { process } => {
                let files = self.process.descriptors.len();
                self.switch(process);
                if self.process.descriptors.len() < files {
                    self.process.descriptors.resize(files, Descriptor::default());
                }
                self.notice_replacements(world);
                Pause::Ready
            }
            Operation::Rest { nanos } => rest(world, nanos),
            Operation::RestUntil { time } if time > world.now() => Pause::Until(time),
            Operation::RestUntil { .. } => Pause::Ready,
            Operation::Reclaim(Request { tenant, pages, swappiness, unsliced }) => {
                let tenant = tenant.map_or(0, |tenant| tenant + 1);
                let target = world.tenants[tenant].memcg.expect("a job asks tenants that are there");
                let request = Proactive::new(&world.core, target, pages, swappiness, self.process.task.cpu);
                let request = if unsliced { request.unsliced() } else { request };
                self.state = State::Reclaim(pages, Box::new(request));
                Pause::Ready
            }
            Operation::SwitchLru { to, folios } => {
                self.state = State::SwitchLru(world.core.switch_lru(to), folios);
                Pause::Ready
            }
            Operation::Remove { page } => {
                let file = world.files.file_of(&world.core, page);
                let old = world.files.replace(&world.core, file);
                world.tasks.iter().for_each(|task| world.core.unmap(&world.host, task, &old));
                self.notice_replacements(world);
                self.state = State::Close(old);
                Pause::Ready
            }
        }
    }

    /// Moves some folios from one policy to the other. In between, everybody may act.
    fn switch_lru(&mut self, world: &mut World, mut switch: LruSwitch, folios: u32) -> Pause {
        if switch.step(&world.core, folios) == SwitchStep::More {
            self.state = State::SwitchLru(switch, folios);
        }
        rest(world, world.access_nanos)
    }

    /// Goes on as another process. Each one's place among the others is its number less one; of the one that it is now, the
    /// first has it.
    fn switch(&mut self, number: usize) {
        for place in [self.number, number] {
            if place > 0 {
                std::mem::swap(&mut self.process, &mut self.others[place - 1]);
            }
        }
        self.number = number;
    }

    fn reclaim(&mut self, world: &mut World, pages: u64, mut request: Box<Proactive>) -> Pause {
        let (progress, fell_short) = match request.step(&world.core, &world.host) {
            RequestStep::More => {
                self.state = State::Reclaim(pages, request);
                let nanos = world.take_batch_nanos();
                return rest(world, nanos);
            }
            RequestStep::Wait(throttle) => {
                self.state = State::Reclaim(pages, request);
                return wait_out(world, throttle);
            }
            RequestStep::Done(progress) => (progress, false),
            RequestStep::TryAgain(progress) => (progress, true),
        };
        world.requests.push(RequestReport { pages, progress, fell_short });
        Pause::Ready
    }

    fn truncate(&mut self, world: &mut World, file: FileNumber, from: u32, end: u64) -> Pause {
        let mapping = &world.files.get(file).mapping;
        let busy = world.core.truncate(&world.host, mapping, from, end);
        world.note_cut(mapping, from, end);
        let Some(folio) = busy else { return rest(world, world.access_nanos) };
        self.state = State::Truncate(file, from, end);
        wait_for(&world.core, folio)
    }

    fn close(&mut self, world: &mut World, mapping: Arc<Mapping>) -> Pause {
        let busy = world.core.close_mapping(&world.host, &mapping);
        world.note_cut(&mapping, 0, 1 << 32);
        let Some(folio) = busy else {
            world.note_closed(&mapping);
            return rest(world, world.access_nanos);
        };
        self.state = State::Close(mapping);
        wait_for(&world.core, folio)
    }
}

/// Tells whoever wants to see it that a page is touched, once.
#[inline]
fn tell(world: &World, touch: &mut Touch, hit: bool, arrives: bool) {
    if world.host.observes() && !std::mem::replace(&mut touch.told, true) {
        let Touch { file, index, write, mapped, anon, .. } = *touch;
        let place = (world.files.get(file).mapping.id(), index);
        let page = world.files.page_name(file, index);
        let access = world.accesses.saturating_sub(1);
        world.host.tell_touch(&PageTouch { access, page, anon, write, mapped, hit, arrives, place });
    }
}

/// Whether a touch writes its whole page, so that nothing is read before.
fn overwrites(world: &World, touch: Touch) -> bool {
    world.overwrite && touch.write && !touch.mapped
}

/// The page of a refault is there, or will not be.
fn end_stall(world: &World, stall: Option<Stall>) {
    if let Some(stall) = stall {
        world.core.end_stall(&world.host, stall);
    }
}

pub(super) fn wait_out(world: &World, throttle: Throttle) -> Pause {
    let until = world.now() + throttle.timeout();
    match throttle {
        Throttle::Writeback => Pause::Written(Some(until)),
        _ => Pause::Until(until),
    }
}

/// Waits until nobody works on the folio any more.
pub(super) fn wait_for(core: &Core, folio: FolioId) -> Pause {
    let flags = &core.folios().flags(folio);
    if flags.load().writeback() {
        // Not for the folio: a look at a page under write-back wakes whoever else waits for it, and two that look in
        // turn would keep each other awake while time stands still.
        Pause::Written(None)
    } else if flags.announce_waiter(|flags| flags.locked()) {
        Pause::Folio(folio)
    } else {
        Pause::Ready
    }
}
