//! The state word of a folio, and every transition it can make.
//!
//! ```text
//! 63          32 31        20 19 …                                                    5 4  3 2      0
//! +-------------+------------+---------------------------------------------------------+----+--------+
//! |   version   | references | flags, one bit each                                     |refs|  mark  |
//! +-------------+------------+---------------------------------------------------------+----+--------+
//! ```
//!
//! All of it is in one word because the decisions are about several parts at once: a folio is freed
//! if it has exactly the expected references *and* is not dirty; a promotion changes the generation
//! *and* clears `refs`.
//!
//! *Mark* says on whose list the folio is: a generation, numbered from 1, or a list of another
//! policy; 0 is none of these.
//!
//! *Version* counts changes of content or identity. Whoever copies bytes out of a frame without
//! holding anything reads it before and after: equal, and not `writing`, means that the copy is
//! whole.
//!
//! # Locking
//!
//! None. Every transition is one compare-and-swap; a walker may change the generation of a folio
//! while the lruvec lock is held by somebody else, so list code takes the label that its own
//! transition returned.
//!
//! The transitions are those of [book: access]. What they were before the working-set rework is in
//! [`before`]; each asks once which holds. Those of active and inactive lists, and of moving
//! between policies, are in [`two_lists`], those of newcomers and the main list in [`ranked`].

mod before;
mod ranked;
mod two_lists;

pub(crate) use ranked::{HandStep, MAIN, NEWCOMER};

use crate::mechanism::Mechanisms;
use crate::sync::{AtomicU64, Ordering};

/// Position in the ring of generation lists, 0…3. Says nothing without a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenIndex(pub u8);

/// Class inside a generation by accesses through descriptors, 0…3.
pub type Tier = u8;

/// Whose list a folio is on: 0, of no policy that marks folios (or of none); 1 to 4, of the
/// generation that is one less; 5 to 7, of lists of further policies.
const MARK_BITS: u32 = 3;
const MARK_MASK: u64 = (1 << MARK_BITS) - 1;
const GENERATIONS: u8 = 4;
const REFS_SHIFT: u32 = MARK_BITS;
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

/// References that there is room for.
const REFERENCES_MAX: u32 = 0xfff;
/// References up to which a page is lent to users, who may hold any number: the last 255 are for
/// batches, for reclaim and for whoever locks it, and the very last of them for write-back, which
/// cannot do without.
pub const LENT_REFERENCES_MAX: u32 = 0xf00;

const _: () =
    assert!(LENT_REFERENCES_MAX < REFERENCES_MAX && REFERENCES_MASK == REFERENCES_MAX as u64 * REFERENCE);
const _: () = assert!(MLOCKED << 1 == REFERENCE && REFERENCES_MASK < VERSION);
const _: () = assert!(MARK_MASK & REFS_MASK == 0 && REFS_MASK << 1 < REFERENCED << 1);

