//! Behaviour common to all backends, tested on each of them; disk files are real ones.

use super::disk_file::DiskFile;
use super::memory::tests::{Log, page};
use super::transfer::*;
use super::uring::{Buffers, UringBackend};
use super::*;
use crate::frames::{FRAME_BYTES, Frames};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const FRAMES: u32 = 600;

struct World {
    directory: tempfile::TempDir,
    frames: Arc<Frames>,
    log: Arc<Log>,
    backend: Arc<dyn Backend>,
}

/// A test environment for each backend of this machine; io_uring with every kind of registration.
fn worlds() -> Vec<World> {
    let uring = [Buffers::Shared, Buffers::Own, Buffers::Plain].into_iter().filter_map(|buffers| {
        world(|frames, log| Ok(Arc::new(UringBackend::with_buffers(frames, log, buffers)?)))
            .inspect_err(|error| eprintln!("io_uring is not tested here: {error}"))
            .ok()
    });
    let others = [BackendKind::Threads, BackendKind::Memory(MemoryFiles::new(1))];
    uring
        .chain(others.iter().map(|kind| world(|frames, log| Ok(choose(kind, frames, log)?.backend)).unwrap()))
        .collect()
}

fn world(start: impl FnOnce(Arc<Frames>, Arc<Log>) -> io::Result<Arc<dyn Backend>>) -> io::Result<World> {
    let frames = Arc::new(Frames::new(FRAMES).unwrap());
    let log = Log::new();
    let backend = start(frames.clone(), log.clone())?;
    Ok(World { directory: tempfile::tempdir()?, frames, log, backend })
}

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self, name: &str) -> Arc<dyn BackendFile> {
        self.backend.open(&self.path(name), OpenMode::Create).unwrap()
    }

    fn is_memory(&self) -> bool {
        self.backend.name() == "memory"
    }

    /// Creates a file of `bytes` bytes through the backend; page `n` holds `page(n)`.
    fn file_of(&self, name: &str, bytes: usize) -> Arc<dyn BackendFile> {
        let file = self.open(name);
        for (index, start) in (0..bytes).step_by(FRAME_BYTES).enumerate() {
            self.frames.copy_in(FRAMES - 1, 0, &page(index as u64));
            let length = FRAME_BYTES.min(bytes - start);
            let one = Transfer {
                file: file.clone(),
                offset: start as u64,
                frames: vec![FRAMES - 1],
                bytes: length,
            };
            assert_eq!(self.backend.write(&one).unwrap(), length);
        }
        file
    }

    fn frame(&self, number: u32) -> [u8; FRAME_BYTES] {
        let mut copy = [0; FRAME_BYTES];
        self.frames.copy_out(number, 0, &mut copy);
        copy
    }

    fn spoil(&self, frames: &[u32]) {
        for frame in frames {
            self.frames.copy_in(*frame, 0, &[0xdb; FRAME_BYTES]);
        }
    }

    /// Carries out a transfer, blocking or in the background.
    fn carry_out(&self, background: bool, direction: Direction, transfer: &Transfer) -> io::Result<usize> {
        if background {
            self.backend.submit(direction, transfer.clone(), 77);
            self.backend.drain();
            return self.log.take(77);
        }
        match direction {
            Direction::Read => self.backend.read(transfer),
            Direction::Write => self.backend.write(transfer),
        }
    }
}

fn each_way(mut test: impl FnMut(&World, bool)) {
    for world in worlds() {
        for background in [false, true] {
            test(&world, background);
        }
    }
}

#[test]
fn runs_arrive_in_their_frames_whatever_the_order_of_memory() {
    each_way(|world, background| {
        let file = world.file_of("file", 40 * FRAME_BYTES);
        for frames in [
            vec![7],
            vec![3, 4, 5, 6],
            vec![9, 8, 7],
            vec![20, 21, 40, 41, 42, 1],
            (0..30).map(|i| i * 17 % 31).collect(),
        ] {
            for first in [0, 5, 10] {
                world.spoil(&frames);
                let transfer = Transfer::pages(file.clone(), first * FRAME_BYTES as u64, frames.clone());
                let read = world.carry_out(background, Direction::Read, &transfer).unwrap();
                assert_eq!(read, frames.len() * FRAME_BYTES);
                for (index, frame) in frames.iter().enumerate() {
                    assert_eq!(world.frame(*frame), page(first + index as u64), "{}", world.backend.name());
                }
            }
        }
    });
}

