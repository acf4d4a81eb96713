//! Costs of a hit, a miss and a reclaimed page, each measured in the same run as the operating
//! system's equivalent: `cargo bench -p mglru-cache --bench hits`. Add `-- 1024` for a miss file of
//! 1,024 MiB; set `TMPDIR` to select the device.
//!
//! Every number is the median of samples of a few milliseconds each, with quartiles. The two sides
//! of a comparison alternate sample by sample, so that disturbances affect both.

use io_uring::{IoUring, opcode, types::Fd};
use mglru_cache::{Advice, MapAdvice, OpenMode, PageCache};
use mglru_core::reclaim::{Effort, EffortKind, Orders, Step};
use mglru_core::{Arrival, ChargeStep, Charging, Core, Kind, Options, PAGE_BYTES, Silent, Time};
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

const PAGE: usize = PAGE_BYTES as usize;
const SAMPLES: usize = 41;
/// Size of the hit file: larger than the processor's caches.
const HIT_PAGES: u64 = 32_768;

/// A page-aligned buffer, as O_DIRECT requires.
#[repr(align(4096))]
struct Aligned([u8; PAGE]);

/// Random positions.
fn positions(pages: u64, count: usize) -> Vec<u64> {
    let mut word = 7u64;
    (0..count)
        .map(|_| {
            word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (word >> 33) % pages * PAGE_BYTES
        })
        .collect()
}

/// Nanoseconds per operation, sorted.
struct Measured(Vec<f64>);

impl Measured {
    fn quartile(&self, quarters: usize) -> f64 {
        self.0[(self.0.len() - 1) * quarters / 4]
    }

    fn median(&self) -> f64 {
        self.quartile(2)
    }
}

/// A name, and a function that processes the offsets of one sample.
type Way<'a> = (&'a str, &'a mut dyn FnMut(&[u64]));

/// Measures several ways to do the same, alternating. Each gets the offsets of one sample.
fn measure<const N: usize>(pages: u64, operations: usize, mut ways: [Way<'_>; N]) -> [f64; N] {
    let positions = positions(pages, operations * SAMPLES);
    let mut measured = [const { Vec::new() }; N];
    for sample in positions.chunks(operations) {
        for (way, measured) in ways.iter_mut().zip(&mut measured) {
            let began = Instant::now();
            way.1(sample);
            measured.push(began.elapsed().as_nanos() as f64 / operations as f64);
        }
    }
    let measured = measured.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        Measured(samples)
    });
    for ((name, _), measured) in ways.iter().zip(&measured) {
        let [low, median, high] = [1, 2, 3].map(|quarters| measured.quartile(quarters));
        println!("  {name:<44} {median:>10.1} ns   ({low:.1} to {high:.1})");
    }
    measured.map(|measured| measured.median())
}

/// Runs a future on this thread, which sleeps while it is pending.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    thread_local! {
        static WAKER: Waker = Arc::new(Unpark(std::thread::current())).into();
    }
    WAKER.with(|waker| {
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    })
}

fn lay_out(path: &Path, pages: u64) {
    let mut file = File::create(path).unwrap();
    let mut block = vec![0u8; 1 << 20];
    for first in (0..pages).step_by(256) {
        for (index, page) in block.chunks_mut(PAGE).enumerate() {
            page.fill((first + index as u64) as u8);
        }
        file.write_all(&block).unwrap();
    }
    file.sync_all().unwrap();
}

