//! Resident memory stays within the budget, whatever is done for however long: what the system
//! counts for this process, not what the cache says about itself. One test in a process of its own.
//!
//! With `MGLRU_SOAK_MINUTES` (`make soak`) the cache is larger, two threads read pages in memory
//! meanwhile, and a line per minute has memory, descriptors, threads and the latency of hits.

mod common;

use common::{Disk, PAGE, Random};
use mglru_cache::{Advice, AnonRegion, CachedFile, Limits, OpenMode, Swap};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Allowance for memory outside the budget: the buffers and stacks of this process, the allocator's
/// own, and the system's memory for files.
const BESIDE_BYTES: u64 = 8 << 20;
/// Interval of the lines of a soak.
const LINE: Duration = Duration::from_secs(60);
/// Pages that are read again and again during a soak.
const HOT_PAGES: u64 = 256;

/// Size and length of a run.
struct Plan {
    budget_bytes: u64,
    sparse_bytes: u64,
    handles: usize,
    steps: u64,
    until: Option<Instant>,
}

impl Plan {
    fn new() -> Plan {
        let minutes = std::env::var("MGLRU_SOAK_MINUTES").ok().map(|text| text.parse::<u64>().unwrap());
        match minutes {
            None => Plan {
                budget_bytes: 48 << 20,
                sparse_bytes: 64 << 30,
                handles: 100,
                steps: 24_000,
                until: None,
            },
            Some(minutes) => Plan {
                // Handles pay with frames that no ring has registered, a quarter of all.
                budget_bytes: 1 << 30,
                sparse_bytes: 1 << 40,
                handles: 100_000,
                steps: u64::MAX,
                until: Some(Instant::now() + Duration::from_secs(60 * minutes)),
            },
        }
    }

    fn goes_on(&self, step: u64) -> bool {
        step < self.steps && self.until.is_none_or(|until| Instant::now() < until)
    }
}

/// Ends the readers when it is dropped, also where a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Latencies of hits since the last line, in nanoseconds.
#[derive(Default)]
struct Hits(Mutex<Vec<u32>>);

impl Hits {
    /// Reads pages in memory until `over`, and times every 64th read.
    fn read(&self, file: &CachedFile, seed: u64, over: &AtomicBool) {
        let (mut random, mut word) = (Random(seed), [0; 8]);
        while !over.load(Relaxed) {
            let mut timed = Vec::new();
            for _ in 0..256 {
                for _ in 0..63 {
                    file.read_at(&mut word, random.below(HOT_PAGES) * PAGE as u64).unwrap();
                }
                let began = Instant::now();
                file.read_at(&mut word, random.below(HOT_PAGES) * PAGE as u64).unwrap();
                timed.push(u32::try_from(began.elapsed().as_nanos()).unwrap_or(u32::MAX));
            }
            self.0.lock().unwrap().extend(timed);
        }
    }

    /// The median and the 99.9th percentile.
    fn take(&self) -> [u32; 2] {
        let mut timed = std::mem::take(&mut *self.0.lock().unwrap());
        timed.sort_unstable();
        let last = timed.len().saturating_sub(1);
        [last / 2, last * 999 / 1000].map(|at| timed.get(at).copied().unwrap_or(0))
    }
}

/// Descriptors of this process, and its threads without those that the kernel starts and ends for
/// io_uring.
fn descriptors_and_threads() -> [usize; 2] {
    let threads = fs::read_dir("/proc/self/task").unwrap().filter(|thread| {
        let name = fs::read_to_string(thread.as_ref().unwrap().path().join("comm"));
        name.is_ok_and(|name| !name.starts_with("iou-"))
    });
    [fs::read_dir("/proc/self/fd").unwrap().count(), threads.count()]
}

fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE as u64
}

/// A page of which a share is random, so that pages compress to all sizes.
fn bytes(random: &mut Random) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    let noise = random.below(PAGE as u64) as usize;
    for chunk in page[..noise].chunks_mut(8) {
        chunk.copy_from_slice(&random.word().to_ne_bytes()[..chunk.len()]);
    }
    page
}

