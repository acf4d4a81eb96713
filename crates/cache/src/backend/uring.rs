//! Transfers by io_uring.
//!
//! Two kinds of rings. A *blocking* transfer, or a batch of them, takes a ring from a small pool,
//! submits and waits on it in one system call. *Submitted* transfers all go through one ring that
//! belongs to one thread, the only one to submit to it: the kernel completes a request in the
//! context of the thread that submitted it, so submitting from the callers' threads would interrupt
//! each of them for every completion, and cancel what is under way when one of them ends.
//!
//! ```text
//! read, write:  caller ── takes a ring, submits, waits ───────────────────────────────> caller
//! submit:       caller ── queue, eventfd ──> thread ── ring of 256 ──> thread ── Completion::complete
//! ```
//!
//! The frames are registered once as fixed buffers, in pieces of 1 GiB (the kernel's limit), and
//! all rings share that registration. It saves the kernel looking up and pinning a frame's physical
//! page for each transfer; the price is that the whole region is allocated and pinned at once, and
//! counted against `RLIMIT_MEMLOCK`. Where that is refused, everything works with ordinary
//! addresses.
//!
//! # Ownership
//!
//! The kernel uses the frames, the list of pieces and the descriptor of an operation until it has
//! answered. So an operation owns them: [`Operation`] holds the transfer (with the file) and its
//! pieces and is dropped after its answer only; the rings' owner holds the frames. No way out of
//! this file leaves an operation behind: a blocking call returns after the answer, the thread ends
//! when nothing is under way, and a panic in it aborts.
//!
//! # Locking
//!
//! A blocking ring sits in a mutex of its own that is only ever tried: a thread that finds no ring
//! free makes the plain system call instead. The thread's ring needs no lock.

use super::disk_file::{DiskFile, Step};
use super::queue::{Queue, Request, join, spawn};
use super::threads::{ThreadBackend, finish, transfer_now};
use super::transfer::{Backend, BackendFile, Batch, Completion, Direction, OpenMode, Progress, Transfer};
use crate::frames::{FRAME_BYTES, Frames};
use io_uring::types::Fd;
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use rustix::event::{EventfdFlags, eventfd};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, mpsc};
use std::thread::JoinHandle;

/// Largest buffer that the kernel registers.
const PIECE_BYTES: usize = 1 << 30;
/// Caches smaller than 64 MiB are not registered: files far larger than they are need an index that
/// takes more than the eighth of the frames that would be left to pay for it.
const REGISTERED_FRAMES_MIN: u32 = 16_384;
/// Submitted operations under way at once; as many as one NVMe queue usually has entries for.
const UNDER_WAY_MAX: usize = 255;
/// Entries of the thread's ring: every operation and the read that wakes the thread.
const ENTRIES: u32 = 256;
/// Requests waiting for the thread before submitters wait too.
const WAITING_MAX: usize = 256;
/// Rings for blocking calls; each costs three pages of kernel memory once it was used.
const BLOCKING_RINGS: usize = 64;
/// Transfers that one call has under way; more gain nothing on one queue of a device.
const BLOCKING_ENTRIES: usize = 64;
/// Answers that are dealt with before what takes their place is submitted: a device answers many at
/// once, and is not to wait until the last of them was copied.
const ANSWERS_TOGETHER: usize = 8;
/// Rings that a thread tries, from its own on, before it goes without.
const RINGS_TRIED: usize = 4;
/// `user_data` of the read that wakes the thread.
const WAKE: u64 = u64::MAX;

/// The backend on io_uring.
pub(crate) struct UringBackend {
    shared: Arc<Shared>,
    registration: Option<Registration>,
    rings: Box<[Mutex<Option<IoUring>>]>,
    thread: Option<JoinHandle<()>>,
    /// For submitted transfers of files without `O_DIRECT`; started with the first.
    pool: OnceLock<ThreadBackend>,
}

