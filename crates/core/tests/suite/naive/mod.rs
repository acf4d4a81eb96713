//! A naive model of one memcg under the multi-gen LRU of Linux 7.2, written from the book to be
//! obviously right, not fast. Generations are deques in a map, labels are sequence numbers, sizes
//! are counted on demand, filters are exact sets, and everything runs one after the other.
//!
//! It has only file pages and whole page tables, without protections and swap.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Pages of an index leaf, and leaves that are forgotten together.
const LEAF: u32 = 64;
const LEAVES_AT_ONCE: usize = 128;
/// Pages under one page table.
const TABLE: u32 = 512;

/// A folio, by order of arrival. A page that is truncated and read again gets another one.
pub type Id = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Queued to be added.
    New,
    /// On a list. `list` is the list's generation, `label` may differ.
    Listed {
        list: u64,
        label: u64,
    },
    Isolated,
    Nowhere,
}

/// A folio, under the letters of [book: access].
#[derive(Clone, Debug)]
pub struct Folio {
    pub page: u32,
    place: Place,
    pub r: bool,
    pub f: u32,
    pub w: bool,
    a: bool,
    pub dirty: bool,
    pub writeback: bool,
    pub reclaim: bool,
    pub mapped: bool,
    pub young: bool,
    pub locked: bool,
    /// References of guards, batches, the writer and the mapping.
    references: u32,
}

impl Folio {
    fn nrefs(&self) -> u32 {
        if self.r { self.f + 1 } else { 0 }
    }

    fn tier(&self) -> usize {
        if self.w { 3 } else { [0, 0, 1, 2, 2][self.nrefs() as usize] }
    }

    fn saturated(&self) -> bool {
        self.nrefs() + u32::from(self.w) == 5
    }

    /// Counts an access ([book: access#counting-after]).
    fn access(&mut self) {
        match (self.r, self.f) {
            (false, _) => (self.r, self.f) = (true, 0),
            (true, 0..=2) => self.f += 1,
            (true, _) => self.w = true,
        }
    }

    fn proved_hot(&mut self) {
        (self.r, self.f, self.w) = (false, 0, true);
    }

    /// Handles an accessed bit found by eviction in 7.2 ([book: access#young-in-eviction]). `true`:
    /// activate.
    fn found_young_by_eviction(&mut self) -> bool {
        if !self.r && !self.w {
            (self.r, self.f) = (true, 0);
            return false;
        }
        if self.nrefs() > 1 {
            self.proved_hot()
        } else {
            self.access()
        }
        true
    }

    /// Handles an accessed bit found by a walk ([book: access#young-in-walk]).
    fn found_young_by_walk(&mut self, youngest: u64) {
        if !self.r && !self.w {
            (self.r, self.f) = (true, 0);
        } else if let Place::Listed { label, .. } = &mut self.place {
            *label = youngest;
            self.proved_hot();
        }
    }

    /// The generation that the folio is labelled with.
    pub fn label(&self) -> Option<u64> {
        if let Place::Listed { label, .. } = self.place { Some(label) } else { None }
    }
}

#[derive(Clone, Copy, Debug)]
struct Shadow {
    min_seq: u64,
    /// Accesses − 1.
    refs: u32,
    w: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub refault: u64,
    pub activate: u64,
    pub restore: u64,
    pub scan: u64,
    pub steal: u64,
    pub refill: u64,
    pub pgactivate: u64,
    pub deactivate: u64,
    pub rotated: u64,
    pub immediate: u64,
    pub protected: u64,
    pub aged: u64,
    pub written: u64,
    pub flusher_woken: u64,
}

/// The way a page comes in.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    pub in_fault: bool,
    pub overwrite: bool,
    pub referenced: bool,
}

/// Result of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    Charged,
    /// Writes under way must end first.
    Wait,
    OutOfMemory,
}

/// The purpose of a queue ([book: folios#batches]), in the order of draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Add = 0,
    Rotate = 1,
    Deactivate = 2,
    Activate = 3,
}

