//! The golden traces of [book: golden-traces] ([book: golden-traces#descriptor-traces] and
//! [book: golden-traces#mapped-traces]): counts of small traces on an idealised harness, computed
//! by independent models. Every row is reproduced exactly.

use crate::common::{Channel, Harness};
use mglru_core::Preset::{self, Linux71, Linux72, Linux612};
use mglru_core::{Counter, Kind, Lru, Mechanisms, Switch};

const LIMIT_PAGES: u64 = 4096;

/// The pages of T3: the smaller of two draws, 200,000 times.
fn skewed() -> impl Iterator<Item = u32> {
    let mut x = 1u64;
    let mut draw = move || {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((x >> 33) % 16384) as u32
    };
    (0..200_000).map(move |_| {
        let first = draw();
        first.min(draw())
    })
}

fn t1(channel: Channel) -> Vec<(u32, Channel)> {
    (0..6).flat_map(|_| 0..6000).map(|page| (page, channel)).collect()
}

fn t2(hot: Channel) -> Vec<(u32, Channel)> {
    let mut fresh = 2000;
    let mut trace = Vec::new();
    for _ in 0..40 {
        trace.extend((0..2000).map(|page| (page, hot)));
        trace.extend((fresh..fresh + 1500).map(|page| (page, Channel::Read)));
        fresh += 1500;
    }
    trace
}

fn t3(channel: Channel) -> Vec<(u32, Channel)> {
    skewed().map(|page| (page, channel)).collect()
}

/// Replays a trace. Returns the columns of the tables, in their order (`pgactivate` after refill).
/// The tables are of models that never trim shadows, and that of 7.1 does not stop at a goal
/// ([book: golden-traces#harness]).
fn replay(preset: Preset, batch: usize, trace: &[(u32, Channel)]) -> [u64; 13] {
    replay_with(Switch::ShadowsBySize, preset, batch, trace)
}

fn replay_with(switch: Switch, preset: Preset, batch: usize, trace: &[(u32, Channel)]) -> [u64; 13] {
    let without: &[Switch] = if preset == Linux71 { &[Switch::StopAtGoal] } else { &[] };
    let mechanisms = Mechanisms::compose(preset, &[Switch::ShadowsBySize, switch], without).unwrap();
    let mut harness = Harness::with_mechanisms(mechanisms.with_lru(Lru::MultiGen), LIMIT_PAGES, batch);
    for &(page, channel) in trace {
        harness.access(page, channel);
    }
    harness.core.validate().unwrap();
    let stat = |counter| harness.memcg().stat().get(counter);
    let lruvec = harness.memcg().lruvec();
    [
        harness.misses,
        stat(Counter::WorkingsetRefaultFile),
        harness.host.recent_refaults(),
        stat(Counter::WorkingsetActivateFile),
        stat(Counter::WorkingsetRestoreFile),
        stat(Counter::PgscanDirect),
        stat(Counter::PgstealDirect),
        stat(Counter::Pgrefill),
        stat(Counter::Pgactivate),
        stat(Counter::Efforts),
        stat(Counter::Aged),
        lruvec.max_seq().0,
        lruvec.min_seq(Kind::File).0,
    ]
}

/// [book: golden-traces#harness]: "First six draws: 14294, 857, 12492, 10982, 15194, 243".
#[test]
fn the_skewed_trace_is_the_published_one() {
    assert_eq!(skewed().take(3).collect::<Vec<_>>(), [857, 10982, 243]);
}

