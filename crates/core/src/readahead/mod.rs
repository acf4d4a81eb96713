//! Readahead: the further pages that a miss brings in, for sequential reads and around mapped
//! misses.
//!
//! For reads, the window starts at four times the request and doubles (quadruples while small) with
//! every window used, up to a maximum. Each window carries a mark: an access to the marked page
//! starts the next window before the reader gets to the end. A read that does not continue the last
//! one brings in only itself.
//!
//! A miss through a mapping brings in the pages around it, as many as the largest window, since
//! mapped accesses are local more often than sequential. If misses outnumber hits by a hundred,
//! this stops until hits return.
//!
//! [`Readahead`] chooses the pages, and [`Filling`] brings them into memory step by step.
//! [`Core::fault_around`](crate::Core::fault_around) creates further page-table entries at a fault.
//!
//! Source: the on-demand readahead of Linux ("On-demand readahead", LWN 235164), as behaviour; for
//! mapped misses, "readahead: mmap read-around simplification" (Linux 2.6.31).

mod fault_around;
mod filling;
mod window;

pub use fault_around::FAULT_AROUND_PAGES;
pub use filling::{FillStep, Filling, ReadRun, pages_max};
pub use window::Window;

/// The default maximum window: 128 KiB, as in the kernel.
pub const DEFAULT_MAX_PAGES: u32 = 32;

/// Readahead state of one open file.
#[derive(Clone, Debug)]
pub struct Readahead {
    max_pages: u32,
    /// The last window: its first page and its length.
    start: u32,
    size: u32,
    /// The page after the last read, where a sequential reader continues.
    next: Option<u32>,
    /// Mapped misses, minus mapped accesses that found a cached page without an entry; at most ten
    /// times [`MISSES_MAX`].
    mapped_misses: u32,
}

/// The number of mapped misses at which read-around stops.
const MISSES_MAX: u32 = 100;

impl Readahead {
    /// State for a newly opened file. `max_pages` 0 turns readahead off.
    pub fn new(max_pages: u32) -> Readahead {
        Readahead { max_pages, start: 0, size: 0, next: None, mapped_misses: 0 }
    }

    /// The maximum window, in pages.
    pub fn max_pages(&self) -> u32 {
        self.max_pages
    }

    /// Sets the maximum window, after advice that reads are random (0) or sequential (twice the
    /// default).
    pub fn set_max_pages(&mut self, max_pages: u32) {
        self.max_pages = max_pages;
    }

    /// Notes a read of `pages` pages from `first`, hit or miss.
    pub fn note_read(&mut self, first: u32, pages: u32) {
        self.next = first.checked_add(pages);
    }

    fn initial(&self, request: u32) -> u32 {
        request.saturating_mul(4).next_power_of_two().min(self.max_pages).max(request)
    }

    /// The window to read after a read of `request` pages missed page `index`, the first of them.
    pub fn on_miss(&mut self, index: u32, request: u32) -> Window {
        let request = request.max(1);
        let sequential = index == 0 || self.next == Some(index) || self.next == index.checked_add(1);
        if self.max_pages == 0 || !sequential {
            return Window { first: index, pages: request, mark: None };
        }
        self.start = index;
        self.size = self.initial(request);
        let ahead = self.size - request;
        Window { first: index, pages: self.size, mark: (ahead > 0).then(|| index.saturating_add(request)) }
    }

    /// The window to read after a mapped access missed page `index`. It need not begin with the
    /// page.
    pub fn on_fault(&mut self, index: u32) -> Window {
        let alone = Window { first: index, pages: 1, mark: None };
        if self.max_pages == 0 {
            return alone;
        }
        self.mapped_misses = (self.mapped_misses + 1).min(10 * MISSES_MAX);
        if self.mapped_misses > MISSES_MAX {
            return alone;
        }
        (self.start, self.size) = (index.saturating_sub(self.max_pages / 2), self.max_pages);
        let ahead = self.max_pages / 4;
        let mark = (ahead > 0).then(|| self.start.saturating_add(self.size - ahead));
        Window { first: self.start, pages: self.size, mark }
    }

