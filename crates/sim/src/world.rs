//! The state that actors act upon: the core and everything around it, except the actors.

use crate::actor::{Answer, Reading, after};
use crate::clock::Events;
use crate::device::{Completion, Device, Latency};
use crate::files::{FileNumber, Files};
use crate::host::SimHost;
use crate::machine::{BATCH_FOLIOS_MAX, DrainStalls, Machine, Preemption, Tenant, Writes};
use crate::report::{Counters, Counts, Kill, Refusal, RequestReport, Tally};
use crate::sample::{Sample, Sampler, TenantSample};
use crate::swap::{Swap, SwapBatches};
use crate::transfers::Transfers;
use mglru_core::readahead::ReadRun;
use mglru_core::reclaim::Reaping;
use mglru_core::writeback::{WriteOrder, WritebackRun};
use mglru_core::{
    Core, Counter, FolioId, Kind, Lru, Mapping, Memcg, MemcgError, MemcgId, SwapOut, Switch, Task, Time,
};
use mglru_workload::Random;
use mglru_workload::fio::Latencies;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Number of an actor, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ActorId(pub(crate) usize);

/// Number of a write, in the order of start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriteId(u64);

/// Number of a read of several pages, in the order of start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadId(u64);

/// A planned event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// A rest of the actor ends. `nap` is the rest's number; the actor may have been woken before.
    Resume { actor: ActorId, nap: u64 },
    /// A write ends.
    Written(WriteId),
    /// A read of several pages ends.
    Read(ReadId),
}

/// Why an actor does not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It can continue at once; others may run first.
    Ready,
    /// It rests until that time.
    Until(Time),
    /// It waits for another user of this folio.
    Folio(mglru_core::FolioId),
    /// It waits for a completed write, at most until that time.
    Written(Option<Time>),
    /// It waits for background reclaim, at most until that time.
    Throttled(Time),
    /// It waits for a call, at most until that time.
    Called(Option<Time>),
    /// It has ended.
    Done,
}

#[derive(Debug)]
pub(crate) struct Write {
    /// `None`: a write to swap.
    pub(crate) file: Option<FileNumber>,
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) run: WritebackRun,
    ok: bool,
    /// Pages that have ended.
    pub(crate) ended: usize,
}

/// An active read for which no job waits in its own state.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) run: ReadRun,
    ok: bool,
}

#[derive(Debug)]
pub(crate) struct TenantState {
    /// `None`: it is created later.
    pub(crate) memcg: Option<MemcgId>,
    /// It was removed or could not be created; its jobs end.
    pub(crate) gone: bool,
    /// It was killed; its jobs end in the middle of their operations.
    pub(crate) killed: bool,
    pub(crate) counts: Counts,
    /// Its counts at the warm point.
    pub(crate) at_warm: Option<Tally>,
    pub(crate) latencies: Latencies,
}

impl TenantState {
    pub(crate) fn new(memcg: Option<MemcgId>) -> TenantState {
        TenantState {
            memcg,
            gone: false,
            killed: false,
            counts: Counts::default(),
            at_warm: None,
            latencies: Latencies::default(),
        }
    }
}

/// Creates a tenant below its existing parent.
pub(crate) fn add_tenant(core: &Core, wanted: &Tenant, now: Time) -> Result<MemcgId, MemcgError> {
    let (parent, name) = wanted.path.rsplit_once('/').unwrap_or(("", &wanted.path));
    let parent = core.memcgs().find(parent)?;
    let memcg = core.add_child(parent, name, wanted.max_pages, now)?;
    memcg.set_high_pages(wanted.high_pages);
    memcg.set_swap_max_pages(wanted.swap_max_pages);
    memcg.set_swap_high_pages(wanted.swap_high_pages);
    core.memcgs().set_low(memcg.id(), wanted.low_pages);
    core.memcgs().set_min(memcg.id(), wanted.min_pages);
    Ok(memcg.id())
}

