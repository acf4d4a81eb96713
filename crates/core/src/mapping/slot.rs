//! A slot: one word per page of a mapping, with its folio or shadow and its page-table entry.
//!
//! ```text
//! empty    0
//! folio    63  62  61       60     59       58      57        56  55 ... 32 31 ........ 0
//!          | 0 | 1 |uptodate|mapped|accessed|settled|readahead| 0 | version |   folio     |
//! shadow   63  62 ...................................................................... 0
//!          | 1 |  shadow word of the working-set code; swap slot of anonymous memory      |
//! ```
//!
//! Read as a signed number, a word is at least `FOLIO | UPTODATE | MAPPED | ACCESSED | SETTLED`
//! exactly if it has a folio and all these bits: a hit needs one comparison.
//!
//! A slot is *settled* while a mapped access to its page changes nothing: its own accessed bit is
//! set and that of its page table, too, and the page lies wholly inside the file. Only slots of
//! ranges ever are ([`super::SlotRange`]).
//!
//! The kernel has an index slot per file and a page-table entry per process. In user space a file
//! is mapped at most once per cache, so both are one word: 8 bytes per page, and a mapped access
//! finds the folio and its accessed bit with one load.
//!
//! # Locking
//!
//! The folio in a slot changes under its part's lock; the bits of a present folio change by
//! compare-and-swap without it.

use crate::folio::{FolioId, VERSION_BITS};
use crate::sync::{AtomicU64, Ordering};

const SHADOW: u64 = 1 << 63;
const FOLIO: u64 = 1 << 62;
const UPTODATE: u64 = 1 << 61;
const MAPPED: u64 = 1 << 60;
const ACCESSED: u64 = 1 << 59;
const SETTLED: u64 = 1 << 58;
const READAHEAD: u64 = 1 << 57;
const VERSION_SHIFT: u32 = 32;
const VERSION: u64 = ((1 << VERSION_BITS) - 1) << VERSION_SHIFT;

const _: () = assert!(VERSION < READAHEAD);

/// A snapshot of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(u64);

impl Slot {
    /// The slot of a page that was never cached.
    pub const EMPTY: Slot = Slot(0);

    pub(crate) fn of_folio(folio: FolioId) -> Slot {
        Slot(FOLIO | u64::from(folio.0))
    }

    /// The slot of an evicted page. `word` has 63 bits.
    pub(crate) fn of_shadow(word: u64) -> Slot {
        debug_assert!(word >> 63 == 0);
        Slot(SHADOW | word)
    }

    /// The cached folio.
    #[inline]
    pub fn folio(self) -> Option<FolioId> {
        (self.0 & (FOLIO | SHADOW) == FOLIO).then_some(self.folio_number())
    }

    /// The shadow of an evicted page.
    pub fn shadow(self) -> Option<u64> {
        (self.0 & SHADOW != 0).then_some(self.0 & !SHADOW)
    }

    /// Whether a folio is present and its bytes may be copied out.
    #[inline]
    pub(crate) fn is_readable(self) -> bool {
        self.0.cast_signed() >= (FOLIO | UPTODATE).cast_signed()
    }

    /// The folio of an occupied slot.
    #[inline]
    pub(crate) fn folio_number(self) -> FolioId {
        FolioId(self.0 as u32)
    }

    /// The folio's version with which the content of an occupied slot was last marked as valid.
    #[inline]
    pub(crate) fn version(self) -> u32 {
        ((self.0 & VERSION) >> VERSION_SHIFT) as u32
    }

    /// Whether the folio is readable and its page-table entry is present and young.
    #[inline]
    pub(crate) fn is_young(self) -> bool {
        self.0.cast_signed() >= (FOLIO | UPTODATE | MAPPED | ACCESSED).cast_signed()
    }

    /// Whether the folio is readable and a mapped access changes nothing.
    #[inline(always)]
    pub(crate) fn is_settled(self) -> bool {
        self.0.cast_signed() >= (FOLIO | UPTODATE | MAPPED | ACCESSED | SETTLED).cast_signed()
    }

    /// The folio's bytes are valid and no thread is changing them.
    #[inline]
    pub fn uptodate(self) -> bool {
        self.0 & (UPTODATE | SHADOW) == UPTODATE
    }

