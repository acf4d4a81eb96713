//! Whether a page that comes back was evicted so short a time ago that it deserves the active list.
//!
//! ```text
//!  evicted: token = clock                  back: distance = clock − token
//! ───────────┬──────────────── evictions, activations ───────────┬──────────►
//!            └──────── had the inactive list been longer by the distance, it would still be here
//! ```
//!
//! The pages on the other lists could have made that room, so the distance is held against their
//! number.
//!
//! Source: [book: refaults#classic-distance]; two accesses activate a folio:
//! [book: classic-lru#two-accesses], [book: classic-lru#batched-adds].

use super::balance::IO_COST;
use crate::Core;
use crate::event::Event;
use crate::folio::{Flags, FolioId, Kind};
use crate::host::Host;
use crate::lru::evidence::TOKEN_MASK;
use crate::lru::{Distance, Queue, Refault, Shadow};
use crate::memcg::{Counter, Memcg, MemcgId};

/// A batch of evictions. With `batch_nonresident_age` the classic clock has gone on for all of
/// them, in one walk to the root, and each gets its own time, the same that it would have got one
/// by one; batches of several CPUs get different ones. The five remedies of
/// [book: classic-lru#lru-lock] leave evictions alone, which are two thirds of what is written to
/// the ancestors' clocks when mapped files are read, and more when hardly anything is activated.
///
/// A clock that is set back may be behind what another CPU's batch took meanwhile, by 31 pages at
/// most: the next pages get the same times, and a page of that batch that returned in this moment
/// would count as long gone.
#[derive(Debug)]
pub(crate) struct Evictions {
    target: MemcgId,
    /// The time of the next one.
    next: u64,
    /// Those that the clock has gone on for, and have not come.
    left: u64,
}

impl Core {
    /// A folio was accessed the second time since it was, or might have been, moved. It carries a
    /// reference for that; `before` is its state at the access. The clock goes on at once, whatever
    /// becomes of the move.
    #[cold]
    pub(crate) fn accessed_again(&self, host: &impl Host, cpu: usize, folio: FolioId, before: Flags) {
        self.advance_nonresident_age(self.owner_of(folio), 1);
        if before.lru() {
            self.enqueue_held(host, cpu, Queue::Activate, folio);
            return;
        }
        // A new folio that still waits for its place gets it on the active list. One that waits
        // elsewhere, or is isolated, is not looked for.
        let flags = self.folios.flags(folio);
        self.arrivals.while_queued(cpu, Queue::Add, folio, || flags.set_active());
        self.put(host, folio);
    }

    /// So many pages of `memcg` were activated or evicted: its clock goes on, and that of each of
    /// its ancestors. Its clock before: the time of the first of them.
    pub(crate) fn advance_nonresident_age(&self, memcg: &Memcg, pages: u64) -> u64 {
        memcg.stat.add(Counter::NonresidentAgeWrites, 1);
        let own = memcg.lruvec.classic.advance(pages);
        for ancestor in self.memcgs.lineage(memcg).skip(1) {
            ancestor.lruvec.classic.advance(pages);
        }
        own
    }

    /// So many of those were not evicted after all.
    pub(crate) fn set_back_nonresident_age(&self, memcg: &Memcg, pages: u64) {
        memcg.stat.add(Counter::NonresidentAgeWrites, 1);
        for memcg in self.memcgs.lineage(memcg) {
            memcg.lruvec.classic.set_back(pages);
        }
    }

    /// How long ago a page of a kind was evicted on behalf of `target`, whose clock was at `token`
    /// then. Of both, the bits in `mask` are known.
    fn refault_distance(
        &self,
        host: &impl Host,
        target: &Memcg,
        kind: Kind,
        token: u64,
        mask: u64,
    ) -> Distance {
        let passed = target.lruvec.classic.nonresident_age().wrapping_sub(token) & mask;
        let known = self.known_sizes(host, target);
        let mut pages = known.active(Kind::File);
        if kind == Kind::Anon {
            pages += known.inactive(Kind::File);
        }
        if self.free_swap_pages() > 0 && target.swap.margin_pages() > 0 {
            pages += known.active(Kind::Anon);
            if kind == Kind::File {
                pages += known.inactive(Kind::Anon);
            }
        }
        Distance { passed, reach: pages }
    }
}

impl Evictions {
    /// None has gone so far.
    pub(in crate::lru) fn none(target: MemcgId) -> Evictions {
        Evictions { target, next: 0, left: 0 }
    }

    /// Up to so many pages will be evicted on behalf of `target`; [`Self::end`] is to be called
    /// after them.
    pub(in crate::lru) fn begin(core: &Core, target: MemcgId, pages: u64) -> Evictions {
        if pages == 0 || !core.mechanisms().batch_nonresident_age() {
            return Evictions::none(target);
        }
        let next = core.advance_nonresident_age(core.memcg(target), pages);
        Evictions { target, next, left: pages }
    }

    /// The memory of a page in state `flags`, which is evicted now. The target's clock goes on.
    pub(in crate::lru) fn shadow(&mut self, core: &Core, flags: Flags) -> Shadow {
        let age = if self.left > 0 {
            self.left -= 1;
            self.next += 1;
            self.next - 1
        } else {
            core.advance_nonresident_age(core.memcg(self.target), 1)
        };
        Shadow { memcg: self.target, workingset: flags.workingset(), token: age & TOKEN_MASK }
    }

    /// The batch is over. Of pages that turned out to be in use the clock takes no notice.
    pub(in crate::lru) fn end(self, core: &Core) {
        if self.left > 0 {
            core.set_back_nonresident_age(core.memcg(self.target), self.left);
        }
    }
}

/// A page with a shadow is back, not yet on a list ([book: refaults#classic-distance]).
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
        target.is_online().then(|| core.refault_distance(host, target, kind, shadow.token, TOKEN_MASK));
    let recent = distance.is_some_and(Distance::is_recent);
    host.event(Event::Refault { folio, memcg: memcg.id(), shadow, distance, recent });
    if !recent {
        return;
    }
    core.folios.flags(folio).refault_active(shadow.workingset);
    memcg.stat.add(activate, 1);
    if !shadow.workingset {
        core.advance_nonresident_age(memcg, 1);
        return;
    }
    memcg.stat.add(restore, 1);
    // The clock goes on in the walk that notes the cost, or in one of its own before.
    let batched = core.mechanisms().batch_nonresident_age();
    if !batched {
        core.advance_nonresident_age(memcg, 1);
    }
    core.note_cost(host, memcg, None, kind, IO_COST, u64::from(batched));
}
