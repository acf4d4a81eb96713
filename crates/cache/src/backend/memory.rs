//! Transfers to and from [`MemoryFiles`], for tests, without files or system calls.
//!
//! # Locking
//!
//! The disk's mutex may be taken under the queue's (to pick a request), never the reverse.

use super::memory_files::MemoryFiles;
use super::queue::{Queue, Request, join, spawn};
use super::transfer::{Backend, BackendFile, Completion, Direction, OpenMode, Transfer};
use crate::frames::Frames;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The backend over files in memory. One thread carries out submitted transfers in an order that
/// the seed decides, because devices do not keep an order either.
pub(crate) struct MemoryBackend {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    files: Arc<MemoryFiles>,
    frames: Arc<Frames>,
    completion: Arc<dyn Completion>,
    queue: Queue<Request>,
}

impl MemoryBackend {
    /// Creates a backend over `files`, which several backends may share.
    pub(crate) fn new(
        files: Arc<MemoryFiles>,
        frames: Arc<Frames>,
        completion: Arc<dyn Completion>,
    ) -> io::Result<MemoryBackend> {
        // Unbounded: when a test closes the gate, its submissions must not block the test.
        let shared = Arc::new(Shared { files, frames, completion, queue: Queue::new(usize::MAX) });
        let for_thread = shared.clone();
        let thread = spawn("mglru-memory", move || for_thread.work())?;
        Ok(MemoryBackend { shared, thread: Some(thread) })
    }
}

impl Shared {
    fn work(&self) {
        while self.queue.wait() {
            self.files.pass();
            let pick = |count| self.files.random_below(count);
            if let Some(Request { direction, transfer, tag }) = self.queue.pick(pick) {
                let result = self.files.transfer(&self.frames, direction, &transfer);
                drop(transfer);
                self.queue.finish(|| self.completion.complete(tag, result));
            }
        }
    }

    fn transfer_now(&self, direction: Direction, transfer: &Transfer) -> io::Result<usize> {
        transfer.assert_valid();
        self.files.arrive();
        self.files.transfer(&self.frames, direction, transfer)
    }
}

impl Backend for MemoryBackend {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn BackendFile>> {
        Ok(Arc::new(self.shared.files.open(path, mode)?))
    }

    fn create_swap(&self, path: &Path) -> io::Result<Arc<dyn BackendFile>> {
        // Keeps its name, so that tests can reach it.
        Ok(Arc::new(self.shared.files.open(path, OpenMode::Create)?))
    }

    fn read(&self, transfer: &Transfer) -> io::Result<usize> {
        self.shared.transfer_now(Direction::Read, transfer)
    }

    fn write(&self, transfer: &Transfer) -> io::Result<usize> {
        self.shared.transfer_now(Direction::Write, transfer)
    }

    fn submit(&self, direction: Direction, transfer: Transfer, tag: u64) {
        transfer.assert_valid();
        self.shared.files.arrive();
        self.shared.queue.push(Request { direction, transfer, tag });
    }

    fn drain(&self) {
        self.shared.queue.drain();
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        // A test that fails with the gate closed must end, not hang.
        self.shared.files.release();
        self.shared.queue.close();
        self.thread.take().into_iter().for_each(join);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger};
    use crate::frames::FRAME_BYTES;
    use std::collections::BTreeMap;
    use std::fmt;
    use std::sync::Mutex;

    /// The content of test page `number`, different in every word of every page.
    pub(in super::super) fn page(number: u64) -> [u8; FRAME_BYTES] {
        let mut page = [0; FRAME_BYTES];
        for (index, word) in page.chunks_mut(8).enumerate() {
            word.copy_from_slice(&(number * 1_000_003 + index as u64 + 1).to_ne_bytes());
        }
        page
    }

    pub(in super::super) struct Log(Mutex<BTreeMap<u64, io::Result<usize>>>);

    impl Log {
        pub(in super::super) fn new() -> Arc<Log> {
            Arc::new(Log(Mutex::default()))
        }

        pub(in super::super) fn count(&self) -> usize {
            self.0.lock().unwrap().len()
        }

        pub(in super::super) fn take(&self, tag: u64) -> io::Result<usize> {
            self.0.lock().unwrap().remove(&tag).expect("completed")
        }
    }

    impl Completion for Log {
        fn complete(&self, tag: u64, result: io::Result<usize>) {
            assert!(self.0.lock().unwrap().insert(tag, result).is_none(), "{tag} completed twice");
        }
    }

    struct World {
        files: Arc<MemoryFiles>,
        frames: Arc<Frames>,
        log: Arc<Log>,
        backend: MemoryBackend,
    }

    fn world(seed: u64) -> World {
        let files = MemoryFiles::new(seed);
        let frames = Arc::new(Frames::new(64).unwrap());
        let log = Log::new();
        let backend = MemoryBackend::new(files.clone(), frames.clone(), log.clone()).unwrap();
        World { files, frames, log, backend }
    }

    impl World {
        fn open(&self, path: &str) -> Arc<dyn BackendFile> {
            self.backend.open(Path::new(path), OpenMode::Create).unwrap()
        }

        fn fault(&self, operation: FaultOperation, trigger: FaultTrigger, effect: FaultEffect) {
            self.files.inject(Fault { path: Some("a".into()), operation, trigger, effect });
        }
    }

    fn number<T: fmt::Debug>(result: io::Result<T>) -> i32 {
        result.unwrap_err().raw_os_error().unwrap()
    }

