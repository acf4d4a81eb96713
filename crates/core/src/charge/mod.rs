//! Charging: a page needs a frame, a charge to its memcg and a reserved leaf of the index, for
//! which the memcg pays, too.
//!
//! [`Charging`] is stepped until it has all of them. Over `memory.max` it runs a reclaim effort on
//! the memcg; below the node's min watermark it runs one on all memcgs. After 16 fruitless retries
//! it fails with a report, or a tenant is killed ([`crate::OomPolicy`]). With `wait_before_oom`,
//! which no kernel has, it first waits for pages that are being written or read.
//!
//! Source: [book: memcgs#limits] (max loop), [book: reclaim-loop#watermarks],
//! [book: reclaim-loop#oom].
//!
//! # Locking
//!
//! Holds no lock between steps.

mod metadata;

use crate::Core;
use crate::folio::FolioId;
use crate::host::{Host, Throttle};
use crate::mapping::Mapping;
use crate::memcg::{Charge, Counter, HostCharge, IndexPaid, MemcgId, Stall, charging};
use crate::node::Allocation;
use crate::options::PAGE_BYTES;
use crate::reclaim::{
    Effort, EffortKind, HighStep, LastResort, LastStep, Orders, OutOfMemory, OverHigh, Progress, Step,
};
use crate::workingset;
use metadata::MetadataShort;
use std::sync::Arc;

/// Retries after fruitless efforts before a charge fails. The first effort is none, nor is the one
/// after the stocks were drained.
const RETRIES: u32 = 16;

/// References of a new folio: one for its mapping, one for the per-CPU batch that it will wait in.
const NEW_REFERENCES: u64 = 2;

/// Result of a step of [`Charging`]; `N` is the new folio, or what [`Self::map`] made of it.
#[derive(Debug)]
pub enum ChargeStep<N> {
    /// Call again; other threads may run before.
    More,
    /// Wait, then call again.
    Wait(Throttle),
    /// The page is paid for.
    Charged(N),
    /// Nothing could be freed. The request fails.
    OutOfMemory(Box<OutOfMemory>),
}

impl<N> ChargeStep<N> {
    /// The same step, with the folio of `Charged` passed through `take`.
    ///
    /// For a caller that must stop borrowing the core and host before it handles the other steps.
    pub fn map<M>(self, take: impl FnOnce(N) -> M) -> ChargeStep<M> {
        match self {
            ChargeStep::More => ChargeStep::More,
            ChargeStep::Wait(throttle) => ChargeStep::Wait(throttle),
            ChargeStep::Charged(new) => ChargeStep::Charged(take(new)),
            ChargeStep::OutOfMemory(report) => ChargeStep::OutOfMemory(report),
        }
    }
}

/// A paid folio that is in no mapping yet: locked, without content. [`Core::insert`] takes it.
/// Dropping it gives back its frame, its charge and its room in the index.
#[must_use = "a charged folio that is dropped at once was reclaimed for in vain"]
pub struct NewFolio<'c, H: Host> {
    core: &'c Core,
    host: &'c H,
    folio: FolioId,
    memcg: MemcgId,
    index: IndexPaid,
    /// Whether the charge was for the page: then its index is never charged beyond a limit.
    for_page: bool,
}

impl<H: Host> NewFolio<'_, H> {
    /// The folio's number, which is also its frame's.
    pub fn folio(&self) -> FolioId {
        self.folio
    }

    /// Makes sure that `bytes` of index are paid for, and returns the payer. `None`: another thread
    /// has freed objects that the charge counted on, and a limit leaves no room for them.
    pub(crate) fn pay_for_index(&mut self, bytes: u64) -> Option<MemcgId> {
        let is_paid = self.core.try_pay(&mut self.index, bytes);
        if !is_paid && !self.for_page {
            self.core.memcgs.charge_index_anyway(self.index.memcg, bytes - self.index.bytes);
            self.index.bytes = bytes;
        }
        (is_paid || !self.for_page).then_some(self.index.memcg)
    }

    /// Hands the references and the charges over to a mapping. Returns the memcg that paid for the
    /// page, and what is paid for the index.
    pub(crate) fn keep(self) -> (MemcgId, IndexPaid) {
        let kept = std::mem::ManuallyDrop::new(self);
        (kept.memcg, kept.index)
    }

    /// Keeps the charge of [`Charging::for_host`], and gives back the page.
    pub fn into_host_charge(mut self) -> HostCharge {
        let none = IndexPaid { bytes: 0, ..self.index };
        self.core.host_charge(std::mem::replace(&mut self.index, none))
    }
}

