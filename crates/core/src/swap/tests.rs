use super::*;
use crate::access::{Arrival, Lookup, Task};
use crate::event::Event;
use crate::host::{FlushReason, Host, Time};
use crate::lru::{Aging, Context, Queue, Scan, Seq};
use crate::memcg::{Counter, Memcg};
use crate::reclaim::{Background, BackgroundStep, Effort, EffortKind, NodeWalk, Orders, OutOfMemory};
use crate::reclaim::{Step, WalkStep, Watermarks};
use crate::testing::Harness;
use crate::{ChargeStep, Charging, Lru, Mechanisms, MemcgId, Options, Preset};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Reclaim prefers anonymous pages as much as it can without sparing file pages.
const EAGER: Swappiness = Swappiness::new(200).unwrap();

/// A host whose swap store does what the test says.
struct SwapHost {
    answer: Cell<SwapOutcome>,
    asked: RefCell<Vec<SwapOut>>,
    refaults: Cell<u64>,
}

impl Host for SwapHost {
    fn now(&self) -> Time {
        Time::ZERO
    }

    fn wake_flusher(&self, _: FlushReason) {}

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {}

    fn frame_retired(&self, _: FolioId) {}

    fn swap_out(&self, write: SwapOut) -> SwapOutcome {
        self.asked.borrow_mut().push(write);
        self.answer.get()
    }

    fn event(&self, event: Event) {
        if let Event::Refault { recent: true, .. } = event {
            self.refaults.set(self.refaults.get() + 1);
        }
    }
}

/// One memcg with a region of anonymous memory.
struct Anon {
    core: Core,
    host: SwapHost,
    task: Task,
    region: Arc<Mapping>,
}

const PAGES: u32 = 100;

impl Anon {
    fn new(swap_pages: u32, store: SwapStore) -> Anon {
        Anon::with_options(swap_pages, store, Harness::multigen_options(2 * PAGES))
    }

    /// The limit is half of the frames.
    fn with_options(swap_pages: u32, store: SwapStore, options: Options) -> Anon {
        Anon::with_watermarks(swap_pages, store, options, Watermarks { min: 0, low: 0, high: 0 })
    }

    fn with_watermarks(swap_pages: u32, store: SwapStore, options: Options, watermarks: Watermarks) -> Anon {
        let swap = SwapOptions { pages: swap_pages, store };
        let limit_pages = u64::from(options.frames) / 2;
        let core = Core::new(Options { swap, watermarks, batch_folios: 1, ..options }, Time::ZERO);
        let memcg = core.add_memcg("anon", limit_pages, Time::ZERO).unwrap().id();
        let task = core.new_task(memcg, 0);
        let region = core.open_mapping(Kind::Anon);
        core.map(&task, &region, 512);
        let answer = match store {
            SwapStore::Device => SwapOutcome::Started,
            SwapStore::Memory => SwapOutcome::Done,
        };
        let host = SwapHost { answer: Cell::new(answer), asked: RefCell::default(), refaults: Cell::new(0) };
        Anon { core, host, task, region }
    }

    fn memcg(&self) -> &Memcg {
        self.core.memcg(self.task.memcg)
    }

    fn stat(&self, counter: Counter) -> u64 {
        self.memcg().stat().get(counter)
    }

    fn try_bring(&self, page: u32) -> Result<FolioId, Box<OutOfMemory>> {
        self.try_bring_to(&self.region, page)
    }

    fn try_bring_to(&self, mapping: &Arc<Mapping>, page: u32) -> Result<FolioId, Box<OutOfMemory>> {
        let mut charging = Charging::new(self.task.memcg, 0);
        let new = loop {
            match charging.step(&self.core, &self.host) {
                ChargeStep::Charged(new) => break new,
                ChargeStep::OutOfMemory(report) => return Err(report),
                ChargeStep::More | ChargeStep::Wait(_) => {}
            }
        };
        let arrival = Arrival { in_fault: true, ..Arrival::default() };
        Ok(self.core.insert(&self.host, &self.task, mapping, page, new, arrival).unwrap())
    }

