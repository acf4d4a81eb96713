//! The reader and the scan: what each reads, in step with the other, and how it is checked.
//!
//! The reader hands the scan a token per [`READS_PER_SCAN`] of its reads, and the scan reads
//! [`SCAN_BYTES`] per token. A few tokens may wait; then the reader waits. So all caches see the
//! same reads in nearly the same order, however fast they are.

use super::{Cache, CacheRun, DemoRequest};
use crate::error::Error;
use mglru_core::PAGE_BYTES;
use mglru_workload::fio::Latencies;
use mglru_workload::verify;
use mglru_workload::{BlockBytes, Distribution, Length, Mix, Order, Pattern};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Bytes per read of the scan.
const SCAN_BYTES: u32 = 64 << 10;
/// One page for each page of the scan.
const READS_PER_SCAN: u64 = SCAN_BYTES as u64 / PAGE_BYTES;
/// Tokens that may wait for the scan.
const SCANS_AHEAD: usize = 8;
/// How skewed the reader is: with 0.99, a tenth of the pages gets four fifths of the reads.
const SKEW: f64 = 0.99;
/// Filling the cache may take so many times as long as counting.
const WARM_UP_TIMES: u32 = 2;
/// How often the watcher hears of it.
const TICK: Duration = Duration::from_millis(250);

/// A file, read through some cache. Each client has one of its own.
pub trait CachedRead: Sync {
    /// Fills the buffer from `offset`.
    ///
    /// # Errors
    /// The read failed or was short: in words.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), String>;

    /// Pages that were found in memory so far; `None`: unknown.
    fn hits(&self) -> Option<u64>;
}

/// The file, as both clients see it.
pub struct Clients<'c> {
    pub reader: &'c dyn CachedRead,
    pub scan: &'c dyn CachedRead,
}

/// Called now and then with the share of the run that is over, the hit ratio since counting began,
/// and reads per second. An error ends the run.
pub type Look<'l> = &'l dyn Fn(f64, Option<f64>, f64) -> Result<(), Error>;

/// The reader's part of the file, from its beginning.
pub fn reader_bytes(file_bytes: u64) -> u64 {
    file_bytes / u64::from(SCAN_BYTES) * 3 / 8 * u64::from(SCAN_BYTES)
}

/// The scan's part: the rest. Readahead of the scan stays within it.
pub fn scan_part(file_bytes: u64) -> Range<u64> {
    let end = file_bytes / u64::from(SCAN_BYTES) * u64::from(SCAN_BYTES);
    reader_bytes(file_bytes)..end
}

/// Runs both to the end of the time, through `cache`.
///
/// # Errors
/// A read failed, a page was not what it should be, or the watcher ended the run.
pub fn run(
    request: &DemoRequest,
    cache: Cache,
    clients: Clients<'_>,
    look: Look<'_>,
) -> Result<CacheRun, Error> {
    let scanned_bytes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (tokens, wait) = sync_channel(SCANS_AHEAD);
        let scan = scope.spawn({
            let scanned_bytes = &scanned_bytes;
            move || scan(request, clients.scan, &wait, scanned_bytes)
        });
        // The channel closes at the end of either client, and the other ends, too.
        let read = read(request, (cache, clients.reader), tokens, &scanned_bytes, look);
        let scanned = scan.join().expect("the scan does not panic");
        let pages_scanned = scanned.map_err(|reason| Error::work(format_args!("scan: {reason}")))?;
        let mut run = read?;
        run.pages_verified += pages_scanned;
        Ok(run)
    })
}

fn pattern(order: Order, bytes: u64, block_bytes: u32, seed: u64) -> Pattern {
    let block_bytes = BlockBytes::both(block_bytes);
    Pattern { order, mix: Mix::Read, block_bytes, size_bytes: bytes, length: Length::Endless, seed }
}