impl<H: Host> Drop for NewFolio<'_, H> {
    fn drop(&mut self) {
        let NewFolio { core, host, folio, memcg, index, .. } = *self;
        core.leaves.unreserve(None);
        core.uncharge_index(index.memcg, index.bytes);
        let (before, unused) = core.folios.flags(folio).discard(NEW_REFERENCES);
        if unused {
            core.release_frames(core.memcg(memcg), None, &[folio]);
        }
        // A thread that found the frame's former page may be waiting for the new page's lock.
        if before.waiters() {
            host.wake_waiters(folio);
        }
    }
}

impl<H: Host> std::fmt::Debug for NewFolio<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewFolio").field("folio", &self.folio).field("memcg", &self.memcg).finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The memcg pays for the index.
    Index,
    /// Frames pay for the index.
    Metadata,
    /// The memcg pays for the page.
    Limit,
    /// It pays its debt above `memory.high`.
    High,
    /// The page gets its frame.
    Frame,
}

/// The charge for one page. Step it until the page is paid for or refused, or cancel it: what was
/// paid is not given back when it is dropped.
///
/// Most charges end in their first step, so those that do not keep the rest of their state apart.
#[derive(Debug)]
#[must_use = "a charge that is neither stepped to its end nor cancelled keeps what was paid"]
pub struct Charging {
    memcg: MemcgId,
    cpu: usize,
    /// The page, if its directory is missing.
    place: Option<(Arc<Mapping>, u32)>,
    /// Bytes of the index that the page needs, or of a host's metadata.
    index_bytes: u64,
    /// The part of these that is paid.
    index: IndexPaid,
    for_page: bool,
    stage: Stage,
    /// Whether the page was requested; false for readahead.
    needed: bool,
    /// Its delay, from the first thing on that holds it up.
    delay: Option<Box<Delay>>,
}

/// The state of a charge that was held up.
#[derive(Debug)]
struct Delay {
    /// The memcg whose limit was hit: that of the charge, or an ancestor.
    limited: MemcgId,
    over_high: Option<OverHigh>,
    drained: bool,
    effort: Option<Effort>,
    /// Whether it has started to reclaim.
    reclaims: bool,
    /// The stall of the task, while it is held up.
    stall: Option<Stall>,
    retries: u32,
    last_resort: LastResort,
    /// Reclaim ran because the node is below its min watermark; a frame may be taken now.
    reclaimed_for_frame: bool,
    /// The task waits for background reclaim; then it reclaims itself.
    is_throttled: bool,
    /// Whether its memcg counts the page as one that waits for a frame.
    waits: bool,
    /// Pages of the index that it counts so.
    index_waits: u64,
}

impl Charging {
    /// Begins to charge one page to `memcg`, for a task on `cpu`.
    #[inline]
    pub fn new(memcg: MemcgId, cpu: usize) -> Charging {
        Charging {
            memcg,
            cpu,
            place: None,
            index_bytes: 0,
            index: IndexPaid { memcg, bytes: 0 },
            for_page: false,
            stage: Stage::Index,
            needed: true,
            delay: None,
        }
    }

    /// Names the page, so that the charge also pays for what it adds to the index. Otherwise the
    /// objects are created with the page and charged regardless of the limit, and the next charge
    /// finds frames for them.
    #[inline]
    pub fn for_page(self, core: &Core, mapping: &Mapping, index: u32) -> Charging {
        if !core.options.charge_metadata {
            return self;
        }
        let place = if mapping.has_directory(index) { None } else { core.mappings.find(mapping) };
        let place = place.map(|mapping| (mapping, index));
        let index_bytes = mapping.missing_bytes(&core.leaves, index);
        Charging { place, index_bytes, for_page: true, ..self }
    }

    /// Charges `bytes` of metadata that the host keeps, and a page that is given back by
    /// [`NewFolio::into_host_charge`]. More bytes than all frames have are refused at once.
    pub fn for_host(self, core: &Core, bytes: u64) -> Charging {
        Charging { index_bytes: if core.options.charge_metadata { bytes } else { 0 }, ..self }
    }

    /// Makes the charge optional, as for readahead: it fails after two fruitless efforts, without
    /// waiting, OOM kill or `oom` event. The kernel charges readahead likewise (`__GFP_NORETRY`).
    pub fn optional(self) -> Charging {
        Charging { needed: false, ..self }
    }

    /// The memcg already charged for a page that has no frame yet. `Some` between steps while a
    /// frame is being reclaimed.
    pub fn owes_frame(&self) -> Option<MemcgId> {
        matches!(self.stage, Stage::Frame | Stage::High).then_some(self.memcg)
    }

