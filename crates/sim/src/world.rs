//! What actors act upon: the core and everything around it, except the actors themselves.

use crate::actor::{Answer, Reading};
use crate::clock::Events;
use crate::device::Device;
use crate::files::{FileNumber, Files};
use crate::host::SimHost;
use crate::machine::{Machine, Preemption, Tenant, Writes};
use crate::report::{Counters, Counts, Kill, Refusal, RequestReport, Tally};
use crate::sample::{Sample, Sampler, TenantSample};
use crate::swap::Swap;
use mglru_core::readahead::ReadRun;
use mglru_core::reclaim::Reaping;
use mglru_core::writeback::{WriteOrder, WritebackRun};
use mglru_core::{Core, Counter, Mapping, Memcg, MemcgError, MemcgId, SwapOut, Switch, Task, Time};
use mglru_workload::Random;
use mglru_workload::fio::Latencies;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Number of an actor, in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ActorId(pub(crate) usize);

/// Number of a write, in the order in which they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriteId(u64);

/// Number of a read of several pages, in the order in which they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadId(u64);

/// What can be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The time is over that the actor wanted to rest. `nap`: which of its rests; it may have been
    /// woken earlier.
    Resume { actor: ActorId, nap: u64 },
    /// A write ended.
    Written(WriteId),
    /// A read of several pages ended.
    Read(ReadId),
}

/// Why an actor does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It could go on at once; others may go first.
    Ready,
    /// It rests until that time.
    Until(Time),
    /// It waits until somebody is done with this folio.
    Folio(mglru_core::FolioId),
    /// It waits until something was written, at most until that time.
    Written(Option<Time>),
    /// It waits until it is called, at most until that time.
    Called(Option<Time>),
    /// It is at its end.
    Done,
}

/// A write under way.
#[derive(Debug)]
pub(crate) struct Write {
    /// `None`: it goes to swap.
    pub(crate) file: Option<FileNumber>,
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) run: WritebackRun,
    ok: bool,
}

/// A read under way that no job stands for.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) run: ReadRun,
    ok: bool,
}

/// A tenant, while the machine runs.
#[derive(Debug)]
pub(crate) struct TenantState {
    /// `None`: it is made later.
    pub(crate) memcg: Option<MemcgId>,
    /// It was removed, or could not be made: its jobs end.
    pub(crate) gone: bool,
    /// It was killed: its jobs end, in the middle of what they do.
    pub(crate) killed: bool,
    pub(crate) counts: Counts,
    /// What it had at the warm point.
    pub(crate) at_warm: Option<Tally>,
    /// How long its accesses took.
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

/// Makes a tenant below its parent, which is there.
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

/// Everything but the actors.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) host: SimHost,
    pub(crate) events: Events<Due>,
    pub(crate) device: Device,
    pub(crate) swap: Option<Swap>,
    pub(crate) files: Files,
    /// The root first, then the machine's.
    pub(crate) tenants: Vec<TenantState>,
    /// Of all jobs that were not killed, in their order.
    pub(crate) tasks: Vec<Task>,
    /// Who was killed so far.
    pub(crate) kills: Vec<Kill>,
    pub(crate) refusals: Vec<Refusal>,
    /// Of these, those whose memory is being taken.
    pub(crate) victims: VecDeque<Reaping>,
    /// Jobs that are to move, and to which tenants.
    pub(crate) moves: Vec<(Range<usize>, usize)>,
    pub(crate) writes: BTreeMap<WriteId, Write>,
    next_write: u64,
    pub(crate) reads: BTreeMap<ReadId, Read>,
    next_read: u64,
    /// Requests to reclaim that ended.
    pub(crate) requests: Vec<RequestReport>,
    /// What came of the administrator's orders, and what was read of control files.
    pub(crate) answers: Vec<Answer>,
    pub(crate) readings: Vec<Reading>,
    /// Touches of a page that began, by all jobs.
    pub(crate) accesses: u64,
    /// The access before which counters are noted.
    warm_from: u64,
    /// The access before which somebody reads statistics, and how many there are between such
    /// reads.
    read_from: u64,
    reads_every: u64,
    /// Takes samples, and the access before which the next one is taken.
    sampler: Option<Sampler>,
    sample_at: u64,
    /// How long accesses take is measured.
    pub(crate) times_accesses: bool,
    /// What a touch takes, and what reclaiming a batch takes.
    pub(crate) access_nanos: u64,
    pub(crate) batch_nanos: u64,
    /// What scanning a page takes, and pages that were scanned before the last batch.
    scan_nanos: u64,
    scanned: u64,
    /// What looking at an entry of a page table takes, and those that were looked at before.
    walk_nanos: u64,
    walked: u64,
    preemption: Option<Preemption>,
    random: Random,
    pub(crate) overwrite: bool,
    pub(crate) count_repeats: bool,
    pub(crate) transfer_pages: usize,
    /// The largest window that is read ahead; 0: nothing is.
    pub(crate) readahead_pages: u32,
    /// The window in which page-table entries are made together; 0 or 1: each by itself.
    pub(crate) fault_around_pages: u32,
    pub(crate) has_flusher: bool,
    /// Nobody is out of memory before everything was tried.
    pub(crate) waits_before_oom: bool,
    device_cpu: usize,
}

