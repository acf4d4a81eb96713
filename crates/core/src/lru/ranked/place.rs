//! Placing pages, and the hand of the main list.

use super::constants::{HAND_STEPS, PROMOTING_REFS};
use super::share::Signal;
use super::state::{LISTS, List, Ranked, list_of};
use crate::Core;
use crate::event::ListedFrom;
use crate::folio::{Flags, FolioId, HandStep, Kind};
use crate::host::Host;
use crate::lru::accessed_bit::take_accessed;
use crate::lru::lists::AHEAD;
use crate::lru::scan_control::{Isolated, LastMapping};
use crate::lru::{LockedLruvec, Swappiness, emit, order};
use crate::mechanism::Switch;
use crate::memcg::MemcgId;

/// The factor on the age of a kind's pages: swappiness sets the cost of anonymous pages. At 200,
/// file pages have age zero.
fn weight(swappiness: Swappiness, kind: Kind) -> u64 {
    let anon = u64::from(swappiness.get().min(200));
    match kind {
        Kind::Anon => anon,
        Kind::File => 200 - anon,
    }
}

/// The most pages that a memcg may have, by its limits, its ancestors' limits and the size of
/// memory.
pub(super) fn memory_limit(core: &Core, memcg: MemcgId) -> u64 {
    let of_node = u64::from(core.folios.len()).saturating_sub(core.node.high_pages(0));
    core.memcgs.limit_pages(memcg).min(of_node)
}

/// The decision of a scan about a folio at the newcomers' tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Promote,
    /// It was read ahead, and is found accessed for the first time: any number of accesses may be
    /// behind that, so it stays for another look.
    Keep,
    Take,
}

/// A newcomer that a scan has looked at.
#[derive(Clone, Copy, Debug)]
struct Met {
    kind: Kind,
    folio: FolioId,
    fate: Fate,
    /// It was read ahead and not read yet.
    is_unread: bool,
}

impl Met {
    fn is_unread_to_take(&self) -> bool {
        self.is_unread && self.fate == Fate::Take
    }
}

/// How a batch is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Pages of each list to look at, in the order of [`List`]. Once that many were looked at,
    /// those that are still listed cannot be freed, and the other list gives.
    pub(super) left: [u64; 2],
    /// Pages of the main list that are in use are left alone.
    pub(super) spares_used: bool,
    pub(super) swappiness: Swappiness,
}

/// The outcome of a scan beside the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    /// Pages of each list that were looked at, in the order of [`List`].
    pub(super) of_lists: [u64; 2],
    /// The hand turned as far as it may, and all pages were in use.
    pub(super) all_in_use: bool,
    /// All that is left was read ahead and not read yet.
    pub(super) unread: bool,
}

/// `first_use`: the look found the first access since the folio was brought in.
fn fate_of(now: Flags, first_use: bool) -> Fate {
    match now.refs() {
        refs if refs >= PROMOTING_REFS => Fate::Promote,
        _ if first_use => Fate::Keep,
        _ => Fate::Take,
    }
}

