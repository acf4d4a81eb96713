//! The OOM state of a memcg.
//!
//! ```text
//! alive ─► dying: its host gives its anonymous memory up ─► dead ─► alive: revived, or a new memcg of that number
//! ```
//!
//! # Locking
//!
//! An atomic word. A killing thread holds the lock under which victims are chosen.

use crate::sync::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

const ALIVE: u32 = 0;
const DYING: u32 = 1;
const DEAD: u32 = 2;

/// Alive, dying or dead.
#[derive(Debug)]
pub(crate) struct OomState(AtomicU32);

impl OomState {
    pub(super) fn new() -> OomState {
        OomState(AtomicU32::new(ALIVE))
    }

    pub(crate) fn reset(&self) {
        self.0.store(ALIVE, Release);
    }

    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.0.load(Acquire) == ALIVE
    }

    pub(crate) fn is_dying(&self) -> bool {
        self.0.load(Acquire) == DYING
    }

    pub(crate) fn kill(&self) {
        self.0.store(DYING, Release);
    }

    /// Marks the memory of a dying memcg as taken. `false`: it is not dying.
    pub(crate) fn reaped(&self) -> bool {
        self.0.compare_exchange(DYING, DEAD, AcqRel, Acquire).is_ok()
    }

    /// Makes a dead memcg alive again. `false`: it is not dead.
    pub(crate) fn revive(&self) -> bool {
        self.0.compare_exchange(DEAD, ALIVE, AcqRel, Acquire).is_ok()
    }
}
