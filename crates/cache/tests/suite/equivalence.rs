//! The cache and the simulator evict the same pages in the same order on the same trace, because
//! they run the same core.
//!
//! With one thread, one tenant far smaller than the budget, clean pages and without readahead, the
//! cache is deterministic, too.

use crate::common::{Disk, PAGE, Random};
use mglru_cache::{Advice, CachedFile, Map, OpenMode};
use mglru_core::{Event, Lru, MappingId, Mechanisms, Preset, Switch};
use mglru_sim::{Access, Machine, Operation, Simulator};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Whole page tables, as the simulator maps them.
const FILE_PAGES: u64 = 1024;
const FILES: u64 = 3;

/// A page's name in the simulator: the file is in the high half.
fn name(file: u64, index: u64) -> u64 {
    file << 32 | index
}

fn parts(page: u64) -> (usize, u64) {
    ((page >> 32) as usize, page & 0xffff_ffff)
}

/// A trace with skewed, looping and random parts, through both channels, with advice in between.
fn trace(seed: u64) -> Vec<Operation> {
    let mut random = Random(seed);
    // Both sides first map each file to its end and number files in this order.
    let mut trace: Vec<Operation> =
        (0..FILES).map(|file| Access::load(name(file, FILE_PAGES - 1)).into()).collect();
    let mapped_one_in = [1, 2, 3, u64::MAX][random.below(4) as usize];
    while trace.len() < 20_000 {
        let file = random.below(FILES);
        let index = match random.below(4) {
            // A few pages frequently.
            0 | 1 => random.below(FILE_PAGES / 2).min(random.below(FILE_PAGES)).min(random.below(FILE_PAGES)),
            // A scan.
            2 => trace.len() as u64 / 4 % FILE_PAGES,
            _ => random.below(FILE_PAGES),
        };
        let page = name(file, index);
        if random.one_in(500) {
            let pages = random.below(50).min(FILE_PAGES - index) as u32;
            trace.push(Operation::Discard { page, pages });
        } else if random.one_in(mapped_one_in) {
            trace.push(Access::load(page).into());
        } else {
            trace.push(Access::read(page).into());
        }
    }
    trace
}

/// Evicted pages and early refaults, in order.
#[derive(Default)]
struct Log {
    files: BTreeMap<MappingId, usize>,
    events: Vec<String>,
}

impl Log {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Inserted { page: (mapping, _), .. } => {
                let next = self.files.len();
                self.files.entry(*mapping).or_insert(next);
            }
            Event::Evicted { page: (mapping, index), shadow, .. } => {
                self.events.push(format!("file {} page {index} leaves {shadow:?}", self.files[mapping]));
            }
            Event::Refault { shadow, recent, .. } => self.events.push(format!("back: {shadow:?} {recent}")),
            Event::Aged { max_seq, .. } => self.events.push(format!("generation {max_seq}")),
            _ => {}
        }
    }
}

fn in_the_cache(trace: &[Operation], limit_pages: u64, mechanisms: Mechanisms, disk: &Disk) -> Vec<String> {
    let log = Arc::new(Mutex::new(Log::default()));
    let for_observer = log.clone();
    let cache = disk
        .builder(32 << 20)
        .mechanisms(mechanisms)
        .tenant("t", limit_pages * PAGE as u64)
        .observer(move |event| for_observer.lock().unwrap().note(&event))
        .build()
        .unwrap();
    let tenant = cache.tenant("t").unwrap();
    let files: Vec<(CachedFile, Map)> = (0..FILES)
        .map(|file| {
            // The simulator keeps no files and handles: the root pays for ours.
            let mut file = cache.open(disk.path(&format!("f{file}")), OpenMode::ReadOnly).unwrap();
            file.advise(Advice::Random, 0..0).unwrap();
            let mut map = file.map().unwrap();
            file.move_to(&tenant).unwrap();
            map.move_to(&tenant).unwrap();
            (file, map)
        })
        .collect();
    let mut word = [0; 8];
    for operation in trace {
        match *operation {
            Operation::Access(access) => {
                let (file, index) = parts(access.page);
                let offset = index * PAGE as u64;
                if access.mapped {
                    files[file].1.load(offset, &mut word).unwrap();
                } else {
                    files[file].0.read_at(&mut word, offset).unwrap();
                }
                assert_eq!(word, [file as u8 + 1; 8]);
            }
            Operation::Discard { page, pages } => {
                let (file, index) = parts(page);
                let end = index + u64::from(pages);
                files[file].0.advise(Advice::DontNeed, index * PAGE as u64..end * PAGE as u64).unwrap();
            }
            _ => unreachable!("not in our traces"),
        }
    }
    drop(files);
    cache.validate().unwrap();
    drop(cache);
    std::mem::take(&mut log.lock().unwrap().events)
}

fn in_the_simulator(trace: &[Operation], limit_pages: u64, mechanisms: Mechanisms) -> Vec<String> {
    // The index counts against the limit, as in the cache.
    let machine = Machine {
        count_repeats: false,
        charge_metadata: true,
        mechanisms,
        ..Machine::ideal(limit_pages, 31)
    };
    let mut simulator = Simulator::new(&machine).unwrap();
    let log = Arc::new(Mutex::new(Log::default()));
    let for_observer = log.clone();
    simulator.observe(move |_, event: &Event| for_observer.lock().unwrap().note(event));
    #[expect(clippy::unnecessary_to_owned, reason = "the job owns its trace")]
    simulator.add_job(0, trace.to_vec().into_iter());
    simulator.run().unwrap();
    std::mem::take(&mut log.lock().unwrap().events)
}

#[test]
fn cache_and_simulator_evict_the_same_pages() {
    for seed in 0..12 {
        let lru = if seed < 6 { Lru::MultiGen } else { Lru::Classic };
        let mechanisms = Mechanisms::default().with_lru(lru);
        // [book: published-experiments#checks], E1: "identical eviction order with and without PF
        // for the same trace". Only the cache prefetches.
        let unfetched = Mechanisms::compose(Preset::Default, &[], &[Switch::Prefetch]).unwrap().with_lru(lru);
        let disk = [Disk::uring, Disk::threads, || crate::common::memory(0).0][seed as usize % 3]();
        for file in 0..FILES {
            disk.set(&format!("f{file}"), &vec![file as u8 + 1; FILE_PAGES as usize * PAGE]);
        }
        let limit_pages = [200, 500, 1000][seed as usize % 3];
        let trace = trace(seed);
        let simulated = in_the_simulator(&trace, limit_pages, unfetched);
        let cached = in_the_cache(&trace, limit_pages, mechanisms, &disk);
        assert!(simulated.len() > 3000, "{} events", simulated.len());
        let differs = simulated.iter().zip(&cached).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let around = at.saturating_sub(3)..at + 3;
            panic!(
                "seed {seed}, event {at}: simulated {:#?}, cached {:#?}",
                simulated.get(around.clone()),
                cached.get(around)
            );
        }
        assert_eq!(simulated.len(), cached.len());
    }
}
