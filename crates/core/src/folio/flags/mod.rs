//! The state word of a folio and all of its transitions.
//!
//! ```text
//! 63       40 39   29 28        20 19 …                                               5 4  3 2      0
//! +----------+-------+------------+----------------------------------------------------+----+--------+
//! | version  | loans | references | flags, one bit each                                |refs|  mark  |
//! +----------+-------+------------+----------------------------------------------------+----+--------+
//! ```
//!
//! One word holds everything because decisions concern several parts at once: a folio is freed if
//! it has exactly the expected references *and* is not dirty; a promotion changes the generation
//! *and* clears `refs`.
//!
//! *Mark* names the folio's list: a generation, numbered from 1, or a list of another policy; 0 is
//! none of these.
//!
//! *Loans* counts the users that have borrowed the bytes. While there is one, nobody may change the
//! bytes, and the folio is not freed. That they are in the word lets a user borrow and a writer
//! begin in one step each, of which the second one fails.
//!
//! *Version* counts changes of content or identity. A reader that copies bytes without a reference
//! loads the word before and after: the copy is whole if the version is equal and `writing` is
//! clear. It wraps around: a copy would have to take as long as 2^24 writes of its page.
//!
//! # Locking
//!
//! None: every transition is one compare-and-swap. A walk may change a folio's generation while
//! another thread holds the lruvec lock, so list code uses the label that its own transition
//! returned.
//!
//! The transitions are those of [book: access]. [`before`] has the versions from before the
//! working-set rework, [`content`] those of the lock and the bytes, [`two_lists`] those of active
//! and inactive lists and of moves between policies, [`ranked`] those of newcomers and the main
//! list.

mod before;
mod content;
mod ranked;
mod two_lists;

pub use content::WriteAttempt;
pub(crate) use ranked::{HandStep, MAIN, NEWCOMER};

use super::Kind;
use crate::mechanism::{Mechanisms, Switch};
use crate::sync::{AtomicU64, Ordering};

/// Position in the ring of generation lists, 0 to 3. Only meaningful with the window of its lruvec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenIndex(u8);

impl GenIndex {
    /// The position `index`, which is less than 4.
    #[inline]
    pub const fn new(index: u8) -> GenIndex {
        assert!(index < GENERATIONS);
        GenIndex(index)
    }

