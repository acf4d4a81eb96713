//! One instance of a job: a thread, a file, a stream of accesses, and what became of them.
//!
//! # Time
//!
//! Accesses are drawn in batches ahead of time, and blocks are filled and checked between accesses, so that a latency
//! is that of the cache alone.
//!
//! # Verification
//!
//! The job remembers the generation of each block that it wrote or that was laid out for it. What it reads must have
//! that generation, or come from another job that writes the same file. A job that only reads accepts any generation.
//! After a job has written, it reads what it wrote once more, in order.

use super::gate::Gate;
use super::plan::PlannedJob;
use crate::error::Failure;
use crate::{layout, size};
use mglru_cache::{Advice, CachedFile, Error, Map};
use mglru_core::PAGE_BYTES;
use mglru_workload::fio::Channel;
use mglru_workload::fio::report::{self, Outcome};
use mglru_workload::verify::{self, Difference, Identity, VerifyError};
use mglru_workload::{Access, Mix, Order};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Accesses that are drawn at once: 64 KiB of them, a few milliseconds of hits.
const BATCH_ACCESSES: usize = 4096;

/// What verification failures are told as: `EILSEQ`, as in fio.
const ERRNO_VERIFY: i32 = 84;
const ERRNO_IO: i32 = 5;
const ERRNO_NO_MEMORY: i32 = 12;

/// How far an instance is, for whoever watches. Only its thread writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Meter {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// Bytes that it will transfer; 0: without end.
    goal_bytes: u64,
    runtime: Option<Duration>,
    done: AtomicBool,
}

impl Meter {
    /// The share of a job that is done.
    pub const DONE: u64 = 1000;

    fn share(&self, elapsed: Duration) -> f64 {
        if self.done.load(Relaxed) {
            return 1.0;
        }
        let bytes = (self.read_bytes.load(Relaxed) + self.written_bytes.load(Relaxed)) as f64;
        let of_size = if self.goal_bytes == 0 { 0.0 } else { bytes / self.goal_bytes as f64 };
        let of_time = self.runtime.map_or(0.0, |runtime| elapsed.as_secs_f64() / runtime.as_secs_f64());
        of_size.max(of_time).min(1.0)
    }

    /// How far all instances are, and a line about them.
    pub fn summary(meters: &[Arc<Meter>], elapsed: Duration) -> (u64, String) {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let rate = |bytes: u64| size::mib(bytes as f64 / seconds);
        let read = meters.iter().map(|meter| meter.read_bytes.load(Relaxed)).sum();
        let written = meters.iter().map(|meter| meter.written_bytes.load(Relaxed)).sum();
        let running = meters.iter().filter(|meter| !meter.done.load(Relaxed)).count();
        let share = meters.iter().map(|meter| meter.share(elapsed)).sum::<f64>() / meters.len() as f64;
        let eta = match share {
            0.0 => "?".to_owned(),
            _ => format!("{:.0}s", seconds / share - seconds),
        };
        let line =
            format!("jobs running: {running}, r={} MiB/s, w={} MiB/s, eta {eta}", rate(read), rate(written));
        ((share * Self::DONE as f64) as u64, line)
    }
}

/// What is known of the blocks of a file.
struct Blocks {
    /// The generation of each block; 0: unknown.
    generations: Vec<u32>,
    block_bytes: u64,
    /// Blocks from here on had generation 1 when the job began.
    laid_out_from: u64,
    seed: u64,
    /// Seeds of other jobs that write the same file.
    others: Vec<u64>,
    /// The job only reads: whatever verifies is right.
    any_generation: bool,
}

impl Blocks {
    fn of(planned: &PlannedJob, others: Vec<u64>) -> Blocks {
        let block_bytes = u64::from(planned.job.block_bytes);
        let count = planned.size_bytes / block_bytes;
        let generation = |block| u32::from(block * block_bytes >= planned.laid_out_from);
        let any_generation = !planned.job.mix.writes();
        Blocks {
            generations: if any_generation { Vec::new() } else { (0..count).map(generation).collect() },
            block_bytes,
            laid_out_from: planned.laid_out_from,
            seed: planned.job.seed,
            others,
            any_generation,
        }
    }

    /// Fills a block that is about to be written.
    fn fill(&mut self, block: &mut [u8], offset: u64) {
        let generation = &mut self.generations[(offset / self.block_bytes) as usize];
        *generation += 1;
        verify::fill(block, Identity { offset, generation: u64::from(*generation), seed: self.seed });
    }

