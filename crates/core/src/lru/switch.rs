//! Switching the policy while everybody works: folios move from the lists of one to those of the
//! other, some at a time.
//!
//! ```text
//! on lists of   one │ both: new folios go to the new policy, reclaim takes from both │ the other
//!               begin ──── step, step, … a bounded number of folios per lock hold ──────── end
//! ```
//!
//! In between a turn of an lruvec tries both policies, so there is no moment in which reclaim finds
//! nothing because the folios are on the lists that it does not look at: a kernel that told reclaim
//! first, and then moved the folios, killed processes for that.
//!
//! Source: [book: classic-lru#switching].
//!
//! # Locking
//!
//! A folio is moved under the lruvec lock without being taken off anybody's hands: whoever frees or
//! isolates it takes it off the list that it is on by then. Who puts a folio on a list asks for the
//! policy under that lock, and so does who hands a memcg's lists over: the switch may have passed
//! those of the heir.

use super::LockedLruvec;
use crate::Core;
use crate::mechanism::Lru;
use crate::memcg::MemcgId;

/// Folios that the kernel moves per lock hold ([book: classic-lru#switching]).
pub const SWITCH_FOLIOS: u32 = 4096;

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchStep {
    /// Call again; anybody may run before.
    More,
    /// Every folio is on the lists of the new policy.
    Done,
    /// Somebody else began to switch meanwhile, and this switch has nothing left to do.
    Superseded,
}

/// A switch under way. Nothing is lost if it is dropped before its end: both policies keep working,
/// and a later switch to either moves what is left.
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

    /// Turns [`Switch::Prefetch`](crate::Switch) on or off, whatever goes on: it decides nothing.
    /// Experiments do that, as what memory a table of folios happens to get can make a factor of
    /// two.
    pub fn set_prefetch(&self, on: bool) {
        loop {
            let known = self.folios.settings();
            if self.folios.set_settings(known, (known.0.with_prefetch(on), known.1)) {
                return;
            }
        }
    }

    /// Begins to switch the policy. From now on new folios go to the new one's lists.
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
    /// Moves up to `folios` folios of one memcg, at least one: [`SWITCH_FOLIOS`], unless others are
    /// to run in between.
    pub fn step(&mut self, core: &Core, folios: u32) -> SwitchStep {
        let known = core.folios.settings();
        if known.1 != self.number {
            return SwitchStep::Superseded;
        }
        if self.memcg < core.memcgs.numbers() {
            let memcg = core.memcg(MemcgId(self.memcg));
            if memcg.lruvec.lock(&core.folios).move_to(self.to, folios.max(1)) {
                self.memcg += 1;
            }
            return SwitchStep::More;
        }
        // Memcgs that were made meanwhile never had anything on the other policy's lists.
        if !core.folios.set_settings(known, (known.0.with_switching(false), known.1)) {
            return SwitchStep::Superseded;
        }
        SwitchStep::Done
    }
}

impl LockedLruvec<'_> {
    /// Moves up to `most` folios of other policies to the lists of `to`. `true`: all are moved.
    ///
    /// From each list the youngest goes first, to the old end: so folios that came meanwhile stay
    /// younger than all that are moved, and those that are not moved yet are the oldest.
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
