//! Lookups: an access to a page is a hit, pending or a miss. Accesses through a descriptor are
//! counted; accesses through a mapping set an accessed bit.
//!
//! Start reading here. A hit is lock-free, does not allocate, and writes only bits that change:
//!
//! ```text
//! lookup ──► Hit      copy the bytes, then `confirm`: the same page, and not written meanwhile
//!        ├─► Pending  the page is being read from the file: wait for the folio, look up again
//!        └─► Miss     pay (`Charging`), `insert`, read, `publish`
//! ```
//!
//! # Locking
//!
//! `insert`, `abandon` and `touch_mapped` lock the page's part of the mapping, and so does
//! `is_there` if another thread has locked the folio; `map` and `unmap` lock all of it. All else is
//! lock-free, except that a second access under the classic LRU may drain a batch.

use crate::Core;
use crate::charge::NewFolio;
use crate::event::Event;
use crate::folio::{Flags, FolioId, Kind, NotLent};
use crate::host::Host;
use crate::lru::{self, Queue, Refault, Shadow};
use crate::mapping::{
    AtomicSlot, Found, Glance, InsertError, LEAF_SLOTS, MAPPING_PAGES_MAX, Mapping, SettledPage,
};
use crate::mechanism::Switch;
use crate::memcg::{Counter, Memcg, MemcgId};
use crate::mm::AddressSpace;
use crate::workingset;
use std::sync::Arc;

/// A task: the memcg that new pages are charged to, the address space that maps them, and a CPU.
#[derive(Clone, Debug)]
pub struct Task {
    /// The memcg that pays for new pages.
    pub memcg: MemcgId,
    /// The address space.
    pub space: Arc<AddressSpace>,
    /// The CPU whose batches the task uses.
    pub cpu: usize,
}

/// A cached page, as the lookup found it.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// The folio of the page.
    pub folio: FolioId,
    /// The folio's state, including the version of its content.
    pub flags: Flags,
    pub(crate) found: Found,
}

impl Hit {
    /// Whether the page had a page-table entry.
    #[inline]
    pub fn has_entry(&self) -> bool {
        self.found.slot.mapped()
    }
}

/// Result of a lookup.
#[derive(Clone, Copy, Debug)]
pub enum Lookup {
    /// The page is cached.
    Hit(Hit),
    /// The page is being read, or another thread is writing to it: wait until the folio is
    /// unlocked, then look up again.
    Pending(FolioId),
    /// The page is not cached.
    Miss,
}

/// Result of [`Core::peek`].
#[derive(Clone, Copy, Debug)]
pub enum Peek {
    /// The page is cached and has no readahead mark: its folio, and the folio's state.
    Readable(FolioId, Flags),
    /// The page is not cached.
    Missing,
    /// Any other: [`Core::lookup`] says what it is.
    Other,
}

/// Result of an attempt to lock a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAttempt {
    /// The caller holds the lock and a reference.
    Locked,
    /// Another thread holds the lock: wait until the folio is unlocked, then look up again.
    Busy,
    /// The folio holds another page by now, or none: look up again.
    Gone,
}

/// The way a page comes into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Arrival {
    /// A page fault brings it in, in a mapping with recency.
    pub in_fault: bool,
    /// The caller will overwrite the whole page: its return does not count as a refault.
    pub overwrite: bool,
    /// The access counts before the page is inserted (metadata, some write paths).
    pub referenced: bool,
    /// An uncached request reads it: its accesses are never counted.
    pub dropbehind: bool,
    /// The page gets the readahead mark: an access to it starts the next window.
    pub readahead_mark: bool,
    /// Readahead brings the page in beside a requested one; no fault of its own counts.
    pub ahead: bool,
}