#[derive(Debug)]
pub struct Naive {
    pub limit: u64,
    batch: usize,
    pub folios: Vec<Folio>,
    /// The folio of each cached page.
    pub cached: BTreeMap<u32, Id>,
    shadows: BTreeMap<u32, Shadow>,
    /// Leaves that hold only shadows, oldest first, and those that trimming left for later.
    pub shadow_leaves: Vec<u32>,
    deferred_leaves: usize,
    pub usage: u64,
    pub max: u64,
    pub min: u64,
    pub min_anon: u64,
    /// Lists by generation, the tail in front.
    lists: BTreeMap<u64, VecDeque<Id>>,
    queues: [Vec<Id>; 4],
    // Feedback, by tier.
    refaulted: [u64; 4],
    evicted_by_tier: [u64; 4],
    protected_by_tier: [u64; 4],
    average_refaulted: [u64; 4],
    average_total: [u64; 4],
    // Walks.
    young_tables: BTreeSet<u32>,
    filters: [Option<BTreeSet<u32>>; 2],
    ran: bool,
    first_walk: bool,
    // Results.
    pub counts: Counts,
    pub evicted: Vec<u32>,
    reclaimed: u64,
}

impl Naive {
    pub fn new(limit: u64, batch: usize) -> Naive {
        Naive {
            limit,
            batch,
            folios: Vec::new(),
            cached: BTreeMap::new(),
            shadows: BTreeMap::new(),
            shadow_leaves: Vec::new(),
            deferred_leaves: 0,
            usage: 0,
            max: 3,
            min: 0,
            min_anon: 0,
            lists: BTreeMap::new(),
            queues: Default::default(),
            refaulted: [0; 4],
            evicted_by_tier: [0; 4],
            protected_by_tier: [0; 4],
            average_refaulted: [0; 4],
            average_total: [0; 4],
            young_tables: BTreeSet::new(),
            filters: [None, None],
            ran: false,
            first_walk: true,
            counts: Counts::default(),
            evicted: Vec::new(),
            reclaimed: 0,
        }
    }

    pub fn get(&self, page: u32) -> Option<&Folio> {
        self.cached.get(&page).map(|&id| &self.folios[id])
    }

    fn cached(&mut self, page: u32) -> &mut Folio {
        &mut self.folios[self.cached[&page]]
    }

    /// Pages labelled with each live generation, oldest first.
    pub fn sizes(&self) -> Vec<u64> {
        let labels: Vec<_> = self.lists.values().flatten().map(|&id| self.folios[id].label()).collect();
        (self.min..=self.max).map(|seq| labels.iter().filter(|&&l| l == Some(seq)).count() as u64).collect()
    }

    // Accesses.

    pub fn access(&mut self, page: u32) {
        self.cached(page).access();
    }

    /// A mapped access to a cached page.
    pub fn touch(&mut self, page: u32) {
        let folio = self.cached(page);
        (folio.mapped, folio.young) = (true, true);
        // An access to a table not touched since its last walk shows that the task ran.
        self.ran |= self.young_tables.insert(page / TABLE);
    }

    /// Inserts a charged page ([book: refaults#refault-processing],
    /// [book: access#fault-placement]).
    pub fn insert(&mut self, page: u32, how: How) {
        self.ran = true;
        let mut folio = Folio {
            page,
            place: Place::New,
            r: how.referenced,
            f: 0,
            w: false,
            a: false,
            dirty: false,
            writeback: false,
            reclaim: false,
            mapped: false,
            young: false,
            locked: false,
            references: 1,
        };
        if let Some(shadow) = self.shadows.remove(&page)
            && !how.overwrite
        {
            self.counts.refault += 1;
            if self.max.abs_diff(shadow.min_seq) < 4 {
                let tier = if shadow.w { 3 } else { [0, 1, 2, 2][shadow.refs as usize] };
                self.refaulted[tier] += 1;
                if shadow.w {
                    folio.w = true;
                    self.counts.restore += 1;
                    self.counts.activate += u64::from(how.in_fault);
                } else {
                    folio.f = shadow.refs;
                }
            }
        }
        if how.in_fault {
            if folio.w {
                folio.a = true;
            } else if !folio.r {
                folio.access();
            }
        }
        self.folios.push(folio);
        let id = self.folios.len() - 1;
        self.cached.insert(page, id);
        self.note_leaf(page);
        self.enqueue(Queue::Add, id);
    }