    /// Checks a block that was read.
    fn check(&self, block: &[u8], offset: u64) -> Result<(), VerifyError> {
        if self.any_generation {
            return verify::check(block, offset).map(drop);
        }
        let expected = u64::from(self.generations[(offset / self.block_bytes) as usize]);
        if expected == 0 {
            return Ok(());
        }
        let identity = verify::check(block, offset)?;
        if identity.generation == expected || self.others.contains(&identity.seed) {
            return Ok(());
        }
        let difference = Difference::Generation { expected, found: identity.generation };
        Err(VerifyError { offset, difference })
    }

    /// Where the job has written, in order.
    fn written(&self) -> impl Iterator<Item = u64> + use<> {
        let (block_bytes, laid_out_from) = (self.block_bytes, self.laid_out_from);
        let blocks = self.generations.clone().into_iter().enumerate();
        blocks
            .map(move |(block, generation)| (block as u64 * block_bytes, generation))
            .filter(move |&(offset, generation)| generation > u32::from(offset >= laid_out_from))
            .map(|(offset, _)| offset)
    }
}

/// Through what a job reaches its file.
enum Channeled {
    Descriptor,
    Mapped(Map),
}

/// One instance, about to run or done.
pub struct Runner<'a> {
    planned: &'a PlannedJob,
    file: CachedFile,
    channel: Channeled,
    blocks: Option<Blocks>,
    outcome: Outcome,
    page_accesses: u64,
    /// How far it is.
    pub meter: Arc<Meter>,
}

