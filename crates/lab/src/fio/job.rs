//! One instance of a job: its files, its threads, and the results of its accesses.
//!
//! # Depth
//!
//! Random reads of one file by descriptor, in blocks of at most a page, are read together: one
//! thread gives them to [`CachedFile::read_stream`], which has as many under way as the job's
//! depth. Other accesses are synchronous calls. A job with a depth then uses that number of
//! threads, its *lanes*, which take their accesses from one [`Source`].
//!
//! # Time
//!
//! Accesses are drawn in batches ahead of time, and blocks are filled and checked between accesses.
//! A latency is therefore that of the cache alone. Measurements from the ramp are discarded;
//! verification and the cache's counters include it.
//!
//! # Verification
//!
//! See [`Blocks`]. After the writes, a job reads what it wrote once more, in order.

use super::blocks::Blocks;
use super::meter::{LaneMeter, Meter};
use super::plan::PlannedJob;
use super::source::{Drawn, Source};
use super::together::{Supply, Together};
use crate::Error;
use crate::cpu::ThreadClock;
use crate::gate::Gate;
use crate::layout;
use crate::load::{LoadError, Performed, RealLoad};
use crate::membership::{Member, Membership};
use mglru_cache::{self as cache, Advice, CachedFile, Map, MapAdvice, Tenant};
use mglru_core::PAGE_BYTES;
use mglru_workload::fio::report::{self, JobOutcome};
use mglru_workload::fio::{Channel, Hint, Job};
use mglru_workload::{Access, Mix, Order};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Accesses that a single thread draws at once: a few milliseconds of hits.
const BATCH_ACCESSES: usize = 4096;

/// Error number of failed verification: `EILSEQ`, as in fio.
const ERRNO_VERIFY: i32 = 84;
const ERRNO_IO: i32 = 5;
const ERRNO_NO_MEMORY: i32 = 12;
const ERRNO_AGAIN: i32 = 11;

/// An open file of a job.
struct Open {
    file: CachedFile,
    /// The mapping, if the job maps its files.
    map: Option<Map>,
}

impl Open {
    fn new(job: &Job, size_bytes: u64, file: CachedFile) -> Result<Open, Error> {
        let hint = match (job.hint, job.order) {
            (Hint::OfEngine | Hint::OfPattern, Order::Sequential) | (Hint::Sequential, _) => {
                Some(Advice::Sequential)
            }
            (Hint::OfEngine | Hint::OfPattern, Order::Random(_)) | (Hint::Random, _) => Some(Advice::Random),
            (Hint::Nothing, _) => None,
        };
        if job.engine.channel() == Channel::Mapped {
            let map = file.map()?;
            if hint.is_some() && job.hint != Hint::OfEngine {
                map.advise(MapAdvice::NoRecency);
            }
            return Ok(Open { file, map: Some(map) });
        }
        if let Some(advice) = hint {
            file.advise(advice, 0..size_bytes)?;
        }
        Ok(Open { file, map: None })
    }

    fn move_to(&mut self, tenant: &Tenant) -> Result<(), cache::Error> {
        self.file.move_to(tenant)?;
        self.map.as_mut().map_or(Ok(()), |map| map.move_to(tenant))
    }

    /// A handle for another thread. Jobs that map their files have a single thread.
    fn try_clone(&self) -> Result<Open, cache::Error> {
        Ok(Open { file: self.file.try_clone()?, map: None })
    }
}

/// One instance, ready to run or done.
pub struct Runner<'a> {
    planned: &'a PlannedJob,
    files: Vec<Open>,
    /// Expected blocks of each file, if the job verifies.
    blocks: Vec<Blocks>,
    /// The load that it runs instead of file accesses, shared with the other instances of its job;
    /// `None` once the load has ended.
    load: Option<Arc<RealLoad>>,
    /// Error found when the load ended.
    load_failure: Option<LoadError>,
    page_accesses: u64,
    /// Progress.
    pub meter: Arc<Meter>,
    /// The tenants that it may be moved to, if a scenario moves jobs.
    pub membership: Option<Arc<Membership>>,
}

