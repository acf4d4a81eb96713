//! Counts of dirty pages and of pages under writeback: of the node, or of a memcg's subtree.
//!
//! # Locking
//!
//! None: atomic words. For a moment, a page may be counted in one of them and not in the other.

use crate::sync::{
    AtomicBool, AtomicI64, AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::SeqCst, fence,
};

#[derive(Debug, Default)]
pub(crate) struct Pending {
    dirty: AtomicI64,
    writeback: AtomicI64,
    /// File pages written so far. For the node only.
    written: AtomicU64,
    /// Set when the flusher is woken for too many dirty pages, until it finds them few enough.
    over_background: AtomicBool,
    /// Whether any page has been written; then that of all ancestors is set, too. Not for the node.
    any_written: AtomicBool,
    /// Writes of pages, to files and to swap, that succeeded and that failed, since the start.
    ended: [AtomicU64; 2],
    /// Of the dirty pages, those whose last write failed.
    refused_dirty: AtomicI64,
    /// Of the pages under writeback, those whose write before failed.
    refused_writeback: AtomicI64,
    /// Dirty pages, and pages that are dirty or under writeback, at the last refresh of statistics.
    known: [AtomicU64; 2],
}

impl Pending {
    /// Adds to the counts of dirty and writeback pages; negative numbers subtract.
    pub(crate) fn change(&self, dirty: i64, writeback: i64) {
        for (count, change) in [(&self.dirty, dirty), (&self.writeback, writeback)] {
            if change != 0 {
                count.fetch_add(change, Relaxed);
            }
        }
    }

    /// Adds a dirty page and returns their number.
    pub(crate) fn add_dirty(&self) -> u64 {
        (self.dirty.fetch_add(1, Relaxed) + 1).max(0) as u64
    }

    pub(crate) fn note_written(&self) {
        self.written.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_any_written(&self) {
        self.any_written.store(true, Relaxed);
    }

    pub(crate) fn any_written(&self) -> bool {
        self.any_written.load(Relaxed)
    }

    pub(crate) fn written_pages(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Notes that too many pages are dirty, after they were counted. `true`: this is news.
    pub(crate) fn note_over_background(&self) -> bool {
        // Between the count and the look at the note; `forget_over_background` has the other one.
        fence(SeqCst);
        !self.over_background.load(Relaxed) && !self.over_background.swap(true, AcqRel)
    }

    /// Forgets the note. A thread that still saw it has counted its pages before: the caller sees
    /// them.
    pub(crate) fn forget_over_background(&self) {
        self.over_background.store(false, Relaxed);
        fence(SeqCst);
    }

    /// The write of a page ends, to its file or to swap.
    pub(crate) fn end_write(&self, written: bool) {
        self.change(0, -1);
        self.ended[usize::from(!written)].fetch_add(1, Relaxed);
    }

    /// Adds to the counts of refused pages that are dirty and under writeback; negative numbers
    /// subtract.
    pub(crate) fn change_refused(&self, dirty: i64, writeback: i64) {
        self.refused_dirty.fetch_add(dirty, Relaxed);
        self.refused_writeback.fetch_add(writeback, Relaxed);
    }

    /// Dirty and writeback pages whose last finished write failed.
    pub(crate) fn refused_pages(&self) -> u64 {
        self.refused_dirty_pages() + self.refused_writeback.load(Relaxed).max(0) as u64
    }

    /// Those of them that are not under writeback.
    pub(crate) fn refused_dirty_pages(&self) -> u64 {
        self.refused_dirty.load(Relaxed).max(0) as u64
    }

    /// Writes of pages, to files and to swap, that succeeded and that failed.
    pub(crate) fn ended_writes(&self) -> [u64; 2] {
        [&self.ended[0], &self.ended[1]].map(|count| count.load(Relaxed))
    }

    pub(crate) fn reset(&self) {
        self.forget_over_background();
        self.any_written.store(false, Relaxed);
        self.dirty.store(0, Relaxed);
        self.writeback.store(0, Relaxed);
        self.ended.iter().for_each(|count| count.store(0, Relaxed));
        self.refused_dirty.store(0, Relaxed);
        self.refused_writeback.store(0, Relaxed);
        self.known.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// Makes the present counts known.
    pub(crate) fn refresh(&self) {
        self.known[0].store(self.dirty_pages(), Relaxed);
        self.known[1].store(self.pages(), Relaxed);
    }

    /// Dirty pages, and dirty and writeback pages, at the last refresh.
    pub(crate) fn known_dirty_pages(&self) -> (u64, u64) {
        (self.known[0].load(Relaxed), self.known[1].load(Relaxed))
    }

    /// Dirty pages that are not under writeback.
    pub(crate) fn dirty_pages(&self) -> u64 {
        self.dirty.load(Relaxed).max(0) as u64
    }

    /// Dirty and writeback pages.
    pub(crate) fn pages(&self) -> u64 {
        self.dirty_pages() + self.writeback.load(Relaxed).max(0) as u64
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A page becomes dirty while the flusher forgets that too many are: either the flusher counts
    /// the page, or its thread brings the news. Without the fences loom finds both missing it.
    #[test]
    fn loom_a_dirty_page_is_counted_or_noted_again() {
        loom::model(|| {
            let pending = Arc::new(Pending::default());
            assert!(pending.add_dirty() == 1 && pending.note_over_background());
            let other = {
                let pending = pending.clone();
                loom::thread::spawn(move || pending.add_dirty() == 2 && pending.note_over_background())
            };
            pending.forget_over_background();
            let counted = pending.dirty_pages() == 2;
            let noted = other.join().unwrap();
            assert!(counted || noted, "too many pages are dirty, and nobody knows");
            assert!(!pending.note_over_background() == noted);
        });
    }
}
