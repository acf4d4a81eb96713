//! Membership of jobs in tenants. A scenario may move jobs while they run.
//!
//! The administrating thread decides where a job goes. Each of the job's threads sees the move
//! between two accesses and then moves its open files. As in the kernel's cgroup v2, pages that
//! were brought in before the move stay charged to the old tenant.

use mglru_cache::Tenant;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A tenant that a job is or was in.
struct Stay {
    tenant: Tenant,
    /// Index of the tenant in the scenario; `None` for the root.
    number: Option<usize>,
    accesses: u64,
}

/// The sequence of tenants of a job.
pub struct Membership {
    moves: AtomicUsize,
    stays: Mutex<Vec<Stay>>,
}

/// One thread's view of the membership.
#[derive(Default)]
pub struct Member {
    /// Number of moves that the thread has seen.
    seen: usize,
    /// Accesses that the thread has reported.
    reported: u64,
}

impl Membership {
    /// Starts a job in a tenant with an index in its scenario.
    pub fn new(number: Option<usize>, tenant: Tenant) -> Membership {
        let first = Stay { tenant, number, accesses: 0 };
        Membership { moves: AtomicUsize::new(0), stays: Mutex::new(vec![first]) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Stay>> {
        self.stays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current tenant.
    pub fn tenant(&self) -> Tenant {
        self.lock().last().expect("a job always has a tenant").tenant.clone()
    }

    /// Moves the job to another tenant.
    pub fn move_to(&self, number: Option<usize>, tenant: Tenant) {
        let mut stays = self.lock();
        stays.push(Stay { tenant, number, accesses: 0 });
        self.moves.store(stays.len() - 1, Ordering::Release);
    }

    /// The new tenant, if the job was moved since the thread's last call. `accesses` is the
    /// thread's number of page accesses so far.
    #[inline]
    pub fn moved(&self, member: &mut Member, accesses: u64) -> Option<Tenant> {
        self.was_moved(member).then(|| self.follow(member, accesses))
    }

    /// Whether the job was moved since the thread's last call of [`Self::moved`].
    #[inline]
    pub fn was_moved(&self, member: &Member) -> bool {
        self.moves.load(Ordering::Acquire) != member.seen
    }

    #[cold]
    fn follow(&self, member: &mut Member, accesses: u64) -> Tenant {
        self.report(member, accesses);
        let stays = self.lock();
        member.seen = stays.len() - 1;
        stays[member.seen].tenant.clone()
    }

    /// Reports the thread's number of accesses so far.
    pub fn report(&self, member: &mut Member, accesses: u64) {
        self.lock()[member.seen].accesses += accesses - member.reported;
        member.reported = accesses;
    }

    /// Number of pages that the job accessed in a tenant; `None` if it was never there.
    pub fn accesses(&self, number: Option<usize>) -> Option<u64> {
        let stays = self.lock();
        let mut there = stays.iter().filter(|stay| stay.number == number).peekable();
        there.peek()?;
        Some(there.map(|stay| stay.accesses).sum())
    }
}
