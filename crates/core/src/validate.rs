//! Validation: recounts everything that counters claim. Slow; for tests and the simulator's
//! checker.

use crate::Core;
use crate::folio::{FolioId, Kind};
use crate::lru::{
    MAX_GENERATIONS, MIN_GENERATIONS, Queue, all_lists, list_named, may_be_on, policy_of_list, size_of_list,
};
use crate::mapping::MAPPING_PAGES_MAX;
use crate::memcg::{Counter, Memcg, MemcgId};
use std::collections::BTreeMap;
use std::fmt;

/// Counters of cached pages that are compared with the states of these.
const COUNTED: [Counter; 5] =
    [Counter::Anon, Counter::File, Counter::FileMapped, Counter::FileDirty, Counter::FileWriteback];

/// Where a folio waits.
#[derive(Clone, Copy)]
enum Place {
    Queued,
    Listed { list: usize, memcg: MemcgId },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Queued => f.write_str("queued to be added"),
            Place::Listed { list, memcg } => write!(f, "on list {list} of {memcg:?}"),
        }
    }
}

impl Core {
    /// Checks that every used folio is in exactly one place, that labels and sizes agree, that
    /// charges add up, and that limits and windows hold. Only this thread may run, and efforts
    /// must be between batches.
    ///
    /// # Errors
    /// The first violation, in words.
    pub fn validate(&self) -> Result<(), String> {
        self.validate_while_charging(&[])
    }

    /// As [`Self::validate`], while charges are under way: each of these memcgs was charged for one
    /// more page that has no frame yet (see [`crate::Charging::owes_frame`]).
    ///
    /// # Errors
    /// The first violation, in words.
    pub fn validate_while_charging(&self, charged: &[MemcgId]) -> Result<(), String> {
        let mut place: Vec<Option<Place>> = vec![None; self.folios.len() as usize];
        let mut put = |folio: FolioId, what: Place| match place[folio.0 as usize] {
            Some(other) => Err(format!("{folio:?} is both {other} and {what}")),
            None => {
                place[folio.0 as usize] = Some(what);
                Ok(())
            }
        };
        for (queue, folio) in self.arrivals.queued() {
            if queue == Queue::Add {
                put(folio, Place::Queued)?;
            }
        }
        let held = self.arrivals.stalled();
        for memcg in self.memcgs.iter() {
            let name = memcg.name();
            let lruvec = &memcg.lruvec;
            for kind in Kind::ALL {
                let generations = lruvec.window.generations(kind);
                if !(MIN_GENERATIONS..=MAX_GENERATIONS).contains(&generations) {
                    return Err(format!("'{name}' has {generations} generations of {kind:?}"));
                }
            }
            let locked = lruvec.lock(&self.folios);
            let mut named = vec![0u64; all_lists().len()];
            for list in all_lists() {
                for folio in locked.lists.lists.iter(&self.folios, list) {
                    put(folio, Place::Listed { list, memcg: memcg.id() })?;
                    let flags = self.folios.flags(folio).load();
                    let hinted = flags.active() && flags.mark() != 0;
                    let belongs = self.folios.memcg_of(folio) == memcg.id()
                        && may_be_on(flags, self.folios.zone_of(folio), list);
                    if !belongs || flags.lru() == (held == Some(folio)) || hinted {
                        return Err(format!("{folio:?} on list {list} of '{name}' is {flags:?}"));
                    }
                    named[list_named(flags)] += 1;
                }
            }
            drop(locked);
            for (list, folios) in named.into_iter().enumerate() {
                let policy = policy_of_list(list);
                let counted = size_of_list(lruvec, list);
                if counted != folios {
                    return Err(format!(
                        "'{name}' counts {counted} pages on list {list} of {policy:?}, but the states of {folios} name it"
                    ));
                }
                if let Some(lru) = policy.filter(|&lru| !self.mechanisms().may_have_folios_of(lru))
                    && folios > 0
                {
                    return Err(format!(
                        "'{name}' has {folios} folios on lists of the policy {}, which is off",
                        lru.name()
                    ));
                }
            }
        }
        let usage = self.validate_frames(&place, charged)?;
        let counted = self.validate_mappings()?;
        self.validate_memcgs(&usage, &counted)?;
        self.memcgs.validate_claims()?;
        self.validate_index()?;
        self.validate_totals()?;
        self.validate_swap()
    }

