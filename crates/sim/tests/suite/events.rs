//! Events of individual folios form a possible history, agree with the report's counts, and do not
//! change the run.

use mglru_core::event::{Event, List, ListedFrom, Sorted};
use mglru_core::pageout::Verdict;
use mglru_core::{Counter, FolioId, Lru, Mechanisms, Preset, Switch, Time};
use mglru_sim::{Access, Machine, Observer, Operation, PageTouch, Report, Simulator, SwapDevice, SwapModel};
use mglru_workload::Random;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// State of a folio according to the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Inserted,
    Listed,
    Isolated,
    Doomed,
}

#[derive(Default)]
struct Story {
    folios: BTreeMap<u32, State>,
    counts: BTreeMap<&'static str, u64>,
    touches: [u64; 2],
    youngest: u64,
}

impl Story {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn goes(&mut self, folio: u32, from: &[State], to: State) {
        let before = self.folios.insert(folio, to);
        assert!(before.is_some_and(|state| from.contains(&state)), "folio {folio}: {before:?} to {to:?}");
    }

    fn is_live(&self, seq: u64) {
        assert!(
            (self.youngest.saturating_sub(3)..=self.youngest).contains(&seq),
            "{seq} of {}",
            self.youngest
        );
    }

    fn event(&mut self, event: &Event) {
        use State::{Doomed, Inserted, Isolated, Listed};
        match *event {
            Event::Inserted { folio, .. } => {
                self.folios.insert(folio.0, Inserted);
                self.count("inserted");
            }
            Event::Listed { folio, list, from, .. } => {
                if let List::Generation(seq) = list {
                    self.is_live(seq);
                }
                match from {
                    ListedFrom::Arrivals => self.goes(folio.0, &[Inserted], Listed),
                    ListedFrom::Isolation => self.goes(folio.0, &[Isolated, Doomed], Listed),
                    ListedFrom::Rotation => {
                        self.count("rotated");
                        self.goes(folio.0, &[Listed], Listed);
                    }
                    ListedFrom::Activation => {
                        self.count("activated");
                        self.goes(folio.0, &[Listed], Listed);
                    }
                    ListedFrom::Deactivation => self.goes(folio.0, &[Listed], Listed),
                }
            }
            Event::Promoted { folio, seq, .. } => {
                assert_eq!(seq, self.youngest);
                self.count("promoted");
                assert!(self.folios.contains_key(&folio.0));
            }
            Event::Sorted { folio, seq, why, .. } => {
                self.is_live(seq);
                self.count("sorted");
                if matches!(why, Sorted::Protected(_) | Sorted::Saturated) {
                    self.count("protected");
                }
                self.goes(folio.0, &[Listed], Listed);
            }
            Event::Isolated { folio, .. } => {
                self.count("isolated");
                self.goes(folio.0, &[Listed], Isolated);
            }
            Event::Judged { folio, verdict } => {
                let to = if verdict == Verdict::Free { Doomed } else { Isolated };
                self.goes(folio.0, &[Isolated, Doomed], to);
            }
            Event::Evicted { folio, .. } => {
                self.count("evicted");
                let before = self.folios.remove(&folio.0);
                assert_eq!(before, Some(Doomed), "folio {folio:?} was evicted");
            }
            Event::Aged { max_seq, .. } => {
                assert_eq!(max_seq, self.youngest + 1);
                self.youngest = max_seq;
                self.count("aged");
            }
            _ => {}
        }
    }
}

struct Reader(Rc<RefCell<Story>>);

impl Observer for Reader {
    fn event(&mut self, _: Time, event: &Event) {
        self.0.borrow_mut().event(event);
    }

    fn touch(&mut self, _: Time, touch: &PageTouch) {
        self.0.borrow_mut().touches[usize::from(touch.hit)] += 1;
    }

    fn sees_folios(&self) -> bool {
        true
    }
}

fn operations(seed: u64, anon: bool) -> Vec<Operation> {
    let mut random = Random::new(seed);
    (0..30_000)
        .map(|n| {
            let page = random.below(400).min(random.below(400));
            let access = match random.below(10) {
                0 => Access::write(page),
                1 | 2 => Access::load(page),
                3 | 4 if anon => Access::store(page).anon(),
                5 if n % 7 == 0 => return Operation::Sync { page },
                _ => Access::read(page),
            };
            access.into()
        })
        .collect()
}

fn run(machine: &Machine, seed: u64, observer: Option<Reader>) -> Report {
    let anon = machine.swap.is_some();
    let mut simulator = Simulator::new(machine).unwrap();
    if let Some(observer) = observer {
        simulator.observe(observer);
    }
    for job in 0..2 {
        simulator.add_job(0, operations(seed * 2 + job, anon).into_iter());
    }
    simulator.run().unwrap()
}