    /// Runs until the charge must wait, a batch was reclaimed, or the page is paid for.
    #[inline]
    pub fn step<'c, H: Host>(&mut self, core: &'c Core, host: &'c H) -> ChargeStep<NewFolio<'c, H>> {
        if let Some(step) = self.go_on(core, host) {
            return step;
        }
        // Stages in their order, of which only the second may go back: nearly every charge passes
        // all of them here, and a jump to each is hard to predict.
        while matches!(self.stage, Stage::Index | Stage::Metadata) {
            if self.stage == Stage::Index
                && let Some(step) = self.charge_index(core, host)
            {
                return step;
            }
            if let Some(step) = self.reserve_room(core, host) {
                return step;
            }
        }
        if self.stage == Stage::Limit
            && let Some(step) = self.charge_page(core, host)
        {
            return step;
        }
        if self.stage == Stage::High
            && let Some(step) = self.pay_debt(core, host)
        {
            return step;
        }
        self.take_frame(core, host)
    }

    /// Goes on with the effort that was begun, if one was.
    #[inline]
    fn go_on<N>(&mut self, core: &Core, host: &impl Host) -> Option<ChargeStep<N>> {
        let delay = self.delay.as_mut()?;
        if std::mem::take(&mut delay.is_throttled) {
            return Some(self.begin_effort(core, MemcgId::ROOT, EffortKind::Direct));
        }
        match delay.effort.as_mut()?.step(core, host) {
            Step::More => Some(ChargeStep::More),
            Step::Wait(throttle) => Some(ChargeStep::Wait(throttle)),
            Step::Done(progress) => {
                delay.effort = None;
                Some(self.after_effort(core, host, progress))
            }
        }
    }

    /// Its delay, which begins now if it has not yet.
    fn delay(&mut self) -> &mut Delay {
        let limited = self.memcg;
        self.delay.get_or_insert_with(|| Box::new(Delay::new(limited)))
    }

    /// Charges the bytes of the index. Like the other stages, it names the next one, and returns a
    /// step if that has to wait.
    #[inline]
    fn charge_index<N>(&mut self, core: &Core, host: &impl Host) -> Option<ChargeStep<N>> {
        core.settle_index();
        if self.index_bytes > 0
            && let Some(step) = self.charge_index_bytes(core, host)
        {
            return Some(step);
        }
        self.stage = Stage::Metadata;
        None
    }

    fn charge_index_bytes<N>(&mut self, core: &Core, host: &impl Host) -> Option<ChargeStep<N>> {
        if core.exceeds_all_frames(self.index_bytes) {
            // Reclaim would take all pages in vain.
            let report = OutOfMemory::of(core, MemcgId::ROOT, self.wanted_pages(), host.now());
            return Some(self.refuse(core, host, Box::new(report)));
        }
        let payer = core.memcgs.payer(self.memcg).id();
        if let Err(limited) = core.charge_index(payer, self.cpu, self.index_bytes) {
            return Some(self.refused(core, host, limited));
        }
        self.index = IndexPaid { memcg: payer, bytes: self.index_bytes };
        None
    }

    /// Whether reclaim ran because the node is below its min watermark.
    #[inline]
    fn reclaimed_for_frame(&self) -> bool {
        self.delay.as_ref().is_some_and(|delay| delay.reclaimed_for_frame)
    }

    /// Reserves a leaf of the index, and retires the frames that pay for the index.
    #[inline]
    fn reserve_room<N>(&mut self, core: &Core, host: &impl Host) -> Option<ChargeStep<N>> {
        let urgent = self.reclaimed_for_frame();
        let place = self.place.as_ref().map(|(mapping, index)| (&**mapping, *index, &mut self.index));
        match core.pay_for_metadata(host, self.cpu, urgent, place) {
            Ok(()) => {
                if self.delay.is_some() {
                    self.return_surplus(core);
                }
                self.stage = Stage::Limit;
                None
            }
            Err(MetadataShort::Frames) => {
                self.wait_for_index(core, self.index.bytes / PAGE_BYTES);
                Some(self.reclaim(core, host, EffortKind::Direct))
            }
            Err(MetadataShort::Unpaid) => {
                self.pay_anew(core);
                None
            }
        }
    }

