//! The two loads of the kernel lab that may end in an OOM kill, a dirty writer (A) and a mix of
//! file and anonymous memory (B), on a model of the lab's machine.
//!
//! The table does not contain times of the lab's machine. They are derived from its counts:
//! * `SCAN_TIME`: multi-gen 6.12 never sleeps while it waits for a disk of 40 MB/s, and scans 2.2
//!   to 3.8 million pages in 4 to 19 s. A page thus takes 1.8 to 5 µs.
//! * `WRITE_TIME`: an unlimited disk took 192 MiB in 0.8 s.
//! * The mix has 16 processes on two CPUs. The simulator has a CPU for each process, so each CPU is
//!   slower: 128 rounds of 22,609 stores in 50 to 60 s are about 150 µs per store of each of eight
//!   workers.

use crate::{Error, Watch};
use mglru_core::{Counter, Grain, Mechanisms, Time};
use mglru_sim::{
    Access, DeviceModel, DrainStalls, FlusherModel, FlusherStart, Interleaving, Lane, Latency, Machine,
    Operation, Preemption, Simulator, Source, SourceError, Tenant, Writes,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const SCAN_TIME: Duration = Duration::from_micros(2);
/// Time of a step of reclaim, apart from scanning.
const STEP_TIME: Duration = Duration::from_micros(2);
/// Times of a fruitless effort for files in large folios: of a step, and of sorting a page. A
/// failing charge of the kernel fails for folios of 256, 128, … and 8 pages in turn, each after 16
/// retries; here it fails after 18 efforts. On a CPU of its own, an effort of the kernel took 0.37
/// ms with 64 MiB, 0.55 ms with 128 MiB and 1.1 ms with 256 MiB, because it sorts the whole memcg
/// several times. With these times, 18 efforts here take as long as 102 of the kernel.
const LARGE_FOLIO_STEP_TIME: Duration = Duration::from_nanos(5300);
const LARGE_FOLIO_SORT_TIME: Duration = Duration::from_nanos(19);
/// The emulated CPUs share two with other programs. In 8,407 fruitless efforts of 26 runs the
/// writer lost its CPU every 4 to 9 ms, for 5 ms on average.
const WRITER_PREEMPTION: Preemption = Preemption {
    slice: Duration::from_millis(6),
    away: Latency::Uniform { least: Duration::from_millis(2), most: Duration::from_millis(8) },
};
/// Stalls of the CPU that ends writes, as it was about to move a batch of 31 pages. Four runs of
/// 6.12 beside compilers had 55 in 3,851 batches, of 3 to 64 ms, half of them over 17: the host had
/// taken the CPU away. How often it does depends on what else runs there; this rate is fitted to
/// one row (64 MiB, statistics unread).
const DRAIN_STALLS: DrainStalls = DrainStalls {
    per_million: 4_000,
    time: Latency::Uniform { least: Duration::from_millis(3), most: Duration::from_millis(40) },
};
/// Time from the call of the flusher to its first transfer. The first time, ext4 reads and scans
/// its bitmaps of free blocks. That took 8 to 73 ms in 22 runs of 7.1 beside busy loops; 34 later
/// starts took 1.4 to 25 ms. These are the means and deviations of their logarithms.
const FLUSHER_START: FlusherStart = FlusherStart {
    first: Latency::Skewed { median: Duration::from_millis(21), spread_permille: 1140 },
    later: Latency::Skewed { median: Duration::from_micros(3200), spread_permille: 1160 },
};
const WRITE_TIME: Duration = Duration::from_micros(10);
/// Speed of the emulated disk when QEMU does not throttle it: 20 to 25 ms per extent.
const DISK_BYTES_PER_SECOND: u64 = 400_000_000;
/// ext4 ends writeback for a whole extent, after its last transfer is complete and a worker has
/// marked it as written. One worker marks all extents of a file in order.
const EXTENT_PAGES: u32 = 2048;
/// Time from the last transfer to that mark, with the worker idle. Of 402 extents in nine runs,
/// half took up to 1.2 ms, a quarter over 5.2, a tenth over 11, and one in fifty over 24.
const END_IO_TIME: Duration = Duration::from_micros(1200);
const END_IO_SPREAD_PERMILLE: u32 = 2200;
/// The disk was throttled by QEMU with a bucket of a tenth of a second: at 40 MB/s, nine transfers
/// of 512 KiB passed at once.
const DISK_BURST: Duration = Duration::from_millis(100);
const MIX_TOUCH_TIME: Duration = Duration::from_micros(30);
/// Stores of a worker per time slice.
const SLICE_STORES: u64 = 133;
/// Read time of the mix's "fast disk", including the wait for a CPU.
const MIX_READ_TIME: Duration = Duration::from_micros(200);
/// Time without the CPU: about ten of the processes run, on two CPUs, for a tick of 4 ms each.
const MIX_AWAY: Duration = Duration::from_millis(16);
const MIX_PREEMPTION: Preemption = Preemption {
    slice: Duration::from_millis(4),
    away: Latency::Uniform { least: Duration::from_millis(4), most: Duration::from_millis(28) },
};
/// Interval at which a worker checks whether the others are done.
const BARRIER_LOOK: Duration = Duration::from_micros(500);
/// Pages of the buffer that is written repeatedly: 1 MiB, also the largest transfer.
const BUFFER_PAGES: u64 = 256;
/// Share of a limit, in thousandths, left for file and anonymous pages: 15,872 of 16,384, 31,896 of
/// 32,768.
const CAPACITY_PERMILLE: u64 = 972;
/// Largest limit that can be simulated, in pages.
pub const LIMIT_PAGES_MAX: u64 = (mglru_core::folio::MAX_FOLIOS / 2) as u64 / LIMITS;
/// Memory of the machine in limits, so that a single tenant never reaches the global dirty limits.
pub(super) const LIMITS: u64 = 16;

/// Result of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOutcome {
    /// Whether a charge failed, where the kernel would kill.
    pub killed: bool,
    /// Buffers written, or rounds.
    pub iterations: u64,
    /// End time.
    pub end: Time,
    /// Highest number of dirty pages.
    pub peak_dirty_pages: u64,
    /// Scanned file pages.
    pub scanned_pages: u64,
    /// Freed file pages.
    pub stolen_pages: u64,
}

