//! The aging: producing young generations.
//!
//! Eviction consumes the oldest generation, the aging opens a new one in time. Before it does, it walks page
//! tables, so that what was accessed since the last time is labelled with the generation that is the youngest
//! now: a mapped folio is looked at twice before it can be evicted.
//!
//! Source: spec 30 §1–3, §6 (Linux 7.2).
//!
//! # Locking
//!
//! The walk changes only flags and batches sizes; opening and closing generations needs the lruvec lock.

use super::lists::list_of;
use super::walk::WalkBatch;
use crate::event::Event;
use crate::folio::{Climb, Kind};
use crate::host::Host;
use crate::lru::{LockedLruvec, Lruvec, MAX_GENERATIONS, MIN_GENERATIONS, Seq, Swappiness};
use crate::memcg::{Counter, Memcg};
use crate::mm::Next;
use crate::{Core, Time};

/// Folios moved per lock hold while room is made.
const MOVES_PER_LOCK: u32 = 4096;

/// Whether a new generation is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    No,
    /// There is one to evict from, but none in reserve.
    Should,
    /// Nothing can be evicted before.
    Must,
}

impl Lruvec {
    /// Whether the aging is due, by the number of generations of the kinds that may be evicted.
    pub(crate) fn aging_due(&self, swappiness: Swappiness) -> Due {
        let Some(oldest) = swappiness.evictable().map(|kind| self.window.min(kind)).min() else {
            return Due::No;
        };
        match self.window.max().0 + 1 - oldest.0 {
            ..=MIN_GENERATIONS => Due::Must,
            3 => Due::Should,
            _ => Due::No,
        }
    }
}

impl LockedLruvec<'_> {
    /// Empties the oldest generation of a kind and closes it. `false`: the lock was held long enough, call again.
    fn make_room(&mut self, kind: Kind, swappiness: Swappiness) -> bool {
        let oldest = self.lruvec.window.min(kind);
        let label = oldest.index();
        // The folios of a kind that is not evictable stay where they are and become members of the youngest
        // generation, whose list set this is: a cold/hot inversion that the kernel accepts.
        if swappiness.evicts(kind) {
            let mut moves = 0;
            while let Some(folio) = self.tail(label, kind) {
                let flags = &self.folios.get(folio).flags;
                let before = flags.load();
                match flags.climb(label) {
                    Climb::Moved(next) => {
                        self.resize(label, kind, -1);
                        self.resize(next, kind, 1);
                        self.relist(folio, list_of(next, kind), false);
                        if !before.saturated() {
                            self.lists.averages[kind as usize].protected[usize::from(before.tier())] += 1;
                        }
                    }
                    Climb::Relabelled(label) => self.relist(folio, list_of(label, kind), false),
                }
                moves += 1;
                if moves == MOVES_PER_LOCK {
                    return false;
                }
            }
        }
        self.carry_over(kind);
        self.lruvec.window.close_until(kind, oldest.next());
        true
    }

    /// Closes oldest generations whose lists are empty (spec 30 §6). A generation whose folios were all
    /// relabelled is not empty until they were sorted away. `true`: some were closed.
    pub(crate) fn drop_empty_generations(&mut self, swappiness: Swappiness) -> bool {
        let window = &self.lruvec.window;
        let max = window.max();
        let old = Kind::ALL.map(|kind| window.min(kind));
        let mut min = old;
        for kind in swappiness.evictable() {
            let min = &mut min[kind as usize];
            while min.0 + MIN_GENERATIONS <= max.0 && self.is_empty(min.index(), kind) {
                *min = min.next();
            }
        }
        if min == old {
            return false;
        }
        if (1..=200).contains(&swappiness.0) {
            // One kind must not fall to two generations while the other still has four.
            let second = Seq(max.0 - 2);
            let [anon, file] = &mut min;
            if *anon > second && *file < second {
                *anon = second;
            } else if *file > second && *anon < second {
                *file = second;
            }
        }
        let mut closed = false;
        for kind in swappiness.evictable() {
            if min[kind as usize] > old[kind as usize] {
                self.carry_over(kind);
                self.lruvec.window.close_until(kind, min[kind as usize]);
                closed = true;
            }
        }
        closed
    }
}

impl Core {
    /// Opens a generation after `seq`, the youngest that the caller knows. `false`: somebody else did.
    pub(crate) fn open_generation(&self, memcg: &Memcg, seq: Seq, swappiness: Swappiness, now: Time) -> bool {
        let lruvec = &memcg.lruvec;
        loop {
            if seq < lruvec.window.max() {
                return false;
            }
            let mut locked = lruvec.lock(&self.folios);
            if seq != lruvec.window.max() {
                return false;
            }
            let mut full =
                Kind::ALL.into_iter().filter(|&kind| lruvec.window.generations(kind) == MAX_GENERATIONS);
            if full.all(|kind| locked.make_room(kind, swappiness)) {
                lruvec.window.open(now);
                memcg.stat.add(Counter::Aged, 1);
                return true;
            }
        }
    }

    /// Walks the address spaces of a memcg and opens the next generation. `true`: this thread opened it.
    pub(crate) fn age(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        seq: Seq,
        swappiness: Swappiness,
        force: bool,
        batch: &mut WalkBatch,
    ) -> bool {
        loop {
            match memcg.spaces.next(seq.0, force) {
                Next::Finished => return false,
                Next::Walk { space, forced, first } => {
                    if first {
                        memcg.lruvec.filters.clear(seq.next());
                    }
                    self.walk_space(memcg, &space, seq, swappiness, forced, batch);
                    batch.flush(&memcg.lruvec, &self.folios);
                }
                Next::Advance => break,
            }
        }
        let opened = self.open_generation(memcg, seq, swappiness, host.now());
        if opened {
            host.event(Event::Aged { memcg: memcg.id(), max_seq: seq.next().0 });
        }
        opened
    }
}
