//! The checklist of [book: control-files#checks], and the writes that kernels refuse.

use super::*;
use crate::lru::Swappiness;
use crate::reclaim::EffortKind;
use crate::testing::Harness;
use crate::{ChargeStep, Charging, Counter, Lru, UNLIMITED};
use std::time::Duration;

/// Writes a value and steps to the end.
fn write(harness: &Harness, path: &str, value: &str) -> Result<(), ControlError> {
    let mut write = harness.core.write_control(path, value, 0)?;
    while write.step(&harness.core, &harness.host)? != ControlStep::Done {}
    Ok(())
}

fn read(harness: &Harness, path: &str) -> String {
    harness.core.read_control(path, crate::Host::now(&harness.host)).unwrap()
}

fn errno<T: std::fmt::Debug>(result: Result<T, ControlError>) -> &'static str {
    result.unwrap_err().errno.name()
}

fn line(text: &str, key: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {key} in {text}")).parse().unwrap()
}

/// [book: control-files#checks]: "`enabled`: writing `y` then `5` reads `0x0007` then `0x0005`".
/// [book: control-files#lru-gen-switches]: unsupported bits read back as 0.
#[test]
fn bits_of_enabled_are_kept() {
    let harness = Harness::new(100, 31);
    for (value, text) in
        [("y", "0x0007\n"), ("5", "0x0005\n"), ("0x3\n", "0x0003\n"), ("1", "0x0001\n"), ("0xff", "0x0007\n")]
    {
        write(&harness, "lru_gen/enabled", value).unwrap();
        assert_eq!(read(&harness, "lru_gen/enabled"), text);
    }
    assert_eq!(errno(write(&harness, "lru_gen/enabled", "what")), "EINVAL");
    assert_eq!(read(&harness, "lru_gen/enabled"), "0x0007\n");
    write(&harness, "lru_gen/min_ttl_ms", "1000\n").unwrap();
    assert_eq!(read(&harness, "lru_gen/min_ttl_ms"), "1000\n");
    write(&harness, "lru_gen/min_ttl_ms", "0xffffffff").unwrap();
    assert_eq!(read(&harness, "lru_gen/min_ttl_ms"), "4294967295\n");
    for wrong in ["-1", "5x", "4294967296", "99999999999999999999"] {
        assert_eq!(errno(write(&harness, "lru_gen/min_ttl_ms", wrong)), "EINVAL");
        assert_eq!(errno(write(&harness, "lru_gen/enabled", wrong)), "EINVAL");
    }
    assert_eq!(read(&harness, "lru_gen/enabled"), "0x0007\n");
}

/// [book: control-files#lru-gen-switches]: bit 0 is the main switch. Folios move in bounded steps,
/// and other work goes on in between ([book: classic-lru#switching]).
#[test]
fn the_main_bit_of_enabled_switches_the_policy() {
    let mut harness = Harness::new(10_000, 31);
    harness.read_all(0..9000);
    harness.drain();
    let file = "lru_gen/enabled";
    let mut off = harness.core.write_control(file, "n", 0).unwrap();
    assert_eq!(
        (harness.core.lru(), read(&harness, file).as_str()),
        (Lru::Classic, "0x0000\n"),
        "for new pages"
    );
    let mut steps = 1;
    while off.step(&harness.core, &harness.host).unwrap() == ControlStep::More {
        steps += 1;
        let base = 10_000 * steps;
        harness.read_all(base..base + 100);
        harness.core.validate().unwrap();
        assert!(harness.effort(EffortKind::Limit, 32).reclaimed >= 32, "reclaim finds pages all the time");
    }
    assert!(steps > 9000 / 4096, "{steps}");
    assert_eq!(harness.sizes().iter().sum::<u64>(), 0, "no generation has any");
    harness.core.validate().unwrap();

    // Back on, with walks of entries only; a write of "off" takes over; then on again.
    let step = |write: &mut ControlWrite| write.step(&harness.core, &harness.host).unwrap();
    let mut on = harness.core.write_control(file, "3", 0).unwrap();
    assert_eq!((step(&mut on), read(&harness, file).as_str()), (ControlStep::More, "0x0003\n"));
    let mut off = harness.core.write_control(file, "2", 0).unwrap();
    assert_eq!((step(&mut on), step(&mut off)), (ControlStep::Done, ControlStep::More));
    assert_eq!((harness.core.lru(), read(&harness, file).as_str()), (Lru::Classic, "0x0002\n"));
    off.cancel(&harness.core, &harness.host);
    write(&harness, file, "y").unwrap();
    assert_eq!((harness.core.lru(), read(&harness, file).as_str()), (Lru::MultiGen, "0x0007\n"));
    let lruvec = harness.memcg().lruvec();
    assert_eq!(harness.sizes().iter().sum::<u64>(), lruvec.evictable_pages(Swappiness::FILE_ONLY));
    harness.core.validate().unwrap();
    // Nothing is left to do.
    let mut again = harness.core.write_control(file, "y", 0).unwrap();
    assert_eq!(step(&mut again), ControlStep::Done);
}

