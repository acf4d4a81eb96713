//! A page is touched: hit, pending or miss; by descriptor (counted) or by mapping (an accessed
//! bit).
//!
//! Start reading here. A hit takes no lock, allocates nothing and writes only bits that really
//! change:
//!
//! ```text
//! lookup ──► Hit      copy the bytes, then `confirm`: still this page, and nobody wrote meanwhile
//!        ├─► Pending  somebody reads it from the file: wait for that folio, look again
//!        └─► Miss     pay (`Charging`), `insert`, read, `publish`
//! ```
//!
//! # Locking
//!
//! `insert`, `abandon`, `map` and `unmap` take the mapping lock; the rest is lock-free.

use crate::Core;
use crate::charge::NewFolio;
use crate::event::Event;
use crate::folio::{Flags, FolioId, Kind};
use crate::host::Host;
use crate::lru::{self, Queue, Refault, Shadow};
use crate::mapping::{Found, Glance, InsertError, LEAF_SLOTS, Mapping, SEQUENCE_MASK};
use crate::memcg::{Counter, Memcg, MemcgId};
use crate::mm::AddressSpace;
use std::sync::Arc;

/// Who acts: whose limit a new page is charged to, whose page tables map it, and on which CPU.
#[derive(Clone, Debug)]
pub struct Task {
    /// Pays for new pages.
    pub memcg: MemcgId,
    /// Its mappings.
    pub space: Arc<AddressSpace>,
    /// Chooses the batches that it uses.
    pub cpu: usize,
}

/// A cached page, as it was found.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// The folio.
    pub folio: FolioId,
    /// Its state, with the version of the content.
    pub flags: Flags,
    found: Found,
}

impl Hit {
    /// Reaching this page asks for the next readahead window.
    pub fn readahead(&self) -> bool {
        self.found.slot.readahead()
    }
}

/// What a look at a page found.
#[derive(Clone, Copy, Debug)]
pub enum Lookup {
    /// It is cached.
    Hit(Hit),
    /// It is being read, or written to by somebody: wait until the folio is unlocked, then look
    /// again.
    Pending(FolioId),
    /// It is not cached.
    Miss,
}

/// What became of the wish to lock a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAttempt {
    /// Locked and referenced by the caller.
    Locked,
    /// Somebody else holds the lock: wait until the folio is unlocked, then look again.
    Busy,
    /// It is another page by now, or none: look again.
    Gone,
}

/// How a page comes into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Arrival {
    /// A page fault brings it (in a mapping with recency).
    pub in_fault: bool,
    /// It will be overwritten whole: its return is no refault.
    pub overwrite: bool,
    /// Created by an access that counts before it is inserted (metadata, some write paths).
    pub referenced: bool,
    /// Read by an uncached request: accesses are never counted.
    pub dropbehind: bool,
    /// Reaching it asks for the next readahead window.
    pub readahead_mark: bool,
    /// Nobody asked for it: it is read together with a page that is needed, and its fault is none
    /// of its own.
    pub ahead: bool,
}

impl Core {
    /// Looks at a page.
    #[inline]
    pub fn lookup(&self, mapping: &Mapping, index: u32) -> Lookup {
        self.lookup_peeked(mapping, index, self.peek(mapping, index))
    }

    /// Looks at a page's slot only: the shortest way to copy bytes out of a cached page. Where it
    /// is not readable, [`Core::lookup`] tells why.
    #[inline]
    pub fn glance<'a>(&'a self, mapping: &'a Mapping, index: u32) -> Option<Glance<'a>> {
        mapping.glance(&self.leaves, index)
    }

    /// The first half of [`Core::lookup`]: loads the page's slot, and decides nothing. Whoever
    /// looks up many pages peeks at all of them first, so that the CPU waits for their slots
    /// together.
    #[inline]
    pub fn peek(&self, mapping: &Mapping, index: u32) -> Option<Found> {
        mapping.find(&self.leaves, index)
    }

