//! Which pages are cold: the seam between reclaim and its policies.
//!
//! Only this folder knows how pages are ranked. There is a folder for each policy, with all of its
//! rules: the multi-gen LRU in `multigen/`, the active and inactive lists in `classic/`; and
//! `fifo.rs` shows in tests what a further one takes. [`Lru`] is the closed set of them, and this
//! file the only one that matches on it:
//!
//! | operation | asked by |
//! |---|---|
//! | [`LockedLruvec::place`]: where a folio goes when it is put on a list | arrivals, put back |
//! | [`accessed`], [`accessed_again`], [`faulted_in`], [`advise_cold`]: what use and advice say of a folio | `access.rs`, `writeback/` |
//! | [`Pass`], [`Turn`]: one lruvec's turn in a pass: age, isolate, put back | `reclaim/order.rs` |
//! | [`references`], [`referenced`]: what is known of the use of an isolated folio | `pageout/` |
//! | [`Evictions`]: what is remembered of an evicted page; [`refaulted`]: what it gets back | `pageout/`, `access.rs` |
//! | [`Habits`]: what reclaim as a whole does under a policy | `reclaim/`, `lru/order.rs` |
//! | [`size_of_list`], [`policy_of_list`]: its state | `validate.rs` |
//! | [`LockedLruvec::leave`], [`LockedLruvec::join`]: moving between policies | [`switch`] |
//!
//! A turn does not free pages itself: it isolates a batch and says [`TurnStep::PageOut`], the
//! caller examines and frees what it can ([`crate::pageout`]), and [`Turn::put_back`] gets the
//! rest.
//!
//! A folio belongs to the policy on whose lists it is, which the mark in its state word says. So
//! several can have folios at the same time, and do, while the policy is switched ([`switch`]).
//!
//! # A further policy
//!
//! One variant of [`Lru`] with a number, a name and a mark for each of its lists (`folio/flags.rs`
//! has three left); one file or folder here; a field of [`Lruvec`] for its state and of [`lists`]
//! for its lists; and an arm in each match of this file.

pub(crate) mod arrivals;
pub(crate) mod classic;
mod evidence;
#[cfg(test)]
mod fifo;
pub(crate) mod lists;
mod lruvec;
pub(crate) mod multigen;
mod order;
pub(crate) mod ranked;
pub(crate) mod scan_control;
pub mod switch;
mod tell;
mod terms;
pub(crate) mod turns;

pub(crate) use arrivals::{Arrivals, BATCH_FOLIOS, Queue};
pub use classic::Refresh;
pub use evidence::{Distance, References, Shadow};
pub use lruvec::{GenerationRow, Lruvec};
pub(crate) use lruvec::{LockedLruvec, all_lists};
pub use multigen::window::{MAX_GENERATIONS, MIN_GENERATIONS, Seq};
pub(crate) use order::{OrderWalk, TURN_PAGES, Visit};
pub(crate) use scan_control::{Context, Grant, Isolated, PagedOut, Refault, Scan, TurnStep};
pub(crate) use terms::Habits;
pub use terms::Swappiness;
pub(crate) use turns::MemcgOrder;

use crate::Core;
use crate::folio::{Flags, FolioId, GenIndex, Kind, MAIN, NEWCOMER};
use crate::host::Host;
use crate::mechanism::{Lru, Mechanisms, Switch};
use crate::memcg::{Memcg, MemcgId};
use multigen::window::GENERATION_LISTS;

impl Lru {
    /// All policies, those for tests included, in the order in which they take turns while the
    /// policy is switched.
    #[cfg(not(test))]
    pub(crate) const POLICIES: [Lru; 3] = Lru::ALL;
    #[cfg(test)]
    pub(crate) const POLICIES: [Lru; 4] = [Lru::MultiGen, Lru::Classic, Lru::Ranked, Lru::Fifo];