    fn hit(&self, page: u32) -> Option<crate::Hit> {
        match self.core.lookup(&self.region, page) {
            Lookup::Hit(hit) => Some(hit),
            Lookup::Miss => None,
            Lookup::Pending(folio) => panic!("{folio:?} is busy"),
        }
    }

    /// Moves a page that is on a list to the active list.
    fn activate(&self, page: u32) {
        self.activate_folio(self.hit(page).unwrap().folio);
    }

    fn activate_folio(&self, folio: FolioId) {
        self.core.enqueue(&self.host, 0, Queue::Activate, folio);
        self.core.drain(&self.host, 0);
    }

    /// A load or a store by the task.
    fn touch(&self, page: u32, store: bool) {
        if self.hit(page).is_none() {
            let folio = self.try_bring(page).unwrap();
            self.core.publish(&self.host, &self.region, folio);
        }
        let hit = self.hit(page).expect("it was just brought in");
        self.core.touch(&self.task, &self.region, page, &hit);
        if store {
            assert!(self.core.folios.flags(hit.folio).try_lock());
            self.core.set_dirty(&self.host, &self.region, hit.folio);
            if !hit.flags.mapped() {
                self.core.stored_by_fault(&self.host, self.task.cpu, hit.folio);
            }
            self.core.unlock(&self.host, hit.folio);
        }
    }

    fn store(&self, pages: std::ops::Range<u32>) {
        pages.for_each(|page| self.touch(page, true));
    }

    fn flags(&self, page: u32) -> crate::folio::Flags {
        self.core.folios.flags(self.hit(page).expect("it is in memory").folio).load()
    }

    fn seq_of(&self, page: u32) -> u64 {
        let label = self.flags(page).generation().expect("it is on a list");
        let max = self.memcg().lruvec.max_seq().0;
        (max - 3..=max).find(|&seq| Seq(seq).index() == label).unwrap()
    }

    /// Makes pages look untouched since they came.
    fn forget_accesses(&self, pages: std::ops::Range<u32>) {
        for page in pages {
            let Some(hit) = self.hit(page) else { continue };
            self.region.slot(&self.core.leaves, page).unwrap().clear_accessed(hit.folio);
        }
    }

    /// Limit reclaim of `goal_pages` pages.
    fn reclaim(&self, goal_pages: u64, swappiness: Swappiness) -> u64 {
        let target = self.task.memcg;
        let orders = crate::reclaim::Orders::new(target, EffortKind::Limit, goal_pages, swappiness, 0);
        let mut effort = Effort::new(&self.core, orders);
        loop {
            if let Step::Done(progress) = effort.step(&self.core, &self.host) {
                return progress.reclaimed;
            }
            self.core.validate().unwrap();
        }
    }

    /// Ends all writes under way.
    fn end_writes(&self, written: bool) -> Vec<SwapOut> {
        let asked = self.host.asked.take();
        for write in &asked {
            self.core.end_writeback(&self.host, &self.region, write.folio, written, 0);
        }
        self.core.drain_all(&self.host);
        asked
    }

    /// Swapped-out pages.
    fn swapped(&self) -> Vec<u32> {
        let out = |&page: &u32| self.hit(page).is_none() && !self.core.is_untouched(&self.region, page);
        (0..PAGES).filter(out).collect()
    }
}

/// A load of a page without memory adds nothing to the index, however far the page lies.
#[test]
fn a_look_at_an_untouched_page_takes_no_memory() {
    let core = Core::new(Options { cpus: 4, ..Options::new(100) }, Time::ZERO);
    let region = core.open_mapping(Kind::Anon);
    let bytes = core.metadata_bytes();
    assert!([0, 1 << 20, u32::MAX].iter().all(|&page| core.is_untouched(&region, page)));
    assert_eq!(core.metadata_bytes(), bytes);
}

