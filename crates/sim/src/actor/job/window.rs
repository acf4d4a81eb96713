//! Readahead windows: pages that a job reads beside the one that it needs, as
//! [`mglru_core::readahead`] decides.
//!
//! The reads are asynchronous. The job waits only for the page that it needs, and does not wait at
//! a readahead mark.

use super::miss::end_stall;
use super::touch::Touch;
use super::{Job, State, rest, wait_for};
use crate::world::{Pause, World};
use mglru_core::readahead::{FillStep, Filling, Readahead, SwapReadahead, Window as Wanted};
use mglru_core::{Arrival, Charging, FolioId, Hit, Lookup, Mapping, Stall};
use mglru_workload::trace::RequestStart;
use std::sync::Arc;

/// A window in progress.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) mapping: Arc<Mapping>,
    filling: Filling,
}

impl Window {
    pub(super) fn charging(&self) -> Option<&Charging> {
        self.filling.charging()
    }

    /// Its inserted pages that are not requested from the device yet.
    pub(crate) fn held(&self) -> impl Iterator<Item = (u32, FolioId)> + '_ {
        self.filling.held()
    }
}

/// A page that the device reads with others.
#[derive(Debug)]
pub(super) struct Awaited {
    mapping: Arc<Mapping>,
    folio: FolioId,
    /// Present for a refault of a page in the working set.
    stall: Option<Stall>,
}

impl Job {
    /// The readahead state of the open file, if that is known. Otherwise its process reads each
    /// file through one descriptor, and maps it through another.
    fn readahead(&mut self, touch: Touch, world: &World) -> &mut Readahead {
        if touch.handle != RequestStart::NO_HANDLE {
            let open = self.process.handle(&touch).expect("it has a number");
            return open.readahead(world);
        }
        let (file, readahead) = (touch.file.0 as usize, &mut self.process.readahead);
        if readahead.len() <= file {
            let new = world.core.new_readahead(world.readahead_pages);
            readahead.resize(file + 1, [new.clone(), new]);
        }
        &mut readahead[file][usize::from(touch.mapped)]
    }

    /// The window around a missing page; `None`: only the page itself.
    pub(super) fn window_of(&mut self, world: &World, touch: Touch) -> Option<Wanted> {
        // The cache reads a page that a write changes in part alone.
        let is_part = touch.write && world.parts;
        if world.readahead_pages == 0 || touch.alone || is_part {
            return None;
        }
        let previous = self.process.descriptors[touch.file.0 as usize].previous.checked_sub(1);
        let is_cached = |page| world.core.is_cached(&world.files.get(touch.file).mapping, page);
        let readahead = self.readahead(touch, world);
        let window = if touch.mapped {
            readahead.on_fault(touch.index)
        } else if touch.handle != RequestStart::NO_HANDLE {
            // As the cache does: hits are not noted.
            let window = readahead.on_miss(touch.index, touch.request, is_cached);
            readahead.note_read(touch.index, touch.request);
            window
        } else if touch.goes_on {
            // Only its first page can continue an earlier read.
            Wanted { first: touch.index, pages: touch.request, mark: None }
        } else {
            if let Some(previous) = previous {
                readahead.note_read(previous as u32, 1);
            }
            readahead.on_miss(touch.index, touch.request, is_cached)
        };
        (window.pages > 1).then_some(window)
    }

    fn swap_readahead(&mut self, touch: Touch, world: &World) -> &SwapReadahead {
        let (file, readahead) = (touch.file.0 as usize, &mut self.process.swap_readahead);
        if readahead.len() <= file {
            readahead.resize_with(file + 1, || SwapReadahead::new(world.swap_readahead_pages));
        }
        &readahead[file]
    }

    /// The window around a page that comes from swap; `None`: only the page itself.
    pub(super) fn swap_window_of(&mut self, world: &World, touch: Touch) -> Option<Wanted> {
        if world.swap_readahead_pages <= 1 || touch.alone {
            return None;
        }
        let window = self.swap_readahead(touch, world).on_fault(touch.index);
        (window.pages > 1).then_some(window)
    }

