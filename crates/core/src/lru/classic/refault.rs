//! Classic refaults: a page that returns soon after its eviction goes to the active list.
//!
//! ```text
//!  evicted: token = clock                  back: distance = clock − token
//! ───────────┬──────────────── evictions, activations ───────────┬──────────►
//!            └──────── had the inactive list been longer by the distance, it would still be here
//! ```
//!
//! The other lists could have made that room, so the distance is compared with their length.
//!
//! Source: [book: refaults#classic-distance]; two accesses activate a folio:
//! [book: classic-lru#two-accesses], [book: classic-lru#batched-adds].

use super::balance::{Cost, IO_COST};
use super::statistics;
use crate::Core;
use crate::event::Event;
use crate::folio::{Flags, FolioId, Kind};
use crate::host::Host;
use crate::lru::evidence::TOKEN_MASK;
use crate::lru::{Distance, Queue, Refault, Shadow};
use crate::mechanism::Switch;
use crate::memcg::{Counter, Memcg, MemcgId, Memcgs};

/// A batch of evictions. With `batch_nonresident_age` the classic clock advances for all of them in
/// one walk to the root, and each eviction gets the time that it would have got one by one; batches
/// of several CPUs get different times. The five remedies of [book: classic-lru#lru-lock] do not
/// cover evictions, which make two thirds of the writes to the ancestors' clocks when mapped files
/// are read, and more when few pages are activated.
///
/// A clock that is set back may fall behind the times of another CPU's batch, by at most 31 pages.
/// The next pages then get the same times, and a page of that batch that returned at this moment
/// would count as evicted long ago.
#[derive(Debug)]
pub(crate) struct Evictions {
    target: MemcgId,
    /// The time of the next eviction.
    next: u64,
    /// Evictions that the clock has advanced for and that have not happened yet.
    left: u64,
}

impl Evictions {
    /// A batch that advances no clock.
    pub(in crate::lru) fn none(target: MemcgId) -> Evictions {
        Evictions { target, next: 0, left: 0 }
    }

    /// Begins a batch of at most `pages` evictions on behalf of `target`. [`Self::end`] must
    /// follow.
    pub(in crate::lru) fn begin(core: &Core, target: MemcgId, pages: u64) -> Evictions {
        if pages == 0 || !core.mechanisms().is_on(Switch::AgeEvictionsPerBatch) {
            return Evictions::none(target);
        }
        let next = core.memcgs.advance_nonresident_age(core.memcg(target), pages);
        Evictions { target, next, left: pages }
    }

    /// The shadow of a page in state `flags` that is evicted now. The target's clock advances.
    pub(in crate::lru) fn shadow(&mut self, core: &Core, flags: Flags) -> Shadow {
        let age = if self.left > 0 {
            self.left -= 1;
            self.next += 1;
            self.next - 1
        } else {
            core.memcgs.advance_nonresident_age(core.memcg(self.target), 1)
        };
        Shadow { memcg: self.target, workingset: flags.workingset(), token: age & TOKEN_MASK }
    }

    /// Ends the batch and sets the clock back for pages that were in use after all.
    pub(in crate::lru) fn end(self, core: &Core) {
        if self.left > 0 {
            core.memcgs.set_back_nonresident_age(core.memcg(self.target), self.left);
        }
    }
}

/// Handles a page that returns while its shadow exists; it is not on a list yet
/// ([book: refaults#classic-distance]).
pub(in crate::lru) fn refaulted(core: &Core, host: &impl Host, refault: Refault<'_>) {
    let Refault { folio, kind, memcg, shadow, .. } = refault;
    let [refaulted, activate, restore] = match kind {
        Kind::Anon => {
            [Counter::WorkingsetRefaultAnon, Counter::WorkingsetActivateAnon, Counter::WorkingsetRestoreAnon]
        }
        Kind::File => {
            [Counter::WorkingsetRefaultFile, Counter::WorkingsetActivateFile, Counter::WorkingsetRestoreFile]
        }
    };
    memcg.stat.add(refaulted, 1);
    let target = core.memcg(shadow.memcg);
    let distance =
        target.is_online().then(|| refault_distance(core, host, target, kind, shadow.token, TOKEN_MASK));
    let recent = distance.is_some_and(Distance::is_recent);
    host.event(Event::Refault { folio, memcg: memcg.id(), shadow, distance, recent });
    if !recent {
        return;
    }
    core.folios.flags(folio).refault_active(shadow.workingset);
    memcg.stat.add(activate, 1);
    if !shadow.workingset {
        core.memcgs.advance_nonresident_age(memcg, 1);
        return;
    }
    memcg.stat.add(restore, 1);
    // The clock advances in the walk that notes the cost, or in a walk of its own before.
    let batched = core.mechanisms().is_on(Switch::AgeOncePerRefault);
    if !batched {
        core.memcgs.advance_nonresident_age(memcg, 1);
    }
    Cost { kind, pages: IO_COST, aged: u64::from(batched), scanned: false }.note(core, host, memcg, None);
}

