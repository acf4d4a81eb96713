//! Which tenant a job is in, and how much it accessed there: jobs of a scenario may be moved while
//! they run.
//!
//! Who administers says where a job goes. Each of its threads hears of it between two accesses;
//! then what the job has open is moved. As in the kernel's cgroup v2, what it brought in before
//! stays where it is charged.

use mglru_cache::Tenant;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A tenant that a job is or was in.
struct Stay {
    tenant: Tenant,
    /// The scenario's number of it; `None`: the root.
    number: Option<usize>,
    accesses: u64,
}

/// The tenants that a job was in, one after the other.
pub struct Membership {
    /// How often it was moved.
    moves: AtomicUsize,
    stays: Mutex<Vec<Stay>>,
}

/// What a thread of the job knows of it.
#[derive(Default)]
pub struct Member {
    /// How many moves it heard of.
    heard: usize,
    /// Accesses that it told of.
    told: u64,
}

impl Membership {
    /// A job begins in a tenant, which has a number in its scenario.
    pub fn new(number: Option<usize>, tenant: Tenant) -> Membership {
        let first = Stay { tenant, number, accesses: 0 };
        Membership { moves: AtomicUsize::new(0), stays: Mutex::new(vec![first]) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Stay>> {
        self.stays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tenant that it is in.
    pub fn tenant(&self) -> Tenant {
        self.lock().last().expect("a job is somewhere").tenant.clone()
    }

    /// Moves the job.
    pub fn move_to(&self, number: Option<usize>, tenant: Tenant) {
        let mut stays = self.lock();
        stays.push(Stay { tenant, number, accesses: 0 });
        self.moves.store(stays.len() - 1, Ordering::Release);
    }

    /// The tenant to which the job was moved, if the thread hears of it now; so far it has accessed
    /// so many pages.
    #[inline]
    pub fn moved(&self, member: &mut Member, accesses: u64) -> Option<Tenant> {
        (self.moves.load(Ordering::Acquire) != member.heard).then(|| self.hear(member, accesses))
    }

    #[cold]
    fn hear(&self, member: &mut Member, accesses: u64) -> Tenant {
        self.tell(member, accesses);
        let stays = self.lock();
        member.heard = stays.len() - 1;
        stays[member.heard].tenant.clone()
    }

    /// What a thread accessed so far.
    pub fn tell(&self, member: &mut Member, accesses: u64) {
        self.lock()[member.heard].accesses += accesses - member.told;
        member.told = accesses;
    }

    /// Pages that it accessed in a tenant; `None`: it was never there.
    pub fn accesses(&self, number: Option<usize>) -> Option<u64> {
        let stays = self.lock();
        let mut there = stays.iter().filter(|stay| stay.number == number).peekable();
        there.peek()?;
        Some(there.map(|stay| stay.accesses).sum())
    }
}
