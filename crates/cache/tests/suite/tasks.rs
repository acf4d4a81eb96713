//! Futures on a small executor: contents, many at once, errors, and futures that are dropped.

use crate::common::{Disk, PAGE, Random, assert_same, memory, page, pages, read};
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger};
use mglru_cache::{CachedFile, Error, OpenMode};
use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

type Work<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Tasks that can go on, and how many are not done.
#[derive(Default)]
struct Ready {
    queue: Mutex<(VecDeque<usize>, usize)>,
    changed: Condvar,
}

struct TaskWaker {
    ready: Arc<Ready>,
    number: usize,
    is_queued: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, SeqCst) {
            self.ready.queue.lock().unwrap().0.push_back(self.number);
            self.ready.changed.notify_one();
        }
    }
}

/// Runs all futures on two threads. Returns how often one was pending.
fn run(works: Vec<Work<'_>>) -> usize {
    let ready = Arc::new(Ready::default());
    *ready.queue.lock().unwrap() = ((0..works.len()).collect(), works.len());
    let wakers: Vec<Arc<TaskWaker>> = (0..works.len())
        .map(|number| Arc::new(TaskWaker { ready: ready.clone(), number, is_queued: AtomicBool::new(true) }))
        .collect();
    let works: Vec<_> = works.into_iter().map(|work| Mutex::new(Some(work))).collect();
    let pending = AtomicUsize::new(0);
    let work = || {
        loop {
            let queue = ready.queue.lock().unwrap();
            let mut queue =
                ready.changed.wait_while(queue, |(next, left)| next.is_empty() && *left > 0).unwrap();
            let Some(number) = queue.0.pop_front() else { return };
            drop(queue);
            let mut work = works[number].lock().unwrap();
            wakers[number].is_queued.store(false, SeqCst);
            let waker = Waker::from(wakers[number].clone());
            let Some(future) = &mut *work else { continue };
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(()) => {
                    *work = None;
                    ready.queue.lock().unwrap().1 -= 1;
                    ready.changed.notify_all();
                }
                Poll::Pending => _ = pending.fetch_add(1, SeqCst),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    pending.into_inner()
}

pub fn block_on<F: Future + Send>(future: F) -> F::Output
where
    F::Output: Send,
{
    let mut output = None;
    run(vec![Box::pin(async { output = Some(future.await) })]);
    output.unwrap()
}

pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

async fn read_page(file: &CachedFile, number: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0xaa; PAGE];
    let read = file.read_at_async(&mut bytes, (number * PAGE) as u64).await?;
    bytes.truncate(read);
    Ok(bytes)
}

#[test]
fn ten_thousand_misses_at_once_on_two_threads() {
    for disk in [Disk::uring(), memory(1).0] {
        disk.set("f", &pages(0..5000));
        // A tenth of what is read at once.
        let cache = disk.builder(5 << 20).tenant("t", 4 << 20).build().unwrap();
        let file = cache.tenant("t").unwrap().open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        file.advise(mglru_cache::Advice::Random, 0..0).unwrap();
        let file = &file;
        let works = (0..10_000).map(|task| -> Work<'_> {
            Box::pin(async move {
                let number = task * 7919 % 5000;
                assert_same(&read_page(file, number).await.unwrap(), &page(number as u64), "page");
            })
        });
        let pending = run(works.collect());
        assert!(pending > 1000, "{pending}");
        let stats = cache.tenant("t").unwrap().stats();
        assert!(stats.peak_pages <= (4 << 20) / PAGE as u64 && stats.misses > 5000, "{stats:?}");
        cache.validate().unwrap();
    }
}