/// Everything except the actors.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) host: SimHost,
    pub(crate) events: Events<Due>,
    pub(crate) device: Device,
    pub(crate) swap: Option<Swap>,
    pub(crate) files: Files,
    /// The root first, then the machine's tenants.
    pub(crate) tenants: Vec<TenantState>,
    /// Tasks of all jobs that were not killed, in order.
    pub(crate) tasks: Vec<Task>,
    pub(crate) kills: Vec<Kill>,
    pub(crate) refusals: Vec<Refusal>,
    /// Victims whose memory is being taken.
    pub(crate) victims: VecDeque<Reaping>,
    /// Jobs to move, and their new tenants.
    pub(crate) moves: Vec<(Range<usize>, usize)>,
    pub(crate) writes: Transfers<Write>,
    pub(crate) reads: Transfers<Read>,
    pub(crate) requests: Vec<RequestReport>,
    /// Results of the administrator's orders, and texts of control files.
    pub(crate) answers: Vec<Answer>,
    pub(crate) readings: Vec<Reading>,
    /// Control files and values that jobs write.
    pub(crate) control_writes: Vec<(String, String)>,
    /// Page accesses started by all jobs.
    pub(crate) accesses: u64,
    /// The access at the warm point.
    warm_from: u64,
    /// The access before the next read of statistics, and the accesses between such reads.
    read_from: u64,
    reads_every: u64,
    /// The sampler, and the access before the next sample.
    sampler: Option<Sampler>,
    sample_at: u64,
    pub(crate) times_accesses: bool,
    /// Durations of an access and of reclaiming a batch.
    pub(crate) access_nanos: u64,
    pub(crate) batch_nanos: u64,
    /// Duration of scanning a page, and pages scanned before the last batch.
    scan_nanos: u64,
    scanned: u64,
    /// Duration of beginning to write a page to a swap disk.
    swap_out_nanos: u64,
    /// `None`: each write to swap begins at once.
    swap_batches: Option<SwapBatches>,
    /// Writes to swap of the current pass of reclaim that have not begun.
    collected: Vec<SwapOut>,
    /// When the last pass with such writes was over.
    pass_ended: Time,
    /// Duration of sorting a page, and pages sorted before the last batch.
    sort_nanos: u64,
    sorted: u64,
    /// Duration of walking a page-table entry, and entries walked before.
    walk_nanos: u64,
    walked: u64,
    preemption: Option<Preemption>,
    /// Until when each CPU computes.
    busy_until: Vec<Time>,
    /// Ends of the computations of each CPU, in order; past ones may still be there. Empty unless
    /// reads need a CPU.
    computations: Vec<VecDeque<Time>>,
    pub(crate) reads_need_cpu: bool,
    drain_stalls: Option<DrainStalls>,
    random: Random,
    pub(crate) overwrite: bool,
    /// Whether a write to a part of a page reads it first.
    pub(crate) parts: bool,
    pub(crate) count_repeats: bool,
    pub(crate) transfer_pages: usize,
    /// Maximum readahead window; 0: no readahead.
    pub(crate) readahead_pages: u32,
    /// Most pages that a fault reads from swap; up to 1: its own.
    pub(crate) swap_readahead_pages: u32,
    /// Fault-around window; 0 or 1: each entry by itself.
    pub(crate) fault_around_pages: u32,
    pub(crate) has_flusher: bool,
    /// Whether the core tries everything else before a request fails for lack of memory.
    pub(crate) waits_before_oom: bool,
    device_cpu: usize,
}