/// [book: swap#anonymous-pages]: anonymous pages "are inserted by page faults only"; the first
/// store reads nothing.
#[test]
fn a_new_page_is_full_of_zeros() {
    let anon = Anon::new(1000, SwapStore::Device);
    assert!(anon.core.is_untouched(&anon.region, 0));
    let folio = anon.try_bring(0).unwrap();
    assert_eq!(anon.core.swap_slot(folio), None);
    anon.core.publish(&anon.host, &anon.region, folio);
    anon.touch(0, true);
    let counters = [Counter::Anon, Counter::File, Counter::Pgfault, Counter::Pgmajfault, Counter::Pswpin];
    assert_eq!(counters.map(|counter| anon.stat(counter)), [1, 0, 1, 0, 0]);
    let dirty = [Counter::FileDirty, Counter::FileMapped].map(|counter| anon.stat(counter));
    assert!(anon.flags(0).dirty() && dirty == [0, 0], "only file pages are counted and flushed");
    // [book: access#distance-rule] row 4: "anon type without swap slot: d = 2".
    assert_eq!(anon.seq_of(0), 2);
    anon.core.validate().unwrap();
}

/// [book: swap#swap-out]: "Write-out makes the folio 'under writeback'; it is put back by rule 5 or
/// 4 of the distance rule and freed on a later visit after rotation. It does not count as reclaimed
/// until then."
#[test]
fn a_page_is_written_then_freed() {
    let anon = Anon::new(1000, SwapStore::Device);
    anon.store(0..60);
    anon.forget_accesses(0..60);
    assert_eq!(anon.reclaim(32, EAGER), 0, "nothing was freed");
    let begun = anon.host.asked.borrow().len() as u64;
    assert!(begun > 0 && begun == anon.stat(Counter::Pswpout) && begun == anon.stat(Counter::FileWriteback));
    let first = anon.host.asked.borrow()[0];
    let flags = anon.flags(first.page.1);
    assert!(flags.writeback() && flags.reclaim() && flags.swapcache() && !flags.dirty() && !flags.mapped());
    // [book: reclaim-loop#checks]: "Swap write that ends before the next priority round: the folio
    // is freed in that round".
    let written = anon.end_writes(true);
    assert_eq!(anon.stat(Counter::Pgrotated), begun);
    assert_eq!(anon.seq_of(first.page.1), anon.memcg().lruvec.min_seq(Kind::Anon).0);
    assert!(anon.reclaim(32, EAGER) >= 32);
    // Each went to the tail: the last one written leaves first.
    assert!(anon.swapped().contains(&written.last().unwrap().page.1));
    assert_eq!(anon.stat(Counter::PgstealAnon), anon.swapped().len() as u64);
    anon.core.validate().unwrap();
}

/// [book: reclaim-loop#checks]: "Swap write that ends before the next priority round: the folio is
/// freed in that round", of the same effort.
#[test]
fn a_page_that_is_written_at_once_is_freed_by_the_same_effort() {
    let anon = Anon::new(1000, SwapStore::Device);
    anon.store(0..60);
    anon.forget_accesses(0..60);
    let orders = Orders::new(anon.task.memcg, EffortKind::Limit, 8, EAGER, 0);
    let mut effort = Effort::new(&anon.core, orders);
    let progress = loop {
        match effort.step(&anon.core, &anon.host) {
            Step::More | Step::Wait(_) => drop(anon.end_writes(true)),
            Step::Done(progress) => break progress,
        }
    };
    assert!((32..60).contains(&progress.reclaimed), "{progress:?}");
    assert_eq!(anon.swapped().len() as u64, progress.reclaimed);
    // Each was scanned twice: to be written, and to be freed.
    let written = anon.stat(Counter::Pswpout);
    assert!(written <= 60 && progress.scanned == written + progress.reclaimed, "{written}, {progress:?}");
    anon.core.validate().unwrap();
}