impl Core {
    /// Looks up a page.
    #[inline]
    pub fn lookup(&self, mapping: &Mapping, index: u32) -> Lookup {
        let mut next = mapping.find(&self.leaves, index);
        loop {
            let Some(found) = next else { return Lookup::Miss };
            let Some(folio) = found.slot.folio() else {
                // The leaf may belong to another mapping by now; then the slot says nothing.
                if mapping.has_leaf(&self.leaves, index, &found) {
                    return Lookup::Miss;
                }
                next = mapping.find(&self.leaves, index).filter(|again| again.slot.folio().is_some());
                continue;
            };
            let hit = Hit { folio, flags: self.folios.flags(folio).load(), found };
            if found.slot.uptodate() && !hit.flags.writing() {
                return Lookup::Hit(hit);
            }
            if mapping.still_there(&self.leaves, index, &found) {
                return Lookup::Pending(folio);
            }
            next = mapping.find(&self.leaves, index);
        }
    }

    /// Whether a page is in memory or on its way.
    pub fn is_cached(&self, mapping: &Mapping, index: u32) -> bool {
        !matches!(self.lookup(mapping, index), Lookup::Miss)
    }

    /// Looks at a page's slot only: the shortest way to copy bytes out of a cached page. `None`:
    /// the page is not readable; [`Core::lookup`] returns the reason.
    #[inline(always)]
    pub fn glance<'a>(&'a self, mapping: &'a Mapping, index: u32) -> Option<Glance<'a>> {
        mapping.glance(&self.leaves, index)
    }

    /// As [`Core::glance`], by the index, which also leads to slots that are in no range
    /// ([`Glance::in_range`]).
    #[inline(always)]
    pub fn glance_in_pool<'a>(&'a self, mapping: &'a Mapping, index: u32) -> Option<Glance<'a>> {
        mapping.glance_in_pool(&self.leaves, index)
    }

    /// Whether the page that [`Core::glance`] saw is readable and a mapped access to it would
    /// change nothing: the accessed bits of its entry and of its page table are set.
    #[inline]
    pub fn is_young(&self, mapping: &Mapping, index: u32, seen: &Glance<'_>) -> bool {
        mapping.is_young(&self.leaves, index, seen)
    }

    /// Has `prefetch` prefetch the slot of a page that will be looked up soon: for reading where
    /// other processors may have it, too. Changes nothing.
    #[inline]
    pub fn prefetch_slot(&self, mapping: &Mapping, index: u32, prefetch: impl FnOnce(&AtomicSlot)) {
        if let Some(slot) = mapping.slot(&self.leaves, index) {
            prefetch(slot);
        }
    }

    /// Looks a page up for a read through a descriptor, in fewer steps than [`Core::lookup`].
    ///
    /// For a host that runs one actor at a time: the slot that is found is that page's.
    #[inline(always)]
    pub fn peek(&self, mapping: &Mapping, index: u32) -> Peek {
        let Some(slot) = mapping.slot(&self.leaves, index).map(AtomicSlot::load) else {
            return Peek::Missing;
        };
        if !slot.is_readable() {
            return if slot.folio().is_some() { Peek::Other } else { Peek::Missing };
        }
        let folio = slot.folio_number();
        let flags = self.folios.flags(folio).load();
        let is_plain = !slot.readahead() && !flags.writing() && !self.shares_mark(flags);
        if is_plain { Peek::Readable(folio, flags) } else { Peek::Other }
    }

    /// Whether the bytes copied since the lookup are that page, unchanged.
    ///
    /// The folio names its page, and its version proves that this held throughout. The slot alone
    /// would not do: its leaf may have served another mapping during the lookup and have come back.
    #[inline]
    pub fn confirm(&self, mapping: &Mapping, index: u32, hit: &Hit) -> bool {
        self.is_page(mapping, index, hit.folio) && self.folios.flags(hit.folio).unchanged_since(hit.flags)
    }

    /// Whether a folio was inserted as this page. Only meaningful while the folio cannot become
    /// another page: the caller holds a reference or checks the version afterwards.
    #[inline]
    pub(crate) fn is_page(&self, mapping: &Mapping, index: u32, folio: FolioId) -> bool {
        self.folios.page_of(folio) == (mapping.id(), index)
    }