impl<'a> Runner<'a> {
    /// A runner for open files. `blocks` are the expected blocks of each if the job verifies.
    /// `load` is the job's load, if it has one; then there are no files.
    ///
    /// # Errors
    /// If a file cannot be mapped or advised.
    pub fn new(
        planned: &'a PlannedJob,
        files: Vec<CachedFile>,
        blocks: Vec<Blocks>,
        load: Option<Arc<RealLoad>>,
    ) -> Result<Runner<'a>, Error> {
        let job = &planned.job;
        let sizes = planned.files.iter().map(|of| of.size_bytes);
        let files: Result<_, Error> =
            files.into_iter().zip(sizes).map(|(file, bytes)| Open::new(job, bytes, file)).collect();
        // A job that writes and verifies reads its writes back.
        let reads_again = !blocks.is_empty() && job.verify_written && job.mix == Mix::Write;
        let goal_bytes = planned.goal_bytes().saturating_mul(if reads_again { 2 } else { 1 });
        Ok(Runner {
            planned,
            files: files?,
            blocks,
            load,
            load_failure: None,
            page_accesses: 0,
            meter: Arc::new(Meter::new(job, goal_bytes)),
            membership: None,
        })
    }

    /// The job with its files.
    pub fn planned(&self) -> &PlannedJob {
        self.planned
    }

    /// Whether it accesses mapped pages. A load does, because of its anonymous memory.
    pub fn is_mapped(&self) -> bool {
        self.planned.job.load.is_some() || self.planned.job.engine.channel() == Channel::Mapped
    }

    /// Number of page accesses, counting repeated ones.
    pub fn page_accesses(&self) -> u64 {
        self.page_accesses
    }

    /// Whether one thread keeps the job's depth, with reads in batches.
    fn reads_together(&self) -> bool {
        let (job, block) = (&self.planned.job, self.planned.job.block_bytes.read);
        job.depth > 1
            && job.mix == Mix::Read
            && job.engine.channel() == Channel::Descriptor
            && job.rate.read.is_none()
            && job.load.is_none()
            && self.planned.files.len() == 1
            && block.is_power_of_two()
            && u64::from(block) <= PAGE_BYTES
            && job.offset_bytes.is_multiple_of(block.into())
    }

    /// Runs to the end, once the gate is open.
    pub fn run(&mut self, gate: &Gate) {
        let planned = self.planned;
        let job = &planned.job;
        let accesses = planned.files.iter().enumerate().map(|(file, of)| {
            let accesses = job.pattern(file, of.size_bytes).accesses();
            accesses.expect("the plan checks that the size holds a block")
        });
        let together = self.reads_together();
        let batch = match job.depth {
            depth if depth == 1 || together => BATCH_ACCESSES,
            _ => job.batch as usize,
        };
        let lanes = if together { 1 } else { job.depth };
        let source = Source::new(accesses.collect(), job.offset_bytes, job.limit_bytes(), batch, job.rate);
        let source = Mutex::new(source);
        if !gate.pass() || !self.meter.rest(job.start_delay) {
            return;
        }
        let began = Instant::now();
        let _ = self.meter.began.set(began);
        let (mut others, mut refused) = (Vec::new(), None);
        for _ in 1..lanes {
            match self.files.iter().map(Open::try_clone).collect::<Result<Vec<_>, _>>() {
                Ok(files) => others.push(files),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let Runner { files, blocks, load, meter, membership, .. } = self;
        let (meter, membership) = (&**meter, membership.as_deref());
        let helpers: Vec<Lane> = (1..)
            .zip(&mut others)
            .map(|(number, files)| Lane::new(job, files, &mut [], meter, membership, number, began))
            .collect();
        let mut first = Lane::new(job, files, blocks, meter, membership, 0, began);
        first.load = load.as_deref();
        first.together = together;
        if let Some(error) = refused {
            first.fail(errno(&error), format!("no handle for another thread: {error}"));
        }
        let source = &source;
        self.page_accesses = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for mut lane in helpers {
                match std::thread::Builder::new().spawn_scoped(scope, move || lane.run(source)) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        let (started, depth) = (threads.len() + 1, job.depth);
                        first.fail(
                            ERRNO_AGAIN,
                            format!(
                                "only {started} of {depth} threads could be started: {error}; use a smaller \
                                     `iodepth`"
                            ),
                        );
                        break;
                    }
                }
            }
            // A panicking thread reports itself.
            first.run(source) + threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum::<u64>()
        });
        self.meter.done.store(true, Relaxed);
    }

    /// Ends the load, once for all instances of the job and while nothing runs: reads everything
    /// that it left once more, and releases its files and memory.
    pub fn end_load(&mut self) {
        let Some(load) = self.load.take() else { return };
        if self.planned.job.instance > 0 {
            return;
        }
        match load.verify(false).and_then(|verified| load.sync().map(|()| verified)) {
            Ok(verified) => self.page_accesses += verified.pages,
            Err(error) => self.load_failure = Some(error),
        }
    }

    /// Adds the load's error to the outcome.
    pub fn add_load_failure(&self, outcome: &mut JobOutcome) {
        if let Some(error) = &self.load_failure {
            fail_load(outcome, error);
        }
    }

    /// Writes the dirty pages of the files to the device, if the job wrote. Returns the job's
    /// outcome.
    pub fn finish(&self) -> JobOutcome {
        let mut outcome = self.meter.outcome();
        if self.planned.job.mix.writes() {
            for open in &self.files {
                if let Err(error) = open.file.sync_data() {
                    fail(&mut outcome, errno(&error), format!("sync: {error}"));
                }
            }
        }
        outcome
    }
}

