//! Readahead: the further pages that a miss brings in, for sequential reads and around mapped
//! misses.
//!
//! For reads, the window starts at twice the request (four times while small) and grows likewise
//! with every window used, up to a maximum. Each window carries a mark: an access to the marked
//! page starts the next window before the reader gets to the end. A read continues the last one if
//! it skips no more than one page; another one brings in only itself. In kernels, cached pages
//! before it are the trace of a sequential reader, of this or another open file, and the window is
//! as long as the trace ([`Switch::ContextReadahead`]). The default does without: what a database
//! reads at random lies beside what it has read ([book: agreement#readahead-agreement]).
//!
//! A miss through a mapping brings in the pages around it, as many as the largest window, since
//! mapped accesses are local more often than sequential. If misses outnumber hits by a hundred,
//! this stops until hits return.
//!
//! [`Readahead`] chooses the pages of files, [`SwapReadahead`] those in swap, and [`Filling`]
//! brings them into memory step by step.
//! [`Core::fault_around`](crate::Core::fault_around) creates further page-table entries at a fault.
//!
//! Source: the on-demand readahead of Linux ("On-demand readahead", LWN 235164) with its context
//! readahead ("readahead: introduce context readahead algorithm", Linux 2.6.31), as behaviour;
//! for mapped misses, "readahead: mmap read-around simplification" (Linux 2.6.31). Windows that end
//! at multiples of four pages, and misses that only faults make up for, are as rows of kernels 7.1
//! and 7.2 show them ([book: agreement#readahead-agreement]).

mod fault_around;
mod filling;
mod swapped;
mod window;

pub use fault_around::FAULT_AROUND_PAGES;
pub use filling::{FillStep, Filling, ReadRun, pages_max};
pub use swapped::{DEFAULT_SWAP_PAGES, SWAP_PAGES_MAX, SwapReadahead};
pub use window::Window;

use std::num::NonZeroU32;

use crate::{Core, Mechanisms, Switch};

/// The default maximum window: 128 KiB, as in the kernel.
pub const DEFAULT_MAX_PAGES: u32 = 32;

/// Readahead state of one open file.
#[derive(Clone, Debug)]
pub struct Readahead {
    max_pages: u32,
    /// The last window: its first page, its length, and its pages from the mark on.
    start: u32,
    size: u32,
    ahead: u32,
    /// Whether windows ahead end at multiples of [`ALIGNMENT`] ([`Switch::AlignedReadahead`]).
    is_aligned: bool,
    /// Whether traces of other readers are sought ([`Switch::ContextReadahead`]).
    seeks_traces: bool,
    /// Whether a fault makes up for one miss only ([`Switch::MissesPerFault`]).
    per_fault: bool,
    /// The page after the last read, where a sequential reader continues.
    next: Option<NonZeroU32>,
    /// Mapped misses, minus mapped accesses that found a cached page without an entry; at most ten
    /// times [`MISSES_MAX`].
    mapped_misses: u16,
}

/// Windows ahead may end at multiples of this.
const ALIGNMENT: u32 = 4;

/// The number of mapped misses at which read-around stops.
const MISSES_MAX: u16 = 100;

impl Core {
    /// Readahead state for a newly opened file. `max_pages` 0 turns readahead off.
    pub fn new_readahead(&self, max_pages: u32) -> Readahead {
        Readahead::new(max_pages, self.mechanisms())
    }
}

impl Readahead {
    fn new(max_pages: u32, mechanisms: Mechanisms) -> Readahead {
        Readahead {
            max_pages,
            start: 0,
            size: 0,
            ahead: 0,
            is_aligned: mechanisms.is_on(Switch::AlignedReadahead),
            seeks_traces: mechanisms.is_on(Switch::ContextReadahead),
            per_fault: mechanisms.is_on(Switch::MissesPerFault),
            next: None,
            mapped_misses: 0,
        }
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
        self.next = first.checked_add(pages).and_then(NonZeroU32::new);
    }

