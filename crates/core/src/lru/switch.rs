//! Switching the policy at run time: folios move from the lists of one policy to those of another,
//! a bounded number at a time.
//!
//! ```text
//! on lists of   one │ both: new folios go to the new policy, reclaim takes from both │ the other
//!               begin ──── step, step, … a bounded number of folios per lock hold ──────── end
//! ```
//!
//! In between, a turn of an lruvec takes from every policy, so reclaim always finds the folios. A
//! kernel that switched reclaim first and moved the folios afterwards killed processes for lack of
//! memory.
//!
//! Source: [book: classic-lru#switching].
//!
//! # Locking
//!
//! Folios move under the lruvec lock. A thread that frees or isolates one meanwhile takes it off
//! the list that it is on by then. Code that puts a folio on a list, or hands a memcg's lists over,
//! reads the policy under that lock: the switch may already have passed the heir's lists.

use super::LockedLruvec;
use crate::Core;
use crate::mechanism::Lru;
use crate::memcg::MemcgId;

/// Folios that the kernel moves per lock hold ([book: classic-lru#switching]).
pub const SWITCH_FOLIOS: u32 = 4096;

/// Result of a step of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchStep {
    /// Call again; other threads may run before.
    More,
    /// All folios are on the lists of the new policy.
    Done,
    /// Another switch has begun; this one has nothing left to do.
    Superseded,
}

/// A switch under way. Dropping it early loses nothing: both policies keep working, and a later
/// switch to either moves the rest.
#[derive(Debug)]
pub struct LruSwitch {
    to: Lru,
    number: u32,
    memcg: u32,
}

impl Core {
    /// The policy; while it is being switched, the new one.
    pub fn lru(&self) -> Lru {
        self.mechanisms().lru()
    }

    /// Turns [`Switch::Prefetch`](crate::Switch) on or off at any time, and
    /// [`Switch::PrefetchNext`](crate::Switch) off; neither affects a decision. Experiments need
    /// both in one table of folios, as the memory that a table happens to get can make a factor of
    /// two.
    pub fn set_prefetch(&self, on: bool) {
        self.set_prefetching(on, false);
    }

    /// The same for [`Switch::PrefetchNext`](crate::Switch) on or off, and
    /// [`Switch::Prefetch`](crate::Switch) off.
    pub fn set_prefetch_next(&self, on: bool) {
        self.set_prefetching(false, on);
    }

    fn set_prefetching(&self, ours: bool, next: bool) {
        loop {
            let known = self.folios.settings();
            if self.folios.set_settings(known, (known.0.with_prefetch(ours, next), known.1)) {
                return;
            }
        }
    }

    /// Begins to switch the policy. New folios go to the new policy's lists from now on.
    pub fn switch_lru(&self, to: Lru) -> LruSwitch {
        loop {
            let known = self.folios.settings();
            let (mechanisms, number) = (known.0.with_lru(to).with_switching(true), (known.1 + 1) & 0xffff);
            if self.folios.set_settings(known, (mechanisms, number)) {
                return LruSwitch { to, number, memcg: 0 };
            }
        }
    }
}

impl LruSwitch {
    /// Moves up to `folios` folios of one memcg, at least one: [`SWITCH_FOLIOS`], or fewer to let
    /// other threads run in between.
    pub fn step(&mut self, core: &Core, folios: u32) -> SwitchStep {
        let known = core.folios.settings();
        if known.1 != self.number {
            return SwitchStep::Superseded;
        }
        if self.memcg < core.memcgs.numbers() {
            let mut locked = core.memcg(MemcgId(self.memcg)).lruvec.lock(&core.folios);
            // Once more, under the lock: a switch that begins after this look comes to this memcg
            // after this step, and one that has passed it was seen.
            if core.folios.settings().1 != self.number {
                return SwitchStep::Superseded;
            }
            if locked.move_to(self.to, folios.max(1)) {
                self.memcg += 1;
            }
            return SwitchStep::More;
        }
        // Memcgs created from now on see the new policy, and never have folios on other lists.
        if core.memcgs.numbers_created() > self.memcg {
            return SwitchStep::More;
        }
        if core.folios.set_settings(known, (known.0.with_switching(false), known.1)) {
            SwitchStep::Done
        } else {
            // Another switch has begun, or prefetching was turned on or off: the next step tells.
            SwitchStep::More
        }
    }
}

impl LockedLruvec<'_> {
    /// Moves up to `most` folios of other policies to the lists of `to`. `true`: all are moved.
    ///
    /// The youngest folio of each list goes first, to the old end. So folios that arrived meanwhile
    /// stay younger than the moved ones, and those still to be moved are the oldest.
    pub(super) fn move_to(&mut self, to: Lru, most: u32) -> bool {
        let mut left = most;
        for from in Lru::POLICIES.into_iter().filter(|&from| from != to) {
            for list in self.lists_to_leave(from) {
                while let Some(folio) = self.lists.lists.head(list) {
                    if left == 0 {
                        return false;
                    }
                    left -= 1;
                    self.leave(from, folio);
                    self.join(to, folio);
                }
            }
        }
        true
    }
}