/// One thread of an instance.
struct Lane<'a> {
    job: &'a Job,
    files: &'a mut [Open],
    /// Expected blocks of each file, if the job verifies. There is then a single lane.
    blocks: &'a mut [Blocks],
    /// The load that replaces file accesses.
    load: Option<&'a RealLoad>,
    /// Whether its reads are read in batches.
    together: bool,
    meter: &'a Meter,
    mine: &'a LaneMeter,
    membership: Option<&'a Membership>,
    member: Member,
    is_first: bool,
    buffer: Vec<u8>,
    outcome: JobOutcome,
    began: Instant,
    /// Time since which accesses are measured.
    measured: Instant,
    in_ramp: bool,
    /// Number of answered requests for its outcome.
    answered: u32,
    writes: u64,
    /// The file of the last access, if that was a write.
    written: Option<usize>,
    page_accesses: u64,
}

impl<'a> Lane<'a> {
    fn new(
        job: &'a Job,
        files: &'a mut [Open],
        blocks: &'a mut [Blocks],
        meter: &'a Meter,
        membership: Option<&'a Membership>,
        number: usize,
        began: Instant,
    ) -> Lane<'a> {
        let mut buffer = vec![0; job.block_bytes.read.max(job.block_bytes.write) as usize];
        layout::fill_random(&mut buffer, job.seed, number as u64);
        Lane {
            job,
            files,
            blocks,
            load: None,
            together: false,
            meter,
            mine: &meter.lanes[number],
            membership,
            member: Member::default(),
            is_first: number == 0,
            buffer,
            outcome: JobOutcome::default(),
            began,
            measured: began,
            in_ramp: !job.ramp.is_zero(),
            answered: 0,
            writes: 0,
            written: None,
            page_accesses: 0,
        }
    }

    /// Runs to the end. Returns the number of page accesses.
    fn run(&mut self, source: &Mutex<Source>) -> u64 {
        let clock = ThreadClock::start();
        match self.load {
            Some(load) => self.work_on(load),
            None if self.together => self.work_together(source),
            None => self.work(source),
        }
        if self.is_first && self.job.sync.end_fsync && self.job.mix.writes() {
            self.end_fsync();
        }
        self.set_runtime();
        if self.job.verify_written && self.job.mix.writes() && self.outcome.failure.is_none() {
            self.verify_written();
        }
        self.outcome.cpu = clock.elapsed();
        if !self.is_first {
            // All threads of an instance run for the same time, so only the first one's counts.
            self.outcome.cpu.elapsed_ms = 0;
        }
        self.mine.publish(&self.outcome);
        if let Some(membership) = self.membership {
            membership.report(&mut self.member, self.page_accesses);
        }
        self.page_accesses
    }

    fn work(&mut self, source: &Mutex<Source>) {
        let deadline = self.deadline();
        let mut batch = Vec::new();
        loop {
            let now = self.began.elapsed();
            source.lock().unwrap_or_else(PoisonError::into_inner).draw(&mut batch, now);
            if batch.is_empty() {
                return;
            }
            for Drawn { file, access, due } in &batch {
                if !due.is_zero() && !self.wait(*due, deadline) {
                    return;
                }
                if self.job.sync.any() && !self.sync_if_due() {
                    return;
                }
                let Some(ended) = self.access(*file, access) else { return };
                if !self.goes_on(ended, deadline) {
                    return;
                }
            }
        }
    }

    /// Runs a job whose reads are under way together.
    fn work_together(&mut self, source: &Mutex<Source>) {
        let deadline = self.deadline();
        let (bytes, depth) = (self.job.block_bytes.read, self.job.depth as usize);
        let mut supply = Supply::default();
        loop {
            let end_of_ramp = self.in_ramp.then(|| self.began + self.job.ramp);
            let Lane { files, outcome, mine, meter, membership, member, answered, began, .. } = self;
            let pauses = |now| {
                [deadline, end_of_ramp].into_iter().flatten().any(|end| now >= end)
                    || meter.stop.load(Relaxed)
                    || meter.asked.load(Relaxed) != *answered
                    || membership.is_some_and(|job| job.was_moved(member))
            };
            let (supply, began) = (&mut supply, *began);
            let (begun, is_over, short) = (0, false, None);
            let mut reads =
                Together { source, supply, began, bytes, outcome, mine, pauses, begun, is_over, short };
            let file = &files[0].file;
            let read = file.read_stream(depth, &mut reads);
            let Together { begun, is_over, short, .. } = reads;
            self.page_accesses += begun;
            let file = &self.files[0].file;
            if let Err(error) = read {
                let message = format!("read of {}: {error}", file.path().display());
                return self.fail(errno(&error), message);
            }
            if let Some((offset, read)) = short {
                let message = became_shorter(file, read, bytes, offset);
                return self.fail(ERRNO_IO, message);
            }
            self.publish_if_asked();
            if !self.goes_on(Instant::now(), deadline) || is_over {
                return;
            }
        }
    }

    /// The time at which the job ends, if it has a runtime.
    fn deadline(&self) -> Option<Instant> {
        // fio: the ramp comes on top of the runtime.
        self.job.runtime.map(|runtime| self.began + self.job.ramp + runtime)
    }

    /// Ends the ramp if an access was the last of it. Returns whether more accesses follow.
    #[inline]
    fn goes_on(&mut self, ended: Instant, deadline: Option<Instant>) -> bool {
        if deadline.is_some_and(|deadline| ended >= deadline) {
            return false;
        }
        if self.in_ramp && ended >= self.began + self.job.ramp {
            self.end_ramp(ended);
        }
        !self.meter.stop.load(Relaxed) && self.follow()
    }

    /// Moves to the tenant that the job was moved to. `false` on failure.
    #[inline]
    fn follow(&mut self) -> bool {
        let moved = self.membership.and_then(|job| job.moved(&mut self.member, self.page_accesses));
        let Some(tenant) = moved else { return true };
        match self.files.iter_mut().try_for_each(|open| open.move_to(&tenant)) {
            Ok(()) => true,
            Err(error) => {
                self.fail(errno(&error), format!("move to {}: {error}", tenant.name()));
                false
            }
        }
    }

    /// Runs a load. A step that has begun is finished.
    fn work_on(&mut self, load: &RealLoad) {
        // A load has no end of its own.
        let Some(runtime) = self.job.runtime else { return };
        let deadline = self.began + self.job.ramp + runtime;
        let client = self.job.instance as usize;
        loop {
            let Lane { outcome, mine, page_accesses, .. } = self;
            let done = load.step(client, &mut |Performed { access, time }| {
                let transfer = if access.write { &mut outcome.write } else { &mut outcome.read };
                transfer.record(PAGE_BYTES as u32, time.as_nanos() as u64);
                mine.count(access.write, PAGE_BYTES as u32);
                *page_accesses += 1;
            });
            if let Err(error) = done {
                return fail_load(&mut self.outcome, &error);
            }
            let ended = Instant::now();
            self.publish_if_asked();
            if ended >= deadline || self.meter.stop.load(Relaxed) {
                return;
            }
            if self.in_ramp && ended >= self.began + self.job.ramp {
                self.end_ramp(ended);
            }
        }
    }

    /// Waits until an access is due. `false` if the deadline is earlier, or if the thread is told
    /// to stop.
    fn wait(&self, due: Duration, deadline: Option<Instant>) -> bool {
        let until_due = due.saturating_sub(self.began.elapsed());
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let is_in_time = left.is_none_or(|left| until_due < left);
        self.meter.rest(left.map_or(until_due, |left| left.min(until_due))) && is_in_time
    }

    /// Performs one access. Returns its end time, or `None` if it failed; the failure is recorded.
    #[inline]
    fn access(&mut self, file: usize, access: &Access) -> Option<Instant> {
        let Access { offset, bytes, write } = *access;
        let Open { file: handle, map } = &self.files[file];
        let buffer = &mut self.buffer[..bytes as usize];
        if write && let Some(blocks) = self.blocks.get_mut(file) {
            blocks.fill(buffer, offset);
        }
        let began = Instant::now();
        let done = match (map, write) {
            (None, false) => handle.read_at(buffer, offset),
            (None, true) => handle.write_at(buffer, offset),
            (Some(map), false) => map.load(offset, buffer).map(|()| buffer.len()),
            (Some(map), true) => map.store(offset, buffer).map(|()| buffer.len()),
        };
        let ended = Instant::now();
        self.page_accesses += access.pages(PAGE_BYTES as u32).count() as u64;
        match done {
            Ok(done) if done == buffer.len() => {}
            Ok(done) => {
                let message = became_shorter(handle, done, bytes, offset);
                self.fail(ERRNO_IO, message);
                return None;
            }
            Err(error) => {
                let verb = if write { "write" } else { "read" };
                self.fail(errno(&error), format!("{verb} at offset {offset}: {error}"));
                return None;
            }
        }
        let transfer = if write { &mut self.outcome.write } else { &mut self.outcome.read };
        transfer.record(bytes, (ended - began).as_nanos() as u64);
        self.mine.count(write, bytes);
        if !write
            && let Some(blocks) = self.blocks.get(file)
            && let Err(error) = blocks.check(buffer, offset)
        {
            self.outcome.verify_errors += 1;
            let message = format!("{}: {error}", handle.path().display());
            self.fail(ERRNO_VERIFY, message);
        }
        self.publish_if_asked();
        if write {
            self.writes += 1;
            self.written = Some(file);
        }
        Some(ended)
    }

    #[inline]
    fn publish_if_asked(&mut self) {
        let asked = self.meter.asked.load(Relaxed);
        if asked != self.answered {
            self.answered = asked;
            self.set_runtime();
            self.mine.publish(&self.outcome);
        }
    }

    /// Syncs the file of the last write if a sync is due. As in fio, this happens before the next
    /// access and not at the end. `false` on failure.
    fn sync_if_due(&mut self) -> bool {
        let Some(file) = self.written.take() else { return true };
        let every = &self.job.sync;
        let is_due = |writes: u32| writes > 0 && self.writes.is_multiple_of(u64::from(writes));
        let handle = &self.files[file].file;
        let began = Instant::now();
        let synced = match (is_due(every.fsync_writes), is_due(every.fdatasync_writes)) {
            (true, _) => handle.sync_all(),
            (false, true) => handle.sync_data(),
            (false, false) => return true,
        };
        match synced {
            Ok(()) => self.outcome.sync.record(began.elapsed().as_nanos() as u64),
            Err(error) => self.fail(errno(&error), format!("sync: {error}")),
        }
        self.outcome.failure.is_none()
    }

    fn end_fsync(&mut self) {
        for file in 0..self.files.len() {
            if let Err(error) = self.files[file].file.sync_all() {
                self.fail(errno(&error), format!("sync: {error}"));
            }
        }
    }

    /// Discards the measurements so far.
    #[cold]
    fn end_ramp(&mut self, now: Instant) {
        let JobOutcome { failure, verify_errors, .. } = std::mem::take(&mut self.outcome);
        self.outcome = JobOutcome { failure, verify_errors, ..JobOutcome::default() };
        self.measured = now;
        self.in_ramp = false;
    }

    fn set_runtime(&mut self) {
        let elapsed_ms = self.measured.elapsed().as_millis() as u64;
        for transfer in [&mut self.outcome.read, &mut self.outcome.write] {
            transfer.runtime_ms = if transfer.ios > 0 { elapsed_ms } else { 0 };
        }
    }

    fn verify_written(&mut self) {
        let began = Instant::now();
        let bytes = self.job.block_bytes.write;
        for file in 0..self.files.len() {
            let Some(blocks) = self.blocks.get(file) else { return };
            let written = blocks.written();
            let open = &self.files[file];
            if open.map.is_none() {
                // Advice only affects speed, so its failure is ignored.
                let _ = open.file.advise(Advice::Sequential, 0..u64::MAX);
            }
            // Contents are checked however long that takes; the runtime limits only the work.
            for offset in written {
                if self.meter.cancelled.load(Relaxed) {
                    return;
                }
                if self.access(file, &Access { offset, bytes, write: false }).is_none() {
                    return;
                }
            }
        }
        // As in fio, verifying reads are reads of the job.
        self.outcome.read.runtime_ms += began.elapsed().as_millis() as u64;
    }

    fn fail(&mut self, errno: i32, message: String) {
        fail(&mut self.outcome, errno, message);
        if errno != ERRNO_VERIFY {
            self.meter.stop.store(true, Relaxed);
        }
    }
}

fn became_shorter(file: &CachedFile, read: usize, bytes: u32, offset: u64) -> String {
    let path = file.path().display();
    format!(
        "read {read} of {bytes} bytes at offset {offset} of {path}: the file became shorter during the run"
    )
}

/// Records the first failure.
fn fail(outcome: &mut JobOutcome, errno: i32, message: String) {
    outcome.failure.get_or_insert(report::Failure { errno, message });
}

/// Records the failure of a load. Only wrong contents count as failed verification.
fn fail_load(outcome: &mut JobOutcome, error: &LoadError) {
    let errno = match error {
        LoadError::Cache(error) => errno(error),
        LoadError::Device(_) => ERRNO_IO,
        LoadError::Contents(_) => ERRNO_VERIFY,
    };
    outcome.verify_errors += u64::from(errno == ERRNO_VERIFY);
    fail(outcome, errno, error.to_string());
}

fn errno(error: &cache::Error) -> i32 {
    match (error.io_error().and_then(std::io::Error::raw_os_error), error) {
        (Some(errno), _) => errno,
        (None, cache::Error::OutOfMemory(_)) => ERRNO_NO_MEMORY,
        (None, _) => ERRNO_IO,
    }
}
