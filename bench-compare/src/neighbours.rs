//! Cost of a hit under interference: while another tenant thrashes, and while background reclaim
//! runs.

use crate::Failure;
use crate::file::{DataFile, PAGE_BYTES, uniform_pages};
use crate::hits::{load, read};
use crate::measure::{Effort, Figures, Way, beside, cpu_time, sample};
use crate::memory::Region;
use mglru_cache::{Advice, CachedFile, Lru, Mechanisms, OpenMode, PageCache, Preset, Tenant};
use rustix::fs::OFlags;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;
use std::time::{Duration, Instant};

/// Number of hit pages. Each is used often enough to stay hot.
const HOT_PAGES: u64 = 8192;
const HOT_BYTES: u64 = HOT_PAGES * PAGE_BYTES;
const OFFSETS: usize = 1 << 20;
/// Run time of the interference before the measurement.
const LEAD: Duration = Duration::from_millis(50);

/// Throughput of one tenant's descriptor hits: alone; while another tenant on one thread reads more
/// than its limit at random; and, to isolate the machine's share of the slowdown, while a thread
/// performs the same reads without any cache.
///
/// # Errors
/// The file cannot be opened.
pub fn tenants(data: &DataFile, effort: Effort, notes: &mut Vec<String>) -> Result<Vec<Figures>, Failure> {
    let cache = PageCache::builder(6 * HOT_BYTES)
        .tenant("steady", 2 * HOT_BYTES)
        .tenant("thrashing", HOT_BYTES)
        .build()?;
    let steady = cache.tenant("steady")?;
    let file = steady.open(data.path(), OpenMode::ReadOnly)?;
    let thrashing = cache.tenant("thrashing")?.open(data.path(), OpenMode::ReadOnly)?;
    thrashing.advise(Advice::Random, 0..0)?;
    (0..HOT_PAGES).for_each(|page| assert_eq!(read(&file, page * PAGE_BYTES), page * PAGE_BYTES));
    let hot = uniform_pages(HOT_PAGES, OFFSETS);
    // The thrashing tenant does not touch the other's pages.
    let mut cold: Vec<u64> = uniform_pages(data.bytes() / PAGE_BYTES, OFFSETS);
    cold.retain(|&offset| offset >= HOT_BYTES);
    let mut cold = cold.into_iter().cycle();
    let mut next_cold = || cold.next().expect("a cycle does not end");
    let direct = DirectFile::open(data)?;
    let missed_before = steady.stats().misses;
    let way = Way::new("tenant_hit", |offset| read(&file, offset));
    let [mut alone, mut beside_thrashing, mut beside_direct] = [const { Vec::new() }; 3];
    let measure = || {
        thread::sleep(LEAD);
        sample(&way, 1, &hot, 0, effort.long_sample)
    };
    let mut buffer = DirectFile::buffer();
    for _ in 0..effort.long_rounds {
        alone.push(measure());
        beside_thrashing.push(beside(|| _ = read(&thrashing, next_cold()), measure));
        beside_direct.push(beside(|| direct.read(&mut buffer, next_cold()), measure));
    }
    note_misses(&steady, missed_before, "the steady tenant", notes);
    Ok(vec![
        Figures::new("tenant_hit_alone", 1, alone),
        Figures::new("tenant_hit_beside_thrashing", 1, beside_thrashing),
        Figures::new("tenant_hit_beside_direct_reads", 1, beside_direct),
    ])
}

/// The file, read without the kernel's cache if its file system supports that.
struct DirectFile(File);

impl DirectFile {
    fn open(data: &DataFile) -> Result<DirectFile, Failure> {
        let open =
            |flags: OFlags| File::options().read(true).custom_flags(flags.bits() as i32).open(data.path());
        let file = open(OFlags::DIRECT).or_else(|_| open(OFlags::empty()));
        let path = data.path().display();
        Ok(DirectFile(file.map_err(|error| format!("{path} cannot be opened: {error}"))?))
    }

    /// Memory that contains an aligned page.
    fn buffer() -> Vec<u8> {
        vec![0; 2 * PAGE_BYTES as usize]
    }

    fn read(&self, buffer: &mut [u8], offset: u64) {
        let aligned = buffer.as_ptr().align_offset(PAGE_BYTES as usize);
        let page = &mut buffer[aligned..aligned + PAGE_BYTES as usize];
        self.0.read_exact_at(page, offset).expect("a page of the file can be read");
    }
}