/// A runtime comes to a task long after its page was read: others have reclaimed the page by then.
/// All tasks read their pages again and again, and hardly one ever found its own.
#[test]
fn tasks_find_their_pages_however_late_they_are_polled() {
    const TASKS: usize = 1000;
    for disk in [Disk::uring(), memory(1).0] {
        disk.set("f", &pages(0..TASKS as u64));
        let cache = disk.builder(2 << 20).tenant("t", 400 << 10).build().unwrap();
        let file = cache.tenant("t").unwrap().open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        file.advise(mglru_cache::Advice::Random, 0..0).unwrap();
        let mut works: Vec<Option<Work<'_>>> = (0..TASKS)
            .map(|number| -> Option<Work<'_>> {
                let file = &file;
                Some(Box::pin(async move {
                    if number % 4 == 0 {
                        file.write_at_async(b"new", (number * PAGE) as u64).await.unwrap();
                    } else {
                        assert_same(&read_page(file, number).await.unwrap(), &page(number as u64), "page");
                    }
                }))
            })
            .collect();
        // All tasks in order, woken or not, and then again.
        let mut context = Context::from_waker(Waker::noop());
        while works.iter().any(Option::is_some) {
            for work in &mut works {
                if work.as_mut().is_some_and(|work| work.as_mut().poll(&mut context).is_ready()) {
                    *work = None;
                }
            }
        }
        let stats = cache.tenant("t").unwrap().stats();
        let stolen = stats.counter("pgsteal_file").unwrap();
        assert!(stolen < 4 * TASKS as u64, "{stolen} pages were reclaimed: {stats:?}");
        cache.validate().unwrap();
    }
}

#[test]
fn a_hit_is_ready_at_once_and_a_file_reads_as_it_is() {
    for disk in Disk::each(2) {
        let all = [&pages(0..300)[..], b"the end"].concat();
        disk.set("f", &all);
        let cache = disk.builder(600 << 10).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let mut buffer = vec![0; all.len() + 100];
        assert_eq!(block_on(file.read_at_async(&mut buffer, 0)).unwrap(), all.len());
        assert_same(&buffer[..all.len()], &all, "file");
        let mut few = [0; 100];
        file.read_at(&mut few, 5000).unwrap();
        assert!(matches!(poll_once(&mut file.read_at_async(&mut few, 5010)), Poll::Ready(Ok(100))));
        assert_same(&few, &all[5010..5110], "hit");
        assert!(matches!(poll_once(&mut file.write_at_async(b"new", 5010)), Poll::Ready(Ok(3))));
        assert!(matches!(poll_once(&mut file.read_at_async(&mut few, 1 << 40)), Poll::Ready(Ok(0))));
        assert!(matches!(poll_once(&mut file.read_at_async(&mut [], 0)), Poll::Ready(Ok(0))));
        assert!(matches!(
            poll_once(&mut file.write_at_async(b"x", 1 << 50)),
            Poll::Ready(Err(Error::TooLarge { .. }))
        ));
        let accesses = file.accesses();
        assert!(accesses.0 > 0 && accesses.1 > 0, "{accesses:?}");
        cache.validate().unwrap();
    }
}

/// Tasks that each own a part of the file write and read it, far more than fits, and sync.
#[test]
fn tasks_read_what_they_wrote_and_the_file_has_it_after_a_sync() {
    for disk in Disk::each(3) {
        disk.set("f", &vec![0; 3_000_000]);
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let expected = Mutex::new(vec![0; 3_000_000]);
        let (file, expected_at) = (&file, &expected);
        let works = (0..30usize).map(|task| -> Work<'_> {
            Box::pin(async move {
                // Parts begin and end inside of pages, which neighbours write, too.
                let (start, len) = (task * 100_000, 100_000);
                let mut own = vec![0; len];
                let mut random = Random(task as u64);
                for step in 0..40 {
                    let at = random.below(len as u64 - 9000) as usize;
                    let bytes = &page(task as u64 * 1000 + step)[..1 + random.below(4000) as usize];
                    file.write_at_async(bytes, (start + at) as u64).await.unwrap();
                    own[at..at + bytes.len()].copy_from_slice(bytes);
                    let from = random.below(len as u64 - 9000) as usize;
                    let mut found = vec![1; 9000];
                    assert_eq!(file.read_at_async(&mut found, (start + from) as u64).await.unwrap(), 9000);
                    assert_same(&found, &own[from..from + 9000], format!("task {task}, step {step}"));
                    if random.one_in(20) {
                        file.sync_data_async().await.unwrap();
                    }
                }
                expected_at.lock().unwrap()[start..start + len].copy_from_slice(&own);
                file.sync_all_async().await.unwrap();
            })
        });
        run(works.collect());
        assert_same(&disk.contents("f"), &expected.into_inner().unwrap(), "file on disk");
        cache.validate().unwrap();
    }
}