/// `nrefs + workingset` of a folio that sorting always protects: five accesses, or four after a
/// promotion ([book: folios#state-word], "saturated").
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
        let label = self.mark().wrapping_sub(1);
        (label < GENERATIONS).then_some(GenIndex(label))
    }

    /// What says whose list the folio is on: 0, none of a policy that marks folios; 1 to 4, a
    /// generation's; 5 to 7, those of further policies.
    #[inline]
    pub(crate) fn mark(self) -> u8 {
        (self.0 & MARK_MASK) as u8
    }

    /// The field of extra accesses (`F`); since the rework valid only with `referenced`.
    #[inline]
    pub fn refs(self) -> u32 {
        ((self.0 & REFS_MASK) >> REFS_SHIFT) as u32
    }

    /// References held: one by the mapping, one each by isolation, batches, write-back and guards.
    #[inline]
    pub fn references(self) -> u32 {
        ((self.0 & REFERENCES_MASK) / REFERENCE) as u32
    }

    /// Whether it may be held by somebody more who can do without: it is used, and a reference is
    /// left for write-back.
    fn can_be_held(self) -> bool {
        (1..REFERENCES_MAX - 1).contains(&self.references())
    }

    fn held_once_more(self) -> Flags {
        assert!(self.references() < REFERENCES_MAX, "no reference is left: {self:?}");
        Flags(self.0 + REFERENCE)
    }

    /// Counts changes of content and identity.
    #[inline]
    pub fn version(self) -> u32 {
        (self.0 / VERSION) as u32
    }

    /// Accesses counted: 0 if not `referenced`, else `refs` + 1.
    #[inline]
    pub fn nrefs(self, mechanisms: Mechanisms) -> u32 {
        if !mechanisms.workingset_rework() {
            return self.nrefs_before();
        }
        if self.referenced() { self.refs() + 1 } else { 0 }
    }

    /// Tier 0…3: 3 with `workingset`, else the logarithm of the accesses, rounded up.
    #[inline]
    pub fn tier(self, mechanisms: Mechanisms) -> Tier {
        if !mechanisms.workingset_rework() {
            return self.tier_before();
        }
        if self.workingset() { 3 } else { tier_of(self.nrefs(mechanisms)) }
    }

    /// Always protected by sorting ("lazy promotion").
    #[inline]
    pub fn saturated(self, mechanisms: Mechanisms) -> bool {
        if !mechanisms.workingset_rework() {
            return self.saturated_before();
        }
        self.nrefs(mechanisms) + u32::from(self.workingset()) == PROTECTED_ALWAYS
    }

    fn with_generation(self, generation: Option<GenIndex>) -> Flags {
        self.with_mark(generation.map_or(0, |g| g.0 + 1))
    }

    fn with_mark(self, mark: u8) -> Flags {
        debug_assert!(u64::from(mark) <= MARK_MASK);
        Flags(self.0 & !MARK_MASK | u64::from(mark))
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

    /// One access through a descriptor ([book: access#counting-after]).
    #[inline]
    fn accessed(self, mechanisms: Mechanisms) -> Flags {
        if !mechanisms.workingset_rework() {
            return self.accessed_before();
        }
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
        self.forgot_count().set(WORKINGSET)
    }

    /// Counted from scratch, and as hot as it was.
    fn forgot_count(self) -> Flags {
        self.clear(REFERENCED).with_refs(0)
    }

    /// As one that was never accessed.
    fn forgot_accesses(self) -> Flags {
        self.forgot_count().clear(WORKINGSET)
    }
}