#[test]
fn scattered_frames_are_written_where_they_belong() {
    each_way(|world, background| {
        let file = world.open(if background { "background" } else { "file" });
        let frames: Vec<u32> = (0..64).map(|index| index * 29 % 64).collect();
        for (index, frame) in frames.iter().enumerate() {
            world.frames.copy_in(*frame, 0, &page(index as u64 + 100));
        }
        let bytes = 63 * FRAME_BYTES + 321;
        let transfer = Transfer { file: file.clone(), offset: 2 * FRAME_BYTES as u64, frames, bytes };
        assert_eq!(world.carry_out(background, Direction::Write, &transfer).unwrap(), bytes);
        assert_eq!(file.len().unwrap(), (2 * FRAME_BYTES + bytes) as u64);
        let mut expected = vec![0; 2 * FRAME_BYTES];
        (100..164).for_each(|number| expected.extend_from_slice(&page(number)));
        expected.truncate(2 * FRAME_BYTES + bytes);
        if !world.is_memory() {
            assert!(std::fs::read(file.path()).unwrap() == expected);
        }
        let all: Vec<u32> = (100..166).collect();
        let read = world.carry_out(background, Direction::Read, &Transfer::pages(file, 0, all.clone()));
        assert_eq!(read.unwrap(), expected.len());
        expected.resize(66 * FRAME_BYTES, 0);
        for (frame, expected) in all.iter().zip(expected.chunks(FRAME_BYTES)) {
            assert!(world.frame(*frame) == expected, "frame {frame}");
        }
    });
}

#[test]
fn a_tail_is_read_back_directly_after_it_was_written_buffered() {
    each_way(|world, background| {
        for bytes in [1, 511, 512, 4095, 4096, 4097, 10_000, 12_288] {
            let file = world.file_of(&format!("{bytes}{background}"), bytes);
            assert_eq!(file.len().unwrap(), bytes as u64);
            // Request all whole pages first, then the exact length.
            for wanted in [4 * FRAME_BYTES, bytes] {
                let frames: Vec<u32> = (0..wanted.div_ceil(FRAME_BYTES) as u32).map(|i| i * 2).collect();
                world.spoil(&frames);
                let transfer =
                    Transfer { file: file.clone(), offset: 0, frames: frames.clone(), bytes: wanted };
                assert_eq!(world.carry_out(background, Direction::Read, &transfer).unwrap(), bytes);
                for (index, frame) in frames.iter().enumerate() {
                    let there = bytes.saturating_sub(index * FRAME_BYTES).min(FRAME_BYTES);
                    let content = world.frame(*frame);
                    assert_eq!(content[..there], page(index as u64)[..there]);
                    assert!(content[there..].iter().all(|byte| *byte == 0), "zero behind the end");
                }
            }
            // The last page changes and grows; each direct read must see the buffered write before
            // it.
            let last = (bytes - 1) / FRAME_BYTES;
            for length in [100, 3000] {
                world.frames.copy_in(1, 0, &page(500 + length as u64));
                let offset = (last * FRAME_BYTES) as u64;
                let tail = Transfer { file: file.clone(), offset, frames: vec![1], bytes: length };
                assert_eq!(world.carry_out(background, Direction::Write, &tail).unwrap(), length);
                let transfer = Transfer::pages(file.clone(), offset, vec![2]);
                let read = world.carry_out(background, Direction::Read, &transfer).unwrap();
                assert_eq!(read as u64, file.len().unwrap() - offset);
                assert_eq!(world.frame(2)[..length], page(500 + length as u64)[..length]);
            }
        }
    });
}

#[test]
fn beyond_the_end_there_is_nothing_and_holes_are_zero() {
    each_way(|world, background| {
        let file = world.open(if background { "background" } else { "file" });
        let read = |frames: Vec<u32>, offset: u64| {
            world.spoil(&frames);
            let transfer = Transfer::pages(file.clone(), offset, frames);
            world.carry_out(background, Direction::Read, &transfer).unwrap()
        };
        assert_eq!(read(vec![0], 0), 0);
        assert_eq!(world.frame(0), [0; FRAME_BYTES]);
        file.set_len(5 * FRAME_BYTES as u64).unwrap();
        world.frames.copy_in(9, 0, &page(9));
        let transfer = Transfer::pages(file.clone(), 8 * FRAME_BYTES as u64, vec![9]);
        world.carry_out(background, Direction::Write, &transfer).unwrap();
        assert_eq!(file.len().unwrap(), 9 * FRAME_BYTES as u64);
        assert_eq!(read((0..10).collect(), 0), 9 * FRAME_BYTES);
        for frame in [0, 1, 4, 5, 7, 9] {
            assert_eq!(world.frame(frame), [0; FRAME_BYTES], "frame {frame}");
        }
        assert_eq!(world.frame(8), page(9));
        assert_eq!(read(vec![3], 1 << 40), 0);
    });
}

