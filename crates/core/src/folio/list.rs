//! Doubly linked lists of folios, threaded through the folio table by number.
//!
//! A group of `K` lists shares one pair of links per folio. The outer link of a folio at an end
//! names the list (`END | k`). So a folio is removed without knowing which list of the group holds
//! it, which matters because a page-table walk changes a folio's label but not its list.
//!
//! # Locking
//!
//! Links are read and written relaxed, through the `&mut` that the lruvec lock hands out. They are
//! atomic only because several groups, each behind its own lock, share the table.

use super::{FolioId, FolioTable};
use crate::sync::Ordering::Relaxed;

/// Marks a link that names a list instead of a folio. Folio numbers are smaller.
const END: u32 = 1 << 31;

/// `K` lists of folios, and further ones, which take memory from their first folio on. Folios are
/// added at the *head*; scans start at the *tail*.
#[derive(Debug)]
pub(crate) struct FolioLists<const K: usize> {
    heads: [u32; K],
    tails: [u32; K],
    /// In a box, so that an empty group stays small.
    further: Option<Box<Further>>,
}

/// Head and tail of list `K` and those after it.
#[derive(Debug, Default)]
struct Further(Vec<[u32; 2]>);

impl Further {
    /// The ends of a list, which is made if it is missing. `first`: the number of the first one.
    #[cold]
    fn made(further: &mut Option<Box<Further>>, first: usize, list: usize) -> &mut [u32; 2] {
        let ends = &mut further.get_or_insert_default().0;
        while ends.len() <= list - first {
            ends.push([END | (first + ends.len()) as u32; 2]);
        }
        &mut ends[list - first]
    }
}

impl<const K: usize> FolioLists<K> {
    pub(crate) fn new() -> Self {
        let ends = std::array::from_fn(|k| END | k as u32);
        FolioLists { heads: ends, tails: ends, further: None }
    }

    #[inline]
    fn ends(&self, list: usize) -> [u32; 2] {
        match (self.heads.get(list), self.tails.get(list)) {
            (Some(&head), Some(&tail)) => [head, tail],
            _ => self.further_ends(list),
        }
    }

    #[cold]
    fn further_ends(&self, list: usize) -> [u32; 2] {
        let further = self.further.as_ref().and_then(|further| further.0.get(list - K));
        further.copied().unwrap_or([END | list as u32; 2])
    }

    #[inline]
    fn head_mut(&mut self, list: usize) -> &mut u32 {
        match self.heads.get_mut(list) {
            Some(head) => head,
            None => &mut Further::made(&mut self.further, K, list)[0],
        }
    }

    #[inline]
    fn tail_mut(&mut self, list: usize) -> &mut u32 {
        match self.tails.get_mut(list) {
            Some(tail) => tail,
            None => &mut Further::made(&mut self.further, K, list)[1],
        }
    }

    pub(crate) fn is_empty(&self, list: usize) -> bool {
        self.ends(list)[0] & END != 0
    }

    /// The next folio to scan.
    pub(crate) fn tail(&self, list: usize) -> Option<FolioId> {
        let [_, tail] = self.ends(list);
        (tail & END == 0).then_some(FolioId(tail))
    }

    #[inline]
    pub(crate) fn next(&self, table: &FolioTable, folio: FolioId) -> Option<FolioId> {
        let next = table.links(folio).towards_head.load(Relaxed);
        (next & END == 0).then_some(FolioId(next))
    }

    /// The folio added last at the head.
    pub(crate) fn head(&self, list: usize) -> Option<FolioId> {
        let [head, _] = self.ends(list);
        (head & END == 0).then_some(FolioId(head))
    }

    /// The folios from tail to head, for validation and tests.
    pub(crate) fn iter<'a>(&self, table: &'a FolioTable, list: usize) -> impl Iterator<Item = FolioId> + 'a {
        let [_, mut at] = self.ends(list);
        std::iter::from_fn(move || {
            let folio = (at & END == 0).then_some(FolioId(at))?;
            at = table.links(folio).towards_head.load(Relaxed);
            Some(folio)
        })
    }

    pub(crate) fn push_head(&mut self, table: &FolioTable, list: usize, folio: FolioId) {
        let [old, _] = self.ends(list);
        let links = table.links(folio);
        links.towards_head.store(END | list as u32, Relaxed);
        links.towards_tail.store(old, Relaxed);
        if old & END == 0 {
            table.links(FolioId(old)).towards_head.store(folio.0, Relaxed);
        } else {
            *self.tail_mut(list) = folio.0;
        }
        *self.head_mut(list) = folio.0;
    }

    pub(crate) fn push_tail(&mut self, table: &FolioTable, list: usize, folio: FolioId) {
        let [_, old] = self.ends(list);
        let links = table.links(folio);
        links.towards_tail.store(END | list as u32, Relaxed);
        links.towards_head.store(old, Relaxed);
        if old & END == 0 {
            table.links(FolioId(old)).towards_tail.store(folio.0, Relaxed);
        } else {
            *self.head_mut(list) = folio.0;
        }
        *self.tail_mut(list) = folio.0;
    }

    /// Takes `folio` off its list, whichever of the group that is.
    #[inline]
    pub(crate) fn remove(&mut self, table: &FolioTable, folio: FolioId) {
        let links = table.links(folio);
        let (above, below) = (links.towards_head.load(Relaxed), links.towards_tail.load(Relaxed));
        if above & END != 0 {
            *self.head_mut((above & !END) as usize) = below;
        } else {
            table.links(FolioId(above)).towards_tail.store(below, Relaxed);
        }
        if below & END != 0 {
            *self.tail_mut((below & !END) as usize) = above;
        } else {
            table.links(FolioId(below)).towards_head.store(above, Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Compares the lists with a model of deques after every operation.
    #[test]
    fn lists_agree_with_deques() {
        let table = FolioTable::new(32);
        // Three, and two further ones.
        let mut lists = FolioLists::<3>::new();
        let mut model: [VecDeque<u32>; 5] = Default::default();
        let mut state = 7u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (folio, list) = ((state >> 33) as u32 % 32, (state >> 50) as usize % 5);
            if let Some(held) = model.iter().position(|m| m.contains(&folio)) {
                model[held].retain(|&f| f != folio);
                lists.remove(&table, FolioId(folio));
            } else if state >> 60 & 1 == 0 {
                model[list].push_front(folio);
                lists.push_head(&table, list, FolioId(folio));
            } else {
                model[list].push_back(folio);
                lists.push_tail(&table, list, FolioId(folio));
            }
            for (k, expected) in model.iter().enumerate() {
                let real: Vec<u32> = lists.iter(&table, k).map(|f| f.0).collect();
                assert!(expected.iter().rev().eq(&real), "list {k}: {expected:?} against {real:?}");
                assert_eq!(lists.is_empty(k), expected.is_empty());
                assert_eq!(lists.tail(k).map(|f| f.0), expected.back().copied());
            }
        }
    }
}