    /// Charges the page to the memcg and its ancestors.
    #[inline]
    fn charge_page<N>(&mut self, core: &Core, host: &impl Host) -> Option<ChargeStep<N>> {
        // Tasks may outlive their memcg.
        self.memcg = core.memcgs.payer(self.memcg).id();
        if let Some(report) = core.oom_killed(self.memcg) {
            return Some(self.refuse(core, host, report));
        }
        match charging::charge_one(core, self.memcg, self.cpu) {
            Charge::Refused(limited) => return Some(self.refused(core, host, limited)),
            Charge::Charged(pages) => {
                if let Some(over) = OverHigh::after(core, self.memcg, pages, self.cpu) {
                    self.delay().over_high = Some(over);
                    self.begin_wait(core);
                    self.begin_stall(core, host);
                }
            }
            Charge::FromStock => {}
        }
        self.stage = Stage::High;
        None
    }

    /// Reclaims and pauses for `memory.high`. Before a frame is taken, so that a throttled task
    /// holds none.
    #[inline]
    fn pay_debt<N>(&mut self, core: &Core, host: &impl Host) -> Option<ChargeStep<N>> {
        let over_high = self.delay.as_mut().and_then(|delay| delay.over_high.as_mut());
        match over_high.map(|over| over.step(core, host)) {
            Some(HighStep::More) => return Some(ChargeStep::More),
            Some(HighStep::Wait(throttle)) => return Some(ChargeStep::Wait(throttle)),
            Some(HighStep::Done) | None => {}
        }
        self.stage = Stage::Frame;
        None
    }

    #[inline]
    fn take_frame<'c, H: Host>(&mut self, core: &'c Core, host: &'c H) -> ChargeStep<NewFolio<'c, H>> {
        let folio = match core.node.allocate(self.cpu, self.reclaimed_for_frame(), || host.now()) {
            Allocation::Frame(folio) => folio,
            Allocation::Low(folio) => {
                host.wake_background();
                folio
            }
            Allocation::BelowMin => {
                host.wake_background();
                self.begin_wait(core);
                return self.reclaim(core, host, EffortKind::Direct);
            }
        };
        if let Some(delay) = &mut self.delay {
            if std::mem::take(&mut delay.waits) {
                core.memcgs.end_wait(self.memcg, 1);
            }
            self.end_stall(core, host);
        }
        core.folios.set_memcg(folio, self.memcg.0);
        core.folios.flags(folio).allocate(false, NEW_REFERENCES);
        let Charging { memcg, index, for_page, .. } = *self;
        ChargeStep::Charged(NewFolio { core, host, folio, memcg, index, for_page })
    }

    /// Cancels the charge and gives back what was paid. Not after [`ChargeStep::Charged`] or
    /// [`ChargeStep::OutOfMemory`].
    pub fn cancel(mut self, core: &Core, host: &impl Host) {
        if let Some(delay) = &mut self.delay {
            if let Some(effort) = delay.effort.take() {
                effort.abandon(core, host);
            }
            if let Some(over_high) = delay.over_high.take() {
                over_high.abandon(core, host);
            }
        }
        self.end_stall(core, host);
        self.give_back(core);
    }

    fn give_back(&mut self, core: &Core) {
        if self.delay.as_ref().is_some_and(|delay| delay.waits) {
            core.uncharge_waiting(self.memcg);
        } else if matches!(self.stage, Stage::Frame | Stage::High) {
            core.uncharge_pages(self.memcg, 1);
        }
        if !matches!(self.stage, Stage::Index | Stage::Metadata) {
            core.leaves.unreserve(Some(self.cpu));
        }
        if let Some((mapping, index)) = &self.place {
            mapping.lock(&core.leaves, *index).free_directory_if_empty(*index);
        }
        self.uncharge_index(core);
        core.settle_index();
    }

    fn uncharge_index(&mut self, core: &Core) {
        let IndexPaid { memcg, bytes } = self.index;
        match self.delay.as_mut().map_or(0, |delay| std::mem::take(&mut delay.index_waits)) {
            0 => core.uncharge_index(memcg, bytes),
            pages => core.uncharge_waiting_index(memcg, bytes, pages),
        }
        self.index.bytes = 0;
    }

    /// So many pages of what is charged for the index have no frames, and reclaim comes first.
    fn wait_for_index(&mut self, core: &Core, pages: u64) {
        let before = std::mem::replace(&mut self.delay().index_waits, pages);
        if pages > before {
            core.memcgs.begin_wait(self.index.memcg, pages - before);
        } else if pages < before {
            core.memcgs.end_wait(self.index.memcg, before - pages);
        }
    }