/// [book: golden-traces#checks]: "All rows of [book: golden-traces#descriptor-traces] are
/// reproduced exactly" (scan = steal there; nothing is activated).
#[test]
fn descriptor_reads() {
    use Channel::Read;
    let rows: [(Preset, &str, usize, Vec<_>, [u64; 13]); 18] = [
        (Linux612, "T1", 1, t1(Read), [36000, 30000, 30000, 30000, 0, 31936, 31936, 0, 0, 499, 0, 3, 1]),
        (Linux71, "T1", 1, t1(Read), [36000, 30000, 30000, 0, 0, 31958, 31958, 0, 0, 551, 0, 3, 0]),
        (Linux72, "T1", 1, t1(Read), [36000, 30000, 30000, 0, 0, 31958, 31958, 0, 0, 551, 0, 3, 0]),
        (Linux612, "T1", 31, t1(Read), [36000, 30000, 30000, 30000, 0, 31936, 31936, 0, 0, 499, 0, 3, 1]),
        (Linux71, "T1", 31, t1(Read), [36000, 30000, 30000, 0, 0, 31958, 31958, 0, 0, 551, 0, 3, 0]),
        (Linux72, "T1", 31, t1(Read), [36000, 30000, 16839, 0, 0, 31953, 31953, 0, 0, 552, 8, 11, 8]),
        (Linux612, "T2", 1, t2(Read), [63024, 1024, 1024, 1024, 0, 58944, 58944, 2000, 0, 921, 0, 3, 1]),
        (Linux71, "T2", 1, t2(Read), [62986, 986, 986, 0, 0, 58946, 58946, 2000, 0, 989, 0, 3, 0]),
        (Linux72, "T2", 1, t2(Read), [62986, 986, 986, 0, 0, 58915, 58915, 2000, 0, 1015, 0, 3, 0]),
        (Linux612, "T2", 31, t2(Read), [63024, 1024, 1024, 1024, 0, 58944, 58944, 2000, 0, 921, 0, 3, 1]),
        (Linux71, "T2", 31, t2(Read), [62986, 986, 986, 0, 0, 58946, 58946, 2000, 0, 989, 0, 3, 0]),
        (Linux72, "T2", 31, t2(Read), [89584, 27584, 23886, 0, 0, 85518, 85518, 19012, 0, 1481, 26, 29, 26]),
        (
            Linux612,
            "T3",
            1,
            t3(Read),
            [135197, 119477, 119477, 119477, 1037, 131136, 131136, 1196, 0, 2049, 0, 3, 1],
        ),
        (Linux71, "T3", 1, t3(Read), [136857, 121137, 121137, 0, 0, 132809, 132809, 249, 0, 2294, 0, 3, 0]),
        (Linux72, "T3", 1, t3(Read), [136857, 121137, 121137, 0, 0, 132809, 132809, 249, 0, 2294, 0, 3, 0]),
        (
            Linux612,
            "T3",
            31,
            t3(Read),
            [135197, 119477, 119477, 119477, 1037, 131136, 131136, 1196, 0, 2049, 0, 3, 1],
        ),
        (Linux71, "T3", 31, t3(Read), [136857, 121137, 121137, 0, 0, 132809, 132809, 249, 0, 2294, 0, 3, 0]),
        (
            Linux72,
            "T3",
            31,
            t3(Read),
            [137253, 121533, 27330, 0, 96, 133160, 133160, 300, 0, 2306, 32, 35, 33],
        ),
    ];
    for (preset, name, batch, trace, expected) in rows {
        assert_eq!(replay(preset, batch, &trace), expected, "{preset:?}, {name}, B = {batch}");
    }
}

/// [book: golden-traces#mapped-traces]: "All rows are reproduced exactly".
#[test]
fn mapped_reads() {
    use Channel::Mapped;
    let rows: [(Preset, &str, Vec<_>, [u64; 13]); 9] = [
        (
            Linux612,
            "T1",
            t1(Mapped),
            [36000, 30000, 16224, 16224, 16224, 31936, 31936, 0, 0, 499, 16, 19, 17],
        ),
        (Linux71, "T1", t1(Mapped), [36000, 30000, 16763, 16763, 0, 31916, 31916, 0, 0, 553, 16, 19, 16]),
        (
            Linux72,
            "T1",
            t1(Mapped),
            [34531, 28531, 884, 883, 883, 44763, 30492, 15113, 24043, 527, 26, 29, 26],
        ),
        (Linux612, "T2", t2(Mapped), [62000, 0, 0, 0, 0, 57920, 57920, 0, 0, 905, 0, 3, 1]),
        (Linux71, "T2", t2(Mapped), [62000, 0, 0, 0, 0, 57942, 57942, 0, 0, 999, 0, 3, 0]),
        (Linux72, "T2", t2(Mapped), [62000, 0, 0, 0, 0, 57960, 57960, 28013, 0, 1006, 28, 31, 28]),
        (
            Linux612,
            "T3",
            t3(Mapped),
            [136115, 120395, 22034, 22034, 22034, 146090, 132079, 0, 14783, 2278, 80, 83, 81],
        ),
        (
            Linux71,
            "T3",
            t3(Mapped),
            [135440, 119720, 10678, 10678, 3781, 143743, 131348, 34742, 26853, 2638, 96, 99, 96],
        ),
        (
            Linux72,
            "T3",
            t3(Mapped),
            [135083, 119363, 7929, 4349, 4349, 152790, 131035, 137175, 124543, 2610, 134, 137, 134],
        ),
    ];
    for (preset, name, trace, expected) in rows {
        assert_eq!(replay(preset, 31, &trace), expected, "{preset:?}, {name}");
    }
}

