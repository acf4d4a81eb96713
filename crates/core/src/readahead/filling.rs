//! Filling: brings a readahead window into memory. It finds the missing pages, charges them, and
//! groups them into runs to be read together.
//!
//! Pages that are already cached are left out. The others are not requested, so their charges are
//! optional ([`Charging::optional`]): they never wait, and the first failed charge ends the window.
//! A window takes at most a quarter of its memcg's memory, or of all memory, so that it does not
//! evict its own pages.
//!
//! Source: the kernel's on-demand readahead (LWN 235164), which skips cached pages and ends at the
//! first failed allocation. The quarter is this engine's rule: the kernel's windows are small
//! beside its memory.
//!
//! # Locking
//!
//! Between steps, inserted pages that were not handed out are locked. Optional charges never wait.

use super::window::Window;
use crate::Core;
use crate::access::{Arrival, Lookup, Task};
use crate::charge::{ChargeStep, Charging};
use crate::folio::{FolioId, Kind};
use crate::host::Host;
use crate::mapping::{InsertError, MAPPING_PAGES_MAX, Mapping};
use crate::memcg::MemcgId;
use std::ops::Range;

/// Consecutive pages that are read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRun {
    /// The first page's index.
    pub first: u32,
    /// Their folios, locked and without content: [`Core::publish`] or [`Core::abandon`] each.
    pub folios: Vec<FolioId>,
}

/// The next action.
#[derive(Debug)]
pub enum FillStep {
    /// Call again; other threads may run before.
    More,
    /// Start to read these pages, then call again.
    Read(ReadRun),
    /// The window is in memory or being read.
    Done,
}

/// A window being filled.
#[derive(Debug)]
pub struct Filling {
    next: u64,
    end: u64,
    /// The pages that get the readahead mark.
    marked: Range<u64>,
    /// The arrival flags of its pages.
    arrival: Arrival,
    /// The requested page, if any: already inserted, and locked by the caller.
    wanted: Option<(u32, FolioId)>,
    charging: Option<Charging>,
    /// Pages inserted and not handed out yet: the last is just before `next`.
    folios: Vec<FolioId>,
    /// Whether a charge failed.
    is_short: bool,
}

impl Filling {
    /// Fills a window ahead of the reader, for a task of `memcg` and a file of `file_pages` pages.
    /// `in_fault`: whether a mapped access asked for it.
    pub fn ahead(core: &Core, memcg: MemcgId, window: Window, file_pages: u64, in_fault: bool) -> Filling {
        let first = u64::from(window.first);
        let most = u64::from(window.pages).min(pages_max(core, memcg));
        Filling {
            next: first,
            end: (first + most).min(file_pages).min(MAPPING_PAGES_MAX),
            marked: marked_by(window),
            arrival: Arrival { ahead: true, in_fault, ..Arrival::default() },
            wanted: None,
            charging: None,
            folios: Vec::new(),
            is_short: false,
        }
    }

    /// Fills a window around the missing page `index`, which the caller inserted as `folio` with
    /// `arrival`. That page is read in any case.
    pub fn around(
        core: &Core,
        memcg: MemcgId,
        window: Window,
        file_pages: u64,
        (index, folio): (u32, FolioId),
        arrival: Arrival,
    ) -> Filling {
        let at = u64::from(index);
        let pages = u64::from(window.pages);
        let most = pages.min(pages_max(core, memcg)).max(1);
        let mut first = u64::from(window.first);
        if most < pages {
            // Too large: keep the part nearest to the page.
            first = first.max(at.saturating_sub(most / 2));
        }
        let end = (first + most).min(u64::from(window.first) + pages);
        Filling {
            next: first,
            end: end.min(file_pages).min(MAPPING_PAGES_MAX).max(at + 1),
            marked: marked_by(window),
            arrival: Arrival { ahead: true, ..arrival },
            wanted: Some((index, folio)),
            charging: None,
            folios: Vec::new(),
            is_short: false,
        }
    }