    /// What reclaim as a whole does under it.
    #[inline]
    pub(crate) const fn habits(self) -> &'static Habits {
        match self {
            Lru::MultiGen => &multigen::HABITS,
            Lru::Classic => &classic::HABITS,
            Lru::Ranked => &ranked::HABITS,
            #[cfg(test)]
            Lru::Fifo => &fifo::HABITS,
        }
    }

    /// On whose lists a folio in such a state is, if it is on one that is scanned.
    fn of(now: Flags) -> Lru {
        match now.mark() {
            0 => Lru::Classic,
            NEWCOMER | MAIN => Lru::Ranked,
            #[cfg(test)]
            fifo::MARK => Lru::Fifo,
            _ => Lru::MultiGen,
        }
    }
}

impl Lru {
    /// What `lru_gen/enabled` chooses between.
    pub(crate) fn by_generations(yes: bool) -> Lru {
        if yes { Lru::MultiGen } else { Lru::Classic }
    }
}

impl Mechanisms {
    /// Whether some policy that may have folios is such.
    #[inline]
    pub(crate) fn any_policy(self, is_such: impl Fn(Lru) -> bool) -> bool {
        if self.is_switching() { Lru::POLICIES.into_iter().any(is_such) } else { is_such(self.lru()) }
    }

    /// Whether the lists of that policy may have folios.
    pub(crate) fn may_have_folios_of(self, lru: Lru) -> bool {
        self.is_switching() || self.lru() == lru
    }
}

impl Core {
    /// What reclaim as a whole does under the policy.
    #[inline]
    pub(crate) fn habits(&self) -> &'static Habits {
        self.lru().habits()
    }
}

// Placing.