/// `ceil_log2(n)`, with 0 for 0: after the rework, the tier of so many accesses without
/// `workingset`.
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

    /// One compare-and-swap loop for all transitions. `change` returns `None` to leave the word
    /// alone.
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
        // Neither the identity that is stored now nor the bytes that are read into the frame are
        // seen before the new version.
        crate::sync::fence(Ordering::Release);
    }

    /// Nothing was made of an allocated folio: unlocks it, and drops the references that it was
    /// allocated with. The word before it, and whether none is left: a reader that looked for the
    /// frame's former page may hold one for a moment, and frees the folio then.
    pub(crate) fn discard(&self, references: u64) -> (Flags, bool) {
        self.update(|f| {
            let next = Flags(f.clear(LOCKED | WAITERS).0 - REFERENCE * references);
            (Some(next), (f, next.references() == 0))
        })
    }

    // References.

    /// Takes a reference unless there is none left, or the counter is full: then `false`.
    pub fn try_get(&self) -> bool {
        self.update(|f| if f.can_be_held() { (Some(f.held_once_more()), true) } else { (None, false) })
    }

    /// Takes a reference to the folio of the version of `then`, for a reader that must not get
    /// another page, and may keep it for long. `false` also where it has [`LENT_REFERENCES_MAX`] of
    /// them.
    pub fn try_get_version(&self, then: Flags) -> bool {
        self.update(|f| {
            let lendable = (1..LENT_REFERENCES_MAX).contains(&f.references());
            if !lendable || f.version() != then.version() || f.writing() {
                return (None, false);
            }
            (Some(f.held_once_more()), true)
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

    /// Takes the last references of a clean folio at once, so that nobody finds it any more, and
    /// unlocks it, so that nobody begins to wait for it. `locked`: the caller holds its lock;
    /// otherwise nobody may. `None`: it has other users, became dirty or was mapped. The word
    /// before it otherwise.
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

    /// Announces a sleeper, if `asleep_while` still holds. `false`: no need to sleep. Nobody waits
    /// for a folio that was freed, however its bits were left: nobody would wake it.
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

    /// Takes [`Self::begin_content`] back: no byte was changed, copies are whole as before. `true`:
    /// somebody sleeps and must be woken.
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

    /// Written to again while it is dirty, which takes back an earlier wish to free it. `false`: it
    /// is clean, and stays so: to dirty it, its mapping must know.
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

    /// A dirty folio that is not being written begins to be; takes a reference. `false`: nothing to
    /// do.
    pub(crate) fn start_writeback(&self) -> bool {
        self.update(|f| {
            if !f.dirty() || f.writeback() || f.references() == 0 {
                return (None, false);
            }
            (Some(f.clear(DIRTY).set(WRITEBACK).held_once_more()), true)
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

    /// A dirty folio of anonymous memory begins to be written to swap, to be freed afterwards;
    /// takes a reference.
    pub(crate) fn start_swap_out(&self) {
        self.update(|f| {
            debug_assert!(f.dirty() && f.swapcache() && !f.writeback());
            (Some(f.clear(DIRTY).set(WRITEBACK | RECLAIM).held_once_more()), ())
        });
    }

    pub(crate) fn set_reclaim(&self) {
        self.update(|f| (Some(f.set(RECLAIM)), ()));
    }

    // Accesses.

    /// One access through a descriptor to the folio that had version `then`; nothing is written
    /// once it is saturated, and nothing if the frame holds another page by now.
    #[inline]
    pub fn mark_accessed(&self, then: Flags, mechanisms: Mechanisms) {
        self.update(|f| {
            if f.version() != then.version() || f.unevictable() || f.dropbehind() {
                return (None, ());
            }
            (Some(f.accessed(mechanisms)), ())
        });
    }

    /// A page fault brought it in ([book: access#fault-placement]): it gets `active`. Where it must
    /// earn its place, only hot folios do, and others count one access.
    pub(crate) fn mark_faulted_in(&self, mechanisms: Mechanisms) {
        self.update(|f| {
            let next = if f.unevictable() {
                f
            } else if f.workingset() || !mechanisms.fault_placement() {
                f.set(ACTIVE)
            } else if !f.referenced() {
                f.accessed(mechanisms)
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

    /// Marks the folio of version `then` mapped. `true`: it was not. Nothing happens to one that is
    /// being freed, or holds another page by now.
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

    /// What a refault restores ([book: refaults#refault-processing]): `workingset`, and the former
    /// count of accesses unless that is 0.
    pub(crate) fn restore(&self, workingset: bool, refs: u32) {
        self.update(|f| {
            let f = if workingset { f.set(WORKINGSET) } else { f };
            (Some(if refs > 0 { f.with_refs(refs) } else { f }), ())
        });
    }

    /// A walk found its accessed bit set ([book: access#young-in-walk]): the first time only noted,
    /// the second time labelled `youngest`. A folio without generation is left alone but for the
    /// note.
    pub(crate) fn found_young_by_walk(&self, youngest: GenIndex, mechanisms: Mechanisms) -> Neighbour {
        self.update(|f| {
            if !mechanisms.workingset_rework() {
                return f.found_young_by_walk_before(youngest);
            }
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

    /// Eviction found its accessed bit set ([book: access#young-in-eviction]). `true`: activate;
    /// `false`: seen for the first time, keep.
    pub(crate) fn found_young_by_eviction(&self, mechanisms: Mechanisms) -> bool {
        self.update(|f| {
            if !mechanisms.workingset_rework() {
                return f.found_young_by_eviction_before();
            }
            if !f.referenced() && !f.workingset() {
                (Some(f.set(REFERENCED).with_refs(0)), false)
            } else if f.nrefs(mechanisms) > 1 || !mechanisms.fault_placement() {
                (Some(f.proved_hot()), true)
            } else {
                (Some(f.accessed(mechanisms)), true)
            }
        })
    }

    /// The look-around found its accessed bit set beside that of a page to evict, and is not
    /// walking ([book: access#young-neighbours]). `true`: it is to be activated unless it is
    /// labelled `youngest`.
    pub(crate) fn found_young_as_neighbour(&self, youngest: GenIndex, mechanisms: Mechanisms) -> bool {
        if mechanisms.workingset_rework() {
            return self.found_young_by_eviction(mechanisms);
        }
        self.update(|f| f.found_young_as_neighbour_before(youngest))
    }

    // Lists. All with the lruvec lock held, except `isolate`'s reference.

    /// Put on the list of `generation`: label set, `active` cleared, one step.
    pub(crate) fn enlist(&self, generation: GenIndex, mechanisms: Mechanisms) {
        self.update(|f| {
            debug_assert!(f.generation().is_none(), "enlisted twice: {f:?}");
            // Before the rework, a folio that was activated is counted from scratch.
            let f = if f.active() && !mechanisms.workingset_rework() { f.forgot_count() } else { f };
            (Some(f.with_generation(Some(generation)).clear(ACTIVE).set(LRU)), ())
        });
    }

    /// Put on the unevictable list.
    pub(crate) fn enlist_unevictable(&self) {
        self.update(|f| (Some(f.clear(ACTIVE).set(LRU | UNEVICTABLE)), ()));
    }

    /// Off its list; the word before, which says which list that was.
    pub(crate) fn delist(&self) -> Flags {
        self.update(|f| (Some(f.off_list().clear(UNEVICTABLE)), f))
    }

    /// Takes it off its list for reclaim, with a reference; the word before, as of
    /// [`Self::delist`]. Of a generation list, a count of accesses that is not valid is dropped
    /// ([book: access#forgetting]). `None`: it is being freed, or somebody else has the right to
    /// its place on the list.
    pub(crate) fn isolate(&self, mechanisms: Mechanisms) -> Option<Flags> {
        self.update(|f| {
            if !f.can_be_held() || !f.lru() {
                return (None, None);
            }
            let off = f.off_list().clear(LRU | UNEVICTABLE);
            if f.generation().is_none() {
                return (Some(off.held_once_more()), Some(f));
            }
            let off = if !mechanisms.workingset_rework() {
                off.isolated_before()
            } else if f.referenced() {
                off
            } else {
                off.with_refs(0)
            };
            // The reclaim loop of 7.2 leaves it set: such a folio is isolated while it is still
            // dirty.
            let off = if mechanisms.reclaim_loop() { off } else { off.clear(RECLAIM) };
            (Some(off.held_once_more()), Some(f))
        })
    }

    /// Gives up `lru` without a reference, for a folio that is being freed. `true`: it was listed.
    pub(crate) fn clear_lru(&self) -> bool {
        self.update(|f| (Some(f.clear(LRU)), f.lru()))
    }

    /// Up from generation `oldest` by one (protection, or making room): clears the count of
    /// accesses and keeps `workingset`. `reclaim`: to be freed as soon as it is clean.
    pub(crate) fn climb(&self, oldest: GenIndex, reclaim: bool, mechanisms: Mechanisms) -> Climb {
        let next = GenIndex((oldest.0 + 1) % 4);
        self.update(|f| match f.generation() {
            Some(label) if label != oldest => (None, Climb::Relabelled(label)),
            _ => {
                let f = if mechanisms.workingset_rework() { f.forgot_count() } else { f.forgot_accesses() };
                let f = if reclaim { f.set(RECLAIM) } else { f };
                (Some(f.with_generation(Some(next))), Climb::Moved(next))
            }
        })
    }

    /// Rejected by reclaim and about to fall into the oldest generation ([book: eviction#leftovers]
    /// row 3).
    pub(crate) fn reject(&self, mechanisms: Mechanisms) {
        self.update(|f| {
            let f = if mechanisms.workingset_rework() { f.forgot_count() } else { f.forgot_accesses() };
            (Some(f.set(ACTIVE)), ())
        });
    }

    pub(crate) fn set_active(&self) {
        self.update(|f| (Some(f.set(ACTIVE)), ()));
    }

    pub(crate) fn clear_active(&self) {
        self.update(|f| (Some(f.clear(ACTIVE)), ()));
    }

    /// Advice that it is cold ([book: access#rotation-and-advice]): forgets every access; before
    /// the rework, only the first.
    pub(crate) fn forget_accesses(&self, mechanisms: Mechanisms) {
        self.update(|f| {
            let next = if mechanisms.workingset_rework() { f.forgot_accesses() } else { f.clear(REFERENCED) };
            (Some(next), ())
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