#[test]
fn a_file_cut_off_meanwhile_reads_short() {
    each_way(|world, background| {
        let file = world.file_of(if background { "background" } else { "file" }, 8 * FRAME_BYTES);
        file.set_len(2 * FRAME_BYTES as u64 + 10).unwrap();
        let frames: Vec<u32> = (0..8).collect();
        world.spoil(&frames);
        let transfer = Transfer::pages(file.clone(), 0, frames);
        let read = world.carry_out(background, Direction::Read, &transfer).unwrap();
        assert_eq!(read, 2 * FRAME_BYTES + 10);
        assert_eq!(world.frame(1), page(1));
        assert_eq!(world.frame(2)[..10], page(2)[..10]);
        assert!(world.frame(2)[10..].iter().chain(&world.frame(7)).all(|byte| *byte == 0));
        file.sync_data().unwrap();
        file.sync_all().unwrap();
    });
}

/// A registered buffer is a physical page. If `release` unmapped it, the ring would keep reading
/// into the old page and the frame would stay zero.
#[test]
fn a_released_frame_still_receives_data() {
    each_way(|world, background| {
        let file = world.file_of("file", 3 * FRAME_BYTES);
        let transfer = Transfer::pages(file, 0, vec![10, 11, 12]);
        for _ in 0..2 {
            world.carry_out(background, Direction::Read, &transfer).unwrap();
            assert_eq!([world.frame(10), world.frame(12)], [page(0), page(2)]);
            for frame in 10..13 {
                assert_eq!(world.frames.release(frame), !world.backend.registered_buffers());
                assert_eq!(world.frame(frame), [0; FRAME_BYTES]);
            }
        }
    });
}

#[test]
fn writes_by_others_are_seen() {
    each_way(|world, background| {
        if world.is_memory() {
            return;
        }
        let file = world.file_of("file", 4 * FRAME_BYTES);
        let outside = std::fs::OpenOptions::new().write(true).open(file.path()).unwrap();
        outside.write_all_at(&page(333), 1000).unwrap();
        let transfer = Transfer::pages(file, 0, vec![0, 1, 2]);
        world.carry_out(background, Direction::Read, &transfer).unwrap();
        let both = [world.frame(0), world.frame(1)].concat();
        assert_eq!(both[1000..1000 + FRAME_BYTES], page(333));
        assert_eq!(both[..1000], page(0)[..1000]);
    });
}

#[test]
fn a_handle_for_reading_refuses_writes() {
    each_way(|world, background| {
        world.file_of("file", FRAME_BYTES);
        let file = world.backend.open(&world.path("file"), OpenMode::ReadOnly).unwrap();
        for bytes in [100, FRAME_BYTES] {
            let transfer = Transfer { file: file.clone(), offset: 0, frames: vec![0], bytes };
            let error = world.carry_out(background, Direction::Write, &transfer).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        }
        assert!(file.set_len(0).is_err());
        let missing = world.backend.open(&world.path("missing"), OpenMode::ReadWrite);
        assert_eq!(missing.unwrap_err().raw_os_error(), Some(libc::ENOENT));
    });
}

/// Opens a device, which users cannot do. It has no direct transfers, and behaves as a full device
/// or as an endless one.
fn device(path: &str) -> Arc<dyn BackendFile> {
    let mut options = std::fs::File::options();
    options.read(true).write(true);
    Arc::new(DiskFile::opened(Path::new(path), options.open(path).unwrap(), &options).unwrap())
}

#[test]
fn a_full_device_says_so() {
    each_way(|world, background| {
        if world.is_memory() {
            return;
        }
        let file = device("/dev/full");
        assert!(!file.is_direct());
        let transfer = Transfer::pages(file, 0, vec![0, 2, 4]);
        let error = world.carry_out(background, Direction::Write, &transfer).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    });
}

#[test]
fn files_without_direct_transfers_work_all_the_same() {
    each_way(|world, background| {
        if world.is_memory() {
            return;
        }
        let file = device("/dev/zero");
        world.spoil(&[0, 1, 5]);
        let transfer = Transfer { file, offset: 0, frames: vec![0, 5, 1], bytes: 9000 };
        assert_eq!(world.carry_out(background, Direction::Read, &transfer).unwrap(), 9000);
        assert_eq!([world.frame(0), world.frame(1), world.frame(5)].concat(), [0; 3 * FRAME_BYTES]);
        assert_eq!(world.carry_out(background, Direction::Write, &transfer).unwrap(), 9000);
    });
}

