//! A page is paid for: a frame, a charge to its memcg, and room for its place in the index.
//!
//! [`Charging`] is asked step by step until it has all three. Over `memory.max` it runs a reclaim effort on the
//! memcg, below the node's min watermark one on everybody. Where 16 efforts do not help it fails with a report, or a tenant
//! is killed for it ([`crate::OomPolicy`]); with `wait_before_oom`, which no kernel has, it first waits for what is being
//! written or read.
//!
//! Source: spec 60 §8 (max loop), spec 70 §6, §9.
//!
//! # Locking
//!
//! Nothing is held between steps.

use crate::Core;
use crate::folio::FolioId;
use crate::host::{Host, Throttle};
use crate::mapping::LeafPool;
use crate::memcg::{Charge, Counter, Memcg, MemcgId, Stall};
use crate::node::Allocation;
use crate::options::PAGE_BYTES;
use crate::reclaim::{
    Effort, EffortKind, HighStep, LastResort, LastStep, Orders, OutOfMemory, OverHigh, Progress, Step,
};

/// Fruitless efforts before a charge fails.
const RETRIES: u32 = 16;

/// References of a new folio: of the mapping that it will be part of, and of the batch in which it will wait for its
/// place on a list.
const NEW_REFERENCES: u64 = 2;

/// What a step came to.
#[derive(Debug)]
pub enum ChargeStep {
    /// Call again; anybody may run before.
    More,
    /// Wait, then call again.
    Wait(Throttle),
    /// Paid for.
    Charged(NewFolio),
    /// Nothing could be freed. The request fails.
    OutOfMemory(Box<OutOfMemory>),
}

/// A folio that is paid for and in no mapping yet: locked, without content. It must be given to
/// [`Core::insert`] or back with [`Core::discard`].
#[derive(Debug)]
#[must_use = "a charged folio that is dropped is lost for good"]
pub struct NewFolio {
    pub(crate) folio: FolioId,
    pub(crate) memcg: MemcgId,
}

impl NewFolio {
    /// Its number, which is that of its frame.
    pub fn folio(&self) -> FolioId {
        self.folio
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Metadata,
    Limit,
    High,
    Frame,
}

/// The payment for one page.
#[derive(Debug)]
pub struct Charging {
    memcg: MemcgId,
    cpu: usize,
    stage: Stage,
    /// Whose limit was met: its own or an ancestor's.
    limited: MemcgId,
    over_high: Option<Box<OverHigh>>,
    drained: bool,
    effort: Option<Box<Effort>>,
    /// It reclaims, or did.
    reclaims: bool,
    /// Its task is held up.
    stall: Option<Stall>,
    retries: u32,
    last_resort: LastResort,
    /// Somebody needs the page.
    needed: bool,
    /// Reclaim was run because the node is below its min watermark; a frame may be taken now.
    reclaimed_for_frame: bool,
}

impl Charging {
    /// Begins to charge one page to `memcg`, on behalf of a task on `cpu`.
    pub fn new(memcg: MemcgId, cpu: usize) -> Charging {
        Charging {
            memcg,
            cpu,
            stage: Stage::Metadata,
            limited: memcg,
            over_high: None,
            drained: false,
            effort: None,
            reclaims: false,
            stall: None,
            retries: 0,
            last_resort: LastResort::default(),
            needed: true,
            reclaimed_for_frame: false,
        }
    }

    /// Nobody needs the page, as with readahead: one fruitless effort is enough to do without it. Nothing is waited for, nobody is
    /// killed for it, and it is no `oom` event. So are the kernel's charges for readahead (`__GFP_NORETRY`).
    #[must_use]
    pub fn optional(self) -> Charging {
        Charging { needed: false, ..self }
    }

    /// The memcg that was charged already for a page that has no frame yet: between steps, while a frame is being
    /// reclaimed.
    pub fn owes_frame(&self) -> Option<MemcgId> {
        matches!(self.stage, Stage::Frame | Stage::High).then_some(self.memcg)
    }