    // References.

    pub fn get_reference(&mut self, id: Id) {
        self.folios[id].references += 1;
    }

    pub fn put_reference(&mut self, id: Id) {
        let folio = &mut self.folios[id];
        folio.references -= 1;
        if folio.references == 0 {
            if let Place::Listed { list, .. } = folio.place {
                self.lists.get_mut(&list).unwrap().retain(|&other| other != id);
            }
            folio.place = Place::Nowhere;
            self.usage -= 1;
        }
    }

    // Batches ([book: folios#batches]).

    fn enqueue(&mut self, queue: Queue, id: Id) {
        self.get_reference(id);
        self.queues[queue as usize].push(id);
        let full = if queue == Queue::Add { self.batch } else { 31 };
        if self.queues[queue as usize].len() == full {
            self.drain_queue(queue);
        }
    }

    pub fn drain(&mut self) {
        for queue in [Queue::Add, Queue::Rotate, Queue::Deactivate, Queue::Activate] {
            self.drain_queue(queue);
        }
    }

    fn drain_queue(&mut self, queue: Queue) {
        let ids = std::mem::take(&mut self.queues[queue as usize]);
        for &id in &ids {
            let folio = &self.folios[id];
            match (queue, folio.place) {
                (Queue::Add, _) if folio.references > 1 => self.add(id, false),
                (Queue::Add, _) => {}
                (_, Place::Listed { list, .. }) => {
                    if queue == Queue::Deactivate && folio.mapped {
                        continue;
                    }
                    self.lists.get_mut(&list).unwrap().retain(|&other| other != id);
                    self.folios[id].place = Place::Isolated;
                    self.move_queued(queue, id);
                }
                _ => {}
            }
        }
        ids.into_iter().for_each(|id| self.put_reference(id));
    }

    fn move_queued(&mut self, queue: Queue, id: Id) {
        let folio = &mut self.folios[id];
        match queue {
            Queue::Add => unreachable!("it is on a list"),
            Queue::Rotate => {
                self.counts.rotated += 1;
                self.add(id, true);
            }
            Queue::Deactivate => {
                (folio.r, folio.f, folio.w) = (false, 0, false);
                let dirty = folio.dirty || folio.writeback;
                self.counts.deactivate += 1;
                self.add(id, !dirty);
                self.folios[id].reclaim |= dirty;
            }
            Queue::Activate => {
                folio.a = true;
                self.counts.pgactivate += 1;
                self.add(id, false);
            }
        }
    }

    // Lists.

    /// The distance rule ([book: access#distance-rule]).
    fn target(&self, folio: &Folio, rotation: bool) -> u64 {
        let distance = if folio.a && folio.w {
            1
        } else if folio.a {
            2
        } else if rotation {
            4
        } else if folio.reclaim && (folio.dirty || folio.writeback) {
            2
        } else if folio.w || folio.r {
            3
        } else {
            4
        };
        (self.max + 1).saturating_sub(distance).max(self.min)
    }

    fn add(&mut self, id: Id, rotation: bool) {
        let seq = self.target(&self.folios[id], rotation);
        self.folios[id].a = false;
        self.folios[id].place = Place::Listed { list: seq, label: seq };
        let list = self.lists.entry(seq).or_default();
        if rotation { list.push_front(id) } else { list.push_back(id) }
    }

    /// Puts a folio that was taken off a list on another, at the head or at the tail.
    fn relist(&mut self, id: Id, label: u64, at_head: bool) {
        self.folios[id].place = Place::Listed { list: label, label };
        let list = self.lists.entry(label).or_default();
        if at_head { list.push_back(id) } else { list.push_front(id) }
    }