/// The kernel's bits choose between its two policies; the name of a policy chooses any. The walks'
/// bits stay as they were.
#[test]
fn the_name_of_a_policy_switches_to_it() {
    let mechanisms = crate::Mechanisms::default();
    let mut harness = Harness::with_mechanisms(mechanisms, 1000, 1);
    harness.read_all(0..900);
    let file = "lru_gen/enabled";
    assert_eq!((harness.core.lru(), read(&harness, file).as_str()), (Lru::Ranked, "0x0006\n"));
    for (word, lru, text) in [
        ("multigen", Lru::MultiGen, "0x0007\n"),
        ("ranked\n", Lru::Ranked, "0x0006\n"),
        ("3", Lru::MultiGen, "0x0003\n"),
        ("classic", Lru::Classic, "0x0002\n"),
        ("ranked", Lru::Ranked, "0x0002\n"),
    ] {
        write(&harness, file, word).unwrap();
        assert_eq!((harness.core.lru(), read(&harness, file).as_str()), (lru, text), "{word}");
        harness.core.validate().unwrap();
    }
    assert_eq!(errno(write(&harness, file, "rank")), "EINVAL");
    let lists = harness.memcg().lruvec();
    assert_eq!(lists.evictable_pages(Swappiness::FILE_ONLY), 900);
}

/// [book: control-files#lru-gen-switches]: bit 1, accessed bits of entries; bit 2, those of tables,
/// without which all tables of the filter are walked.
#[test]
fn bits_of_enabled_choose_the_bits_that_walks_read() {
    let mut harness = Harness::new(1000, 1);
    (0..64).for_each(|page| harness.load(page));
    write(&harness, "lru_gen/enabled", "5").unwrap();
    assert!(harness.age());
    assert!((0..64).all(|page| harness.is_young(page)), "no walk reads bits");
    write(&harness, "lru_gen/enabled", "3").unwrap();
    assert!(harness.age());
    assert!((0..64).all(|page| !harness.is_young(page)));
    // The table's own bit is clear and is ignored.
    (0..64).for_each(|page| harness.load(page));
    harness.mapping.clear_young_table(&harness.core.leaves, 0);
    harness.task.space.mark_ran();
    assert!(harness.age());
    assert!((0..64).all(|page| !harness.is_young(page)));
}

/// [book: control-files#checks]: "`lru_gen` of a fresh lruvec prints 4 lines, seq 0…3, all sizes
/// 0", in the format of [book: control-files#lru-gen-read].
#[test]
fn a_fresh_lruvec_has_four_generations() {
    let harness = Harness::new(100, 31);
    let generations = |seqs: std::ops::Range<u64>| -> String {
        seqs.map(|seq| format!(" {seq:>10} {:>10} {:>10}  {:>10} \n", 0, 0, 0)).collect()
    };
    let block = |memcg: &str| format!("memcg {memcg}\n node     0\n{}", generations(0..4));
    assert_eq!(read(&harness, "lru_gen"), block("0 /") + &block("1 /golden"));
    assert!(read(&harness, "lru_gen").contains("\n          3          0          0           0 \n"));
}