/// [book: classic-lru#checks]: "Anon page, slow swap device, first visit: written + 1, cost + 33,
/// kept at the head. After the write: freed by the next scan. Accessed between: no refault
/// counted".
#[test]
fn the_classic_lru_frees_a_page_at_its_second_visit() {
    use crate::lru::classic::list_of;
    for accessed in [false, true] {
        let mechanisms = crate::Mechanisms::default().with_lru(crate::Lru::Classic);
        let anon = Anon::with_options(1000, SwapStore::Device, Options { mechanisms, ..Options::new(600) });
        anon.store(0..200);
        anon.forget_accesses(0..200);
        let inactive = || -> Vec<u32> {
            let locked = anon.memcg().lruvec.lock(&anon.core.folios);
            let folios = locked.lists.lists.iter(&anon.core.folios, list_of(Kind::Anon, false));
            folios.map(|folio| anon.core.folios.index(folio)).collect()
        };
        // One page is scanned at priority 7.
        let scan_one = || {
            let orders = Orders::new(anon.task.memcg, EffortKind::Limit, 32, EAGER, 0);
            let mut effort = Effort::new(&anon.core, orders);
            let before = anon.stat(Counter::PgscanAnon);
            while anon.stat(Counter::PgscanAnon) == before {
                assert_eq!(effort.step(&anon.core, &anon.host), Step::More);
            }
            effort.abandon(&anon.core, &anon.host);
            assert_eq!(anon.stat(Counter::PgscanAnon), before + 1);
        };
        scan_one();
        let cost = anon.memcg().lruvec.lock(&anon.core.folios).lists.costs.0;
        assert_eq!((anon.stat(Counter::Pswpout), cost), (1, [33, 0]));
        assert_eq!((inactive().last(), anon.flags(0).writeback()), (Some(&0), true));
        if accessed {
            anon.touch(0, false);
            assert!(anon.flags(0).mapped() && anon.flags(0).swapcache());
        }
        anon.end_writes(true);
        assert_eq!(inactive()[..2], [0, 1], "its write has rotated it");
        scan_one();
        let freed = u64::from(!accessed);
        assert_eq!((anon.swapped().len() as u64, anon.stat(Counter::PgstealAnon)), (freed, freed));
        assert_eq!([anon.stat(Counter::WorkingsetRefaultAnon), anon.stat(Counter::Pswpin)], [0, 0]);
        anon.core.validate().unwrap();
    }
}

/// [book: classic-lru#deactivation]: "if swap exists, be it full or forbidden to the memcg".
#[test]
fn the_classic_lru_rebalances_anonymous_pages_without_room_in_swap() {
    for swap_pages in [1000, 0] {
        let mechanisms = Mechanisms::default().with_lru(Lru::Classic);
        let options = Options { mechanisms, ..Options::new(600) };
        let anon = Anon::with_options(swap_pages, SwapStore::Device, options);
        anon.store(0..100);
        let memcg = anon.memcg();
        (0..100).for_each(|page| anon.activate(page));
        memcg.set_swap_max_pages(0);
        assert!(!anon.core.can_swap(memcg.id()));
        assert_eq!(anon.reclaim(1, Swappiness::DEFAULT), 0);
        let deactivated = anon.stat(Counter::Pgdeactivate);
        // Each turn deactivates 32 pages, until not more than half are active.
        assert_eq!(deactivated, if swap_pages > 0 { 64 } else { 0 });
        assert_eq!(anon.stat(Counter::PgscanAnon), 0);
        anon.core.validate().unwrap();
    }
}

/// A classic node of 1,000 frames that is short of memory, with 100 anonymous pages and 100 active
/// file pages: not so few that they are spared.
fn short_of_memory(late: bool) -> Anon {
    let without: &[Switch] = if late { &[Switch::ExactStatistics] } else { &[] };
    let mechanisms = Mechanisms::compose(Preset::Default, &[], without).unwrap().with_lru(Lru::Classic);
    let options = Options { mechanisms, ..Options::new(1000) };
    let watermarks = Watermarks { min: 0, low: 810, high: 820 };
    let anon = Anon::with_watermarks(1000, SwapStore::Memory, options, watermarks);
    let file = anon.core.open_mapping(Kind::File);
    for page in 0..100 {
        let folio = anon.try_bring_to(&file, page).unwrap();
        anon.core.publish(&anon.host, &file, folio);
        anon.activate_folio(folio);
    }
    anon.store(0..100);
    anon.forget_accesses(0..100);
    anon
}