/// [book: golden-traces#checks]: "Prefetching changes no number".
#[test]
fn prefetching_changes_no_number() {
    for trace in [t3(Channel::Read), t3(Channel::Mapped)] {
        let plain = replay(Linux72, 31, &trace);
        for switch in [Switch::PrefetchNext, Switch::Prefetch] {
            assert_eq!(replay_with(switch, Linux72, 31, &trace), plain, "{}", switch.name());
        }
    }
}

/// Replays a trace under the classic LRU, with statistics refreshed after every `refreshed_every`
/// reads, or exact. Calls `seen` after each access.
fn run_classic(
    batch: usize,
    refreshed_every: Option<usize>,
    trace: &[(u32, Channel)],
    mut seen: impl FnMut(&Harness),
) -> Harness {
    let exact = [Switch::ExactStatistics];
    let without: &[Switch] = if refreshed_every.is_none() { &[] } else { &exact };
    let mechanisms = Mechanisms::compose(Preset::Default, &[], without).unwrap().with_lru(Lru::Classic);
    let mut harness = Harness::with_mechanisms(mechanisms, LIMIT_PAGES, batch);
    for (at, &(page, channel)) in trace.iter().enumerate() {
        harness.access(page, channel);
        seen(&harness);
        if refreshed_every.is_some_and(|every| (at + 1).is_multiple_of(every)) {
            harness.core.refresh_statistics();
        }
    }
    harness.core.validate().unwrap();
    harness
}

/// The columns of the table: misses; refaults; activated, restored; scanned, stolen; refilled,
/// deactivated; `pgactivate`; efforts; priority rounds; the clock; pages on the inactive and the
/// active list, and queued.
fn replay_classic(batch: usize, refreshed_every: Option<usize>, trace: &[(u32, Channel)]) -> [u64; 15] {
    let harness = run_classic(batch, refreshed_every, trace, |_| ());
    let memcg = harness.memcg();
    let stat = |counter| memcg.stat().get(counter);
    let lruvec = memcg.lruvec();
    let [inactive, active] = [lruvec.inactive_pages(Kind::File), lruvec.active_pages(Kind::File)];
    let efforts = harness.host.efforts();
    [
        harness.misses,
        stat(Counter::WorkingsetRefaultFile),
        stat(Counter::WorkingsetActivateFile),
        stat(Counter::WorkingsetRestoreFile),
        stat(Counter::PgscanDirect),
        stat(Counter::PgstealDirect),
        stat(Counter::Pgrefill),
        stat(Counter::Pgdeactivate),
        stat(Counter::Pgactivate),
        stat(Counter::Efforts),
        efforts.iter().map(|effort| 13 - u64::from(effort.priority)).sum(),
        lruvec.nonresident_age(),
        inactive,
        active,
        memcg.usage_pages() - inactive - active,
    ]
}