    fn initial(&self, request: u32) -> u32 {
        let least = request.checked_next_power_of_two().unwrap_or(request);
        let times = match least {
            small if small <= self.max_pages / 32 => 4,
            middle if middle <= self.max_pages / 4 => 2,
            _ => return self.max_pages.max(request),
        };
        least * times
    }

    fn next_size(&self, size: u32) -> u32 {
        let times = if size < self.max_pages / 16 { 4 } else { 2 };
        size.saturating_mul(times).clamp(1, self.max_pages)
    }

    /// The window to read after a read of `request` pages missed page `index`, the first of them.
    /// `is_cached`: whether a page is in memory or being read.
    pub fn on_miss(&mut self, index: u32, request: u32, is_cached: impl Fn(u32) -> bool) -> Window {
        let request = request.max(1);
        let alone = Window { first: index, pages: request, mark: None };
        if self.max_pages == 0 {
            return alone;
        }
        let goes_on = index == 0 || self.next.is_some_and(|next| next.get().abs_diff(index) <= 1);
        if goes_on {
            self.size = self.initial(request);
            self.ahead = self.size - request;
        } else if !self.seeks_traces {
            return alone;
        } else {
            let before = (0..index).rev().take(self.max_pages as usize);
            let traces = before.take_while(|&page| is_cached(page)).count() as u32;
            if traces <= request {
                return alone;
            }
            // A file that is cached from its beginning is probably read whole.
            let traces = if traces == index { 2 * traces } else { traces };
            self.size = traces.saturating_add(request).min(self.max_pages).max(request);
            self.ahead = (self.size - request).min(1);
        }
        self.start = index;
        let mark = index.saturating_add(self.size - self.ahead);
        Window { first: index, pages: self.size, mark: (self.ahead > 0).then_some(mark) }
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
        self.ahead = self.max_pages / 4;
        let mark = (self.ahead > 0).then(|| self.start.saturating_add(self.size - self.ahead));
        Window { first: self.start, pages: self.size, mark }
    }

    /// Notes that a fault created page-table entries: for the page it needed, if that was cached,
    /// and for `around` cached pages around it.
    pub fn note_mapped(&mut self, needed: bool, around: u32) {
        let around = if self.per_fault { 0 } else { around.try_into().unwrap_or(u16::MAX) };
        self.mapped_misses = self.mapped_misses.saturating_sub(around.saturating_add(needed.into()));
    }

    /// The window to read ahead after a read of the marked page `index`; `None` if a whole window
    /// after it is in memory.
    pub fn on_mark(&mut self, index: u32, is_cached: impl Fn(u32) -> bool) -> Option<Window> {
        self.on_mark_for(1, index, is_cached)
    }

    /// The same after a mapped access, which counts as a request of the largest window: at another
    /// reader's mark it reads as much.
    pub fn on_mapped_mark(&mut self, index: u32, is_cached: impl Fn(u32) -> bool) -> Option<Window> {
        self.on_mark_for(self.max_pages, index, is_cached)
    }

