//! The checker: verifies the state of the machine between steps.
//!
//! It compares three independent records:
//!
//! * the core's own recount ([`mglru_core::Core::validate`]): lists, labels, sizes, charges,
//!   windows, limits, swap slots;
//! * a model of cached pages, built only from the core's events: inserted, evicted, dropped;
//! * active transfers: a page without content belongs to exactly one job that reads it or one
//!   readahead, a page under writeback to exactly one write.
//!
//! [`Content`] tracks the pages' content and the reported errors.

use crate::actor::{Actor, Job};
use crate::content::Content;
use crate::world::World;
use mglru_core::reclaim::OutOfMemory;
use mglru_core::{Core, Counter, Event, FolioId, Lookup, Mapping, MappingId, MemcgId, PAGE_BYTES};
use std::collections::BTreeMap;
use std::time::Duration;

/// Cached pages according to the core's events.
#[derive(Debug, Default)]
pub(crate) struct Model {
    cached: BTreeMap<(MappingId, u32), FolioId>,
    pub(crate) content: Content,
    /// The first inconsistent event.
    wrong: Option<String>,
}

impl Model {
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

    pub(crate) fn complain(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// Records that the pages of this range that are no longer cached were dropped; with `cut`,
    /// including dirty content.
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

/// Checks everything. Called between steps.
///
/// # Errors
/// A description of the first violation.
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
    let ahead = world.reads.iter().flat_map(|read| {
        // 64-bit positions: the last page has no successor.
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
    let begun = world.writes.iter().flat_map(|write| write.run.folios[write.ended..].iter().copied());
    for folio in begun.chain(world.collected_swap_outs()) {
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
        if !flags.is_held() {
            continue;
        }
        // An unreadable page stays without content until its last batch is drained.
        let without_content = flags.writing() && cached[folio.0 as usize];
        if flags.locked() != read || without_content && !read || flags.writeback() != written {
            return Err(format!("{folio:?} is {flags:?}, being read: {read}, being written: {written}"));
        }
    }
    let counted: u64 = world.core.memcgs().iter().map(|memcg| memcg.stat().get(Counter::FileWriteback)).sum();
    agree("pages under write-back", written.iter().filter(|&&written| written).count() as u64, counted)
}

/// Checks charges and frames. `charged`: pages that are charged but have no frame yet.
fn check_budget(world: &World, charged: u64) -> Result<(), String> {
    // A memcg's charge includes its descendants, except for the root.
    let top = world.core.memcgs().iter().filter(|memcg| memcg.parent() == MemcgId::ROOT);
    let used: u64 = top.map(|memcg| world.core.memcgs().used_pages(memcg.id())).sum();
    // Charges for the index stand for retired frames.
    let index: u64 = world.core.memcgs().iter().map(|memcg| memcg.index_bytes() / PAGE_BYTES).sum();
    let frames = u64::from(world.core.folios().len());
    let free = u64::from(world.core.free_pages());
    let retired = u64::from(world.core.retired_pages());
    agree("frames", used + free + retired, frames + charged + index)?;
    agree("retired frames", u64::from(world.host.retired_frames()), retired)?;
    for tenant in &world.tenants {
        let counts = &tenant.counts;
        // An active access is counted, but not yet as a hit or miss.
        if counts.hits + counts.misses > counts.accesses {
            return Err(format!("hits and misses exceed accesses: {counts:?}"));
        }
    }
    Ok(())
}

/// Judges a failed charge under the rule that everything else is tried first. Describes the error
/// if pages remain that could be reclaimed, now or after they are read or written by a working
/// device.
pub(crate) fn judge_out_of_memory(world: &World, report: &OutOfMemory) -> Option<String> {
    if !world.waits_before_oom {
        return None;
    }
    let core = &world.core;
    let target = core.memcgs().find(&report.tenant).ok()?;
    // The index and the like may take half of the frames. A request that needs more of them fails,
    // whatever pages there are.
    if report.metadata_pages >= u64::from(core.options().frames / 2) {
        return None;
    }
    // A waiting task gives up after less than two seconds of refusals; rewriting everything then
    // takes a moment.
    let writable = world.has_flusher && !world.device.was_full(world.now(), Duration::from_secs(5));
    let (mut left, mut left_pages) = (String::new(), 0);
    for memcg in core.subtree(target) {
        let usage = core.memcgs().used_pages(memcg.id());
        if usage <= core.memcgs().effective_protection(memcg.id(), target).min_pages && memcg.id() != target {
            continue;
        }
        let [file, dirty, writeback, reading] =
            [Counter::File, Counter::FileDirty, Counter::FileWriteback, Counter::FileReading]
                .map(|counter| memcg.stat().get(counter));
        let clean = file.saturating_sub(dirty + writeback + reading);
        if clean + reading > 0 || writable && dirty + writeback > 0 {
            left_pages += file;
            let path = core.memcgs().path(memcg.id());
            left += &format!(
                "'{path}' has {clean} clean, {dirty} dirty, {writeback} being written, {reading} being read; "
            );
        }
    }
    // Only a request of the index is for several pages.
    let free_pages = report.max_pages.saturating_sub(report.usage_pages);
    let is_large = report.wanted_pages > free_pages + left_pages;
    (!left.is_empty() && !is_large).then(|| format!("out of memory too early: {left}{report}"))
}

/// Checks an idle machine: only mappings hold pages.
///
/// # Errors
/// A description of the first violation.
pub(crate) fn check_idle(world: &World) -> Result<(), String> {
    world.core.drain_all(&world.host);
    for folio in (0..world.core.folios().len()).map(FolioId) {
        let flags = world.core.folios().flags(folio).load();
        if flags.references() > 1 || flags.lent() || flags.locked() || flags.writeback() || flags.waiters() {
            return Err(format!("the machine is idle, but {folio:?} is {flags:?}"));
        }
    }
    let hits_and_misses = |counts: &crate::report::Counts| counts.hits + counts.misses;
    for tenant in &world.tenants {
        agree("accesses", hits_and_misses(&tenant.counts), tenant.counts.accesses)?;
    }
    Ok(())
}