impl<'a> Runner<'a> {
    /// A runner for a file that is open. `others`: seeds of other jobs that write it.
    ///
    /// # Errors
    /// The file cannot be mapped or advised about.
    pub fn new(planned: &'a PlannedJob, others: Vec<u64>, file: CachedFile) -> Result<Runner<'a>, Failure> {
        let job = &planned.job;
        let channel = match job.engine.channel() {
            Channel::Descriptor => {
                // fio tells the kernel the same (`fadvise_hint`). It would tell it of mapped files too, whereupon the
                // kernel ignored their accessed bits; they are what `ioengine=mmap` is for here.
                let advice = match job.order {
                    Order::Sequential => Advice::Sequential,
                    Order::Random(_) => Advice::Random,
                };
                file.advise(advice, 0..planned.size_bytes)?;
                Channeled::Descriptor
            }
            Channel::Mapped => Channeled::Mapped(file.map()?),
        };
        let blocks = job.verify.map(|_| Blocks::of(planned, others));
        // Those that write and verify read what they wrote.
        let passes = if blocks.is_some() && job.mix == Mix::Write { 2 } else { 1 };
        let goal_bytes = if job.time_based { 0 } else { planned.size_bytes * passes };
        let meter = Arc::new(Meter { goal_bytes, runtime: job.runtime, ..Meter::default() });
        let (outcome, page_accesses) = (Outcome::default(), 0);
        Ok(Runner { planned, file, channel, blocks, outcome, page_accesses, meter })
    }

    /// Whether it accesses mapped pages.
    pub fn is_mapped(&self) -> bool {
        matches!(self.channel, Channeled::Mapped(_))
    }

    /// How many pages it accessed, counting again what it accessed again.
    pub fn page_accesses(&self) -> u64 {
        self.page_accesses
    }

    /// What it did. Closes the file.
    pub fn into_outcome(self) -> Outcome {
        self.outcome
    }

    /// Runs to the end, once the gate is open.
    pub fn run(&mut self, gate: &Gate) {
        let planned = self.planned;
        let job = &planned.job;
        let mut buffer = vec![0; job.block_bytes as usize];
        layout::fill_random(&mut buffer, job.seed, 0);
        let accesses = planned.job.pattern(planned.size_bytes).accesses();
        let accesses = accesses.expect("the plan gave the job room for a block");
        if !gate.pass() {
            return;
        }
        let began = Instant::now();
        let deadline = job.runtime.map(|runtime| began + runtime);
        self.perform(accesses, &mut buffer, deadline);
        let elapsed_ms = began.elapsed().as_millis() as u64;
        if self.outcome.read.ios > 0 {
            self.outcome.read.runtime_ms = elapsed_ms;
        }
        if self.outcome.write.ios > 0 {
            self.outcome.write.runtime_ms = elapsed_ms;
        }
        if job.mix.writes() && self.outcome.failure.is_none() {
            let began = Instant::now();
            self.verify_writes(&mut buffer);
            if self.blocks.is_some() {
                // As in fio, reads that verify are reads of the job.
                self.outcome.read.runtime_ms += began.elapsed().as_millis() as u64;
            }
        }
        self.meter.done.store(true, Relaxed);
    }

    fn verify_writes(&mut self, buffer: &mut [u8]) {
        let Some(blocks) = &self.blocks else { return };
        let bytes = self.planned.job.block_bytes;
        if let Channeled::Descriptor = self.channel {
            // Advice is for speed; what does not take it is read all the same.
            let _ = self.file.advise(Advice::Sequential, 0..self.planned.size_bytes);
        }
        let reads = blocks.written().map(|offset| Access { offset, bytes, write: false });
        // Contents are to be checked however long that takes: the runtime is for the work.
        self.perform(reads, buffer, None);
    }

    /// Performs accesses until they end, one fails, or the time is over.
    fn perform(
        &mut self,
        mut accesses: impl Iterator<Item = Access>,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) {
        let mut batch = Vec::with_capacity(BATCH_ACCESSES);
        loop {
            batch.clear();
            batch.extend(accesses.by_ref().take(BATCH_ACCESSES));
            if batch.is_empty() {
                return;
            }
            for access in &batch {
                match self.access(access, buffer) {
                    Some(ended) if deadline.is_none_or(|deadline| ended < deadline) => {}
                    _ => return,
                }
            }
        }
    }

    /// Performs one access. When it ended; `None`: it failed, which is noted.
    #[inline]
    fn access(&mut self, access: &Access, buffer: &mut [u8]) -> Option<Instant> {
        let Access { offset, bytes, write } = *access;
        if write && let Some(blocks) = &mut self.blocks {
            blocks.fill(buffer, offset);
        }
        let began = Instant::now();
        let done = match (&self.channel, write) {
            (Channeled::Descriptor, false) => self.file.read_at(buffer, offset),
            (Channeled::Descriptor, true) => self.file.write_at(buffer, offset),
            (Channeled::Mapped(map), false) => map.load(offset, buffer).map(|()| buffer.len()),
            (Channeled::Mapped(map), true) => map.store(offset, buffer).map(|()| buffer.len()),
        };
        let ended = Instant::now();
        self.page_accesses += access.pages(PAGE_BYTES as u32).count() as u64;
        match done {
            Ok(done) if done == buffer.len() => {}
            Ok(done) => {
                let path = self.file.path().display();
                let message = format!(
                    "read {done} of {bytes} bytes at offset {offset} of {path}: it became shorter meanwhile"
                );
                self.fail(ERRNO_IO, message);
                return None;
            }
            Err(error) => {
                let verb = if write { "write" } else { "read" };
                self.fail(errno(&error), format!("{verb} at offset {offset}: {error}"));
                return None;
            }
        }
        let (transfer, meter) = match write {
            false => (&mut self.outcome.read, &self.meter.read_bytes),
            true => (&mut self.outcome.write, &self.meter.written_bytes),
        };
        transfer.record(bytes, (ended - began).as_nanos() as u64);
        meter.store(transfer.bytes, Relaxed);
        if !write
            && let Some(blocks) = &self.blocks
            && let Err(error) = blocks.check(buffer, offset)
        {
            self.outcome.verify_errors += 1;
            let message = format!("{}: {error}", self.file.path().display());
            self.fail(ERRNO_VERIFY, message);
        }
        Some(ended)
    }

    /// Writes what is dirty of the file to the device, if the job wrote.
    pub fn sync(&mut self) {
        if self.planned.job.mix.writes()
            && let Err(error) = self.file.sync_data()
        {
            self.fail(errno(&error), format!("sync: {error}"));
        }
    }

    /// Notes the first failure.
    fn fail(&mut self, errno: i32, message: String) {
        self.outcome.failure.get_or_insert(report::Failure { errno, message });
    }
}

fn errno(error: &Error) -> i32 {
    match (error.io_error().and_then(std::io::Error::raw_os_error), error) {
        (Some(errno), _) => errno,
        (None, Error::OutOfMemory(_)) => ERRNO_NO_MEMORY,
        (None, _) => ERRNO_IO,
    }
}