impl Memcgs {
    /// Advances the clocks of `memcg` and its ancestors by `pages` activations or evictions.
    /// Returns the memcg's former clock, which is the time of the first of them.
    pub(crate) fn advance_nonresident_age(&self, memcg: &Memcg, pages: u64) -> u64 {
        memcg.stat.add(Counter::NonresidentAgeWrites, 1);
        let own = memcg.lruvec.classic.advance(pages);
        for ancestor in self.lineage(memcg).skip(1) {
            ancestor.lruvec.classic.advance(pages);
        }
        own
    }

    /// Takes back the advance for `pages` that were not evicted after all.
    pub(crate) fn set_back_nonresident_age(&self, memcg: &Memcg, pages: u64) {
        memcg.stat.add(Counter::NonresidentAgeWrites, 1);
        for memcg in self.lineage(memcg) {
            memcg.lruvec.classic.set_back(pages);
        }
    }
}

/// Handles the second access to a folio since it was last moved, or nearly moved: queues it for
/// activation with the reference it carries for this. `before` is its state at the access. The
/// clock advances at once, whether or not the folio moves.
#[cold]
pub(in crate::lru) fn accessed_again(
    core: &Core,
    host: &impl Host,
    cpu: usize,
    folio: FolioId,
    before: Flags,
) {
    core.memcgs.advance_nonresident_age(core.owner_of(folio), 1);
    if before.lru() {
        core.enqueue_held(host, cpu, Queue::Activate, folio);
        return;
    }
    // A new folio that is still queued will be put on the active list. A folio that is queued
    // elsewhere or isolated is left alone.
    let flags = core.folios.flags(folio);
    core.arrivals.while_queued(cpu, Queue::Add, folio, || flags.set_active());
    core.put(host, folio);
}

/// Distance of a page of this kind that was evicted on behalf of `target` at the clock `token`.
/// Only the bits in `mask` are known of both times.
fn refault_distance(
    core: &Core,
    host: &impl Host,
    target: &Memcg,
    kind: Kind,
    token: u64,
    mask: u64,
) -> Distance {
    let passed = target.lruvec.classic.nonresident_age().wrapping_sub(token) & mask;
    let known = statistics::known_sizes(core, host, target);
    let mut pages = known.active(Kind::File);
    if kind == Kind::Anon {
        pages += known.inactive(Kind::File);
    }
    if core.can_swap(target.id()) {
        pages += known.active(Kind::Anon);
        if kind == Kind::File {
            pages += known.inactive(Kind::Anon);
        }
    }
    Distance { passed, reach: pages }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::swap::{SwapOptions, SwapStore};
    use crate::testing::Harness;
    use crate::{Lru, Mechanisms, Options, Preset};

    /// [book: refaults#classic-distance]: anonymous lists count if the memcg can swap. The limit of
    /// an ancestor may be in the way.
    #[test]
    fn the_reach_asks_for_swap_up_to_the_root() {
        let mut options = Options::new(400);
        options.mechanisms = Mechanisms::preset(Preset::Default).with_lru(Lru::Classic);
        options.swap = SwapOptions { pages: 100, store: SwapStore::Device };
        let harness = Harness::with_options(options, 200);
        let parent = harness.memcg();
        let child = harness.core.add_child(parent.id(), "child", 200, crate::Time::ZERO).unwrap().id();
        let child = harness.core.memcg(child);
        child.lruvec.classic.sizes[list_number(Kind::Anon)].store(7, crate::sync::Ordering::Relaxed);
        let reach = || refault_distance(&harness.core, &harness.host, child, Kind::File, 0, TOKEN_MASK).reach;
        assert_eq!(reach(), 7);
        for memcg in [child, parent] {
            memcg.set_swap_max_pages(0);
            assert_eq!(reach(), 0);
            memcg.set_swap_max_pages(crate::UNLIMITED);
        }
        child.lruvec.classic.sizes[list_number(Kind::Anon)].store(0, crate::sync::Ordering::Relaxed);
    }

    /// The number of a kind's inactive list among the sizes.
    fn list_number(kind: Kind) -> usize {
        kind as usize * 2
    }
}
