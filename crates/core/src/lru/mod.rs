//! The seam between reclaim and the policies that rank pages.
//!
//! Only this folder knows how pages are ranked. Each policy has a folder with all of its rules:
//! `multigen/` the multi-gen LRU, `classic/` the active and inactive lists, `ranked/` newcomers and
//! a main list. `fifo.rs` is a minimal policy for tests. [`Lru`] is the closed set of policies, and
//! only this file matches on it:
//!
//! | operation | callers |
//! |---|---|
//! | [`LockedLruvec::place`]: puts a folio on a list | arrivals, put back |
//! | [`accessed`], [`accessed_again`], [`faulted_in`], [`advise_cold`]: note accesses to a folio and advice about it | `access.rs`, `writeback/` |
//! | [`Pass`], [`Turn`]: one lruvec's turn in a pass: age, isolate, put back | `reclaim/order.rs` |
//! | [`references`], [`referenced`]: say whether an isolated folio was accessed | `pageout/` |
//! | [`Evictions`]: makes the shadow of an evicted page; [`refaulted`]: evaluates it on refault | `pageout/`, `access.rs` |
//! | [`Habits`]: the policy's parameters for reclaim as a whole | `reclaim/`, `lru/order.rs` |
//! | [`size_of_list`], [`policy_of_list`]: the policy's state | `validate.rs` |
//! | [`LockedLruvec::leave`], [`LockedLruvec::join`]: move folios between policies | [`switch`] |
//!
//! A turn frees no pages. It isolates a batch and returns [`TurnStep::PageOut`]; the caller
//! examines the batch and frees what it can ([`crate::pageout`]); [`Turn::put_back`] takes the
//! rest.
//!
//! A folio belongs to the policy whose list it is on, which the mark in its state word names. While
//! the policy is switched ([`switch`]), several policies have folios at the same time.
//!
//! # A further policy
//!
//! * A variant of [`Lru`] with a number, a name, and a mark for each of its lists; the marks of
//!   `folio/flags/mod.rs` are used up except for 7, which `fifo.rs` has in tests.
//! * A file or folder here.
//! * A field of [`Lruvec`] for its state, and one of [`lists`] for its lists.
//! * An arm in each match of this file.

mod accessed_bit;
pub(crate) mod arrivals;
mod batches;
pub(crate) mod classic;
mod emit;
mod evidence;
#[cfg(test)]
mod fifo;
pub(crate) mod lists;
mod lruvec;
pub(crate) mod multigen;
pub(crate) mod order;
pub(crate) mod ranked;
pub(crate) mod scan_control;
pub mod switch;
mod terms;
pub(crate) mod turns;

pub(crate) use batches::{Arrivals, BATCH_FOLIOS, Queue};
pub use evidence::{Distance, References, Shadow};
pub use lruvec::{GenerationRow, ListRow, Lruvec};
pub(crate) use lruvec::{LockedLruvec, all_lists};
pub(crate) use multigen::Aging;
pub use multigen::window::{MAX_GENERATIONS, MIN_GENERATIONS, Seq};
pub(crate) use order::{OrderWalk, TURN_PAGES, Visit};
pub(crate) use ranked::CompactShadows;
pub(crate) use scan_control::{Context, Grant, Isolated, PagedOut, Refault, Scan, TurnStep};
pub use terms::Swappiness;
pub(crate) use terms::{CLUSTER_PAGES, Habits};
pub(crate) use turns::MemcgOrder;

use crate::Core;
use crate::folio::{Flags, FolioId, GenIndex, Kind, MAIN, NEWCOMER};
use crate::host::Host;
use crate::mapping::ShadowEra;
use crate::mechanism::{Lru, Mechanisms, Switch};
use crate::memcg::{Memcg, MemcgId};
use multigen::lists::zone_and_kind;
use multigen::window::GENERATION_LISTS;