/// New pages are written without being read, and too many dirty pages slow the tasks down.
#[test]
fn writers_of_more_than_fits_are_held_back() {
    for disk in Disk::each(4) {
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::Create).unwrap();
        let file_at = &file;
        let works = (0..8u64).map(|task| -> Work<'_> {
            Box::pin(async move {
                for step in 0..200 {
                    let number = task * 200 + step;
                    file_at.write_at_async(&page(number), number * PAGE as u64).await.unwrap();
                }
            })
        });
        run(works.collect());
        block_on(file.sync_data_async()).unwrap();
        assert_same(&disk.contents("f"), &pages(0..1600), "file");
        cache.validate().unwrap();
    }
}

#[test]
fn futures_can_be_dropped_at_any_point() {
    for disk in Disk::each(5) {
        disk.set("f", &pages(0..1000));
        let cache = disk.builder(600 << 10).tenant("t", 200 << 10).build().unwrap();
        let file = cache.tenant("t").unwrap().open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let mut random = Random(9);
        let mut dropped = 0;
        for _ in 0..600 {
            let number = random.below(990);
            let polls = random.below(4);
            let mut bytes = vec![0; 3 * PAGE];
            let offset = number * PAGE as u64 + 7;
            if random.one_in(3) {
                // Writes what is there: dropped or not, the content is the same.
                let same = &pages(number..number + 4)[7..][..3 * PAGE];
                let mut write = file.write_at_async(same, offset);
                dropped += usize::from((0..polls).all(|_| poll_once(&mut write).is_pending()));
            } else {
                let mut read = file.read_at_async(&mut bytes, offset);
                dropped += usize::from((0..polls).all(|_| poll_once(&mut read).is_pending()));
            }
        }
        let mut sync = file.sync_data_async();
        let _ = poll_once(&mut sync);
        drop(sync);
        assert!(dropped > 100, "{dropped}");
        file.sync_data().unwrap();
        for number in 0..1000 {
            assert_same(&read(&file, number * PAGE, PAGE), &page(number as u64), "page");
        }
        assert_eq!(file.evict(0..u64::MAX).unwrap(), 0);
        cache.validate().unwrap();
        assert_same(&disk.contents("f"), &pages(0..1000), "file");
    }
}

/// A program keeps hundreds of reads that looked for memory, and polls them no more.
#[test]
fn futures_that_are_kept_and_not_polled_stop_no_other() {
    let (disk, files) = memory(2);
    disk.set("f", &pages(0..700));
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
    file.advise(mglru_cache::Advice::Random, 0..0).unwrap();
    let mut buffers = vec![[0; PAGE]; 320];
    // While no read ends, all frames fill with pages that are being read, and some reads go through
    // all steps of reclaim.
    files.hold();
    let reads = buffers.iter_mut().enumerate();
    let mut reads: Vec<_> =
        reads.map(|(number, buffer)| file.read_at_async(buffer, (number * PAGE) as u64)).collect();
    for _ in 0..3000 {
        for read in &mut reads {
            assert!(poll_once(read).is_pending());
        }
    }
    files.release();
    for number in 600..700 {
        assert_same(&block_on(read_page(&file, number)).unwrap(), &page(number as u64), "page");
    }
    for (number, read) in reads.iter_mut().enumerate() {
        assert_eq!(block_on(read).unwrap(), PAGE, "{number}");
    }
    drop(reads);
    for (number, buffer) in buffers.iter().enumerate() {
        assert_same(buffer, &page(number as u64), "page");
    }
    cache.validate().unwrap();
}

