//! Transfers by io_uring.
//!
//! There are two kinds of rings. A *blocking* transfer of several pages, or a batch of them, takes
//! a ring from a small pool, then submits and waits in one system call. *Submitted* transfers all
//! go through one ring that belongs to one thread. The kernel completes a request in the context of
//! the thread that submitted it. If callers submitted their own, each completion would interrupt
//! them, and the end of a thread would cancel its transfers.
//!
//! A blocking transfer of one page is a plain system call. A ring gains nothing there, and on a
//! file system that can only wait (tmpfs, FUSE) the kernel leaves a ring's transfer to a thread of
//! its own: a miss takes two to three times as long.
//!
//! ```text
//! read, write:  caller ── takes a ring, submits, waits ───────────────────────────────> caller
//! submit:       caller ── queue, eventfd ──> thread ── ring of 256 ──> thread ── Completion::complete
//! ```
//!
//! The frames are registered once as fixed buffers, in pieces of 1 GiB (the kernel's limit), and
//! all rings share the registration. It saves the kernel the lookup and pinning of a frame's
//! physical page for each transfer. In return the whole region is allocated and pinned at once and
//! counts against `RLIMIT_MEMLOCK`. Where registration is refused, transfers use ordinary
//! addresses.
//!
//! # Ownership
//!
//! The kernel uses the frames, the list of pieces and the descriptor of an operation until it
//! answers. Therefore [`Operation`] owns the transfer (with its file) and its pieces, and is
//! dropped only after the answer; the owner of the rings holds the frames. No code path abandons an
//! operation: a blocking call returns after the answer, the thread ends when no operation is
//! active, and a panic in it aborts.
//!
//! # Refusal
//!
//! A sandbox may forbid `io_uring_enter` at any time (seccomp). From then on, all transfers are
//! plain system calls. Operations that the kernel has accepted still end: their completions run
//! whenever their thread makes any system call, which is why no ring defers them to the next
//! `enter` (`IORING_SETUP_DEFER_TASKRUN`). The thread waits for these, and carries out the others
//! itself.
//!
//! # Locking
//!
//! Each blocking ring has a mutex, taken by `try_lock` only: a thread that finds no free ring makes
//! the plain system call instead. The thread's ring needs no lock.

mod ring;
mod submitter;
mod together;

use self::ring::{PIECE_BYTES, Shared, is_transient, wake};
use self::submitter::{ENTRIES, Submitter};
use self::together::Together;
use super::disk_file::DiskFile;
use super::queue::{Queue, Request, join, spawn};
use super::threads::{ThreadBackend, transfer_now};
use super::transfer::{Backend, BackendFile, Batch, Completion, Direction, OpenMode, Transfer};
use crate::available::can_be_pinned;
use crate::frames::{FRAME_BYTES, Frames};
use io_uring::{IoUring, Probe, opcode};
use rustix::event::{EventfdFlags, eventfd};
use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, mpsc};
use std::thread::JoinHandle;

/// Fewest frames that are registered: 60 MiB of them, as a budget of 64 MiB has beside its
/// metadata. In a smaller cache, the index of files far larger than the cache may need more than
/// the quarter of the frames that stays unpinned.
const REGISTERED_FRAMES_MIN: u32 = 15_360;
/// Requests that may wait for the thread before submitters wait.
const WAITING_MAX: usize = 256;
/// Number of rings for blocking calls. Each takes three pages of kernel memory once used.
const BLOCKING_RINGS: usize = 64;
/// Active transfers per call. More gain nothing on a single device queue.
const BLOCKING_ENTRIES: usize = 64;
/// Rings that a thread tries, starting with its own, before it uses a plain system call.
const RINGS_TRIED: usize = 4;

pub(crate) struct UringBackend {
    shared: Arc<Shared>,
    registration: Option<Registration>,
    rings: Box<[Mutex<Option<IoUring>>]>,
    thread: Option<JoinHandle<()>>,
    /// For submitted transfers of files without `O_DIRECT`; started on first use.
    pool: OnceLock<ThreadBackend>,
}

/// Buffer registration, from best to worst. The backend uses the best that the system grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffers {
    /// Registered once and shared by all rings (Linux 6.12).
    Shared,
    /// Registered with the thread's ring only.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "what `Shared` becomes on old kernels, asked for by tests")
    )]
    Own,
    /// Not registered: ordinary addresses.
    Plain,
}