impl LockedLruvec<'_> {
    /// Puts a folio where the policy says. `rotation`: to be evicted next.
    pub(crate) fn place(&mut self, folio: FolioId, rotation: bool) {
        // Asked under the lock: once the policy is switched, nobody adds to lists that the switch
        // has emptied.
        match self.folios.mechanisms().lru() {
            Lru::MultiGen => _ = self.add_to_generation(folio, rotation),
            Lru::Classic => self.add_classic(folio, rotation),
            Lru::Ranked => self.add_ranked(folio, rotation),
            #[cfg(test)]
            Lru::Fifo => self.add_fifo(folio, rotation),
        }
    }

    /// Puts a new folio where the policy says.
    pub(crate) fn place_new(&mut self, core: &Core, folio: FolioId) {
        match self.folios.mechanisms().lru() {
            Lru::Ranked => self.add_new_ranked(core, folio),
            _ => self.place(folio, false),
        }
    }

    /// A folio goes to the same list of `heir`: what its policy notes of it beside its state
    /// follows.
    fn inherit(&self, heir: &LockedLruvec<'_>, list: usize, folio: FolioId) {
        if policy_of_list(list) == Some(Lru::Ranked) {
            heir.inherit_ranked(self, folio);
        }
    }

    /// A folio was taken off a list that is scanned, on which it was in state `before`: its policy
    /// counts one less.
    #[inline]
    fn count_off(&mut self, kind: Kind, before: Flags) {
        match Lru::of(before) {
            Lru::MultiGen => {
                if let Some(generation) = before.generation() {
                    self.resize(generation, kind, -1);
                }
            }
            Lru::Classic => self.resize_classic(kind, before.active(), -1),
            Lru::Ranked => self.resize_ranked(ranked::List::of_mark(before.mark()), kind, -1),
            #[cfg(test)]
            Lru::Fifo => self.resize_fifo(kind, -1),
        }
    }

    /// Its write-back ended: a folio that is off its list is to be evicted next.
    fn rotated(&self, folio: FolioId) {
        // Newcomers and pages of the main list leave from where they were.
        if self.folios.mechanisms().lru() != Lru::Ranked {
            self.folios.flags(folio).clear_active();
        }
    }

    /// A folio that is off its list is to go to the old side, on advice. `true`: that counts as a
    /// deactivation.
    fn make_cold(&self, folio: FolioId) -> bool {
        let (flags, mechanisms) = (self.folios.flags(folio), self.folios.mechanisms());
        let was_active = flags.make_cold();
        match mechanisms.lru() {
            Lru::MultiGen => {
                flags.forget_accesses(mechanisms);
                true
            }
            Lru::Classic => was_active,
            Lru::Ranked => {
                flags.forget_ranked();
                true
            }
            #[cfg(test)]
            Lru::Fifo => was_active,
        }
    }

    /// The lists from which folios move to another policy, in that order: the youngest first.
    fn lists_to_leave(&self, from: Lru) -> Vec<usize> {
        match from {
            Lru::MultiGen => self.generation_lists(),
            // The active lists first.
            Lru::Classic => [true, false]
                .into_iter()
                .flat_map(|active| Kind::ALL.map(|kind| classic::list_of(kind, active)))
                .collect(),
            Lru::Ranked => [ranked::List::Main, ranked::List::Newcomers]
                .into_iter()
                .flat_map(|list| Kind::ALL.map(|kind| ranked::list_of(list, kind)))
                .collect(),
            #[cfg(test)]
            Lru::Fifo => Kind::ALL.map(fifo::list_of).to_vec(),
        }
    }

    /// A folio leaves its policy without leaving the lists: it has no mark, and `active` says
    /// whether it was among the young.
    fn leave(&mut self, from: Lru, folio: FolioId) {
        match from {
            Lru::MultiGen => self.leave_generation(folio),
            Lru::Classic => {
                let (kind, active) = (self.kind_of(folio), self.folios.flags(folio).load().active());
                self.resize_classic(kind, active, -1);
            }
            Lru::Ranked => self.leave_ranked(folio),
            #[cfg(test)]
            Lru::Fifo => self.leave_fifo(folio),
        }
    }

    /// A folio that left its policy goes to the old end of a list of another.
    fn join(&mut self, to: Lru, folio: FolioId) {
        match to {
            Lru::MultiGen => self.join_generation(folio),
            Lru::Classic => {
                let (kind, active) = (self.kind_of(folio), self.folios.flags(folio).load().active());
                self.resize_classic(kind, active, 1);
                self.relist(folio, classic::list_of(kind, active), false);
            }
            Lru::Ranked => self.join_ranked(folio),
            #[cfg(test)]
            Lru::Fifo => self.join_fifo(folio),
        }
    }
}

// Use and advice.

/// Counts one access through a descriptor to the folio that was in state `then`. `Some`:
/// [`accessed_again`] is to be called for it, with its state before; it has a reference for that.
#[inline]
pub(crate) fn accessed(core: &Core, folio: FolioId, then: Flags) -> Option<Flags> {
    let (flags, mechanisms) = (core.folios.flags(folio), core.mechanisms());
    match mechanisms.lru() {
        Lru::MultiGen => {
            flags.mark_accessed(then, mechanisms);
            None
        }
        Lru::Classic => flags.accessed_or_activated(then),
        Lru::Ranked => {
            flags.mark_accessed_ranked(then);
            None
        }
        #[cfg(test)]
        Lru::Fifo => None,
    }
}

/// What [`accessed`] left to do where no lock is held, as a batch of `cpu` may be drained.
#[cold]
pub(crate) fn accessed_again(core: &Core, host: &impl Host, cpu: usize, folio: FolioId, before: Flags) {
    // Only active and inactive lists have it; if the policy was switched meanwhile, the folio is
    // activated all the same.
    core.accessed_again(host, cpu, folio, before);
}