    /// Checks that frames are used, free or retired, and that no free one has a place. Returns the
    /// pages that each memcg must be charged for, by number.
    fn validate_frames(&self, place: &[Option<Place>], charged: &[MemcgId]) -> Result<Vec<u64>, String> {
        let mut usage = vec![0u64; self.memcgs.numbers() as usize];
        let mut charge = |memcg: MemcgId, pages| {
            self.memcgs.with_ancestors(memcg).for_each(|payer| usage[payer.id().0 as usize] += pages);
        };
        charged.iter().for_each(|&memcg| charge(memcg, 1));
        for memcg in self.memcgs.iter() {
            charge(memcg.id(), self.memcgs.stocked_pages(|owner| owner == memcg.id()));
            charge(memcg.id(), memcg.index_pages());
        }
        let mut used = 0;
        for (number, place) in place.iter().enumerate() {
            let folio = FolioId(number as u32);
            let flags = self.folios.flags(folio).load();
            if flags.is_held() {
                used += 1;
                charge(self.folios.memcg_of(folio), 1);
            } else if let Some(place) = place {
                return Err(format!("{folio:?} is free, but {place}"));
            }
        }
        if used + self.free_pages() + self.retired_pages() != self.folios.len() {
            return Err(format!(
                "{used} folios are used, {} free, {} retired, of {}",
                self.free_pages(),
                self.retired_pages(),
                self.folios.len()
            ));
        }
        Ok(usage)
    }

    /// Checks the folios and the dirty index of each mapping. Returns the pages of each memcg that
    /// the counters of [`COUNTED`] stand for, by number.
    fn validate_mappings(&self) -> Result<Vec<[u64; COUNTED.len()]>, String> {
        let mut counted = vec![[0; COUNTED.len()]; self.memcgs.numbers() as usize];
        for mapping in self.mappings.all() {
            let locked = mapping.lock_all(&self.leaves);
            let dirty = mapping.dirty();
            let (mut at, mut folios) = (0, 0);
            while let Some((index, slot)) = locked.next(at, MAPPING_PAGES_MAX) {
                if let Some(folio) = slot.folio() {
                    folios += 1;
                    let flags = self.folios.flags(folio).load();
                    if self.folios.page_of(folio) != (mapping.id(), index) || flags.references() == 0 {
                        return Err(format!(
                            "page {index} of {:?} has {folio:?}, which is {flags:?}",
                            mapping.id()
                        ));
                    }
                    let indexed = flags.dirty() && mapping.kind() == Kind::File;
                    if indexed != dirty.contains(&index) {
                        return Err(format!(
                            "page {index} of {:?}: {flags:?} disagrees with the dirty index",
                            mapping.id()
                        ));
                    }
                    let is_file = mapping.kind() == Kind::File;
                    let facts = [!is_file, is_file, is_file && flags.mapped(), indexed, flags.writeback()];
                    let counted = &mut counted[self.owner_of(folio).id().0 as usize];
                    counted.iter_mut().zip(facts).for_each(|(pages, fact)| *pages += u64::from(fact));
                }
                let Some(next) = index.checked_add(1) else { break };
                at = next;
            }
            if dirty.is_empty() != self.dirty_since(&mapping).is_none() {
                return Err(format!("{:?}: the flusher's list disagrees with the dirty index", mapping.id()));
            }
            if folios != mapping.folios() {
                return Err(format!(
                    "{:?} counts {} folios and has {folios}",
                    mapping.id(),
                    mapping.folios()
                ));
            }
        }
        Ok(counted)
    }

