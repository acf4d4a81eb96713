//! The turn of one lruvec in a pass: what is taken from it, batch by batch, by the policies that have folios on its lists.
//!
//! While the policy is being switched, that is both; the multi-gen LRU is the first of them (spec 80 §11).

mod classic;
mod multigen;

use super::order::WalkStep;
use super::scan::{Orders, Scan};
use crate::Core;
use crate::host::Host;
use crate::lru::Visit;
use crate::lru::classic::balance::Balance;
use crate::mechanism::Lru;
use crate::memcg::{Effective, Memcg, MemcgId};
use classic::ClassicTurn;
use multigen::MultiGenTurn;

/// What is decided once for the turns of all lruvecs of a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    priority: u8,
    /// Where the classic LRU has folios.
    balance: Option<Balance>,
}

impl Pass {
    /// A pass at this priority begins.
    pub(super) fn new(core: &Core, host: &impl Host, orders: &Orders, scan: &Scan, priority: u8) -> Pass {
        let balance = core.mechanisms().has_folios_of(Lru::Classic).then(|| {
            let target = core.memcg(orders.target);
            core.balance(host, target, !orders.is_root(), priority, scan.force_deactivation)
        });
        Pass { priority, balance }
    }
}

/// The turn of one lruvec.
#[derive(Debug)]
pub(super) struct Turn {
    memcg: MemcgId,
    multigen: Option<MultiGenTurn>,
    classic: Option<ClassicTurn>,
    /// What came of those that are over.
    visit: Visit,
}

impl Turn {
    /// It is the turn of a memcg, of which protection spares some.
    pub(super) fn begin(
        core: &Core,
        host: &impl Host,
        orders: &Orders,
        scan: &mut Scan,
        (memcg, spared): (&Memcg, Effective),
        pass: &Pass,
    ) -> Turn {
        let has_generations = core.mechanisms().has_folios_of(Lru::MultiGen);
        Turn {
            memcg: memcg.id(),
            multigen: has_generations
                .then(|| MultiGenTurn::begin(core, host, orders, scan, (memcg, spared), pass.priority)),
            classic: pass.balance.map(|balance| {
                ClassicTurn::begin(core, orders, scan, (memcg, spared), balance, pass.priority)
            }),
            visit: Visit::default(),
        }
    }

    /// What the turn came to so far.
    pub(super) fn visit(&self, core: &Core) -> Visit {
        let visit = self.multigen.as_ref().map_or(self.visit, |turn| turn.visit(core));
        let classic = self.classic.as_ref().is_some_and(|turn| turn.visit(core).sizable);
        Visit { sizable: visit.sizable || classic, ..visit }
    }

    /// Whose it is.
    pub(super) fn memcg(&self) -> MemcgId {
        self.memcg
    }

    /// It ends early. What others wait for is done.
    pub(super) fn abandon(&mut self, core: &Core, host: &impl Host) {
        if let Some(turn) = &mut self.multigen {
            turn.open_if_walked(core, host);
        }
    }

    /// Takes at most one batch.
    pub(super) fn step(
        &mut self,
        core: &Core,
        host: &impl Host,
        orders: &Orders,
        scan: &mut Scan,
    ) -> WalkStep {
        if let Some(turn) = &mut self.multigen {
            if turn.step(core, host, orders, scan) == WalkStep::Finished {
                self.visit = turn.visit(core);
                self.multigen = None;
            }
        } else if let Some(turn) = &mut self.classic {
            match turn.step(core, host, orders, scan) {
                WalkStep::More => {}
                wait @ WalkStep::Wait(_) => return wait,
                WalkStep::Finished => {
                    self.visit.sizable |= turn.visit(core).sizable;
                    self.classic = None;
                }
            }
        }
        let finished = self.multigen.is_none() && self.classic.is_none();
        if finished { WalkStep::Finished } else { WalkStep::More }
    }
}