/// Parameters of the dirty writer. Nothing pauses it without `memcg_dirty_limits`: a single memcg
/// stays below the limits of all memory.
#[derive(Clone, Copy, Debug)]
pub struct DirtyWriter {
    /// Limit of its memcg, in pages, at most [`LIMIT_PAGES_MAX`].
    pub limit_pages: u64,
    /// Amount to write, in pages.
    pub file_pages: u64,
    /// Speed to which the disk is throttled; 0 for none.
    pub disk_bytes_per_second: u64,
    /// Whether the cgroup's dirty pages are compared with its own limit.
    pub memcg_dirty_limits: bool,
    /// Whether the lab reads the memcg's statistics all the time. Otherwise the kernel collects
    /// them every 2 s.
    pub reads_statistics: bool,
    /// Whether its file is in large folios, as with ext4 since 6.16.
    pub large_folios: bool,
}

/// Parameters of the mix: readers of a file beside users of anonymous memory.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Limit of the memcg, in pages, at most [`LIMIT_PAGES_MAX`].
    pub limit_pages: u64,
    /// Processes that read the file repeatedly.
    pub readers: u32,
    /// Size of the file, in pages.
    pub file_pages: u32,
    /// Processes that store to memory of their own.
    pub workers: u32,
    /// Memory of all workers together, in pages.
    pub anon_pages: u32,
    /// Pause between two rounds of a worker.
    pub pause: Duration,
    /// Number of rounds.
    pub rounds: u64,
    /// Time limit.
    pub time_limit: Duration,
}