/// [book: control-files#lru-gen-read]: ids are padded before 7.2.
#[test]
fn ids_were_padded() {
    let harness = Harness::with_preset(crate::Preset::Linux71, 100, 31);
    assert!(read(&harness, "/lru_gen").contains("memcg     1 /golden\n"));
}

/// [book: control-files#lru-gen-full]: four generations, four tiers each, and a line of walk
/// statistics.
#[test]
fn lru_gen_full_has_tiers_and_walks() {
    let mut harness = Harness::new(100, 1);
    harness.read_ahead(0..20);
    (0..10).for_each(|page| harness.load(page));
    harness.evict(15);
    assert!(harness.age() && harness.open_generation());
    let text = read(&harness, "lru_gen_full");
    let own: Vec<&str> = text.lines().skip_while(|line| !line.ends_with("/golden")).skip(2).collect();
    assert_eq!(own.len(), 4 * (1 + 4 + 1), "{text}");
    let marks = |at: usize| own[at].split_whitespace().collect::<Vec<_>>();
    assert_eq!(marks(0)[0], "2");
    // The oldest generation of files: refaulted, evicted and protected pages. Anonymous pages have
    // no older generations either.
    assert!(own[1].trim_start().starts_with("0          0r"), "{}", own[1]);
    assert_eq!(own[6 * 3 + 1].matches(['R', 'T', 'x']).collect::<String>(), "RTxRTx");
    assert_eq!(own[6 + 1].matches('x').count(), 6);
    assert_eq!(marks(6 * 3 + 5).iter().map(|word| &word[word.len() - 1..]).collect::<String>(), "TYFA");
    assert_eq!(marks(6 * 3 + 5)[2], "1F", "one table was found");
    assert_eq!(marks(5), ["0x"; 4]);
    // The closed generations of a kind that has fewer are marked.
    let mut harness = Harness::new(100, 31);
    harness.bring_at([0], 2);
    harness.isolate(0);
    let text = read(&harness, "lru_gen_full");
    let closed = format!(" {:>10} {:>10} {:>10}  {:>10}x\n", 0, 0, 0, 0);
    assert!(text.contains(&closed), "{text}");
    assert!(!read(&harness, "lru_gen").contains('x'));
}

/// [book: control-files#checks]: "`+ id node max` makes max_seq+1 with age ≈ 0 and 7.2 fails
/// 'exists' if it lost a race".
#[test]
fn a_command_opens_a_generation() {
    let mut harness = Harness::new(100, 1);
    harness.load(0);
    harness.host.advance(std::time::Duration::from_secs(1));
    write(&harness, "lru_gen", "+ 1 0 3").unwrap();
    assert_eq!(harness.max_seq(), 4);
    assert!(read(&harness, "lru_gen").contains("\n          4          0 "));
    assert!(!harness.is_young(0), "it walked");
    // An older generation than the youngest ages all the same; a future one is invalid.
    write(&harness, "lru_gen", "+ 1 0 0 max 0").unwrap();
    assert_eq!(harness.max_seq(), 5);
    assert_eq!(errno(write(&harness, "lru_gen", "+ 1 0 6")), "EINVAL");
    // Another thread has finished the walk for the youngest generation and is about to open the
    // next.
    assert!(matches!(harness.memcg().spaces.skip(5), crate::mm::Next::Advance));
    assert_eq!(errno(write(&harness, "lru_gen", "+ 1 0 5")), "EEXIST");
    assert_eq!(harness.max_seq(), 5);
}