/// A page fault brought a folio in, of a mapping in which use says something. It is not on a list
/// yet.
pub(crate) fn faulted_in(core: &Core, folio: FolioId) {
    match core.lru() {
        Lru::MultiGen => core.folios.flags(folio).mark_faulted_in(core.mechanisms()),
        // The accessed bit of the fault is found by reclaim.
        Lru::Classic => {}
        // The fault makes a page-table entry, which counts as the access that brings the page in.
        Lru::Ranked => {}
        #[cfg(test)]
        Lru::Fifo => {}
    }
}

/// Advice that a page is not needed, which could not be followed at once
/// ([book: access#rotation-and-advice], deactivate-file).
pub(crate) fn advise_cold(core: &Core, host: &impl Host, cpu: usize, folio: FolioId) {
    let moves = match core.lru() {
        Lru::MultiGen => multigen::forget_use(core, folio),
        Lru::Classic | Lru::Ranked => true,
        #[cfg(test)]
        Lru::Fifo => true,
    };
    if moves {
        core.enqueue(host, cpu, Queue::DeactivateFile, folio);
    }
}

// The turn of one lruvec.

/// What is decided once for the turns of all lruvecs of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    priority: u8,
    /// Where the classic LRU has folios.
    balance: Option<classic::Balance>,
}

impl Pass {
    /// A pass at this priority begins.
    pub(crate) fn new(cx: &Context<'_, impl Host>, priority: u8) -> Pass {
        let core = cx.core;
        let balance = core.mechanisms().may_have_folios_of(Lru::Classic).then(|| {
            let target = core.memcg(cx.orders.target);
            core.balance(cx.host, target, !cx.orders.is_root(), priority, cx.scan.force_deactivation)
        });
        Pass { priority, balance }
    }

    /// At which priority.
    pub(crate) fn priority(&self) -> u8 {
        self.priority
    }
}

/// The turn of one policy's lists of an lruvec.
#[derive(Debug)]
enum PolicyTurn {
    MultiGen(multigen::MultiGenTurn),
    Classic(classic::ClassicTurn),
    Ranked(ranked::RankedTurn),
    #[cfg(test)]
    Fifo(fifo::FifoTurn),
}

impl PolicyTurn {
    fn begin(cx: &mut Context<'_, impl Host>, lru: Lru, grant: Grant<'_>, pass: &Pass) -> Option<PolicyTurn> {
        if !cx.core.mechanisms().may_have_folios_of(lru) {
            return None;
        }
        Some(match lru {
            Lru::MultiGen => PolicyTurn::MultiGen(multigen::MultiGenTurn::begin(cx, grant)),
            Lru::Classic => PolicyTurn::Classic(classic::ClassicTurn::begin(cx, grant, pass.balance?)),
            Lru::Ranked => PolicyTurn::Ranked(ranked::RankedTurn::begin(cx, grant)),
            #[cfg(test)]
            Lru::Fifo => PolicyTurn::Fifo(fifo::FifoTurn::begin(grant)),
        })
    }

    fn step(&mut self, cx: &mut Context<'_, impl Host>) -> TurnStep {
        match self {
            PolicyTurn::MultiGen(turn) => turn.step(cx),
            PolicyTurn::Classic(turn) => turn.step(cx),
            PolicyTurn::Ranked(turn) => turn.step(cx),
            #[cfg(test)]
            PolicyTurn::Fifo(turn) => turn.step(cx),
        }
    }

    fn put_back(&mut self, cx: &mut Context<'_, impl Host>, memcg: &Memcg, outcome: PagedOut) -> TurnStep {
        match self {
            PolicyTurn::MultiGen(turn) => {
                put_back_elsewhere(cx, memcg);
                turn.put_back(cx, outcome)
            }
            PolicyTurn::Classic(turn) => turn.put_back(cx, outcome),
            PolicyTurn::Ranked(turn) => turn.put_back(cx, outcome),
            #[cfg(test)]
            PolicyTurn::Fifo(turn) => turn.put_back(cx, outcome),
        }
    }