/// Reads a piece per token; how many pages there were.
fn scan(
    request: &DemoRequest,
    file: &dyn CachedRead,
    tokens: &Receiver<()>,
    scanned_bytes: &AtomicU64,
) -> Result<u64, String> {
    let part = scan_part(request.file_bytes);
    let pattern = pattern(Order::Sequential, part.end - part.start, SCAN_BYTES, request.seed);
    let mut buffer = vec![0; SCAN_BYTES as usize];
    let mut pages = 0;
    for access in pattern.accesses().map_err(|error| error.to_string())? {
        if tokens.recv().is_err() {
            break;
        }
        pages += read_verified(file, &mut buffer, part.start + access.offset)?.1;
        scanned_bytes.fetch_add(u64::from(access.bytes), Relaxed);
    }
    Ok(pages)
}

/// Counts since counting began.
struct Counting {
    warmed: bool,
    began: Instant,
    reads: u64,
    hits: Option<u64>,
    scanned_bytes: u64,
}

fn read(
    request: &DemoRequest,
    (cache, file): (Cache, &dyn CachedRead),
    tokens: SyncSender<()>,
    scanned_bytes: &AtomicU64,
    look: Look<'_>,
) -> Result<CacheRun, Error> {
    let fail = |reason: String| Error::work(format_args!("reader: {reason}"));
    let order = Order::Random(Distribution::zipf(SKEW).expect("a skew below 1"));
    let pattern = pattern(order, reader_bytes(request.file_bytes), PAGE_BYTES as u32, request.seed);
    let mut buffer = vec![0; PAGE_BYTES as usize];
    // The scan reads as many: together, twice what the cache holds.
    let warm_reads = request.budget_bytes / PAGE_BYTES;
    let began = Instant::now();
    let (mut reads, mut counting, mut last_look) = (0u64, None::<Counting>, began);
    let mut latencies = Latencies::default();
    let since = |counting: &Counting, reads: u64| {
        let hits = file.hits().zip(counting.hits).map(|(hits, before)| hits - before);
        (reads - counting.reads, hits)
    };
    for access in pattern.accesses().map_err(|error| fail(error.to_string()))? {
        let (took, _) = read_verified(file, &mut buffer, access.offset).map_err(fail)?;
        reads += 1;
        if reads.is_multiple_of(READS_PER_SCAN) && tokens.send(()).is_err() {
            break;
        }
        let now = Instant::now();
        let Some(counting) = &counting else {
            let warmed = reads >= warm_reads;
            if warmed || now - began > request.time * WARM_UP_TIMES {
                let (hits, scanned_bytes) = (file.hits(), scanned_bytes.load(Relaxed));
                counting = Some(Counting { warmed, began: now, reads, hits, scanned_bytes });
            } else if now - last_look > TICK {
                last_look = now;
                look(0.0, None, reads as f64 / (now - began).as_secs_f64())?;
            }
            continue;
        };
        latencies.record(took.as_nanos() as u64);
        let elapsed = now - counting.began;
        if elapsed >= request.time {
            break;
        }
        if now - last_look > TICK {
            last_look = now;
            let (reads, hits) = since(counting, reads);
            let ratio = hits.map(|hits| hits as f64 / reads.max(1) as f64);
            look(
                elapsed.as_secs_f64() / request.time.as_secs_f64(),
                ratio,
                reads as f64 / elapsed.as_secs_f64(),
            )?;
        }
    }
    drop(tokens);
    let scanned = scanned_bytes.load(Relaxed);
    let Some(counting) = counting else {
        return Err(fail("the scan ended before the cache was filled".to_owned()));
    };
    let (counted, hits) = since(&counting, reads);
    Ok(CacheRun {
        cache,
        warmed: counting.warmed,
        seconds: counting.began.elapsed().as_secs_f64(),
        reads: counted,
        hits,
        latencies,
        scanned_bytes: scanned - counting.scanned_bytes,
        pages_verified: reads,
        engine: None,
    })
}