/// [book: control-files#lru-gen-write], the column "6.x".
#[test]
fn commands_before_the_rework() {
    let harness = Harness::with_preset(crate::Preset::Linux612, 100, 1);
    write(&harness, "lru_gen", "+ 1 0 2").unwrap();
    assert_eq!(harness.max_seq(), 3, "nothing is done");
    assert_eq!(errno(write(&harness, "lru_gen", "+ 1 0 3 1 0")), "ERANGE");
    write(&harness, "lru_gen", "+ 1 0 3 1").unwrap();
    assert_eq!(harness.max_seq(), 4);
    assert!(matches!(harness.memcg().spaces.skip(4), crate::mm::Next::Advance));
    write(&harness, "lru_gen", "+ 1 0 4").unwrap();
    assert_eq!(harness.max_seq(), 4, "lost the race, without an error");
}

/// [book: control-files#checks]: "`- id node max-1` is invalid; `- id node max-2` is accepted".
#[test]
fn two_generations_are_not_evicted() {
    let mut harness = Harness::new(1000, 1);
    harness.read_ahead(0..200);
    assert_eq!(errno(write(&harness, "lru_gen", "- 1 0 2")), "EINVAL");
    assert_eq!(errno(write(&harness, "lru_gen", "- 1 0 18446744073709551615")), "EINVAL");
    write(&harness, "lru_gen", "- 1 0 1").unwrap();
    assert_eq!((harness.memcg().usage_pages(), harness.min_seq()), (0, 2));
}

/// [book: control-files#checks]: "`-` with pages=100 on clean pages reclaims ≥ 100 and may
/// overshoot within one 64-page isolation".
#[test]
fn an_eviction_stops_after_so_many_pages() {
    let mut harness = Harness::new(1000, 1);
    harness.read_ahead(0..500);
    write(&harness, "lru_gen", "- 1 0 0 0 100").unwrap();
    assert!((100..164).contains(&harness.stat(Counter::PgstealProactive)));
    harness.core.validate().unwrap();
}

/// [book: control-files#lru-gen-write]: "Commands separated by newline, `,` or `;`. … Processing
/// stops at the first error".
#[test]
fn commands_stop_at_the_first_error() {
    let harness = Harness::new(100, 1);
    assert_eq!(errno(write(&harness, "lru_gen", "+ 1 0 3; + 1 0 4,\n\n+ 1 0 9\n+ 1 0 5")), "EINVAL");
    assert_eq!(harness.max_seq(), 5);
    for wrong in [
        "1 0 3",
        "+",
        "+ 1 0",
        "+ 1 0 x",
        "+ 1 1 5",
        "+ 7 0 3",
        "+ 9999999999 0 3",
        "- 1 0 0 202",
        "- 1 0 0 0 -1",
        "- 1 0 0 0 1 2",
        "é 1 0 3",
        "*1 0 3",
    ] {
        let error = write(&harness, "lru_gen", wrong).unwrap_err();
        assert!(error.errno == Errno::Invalid && error.to_string().contains(wrong), "{error}");
    }
    write(&harness, "lru_gen", "").unwrap();
    // The commands have returned their handles.
    harness.core.remove_memcg(&harness.host, harness.task.memcg).unwrap();
    harness.core.drop_handle(harness.task.memcg);
    assert_eq!(harness.core.memcgs.iter().count(), 1);
}

/// [book: control-files#checks]: "`memory.reclaim` with more than is reclaimable fails with 'try
/// again' on the 17th fruitless slice …, and still frees what it could. A full drain of per-CPU
/// batches precedes the last try".
#[test]
fn requests_free_as_much_as_possible() {
    let mut harness = Harness::new(1000, 31);
    harness.read_ahead(0..100);
    let waiting = harness.core.arrivals.queued().len();
    assert!(waiting > 0);
    let efforts = harness.host.efforts().len();
    let error = write(&harness, "golden/memory.reclaim", "1M").unwrap_err();
    assert_eq!(error.errno, Errno::Again);
    assert!(error.reason.contains("reclaimed: 100;"), "{error}");
    let fruitless = harness.host.efforts()[efforts..].iter().filter(|effort| effort.reclaimed == 0).count();
    assert_eq!((fruitless, harness.memcg().usage_pages()), (17, 0));
    write(&harness, "golden/memory.reclaim", "0").unwrap();
    assert_eq!(line(&read(&harness, "golden/memory.stat"), "pgsteal_proactive"), 100);
}