/// A sparse file, anonymous memory with compressed swap, tenants, handles and files that come and
/// go.
#[test]
fn resident_memory_stays_within_the_budget() {
    let (plan, disk) = (Plan::new(), Disk::uring());
    let len = plan.sparse_bytes;
    fs::File::create(disk.path("sparse")).unwrap().set_len(len).unwrap();
    let before = resident_bytes();
    let builder = disk.builder(plan.budget_bytes).swap(Swap::compressed(12 << 20)).tenant("t", 24 << 20);
    // The hot pages stay in memory, whatever else goes on.
    let hot = Limits::default().with_min(2 * HOT_PAGES * PAGE as u64);
    let cache = builder.tenant_with("hot", hot).build().unwrap();
    let mut random = Random(20);
    let mut buffer = vec![0; 64 * PAGE];
    let pages = 12_000;
    let region: AnonRegion = cache.tenant("t").unwrap().anonymous(pages * PAGE as u64).unwrap();
    let open = |name: &str| cache.open(disk.path(name), OpenMode::Create).unwrap();
    let mut sparse = open("sparse");
    sparse.advise(Advice::Random, 0..0).unwrap();
    let hot = cache.tenant("hot").unwrap().open(disk.path("hot"), OpenMode::Create).unwrap();
    hot.write_at(&vec![1; HOT_PAGES as usize * PAGE], 0).unwrap();
    let (mut handles, mut most): (Vec<CachedFile>, u64) = (Vec::new(), 0);
    let (hits, over, mut line_at, began) = (Hits::default(), AtomicBool::new(false), LINE, Instant::now());
    let mut lines: Vec<[usize; 2]> = Vec::new();
    std::thread::scope(|scope| {
        if plan.until.is_some() {
            println!("minute, resident KiB, descriptors, threads, hits: median and 99.9 % in ns, handles");
            let (hits, over) = (&hits, &over);
            for seed in 0..2 {
                let hot = hot.try_clone().unwrap();
                scope.spawn(move || hits.read(&hot, seed, over));
            }
        }
        let _over = Over(&over);
        let mut step = 0;
        while plan.goes_on(step) {
            match random.below(16) {
                0..6 => {
                    let offset = random.below(len / PAGE as u64) * PAGE as u64;
                    sparse.read_at(&mut buffer[..8], offset).unwrap();
                }
                6 => _ = sparse.read_at(&mut buffer, random.below(len - (1 << 20))).unwrap(),
                // Not more than fit: cold ones are compressed.
                7..12 => region.store(random.below(4000) * PAGE as u64, &bytes(&mut random)).unwrap(),
                12 => {
                    let first = random.below(pages - 200) * PAGE as u64;
                    region.discard(first..first + 200 * PAGE as u64).unwrap();
                }
                13 => {
                    let file = open(&format!("f{}", random.below(200)));
                    file.write_at(&bytes(&mut random), 0).unwrap();
                    let clones = (plan.handles / 100 - 1).min(plan.handles - handles.len());
                    handles.extend((1..clones).map(|_| file.try_clone().unwrap()));
                    handles.push(file);
                    if handles.len() >= plan.handles {
                        handles.clear();
                    }
                }
                14 => {
                    let name = format!("tenant{step}");
                    let tenant = cache.add_tenant(&name, &Limits::max(1 << 20)).unwrap();
                    let file = tenant.open(disk.path("sparse"), OpenMode::ReadOnly).unwrap();
                    file.read_at(&mut buffer[..8], random.below(len - 8)).unwrap();
                    drop((file, tenant));
                    cache.remove_tenant(&name).unwrap();
                }
                _ if random.one_in(100) => {
                    drop(std::mem::replace(&mut sparse, open("empty")));
                    sparse = open("sparse");
                    sparse.advise(Advice::Random, 0..0).unwrap();
                }
                _ => sparse.write_at(&[1], random.below(1 << 30)).map(|_| ()).unwrap(),
            }
            if step % 500 == 0 {
                most = most.max(resident_bytes() - before);
                let stats = cache.stats();
                assert!(most <= plan.budget_bytes + BESIDE_BYTES, "step {step}: {most} bytes, {stats:?}");
            }
            if began.elapsed() >= line_at {
                let ([median, slow], [descriptors, threads]) = (hits.take(), descriptors_and_threads());
                let (minute, kib) = (line_at.as_secs() / 60, (resident_bytes() - before) >> 10);
                println!("{minute}, {kib}, {descriptors}, {threads}, {median}, {slow}, {}", handles.len());
                lines.push([descriptors, threads]);
                line_at += LINE;
            }
            step += 1;
        }
    });
    println!("{} KiB of {} KiB", most >> 10, plan.budget_bytes >> 10);
    // It was full, or the test shows nothing.
    assert!(most > plan.budget_bytes / 2, "{most} bytes");
    for [descriptors, threads] in &lines {
        // At most 200 files, each opened for reading and for writing.
        assert!(*descriptors < lines[0][0] + 400 && *threads == lines[0][1], "{lines:?}");
    }
    drop(handles);
    cache.validate().unwrap();
}