/// A machine on which only the limit matters.
fn machine(mechanisms: Mechanisms, seed: u64, limit_pages: u64) -> Machine {
    Machine {
        tenants: vec![Tenant::new("lab", limit_pages)],
        mechanisms,
        cpus: Machine::LAB_CPUS,
        device_cpu: 1,
        charge_batch_pages: mglru_core::memcg::CHARGE_BATCH_PAGES,
        batch_time: STEP_TIME,
        scan_time: SCAN_TIME,
        flusher: Some(FlusherModel::default()),
        writes: Writes::Overwrite,
        interleaving: Interleaving::Seeded,
        seed,
        ..Machine::new(u32::try_from(LIMITS * limit_pages).expect("at most `LIMIT_PAGES_MAX`"))
    }
}

impl DirtyWriter {
    /// Runs the load once.
    ///
    /// # Errors
    /// A bug in the simulator, or [`Error::Cancelled`].
    pub fn run(&self, mechanisms: Mechanisms, seed: u64, watch: &dyn Watch) -> Result<LoadOutcome, Error> {
        let limit_pages = self.limit_pages * CAPACITY_PERMILLE / 1000;
        let latency = Latency::Skewed { median: END_IO_TIME, spread_permille: END_IO_SPREAD_PERMILLE };
        let write = Lane {
            latency,
            bytes_per_second: match self.disk_bytes_per_second {
                0 => DISK_BYTES_PER_SECOND,
                throttled => throttled.min(DISK_BYTES_PER_SECOND),
            },
            burst: if self.disk_bytes_per_second == 0 { Duration::ZERO } else { DISK_BURST },
            depth: 8,
            in_order: true,
            failures_per_million: 0,
        };
        let machine = Machine {
            access_time: WRITE_TIME,
            batch_time: if self.large_folios { LARGE_FOLIO_STEP_TIME } else { STEP_TIME },
            sort_time: if self.large_folios { LARGE_FOLIO_SORT_TIME } else { Duration::ZERO },
            preemption: self.large_folios.then_some(WRITER_PREEMPTION),
            flusher: Some(FlusherModel {
                portion_pages: EXTENT_PAGES,
                transfer_pages: EXTENT_PAGES,
                ..FlusherModel::default()
            }),
            device: DeviceModel { read: Lane::IDEAL, write },
            memcg_dirty_limits: self.memcg_dirty_limits,
            late_dirty_counts: !self.reads_statistics,
            // A folio of the buffer's size is charged at once, and reclaim makes room for all of
            // it.
            grain: Grain {
                reclaim_pages: if self.large_folios { BUFFER_PAGES } else { Grain::KERNEL.reclaim_pages },
                ..Grain::KERNEL
            },
            // Large folios are moved one by one.
            flusher_start: Some(FLUSHER_START),
            drain_stalls: (!self.large_folios).then_some(DRAIN_STALLS),
            ..machine(mechanisms, seed, limit_pages)
        };
        let mut simulator = Simulator::new(&machine).map_err(Error::work)?;
        let buffer = (0..BUFFER_PAGES).map(|page| Access::store(page).anon());
        let file = (0..self.file_pages).map(Access::write);
        simulator.add_job(0, buffer.chain(file).map(Operation::from));
        let mut outcome = run(&mut simulator, None, watch)?;
        let written = simulator.accesses().saturating_sub(BUFFER_PAGES);
        outcome.iterations = written / BUFFER_PAGES;
        Ok(outcome)
    }
}

/// Runs until the end, a time limit or a failed charge.
fn run(simulator: &mut Simulator, until: Option<Time>, watch: &dyn Watch) -> Result<LoadOutcome, Error> {
    let lab = simulator.core().memcgs().find("lab").expect("the machine has this tenant");
    let count = |simulator: &Simulator, counter| simulator.core().memcg(lab).stat().get(counter);
    let (mut killed, mut peak_dirty_pages) = (false, 0);
    while !killed
        && until.is_none_or(|until| simulator.now() < until)
        && simulator.step().map_err(Error::work)?
    {
        watch.check()?;
        killed = count(simulator, Counter::EventOom) > 0;
        peak_dirty_pages = peak_dirty_pages.max(count(simulator, Counter::FileDirty));
    }
    Ok(LoadOutcome {
        killed,
        iterations: 0,
        end: simulator.now(),
        peak_dirty_pages,
        scanned_pages: count(simulator, Counter::PgscanFile),
        stolen_pages: count(simulator, Counter::PgstealFile),
    })
}