/// [book: control-files#checks]: "`memory.stat` pgsteal equals the sum of its four kinds".
/// [book: control-files#memory-stat]: the order, and that values cover the subtree.
#[test]
fn memory_stat_adds_up() {
    let mut harness = Harness::new(200, 1);
    let child = harness.core.add_child(harness.task.memcg, "child", UNLIMITED, Time::ZERO).unwrap().id();
    harness.read_ahead(0..150);
    harness.task = harness.core.new_task(child, 0);
    harness.read_ahead(150..300);
    write(&harness, "golden/memory.reclaim", "40K").unwrap();
    let parent = read(&harness, "golden/memory.stat");
    let sum = |text: &str, what: &str| {
        ["kswapd", "direct", "khugepaged", "proactive"]
            .map(|kind| line(text, &format!("{what}_{kind}")))
            .iter()
            .sum()
    };
    for what in ["pgsteal", "pgscan"] {
        assert_eq!(line(&parent, what), sum(&parent, what), "{parent}");
        assert!(line(&parent, what) >= 100);
    }
    let both: u64 = ["golden", "golden/child"]
        .map(|path| harness.core.memcg(harness.core.memcgs.find(path).unwrap()).stat.get(Counter::File))
        .iter()
        .sum();
    assert_eq!(line(&parent, "file"), both * 4096);
    assert_eq!(line(&parent, "inactive_file") + line(&parent, "active_file"), both * 4096);
    let keys: Vec<&str> = parent.lines().map(|line| line.split_once(' ').unwrap().0).collect();
    assert_eq!((keys[..4].to_vec(), keys.len()), (vec!["anon", "file", "kernel", "shmem"], 45));
    assert!(read(&harness, "golden/memory.numa_stat").contains(&format!("\nfile N0={}\n", both * 4096)));
    assert_eq!(line(&read(&harness, "memory.stat"), "pgsteal"), line(&parent, "pgsteal"));
    assert_eq!(line(&read(&harness, "vmstat"), "nr_file_pages"), both);
}

/// [book: control-files#checks]: "Invalid lines (`memory.reclaim` = `1G foo=1`) are rejected
/// without side effects".
#[test]
fn invalid_writes_change_nothing() {
    let mut harness = Harness::new(1000, 1);
    harness.read_ahead(0..100);
    let before = read(&harness, "golden/memory.stat");
    assert_eq!(errno(write(&harness, "golden/memory.reclaim", "1G foo=1")), "EINVAL");
    for (file, value) in [("max", "1Q"), ("high", ""), ("low", "-4096"), ("min", "x"), ("oom.group", "2")] {
        let path = format!("golden/memory.{file}");
        let text = read(&harness, &path);
        assert_eq!(errno(write(&harness, &path, value)), "EINVAL", "{file}");
        assert_eq!(read(&harness, &path), text);
    }
    assert_eq!(read(&harness, "golden/memory.stat"), before);
}

