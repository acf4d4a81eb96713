//! Pages that something outside of the simulation keeps in use.

use mglru_core::{Counter, Lru, Mechanisms, MemcgId, Preset};
use mglru_sim::{Access, Machine, Operation, Request, Simulator};

const LIMIT: u64 = 1000;
/// A page of another file than those that the job reads.
const HELD: u64 = 1 << 32;

/// Pages that a request of 256 took from a memcg that fits, whose first page is held or not; and
/// whether the first page is in memory then.
fn taken(preset: Preset, lru: Lru, holds: bool) -> (u64, bool) {
    let machine =
        Machine { mechanisms: Mechanisms::preset(preset).with_lru(lru), ..Machine::kernel_lab(LIMIT) };
    let mut simulator = Simulator::new(&machine).unwrap();
    let first = [Operation::from(Access::read(HELD)), Operation::Hold { page: HELD }];
    let first = first.into_iter().take(if holds { 2 } else { 1 });
    let pages = (0..900).map(|page| Operation::from(Access::read(page)));
    let request = Request { tenant: Some(0), pages: 256, swappiness: None, unsliced: false };
    let again = [Operation::Reclaim(request), Access::read(HELD).into()];
    simulator.add_job(0, first.chain(pages).chain(again));
    let report = simulator.run().unwrap();
    let stat = simulator.core().memcg(MemcgId(1)).stat();
    simulator.core().validate().unwrap();
    (stat.get(Counter::PgstealFile), report.total().counts.misses == 901)
}

/// Reclaim rejects a held page. A request takes whole batches until it has its pages, so the page
/// costs it a batch of 64 more.
#[test]
fn a_held_page_costs_a_request_a_batch() {
    assert_eq!(taken(Preset::Linux612, Lru::MultiGen, false), (256, false));
    let (pages, stays) = taken(Preset::Linux612, Lru::MultiGen, true);
    assert!((257..=320).contains(&pages) && stays, "{pages}, {stays}");
    for preset in [Preset::Linux71, Preset::Linux72] {
        for lru in [Lru::MultiGen, Lru::Classic] {
            assert!(taken(preset, lru, true).1, "{preset:?}, {lru:?}");
        }
    }
}