impl Lru {
    /// All policies, including those for tests, in the order of their turns while the policy is
    /// switched.
    #[cfg(not(test))]
    pub(crate) const POLICIES: [Lru; 3] = Lru::ALL;
    #[cfg(test)]
    pub(crate) const POLICIES: [Lru; 4] = [Lru::MultiGen, Lru::Classic, Lru::Ranked, Lru::Fifo];

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

    /// The policy that owns a folio in this state, if the folio is on a list that is scanned.
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
    /// The policy for a value of `lru_gen/enabled`.
    pub(crate) fn by_generations(yes: bool) -> Lru {
        if yes { Lru::MultiGen } else { Lru::Classic }
    }
}

impl Mechanisms {
    /// Whether the predicate holds for any policy that may have folios.
    #[inline]
    pub(crate) fn any_policy(self, is_such: impl Fn(Lru) -> bool) -> bool {
        if self.is_switching() { Lru::POLICIES.into_iter().any(is_such) } else { is_such(self.lru()) }
    }

    /// Whether the lists of `lru` may have folios.
    pub(crate) fn may_have_folios_of(self, lru: Lru) -> bool {
        self.is_switching() || self.lru() == lru
    }
}

impl Core {
    #[inline]
    pub(crate) fn habits(&self) -> &'static Habits {
        self.lru().habits()
    }
}

// Placing.

