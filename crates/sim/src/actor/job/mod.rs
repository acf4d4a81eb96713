//! A job: performs a stream of operations in order, as one task of one tenant.
//!
//! ```text
//!        ┌──────────── hit ─────────────┐
//! Next ──┴─► Look ── miss ──► Charge ──► Read ──► Look ── hit ──► Next
//!              ▲ └─ pending: wait ─┘▲ └─ more, wait ─┘
//! ```
//!
//! As long as pages are cached and no other actor is runnable, the job stays in its loop and
//! bypasses the event queue. That is only faster: the results are those of an actor that rests and
//! is resumed before anything else happens.

mod batch;
mod miss;
mod operations;
mod process;
mod sync;
mod touch;
mod window;

pub(crate) use miss::Reading;
pub(crate) use process::Process;
pub(crate) use window::Window;

use self::batch::{Loads, Next, Request, Stop};
use self::sync::Syncing;
use self::touch::Touch;
use self::window::Awaited;
use super::{Writing, rest};
use crate::files::{Cuts, FileNumber};
use crate::operation::{Access, Operation, Source, SourceError};
use crate::world::{Pause, World};
use mglru_core::lru::switch::LruSwitch;
use mglru_core::reclaim::Proactive;
use mglru_core::writeback::Dirtier;
use mglru_core::{Charging, Core, FolioId, Host, Mapping, Throttle, Time};
use std::sync::Arc;
use std::time::Duration;

/// Accesses after which a job returns to the simulator in any case, so that the caller can show
/// progress.
const ACCESSES_PER_STEP: u32 = 1 << 16;
/// Interval at which a job checks whether its tenant exists.
const TENANT_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
enum State {
    /// Before the next operation.
    #[default]
    Next,
    /// Looking the page up, possibly again.
    Look(Touch),
    /// Charging a page.
    Charge(Touch, Charging),
    /// The device reads the page.
    Read(Touch, Reading),
    /// The device reads the page with others.
    Await(Touch, Awaited),
    /// Paused for dirty pages, at most until that time.
    Balance(Time),
    Sync(FileNumber, Syncing),
    /// Dropping these pages.
    Truncate(FileNumber, Cuts),
    Close(Arc<Mapping>),
    SwitchLru(LruSwitch, u32),
    /// Reclaiming this number of pages.
    Reclaim(u64, Box<Proactive>),
    Control(Writing),
}

pub(crate) struct Job {
    process: Process,
    /// Number of its current process, from 0.
    number: usize,
    /// Its other processes. The current process's place holds the first process.
    others: Vec<Process>,
    source: Box<dyn Source>,
    batch: Vec<Operation>,
    /// The batch, with the locations of pages.
    located: Vec<Next>,
    next: usize,
    /// Remaining pages of the previous operation.
    loads: Loads,
    /// The place in the batch up to which slots were prefetched.
    prefetched: usize,
    /// The request that the next operations of the source are part of.
    request: Request,
    state: State,
    /// The tenant to which it moves after its current operation.
    moving: Option<usize>,
    /// The window of pages to bring in before it continues.
    window: Option<Box<Window>>,
    dirtier: Dirtier,
    /// Start of the current access, if durations are measured.
    began: Option<Time>,
    /// Accesses left before it returns to the simulator in any case.
    left: u32,
    /// Whether no other actor is runnable during this step.
    alone: bool,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Job { process, state, .. } = self;
        f.debug_struct("Job").field("tenant", &process.tenant).field("state", state).finish_non_exhaustive()
    }
}

