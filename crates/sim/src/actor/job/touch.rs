//! An access to one page: looks it up and touches it if it is cached.

use super::{Job, State, rest, wait_for, wait_out};
use crate::files::FileNumber;
use crate::host::PageTouch;
use crate::operation::Access;
use crate::world::{Pause, World};
use mglru_core::mapping::TABLE_PAGES;
use mglru_core::{Charging, Hit, Host, Lookup, MemcgId, Time};
use mglru_workload::trace::RequestStart;
use std::time::Duration;

/// Maximum pause for write-back, because the device may fail permanently.
const DIRTY_WAIT: Duration = Duration::from_secs(20);

/// An access in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) file: FileNumber,
    pub(super) index: u32,
    pub(super) write: bool,
    /// Through a mapping, like all accesses to anonymous memory.
    pub(super) mapped: bool,
    pub(super) anon: bool,
    /// Whether it begins inside of the page.
    pub(super) inside: bool,
    /// Whether it is a fault.
    pub(super) fault: bool,
    /// Whether it is counted as a miss.
    pub(super) missed: bool,
    /// Whether observers were called.
    pub(super) reported: bool,
    /// Whether to read only this page, because reading it with others failed or it was evicted
    /// again.
    pub(super) alone: bool,
    /// Whether its request covers only a part of the page.
    pub(super) part: bool,
    /// Whether its request began with an earlier page.
    pub(super) goes_on: bool,
    /// Pages of its request from this one on.
    pub(super) request: u32,
    /// Number of the open file, or [`RequestStart::NO_HANDLE`].
    pub(super) handle: u32,
}

impl Touch {
    pub(super) fn of(file: FileNumber, index: u32, access: Access) -> Touch {
        let Access { write, mapped, anon, inside, fault, .. } = access;
        let mapped = mapped || anon;
        Touch {
            file,
            index,
            write,
            mapped,
            anon,
            inside,
            fault,
            missed: false,
            reported: false,
            alone: false,
            part: inside,
            goes_on: false,
            request: 1,
            handle: RequestStart::NO_HANDLE,
        }
    }
}

impl Job {
    /// Looks a page up and touches it if it is cached.
    #[inline]
    pub(super) fn look(&mut self, world: &mut World, touch: Touch) -> Pause {
        if touch.mapped {
            self.map(world, touch);
        }
        match world.core.lookup(&world.files.get(touch.file).mapping, touch.index) {
            Lookup::Hit(hit) => self.touch(world, touch, &hit),
            Lookup::Pending(folio) => {
                world.tenants[self.process.tenant].counts.waits += 1;
                self.state = State::Look(touch);
                if self.reads_on_before_waiting(world, touch, folio) {
                    return Pause::Ready;
                }
                wait_for(&world.core, folio)
            }
            Lookup::Miss => self.miss(world, touch),
        }
    }

    /// Brings in a page that is not cached.
    #[inline]
    pub(super) fn miss(&mut self, world: &mut World, mut touch: Touch) -> Pause {
        let mapping = &world.files.get(touch.file).mapping;
        let is_new = touch.anon && world.core.is_untouched(mapping, touch.index);
        let zeros = is_new && !touch.write;
        report(world, self.process.task.memcg, &mut touch, is_new, !zeros);
        let counts = &mut world.tenants[self.process.tenant].counts;
        if zeros {
            // Reads zeros, like the shared zero page.
            counts.hits += u64::from(!touch.missed);
            return rest(world, world.access_nanos);
        }
        counts.misses += u64::from(!touch.missed && !is_new);
        if touch.mapped && !touch.anon && !touch.missed {
            self.map_around(world, touch);
        }
        let charging = Charging::new(self.process.task.memcg, self.process.task.cpu);
        let charging = charging.for_page(&world.core, &world.files.get(touch.file).mapping, touch.index);
        let touch = Touch { missed: touch.missed || !is_new, ..touch };
        // A killed tenant's access ends before it is charged.
        if !world.tenants[self.process.tenant].killed && self.skips(world, Pause::Ready) {
            return self.charge(world, touch, charging);
        }
        self.state = State::Charge(touch, charging);
        Pause::Ready
    }

    /// Touches a cached page.
    #[inline]
    pub(super) fn touch(&mut self, world: &mut World, mut touch: Touch, hit: &Hit) -> Pause {
        report(world, self.process.task.memcg, &mut touch, true, false);
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.hits += u64::from(!touch.missed);
        if touch.mapped {
            let is_new = !hit.flags.mapped();
            counts.minor_faults += u64::from(is_new && !touch.missed);
            self.process.touch_mapped(world, &touch, hit);
            if is_new && !touch.anon {
                self.map_around(world, touch);
            }
        } else if !(touch.write && world.overwrite) && self.process.counts(world, &touch) {
            world.core.accessed(&world.host, || self.process.task.cpu, hit);
        }
        // A load that finds a page-table entry is no fault, and sees no mark.
        let looks_for_mark = !touch.mapped || !hit.flags.mapped();
        if looks_for_mark && world.core.has_readahead_mark(hit) && !(touch.write && world.parts) {
            self.read_on(world, touch, hit);
        }
        if touch.write {
            self.dirty(world, touch, hit);
        }
        rest(world, world.access_nanos)
    }

    /// Maps a file into the job's address space up to the page, in whole page tables.
    pub(super) fn map(&mut self, world: &World, touch: Touch) {
        let mapping = &world.files.get(touch.file).mapping;
        let mapped = &mut self.process.descriptors[touch.file.0 as usize].mapped;
        if !*mapped || mapping.mapped_pages() <= u64::from(touch.index) {
            let tables = u64::from(touch.index / TABLE_PAGES) + 1;
            world.core.map(&self.process.task, mapping, tables * u64::from(TABLE_PAGES));
            *mapped = true;
        }
    }

    pub(super) fn dirty(&mut self, world: &mut World, touch: Touch, hit: &Hit) {
        let flags = &world.core.folios().flags(hit.folio);
        assert!(flags.try_lock(), "between steps only pages without content are locked");
        let was_clean = world.core.set_dirty(&world.host, &world.files.get(touch.file).mapping, hit.folio);
        if touch.anon && !hit.flags.mapped() {
            world.core.stored_by_fault(&world.host, self.process.task.cpu, hit.folio);
        }
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

    /// Pauses the job if it dirties pages faster than they are written.
    pub(super) fn balance(&mut self, world: &mut World, until: Time) -> Pause {
        let memcg = self.process.task.memcg;
        let pause = world.core.balance_dirty(&world.host, memcg, &mut self.dirtier);
        let Some(pause) = pause.filter(|_| world.now() < until) else { return Pause::Ready };
        world.tenants[self.process.tenant].counts.dirty_pauses += 1;
        self.state = State::Balance(until);
        wait_out(world, pause)
    }
}

/// Reports an access to the observers, once.
#[inline]
fn report(world: &World, memcg: MemcgId, touch: &mut Touch, hit: bool, arrives: bool) {
    if world.host.observes() && !std::mem::replace(&mut touch.reported, true) {
        let Touch { file, index, write, mapped, anon, .. } = *touch;
        let place = (world.files.get(file).mapping.id(), index);
        let page = world.files.page_name(file, index);
        let access = world.accesses.saturating_sub(1);
        world.host.report_touch(&PageTouch { access, page, memcg, anon, write, mapped, hit, arrives, place });
    }
}
