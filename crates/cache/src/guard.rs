//! Guards: pages lent as `&[u8]`, for as long as the guard lives.
//!
//! A guard counts a loan in the folio's state word ([`mglru_core::Core::lend`]): one atomic step
//! when it is made and one when it is dropped.
//!
//! A [`PageGuard`] borrows its map and stays on its thread, so that a writer can tell when it would
//! wait for its own thread. An [`OwnedPageGuard`] borrows nothing and may be moved, stored and
//! cloned.
//!
//! # Safety
//!
//! The one `unsafe` site in this file relies on the loan.

use crate::error::Error;
use crate::inode::Inode;
use crate::keepers::Kept;
use crate::shared::Shared;
use mglru_core::folio::Flags;
use mglru_core::{FolioId, Lookup};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, MutexGuard};

/// A lent page: the cache's number and the folio.
type Lent = (u64, FolioId);

/// Guards of a thread that are noted without an allocation, because a hit makes none.
const FEW: usize = 16;

/// Pages that [`PageGuard`]s of a thread lend.
struct LentHere {
    few: [Lent; FEW],
    /// How many of `few` are in use.
    count: usize,
    /// Those beyond `few`, which is full then.
    more: Vec<Lent>,
}

impl LentHere {
    const EMPTY: LentHere = LentHere { few: [(0, FolioId(0)); FEW], count: 0, more: Vec::new() };

    fn push(&mut self, lent: Lent) {
        match self.few.get_mut(self.count) {
            Some(place) => {
                *place = lent;
                self.count += 1;
            }
            None => self.more.push(lent),
        }
    }

    /// Removes one entry of a page. Guards are mostly dropped in reverse order.
    fn remove(&mut self, lent: Lent) {
        if let Some(at) = self.more.iter().rposition(|&known| known == lent) {
            self.more.swap_remove(at);
        } else if let Some(at) = self.few[..self.count].iter().rposition(|&known| known == lent) {
            self.few[at] = self.more.pop().unwrap_or_else(|| {
                self.count -= 1;
                self.few[self.count]
            });
        }
    }

    fn contains(&self, lent: Lent) -> bool {
        self.few[..self.count].contains(&lent) || self.more.contains(&lent)
    }
}

thread_local! {
    static LENT_HERE: RefCell<LentHere> = const { RefCell::new(LentHere::EMPTY) };
}

/// A folio that is lent, counted by `Core::lend`.
struct Loan<S: Deref<Target = Shared>> {
    shared: S,
    folio: FolioId,
    bytes: usize,
}

impl<S: Deref<Target = Shared>> Loan<S> {
    /// The page's bytes, up to the end of the file.
    fn bytes(&self) -> &[u8] {
        // SAFETY: `lend` counted this loan in the step that saw no writer, and a writer begins in a
        // step that sees no loan. The loan keeps the frame from being freed, released or read into.
        #[expect(unsafe_code, reason = "lends a frame's bytes without a copy")]
        let frame = unsafe { self.shared.frames.bytes(self.folio.0) };
        &frame[..self.bytes]
    }
}

impl<S: Deref<Target = Shared>> Drop for Loan<S> {
    fn drop(&mut self) {
        self.shared.core.take_back(&self.shared.host, self.folio);
    }
}

/// A borrowed page. See [`crate::Map::page`].
///
/// It stays on its thread. [`crate::Map::page_owned`] returns a guard that does not.
pub struct PageGuard<'a> {
    loan: Loan<&'a Shared>,
    /// Sharing a guard is fine; dropping it on another thread is not.
    _stays: PhantomData<MutexGuard<'a, ()>>,
}

impl<'a> PageGuard<'a> {
    /// A guard of a folio that was lent for it.
    pub(crate) fn new(shared: &'a Shared, folio: FolioId, bytes: usize) -> PageGuard<'a> {
        let guard = PageGuard { loan: Loan { shared, folio, bytes }, _stays: PhantomData };
        // A thread that is ending may have dropped the list: the guard is not known as its own.
        let _ = LENT_HERE.try_with(|lent| lent.borrow_mut().push((shared.number, folio)));
        guard
    }
}

impl Drop for PageGuard<'_> {
    fn drop(&mut self) {
        let entry = (self.loan.shared.number, self.loan.folio);
        // A thread that is ending may have dropped the list.
        let _ = LENT_HERE.try_with(|lent| lent.borrow_mut().remove(entry));
    }
}

