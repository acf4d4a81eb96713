//! The golden traces of spec 97 (§2 and §7, Linux 7.2) through the simulator, and that its shortcuts are only that.

use mglru_core::{Counter, Event, Time};
use mglru_sim::{Access, Machine, Operation, Report, Simulator};
use std::sync::{Arc, Mutex};

const LIMIT_PAGES: u64 = 4096;

type Channel = fn(u64) -> Access;

/// T3's pages: the smaller of two draws, 200,000 times.
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

fn t1(channel: Channel) -> Vec<Access> {
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

/// Everything that a run shows.
#[derive(Debug, PartialEq)]
struct Seen {
    report: Report,
    evicted: Vec<(u32, u64)>,
    recent: u64,
    max_seq: u64,
    min_seq: u64,
}

fn replay(machine: &Machine, trace: &[Access], set_up: impl FnOnce(&mut Simulator)) -> Seen {
    let mut simulator = Simulator::new(machine).unwrap();
    let trace = trace.to_vec();
    simulator.add_job(0, trace.into_iter().map(Operation::from));
    let seen: Arc<Mutex<(Vec<(u32, u64)>, u64)>> = Arc::default();
    let sink = seen.clone();
    simulator.observe(move |now: Time, event: &Event| match *event {
        Event::Evicted { page, .. } => sink.lock().unwrap().0.push((page.1, now.as_nanos())),
        Event::Refault { recent: true, .. } => sink.lock().unwrap().1 += 1,
        _ => {}
    });
    set_up(&mut simulator);
    let report = simulator.run().unwrap();
    let lruvec = simulator.core().memcgs().nth(1).unwrap().lruvec();
    let (max_seq, min_seq) = (lruvec.max_seq().0, lruvec.min_seq(mglru_core::Kind::File).0);
    simulator.finish().unwrap();
    let (evicted, recent) = std::mem::take(&mut *seen.lock().unwrap());
    Seen { report, evicted, recent, max_seq, min_seq }
}

/// The columns of the tables, in their order (`pgactivate` after refill).
fn row(batch_folios: usize, trace: &[Access]) -> [u64; 13] {
    let seen = replay(&Machine::ideal(LIMIT_PAGES, batch_folios), trace, |_| {});
    let total = seen.report.total();
    let get = |counter| total.counters.get(counter);
    assert_eq!(total.counts.accesses, trace.len() as u64);
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
        get(Counter::Pageoutrun),
        get(Counter::Aged),
        seen.max_seq,
        seen.min_seq,
    ]
}

/// spec 97 §4: "All rows of §2 are reproduced exactly" (scan = steal there; nothing is activated).
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
        assert_eq!(row(batch_folios, &trace), expected, "{name}, B = {batch_folios}");
    }
}

/// spec 97 §7: "All rows are reproduced exactly".
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
        assert_eq!(row(31, &trace), expected, "{name}");
    }
}
