//! The content of file pages, as version numbers: the last version written to each page, and the
//! last one on the device.
//!
//! The checker derives it from the jobs' operations and the results of transfers. It ignores dirty
//! bits, and so detects
//!
//! * a page that leaves memory although the device does not have its content,
//! * a sync that reports no error but left something unwritten,
//! * a new error that is not reported exactly once to each process.

use crate::world::WriteId;
use mglru_core::writeback::WritebackRun;
use mglru_core::{Core, Lookup, MappingId};
use std::collections::BTreeMap;

type Place = (MappingId, u32);

/// Versions of a page, all from one sequence.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// The first since the page was truncated.
    first: u64,
    /// In memory.
    memory: u64,
    /// On the device; 0: none.
    device: u64,
}

#[derive(Debug)]
struct Sync {
    mapping: MappingId,
    /// Versions that the device did not have when the sync began.
    owed: BTreeMap<u32, u64>,
}

/// The checker's record of all files.
#[derive(Debug, Default)]
pub(crate) struct Content {
    versions: u64,
    pages: BTreeMap<Place, Page>,
    /// Versions of the pages of each write when it began.
    writes: BTreeMap<WriteId, Vec<u64>>,
    /// Active syncs, by process.
    syncs: BTreeMap<usize, Sync>,
    /// Failed writes of each mapping, and how many of them a sync has reported to each process.
    failures: BTreeMap<MappingId, u64>,
    reported: BTreeMap<(usize, MappingId), u64>,
    /// The first inconsistency.
    pub(crate) wrong: Option<String>,
}

impl Content {
    fn complain(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// Records a write to a page.
    pub(crate) fn dirtied(&mut self, place: Place) {
        self.versions += 1;
        let version = self.versions;
        let page = self.pages.entry(place).or_insert(Page { first: version, memory: version, device: 0 });
        page.memory = version;
    }

    /// Records the start of a write to the device.
    pub(crate) fn write_begins(&mut self, id: WriteId, mapping: MappingId, run: &WritebackRun) {
        let pages = &self.pages;
        let version = |index| pages.get(&(mapping, index)).map_or(0, |page| page.memory);
        let versions = (run.first..=u32::MAX).take(run.folios.len()).map(version).collect();
        self.writes.insert(id, versions);
    }

    /// Records the end of a write to the device.
    pub(crate) fn write_ends(&mut self, id: WriteId, mapping: MappingId, first: u32, ok: bool) {
        let versions = self.writes.remove(&id).unwrap_or_default();
        if !ok {
            *self.failures.entry(mapping).or_default() += 1;
            return;
        }
        for (index, version) in (first..=u32::MAX).zip(versions) {
            match self.pages.get_mut(&(mapping, index)) {
                Some(page) if page.device < version => page.device = version,
                _ => self.complain(format!("page {index} of {mapping:?} was written without new content")),
            }
        }
    }

    /// Records that a page left memory.
    pub(crate) fn left(&mut self, place: Place) {
        if let Some(page) = self.pages.get(&place)
            && page.memory != page.device
        {
            self.complain(format!("{place:?} left memory before its content reached the device: {page:?}"));
        }
    }

    pub(crate) fn cut(&mut self, mapping: MappingId, from: u32, end: u64, cached: impl Fn(Place) -> bool) {
        let last = (end - 1) as u32;
        let range = self.pages.range((mapping, from)..=(mapping, last));
        let gone: Vec<Place> = range.map(|(&place, _)| place).filter(|&place| !cached(place)).collect();
        for place in gone {
            self.pages.remove(&place);
        }
    }

    /// Forgets a file and its reported errors.
    pub(crate) fn closed(&mut self, mapping: MappingId) {
        self.failures.remove(&mapping);
        self.reported.retain(|&(_, of), _| of != mapping);
    }

    pub(crate) fn sync_begins(&mut self, process: usize, mapping: MappingId) {
        let of_file = self.pages.range((mapping, 0)..=(mapping, u32::MAX));
        let owed = of_file.filter(|(_, page)| page.memory != page.device);
        let owed = owed.map(|(&(_, index), page)| (index, page.memory)).collect();
        self.syncs.insert(process, Sync { mapping, owed });
    }

    /// Records the end of a sync, and whether it reported an error.
    pub(crate) fn sync_ends(&mut self, process: usize, mapping: MappingId, error: bool) {
        let sync = self.syncs.remove(&process).filter(|sync| sync.mapping == mapping);
        let failures = self.failures.get(&mapping).copied().unwrap_or(0);
        let reported = self.reported.insert((process, mapping), failures).unwrap_or(0);
        if error != (reported < failures) {
            let what = if error { "a repeated or false error" } else { "no error" };
            self.complain(format!("process {process} got {what}: {failures} failures, {reported} reported"));
        }
        if error {
            return;
        }
        for (index, version) in sync.map(|sync| sync.owed).unwrap_or_default() {
            if let Some(page) = self.pages.get(&(mapping, index))
                && page.first <= version
                && page.device < version
            {
                let page = *page;
                self.complain(format!("a sync succeeded without page {index}, version {version}: {page:?}"));
            }
        }
    }

    /// Checks that content missing on the device is in memory and dirty or being written.
    ///
    /// # Errors
    /// A description of the first violation.
    pub(crate) fn check(&self, core: &Core) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        for (&(mapping, index), page) in self.pages.iter().filter(|(_, page)| page.memory != page.device) {
            let file = core.mapping(mapping);
            let there = match file.map_or(Lookup::Miss, |file| core.lookup(&file, index)) {
                Lookup::Hit(hit) => hit.flags.dirty() || hit.flags.writeback(),
                Lookup::Pending(_) | Lookup::Miss => false,
            };
            if !there {
                return Err(format!(
                    "page {index} of {mapping:?} has unwritten content but is not dirty: {page:?}"
                ));
            }
        }
        Ok(())
    }
}
