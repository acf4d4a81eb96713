//! The golden traces of [book: golden-traces] ([book: golden-traces#descriptor-traces] and
//! [book: golden-traces#mapped-traces], Linux 7.2) in the simulator, and the equivalence of its
//! shortcuts.

use mglru_core::{Core, Counter, Event, Mechanisms, Options, Preset, Time};
use mglru_sim::{Access, Machine, Numbering, Operation, Report, Simulator};
use std::sync::{Arc, Mutex};

const LIMIT_PAGES: u64 = 4096;

type Channel = fn(u64) -> Access;

/// The pages of trace T3: the smaller of two draws, 200,000 times.
fn skewed() -> impl Iterator<Item = u64> {
    let mut x = 1u64;
    let mut draw = move || {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 33) % 16384
    };
    (0..200_000).map(move |_| {
        let first = draw();
        first.min(draw())
    })
}

fn t1(channel: impl Fn(u64) -> Access) -> Vec<Access> {
    (0..6).flat_map(|_| 0..6000).map(channel).collect()
}

fn t2(hot: Channel) -> Vec<Access> {
    let mut trace = Vec::new();
    for round in 0..40 {
        let fresh = 2000 + 1500 * round;
        trace.extend((0..2000).map(hot));
        trace.extend((fresh..fresh + 1500).map(Access::read));
    }
    trace
}

fn t3(channel: Channel) -> Vec<Access> {
    skewed().map(channel).collect()
}

/// All observable results of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    report: Report,
    evicted: Vec<(u32, u64)>,
    recent: u64,
    max_seq: u64,
    min_seq: u64,
}

fn replay<O>(machine: &Machine, trace: Vec<O>, set_up: impl FnOnce(&mut Simulator)) -> Seen
where
    O: Into<Operation> + 'static,
{
    let mut simulator = Simulator::new(machine).unwrap();
    simulator.add_job(0, trace.into_iter().map(Into::into));
    let seen = Arc::new(Mutex::new((Vec::<(u32, u64)>::new(), 0u64)));
    let sink = seen.clone();
    simulator.observe(move |now: Time, event: &Event| match *event {
        Event::Evicted { page, .. } => sink.lock().unwrap().0.push((page.1, now.as_nanos())),
        Event::Refault { recent: true, .. } => sink.lock().unwrap().1 += 1,
        _ => {}
    });
    set_up(&mut simulator);
    let report = simulator.run().unwrap();
    let lruvec = simulator.core().memcgs().iter().nth(1).unwrap().lruvec();
    let (max_seq, min_seq) = (lruvec.max_seq().0, lruvec.min_seq(mglru_core::Kind::File).0);
    simulator.finish().unwrap();
    let (evicted, recent) = std::mem::take(&mut *seen.lock().unwrap());
    Seen { report, evicted, recent, max_seq, min_seq }
}

/// The columns of the tables, in order (`pgactivate` after refill).
fn row(batch_folios: usize, trace: Vec<Access>) -> [u64; 13] {
    let accesses = trace.len() as u64;
    let mut machine = Machine::ideal(LIMIT_PAGES, batch_folios);
    machine.mechanisms = machine.mechanisms.with_lru(mglru_core::Lru::MultiGen);
    let seen = replay(&machine, trace, |_| {});
    let total = seen.report.total();
    let get = |counter| total.counters.get(counter);
    assert_eq!(total.counts.accesses, accesses);
    assert_eq!(seen.report.now, Time::ZERO, "nothing takes time");
    [
        total.counts.misses,
        get(Counter::WorkingsetRefaultFile),
        seen.recent,
        get(Counter::WorkingsetActivateFile),
        get(Counter::WorkingsetRestoreFile),
        total.counters.pgscan(),
        total.counters.pgsteal(),
        get(Counter::Pgrefill),
        get(Counter::Pgactivate),
        get(Counter::Efforts),
        get(Counter::Aged),
        seen.max_seq,
        seen.min_seq,
    ]
}