    /// Gives back what another charge has paid while this one waited, for frames or for its limit,
    /// such as a directory. That has no frames of its own, so until then it waits, and is not noted
    /// in the peak.
    fn return_surplus(&mut self, core: &Core) {
        self.wait_for_index(core, self.index.bytes / PAGE_BYTES);
        if self.delay().index_waits > 0
            && let Some((mapping, index)) = &self.place
        {
            let missing_bytes = mapping.missing_bytes(&core.leaves, *index);
            let surplus_bytes = self.index.bytes.saturating_sub(missing_bytes);
            match missing_bytes {
                _ if surplus_bytes == 0 => {}
                0 => self.uncharge_index(core),
                _ => {
                    core.uncharge_index(self.index.memcg, surplus_bytes);
                    self.index.bytes = missing_bytes;
                }
            }
        }
        self.wait_for_index(core, 0);
    }

    /// Goes back to the charge for the index, as it is now.
    fn pay_anew(&mut self, core: &Core) {
        self.uncharge_index(core);
        if let Some((mapping, index)) = &self.place {
            self.index_bytes = mapping.missing_bytes(&core.leaves, *index);
        }
        self.stage = Stage::Index;
    }

    /// The charged page has no frame, and reclaim or a pause comes first.
    fn begin_wait(&mut self, core: &Core) {
        let memcg = self.memcg;
        if !std::mem::replace(&mut self.delay().waits, true) {
            core.memcgs.begin_wait(memcg, 1);
        }
    }

    fn begin_stall(&mut self, core: &Core, host: &impl Host) {
        let memcg = self.memcg;
        self.delay().stall.get_or_insert_with(|| core.begin_stall(host, memcg));
    }

    fn end_stall(&mut self, core: &Core, host: &impl Host) {
        if let Some(stall) = self.delay.as_mut().and_then(|delay| delay.stall.take()) {
            core.end_stall(host, stall);
        }
    }

    /// Reclaims from the memcg whose limit was hit.
    fn refused<N>(&mut self, core: &Core, host: &impl Host, limited: MemcgId) -> ChargeStep<N> {
        self.delay().limited = limited;
        core.memcg(limited).stat.add(Counter::EventMax, 1);
        self.reclaim(core, host, EffortKind::Limit)
    }

    fn reclaim<N>(&mut self, core: &Core, host: &impl Host, kind: EffortKind) -> ChargeStep<N> {
        self.begin_stall(core, host);
        let memcg = self.memcg;
        let delay = self.delay();
        let target = if kind == EffortKind::Limit { delay.limited } else { MemcgId::ROOT };
        if !delay.reclaims {
            delay.reclaims = true;
            delay.last_resort = LastResort::new(core);
            core.memcg(memcg).stat.add(Counter::Allocstall, 1);
        }
        if let Some(throttle) = delay.last_resort.rest(core, host, target) {
            return ChargeStep::Wait(throttle);
        }
        if kind == EffortKind::Direct {
            let stat = &core.memcg(MemcgId::ROOT).stat;
            stat.add(Counter::AllocstallMovable, 1);
            if core.node.throttle() {
                stat.add(Counter::PgscanDirectThrottle, 1);
                host.wake_background();
                delay.is_throttled = true;
                return ChargeStep::Wait(Throttle::Background);
            }
        }
        self.begin_effort(core, target, kind)
    }

    fn begin_effort<N>(&mut self, core: &Core, target: MemcgId, kind: EffortKind) -> ChargeStep<N> {
        let orders = Orders::new(target, kind, 1, core.options.swappiness, self.cpu);
        self.delay().effort = Some(Effort::new(core, orders));
        ChargeStep::More
    }

    /// Whether a limit holds the charge up, and not the node's memory.
    fn is_limited(&self) -> bool {
        matches!(self.stage, Stage::Index | Stage::Limit)
    }

    /// Pages that the present stage needs at once.
    fn wanted_pages(&self) -> u64 {
        if matches!(self.stage, Stage::Index) { self.index_bytes.div_ceil(PAGE_BYTES) } else { 1 }
    }

    fn target(&mut self) -> MemcgId {
        if self.is_limited() { self.delay().limited } else { MemcgId::ROOT }
    }