    fn take_tail(&mut self, seq: u64) -> Option<Id> {
        self.lists.get_mut(&seq)?.pop_front()
    }

    // Aging ([book: aging]).

    fn age(&mut self) {
        self.walk();
        if self.max - self.min_anon == 3 {
            self.min_anon += 1;
        }
        if self.max - self.min == 3 {
            while let Some(id) = self.take_tail(self.min) {
                let folio = &mut self.folios[id];
                let label = folio.label().unwrap();
                if label == self.min {
                    self.protected_by_tier[folio.tier()] += u64::from(!folio.saturated());
                    (folio.r, folio.f) = (false, 0);
                    self.relist(id, self.min + 1, false);
                } else {
                    self.relist(id, label, false);
                }
            }
            self.close_oldest(self.min + 1);
        }
        self.max += 1;
        self.counts.aged += 1;
    }

    fn walk(&mut self) {
        let forced = std::mem::take(&mut self.first_walk);
        if !std::mem::take(&mut self.ran) && !forced {
            return;
        }
        let (asked, filled) = ((self.max % 2) as usize, ((self.max + 1) % 2) as usize);
        self.filters[filled] = Some(BTreeSet::new());
        let tables: BTreeSet<u32> =
            self.cached.keys().chain(self.shadows.keys()).map(|page| page / TABLE).collect();
        for table in tables {
            if !forced {
                let used = self.young_tables.remove(&table);
                let dense = self.filters[asked].as_ref().is_none_or(|filter| filter.contains(&table));
                if !used || !dense {
                    continue;
                }
            }
            let mut young = 0;
            let pages: Vec<Id> =
                self.cached.range(table * TABLE..(table + 1) * TABLE).map(|(_, &id)| id).collect();
            for id in pages {
                let folio = &mut self.folios[id];
                if folio.young && folio.label().is_some() {
                    folio.young = false;
                    young += 1;
                    folio.found_young_by_walk(self.max);
                }
            }
            if young * 8 >= 512 {
                self.filters[filled].as_mut().unwrap().insert(table);
            }
        }
    }

    /// Closes the generations before `min`, and folds the counts of the oldest
    /// ([book: eviction#tier-limit]).
    fn close_oldest(&mut self, min: u64) {
        for tier in 0..4 {
            self.average_refaulted[tier] = (self.average_refaulted[tier] + self.refaulted[tier]) / 2;
            let total = self.evicted_by_tier[tier] + self.protected_by_tier[tier];
            self.average_total[tier] = (self.average_total[tier] + total) / 2;
        }
        (self.refaulted, self.evicted_by_tier, self.protected_by_tier) = Default::default();
        self.min = min;
    }

    fn drop_empty_generations(&mut self) {
        let is_empty = |seq| self.lists.get(&seq).is_none_or(VecDeque::is_empty);
        let mut min = self.min;
        while min + 2 <= self.max && is_empty(min) {
            min += 1;
        }
        if min > self.min {
            self.close_oldest(min);
        }
    }

    // Eviction ([book: eviction]).

    /// The highest unprotected tier. A tier is protected if its refault ratio is more than 3/2 of
    /// tier 0's.
    fn tier_limit(&self) -> usize {
        let refaulted = |t: usize| self.average_refaulted[t] + self.refaulted[t];
        let total = |t: usize| self.average_total[t] + self.evicted_by_tier[t] + self.protected_by_tier[t];
        let worse =
            |t| refaulted(t) >= 64 && refaulted(t) * (total(0) + 64) * 2 > (refaulted(0) + 1) * total(t) * 3;
        (1..4).find(|&tier| worse(tier)).map_or(3, |tier| tier - 1)
    }