    /// The position as a number, to index arrays.
    #[inline]
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// Class inside a generation by accesses through descriptors, 0 to 3.
pub type Tier = u8;

/// The mark: 0, no marked list; 1 to 4, a generation plus one; 5 to 7, lists of further policies.
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
/// Shares its bit with `DROPBEHIND`, which only file pages have.
const SWAPCACHE: u64 = 1 << 18;
const MLOCKED: u64 = 1 << 19;
const REFERENCE: u64 = 1 << 20;
const LOAN: u64 = 1 << 29;
const VERSION: u64 = 1 << VERSION_SHIFT;
const VERSION_SHIFT: u32 = 40;

/// The most references that fit. The last one is for writeback, which cannot do without.
const REFERENCES_MAX: u32 = 0x1ff;
const REFERENCES_MASK: u64 = REFERENCES_MAX as u64 * REFERENCE;
/// With fewer references than this, a folio may be queued once more. The batches of many CPUs may
/// hold it for long; the other half is for threads that lock it or keep its frame.
const QUEUED_REFERENCES_MAX: u32 = REFERENCES_MAX / 2;
/// How often the bytes of a folio can be lent at once.
pub const LOANS_MAX: u32 = 0x7ff;
const LOANS_MASK: u64 = LOANS_MAX as u64 * LOAN;
/// The bits of a version.
pub(crate) const VERSION_BITS: u32 = u64::BITS - VERSION_SHIFT;

const _: () = assert!(MLOCKED << 1 == REFERENCE && REFERENCES_MASK + REFERENCE == LOAN);
const _: () = assert!(LOANS_MASK + LOAN == VERSION);
const _: () = assert!(MARK_MASK & REFS_MASK == 0 && REFS_MASK << 1 < REFERENCED << 1);

/// The marks of a folio whose accesses through descriptors are all counted, under some policy: more
/// of them change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedFull(pub(crate) u8);

impl CountedFull {
    /// `referenced` and the highest `refs`.
    pub(crate) const REFS: CountedFull = CountedFull((REFERENCED | REFS_MASK) as u8);
    /// These and `workingset`.
    pub(crate) const REFS_AND_WORKINGSET: CountedFull =
        CountedFull((REFERENCED | REFS_MASK | WORKINGSET) as u8);
    /// `referenced` and `active`.
    pub(crate) const ACTIVE: CountedFull = CountedFull((REFERENCED | ACTIVE) as u8);
}

/// `nrefs + workingset` at which sorting always protects a folio: five accesses, or four after a
/// promotion ([book: folios#state-word], "saturated").
const PROTECTED_ALWAYS: u32 = 5;

/// A snapshot of a state word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(u64);

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident = $bit:ident;)*) => {
        impl Flags {
            $($(#[$doc])* #[inline] pub fn $name(self) -> bool { self.0 & $bit != 0 })*
        }
        impl std::fmt::Debug for Flags {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let (held, lent) = (self.references(), self.loans());
                write!(f, "gen {:?} refs {} held {held} lent {lent} version {}", self.generation(), self.refs(), self.version())?;
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
    /// On an LRU list. Clearing this bit gives the right to isolate.
    lru = LRU;
    /// On the unevictable list.
    unevictable = UNEVICTABLE;
    /// The content differs from the backing store.
    dirty = DIRTY;
    /// The content is being written to the backing store.
    writeback = WRITEBACK;
    /// To be freed as soon as it is clean.
    reclaim = RECLAIM;
    /// One thread works on the content or the mapping.
    locked = LOCKED;
    /// The bytes are changing, or have not been read yet.
    writing = WRITING;
    /// A thread sleeps until the folio is unlocked or written.
    waiters = WAITERS;
    /// Anonymous or shared memory.
    swapbacked = SWAPBACKED;
    /// A page-table entry maps it.
    mapped = MAPPED;
    /// Locked in memory by a user.
    mlocked = MLOCKED;
}

impl Flags {
    /// Read by an uncached request: accesses are not counted.
    #[inline]
    pub fn dropbehind(self) -> bool {
        self.0 & (DROPBEHIND | SWAPBACKED) == DROPBEHIND
    }

    /// The folio has a swap slot.
    #[inline]
    pub fn swapcache(self) -> bool {
        self.0 & (SWAPCACHE | SWAPBACKED) == SWAPCACHE | SWAPBACKED
    }

    /// Whether a kernel takes `reclaim` for its readahead mark: reclaim met a file page that nobody
    /// writes back yet.
    #[inline]
    pub(crate) fn reads_ahead(self) -> bool {
        self.0 & (RECLAIM | WRITEBACK | SWAPBACKED) == RECLAIM
    }

    /// The kind of its page.
    #[inline]
    pub fn kind(self) -> Kind {
        if self.swapbacked() { Kind::Anon } else { Kind::File }
    }

    /// The generation that the folio is labelled with; `None` while it is off the generation lists.
    #[inline]
    pub fn generation(self) -> Option<GenIndex> {
        let label = self.mark().wrapping_sub(1);
        (label < GENERATIONS).then_some(GenIndex(label))
    }

    /// The mark of the folio's list: 0, none; 1 to 4, a generation plus one; 5 to 7, lists of
    /// further policies.
    #[inline]
    pub(crate) fn mark(self) -> u8 {
        (self.0 & MARK_MASK) as u8
    }

    /// The field of extra accesses (`F`); since the rework only valid with `referenced`.
    #[inline]
    pub fn refs(self) -> u32 {
        ((self.0 & REFS_MASK) >> REFS_SHIFT) as u32
    }

    /// References held: by the mapping, isolation, batches, writeback and lock holders.
    #[inline]
    pub fn references(self) -> u32 {
        ((self.0 & REFERENCES_MASK) / REFERENCE) as u32
    }

    /// How many users have borrowed the bytes.
    #[inline]
    pub fn loans(self) -> u32 {
        ((self.0 & LOANS_MASK) / LOAN) as u32
    }

    /// Whether a user has borrowed the bytes.
    #[inline]
    pub fn lent(self) -> bool {
        self.0 & LOANS_MASK != 0
    }

    /// Whether the folio is in use: it has a reference or a loan.
    #[inline]
    pub fn is_held(self) -> bool {
        self.0 & (REFERENCES_MASK | LOANS_MASK) != 0
    }

    /// Whether one more holder is possible: the folio is in use, and one reference remains for
    /// writeback.
    fn can_be_held(self) -> bool {
        (1..REFERENCES_MAX - 1).contains(&self.references())
    }

    /// Whether one more batch may hold the folio.
    fn can_be_queued(self) -> bool {
        (1..QUEUED_REFERENCES_MAX).contains(&self.references())
    }

    fn held_once_more(self) -> Flags {
        assert!(self.references() < REFERENCES_MAX, "no reference is left: {self:?}");
        Flags(self.0 + REFERENCE)
    }

    /// Version of content and identity.
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

    /// Tier 0 to 3: 3 with `workingset`, else the base-2 logarithm of the accesses, rounded up.
    #[inline]
    pub fn tier(self, mechanisms: Mechanisms) -> Tier {
        if !mechanisms.workingset_rework() {
            return self.tier_before();
        }
        if self.workingset() { 3 } else { tier_of(self.nrefs(mechanisms)) }
    }

    /// Whether sorting always protects the folio ("lazy promotion").
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

    /// Counts one access through a descriptor ([book: access#counting-after]).
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

    /// Whether further accesses through a descriptor change nothing, and reclaim left no mark that
    /// one of them must look at ([`Flags::reads_ahead`]). May be `false` although it is so.
    #[inline(always)]
    pub(crate) fn is_counted(self, full: CountedFull) -> bool {
        self.0 & RECLAIM == 0 && !self.0 & u64::from(full.0) == 0
    }

    /// After being found young a second time: hot, and the count starts over.
    fn proved_hot(self) -> Flags {
        self.forgot_count().set(WORKINGSET)
    }

    /// The count starts over; `workingset` stays.
    fn forgot_count(self) -> Flags {
        self.clear(REFERENCED).with_refs(0)
    }

    /// All accesses forgotten.
    fn forgot_accesses(self) -> Flags {
        self.forgot_count().clear(WORKINGSET)
    }
}

/// `ceil_log2(n)`, or 0 for 0: since the rework, the tier of a folio with `nrefs` accesses and
/// without `workingset`.
#[inline]
pub(crate) fn tier_of(nrefs: u32) -> Tier {
    (32 - nrefs.saturating_sub(1).leading_zeros()) as Tier
}

/// Result of moving a folio up by one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Climb {
    /// It moved from the oldest generation to this one.
    Moved(GenIndex),
    /// A walk had relabelled it: it goes unchanged to this generation's list.
    Relabelled(GenIndex),
}

/// The reason why the bytes of a page were not lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLent {
    /// The folio has another page or other content by now: look up again.
    Gone,
    /// A thread is changing the bytes: wait until it has, then look up again.
    Changing,
    /// The bytes are lent [`LOANS_MAX`] times.
    TooOften,
}

/// Effect of an accessed bit on a folio's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbour {
    /// First sight, or not on a list: the label stays.
    Noted,
    /// The label changed from the first generation to the second; list and sizes follow later.
    Relabelled(GenIndex, GenIndex),
}