/// Reads whole pages and checks that each is the page asked for, and whole. How long the read took,
/// and how many pages there were.
fn read_verified(file: &dyn CachedRead, buffer: &mut [u8], offset: u64) -> Result<(Duration, u64), String> {
    let began = Instant::now();
    file.read(buffer, offset)?;
    let took = began.elapsed();
    let pages = buffer.chunks_exact(PAGE_BYTES as usize).zip((offset..).step_by(PAGE_BYTES as usize));
    for (page, offset) in pages {
        verify::check_generation(page, offset, 1).map_err(|error| error.to_string())?;
    }
    Ok((took, buffer.len() as u64 / PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_workload::verify::Identity;
    use std::sync::Mutex;

    #[test]
    fn the_parts_lie_side_by_side() {
        for file_bytes in [super::super::FILE_BYTES_MIN, (16 << 20) + 4097, 1 << 30] {
            let scan = scan_part(file_bytes);
            assert!(reader_bytes(file_bytes) > 0 && scan.start == reader_bytes(file_bytes));
            assert!(scan.end <= file_bytes && scan.end + u64::from(SCAN_BYTES) > file_bytes, "{scan:?}");
        }
    }

    /// Pages made when they are read; every third read of the reader is a hit. `wrong`: a page that
    /// is another.
    struct Made {
        reads: Mutex<Vec<u64>>,
        wrong: Option<u64>,
    }

    impl CachedRead for Made {
        fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), String> {
            self.reads.lock().unwrap().push(offset);
            for (page, offset) in buffer.chunks_exact_mut(4096).zip((offset..).step_by(4096)) {
                let offset = if self.wrong == Some(offset) { 0 } else { offset };
                verify::fill(page, Identity { offset, generation: 1, seed: 1 });
            }
            Ok(())
        }

        fn hits(&self) -> Option<u64> {
            Some(self.reads.lock().unwrap().len() as u64 / 3)
        }
    }

    fn request() -> DemoRequest {
        let time = Duration::from_millis(30);
        DemoRequest {
            time,
            ..DemoRequest::new("unused".into(), super::super::FILE_BYTES_MIN, super::super::BUDGET_BYTES_MIN)
        }
    }

    fn made(wrong: Option<u64>) -> Made {
        Made { reads: Mutex::default(), wrong }
    }

    #[test]
    fn the_scan_keeps_step_with_the_reader() {
        let (reader, scan) = (made(None), made(None));
        let pair =
            run(&request(), Cache::System, Clients { reader: &reader, scan: &scan }, &|_, _, _| Ok(()))
                .unwrap();
        let (reads, scans) = (reader.reads.into_inner().unwrap(), scan.reads.into_inner().unwrap());
        let behind = reads.len() as i64 / READS_PER_SCAN as i64 - scans.len() as i64;
        assert!((0..=1).contains(&behind), "{} and {}", reads.len(), scans.len());
        assert_eq!(pair.pages_verified, reads.len() as u64 + scans.len() as u64 * READS_PER_SCAN);
        assert_eq!(scans[..3].iter().map(|at| at - scans[0]).collect::<Vec<_>>(), [0, 65536, 131_072]);
        assert!(pair.warmed && pair.reads > 0 && reads.iter().all(|&at| at < reader_bytes(FILE)));
        assert!(pair.hits.unwrap().abs_diff(pair.reads / 3) <= 1);
    }

    const FILE: u64 = super::super::FILE_BYTES_MIN;

    #[test]
    fn a_wrong_page_ends_both() {
        let wrong = scan_part(FILE).start + 65536;
        let clients = (made(None), made(Some(wrong)));
        let error =
            run(&request(), Cache::System, Clients { reader: &clients.0, scan: &clients.1 }, &|_, _, _| {
                Ok(())
            })
            .err()
            .unwrap();
        assert!(error.text().starts_with("scan: ") && error.text().contains("offset"), "{error}");
        let stop = |_, _, _| Err(Error::Cancelled);
        let slow = DemoRequest { time: Duration::from_secs(3), ..request() };
        let clients = (made(None), made(None));
        let error =
            run(&slow, Cache::System, Clients { reader: &clients.0, scan: &clients.1 }, &stop).err().unwrap();
        assert_eq!(error, Error::Cancelled);
    }
}