    /// Brings in a window around an inserted page and waits for that page.
    pub(super) fn bring_window(
        &mut self,
        world: &World,
        touch: Touch,
        window: Wanted,
        folio: FolioId,
    ) -> Pause {
        let file = world.files.get(touch.file);
        let page = (touch.index, folio);
        let arrival = Arrival { in_fault: touch.mapped, ..Arrival::default() };
        let memcg = self.process.task.memcg;
        let filling = match touch.anon {
            true => Filling::swapped(&world.core, memcg, window, file.pages, page),
            false => Filling::around(&world.core, memcg, window, file.pages, page, arrival),
        };
        let mapping = file.mapping.clone();
        self.window = Some(Box::new(Window { mapping: mapping.clone(), filling }));
        let stall = world.core.begin_refault(&world.host, folio);
        self.state = State::Await(touch, Awaited { mapping, folio, stall });
        Pause::Ready
    }

    /// Reads the next window after a page with the readahead mark. One of anonymous memory was read
    /// beside another, and has been of use.
    #[cold]
    pub(super) fn read_on(&mut self, world: &World, touch: Touch, hit: &Hit) {
        let mapping = &world.files.get(touch.file).mapping;
        if touch.anon {
            if world.core.take_readahead_mark(mapping, touch.index, hit) {
                self.swap_readahead(touch, world).note_hit(touch.index);
            }
        } else if world.readahead_pages > 0 && world.core.take_readahead_mark(mapping, touch.index, hit) {
            self.read_ahead_of(world, touch);
        }
    }

    /// Whether it reads the next window now, as the page that it is about to wait for has the mark.
    #[cold]
    pub(super) fn reads_on_before_waiting(&mut self, world: &World, touch: Touch, folio: FolioId) -> bool {
        let mapping = &world.files.get(touch.file).mapping;
        if touch.anon
            || world.readahead_pages == 0
            || touch.write && world.parts
            || !world.core.take_mark_of_pending(mapping, touch.index, folio)
        {
            return false;
        }
        self.read_ahead_of(world, touch);
        self.window.is_some()
    }

    /// Begins with the next window, for the reader of a page whose mark it took.
    fn read_ahead_of(&mut self, world: &World, touch: Touch) {
        let file = world.files.get(touch.file);
        let readahead = self.readahead(touch, world);
        readahead.note_read(touch.index, 1);
        let is_cached = |page| world.core.is_cached(&file.mapping, page);
        let window = match touch.mapped {
            true => readahead.on_mapped_mark(touch.index, is_cached),
            false => readahead.on_mark(touch.index, is_cached),
        };
        if let Some(window) = window {
            let memcg = self.process.task.memcg;
            let filling = Filling::ahead(&world.core, memcg, window, file.pages, touch.mapped);
            self.window = Some(Box::new(Window { mapping: file.mapping.clone(), filling }));
        }
    }

    /// Continues with a window until it is cached or requested, or a batch was reclaimed for it.
    pub(super) fn fill(&mut self, world: &mut World, mut window: Box<Window>) -> Pause {
        loop {
            let task = &self.process.task;
            match window.filling.step(&world.core, &world.host, task, &window.mapping) {
                FillStep::Read(run) => world.read(window.mapping.clone(), run),
                FillStep::Done => return Pause::Ready,
                FillStep::More => {
                    self.window = Some(window);
                    let nanos = world.take_batch_nanos();
                    return rest(world, nanos);
                }
            }
        }
    }

    /// Waits for a page that is read with others. If the read fails or the page is evicted, reads
    /// it alone.
    pub(super) fn await_page(&mut self, world: &mut World, touch: Touch, awaited: Awaited) -> Pause {
        let found = world.core.lookup(&awaited.mapping, touch.index);
        if matches!(found, Lookup::Pending(folio) if folio == awaited.folio) {
            let pause = wait_for(&world.core, awaited.folio);
            self.state = State::Await(touch, awaited);
            return pause;
        }
        end_stall(world, awaited.stall);
        self.look_with_cpu(world, Touch { alone: true, ..touch })
    }

    /// Maps the pages around a load or store that needed a page-table entry: of a page that is
    /// cached, about to be read, or just read, since the fault is then tried again.
    #[cold]
    pub(super) fn map_around(&mut self, world: &World, touch: Touch) {
        let mapping = &world.files.get(touch.file).mapping;
        let is_cached = matches!(world.core.lookup(mapping, touch.index), Lookup::Hit(_));
        let mut around = 0;
        if world.fault_around_pages > 1 && !touch.write {
            let pages = world.fault_around_pages;
            around = world.core.fault_around(&self.process.task, mapping, touch.index, pages);
        }
        if world.readahead_pages > 0 {
            // A miss is not made up for by the end of its own fault.
            self.readahead(touch, world).note_mapped(is_cached && !touch.missed, around);
        }
    }
}