    /// Fills a window around the page `index` of anonymous memory, which the caller inserted as
    /// `folio`: with those pages, of `region_pages`, that are swapped out. They get the readahead
    /// mark. One that is dropped meanwhile comes without a slot ([`Core::swap_slot`]): its content
    /// is zeros.
    pub fn swapped(
        core: &Core,
        memcg: MemcgId,
        window: Window,
        region_pages: u64,
        page: (u32, FolioId),
    ) -> Filling {
        let arrival = Arrival { in_fault: true, ..Arrival::default() };
        let filling = Filling::around(core, memcg, window, region_pages, page, arrival);
        Filling { marked: filling.next..filling.end, ..filling }
    }

    /// The charge under way, if any.
    pub fn charging(&self) -> Option<&Charging> {
        self.charging.as_ref()
    }

    /// Inserted and locked pages that no [`FillStep::Read`] has named yet.
    pub fn held(&self) -> impl Iterator<Item = (u32, FolioId)> + '_ {
        let first = self.next - self.folios.len() as u64;
        let inserted = (first..).zip(&self.folios).map(|(index, &folio)| (index as u32, folio));
        inserted.chain(self.wanted)
    }

    /// Runs until a batch was reclaimed, a run is complete, or the window ends.
    pub fn step(&mut self, core: &Core, host: &impl Host, task: &Task, mapping: &Mapping) -> FillStep {
        loop {
            if let Some(mut charging) = self.charging.take() {
                match charging.step(core, host) {
                    ChargeStep::More => {
                        self.charging = Some(charging);
                        return FillStep::More;
                    }
                    ChargeStep::Wait(_) => {
                        charging.cancel(core, host);
                        self.is_short = true;
                    }
                    ChargeStep::OutOfMemory(_) => self.is_short = true,
                    ChargeStep::Charged(new) => {
                        let index = self.next as u32;
                        let arrival =
                            Arrival { readahead_mark: self.marked.contains(&self.next), ..self.arrival };
                        match core.insert(host, task, mapping, index, new, arrival) {
                            Ok(folio) => {
                                self.folios.push(folio);
                                self.next += 1;
                            }
                            // Another thread inserted it, or was in the way: look again.
                            Err(InsertError::Occupied | InsertError::Unpaid) => {}
                            Err(InsertError::Closed) => self.is_short = true,
                        }
                    }
                }
                continue;
            }
            if std::mem::take(&mut self.is_short)
                && let Some(run) = self.end_early()
            {
                return FillStep::Read(run);
            }
            if self.next >= self.end {
                return self.hand_out().map_or(FillStep::Done, FillStep::Read);
            }
            if let Some((index, folio)) = self.wanted
                && u64::from(index) == self.next
            {
                self.wanted = None;
                self.folios.push(folio);
                self.next += 1;
            } else if is_missing(core, mapping, self.next as u32) {
                let charging = Charging::new(task.memcg, task.cpu).optional();
                self.charging = Some(charging.for_page(core, mapping, self.next as u32));
            } else {
                let run = self.hand_out();
                self.next += 1;
                if let Some(run) = run {
                    return FillStep::Read(run);
                }
            }
        }
    }

    /// Ends the window, except for the requested page if that is still to be read. Returns the run
    /// before it, unless the two are neighbours.
    fn end_early(&mut self) -> Option<ReadRun> {
        let Some((index, _)) = self.wanted else {
            self.end = self.next;
            return None;
        };
        let before = if self.next == u64::from(index) { None } else { self.hand_out() };
        (self.next, self.end) = (u64::from(index), u64::from(index) + 1);
        before
    }

    /// Takes the run that ends before `next`, if there is one.
    fn hand_out(&mut self) -> Option<ReadRun> {
        let first = (self.next - self.folios.len() as u64) as u32;
        (!self.folios.is_empty()).then(|| ReadRun { first, folios: std::mem::take(&mut self.folios) })
    }
}