#[derive(Debug, Default)]
struct Progress {
    /// Stores of all workers together.
    filled: u64,
    workers: u64,
    rounds: u64,
    over: bool,
}

impl Mix {
    /// Runs the load once.
    ///
    /// # Errors
    /// A bug in the simulator, or [`Error::Cancelled`].
    pub fn run(&self, mechanisms: Mechanisms, seed: u64, watch: &dyn Watch) -> Result<LoadOutcome, Error> {
        let read = Lane {
            latency: Latency::Skewed { median: MIX_READ_TIME, spread_permille: 500 },
            depth: 128,
            ..Lane::IDEAL
        };
        let machine = Machine {
            access_time: MIX_TOUCH_TIME,
            preemption: Some(MIX_PREEMPTION),
            device: DeviceModel { read, write: Lane::IDEAL },
            ..machine(mechanisms, seed, self.limit_pages)
        };
        let mut simulator = Simulator::new(&machine).map_err(Error::work)?;
        let progress =
            Rc::new(RefCell::new(Progress { workers: u64::from(self.workers), ..Progress::default() }));
        let file_part = self.file_pages / self.readers;
        for reader in 0..self.readers {
            let first = u64::from(reader * file_part);
            let source = Reader { first, pages: file_part, pause: self.pause, progress: progress.clone() };
            simulator.add_job(0, source);
        }
        let part = self.anon_pages / self.workers;
        for worker in 0..self.workers {
            let first = u64::from(worker + 1) << 32;
            let target = self.rounds;
            let phase = Phase::Begin;
            simulator.add_job(
                0,
                Worker { first, pages: part, target, round: 0, phase, progress: progress.clone() },
            );
        }
        let mut outcome = run(&mut simulator, Some(Time::ZERO + self.time_limit), watch)?;
        outcome.iterations = progress.borrow().rounds;
        Ok(outcome)
    }
}

struct Reader {
    first: u64,
    pages: u32,
    pause: Duration,
    progress: Rc<RefCell<Progress>>,
}

impl Source for Reader {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        if self.progress.borrow().over {
            return Ok(());
        }
        batch.extend((0..self.pages).map(|page| Operation::from(Access::load(self.first + u64::from(page)))));
        batch.push(Operation::Rest { nanos: self.pause.as_nanos() as u64 });
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Fill,
    Wait,
}

struct Worker {
    first: u64,
    pages: u32,
    target: u64,
    round: u64,
    phase: Phase,
    progress: Rc<RefCell<Progress>>,
}