/// [book: golden-traces#checks]: "All rows of [book: golden-traces#descriptor-traces] are
/// reproduced exactly" (scan = steal there; nothing is activated).
#[test]
fn descriptor_reads() {
    let read: Channel = Access::read;
    let rows: [(&str, usize, Vec<_>, [u64; 13]); 6] = [
        ("T1", 1, t1(read), [36000, 30000, 30000, 0, 0, 31958, 31958, 0, 0, 551, 0, 3, 0]),
        ("T1", 31, t1(read), [36000, 30000, 16839, 0, 0, 31953, 31953, 0, 0, 552, 8, 11, 8]),
        ("T2", 1, t2(read), [62986, 986, 986, 0, 0, 58915, 58915, 2000, 0, 1015, 0, 3, 0]),
        ("T2", 31, t2(read), [89584, 27584, 23886, 0, 0, 85518, 85518, 19012, 0, 1481, 26, 29, 26]),
        ("T3", 1, t3(read), [136857, 121137, 121137, 0, 0, 132809, 132809, 249, 0, 2294, 0, 3, 0]),
        ("T3", 31, t3(read), [137253, 121533, 27330, 0, 96, 133160, 133160, 300, 0, 2306, 32, 35, 33]),
    ];
    for (name, batch_folios, trace, expected) in rows {
        assert_eq!(row(batch_folios, trace), expected, "{name}, B = {batch_folios}");
    }
}

/// [book: golden-traces#mapped-traces]: "All rows are reproduced exactly".
#[test]
fn mapped_reads() {
    let load: Channel = Access::load;
    let rows: [(&str, Vec<_>, [u64; 13]); 3] = [
        ("T1", t1(load), [34531, 28531, 884, 883, 883, 44763, 30492, 15113, 24043, 527, 26, 29, 26]),
        ("T2", t2(load), [62000, 0, 0, 0, 0, 57960, 57960, 28013, 0, 1006, 28, 31, 28]),
        (
            "T3",
            t3(load),
            [135083, 119363, 7929, 4349, 4349, 152790, 131035, 137175, 124543, 2610, 134, 137, 134],
        ),
    ];
    for (name, trace, expected) in rows {
        assert_eq!(row(31, trace), expected, "{name}");
    }
}

/// A mixed trace: reads, writes, loads, stores over three files, syncs, truncations, advice.
fn mixed() -> Vec<Operation> {
    let mut random = mglru_workload::Random::new(11);
    (0..60_000u64)
        .map(|_| {
            let page = random.below(3) << 32 | random.below(4000).min(random.below(4000));
            match random.below(1000) {
                0 => Operation::Sync { page },
                1 => Operation::Truncate { page: page | 2048 },
                2 => Operation::Discard { page, pages: 50 },
                3..300 => Access::write(page).into(),
                300..500 => Access::load(page).into(),
                500..550 => Access::store(page).into(),
                _ => Access::read(page).into(),
            }
        })
        .collect()
}

/// Machines that together use every feature.
fn machines() -> Vec<Machine> {
    let mut short = Machine::new(2048);
    short.tenants[0].max_pages = 1900;
    let mut slow = Machine::kernel_lab(1500);
    slow.writes = mglru_sim::Writes::Overwrite;
    slow.batch_time = std::time::Duration::from_micros(3);
    let mut instant = Machine::ideal(1500, 31);
    instant.flusher = short.flusher;
    vec![Machine::kernel_lab(1500), instant, short, slow]
}

/// Neither the shortcuts nor the checker change anything: the same pages are evicted at the same
/// times.
#[test]
fn the_fast_path_is_only_faster() {
    for (number, machine) in machines().iter().enumerate() {
        let fast = replay(machine, mixed(), |_| {});
        assert!(fast.evicted.len() > 5000, "machine {number}: {} evictions", fast.evicted.len());
        let slow = replay(machine, mixed(), |simulator| simulator.set_shortcuts(false));
        assert!(fast == slow, "machine {number}: without shortcuts {slow:#?}, with {fast:#?}");
        let checked = replay(machine, mixed(), |simulator| simulator.check_every(997));
        assert!(fast == checked, "machine {number}: checked {checked:#?}, unchecked {fast:#?}");
    }
}