    fn visit(&self, core: &Core) -> Visit {
        match self {
            PolicyTurn::MultiGen(turn) => turn.visit(core),
            PolicyTurn::Classic(turn) => turn.visit(core),
            PolicyTurn::Ranked(turn) => turn.visit(core),
            #[cfg(test)]
            PolicyTurn::Fifo(turn) => turn.visit(core),
        }
    }
}

/// The turn of one lruvec: what is taken from it, batch by batch, by the policies that have folios
/// on its lists. While the policy is being switched, that is each of them, one after the other
/// ([book: classic-lru#switching]).
#[derive(Debug)]
pub(crate) struct Turn {
    memcg: MemcgId,
    /// Those that are not over, in order.
    policies: [Option<PolicyTurn>; Lru::POLICIES.len()],
    /// What came of those that are over.
    visit: Visit,
}

impl Turn {
    /// It is the turn of a memcg.
    pub(crate) fn begin(cx: &mut Context<'_, impl Host>, grant: Grant<'_>, pass: &Pass) -> Turn {
        let policies = Lru::POLICIES.map(|lru| PolicyTurn::begin(cx, lru, grant, pass));
        Turn { memcg: grant.memcg.id(), policies, visit: Visit::default() }
    }

    /// Whose it is.
    pub(crate) fn memcg(&self) -> MemcgId {
        self.memcg
    }

    /// What the turn came to so far.
    pub(crate) fn visit(&self, core: &Core) -> Visit {
        self.policies.iter().flatten().fold(self.visit, |visit, turn| visit.and(turn.visit(core)))
    }

    /// It ends early. What others wait for is done.
    pub(crate) fn abandon(&mut self, core: &Core, host: &impl Host) {
        for turn in self.policies.iter_mut().flatten() {
            if let PolicyTurn::MultiGen(turn) = turn {
                turn.open_if_walked(core, host);
            }
        }
    }

    /// Takes at most one batch.
    pub(crate) fn step(&mut self, cx: &mut Context<'_, impl Host>) -> TurnStep {
        let Some(turn) = self.policies.iter_mut().flatten().next() else { return TurnStep::Finished };
        let step = turn.step(cx);
        self.after(cx, step)
    }

    /// The folios of the batch were examined: what was not freed is put
    /// back. [`TurnStep::PageOut`]: some of them, once more.
    pub(crate) fn put_back(&mut self, cx: &mut Context<'_, impl Host>, outcome: PagedOut) -> TurnStep {
        let Some(turn) = self.policies.iter_mut().flatten().next() else { return TurnStep::Finished };
        let step = turn.put_back(cx, cx.core.memcg(self.memcg), outcome);
        self.after(cx, step)
    }

    fn after(&mut self, cx: &Context<'_, impl Host>, step: TurnStep) -> TurnStep {
        if step != TurnStep::Finished {
            return step;
        }
        let turn = self.policies.iter_mut().find(|turn| turn.is_some()).and_then(Option::take);
        self.visit = turn.map_or(self.visit, |turn| self.visit.and(turn.visit(cx.core)));
        if self.policies.iter().flatten().next().is_some() { TurnStep::More } else { TurnStep::Finished }
    }
}

/// The policy was switched while folios of the multi-gen LRU were isolated: they go where the new
/// one says.
fn put_back_elsewhere(cx: &mut Context<'_, impl Host>, memcg: &Memcg) {
    if cx.core.lru() != Lru::MultiGen && !cx.scan.rejected.is_empty() {
        classic::put_back(cx.core, cx.host, cx.scan, memcg, None);
    }
}

/// A page that nobody asked for was brought in with another, and is not on a list yet.
pub(crate) fn came_ahead(core: &Core, folio: FolioId) {
    if core.lru() == Lru::Ranked {
        core.folios.flags(folio).comes_ahead();
    }
}