/// What callers and the thread share.
struct Shared {
    frames: Arc<Frames>,
    completion: Arc<dyn Completion>,
    queue: Queue,
    wake: OwnedFd,
}

/// How the rings know the frames; of what is asked for, the best that the system grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffers {
    /// Registered once, all rings share it. Linux 6.12.
    Shared,
    /// Registered with the thread's ring only.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "what `Shared` becomes on old kernels, asked for by tests")
    )]
    Own,
    /// By their addresses.
    Plain,
}

/// The frames as registered buffers. A ring without operations, from which all others clone.
struct Registration(IoUring);

impl UringBackend {
    /// Sets the rings up. The error says why there is no io_uring here.
    pub(crate) fn new(frames: Arc<Frames>, completion: Arc<dyn Completion>) -> io::Result<UringBackend> {
        let best = if frames.count() < REGISTERED_FRAMES_MIN { Buffers::Plain } else { Buffers::Shared };
        UringBackend::with_buffers(frames, completion, best)
    }

    /// The same, with buffers of this kind at best.
    pub(super) fn with_buffers(
        frames: Arc<Frames>,
        completion: Arc<dyn Completion>,
        best: Buffers,
    ) -> io::Result<UringBackend> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { frames, completion, queue: Queue::new(WAITING_MAX), wake });
        let (sender, receiver) = mpsc::channel();
        let for_thread = shared.clone();
        // The kernel ties a ring for a single submitter to the thread that creates it.
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

    /// A ring that nobody uses. `None`: the threads around here use them all, or another cannot be
    /// had.
    fn take_ring(&self) -> Option<MutexGuard<'_, Option<IoUring>>> {
        thread_local! {
            static HOME: Cell<usize> = {
                static THREADS: AtomicUsize = AtomicUsize::new(0);
                Cell::new(THREADS.fetch_add(1, Ordering::Relaxed))
            };
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
        // Whoever submits also waits, so no completion needs to interrupt anybody.
        let ring = with_flags(BLOCKING_ENTRIES as u32, &|builder| builder.setup_coop_taskrun())?;
        if let Some(registration) = &self.registration {
            ring.submitter().register_buffers_clone(registration.0.as_raw_fd())?;
        }
        Ok(ring)
    }

    fn blocking(&self, direction: Direction, transfer: &Transfer) -> io::Result<usize> {
        if !DiskFile::of(transfer).is_direct() {
            return transfer_now(&self.shared.frames, direction, transfer);
        }
        let mut one = One { transfer: Some(transfer.clone()), result: None };
        self.together(direction, 1, &mut one);
        one.result.unwrap_or_else(|| transfer_now(&self.shared.frames, direction, transfer))
    }

    /// Carries out transfers on a ring of the caller's own, up to `depth` at once. `false`: there
    /// is no ring for it, and nothing was done.
    fn together(&self, direction: Direction, depth: usize, batch: &mut dyn Batch) -> bool {
        let Some(mut slot) = self.take_ring() else { return false };
        let ring = slot.as_mut().expect("`take_ring` filled it");
        let frames = &self.shared.frames;
        let mut places: Vec<Option<Place>> = (0..depth.min(BLOCKING_ENTRIES)).map(|_| None).collect();
        let mut free: Vec<usize> = (0..places.len()).rev().collect();
        let push = |ring: &mut IoUring, at: usize, step: &Step| {
            let entry = entry(frames, direction, step, self.registration.is_some()).user_data(at as u64);
            // SAFETY: frames, and the pieces and the file of the place (`places` does not grow),
            // stay where they are until the entry is answered: no path leaves before, and an
            // unwinding one aborts.
            unsafe { ring.submission().push(&entry) }.expect("a ring has an entry for each");
        };
        let guard = UnderWay;
        let (mut handed_out, mut more) = (0, true);
        let mut answers = Vec::with_capacity(places.len());
        loop {
            while more && let Some(&at) = free.last() {
                let Some(transfer) = batch.next() else {
                    more = false;
                    break;
                };
                let number = handed_out;
                handed_out += 1;
                if !DiskFile::of(&transfer).is_direct() {
                    batch.done(number, transfer_now(frames, direction, &transfer));
                    continue;
                }
                free.pop();
                let progress = Progress::new(direction, &transfer);
                let step = DiskFile::of(&transfer).step(frames, &transfer, &progress);
                let place = places[at].insert(Place { number, transfer, progress, step });
                push(ring, at, &place.step);
            }
            let under_way = places.len() - free.len();
            if under_way == 0 {
                break;
            }
            let waits_for = usize::from(ring.completion().is_empty());
            let entered = ring.submit_and_wait(waits_for);
            answers.extend(ring.completion().take(ANSWERS_TOGETHER));
            let answered = !answers.is_empty();
            for answer in answers.drain(..) {
                let at = answer.user_data() as usize;
                let place = places[at].as_mut().expect("one answer for each step");
                let file = DiskFile::of(&place.transfer);
                if let Some(result) = file.advance(&mut place.progress, place.step.direct, result_of(&answer))
                {
                    finish(frames, direction, &place.transfer, &result);
                    let number = place.number;
                    places[at] = None;
                    free.push(at);
                    batch.done(number, result);
                } else {
                    place.step = file.step(frames, &place.transfer, &place.progress);
                    push(ring, at, &place.step);
                }
            }
            match entered {
                // It takes none of them.
                Err(error) if !answered && !is_transient(&error) && ring.submission().len() == under_way => {
                    break;
                }
                // Otherwise the kernel owes us answers, whatever it says.
                Err(_) if !answered => std::thread::yield_now(),
                _ => {}
            }
        }
        std::mem::forget(guard);
        if free.len() < places.len() {
            // They die with the ring, and are none the worse for it.
            *slot = None;
        }
        drop(slot);
        for place in places.into_iter().flatten() {
            batch.done(place.number, transfer_now(frames, direction, &place.transfer));
        }
        while more && let Some(transfer) = batch.next() {
            batch.done(handed_out, transfer_now(frames, direction, &transfer));
            handed_out += 1;
        }
        true
    }

    fn pool(&self) -> io::Result<&ThreadBackend> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool);
        }
        let pool = ThreadBackend::new(self.shared.frames.clone(), self.shared.completion.clone())?;
        // Of two threads that come here at once one keeps its pool, the other's ends again.
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
        // Without a pool (no more threads to be had) the ring takes those files too, only less
        // well.
        if !DiskFile::of(&transfer).is_direct()
            && let Ok(pool) = self.pool()
        {
            return pool.submit(direction, transfer, tag);
        }
        if self.shared.queue.push(Request { direction, transfer, tag }) {
            wake(&self.shared.wake);
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
}