    /// Goes on until something has to be waited for, a batch was reclaimed, or the page is paid for.
    pub fn step(&mut self, core: &Core, host: &impl Host) -> ChargeStep {
        if let Some(effort) = &mut self.effort {
            match effort.step(core, host) {
                Step::More => return ChargeStep::More,
                Step::Wait(throttle) => return ChargeStep::Wait(throttle),
                Step::Done(progress) => {
                    self.effort = None;
                    return self.after_effort(core, host, progress);
                }
            }
        }
        loop {
            match self.stage {
                Stage::Metadata => match core.pay_for_metadata(host, self.cpu, self.reclaimed_for_frame) {
                    Ok(()) => self.stage = Stage::Limit,
                    Err(MetadataShort) => return self.reclaim(core, host, EffortKind::Direct),
                },
                Stage::Limit => {
                    // Its tasks may outlive a memcg.
                    self.memcg = core.payer(self.memcg).id();
                    if let Some(report) = core.oom_killed(self.memcg) {
                        return self.refuse(core, host, report);
                    }
                    match core.charge_one(self.memcg, self.cpu) {
                        Charge::Refused(limited) => {
                            self.limited = limited;
                            core.memcg(limited).stat.add(Counter::EventMax, 1);
                            return self.reclaim(core, host, EffortKind::Limit);
                        }
                        Charge::Charged(pages) => {
                            let over = OverHigh::after(core, self.memcg, pages, self.cpu);
                            self.over_high = over.map(Box::new);
                            if self.over_high.is_some() {
                                self.begin_stall(core, host);
                            }
                        }
                        Charge::FromStock => {}
                    }
                    self.stage = Stage::High;
                }
                Stage::Frame => {
                    let folio = match core.node.allocate(self.cpu, self.reclaimed_for_frame) {
                        Allocation::Frame(folio) => folio,
                        Allocation::Low(folio) => {
                            host.wake_background();
                            folio
                        }
                        Allocation::BelowMin => {
                            host.wake_background();
                            return self.reclaim(core, host, EffortKind::Direct);
                        }
                    };
                    self.end_stall(core, host);
                    return ChargeStep::Charged(core.new_folio(core.memcg(self.memcg), folio));
                }
                // Before it has a frame: who is slowed down holds none.
                Stage::High => {
                    match self.over_high.as_mut().map(|over| over.step(core, host)) {
                        Some(HighStep::More) => return ChargeStep::More,
                        Some(HighStep::Wait(throttle)) => return ChargeStep::Wait(throttle),
                        Some(HighStep::Done) | None => {}
                    }
                    self.stage = Stage::Frame;
                }
            }
        }
    }

    /// Gives up, and gives back what was paid so far. Not after [`ChargeStep::Charged`] or `OutOfMemory`.
    pub fn cancel(mut self, core: &Core, host: &impl Host) {
        if let Some(effort) = self.effort.take() {
            effort.abandon(core, host);
        }
        if let Some(over_high) = self.over_high.take() {
            over_high.abandon(core, host);
        }
        self.end_stall(core, host);
        self.give_back(core);
    }

    fn give_back(&self, core: &Core) {
        if matches!(self.stage, Stage::Frame | Stage::High) {
            core.uncharge_pages(self.memcg, 1);
        }
        if self.stage != Stage::Metadata {
            core.leaves.unreserve(Some(self.cpu));
        }
    }

    fn begin_stall(&mut self, core: &Core, host: &impl Host) {
        if self.stall.is_none() {
            self.stall = Some(core.begin_stall(host, self.memcg));
        }
    }

    fn end_stall(&mut self, core: &Core, host: &impl Host) {
        if let Some(stall) = self.stall.take() {
            core.end_stall(host, stall);
        }
    }

    fn reclaim(&mut self, core: &Core, host: &impl Host, kind: EffortKind) -> ChargeStep {
        self.begin_stall(core, host);
        let target = if kind == EffortKind::Limit { self.limited } else { MemcgId::ROOT };
        if !self.reclaims {
            self.reclaims = true;
            self.last_resort = LastResort::new(core);
            core.memcg(self.memcg).stat.add(Counter::Allocstall, 1);
        }
        if let Some(throttle) = self.last_resort.rest(core, host, target) {
            return ChargeStep::Wait(throttle);
        }
        let swappiness = core.options.swappiness;
        self.effort = Some(Box::new(Effort::new(core, Orders::new(target, kind, 1, swappiness, self.cpu))));
        ChargeStep::More
    }

    fn target(&self) -> MemcgId {
        if self.stage == Stage::Limit { self.limited } else { MemcgId::ROOT }
    }