    /// The second half of [`Core::lookup`], with what was peeked at.
    #[inline]
    pub fn lookup_peeked(&self, mapping: &Mapping, index: u32, peeked: Option<Found>) -> Lookup {
        let mut next = peeked;
        loop {
            let Some(found) = next else { return Lookup::Miss };
            let Some(folio) = found.slot.folio() else {
                // The leaf may belong to another mapping by now: then this is not an answer.
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

    /// Whether what was copied since the lookup is that page, whole.
    ///
    /// The folio itself says which page it is, and its version that this was so all the time. Its
    /// slot would not do: a leaf may have served another mapping at the moment of the lookup, and
    /// be back by now.
    #[inline]
    pub fn confirm(&self, mapping: &Mapping, index: u32, hit: &Hit) -> bool {
        self.is_page(mapping, index, hit.folio) && self.folios.flags(hit.folio).unchanged_since(hit.flags)
    }

    /// Whether a folio was inserted as that page. Means something while the folio cannot become
    /// another one: it is referenced, or its version is checked afterwards.
    #[inline]
    fn is_page(&self, mapping: &Mapping, index: u32, folio: FolioId) -> bool {
        self.page_of(folio) == (mapping.id(), index)
    }

    /// Takes a reference to a page that was found, so that its frame is not reused. `false`: it is
    /// another page by now, look again. Drop it with [`Core::put`].
    pub fn try_get(&self, mapping: &Mapping, index: u32, hit: &Hit) -> bool {
        self.folios.flags(hit.folio).try_get_version(hit.flags) && {
            // The version is that of the lookup, so the frame still holds what it held then; what
            // remains is whether that was this page.
            self.is_page(mapping, index, hit.folio) || {
                self.put_without_host(hit.folio);
                false
            }
        }
    }

    /// Takes a reference and the lock of a page that was found, to change its bytes. Give both back
    /// with [`Core::unlock`] and [`Core::put`].
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
            // Nobody truncates or evicts a locked folio: it stays this page until it is unlocked.
            return LockAttempt::Locked;
        } else {
            // Whoever found it busy meanwhile sleeps.
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

    /// Counts an access through a descriptor. Not to be called for the page in which the previous
    /// read on the same open file ended.
    #[inline]
    pub fn accessed(&self, host: &impl Host, cpu: impl FnOnce() -> usize, hit: &Hit) {
        self.mark_accessed(host, cpu, hit.folio, hit.flags);
    }

    /// One access to the folio that was in state `then`. Under the classic LRU the second one moves
    /// it, which may drain a batch of `cpu`.
    #[inline]
    fn mark_accessed(&self, host: &impl Host, cpu: impl FnOnce() -> usize, folio: FolioId, then: Flags) {
        if let Some(before) = lru::accessed(self, folio, then) {
            lru::accessed_again(self, host, cpu(), folio, before);
        }
    }

    /// As [`Core::accessed`], for a page that was only glanced at.
    #[inline]
    pub fn accessed_glance(&self, host: &impl Host, cpu: impl FnOnce() -> usize, seen: &Glance<'_>) {
        let now = self.folios.flags(seen.folio()).load();
        // Another page has the frame by now: its accesses are others.
        if now.version() & SEQUENCE_MASK == seen.sequence() {
            self.mark_accessed(host, cpu, seen.folio(), now);
        }
    }

    /// A mapped access to a page that was found: sets accessed bits that are not set yet.
    #[inline]
    pub fn touch(&self, task: &Task, mapping: &Mapping, index: u32, hit: &Hit) {
        if !(hit.found.slot.accessed() && hit.found.slot.mapped()) {
            self.touch_slow(mapping, index, hit);
        }
        if mapping.touch_table(index) {
            task.space.mark_ran();
        }
    }

    /// Mapped accesses to several of the 64 pages from `first`, a multiple of 64, on: bit `n`
    /// stands for page `first + n`. As [`Core::lookup`] and [`Core::touch`] of each, where a
    /// page-table entry is there already; the bits of the others are returned, and nothing was done
    /// about those.
    pub fn touch_mapped(&self, task: &Task, mapping: &Mapping, first: u32, pages: u64) -> u64 {
        assert!(first.is_multiple_of(LEAF_SLOTS as u32), "page {first} does not begin a leaf");
        // The lock keeps the leaf the mapping's.
        let without = mapping.lock(&self.leaves).touch_mapped(first, pages);
        if without != pages && mapping.touch_table(first) {
            task.space.mark_ran();
        }
        without
    }

    /// Sets the bits of a page-table entry, and makes the entry where there was none.
    #[cold]
    fn touch_slow(&self, mapping: &Mapping, index: u32, hit: &Hit) {
        if let Some(memcg) = self.make_entry(mapping, index, hit) {
            memcg.stat.add(Counter::Pgfault, 1);
            if mapping.has_recency() && lru::mapped_first(self, hit.folio, hit.flags) {
                self.make_old(mapping, index, hit.folio);
            }
        }
    }

    /// As [`Self::touch_slow`], without a fault. The memcg of a page that had no entry before.
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
            // Written to since the lookup, or gone: without its flag, nobody would look at the
            // entry.
            slot.unmap(hit.folio);
        }
        Some(memcg)
    }

    /// Takes the accessed bit back of an entry that was just made.
    pub(crate) fn make_old(&self, mapping: &Mapping, index: u32, folio: FolioId) {
        if let Some(slot) = mapping.slot(&self.leaves, index) {
            slot.clear_accessed(folio);
        }
    }

    /// Takes the readahead mark off a page that was reached. `true`: this caller reads the next
    /// window.
    pub fn take_readahead_mark(&self, mapping: &Mapping, index: u32, hit: &Hit) -> bool {
        mapping.slot(&self.leaves, index).is_some_and(|slot| slot.clear_readahead(hit.folio))
    }

    /// Puts a paid folio into its slot and queues it for its list ([book: overview#life-of-a-page],
    /// steps 2 and 3). The folio is locked and has no content: read it and [`Core::publish`], or
    /// [`Core::abandon`]. Of anonymous memory, [`Core::swap_slot`] tells where its bytes are.
    ///
    /// # Errors
    /// The page came meanwhile, or the mapping was closed; the folio is given back.
    pub fn insert<H: Host>(
        &self,
        host: &H,
        task: &Task,
        mapping: &Mapping,
        index: u32,
        new: NewFolio<'_, H>,
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
        let mut locked = mapping.lock(&self.leaves);
        let before = match locked.insert(task.cpu, index, folio) {
            Ok(before) => before,
            Err(error) => {
                drop(locked);
                drop(new);
                return Err(error);
            }
        };
        let payer = new.keep();
        let swapped_in = kind == Kind::Anon && before.shadow.is_some();
        let shadow = match before.shadow {
            Some(entry) if kind == Kind::Anon => self.leave_entry(folio, entry),
            shadow => shadow,
        };
        if arrival.readahead_mark {
            mapping.slot(&self.leaves, index).expect("just inserted").set_readahead(folio);
        }
        drop(locked);
        // Whoever was charged may have gone since.
        let memcg = self.memcgs.living(payer);
        memcg.stat.add(if kind == Kind::Anon { Counter::Anon } else { Counter::File }, 1);
        memcg.stat.add(Counter::FileReading, 1);
        let recency = arrival.in_fault && mapping.has_recency();
        if let Some(owner) = before.only_shadows_of {
            self.memcgs.living(owner).stat.sub(Counter::WorkingsetNodes, 1);
        }
        let must_read = kind == Kind::File || swapped_in;
        if must_read {
            // The task waits for the device now, and is switched in again afterwards.
            task.space.mark_ran();
        }
        if let Some(word) = shadow
            && !arrival.overwrite
        {
            let shadow = Shadow::unpack(word);
            let ahead = arrival.ahead;
            lru::refaulted(self, host, Refault { folio, kind, memcg, shadow, in_fault: recency, ahead });
        }
        if recency {
            lru::faulted_in(self, folio);
        }
        if arrival.ahead {
            lru::came_ahead(self, folio);
        }
        if arrival.in_fault && must_read && !arrival.ahead {
            memcg.stat.add(Counter::Pgmajfault, 1);
        }
        if swapped_in {
            memcg.stat.add(Counter::Pswpin, 1);
        }
        host.event(Event::Inserted { page: (mapping.id(), index), folio, memcg: memcg.id() });
        // With the batch's reference, which it was allocated with.
        self.enqueue_held(host, task.cpu, Queue::Add, folio);
        Ok(folio)
    }

    /// The content of an inserted folio is there: readers find it from now on. Unlocks it.
    pub fn publish(&self, host: &impl Host, mapping: &Mapping, folio: FolioId) {
        if mapping.kind() == Kind::Anon {
            self.release_slot_if_short(host, folio);
        }
        // The version that the content will have in a moment.
        self.set_uptodate(mapping, folio, self.folios.flags(folio).load().version().wrapping_add(1));
        self.end_reading(folio);
        if self.folios.flags(folio).end_content_and_unlock() {
            host.wake_waiters(folio);
        }
    }

    /// As [`Self::publish`], and the caller keeps the lock: to make the page dirty before it can be
    /// evicted.
    pub fn end_filling(&self, mapping: &Mapping, folio: FolioId) {
        self.end_content(mapping, folio);
        self.end_reading(folio);
    }

    fn set_uptodate(&self, mapping: &Mapping, folio: FolioId, version: u32) {
        if let Some(slot) = mapping.slot(&self.leaves, self.folios.index(folio)) {
            slot.set_uptodate(folio, version);
        }
    }

    /// The holder of a folio's lock begins to change its bytes; copies taken from now on are not
    /// whole.
    pub fn begin_content(&self, mapping: &Mapping, folio: FolioId) {
        if let Some(slot) = mapping.slot(&self.leaves, self.folios.index(folio)) {
            slot.clear_uptodate(folio);
        }
        self.folios.flags(folio).begin_content();
    }

    /// Takes [`Self::begin_content`] back: no byte was changed, copies are whole as before.
    pub fn cancel_content(&self, host: &impl Host, mapping: &Mapping, folio: FolioId) {
        let flags = self.folios.flags(folio);
        self.set_uptodate(mapping, folio, flags.load().version());
        if flags.cancel_content() {
            host.wake_waiters(folio);
        }
    }

    /// The bytes of a folio are valid again, and have a new version.
    pub fn end_content(&self, mapping: &Mapping, folio: FolioId) {
        let version = self.folios.flags(folio).end_content();
        self.set_uptodate(mapping, folio, version);
    }

    /// A page is no longer being read, which those who wait for memory count on.
    fn end_reading(&self, folio: FolioId) {
        self.owner_of(folio).stat.sub(Counter::FileReading, 1);
    }

    /// The content of an inserted folio could not be read: takes it out of its mapping again. Who
    /// waits for it looks again and finds nothing.
    pub fn abandon(&self, host: &impl Host, mapping: &Mapping, folio: FolioId) {
        let index = self.folios.index(folio);
        let memcg = self.owner_of(folio);
        self.end_reading(folio);
        let entry = self.swap_slot(folio).map(|_| self.entry_of(folio, None));
        let removed = mapping.lock(&self.leaves).remove(index, folio, entry, memcg.id());
        self.folios.flags(folio).leave_swap_cache(false);
        self.unlock(host, folio);
        if let Ok(shadow_leaf) = removed {
            if let Some(leaf) = shadow_leaf {
                self.note_shadow_leaf(memcg, leaf);
            }
            self.forget_folios(memcg, mapping.kind(), 1);
            self.put(host, folio);
        }
    }

    /// Pages left their mapping: they are no longer counted as cached.
    pub(crate) fn forget_folios(&self, memcg: &Memcg, kind: Kind, pages: u64) {
        memcg.stat.sub(if kind == Kind::Anon { Counter::Anon } else { Counter::File }, pages);
    }

    /// Maps a file into an address space, so that walks look at it: its first `pages` pages.
    pub fn map(&self, task: &Task, mapping: &Arc<Mapping>, pages: u64) {
        let mut locked = mapping.lock(&self.leaves);
        locked.set_mapped_pages(pages.max(mapping.mapped_pages()));
        drop(locked);
        task.space.map(mapping);
    }

    /// Removes every page-table entry of a file. A page whose entry is young counts one access
    /// ([book: access#descriptor-accesses]).
    pub fn unmap(&self, host: &impl Host, task: &Task, mapping: &Arc<Mapping>) {
        task.space.unmap(mapping);
        let mut locked = mapping.lock(&self.leaves);
        let pages = mapping.mapped_pages();
        // Who maps it next makes its entries after all of these went.
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
        // A batch that is drained may give up the last page of a memcg that was removed, and with
        // it what is remembered of its pages: in this mapping, too.
        for (folio, before) in accessed_again {
            lru::accessed_again(self, host, task.cpu, folio, before);
        }
    }

    /// A mapping is another task's from now on, with its page-table entries.
    pub fn move_mapping(&self, from: &Task, to: &Task, mapping: &Arc<Mapping>) {
        from.space.unmap(mapping);
        to.space.map(mapping);
    }

    /// Removes the page-table entry of one folio.
    pub(crate) fn unmap_folio(&self, mapping: &Mapping, memcg: &Memcg, folio: FolioId) {
        if let Some(slot) = mapping.slot(&self.leaves, self.folios.index(folio)) {
            slot.unmap(folio);
        }
        if self.folios.flags(folio).clear_mapped() {
            count_mapped(mapping, memcg, -1);
        }
    }
}

/// A page got or lost its page-table entry. Only those of files are counted.
fn count_mapped(mapping: &Mapping, memcg: &Memcg, change: i64) {
    match (mapping.kind(), change > 0) {
        (Kind::Anon, _) => {}
        (Kind::File, true) => memcg.stat.add(Counter::FileMapped, 1),
        (Kind::File, false) => memcg.stat.sub(Counter::FileMapped, 1),
    }
}
