//! The thread of the ring for submitted transfers.
//!
//! It takes requests from the queue, keeps up to 255 of them under way, and completes those that
//! the kernel has answered. If the system refuses to enter the ring, it waits for the operations
//! that the kernel has accepted, and carries out the others itself.
//!
//! # Locking
//!
//! The ring belongs to the thread. The queue has a lock of its own.

use super::ring::{Shared, ended, entry, is_transient, result_of, wake};
use crate::backend::disk_file::{DiskFile, Step};
use crate::backend::queue::Request;
use crate::backend::threads::{finish, transfer_now};
use crate::backend::transfer::Progress;
use crate::frames::Frames;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Submitted operations active at once, about as many as one NVMe queue has entries.
const UNDER_WAY_MAX: usize = 255;
/// Entries of the thread's ring: all operations and the read that wakes the thread.
pub(super) const ENTRIES: u32 = 256;
/// Interval at which answers are looked for once the ring cannot be entered.
const ANSWER_POLL: Duration = Duration::from_millis(1);
/// `user_data` of the read that wakes the thread.
const WAKE: u64 = u64::MAX;

/// An active submitted transfer, with all memory that the kernel uses.
struct Operation {
    request: Request,
    progress: Progress,
    step: Step,
}

impl Operation {
    fn new(frames: &Frames, request: Request) -> Operation {
        let progress = Progress::new(request.direction, &request.transfer);
        let step = DiskFile::of(&request.transfer).step(frames, &request.transfer, &progress);
        Operation { request, progress, step }
    }
}

/// The state of the backend's thread.
pub(super) struct Submitter<'a> {
    shared: &'a Shared,
    ring: IoUring,
    registered: bool,
    /// Operations, indexed by their `user_data`. Their lists of pieces must not move: they lie on
    /// the heap, or, for a single piece, in the box.
    under_way: Vec<Option<Box<Operation>>>,
    free: Vec<usize>,
    /// `user_data` of the entries that the kernel has not accepted yet, in order.
    not_accepted: VecDeque<u64>,
    /// Destination of the read that wakes the thread, on the heap so that it does not move.
    counter: Box<[u8; 8]>,
    wake_armed: bool,
}

/// The system refuses to enter the ring.
struct Refused;

impl<'a> Submitter<'a> {
    pub(super) fn new(shared: &'a Shared, ring: IoUring, registered: bool) -> Submitter<'a> {
        let under_way = (0..UNDER_WAY_MAX).map(|_| None).collect();
        let free = (0..UNDER_WAY_MAX).rev().collect();
        let counter = Box::new([0; 8]);
        let not_accepted = VecDeque::with_capacity(ENTRIES as usize);
        Submitter { shared, ring, registered, under_way, free, not_accepted, counter, wake_armed: false }
    }

    /// The thread's loop, until the backend is dropped: starts queued transfers, waits for an
    /// answer or a wake-up, and completes answered transfers.
    pub(super) fn work(mut self) {
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
            if self.enter().is_err() {
                return self.work_without_ring();
            }
            answers.extend(self.ring.completion());
            for answer in answers.drain(..) {
                self.answer(&answer);
            }
        }
        self.disarm_wake();
    }

    /// Submits all entries and waits for an answer, unless there is one.
    fn enter(&mut self) -> Result<(), Refused> {
        let entered = self.ring.submit_and_wait(1);
        let left = self.ring.submission().len();
        self.not_accepted.drain(..self.not_accepted.len() - left);
        match entered {
            Err(error) if !is_transient(&error) => {
                self.shared.refused.store(true, Ordering::Relaxed);
                Err(Refused)
            }
            _ => Ok(()),
        }
    }

    /// The thread's loop once the ring cannot be entered, until the backend is dropped: ends the
    /// operations under way, then carries out queued transfers itself.
    fn work_without_ring(mut self) {
        let refused: Vec<u64> = self.not_accepted.drain(..).collect();
        for entry in &refused {
            match usize::try_from(*entry).ok().and_then(|slot| self.under_way.get_mut(slot)?.take()) {
                Some(operation) => self.carry_out(*operation),
                None => self.wake_armed = false,
            }
        }
        if self.wake_armed {
            wake(&self.shared.wake);
        }
        // The kernel accepted the others, and answers them while this thread sleeps.
        while self.wake_armed || self.under_way.iter().any(Option::is_some) {
            let answers: Vec<cqueue::Entry> = self.ring.completion().collect();
            if answers.is_empty() {
                std::thread::sleep(ANSWER_POLL);
            }
            for answer in answers {
                self.take_answer(&answer);
            }
        }
        while let Some(request) = self.shared.queue.pop() {
            self.carry_out(Operation::new(&self.shared.frames, request));
        }
    }

    /// Ends a transfer by plain system calls: the whole of it, as parts may be repeated.
    fn carry_out(&self, operation: Operation) {
        let Request { direction, transfer, tag } = operation.request;
        let result = transfer_now(&self.shared.frames, direction, &transfer);
        drop(transfer);
        self.shared.queue.finish(|| self.shared.completion.complete(tag, result));
    }

    /// Takes an answer once nothing more can be submitted.
    fn take_answer(&mut self, answer: &cqueue::Entry) {
        if answer.user_data() == WAKE {
            self.wake_armed = false;
        } else if let Some(operation) = self.under_way[answer.user_data() as usize].take() {
            self.carry_out(*operation);
        }
    }

    fn start(&mut self, request: Request) {
        let slot = self.free.pop().expect("`work` takes no more requests than there are free places");
        self.under_way[slot] = Some(Box::new(Operation::new(&self.shared.frames, request)));
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
        self.not_accepted.push_back(entry.get_user_data());
        // SAFETY: the caller's obligation.
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
        let result = ended(result_of(answer), operation.request.direction, &operation.step);
        match file.advance(&mut operation.progress, operation.step.direct, result) {
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
                // Close the file's handle before the completion reports that it is no longer
                // needed.
                drop(transfer);
                self.shared.queue.finish(|| self.shared.completion.complete(tag, result));
            }
        }
    }

    /// Starts the read that the next `wake` completes.
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

    /// Completes the active read, which still points to the counter.
    fn disarm_wake(&mut self) {
        while self.wake_armed {
            wake(&self.shared.wake);
            if self.enter().is_err() {
                if self.not_accepted.contains(&WAKE) {
                    return;
                }
                std::thread::sleep(ANSWER_POLL);
            }
            self.wake_armed = self.ring.completion().all(|answer| answer.user_data() != WAKE);
        }
    }
}