    fn after_effort<N>(&mut self, core: &Core, host: &impl Host, progress: Progress) -> ChargeStep<N> {
        let (is_limited, wanted_pages, memcg) = (self.is_limited(), self.wanted_pages(), self.memcg);
        let (stage, needed) = (self.stage, self.needed);
        let delay = self.delay();
        delay.reclaimed_for_frame = !is_limited;
        if is_limited {
            workingset::shrink_charged(core, memcg);
            core.settle_index();
        }
        let room = match stage {
            Stage::Index | Stage::Limit => core.memcg(delay.limited).memory.margin_pages() >= wanted_pages,
            Stage::Frame => core.node.urgent_pages() > 0,
            Stage::High => unreachable!("its efforts are its own"),
            // Free frames do not suffice: some frames cannot be given back to the system.
            Stage::Metadata => false,
        };
        if room || progress.reclaimed > 0 {
            return ChargeStep::More;
        }
        // Draining the stocks is no retry, even if they were empty.
        if is_limited && !std::mem::replace(&mut delay.drained, true) {
            charging::drain_stocks(core, delay.limited);
            return ChargeStep::More;
        }
        // Reclaim cannot free folios in the batches of other CPUs. No kernel drains them here.
        core.drain_all(host);
        if needed && delay.retries < RETRIES {
            delay.retries += 1;
            return ChargeStep::More;
        }
        self.fail(core, host)
    }

    fn fail<N>(&mut self, core: &Core, host: &impl Host) -> ChargeStep<N> {
        if let Some(report) = core.oom_killed(self.memcg) {
            return self.refuse(core, host, report);
        }
        let (target, wanted_pages) = (self.target(), self.wanted_pages());
        if !self.needed {
            let report = OutOfMemory::of(core, target, wanted_pages, host.now());
            return self.refuse(core, host, Box::new(report));
        }
        let delay = self.delay();
        match delay.last_resort.step(core, host, target, wanted_pages) {
            LastStep::Fail(report) => self.refuse(core, host, report),
            LastStep::Retry => {
                delay.retries = 0;
                ChargeStep::More
            }
            LastStep::Wait(throttle) => ChargeStep::Wait(throttle),
        }
    }

    fn refuse<N>(&mut self, core: &Core, host: &impl Host, report: Box<OutOfMemory>) -> ChargeStep<N> {
        self.end_stall(core, host);
        self.give_back(core);
        ChargeStep::OutOfMemory(report)
    }
}