#[test]
fn errors_of_the_device_and_of_memory_reach_the_task() {
    let (disk, files) = memory(6);
    disk.set("f", &pages(0..200));
    let cache = disk.builder(1 << 20).tenant("t", 40 * PAGE as u64).build().unwrap();
    let file = cache.tenant("t").unwrap().open("f", OpenMode::ReadWrite).unwrap();
    let bad = 10 * PAGE as u64..11 * PAGE as u64;
    let fault =
        |operation| Fault::new(operation, FaultTrigger::Within(bad.clone()), FaultEffect::Error(libc::EIO));
    files.inject(fault(FaultOperation::Read));
    // Pages beside it are read, also in windows with it.
    for number in 0..20 {
        match block_on(read_page(&file, number)) {
            Ok(bytes) => assert_same(&bytes, &page(number as u64), "page"),
            Err(error) => {
                assert!(number == 10 && error.io_error().unwrap().raw_os_error() == Some(libc::EIO))
            }
        }
        assert_eq!(
            block_on(read_page(&file, 10)).unwrap_err().kind(),
            std::io::Error::from_raw_os_error(5).kind()
        );
    }
    assert!(block_on(file.write_at_async(&[1], bad.start)).is_err());
    block_on(file.write_at_async(&page(10), bad.start)).unwrap();
    files.clear_faults();
    files.inject(fault(FaultOperation::Write));
    for write in [file.write_back_async(), file.sync_data_async()] {
        assert!(matches!(block_on(write), Err(Error::WriteBack { .. })));
    }
    files.clear_faults();
    block_on(file.write_back_async()).unwrap();
    assert!(!file.has_unwritten());
    block_on(file.sync_data_async()).unwrap();
    assert_same(&disk.contents("f"), &pages(0..200), "file");

    let locked = file.lock(0..38 * PAGE as u64).unwrap();
    let error = block_on(async {
        for number in 50..90 {
            read_page(&file, number).await?;
        }
        Ok::<_, Error>(())
    });
    assert!(matches!(error, Err(Error::OutOfMemory(_))) || error.is_ok(), "{error:?}");
    drop(locked);
    for number in 50..90 {
        assert_same(&block_on(read_page(&file, number)).unwrap(), &page(number as u64), "page");
    }
    let read_only = cache.open("f", OpenMode::ReadOnly).unwrap();
    assert!(matches!(block_on(read_only.write_at_async(&[1], 0)), Err(Error::ReadOnly { .. })));
    cache.validate().unwrap();
    cache.close().unwrap();
    assert!(matches!(block_on(file.write_at_async(&[1], 0)), Err(Error::Closed)));
    // A page behind all windows, which is not in memory.
    assert!(matches!(block_on(read_page(&file, 199)), Err(Error::Closed)));
}

/// The system reports a failed sync once. If the future that asked is gone, the next sync of every
/// handle reports it, once.
#[test]
fn the_error_of_a_dropped_sync_goes_to_the_next_one() {
    let (disk, files) = memory(8);
    disk.set("f", &pages(0..4));
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let other = file.try_clone().unwrap();
    let fault = Fault::new(FaultOperation::Sync, FaultTrigger::Always, FaultEffect::Error(libc::EIO));
    files.inject(fault);
    file.write_at(&page(9), 0).unwrap();
    // The sync does not end within the first poll.
    files.hold();
    assert!(poll_once(&mut file.sync_data_async()).is_pending());
    files.release();
    while files.counts("f").syncs == 0 {
        std::thread::yield_now();
    }
    files.clear_faults();
    let failed = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Io { doing: "sync", .. }), "{error}");
        assert_eq!(error.io_error().unwrap().raw_os_error(), Some(libc::EIO));
    };
    // Another thread does the dropped sync, and may not have noted its error yet.
    let mut syncs = std::iter::repeat_with(|| block_on(file.sync_data_async()));
    failed(syncs.find(Result::is_err).expect("it repeats without end"));
    block_on(file.sync_data_async()).unwrap();
    failed(other.sync_all());
    other.sync_all().unwrap();
    file.sync_data().unwrap();
    assert_same(&disk.contents("f"), &[page(9), pages(1..4)].concat(), "file");
}

/// Two tasks that share a handle have one mark for errors that it has reported. Each still learns
/// that its own sync failed.
#[test]
fn each_sync_of_a_shared_handle_fails_for_itself() {
    for operation in [FaultOperation::Write, FaultOperation::Sync] {
        let (disk, files) = memory(9);
        disk.set("f", &pages(0..4));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open("f", OpenMode::ReadWrite).unwrap();
        let other = file.try_clone().unwrap();
        file.write_at(&page(9), 0).unwrap();
        files.inject(Fault::new(operation, FaultTrigger::Always, FaultEffect::Error(libc::EIO)));
        let mut syncs = [file.sync_data_async(), file.sync_data_async()];
        // Neither ends before the third has failed: its error is theirs to report, too.
        files.hold();
        syncs.iter_mut().for_each(|sync| assert!(poll_once(sync).is_pending()));
        files.release();
        block_on(other.sync_data_async()).unwrap_err();
        for sync in &mut syncs {
            assert!(block_on(sync).is_err(), "{operation:?}");
        }
        files.clear_faults();
        // The flusher may have tried and failed since.
        file.sync_data_again().unwrap();
        assert_same(&disk.contents("f"), &[page(9), pages(1..4)].concat(), "file");
    }
}