/// The state word of one folio, shared by all threads.
#[derive(Debug)]
pub struct FolioFlags(AtomicU64);

impl FolioFlags {
    pub(crate) fn new() -> FolioFlags {
        FolioFlags(AtomicU64::new(0))
    }

    /// Loads the word, with acquire ordering.
    #[inline]
    pub fn load(&self) -> Flags {
        Flags(self.0.load(Ordering::Acquire))
    }

    /// Whether content and identity are still those of `then`. Earlier reads of bytes are ordered
    /// before this check.
    #[inline]
    pub(crate) fn unchanged_since(&self, then: Flags) -> bool {
        crate::sync::fence(Ordering::Acquire);
        let now = Flags(self.0.load(Ordering::Relaxed));
        now.version() == then.version() && !now.writing()
    }

    /// The compare-and-swap loop of all transitions. `change` returns `None` to leave the word as
    /// it is.
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

    /// Makes a free frame a folio: locked, without valid content, with `references` references. The
    /// new version shows late readers that the former content is gone.
    pub(crate) fn allocate(&self, swapbacked: bool, references: u64) {
        self.update(|f| {
            debug_assert!(!f.is_held(), "a used frame was allocated: {f:?}");
            let version = f.0 & !(VERSION - 1);
            let kind = if swapbacked { SWAPBACKED } else { 0 };
            (
                Some(Flags(
                    version.wrapping_add(VERSION) | (REFERENCE * references) | LOCKED | WRITING | kind,
                )),
                (),
            )
        });
        // Readers see neither the identity stored next nor the bytes read into the frame before
        // they see the new version.
        crate::sync::fence(Ordering::Release);
    }