/// [book: control-files#memcg-files]: units, and which files the root has.
#[test]
fn files_are_where_the_kernel_has_them() {
    let harness = Harness::new(100, 1);
    let files = harness.core.list_control("golden").unwrap();
    assert_eq!(files.len(), 18);
    for file in &files {
        let (own, root) = (format!("golden/{file}"), format!("/{file}"));
        match file.as_str() {
            "memory.reclaim" => assert_eq!(errno(harness.core.read_control(&own, Time::ZERO)), "EINVAL"),
            _ => _ = read(&harness, &own),
        }
        let of_root = harness.core.read_control(&root, Time::ZERO).map_err(|error| error.errno.name());
        let expected = match file.as_str() {
            "memory.stat" | "memory.numa_stat" | "memory.pressure" => None,
            "memory.reclaim" => Some("EINVAL"),
            _ => Some("ENOENT"),
        };
        assert_eq!(of_root.err(), expected, "{file}");
    }
    let system = harness.core.list_control("").unwrap();
    assert!(
        ["vmstat", "lru_gen", "lru_gen/enabled", "golden/"]
            .iter()
            .all(|name| system.iter().any(|f| f == name))
    );
    assert_eq!(harness.core.list_control("lru_gen/").unwrap(), ["enabled", "min_ttl_ms"]);
    for path in ["memory.none", "golden/cgroup.procs", "none/memory.max", "golden/x/memory.max", "", "golden"]
    {
        let error = harness.core.read_control(path, Time::ZERO).unwrap_err();
        assert!(error.errno == Errno::NoEntry && error.to_string().contains("ENOENT"), "{error}");
        assert_eq!(errno(harness.core.write_control(path, "1", 0)), "ENOENT");
    }
    for file in ["current", "stat", "numa_stat", "events", "events.local", "swap.current", "swap.events"] {
        assert_eq!(errno(write(&harness, &format!("golden/memory.{file}"), "1")), "EINVAL");
    }
    assert_eq!(errno(write(&harness, "vmstat", "1")), "EIO");
    assert_eq!(errno(write(&harness, "lru_gen_full", "1")), "EINVAL");
    assert_eq!(errno(harness.core.list_control("none")), "ENOENT");
}

/// [book: control-files#memcg-files]: "Written values read back as page multiples. A `max` limit
/// reads back as `max`".
#[test]
fn limits_read_back_as_pages() {
    let harness = Harness::new(100, 1);
    for file in ["min", "low", "high", "max", "swap.high", "swap.max"] {
        let path = format!("golden/memory.{file}");
        for (value, text) in [("10000", "8192\n"), ("1M\n", "1048576\n"), ("max", "max\n"), ("0", "0\n")] {
            write(&harness, &path, value).unwrap();
            assert_eq!(read(&harness, &path), text, "{file}");
        }
    }
    write(&harness, "golden/memory.oom.group", "1").unwrap();
    assert_eq!(read(&harness, "golden/memory.oom.group"), "1\n");
}

/// [book: memcgs#limits]: "lowering `high`/`max` | on write of the file | excess | up to 16
/// fruitless tries". If pages cannot be reclaimed, `max` counts `oom`; both limits are written all
/// the same.
#[test]
fn lowering_a_limit_reclaims() {
    let mut harness = Harness::new(1000, 1);
    harness.read_ahead(0..300);
    write(&harness, "golden/memory.high", "800K").unwrap();
    assert!((130..=200).contains(&harness.memcg().usage_pages()), "{}", harness.memcg().usage_pages());
    assert_eq!(read(&harness, "golden/memory.peak"), "1228800\n");
    write(&harness, "golden/memory.peak", "reset").unwrap();
    assert_eq!(read(&harness, "golden/memory.peak"), read(&harness, "golden/memory.current"));
    write(&harness, "golden/memory.max", "400K").unwrap();
    assert!(harness.memcg().usage_pages() <= 100);
    // Pages that are in use cannot go.
    let pages: Vec<u32> = (0..300).filter(|&page| harness.is_cached(page)).collect();
    for &page in &pages {
        assert!(harness.core.folios.flags(harness.folio(page)).try_get());
    }
    write(&harness, "golden/memory.high", "4K").unwrap();
    assert_eq!(line(&read(&harness, "golden/memory.events"), "oom"), 0);
    write(&harness, "golden/memory.max", "4K").unwrap();
    assert_eq!(line(&read(&harness, "golden/memory.events"), "oom"), 1);
    assert_eq!((harness.memcg().usage_pages(), harness.memcg().max_pages()), (pages.len() as u64, 1));
}

