//! Page faults of several processes on one page: `ranked` counts each, as it counts reads. A page
//! has one accessed bit, which would not say how many processes used it.

use mglru_core::{Mechanisms, Preset, Switch};
use mglru_sim::{Access, Machine, Operation, Simulator};

/// Misses of a load that fills memory, accesses page 500 so many times through a mapping, reads
/// other pages once, and comes back to page 500.
fn misses(mechanisms: Mechanisms, access: Access, times: usize) -> u64 {
    let machine = Machine { mechanisms, ..Machine::kernel_lab(200) };
    let others = (1000..1100).map(Access::read);
    let load = (0..200).map(Access::read).chain(std::iter::repeat_n(access, times)).chain(others);
    let mut simulator = Simulator::new(&machine).unwrap();
    simulator.add_job(0, load.chain([access]).map(Operation::Access).collect::<Vec<_>>().into_iter());
    simulator.run().unwrap().total().counts.misses
}

#[test]
fn a_page_that_three_processes_fault_in_earns_its_place() {
    let (fault, load) = (Access::fault(500), Access::load(500));
    let default = Mechanisms::preset(Preset::Default);
    assert_eq!(misses(default, fault, 2), 302, "the second fault is its only use");
    assert_eq!(misses(default, fault, 3), 301, "page 500 is on the main list by then");
    assert_eq!(misses(default, load, 2), 301, "the accessed bit may stand for any number of loads");
    let one_bit = default.without(&[Switch::FaultUses]).unwrap();
    assert_eq!(misses(one_bit, fault, 2), 301, "the accessed bit says no more than for loads");
    for preset in [Preset::Linux612, Preset::Linux71, Preset::Linux72] {
        let linux = Mechanisms::preset(preset);
        for times in 1..5 {
            assert_eq!(misses(linux, fault, times), misses(linux, load, times));
        }
    }
}