/// [book: classic-lru#deactivation]: background reclaim deactivates anonymous pages before it
/// counts how many are to be scanned.
#[test]
fn background_reclaim_rebalances_first() {
    let anon = short_of_memory(false);
    (0..100).for_each(|page| anon.activate(page));
    let orders = Orders::new(MemcgId::ROOT, EffortKind::Background, 32, EAGER, 0);
    let mut scan = Scan::default();
    let cx = &mut Context::new(&anon.core, &anon.host, &orders, &mut scan);
    let mut walk = NodeWalk::new(cx, 5, true);
    while walk.step(cx) != WalkStep::Finished {}
    assert_eq!(
        (anon.stat(Counter::Pgdeactivate) >= 32, anon.stat(Counter::PgscanAnon)),
        (true, 1),
        "32 >> 5"
    );
}

/// [book: classic-lru#scan-amounts]: background reclaim that freed nothing while it spared
/// anonymous pages for the sake of inactive file pages does not spare them the second time.
#[test]
fn background_reclaim_stops_sparing_anonymous_pages() {
    let anon = short_of_memory(true);
    let memcg = anon.memcg();
    // Statistics that know of inactive file pages which are gone.
    memcg.lruvec.know_inactive_file_pages(5000);
    anon.core.memcg(MemcgId::ROOT).lruvec.know_inactive_file_pages(5000);
    let mut background = Background::new(&anon.core, 0);
    while background.step(&anon.core, &anon.host) != BackgroundStep::Sleep {}
    assert!(anon.stat(Counter::PgstealAnon) > 0, "{} free", anon.core.free_pages());
    assert_eq!(anon.stat(Counter::PgstealFile), 0);
}

/// [book: eviction#verdicts] row 18: "synchronous success (compressed memory) → continue".
#[test]
fn compressed_memory_frees_at_once() {
    let anon = Anon::new(1000, SwapStore::Memory);
    anon.store(0..60);
    anon.forget_accesses(0..60);
    let freed = anon.reclaim(32, EAGER);
    assert!(freed >= 32 && freed == anon.stat(Counter::Pswpout) && freed == anon.swapped().len() as u64);
    assert_eq!((u64::from(anon.core.used_swap_pages()), anon.stat(Counter::FileWriteback)), (freed, 0));
    // As measured on 7.2.12 with zram (no page in the swap cache at the end): the slot of a
    // returned page is free.
    let page = anon.swapped()[0];
    anon.touch(page, false);
    assert_eq!(u64::from(anon.core.used_swap_pages()), freed - 1);
    assert!(anon.flags(page).dirty() && !anon.flags(page).swapcache());
    anon.core.validate().unwrap();
}

/// [book: refaults#refault-processing]: refault processing runs "for swap always when the folio
/// enters the swap cache"; the shadow was in the slot.
#[test]
fn a_page_that_comes_back_is_a_refault() {
    let anon = Anon::new(1000, SwapStore::Device);
    anon.store(0..60);
    anon.forget_accesses(0..60);
    anon.reclaim(32, EAGER);
    anon.end_writes(true);
    anon.reclaim(32, EAGER);
    anon.end_writes(true);
    let [page, other] = anon.swapped()[..2] else { panic!("two pages are out") };
    let folio = anon.try_bring(page).unwrap();
    let slot = anon.core.swap_slot(folio).expect("its bytes are there");
    assert_eq!((anon.stat(Counter::Pswpin), anon.stat(Counter::Pgmajfault)), (1, 1));
    assert_eq!((anon.stat(Counter::WorkingsetRefaultAnon), anon.host.refaults.get()), (1, 1));
    // It could not be read: it stays in swap, and only its memory is released.
    anon.core.abandon(&anon.host, &anon.region, folio);
    assert!(anon.swapped().contains(&page));
    anon.core.validate().unwrap();
    anon.touch(page, false);
    assert_eq!((anon.stat(Counter::Pswpin), anon.stat(Counter::WorkingsetRefaultAnon)), (2, 1));
    // Clean, with its slot: it can leave again without a write. A store to it goes to the same
    // slot.
    let hit = anon.hit(page).unwrap();
    assert_eq!((anon.core.swap_slot(hit.folio), anon.flags(page).dirty()), (Some(slot), false));
    anon.touch(page, true);
    assert_eq!((anon.core.swap_slot(hit.folio), anon.flags(page).dirty()), (Some(slot), true));
    // [book: refaults#checks]: "A refault of a page that moved to another memcg changes no counter
    // at all".
    let mut task = anon.task.clone();
    task.memcg = anon.core.add_memcg("other", 100, Time::ZERO).unwrap().id();
    let counts = anon.stat(Counter::WorkingsetRefaultAnon);
    let by_other = Anon { task, ..anon };
    by_other.touch(other, false);
    assert_eq!(by_other.stat(Counter::WorkingsetRefaultAnon), 0);
    assert_eq!(by_other.core.memcg(MemcgId(1)).stat().get(Counter::WorkingsetRefaultAnon), counts);
    by_other.core.validate().unwrap();
}

