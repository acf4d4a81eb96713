//! The state word of a folio, and every transition it can make.
//!
//! ```text
//! 63          32 31        20 19 …                                                    5 4  3 2      0
//! +-------------+------------+---------------------------------------------------------+----+--------+
//! |   version   | references | flags, one bit each                                     |refs| gen+1  |
//! +-------------+------------+---------------------------------------------------------+----+--------+
//! ```
//!
//! All of it is in one word because the decisions are about several parts at once: a folio is freed if it has
//! exactly the expected references *and* is not dirty; a promotion changes the generation *and* clears `refs`.
//!
//! *Version* counts changes of content or identity. Whoever copies bytes out of a frame without holding
//! anything reads it before and after: equal, and not `writing`, means that the copy is whole.
//!
//! # Locking
//!
//! None. Every transition is one compare-and-swap; a walker may change the generation of a folio while
//! the lruvec lock is held by somebody else, so list code takes the label that its own transition returned.
//!
//! The transitions are those of spec 20 (after the working-set rework, Linux 6.14 and later).

use crate::sync::{AtomicU64, Ordering};

/// Position in the ring of generation lists, 0…3. Says nothing without a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenIndex(pub u8);

/// Class inside a generation by accesses through descriptors, 0…3.
pub type Tier = u8;

const GEN_BITS: u32 = 3;
const GEN_MASK: u64 = (1 << GEN_BITS) - 1;
const REFS_SHIFT: u32 = GEN_BITS;
const REFS_MASK: u64 = 0b11 << REFS_SHIFT;
const REFERENCED: u64 = 1 << 5;
const WORKINGSET: u64 = 1 << 6;
const ACTIVE: u64 = 1 << 7;
const LRU: u64 = 1 << 8;
const UNEVICTABLE: u64 = 1 << 9;
const DIRTY: u64 = 1 << 10;
const WRITEBACK: u64 = 1 << 11;
const RECLAIM: u64 = 1 << 12;
const LOCKED: u64 = 1 << 13;
const WRITING: u64 = 1 << 14;
const WAITERS: u64 = 1 << 15;
const SWAPBACKED: u64 = 1 << 16;
const MAPPED: u64 = 1 << 17;
const DROPBEHIND: u64 = 1 << 18;
/// Shares its bit with `DROPBEHIND`, which is for pages of files only.
const SWAPCACHE: u64 = 1 << 18;
const MLOCKED: u64 = 1 << 19;
const REFERENCE: u64 = 1 << 20;
const REFERENCES_MASK: u64 = 0xfff << 20;
const VERSION: u64 = 1 << 32;

const _: () = assert!(MLOCKED << 1 == REFERENCE && REFERENCES_MASK < VERSION);
const _: () = assert!(GEN_MASK & REFS_MASK == 0 && REFS_MASK << 1 < REFERENCED << 1);

/// `nrefs + workingset` of a folio that sorting always protects: five accesses, or four after a
/// promotion (spec 10 §1, "saturated").
const PROTECTED_ALWAYS: u32 = 5;

/// A state word as it was at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(u64);

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident = $bit:ident;)*) => {
        impl Flags {
            $($(#[$doc])* #[inline] pub fn $name(self) -> bool { self.0 & $bit != 0 })*
        }
        impl std::fmt::Debug for Flags {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "gen {:?} refs {} held {} version {}", self.generation(), self.refs(), self.references(), self.version())?;
                $(if self.$name() { write!(f, " {}", stringify!($name))?; })*
                if self.dropbehind() { write!(f, " dropbehind")?; }
                if self.swapcache() { write!(f, " swapcache")?; }
                Ok(())
            }
        }
    };
}

