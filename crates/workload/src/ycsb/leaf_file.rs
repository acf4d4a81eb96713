//! A file of leaves that is never overwritten in place.
//!
//! A leaf that is written goes to the lowest free place, or to the end. The place that it had
//! becomes free with the next checkpoint. Places are in units of leaves.

use crate::load::Step;
use crate::trace::PageAccess;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The places of a file, and its number, which is also that of the region of leaves in memory.
#[derive(Debug)]
pub(super) struct LeafFile {
    number: u64,
    leaf_pages: u64,
    free: BinaryHeap<Reverse<u32>>,
    /// Places that become free at the next checkpoint.
    freed: Vec<u32>,
    end: u32,
}

/// An access to a page of a file by descriptor, or to a page of anonymous memory.
pub(super) fn touch(page: u64, write: bool, anon: bool) -> Step {
    Step::Touch(PageAccess { write, mapped: anon, anon, ..PageAccess::read(page) })
}

impl LeafFile {
    /// A file whose first `leaves` places are taken.
    pub(super) fn new(number: u64, leaf_pages: u32, leaves: u32) -> LeafFile {
        LeafFile {
            number,
            leaf_pages: u64::from(leaf_pages),
            free: BinaryHeap::new(),
            freed: Vec::new(),
            end: leaves,
        }
    }

    pub(super) fn leaf_pages(&self) -> u64 {
        self.leaf_pages
    }

    /// The pages of a leaf, by its place in the file or in memory.
    fn pages(&self, place: u32) -> impl Iterator<Item = u64> + use<> {
        let first = self.number + u64::from(place) * self.leaf_pages;
        first..first + self.leaf_pages
    }

    /// The page of a leaf in memory that has an entry.
    pub(super) fn page_of_entry(&self, place: u32, entry: u64) -> u64 {
        self.number + u64::from(place) * self.leaf_pages + entry % self.leaf_pages
    }

    /// Brings a leaf into a place in memory. It is read in one request; without a place in the file
    /// it is new.
    pub(super) fn bring(&self, place: Option<u32>, in_memory: u32, steps: &mut Vec<Step>) {
        if let Some(place) = place {
            self.transfer(place, false, steps);
        }
        steps.extend(self.pages(in_memory).map(|page| touch(page, true, true)));
    }

    /// Writes a leaf in one request, from its place in memory, and returns its new place in the
    /// file. `old`: the place that it had, if any.
    pub(super) fn write(&mut self, in_memory: u32, old: Option<u32>, steps: &mut Vec<Step>) -> u32 {
        let place = self.free.pop().map_or(self.end, |Reverse(place)| place);
        self.end = self.end.max(place + 1);
        self.freed.extend(old);
        steps.extend(self.pages(in_memory).map(|page| touch(page, false, true)));
        self.transfer(place, true, steps);
        place
    }

    #[cfg(test)]
    pub(super) fn free_places(&self) -> usize {
        self.free.len()
    }

    fn transfer(&self, place: u32, write: bool, steps: &mut Vec<Step>) {
        steps.push(Step::Request { pages: self.leaf_pages as u32 });
        steps.extend(self.pages(place).map(|page| touch(page, write, false)));
    }

    /// Ends a checkpoint, in which all changed leaves were written: syncs the file.
    pub(super) fn sync(&mut self, steps: &mut Vec<Step>) {
        steps.push(Step::Sync { page: self.number });
        self.free.extend(self.freed.drain(..).map(Reverse));
    }
}
