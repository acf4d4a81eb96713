//! Resident memory stays within the budget, whatever is done for however long: what the system
//! counts for this process, not what the cache says about itself. One test in a process of its own.

mod common;

use common::{Disk, PAGE, Random};
use mglru_cache::{Advice, AnonRegion, CachedFile, Limits, OpenMode, Swap};
use std::fs;

/// Allowance for memory outside the budget: the buffers and stacks of this process, the allocator's
/// own, and the system's memory for files.
const BESIDE_BYTES: u64 = 8 << 20;
const BUDGET_BYTES: u64 = 48 << 20;
const STEPS: u64 = 24_000;

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

/// A sparse file of 64 GiB, anonymous memory with compressed swap, tenants and files that come and
/// go.
#[test]
fn resident_memory_stays_within_the_budget() {
    let disk = Disk::uring();
    let len = 64u64 << 30;
    fs::File::create(disk.path("sparse")).unwrap().set_len(len).unwrap();
    let before = resident_bytes();
    let builder = disk.builder(BUDGET_BYTES).swap(Swap::compressed(12 << 20)).tenant("t", 24 << 20);
    let cache = builder.build().unwrap();
    let mut random = Random(20);
    let mut buffer = vec![0; 64 * PAGE];
    let pages = 12_000;
    let region: AnonRegion = cache.tenant("t").unwrap().anonymous(pages * PAGE as u64).unwrap();
    let open = |name: &str| cache.open(&disk.path(name), OpenMode::Create).unwrap();
    let mut sparse = open("sparse");
    sparse.advise(Advice::Random, 0..0).unwrap();
    let mut handles: Vec<CachedFile> = Vec::new();
    let mut most = 0;
    for step in 0..STEPS {
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
                handles.push(file);
                if handles.len() == 100 {
                    handles.clear();
                }
            }
            14 => {
                let name = format!("tenant{step}");
                let tenant = cache.add_tenant(&name, &Limits::max(1 << 20)).unwrap();
                let file = tenant.open(&disk.path("sparse"), OpenMode::ReadOnly).unwrap();
                file.read_at(&mut buffer[..8], random.below(len - 8)).unwrap();
                drop((file, tenant));
                cache.remove_tenant(&name).unwrap();
            }
            _ if random.one_in(100) => {
                drop(sparse);
                sparse = open("sparse");
                sparse.advise(Advice::Random, 0..0).unwrap();
            }
            _ => sparse.write_at(&[1], random.below(1 << 30)).map(|_| ()).unwrap(),
        }
        if step % 500 == 0 {
            most = most.max(resident_bytes() - before);
            let stats = cache.stats();
            assert!(most <= BUDGET_BYTES + BESIDE_BYTES, "step {step}: {most} bytes, {stats:?}");
        }
    }
    println!("{} KiB of {} KiB", most >> 10, BUDGET_BYTES >> 10);
    // It was full, or the test shows nothing.
    assert!(most > BUDGET_BYTES / 2, "{most} bytes");
    cache.validate().unwrap();
}