/// The length is looked at when a read begins, and the file is truncated and grows again before the
/// bytes come.
#[test]
fn a_read_over_a_truncation_has_no_bytes_that_were_not_there() {
    let (disk, files) = memory(10);
    disk.set("f", &[0xff; 4 * PAGE]);
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let mut bytes = [7; 2 * PAGE];
    files.hold();
    let mut read = file.read_at_async(&mut bytes, 0);
    assert!(poll_once(&mut read).is_pending());
    files.wait_held(1);
    files.release();
    file.truncate(0).unwrap();
    file.write_at(&[0xee; 100], 0).unwrap();
    let count = block_on(read).unwrap();
    assert!(count <= 2 * PAGE && bytes[..count].iter().all(|byte| [0xff, 0xee].contains(byte)), "{count}");
    cache.validate().unwrap();
}

/// Another process appends while the device holds a write of this cache: until it has ended, the
/// write could be what extends the file. A thread waits for that, not the task. A cut is noticed at
/// the end of a read.
#[test]
fn a_task_does_not_wait_to_find_out_who_changed_the_length() {
    let (disk, files) = memory(11);
    disk.set("f", &pages(0..2));
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    for (length, before) in [(4, 2), (3, 4)] {
        files.hold();
        file.write_at(&page(9), 0).unwrap();
        let mut sync = file.sync_data_async();
        assert!(poll_once(&mut sync).is_pending());
        files.wait_held(1);
        disk.set("f", &pages(0..length));
        let mut bytes = vec![0; 5 * PAGE];
        let mut read = file.read_at_async(&mut bytes, PAGE as u64);
        assert!(poll_once(&mut read).is_pending());
        assert_eq!(file.len(), before * PAGE as u64, "not known yet");
        files.release();
        assert_eq!(block_on(read).unwrap(), (length as usize - 1) * PAGE);
        assert_same(&bytes[..(length as usize - 1) * PAGE], &pages(1..length), "read");
        block_on(sync).unwrap();
        cache.validate().unwrap();
    }
}

/// Another process appends while the device holds a read of the page in which the file ended. That
/// page must go, and a thread waits for it, not the task. A cut is left to the thread, too.
#[test]
fn a_task_does_not_wait_for_reads_of_pages_that_must_go() {
    let (disk, files) = memory(12);
    disk.set("f", &pages(0..2)[..PAGE + 100]);
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    for length in [4, 3] {
        assert_eq!(file.evict(0..u64::MAX).unwrap(), 0);
        files.hold();
        let end = file.len() - 50;
        let (mut head, mut bytes) = (vec![0; 50], vec![0; 5 * PAGE]);
        let mut first = file.read_at_async(&mut head, end);
        assert!(poll_once(&mut first).is_pending());
        files.wait_held(1);
        disk.set("f", &pages(0..length));
        let mut read = file.read_at_async(&mut bytes, end);
        assert!(poll_once(&mut read).is_pending());
        files.release();
        let left = (length as usize * PAGE).saturating_sub(end as usize);
        assert_eq!(block_on(read).unwrap(), left);
        assert_same(&bytes[..left], &pages(0..4)[end as usize..][..left], "read");
        block_on(first).unwrap();
        assert_eq!(file.len(), length * PAGE as u64);
        cache.validate().unwrap();
    }
}

#[test]
fn a_write_waits_for_guards_and_fails_on_its_own() {
    for disk in Disk::each(7) {
        disk.set("f", &pages(0..4));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let map = file.map().unwrap();
        let guard = map.page_owned(1).unwrap();
        let page_9 = page(9);
        let mut write = pin!(file.write_at_async(&page_9, PAGE as u64));
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        assert!(write.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_same(&guard, &page(1), "lent page");
        assert_eq!(count.0.load(SeqCst), 0);
        drop(guard);
        assert_eq!(count.0.load(SeqCst), 1);
        assert!(matches!(write.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(PAGE))));
        let own = map.page(2).unwrap();
        let result = poll_once(&mut file.write_at_async(&[1], 2 * PAGE as u64));
        assert!(matches!(result, Poll::Ready(Err(Error::OwnGuard { page: 2, .. }))));
        drop(own);
        assert_same(&read(&file, 0, 4 * PAGE), &[page(0), page(9), page(2), page(3)].concat(), "file");
        cache.validate().unwrap();
    }
}

