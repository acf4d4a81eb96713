//! Which pieces of which sources are in which slots, and which leave: a core of its own decides.
//!
//! The core is the one that reclaims the cache's memory, with as many frames as the tier has slots.
//! It sees one file, whose pages are numbers of pieces. A piece gets its number when it is stored
//! and keeps it for a while after it was evicted, so that the core recognises it when it returns (a
//! refault). Numbers are twice as many as slots; the ones needed again are those evicted long ago.
//!
//! ```text
//! key of a piece ──► number ──► the core: in the tier, evicted (its shadow), or forgotten
//!                       └─────► slot ──► checksum per page
//! ```
//!
//! All of it has a fixed size ([`memory_bytes`]).

use super::format::Layout;
use mglru_core::{
    Arrival, ChargeStep, Charging, Core, Event, FlushReason, FolioId, Host, Kind, Lookup, Mapping,
    Mechanisms, MemcgId, Options, Task, Time,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// No slot, or the end of a chain.
const NONE: u32 = u32::MAX;
/// Numbers per slot.
const NUMBERS_PER_SLOT: u32 = 2;
/// Bytes per slot for the core: the folio, two entries of its index, and what it has at hand to
/// grow by.
const CORE_BYTES_PER_SLOT: u64 = 104;
/// Bytes of a core with few slots: lists, counters, pools.
const CORE_BYTES: u64 = 64 << 10;

/// Memory that the index of a tier takes at most, in bytes.
pub(super) fn memory_bytes(layout: &Layout) -> u64 {
    let slots = u64::from(layout.slots);
    let numbers = slots * u64::from(NUMBERS_PER_SLOT);
    let heads = numbers.next_power_of_two();
    // Keys, chains and slots of numbers; free slots; checksums.
    let own = numbers * (16 + 4 + 4) + heads * 4 + slots * 4 + slots * 8 * layout.slot_pages as u64;
    own + slots * CORE_BYTES_PER_SLOT + CORE_BYTES
}

/// The core's surroundings: a clock, and a list of what it evicted.
struct TierHost {
    began: Instant,
    evicted: Mutex<Vec<u32>>,
}

impl Host for TierHost {
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wake_flusher(&self, _: FlushReason) {}

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {}

    fn frame_retired(&self, _: FolioId) {}

    fn event(&self, event: Event) {
        if let Event::Evicted { page: (_, number), .. } = event {
            self.evicted.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        }
    }
}

/// A piece that is being stored: its slot is taken, and no reader finds it yet.
#[derive(Debug)]
pub(super) struct NewPiece {
    pub(super) slot: u32,
    number: u32,
    folio: FolioId,
}

pub(super) struct Index {
    slot_pages: usize,
    core: Core,
    host: TierHost,
    task: Task,
    /// The file whose pages are numbers of pieces.
    mapping: Arc<Mapping>,
    /// By number: key, next of the same chain, slot.
    keys: Box<[u128]>,
    next: Box<[u32]>,
    slots: Box<[u32]>,
    /// First number of each chain.
    heads: Box<[u32]>,
    /// Numbers below this one have been used.
    used: u32,
    /// Where the search for a number to use again goes on.
    hand: u32,
    free: Vec<u32>,
    /// By slot and page: the checksum; 0 for a page that is not there.
    sums: Box<[u64]>,
}

impl Index {
    pub(super) fn new(layout: &Layout, mechanisms: Mechanisms) -> Index {
        let numbers = (layout.slots * NUMBERS_PER_SLOT) as usize;
        let mut options = Options::new(layout.slots);
        options.mechanisms = mechanisms;
        let core = Core::new(options, Time::ZERO);
        let task = core.new_task(MemcgId::ROOT, 0);
        let mapping = core.open_mapping(Kind::File);
        Index {
            slot_pages: layout.slot_pages,
            core,
            host: TierHost { began: Instant::now(), evicted: Mutex::default() },
            task,
            mapping,
            keys: vec![0; numbers].into(),
            next: vec![NONE; numbers].into(),
            slots: vec![NONE; numbers].into(),
            heads: vec![NONE; numbers.next_power_of_two()].into(),
            used: 0,
            hand: 0,
            free: (0..layout.slots).rev().collect(),
            sums: vec![0; layout.slots as usize * layout.slot_pages].into(),
        }
    }

    fn chain(&self, key: u128) -> usize {
        let mixed = ((key >> 64) as u64 ^ key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.heads.len() - 1)
    }

    fn find(&self, key: u128) -> Option<u32> {
        let mut number = self.heads[self.chain(key)];
        while number != NONE && self.keys[number as usize] != key {
            number = self.next[number as usize];
        }
        (number != NONE).then_some(number)
    }

    /// The number of a key: its own, a new one, or that of a piece evicted long ago.
    fn number(&mut self, key: u128) -> u32 {
        if let Some(known) = self.find(key) {
            return known;
        }
        let number = if (self.used as usize) < self.keys.len() {
            self.used += 1;
            self.used - 1
        } else {
            // At most half of the numbers have a slot.
            while self.slots[self.hand as usize] != NONE {
                self.hand = (self.hand + 1) % self.keys.len() as u32;
            }
            let number = self.hand;
            self.hand = (self.hand + 1) % self.keys.len() as u32;
            self.unchain(number);
            // The shadow is of the piece that had the number.
            let busy = self.core.truncate(&self.host, &self.mapping, number, u64::from(number) + 1);
            assert!(busy.is_none(), "a number without a slot has no page");
            number
        };
        let chain = self.chain(key);
        self.keys[number as usize] = key;
        self.next[number as usize] = std::mem::replace(&mut self.heads[chain], number);
        number
    }

    fn unchain(&mut self, number: u32) {
        let after = self.next[number as usize];
        let chain = self.chain(self.keys[number as usize]);
        let mut at = self.heads[chain];
        if at == number {
            self.heads[chain] = after;
            return;
        }
        while self.next[at as usize] != number {
            at = self.next[at as usize];
        }
        self.next[at as usize] = after;
    }

    /// The slot of a piece that readers find. An access of a reader is counted.
    pub(super) fn slot(&self, key: u128, is_access: bool) -> Option<u32> {
        let number = self.find(key).filter(|&number| self.slots[number as usize] != NONE)?;
        let Lookup::Hit(hit) = self.core.lookup(&self.mapping, number) else { return None };
        if is_access {
            self.core.accessed(&self.host, || 0, &hit);
        }
        Some(self.slots[number as usize])
    }

    /// Takes a slot for a piece that is in none; the core may evict others. `None`: it can evict
    /// nothing at the moment.
    pub(super) fn begin(&mut self, key: u128) -> Option<NewPiece> {
        self.begin_in(key, None)
    }

    /// As [`Self::begin`], in this free slot.
    fn begin_in(&mut self, key: u128, wanted: Option<u32>) -> Option<NewPiece> {
        let number = self.number(key);
        let mut charging = Charging::new(MemcgId::ROOT, 0).optional();
        let new = loop {
            match charging.step(&self.core, &self.host) {
                ChargeStep::Charged(new) => break new,
                ChargeStep::More => {}
                ChargeStep::Wait(_) => {
                    charging.cancel(&self.core, &self.host);
                    return None;
                }
                ChargeStep::OutOfMemory(_) => return None,
            }
        };
        let evicted = std::mem::take(&mut *self.host.evicted.lock().unwrap_or_else(PoisonError::into_inner));
        for number in evicted {
            let slot = std::mem::replace(&mut self.slots[number as usize], NONE);
            let first = slot as usize * self.slot_pages;
            self.sums[first..first + self.slot_pages].fill(0);
            self.free.push(slot);
        }
        let slot = match wanted {
            Some(slot) => slot,
            None => self.free.pop()?,
        };
        let Ok(folio) =
            self.core.insert(&self.host, &self.task, &self.mapping, number, new, Arrival::default())
        else {
            self.free.extend(wanted.is_none().then_some(slot));
            return None;
        };
        self.slots[number as usize] = slot;
        Some(NewPiece { slot, number, folio })
    }

    /// Lets readers find a stored piece.
    pub(super) fn publish(&self, piece: NewPiece) {
        self.core.publish(&self.host, &self.mapping, piece.folio);
    }

    /// Gives the slot of a piece back that could not be stored.
    pub(super) fn abandon(&mut self, piece: NewPiece) {
        self.slots[piece.number as usize] = NONE;
        self.sums_mut(piece.slot).fill(0);
        self.free.push(piece.slot);
        self.core.abandon(&self.host, &self.mapping, piece.folio);
    }

    /// Puts the pieces that a file already has into their slots, the oldest first. Returns their
    /// number.
    pub(super) fn restore(&mut self, pieces: impl IntoIterator<Item = (u128, u32, Vec<u64>)>) -> u32 {
        // From here on it gets the slots of pieces that are evicted.
        let mut taken = vec![false; std::mem::take(&mut self.free).len()];
        for (key, slot, sums) in pieces {
            // A piece that was stored again elsewhere may be there twice.
            let known = self.find(key).is_some_and(|number| self.slots[number as usize] != NONE);
            if !known
                && !taken[slot as usize]
                && let Some(piece) = self.begin_in(key, Some(slot))
            {
                taken[slot as usize] = true;
                self.sums_mut(slot).copy_from_slice(&sums);
                self.publish(piece);
            }
        }
        let evicted = std::mem::take(&mut self.free);
        evicted.into_iter().for_each(|slot| taken[slot as usize] = false);
        self.free = (0..taken.len() as u32).rev().filter(|&slot| !taken[slot as usize]).collect();
        self.used_slots()
    }

    /// The checksums of a slot, by page.
    pub(super) fn sums(&self, slot: u32) -> &[u64] {
        &self.sums[slot as usize * self.slot_pages..][..self.slot_pages]
    }

    pub(super) fn sums_mut(&mut self, slot: u32) -> &mut [u64] {
        &mut self.sums[slot as usize * self.slot_pages..][..self.slot_pages]
    }

    pub(super) fn used_slots(&self) -> u32 {
        (self.sums.len() / self.slot_pages - self.free.len()) as u32
    }

    /// Memory that the index takes, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        let own = self.keys.len() * (16 + 4 + 4) + self.heads.len() * 4 + self.sums.len() * 8;
        self.core.metadata_bytes() + (own + self.free.capacity() * 4) as u64
    }

    /// Recounts everything. For tests.
    #[cfg(test)]
    pub(super) fn validate(&self) -> Result<(), String> {
        self.core.validate()?;
        let mut owners = vec![0; self.sums.len() / self.slot_pages];
        self.free.iter().for_each(|&slot| owners[slot as usize] += 1);
        let in_use = self.slots.iter().filter(|&&slot| slot != NONE);
        in_use.for_each(|&slot| owners[slot as usize] += 1);
        if let Some(slot) = owners.iter().position(|&count| count != 1) {
            return Err(format!("slot {slot} has {} owners", owners[slot]));
        }
        for number in 0..self.used {
            if self.find(self.keys[number as usize]) != Some(number) {
                return Err(format!("number {number} is not found by its key"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(slots: u32) -> (Layout, Index) {
        let layout = Layout { slot_pages: 4, slots };
        (layout, Index::new(&layout, Mechanisms::default()))
    }

    fn store(index: &mut Index, key: u128) -> u32 {
        let piece = index.begin(key).expect("old pieces can be evicted");
        let slot = piece.slot;
        assert_eq!(index.slot(key, true), None, "before it is published");
        index.sums_mut(slot).fill(key as u64 + 1);
        index.publish(piece);
        slot
    }

    #[test]
    fn pieces_are_found_until_they_are_evicted_and_memory_is_bounded() {
        for slots in [64, 1000, 20_000] {
            let (layout, mut index) = index(slots);
            let count = u128::from(slots) * 5;
            for key in 0..count {
                assert_eq!(index.slot(key, true), None);
                store(&mut index, key);
                // Some are used again and again, and stay.
                for hot in 0..4 {
                    index.slot(hot, true);
                }
            }
            let found = (0..count).filter(|&key| index.slot(key, false).is_some());
            let found = found.inspect(|&key| {
                let slot = index.slot(key, false).unwrap();
                assert!(index.sums(slot).iter().all(|&sum| sum == key as u64 + 1));
            });
            let found = found.count() as u32;
            // Reclaim frees 32 at once, and keeps some frames free.
            assert!(found + 40 > slots * 98 / 100 && found <= slots, "{found} of {slots}");
            assert_eq!(found, index.used_slots());
            assert!((0..4).all(|key| index.slot(key, false).is_some()), "the hot ones stayed");
            index.validate().unwrap();
            assert!(index.bytes() <= memory_bytes(&layout), "{} of {}", index.bytes(), memory_bytes(&layout));
        }
    }

    #[test]
    fn what_cannot_be_stored_leaves_nothing_behind() {
        let (_, mut index) = index(64);
        for key in 0..500 {
            let piece = index.begin(key).unwrap();
            if key % 3 == 0 {
                index.abandon(piece)
            } else {
                index.publish(piece)
            }
            assert_eq!(index.slot(key, false).is_some(), key % 3 != 0);
        }
        index.validate().unwrap();
    }

    #[test]
    fn a_file_is_restored_with_its_youngest_pieces() {
        let (_, mut index) = index(100);
        // Two have the same key, and two the same slot.
        let pieces = (0..100).map(|at: u32| match at {
            98 => (u128::from(97u32), 98, vec![98; 4]),
            99 => (u128::from(99u32), 50, vec![99; 4]),
            _ => (u128::from(at), at, vec![u64::from(at); 4]),
        });
        let found = index.restore(pieces);
        assert!(found > 60 && found <= 98, "{found}");
        assert_eq!(index.slot(97, false), Some(97));
        assert_eq!(index.slot(99, false), None);
        index.validate().unwrap();
        for key in 1000..2000 {
            store(&mut index, key);
        }
        index.validate().unwrap();
    }
}