/// Whether a page is to be read. Anonymous memory that was never written is not.
fn is_missing(core: &Core, mapping: &Mapping, index: u32) -> bool {
    matches!(core.lookup(mapping, index), Lookup::Miss)
        && (mapping.kind() == Kind::File || !core.is_untouched(mapping, index))
}

fn marked_by(window: Window) -> Range<u64> {
    window.mark.map_or(0..0, |mark| u64::from(mark)..u64::from(mark) + 1)
}

/// The most pages of a window: a quarter of a small memcg's memory, or of all memory.
pub fn pages_max(core: &Core, memcg: MemcgId) -> u64 {
    core.memcg(memcg).max_pages().min(u64::from(core.folios().len())) / 4
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::reclaim::EffortKind;
    use crate::testing::Harness;
    use crate::{Counter, Options, Preset};

    /// Fills a window and returns its runs, which are read at once.
    fn fill(harness: &Harness, mut filling: Filling) -> Vec<(u32, usize)> {
        let mut runs = Vec::new();
        loop {
            match filling.step(&harness.core, &harness.host, &harness.task, &harness.mapping) {
                FillStep::More => {}
                FillStep::Read(run) => {
                    runs.push((run.first, run.folios.len()));
                    for folio in run.folios {
                        harness.core.publish(&harness.host, &harness.mapping, folio);
                    }
                }
                FillStep::Done => return runs,
            }
        }
    }

    fn ahead(harness: &Harness, first: u32, pages: u32, file_pages: u64) -> Vec<(u32, usize)> {
        let window = Window { first, pages, mark: Some(first) };
        fill(harness, Filling::ahead(&harness.core, harness.task.memcg, window, file_pages, false))
    }

    fn is_marked(harness: &Harness, index: u32) -> bool {
        harness.core.has_readahead_mark(&harness.hit(index).unwrap())
    }

    /// Inserts a missing page and fills a window around it.
    fn around(harness: &Harness, index: u32, window: Window) -> Vec<(u32, usize)> {
        let (new, arrival) = (harness.charge(), Arrival { in_fault: true, ..Arrival::default() });
        let inserted =
            harness.core.insert(&harness.host, &harness.task, &harness.mapping, index, new, arrival);
        let page = (index, inserted.unwrap());
        let memcg = harness.task.memcg;
        let filling = Filling::around(&harness.core, memcg, window, 1 << 32, page, arrival);
        assert!(filling.held().eq([page]));
        fill(harness, filling)
    }

    /// A page that reclaim met dirty is read ahead of, under the kernels' presets, and loses the
    /// mark by that; but not while it is written back.
    #[test]
    fn reclaims_mark_is_a_readahead_mark_in_kernels() {
        for (preset, is_shared) in
            [(Preset::Default, false), (Preset::Linux612, true), (Preset::Linux72, true)]
        {
            let mut harness = Harness::with_preset(preset, 1000, 31);
            harness.read_ahead([10, 11]);
            let take = |harness: &Harness, index| {
                let hit = harness.hit(index).unwrap();
                harness.core.take_readahead_mark(&harness.mapping, index, &hit)
            };
            harness.write(10);
            let folio = harness.hit(10).unwrap().folio;
            let reclaim = |harness: &Harness| harness.core.folios().flags(folio).load().reclaim();
            harness.core.folios().flags(folio).set_reclaim();
            assert_eq!((is_marked(&harness, 10), is_marked(&harness, 11)), (is_shared, false), "{preset:?}");
            assert_eq!((take(&harness, 10), take(&harness, 11)), (is_shared, false), "{preset:?}");
            assert_eq!(reclaim(&harness), !is_shared, "{preset:?}");
            assert!(!take(&harness, 10), "once");
            harness.core.folios().flags(folio).set_reclaim();
            let written = harness.start_writeback();
            assert!(!is_marked(&harness, 10) && !take(&harness, 10) && reclaim(&harness), "{preset:?}");
            harness.end_writeback(written);
            harness.core.validate().unwrap();
        }
    }

    #[test]
    fn pages_that_are_there_are_left_out() {
        let mut harness = Harness::with_options(Options::new(1000), 500);
        harness.read_ahead([13, 14, 17]);
        assert_eq!(ahead(&harness, 10, 10, 1 << 32), [(10, 3), (15, 2), (18, 2)]);
        assert!(is_marked(&harness, 10) && !is_marked(&harness, 11));
        assert_eq!(ahead(&harness, 10, 10, 1 << 32), []);
        assert_eq!(ahead(&harness, 100, 10, 103), [(100, 3)], "the file ends");
        assert_eq!(ahead(&harness, 200, 10, 103), []);
        assert_eq!(ahead(&harness, u32::MAX - 1, 10, 1 << 32), [(u32::MAX - 1, 2)]);
        assert_eq!(ahead(&harness, 1000, 400, 1 << 32), [(1000, 125)], "a quarter of 500");
        harness.core.validate().unwrap();
    }

    /// One major fault, however many pages it brings.
    #[test]
    fn the_page_that_is_wanted_is_read_with_its_neighbours() {
        let mut harness = Harness::with_options(Options::new(1000), 500);
        let window = |first| Window { first, pages: 32, mark: Some(first + 24) };
        assert_eq!(around(&harness, 100, window(84)), [(84, 32)]);
        assert!(is_marked(&harness, 108));
        assert_eq!(harness.stat(Counter::Pgmajfault), 1);
        harness.read_ahead([219, 221]);
        assert_eq!(around(&harness, 220, window(204)), [(204, 15), (220, 1), (222, 14)]);
        assert_eq!(around(&harness, 300, window(300)), [(300, 32)], "a read's window begins with it");
        let small = harness.core.add_memcg("small", 32, crate::Time::ZERO).unwrap().id();
        harness.task = harness.core.new_task(small, 0);
        assert_eq!(around(&harness, 400, window(384)), [(396, 8)], "a quarter of 32");
        harness.core.validate().unwrap();
    }

    /// In 6.12, a page that comes back in a fault is hot at once, and so are those that a mapped
    /// access brings ahead of itself.
    #[test]
    fn pages_ahead_of_a_mapped_access_arrive_in_a_fault() {
        for (in_fault, restored) in [(false, 0), (true, 3)] {
            let mut harness = Harness::with_preset(Preset::Linux612, 100, 31);
            harness.read_ahead(0..9);
            harness.drain();
            harness.effort(EffortKind::Limit, 3);
            assert!(harness.evicted().starts_with(&[0, 1, 2]));
            let window = Window { first: 0, pages: 3, mark: None };
            fill(&harness, Filling::ahead(&harness.core, harness.task.memcg, window, 9, in_fault));
            assert_eq!(harness.stat(Counter::WorkingsetRefaultFile), 3);
            assert_eq!(harness.stat(Counter::WorkingsetRestoreFile), restored, "in a fault: {in_fault}");
        }
    }

    /// If memory cannot be freed, the window ends but no request fails: the requested page is read.
    #[test]
    fn a_window_ends_where_memory_does() {
        let mut harness = Harness::with_options(Options::new(1000), 80);
        harness.read_ahead(0..70);
        (0..70).for_each(|page| harness.write(page));
        let writeback = harness.start_writeback();
        assert_eq!(ahead(&harness, 100, 6, 1 << 32), [(100, 6)]);
        let window = Window { first: 184, pages: 32, mark: None };
        // Pages that were read ahead earlier make room.
        let runs = around(&harness, 200, window);
        assert!(runs.iter().any(|&(first, pages)| (first..first + pages as u32).contains(&200)), "{runs:?}");
        let oom = harness.stat(Counter::EventOom);
        assert_eq!(oom, 0, "{runs:?}");
        harness.end_writeback(writeback);
        harness.core.validate().unwrap();
    }
}