    /// Takes a reference to the page, so that its frame is not reused; [`Core::put`] drops it.
    /// `false`: the folio holds another page by now; look up again.
    pub fn try_get(&self, mapping: &Mapping, index: u32, hit: &Hit) -> bool {
        self.folios.flags(hit.folio).try_get_version(hit.flags) && {
            // The version is that of the lookup, so the content is the same. It remains to check
            // whether it was this page.
            self.is_page(mapping, index, hit.folio) || {
                self.put_without_host(hit.folio);
                false
            }
        }
    }

    /// Lends the bytes of the page: until [`Self::take_back`], the frame is not reused, no thread
    /// changes the bytes ([`Self::begin_content`]), and advice does not drop the page. Only
    /// truncation takes it out of its mapping.
    ///
    /// # Errors
    /// [`NotLent`] has the reasons.
    pub fn lend(&self, host: &impl Host, mapping: &Mapping, index: u32, hit: &Hit) -> Result<(), NotLent> {
        self.folios.flags(hit.folio).lend(hit.flags.version())?;
        if self.is_there(mapping, index, hit) {
            return Ok(());
        }
        self.take_back(host, hit.folio);
        Err(NotLent::Gone)
    }

    /// As [`Self::lend`], for a page whose slot in a range was seen settled, without looking it up.
    /// `false`: look it up.
    #[inline]
    pub fn lend_settled(&self, host: &impl Host, seen: &SettledPage<'_>) -> bool {
        let flags = self.folios.flags(seen.folio());
        if flags.lend(seen.version()).is_err() {
            return false;
        }
        // As in `is_there`, which can tell whether a thread that has the lock removes the page.
        let is_there = !flags.load().locked() && seen.still();
        if !is_there {
            self.take_back(host, seen.folio());
        }
        is_there
    }

    /// Ends a loan. The last one frees a folio without references.
    #[inline]
    pub fn take_back(&self, host: &impl Host, folio: FolioId) {
        let after = self.folios.flags(folio).take_back();
        if after.lent() {
            return;
        }
        if !after.is_held() {
            self.free(folio);
        }
        // Writers wait for the last loan.
        if after.waiters() {
            host.wake_waiters(folio);
        }
    }

    /// Whether the page still has the folio that was found. The caller holds the folio and has just
    /// marked it as lent or locked in memory: a thread that removes the page either sees that mark,
    /// or is detected here.
    pub fn is_there(&self, mapping: &Mapping, index: u32, hit: &Hit) -> bool {
        if self.folios.flags(hit.folio).load().locked() {
            // Perhaps by a thread that checked the mark before it was set, and removes the page.
            return mapping.lock(&self.leaves, index).slot(index).folio() == Some(hit.folio);
        }
        // The lookup may have read a leaf of another mapping, which may come back between the two
        // looks at it: the folio, which stays what it is, names its page.
        self.is_page(mapping, index, hit.folio) && mapping.still_there(&self.leaves, index, &hit.found)
    }

    /// Takes a reference and the lock of the page, to change its bytes. [`Core::unlock`] and
    /// [`Core::put`] give them back.
    pub fn try_lock(&self, host: &impl Host, mapping: &Mapping, index: u32, hit: &Hit) -> LockAttempt {
        let flags = &self.folios.flags(hit.folio);
        if !flags.try_get() {
            return LockAttempt::Gone;
        }
        let attempt = if !self.is_page(mapping, index, hit.folio) {
            LockAttempt::Gone
        } else if !flags.try_lock() {
            LockAttempt::Busy
        } else if mapping.still_there(&self.leaves, index, &hit.found) {
            // A locked folio is neither truncated nor evicted: it stays this page until unlocked.
            return LockAttempt::Locked;
        } else {
            // Unlock wakes threads that found it busy meanwhile.
            self.unlock(host, hit.folio);
            LockAttempt::Gone
        };
        self.put(host, hit.folio);
        attempt
    }

    /// Unlocks a folio.
    pub fn unlock(&self, host: &impl Host, folio: FolioId) {
        if self.folios.flags(folio).unlock() {
            host.wake_waiters(folio);
        }
    }

