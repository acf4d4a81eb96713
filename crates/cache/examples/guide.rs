//! The code of the guide, docs/cache.md, and of docs/tenants.md as a program.
//! `tests/suite/guide.rs` runs it and compares it with the guides line by line.

use mglru_cache::{
    Advice, DiskTier, Error, Event, FileSource, GenerationRow, Limits, Mechanisms, OomPolicy, OpenMode,
    PageCache, Preset, ReadRequest, Swap, Swappiness,
};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("mglru-guide-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let done = run(&directory);
    std::fs::remove_dir_all(&directory)?;
    Ok(done?)
}

/// Runs everything, with files in `directory`.
pub fn run(directory: &Path) -> Result<(), Error> {
    begin(&directory.join("table.db"))?;
    many(&directory.join("table.db"))?;
    futures(&directory.join("table.db"))?;
    change_outside(&directory.join("table.db"))?;
    ranges(&directory.join("table.db"))?;
    disk(directory)?;
    choose(&directory.join("table.db"))?;
    fail(&directory.join("table.db"))?;
    tenants(&directory.join("cart.db"))?;
    kill()
}

fn begin(path: &Path) -> Result<(), Error> {
    let cache = PageCache::builder(64 << 20).build()?; // budget in bytes
    let file = cache.open(path, OpenMode::Create)?;
    file.write_at(b"hello", 8192)?; // in memory
    file.sync_data()?; // on stable storage
    let mut page = [0; 4096];
    let bytes = file.read_at(&mut page, 8192)?; // short only at the end of the file
    assert_eq!(&page[..bytes], b"hello");

    let map = file.map()?;
    let guard = map.page(2)?; // borrows the page, no copy
    assert_eq!(&guard[..], b"hello");
    drop(guard);
    cache.close()?; // drop also writes everything, but ignores errors
    Ok(())
}

fn many(path: &Path) -> Result<(), Error> {
    let cache = PageCache::builder(64 << 20).build()?;
    let file = cache.open(path, OpenMode::ReadWrite)?;
    file.truncate(4 << 20)?;
    let map = file.map()?;
    let largest = map.read_page(0, |page| {
        (0..512).filter_map(|n| page.load_value::<u64>(8 * n)).max() // None: beyond the end of the file
    })?;
    println!("the largest word of page 0 is {largest:?}");

    let mut buffers = vec![[0; 4096]; 100];
    let page = |(index, buffer)| ReadRequest { offset: index as u64 * 40_960, buffer, read: 0 };
    let mut requests: Vec<_> =
        buffers.iter_mut().map(|buffer| &mut buffer[..]).enumerate().map(page).collect();
    file.read_many(&mut requests)?; // reads missing pages, 32 at a time

    let mut words = [[0; 8]; 3];
    file.map()?.load_many(&[0, 70_000, 1_000_000], &mut words)?; // cache misses overlap

    file.advise(Advice::WillNeed, 0..1 << 20)?; // starts reading
    file.advise(Advice::DontNeed, 1 << 20..4 << 20)?; // drops pages after a scan

    std::thread::scope(|scope| -> Result<(), Error> {
        for part in 0..4 {
            let file = file.try_clone()?; // a handle per thread
            scope.spawn(move || file.read_at(&mut [0; 4096], part << 20));
        }
        Ok(())
    })?;
    Ok(())
}

/// A runtime of one thread, in place of yours.
struct Runtime;