    /// Discards an allocated folio that was not used: unlocks it and drops `references` references.
    /// Returns the word before, and whether no reference is left. A reader that looked for the
    /// frame's former page may hold one for a moment; that reader then frees the folio.
    pub(crate) fn discard(&self, references: u64) -> (Flags, bool) {
        self.update(|f| {
            let next = Flags(f.clear(LOCKED | WAITERS).0 - REFERENCE * references);
            (Some(next), (f, !next.is_held()))
        })
    }

    // References and loans.

    /// Takes a reference. `false`: the folio is being freed, or the counter is full.
    pub fn try_get(&self) -> bool {
        self.update(|f| if f.can_be_held() { (Some(f.held_once_more()), true) } else { (None, false) })
    }

    /// Takes a reference for a batch. `false`: the folio is being freed, or many batches hold it.
    pub(crate) fn try_get_queued(&self) -> bool {
        self.update(|f| if f.can_be_queued() { (Some(f.held_once_more()), true) } else { (None, false) })
    }

    /// Takes a reference if the version is still that of `then`.
    pub(crate) fn try_get_version(&self, then: Flags) -> bool {
        self.update(|f| {
            if !f.can_be_held() || f.version() != then.version() || f.writing() {
                return (None, false);
            }
            (Some(f.held_once_more()), true)
        })
    }

    /// Lends the bytes if they still have this version.
    #[inline]
    pub(crate) fn lend(&self, version: u32) -> Result<(), NotLent> {
        self.update(|f| {
            if f.references() == 0 || f.version() != version {
                (None, Err(NotLent::Gone))
            } else if f.writing() {
                (None, Err(NotLent::Changing))
            } else if f.loans() == LOANS_MAX {
                (None, Err(NotLent::TooOften))
            } else {
                (Some(Flags(f.0 + LOAN)), Ok(()))
            }
        })
    }

    /// Ends a loan and returns the word after it. The caller frees a folio that nobody holds, and
    /// wakes sleeping threads after the last loan.
    #[inline]
    pub(crate) fn take_back(&self) -> Flags {
        let before = Flags(self.0.fetch_sub(LOAN, Ordering::AcqRel));
        assert!(before.lent(), "a loan ended twice: {before:?}");
        Flags(before.0 - LOAN)
    }