bits! {
    /// Accessed at least once since the last reset (`R`).
    referenced = REFERENCED;
    /// Proved hot (`W`).
    workingset = WORKINGSET;
    /// Placement hint while isolated or queued (`A`).
    active = ACTIVE;
    /// On an LRU list. Clearing it is the right to isolate.
    lru = LRU;
    /// On the unevictable list.
    unevictable = UNEVICTABLE;
    /// Content differs from the backing store.
    dirty = DIRTY;
    /// Being written to the backing store.
    writeback = WRITEBACK;
    /// Free it as soon as it is clean.
    reclaim = RECLAIM;
    /// One thread works on its content or mapping.
    locked = LOCKED;
    /// Its bytes are changing, or were not read yet.
    writing = WRITING;
    /// Somebody sleeps until it is unlocked or written.
    waiters = WAITERS;
    /// Anonymous or shared memory.
    swapbacked = SWAPBACKED;
    /// A page-table entry maps it.
    mapped = MAPPED;
    /// Locked in memory by a user.
    mlocked = MLOCKED;
}

impl Flags {
    /// Read by an uncached request: accesses are not recorded.
    #[inline]
    pub fn dropbehind(self) -> bool {
        self.0 & (DROPBEHIND | SWAPBACKED) == DROPBEHIND
    }

    /// Has a swap slot.
    #[inline]
    pub fn swapcache(self) -> bool {
        self.0 & (SWAPCACHE | SWAPBACKED) == SWAPCACHE | SWAPBACKED
    }

    /// The generation whose label the folio carries; `None` while it is on no generation list.
    #[inline]
    pub fn generation(self) -> Option<GenIndex> {
        let field = (self.0 & GEN_MASK) as u8;
        (field != 0).then(|| GenIndex(field - 1))
    }

    /// The field of extra accesses (`F`), valid only with `referenced`.
    #[inline]
    pub fn refs(self) -> u32 {
        ((self.0 & REFS_MASK) >> REFS_SHIFT) as u32
    }

    /// References held: one by the mapping, one each by isolation, batches, write-back and guards.
    #[inline]
    pub fn references(self) -> u32 {
        ((self.0 & REFERENCES_MASK) / REFERENCE) as u32
    }

    /// Counts changes of content and identity.
    #[inline]
    pub fn version(self) -> u32 {
        (self.0 / VERSION) as u32
    }

    /// Accesses counted: 0 if not `referenced`, else `refs` + 1.
    #[inline]
    pub fn nrefs(self) -> u32 {
        if self.referenced() { self.refs() + 1 } else { 0 }
    }

    /// Tier 0…3: 3 with `workingset`, else the logarithm of the accesses, rounded up.
    #[inline]
    pub fn tier(self) -> Tier {
        if self.workingset() { 3 } else { tier_of(self.nrefs()) }
    }

    /// Always protected by sorting ("lazy promotion").
    #[inline]
    pub fn saturated(self) -> bool {
        self.nrefs() + u32::from(self.workingset()) == PROTECTED_ALWAYS
    }

    fn with_generation(self, generation: Option<GenIndex>) -> Flags {
        Flags(self.0 & !GEN_MASK | generation.map_or(0, |g| u64::from(g.0) + 1))
    }

    fn with_refs(self, refs: u32) -> Flags {
        debug_assert!(refs <= 3);
        Flags(self.0 & !REFS_MASK | u64::from(refs) << REFS_SHIFT)
    }

    fn set(self, bits: u64) -> Flags {
        Flags(self.0 | bits)
    }

    fn clear(self, bits: u64) -> Flags {
        Flags(self.0 & !bits)
    }

    /// One access through a descriptor (spec 20 §3).
    fn accessed(self) -> Flags {
        if !self.referenced() {
            self.set(REFERENCED).with_refs(0)
        } else if self.refs() < 3 {
            self.with_refs(self.refs() + 1)
        } else {
            self.set(WORKINGSET)
        }
    }

    /// Found young for the second time: hot, and counted from scratch.
    fn proved_hot(self) -> Flags {
        self.clear(REFERENCED).with_refs(0).set(WORKINGSET)
    }
}

/// `ceil_log2(nrefs)`, with 0 for no access: the tier without `workingset`.
#[inline]
pub(crate) fn tier_of(nrefs: u32) -> Tier {
    (32 - nrefs.saturating_sub(1).leading_zeros()) as Tier
}