/// [book: golden-traces#classic-traces]: "All rows are reproduced exactly". There, scanned equals
/// stolen, and refilled equals deactivated.
#[test]
fn descriptor_reads_of_the_classic_lru() {
    let (t1, t2, t3) = (t1(Channel::Read), t2(Channel::Read), t3(Channel::Read));
    // misses, refaults, activate, restore, steal, refill, pgactivate, efforts, rounds, clock,
    // inactive, active, queued
    type Row<'a> = (&'a str, &'a [(u32, Channel)], usize, Option<usize>, [u64; 13]);
    let rows: [Row; 14] = [
        ("T1", &t1, 1, None, [36000, 30000, 0, 0, 31958, 0, 0, 551, 3306, 31958, 4042, 0, 0]),
        ("T1", &t1, 1, Some(1000), [36000, 30000, 0, 0, 31958, 0, 0, 551, 3306, 31958, 4042, 0, 0]),
        ("T1", &t1, 31, None, [36000, 30000, 0, 0, 31920, 0, 0, 560, 3360, 31920, 4070, 0, 10]),
        ("T1", &t1, 31, Some(1000), [36000, 30000, 0, 0, 31920, 0, 0, 560, 3360, 31920, 4070, 0, 10]),
        ("T1", &t1, 31, Some(10_000), [36000, 30000, 0, 0, 31920, 0, 0, 560, 3360, 31920, 4070, 0, 10]),
        ("T2", &t2, 1, None, [62000, 0, 0, 0, 57960, 0, 2000, 920, 6440, 59960, 2040, 2000, 0]),
        ("T2", &t2, 1, Some(1000), [62000, 0, 0, 0, 57960, 0, 2000, 920, 6440, 59960, 2040, 2000, 0]),
        ("T2", &t2, 31, None, [62000, 0, 0, 0, 57960, 0, 2000, 920, 6440, 59960, 2033, 2000, 7]),
        ("T2", &t2, 31, Some(1000), [62000, 0, 0, 0, 57960, 0, 2000, 920, 6440, 59960, 2033, 2000, 7]),
        ("T2", &t2, 31, Some(10_000), [62000, 0, 0, 0, 57960, 0, 2000, 920, 6440, 59960, 2033, 2000, 7]),
        (
            "T3",
            &t3,
            1,
            None,
            [134591, 118871, 11876, 4115, 130534, 49041, 38326, 3176, 19056, 180736, 2896, 1161, 0],
        ),
        (
            "T3",
            &t3,
            31,
            None,
            [134571, 118851, 11812, 4100, 130480, 48945, 38133, 3175, 19050, 180616, 2910, 1176, 5],
        ),
        (
            "T3",
            &t3,
            31,
            Some(1000),
            [133670, 117950, 19311, 6764, 129605, 47125, 29649, 2799, 18184, 178757, 2045, 2019, 1],
        ),
        (
            "T3",
            &t3,
            31,
            Some(10_000),
            [133238, 117518, 22305, 7961, 129157, 46195, 27095, 3173, 20855, 178731, 681, 3375, 25],
        ),
    ];
    for (name, trace, batch, refreshed_every, expected) in rows {
        let [misses, refaults, activate, restore, steal, refill, pgactivate, rest @ ..] = expected;
        let [efforts, rounds, clock, inactive, active, queued] = rest;
        assert_eq!(
            replay_classic(batch, refreshed_every, trace),
            [
                misses, refaults, activate, restore, steal, steal, refill, refill, pgactivate, efforts,
                rounds, clock, inactive, active, queued
            ],
            "{name}, B = {batch}, S = {refreshed_every:?}"
        );
    }
}

/// [book: golden-traces#classic-traces]: "with S = 10,000, deactivation happens in T3 in long
/// uninterrupted spells": the verdict changes at most twice per refresh.
#[test]
fn late_statistics_make_spells_of_deactivation() {
    let changes = |refreshed_every| {
        let (mut known, mut spells) = ([0, 0], Vec::new());
        run_classic(31, refreshed_every, &t3(Channel::Read), |harness| {
            let now = [Counter::Efforts, Counter::Pgdeactivate].map(|counter| harness.stat(counter));
            if now[0] > known[0] {
                spells.push(now[1] > known[1]);
                known = now;
            }
        });
        spells.dedup();
        spells.len()
    };
    let (late, exact) = (changes(Some(10_000)), changes(None));
    assert!((5..=2 * 20).contains(&late) && exact > 5 * late, "{late}, {exact}");
}

/// [book: golden-traces#checks]: "First effort of T1, B = 1: 7.2 frees 58 in 6 priority rounds;
/// 6.12 frees 64 in 2"; [book: golden-traces#by-hand] computes it by hand.
#[test]
fn the_first_effort_by_hand() {
    for (preset, expected) in [(Linux72, (58, 7)), (Linux612, (64, 11))] {
        let mut harness = Harness::with_preset(preset, LIMIT_PAGES, 1);
        (0..4096).for_each(|page| harness.access(page, Channel::Read));
        assert_eq!(harness.host.efforts(), []);
        harness.access(4096, Channel::Read);
        let efforts = harness.host.efforts();
        assert_eq!(efforts.len(), 1);
        assert_eq!((efforts[0].reclaimed, efforts[0].priority), expected, "priorities from 12 are rounds");
    }
}

/// [book: golden-traces#checks]: "Splitting the trace over two threads with a global lock around
/// read() changes no number".
#[test]
fn two_threads_with_a_lock_change_nothing() {
    let harness = std::sync::Mutex::new((Harness::new(LIMIT_PAGES, 31), 0usize));
    let trace = t3(Channel::Read);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let mut guard = harness.lock().unwrap();
                    let (harness, next) = &mut *guard;
                    let Some(&(page, channel)) = trace.get(*next) else { return };
                    *next += 1;
                    harness.access(page, channel);
                }
            });
        }
    });
    let harness = harness.into_inner().unwrap().0;
    assert_eq!(harness.misses, 137253);
    assert_eq!(harness.memcg().stat().get(Counter::PgstealDirect), 133160);
}