    /// Whether a read counts if the previous read on the same open file ended in the same page.
    /// `inside`: it begins after the first byte of the page. The kernel takes it for the same
    /// access ([book: access#descriptor-accesses]). The policy `ranked` does so if it may be the
    /// continuation: a read that begins with the page reads it anew.
    #[inline]
    pub fn counts_reread(&self, inside: bool) -> bool {
        !inside && self.habits().counts_rereads && self.mechanisms().is_on(Switch::Rereads)
    }

    /// Counts an access through a descriptor. Where the previous read on the same open file ended
    /// in this page, the caller asks [`Core::counts_reread`] first.
    #[inline]
    pub fn accessed(&self, host: &impl Host, cpu: impl FnOnce() -> usize, hit: &Hit) {
        self.accessed_folio(host, cpu, hit.folio, hit.flags);
    }

    /// As [`Core::accessed`], for a folio in a state that was seen, as [`Core::peek`] returns both.
    /// Under the classic LRU the second access activates the folio, which may drain a batch of
    /// `cpu`.
    #[inline]
    pub fn accessed_folio(&self, host: &impl Host, cpu: impl FnOnce() -> usize, folio: FolioId, then: Flags) {
        if let Some(before) = lru::accessed(self, folio, then) {
            lru::accessed_again(self, host, cpu(), folio, before);
        }
    }

    /// Whether an access through a descriptor to the page seen would write nothing: the policy's
    /// count is full, and no mark of readahead waits for an access. It is so if
    /// [`Glance::still`] holds afterwards.
    #[inline(always)]
    pub fn is_counted_full(&self, seen: &Glance<'_>) -> bool {
        let now = self.folios.flags(seen.folio()).load();
        !seen.readahead() && now.is_counted(self.folios.counted_full())
    }

    /// As [`Core::accessed`], for a page seen by [`Core::glance`]. `true`: the folio's state, too,
    /// can be a readahead mark, and is one ([`Core::has_readahead_mark`]).
    #[inline]
    pub fn accessed_glance(&self, host: &impl Host, cpu: impl FnOnce() -> usize, seen: &Glance<'_>) -> bool {
        let now = self.folios.flags(seen.folio()).load();
        // A different version: the frame holds another page by now, and the access is not its.
        let is_same = now.version() == seen.version();
        if is_same {
            self.accessed_folio(host, cpu, seen.folio(), now);
        }
        is_same && self.shares_mark(now)
    }

    /// Counts an access through a mapping: sets the accessed bits that are still clear.
    #[inline]
    pub fn touch(&self, task: &Task, mapping: &Mapping, index: u32, hit: &Hit) {
        if !(hit.found.slot.accessed() && hit.found.slot.mapped()) {
            self.touch_slow(mapping, index, hit);
        }
        mapping.settle(index);
        if mapping.touch_table(&self.leaves, index) {
            task.space.mark_accessed();
        }
    }

    /// Counts accesses through a mapping to several of the 64 pages that start at `first`, a
    /// multiple of 64. Bit `n` stands for page `first + n`. Acts as [`Core::lookup`] and
    /// [`Core::touch`] on pages that have a page-table entry. Returns the bits of the other pages,
    /// which it leaves alone.
    pub fn touch_mapped(&self, task: &Task, mapping: &Mapping, first: u32, pages: u64) -> u64 {
        assert!(first.is_multiple_of(LEAF_SLOTS as u32), "page {first} does not begin a leaf");
        // The lock keeps the leaf in this mapping.
        let without = mapping.lock(&self.leaves, first).touch_mapped(first, pages);
        if without != pages && mapping.touch_table(&self.leaves, first) {
            task.space.mark_accessed();
        }
        without
    }

    /// Counts an access by a process that had no page-table entry for the page: a fault. The page
    /// may have the entry of another process, perhaps one that is gone.
    pub fn touch_by_fault(&self, task: &Task, mapping: &Mapping, index: u32, hit: &Hit) {
        if hit.flags.mapped() && mapping.has_recency() && lru::faulted_again(self, hit.folio, hit.flags) {
            self.owner_of(hit.folio).stat.add(Counter::Pgfault, 1);
            task.space.mark_ran();
        } else {
            self.touch(task, mapping, index, hit);
        }
    }