    fn after_effort(&mut self, core: &Core, host: &impl Host, progress: Progress) -> ChargeStep {
        self.reclaimed_for_frame = self.stage != Stage::Limit;
        let room = match self.stage {
            Stage::Limit => core.memcg(self.limited).memory.margin_pages() > 0,
            Stage::Frame => core.free_pages() > 0,
            Stage::High => unreachable!("its efforts are its own"),
            // Free frames are not enough: they must be of those that can be given back to the system.
            Stage::Metadata => false,
        };
        if room || progress.reclaimed > 0 {
            return ChargeStep::More;
        }
        let stocked = core.options.charge_batch_pages > 1 && self.stage == Stage::Limit;
        if stocked && !std::mem::replace(&mut self.drained, true) {
            core.drain_stocks(self.limited);
            return ChargeStep::More;
        }
        // Folios that wait in the batches of other CPUs are out of reach of reclaim.
        core.drain_all(host);
        self.retries += 1;
        if self.needed && self.retries < RETRIES {
            return ChargeStep::More;
        }
        self.fail(core, host)
    }

    fn fail(&mut self, core: &Core, host: &impl Host) -> ChargeStep {
        if let Some(report) = core.oom_killed(self.memcg) {
            return self.refuse(core, host, report);
        }
        if !self.needed {
            let report = OutOfMemory::of(core, self.target(), host.now());
            return self.refuse(core, host, Box::new(report));
        }
        match self.last_resort.step(core, host, self.target()) {
            LastStep::Fail(report) => self.refuse(core, host, report),
            LastStep::Retry => {
                self.retries = 0;
                self.drained = false;
                ChargeStep::More
            }
            LastStep::Wait(throttle) => ChargeStep::Wait(throttle),
        }
    }

    fn refuse(&mut self, core: &Core, host: &impl Host, report: Box<OutOfMemory>) -> ChargeStep {
        self.end_stall(core, host);
        self.give_back(core);
        ChargeStep::OutOfMemory(report)
    }
}

/// The pool of leaves is exhausted and no frame is left to pay for more.
struct MetadataShort;

impl Core {
    /// Reserves a leaf. Where metadata is part of the budget, a frame is retired for every page of memory
    /// that leaves and directories take.
    fn pay_for_metadata(&self, host: &impl Host, cpu: usize, urgent: bool) -> Result<(), MetadataShort> {
        loop {
            self.pay_for(host, urgent, self.leaves.bytes())?;
            if self.leaves.reserve(cpu) {
                return Ok(());
            }
            let growing = self.leaves.growing();
            if self.leaves.has_unreserved() {
                continue;
            }
            let bytes = self.leaves.bytes() + LeafPool::segment_bytes();
            if self.leaves.can_grow() && self.pay_for(host, urgent, bytes).is_ok() {
                self.leaves.grow();
                continue;
            }
            drop(growing);
            // Memories fill what leaves there can be: they give way to pages, once reclaim had its turn.
            let may_have_more = self.leaves.can_grow() && !urgent;
            if may_have_more || !self.give_up_shadows() {
                return Err(MetadataShort);
            }
        }
    }

    /// Retires frames until they make up for so many bytes of index.
    fn pay_for(&self, host: &impl Host, urgent: bool, bytes: u64) -> Result<(), MetadataShort> {
        let owed = bytes.div_ceil(PAGE_BYTES);
        while self.options.charge_metadata && u64::from(self.node.retired_pages()) < owed {
            let frame = self.node.retire(urgent).ok_or(MetadataShort)?;
            host.frame_retired(frame);
        }
        Ok(())
    }

    fn new_folio(&self, memcg: &Memcg, folio: FolioId) -> NewFolio {
        self.folios.set_memcg(folio, memcg.id().0);
        self.folios.flags(folio).allocate(false, NEW_REFERENCES);
        NewFolio { folio, memcg: memcg.id() }
    }

    /// Gives a paid folio back that turned out not to be needed.
    pub fn discard(&self, host: &impl Host, new: NewFolio) {
        self.leaves.unreserve(None);
        let (before, unused) = self.folios.flags(new.folio).discard(NEW_REFERENCES);
        if unused {
            self.release_frames(self.memcg(new.memcg), None, &[new.folio]);
        }
        // Who found the frame's former page may have begun to wait for the new one's lock.
        if before.waiters() {
            host.wake_waiters(new.folio);
        }
    }
}