/// A folio got a page-table entry, with the accessed bit set. `true`: for the access for which it
/// was brought in, so that the bit says nothing.
#[inline]
pub(crate) fn mapped_first(core: &Core, folio: FolioId, then: Flags) -> bool {
    let mechanisms = core.mechanisms();
    mechanisms.lru() == Lru::Ranked
        && mechanisms.is_on(Switch::FirstLook)
        && core.folios.flags(folio).take_first_touch(then)
}

/// Whether entries that are made for the neighbours of a page that faults are to be old: nobody
/// touched those.
pub(crate) fn maps_around_old(core: &Core) -> bool {
    core.lru() == Lru::Ranked
}

/// A page is written to.
#[inline]
pub(crate) fn dirtied(core: &Core, folio: FolioId) {
    if core.lru() == Lru::Ranked {
        core.folios.flags(folio).note_touched();
    }
}

/// An isolated folio stays in memory: whether that is an advantage, or only delays its eviction.
pub(crate) fn activates_rejected(core: &Core) -> bool {
    core.lru() != Lru::Ranked
}

/// Fewest pages that an effort on behalf of `target` tries to reclaim.
pub(crate) fn fewest_pages(core: &Core, target: MemcgId) -> u64 {
    match core.lru() {
        Lru::Ranked => ranked::fewest_pages(core.memcg(target).max_pages()),
        _ => scan_control::CLUSTER_PAGES,
    }
}

/// As a part of a turn, one batch of the oldest generation is isolated. `true`: it is to be
/// examined. For commands on `lru_gen`.
pub(crate) fn isolate_oldest(
    cx: &mut Context<'_, impl Host>,
    memcg: &Memcg,
    request: u64,
    swappiness: Swappiness,
) -> bool {
    multigen::isolate(cx, memcg, request, swappiness)
}

/// As a part of a turn, puts back what is left of the batch of [`isolate_oldest`]. `true`: some is
/// to be examined once more.
pub(crate) fn put_back_oldest(cx: &mut Context<'_, impl Host>, memcg: &Memcg, outcome: PagedOut) -> bool {
    put_back_elsewhere(cx, memcg);
    multigen::put_back(cx, memcg, outcome)
}

/// An effort on `target` ends: what it has seen is no news to the next.
pub(crate) fn end_effort(core: &Core, host: &impl Host, target: MemcgId) {
    if core.mechanisms().may_have_folios_of(Lru::Classic) {
        core.note_refaults_seen(host, core.memcg(target));
    }
}

// What is known of an isolated folio.

/// Reads the accessed bits of a mapped folio that is isolated.
pub(crate) fn references(cx: &mut Context<'_, impl Host>, memcg: &Memcg, folio: FolioId) -> References {
    let core = cx.core;
    if core.lru() == Lru::Ranked {
        return ranked::references(cx, folio);
    }
    if core.mechanisms().any_policy(|lru| lru != Lru::MultiGen) {
        let Some(mapping) = cx.scan.last_mapping.get(core, core.mapping_of(folio)) else {
            return References::None;
        };
        return classic::references(core, mapping, folio);
    }
    multigen::references(cx, memcg, folio)
}

/// What `referenced` says of an isolated folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Referenced {
    /// It was accessed, which is forgotten when that is looked at.
    pub(crate) counts: bool,
    /// Its accessed bit was found set while it was isolated.
    pub(crate) young_meanwhile: bool,
}

/// What `referenced` says of an isolated folio in state `now`.
#[inline]
pub(crate) fn referenced(mechanisms: Mechanisms, now: Flags) -> Referenced {
    let two_lists = mechanisms.any_policy(|lru| lru != Lru::MultiGen);
    if mechanisms.lru() == Lru::Ranked {
        return Referenced { counts: false, young_meanwhile: false };
    }
    Referenced {
        // Of clean ones it would be forgotten when they are freed.
        counts: now.referenced() && now.dirty() && two_lists,
        young_meanwhile: now.referenced() && !mechanisms.workingset_rework() && !two_lists,
    }
}

// Eviction and return.

