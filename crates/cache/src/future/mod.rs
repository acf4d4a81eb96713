//! Reads, writes and syncs as futures, for any runtime.
//!
//! ```text
//! poll ── in memory ──► ready at once
//!      ── missing: charged, inserted, read submitted ──► pending, with the task's waker
//!                                     completion of the read ──► page published, waker called
//! ```
//!
//! Neither a request nor a file has a thread: a miss is submitted like readahead, to the ring, the
//! pool of threads or the source, and the task is woken when it has completed. The task itself
//! finds memory for a miss. Where a thread would sleep (reclaim waits for the device, the tenant is
//! above `memory.high`, too many pages are dirty), the future is pending until there was progress
//! or a timer ends. Only syncs need threads, because they wait in the system: a few per cache
//! (`syncs.rs`), and one for each source that is being synced.
//!
//! # Dropping a future
//!
//! A future can be dropped at any time. The kernel never has the caller's buffer: bytes go between
//! it and the cache's frames during a poll only. A submitted read completes into the cache. A write
//! that is dropped has written the pages before some point, as after an error. A sync goes on; its
//! error goes to the next sync.
//!
//! # Locking
//!
//! No lock is held while a future is pending. Wakers are called by threads of the cache, which may
//! hold locks of it, though none of the core: a waker must not poll its future itself, and those of
//! runtimes do not. The panic of a waker ends with its call.

mod read;
mod state;
mod sync;
mod syncs;
mod timer;
mod turns;
mod write;

pub use read::ReadAt;
pub(crate) use state::Futures;
pub use sync::SyncFile;
pub use write::WriteAt;

use crate::error::Error;
use crate::fault::may_be_of_another_page;
use crate::flight::Outcome;
use crate::host::CacheHost;
use crate::inode::Inode;
use crate::latch::Seat;
use crate::shared::Shared;
use mglru_core::readahead::Window;
use mglru_core::{Arrival, ChargeStep, Charging, FolioId, NewFolio, Task, Throttle};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use turns::Place;

/// Steps of reclaim in one poll, before other tasks get the thread.
const STEPS: u32 = 8;
/// How long a task waits for room in the queue of the device.
const NO_ROOM: Duration = Duration::from_millis(1);

/// A pause between two polls, as the core or a full queue asked for it.
#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    /// Rings of `progress` that end the pause early.
    after: Option<u64>,
}

impl Pause {
    /// Begins a pause and registers the task. `rings_before`: the rings of `progress` before the
    /// core asked.
    fn begin(&mut self, shared: &Shared, throttle: Throttle, rings_before: u64, cx: &mut Context<'_>) {
        let is_fixed = matches!(throttle, Throttle::OverHigh(_) | Throttle::Dirty(_));
        self.until = Some(Instant::now() + throttle.timeout());
        self.after = (!is_fixed).then_some(rings_before);
        if !self.goes_on(shared, cx) {
            cx.waker().wake_by_ref();
        }
    }

    /// Begins a pause until the device may have room.
    fn for_room(&mut self, shared: &Shared, cx: &mut Context<'_>) {
        self.until = Some(Instant::now() + NO_ROOM);
        self.after = None;
        shared.futures.timer.wake_at(Instant::now() + NO_ROOM, cx.waker());
    }

    /// Whether a pause is under way; then the task is registered again.
    fn goes_on(&mut self, shared: &Shared, cx: &mut Context<'_>) -> bool {
        let Some(until) = self.until else { return false };
        let progress = &shared.host.progress;
        let is_over = |pause: &Pause| {
            pause.after.is_some_and(|rings_before| progress.rings() > rings_before)
                || Instant::now() >= until
                || shared.stopping.load(Ordering::Acquire)
        };
        if !is_over(self) {
            shared.futures.timer.wake_at(until, cx.waker());
            if self.after.is_some() {
                progress.register(cx.waker());
            }
            // It may have ended before the task was registered.
            if !is_over(self) {
                return true;
            }
        }
        *self = Pause::default();
        false
    }
}

/// The charge of a future for a missing page, over several polls.
#[derive(Debug, Default)]
struct Paying {
    charging: Option<(u32, Charging)>,
    pause: Pause,
    place: Place,
    /// Whether the future keeps its turn until it has used the page, because it has lost the page
    /// before.
    keeps_turn: bool,
}