    /// Pages scanned, and the isolated folios.
    fn isolate(&mut self, request: u64) -> (u64, Vec<Id>) {
        self.drop_empty_generations();
        let limit = self.tier_limit();
        let (mut scanned, mut isolated) = (0, Vec::new());
        let oldest = self.min;
        while self.max - oldest >= 2 && scanned < request && isolated.len() < 64 {
            let Some(id) = self.take_tail(oldest) else { break };
            scanned += 1;
            let folio = &mut self.folios[id];
            let label = folio.label().unwrap();
            if label != oldest {
                self.counts.refill += 1;
                self.relist(id, label, true);
            } else if folio.tier() > limit || folio.saturated() {
                self.counts.refill += 1;
                self.counts.protected += 1;
                self.protected_by_tier[folio.tier()] += u64::from(!folio.saturated());
                (folio.r, folio.f) = (false, 0);
                self.relist(id, oldest + 1, true);
            } else {
                folio.place = Place::Isolated;
                if !folio.r {
                    folio.f = 0;
                }
                folio.references += 1;
                isolated.push(id);
            }
        }
        if scanned > 0 {
            self.drop_empty_generations();
        }
        self.counts.scan += isolated.len() as u64;
        (scanned, isolated)
    }

    /// One eviction step. Returns the pages scanned.
    fn evict(&mut self, request: u64, walking: bool) -> u64 {
        let (scanned, isolated) = self.isolate(request);
        if !isolated.is_empty() {
            let taken = isolated.len();
            let (again, dirty) = self.shrink(isolated, walking, true);
            self.counts.flusher_woken += u64::from(dirty == taken);
            self.shrink(again, walking, false);
        }
        scanned
    }

    /// Frees what can be freed and puts the rest back, except for folios to retry. Returns these,
    /// and the number of dirty folios.
    fn shrink(&mut self, isolated: Vec<Id>, walking: bool, retry: bool) -> (Vec<Id>, usize) {
        let unlocked_dirty = |id: &&Id| {
            let folio = &self.folios[**id];
            !folio.locked && folio.dirty && !folio.writeback
        };
        let dirty = isolated.iter().filter(unlocked_dirty).count();
        let rejected: Vec<Id> = isolated.into_iter().filter(|&id| !self.free(id, walking)).collect();
        let (mut again, mut back) = (Vec::new(), Vec::new());
        for id in rejected {
            let folio = &self.folios[id];
            if retry && !folio.a && !folio.mapped && !folio.dirty && !folio.writeback {
                again.push(id);
                continue;
            }
            if self.target(folio, false) == self.min {
                let folio = &mut self.folios[id];
                (folio.r, folio.f, folio.a) = (false, 0, true);
            }
            back.push(id);
        }
        back.iter().for_each(|&id| self.add(id, false));
        back.into_iter().for_each(|id| self.put_reference(id));
        (again, dirty)
    }

    /// Examines one isolated folio ([book: eviction#verdicts]). `true`: it was freed.
    fn free(&mut self, id: Id, walking: bool) -> bool {
        let folio = &self.folios[id];
        if folio.locked {
            return false;
        }
        if folio.writeback {
            self.folios[id].reclaim = true;
            return self.activate(id);
        }
        if folio.mapped && self.look_around(id, walking) {
            if self.folios[id].found_young_by_eviction() {
                self.activate(id);
            }
            return false;
        }
        let folio = &mut self.folios[id];
        (folio.mapped, folio.young) = (false, false);
        if folio.dirty {
            folio.reclaim = true;
            self.counts.immediate += 1;
            return self.activate(id);
        }
        if self.cached.get(&folio.page) != Some(&id) || folio.references != 2 {
            return false;
        }
        folio.references = 0;
        folio.place = Place::Nowhere;
        let folio = self.folios[id].clone();
        let shadow = Shadow { min_seq: self.min, refs: folio.nrefs().saturating_sub(1), w: folio.w };
        self.evicted_by_tier[folio.tier()] += 1;
        self.cached.remove(&folio.page);
        self.shadows.insert(folio.page, shadow);
        self.note_leaf(folio.page);
        self.usage -= 1;
        self.reclaimed += 1;
        self.counts.steal += 1;
        self.evicted.push(folio.page);
        true
    }

    fn activate(&mut self, id: Id) -> bool {
        self.folios[id].a = true;
        self.counts.pgactivate += 1;
        false
    }