impl Delay {
    fn new(limited: MemcgId) -> Delay {
        Delay {
            limited,
            over_high: None,
            drained: false,
            effort: None,
            reclaims: false,
            stall: None,
            retries: 0,
            last_resort: LastResort::default(),
            reclaimed_for_frame: false,
            is_throttled: false,
            waits: false,
            index_waits: 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::{Harness, QuietHost};
    use crate::{Kind, Lru, Mechanisms, Options, Preset, UNLIMITED};

    fn charged<'a>(core: &'a Core, host: &'a QuietHost, memcg: MemcgId) -> NewFolio<'a, QuietHost> {
        match Charging::new(memcg, 0).step(core, host) {
            ChargeStep::Charged(new) => new,
            other => panic!("there is room: {other:?}"),
        }
    }

    fn index_waits(charging: &Charging) -> u64 {
        charging.delay.as_ref().map_or(0, |delay| delay.index_waits)
    }

    /// The directory that a charge has made and paid for is freed before the charge ends: what
    /// replaces it does not exceed the limit, either.
    #[test]
    fn a_charge_that_must_pay_again_stays_within_the_limit() {
        let options = Options { charge_metadata: true, ..Harness::multigen_options(2048) };
        let mut harness = Harness::with_options(options, UNLIMITED);
        // Until a directory needs another page.
        for page in (0..).step_by(64) {
            harness.read_ahead([page]);
            if page > 1000 && harness.memcg().index_bytes() % PAGE_BYTES > PAGE_BYTES - 600 {
                break;
            }
        }
        let (core, host, memcg) = (&harness.core, &harness.host, harness.task.memcg);
        let mapping = core.open_mapping(Kind::File);
        let mut charging = Charging::new(memcg, 0).for_page(core, &mapping, 0);
        assert!(charging.index_bytes > 600);
        // All of it is paid and used up.
        charging.index_bytes = 0;
        let counter = core.memcg(memcg).memory();
        core.memcg(memcg).set_max_pages(counter.usage_pages());
        let new = loop {
            match charging.step(core, host) {
                ChargeStep::More => {}
                ChargeStep::Charged(new) => break new,
                other => panic!("pages can be reclaimed: {other:?}"),
            }
        };
        assert!(counter.peak_pages() <= counter.max_pages(), "{counter:?}");
        drop(new);
        core.validate().unwrap();
    }

    /// Nobody would free it, since the mapping may be closed by now.
    #[test]
    fn a_sealed_mapping_gets_no_directory() {
        let options = Options { charge_metadata: true, ..Harness::multigen_options(2048) };
        let harness = Harness::with_options(options, UNLIMITED);
        let (core, host, task) = (&harness.core, &harness.host, &harness.task);
        let mapping = core.open_mapping(Kind::File);
        let page = 1 << 16;
        let mut charging = Charging::new(task.memcg, 0).for_page(core, &mapping, page);
        core.seal_mapping(&mapping);
        let ChargeStep::Charged(new) = charging.step(core, host) else { panic!("there is room") };
        assert!(!mapping.has_directory(page));
        let inserted = core.insert(host, task, &mapping, page, new, crate::Arrival::default());
        assert_eq!(inserted, Err(crate::InsertError::Closed));
        assert_eq!((harness.memcg().usage_pages(), harness.memcg().index_bytes()), (0, 0));
        core.validate().unwrap();
    }

    /// The list of directories of a huge file takes 64 pages. Until frames are reclaimed for it, it
    /// is no memory, also if the charge ends before.
    #[test]
    fn an_index_that_waits_for_frames_is_not_in_the_peak() {
        const PAGES: u32 = 1024;
        let options = Options { charge_metadata: true, ..Harness::multigen_options(PAGES) };
        let mut harness = Harness::with_options(options, UNLIMITED);
        harness.read_ahead(0..2 * PAGES);
        let (core, host, memcg) = (&harness.core, &harness.host, harness.task.memcg);
        let counter = core.memcg(memcg).memory();
        for is_cancelled in [true, false] {
            let mapping = core.open_mapping(Kind::File);
            let mut charging = Charging::new(memcg, 0).for_page(core, &mapping, u32::MAX);
            let (before, peak_before) = (counter.usage_pages(), counter.peak_pages());
            let mut waited_pages = 0;
            loop {
                let step = charging.step(core, host);
                waited_pages = index_waits(&charging).max(waited_pages);
                // One page by rounding.
                assert!(index_waits(&charging) == 0 || counter.held_pages() <= before + 1, "{counter:?}");
                match step {
                    ChargeStep::More if is_cancelled && waited_pages > 0 => {
                        break charging.cancel(core, host);
                    }
                    ChargeStep::More => {}
                    ChargeStep::Charged(new) => break drop(new),
                    other => panic!("pages can be reclaimed: {other:?}"),
                }
            }
            assert_eq!(waited_pages, 64);
            assert_eq!(counter.held_pages(), counter.usage_pages());
            assert!(!is_cancelled || counter.peak_pages() <= peak_before + 1, "{counter:?}");
            core.validate().unwrap();
        }
    }

    /// Two charges pay for the same list of directories, and the first one makes it.
    #[test]
    fn an_index_that_another_charge_has_paid_for_is_not_in_the_peak() {
        const PAGES: u32 = 1024;
        let options = Options { charge_metadata: true, ..Harness::multigen_options(PAGES) };
        let mut harness = Harness::with_options(options, UNLIMITED);
        harness.read_ahead(0..2 * PAGES);
        let mapping = harness.core.open_mapping(Kind::File);
        let begin = |harness: &Harness, page| {
            Charging::new(harness.task.memcg, 0).for_page(&harness.core, &mapping, page)
        };
        let end = |harness: &Harness, mut charging: Charging, page| {
            let (core, host) = (&harness.core, &harness.host);
            let new = loop {
                match charging.step(core, host) {
                    ChargeStep::More => {}
                    ChargeStep::Charged(new) => break new,
                    other => panic!("pages can be reclaimed: {other:?}"),
                }
            };
            core.insert(host, &harness.task, &mapping, page, new, crate::Arrival::default()).unwrap();
        };
        let first = begin(&harness, u32::MAX);
        let mut second = begin(&harness, u32::MAX - 1);
        while index_waits(&second) == 0 {
            assert!(matches!(second.step(&harness.core, &harness.host), ChargeStep::More));
        }
        end(&harness, first, u32::MAX);
        harness.read_ahead(2 * PAGES..4 * PAGES);
        let peak_before = harness.memcg().memory().peak_pages();
        end(&harness, second, u32::MAX - 1);
        let counter = harness.memcg().memory();
        // The page itself, and one by rounding.
        assert!(counter.peak_pages() <= peak_before + 2, "{counter:?}, {peak_before} before");
        harness.core.validate().unwrap();
    }

    /// As in 96 traced efforts of Linux 6.12 ([book: fidelity#fidelity-kills]): a CPU stalls while
    /// it moves a written page, which is alone in the oldest generation. No effort gets past it, so
    /// the charge fails after 18 efforts that take no page.
    #[test]
    fn a_stalled_cpu_that_moves_a_page_stops_the_efforts_of_kernels() {
        const PAGES: u32 = 400;
        let charge = |is_stalled| {
            let mut options = Options { cpus: 2, ..Options::new(PAGES + 64) };
            options.mechanisms = Mechanisms::preset(Preset::Linux612).with_lru(Lru::MultiGen);
            let mut harness = Harness::with_options(options, u64::from(PAGES));
            harness.read_ahead(0..PAGES);
            (0..PAGES).for_each(|page| harness.write(page));
            // Reclaim marks all pages to be freed once they are written.
            assert_eq!(harness.effort(EffortKind::Limit, 32).reclaimed, 0);
            let folios = harness.start_writeback();
            let (core, host, memcg) = (&harness.core, &harness.host, harness.task.memcg);
            core.end_writeback(host, &harness.mapping, folios[0], true, 1);
            if is_stalled {
                assert!(core.stall_drain(folios[0]) && !core.stall_drain(folios[1]));
            }
            core.validate().unwrap();
            // Then the others leave the generation.
            harness.effort(EffortKind::Limit, 32);
            let scanned = || core.memcg(memcg).stat().get(Counter::PgscanFile);
            let before = scanned();
            let mut charging = Charging::new(memcg, 0);
            let charged = loop {
                match charging.step(core, host) {
                    ChargeStep::More | ChargeStep::Wait(_) => {}
                    ChargeStep::Charged(_) => break true,
                    ChargeStep::OutOfMemory(_) => break false,
                }
            };
            let scanned_pages = scanned() - before;
            core.resume_drain(host);
            core.validate().unwrap();
            let frees_it_then = harness.effort(EffortKind::Limit, 32).reclaimed > 0;
            (charged, scanned_pages < 2 * u64::from(PAGES), frees_it_then)
        };
        assert_eq!(charge(true), (false, true, true));
        assert!(charge(false).0, "a fruitless effort drains the batches of other CPUs");
    }

    /// As traced in Linux 6.12 and 7.2, 2026-11-29: 18 fruitless efforts before the first kill,
    /// each with a `max` event, whether the stocks hold pages or not.
    #[test]
    fn a_charge_fails_after_18_efforts() {
        for charge_batch_pages in [1, 64] {
            let mechanisms = Mechanisms::preset(Preset::Linux72);
            let options = Options { charge_batch_pages, mechanisms, ..Options::new(200) };
            let mut harness = Harness::with_options(options, 100);
            harness.bring_at(0..100, 4);
            (0..100).for_each(|page| harness.core.set_mlocked(harness.folio(page), true));
            let (core, host) = (&harness.core, &harness.host);
            let before = harness.stat(Counter::EventMax);
            let mut charging = Charging::new(harness.task.memcg, 0);
            while !matches!(charging.step(core, host), ChargeStep::OutOfMemory(_)) {}
            assert_eq!(harness.stat(Counter::EventMax) - before, 18, "{charge_batch_pages}");
        }
    }

    /// A dropped folio leaves nothing behind.
    #[test]
    fn a_dropped_folio_is_given_back() {
        let harness = Harness::new(10, 1);
        let (core, host, memcg) = (&harness.core, &harness.host, harness.task.memcg);
        let paid = || (core.free_pages(), core.memcg(memcg).usage_pages());
        let before = paid();
        let new = charged(core, host, memcg);
        assert_eq!(paid(), (before.0 - 1, before.1 + 1));
        let folio = new.folio();
        drop(new);
        assert_eq!(paid(), before);
        assert_eq!(core.folios.flags(folio).load().references(), 0);
        // More often than there are frames, and while a panic unwinds.
        for _ in 0..1000 {
            let fails = std::panic::AssertUnwindSafe(|| {
                let _new = charged(core, host, memcg);
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(std::panic::catch_unwind(fails).is_err());
        }
        assert_eq!(paid(), before);
        core.validate().unwrap();
    }

    /// An occupied slot and a closed mapping give the folio back as well.
    #[test]
    fn a_folio_that_is_not_needed_is_given_back() {
        let harness = Harness::new(10, 1);
        let (core, host, task) = (&harness.core, &harness.host, &harness.task);
        let insert = |page| {
            let new = charged(core, host, task.memcg);
            core.insert(host, task, &harness.mapping, page, new, crate::Arrival::default())
        };
        let folio = insert(0).unwrap();
        core.publish(host, &harness.mapping, folio);
        let paid = (core.free_pages(), core.memcg(task.memcg).usage_pages());
        assert_eq!(insert(0), Err(crate::InsertError::Occupied));
        core.seal_mapping(&harness.mapping);
        assert_eq!(insert(1), Err(crate::InsertError::Closed));
        assert_eq!((core.free_pages(), core.memcg(task.memcg).usage_pages()), paid);
        core.validate().unwrap();
    }
}