fn hits(directory: &Path) {
    let path = directory.join("hits");
    lay_out(&path, HIT_PAGES);
    let cache = PageCache::builder(HIT_PAGES * PAGE_BYTES * 3 / 2).build().unwrap();
    let stats = cache.stats();
    println!(
        "hits: {} MiB in memory; backend {}, registered {}, huge pages {}",
        HIT_PAGES >> 8,
        stats.backend,
        stats.registered_buffers,
        stats.huge_pages
    );
    let file = cache.open(&path, OpenMode::ReadOnly).unwrap();
    let map = file.map().unwrap();
    map.advise(MapAdvice::Normal);
    let system = File::open(&path).unwrap();
    let mut buffer = vec![0; PAGE];
    for page in 0..HIT_PAGES {
        file.read_at(&mut buffer, page * PAGE_BYTES).unwrap();
        system.read_exact_at(&mut buffer, page * PAGE_BYTES).unwrap();
    }
    let mapped_bytes = (HIT_PAGES * PAGE_BYTES) as usize;
    // SAFETY: a new read-only mapping of a file that is not truncated while it lives.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            mapped_bytes,
            libc::PROT_READ,
            libc::MAP_SHARED,
            system.as_raw_fd(),
            0,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let memory = memory.cast::<u8>();
    for page in 0..HIT_PAGES as usize {
        // SAFETY: inside the mapping.
        black_box(unsafe { memory.add(page * PAGE).read_volatile() });
    }
    let (mut one, mut two, mut three) = (vec![0; PAGE], vec![0; PAGE], vec![0; PAGE]);
    let [ours, futures, theirs] = measure(
        HIT_PAGES,
        20_000,
        [
            ("read_at, 4 KiB, cached", &mut |sample| {
                for &offset in sample {
                    file.read_at(&mut one, offset).unwrap();
                    black_box(&one);
                }
            }),
            ("read_at_async, 4 KiB, cached", &mut |sample| {
                for &offset in sample {
                    block_on(file.read_at_async(&mut three, offset)).unwrap();
                    black_box(&three);
                }
            }),
            ("pread, 4 KiB, in the system's cache", &mut |sample| {
                for &offset in sample {
                    system.read_exact_at(&mut two, offset).unwrap();
                    black_box(&two);
                }
            }),
        ],
    );
    println!("  => read_at is {:.2} times as fast as pread", theirs / ours);
    println!("  => read_at_async takes {:.2} times as long as read_at\n", futures / ours);
    let [loads, guards, theirs] = measure(
        HIT_PAGES,
        20_000,
        [
            ("Map::load, 8 bytes, cached", &mut |sample| {
                let mut word = [0; 8];
                for &offset in sample {
                    map.load(offset + 64, &mut word).unwrap();
                    black_box(&word);
                }
            }),
            ("Map::page, and one word of it", &mut |sample| {
                for &offset in sample {
                    let guard = map.page((offset / PAGE_BYTES) as u32).unwrap();
                    black_box(guard[64]);
                }
            }),
            ("a load from the kernel's mmap", &mut |sample| {
                for &offset in sample {
                    // SAFETY: inside the mapping, and aligned.
                    black_box(unsafe { memory.add(offset as usize + 64).cast::<u64>().read_volatile() });
                }
            }),
        ],
    );
    println!(
        "  => a mapped load takes {:.2} times as long as the kernel's, a guard {:.2}\n",
        loads / theirs,
        guards / theirs
    );
    // SAFETY: the mapping made above, without remaining references.
    unsafe { libc::munmap(memory.cast(), mapped_bytes) };
}

/// Writes to pages in memory, of a size that a storage engine uses.
fn writes(directory: &Path) {
    const BYTES: usize = 256;
    let path = directory.join("writes");
    lay_out(&path, HIT_PAGES);
    // So much memory that nothing is written back meanwhile.
    let cache = PageCache::builder(HIT_PAGES * PAGE_BYTES * 16).build().unwrap();
    let file = cache.open(&path, OpenMode::ReadWrite).unwrap();
    let map = file.map().unwrap();
    let system = File::options().write(true).open(&path).unwrap();
    for page in 0..HIT_PAGES {
        file.write_at(&[1; BYTES], page * PAGE_BYTES).unwrap();
        system.write_all_at(&[1; BYTES], page * PAGE_BYTES).unwrap();
    }
    let write = |sample: &[u64]| {
        for &offset in sample {
            file.write_at(&[2; BYTES], offset + 1024).unwrap();
        }
    };
    println!("writes: {} MiB in memory", HIT_PAGES >> 8);
    let [ours, two_threads, _] = measure(
        HIT_PAGES,
        20_000,
        [
            ("write_at, 256 bytes, cached", &mut |sample| write(sample)),
            ("the same by two threads", &mut |sample| {
                let (first, second) = sample.split_at(sample.len() / 2);
                std::thread::scope(|scope| {
                    scope.spawn(|| write(first));
                    write(second);
                });
            }),
            ("Map::store, 8 bytes, cached", &mut |sample| {
                for &offset in sample {
                    map.store(offset + 64, &[3; 8]).unwrap();
                }
            }),
        ],
    );
    // Apart from the others, which it would drive out of the processor's caches.
    let [theirs] = measure(
        HIT_PAGES,
        20_000,
        [("pwrite, 256 bytes, in the system's cache", &mut |sample| {
            for &offset in sample {
                system.write_all_at(&[2; BYTES], offset + 1024).unwrap();
            }
        })],
    );
    println!("  => write_at is {:.2} times as fast as pwrite", theirs / ours);
    println!("  => two threads are {:.2} times as fast as one\n", ours / two_threads);
}