/// They once woke each other at every poll, and kept a processor busy for as long as the guard
/// lived.
#[test]
fn writes_that_wait_for_one_guard_do_not_wake_each_other() {
    let (disk, _) = memory(1);
    disk.set("f", &pages(0..4));
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let guard = file.map().unwrap().page_owned(1).unwrap();
    let counts: [Arc<Count>; 3] = Default::default();
    let wakers = counts.clone().map(Waker::from);
    let woken = || counts.iter().map(|count| count.0.load(SeqCst)).collect::<Vec<_>>();
    let mut writes = [1, 2, 3].map(|byte| Box::pin(write_all(&file, vec![byte; PAGE], PAGE as u64)));
    let mut poll = |number: usize| {
        let mut cx = Context::from_waker(&wakers[number]);
        writes[number].as_mut().poll(&mut cx)
    };
    for _ in 0..3 {
        assert!((0..3).all(|number| poll(number).is_pending()));
    }
    assert_eq!(woken(), [0, 0, 0], "the page is still lent");
    drop(guard);
    assert_eq!(woken(), [1, 1, 1]);
    assert!((0..3).all(|number| poll(number).is_ready()));
    assert_same(&read(&file, PAGE, PAGE), &[3; PAGE], "page");
    cache.validate().unwrap();
}

async fn write_all(file: &CachedFile, bytes: Vec<u8>, offset: u64) {
    assert_eq!(file.write_at_async(&bytes, offset).await.unwrap(), bytes.len());
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a test"));
    }
}

/// The thread that completes reads once aborted the process, and the one that syncs ended.
#[test]
fn a_waker_that_panics_stops_no_other_task() {
    for disk in Disk::each(3) {
        disk.set("f", &pages(0..64));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let waker = Waker::from(Arc::new(Panics));
        let mut cx = Context::from_waker(&waker);
        for number in [0, 40] {
            let mut read = Box::pin(read_page(&file, number));
            let is_ready = read.as_mut().poll(&mut cx).is_ready();
            // Another thread waits for the same page, and is woken after the task.
            assert_same(&self::read(&file, number * PAGE, PAGE), &page(number as u64), "page");
            assert!(is_ready || block_on(read).is_ok());
            file.write_at(&page(7), 0).unwrap();
            let mut sync = file.sync_data_async();
            let is_synced = Pin::new(&mut sync).poll(&mut cx).is_ready();
            block_on(file.sync_data_async()).unwrap();
            assert!(is_synced || block_on(sync).is_ok());
        }
        cache.validate().unwrap();
    }
}

/// It was pending for ever.
#[test]
#[should_panic(expected = "`SyncFile` polled after completion")]
fn a_sync_that_is_polled_after_its_end_panics() {
    let (disk, _) = memory(1);
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::Create).unwrap();
    file.write_at(b"hello", 0).unwrap();
    let mut sync = pin!(file.sync_data_async());
    block_on(sync.as_mut()).unwrap();
    let _ = sync.poll(&mut Context::from_waker(Waker::noop()));
}

/// A program gives up writes of a page that stays lent, each in a task of its own: the queue kept
/// all of these tasks until the guard was dropped.
#[test]
fn a_future_that_is_dropped_leaves_its_queue() {
    let (disk, _) = memory(1);
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::Create).unwrap();
    file.write_at(&page(1), 0).unwrap();
    let lent = file.map().unwrap().page_owned(0).unwrap();
    let poll = |future: Pin<&mut dyn Future<Output = Result<usize, Error>>>, count: &Arc<Count>| {
        let waker = Waker::from(count.clone());
        future.poll(&mut Context::from_waker(&waker)).is_pending()
    };
    for _ in 0..100 {
        let count = Arc::<Count>::default();
        let mut write = Box::pin(file.write_at_async(b"x", 0));
        assert!(poll(write.as_mut(), &count) && poll(write.as_mut(), &count));
        drop(write);
        assert_eq!(Arc::strong_count(&count), 1);
    }
    // Two futures of one task: the other one is still woken, and once.
    let count = Arc::<Count>::default();
    let (mut first, mut second) =
        (Box::pin(file.write_at_async(b"x", 0)), Box::pin(file.write_at_async(b"y", 0)));
    assert!(poll(first.as_mut(), &count) && poll(second.as_mut(), &count));
    drop(first);
    drop(lent);
    assert_eq!(count.0.load(SeqCst), 1);
    assert!(!poll(second.as_mut(), &count));
}