/// The median of individually timed mapped hits, and the 99.9th percentile while another tenant
/// reads the file sequentially and keeps background reclaim busy. The latter is left out, and
/// `failures` says so, if it would be the time of a miss. To isolate the machine's share, loads of
/// as many pages of an array are timed beside the same neighbour.
///
/// # Errors
/// The file cannot be opened.
pub fn reclaim(
    data: &DataFile,
    effort: Effort,
    notes: &mut Vec<String>,
    failures: &mut Vec<String>,
) -> Result<Vec<Figures>, Failure> {
    let budget_bytes = 4 * HOT_BYTES;
    let cache = PageCache::builder(budget_bytes)
        .tenant("hits", budget_bytes)
        .tenant("stream", budget_bytes)
        .build()?;
    let hits = cache.tenant("hits")?;
    let map = hits.open(data.path(), OpenMode::ReadOnly)?.map()?;
    let stream = cache.tenant("stream")?;
    let streamed = stream.open(data.path(), OpenMode::ReadOnly)?;
    streamed.advise(Advice::Sequential, 0..0)?;
    (0..HOT_PAGES).for_each(|page| assert_eq!(load(&map, page * PAGE_BYTES), page * PAGE_BYTES));
    let array = Region::huge_array(HOT_BYTES as usize, |offset| offset)
        .map_err(|error| format!("the array: {error}"))?;
    let of_array = |offset| array.words()[(offset / 8) as usize];
    let hot = uniform_pages(HOT_PAGES, OFFSETS);
    let clock = Times::of(effort.hit_sample, &hot, |offset| offset).at(0.5);
    let (mut missed, mut timed) = (0, 0);
    let [mut median, mut quiet_tail, mut tail] = [const { Vec::new() }; 3];
    let [mut array_median, mut array_tail] = [const { Vec::new() }; 2];
    let (mut block, mut position) = (vec![0; 1 << 20], HOT_BYTES);
    let (mut reclaimed, mut directly, mut seconds) = (0, 0, 0.0);
    for _ in 0..effort.long_rounds {
        // Brings back pages that reclaim took in the previous round.
        Times::of(LEAD, &hot, |offset| load(&map, offset));
        let quiet = Times::of(effort.long_sample, &hot, |offset| load(&map, offset));
        median.push(quiet.at(0.5) - clock);
        quiet_tail.push(quiet.at(0.999) - clock);
        array_median.push(Times::of(effort.long_sample, &hot, of_array).at(0.5) - clock);
        let read_on = || {
            streamed.read_at(&mut block, position).expect("a page of the file can be read");
            position += block.len() as u64;
            if position >= data.bytes() {
                position = HOT_BYTES;
            }
        };
        beside(read_on, || {
            // Keep hitting the pages so that they stay hot.
            Times::of(LEAD, &hot, |offset| load(&map, offset));
            let (before, began) = (stolen(&stream), Instant::now());
            let missed_before = hits.stats().misses;
            let times = Times::of(effort.long_sample, &hot, |offset| load(&map, offset));
            tail.push(times.at(0.999) - clock);
            missed += hits.stats().misses - missed_before;
            timed += times.accesses;
            let after = stolen(&stream);
            reclaimed += after.0 - before.0;
            directly += after.1 - before.1;
            seconds += began.elapsed().as_secs_f64();
            array_tail.push(Times::of(effort.long_sample, &hot, of_array).at(0.999) - clock);
        });
    }
    notes.push(format!(
        "while the tail was measured, background reclaim freed {:.0} and readers {:.0} pages a second, \
         as many as the device brought",
        reclaimed as f64 / seconds,
        directly as f64 / seconds
    ));
    let mut figures = vec![
        Figures::new("timed_hit_median", 1, median),
        Figures::new("timed_hit_p999", 1, quiet_tail),
        Figures::new("timed_array_load_median", 1, array_median),
        Figures::new("timed_array_load_p999_under_reclaim", 1, array_tail),
    ];
    // The 99.9th percentile is that of hits only if fewer than one access in a thousand missed.
    if missed * 1000 < timed {
        figures.push(Figures::new("timed_hit_p999_under_reclaim", 1, tail));
    } else {
        failures.push(format!(
            "{missed} of {timed} accesses of the tenant whose tail is measured missed: \
             reclaim took pages in use, and the tail is that of misses"
        ));
    }
    Ok(figures)
}

