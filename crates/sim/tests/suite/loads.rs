//! Batched loads give the same results as single ones.

use mglru_sim::{Access, Machine, Operation, Request, Simulator, Tenant};

const PAGES: u64 = 1000;

/// The pages, out of 64 from `first` on, that are loaded in a round.
fn mask(round: u64, first: u64) -> u64 {
    let drawn = (round * 1000 + first).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (drawn ^ drawn >> 29) & u64::MAX >> 64u64.saturating_sub(PAGES - first)
}

fn run(together: bool) -> Vec<(String, u64)> {
    let mut machine = Machine::new(4096);
    // Its lists do not depend on the order of accesses within a leaf.
    machine.mechanisms = machine.mechanisms.with_lru(mglru_core::Lru::MultiGen);
    machine.tenants = vec![Tenant::new("t", 1500)];
    let mut simulator = Simulator::new(&machine).unwrap();
    let loads = move |round: u64, first: u64| -> Vec<Operation> {
        let pages = mask(round, first);
        if together {
            return vec![Operation::Loads { first, pages }];
        }
        (0..64).filter(|n| pages >> n & 1 == 1).map(|n| Access::load(first + n).into()).collect()
    };
    let operations = (0..40).flat_map(move |round| {
        let request = Request { tenant: None, pages: 100, swappiness: None, unsliced: false };
        let touched = (0..PAGES).step_by(64).flat_map(move |first| loads(round, first));
        touched.chain([Operation::Reclaim(request)])
    });
    simulator.add_job(0, operations);
    while simulator.step().unwrap() {}
    simulator.core().validate().unwrap();
    let stat = simulator.core().memcgs().find("t").unwrap();
    let stat = simulator.core().memcg(stat).stat();
    let counters = mglru_core::Counter::ALL.iter().map(|&c| (c.name().to_owned(), stat.get(c)));
    let now = ("time".to_owned(), simulator.now().as_nanos());
    counters.chain([now]).collect()
}

#[test]
fn loads_together_are_loads_one_by_one() {
    let (together, single) = (run(true), run(false));
    let pgsteal = single.iter().find(|(name, _)| name == "pgsteal_proactive").unwrap().1;
    assert!(pgsteal > 1000, "requests took pages: {pgsteal}");
    // Within a leaf the order may differ: missing pages are loaded after cached ones.
    for (a, b) in together.iter().zip(&single) {
        assert!(a.1.abs_diff(b.1) * 50 <= b.1.max(50), "{a:?}, one by one {b:?}");
    }
    let exact =
        |rows: &[(String, u64)]| rows.iter().filter(|(name, _)| name == "file").cloned().collect::<Vec<_>>();
    assert_eq!(exact(&together), exact(&single));
}