    /// Drops a reference and returns the word after it. The caller frees a folio that nobody holds.
    pub(crate) fn put(&self) -> Flags {
        self.update(|f| {
            assert!(f.references() > 0, "reference dropped twice: {f:?}");
            let next = Flags(f.0 - REFERENCE);
            (Some(next), next)
        })
    }

    /// Takes the last references of a clean folio at once, so that no thread can find it, and
    /// unlocks it, so that no thread begins to wait for it. `locked`: the caller holds the lock;
    /// otherwise no thread may hold it. `None`: other users hold it, or it is lent, dirty, mapped
    /// or locked in memory; else the word before.
    pub(crate) fn freeze(&self, expected: u32, locked: bool) -> Option<Flags> {
        self.update(|f| {
            let used = f.references() != expected || f.locked() != locked;
            if used || f.lent() || f.dirty() || f.writeback() || f.mapped() || f.mlocked() {
                return (None, None);
            }
            (Some(Flags(f.clear(REFERENCES_MASK | LOCKED | WAITERS).0.wrapping_add(VERSION))), Some(f))
        })
    }

    // Dirty and writeback.

    /// A write to a folio that is dirty already; cancels a pending `reclaim`. `false`: the folio is
    /// clean and stays so, because its mapping must mark it first.
    pub(crate) fn redirty(&self) -> bool {
        self.update(|f| if f.dirty() { (Some(f.clear(RECLAIM)), true) } else { (None, false) })
    }

    /// Marks it dirty and cancels a pending `reclaim`. `true`: it was clean.
    pub(crate) fn set_dirty(&self) -> bool {
        self.update(|f| (Some(f.set(DIRTY).clear(RECLAIM)), !f.dirty()))
    }

    /// Marks it clean. `true`: it was dirty.
    pub(crate) fn clear_dirty(&self) -> bool {
        self.update(|f| (Some(f.clear(DIRTY)), f.dirty()))
    }

    /// Begins writeback of a dirty folio and takes a reference. `false`: it is clean or already
    /// under writeback.
    pub(crate) fn start_writeback(&self) -> bool {
        self.update(|f| {
            if !f.dirty() || f.writeback() || f.references() == 0 {
                return (None, false);
            }
            (Some(f.clear(DIRTY).set(WRITEBACK).held_once_more()), true)
        })
    }

    /// Ends writeback, clears `reclaim`, and returns the word before. The caller wakes sleeping
    /// threads.
    pub(crate) fn end_writeback(&self) -> Flags {
        self.update(|f| {
            debug_assert!(f.writeback());
            (Some(f.clear(WRITEBACK | RECLAIM | WAITERS)), f)
        })
    }

    /// Makes a new folio one of anonymous memory.
    pub(crate) fn set_swapbacked(&self) {
        self.update(|f| (Some(f.set(SWAPBACKED).clear(SWAPCACHE)), ()));
    }

    /// Gives the folio a swap slot that it must be written to.
    pub(crate) fn enter_swap_cache(&self) {
        self.update(|f| (Some(f.set(SWAPCACHE | DIRTY)), ()));
    }

    /// Gives the folio the swap slot that it was read from.
    pub(crate) fn return_to_swap_cache(&self) {
        self.update(|f| (Some(f.set(SWAPCACHE)), ()));
    }

    /// Takes the swap slot away. `dirty`: the folio then holds the only copy. `true`: it had a
    /// slot.
    pub(crate) fn leave_swap_cache(&self, dirty: bool) -> bool {
        self.update(|f| {
            if !f.swapcache() {
                return (None, false);
            }
            let next = f.clear(SWAPCACHE);
            (Some(if dirty { next.set(DIRTY) } else { next }), true)
        })
    }

    /// Begins to write a dirty anonymous folio to swap, to be freed afterwards; takes a reference.
    pub(crate) fn start_swap_out(&self) {
        self.update(|f| {
            debug_assert!(f.dirty() && f.swapcache() && !f.writeback());
            (Some(f.clear(DIRTY).set(WRITEBACK | RECLAIM).held_once_more()), ())
        });
    }