impl Drop for UringBackend {
    fn drop(&mut self) {
        self.shared.queue.close();
        wake(&self.shared.wake);
        self.thread.take().into_iter().for_each(join);
    }
}

fn wake(event: &OwnedFd) {
    // A full counter would say what we want to say anyway; other errors need a closed descriptor.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

type Builder = io_uring::Builder;

/// A ring with flags that spare interrupts, or without where the kernel does not know them yet.
fn with_flags(entries: u32, flags: &dyn Fn(&mut Builder) -> &mut Builder) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    flags(&mut builder).build(entries).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => IoUring::builder().build(entries),
        _ => Err(error),
    })
}

/// The thread's ring and, for other rings, the registration. The frames are pinned if the ring has
/// them registered.
fn set_up(frames: &Frames, best: Buffers) -> io::Result<(IoUring, Option<Registration>)> {
    let ring = with_flags(ENTRIES, &|builder| builder.setup_single_issuer().setup_defer_taskrun())?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    for code in [
        opcode::Read::CODE,
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
    // Before the kernel has any page: see there.
    frames.pin();
    if best == Buffers::Shared
        && let Ok(registration) = Registration::new(frames)
        && ring.submitter().register_buffers_clone(registration.0.as_raw_fd()).is_ok()
    {
        return Ok((ring, Some(registration)));
    }
    // A registration of its own for each of many rings would cost 16 bytes a page each, so only the
    // ring of readahead and write-back gets one.
    if register(&ring, frames).is_err() {
        frames.unpin();
    }
    Ok((ring, None))
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

/// The ring's entry for a step. What it points to is kept by the caller until the answer.
fn entry(frames: &Frames, direction: Direction, step: &Step, registered: bool) -> squeue::Entry {
    let fd = Fd(step.fd);
    let segments = step.segments.as_slice();
    if let [segment] = segments
        && registered
        && let Some(piece) = piece(frames, segment)
    {
        let (start, length) = (segment.iov_base.cast::<u8>(), segment.iov_len as u32);
        return match direction {
            Direction::Read => opcode::ReadFixed::new(fd, start, length, piece).offset(step.offset).build(),
            Direction::Write => opcode::WriteFixed::new(fd, start, length, piece).offset(step.offset).build(),
        };
    }
    let (list, count) = (segments.as_ptr(), segments.len() as u32);
    match direction {
        Direction::Read => opcode::Readv::new(fd, list, count).offset(step.offset).build(),
        Direction::Write => opcode::Writev::new(fd, list, count).offset(step.offset).build(),
    }
}

/// The registered piece that a segment lies in, unless it lies across two or is not registered.
fn piece(frames: &Frames, segment: &libc::iovec) -> Option<u16> {
    let start = segment.iov_base.addr() - frames.as_ptr(0).addr();
    if start + segment.iov_len > frames.pinnable_count() as usize * FRAME_BYTES {
        return None;
    }
    let (first, last) = (start / PIECE_BYTES, (start + segment.iov_len - 1) / PIECE_BYTES);
    (first == last).then(|| u16::try_from(first).ok())?
}

fn result_of(answer: &cqueue::Entry) -> io::Result<usize> {
    usize::try_from(answer.result()).map_err(|_| io::Error::from_raw_os_error(-answer.result()))
}

/// Whether an interrupted or momentarily refused `io_uring_enter` is simply made again.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// A transfer of a batch under way, with everything that the kernel uses.
struct Place {
    number: usize,
    transfer: Transfer,
    progress: Progress,
    step: Step,
}

/// A batch of one.
struct One {
    transfer: Option<Transfer>,
    result: Option<io::Result<usize>>,
}

impl Batch for One {
    fn next(&mut self) -> Option<Transfer> {
        self.transfer.take()
    }

    fn done(&mut self, _: usize, result: io::Result<usize>) {
        self.result = Some(result);
    }
}

/// The kernel uses memory that an unwinding thread would give up.
struct UnderWay;

impl Drop for UnderWay {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// A submitted transfer under way, with everything that the kernel uses.
struct Operation {
    request: Request,
    progress: Progress,
    step: Step,
}

/// The thread's side.
struct Submitter<'a> {
    shared: &'a Shared,
    ring: IoUring,
    registered: bool,
    /// Operations by the number that is their `user_data`; a step's list of pieces lies on the heap
    /// or, if it is a single piece, in the box, so that it stays where the kernel was told it is.
    under_way: Vec<Option<Box<Operation>>>,
    free: Vec<usize>,
    /// Where the read that wakes us puts the counter, kept on the heap.
    counter: Box<[u8; 8]>,
    wake_armed: bool,
}

impl<'a> Submitter<'a> {
    fn new(shared: &'a Shared, ring: IoUring, registered: bool) -> Submitter<'a> {
        let under_way = (0..UNDER_WAY_MAX).map(|_| None).collect();
        let free = (0..UNDER_WAY_MAX).rev().collect();
        let counter = Box::new([0; 8]);
        Submitter { shared, ring, registered, under_way, free, counter, wake_armed: false }
    }

    /// Until the backend is dropped: starts what was queued, waits for an answer or a call, hands
    /// answers on.
    fn work(mut self) {
        let mut started = Vec::with_capacity(UNDER_WAY_MAX);
        let mut answers = Vec::with_capacity(ENTRIES as usize);
        loop {
            let over = self.shared.queue.take_up_to(self.free.len(), &mut started);
            if over {
                break;
            }
            for request in started.drain(..) {
                self.start(request);
            }
            self.arm_wake();
            if let Err(error) = self.ring.submit_and_wait(1) {
                assert!(is_transient(&error), "io_uring_enter failed with operations under way: {error}");
            }
            answers.extend(self.ring.completion());
            for answer in answers.drain(..) {
                self.answer(&answer);
            }
        }
        self.disarm_wake();
    }

    fn start(&mut self, request: Request) {
        let progress = Progress::new(request.direction, &request.transfer);
        let step = DiskFile::of(&request.transfer).step(&self.shared.frames, &request.transfer, &progress);
        let slot = self.free.pop().expect("`work` takes no more requests than there are free places");
        self.under_way[slot] = Some(Box::new(Operation { request, progress, step }));
        self.push_step(slot);
    }

    fn push_step(&mut self, slot: usize) {
        let operation = self.under_way[slot].as_ref().expect("a place in use");
        let entry = entry(&self.shared.frames, operation.request.direction, &operation.step, self.registered);
        // SAFETY: the operation in `slot` owns file and pieces and stays there until `answer`;
        // `shared` holds the frames.
        unsafe { self.push(entry.user_data(slot as u64)) }
    }

    /// # Safety
    ///
    /// Everything that `entry` points to stays valid until it is answered.
    unsafe fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: passed on to the caller.
        unsafe { self.ring.submission().push(&entry) }.expect("as many entries as can be under way");
    }

    fn answer(&mut self, answer: &cqueue::Entry) {
        if answer.user_data() == WAKE {
            self.wake_armed = false;
            return;
        }
        let slot = answer.user_data() as usize;
        let mut operation = self.under_way[slot].take().expect("one answer for each step");
        let file = DiskFile::of(&operation.request.transfer);
        match file.advance(&mut operation.progress, operation.step.direct, result_of(answer)) {
            None => {
                operation.step =
                    file.step(&self.shared.frames, &operation.request.transfer, &operation.progress);
                self.under_way[slot] = Some(operation);
                self.push_step(slot);
            }
            Some(result) => {
                self.free.push(slot);
                let Request { direction, transfer, tag } = operation.request;
                finish(&self.shared.frames, direction, &transfer, &result);
                // The file's handle is let go before anybody hears that it is no longer needed.
                drop(transfer);
                self.shared.queue.finish(&*self.shared.completion, tag, result);
            }
        }
    }

    /// Lets the next `wake` end our waiting.
    fn arm_wake(&mut self) {
        if !self.wake_armed {
            let event: RawFd = self.shared.wake.as_raw_fd();
            let entry = opcode::Read::new(Fd(event), self.counter.as_mut_ptr(), 8).build();
            // SAFETY: the counter and the event's descriptor live until `disarm_wake` has seen the
            // answer.
            unsafe { self.push(entry.user_data(WAKE)) }
            self.wake_armed = true;
        }
    }

    /// The read under way still points to the counter: have it answered.
    fn disarm_wake(&mut self) {
        while self.wake_armed {
            wake(&self.shared.wake);
            if let Err(error) = self.ring.submit_and_wait(1) {
                assert!(is_transient(&error), "io_uring_enter failed with a read under way: {error}");
            }
            self.wake_armed = self.ring.completion().all(|answer| answer.user_data() != WAKE);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// 1 GiB and a bit, of which nothing is touched.
    #[test]
    fn a_segment_across_two_registered_pieces_belongs_to_neither() {
        let pages = (PIECE_BYTES / FRAME_BYTES) as u32;
        let frames = Frames::new((pages + 4) * 8 / 7 + 1).unwrap();
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