/// The frames as registered buffers: a ring without operations, from which all others clone them.
struct Registration(IoUring);

impl UringBackend {
    /// Sets up the rings. The error says why io_uring is not available.
    pub(crate) fn new(frames: Arc<Frames>, completion: Arc<dyn Completion>) -> io::Result<UringBackend> {
        let pinned_bytes = u64::from(frames.pinnable_count()) * FRAME_BYTES as u64;
        let best = match frames.count() < REGISTERED_FRAMES_MIN || !can_be_pinned(pinned_bytes) {
            true => Buffers::Plain,
            false => Buffers::Shared,
        };
        UringBackend::with_buffers(frames, completion, best)
    }

    /// [`Self::new`] with `best` as the best buffer registration to try.
    pub(super) fn with_buffers(
        frames: Arc<Frames>,
        completion: Arc<dyn Completion>,
        best: Buffers,
    ) -> io::Result<UringBackend> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared {
            frames,
            completion,
            queue: Queue::new(WAITING_MAX),
            wake,
            refused: AtomicBool::new(false),
        });
        let (sender, receiver) = mpsc::channel();
        let for_thread = shared.clone();
        // The kernel ties a single-issuer ring to the thread that creates it.
        let thread = spawn("mglru-uring", move || {
            let (ring, registration) = match set_up(&for_thread.frames, best) {
                Ok(ring) => ring,
                Err(error) => return sender.send(Err(error)).expect("the creator waits"),
            };
            let registered = for_thread.frames.is_pinned();
            sender.send(Ok(registration)).expect("the creator waits");
            Submitter::new(&for_thread, ring, registered).work();
        })?;
        match receiver.recv().expect("the thread reports before it ends") {
            Ok(registration) => Ok(UringBackend {
                shared,
                registration,
                rings: (0..BLOCKING_RINGS).map(|_| Mutex::default()).collect(),
                thread: Some(thread),
                pool: OnceLock::new(),
            }),
            Err(error) => {
                join(thread);
                Err(error)
            }
        }
    }

    /// Takes a free ring. `None`: nearby rings are all in use, or a new one cannot be created.
    fn take_ring(&self) -> Option<MutexGuard<'_, Option<IoUring>>> {
        thread_local! {
            static HOME: Cell<usize> = {
                static THREADS: AtomicUsize = AtomicUsize::new(0);
                Cell::new(THREADS.fetch_add(1, Ordering::Relaxed))
            };
        }
        if self.shared.refused.load(Ordering::Relaxed) {
            return None;
        }
        let home = HOME.get();
        for ring in (home..home + RINGS_TRIED).map(|index| &self.rings[index % BLOCKING_RINGS]) {
            let Ok(mut ring) = ring.try_lock() else { continue };
            if ring.is_none() {
                *ring = Some(self.blocking_ring().ok()?);
            }
            return Some(ring);
        }
        None
    }

    fn blocking_ring(&self) -> io::Result<IoUring> {
        // The submitting thread also waits, so a completion need not interrupt any thread.
        let ring = with_flags(BLOCKING_ENTRIES as u32, &|builder| {
            builder.setup_coop_taskrun().setup_taskrun_flag()
        })?;
        if let Some(registration) = &self.registration {
            ring.submitter().register_buffers_clone(registration.0.as_raw_fd())?;
        }
        Ok(ring)
    }

    fn blocking(&self, direction: Direction, transfer: &Transfer) -> io::Result<usize> {
        if !DiskFile::of(transfer).is_direct() || transfer.frames.len() == 1 {
            return transfer_now(&self.shared.frames, direction, transfer);
        }
        let mut one = One { transfer: Some(transfer.clone()), result: None };
        self.together(direction, 1, &mut one);
        one.result.unwrap_or_else(|| transfer_now(&self.shared.frames, direction, transfer))
    }

    /// Carries out transfers on a ring of the caller's own, up to `depth` at once. Returns `false`,
    /// without any transfer, if all rings are taken.
    fn together(&self, direction: Direction, depth: usize, batch: &mut dyn Batch) -> bool {
        let Some(mut slot) = self.take_ring() else { return false };
        let ring = slot.as_mut().expect("`take_ring` filled it");
        let depth = depth.min(BLOCKING_ENTRIES);
        let shared = &*self.shared;
        let mut together = Together::new(shared, ring, self.registration.is_some(), direction, depth, batch);
        let is_idle = together.work();
        let rest = together.into_rest();
        if !is_idle {
            // The entries that were not accepted are dropped with the ring.
            *slot = None;
        }
        drop(slot);
        rest.carry_out();
        true
    }

    /// Whether the ring's thread does the submitted transfers of a file.
    fn takes(&self, file: &Arc<dyn BackendFile>) -> bool {
        file.is_direct() && !self.shared.refused.load(Ordering::Relaxed)
    }

    fn pool(&self) -> io::Result<&ThreadBackend> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool);
        }
        let pool = ThreadBackend::new(self.shared.frames.clone(), self.shared.completion.clone())?;
        // If two threads race here, the loser's pool is dropped.
        Ok(self.pool.get_or_init(|| pool))
    }
}