/// A failed write to swap leaves the page dirty, in memory, with its slot; a refused one activates
/// it.
#[test]
fn pages_that_cannot_be_swapped_out_stay() {
    let anon = Anon::new(1000, SwapStore::Device);
    anon.store(0..60);
    anon.forget_accesses(0..60);
    anon.reclaim(32, EAGER);
    let failed = anon.end_writes(false)[0].page.1;
    assert!(anon.flags(failed).dirty() && !anon.flags(failed).writeback() && anon.swapped().is_empty());
    anon.host.answer.set(SwapOutcome::Refused);
    let activated = anon.stat(Counter::Pgactivate);
    assert_eq!(anon.reclaim(32, EAGER), 0);
    assert!(anon.stat(Counter::Pgactivate) > activated && anon.stat(Counter::FileWriteback) == 0);
    assert!(anon.swapped().is_empty());
    anon.core.validate().unwrap();
}

/// [book: eviction#verdicts] row 13: "swap slot cannot be allocated → activate";
/// [book: aging#swappiness]: swappiness is 0 where "fewer than 64 swap pages are available".
#[test]
fn without_room_in_swap_anonymous_pages_stay() {
    let anon = Anon::new(FREE_SLOTS_MIN + 3, SwapStore::Memory);
    anon.store(0..60);
    anon.forget_accesses(0..60);
    // The swappiness of the lruvec's turn is fixed at its start, so that some more may be taken.
    let freed = anon.reclaim(1000, EAGER);
    assert!((4..=60).contains(&freed), "{freed}");
    assert!(anon.core.free_swap_pages() < FREE_SLOTS_MIN);
    assert_eq!(anon.reclaim(1000, EAGER), 0);
    assert_eq!(anon.core.swap.swappiness_now(Swappiness::ANON_ONLY), Swappiness::FILE_ONLY);
    while anon.core.swap.take().is_some() {}
    let folio = anon.hit((0..60).find(|&page| anon.hit(page).is_some()).unwrap()).unwrap().folio;
    assert!(!anon.core.assign_slot(folio));
}

/// Without swap, anonymous pages fill memory; then only the request that needs a page fails.
#[test]
fn without_swap_memory_fills_up() {
    let anon = Anon::new(0, SwapStore::Device);
    anon.store(0..PAGES);
    anon.forget_accesses(0..PAGES);
    let report = anon.try_bring(PAGES).unwrap_err();
    assert_eq!((report.usage_pages, report.max_pages), (u64::from(PAGES), u64::from(PAGES)));
    assert_eq!((anon.stat(Counter::PgscanAnon), anon.stat(Counter::EventOom)), (0, 1));
    anon.core.validate().unwrap();
}