    /// Sets the bits of a page-table entry, creating the entry if it is missing.
    #[cold]
    fn touch_slow(&self, mapping: &Mapping, index: u32, hit: &Hit) {
        if let Some(memcg) = self.make_entry(mapping, index, hit) {
            memcg.stat.add(Counter::Pgfault, 1);
            if mapping.has_recency() && lru::faulted(self, hit.folio, hit.flags) {
                self.make_old(mapping, index, hit.folio);
            }
        }
    }

    /// As [`Self::touch_slow`], without a fault. Returns the memcg of a page that had no entry.
    pub(crate) fn make_entry(&self, mapping: &Mapping, index: u32, hit: &Hit) -> Option<&Memcg> {
        let slot = mapping.slot(&self.leaves, index)?;
        let before = slot.touch(hit.folio)?;
        if before.mapped() {
            return None;
        }
        let flags = &self.folios.flags(hit.folio);
        let memcg = self.owner_of(hit.folio);
        if flags.set_mapped(hit.flags) {
            count_mapped(mapping, memcg, 1);
        } else if !flags.load().mapped() {
            // The folio was written to since the lookup, or is gone: without the `mapped` flag,
            // reclaim would ignore the entry.
            slot.unmap(hit.folio);
        }
        Some(memcg)
    }

    /// Clears the accessed bit of a new entry.
    pub(crate) fn make_old(&self, mapping: &Mapping, index: u32, folio: FolioId) {
        if let Some(slot) = mapping.slot(&self.leaves, index) {
            slot.clear_accessed(folio);
        }
    }

    /// Whether the page carries the readahead mark: an access to it starts the next window.
    #[inline]
    pub fn has_readahead_mark(&self, hit: &Hit) -> bool {
        hit.found.slot.readahead() || self.shares_mark(hit.flags)
    }

    /// Whether reclaim's mark of the folio is one of readahead ([`Switch::SharedMark`]).
    #[inline]
    fn shares_mark(&self, flags: Flags) -> bool {
        flags.reads_ahead() && self.mechanisms().is_on(Switch::SharedMark)
    }

    /// Clears the readahead mark of an accessed page. `true`: this caller reads the next window.
    pub fn take_readahead_mark(&self, mapping: &Mapping, index: u32, hit: &Hit) -> bool {
        let shared = self.shares_mark(hit.flags) && self.folios.flags(hit.folio).take_reclaim();
        shared | self.take_mark_of_pending(mapping, index, hit.folio)
    }

    /// As [`Self::take_readahead_mark`], for a page that is still being read: a reader that meets
    /// its mark reads on before it waits.
    pub fn take_mark_of_pending(&self, mapping: &Mapping, index: u32, folio: FolioId) -> bool {
        mapping.slot(&self.leaves, index).is_some_and(|slot| slot.clear_readahead(folio))
    }