impl World {
    pub(crate) fn new(machine: &Machine) -> Result<World, MemcgError> {
        let core = Core::of_one_thread(machine.options(), Time::ZERO);
        let mut tenants = vec![TenantState::new(Some(MemcgId::ROOT))];
        for wanted in &machine.tenants {
            tenants.push(TenantState::new(Some(add_tenant(&core, wanted, Time::ZERO)?)));
        }
        Ok(World {
            core,
            host: SimHost::new(machine),
            events: Events::default(),
            device: Device::new(machine.device, machine.seed).in_trouble(machine.trouble),
            swap: machine.swap.map(|model| Swap::new(model, machine.seed)),
            files: Files::new(machine.numbering),
            tenants,
            tasks: Vec::new(),
            kills: Vec::new(),
            refusals: Vec::new(),
            victims: VecDeque::new(),
            moves: Vec::new(),
            writes: Transfers::default(),
            reads: Transfers::default(),
            requests: Vec::new(),
            answers: Vec::new(),
            readings: Vec::new(),
            control_writes: Vec::new(),
            accesses: 0,
            warm_from: u64::MAX,
            read_from: machine.statistics_reads.map_or(u64::MAX, |every| every.max(1)),
            reads_every: machine.statistics_reads.map_or(0, |every| every.max(1)),
            sampler: None,
            sample_at: u64::MAX,
            times_accesses: false,
            access_nanos: machine.access_time.as_nanos() as u64,
            batch_nanos: machine.batch_time.as_nanos() as u64,
            scan_nanos: machine.scan_time.as_nanos() as u64,
            swap_out_nanos: machine.swap_out_time.as_nanos() as u64,
            swap_batches: machine.swap_batches,
            collected: Vec::new(),
            pass_ended: Time::ZERO,
            scanned: 0,
            sort_nanos: machine.sort_time.as_nanos() as u64,
            sorted: 0,
            walk_nanos: machine.walk_time.as_nanos() as u64,
            walked: 0,
            preemption: machine.preemption,
            busy_until: vec![Time::ZERO; machine.cpus],
            computations: vec![VecDeque::new(); machine.cpus],
            reads_need_cpu: machine.reads_need_cpu,
            drain_stalls: machine.drain_stalls,
            random: Random::stream(machine.seed, 0xC9),
            overwrite: machine.writes != Writes::AfterRead,
            parts: machine.writes == Writes::AsRequested,
            count_repeats: machine.count_repeats,
            transfer_pages: machine.flusher.unwrap_or_default().transfer_pages.max(1) as usize,
            readahead_pages: machine.readahead_pages,
            swap_readahead_pages: machine
                .swap
                .map_or(0, |swap| swap.device.readahead_pages(machine.swap_readahead_pages)),
            fault_around_pages: machine.fault_around_pages,
            has_flusher: machine.flusher.is_some(),
            waits_before_oom: machine.mechanisms.is_on(Switch::WaitBeforeOom),
            device_cpu: machine.device_cpu,
        })
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.host.clock.now()
    }

    /// Until this time, an actor that is alone runnable may continue as if it had rested and been
    /// resumed, because no other actor runs before. For an actor that is not alone it is the start
    /// of time.
    pub(crate) fn horizon(&self, alone: bool) -> Time {
        if alone { self.events.next_time().unwrap_or(Time::from_nanos(u64::MAX)) } else { Time::ZERO }
    }

    /// Advances time without the event queue, where that makes no difference: before the horizon,
    /// with no actor called.
    #[inline]
    pub(crate) fn skips(&self, pause: Pause, horizon: Time) -> bool {
        let resume = match pause {
            Pause::Ready => self.now(),
            Pause::Until(time) => time,
            _ => return false,
        };
        if resume >= horizon || self.host.is_called() {
            return false;
        }
        self.host.clock.advance(resume.max(self.now()));
        true
    }

    /// A job computes, after those that asked for its CPU before.
    pub(crate) fn compute(&mut self, cpu: usize, nanos: u64) -> Pause {
        let now = self.now();
        let busy_until = &mut self.busy_until[cpu];
        *busy_until = after((*busy_until).max(now), nanos);
        let end = *busy_until;
        if self.reads_need_cpu {
            self.forget_computations(cpu);
            self.computations[cpu].push_back(end);
        }
        Pause::Until(end)
    }

    /// When a job whose read has ended goes on: at the end of the computation that is under way on
    /// its CPU, if there is one and reads need a CPU.
    pub(crate) fn end_of_computation(&mut self, cpu: usize) -> Time {
        self.forget_computations(cpu);
        self.computations[cpu].front().copied().unwrap_or(self.now())
    }

    /// Forgets computations that have ended.
    fn forget_computations(&mut self, cpu: usize) {
        let now = self.now();
        let ends = &mut self.computations[cpu];
        while ends.front().is_some_and(|&end| end <= now) {
            ends.pop_front();
        }
    }

    pub(crate) fn set_warm_from(&mut self, access: u64) {
        self.warm_from = access;
    }

    pub(crate) fn warm_from(&self) -> u64 {
        self.warm_from
    }

    /// The access before which [`Self::look`] is due.
    #[inline]
    fn next_look(&self) -> u64 {
        let next = self.read_from.min(self.sample_at);
        if self.accesses <= self.warm_from { self.warm_from.min(next) } else { next }
    }