/// `memory.events` includes children, even removed ones; `memory.events.local` does not.
#[test]
fn events_are_inherited() {
    let harness = Harness::new(100, 1);
    let parent = harness.task.memcg;
    let child = harness.core.add_child(parent, "child", UNLIMITED, Time::ZERO).unwrap().id();
    harness.core.memcg(child).stat.add(Counter::EventMax, 3);
    harness.core.memcg(parent).stat.add(Counter::EventMax, 2);
    let max = |path: &str| line(&read(&harness, path), "max");
    assert_eq!((max("golden/memory.events"), max("golden/memory.events.local")), (5, 2));
    harness.core.remove_memcg(&harness.host, child).unwrap();
    harness.core.drop_handle(child);
    assert_eq!((max("golden/memory.events"), max("golden/memory.events.local")), (5, 2));
    assert_eq!(errno(harness.core.read_control("golden/child/memory.events", Time::ZERO)), "ENOENT");
}

/// A memcg that is being written to stays until the write ends or is cancelled.
#[test]
fn a_memcg_goes_after_the_last_write_to_it() {
    let mut harness = Harness::new(1000, 1);
    harness.read_ahead(0..300);
    let memcg = harness.task.memcg;
    let mut first = harness.core.write_control("golden/memory.max", "4K", 0).unwrap();
    let second = harness.core.write_control("golden/memory.reclaim", "1M", 0).unwrap();
    let mut third = harness.core.write_control("lru_gen", "- 1 0 1", 0).unwrap();
    assert_eq!(first.step(&harness.core, &harness.host), Ok(ControlStep::More));
    assert_eq!(third.step(&harness.core, &harness.host), Ok(ControlStep::More));
    harness.core.remove_memcg(&harness.host, memcg).unwrap();
    harness.core.drop_handle(memcg);
    assert_eq!(harness.core.memcgs.iter().count(), 2);
    while first.step(&harness.core, &harness.host) != Ok(ControlStep::Done) {}
    assert_eq!(harness.core.memcgs.iter().count(), 2);
    second.cancel(&harness.core, &harness.host);
    assert_eq!(harness.core.memcgs.iter().count(), 2);
    third.cancel(&harness.core, &harness.host);
    assert_eq!(harness.core.memcgs.iter().count(), 1);
}

fn stalled_micros(harness: &Harness, path: &str) -> u64 {
    let text = read(harness, path);
    assert!(text.starts_with("some avg10=") && text.lines().count() == 1, "{text}");
    text.trim_end().rsplit_once("total=").unwrap().1.parse().unwrap()
}

