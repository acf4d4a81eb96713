//! Reads of one page in a row through one descriptor: the kernels count them once, `ranked` counts
//! those that begin with the page.

use mglru_core::{Mechanisms, Preset, Switch};
use mglru_sim::{Access, Machine, Operation, Simulator};

/// Misses of a load that fills memory, reads page 500 three times in a row, reads other pages once,
/// and comes back to page 500.
fn misses(mechanisms: Mechanisms, inside: bool) -> u64 {
    let machine = Machine { mechanisms, ..Machine::kernel_lab(200) };
    let again = std::iter::repeat_n(Access { inside, ..Access::read(500) }, 3);
    let others = (1000..1100).map(Access::read);
    let load = (0..200).map(Access::read).chain(again).chain(others).chain([Access::read(500)]);
    let mut simulator = Simulator::new(&machine).unwrap();
    simulator.add_job(0, load.map(Operation::Access).collect::<Vec<_>>().into_iter());
    simulator.run().unwrap().total().counts.misses
}

#[test]
fn a_page_read_again_from_its_beginning_earns_its_place() {
    let default = Mechanisms::preset(Preset::Default);
    let kernels = default.without(&[Switch::Rereads]).unwrap();
    assert_eq!(misses(default, false), 301, "page 500 is on the main list by then");
    assert_eq!(misses(default, true), 302, "the reads may continue one another");
    assert_eq!(misses(kernels, false), 302);
    let linux = Mechanisms::preset(Preset::Linux72);
    assert_eq!(misses(linux, false), misses(linux, true));
}