    /// Puts a paid folio into its slot and queues it for its list ([book: overview#life-of-a-page],
    /// steps 2 and 3). The folio is locked and has no content: read it and call [`Core::publish`],
    /// or [`Core::abandon`]. For anonymous memory, [`Core::swap_slot`] says where its bytes are.
    ///
    /// # Errors
    /// Another thread inserted the page, or freed a part of the index that the charge counted on,
    /// or the mapping is closed; the folio is given back.
    #[inline]
    pub fn insert<H: Host>(
        &self,
        host: &H,
        task: &Task,
        mapping: &Mapping,
        index: u32,
        mut new: NewFolio<'_, H>,
        arrival: Arrival,
    ) -> Result<FolioId, InsertError> {
        let folio = new.folio();
        let flags = self.folios.flags(folio);
        let kind = mapping.kind();
        if kind == Kind::Anon {
            flags.set_swapbacked();
        }
        self.folios.set_page(folio, mapping.id().0, index);
        if arrival.referenced {
            flags.set_referenced();
        }
        if arrival.dropbehind {
            flags.set_dropbehind();
        }
        let mut locked = mapping.lock(&self.leaves, index);
        let missing_bytes =
            if self.leaves.is_charged { mapping.missing_bytes(&self.leaves, index) } else { 0 };
        let inserted = match new.pay_for_index(missing_bytes) {
            Some(payer) => locked.insert(task.cpu, index, folio, payer),
            None => Err(InsertError::Unpaid),
        };
        let before = match inserted {
            Ok(before) => before,
            Err(error) => {
                drop(locked);
                drop(new);
                return Err(error);
            }
        };
        let (payer, mut paid) = new.keep();
        self.use_up_index(&mut paid, before.added_bytes);
        let swapped_in = kind == Kind::Anon && before.shadow.is_some();
        let shadow = match before.shadow {
            Some(entry) if kind == Kind::Anon => self.leave_entry(folio, entry),
            None if kind == Kind::File => lru::shadow_outside(self, &mapping.shadow_era, index),
            shadow => shadow,
        };
        if arrival.readahead_mark {
            mapping.slot(&self.leaves, index).expect("just inserted").set_readahead(folio);
        }
        drop(locked);
        self.uncharge_index(paid.memcg, paid.bytes);
        // The memcg that was charged may have been removed since.
        let memcg = self.memcgs.living(payer);
        if let Some(owner) = before.only_shadows_of {
            self.memcgs.living(owner).stat.sub(Counter::WorkingsetNodes, 1);
        }
        if kind == Kind::File || swapped_in {
            // The task now sleeps on the device and runs again afterwards.
            task.space.mark_ran();
        }
        count_arrival(memcg, kind, swapped_in, arrival);
        let in_fault = arrival.in_fault && mapping.has_recency();
        if let Some(word) = shadow
            && !arrival.overwrite
        {
            let (shadow, ahead) = (Shadow::unpack(word), arrival.ahead);
            lru::refaulted(self, host, Refault { folio, kind, memcg, shadow, in_fault, ahead });
        }
        if in_fault {
            lru::faulted_in(self, folio);
        }
        if arrival.ahead {
            lru::came_ahead(self, folio);
        }
        host.event(Event::Inserted { page: (mapping.id(), index), folio, memcg: memcg.id() });
        // The folio was allocated with a reference for the batch.
        self.enqueue_held(host, task.cpu, Queue::Add, folio);
        Ok(folio)
    }

    /// Marks the content of an inserted folio as valid, so that readers find it, and unlocks it.
    /// Returns the page as [`Core::lookup`] would find it; `None`: it has left its slot meanwhile.
    #[inline]
    pub fn publish(&self, host: &impl Host, mapping: &Mapping, folio: FolioId) -> Option<Hit> {
        if mapping.kind() == Kind::Anon {
            self.release_slot_if_short(host, folio);
        }
        let flags = self.folios.flags(folio);
        // The version that the content is about to get.
        let version = flags.load().version().wrapping_add(1);
        let found = mapping.set_uptodate(&self.leaves, self.folios.index(folio), folio, version);
        self.end_reading(folio);
        let (flags, waiters) = flags.end_content_and_unlock();
        if waiters {
            host.wake_waiters(folio);
        }
        Some(Hit { folio, flags, found: found? })
    }

    /// Counts the read of a page as ended. Charges that wait before an OOM kill use the count.
    pub(crate) fn end_reading(&self, folio: FolioId) {
        self.owner_of(folio).stat.sub(Counter::FileReading, 1);
    }

    /// Removes an inserted folio whose content could not be read. Waiting threads look up again and
    /// miss.
    pub fn abandon(&self, host: &impl Host, mapping: &Mapping, folio: FolioId) {
        let index = self.folios.index(folio);
        let memcg = self.owner_of(folio);
        self.end_reading(folio);
        let entry = self.swap_slot(folio).map(|_| self.swap.entry_of(folio, None));
        let removed = mapping.lock(&self.leaves, index).remove(index, folio, entry, memcg.id());
        self.folios.flags(folio).leave_swap_cache(false);
        self.unlock(host, folio);
        if let Ok(shadow_leaf) = removed {
            if let Some(leaf) = shadow_leaf {
                workingset::note_leaf(self, memcg, leaf);
            }
            self.forget_folios(memcg, mapping.kind(), 1);
            self.put(host, folio);
        }
    }