    /// Whether [`Self::look`] is due now.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        self.accesses == self.warm_from || self.accesses == self.read_from || self.accesses == self.sample_at
    }

    /// Takes at least `wanted` samples from here on, if the run is long enough.
    pub(crate) fn sample(&mut self, wanted: usize) {
        let sampler = Sampler::new(wanted);
        self.sample_at = sampler.next();
        self.sampler = Some(sampler);
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        self.sampler.as_ref().map_or(&[], Sampler::samples)
    }

    /// A sample of the current state.
    pub(crate) fn sample_now(&self) -> Sample {
        let tenant = |(number, state): (usize, &TenantState)| {
            let memcg = self.memcg(number);
            let count = |counter| memcg.map_or(0, |memcg| memcg.stat().get(counter));
            TenantSample {
                accesses: state.counts.accesses,
                hits: state.counts.hits,
                pages: count(Counter::File) + count(Counter::Anon),
                stolen_pages: count(Counter::PgstealFile) + count(Counter::PgstealAnon),
                generations: memcg.map_or(Vec::new(), |memcg| memcg.lruvec().generations(self.now())),
            }
        };
        let tenants = self.tenants.iter().enumerate().map(tenant).collect();
        Sample { access: self.accesses, time: self.now(), tenants }
    }

    /// Number of accesses to cached pages that fit before the horizon and the next [`Self::look`].
    pub(crate) fn accesses_before(&self, horizon: Time) -> u64 {
        if self.now() >= horizon {
            return 0;
        }
        let nanos = horizon.as_nanos() - 1 - self.now().as_nanos();
        let in_time = nanos.checked_div(self.access_nanos).unwrap_or(u64::MAX);
        match self.next_look().checked_sub(self.accesses) {
            Some(before) => in_time.min(before),
            None => in_time,
        }
    }

    /// Advances time by `accesses` uninterrupted accesses.
    pub(crate) fn pass(&mut self, accesses: u64) {
        self.accesses += accesses;
        self.host.clock.advance(Time::from_nanos(self.now().as_nanos() + accesses * self.access_nanos));
    }

    /// The memcg of a tenant, once created.
    pub(crate) fn memcg(&self, tenant: usize) -> Option<&Memcg> {
        self.tenants[tenant].memcg.map(|memcg| self.core.memcg(memcg))
    }

    pub(crate) fn tally(&self, tenant: usize) -> Tally {
        let counters = self.memcg(tenant).map_or(Tally::default().counters, Counters::of);
        Tally { counts: self.tenants[tenant].counts, counters }
    }

    /// Reads the statistics if that is due after the accesses so far.
    pub(crate) fn read_statistics(&mut self) {
        if self.accesses == self.read_from {
            self.read_from += self.reads_every;
            // Not the root's, which nobody reads.
            let memcgs = self.tenants.iter().filter_map(|tenant| tenant.memcg);
            let below = memcgs.filter(|&memcg| memcg != MemcgId::ROOT);
            below.for_each(|memcg| self.core.refresh_statistics_of(memcg));
        }
    }

    /// Reads statistics, takes samples, and records counters at the warm point.
    #[cold]
    pub(crate) fn look(&mut self) {
        self.read_statistics();
        if self.accesses == self.sample_at {
            let sample = self.sample_now();
            let sampler = self.sampler.as_mut().expect("a sample is due only with a sampler");
            sampler.take(sample);
            self.sample_at = sampler.next();
        }
        if self.accesses != self.warm_from {
            return;
        }
        for tenant in 0..self.tenants.len() {
            self.tenants[tenant].at_warm = Some(self.tally(tenant));
        }
    }

    /// Executes an order of the flusher. Returns the positions of the pages whose write starts;
    /// `None` if all are clean or the file was replaced.
    pub(crate) fn write(&mut self, order: WriteOrder) -> Option<Range<u64>> {
        let file = self.files.of_mapping(order.mapping)?;
        self.write_run(file, order.from, order.pages_max as usize)
    }

    /// Starts writing the next dirty pages of a file from `from` on. Returns their positions, if
    /// any.
    pub(crate) fn write_next(&mut self, file: FileNumber, from: u32) -> Option<Range<u64>> {
        self.write_run(file, from, self.transfer_pages)
    }

    fn write_run(&mut self, file: FileNumber, from: u32, most: usize) -> Option<Range<u64>> {
        let mapping = &self.files.get(file).mapping;
        let run = self.core.start_writeback(mapping, from, 1 << 32, most)?;
        let mapping = mapping.clone();
        let pages = run.folios.len() as u64;
        let first = u64::from(run.first);
        let completion = self.device.write(self.now(), pages);
        self.note_write(Write { file: Some(file), mapping, run, ok: completion.ok, ended: 0 }, completion.at);
        Some(first..first + pages)
    }

    /// Starts reading inserted pages: from their file, or from swap, which reads pages in slots
    /// side by side at once.
    pub(crate) fn read(&mut self, mapping: Arc<Mapping>, run: ReadRun) {
        if mapping.kind() == Kind::File {
            let completion = self.device.read(self.now(), run.folios.len() as u64);
            return self.note_read(mapping, run, completion);
        }
        let mut slots = Vec::new();
        for (index, folio) in (run.first..).zip(run.folios) {
            match self.core.swap_slot(folio) {
                Some(slot) => slots.push((slot, index, folio)),
                // Another job dropped the page while this one charged it.
                None => self.core.abandon(&self.host, &mapping, folio),
            }
        }
        for part in slots.chunk_by(|(one, ..), (other, ..)| one.0.abs_diff(other.0) == 1) {
            let folios: Vec<FolioId> = part.iter().map(|&(.., folio)| folio).collect();
            let now = self.now();
            let swap = self.swap.as_mut().expect("pages are in swap");
            let completion = swap.read(now, folios.len() as u64);
            self.note_read(mapping.clone(), ReadRun { first: part[0].1, folios }, completion);
        }
    }

    fn note_read(&mut self, mapping: Arc<Mapping>, run: ReadRun, completion: Completion) {
        let id = ReadId(self.reads.begin(Read { mapping, run, ok: completion.ok }));
        self.events.plan(completion.at, Due::Read(id));
    }

    /// Ends such a read.
    pub(crate) fn read_ended(&mut self, id: ReadId) {
        let Read { mapping, run, ok } = self.reads.end(id.0);
        for &folio in &run.folios {
            if ok {
                self.core.publish(&self.host, &mapping, folio);
            } else {
                self.core.abandon(&self.host, &mapping, folio);
            }
        }
        if !ok {
            self.note_dropped(&mapping, run.first, u64::from(run.first) + run.folios.len() as u64);
        }
    }

    fn note_write(&mut self, write: Write, end: Time) {
        let id = WriteId(self.writes.begun());
        if let (Some(model), Some(_)) = (&self.host.model, write.file) {
            model.borrow_mut().content.write_begins(id, write.mapping.id(), &write.run);
        }
        self.writes.begin(write);
        self.events.plan(end, Due::Written(id));
    }

    /// A pass of reclaim asks for a write to swap.
    pub(crate) fn swap_out(&mut self, write: SwapOut) {
        let Some(SwapBatches { most_pages, .. }) = self.swap_batches else {
            return self.begin_swap_out(write, self.now());
        };
        self.collected.push(write);
        if self.collected.len() as u64 >= most_pages {
            self.begin_collected(self.now());
        }
    }

    /// A pass of reclaim is over: its writes to swap begin.
    pub(crate) fn end_swap_outs(&mut self) {
        self.begin_collected(self.pass_ended.max(self.now()));
    }

    fn begin_collected(&mut self, at: Time) {
        let mut collected = std::mem::take(&mut self.collected);
        collected.drain(..).for_each(|write| self.begin_swap_out(write, at));
        self.collected = collected;
    }

    /// Folios whose writes to swap have not begun.
    pub(crate) fn collected_swap_outs(&self) -> impl Iterator<Item = FolioId> {
        self.collected.iter().map(|write| write.folio)
    }

    /// The duration of sending off the writes of a pass that is over at `at`.
    fn sending_nanos(&mut self, at: Time) -> u64 {
        let Some(SwapBatches { send, send_page, .. }) = self.swap_batches else { return 0 };
        let pages = self.collected.len() as u64 + self.host.swap_outs();
        if pages == 0 || !self.host.ends_swap_outs() {
            return 0;
        }
        self.pass_ended = at;
        send.as_nanos() as u64 + send_page.as_nanos() as u64 * pages
    }

    fn begin_swap_out(&mut self, write: SwapOut, now: Time) {
        let swap = self.swap.as_mut().expect("without swap, no page is written to it");
        let completion = swap.write(now);
        let (id, first) = write.page;
        // Its region cannot be closed while the page is under writeback.
        let mapping = self.core.mapping(id).expect("a page is written of an open mapping");
        let run = WritebackRun { first, folios: vec![write.folio] };
        self.note_write(Write { file: None, mapping, run, ok: completion.ok, ended: 0 }, completion.at);
    }

    /// The duration of reclaiming the last batch.
    #[inline]
    pub(crate) fn take_batch_nanos(&mut self) -> u64 {
        let scanning = if self.scan_nanos == 0 { 0 } else { self.scan_nanos * self.take_scanned() };
        let walking = if self.walk_nanos == 0 { 0 } else { self.walk_nanos * self.take_walked() };
        let sorting = if self.sort_nanos == 0 { 0 } else { self.sort_nanos * self.take_sorted() };
        let swapping = if self.swap_out_nanos == 0 { 0 } else { self.swap_out_nanos * self.host.swap_outs() };
        let nanos = self.batch_nanos + scanning + sorting + walking + swapping;
        let nanos = nanos + self.sending_nanos(self.now() + Duration::from_nanos(nanos));
        let nanos = nanos + self.preemption.map_or(0, |preemption| self.lose_cpu(preemption, nanos));
        match self.host.take_compressed() {
            0 => nanos,
            pages => self.compress(pages) + nanos,
        }
    }

    /// Time for which others take the CPU of a task that used it for `nanos`.
    #[cold]
    fn lose_cpu(&mut self, Preemption { slice, away }: Preemption, nanos: u64) -> u64 {
        let loses = self.random.below(slice.as_nanos() as u64) < nanos;
        if loses { away.draw(&mut self.random).as_nanos() as u64 } else { 0 }
    }

    /// Pages scanned since the last call.
    #[cold]
    fn take_scanned(&mut self) -> u64 {
        const SCANNED: [Counter; 2] = [Counter::PgscanAnon, Counter::PgscanFile];
        let of = |memcg: &Memcg| SCANNED.iter().map(|&counter| memcg.stat().get(counter)).sum();
        growth(&self.core, of, &mut self.scanned)
    }

    /// Pages sorted since the last call.
    #[cold]
    fn take_sorted(&mut self) -> u64 {
        growth(&self.core, |memcg| memcg.stat().get(Counter::Pgrefill), &mut self.sorted)
    }

    /// Page-table entries walked since the last call.
    #[cold]
    fn take_walked(&mut self) -> u64 {
        growth(&self.core, |memcg| memcg.lruvec().walked_entries(), &mut self.walked)
    }

    /// The duration of compressing `pages` pages.
    #[cold]
    fn compress(&mut self, pages: u64) -> u64 {
        let now = self.now();
        let took = (0..pages).map(|_| {
            let swap = self.swap.as_mut().expect("without swap, no page is compressed");
            swap.write(now).at.since(now).as_nanos() as u64
        });
        took.sum()
    }

    /// Whether a store that brings a page back from swap first puts the new pages of its CPU on
    /// their lists, so that the page has its slot then ([book: fidelity#fidelity-store-drains]).
    /// Elsewhere the place of a page that a fault brings in does not depend on its slot, or the
    /// slot stays.
    pub(crate) fn stores_drain(&self) -> bool {
        let mechanisms = self.core.folios().mechanisms();
        let lists_by_slot =
            mechanisms.lru() == Lru::MultiGen && mechanisms.is_on(Switch::ReferencedPlacement);
        lists_by_slot && self.swap.as_ref().is_some_and(Swap::frees_slots)
    }

    /// A random duration.
    pub(crate) fn draw(&mut self, latency: Latency) -> Duration {
        latency.draw(&mut self.random)
    }

    /// The device has ended a write, or the CPU that ends its pages goes on after a stall.
    pub(crate) fn written(&mut self, id: WriteId) {
        if self.writes.get_mut(id.0).ended == 0 {
            self.note_written(id);
        }
        match self.end_pages(id) {
            Some(stall) => self.events.plan(self.now() + stall, Due::Written(id)),
            None => drop(self.writes.end(id.0)),
        }
    }

    /// Notes what a write to a file has brought to the device, or its failure.
    fn note_written(&mut self, id: WriteId) {
        let write = self.writes.get_mut(id.0);
        let Some(file) = write.file else { return };
        if let Some(model) = &self.host.model {
            model.borrow_mut().content.write_ends(id, write.mapping.id(), write.run.first, write.ok);
        }
        if !write.ok && Arc::ptr_eq(&write.mapping, &self.files.get(file).mapping) {
            self.files.note_error(file);
        }
    }

    /// Ends the pages of a write in order. `Some`: the CPU stalls for so long, then goes on.
    fn end_pages(&mut self, id: WriteId) -> Option<Duration> {
        let write = self.writes.get_mut(id.0);
        let (cpu, stalls) = match (&self.swap, write.file) {
            (Some(swap), None) => (swap.cpu(), None),
            _ => (self.device_cpu, self.drain_stalls),
        };
        if write.ended > 0 {
            self.core.resume_drain(&self.host);
        }
        while let Some(&folio) = write.run.folios.get(write.ended) {
            self.core.end_writeback(&self.host, &write.mapping, folio, write.ok, cpu);
            write.ended += 1;
            if let Some(DrainStalls { per_million, time }) = stalls
                // Once for each batch.
                && write.ended % BATCH_FOLIOS_MAX == 1
                && self.random.below(1_000_000) < u64::from(per_million)
                && self.core.stall_drain(folio)
            {
                return Some(time.draw(&mut self.random));
            }
        }
        None
    }

    /// Records the kill of a memcg. Its jobs end at their next step, and the reaper takes its
    /// memory.
    pub(crate) fn kill(&mut self, victim: MemcgId) {
        let report = self.core.oom_killed(victim).expect("the core says why it kills");
        self.kills.push(Kill { time: self.now(), report: *report });
        self.victims.push_back(Reaping::new(&self.core, victim));
        self.tenants
            .iter_mut()
            .filter(|tenant| tenant.memcg == Some(victim))
            .for_each(|tenant| tenant.killed = true);
    }

    pub(crate) fn move_task(&mut self, task: &mut Task, memcg: MemcgId) {
        self.core.move_task(task, memcg);
        let known = self.tasks.iter_mut().filter(|known| Arc::ptr_eq(&known.space, &task.space));
        known.for_each(|known| known.memcg = memcg);
    }

    /// Ends a killed task. Pages that no other task maps become unmapped.
    pub(crate) fn end_task(&mut self, task: &Task) {
        self.core.end_task(task);
        self.tasks.retain(|other| !Arc::ptr_eq(&other.space, &task.space));
        let regions = self.tasks.iter().flat_map(|other| other.space.regions());
        let shared: BTreeSet<_> = regions.map(|mapping| mapping.id().0).collect();
        for mapping in task.space.regions() {
            if !shared.contains(&mapping.id().0) {
                self.core.unmap(&self.host, task, &mapping);
            }
        }
    }

    /// Records that pages of a mapping were dropped other than by reclaim.
    pub(crate) fn note_dropped(&self, mapping: &Mapping, from: u32, end: u64) {
        self.note_removed(mapping, from, end, false);
    }

    /// Records that a file was truncated, including dirty pages.
    pub(crate) fn note_cut(&self, mapping: &Mapping, from: u32, end: u64) {
        self.note_removed(mapping, from, end, true);
    }

    /// Records that a file was closed, which frees its mapping's number.
    pub(crate) fn note_closed(&self, mapping: &Mapping) {
        if let Some(model) = &self.host.model {
            model.borrow_mut().content.closed(mapping.id());
        }
    }

    fn note_removed(&self, mapping: &Mapping, from: u32, end: u64, cut: bool) {
        if let Some(model) = &self.host.model {
            model.borrow_mut().removed(&self.core, mapping, from, end, cut);
        }
    }

    /// Whether a write of the file that was among the first `begun` is active.
    pub(crate) fn is_writing(&self, file: FileNumber, begun: u64) -> bool {
        self.writes.among_first(begun).any(|write| write.file == Some(file))
    }
}