/// What became of a folio that had to move up one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Climb {
    /// Moved from the oldest generation to the next.
    Moved(GenIndex),
    /// A walk relabelled it meanwhile: it goes to that label's list as it is.
    Relabelled(GenIndex),
}

/// What a found accessed bit did to a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbour {
    /// First time (or not on a list): its label stays.
    Noted,
    /// Label changed from the first to the second generation; lists and sizes follow later.
    Relabelled(GenIndex, GenIndex),
}

/// The state word of one folio, shared by all threads.
#[derive(Debug)]
pub struct FolioFlags(AtomicU64);

impl FolioFlags {
    pub(crate) fn new() -> FolioFlags {
        FolioFlags(AtomicU64::new(0))
    }

    /// The word now; what was written before the word got this value is visible afterwards.
    #[inline]
    pub fn load(&self) -> Flags {
        Flags(self.0.load(Ordering::Acquire))
    }

    /// Whether content and identity are still those of `then`. Orders the reads of bytes before it.
    #[inline]
    pub fn unchanged_since(&self, then: Flags) -> bool {
        crate::sync::fence(Ordering::Acquire);
        let now = Flags(self.0.load(Ordering::Relaxed));
        now.version() == then.version() && !now.writing()
    }

    /// One compare-and-swap loop for all transitions. `change` returns `None` to leave the word alone.
    #[inline]
    fn update<R>(&self, mut change: impl FnMut(Flags) -> (Option<Flags>, R)) -> R {
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            let (next, result) = change(Flags(now));
            let Some(Flags(next)) = next else { return result };
            if next == now {
                return result;
            }
            match self.0.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return result,
                Err(other) => now = other,
            }
        }
    }

    /// A free frame becomes a folio: locked, content not valid, with so many references.
    /// Readers that still look at its former content notice by the version.
    pub(crate) fn allocate(&self, swapbacked: bool, references: u64) {
        self.update(|f| {
            debug_assert_eq!(f.references(), 0, "a used frame was allocated: {f:?}");
            let version = f.0 & !(VERSION - 1);
            let kind = if swapbacked { SWAPBACKED } else { 0 };
            (
                Some(Flags(
                    version.wrapping_add(VERSION) | (REFERENCE * references) | LOCKED | WRITING | kind,
                )),
                (),
            )
        });
        // Neither the identity that is stored now nor the bytes that are read into the frame are seen before the new
        // version.
        crate::sync::fence(Ordering::Release);
    }

    /// Nothing was made of an allocated folio: unlocks it, and drops the references that it was allocated with. The word
    /// before it, and whether none is left: a reader that looked for the frame's former page may hold one for a moment,
    /// and frees the folio then.
    pub(crate) fn discard(&self, references: u64) -> (Flags, bool) {
        self.update(|f| {
            let next = Flags(f.clear(LOCKED | WAITERS).0 - REFERENCE * references);
            (Some(next), (f, next.references() == 0))
        })
    }

    // References.

    /// Takes a reference unless there is none left, or the counter is full: then `false`.
    pub fn try_get(&self) -> bool {
        self.update(|f| match f.references() {
            0 | 0xfff => (None, false),
            _ => (Some(Flags(f.0 + REFERENCE)), true),
        })
    }

    /// Takes a reference to the folio of version `version`, for a reader that must not get another page.
    pub fn try_get_version(&self, then: Flags) -> bool {
        self.update(|f| match f.references() {
            0 | 0xfff => (None, false),
            _ if f.version() != then.version() || f.writing() => (None, false),
            _ => (Some(Flags(f.0 + REFERENCE)), true),
        })
    }

    /// Drops a reference; the word after it. With none left, the caller frees the folio.
    pub(crate) fn put(&self) -> Flags {
        self.update(|f| {
            assert!(f.references() > 0, "reference dropped twice: {f:?}");
            let next = Flags(f.0 - REFERENCE);
            (Some(next), next)
        })
    }

    /// Takes the last references of a clean folio at once, so that nobody finds it any more, and unlocks it, so that
    /// nobody begins to wait for it. `locked`: the caller holds its lock; otherwise nobody may. `None`: it has other
    /// users, became dirty or was mapped. The word before it otherwise.
    pub(crate) fn freeze(&self, expected: u32, locked: bool) -> Option<Flags> {
        self.update(|f| {
            let used = f.references() != expected || f.locked() != locked;
            if used || f.dirty() || f.writeback() || f.mapped() {
                return (None, None);
            }
            (Some(Flags(f.clear(REFERENCES_MASK | LOCKED | WAITERS).0.wrapping_add(VERSION))), Some(f))
        })
    }

    // The folio lock, and the content.

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> bool {
        self.update(|f| if f.locked() { (None, false) } else { (Some(f.set(LOCKED)), true) })
    }

    /// Releases the lock. `true`: somebody sleeps and must be woken.
    pub fn unlock(&self) -> bool {
        self.update(|f| {
            debug_assert!(f.locked());
            (Some(f.clear(LOCKED | WAITERS)), f.waiters())
        })
    }

    /// Announces a sleeper, if `asleep_while` still holds. `false`: no need to sleep. Nobody waits for a folio that was
    /// freed, however its bits were left: nobody would wake it.
    pub fn announce_waiter(&self, asleep_while: impl Fn(Flags) -> bool) -> bool {
        self.update(|f| {
            if f.references() > 0 && asleep_while(f) { (Some(f.set(WAITERS)), true) } else { (None, false) }
        })
    }

    /// The holder of the lock begins to change the bytes; copies taken from now on are not whole.
    pub(crate) fn begin_content(&self) {
        self.update(|f| {
            debug_assert!(f.locked() && !f.writing());
            (Some(f.set(WRITING)), ())
        });
        crate::sync::fence(Ordering::Release);
    }

    /// Takes [`Self::begin_content`] back: no byte was changed, copies are whole as before. `true`: somebody sleeps
    /// and must be woken.
    pub(crate) fn cancel_content(&self) -> bool {
        self.update(|f| {
            debug_assert!(f.locked() && f.writing());
            (Some(f.clear(WRITING | WAITERS)), f.waiters())
        })
    }

    /// As [`Self::end_content`] and [`Self::unlock`] in one step.
    pub(crate) fn end_content_and_unlock(&self) -> bool {
        self.update(|f| {
            debug_assert!(f.locked() && f.writing());
            (Some(Flags(f.clear(WRITING | LOCKED | WAITERS).0.wrapping_add(VERSION))), f.waiters())
        })
    }

    /// The bytes are valid again and have a new version, which is returned.
    pub(crate) fn end_content(&self) -> u32 {
        self.update(|f| {
            debug_assert!(f.locked() && f.writing());
            let next = Flags(f.clear(WRITING).0.wrapping_add(VERSION));
            (Some(next), next.version())
        })
    }

    // Dirty and write-back.

    /// Written to again while it is dirty, which takes back an earlier wish to free it. `false`: it is clean, and
    /// stays so: to dirty it, its mapping must know.
    pub(crate) fn redirty(&self) -> bool {
        self.update(|f| if f.dirty() { (Some(f.clear(RECLAIM)), true) } else { (None, false) })
    }

    /// `true`: it was clean. Dirtying takes back an earlier wish to free it.
    pub(crate) fn set_dirty(&self) -> bool {
        self.update(|f| (Some(f.set(DIRTY).clear(RECLAIM)), !f.dirty()))
    }

    /// `true`: it was dirty.
    pub(crate) fn clear_dirty(&self) -> bool {
        self.update(|f| (Some(f.clear(DIRTY)), f.dirty()))
    }

    /// A dirty folio that is not being written begins to be; takes a reference. `false`: nothing to do.
    pub(crate) fn start_writeback(&self) -> bool {
        self.update(|f| {
            if !f.dirty() || f.writeback() || f.references() == 0 {
                return (None, false);
            }
            (Some(Flags(f.clear(DIRTY).set(WRITEBACK).0 + REFERENCE)), true)
        })
    }

    /// Ends it; the word before. `reclaim` is cleared with it, and sleepers are to be woken.
    pub(crate) fn end_writeback(&self) -> Flags {
        self.update(|f| {
            debug_assert!(f.writeback());
            (Some(f.clear(WRITEBACK | RECLAIM | WAITERS)), f)
        })
    }

    /// A new folio becomes one of anonymous memory.
    pub(crate) fn set_swapbacked(&self) {
        self.update(|f| (Some(f.set(SWAPBACKED).clear(SWAPCACHE)), ()));
    }

    /// It got a swap slot, to which it has to be written.
    pub(crate) fn enter_swap_cache(&self) {
        self.update(|f| (Some(f.set(SWAPCACHE | DIRTY)), ()));
    }

    /// It is what its swap slot holds.
    pub(crate) fn return_to_swap_cache(&self) {
        self.update(|f| (Some(f.set(SWAPCACHE)), ()));
    }

    /// It has no swap slot any more; `dirty`: and nothing else has its content. `true`: it had one.
    pub(crate) fn leave_swap_cache(&self, dirty: bool) -> bool {
        self.update(|f| {
            if !f.swapcache() {
                return (None, false);
            }
            let next = f.clear(SWAPCACHE);
            (Some(if dirty { next.set(DIRTY) } else { next }), true)
        })
    }

    /// A dirty folio of anonymous memory begins to be written to swap, to be freed afterwards; takes a reference.
    pub(crate) fn start_swap_out(&self) {
        self.update(|f| {
            debug_assert!(f.dirty() && f.swapcache() && !f.writeback() && f.references() < 0xfff);
            (Some(Flags(f.clear(DIRTY).set(WRITEBACK | RECLAIM).0 + REFERENCE)), ())
        });
    }

    pub(crate) fn set_reclaim(&self) {
        self.update(|f| (Some(f.set(RECLAIM)), ()));
    }

    // Accesses.

    /// One access through a descriptor to the folio that had version `then`; nothing is written once it is
    /// saturated, and nothing if the frame holds another page by now.
    #[inline]
    pub fn mark_accessed(&self, then: Flags) {
        self.update(|f| {
            if f.version() != then.version() || f.unevictable() || f.dropbehind() {
                return (None, ());
            }
            (Some(f.accessed()), ())
        });
    }

    /// A page fault brought it in (spec 20 §5, 7.2): hot folios get `active`, others count one access.
    pub(crate) fn mark_faulted_in(&self) {
        self.update(|f| {
            let next = if f.unevictable() {
                f
            } else if f.workingset() {
                f.set(ACTIVE)
            } else if !f.referenced() {
                f.accessed()
            } else {
                f
            };
            (Some(next), ())
        });
    }

    /// The first access of a folio that is created for it, set before it is inserted.
    pub(crate) fn set_referenced(&self) {
        self.update(|f| (Some(f.set(REFERENCED)), ()));
    }

    /// Marks the folio of version `then` mapped. `true`: it was not. Nothing happens to one that is being freed, or
    /// holds another page by now.
    pub(crate) fn set_mapped(&self, then: Flags) -> bool {
        self.update(|f| {
            if f.references() == 0 || f.version() != then.version() {
                return (None, false);
            }
            (Some(f.set(MAPPED)), !f.mapped())
        })
    }

    /// It was taken out of its mapping, and is no page any more. `true`: it was mapped.
    pub(crate) fn leave_mapping(&self) -> bool {
        self.update(|f| (Some(Flags(f.clear(MAPPED).0.wrapping_add(VERSION))), f.mapped()))
    }

    /// Marks it unmapped. `true`: it was mapped.
    pub(crate) fn clear_mapped(&self) -> bool {
        self.update(|f| (Some(f.clear(MAPPED)), f.mapped()))
    }

    pub(crate) fn set_mlocked(&self, mlocked: bool) {
        self.update(|f| (Some(if mlocked { f.set(MLOCKED) } else { f.clear(MLOCKED) }), ()));
    }

    pub(crate) fn set_dropbehind(&self) {
        self.update(|f| (Some(f.set(DROPBEHIND)), ()));
    }

    /// What a refault restores (spec 50 §3.3): `workingset`, or the former count of accesses.
    pub(crate) fn restore(&self, workingset: bool, refs: u32) {
        self.update(|f| (Some(if workingset { f.set(WORKINGSET) } else { f.with_refs(refs) }), ()));
    }

    /// A walk found its accessed bit set (spec 20 §7.1): the first time only noted, the second time
    /// labelled `youngest`. A folio without generation is left alone but for the note.
    pub(crate) fn found_young_by_walk(&self, youngest: GenIndex) -> Neighbour {
        self.update(|f| {
            if !f.referenced() && !f.workingset() {
                return (Some(f.set(REFERENCED).with_refs(0)), Neighbour::Noted);
            }
            let Some(old) = f.generation() else { return (None, Neighbour::Noted) };
            let hot = f.proved_hot().with_generation(Some(youngest));
            let change =
                if old == youngest { Neighbour::Noted } else { Neighbour::Relabelled(old, youngest) };
            (Some(hot), change)
        })
    }

    /// Eviction found its accessed bit set (spec 20 §7.2, 7.2). `true`: activate; `false`: seen for
    /// the first time, keep.
    pub(crate) fn found_young_by_eviction(&self) -> bool {
        self.update(|f| {
            if !f.referenced() && !f.workingset() {
                (Some(f.set(REFERENCED).with_refs(0)), false)
            } else if f.nrefs() > 1 {
                (Some(f.proved_hot()), true)
            } else {
                (Some(f.accessed()), true)
            }
        })
    }

    // Lists. All with the lruvec lock held, except `isolate`'s reference.

    /// Put on the list of `generation`: label set, `active` cleared, one step.
    pub(crate) fn enlist(&self, generation: GenIndex) {
        self.update(|f| {
            debug_assert!(f.generation().is_none(), "enlisted twice: {f:?}");
            (Some(f.with_generation(Some(generation)).clear(ACTIVE).set(LRU)), ())
        });
    }

    /// Put on the unevictable list.
    pub(crate) fn enlist_unevictable(&self) {
        self.update(|f| (Some(f.clear(ACTIVE).set(LRU | UNEVICTABLE)), ()));
    }

    /// Off its generation list; the generation whose label it had, `None` if it was unevictable.
    pub(crate) fn delist(&self) -> Option<GenIndex> {
        self.update(|f| (Some(f.with_generation(None).clear(UNEVICTABLE)), f.generation()))
    }

    /// Takes it off its list for reclaim, with a reference; the label it had is what [`Self::delist`] returns. A count
    /// of accesses that is not valid is dropped (spec 20 §4). `None`: it is being freed, or somebody else has the right
    /// to its place on the list.
    pub(crate) fn isolate(&self) -> Option<Option<GenIndex>> {
        self.update(|f| {
            if f.references() == 0 || f.references() == 0xfff || !f.lru() {
                return (None, None);
            }
            let off = f.clear(LRU | UNEVICTABLE).with_generation(None);
            let off = if f.referenced() { off } else { off.with_refs(0) };
            (Some(Flags(off.0 + REFERENCE)), Some(f.generation()))
        })
    }

    /// Gives up `lru` without a reference, for a folio that is being freed. `true`: it was listed.
    pub(crate) fn clear_lru(&self) -> bool {
        self.update(|f| (Some(f.clear(LRU)), f.lru()))
    }

    /// Up from generation `oldest` by one (protection, or making room): clears the count of accesses and
    /// keeps `workingset`.
    pub(crate) fn climb(&self, oldest: GenIndex) -> Climb {
        let next = GenIndex((oldest.0 + 1) % 4);
        self.update(|f| match f.generation() {
            Some(label) if label != oldest => (None, Climb::Relabelled(label)),
            _ => (Some(f.clear(REFERENCED).with_refs(0).with_generation(Some(next))), Climb::Moved(next)),
        })
    }

    /// Rejected by reclaim and about to fall into the oldest generation (spec 40 §9 row 3).
    pub(crate) fn reject(&self) {
        self.update(|f| (Some(f.clear(REFERENCED).with_refs(0).set(ACTIVE)), ()));
    }

    pub(crate) fn set_active(&self) {
        self.update(|f| (Some(f.set(ACTIVE)), ()));
    }

    pub(crate) fn clear_active(&self) {
        self.update(|f| (Some(f.clear(ACTIVE)), ()));
    }

    /// Advice that it is cold (spec 20 §8): forgets every access.
    pub(crate) fn forget_accesses(&self) {
        self.update(|f| (Some(f.clear(REFERENCED | WORKINGSET).with_refs(0)), ()));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn fresh() -> FolioFlags {
        let flags = FolioFlags::new();
        flags.allocate(false, 1);
        flags
    }

    fn access(flags: &FolioFlags, times: u32) {
        (0..times).for_each(|_| flags.mark_accessed(flags.load()));
    }

    fn rfw(flags: &FolioFlags) -> (bool, u32, bool) {
        let now = flags.load();
        (now.referenced(), now.refs(), now.workingset())
    }

    /// spec 20 §3, table; §10 "A folio accessed N times through fds has tier 0,0,1,2,2,3".
    #[test]
    fn tier_by_accesses() {
        let expected = [
            ((false, 0, false), 0, 0),
            ((true, 0, false), 1, 0),
            ((true, 1, false), 2, 1),
            ((true, 2, false), 3, 2),
            ((true, 3, false), 4, 2),
            ((true, 3, true), 4, 3),
            ((true, 3, true), 4, 3),
        ];
        for (accesses, (state, nrefs, tier)) in expected.into_iter().enumerate() {
            let flags = fresh();
            access(&flags, accesses as u32);
            assert_eq!(rfw(&flags), state, "after {accesses}");
            assert_eq!((flags.load().nrefs(), flags.load().tier()), (nrefs, tier), "after {accesses}");
            assert_eq!(flags.load().saturated(), accesses >= 5, "after {accesses}");
        }
    }

    /// spec 20 §3, second table: starting from `workingset`, four accesses saturate.
    #[test]
    fn accesses_of_a_workingset_folio() {
        for accesses in 0..6 {
            let flags = fresh();
            flags.restore(true, 0);
            access(&flags, accesses);
            assert_eq!(flags.load().tier(), 3);
            assert_eq!(flags.load().saturated(), accesses >= 4, "after {accesses}");
        }
    }

    /// spec 20 §10: "a folio with R=0, F=2 (restored by refault) that gets one fd access has R=1, F=0, tier 0".
    #[test]
    fn restored_refs_are_wiped_by_the_first_access() {
        let flags = fresh();
        flags.restore(false, 2);
        assert_eq!(rfw(&flags), (false, 2, false));
        access(&flags, 1);
        assert_eq!(rfw(&flags), (true, 0, false));
        assert_eq!(flags.load().tier(), 0);
    }

    /// spec 20 §10: "protection of a tier-3 folio clears R and F, keeps W; the folio's tier is still 3".
    #[test]
    fn protection_keeps_workingset() {
        let flags = fresh();
        access(&flags, 5);
        flags.enlist(GenIndex(3));
        assert_eq!(flags.climb(GenIndex(3)), Climb::Moved(GenIndex(0)));
        assert_eq!(rfw(&flags), (false, 0, true));
        assert_eq!(flags.load().tier(), 3);
    }

    /// spec 20 §10: "a walk that finds a folio young with R=W=0 leaves its generation unchanged; a second
    /// walk moves its label to `max_seq` and sets W".
    #[test]
    fn two_walks_promote() {
        let flags = fresh();
        flags.enlist(GenIndex(0));
        assert_eq!(flags.found_young_by_walk(GenIndex(2)), Neighbour::Noted);
        assert_eq!(flags.load().generation(), Some(GenIndex(0)));
        assert_eq!(flags.found_young_by_walk(GenIndex(2)), Neighbour::Relabelled(GenIndex(0), GenIndex(2)));
        assert_eq!(rfw(&flags), (false, 0, true));
    }

    /// spec 20 §10: "7.2 reverse-map check, young, R=1,F=0,W=0: activate, F becomes 1, W stays 0. The next
    /// time: W=1"; and the first sight of a folio with R=W=0 only keeps it.
    #[test]
    fn eviction_finds_young() {
        let flags = fresh();
        assert!(!flags.found_young_by_eviction());
        assert_eq!(rfw(&flags), (true, 0, false));
        assert!(flags.found_young_by_eviction());
        assert_eq!(rfw(&flags), (true, 1, false));
        assert!(flags.found_young_by_eviction());
        assert_eq!(rfw(&flags), (false, 0, true));
        assert!(flags.found_young_by_eviction());
        assert_eq!(rfw(&flags), (true, 0, true));
    }

    /// spec 10 §8: "Adding to an MGLRU list always leaves `active` clear".
    #[test]
    fn enlisting_clears_active() {
        let flags = fresh();
        flags.set_active();
        flags.enlist(GenIndex(1));
        assert!(!flags.load().active() && flags.load().lru());
    }

    /// spec 10 §8: removing for reclaim leaves `active` clear.
    #[test]
    fn delisting_for_reclaim_leaves_active_clear() {
        let flags = fresh();
        flags.enlist(GenIndex(1));
        assert_eq!(flags.isolate(), Some(Some(GenIndex(1))));
        assert!(!flags.load().active() && flags.load().generation().is_none());
        assert_eq!(flags.load().references(), 2);
    }

    /// spec 10 §8: "Two threads isolating the same folio: exactly one succeeds" (loom runs it in parallel).
    #[test]
    fn isolation_is_exclusive() {
        let flags = fresh();
        flags.enlist(GenIndex(0));
        assert_eq!(flags.isolate(), Some(Some(GenIndex(0))));
        assert_eq!(flags.isolate(), None);
    }

    #[test]
    fn freeze_needs_the_exact_references_and_a_clean_folio() {
        let flags = fresh();
        assert!(flags.try_get());
        assert!(flags.freeze(1, true).is_none());
        assert!(flags.set_dirty());
        assert!(flags.freeze(2, true).is_none());
        assert!(flags.clear_dirty());
        assert!(flags.freeze(2, false).is_none(), "somebody holds its lock");
        assert!(flags.freeze(2, true).is_some());
        assert!(!flags.try_get(), "a frozen folio is found by nobody");
    }

    #[test]
    fn versions_tell_content_and_identity_apart() {
        let flags = fresh();
        assert!(flags.load().writing());
        flags.end_content();
        let before = flags.load();
        assert!(flags.unchanged_since(before));
        flags.begin_content();
        assert!(!flags.unchanged_since(before));
        flags.end_content();
        assert!(!flags.unchanged_since(before));
        assert_eq!(flags.load().version(), before.version() + 1);
        flags.mark_accessed(before);
        assert!(!flags.load().referenced(), "an access to the former content is not counted");
    }

    #[test]
    fn redirtying_takes_back_reclaim() {
        let flags = fresh();
        flags.set_dirty();
        flags.set_reclaim();
        assert!(!flags.set_dirty());
        assert!(!flags.load().reclaim());
    }

    #[test]
    fn a_clean_folio_is_not_dirtied_behind_its_mapping() {
        let flags = fresh();
        assert!(!flags.redirty() && !flags.load().dirty());
        flags.set_dirty();
        flags.set_reclaim();
        assert!(flags.redirty());
        assert!(flags.load().dirty() && !flags.load().reclaim());
    }

    /// Nobody would wake it: whoever freed the folio woke those that had announced themselves before.
    #[test]
    fn nobody_waits_for_a_freed_folio() {
        let flags = fresh();
        assert!(flags.announce_waiter(Flags::writing));
        assert!(flags.put().waiters());
        assert!(flags.load().writing(), "as abandoning leaves it");
        assert!(!flags.announce_waiter(Flags::writing));
    }

    #[test]
    fn tiers_are_logarithms_rounded_up() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(tier_of), [0, 0, 1, 2, 2, 3]);
    }
}