    /// [book: aging#look-around]: clears the accessed bits of the folio and of up to 63 neighbours.
    /// `true`: the folio was young.
    fn look_around(&mut self, id: Id, walking: bool) -> bool {
        if !std::mem::take(&mut self.folios[id].young) {
            return false;
        }
        let page = self.folios[id].page;
        let start = match page % TABLE {
            0..32 => 0,
            481.. => TABLE - 64,
            at => at - 32,
        } + page / TABLE * TABLE;
        let mut young = 1;
        let window: Vec<Id> = self.cached.range(start..start + 64).map(|(_, &id)| id).collect();
        for other in window {
            let folio = &mut self.folios[other];
            let Some(label) = folio.label() else { continue };
            if !std::mem::take(&mut folio.young) {
                continue;
            }
            young += 1;
            if walking {
                folio.found_young_by_walk(self.max);
            } else if folio.found_young_by_eviction() && label != self.max {
                self.enqueue(Queue::Activate, other);
            }
        }
        if young * 8 >= 64
            && let Some(filter) = &mut self.filters[(self.max % 2) as usize]
        {
            filter.insert(page / TABLE);
        }
        true
    }

    // The loop ([book: reclaim-loop]).

    /// One effort. Returns the pages reclaimed. `proactive` efforts own a walk context from the
    /// start.
    pub fn effort(&mut self, goal: u64, proactive: bool) -> u64 {
        self.reclaimed = 0;
        for _ in 0..2 {
            for priority in (0..=12).rev() {
                self.pass(priority, goal, proactive);
                self.trim_shadows(priority);
                if self.reclaimed >= goal {
                    return self.reclaimed;
                }
            }
            if self.reclaimed > 0 {
                break;
            }
        }
        self.reclaimed
    }

    fn pass(&mut self, priority: u32, goal: u64, mut walking: bool) {
        self.drain();
        let mut budget = (self.sizes().iter().sum::<u64>() >> priority) as i64;
        while budget > 0 {
            let generations = self.max - self.min + 1;
            if generations == 2 || generations == 3 && priority != 12 {
                self.age();
                walking = true;
            }
            let scanned = self.evict((budget as u64).min(64), walking);
            if scanned == 0 || self.reclaimed >= goal {
                return;
            }
            budget -= scanned as i64;
        }
    }

    /// Charges a page. Fails after 18 efforts that freed nothing (counted in `fruitless`), unless
    /// writes are pending.
    pub fn charge(&mut self, fruitless: &mut u32) -> Charge {
        while self.usage >= self.limit {
            if self.effort(32, false) > 0 || self.usage < self.limit {
                continue;
            }
            *fruitless += 1;
            if *fruitless == 1 {
                // The kernel drains its stocks, which are empty here, and retries.
                continue;
            }
            self.drain();
            if *fruitless >= 18 {
                let pending =
                    self.cached.values().any(|&id| self.folios[id].dirty || self.folios[id].writeback);
                self.counts.flusher_woken += u64::from(pending);
                return if pending { Charge::Wait } else { Charge::OutOfMemory };
            }
        }
        self.usage += 1;
        Charge::Charged
    }

    // Writeback.

    pub fn write(&mut self, page: u32) {
        let folio = self.cached(page);
        (folio.dirty, folio.reclaim) = (true, false);
    }

    /// The next run of at most `most` dirty pages at or after `from` that are not under writeback.
    pub fn start_writeback(&mut self, from: u32, most: usize) -> Vec<Id> {
        let mut run: Vec<Id> = Vec::new();
        for (&page, &id) in self.cached.range(from..) {
            let folio = &mut self.folios[id];
            let ready = folio.dirty && !folio.writeback;
            let expected = run.len() as u32;
            match run.first() {
                None if !ready => continue,
                Some(_) if !ready || run.len() == most => break,
                Some(&first) if page != self.folios[first].page + expected => break,
                _ => run.push(id),
            }
            let folio = &mut self.folios[id];
            (folio.dirty, folio.writeback) = (false, true);
            folio.references += 1;
        }
        run
    }