/// A task of a child counts for its parent, too; its stall ends with the charge, whatever the
/// result.
#[test]
fn stalls_are_those_of_all_above() {
    let mut harness = Harness::new(1000, 1);
    let parent = harness.task.memcg;
    let [child, other] =
        ["child", "other"].map(|name| harness.core.add_child(parent, name, 100, Time::ZERO).unwrap().id());
    harness.task = harness.core.new_task(child, 0);
    harness.read_ahead(0..100);
    let totals = |harness: &Harness| {
        ["golden/child/", "golden/", "", "golden/other/"]
            .map(|path| stalled_micros(harness, &format!("{path}memory.pressure")))
    };
    assert_eq!(totals(&harness), [0; 4]);
    let stall = || {
        let mut charging = Charging::new(child, 0);
        assert!(matches!(charging.step(&harness.core, &harness.host), ChargeStep::More));
        charging
    };
    let (first, mut second) = (stall(), stall());
    harness.host.advance(Duration::from_secs(3));
    assert_eq!(totals(&harness), [3_000_000, 3_000_000, 3_000_000, 0], "two of them, and it is not over");
    first.cancel(&harness.core, &harness.host);
    let new = loop {
        match second.step(&harness.core, &harness.host) {
            ChargeStep::More => harness.host.advance(Duration::from_millis(1)),
            ChargeStep::Charged(new) => break new,
            step => panic!("{step:?}"),
        }
    };
    drop(new);
    let after = totals(&harness);
    assert!(after[0] > 3_000_000 && after[0] < 3_100_000, "{after:?}");
    harness.host.advance(Duration::from_secs(3));
    assert_eq!((totals(&harness), after[3]), (after, 0));
    // Concurrent stalls of a tenant and its sibling are one stall of the parent.
    let (mine, theirs) =
        (harness.core.begin_stall(&harness.host, child), harness.core.begin_stall(&harness.host, other));
    harness.core.remove_memcg(&harness.host, other).unwrap();
    harness.core.drop_handle(other);
    harness.host.advance(Duration::from_secs(1));
    harness.core.end_stall(&harness.host, mine);
    harness.host.advance(Duration::from_secs(1));
    assert_eq!(harness.core.memcgs.iter().count(), 4, "the stalled task keeps it");
    harness.core.end_stall(&harness.host, theirs);
    assert_eq!(harness.core.memcgs.iter().count(), 3);
    harness.host.advance(Duration::from_secs(1));
    let [own, above] =
        ["golden/child/", "golden/"].map(|path| stalled_micros(&harness, &format!("{path}memory.pressure")));
    assert_eq!([own, above], [after[0] + 1_000_000, after[1] + 2_000_000]);
    // The name is free: a new memcg of this name begins with zero.
    harness.core.add_child(parent, "other", 100, Time::ZERO).unwrap();
    assert_eq!(stalled_micros(&harness, "golden/other/memory.pressure"), 0);
    assert_eq!(errno(write(&harness, "golden/memory.pressure", "some 150000 1000000")), "EOPNOTSUPP");
}

/// psi: refaults of pages that were in use are stalls, first reads are not.
#[test]
fn waiting_for_a_working_set_page_is_a_stall() {
    let mut harness = Harness::new(1000, 1);
    harness.read_ahead(0..2);
    harness.make_hot(1);
    let [new, hot] = [0, 1].map(|page| harness.core.begin_refault(&harness.host, harness.folio(page)));
    assert!(new.is_none());
    harness.host.advance(Duration::from_millis(5));
    harness.core.end_stall(&harness.host, hot.unwrap());
    assert_eq!(stalled_micros(&harness, "golden/memory.pressure"), 5000);
}

/// A pause above `memory.high` is a stall, and so is a charge that fails.
#[test]
fn pauses_and_failures_are_stalls() {
    let mut harness = Harness::new(100, 1);
    harness.read_ahead(0..50);
    let pages: Vec<u32> = (0..50).filter(|&page| harness.is_cached(page)).collect();
    for &page in &pages {
        assert!(harness.core.folios.flags(harness.folio(page)).try_get(), "nothing can be reclaimed");
    }
    harness.memcg().set_high_pages(10);
    let charge = || {
        let mut charging = Charging::new(harness.task.memcg, 0);
        loop {
            match charging.step(&harness.core, &harness.host) {
                ChargeStep::More => {}
                ChargeStep::Wait(throttle) => harness.host.advance(throttle.timeout()),
                ChargeStep::Charged(new) => break Some(new),
                ChargeStep::OutOfMemory(_) => break None,
            }
        }
    };
    let before = crate::Host::now(&harness.host);
    let new = charge();
    let paused = crate::Host::now(&harness.host).since(before).as_micros() as u64;
    assert!(new.is_some() && paused > 10_000, "{paused}");
    assert_eq!(stalled_micros(&harness, "golden/memory.pressure"), paused);
    harness.memcg().set_high_pages(UNLIMITED);
    harness.memcg().set_max_pages(51);
    assert!(charge().is_none());
    let failed = stalled_micros(&harness, "golden/memory.pressure");
    harness.host.advance(Duration::from_secs(1));
    assert_eq!(stalled_micros(&harness, "golden/memory.pressure"), failed, "it is over");
}