    /// Checks what memcgs are charged for and what they count: `usage` and `counted` are by number.
    fn validate_memcgs(&self, usage: &[u64], counted: &[[u64; COUNTED.len()]]) -> Result<(), String> {
        self.memcgs.settle_all();
        // A removed memcg that still has pages may count what its heir does not, or the other way
        // round.
        let mut removed: BTreeMap<u32, Vec<&Memcg>> = BTreeMap::new();
        for memcg in self.memcgs.iter().filter(|memcg| memcg.heir().is_some()) {
            removed.entry(self.memcgs.living(memcg.id()).id().0).or_default().push(memcg);
        }
        for memcg in self.memcgs.iter() {
            if memcg.usage_pages() != usage[memcg.id().0 as usize] {
                return Err(format!(
                    "'{}' is charged {} pages and has {}",
                    memcg.name(),
                    memcg.usage_pages(),
                    usage[memcg.id().0 as usize]
                ));
            }
            if memcg.heir().is_some() {
                continue;
            }
            let removed = removed.get(&memcg.id().0).into_iter().flatten().copied();
            let counting: Vec<&Memcg> = removed.chain([memcg]).collect();
            let stat = |counter| counting.iter().map(|memcg| memcg.stat.signed(counter)).sum::<i64>() as u64;
            for (counter, pages) in COUNTED.into_iter().zip(counted[memcg.id().0 as usize]) {
                if stat(counter) != pages {
                    return Err(format!(
                        "'{}' counts {} pages as {}, and has {pages}",
                        memcg.name(),
                        stat(counter) as i64,
                        counter.name()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that memcgs pay for the leaves and directories that exist or whose charge ends soon,
    /// and for no others.
    fn validate_index(&self) -> Result<(), String> {
        if !self.leaves.is_charged {
            return Ok(());
        }
        let mut paid = vec![0; self.memcgs.numbers() as usize];
        for mapping in self.mappings.all() {
            mapping.lock_all(&self.leaves).change_payers(|payer, bytes| {
                paid[payer.0 as usize] += bytes;
                payer
            });
        }
        for (payer, bytes) in self.leaves.freed_bytes() {
            paid[payer.0 as usize] += bytes;
        }
        let mut counted = vec![0i64; paid.len()];
        let mut expected = counted.clone();
        for memcg in self.memcgs.iter() {
            let (number, heir) = (memcg.id().0 as usize, self.memcgs.living(memcg.id()).id().0 as usize);
            if paid[number] > memcg.index_bytes() {
                return Err(format!(
                    "'{}' pays for {} bytes of metadata, and its part of the index has {}",
                    memcg.name(),
                    memcg.index_bytes(),
                    paid[number]
                ));
            }
            expected[heir] += paid[number] as i64;
            counted[heir] += memcg.stat.signed(Counter::SlabReclaimable);
        }
        let differs = (0..paid.len()).find(|&number| counted[number] != expected[number]);
        differs.map_or(Ok(()), |number| {
            let (counted, expected) = (counted[number], expected[number]);
            Err(format!("memcg {number} counts {counted} bytes of index and has {expected}"))
        })
    }

    /// Checks that the node's counters are the sums of the memcgs' counters.
    fn validate_totals(&self) -> Result<(), String> {
        let sum = |of: &dyn Fn(&Memcg) -> i64| self.memcgs.iter().map(of).sum::<i64>() as u64;
        for kind in Kind::ALL {
            let listed =
                sum(&|memcg| (memcg.lruvec.active_pages(kind) + memcg.lruvec.inactive_pages(kind)) as i64);
            let inactive = sum(&|memcg| memcg.lruvec.inactive_pages(kind) as i64);
            let counted = (self.folios.listed().pages(kind), self.folios.listed().inactive_pages(kind));
            if counted != (listed, inactive) {
                return Err(format!(
                    "the node counts {counted:?} {kind:?} pages listed and inactive, its memcgs {:?}",
                    (listed, inactive)
                ));
            }
        }
        let pending =
            sum(&|memcg| memcg.stat.signed(Counter::FileDirty) + memcg.stat.signed(Counter::FileWriteback));
        if self.node.pending.pages() != pending {
            return Err(format!(
                "the node counts {} dirty or written pages, its memcgs {pending}",
                self.node.pending.pages()
            ));
        }
        self.validate_refused()?;
        // The root counts only its own pages; a removed memcg, those from before its removal.
        let counts_below = |memcg: &&Memcg| memcg.id() != MemcgId::ROOT && memcg.heir().is_none();
        for memcg in self.memcgs.iter().filter(counts_below) {
            let of = |counter| self.memcgs.subtree_stat(memcg.id(), counter);
            let (dirty, writeback) = (of(Counter::FileDirty), of(Counter::FileWriteback));
            if (memcg.pending.dirty_pages(), memcg.pending.pages()) != (dirty, dirty + writeback) {
                return Err(format!(
                    "'{}' counts {:?} in its subtree, which has {dirty} dirty and {writeback} written",
                    memcg.name(),
                    memcg.pending
                ));
            }
        }
        Ok(())
    }
}