impl Backend for UringBackend {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn BackendFile>> {
        Ok(Arc::new(DiskFile::open(path, mode)?))
    }

    fn create_swap(&self, path: &Path) -> io::Result<Arc<dyn BackendFile>> {
        Ok(Arc::new(DiskFile::create_unlinked(path)?))
    }

    fn read(&self, transfer: &Transfer) -> io::Result<usize> {
        self.blocking(Direction::Read, transfer)
    }

    fn write(&self, transfer: &Transfer) -> io::Result<usize> {
        self.blocking(Direction::Write, transfer)
    }

    fn read_many(&self, depth: usize, batch: &mut dyn Batch) -> bool {
        self.together(Direction::Read, depth, batch)
    }

    fn submit(&self, direction: Direction, transfer: Transfer, tag: u64) {
        transfer.assert_valid();
        // If no pool can be started, the ring's thread takes all transfers, less efficiently.
        if !self.takes(&transfer.file)
            && let Ok(pool) = self.pool()
        {
            return pool.submit(direction, transfer, tag);
        }
        if self.shared.queue.push(Request { direction, transfer, tag }) {
            wake(&self.shared.wake);
        }
    }

    fn has_room(&self, file: &Arc<dyn BackendFile>) -> bool {
        match self.takes(file) {
            true => self.shared.queue.has_room(),
            false => self.pool.get().is_none_or(|pool| pool.has_room(file)),
        }
    }

    fn drain(&self) {
        self.shared.queue.drain();
        if let Some(pool) = self.pool.get() {
            pool.drain();
        }
    }

    fn registered_buffers(&self) -> bool {
        self.shared.frames.is_pinned()
    }

    fn threads_refused(&self) -> usize {
        self.pool.get().map_or(0, Backend::threads_refused)
    }
}

impl Drop for UringBackend {
    fn drop(&mut self) {
        self.shared.queue.close();
        wake(&self.shared.wake);
        self.thread.take().into_iter().for_each(join);
    }
}

type Builder = io_uring::Builder;

/// Creates a ring with flags that save interrupts, or without them on kernels that lack them.
fn with_flags(entries: u32, flags: &dyn Fn(&mut Builder) -> &mut Builder) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    flags(&mut builder).build(entries).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => IoUring::builder().build(entries),
        _ => Err(error),
    })
}

/// Creates the thread's ring and, for other rings, the registration. Pins the frames if they are
/// registered.
fn set_up(frames: &Frames, best: Buffers) -> io::Result<(IoUring, Option<Registration>)> {
    let mut ring = with_flags(ENTRIES, &|builder| builder.setup_single_issuer().setup_coop_taskrun())?;
    check_enter(&mut ring)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    for code in [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Readv::CODE,
        opcode::Writev::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
    ] {
        if !probe.is_supported(code) {
            return Err(io::Error::other(format!("this kernel's io_uring lacks operation {code}")));
        }
    }
    if best == Buffers::Plain {
        return Ok((ring, None));
    }
    // Before the kernel takes any page; see [`Frames::pin`].
    frames.pin();
    if best == Buffers::Shared
        && let Ok(registration) = Registration::new(frames)
        && ring.submitter().register_buffers_clone(registration.0.as_raw_fd()).is_ok()
    {
        return Ok((ring, Some(registration)));
    }
    // A separate registration costs 16 bytes per page and ring, so only the ring of readahead and
    // write-back gets one.
    if register(&ring, frames).is_err() {
        frames.unpin();
    }
    Ok((ring, None))
}