    pub(crate) fn set_reclaim(&self) {
        self.update(|f| (Some(f.set(RECLAIM)), ()));
    }

    /// Takes `reclaim` from a folio that may be read ahead of. `true`: it was set.
    pub(crate) fn take_reclaim(&self) -> bool {
        self.update(|f| if f.reads_ahead() { (Some(f.clear(RECLAIM)), true) } else { (None, false) })
    }

    // Accesses.

    /// Counts one access through a descriptor to the folio of the version of `then`. Writes nothing
    /// if the folio is saturated or the frame holds another page by now.
    #[inline]
    pub(crate) fn mark_accessed(&self, then: Flags, mechanisms: Mechanisms) {
        self.update(|f| {
            if f.version() != then.version() || f.unevictable() || f.dropbehind() {
                return (None, ());
            }
            (Some(f.accessed(mechanisms)), ())
        });
    }

    /// Marks a folio brought in by a page fault ([book: access#fault-placement]) `active`. With
    /// `fault_placement` only hot folios get that mark; the others count one access.
    pub(crate) fn mark_faulted_in(&self, mechanisms: Mechanisms) {
        self.update(|f| {
            let next = if f.unevictable() {
                f
            } else if f.workingset() || !mechanisms.fault_counts() {
                f.set(ACTIVE)
            } else if !f.referenced() {
                f.accessed(mechanisms)
            } else {
                f
            };
            (Some(next), ())
        });
    }

    /// Sets the first access of a folio that is created for it, before it is inserted.
    pub(crate) fn set_referenced(&self) {
        self.update(|f| (Some(f.set(REFERENCED)), ()));
    }

    /// Marks the folio of the version of `then` mapped. `true`: it was not mapped. Does nothing if
    /// the folio is being freed or the frame holds another page by now.
    pub(crate) fn set_mapped(&self, then: Flags) -> bool {
        self.update(|f| {
            if f.references() == 0 || f.version() != then.version() {
                return (None, false);
            }
            (Some(f.set(MAPPED)), !f.mapped())
        })
    }

    /// Marks the folio as removed from its mapping. `true`: it was mapped.
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

    /// Restores state on a refault ([book: refaults#refault-processing]): `workingset`, and the
    /// former access count unless it is 0.
    pub(crate) fn restore(&self, workingset: bool, refs: u32) {
        self.update(|f| {
            let f = if workingset { f.set(WORKINGSET) } else { f };
            (Some(if refs > 0 { f.with_refs(refs) } else { f }), ())
        });
    }

    /// Handles an accessed bit found by a walk ([book: access#young-in-walk]): the first is only
    /// noted, the second relabels the folio as `youngest`. A folio without a generation is only
    /// noted.
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

    /// Handles an accessed bit found by eviction ([book: access#young-in-eviction]). `true`:
    /// activate; `false`: first sight, keep.
    pub(crate) fn found_young_by_eviction(&self, mechanisms: Mechanisms) -> bool {
        self.update(|f| {
            if !mechanisms.workingset_rework() {
                return f.found_young_by_eviction_before();
            }
            if !f.referenced() && !f.workingset() {
                (Some(f.set(REFERENCED).with_refs(0)), false)
            } else if f.nrefs(mechanisms) > 1 || !mechanisms.fault_counts() {
                (Some(f.proved_hot()), true)
            } else {
                (Some(f.accessed(mechanisms)), true)
            }
        })
    }

    /// Handles an accessed bit found by a look-around outside a walk
    /// ([book: access#young-neighbours]). `true`: activate the folio unless it is labelled
    /// `youngest`.
    pub(crate) fn found_young_as_neighbour(&self, youngest: GenIndex, mechanisms: Mechanisms) -> bool {
        if mechanisms.workingset_rework() {
            return self.found_young_by_eviction(mechanisms);
        }
        self.update(|f| f.found_young_as_neighbour_before(youngest))
    }