#[test]
fn four_threads_submit_more_than_fits_and_everything_completes_once() {
    const THREADS: u64 = 4;
    const PAGES: u64 = 140;
    for world in worlds() {
        let file = world.open("file");
        for number in 0..THREADS * PAGES {
            world.frames.copy_in(number as u32, 0, &page(number));
        }
        for direction in [Direction::Write, Direction::Read] {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (world, file) = (&world, &file);
                    scope.spawn(move || {
                        for number in thread * PAGES..(thread + 1) * PAGES {
                            let offset = number * FRAME_BYTES as u64;
                            let transfer = Transfer::pages(file.clone(), offset, vec![number as u32]);
                            // Blocking and submitted transfers at once.
                            if number % 7 == 0 {
                                let result = world.carry_out(false, direction, &transfer);
                                world.log.complete(number, result);
                            } else {
                                world.backend.submit(direction, transfer, number);
                            }
                        }
                    });
                }
            });
            world.backend.drain();
            assert_eq!(world.log.count() as u64, THREADS * PAGES);
            for number in 0..THREADS * PAGES {
                assert_eq!(world.log.take(number).unwrap(), FRAME_BYTES);
                assert_eq!(world.frame(number as u32), page(number));
                world.spoil(&[number as u32]);
            }
        }
        assert_eq!(file.len().unwrap(), THREADS * PAGES * FRAME_BYTES as u64);
    }
}

#[test]
fn dropping_a_backend_waits_for_submitted_transfers() {
    for World { directory, frames, log, backend } in worlds() {
        let file = backend.open(&directory.path().join("file"), OpenMode::Create).unwrap();
        for tag in 0..300 {
            let transfer = Transfer::pages(file.clone(), tag * FRAME_BYTES as u64, vec![tag as u32]);
            backend.submit(Direction::Write, transfer, tag);
        }
        drop(backend);
        assert_eq!(log.count(), 300);
        (0..300).for_each(|tag| assert_eq!(log.take(tag).unwrap(), FRAME_BYTES));
        assert_eq!(Arc::strong_count(&frames), 1, "no reference to the frames is left");
    }
}

/// Submits the next page from the completion of the one before, on the backend's own thread.
struct Chain {
    backend: Mutex<Option<Arc<dyn Backend>>>,
    file: Mutex<Option<Arc<dyn BackendFile>>>,
    completed: Mutex<u64>,
    over: std::sync::Condvar,
}

const FAN_OUT: u64 = 400;

impl Completion for Chain {
    fn complete(&self, tag: u64, result: io::Result<usize>) {
        assert_eq!(result.unwrap(), FRAME_BYTES);
        if tag == 0 {
            let backend = self.backend.lock().unwrap().clone().unwrap();
            let file = self.file.lock().unwrap().clone().unwrap();
            // More than any queue holds.
            for next in 1..=FAN_OUT {
                let transfer = Transfer::pages(file.clone(), next * FRAME_BYTES as u64, vec![next as u32]);
                backend.submit(Direction::Write, transfer, next);
            }
        }
        let mut completed = self.completed.lock().unwrap();
        *completed += 1;
        self.over.notify_all();
    }
}

#[test]
fn a_completion_may_submit_more_than_the_queue_holds() {
    for kind in [BackendKind::Auto, BackendKind::Threads, BackendKind::Memory(MemoryFiles::new(9))] {
        let frames = Arc::new(Frames::new(FRAMES).unwrap());
        let chain = Arc::new(Chain {
            backend: Mutex::default(),
            file: Mutex::default(),
            completed: Mutex::new(0),
            over: std::sync::Condvar::new(),
        });
        let directory = tempfile::tempdir().unwrap();
        let backend = choose(&kind, frames, chain.clone()).unwrap().backend;
        let file = backend.open(&directory.path().join("file"), OpenMode::Create).unwrap();
        *chain.backend.lock().unwrap() = Some(backend.clone());
        *chain.file.lock().unwrap() = Some(file.clone());
        backend.submit(Direction::Write, Transfer::pages(file.clone(), 0, vec![0]), 0);
        backend.drain();
        assert_eq!(*chain.completed.lock().unwrap(), FAN_OUT + 1);
        assert_eq!(file.len().unwrap(), (FAN_OUT + 1) * FRAME_BYTES as u64);
        // Break the reference cycle.
        chain.backend.lock().unwrap().take();
        chain.file.lock().unwrap().take();
    }
}

#[test]
fn auto_is_uring_or_says_why_not() {
    let frames = Arc::new(Frames::new(FRAMES).unwrap());
    let chosen = choose(&BackendKind::Auto, frames.clone(), Log::new()).unwrap();
    match chosen.why_not_uring {
        None => assert_eq!(chosen.backend.name(), "io_uring"),
        Some(reason) => {
            assert_eq!(chosen.backend.name(), "threads");
            assert!(reason.starts_with("io_uring cannot be used here: "), "{reason}");
        }
    }
    assert_eq!(chosen.backend.registered_buffers(), frames.is_pinned());
}

#[test]
#[should_panic(expected = "one frame per page")]
fn a_transfer_with_too_few_frames_is_refused() {
    let world = worlds().pop().unwrap();
    let transfer = Transfer { file: world.open("file"), offset: 0, frames: vec![1], bytes: 5000 };
    let _ = world.backend.read(&transfer);
}