/// A batch of evictions on behalf of one target, and what is remembered of the pages.
#[derive(Debug)]
pub(crate) struct Evictions {
    classic: classic::Evictions,
    /// Pages evicted, by kind and tier.
    tiers: [[u64; 4]; 2],
}

impl Evictions {
    /// Up to so many pages will be evicted on behalf of `target`; [`Self::end`] is to be called
    /// after them.
    pub(crate) fn begin(core: &Core, target: MemcgId, pages: u64) -> Evictions {
        let classic = match core.lru() {
            Lru::Classic => classic::Evictions::begin(core, target, pages),
            _ => classic::Evictions::none(target),
        };
        Evictions { classic, tiers: [[0; 4]; 2] }
    }

    /// A page of `memcg` in state `flags` is evicted now: the shadow that stays.
    pub(crate) fn evicted(
        &mut self,
        core: &Core,
        memcg: &Memcg,
        folio: FolioId,
        (kind, flags): (Kind, Flags),
    ) -> Shadow {
        let mechanisms = core.mechanisms();
        self.tiers[kind as usize][usize::from(flags.tier(mechanisms))] += 1;
        match mechanisms.lru() {
            Lru::MultiGen => memcg.lruvec.shadow_of(kind, flags, mechanisms),
            Lru::Classic => self.classic.shadow(core, flags),
            Lru::Ranked => ranked::shadow_of(core, memcg, folio, flags),
            #[cfg(test)]
            Lru::Fifo => fifo::shadow_of(memcg),
        }
    }

    /// The batch is over. Pages evicted, by kind.
    pub(crate) fn end(self, core: &Core, memcg: &Memcg) -> [u64; 2] {
        self.classic.end(core);
        Kind::ALL.map(|kind| {
            let tiers = self.tiers[kind as usize];
            memcg.lruvec.count_evicted(kind, tiers);
            tiers.iter().sum()
        })
    }
}

/// A page with a shadow is back, not yet on a list: what it gets.
pub(crate) fn refaulted(core: &Core, host: &impl Host, refault: Refault<'_>) {
    match core.lru() {
        Lru::MultiGen => multigen::refaulted(core, host, refault),
        Lru::Classic => classic::refaulted(core, host, refault),
        Lru::Ranked => ranked::refaulted(core, host, refault),
        #[cfg(test)]
        Lru::Fifo => fifo::refaulted(core, host, refault),
    }
}

// State.

impl Lruvec {
    /// Pages on lists, of the kinds that `swappiness` allows.
    pub fn evictable_pages(&self, swappiness: Swappiness) -> u64 {
        let pages = |kind| {
            let pages = self.classic.pages(kind) + self.ranked.pages(kind);
            #[cfg(test)]
            let pages = pages + self.fifo.pages(kind);
            pages
        };
        swappiness.evictable().map(pages).sum::<u64>() + self.pages_in_generations(swappiness)
    }

    /// Pages on the active list, or labelled with one of the two youngest generations, which is
    /// what the kernel reports as active.
    pub fn active_pages(&self, kind: Kind) -> u64 {
        let [main, _] = self.ranked.reported(kind);
        self.classic.size(kind, true) + main + self.pages_in_active_generations(kind)
    }

    /// Pages on the inactive list, or in the other generations.
    pub fn inactive_pages(&self, kind: Kind) -> u64 {
        let all: u64 = (0..MAX_GENERATIONS as u8).map(|g| self.size(GenIndex(g), kind)).sum();
        let [_, newcomers] = self.ranked.reported(kind);
        let in_generations = all - self.pages_in_active_generations(kind).min(all);
        let pages = self.classic.size(kind, false) + newcomers + in_generations;
        #[cfg(test)]
        let pages = pages + self.fifo.pages(kind);
        pages
    }