impl Paying {
    /// Charges page `index` as [`Shared::pay`] does.
    fn poll<'s>(
        &mut self,
        shared: &'s Shared,
        task: &Task,
        inode: &Inode,
        index: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<NewFolio<'s, CacheHost>, Error>> {
        ready!(self.poll_turn(shared, cx))?;
        if self.charging.as_ref().is_some_and(|(of, _)| *of != index) {
            self.cancel(shared);
        }
        let (_, mut charging) = self.charging.take().unwrap_or_else(|| {
            (index, Charging::new(task.memcg, task.cpu).for_page(&shared.core, &inode.mapping, index))
        });
        for _ in 0..STEPS {
            let rings_before = shared.host.progress.rings();
            let step = charging.step(&shared.core, &shared.host);
            shared.submit_swap_outs();
            shared.reap_victims();
            match step {
                ChargeStep::Charged(new) => return Poll::Ready(Ok(new)),
                ChargeStep::More => {}
                ChargeStep::Wait(_) if !shared.futures.take_turn(&mut self.place, cx) => {
                    charging.cancel(&shared.core, &shared.host);
                    return Poll::Pending;
                }
                ChargeStep::Wait(throttle) => {
                    self.charging = Some((index, charging));
                    self.pause.begin(shared, throttle, rings_before, cx);
                    return Poll::Pending;
                }
                ChargeStep::OutOfMemory(report) => return Poll::Ready(Err(report.into())),
            }
        }
        self.charging = Some((index, charging));
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Waits for this future's turn and for the end of its pause.
    fn poll_turn(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        shared.check_open()?;
        let is_free = !self.keeps_turn && self.place.is_none() && shared.futures.turns.is_quiet();
        let has_turn = is_free || shared.futures.take_turn(&mut self.place, cx);
        match has_turn && !self.pause.goes_on(shared, cx) {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Waits for room in the queue of the file's device.
    fn poll_room(&mut self, shared: &Shared, inode: &Inode, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.poll_turn(shared, cx))?;
        if shared.backend.has_room(&inode.file) {
            return Poll::Ready(Ok(()));
        }
        if shared.futures.take_turn(&mut self.place, cx) {
            self.pause.for_room(shared, cx);
        }
        Poll::Pending
    }

    /// Gives back what was paid for a page that is not needed any more.
    fn cancel(&mut self, shared: &Shared) {
        if let Some((_, charging)) = self.charging.take() {
            charging.cancel(&shared.core, &shared.host);
        }
    }
}

/// A page that a future misses, and the read of it that it submitted.
#[derive(Debug, Default)]
struct Missing {
    paying: Paying,
    /// The last read that was submitted.
    read: Option<Arc<Outcome>>,
    /// Whether the page was read, or was to be; it is read alone if it is missing again.
    was_read: bool,
    /// Where the future waits for a page that another one reads or lends.
    seat: Seat,
}

impl Missing {
    /// Submits the read of a page that was inserted, and of those around it.
    fn submit(
        &mut self,
        shared: &Shared,
        inode: &Arc<Inode>,
        task: &Task,
        page: (u32, FolioId),
        window: Window,
        arrival: Arrival,
    ) {
        let outcome = Arc::new(Outcome::default());
        (self.read, self.was_read) = (Some(outcome.clone()), true);
        shared.submit_fault(inode, task, page, window, arrival, outcome);
        if !self.paying.keeps_turn {
            shared.futures.turns.leave(&mut self.paying.place);
        }
    }

    /// Forgets what was found out about a page, before the next one.
    fn next_page(&mut self, shared: &Shared) {
        self.paying.cancel(shared);
        shared.futures.turns.leave(&mut self.paying.place);
        shared.host.latches.leave(&mut self.seat);
        (self.read, self.was_read, self.paying.keeps_turn) = (None, false, false);
    }

    /// The page is missing, perhaps again: if the runtime takes long to come to a task, others
    /// reclaim its page first, and thousands that did so would never find theirs. So a task that
    /// has lost its page takes a turn and keeps it until it has used the page.
    fn note_miss(&mut self) {
        self.paying.keeps_turn = self.was_read;
    }

    /// Takes the error with which the page's read has failed, unless the page is to be read alone.
    fn error(&mut self, inode: &Inode) -> Option<Error> {
        let (source, pages) = self.read.take()?.take()?;
        (!may_be_of_another_page(source.kind(), pages)).then(|| inode.error("read", source))
    }
}

impl Shared {
    /// Registers a task to be woken when `asleep_while` does not hold any more for the folio's
    /// flags. `false`: it does not hold now.
    fn wake_unless(
        &self,
        seat: &mut Seat,
        folio: FolioId,
        cx: &mut Context<'_>,
        asleep_while: impl Fn(mglru_core::folio::Flags) -> bool,
    ) -> bool {
        self.host.latches.register(seat, folio, self.flags(folio), asleep_while, || true, cx.waker())
    }
}