/// Has the ring do nothing, once. Some sandboxes let a process make rings and then refuse to enter
/// them: better to know before there is anything under way.
fn check_enter(ring: &mut IoUring) -> io::Result<()> {
    // SAFETY: a `Nop` has no pointers.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }.expect("an empty ring has room");
    while ring.completion().next().is_none() {
        match ring.submit_and_wait(1) {
            Err(error) if !is_transient(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn register(ring: &IoUring, frames: &Frames) -> io::Result<()> {
    let length = frames.pinnable_count() as usize * FRAME_BYTES;
    let pieces: Vec<libc::iovec> = (0..length)
        .step_by(PIECE_BYTES)
        .map(|start| libc::iovec {
            iov_base: frames.as_ptr(0).wrapping_add(start).cast(),
            iov_len: PIECE_BYTES.min(length - start),
        })
        .collect();
    // SAFETY: the pieces make up the region of the frames, which every owner of a ring keeps
    // mapped.
    unsafe { ring.submitter().register_buffers(&pieces) }
}

impl Registration {
    fn new(frames: &Frames) -> io::Result<Registration> {
        let ring = IoUring::new(1)?;
        register(&ring, frames)?;
        Ok(Registration(ring))
    }
}

struct One {
    transfer: Option<Transfer>,
    result: Option<io::Result<usize>>,
}

impl Batch for One {
    fn next(&mut self) -> Option<(usize, Transfer)> {
        Some((0, self.transfer.take()?))
    }

    fn done(&mut self, _: usize, result: io::Result<usize>) {
        self.result = Some(result);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::memory::tests::Log;
    use super::super::transfer::Progress;
    use super::super::{BackendKind, choose};
    use super::ring::{ended, piece};
    use super::*;
    use rustix::process::{Resource, Rlimit, setrlimit};
    use std::process::Command;

    /// From now on no thread of this process may enter rings. They may make them.
    fn refuse_to_enter() {
        let step = |code, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut program = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_enter as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let (set, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        // SAFETY: the kernel copies the filter during the call, which it outlives.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::syscall(libc::SYS_seccomp, set, all, &filter) != 0
        };
        assert!(!refused, "{}", io::Error::last_os_error());
    }

    /// Runs `test`, whose full name this is, in a process of its own.
    fn in_a_sandbox(name: &str, test: impl FnOnce()) {
        const INSIDE: &str = "MGLRU_TEST_INSIDE_SANDBOX";
        if std::env::var_os(INSIDE).is_some() {
            return test();
        }
        let name = format!("backend::uring::tests::{name}");
        let mut inside = Command::new(std::env::current_exe().unwrap());
        let output = inside.args(["--exact", &name, "--nocapture"]).env(INSIDE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    /// As some sandboxes have it. The process once ended with the first transfer.
    #[test]
    fn where_rings_cannot_be_entered_threads_read_and_write() {
        in_a_sandbox("where_rings_cannot_be_entered_threads_read_and_write", || {
            refuse_to_enter();
            let frames = Arc::new(Frames::new(64).unwrap());
            let chosen = choose(&BackendKind::Auto, frames.clone(), Log::new()).unwrap();
            assert_eq!(chosen.backend.name(), "threads");
            assert!(chosen.why_not_uring.is_some());
            write_and_read(&*chosen.backend, &frames);
        });
    }

    fn write_and_read(backend: &dyn Backend, frames: &Frames) {
        let directory = tempfile::tempdir().unwrap();
        let file = backend.open(&directory.path().join("f"), OpenMode::Create).unwrap();
        frames.copy_in(3, 0, &[7; FRAME_BYTES]);
        assert_eq!(backend.write(&Transfer::pages(file.clone(), 0, vec![3])).unwrap(), FRAME_BYTES);
        assert_eq!(backend.read(&Transfer::pages(file, 0, vec![9])).unwrap(), FRAME_BYTES);
        assert!(!frames.is_zero(9));
    }

    /// A write beyond the limit once ended the process, in the middle of a write-back.
    #[test]
    fn a_write_beyond_the_largest_file_that_the_process_may_write_fails() {
        in_a_sandbox("a_write_beyond_the_largest_file_that_the_process_may_write_fails", || {
            let directory = tempfile::tempdir().unwrap();
            let most = FRAME_BYTES as u64;
            setrlimit(Resource::Fsize, Rlimit { current: Some(most), maximum: Some(most) }).unwrap();
            for kind in [BackendKind::Auto, BackendKind::Threads] {
                let (frames, log) = (Arc::new(Frames::new(64).unwrap()), Log::new());
                let backend = choose(&kind, frames, log.clone()).unwrap().backend;
                let path = directory.path().join(backend.name());
                let file = backend.open(&path, OpenMode::Create).unwrap();
                for page in 0..2 {
                    let one = Transfer::pages(file.clone(), page * most, vec![0]);
                    backend.submit(Direction::Write, one, page);
                }
                backend.drain();
                assert_eq!(log.take(0).unwrap(), FRAME_BYTES);
                assert_eq!(log.take(1).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
            }
        });
    }

    /// Such a file once had no direct transfers for as long as it was open.
    #[test]
    fn a_file_whose_second_descriptor_is_missing_is_not_opened() {
        in_a_sandbox("a_file_whose_second_descriptor_is_missing_is_not_opened", || {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("f");
            let is_direct = DiskFile::open(&path, OpenMode::Create).unwrap().is_direct();
            setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
            let mut held: Vec<_> = std::iter::from_fn(|| std::fs::File::open(&path).ok()).collect();
            for free in 0..2 {
                let error = DiskFile::open(&path, OpenMode::ReadOnly).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{free} descriptors");
                held.pop();
            }
            assert_eq!(DiskFile::open(&path, OpenMode::ReadOnly).unwrap().is_direct(), is_direct);
        });
    }

    /// Where the kernel may start no thread for a ring, writes failed until it could.
    #[test]
    fn a_transfer_that_the_kernel_has_no_thread_for_is_carried_out_by_the_caller() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file: Arc<dyn BackendFile> = Arc::new(DiskFile::open(&path, OpenMode::Create).unwrap());
        let frames = Frames::new(8).unwrap();
        frames.copy_in(0, 0, &[7; FRAME_BYTES]);
        let transfer = Transfer::pages(file, 0, vec![0]);
        let progress = Progress::new(Direction::Write, &transfer);
        let step = DiskFile::of(&transfer).step(&frames, &transfer, &progress);
        let answered = |code| ended(Err(io::Error::from_raw_os_error(code)), Direction::Write, &step);
        assert_eq!(answered(libc::ENOSPC).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        assert!(std::fs::read(&path).unwrap().is_empty());
        assert_eq!(answered(libc::ECANCELED).unwrap(), FRAME_BYTES);
        assert_eq!(std::fs::read(&path).unwrap(), [7; FRAME_BYTES]);
        assert_eq!(ended(Ok(5), Direction::Write, &step).unwrap(), 5);
    }

    /// The host of the cache may enter a sandbox at any time, as in the middle of transfers: none
    /// of them is lost. The process once ended here.
    #[test]
    fn rings_that_cannot_be_entered_any_more_lose_no_transfer() {
        const PAGES: u64 = 500;
        in_a_sandbox("rings_that_cannot_be_entered_any_more_lose_no_transfer", || {
            let (frames, log) = (Arc::new(Frames::new(64).unwrap()), Log::new());
            let Ok(backend) = UringBackend::new(frames.clone(), log.clone()) else {
                eprintln!("io_uring is not available: this test has nothing to do");
                return;
            };
            let directory = tempfile::tempdir().unwrap();
            let file = backend.open(&directory.path().join("f"), OpenMode::Create).unwrap();
            (0..64).for_each(|frame| frames.copy_in(frame, 0, &[frame as u8 + 1; FRAME_BYTES]));
            std::thread::scope(|scope| {
                let blocking = scope.spawn(|| {
                    (0..PAGES).for_each(|page| {
                        let offset = (PAGES + page) * FRAME_BYTES as u64;
                        let one = Transfer::pages(file.clone(), offset, vec![page as u32 % 64]);
                        assert_eq!(backend.write(&one).unwrap(), FRAME_BYTES);
                    });
                });
                for page in 0..PAGES {
                    let frame = vec![page as u32 % 64];
                    let one = Transfer::pages(file.clone(), page * FRAME_BYTES as u64, frame);
                    backend.submit(Direction::Write, one, page);
                    if page == PAGES / 2 {
                        refuse_to_enter();
                    }
                }
                blocking.join().unwrap();
            });
            backend.drain();
            for page in 0..PAGES {
                assert_eq!(log.take(page).unwrap(), FRAME_BYTES, "page {page}");
            }
            let written = std::fs::read(directory.path().join("f")).unwrap();
            let same = |(page, bytes): (usize, &[u8])| {
                bytes.iter().all(|&byte| byte == ((page as u64 % PAGES) % 64) as u8 + 1)
            };
            assert!(written.chunks(FRAME_BYTES).enumerate().all(same));
            assert_eq!(written.len() as u64, 2 * PAGES * FRAME_BYTES as u64);
            write_and_read(&backend, &frames);
        });
    }

    /// Reads pages in order, a frame for each that is under way. Checks each page, and that it ends
    /// once.
    struct Reads<'a> {
        file: Arc<dyn BackendFile>,
        frames: &'a Frames,
        pages: u64,
        next: u64,
        free: Vec<u32>,
        /// The frames of the reads, by their number; none from its end on.
        under_way: Vec<Option<u32>>,
        /// Ended reads at which no thread may enter rings any more.
        refuse_at: usize,
        ended: usize,
    }

    impl Batch for Reads<'_> {
        fn next(&mut self) -> Option<(usize, Transfer)> {
            let frame = if self.next < self.pages { self.free.pop()? } else { return None };
            self.under_way.push(Some(frame));
            let number = self.next;
            self.next += 1;
            let offset = number * FRAME_BYTES as u64;
            Some((number as usize, Transfer::pages(self.file.clone(), offset, vec![frame])))
        }

        fn done(&mut self, number: usize, result: io::Result<usize>) {
            assert_eq!(result.unwrap(), FRAME_BYTES, "read {number}");
            let frame = self.under_way[number].take().expect("a read ends once");
            let mut first = [0; 8];
            self.frames.copy_out(frame, 0, &mut first);
            assert_eq!(u64::from_ne_bytes(first), number as u64 + 1, "the page of another read");
            self.free.push(frame);
            self.ended += 1;
            if self.ended == self.refuse_at {
                refuse_to_enter();
            }
        }
    }

    fn read_a_batch(refuse_at: usize) {
        const PAGES: u64 = 500;
        let frames = Arc::new(Frames::new(128).unwrap());
        let Ok(backend) = UringBackend::new(frames.clone(), Log::new()) else {
            eprintln!("io_uring is not available: this test has nothing to do");
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let page = |number: u64| number.to_ne_bytes().repeat(FRAME_BYTES / 8);
        std::fs::write(&path, (1..=PAGES).flat_map(page).collect::<Vec<u8>>()).unwrap();
        let file = backend.open(&path, OpenMode::ReadOnly).unwrap();
        let free = (0..64).collect();
        let (under_way, frames) = (Vec::new(), &*frames);
        let mut reads = Reads { file, frames, pages: PAGES, next: 0, free, under_way, refuse_at, ended: 0 };
        assert!(backend.read_many(32, &mut reads));
        assert_eq!(reads.ended as u64, PAGES, "every read ends");
    }

    #[test]
    fn a_batch_reads_each_page_once() {
        read_a_batch(usize::MAX);
    }

    /// Some of the batch are on the ring then, some answered and some prepared.
    #[test]
    fn a_batch_whose_ring_cannot_be_entered_any_more_loses_no_transfer() {
        in_a_sandbox("a_batch_whose_ring_cannot_be_entered_any_more_loses_no_transfer", || {
            read_a_batch(100);
        });
    }

    /// Maps slightly more than 1 GiB, without touching it.
    #[test]
    fn a_segment_across_two_registered_pieces_belongs_to_neither() {
        let pages = (PIECE_BYTES / FRAME_BYTES) as u32;
        let frames = Frames::new((pages + 4) * 4 / 3 + 1).unwrap();
        let segment = |frame, count: usize| libc::iovec {
            iov_base: frames.as_ptr(frame).cast(),
            iov_len: count * FRAME_BYTES,
        };
        assert_eq!(piece(&frames, &segment(0, 1)), Some(0));
        assert_eq!(piece(&frames, &segment(pages - 2, 2)), Some(0));
        assert_eq!(piece(&frames, &segment(pages - 2, 3)), None);
        assert_eq!(piece(&frames, &segment(pages, 4)), Some(1));
        assert_eq!(piece(&frames, &segment(frames.pinnable_count(), 1)), None);
    }
}
