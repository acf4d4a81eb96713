//! Checks, between steps, that the machine is in a state that can be.
//!
//! Three independent accounts are compared:
//!
//! * the core's own recount ([`mglru_core::Core::validate`]): lists, labels, sizes, charges,
//!   windows, limits, swap slots;
//! * a model that knows of pages only what the core reported: which were inserted, evicted, taken
//!   out;
//! * what is under way: a page without content belongs to exactly one job that reads it, or one
//!   read ahead, a page under write-back to exactly one write.
//!
//! What pages hold, and who was told of errors, is [`Content`]'s account.

use crate::actor::{Actor, Job};
use crate::content::Content;
use crate::world::World;
use mglru_core::reclaim::OutOfMemory;
use mglru_core::{Core, Counter, Event, FolioId, Lookup, Mapping, MappingId, MemcgId};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is cached, as far as events tell.
#[derive(Debug, Default)]
pub(crate) struct Model {
    cached: BTreeMap<(MappingId, u32), FolioId>,
    pub(crate) content: Content,
    /// The first event that could not be.
    wrong: Option<String>,
}

impl Model {
    /// The core reported something.
    pub(crate) fn event(&mut self, event: &Event) {
        let wrong = match *event {
            Event::Inserted { page, folio, .. } => {
                let before = self.cached.insert(page, folio);
                before.map(|other| format!("{page:?} was inserted as {folio:?}, but is cached as {other:?}"))
            }
            Event::Evicted { page, .. } => {
                self.content.left(page);
                let before = self.cached.remove(&page);
                before.is_none().then(|| format!("{page:?} was evicted, but is not cached"))
            }
            _ => None,
        };
        self.wrong = self.wrong.take().or(wrong);
    }

    /// Something happened that must not.
    pub(crate) fn complain(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// Pages of this range were taken out, those that are not there any more; with what was written
    /// to them, if the file was cut.
    pub(crate) fn removed(&mut self, core: &Core, mapping: &Mapping, from: u32, end: u64, cut: bool) {
        let last = (end - 1) as u32;
        let of_range = self.cached.range((mapping.id(), from)..=(mapping.id(), last));
        let gone = of_range.filter(|((_, index), _)| matches!(core.lookup(mapping, *index), Lookup::Miss));
        for page in gone.map(|(&page, _)| page).collect::<Vec<_>>() {
            self.cached.remove(&page);
            if !cut {
                self.content.left(page);
            }
        }
        if cut {
            self.content.cut(mapping.id(), from, end, |place| self.cached.contains_key(&place));
        }
    }
}

fn agree(what: &str, ours: u64, cores: u64) -> Result<(), String> {
    if ours == cores { Ok(()) } else { Err(format!("{what}: {ours} expected, {cores} in the core")) }
}

/// Checks everything. Nobody is in the middle of a step.
///
/// # Errors
/// What does not hold, in words.
pub(crate) fn check<'a>(world: &World, actors: impl Iterator<Item = &'a Actor>) -> Result<(), String> {
    let jobs = actors.filter_map(|actor| if let Actor::Job(job) = actor { Some(&**job) } else { None });
    let jobs: Vec<&Job> = jobs.collect();
    let charged: Vec<MemcgId> = jobs.iter().filter_map(|job| job.charging()?.owes_frame()).collect();
    world.core.validate_while_charging(&charged)?;
    check_model(world)?;
    check_under_way(world, &jobs)?;
    check_budget(world, charged.len() as u64)
}

fn check_model(world: &World) -> Result<(), String> {
    let Some(model) = &world.host.model else { return Ok(()) };
    let model = model.borrow();
    if let Some(wrong) = &model.wrong {
        return Err(wrong.clone());
    }
    let of_kinds = [Counter::File, Counter::Anon];
    let cached =
        world.core.memcgs().iter().flat_map(|memcg| of_kinds.map(|counter| memcg.stat().get(counter))).sum();
    agree("cached pages", model.cached.len() as u64, cached)?;
    model.content.check(&world.core)
}