impl World {
    pub(crate) fn new(machine: &Machine) -> Result<World, MemcgError> {
        let core = Core::new(machine.options(), Time::ZERO);
        let mut tenants = vec![TenantState::new(Some(MemcgId::ROOT))];
        for wanted in &machine.tenants {
            tenants.push(TenantState::new(Some(add_tenant(&core, wanted, Time::ZERO)?)));
        }
        Ok(World {
            core,
            host: SimHost::new(machine.swap.map(|_| Swap::options(machine.swap).store)),
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
            writes: BTreeMap::new(),
            next_write: 0,
            reads: BTreeMap::new(),
            next_read: 0,
            requests: Vec::new(),
            answers: Vec::new(),
            readings: Vec::new(),
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
            scanned: 0,
            walk_nanos: machine.walk_time.as_nanos() as u64,
            walked: 0,
            preemption: machine.preemption,
            random: Random::stream(machine.seed, 0xC9),
            overwrite: machine.writes == Writes::Overwrite,
            count_repeats: machine.count_repeats,
            transfer_pages: machine.flusher.unwrap_or_default().transfer_pages.max(1) as usize,
            readahead_pages: machine.readahead_pages,
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

    /// The time before which nobody else does anything, for an actor that is alone runnable: until
    /// then it may go on as if it had rested and been resumed. For one that is not alone, that is
    /// now.
    pub(crate) fn horizon(&self, alone: bool) -> Time {
        if alone { self.events.next_time().unwrap_or(Time::from_nanos(u64::MAX)) } else { Time::ZERO }
    }

    /// Goes on without the event queue where that makes no difference: before the horizon, with
    /// nobody called.
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

    /// Counters are noted before this access.
    pub(crate) fn set_warm_from(&mut self, access: u64) {
        self.warm_from = access;
    }

    /// The warm point, if it was reached.
    pub(crate) fn warm_from(&self) -> u64 {
        self.warm_from
    }

    /// The access before which [`Self::look`] is to be called.
    #[inline]
    fn next_look(&self) -> u64 {
        let next = self.read_from.min(self.sample_at);
        if self.accesses <= self.warm_from { self.warm_from.min(next) } else { next }
    }

    /// Whether it is to be called now.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        self.accesses == self.warm_from || self.accesses == self.read_from || self.accesses == self.sample_at
    }

    /// Takes samples from here on, at least so many, if the run is long enough.
    pub(crate) fn sample(&mut self, wanted: usize) {
        let sampler = Sampler::new(wanted);
        self.sample_at = sampler.next();
        self.sampler = Some(sampler);
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        self.sampler.as_ref().map_or(&[], Sampler::samples)
    }

    /// How things stand.
    pub(crate) fn sample_now(&self) -> Sample {
        let tenant = |(number, state): (usize, &TenantState)| TenantSample {
            accesses: state.counts.accesses,
            hits: state.counts.hits,
            generations: self
                .memcg(number)
                .map_or(Vec::new(), |memcg| memcg.lruvec().generations(self.now())),
        };
        let tenants = self.tenants.iter().enumerate().map(tenant).collect();
        Sample { access: self.accesses, time: self.now(), tenants }
    }

    /// Touches of cached pages after which it is not yet the horizon, nor time for a look.
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

    /// So many pages were touched, without anything else happening.
    pub(crate) fn pass(&mut self, accesses: u64) {
        self.accesses += accesses;
        self.host.clock.advance(Time::from_nanos(self.now().as_nanos() + accesses * self.access_nanos));
    }

    /// The memcg of a tenant, once it was made.
    pub(crate) fn memcg(&self, tenant: usize) -> Option<&Memcg> {
        self.tenants[tenant].memcg.map(|memcg| self.core.memcg(memcg))
    }

    pub(crate) fn tally(&self, tenant: usize) -> Tally {
        let counters = self.memcg(tenant).map_or(Tally::default().counters, Counters::of);
        Tally { counts: self.tenants[tenant].counts, counters }
    }

    /// Somebody looks at the counters: at the warm point to note them, at other times only to look.
    #[cold]
    pub(crate) fn look(&mut self) {
        if self.accesses == self.read_from {
            self.read_from += self.reads_every;
            self.core.refresh_statistics();
        }
        if self.accesses == self.sample_at {
            let sample = self.sample_now();
            let sampler = self.sampler.as_mut().expect("somebody said when");
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

    /// Carries an order of the flusher out. The positions of pages that begin to be written;
    /// `None`: there are none, or the file was replaced, whose pages are dropped.
    pub(crate) fn write(&mut self, order: WriteOrder) -> Option<Range<u64>> {
        let file = self.files.of_mapping(order.mapping)?;
        self.write_run(file, order.from, order.pages_max as usize)
    }

    /// Takes the next dirty pages of a file from `from` on, and begins to write them. Their
    /// positions; `None`: there are no more.
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
        self.note_write(Write { file: Some(file), mapping, run, ok: completion.ok }, completion.at);
        Some(first..first + pages)
    }

    /// Begins to read pages that were inserted.
    pub(crate) fn read(&mut self, mapping: Arc<Mapping>, run: ReadRun) {
        let id = ReadId(self.next_read);
        self.next_read += 1;
        let completion = self.device.read(self.now(), run.folios.len() as u64);
        self.reads.insert(id, Read { mapping, run, ok: completion.ok });
        self.events.plan(completion.at, Due::Read(id));
    }

    /// Such a read ended.
    pub(crate) fn read_ended(&mut self, id: ReadId) {
        let Read { mapping, run, ok } = self.reads.remove(&id).expect("a read ends once");
        for &folio in &run.folios {
            match ok {
                true => self.core.publish(&self.host, &mapping, folio),
                false => self.core.abandon(&self.host, &mapping, folio),
            }
        }
        if !ok {
            self.note_dropped(&mapping, run.first, u64::from(run.first) + run.folios.len() as u64);
        }
    }

    fn note_write(&mut self, write: Write, end: Time) {
        let id = WriteId(self.next_write);
        self.next_write += 1;
        if let (Some(model), Some(_)) = (&self.host.model, write.file) {
            model.borrow_mut().content.write_begins(id, write.mapping.id(), &write.run);
        }
        self.writes.insert(id, write);
        self.events.plan(end, Due::Written(id));
    }

    /// Begins to write a page to swap.
    pub(crate) fn swap_out(&mut self, write: SwapOut) {
        let now = self.now();
        let swap = self.swap.as_mut().expect("without swap, no page is written to it");
        let completion = swap.write(now);
        let (id, first) = write.page;
        // Its region cannot be closed while the page is under write-back.
        let mapping = self.core.mapping(id).expect("a page is written of an open mapping");
        let run = WritebackRun { first, folios: vec![write.folio] };
        self.note_write(Write { file: None, mapping, run, ok: completion.ok }, completion.at);
    }

    /// What reclaiming the last batch took.
    #[inline]
    pub(crate) fn take_batch_nanos(&mut self) -> u64 {
        let scanning = if self.scan_nanos == 0 { 0 } else { self.scan_nanos * self.take_scanned() };
        let walking = if self.walk_nanos == 0 { 0 } else { self.walk_nanos * self.take_walked() };
        let nanos = self.batch_nanos + scanning + walking;
        let nanos = nanos + self.preemption.map_or(0, |preemption| self.lose_cpu(preemption, nanos));
        match self.host.take_compressed() {
            0 => nanos,
            pages => self.compress(pages) + nanos,
        }
    }

    /// For how long others have the CPU of a task that used it for so long.
    #[cold]
    fn lose_cpu(&mut self, Preemption { slice, away }: Preemption, nanos: u64) -> u64 {
        let loses = self.random.below(slice.as_nanos() as u64) < nanos;
        if loses { away.draw(&mut self.random).as_nanos() as u64 } else { 0 }
    }

    /// Pages that were scanned since the last call of this.
    #[cold]
    fn take_scanned(&mut self) -> u64 {
        const SCANNED: [Counter; 2] = [Counter::PgscanAnon, Counter::PgscanFile];
        let of = |memcg: &Memcg| SCANNED.iter().map(|&counter| memcg.stat().get(counter)).sum::<u64>();
        let scanned = self.core.memcgs().iter().map(of).sum();
        // What a memcg counted that was removed meanwhile is its parent's then.
        let before = std::mem::replace(&mut self.scanned, scanned);
        scanned.saturating_sub(before)
    }

    /// Entries of page tables that were looked at since the last call of this.
    #[cold]
    fn take_walked(&mut self) -> u64 {
        let walked = self.core.memcgs().iter().map(|memcg| memcg.lruvec().walked_entries()).sum();
        // What was looked at for a memcg that is gone is not counted any more.
        let before = std::mem::replace(&mut self.walked, walked);
        walked.saturating_sub(before)
    }

    /// What compressing so many pages took.
    #[cold]
    fn compress(&mut self, pages: u64) -> u64 {
        let now = self.now();
        let took = (0..pages).map(|_| {
            let swap = self.swap.as_mut().expect("without swap, no page is compressed");
            swap.write(now).at.since(now).as_nanos() as u64
        });
        took.sum()
    }

    /// A write ended.
    pub(crate) fn written(&mut self, id: WriteId) {
        let write = self.writes.remove(&id).expect("a write ends once");
        for &folio in &write.run.folios {
            let cpu = match (&self.swap, write.file) {
                (Some(swap), None) => swap.cpu(),
                _ => self.device_cpu,
            };
            self.core.end_writeback(&self.host, &write.mapping, folio, write.ok, cpu);
        }
        let Some(file) = write.file else { return };
        if let Some(model) = &self.host.model {
            model.borrow_mut().content.write_ends(id, write.mapping.id(), write.run.first, write.ok);
        }
        if !write.ok && Arc::ptr_eq(&write.mapping, &self.files.get(file).mapping) {
            self.files.note_error(file);
        }
    }

    /// A memcg is killed: its jobs end when they act next, and the reaper takes its memory.
    pub(crate) fn kill(&mut self, victim: MemcgId) {
        let report = self.core.oom_killed(victim).expect("the core says why it kills");
        self.kills.push(Kill { time: self.now(), report: *report });
        self.victims.push_back(Reaping::new(&self.core, victim));
        self.tenants
            .iter_mut()
            .filter(|tenant| tenant.memcg == Some(victim))
            .for_each(|tenant| tenant.killed = true);
    }

    /// A task is in another memcg from now on.
    pub(crate) fn move_task(&mut self, task: &mut Task, memcg: MemcgId) {
        self.core.move_task(task, memcg);
        let known = self.tasks.iter_mut().filter(|known| Arc::ptr_eq(&known.space, &task.space));
        known.for_each(|known| known.memcg = memcg);
    }

    /// A task was killed. What nobody else maps is mapped no more.
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

    /// Pages of a mapping were taken out of the cache, other than by reclaim.
    pub(crate) fn note_dropped(&self, mapping: &Mapping, from: u32, end: u64) {
        self.note_removed(mapping, from, end, false);
    }

    /// A file was cut: pages are gone, with what was written to them.
    pub(crate) fn note_cut(&self, mapping: &Mapping, from: u32, end: u64) {
        self.note_removed(mapping, from, end, true);
    }

    /// A file is closed, and its mapping's number is free.
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

    /// Whether a write of the file that began before `before` is under way.
    pub(crate) fn is_writing(&self, file: FileNumber, before: u64) -> bool {
        self.writes.range(..WriteId(before)).any(|(_, write)| write.file == Some(file))
    }

    /// Writes that began so far.
    pub(crate) fn writes_begun(&self) -> u64 {
        self.next_write
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Latency, Operation, Simulator};
    use std::time::Duration;

    /// How long 1,000 reads take of which those after the first 100 have to reclaim, with batches
    /// of a millisecond.
    fn run(limit_pages: u64, preemption: Option<Preemption>) -> u64 {
        let batch_time = Duration::from_millis(1);
        let machine = Machine { batch_time, preemption, ..Machine::ideal(limit_pages, 1) };
        let mut simulator = Simulator::new(&machine).unwrap();
        simulator.add_job(0, (0..1000).map(|page| Operation::from(Access::read(page))));
        simulator.run().unwrap().now.as_nanos() / 1_000_000
    }

    /// A task that reclaims for as long as its slice loses its CPU each time; for half of it, about
    /// every second time; one that does not reclaim, never.
    #[test]
    fn who_reclaims_loses_the_cpu() {
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
}