/// The same seed gives the same report; with several jobs, another seed gives another report.
#[test]
fn a_seed_repeats() {
    let run = |seed| {
        let mut machine = Machine { seed, ..Machine::new(2048) };
        machine.interleaving = mglru_sim::Interleaving::Seeded;
        let mut simulator = Simulator::new(&machine).unwrap();
        for job in 0..3 {
            simulator.add_job(0, mixed().into_iter().skip(job * 1000).take(20_000));
        }
        simulator.run().unwrap()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Counts from the warm point equal the difference between two runs.
#[test]
fn counts_from_the_warm_point_are_differences() {
    let machine = Machine::kernel_lab(1500);
    let trace = t3(Access::read);
    let whole = replay(&machine, trace.clone(), |simulator| simulator.set_warm_from(50_000));
    let half = replay(&machine, trace[..50_000].to_vec(), |_| {});
    let expected = whole.report.total().since(&half.report.total());
    assert_eq!(whole.report.warm_from, Some(50_000));
    assert_eq!(whole.report.warm(), Some(expected));
    assert_eq!(expected.counts.accesses, 150_000);
}

/// Opaque keys become positions in the order of first access, whatever their values.
#[test]
fn keys_stand_for_positions() {
    let machine = Machine { numbering: Numbering::Keys, ..Machine::ideal(LIMIT_PAGES, 31) };
    let scattered = |page: u64| Access::read(page.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17));
    let keys = replay(&machine, t1(scattered), |_| {});
    let files = replay(&Machine::ideal(LIMIT_PAGES, 31), t1(Access::read), |_| {});
    assert_eq!(keys, files, "a cycle from page 0 on touches positions in order");
}

/// Keys that were never used lie between some of those that were, and after them.
#[test]
fn a_punch_drops_a_range_of_keys_as_it_drops_pages_of_a_file() {
    let operations = || {
        let reads = |pages: &mut dyn Iterator<Item = u64>| -> Vec<Operation> {
            pages.map(|page| Access::read(page).into()).collect()
        };
        let punches = [(10, 5), (15, 15), (1000, u32::MAX), (60, 1)];
        let punches = punches.map(|(page, pages)| Operation::Punch { page, pages });
        let (before, after) = (reads(&mut (0..100).rev().step_by(2)), reads(&mut (0..100)));
        before.into_iter().chain(punches).chain(after)
    };
    for numbering in [Numbering::Files, Numbering::Keys] {
        let machine = Machine { numbering, ..Machine::ideal(LIMIT_PAGES, 31) };
        let mut simulator = Simulator::new(&machine).unwrap();
        simulator.check_every(1);
        simulator.add_job(0, operations());
        let counts = simulator.run().unwrap().total().counts;
        // Of 50 odd pages, 10 are dropped; 50 even ones are new.
        assert_eq!((counts.misses, counts.hits), (50 + 60, 40), "{numbering:?}");
    }
}

/// As soon as the process has a node that several threads may use, steps of words are atomic, in
/// simulators, too. Nothing else changes.
#[test]
fn a_node_of_many_threads_beside_changes_nothing() {
    let of_all = || {
        [Preset::Default, Preset::Linux72, Preset::Linux612].map(|preset| {
            let machine =
                Machine { mechanisms: Mechanisms::preset(preset), ..Machine::kernel_lab(LIMIT_PAGES) };
            let write_some = |page| if page % 5 == 0 { Access::write(page) } else { Access::read(page) };
            replay(&machine, t3(write_some), |_| {})
        })
    };
    let alone = of_all();
    std::thread::scope(|scope| {
        // Simulators that are running may see it at any of their steps.
        let beside = [(); 2].map(|()| scope.spawn(of_all));
        let _node = Core::new(Options::new(64), Time::ZERO);
        for running in beside {
            assert_eq!(running.join().unwrap(), alone);
        }
    });
    assert_eq!(of_all(), alone);
}