    #[test]
    fn contents_combine_set_and_written_bytes() {
        let world = world(0);
        world.files.set_contents("a", b"old and long");
        let file = world.open("a");
        world.files.set_contents("a", b"new");
        assert_eq!((world.files.contents("a").unwrap(), file.len().unwrap()), (b"new".to_vec(), 3));
        world.frames.copy_in(0, 0, &page(7));
        let transfer = Transfer { file: file.clone(), offset: 4096, frames: vec![0], bytes: 10 };
        assert_eq!(world.backend.write(&transfer).unwrap(), 10);
        let mut expected = b"new".to_vec();
        expected.resize(4096, 0);
        expected.extend_from_slice(&page(7)[..10]);
        assert_eq!(world.files.contents("a").unwrap(), expected);
        assert_eq!(world.files.contents("b"), None);
    }

    #[test]
    fn a_removed_file_stays_readable_through_open_handles() {
        let world = world(0);
        world.files.set_contents("a", b"first");
        let file = world.open("a");
        assert!(world.files.remove("a"));
        assert!(!world.files.remove("a"));
        let missing = world.backend.open(Path::new("a"), OpenMode::ReadWrite);
        assert_eq!(number(missing), libc::ENOENT);
        assert_ne!(world.open("a").identity(), file.identity());
        assert_eq!(world.backend.read(&Transfer::pages(file, 0, vec![1])).unwrap(), 5);
    }

    #[test]
    fn faults_strike_when_they_should_and_nothing_else() {
        use FaultEffect::Error;
        let world = world(0);
        let (file, other) = (world.open("a"), world.open("b"));
        let write = |file: &Arc<dyn BackendFile>, number: u64| {
            world.backend.write(&Transfer::pages(file.clone(), number * 4096, vec![number as u32]))
        };
        world.fault(FaultOperation::Write, FaultTrigger::Nth(2), Error(libc::EIO));
        world.fault(FaultOperation::Write, FaultTrigger::Within(8192..8193), Error(libc::ENOSPC));
        world.fault(FaultOperation::Sync, FaultTrigger::Always, Error(libc::EIO));
        write(&file, 0).unwrap();
        write(&other, 2).unwrap();
        assert_eq!(number(write(&file, 0)), libc::EIO);
        write(&file, 1).unwrap();
        assert_eq!(number(write(&file, 2)), libc::ENOSPC);
        assert_eq!(number(write(&file, 2)), libc::ENOSPC);
        assert_eq!(number(file.sync_data()), libc::EIO);
        other.sync_all().unwrap();
        world.files.clear_faults();
        write(&file, 2).unwrap();
        file.sync_all().unwrap();
        let counts = world.files.counts("a");
        assert_eq!((counts.writes, counts.written_bytes, counts.reads, counts.syncs), (6, 3 * 4096, 0, 2));
    }

    #[test]
    fn chance_follows_the_seed() {
        let pattern = |seed| {
            let world = world(seed);
            world.fault(FaultOperation::Write, FaultTrigger::OneIn(3), FaultEffect::Error(libc::EIO));
            let transfer = Transfer { file: world.open("a"), offset: 0, frames: vec![0], bytes: 1 };
            (0..64).map(|_| world.backend.write(&transfer).is_err()).collect::<Vec<bool>>()
        };
        assert_eq!(pattern(1), pattern(1));
        assert_ne!(pattern(1), pattern(2));
        assert!((10..=32).contains(&pattern(1).iter().filter(|failed| **failed).count()));
    }

    #[test]
    fn short_transfers_are_continued() {
        let world = world(0);
        let contents: Vec<u8> = (0..3).flat_map(page).collect();
        world.files.set_contents("a", &contents);
        for effect in [1000, 4096, 5000] {
            world.fault(FaultOperation::Read, FaultTrigger::Always, FaultEffect::Short(effect));
            let transfer = Transfer::pages(world.open("a"), 0, vec![5, 3, 9]);
            assert_eq!(world.backend.read(&transfer).unwrap(), contents.len());
            for (index, frame) in [5, 3, 9].into_iter().enumerate() {
                let mut copy = [0; 4096];
                world.frames.copy_out(frame, 0, &mut copy);
                assert_eq!(copy, page(index as u64));
            }
            world.files.clear_faults();
        }
        assert_eq!(world.files.counts("a").reads, 3);
    }

    #[test]
    fn a_full_disk_accepts_a_partial_write_and_overwrites() {
        let world = world(0);
        world.files.set_capacity_pages(2);
        let file = world.open("a");
        file.set_len(1 << 40).unwrap();
        let three = Transfer::pages(file.clone(), 4096, vec![0, 1, 2]);
        assert_eq!(number(world.backend.write(&three)), libc::ENOSPC);
        assert_eq!(world.files.counts("a").written_bytes, 2 * 4096);
        let two = Transfer::pages(file.clone(), 4096, vec![3, 4]);
        world.backend.write(&two).unwrap();
        file.set_len(0).unwrap();
        world.backend.write(&two).unwrap();
        assert_eq!(file.len().unwrap(), 3 * 4096);
    }

    #[test]
    fn a_closed_gate_holds_blocking_and_submitted_transfers() {
        let world = world(3);
        let file = world.open("a");
        world.files.hold();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| world.backend.read(&Transfer::pages(file.clone(), 0, vec![0])));
            for tag in 1..=5 {
                world.backend.submit(
                    Direction::Write,
                    Transfer::pages(file.clone(), tag * 4096, vec![tag as u32]),
                    tag,
                );
            }
            world.files.wait_held(6);
            assert_eq!((world.files.held(), world.files.counts("a").writes, world.log.count()), (6, 0, 0));
            world.files.release();
            reader.join().unwrap().unwrap();
        });
        world.backend.drain();
        assert_eq!((world.files.held(), world.log.count()), (0, 5));
        assert_eq!(file.len().unwrap(), 6 * 4096);
    }
}
