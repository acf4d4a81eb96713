//! Many transfers on one ring, of which a thread waits for all: up to `depth` at once.
//!
//! A device with few requests idles for each place that waits for this thread. So free places come
//! first, then the work that the thread has anyway:
//!
//! ```text
//! batch ── next: paid for ──> ready ── fill ──> ring: `depth` places ── reap ──> ended ── done: copied
//!          └────────────── one of each at a time, until something arrives ──────────┘
//! ```
//!
//! Entries are submitted a few at a time, and one by one to a device that has few: the kernel sends
//! none of the entries of a submission to the device before it has taken the last of them.
//!
//! # Locking
//!
//! None: the ring belongs to the calling thread for the time of the call.

use super::ring::{Shared, ended, entry, is_transient, result_of};
use crate::backend::disk_file::{DiskFile, Step};
use crate::backend::threads::{finish, transfer_now};
use crate::backend::transfer::{BackendFile, Batch, Direction, Progress, Transfer};
use crate::frames::Frames;
use io_uring::IoUring;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;

/// Most entries of a submission. On a virtual disk, fewer are no faster while the device is busy,
/// and take more time of the processor.
const SUBMITTED_TOGETHER: usize = 4;
/// Requests at the device for each entry of a submission. Some virtual disks answer all requests at
/// once, and then idle until the next comes: with four entries always, one thread has 0.91 of fio's
/// rate there, and so 0.95.
const REQUESTS_PER_ENTRY: usize = 4;
/// Transfers prepared for the places of those that are about to be answered.
const READY: usize = 8;

/// A batch on a ring.
pub(super) struct Together<'a, 'ring> {
    shared: &'a Shared,
    ring: &'ring mut IoUring,
    /// Whether the frames are registered with the ring.
    registered: bool,
    places: Vec<Option<Place>>,
    /// Indices of the empty places.
    free: Vec<usize>,
    /// Answered, but not yet reported to the batch.
    ended: VecDeque<(Place, io::Result<usize>)>,
    ahead: Ahead<'a>,
}

/// A transfer on the ring, with all memory that the kernel uses.
struct Place {
    number: usize,
    transfer: Transfer,
    progress: Progress,
    step: Step,
}

impl<'a, 'ring> Together<'a, 'ring> {
    pub(super) fn new(
        shared: &'a Shared,
        ring: &'ring mut IoUring,
        registered: bool,
        direction: Direction,
        depth: usize,
        batch: &'a mut dyn Batch,
    ) -> Together<'a, 'ring> {
        let ready = VecDeque::with_capacity(READY);
        let frames = &*shared.frames;
        Together {
            shared,
            ring,
            registered,
            places: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            ended: VecDeque::with_capacity(depth),
            ahead: Ahead { batch, direction, frames, more: true, ready },
        }
    }

    /// Carries the batch out. Returns `false` if the kernel refused to enter the ring, which then
    /// has entries that it will never take: [`Self::into_rest`] has their transfers.
    pub(super) fn work(&mut self) -> bool {
        let guard = UnderWay;
        loop {
            let mut entered = self.fill();
            self.end_and_prepare();
            match (self.under_way(), self.ahead.ready.is_empty()) {
                (0, true) => break,
                (0, false) => continue,
                (_, false) if !self.free.is_empty() && entered.is_ok() => continue,
                _ => {}
            }
            if entered.is_ok() {
                entered = self.enter();
            }
            let answered = self.reap();
            let Err(error) = entered else { continue };
            if !is_transient(&error) {
                self.shared.refused.store(true, Ordering::Relaxed);
                let not_accepted = self.ring.submission().len();
                // The kernel has none of those that are left.
                if !answered && not_accepted == self.under_way() {
                    break;
                }
            }
            // It has accepted some, and will answer them despite the error.
            if !answered {
                std::thread::yield_now();
            }
        }
        std::mem::forget(guard);
        self.under_way() == 0
    }