fn misses(directory: &Path, file_pages: u64) {
    let path = directory.join("misses");
    lay_out(&path, file_pages);
    let cache = PageCache::builder(16 << 20).build().unwrap();
    let file = cache.open(&path, OpenMode::ReadOnly).unwrap();
    file.advise(Advice::Random, 0..0).unwrap();
    let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let mut ring = IoUring::new(8).ok();
    println!(
        "misses: 4 KiB at random from {} MiB on {}, cache of 16 MiB, backend {}",
        file_pages >> 8,
        directory.display(),
        cache.stats().backend
    );
    let (mut one, mut two, mut three) = (vec![0; PAGE], Aligned([0; PAGE]), Aligned([0; PAGE]));
    let mut four = vec![0; PAGE];
    // The pages of a sample are in memory once the first way has read them.
    let far = |offset: u64| (offset + file_pages / 2 * PAGE_BYTES) % (file_pages * PAGE_BYTES);
    let [ours, futures, pread, uring] = measure(
        file_pages,
        1000,
        [
            ("read_at, missing", &mut |sample| {
                for &offset in sample {
                    file.read_at(&mut one, offset).unwrap();
                    assert_eq!(one[0], (offset / PAGE_BYTES) as u8);
                }
            }),
            ("read_at_async, missing, one at a time", &mut |sample| {
                for offset in sample.iter().map(|&offset| far(offset)) {
                    block_on(file.read_at_async(&mut four, offset)).unwrap();
                    assert_eq!(four[0], (offset / PAGE_BYTES) as u8);
                }
            }),
            ("pread with O_DIRECT", &mut |sample| {
                for &offset in sample {
                    direct.read_exact_at(&mut two.0, offset).unwrap();
                    assert_eq!(two.0[0], (offset / PAGE_BYTES) as u8);
                }
            }),
            ("io_uring with O_DIRECT, one at a time", &mut |sample| {
                let Some(ring) = &mut ring else { return };
                for &offset in sample {
                    let read = opcode::Read::new(Fd(direct.as_raw_fd()), three.0.as_mut_ptr(), PAGE as u32);
                    // SAFETY: buffer and file live until the answer, which is waited for here.
                    unsafe { ring.submission().push(&read.offset(offset).build()).unwrap() };
                    ring.submit_and_wait(1).unwrap();
                    assert_eq!(ring.completion().next().unwrap().result(), PAGE as i32);
                    assert_eq!(three.0[0], (offset / PAGE_BYTES) as u8);
                }
            }),
        ],
    );
    let tenant = cache.tenant("").unwrap().stats();
    println!("  ({} misses, {} hits among them)", tenant.misses, tenant.hits);
    println!(
        "  => misses go at {:.0} % of pread, {:.0} % of io_uring",
        100.0 * pread / ours,
        100.0 * uring / ours
    );
    println!("  => a miss by read_at_async takes {:.2} times as long as by read_at\n", futures / ours);
}

/// The core alone, on one thread: inserts pages, and reclaims them in one call.
fn reclaim() {
    const PAGES: u32 = 1 << 20;
    println!("reclaim: clean pages, the core alone, one thread");
    let (mut inserted, mut reclaimed) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let core = Core::new(Options::new(PAGES + PAGES / 8), Time::ZERO);
        let memcg = core.add_memcg("t", u64::from(PAGES), Time::ZERO).unwrap().id();
        let task = core.new_task(memcg, 0);
        let mapping = core.open_mapping(Kind::File);
        let began = Instant::now();
        for index in 0..PAGES {
            let mut charging = Charging::new(memcg, 0);
            let new = loop {
                match charging.step(&core, &Silent) {
                    ChargeStep::Charged(new) => break new,
                    ChargeStep::More => {}
                    other => panic!("{other:?}"),
                }
            };
            let folio = core.insert(&Silent, &task, &mapping, index, new, Arrival::default()).unwrap();
            core.publish(&Silent, &mapping, folio);
        }
        inserted.push(began.elapsed().as_nanos() as f64 / f64::from(PAGES));
        let orders =
            Orders::new(memcg, EffortKind::Proactive, u64::from(PAGES) / 2, core.options().swappiness, 0);
        let began = Instant::now();
        let mut effort = Effort::new(&core, orders);
        let progress = loop {
            if let Step::Done(progress) = effort.step(&core, &Silent) {
                break progress;
            }
        };
        reclaimed.push(began.elapsed().as_nanos() as f64 / progress.reclaimed as f64);
    }
    for (name, mut samples) in
        [("a page is charged and inserted", inserted), ("a page is reclaimed", reclaimed)]
    {
        samples.sort_by(f64::total_cmp);
        let (low, median, high) = (samples[0], samples[samples.len() / 2], samples[samples.len() - 1]);
        println!(
            "  {name:<44} {median:>10.1} ns   ({low:.1} to {high:.1})  {:.2} million a second",
            1000.0 / median
        );
    }
}

fn main() {
    // Cargo passes `--bench`; a number is the size of the miss file in MiB.
    let megabytes = std::env::args().find_map(|argument| argument.parse::<u64>().ok()).unwrap_or(512);
    let directory = tempfile::tempdir().unwrap();
    hits(directory.path());
    writes(directory.path());
    misses(directory.path(), megabytes << 8);
    reclaim();
}