impl Job {
    /// `others`: the processes 1, 2, … The job starts as `first`, process 0.
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
            prefetched: 0,
            request: Request::NONE,
            state: State::Next,
            moving: None,
            window: None,
            dirtier: Dirtier::default(),
            began: None,
            left: 0,
            alone: false,
        }
    }

    /// The read for which it waits.
    pub(crate) fn reading(&self) -> Option<&Reading> {
        if let State::Read(_, reading) = &self.state { Some(reading) } else { None }
    }

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

    /// Continues until it must wait or another actor may run.
    pub(crate) fn step(&mut self, world: &mut World, alone: bool) -> Result<Pause, SourceError> {
        if !self.process.enter(world) {
            return Ok(Pause::Until(world.now() + TENANT_PAUSE));
        }
        self.notice_replacements(world);
        self.left = ACCESSES_PER_STEP;
        self.alone = alone;
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
                State::Truncate(file, cuts) => self.truncate(world, file, cuts),
                State::Close(mapping) => self.close(world, mapping),
                State::SwitchLru(switch, folios) => self.switch_lru(world, switch, folios),
                State::Reclaim(pages, request) => self.reclaim(world, pages, request),
                State::Control(writing) => self.control(world, writing),
            };
            if !self.skips(world, pause) {
                return Ok(pause);
            }
        }
    }

    /// Whether it ends now because its tenant was killed. It finishes reads and operations on whole
    /// files first.
    pub(crate) fn is_cut_short(&self, world: &World) -> bool {
        world.tenants[self.process.tenant].killed
            && self.window.is_none()
            && matches!(self.state, State::Next | State::Look(_) | State::Charge(..) | State::Balance(_))
    }

    /// Ends all its processes. Its current access fails.
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

    /// Whether it may continue at once after a pause in which no other actor runs.
    #[inline]
    fn skips(&self, world: &World, pause: Pause) -> bool {
        self.left > 0 && world.skips(pause, world.horizon(self.alone))
    }

    /// Takes operations and performs accesses to cached pages at once.
    fn run(&mut self, world: &mut World) -> Result<Pause, SourceError> {
        let horizon = world.horizon(self.alone);
        loop {
            if world.times_accesses {
                self.note_latency(world);
            }
            let mut is_missing = false;
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
                    let stop = if together { self.touch_ahead(world, horizon) } else { Stop::Other };
                    is_missing = stop == Stop::Missing;
                    let Some(&next) = self.located.get(self.next) else { continue };
                    self.next += 1;
                    match next {
                        Next::Read(file, index) => Touch::of(file, index, Access::read(0)),
                        Next::Touch(touch) => touch,
                        Next::Loads(loads) => {
                            self.loads = loads;
                            if together {
                                self.load_together(world, horizon);
                            }
                            continue;
                        }
                        Next::Other(operation) => {
                            self.check(world, operation)?;
                            return Ok(self.begin(world, operation));
                        }
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
            let pause = if is_missing { self.miss(world, touch) } else { self.look(world, touch) };
            self.left -= 1;
            let goes_on = matches!(self.state, State::Next) && self.window.is_none();
            if self.left == 0 || !goes_on || !world.skips(pause, horizon) {
                return Ok(pause);
            }
        }
    }

    /// Records the duration of the last access, if any.
    fn note_latency(&mut self, world: &mut World) {
        if let Some(began) = self.began.take() {
            let nanos = world.now().since(began).as_nanos() as u64;
            world.tenants[self.process.tenant].latencies.record(nanos);
        }
    }
}

pub(super) fn wait_out(world: &World, throttle: Throttle) -> Pause {
    let until = world.now() + throttle.timeout();
    match throttle {
        Throttle::Writeback => Pause::Written(Some(until)),
        Throttle::Background => Pause::Throttled(until),
        _ => Pause::Until(until),
    }
}

/// Waits until the folio is neither locked nor under writeback.
pub(super) fn wait_for(core: &Core, folio: FolioId) -> Pause {
    let flags = &core.folios().flags(folio);
    if flags.load().writeback() {
        // Waits for a write, not for the folio: checking a page under writeback wakes its other
        // waiters, and two that check in turn would keep each other awake while time stands still.
        Pause::Written(None)
    } else if flags.announce_waiter(|flags| flags.locked()) {
        Pause::Folio(folio)
    } else {
        Pause::Ready
    }
}