fn check_under_way(world: &World, jobs: &[&Job]) -> Result<(), String> {
    let folios = world.core.folios();
    let mut read = vec![false; folios.len() as usize];
    for reading in jobs.iter().filter_map(|job| job.reading()) {
        let (folio, index) = (reading.folio, reading.index);
        if std::mem::replace(&mut read[folio.0 as usize], true) {
            return Err(format!("two jobs read {folio:?}"));
        }
        if !matches!(world.core.lookup(&reading.mapping, index), Lookup::Pending(there) if there == folio) {
            return Err(format!("page {index} is read into {folio:?}, but it is not pending there"));
        }
    }
    let ahead = world.reads.values().flat_map(|read| {
        // Positions as 64 bits: the last page has no successor.
        let pages = (u64::from(read.run.first)..).zip(&read.run.folios);
        pages.map(|(index, &folio)| (&read.mapping, index as u32, folio))
    });
    let held = jobs.iter().filter_map(|job| job.window());
    let held = held.flat_map(|window| window.held().map(|(index, folio)| (&window.mapping, index, folio)));
    for (mapping, index, folio) in ahead.chain(held) {
        if std::mem::replace(&mut read[folio.0 as usize], true) {
            return Err(format!("{folio:?} is read ahead twice"));
        }
        if !matches!(world.core.lookup(mapping, index), Lookup::Pending(there) if there == folio) {
            return Err(format!("page {index} is read ahead into {folio:?}, but it is not pending there"));
        }
    }
    let mut written = vec![false; folios.len() as usize];
    for folio in world.writes.values().flat_map(|write| &write.run.folios) {
        if std::mem::replace(&mut written[folio.0 as usize], true) {
            return Err(format!("two writes write {folio:?}"));
        }
    }
    let mut cached = vec![false; folios.len() as usize];
    if let Some(model) = &world.host.model {
        model.borrow().cached.values().for_each(|folio| cached[folio.0 as usize] = true);
    }
    for folio in (0..folios.len()).map(FolioId) {
        let flags = folios.flags(folio).load();
        let (read, written) = (read[folio.0 as usize], written[folio.0 as usize]);
        if flags.references() == 0 {
            continue;
        }
        // What could not be read stays without content until the last batch that it is in is
        // drained.
        let without_content = flags.writing() && cached[folio.0 as usize];
        if flags.locked() != read || without_content && !read || flags.writeback() != written {
            return Err(format!("{folio:?} is {flags:?}, being read: {read}, being written: {written}"));
        }
    }
    let counted: u64 = world.core.memcgs().iter().map(|memcg| memcg.stat().get(Counter::FileWriteback)).sum();
    agree("pages under write-back", written.iter().filter(|&&written| written).count() as u64, counted)
}

/// `charged`: pages that were charged and have no frame yet.
fn check_budget(world: &World, charged: u64) -> Result<(), String> {
    // A memcg is charged for those below it, too; only the root is not.
    let top = world.core.memcgs().iter().filter(|memcg| memcg.parent() == MemcgId::ROOT);
    let used: u64 = top.map(|memcg| world.core.memcgs().used_pages(memcg.id())).sum();
    let frames = u64::from(world.core.folios().len());
    let free = u64::from(world.core.free_pages());
    let retired = u64::from(world.core.retired_pages());
    agree("frames", used + free + retired, frames + charged)?;
    agree("retired frames", u64::from(world.host.retired_frames()), retired)?;
    for tenant in &world.tenants {
        let counts = &tenant.counts;
        // A touch under way is counted as an access, and not yet as what becomes of it.
        if counts.hits + counts.misses > counts.accesses {
            return Err(format!("hits and misses exceed accesses: {counts:?}"));
        }
    }
    Ok(())
}

/// A charge failed. Whether that was too early, where nobody is to be out of memory before
/// everything was tried: pages are left that could be taken, or will be as soon as they were read
/// or written by a device that is well.
pub(crate) fn judge_out_of_memory(world: &World, report: &OutOfMemory) -> Option<String> {
    if !world.waits_before_oom {
        return None;
    }
    let core = &world.core;
    let target = core.memcgs().find(&report.tenant).ok()?;
    // Who waits gives up after less than two seconds of refusals; and then it takes a moment to
    // write all again.
    let writable = world.has_flusher && !world.device.was_full(world.now(), Duration::from_secs(5));
    let mut left = String::new();
    for memcg in core.memcgs().subtree(target) {
        let usage = core.memcgs().used_pages(memcg.id());
        if usage <= core.memcgs().effective_protection(memcg.id(), target).min_pages && memcg.id() != target {
            continue;
        }
        let [file, dirty, writeback, reading] =
            [Counter::File, Counter::FileDirty, Counter::FileWriteback, Counter::FileReading]
                .map(|counter| memcg.stat().get(counter));
        let clean = file.saturating_sub(dirty + writeback + reading);
        if clean + reading > 0 || writable && dirty + writeback > 0 {
            let path = core.memcgs().path(memcg.id());
            left += &format!(
                "'{path}' has {clean} clean, {dirty} dirty, {writeback} being written, {reading} being read; "
            );
        }
    }
    (!left.is_empty()).then(|| format!("out of memory too early: {left}{report}"))
}

/// Checks a machine on which nothing goes on any more: no page is held by anybody but its mapping.
///
/// # Errors
/// What does not hold, in words.
pub(crate) fn check_idle(world: &World) -> Result<(), String> {
    world.core.drain_all(&world.host);
    for folio in (0..world.core.folios().len()).map(FolioId) {
        let flags = world.core.folios().flags(folio).load();
        if flags.references() > 1 || flags.locked() || flags.writeback() || flags.waiters() {
            return Err(format!("nothing goes on, but {folio:?} is {flags:?}"));
        }
    }
    let hits_and_misses = |counts: &crate::report::Counts| counts.hits + counts.misses;
    for tenant in &world.tenants {
        agree("accesses", hits_and_misses(&tenant.counts), tenant.counts.accesses)?;
    }
    Ok(())
}