/// Processor time for reclaiming a clean page through the cache, with all that its removal takes: a
/// tenant's memory is filled by reads, and half of it is requested back (`memory.reclaim`). In
/// turns with a cache whose policy is the multi-gen LRU.
///
/// # Errors
/// The file cannot be opened.
pub fn cost_of_reclaim(data: &DataFile, effort: Effort) -> Result<[Figures; 2], Failure> {
    let default = Mechanisms::preset(Preset::Default);
    let caches = [Reclaimed::new(data, default)?, Reclaimed::new(data, default.with_lru(Lru::MultiGen))?];
    let [mut ranked, mut multigen] = [const { Vec::new() }; 2];
    for _ in 0..effort.long_rounds {
        ranked.push(caches[0].ns_per_page()?);
        multigen.push(caches[1].ns_per_page()?);
    }
    let figures = |name, samples| Figures::new(name, 1, samples);
    Ok([figures("reclaimed_clean_page", ranked), figures("reclaimed_clean_page_multigen", multigen)])
}

/// A tenant that gives half of its memory, again and again.
struct Reclaimed {
    cache: PageCache,
    clean: Tenant,
    file: CachedFile,
    bytes: u64,
}

impl Reclaimed {
    fn new(data: &DataFile, mechanisms: Mechanisms) -> Result<Reclaimed, Failure> {
        let bytes = (data.bytes() / 4).max(4 * HOT_BYTES);
        let cache = PageCache::builder(2 * bytes).tenant("clean", bytes).mechanisms(mechanisms).build()?;
        let clean = cache.tenant("clean")?;
        let file = clean.open(data.path(), OpenMode::ReadOnly)?;
        file.advise(Advice::Sequential, 0..0)?;
        Ok(Reclaimed { cache, clean, file, bytes })
    }

    fn ns_per_page(&self) -> Result<f64, Failure> {
        let mut block = vec![0; 1 << 20];
        for position in (0..self.bytes / 4 * 3).step_by(block.len()) {
            self.file.read_at(&mut block, position)?;
        }
        let before = proactive(&self.clean);
        let began = cpu_time();
        self.cache.control().write("clean/memory.reclaim", &(self.bytes / 2).to_string())?;
        let seconds = cpu_time() - began;
        Ok(seconds * 1e9 / (proactive(&self.clean) - before).max(1) as f64)
    }
}

/// Pages of a tenant that were reclaimed on request.
fn proactive(tenant: &Tenant) -> u64 {
    tenant.stats().counter("pgsteal_proactive").expect("the cache counts what it reclaims")
}

/// Pages of a tenant that background reclaim freed, and that its readers freed themselves.
fn stolen(tenant: &Tenant) -> (u64, u64) {
    let stats = tenant.stats();
    let counter = |name| stats.counter(name).expect("the cache counts what it reclaims");
    (counter("pgsteal_kswapd"), counter("pgsteal_direct"))
}

fn note_misses(tenant: &Tenant, before: u64, who: &str, notes: &mut Vec<String>) {
    let missed = tenant.stats().misses - before;
    if missed > 0 {
        notes.push(format!("{missed} accesses of {who} missed"));
    }
}

/// Histogram of access times in nanoseconds.
struct Times {
    counts: Vec<u32>,
    accesses: u64,
}

impl Times {
    /// Longer times count as this.
    const NS_MAX: usize = 1 << 16;

    /// Times accesses individually.
    fn of(length: Duration, offsets: &[u64], access: impl Fn(u64) -> u64) -> Times {
        let mut times = Times { counts: vec![0; Times::NS_MAX + 1], accesses: 0 };
        let began = Instant::now();
        for &offset in offsets.iter().cycle() {
            let before = Instant::now();
            black_box(access(offset));
            let after = Instant::now();
            let ns = (after - before).as_nanos().min(Times::NS_MAX as u128);
            times.counts[ns as usize] += 1;
            times.accesses += 1;
            if after - began >= length {
                break;
            }
        }
        times
    }

    /// The time that this share of the accesses did not exceed.
    fn at(&self, share: f64) -> f64 {
        let wanted = (share * self.accesses as f64).ceil() as u64;
        let mut seen = 0;
        let ns = self.counts.iter().position(|&count| {
            seen += u64::from(count);
            seen >= wanted
        });
        ns.expect("a share is at most 1") as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_times() {
        let mut times = Times { counts: vec![0; 100], accesses: 1000 };
        (times.counts[7], times.counts[20], times.counts[90]) = (600, 399, 1);
        assert_eq!([0.5, 0.6, 0.601, 0.999, 1.0].map(|share| times.at(share)), [7.0, 7.0, 20.0, 20.0, 90.0]);
    }
}