/// [book: aging#swappiness]: the table of swappiness 0, 1, 200 and 201, with unused pages of both
/// kinds.
#[test]
fn swappiness_decides_which_kind_is_evicted() {
    for (swappiness, leaves) in
        [(0, [false, true]), (1, [false, true]), (200, [true, false]), (201, [true, false])]
    {
        let anon = Anon::new(1000, SwapStore::Memory);
        anon.store(0..50);
        anon.forget_accesses(0..50);
        let file = anon.core.open_mapping(Kind::File);
        for page in 0..50 {
            let mut charging = Charging::new(anon.task.memcg, 0);
            let ChargeStep::Charged(new) = charging.step(&anon.core, &anon.host) else {
                panic!("it has room")
            };
            let arrival = Arrival::default();
            let folio = anon.core.insert(&anon.host, &anon.task, &file, page, new, arrival).unwrap();
            anon.core.publish(&anon.host, &file, folio);
        }
        // New anonymous pages are in the second youngest generation: too young to leave.
        let (core, host, memcg) = (&anon.core, &anon.host, anon.memcg());
        let seq = memcg.lruvec.max_seq();
        let aging = Aging { core, host, memcg, seq, swappiness: Swappiness::DEFAULT, force: false };
        assert!(aging.open_generation());
        assert!(anon.reclaim(32, Swappiness::new(swappiness).unwrap()) >= 32);
        let stolen = [Counter::PgstealAnon, Counter::PgstealFile].map(|counter| anon.stat(counter) > 0);
        assert_eq!(stolen, leaves, "swappiness {swappiness}");
    }
    assert_eq!((Swappiness::new(201), Swappiness::new(202)), (Some(Swappiness::ANON_ONLY), None));
}

/// Two efforts side by side: each takes only what its own swappiness allows.
#[test]
fn efforts_side_by_side_keep_their_swappiness() {
    for lru in Lru::ALL {
        let mechanisms = Mechanisms::default().with_lru(lru);
        let anon = Anon::with_options(1000, SwapStore::Memory, Options { mechanisms, ..Options::new(600) });
        anon.store(0..100);
        anon.forget_accesses(0..100);
        let file = anon.core.open_mapping(Kind::File);
        for page in 0..100 {
            let folio = anon.try_bring_to(&file, page).unwrap();
            anon.core.publish(&anon.host, &file, folio);
        }
        let begin = |swappiness| {
            let orders = Orders::new(anon.task.memcg, EffortKind::Limit, 32, swappiness, 0);
            Some(Effort::new(&anon.core, orders))
        };
        let stolen = || [Counter::PgstealAnon, Counter::PgstealFile].map(|counter| anon.stat(counter));
        // The first spares anonymous pages, the second those of files.
        let mut efforts = [Swappiness::FILE_ONLY, Swappiness::ANON_ONLY].map(begin);
        while efforts.iter().any(Option::is_some) {
            for (spared, going) in efforts.iter_mut().enumerate() {
                let Some(effort) = going else { continue };
                let before = stolen();
                if matches!(effort.step(&anon.core, &anon.host), Step::Done(_)) {
                    *going = None;
                }
                assert_eq!(stolen()[spared], before[spared], "{lru:?}");
            }
        }
        assert!(stolen().iter().all(|&pages| pages >= 10), "{lru:?}: {:?}", stolen());
        anon.core.validate().unwrap();
    }
}

/// [book: swap#swap-out]: "A slot is released early when … the system's swap is more than half
/// used"; it is as good as free then.
#[test]
fn short_slots_are_not_kept_for_copies() {
    let anon = Anon::new(100, SwapStore::Device);
    anon.store(0..36);
    anon.forget_accesses(0..36);
    while anon.swapped().len() < 3 {
        anon.reclaim(32, EAGER);
        anon.end_writes(true);
    }
    let pages = anon.swapped();
    let used = anon.core.used_swap_pages();
    anon.touch(pages[0], false);
    assert_eq!(
        (anon.core.used_swap_pages(), anon.flags(pages[0]).swapcache()),
        (used, true),
        "less than half is used"
    );
    let taken: Vec<SwapSlot> = (used..51).map(|_| anon.core.swap.take().unwrap()).collect();
    anon.touch(pages[1], false);
    assert_eq!((anon.core.used_swap_pages(), anon.flags(pages[1]).swapcache()), (50, false));
    assert!(anon.flags(pages[1]).dirty(), "no other copy of its contents exists");
    taken.into_iter().for_each(|slot| anon.core.swap.give_back(slot));
    anon.core.validate().unwrap();
}