impl Deref for PageGuard<'_> {
    type Target = [u8];

    /// The page's bytes, up to the end of the file.
    fn deref(&self) -> &[u8] {
        self.loan.bytes()
    }
}

impl AsRef<[u8]> for PageGuard<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for PageGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageGuard").field("bytes", &self.loan.bytes).finish_non_exhaustive()
    }
}

/// A lent page that borrows nothing: it can be stored, sent to another thread or a task, and
/// cloned. See [`crate::Map::page_owned`].
///
/// It lends the page until its last clone is dropped, even after the map, the file and the cache
/// are closed. A thread that writes to the page waits until then, also if it holds the guard
/// itself; [`crate::CachedFile::try_write_at`] fails instead. As it is `AsRef<[u8]>`,
/// `bytes::Bytes::from_owner(guard)` makes it a `Bytes` without a copy.
#[derive(Clone)]
pub struct OwnedPageGuard(Arc<Loan<Kept<Shared>>>);

impl OwnedPageGuard {
    /// A guard of a folio that was lent for it.
    pub(crate) fn new(shared: &Arc<Shared>, folio: FolioId, bytes: usize) -> OwnedPageGuard {
        OwnedPageGuard(Arc::new(Loan { shared: shared.keep(), folio, bytes }))
    }
}

impl Deref for OwnedPageGuard {
    type Target = [u8];

    /// The page's bytes, up to the end of the file.
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for OwnedPageGuard {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for OwnedPageGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPageGuard").field("bytes", &self.0.bytes).finish_non_exhaustive()
    }
}

impl Shared {
    /// Fails if a [`PageGuard`] of the calling thread lends page `index`. A destructor of a
    /// thread-local value may run after the list of these guards was dropped: it is not told.
    pub(crate) fn check_own_guard(&self, inode: &Inode, index: u32, folio: FolioId) -> Result<(), Error> {
        match LENT_HERE.try_with(|lent| lent.borrow().contains((self.number, folio))) {
            Ok(true) => Err(Error::OwnGuard { path: inode.file.path().to_owned(), page: index }),
            Ok(false) | Err(_) => Ok(()),
        }
    }

    /// Sleeps until page `index` is lent no more, or another thread truncates it, and drops the
    /// caller's reference to its folio. The caller holds no lock. Fails at once if a [`PageGuard`]
    /// of the calling thread lends it.
    pub(crate) fn put_when_taken_back(&self, inode: &Inode, index: u32, folio: FolioId) -> Result<(), Error> {
        let own = self.check_own_guard(inode, index, folio);
        if own.is_err() {
            self.core.put(&self.host, folio);
            return own;
        }
        let is_page = || self.is_page(inode, index, folio);
        self.host.latches.wait(folio, self.flags(folio), Flags::lent, is_page);
        self.core.put(&self.host, folio);
        Ok(())
    }

    /// Whether page `index` still has this folio. Its removal wakes those that wait for the folio.
    pub(crate) fn is_page(&self, inode: &Inode, index: u32, folio: FolioId) -> bool {
        match self.core.lookup(&inode.mapping, index) {
            Lookup::Hit(hit) => hit.folio == folio,
            Lookup::Pending(pending) => pending == folio,
            Lookup::Miss => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_guards_are_noted_in_any_order_of_drops() {
        let mut lent = LentHere::EMPTY;
        let page = |number: u32| (7, FolioId(number % 30));
        (0..60).for_each(|number| lent.push(page(number)));
        for number in (0..30).rev().chain(0..29) {
            lent.remove(page(number));
            lent.remove((8, FolioId(1)));
            assert!(lent.contains(page(29)));
        }
        assert_eq!((lent.count, lent.more.len(), lent.contains(page(3))), (1, 0, false));
        lent.remove(page(29));
        assert!(lent.count == 0 && !lent.contains(page(29)));
    }
}