    /// Notes that page-table entries were created for `pages` cached pages.
    pub fn note_mapped(&mut self, pages: u32) {
        self.mapped_misses = self.mapped_misses.saturating_sub(pages);
    }

    /// The window to read ahead after an access to the marked page `index`.
    pub fn on_mark(&mut self, index: u32) -> Option<Window> {
        if self.max_pages == 0 {
            return None;
        }
        let end = self.start.saturating_add(self.size);
        // Several readers of one file may meet each other's marks: continue from there.
        let first = if (self.start..end).contains(&index) { end } else { index.checked_add(1)? };
        let size = if self.size < self.max_pages / 16 { self.size * 4 } else { self.size * 2 };
        (self.start, self.size) = (first, size.clamp(1, self.max_pages));
        Some(Window { first, pages: self.size, mark: Some(first) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_stays_ahead() {
        let mut readahead = Readahead::new(32);
        let first = readahead.on_miss(0, 1);
        assert_eq!(first, Window { first: 0, pages: 4, mark: Some(1) });
        readahead.note_read(0, 1);
        assert_eq!(readahead.on_mark(1), Some(Window { first: 4, pages: 8, mark: Some(4) }));
        assert_eq!(readahead.on_mark(4), Some(Window { first: 12, pages: 16, mark: Some(12) }));
        assert_eq!(readahead.on_mark(12), Some(Window { first: 28, pages: 32, mark: Some(28) }));
        assert_eq!(readahead.on_mark(28), Some(Window { first: 60, pages: 32, mark: Some(60) }));
    }

    #[test]
    fn a_random_reader_gets_only_the_requested_pages() {
        let mut readahead = Readahead::new(32);
        readahead.note_read(10, 1);
        assert_eq!(readahead.on_miss(500, 2), Window { first: 500, pages: 2, mark: None });
        readahead.note_read(500, 2);
        assert_eq!(readahead.on_miss(502, 1), Window { first: 502, pages: 4, mark: Some(503) }, "continues");
    }

    /// 128 KiB around the miss, with a mark at the beginning of the last quarter; after a hundred
    /// misses without hits, nothing.
    #[test]
    fn mapped_misses_read_around() {
        let mut readahead = Readahead::new(32);
        assert_eq!(readahead.on_fault(100), Window { first: 84, pages: 32, mark: Some(108) });
        assert_eq!(readahead.on_mark(108), Some(Window { first: 116, pages: 32, mark: Some(116) }));
        assert_eq!(readahead.on_fault(5), Window { first: 0, pages: 32, mark: Some(24) });
        let alone = |index| Window { first: index, pages: 1, mark: None };
        let windows: Vec<Window> = (3..=200).map(|miss| readahead.on_fault(miss * 1000)).collect();
        assert!(windows[..98].iter().all(|window| window.pages == 32), "up to the hundredth");
        assert!((101..=200).zip(&windows[98..]).all(|(miss, &window)| window == alone(miss * 1000)));
        readahead.note_mapped(101);
        assert_eq!(readahead.on_fault(7000).pages, 32, "99 more than hits");
        readahead.note_mapped(1000);
        (0..5000).for_each(|miss| assert!(readahead.on_fault(miss).pages > 0));
        readahead.note_mapped(901);
        assert_eq!(readahead.on_fault(7000).pages, 32, "no more than a thousand are remembered");
        assert_eq!(Readahead::new(0).on_fault(9), alone(9));
    }

    #[test]
    fn advice_random_turns_it_off() {
        let mut readahead = Readahead::new(0);
        assert_eq!(readahead.on_miss(0, 1), Window { first: 0, pages: 1, mark: None });
        assert_eq!(readahead.on_mark(0), None);
    }

    #[test]
    fn the_end_of_the_index_does_not_overflow() {
        let mut readahead = Readahead::new(32);
        readahead.note_read(u32::MAX - 1, 1);
        readahead.on_miss(u32::MAX, 1);
        readahead.on_mark(u32::MAX);
        assert_eq!(readahead.on_mark(u32::MAX), None);
    }
}