    // Lists. The caller holds the lruvec lock, except for the reference of `isolate`.

    /// Puts the folio on the list of `generation`: sets the label and clears `active` in one step.
    pub(crate) fn enlist(&self, generation: GenIndex, mechanisms: Mechanisms) {
        self.update(|f| {
            debug_assert!(f.generation().is_none(), "enlisted twice: {f:?}");
            // Before the rework, activation starts the count over.
            let f = if f.active() && !mechanisms.workingset_rework() { f.forgot_count() } else { f };
            (Some(f.with_generation(Some(generation)).clear(ACTIVE).set(LRU)), ())
        });
    }

    /// Puts the folio on the unevictable list.
    pub(crate) fn enlist_unevictable(&self) {
        self.update(|f| (Some(f.clear(ACTIVE).set(LRU | UNEVICTABLE)), ()));
    }

    /// Takes the folio off its list. Returns the word before, which names that list.
    pub(crate) fn delist(&self) -> Flags {
        self.update(|f| (Some(f.off_list().clear(UNEVICTABLE)), f))
    }

    /// Takes the folio off its list for reclaim, with a reference. Returns the word before, as
    /// [`Self::delist`] does. From a generation list, an invalid access count is dropped
    /// ([book: access#forgetting]). `None`: the folio is being freed, or another thread owns its
    /// place on the list.
    #[inline]
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
            // Where dirty folios are examined as all others, page-out still needs the mark.
            let keeps = mechanisms.is_on(Switch::KeepReclaimMark);
            let off = if keeps { off } else { off.clear(RECLAIM) };
            (Some(off.held_once_more()), Some(f))
        })
    }

    /// Takes a reference and clears `lru`: only the caller may take the folio off its list, until
    /// [`Self::return_place`]. `false`: it is on no list, on the unevictable one, being freed, or
    /// another thread owns its place.
    pub(crate) fn hold_place(&self) -> bool {
        self.update(|f| {
            let may = f.can_be_held() && f.lru() && !f.unevictable();
            (may.then(|| f.clear(LRU).held_once_more()), may)
        })
    }

    /// Sets `lru` again, which [`Self::hold_place`] cleared. The reference stays.
    pub(crate) fn return_place(&self) {
        self.update(|f| (Some(f.set(LRU)), ()));
    }

    /// Clears `lru` of a folio that is being freed, without taking a reference. `true`: it was set.
    pub(crate) fn clear_lru(&self) -> bool {
        self.update(|f| (Some(f.clear(LRU)), f.lru()))
    }

    /// Moves the folio up from generation `oldest` by one, for protection or to make room: clears
    /// the access count and keeps `workingset`. `reclaim`: free it as soon as it is clean.
    pub(crate) fn climb(&self, oldest: GenIndex, reclaim: bool, mechanisms: Mechanisms) -> Climb {
        let next = GenIndex((oldest.0 + 1) % GENERATIONS);
        self.update(|f| match f.generation() {
            Some(label) if label != oldest => (None, Climb::Relabelled(label)),
            _ => {
                let f = if mechanisms.workingset_rework() { f.forgot_count() } else { f.forgot_accesses() };
                let f = if reclaim { f.set(RECLAIM) } else { f };
                (Some(f.with_generation(Some(next))), Climb::Moved(next))
            }
        })
    }

    /// Rejects the folio in reclaim; it is about to go to the oldest generation
    /// ([book: eviction#leftovers] row 3).
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

    /// Follows advice that the folio is cold ([book: access#rotation-and-advice]): forgets every
    /// access; before the rework, only the first.
    pub(crate) fn forget_accesses(&self, mechanisms: Mechanisms) {
        self.update(|f| {
            let next = if mechanisms.workingset_rework() { f.forgot_accesses() } else { f.clear(REFERENCED) };
            (Some(next), ())
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