    /// The page-table entry is present.
    #[inline]
    pub fn mapped(self) -> bool {
        self.0 & (MAPPED | SHADOW) == MAPPED
    }

    /// The accessed bit of the entry.
    #[inline]
    pub fn accessed(self) -> bool {
        self.0 & (ACCESSED | SHADOW) == ACCESSED
    }

    /// The readahead mark: an access to this page starts the next window.
    #[inline]
    pub fn readahead(self) -> bool {
        self.0 & (READAHEAD | SHADOW) == READAHEAD
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A slot that all threads share: one word, which is 0 while the slot is empty.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicSlot(AtomicU64);

impl AtomicSlot {
    pub(crate) fn new() -> AtomicSlot {
        AtomicSlot(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn load(&self) -> Slot {
        Slot(self.0.load(Ordering::Acquire))
    }

    /// Replaces the content, under its part's lock. Bits that hits set meanwhile are lost with the
    /// page.
    pub(crate) fn replace(&self, slot: Slot) {
        // A store would do in production, but loom lets a compare-and-swap follow a store that it
        // did not see.
        self.0.swap(slot.0, Ordering::AcqRel);
    }

    fn change(&self, folio: FolioId, set: u64, clear: u64) -> Option<Slot> {
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            if Slot(now).folio() != Some(folio) {
                return None;
            }
            let next = (now | set) & !clear;
            if next == now {
                return Some(Slot(now));
            }
            match self.0.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Slot(now)),
                Err(other) => now = other,
            }
        }
    }

    /// Marks the bytes of `folio` as valid, under this version. Returns the slot after it; `None`:
    /// the slot holds another page by now.
    pub(crate) fn set_uptodate(&self, folio: FolioId, version: u32) -> Option<Slot> {
        let version = u64::from(version) << VERSION_SHIFT & VERSION;
        let before = self.change(folio, UPTODATE | version, VERSION & !version)?;
        Some(Slot(before.0 & !VERSION | UPTODATE | version))
    }

    /// Marks the bytes of `folio` as about to change.
    pub(crate) fn clear_uptodate(&self, folio: FolioId) {
        self.change(folio, 0, UPTODATE);
    }

    /// Creates the page-table entry, young. Returns the slot before; `None`: the slot holds another
    /// page by now.
    #[inline]
    pub(crate) fn touch(&self, folio: FolioId) -> Option<Slot> {
        self.change(folio, MAPPED | ACCESSED, 0)
    }

    /// Accesses the page through its page-table entry. `false`: it has none.
    #[inline]
    pub(crate) fn touch_mapped(&self) -> bool {
        const ENTRY: u64 = FOLIO | UPTODATE | MAPPED;
        let mut now = self.0.load(Ordering::Acquire);
        while now & (ENTRY | SHADOW | ACCESSED) == ENTRY {
            match self.0.compare_exchange_weak(now, now | ACCESSED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        now & (ENTRY | SHADOW) == ENTRY
    }

    /// Settles the slot of a page whose accessed bit is set, if `is_whole` says so of its content
    /// as it is now. `true`: it was not settled before.
    pub(super) fn settle(&self, is_whole: impl Fn() -> bool) -> bool {
        const YOUNG: u64 = FOLIO | UPTODATE | MAPPED | ACCESSED;
        let mut now = self.0.load(Ordering::Acquire);
        // Not while the content changes, nor if it has changed since the look: by a truncation, the
        // file may end in the page now.
        while now & (YOUNG | SHADOW | SETTLED) == YOUNG && is_whole() {
            match self.0.compare_exchange_weak(now, now | SETTLED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Lets the next access to the page look at the bit of its page table, and at the length of the
    /// file.
    pub(crate) fn unsettle(&self) {
        let mut now = self.0.load(Ordering::Relaxed);
        while now & (FOLIO | SHADOW | SETTLED) == FOLIO | SETTLED {
            match self.0.compare_exchange_weak(now, now & !SETTLED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }

    pub(crate) fn clear_accessed(&self, folio: FolioId) -> bool {
        self.change(folio, 0, ACCESSED | SETTLED).is_some_and(Slot::accessed)
    }

    /// Removes the page-table entry and returns its accessed bit.
    pub(crate) fn unmap(&self, folio: FolioId) -> bool {
        self.change(folio, 0, MAPPED | ACCESSED | SETTLED).is_some_and(Slot::accessed)
    }

    pub(crate) fn set_readahead(&self, folio: FolioId) {
        self.change(folio, READAHEAD, 0);
    }

    pub(crate) fn clear_readahead(&self, folio: FolioId) -> bool {
        self.change(folio, 0, READAHEAD).is_some_and(Slot::readahead)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.load().is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_holds_a_folio_or_a_shadow() {
        let slot = AtomicSlot::new();
        assert!(slot.is_empty() && slot.load().folio().is_none() && slot.load().shadow().is_none());
        slot.replace(Slot::of_folio(FolioId(77)));
        assert_eq!(slot.load().folio(), Some(FolioId(77)));
        assert!(!slot.load().uptodate() && !slot.load().mapped());
        let word = u64::MAX >> 1;
        slot.replace(Slot::of_shadow(word));
        assert_eq!(slot.load().shadow(), Some(word));
        assert!(slot.load().folio().is_none() && !slot.load().uptodate() && !slot.load().accessed());
    }

    #[test]
    fn bits_change_only_while_the_folio_is_there() {
        let slot = AtomicSlot::new();
        slot.replace(Slot::of_folio(FolioId(1)));
        slot.set_uptodate(FolioId(1), 7);
        assert_eq!(slot.load().version(), 7);
        let whole = slot.load();
        assert!(slot.touch(FolioId(2)).is_none());
        assert!(!slot.touch(FolioId(1)).unwrap().accessed());
        assert!(slot.load().mapped() && slot.load().accessed() && slot.load().uptodate());
        assert!(slot.clear_accessed(FolioId(1)));
        assert!(!slot.clear_accessed(FolioId(1)));
        assert!(!slot.unmap(FolioId(1)));
        assert!(!slot.load().mapped() && slot.load().uptodate());
        slot.clear_uptodate(FolioId(1));
        assert!(!slot.load().is_readable() && slot.load() != whole);
        slot.set_uptodate(FolioId(1), u32::MAX);
        assert_eq!((slot.load().version(), slot.load().folio()), ((1 << 24) - 1, Some(FolioId(1))));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A mapped access to a page that is being replaced never marks the next page.
    #[test]
    fn loom_a_touch_is_of_the_page_that_was_found() {
        for after in [Slot::EMPTY, Slot::of_shadow(5), Slot::of_folio(FolioId(2))] {
            loom::model(move || {
                let slot = Arc::new(AtomicSlot::new());
                slot.replace(Slot::of_folio(FolioId(1)));
                let touch = {
                    let slot = slot.clone();
                    loom::thread::spawn(move || slot.touch(FolioId(1)).is_some())
                };
                slot.replace(after);
                touch.join().unwrap();
                assert_eq!(slot.load(), after);
            });
        }
    }

    /// A walk tests and clears the accessed bit while it is set anew: every access is seen exactly
    /// once.
    #[test]
    fn loom_no_access_is_lost() {
        loom::model(|| {
            let slot = Arc::new(AtomicSlot::new());
            slot.replace(Slot::of_folio(FolioId(1)));
            let touch = {
                let slot = slot.clone();
                loom::thread::spawn(move || slot.touch(FolioId(1)).is_some())
            };
            let seen = slot.clear_accessed(FolioId(1));
            assert!(touch.join().unwrap());
            assert!(seen != slot.load().accessed());
            assert!(slot.load().mapped());
        });
    }

    /// Two threads take the same readahead mark: one of them reads the next window.
    #[test]
    fn loom_a_readahead_mark_is_taken_once() {
        loom::model(|| {
            let slot = Arc::new(AtomicSlot::new());
            slot.replace(Slot::of_folio(FolioId(1)));
            slot.set_readahead(FolioId(1));
            let take = |slot: &AtomicSlot| slot.clear_readahead(FolioId(1));
            let other = {
                let slot = slot.clone();
                loom::thread::spawn(move || take(&slot))
            };
            assert!(take(&slot) != other.join().unwrap());
        });
    }
}