impl LockedLruvec<'_> {
    #[inline]
    pub(in crate::lru) fn resize_ranked(&mut self, list: List, kind: Kind, pages: i64) {
        self.lruvec.ranked.resize(list, kind, pages);
        let [all, of_active] = &mut self.listed[kind as usize];
        *all += pages;
        *of_active += if list == List::Main { pages } else { 0 };
    }

    /// Prefetches what a scan needs of the folio after the next ([book: eviction#prefetch]). The
    /// words of pages at the old end lie with the CPUs that brought them in; without this, a scan
    /// waits for each of them with the lists locked.
    #[inline]
    fn fetch_ahead(&self, host: &impl Host, folio: FolioId) {
        if self.folios.mechanisms().prefetch()
            && let Some(next) = self.look_ahead::<AHEAD>(host, folio)
            && let Some(further) = self.lists.lists.next(self.folios, next)
        {
            // The stamp, which the other policies do not have.
            host.prefetch(self.folios.memcg_word(further));
        }
    }

    fn tail_of(&self, list: List, kind: Kind) -> Option<FolioId> {
        self.lists.lists.tail(list_of(list, kind))
    }

    /// Puts a folio at the head or tail of a list. `refs`: the fewest accesses it is to have;
    /// `None`: keeps its count.
    #[inline]
    fn enlist(&mut self, (folio, kind): (FolioId, Kind), list: List, at_head: bool, refs: Option<u32>) {
        self.folios.flags(folio).enlist_ranked(list.mark(), refs);
        self.resize_ranked(list, kind, 1);
        self.push(folio, list_of(list, kind), at_head);
    }

    fn stamp_now(&self, folio: FolioId) {
        self.folios.set_stamp(folio, self.lruvec.ranked.clock().stamp());
    }

    /// Puts a folio back on the list that `active` names. `rotation`: to be evicted next.
    pub(in crate::lru) fn add_ranked(&mut self, folio: FolioId, rotation: bool) {
        let now = self.folios.flags(folio).load();
        let list = if now.active() { List::Main } else { List::Newcomers };
        self.enlist((folio, now.kind()), list, !rotation, None);
    }

    /// Puts a page that was brought in on the main list, if that has room or the page's rank is
    /// high enough; else among the newcomers.
    #[inline]
    pub(in crate::lru) fn add_new_ranked(&mut self, core: &Core, host: &impl Host, folio: FolioId) {
        let lruvec = self.lruvec;
        let (ranked, mechanisms): (&Ranked, _) = (&lruvec.ranked, self.folios.mechanisms());
        let now = self.folios.flags(folio).load();
        let takeable = ranked.takeable();
        ranked.expect(|| memory_limit(core, lruvec.memcg));
        ranked.tick(order::pages_reclaimed(core), takeable);
        let returns = now.active();
        // It was read ahead and not yet used: it must not fill the main list.
        let ahead = !returns && now.workingset() && !now.referenced();
        let main = if returns {
            ranked.main_has_room(takeable) || self.admits(core, host, folio)
        } else {
            !ahead && mechanisms.is_on(Switch::FillMain) && ranked.main_has_room(takeable)
        };
        if returns && !main {
            ranked.signal(core, Signal::Refused);
        }
        let was_main = returns && now.workingset();
        self.stamp_now(folio);
        let list = if main { List::Main } else { List::Newcomers };
        self.enlist((folio, now.kind()), list, true, Some(u32::from(main && was_main)));
    }

    /// Whether the main list, which is full, admits a returning page: it was away for less time
    /// than that list's candidate has been unused.
    #[inline]
    fn admits(&mut self, core: &Core, host: &impl Host, folio: FolioId) -> bool {
        if !self.folios.mechanisms().is_on(Switch::RankByGeneration) {
            return true;
        }
        let away = self.folios.stamp(folio);
        let swappiness = self.lruvec.ranked.swappiness();
        match self.candidate((core, host), &mut LastMapping::default(), swappiness, HAND_STEPS) {
            None => self.lruvec.ranked.takeable()[List::Main as usize] == 0,
            Some(candidate) => {
                let clock = self.lruvec.ranked.clock();
                clock.age(away) < clock.age(self.folios.stamp(candidate))
            }
        }
    }

    /// The kind with the older tail, which is scanned first; swappiness weighs the ages.
    #[inline]
    fn older_tail(&self, list: List, swappiness: Swappiness) -> Option<(Kind, FolioId)> {
        let ranked: &Ranked = &self.lruvec.ranked;
        let tail =
            |kind| self.tail_of(list, kind).filter(|_| swappiness.evicts(kind)).map(|folio| (kind, folio));
        let (anon, file) = match (tail(Kind::Anon), tail(Kind::File)) {
            (Some(anon), Some(file)) => (anon, file),
            (one, other) => return one.or(other),
        };
        let clock = ranked.clock();
        let key = |(kind, folio)| {
            let weight = weight(swappiness, kind);
            // At equal ages, the kind with more pages.
            ((clock.age(self.folios.stamp(folio)) + 1) * weight, ranked.size(list, kind) * weight)
        };
        Some(if key(anon) > key(file) { anon } else { file })
    }

    /// Reads and clears the accessed bit of a mapped folio, and counts it. `true`: it is the first
    /// access since the folio was brought in, and any number of others may be behind it.
    #[inline]
    fn look(&self, core: &Core, last: &mut LastMapping, folio: FolioId) -> bool {
        let flags = self.folios.flags(folio);
        if !flags.load().mapped() {
            return false;
        }
        let Some(mapping) = last.get(core, core.folios.mapping_of(folio)) else { return false };
        take_accessed(core, mapping, folio) && flags.found_accessed().refs() == 0
    }

    /// The node's time at which the coldest page that reclaim may take was used last, as far as
    /// known. `None`: the lists are empty.
    pub(in crate::lru) fn coldest_used_at(&self) -> Option<u64> {
        let ranked = &self.lruvec.ranked;
        let swappiness = ranked.sparing_files(ranked.swappiness());
        let tails = LISTS.into_iter().filter(|&(_, kind)| swappiness.evicts(kind));
        let tails = tails.filter_map(|(list, kind)| self.tail_of(list, kind));
        tails.map(|folio| ranked.born(self.folios.stamp(folio))).min()
    }

    /// Turns the hand to the first unused page of the main list, at most `steps` pages far. `None`:
    /// so many pages were used, or the list is empty.
    #[inline]
    fn candidate(
        &mut self,
        (core, host): (&Core, &impl Host),
        last: &mut LastMapping,
        swappiness: Swappiness,
        steps: u64,
    ) -> Option<FolioId> {
        for _ in 0..steps {
            let (kind, folio) = self.older_tail(List::Main, swappiness)?;
            self.fetch_ahead(host, folio);
            self.look(core, last, folio);
            let step = self.folios.flags(folio).hand_step();
            self.lruvec.ranked.count_hand_step(step == HandStep::Passed { accessed: true });
            match step {
                HandStep::Candidate => return Some(folio),
                HandStep::Passed { accessed } => {
                    if accessed {
                        self.lruvec.ranked.note_period(self.folios.stamp(folio));
                        self.stamp_now(folio);
                    }
                    self.relist(folio, list_of(List::Main, kind), true);
                }
            }
        }
        None
    }

    /// Takes up to `request` pages off the lists, looking at no more than `budget`, into an empty
    /// `batch`.
    #[inline]
    pub(super) fn isolate_ranked(
        &mut self,
        (core, host): (&Core, &impl Host),
        (request, budget): (u64, u64),
        manner: Manner,
        last: &mut LastMapping,
        batch: &mut Isolated,
    ) -> Looked {
        let Manner { left, spares_used, swappiness } = manner;
        let [mut newcomers, mut of_main] = [0; 2];
        let [mut all_in_use, mut unread] = [false; 2];
        let lruvec = self.lruvec;
        let ranked: &Ranked = &lruvec.ranked;
        while batch.scanned < budget && (batch.folios.len() as u64) < request {
            // Which list gives is decided by all pages of the ranking, those that this turn's
            // swappiness spares included.
            let takeable = ranked.takeable();
            let of_newcomers = takeable[List::Newcomers as usize];
            let [newcomers_here, main_here] = ranked.takeable_with(swappiness);
            let newcomers_gave = newcomers_here == 0 || newcomers >= left[List::Newcomers as usize];
            let main_has_pages = main_here > 0;
            let main_gives = main_has_pages && of_main < left[List::Main as usize];
            let from_main = main_has_pages
                && (newcomers_gave || main_gives && of_newcomers < ranked.newcomers_target(takeable));
            let spares_unread = !newcomers_gave && of_newcomers <= ranked.unread_pages();
            batch.scanned += 1;
            let met = if from_main { None } else { self.look_at_newcomer(core, host, last, swappiness) };
            if met.is_none() && !from_main {
                break;
            }
            // A spared newcomer does not count as looked at: if main cannot give, its turn comes.
            let is_spared = met.is_some_and(|met| met.is_unread_to_take())
                && spares_unread
                && (main_gives || spares_used);
            if is_spared && !main_gives {
                unread = true;
                break;
            }
            let Some(Met { kind, folio, fate, .. }) = met.filter(|_| !is_spared) else {
                of_main += 1;
                if !self.take_from_main(core, host, last, manner, batch) {
                    all_in_use = true;
                    break;
                }
                continue;
            };
            newcomers += 1;
            match fate {
                Fate::Keep => self.relist(folio, list_of(List::Newcomers, kind), true),
                Fate::Take => self.take_off(host, folio, list_of(List::Newcomers, kind), batch),
                Fate::Promote => {
                    self.promote(folio, kind);
                    batch.sorted += 1;
                    batch.protected += 1;
                    emit::listed(core, host, core.memcg(self.lruvec.memcg), folio, ListedFrom::Activation);
                    if ranked.main_is_full() {
                        self.take_from_main(core, host, last, manner, batch);
                    }
                }
            }
        }
        Looked { of_lists: [newcomers, of_main], all_in_use, unread }
    }

    /// Looks at the next newcomer. `None`: the lists are empty.
    #[inline]
    fn look_at_newcomer(
        &mut self,
        core: &Core,
        host: &impl Host,
        last: &mut LastMapping,
        swappiness: Swappiness,
    ) -> Option<Met> {
        let (kind, folio) = self.older_tail(List::Newcomers, swappiness)?;
        self.fetch_ahead(host, folio);
        let first_use = self.look(core, last, folio);
        let now = self.folios.flags(folio).load();
        Some(Met { kind, folio, fate: fate_of(now, first_use), is_unread: !now.referenced() })
    }

    fn promote(&mut self, folio: FolioId, kind: Kind) {
        self.folios.flags(folio).promote();
        self.resize_ranked(List::Newcomers, kind, -1);
        self.resize_ranked(List::Main, kind, 1);
        self.stamp_now(folio);
        self.relist(folio, list_of(List::Main, kind), true);
    }

    /// Takes the main list's candidate. `false`: the hand found none, and pages in use are spared.
    #[inline]
    fn take_from_main(
        &mut self,
        core: &Core,
        host: &impl Host,
        last: &mut LastMapping,
        Manner { spares_used, swappiness, .. }: Manner,
        batch: &mut Isolated,
    ) -> bool {
        // The hand has taken the uses of a small list after one lap: a second one would find none.
        let [_, of_main] = self.lruvec.ranked.takeable_with(swappiness);
        let lap = if spares_used { of_main } else { HAND_STEPS };
        let candidate = self.candidate((core, host), last, swappiness, lap.min(HAND_STEPS));
        if candidate.is_none() && spares_used {
            return false;
        }
        // If all were accessed, take the next one all the same.
        let Some(folio) = candidate.or_else(|| Some(self.older_tail(List::Main, swappiness)?.1)) else {
            return true;
        };
        self.lruvec.ranked.note_period(self.folios.stamp(folio));
        let list = list_of(List::Main, self.kind_of(folio));
        self.take_off(host, folio, list, batch);
        true
    }

    /// Isolates a folio. If another thread has the right to it, it moves out of the way.
    #[inline]
    fn take_off(&mut self, host: &impl Host, folio: FolioId, list: usize, batch: &mut Isolated) {
        if self.isolate_folio(host, folio) {
            batch.folios.push(folio);
        } else {
            self.relist(folio, list, true);
        }
    }

    /// Detaches a listed folio from this policy.
    pub(in crate::lru) fn leave_ranked(&mut self, folio: FolioId) {
        let flags = self.folios.flags(folio);
        let list = List::of_mark(flags.load().mark());
        flags.leave_ranked();
        self.resize_ranked(list, self.kind_of(folio), -1);
    }

    /// Attaches a listed folio of another policy, at the old end of a list. Its age is unknown: all
    /// such folios get the same stamp.
    pub(in crate::lru) fn join_ranked(&mut self, folio: FolioId) {
        let list = List::of_mark(self.folios.flags(folio).join_ranked().mark());
        let kind = self.kind_of(folio);
        self.stamp_now(folio);
        self.resize_ranked(list, kind, 1);
        self.relist(folio, list_of(list, kind), false);
    }

    /// Gives a folio that comes from a list of `from` the same age by this lruvec's clock.
    pub(in crate::lru) fn inherit_ranked(&self, from: &LockedLruvec<'_>, folio: FolioId) {
        let age = from.lruvec.ranked.clock().age(self.folios.stamp(folio));
        self.folios.set_stamp(folio, self.lruvec.ranked.clock().stamp_of_age(age));
    }
}