    /// Subtracts pages that left their mapping from the counters of cached pages.
    pub(crate) fn forget_folios(&self, memcg: &Memcg, kind: Kind, pages: u64) {
        memcg.stat.sub(if kind == Kind::Anon { Counter::Anon } else { Counter::File }, pages);
    }

    /// Maps the first `pages` pages of a file into an address space, so that walks visit them.
    ///
    /// # Panics
    /// If there are more than 2^32.
    pub fn map(&self, task: &Task, mapping: &Arc<Mapping>, pages: u64) {
        assert!(pages <= MAPPING_PAGES_MAX, "a mapping has at most 2^32 pages, not {pages}");
        let locked = mapping.lock_all(&self.leaves);
        locked.set_mapped_pages(pages.max(mapping.mapped_pages()));
        drop(locked);
        task.space.map(mapping);
    }

    /// Removes all page-table entries of a file. Each young entry counts as one access
    /// ([book: access#descriptor-accesses]).
    pub fn unmap(&self, host: &impl Host, task: &Task, mapping: &Arc<Mapping>) {
        task.space.unmap(mapping);
        let locked = mapping.lock_all(&self.leaves);
        let pages = mapping.mapped_pages();
        // A later `map` creates its entries after all of these are gone.
        locked.set_mapped_pages(0);
        let (mut at, mut accessed_again) = (0, Vec::new());
        while let Some((index, slot)) = locked.next(at, pages) {
            if let (Some(folio), true) = (slot.folio(), slot.mapped()) {
                if slot.accessed() && mapping.has_recency() && mapping.kind() == Kind::File {
                    let before = lru::accessed(self, folio, self.folios.flags(folio).load());
                    accessed_again.extend(before.map(|before| (folio, before)));
                }
                self.unmap_folio(mapping, self.owner_of(folio), folio);
            }
            let Some(next) = index.checked_add(1) else { break };
            at = next;
        }
        drop(locked);
        // Draining a batch may release the last page of a removed memcg, and with it the shadows of
        // its pages, some of them in this mapping.
        for (folio, before) in accessed_again {
            lru::accessed_again(self, host, task.cpu, folio, before);
        }
    }

    /// Hands a mapping and its page-table entries to another task.
    pub fn move_mapping(&self, from: &Task, to: &Task, mapping: &Arc<Mapping>) {
        from.space.unmap(mapping);
        to.space.map(mapping);
    }

    /// Removes the page-table entry of one folio.
    pub(crate) fn unmap_folio(&self, mapping: &Mapping, memcg: &Memcg, folio: FolioId) {
        // The flag first: a thread that makes an entry meanwhile finds the old one, which goes,
        // too, or sets the flag anew. The other way round, its entry could stay without the flag.
        if self.folios.flags(folio).clear_mapped() {
            count_mapped(mapping, memcg, -1);
        }
        if let Some(slot) = mapping.slot(&self.leaves, self.folios.index(folio)) {
            slot.unmap(folio);
        }
    }
}

/// Counts a page that was inserted and has no content yet.
fn count_arrival(memcg: &Memcg, kind: Kind, swapped_in: bool, arrival: Arrival) {
    memcg.stat.add(if kind == Kind::Anon { Counter::Anon } else { Counter::File }, 1);
    memcg.stat.add(Counter::FileReading, 1);
    let must_read = kind == Kind::File || swapped_in;
    if arrival.in_fault && must_read && !arrival.ahead {
        memcg.stat.add(Counter::Pgmajfault, 1);
    }
    if swapped_in {
        memcg.stat.add(Counter::Pswpin, 1);
    }
}

/// Counts a page that got or lost its page-table entry. Anonymous pages are not counted.
fn count_mapped(mapping: &Mapping, memcg: &Memcg, change: i64) {
    match (mapping.kind(), change > 0) {
        (Kind::Anon, _) => {}
        (Kind::File, true) => memcg.stat.add(Counter::FileMapped, 1),
        (Kind::File, false) => memcg.stat.sub(Counter::FileMapped, 1),
    }
}