    pub fn end_writeback(&mut self, id: Id, written: bool) {
        let folio = &mut self.folios[id];
        if !written {
            (folio.dirty, folio.reclaim) = (true, false);
        }
        let reclaim = std::mem::take(&mut folio.reclaim);
        folio.writeback = false;
        let movable = !folio.locked && !folio.dirty && folio.label().is_some();
        self.counts.written += u64::from(written);
        if written && reclaim && movable {
            self.enqueue(Queue::Rotate, id);
        }
        self.put_reference(id);
    }

    /// Removes pages and shadows, up to the first page in use. `false`: it met one.
    pub fn truncate(&mut self, pages: std::ops::Range<u32>) -> bool {
        let busy = |id: &Id| self.folios[*id].locked || self.folios[*id].writeback;
        let busy_page = self.cached.range(pages.clone()).find(|(_, id)| busy(id)).map(|(&page, _)| page);
        let pages = pages.start..busy_page.unwrap_or(pages.end);
        let forgotten: Vec<u32> = self.shadows.range(pages.clone()).map(|(&page, _)| page).collect();
        for page in forgotten {
            self.shadows.remove(&page);
            self.note_leaf(page);
        }
        let removed: Vec<u32> = self.cached.range(pages).map(|(&page, _)| page).collect();
        removed.into_iter().for_each(|page| self.remove(page));
        busy_page.is_none()
    }

    fn remove(&mut self, page: u32) {
        let id = self.cached.remove(&page).unwrap();
        let folio = &mut self.folios[id];
        (folio.dirty, folio.mapped, folio.young) = (false, false, false);
        self.put_reference(id);
        self.note_leaf(page);
    }

    // Shadows ([book: refaults#shadow-limit]).

    /// Notes whether the leaf of a page that came or went holds only shadows now.
    fn note_leaf(&mut self, page: u32) {
        let leaf = page / LEAF;
        let pages = leaf * LEAF..(leaf + 1) * LEAF;
        let only_shadows =
            self.cached.range(pages.clone()).next().is_none() && self.shadows.range(pages).next().is_some();
        match self.shadow_leaves.iter().position(|&noted| noted == leaf) {
            None if only_shadows => self.shadow_leaves.push(leaf),
            Some(at) if !only_shadows => drop(self.shadow_leaves.remove(at)),
            _ => {}
        }
    }

    /// Forgets the oldest leaves beyond one for eight pages on lists.
    fn trim_shadows(&mut self, priority: u32) {
        let listed = self.lists.values().map(VecDeque::len).sum::<usize>();
        let surplus = self.shadow_leaves.len().saturating_sub(listed / 8);
        if surplus == 0 {
            return;
        }
        let mut wanted = ((self.deferred_leaves >> priority) + surplus / 2).min(2 * surplus);
        let mut trimmed = 0;
        while wanted >= LEAVES_AT_ONCE || wanted >= surplus {
            let now = wanted.min(LEAVES_AT_ONCE);
            (wanted, trimmed) = (wanted - now, trimmed + now);
        }
        let left = (self.deferred_leaves + surplus / 2).saturating_sub(trimmed);
        self.deferred_leaves = left.min(2 * surplus);
        for leaf in self.shadow_leaves.drain(..trimmed.min(self.shadow_leaves.len())) {
            self.shadows.retain(|page, _| page / LEAF != leaf);
        }
    }

    /// Follows advice that pages are not needed ([book: access#rotation-and-advice]): removes
    /// clean, unused ones and moves the others to the old side.
    pub fn invalidate(&mut self, pages: std::ops::Range<u32>) {
        let found: Vec<(u32, Id)> = self.cached.range(pages.clone()).map(|(&page, &id)| (page, id)).collect();
        for (page, id) in found {
            let folio = &mut self.folios[id];
            if folio.locked || folio.writeback || folio.dirty || folio.mapped {
                (folio.r, folio.f, folio.w) = (false, 0, false);
                if folio.label() != Some(self.min) {
                    self.enqueue(Queue::Deactivate, id);
                }
            } else {
                self.remove(page);
            }
        }
    }
}