    fn under_way(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Fills the free places. Submits unless the thread is about to wait anyway.
    fn fill(&mut self) -> io::Result<()> {
        while let Some(&at) = self.free.last()
            && let Some((number, transfer)) = self.ahead.ready.pop_front()
        {
            self.free.pop();
            let progress = Progress::new(self.ahead.direction, &transfer);
            let step = DiskFile::of(&transfer).step(&self.shared.frames, &transfer, &progress);
            self.places[at] = Some(Place { number, transfer, progress, step });
            self.push(at);
            let queued = self.ring.submission().len();
            let at_device = self.under_way() - queued;
            let together = (at_device / REQUESTS_PER_ENTRY).clamp(1, SUBMITTED_TOGETHER);
            if self.has_work() && queued >= together {
                self.ring.submit()?;
            }
        }
        if self.has_work() && !self.ring.submission().is_empty() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn has_work(&self) -> bool {
        self.ahead.more || !self.ended.is_empty()
    }

    /// Queues the step of a place for the kernel.
    fn push(&mut self, at: usize) {
        let Place { step, .. } = self.places[at].as_ref().expect("a filled place");
        let entry = entry(&self.shared.frames, self.ahead.direction, step, self.registered);
        // SAFETY: the frames, and the pieces and the file of the place (`places` does not grow),
        // stay where they are until the entry is answered: no code path leaves `work` earlier, and
        // unwinding aborts.
        unsafe { self.ring.submission().push(&entry.user_data(at as u64)) }
            .expect("a ring has an entry for each place");
    }

    /// Reports what has ended and prepares what comes, one at a time, until the device needs more.
    fn end_and_prepare(&mut self) {
        loop {
            let ended = self.ended.pop_front();
            if ended.is_none() && !self.ahead.wants_more() {
                return;
            }
            if let Some((Place { number, transfer, .. }, result)) = ended {
                self.ahead.end(number, &transfer, result);
            }
            self.ahead.prepare();
            let can_fill = !self.free.is_empty() && self.ahead.ready.len() >= SUBMITTED_TOGETHER;
            if can_fill || self.under_way() > 0 && self.has_arrived() {
                return;
            }
        }
    }

    /// Whether the device has answered something since the last look.
    fn has_arrived(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.ring.submission().taskrun()
    }

    /// Submits the rest, and waits for an answer if there is nothing else to do.
    fn enter(&mut self) -> io::Result<()> {
        let has_none = self.ring.completion().is_empty();
        if has_none || !self.ring.submission().is_empty() {
            self.ring.submit_and_wait(usize::from(has_none && self.ended.is_empty()))?;
        }
        Ok(())
    }

    /// Takes the answers. Returns whether there were any.
    fn reap(&mut self) -> bool {
        let mut answered = false;
        while let Some(answer) = { self.ring.completion().next() } {
            answered = true;
            let at = answer.user_data() as usize;
            let place = self.places[at].as_mut().expect("one answer for each step");
            let file = DiskFile::of(&place.transfer);
            let result = ended(result_of(&answer), self.ahead.direction, &place.step);
            if let Some(result) = file.advance(&mut place.progress, place.step.direct, result) {
                self.ahead.batch.answered(place.number);
                self.ended.extend(self.places[at].take().map(|place| (place, result)));
                self.free.push(at);
            } else {
                place.step = file.step(&self.shared.frames, &place.transfer, &place.progress);
                self.push(at);
            }
        }
        answered
    }

    /// The transfers that the ring did not carry out.
    pub(super) fn into_rest(self) -> Rest<'a> {
        let Together { places, ended, mut ahead, .. } = self;
        for (Place { number, transfer, .. }, result) in ended {
            ahead.end(number, &transfer, result);
        }
        ahead.ready.extend(places.into_iter().flatten().map(|place| (place.number, place.transfer)));
        Rest(ahead)
    }
}

/// The rest of a batch, which has no ring.
pub(super) struct Rest<'a>(Ahead<'a>);

impl Rest<'_> {
    /// Carries it out by plain system calls.
    pub(super) fn carry_out(self) {
        let Rest(mut ahead) = self;
        while let Some((number, transfer)) = ahead.ready.pop_front() {
            ahead.batch.done(number, transfer_now(ahead.frames, ahead.direction, &transfer));
            ahead.prepare();
        }
    }
}

/// The transfers of a batch that are prepared and not yet submitted: their pages are paid for while
/// the device works on others, so that a free place is used at once.
struct Ahead<'a> {
    batch: &'a mut dyn Batch,
    direction: Direction,
    frames: &'a Frames,
    /// Whether the batch may have further transfers.
    more: bool,
    /// With their numbers.
    ready: VecDeque<(usize, Transfer)>,
}

impl Ahead<'_> {
    fn wants_more(&self) -> bool {
        self.more && self.ready.len() < READY
    }

    /// Prepares the next transfer, if any is wanted. One that no ring can carry out ends at once.
    fn prepare(&mut self) {
        if !self.wants_more() {
            return;
        }
        let Some((number, transfer)) = self.batch.next() else {
            self.more = false;
            return;
        };
        if DiskFile::of(&transfer).is_direct() {
            self.ready.push_back((number, transfer));
        } else {
            self.batch.done(number, transfer_now(self.frames, self.direction, &transfer));
        }
    }

    fn end(&mut self, number: usize, transfer: &Transfer, result: io::Result<usize>) {
        finish(self.frames, self.direction, transfer, &result);
        self.batch.done(number, result);
    }
}

/// Aborts on unwinding, which would free memory that the kernel still uses.
struct UnderWay;

impl Drop for UnderWay {
    fn drop(&mut self) {
        std::process::abort();
    }
}