/// The growth of a count over all memcgs since it was `before`, which becomes the count. Counters
/// of a memcg removed meanwhile have moved to its parent, but its walked entries are gone.
fn growth(core: &Core, of: impl Fn(&Memcg) -> u64, before: &mut u64) -> u64 {
    let now: u64 = core.memcgs().iter().map(of).sum();
    now.saturating_sub(std::mem::replace(before, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Operation, Simulator, SwapDevice, SwapModel};
    use mglru_core::reclaim::Watermarks;
    use mglru_core::{Mechanisms, Preset, Refresh, UNLIMITED};
    use std::time::Duration;

    /// Duration of 1,000 reads with batches of 1 ms, where all but the first 100 need reclaim.
    fn run(limit_pages: u64, preemption: Option<Preemption>) -> u64 {
        let batch_time = Duration::from_millis(1);
        let machine = Machine { batch_time, preemption, ..Machine::ideal(limit_pages, 1) };
        let mut simulator = Simulator::new(&machine).unwrap();
        simulator.add_job(0, (0..1000).map(|page| Operation::from(Access::read(page))));
        simulator.run().unwrap().now.as_nanos() / 1_000_000
    }

    /// [book: classic-lru#late-statistics]: reading a tenant's statistics refreshes those, and not
    /// the root's, by which background reclaim decides.
    #[test]
    fn reading_a_tenants_statistics_leaves_the_roots() {
        let refilled = |limited: bool| {
            let mut machine = Machine {
                mechanisms: Mechanisms::preset(Preset::Linux72).with_lru(Lru::Classic),
                statistics_refresh: Refresh::NEVER,
                statistics_reads: Some(10),
                ..Machine::kernel_lab(1000)
            };
            if !limited {
                machine.memory_pages = 1000;
                machine.watermarks = Watermarks { min: 20, low: 40, high: 60 };
                machine.tenants[0].max_pages = UNLIMITED;
            }
            let mut simulator = Simulator::new(&machine).unwrap();
            // Most of the first pages become active.
            let pages = (0..700).chain(0..700).chain(700..2000);
            simulator.add_job(0, pages.map(|page| Operation::from(Access::read(page))));
            simulator.run().unwrap().total().counters.get(Counter::Pgrefill)
        };
        assert!(refilled(true) > 0, "the limited tenant's list of inactive pages is known to be short");
        assert_eq!(refilled(false), 0);
    }

    /// A task that reclaims for its whole slice loses its CPU each time; for half of it, about
    /// every second time; a task that does not reclaim never loses it.
    #[test]
    fn a_reclaiming_task_loses_its_cpu() {
        let of = |slice_ms, away_ms| {
            let away = Latency::Fixed(Duration::from_millis(away_ms));
            Some(Preemption { slice: Duration::from_millis(slice_ms), away })
        };
        let steps = run(100, None);
        assert!(steps > 100, "{steps}");
        assert_eq!(run(100, of(1, 10)), steps * 11);
        let half = run(100, of(2, 10)) - steps;
        assert!(half.abs_diff(steps * 5) < steps, "{half} for {steps} steps");
        assert_eq!(run(100, of(1, 0)), steps);
        assert_eq!(run(2000, of(1, 10)), 0);
    }

    /// Only the pages that reclaim sorted take that time.
    #[test]
    fn sorting_takes_time_per_page() {
        let end = |sort_micros| {
            let sort_time = Duration::from_micros(sort_micros);
            let mechanisms = Mechanisms::preset(Preset::Linux72);
            let machine = Machine { sort_time, mechanisms, ..Machine::ideal(200, 1) };
            let mut simulator = Simulator::new(&machine).unwrap();
            // Pages that are used now and then are sorted.
            let pages = (0..4000).map(|n| if n % 3 == 0 { n % 60 } else { 100 + n });
            simulator.add_job(0, pages.map(|page| Operation::from(Access::read(page))));
            let report = simulator.run().unwrap();
            (report.now.as_nanos(), report.total().counters.get(Counter::Pgrefill))
        };
        let ((none, sorted), (some, also)) = (end(0), end(7));
        assert!(sorted > 10 && sorted == also, "{sorted} {also}");
        assert_eq!((none, some), (0, 7000 * sorted));
    }

    #[test]
    fn stores_drain_with_the_rules_of_7_2_and_compressed_memory() {
        let drains = |preset, lru, device: Option<SwapDevice>| {
            let mechanisms = Mechanisms::preset(preset).with_lru(lru);
            let swap = device.map(|device| SwapModel { pages: 8, device });
            let machine = Machine { mechanisms, swap, ..Machine::new(100) };
            World::new(&machine).unwrap().stores_drain()
        };
        assert!(drains(Preset::Linux72, Lru::MultiGen, Some(SwapDevice::zram())));
        assert!(!drains(Preset::Linux71, Lru::MultiGen, Some(SwapDevice::zram())));
        assert!(!drains(Preset::Linux72, Lru::Classic, Some(SwapDevice::zram())));
        assert!(!drains(Preset::Linux72, Lru::MultiGen, Some(SwapDevice::lab_disk())));
        assert!(!drains(Preset::Linux72, Lru::MultiGen, None));
        assert!(!drains(Preset::Default, Lru::Ranked, Some(SwapDevice::zram())));
    }
}