impl LockedLruvec<'_> {
    /// Puts a folio on the list that the policy chooses. `rotation`: the folio is to be evicted
    /// next.
    pub(crate) fn place(&mut self, folio: FolioId, rotation: bool) {
        // Read under the lock: after a switch has emptied the old policy's lists, no thread adds to
        // them.
        match self.folios.mechanisms().lru() {
            Lru::MultiGen => _ = self.add_to_generation(folio, rotation),
            Lru::Classic => self.add_classic(folio, rotation),
            Lru::Ranked => self.add_ranked(folio, rotation),
            #[cfg(test)]
            Lru::Fifo => self.add_fifo(folio, rotation),
        }
    }

    /// Puts a new folio on the list that the policy chooses.
    #[inline]
    pub(crate) fn place_new(&mut self, core: &Core, host: &impl Host, folio: FolioId) {
        match self.folios.mechanisms().lru() {
            Lru::Ranked => self.add_new_ranked(core, host, folio),
            _ => self.place(folio, false),
        }
    }

    /// Copies what the policy keeps about a folio outside its state word; the folio moves to the
    /// same list of `heir`.
    fn inherit(&self, heir: &LockedLruvec<'_>, list: usize, folio: FolioId) {
        if policy_of_list(list) == Some(Lru::Ranked) {
            heir.inherit_ranked(self, folio);
        }
    }

    /// Counts a folio off: it left a scanned list, on which it was in state `before`.
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

    /// Prepares a folio whose writeback ended to be evicted next; it is off its list.
    fn rotated(&self, folio: FolioId) {
        // Under `ranked`, a folio stays in the list that it came from.
        if self.folios.mechanisms().lru() != Lru::Ranked {
            self.folios.flags(folio).clear_active();
        }
    }

    /// Prepares a folio that is off its list to go to the old end, on advice. `true`: this counts
    /// as a deactivation.
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

    /// The lists from which folios move to another policy, youngest first.
    fn lists_to_leave(&self, from: Lru) -> Vec<usize> {
        match from {
            Lru::MultiGen => self.generation_lists(),
            // Active lists first.
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

    /// Detaches a folio from its policy while it stays on its list: the mark is cleared, and
    /// `active` says whether the folio was young.
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

    /// Attaches a detached folio to another policy, at the old end of one of its lists.
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

// Accesses and advice.

/// Counts one access through a descriptor to a folio seen in state `then`. `Some`: the caller must
/// call [`accessed_again`] with this earlier state; the folio holds a reference for it.
#[inline]
pub(crate) fn accessed(core: &Core, folio: FolioId, then: Flags) -> Option<Flags> {
    if then.is_counted(core.folios.counted_full()) { None } else { count_access(core, folio, then) }
}

#[inline(never)]
fn count_access(core: &Core, folio: FolioId, then: Flags) -> Option<Flags> {
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

/// The rest of [`accessed`], which may drain a batch of `cpu` and so runs without locks.
#[cold]
pub(crate) fn accessed_again(core: &Core, host: &impl Host, cpu: usize, folio: FolioId, before: Flags) {
    // Only the classic LRU asks for this call. If the policy was switched meanwhile, the folio is
    // activated all the same.
    classic::accessed_again(core, host, cpu, folio, before);
}

/// Marks a folio that a page fault brought into a mapping with recency. The folio is not on a list
/// yet.
pub(crate) fn faulted_in(core: &Core, folio: FolioId) {
    match core.lru() {
        Lru::MultiGen => core.folios.flags(folio).mark_faulted_in(core.mechanisms()),
        // Reclaim will find the accessed bit that the fault sets.
        Lru::Classic => {}
        // The fault creates a page-table entry, and that counts as the access of the fault.
        Lru::Ranked => {}
        #[cfg(test)]
        Lru::Fifo => {}
    }
}

/// Deactivates a folio on advice: the caller does not need the page, but it could not be freed at
/// once ([book: access#rotation-and-advice], deactivate-file).
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

// The turn of an lruvec.

/// Decisions made once per pass, for the turns of all lruvecs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    priority: u8,
    /// `Some` if the classic LRU has folios.
    balance: Option<classic::Balance>,
}

impl Pass {
    pub(crate) fn new(cx: &Context<'_, impl Host>, priority: u8) -> Pass {
        let has_classic = cx.core.mechanisms().may_have_folios_of(Lru::Classic);
        let balance = has_classic.then(|| classic::Balance::new(cx, priority));
        Pass { priority, balance }
    }

    pub(crate) fn priority(&self) -> u8 {
        self.priority
    }

    /// Whether the pass spares anonymous pages, as inactive file pages are plenty.
    pub(crate) fn trims_cache(&self) -> bool {
        self.balance.is_some_and(|balance| balance.trims_cache())
    }
}

/// One policy's part of an lruvec's turn.
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

/// The turn of one lruvec: takes folios from it batch by batch. While the policy is switched, the
/// policies that have folios take their parts one after the other ([book: classic-lru#switching]).
#[derive(Debug)]
pub(crate) struct Turn {
    memcg: MemcgId,
    /// Parts that are not finished, in order.
    policies: [Option<PolicyTurn>; Lru::POLICIES.len()],
    /// Results of the finished parts.
    visit: Visit,
}

impl Turn {
    pub(crate) fn begin(cx: &mut Context<'_, impl Host>, grant: Grant<'_>, pass: &Pass) -> Turn {
        let policies = Lru::POLICIES.map(|lru| PolicyTurn::begin(cx, lru, grant, pass));
        Turn { memcg: grant.memcg.id(), policies, visit: Visit::default() }
    }

    pub(crate) fn memcg(&self) -> MemcgId {
        self.memcg
    }

    pub(crate) fn visit(&self, core: &Core) -> Visit {
        self.policies.iter().flatten().fold(self.visit, |visit, turn| visit.and(turn.visit(core)))
    }

    /// Ends the turn early. An aging that other threads wait for is completed.
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

    /// Puts back the folios of the batch that were not freed. [`TurnStep::PageOut`]: some are to be
    /// examined once more.
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

/// Puts isolated folios of the multi-gen LRU back under the current policy, if the policy was
/// switched meanwhile.
fn put_back_elsewhere(cx: &mut Context<'_, impl Host>, memcg: &Memcg) {
    if cx.core.lru() != Lru::MultiGen && !cx.scan.rejected.is_empty() {
        classic::put_back(cx.core, cx.host, cx.scan, memcg, None);
    }
}

/// Marks a folio that readahead brought in. The folio is not on a list yet.
pub(crate) fn came_ahead(core: &Core, folio: FolioId) {
    if core.lru() == Lru::Ranked {
        core.folios.flags(folio).comes_ahead();
    }
}

/// Notes that a fault gave a folio a page-table entry with the accessed bit set. `true`: the fault
/// is counted as far as it counts, and the bit is to be cleared.
#[inline]
pub(crate) fn faulted(core: &Core, folio: FolioId, then: Flags) -> bool {
    let (mechanisms, flags) = (core.mechanisms(), core.folios.flags(folio));
    mechanisms.lru() == Lru::Ranked
        && (mechanisms.is_on(Switch::FirstLook) && flags.take_first_touch(then)
            || mechanisms.is_on(Switch::FaultUses) && flags.count_fault(then))
}

/// Notes a fault on a folio that has a page-table entry of another process. `true`: it is counted.
pub(crate) fn faulted_again(core: &Core, folio: FolioId, then: Flags) -> bool {
    let mechanisms = core.mechanisms();
    mechanisms.lru() == Lru::Ranked
        && mechanisms.is_on(Switch::FaultUses)
        && core.folios.flags(folio).count_fault(then)
}

/// Whether fault-around creates entries with a clear accessed bit, since no access was made through
/// them.
pub(crate) fn maps_around_old(core: &Core) -> bool {
    core.lru() == Lru::Ranked
}

#[inline]
pub(crate) fn dirtied(core: &Core, folio: FolioId) {
    if core.lru() == Lru::Ranked {
        core.folios.flags(folio).note_touched();
    }
}

/// Whether an isolated folio that stays in memory gains rank; if not, its eviction is only delayed.
pub(crate) fn activates_rejected(core: &Core) -> bool {
    core.lru() != Lru::Ranked
}

/// The fewest pages that an effort on behalf of `target` tries to reclaim.
pub(crate) fn fewest_pages(core: &Core, target: MemcgId) -> u64 {
    match core.lru() {
        Lru::Ranked => ranked::fewest_pages(core.memcg(target).max_pages()),
        Lru::MultiGen => core.options.grain.reclaim_pages,
        _ => CLUSTER_PAGES,
    }
}

/// Isolates one batch of the oldest generation, for commands on `lru_gen`. `true`: the batch is to
/// be examined.
pub(crate) fn isolate_oldest(cx: &mut Context<'_, impl Host>, memcg: &Memcg, request: u64) -> bool {
    multigen::isolate(cx, memcg, request, cx.orders.swappiness)
}

/// Puts back the rest of a batch of [`isolate_oldest`]. `true`: some folios are to be examined once
/// more.
pub(crate) fn put_back_oldest(cx: &mut Context<'_, impl Host>, memcg: &Memcg, outcome: PagedOut) -> bool {
    put_back_elsewhere(cx, memcg);
    multigen::put_back(cx, memcg, outcome)
}

/// Ends an effort on `target`: the next effort ignores the refaults that this one has seen.
pub(crate) fn end_effort(core: &Core, host: &impl Host, target: MemcgId) {
    if core.mechanisms().may_have_folios_of(Lru::Classic) {
        classic::note_refaults_seen(core, host, core.memcg(target));
    }
}

// References to isolated folios.

/// Reads and clears the accessed bits of a mapped, isolated folio.
pub(crate) fn references(cx: &mut Context<'_, impl Host>, memcg: &Memcg, folio: FolioId) -> References {
    let core = cx.core;
    if core.lru() == Lru::Ranked {
        return ranked::references(cx, folio);
    }
    if core.mechanisms().any_policy(|lru| lru != Lru::MultiGen) {
        let Some(mapping) = cx.scan.last_mapping.get(core, core.folios.mapping_of(folio)) else {
            return References::None;
        };
        return classic::references(core, mapping, folio);
    }
    multigen::references(cx, memcg, folio)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Referenced {
    /// The folio was accessed. Examining it clears the flag.
    pub(crate) counts: bool,
    /// The accessed bit was found set while the folio was isolated.
    pub(crate) young_meanwhile: bool,
}

/// Interprets the `referenced` flag of an isolated folio in state `now`.
#[inline]
pub(crate) fn referenced(mechanisms: Mechanisms, now: Flags) -> Referenced {
    let two_lists = mechanisms.any_policy(|lru| lru != Lru::MultiGen);
    if mechanisms.lru() == Lru::Ranked {
        return Referenced { counts: false, young_meanwhile: false };
    }
    Referenced {
        // Clean folios lose the flag when they are freed.
        counts: now.referenced() && now.dirty() && two_lists,
        young_meanwhile: now.referenced() && !mechanisms.workingset_rework() && !two_lists,
    }
}

// Eviction and refault.

/// A batch of evictions on behalf of one target.
#[derive(Debug)]
pub(crate) struct Evictions {
    classic: classic::Evictions,
    ranked: ranked::Evictions,
    /// Pages evicted, by kind and tier.
    tiers: [[u64; 4]; 2],
}

impl Evictions {
    /// Begins a batch of at most `pages` evictions on behalf of `target`. [`Self::end`] must
    /// follow.
    pub(crate) fn begin(core: &Core, target: MemcgId, pages: u64) -> Evictions {
        let classic = match core.lru() {
            Lru::Classic => classic::Evictions::begin(core, target, pages),
            _ => classic::Evictions::none(target),
        };
        Evictions { classic, ranked: Default::default(), tiers: [[0; 4]; 2] }
    }

    /// Evicts a page of `memcg` in state `flags`: counts it and returns its shadow.
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
            Lru::Ranked => self.ranked.shadow(core, memcg, folio, flags),
            #[cfg(test)]
            Lru::Fifo => fifo::shadow_of(memcg),
        }
    }

    /// Ends the batch. Returns the pages evicted, by kind.
    pub(crate) fn end(self, core: &Core, memcg: &Memcg) -> [u64; 2] {
        self.classic.end(core);
        self.ranked.end(memcg);
        Kind::ALL.map(|kind| {
            let tiers = self.tiers[kind as usize];
            memcg.lruvec.count_evicted(kind, tiers);
            tiers.iter().sum()
        })
    }
}

/// A leaf with nothing but shadows is dropped, with this one: the policy may keep it elsewhere.
pub(crate) fn leaf_dropped(core: &Core, era: &ShadowEra, index: u32, word: u64) {
    if core.lru() == Lru::Ranked {
        ranked::leaf_dropped(core, era, index, word);
    }
}

/// The shadow of a page of a file that is brought in and has none in its slot.
pub(crate) fn shadow_outside(core: &Core, era: &ShadowEra, index: u32) -> Option<u64> {
    if core.lru() == Lru::Ranked { ranked::shadow_outside(core, era, index) } else { None }
}

/// Handles a page that returns while its shadow exists. The folio is not on a list yet.
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
    pub(crate) fn evictable_pages(&self, swappiness: Swappiness) -> u64 {
        let pages = |kind| {
            let pages = self.classic.pages(kind) + self.ranked.pages(kind);
            #[cfg(test)]
            let pages = pages + self.fifo.pages(kind);
            pages
        };
        swappiness.evictable().map(pages).sum::<u64>() + self.pages_in_generations(swappiness)
    }

    /// Pages on the active list, or labelled with one of the two youngest generations; the kernel
    /// reports those as active.
    pub fn active_pages(&self, kind: Kind) -> u64 {
        let [main, _] = self.ranked.reported(kind);
        self.classic.size(kind, true) + main + self.pages_in_active_generations(kind)
    }

    /// Pages on the inactive list, or labelled with an older generation.
    pub fn inactive_pages(&self, kind: Kind) -> u64 {
        let all: u64 = (0..MAX_GENERATIONS as u8).map(|g| self.size(GenIndex::new(g), kind)).sum();
        let [_, newcomers] = self.ranked.reported(kind);
        let in_generations = all - self.pages_in_active_generations(kind).min(all);
        let pages = self.classic.size(kind, false) + newcomers + in_generations;
        #[cfg(test)]
        let pages = pages + self.fifo.pages(kind);
        pages
    }

    /// Pages of both kinds on all scanned lists.
    pub(crate) fn reclaimable_pages(&self) -> u64 {
        let of_kind = |kind| self.classic.pages(kind) + self.ranked.pages(kind);
        let pages = self.labelled_pages() + Kind::ALL.map(of_kind).iter().sum::<u64>();
        #[cfg(test)]
        let pages = pages + Kind::ALL.map(|kind| self.fifo.pages(kind)).iter().sum::<u64>();
        pages
    }
}

impl LockedLruvec<'_> {
    /// Moves the sizes that each policy counts here to `heir`.
    fn hand_over_sizes(&mut self, heir: &mut LockedLruvec<'_>) {
        self.hand_over_generations(heir);
        for (kind, active) in classic::LISTS {
            let pages = self.lruvec.classic.size(kind, active) as i64;
            self.resize_classic(kind, active, -pages);
            heir.resize_classic(kind, active, pages);
        }
        let costs = std::mem::take(&mut self.lists.costs);
        heir.lists.costs.inherit(costs);
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

/// The policy that owns a list; `None` for the unevictable list.
pub(crate) fn policy_of_list(list: usize) -> Option<Lru> {
    match list {
        _ if zone_and_kind(list).is_some() => Some(Lru::MultiGen),
        terms::UNEVICTABLE => None,
        #[cfg(test)]
        _ if list >= lruvec::FIFO_LISTS => Some(Lru::Fifo),
        _ if list >= ranked::FIRST_LIST => Some(Lru::Ranked),
        _ => Some(Lru::Classic),
    }
}

/// The list that a listed folio's state names, that of the highest zone; its size includes the
/// folio.
pub(crate) fn list_named(now: Flags) -> usize {
    let kind = now.kind();
    if now.unevictable() {
        return terms::UNEVICTABLE;
    }
    match Lru::of(now) {
        Lru::MultiGen => {
            now.generation().map_or(terms::UNEVICTABLE, |label| multigen::lists::list_of(label, kind))
        }
        Lru::Classic => classic::list_of(kind, now.active()),
        Lru::Ranked => ranked::list_of(ranked::List::of_mark(now.mark()), kind),
        #[cfg(test)]
        Lru::Fifo => fifo::list_of(kind),
    }
}

/// Whether a folio in this state and zone may be on `list`. In the multi-gen LRU it may be on any
/// generation of its zone and kind.
pub(crate) fn may_be_on(now: Flags, zone: usize, list: usize) -> bool {
    let named = list_named(now);
    match policy_of_list(named) {
        Some(Lru::MultiGen) => zone_and_kind(list) == Some((zone, now.kind())),
        _ => list == named,
    }
}

/// Pages that a policy counts on a list, or labels as the list's.
pub(crate) fn size_of_list(lruvec: &Lruvec, list: usize) -> u64 {
    match policy_of_list(list) {
        // A size is that of all zones together, and belongs to the list of the highest.
        Some(Lru::MultiGen) if list >= GENERATION_LISTS => 0,
        Some(Lru::MultiGen) => lruvec.size(GenIndex::new((list / 2) as u8), Kind::ALL[list % 2]),
        Some(Lru::Classic) => {
            let (kind, active) = classic::LISTS[list - GENERATION_LISTS];
            lruvec.classic.size(kind, active)
        }
        Some(Lru::Ranked) => {
            let (list, kind) = ranked::LISTS[list - ranked::FIRST_LIST];
            lruvec.ranked.size(list, kind)
        }
        #[cfg(test)]
        Some(Lru::Fifo) => lruvec.fifo.pages(Kind::ALL[list - lruvec::FIFO_LISTS]),
        None => lruvec.unevictable_pages(),
    }
}