    fn on_mark_for(&mut self, request: u32, index: u32, is_cached: impl Fn(u32) -> bool) -> Option<Window> {
        if self.max_pages == 0 {
            return None;
        }
        let end = self.start.saturating_add(self.size);
        (self.start, self.size) = if end.checked_sub(self.ahead) == Some(index) {
            (end, self.next_size(self.size))
        } else {
            // Another reader's mark: continue with the first page that is missing after it.
            let mut after = (1..=self.max_pages).map_while(|by| index.checked_add(by));
            let first = after.find(|&page| !is_cached(page))?;
            (first, self.next_size((first - index).saturating_add(request)))
        };
        let after_end = self.start.wrapping_add(self.size) % ALIGNMENT;
        if self.is_aligned && after_end < self.size {
            self.size -= after_end;
        }
        self.ahead = self.size;
        Some(Window { first: self.start, pages: self.size, mark: Some(self.start) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    use crate::Preset;

    const NONE: fn(u32) -> bool = |_| false;

    fn kernel(preset: Preset) -> Readahead {
        Readahead::new(32, Mechanisms::preset(preset))
    }

    #[test]
    fn a_sequential_reader_stays_ahead() {
        let mut readahead = kernel(Preset::Linux612);
        let first = readahead.on_miss(0, 1, NONE);
        assert_eq!(first, Window { first: 0, pages: 4, mark: Some(1) });
        readahead.note_read(0, 1);
        assert_eq!(readahead.on_mark(1, NONE), Some(Window { first: 4, pages: 8, mark: Some(4) }));
        assert_eq!(readahead.on_mark(4, NONE), Some(Window { first: 12, pages: 16, mark: Some(12) }));
        assert_eq!(readahead.on_mark(12, NONE), Some(Window { first: 28, pages: 32, mark: Some(28) }));
        assert_eq!(readahead.on_mark(28, NONE), Some(Window { first: 60, pages: 32, mark: Some(60) }));
    }

    #[test]
    fn a_random_reader_gets_only_the_requested_pages() {
        let mut readahead = kernel(Preset::Linux612);
        readahead.note_read(10, 1);
        assert_eq!(readahead.on_miss(500, 2, NONE), Window { first: 500, pages: 2, mark: None });
        readahead.note_read(500, 2);
        assert_eq!(
            readahead.on_miss(502, 1, NONE),
            Window { first: 502, pages: 4, mark: Some(503) },
            "continues"
        );
    }

    /// A reader that skips one page at a time is sequential, such as one of two that share a file's
    /// pages in turn; one that skips two is not.
    #[test]
    fn a_reader_may_skip_one_page() {
        for preset in [Preset::Linux612, Preset::Default] {
            let mut readahead = kernel(preset);
            readahead.note_read(99, 1);
            assert_eq!(readahead.on_miss(101, 1, NONE), Window { first: 101, pages: 4, mark: Some(102) });
            readahead.note_read(101, 1);
            assert_eq!(readahead.on_miss(104, 1, NONE), Window { first: 104, pages: 1, mark: None });
        }
    }

    /// The window is as long as the cached pages before the miss, twice as long from the beginning
    /// of the file; its last page is marked.
    #[test]
    fn cached_pages_before_a_miss_are_the_trace_of_a_reader() {
        let mut readahead = kernel(Preset::Linux612);
        let window = |first, pages| Window { first, pages, mark: Some(first + pages - 1) };
        let alone = |first, pages| Window { first, pages, mark: None };
        let cached = |page| [1, 2, 3].contains(&(page % 1000)) || !(5..=100_000).contains(&page);
        assert_eq!(readahead.on_miss(2002, 1, cached), alone(2002, 1), "one page before");
        assert_eq!(readahead.on_miss(2004, 1, cached), window(2004, 4));
        assert_eq!(readahead.on_mark(2007, cached), Some(Window { first: 2008, pages: 8, mark: Some(2008) }));
        assert_eq!(readahead.on_miss(3004, 3, cached), alone(3004, 3), "no more than the request");
        assert_eq!(readahead.on_miss(5, 1, cached), window(5, 11), "from the beginning of the file");
        assert_eq!(readahead.on_miss(200_000, 1, cached), window(200_000, 32), "as many as are allowed");
        let mut ours = kernel(Preset::Default);
        assert_eq!(ours.on_miss(2004, 1, cached), alone(2004, 1));
    }

    /// Since 7.1; a window that would be empty stays as it is.
    #[test]
    fn windows_ahead_end_at_multiples_of_four() {
        let mut readahead = kernel(Preset::Linux71);
        assert_eq!(readahead.on_miss(2, 1, |page| page < 2).pages, 5, "not that of a miss");
        assert_eq!(readahead.on_mark(6, NONE), Some(Window { first: 7, pages: 9, mark: Some(7) }));
        assert_eq!(readahead.on_mark(7, NONE), Some(Window { first: 16, pages: 16, mark: Some(16) }));
        let cached = |page| page < 4002;
        let mut small = Readahead::new(1, Mechanisms::preset(Preset::Linux71));
        assert_eq!(small.on_mark(4001, cached), Some(Window { first: 4002, pages: 1, mark: Some(4002) }));
    }

    /// In 7.2, 16 pages that a fault maps make up for one miss.
    #[test]
    fn a_fault_makes_up_for_one_miss() {
        for (preset, expected) in [(Preset::Linux71, 32), (Preset::Linux72, 1)] {
            let mut readahead = kernel(preset);
            for miss in 0..200 {
                readahead.on_fault(miss * 1000);
                if miss % 4 == 0 {
                    readahead.note_mapped(true, 15);
                }
            }
            assert_eq!(readahead.on_fault(7).pages, expected, "{preset:?}");
        }
    }

    /// The mark of a reader by descriptor, met through a mapping.
    #[test]
    fn a_mapped_access_to_a_mark_reads_the_largest_window() {
        let mut mapping = kernel(Preset::Linux612);
        let cached = |page| page <= 504;
        let next = Window { first: 505, pages: 32, mark: Some(505) };
        assert_eq!(mapping.on_mapped_mark(500, cached), Some(next));
        assert_eq!(kernel(Preset::Linux612).on_mark(500, cached), Some(Window { pages: 12, ..next }));
    }

    #[test]
    fn a_mark_of_another_reader_continues_after_what_is_cached() {
        let mut readahead = kernel(Preset::Linux612);
        readahead.on_miss(0, 1, NONE);
        let cached = |page| page <= 506;
        let next = Window { first: 507, pages: 16, mark: Some(507) };
        assert_eq!(readahead.on_mark(500, cached), Some(next));
        assert_eq!(readahead.on_mark(507, NONE), Some(Window { first: 523, pages: 32, mark: Some(523) }));
        assert_eq!(readahead.on_mark(900, |page| page <= 932), None);
    }

    /// 128 KiB around the miss, with a mark at the beginning of the last quarter; after a hundred
    /// misses without hits, nothing.
    #[test]
    fn mapped_misses_read_around() {
        let mut readahead = kernel(Preset::Linux612);
        assert_eq!(readahead.on_fault(100), Window { first: 84, pages: 32, mark: Some(108) });
        assert_eq!(readahead.on_mark(108, NONE), Some(Window { first: 116, pages: 32, mark: Some(116) }));
        assert_eq!(readahead.on_fault(5), Window { first: 0, pages: 32, mark: Some(24) });
        let alone = |index| Window { first: index, pages: 1, mark: None };
        let windows: Vec<Window> = (3..=200).map(|miss| readahead.on_fault(miss * 1000)).collect();
        assert!(windows[..98].iter().all(|window| window.pages == 32), "up to the hundredth");
        assert!((101..=200).zip(&windows[98..]).all(|(miss, &window)| window == alone(miss * 1000)));
        readahead.note_mapped(true, 100);
        assert_eq!(readahead.on_fault(7000).pages, 32, "99 more than hits");
        readahead.note_mapped(true, 999);
        (0..5000).for_each(|miss| assert!(readahead.on_fault(miss).pages > 0));
        readahead.note_mapped(true, 900);
        assert_eq!(readahead.on_fault(7000).pages, 32, "no more than a thousand are remembered");
        assert_eq!(Readahead::new(0, Mechanisms::default()).on_fault(9), alone(9));
    }

    #[test]
    fn advice_random_turns_it_off() {
        let mut readahead = Readahead::new(0, Mechanisms::default());
        assert_eq!(readahead.on_miss(0, 1, NONE), Window { first: 0, pages: 1, mark: None });
        assert_eq!(readahead.on_mark(0, NONE), None);
    }

    #[test]
    fn the_end_of_the_index_does_not_overflow() {
        let mut readahead = kernel(Preset::Linux612);
        readahead.note_read(u32::MAX - 1, 1);
        readahead.on_miss(u32::MAX, 1, NONE);
        readahead.on_mark(u32::MAX, NONE);
        assert_eq!(readahead.on_mark(u32::MAX, NONE), None);
        readahead.on_miss(u32::MAX - 9, u32::MAX, |_| true);
    }
}