impl Source for Worker {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        let mut progress = self.progress.borrow_mut();
        if self.phase == Phase::Fill {
            self.phase = Phase::Wait;
            progress.filled += 1;
        }
        if self.phase == Phase::Wait {
            if progress.filled < (self.round + 1) * progress.workers {
                batch.push(Operation::Rest { nanos: BARRIER_LOOK.as_nanos() as u64 });
                return Ok(());
            }
            self.round += 1;
            progress.rounds = progress.rounds.max(self.round);
            progress.over |= self.round >= self.target;
            batch.push(Operation::Release { page: self.first, pages: self.pages });
            if progress.over {
                self.phase = Phase::Begin;
            }
        }
        if progress.over {
            return Ok(());
        }
        self.phase = Phase::Fill;
        for page in 0..u64::from(self.pages) {
            batch.push(Operation::from(Access::store(self.first + page).anon()));
            if page % SLICE_STORES == SLICE_STORES - 1 {
                batch.push(Operation::Rest { nanos: MIX_AWAY.as_nanos() as u64 });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;
    use mglru_core::{Lru, Preset};

    /// Three times the limit of 64 MiB, on a disk of 40 MB/s.
    const WRITER: DirtyWriter = DirtyWriter {
        limit_pages: 16_384,
        file_pages: 49_152,
        disk_bytes_per_second: 40_000_000,
        memcg_dirty_limits: false,
        reads_statistics: false,
        large_folios: true,
    };

    /// As kernels did in 13 of 13 runs (7.1) and none of 10: with limits of its memcg, a writer is
    /// paused in time if the counts of dirty pages are current. If they are late, it fills the
    /// memcg.
    #[test]
    fn late_counts_of_dirty_pages_let_a_writer_fill_its_memcg() {
        let run = |preset, reads_statistics| {
            let writer = DirtyWriter { memcg_dirty_limits: true, reads_statistics, ..WRITER };
            writer.run(Mechanisms::preset(preset), 1, &Unwatched).unwrap()
        };
        let read = run(Preset::Linux71, true);
        assert!(!read.killed && read.peak_dirty_pages < 5000, "{read:?}");
        assert!(run(Preset::Linux71, false).killed);
        let unread = run(Preset::Linux72, false);
        assert!(!unread.killed && unread.peak_dirty_pages > 15_000, "{unread:?}");
        let exact = run(Preset::Default, false);
        assert!(!exact.killed && exact.peak_dirty_pages < 5000, "{exact:?}");
    }

    /// As Linux 6.12 did in 14 of 30 runs with this limit: written pages that wait in the batch of
    /// another CPU bar the oldest generation. With large folios none wait.
    #[test]
    fn written_pages_in_a_batch_kill_a_writer_of_small_folios() {
        let run = |preset, large_folios| {
            DirtyWriter { large_folios, ..WRITER }.run(Mechanisms::preset(preset), 7, &Unwatched).unwrap()
        };
        let small = run(Preset::Linux612, false);
        assert!(small.killed && small.iterations < 192, "{small:?}");
        for (preset, large_folios) in [(Preset::Linux612, true), (Preset::Default, false)] {
            let other = run(preset, large_folios);
            assert!(!other.killed && other.iterations == 192, "{preset:?} {other:?}");
        }
    }

    /// As Linux 7.1 did in 9 of 41 runs, most of which died when their memcg was full for the first
    /// time: the efforts are over before the flusher has begun, and no page was ever freed.
    #[test]
    fn a_late_flusher_kills_a_writer_that_fills_its_memcg() {
        let writer = DirtyWriter { disk_bytes_per_second: 0, ..WRITER };
        let run = |preset, seed| writer.run(Mechanisms::preset(preset), seed, &Unwatched).unwrap();
        let late = run(Preset::Linux71, 3);
        assert!(late.killed && late.iterations == 61 && late.stolen_pages == 0, "{late:?}");
        let in_time = run(Preset::Linux71, 1);
        assert!(!in_time.killed && in_time.iterations == 192, "{in_time:?}");
        assert!(!run(Preset::Default, 3).killed);
    }

    /// As kernels did in 14 of 14 and 59 of 64 runs: a disk of up to 40 MB/s is slower than the
    /// efforts for a page, and one of 150 MB/s is not.
    #[test]
    fn a_writer_dies_where_the_disk_is_slower_than_its_efforts() {
        let kernel = Mechanisms::preset(Preset::Linux71).with_lru(Lru::MultiGen);
        let run = |megabytes: u64, seed| {
            let writer = DirtyWriter { disk_bytes_per_second: megabytes * 1_000_000, ..WRITER };
            writer.run(kernel, seed, &Unwatched).unwrap()
        };
        for seed in [2, 3] {
            let (slow, fast) = (run(40, seed), run(150, seed));
            assert!(slow.killed && slow.iterations < 64, "{slow:?}");
            assert!(!fast.killed && fast.iterations == 192, "{fast:?}");
        }
    }
}