impl Runtime {
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut future = std::pin::pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

fn futures(path: &Path) -> Result<(), Error> {
    let cache = PageCache::builder(64 << 20).build()?;
    let file = cache.open(path, OpenMode::ReadWrite)?;
    let runtime = Runtime;
    let (mut head, mut tail) = ([0; 100], [0; 100]);
    let reads = async {
        file.read_at_async(&mut head, 0).await?;
        file.read_at_async(&mut tail, 8192).await
    };
    assert_eq!(runtime.block_on(reads)?, 100);
    Ok(())
}

fn change_outside(path: &Path) -> Result<(), Error> {
    let cache = PageCache::builder(64 << 20).build()?;
    let file = cache.open(path, OpenMode::ReadWrite)?;
    drop(file); // last handle: the cache writes dirty pages and forgets the file
    let file = cache.open(path, OpenMode::ReadWrite)?; // sees changes by other processes
    assert_eq!(file.len(), 4 << 20);
    Ok(())
}

fn ranges(path: &Path) -> Result<(), Error> {
    let cache = PageCache::builder(64 << 20).build()?;
    let file = cache.open(path, OpenMode::ReadWrite)?;
    let warm = file.lock(0..64 << 10)?; // reads what is missing; reclaim never takes it
    assert_eq!(file.pages_in(0..64 << 10).cached, 16);
    let left = file.evict(0..4 << 20)?; // writes dirty pages, then drops all that are not locked
    assert_eq!(left, 16);
    drop(warm);

    let source = Arc::new(FileSource::open(path).expect("it exists"));
    let object = cache.open_source(source, OpenMode::ReadOnly)?;
    object.read_exact_at(&mut [0; 100], 8192)?;
    Ok(())
}

fn disk(directory: &Path) -> Result<(), Error> {
    let tier = DiskTier::new(directory.join("tier"), 64 << 20); // the file, and its size in bytes
    let cache = PageCache::builder(12 << 20).disk_tier(tier).build()?;
    let tier = cache.stats().disk_tier.expect("it was just added");
    println!("{} of {} slots were filled by an earlier run", tier.found_slots, tier.slots);
    cache.close()
}

fn choose(path: &Path) -> Result<(), Error> {
    let cache = PageCache::builder(64 << 20)
        .mechanisms(Mechanisms::preset(Preset::Linux72)) // default: the recommended set
        .swap(Swap::compressed(8 << 20)) // for cold anonymous memory
        .swappiness(Swappiness::new(100).expect("0 to 201")) // default: 60
        .observer(|event| {
            if let Event::Evicted { page: (file, index), .. } = event {
                println!("page {index} of {file:?} went");
            }
        })
        .build()?;
    if let Some(why) = cache.stats().why_not_uring {
        println!("threads instead of io_uring: {why}");
    }
    cache.open(path, OpenMode::ReadOnly)?.read_at(&mut [0; 4096], 0)?;
    let root = cache.tenant("")?.stats();
    println!("{} hits, {} misses", root.hits, root.misses);
    println!("{:?} came back soon after they went", root.counter("workingset_refault_file"));
    for GenerationRow { seq, age_ms, file_pages, .. } in root.generations {
        println!("generation {seq}: {file_pages} pages, {age_ms} ms old");
    }
    Ok(())
}

fn fail(path: &Path) -> Result<(), Error> {
    let cache = PageCache::builder(64 << 20).build()?;
    let file = cache.open(path, OpenMode::ReadWrite)?;
    match file.write_at(b"more", 0).and_then(|_| file.sync_data()) {
        Ok(()) => {}
        // Nothing is lost: make room on the device, and sync again.
        Err(Error::WriteBack { path, source }) => eprintln!("{}: {source}", path.display()),
        // The report says what holds memory: drop guards or anonymous memory, or raise the limit.
        Err(Error::OutOfMemory(report)) => eprintln!("{report}"),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn tenants(path: &Path) -> Result<(), Error> {
    let cache = PageCache::builder(256 << 20).tenant("web", 128 << 20).build()?;
    let cart = cache.add_tenant("web/cart", &Limits::max(64 << 20).with_low(16 << 20))?;
    let file = cart.open(path, OpenMode::Create)?;
    file.write_at(&vec![7; 4 << 20], 0)?;
    file.sync_data()?;

    cart.set_high(Some(48 << 20))?; // reclaims the excess
    cache.control().write("web/memory.reclaim", "1M swappiness=0")?; // fails if it reclaims less
    print!("{}", cache.control().read("web/memory.stat")?);

    drop(file);
    cache.remove_tenant("web/cart")?;
    Ok(())
}

fn kill() -> Result<(), Error> {
    let cache =
        PageCache::builder(64 << 20).oom_policy(OomPolicy::Victim).tenant("jobs", 32 << 20).build()?;
    // … later:
    if let Some(report) = cache.tenant("jobs")?.killed() {
        eprintln!("{report}");
        cache.tenant("jobs")?.revive();
    }
    Ok(())
}