/// [book: swap#slots-of-stored-pages]: in 6.12 a store that faults frees the slot of its page, but
/// no load does, nor a store to a page that has its page-table entry. Later kernels keep it.
#[test]
fn a_store_frees_the_slot_in_linux_6_12() {
    for (preset, frees) in [(Preset::Linux612, true), (Preset::Linux71, false), (Preset::Linux72, false)] {
        for lru in [Lru::MultiGen, Lru::Classic] {
            let mechanisms = Mechanisms::preset(preset).with_lru(lru);
            let options = Options { mechanisms, ..Options::new(2 * PAGES) };
            let anon = Anon::with_options(1000, SwapStore::Device, options);
            anon.store(0..60);
            anon.forget_accesses(0..60);
            while anon.swapped().len() < 3 {
                anon.reclaim(32, EAGER);
                anon.end_writes(true);
            }
            let (pages, slots) = (anon.swapped(), || anon.core.used_swap_pages());
            let all = slots();
            anon.touch(pages[0], false);
            anon.touch(pages[0], true);
            assert_eq!((slots(), anon.flags(pages[0]).swapcache()), (all, true), "{preset:?}");
            anon.touch(pages[1], true);
            assert_eq!(slots(), all - u32::from(frees), "{preset:?}");
            assert_eq!(anon.flags(pages[1]).swapcache(), !frees);
            assert!(anon.flags(pages[1]).dirty());
            // Another user of the folio: its place in the batch of another CPU.
            anon.touch(pages[2], false);
            let folio = anon.hit(pages[2]).unwrap().folio;
            anon.core.unmap_folio(&anon.region, anon.memcg(), folio);
            assert!(anon.core.folios.flags(folio).try_get());
            anon.touch(pages[2], true);
            assert!(anon.flags(pages[2]).swapcache(), "{preset:?}");
            anon.core.put(&anon.host, folio);
            anon.core.validate().unwrap();
        }
    }
}

/// Released memory frees its slots: of swapped-out pages, and of those in the swap cache.
#[test]
fn no_slot_is_left_behind() {
    let anon = Anon::new(1000, SwapStore::Device);
    anon.store(0..60);
    anon.forget_accesses(0..60);
    anon.reclaim(32, EAGER);
    anon.end_writes(true);
    anon.reclaim(32, EAGER);
    let busy = anon.core.truncate(&anon.host, &anon.region, 0, 512);
    assert!(busy.is_none() || anon.core.folios.flags(busy.unwrap()).load().writeback());
    anon.end_writes(true);
    anon.core.validate().unwrap();
    assert_eq!(anon.core.close_mapping(&anon.host, &anon.region), None);
    anon.core.drain_all(&anon.host);
    assert_eq!((anon.core.used_swap_pages(), anon.stat(Counter::Anon)), (0, 0));
    assert_eq!((anon.memcg().usage_pages(), anon.stat(Counter::WorkingsetNodes)), (0, 0));
    anon.core.validate().unwrap();
}

/// Notes whether a slot is freed while the region is locked.
struct FreedUnder<'a> {
    anon: &'a Anon,
    locks: RefCell<Vec<bool>>,
}

impl Host for FreedUnder<'_> {
    fn now(&self) -> Time {
        Time::ZERO
    }

    fn wake_flusher(&self, _: FlushReason) {}

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {}

    fn frame_retired(&self, _: FolioId) {}

    fn swap_freed(&self, _: SwapSlot) {
        let is_locked = self.anon.region.try_lock(&self.anon.core.leaves, 0).is_none();
        self.locks.borrow_mut().push(is_locked);
    }
}

/// A slot may be the last thing that a removed memcg pays for. The memcg is then released, which
/// locks other mappings: no mapping may be locked meanwhile.
#[test]
fn slots_are_freed_without_the_regions_lock() {
    let anon = Anon::new(1000, SwapStore::Device);
    anon.store(0..60);
    anon.forget_accesses(0..60);
    for _ in 0..2 {
        anon.reclaim(32, EAGER);
        anon.end_writes(true);
    }
    let back = anon.swapped()[0];
    anon.touch(back, false);
    assert!(anon.flags(back).swapcache() && anon.swapped().len() > 1);
    let host = FreedUnder { anon: &anon, locks: RefCell::default() };
    let slots = anon.core.used_swap_pages() as usize;
    assert_eq!(anon.core.truncate(&host, &anon.region, 0, 512), None);
    assert_eq!(host.locks.take(), vec![false; slots]);
    anon.core.validate().unwrap();
}