    /// Pages on all lists that are scanned, of both kinds.
    pub(crate) fn reclaimable_pages(&self) -> u64 {
        let of_kind = |kind| self.classic.pages(kind) + self.ranked.pages(kind);
        let pages = self.labelled_pages() + Kind::ALL.map(of_kind).iter().sum::<u64>();
        #[cfg(test)]
        let pages = pages + Kind::ALL.map(|kind| self.fifo.pages(kind)).iter().sum::<u64>();
        pages
    }
}

impl LockedLruvec<'_> {
    /// What each policy counts here is counted in `heir`.
    fn hand_over_sizes(&mut self, heir: &mut LockedLruvec<'_>) {
        self.hand_over_generations(heir);
        for (kind, active) in classic::LISTS {
            let pages = self.lruvec.classic.size(kind, active) as i64;
            self.resize_classic(kind, active, -pages);
            heir.resize_classic(kind, active, pages);
        }
        for (list, kind) in ranked::LISTS {
            let pages = self.lruvec.ranked.size(list, kind) as i64;
            if pages != 0 {
                self.resize_ranked(list, kind, -pages);
                heir.resize_ranked(list, kind, pages);
            }
        }
        #[cfg(test)]
        for kind in Kind::ALL {
            let pages = self.lruvec.fifo.pages(kind) as i64;
            self.resize_fifo(kind, -pages);
            heir.resize_fifo(kind, pages);
        }
    }
}

/// The policy whose list that is; `None`: it is for folios that must not be reclaimed.
pub(crate) fn policy_of_list(list: usize) -> Option<Lru> {
    match list {
        _ if list < GENERATION_LISTS => Some(Lru::MultiGen),
        lruvec::UNEVICTABLE => None,
        #[cfg(test)]
        _ if list >= lruvec::FIFO_LISTS => Some(Lru::Fifo),
        _ if list >= lruvec::RANKED_LISTS => Some(Lru::Ranked),
        _ => Some(Lru::Classic),
    }
}

/// The list that the state of a folio names, which is on a list: that where it is counted.
pub(crate) fn list_named(now: Flags) -> usize {
    let kind = if now.swapbacked() { Kind::Anon } else { Kind::File };
    if now.unevictable() {
        return lruvec::UNEVICTABLE;
    }
    match Lru::of(now) {
        Lru::MultiGen => {
            now.generation().map_or(lruvec::UNEVICTABLE, |label| multigen::lists::list_of(label, kind))
        }
        Lru::Classic => classic::list_of(kind, now.active()),
        Lru::Ranked => ranked::list_of(ranked::List::of_mark(now.mark()), kind),
        #[cfg(test)]
        Lru::Fifo => fifo::list_of(kind),
    }
}

/// The list that a folio in such a state is on, or may be on: of the multi-gen LRU, that of its
/// kind of any generation.
pub(crate) fn may_be_on(now: Flags, list: usize) -> bool {
    let named = list_named(now);
    match policy_of_list(named) {
        Some(Lru::MultiGen) => list < GENERATION_LISTS && list % 2 == named % 2,
        _ => list == named,
    }
}

/// Pages that a policy counts on a list, or labelled as its.
pub(crate) fn size_of_list(lruvec: &Lruvec, list: usize) -> u64 {
    let kind = Kind::ALL[list % 2];
    match policy_of_list(list) {
        Some(Lru::MultiGen) => lruvec.size(GenIndex((list / 2) as u8), kind),
        Some(Lru::Classic) => {
            let (kind, active) = classic::LISTS[list - GENERATION_LISTS];
            lruvec.classic.size(kind, active)
        }
        Some(Lru::Ranked) => {
            let (list, kind) = ranked::LISTS[list - lruvec::RANKED_LISTS];
            lruvec.ranked.size(list, kind)
        }
        #[cfg(test)]
        Some(Lru::Fifo) => lruvec.fifo.pages(Kind::ALL[list - lruvec::FIFO_LISTS]),
        None => lruvec.unevictable_pages(),
    }
}