#[test]
fn events_are_consistent_and_change_no_result() {
    for seed in 0..8 {
        let classic = seed >= 4;
        let mut machine = Machine::kernel_lab(200);
        machine.seed = seed;
        let lru = if classic { Lru::Classic } else { Lru::MultiGen };
        machine.mechanisms = machine.mechanisms.with_lru(lru);
        if seed % 2 == 1 {
            machine.swap = Some(SwapModel { pages: 1000, device: SwapDevice::zram() });
        }
        let story = Rc::new(RefCell::new(Story { youngest: 3, ..Story::default() }));
        let report = run(&machine, seed, Some(Reader(story.clone())));
        assert_eq!(report, run(&machine, seed, None), "seed {seed}");
        let story = story.borrow();
        let total = report.total();
        let events = |what| story.counts.get(what).copied().unwrap_or(0);
        let counts = total.counts;
        assert_eq!(story.touches.iter().sum::<u64>(), counts.accesses, "seed {seed}");
        assert_eq!(story.touches[0], counts.misses);
        assert_eq!(events("evicted"), total.counters.pgsteal());
        let refilled = total.counters.get(Counter::Pgrefill);
        // The classic LRU isolates active pages, too, and counts them as refilled; the other
        // policies sort them.
        let isolated = total.counters.pgscan() + if classic { refilled } else { 0 };
        assert_eq!(events("isolated"), isolated);
        assert_eq!(events("sorted"), if classic { 0 } else { refilled });
        assert_eq!(events("rotated"), total.counters.get(Counter::Pgrotated));
        assert_eq!(events("aged"), total.counters.get(Counter::Aged));
        assert!(events("protected") >= total.counters.get(Counter::Pgprotected));
        // If both jobs miss a page, one of them finds it inserted by the other.
        let brought = events("inserted");
        assert!(
            (events("evicted")..=counts.misses + counts.zero_fills).contains(&brought),
            "{brought}: {counts:?}"
        );
        let used = if classic { "activated" } else { "promoted" };
        assert!(events(used) > 0 && events("evicted") > 1000, "{used}: {:?}", story.counts);
    }
}

/// Records all events as text.
struct Words(Rc<RefCell<Vec<String>>>);

impl Observer for Words {
    fn event(&mut self, now: Time, event: &Event) {
        self.0.borrow_mut().push(format!("{now:?} {event:?}"));
    }

    fn touch(&mut self, _: Time, _: &PageTouch) {}

    fn sees_folios(&self) -> bool {
        true
    }
}

/// [book: eviction#prefetch]: prefetching "must not change any order or decision".
#[test]
fn prefetching_changes_no_event() {
    for seed in 0..8 {
        let lru = Lru::ALL[seed as usize % 2];
        let [with, without] =
            [(&[Switch::Prefetch][..], &[][..]), (&[], &[Switch::Prefetch])].map(|(with, without)| {
                let preset = Preset::ALL[seed as usize / 2];
                let mut machine = Machine::kernel_lab(200);
                machine.seed = seed;
                machine.mechanisms = Mechanisms::compose(preset, with, without).unwrap().with_lru(lru);
                machine.swap = Some(SwapModel { pages: 1000, device: SwapDevice::zram() });
                let words = Rc::new(RefCell::new(Vec::new()));
                let mut simulator = Simulator::new(&machine).unwrap();
                simulator.observe(Words(words.clone()));
                (0..2).for_each(|job| _ = simulator.add_job(0, operations(seed * 2 + job, true).into_iter()));
                let counters = simulator.run().unwrap().total().counters;
                (counters, words.take())
            });
        assert!(with.1.len() > 50_000, "seed {seed}: {} events", with.1.len());
        assert!(with == without, "seed {seed}: prefetching changed the events");
    }
}

/// Generations between the youngest one and that of each returning page as it is first listed.
#[derive(Default)]
struct Returns {
    youngest: u64,
    returning: BTreeSet<FolioId>,
    distances: Vec<u64>,
}

struct ReturnsSeen(Rc<RefCell<Returns>>);

impl Observer for ReturnsSeen {
    fn event(&mut self, _: Time, event: &Event) {
        let mut seen = self.0.borrow_mut();
        match *event {
            Event::Aged { max_seq, .. } => seen.youngest = max_seq,
            Event::Refault { folio, .. } => _ = seen.returning.insert(folio),
            Event::Listed { folio, list: List::Generation(seq), from: ListedFrom::Arrivals, .. }
                if seen.returning.remove(&folio) =>
            {
                let distance = seen.youngest - seq;
                seen.distances.push(distance);
            }
            _ => {}
        }
    }

    fn sees_folios(&self) -> bool {
        true
    }
}

/// [book: fidelity#fidelity-store-drains]: a page that a store brings back is listed while it has
/// its slot, and so as third youngest. One that a load brings back has lost its slot when its batch
/// is full, unless it fills the batch.
#[test]
fn a_store_lists_the_page_that_it_brings_back() {
    let distances = |store: bool| {
        let machine = Machine {
            mechanisms: Mechanisms::preset(Preset::Linux72),
            swap: Some(SwapModel { pages: 1000, device: SwapDevice::zram() }),
            ..Machine::kernel_lab(1000)
        };
        let seen = Rc::new(RefCell::new(Returns { youngest: 3, ..Returns::default() }));
        let mut simulator = Simulator::new(&machine).unwrap();
        simulator.observe(ReturnsSeen(seen.clone()));
        let fill = (0..1500).map(|page| Access::store(page).anon());
        let back =
            (0..250).map(move |page| if store { Access::store(page) } else { Access::load(page) }.anon());
        simulator.add_job(0, fill.chain(back).map(Operation::from));
        simulator.run().unwrap();
        let distances = std::mem::take(&mut seen.borrow_mut().distances);
        let at = |distance| distances.iter().filter(|&&of| of == distance).count();
        // Hot ones are the youngest at once.
        [at(1), at(2)]
    };
    let [second, third] = distances(true);
    assert!(second == 0 && third > 100, "{second}, {third}");
    let [second, third] = distances(false);
    assert!(second > 100 && third < 20, "{second}, {third}");
}
