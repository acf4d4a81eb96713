//! Address spaces: their mappings, and whether their tasks ran since the last walk.
//!
//! A page-table walk visits the address spaces of a memcg one at a time; threads that age the same
//! generation share the list. Address spaces whose tasks have not run since the last walk are
//! skipped.
//!
//! Source: [book: aging#page-table-walk].
//!
//! # Locking
//!
//! The list's lock is held only to pick the next address space. Each address space has a lock for
//! its regions.

use crate::mapping::Mapping;
use crate::sync::{
    AtomicBool, Mutex, MutexGuard, Ordering::AcqRel, Ordering::Relaxed, Ordering::SeqCst, fence,
};
use std::sync::Arc;

/// The mappings of one task, or of all threads of one tenant.
#[derive(Debug, Default)]
pub struct AddressSpace {
    regions: Mutex<Vec<Arc<Mapping>>>,
    ran: AtomicBool,
}

impl AddressSpace {
    /// Notes that a task of this address space has run: accessed bits may be new.
    #[inline]
    pub(crate) fn mark_ran(&self) {
        if !self.ran.load(Relaxed) {
            self.ran.store(true, Relaxed);
        }
    }

    /// Notes that a task has set the accessed bit of a page table.
    #[inline]
    pub(crate) fn mark_accessed(&self) {
        // Between the bit and the look at the mark: a walk that has just taken the mark sees the
        // bit. [`Self::take_ran`] has the other fence.
        fence(SeqCst);
        self.mark_ran();
    }

    /// Takes the mark that a task has run, before a walk.
    fn take_ran(&self) -> bool {
        let ran = self.ran.swap(false, AcqRel);
        fence(SeqCst);
        ran
    }

    /// Maps a whole file. Has no effect if it is mapped.
    pub(crate) fn map(&self, mapping: &Arc<Mapping>) {
        let mut regions = self.regions.lock();
        if !regions.iter().any(|known| Arc::ptr_eq(known, mapping)) {
            regions.push(mapping.clone());
        }
    }

    pub(crate) fn unmap(&self, mapping: &Arc<Mapping>) {
        self.regions.lock().retain(|known| !Arc::ptr_eq(known, mapping));
    }

    pub(crate) fn maps(&self, mapping: &Arc<Mapping>) -> bool {
        self.regions.lock().iter().any(|known| Arc::ptr_eq(known, mapping))
    }

    /// The present mappings.
    pub fn regions(&self) -> Vec<Arc<Mapping>> {
        self.regions.lock().clone()
    }
}

#[derive(Debug)]
struct Iteration {
    /// Address spaces, and whether each was added after the last iteration ended.
    spaces: Vec<(Arc<AddressSpace>, bool)>,
    next: usize,
    /// The iteration has reached the new address spaces, which are walked completely.
    forced: bool,
    /// An address space was picked in this iteration, and `begin` was called.
    selected: bool,
    /// The youngest generation of the last finished iteration.
    walk_seq: u64,
}

impl Iteration {
    fn new() -> Iteration {
        Iteration { spaces: Vec::new(), next: 0, forced: false, selected: false, walk_seq: 2 }
    }
}

#[derive(Debug)]
pub(crate) struct SpaceList(Mutex<Iteration>);

/// The next action of an aging thread.
pub(crate) enum Next {
    /// Walk this address space. `forced`: all of it.
    Walk { space: Arc<AddressSpace>, forced: bool },
    /// All are walked, and this caller must open the generation.
    Advance,
    /// Another thread has finished this generation.
    Finished,
}

impl SpaceList {
    pub(crate) fn new() -> SpaceList {
        SpaceList(Mutex::new(Iteration::new()))
    }

    pub(crate) fn lock(&self) -> LockedSpaces<'_> {
        LockedSpaces(self.0.lock())
    }

    pub(crate) fn reset(&self) {
        *self.0.lock() = Iteration::new();
    }

    /// The address spaces that ran since the last walk. Their marks are cleared.
    pub(crate) fn take_ran(&self) -> Vec<Arc<AddressSpace>> {
        let iteration = self.0.lock();
        let ran = iteration.spaces.iter().filter(|(space, _)| space.take_ran());
        ran.map(|(space, _)| space.clone()).collect()
    }

    /// Whether a walk for generation `seq` is under way or finished.
    pub(crate) fn are_walked_for(&self, seq: u64) -> bool {
        let iteration = self.0.lock();
        iteration.next > 0 || iteration.walk_seq >= seq
    }

    /// Finishes the iteration for `seq` without walks, where no accessed bits are to be read.
    pub(crate) fn skip(&self, seq: u64) -> Next {
        let mut iteration = self.0.lock();
        if seq <= iteration.walk_seq {
            return Next::Finished;
        }
        (iteration.next, iteration.forced, iteration.selected) = (0, false, false);
        iteration.walk_seq = seq;
        Next::Advance
    }

    /// Picks the next address space to walk for `seq`, the youngest generation now. Calls `begin`
    /// before any thread gets the first one: what it empties, no thread of this walk has filled.
    /// The list is locked meanwhile.
    pub(crate) fn next(&self, seq: u64, force: bool, begin: impl FnOnce()) -> Next {
        let mut iteration = self.0.lock();
        let iteration = &mut *iteration;
        if seq <= iteration.walk_seq {
            return Next::Finished;
        }
        while let Some((space, fresh)) = iteration.spaces.get(iteration.next) {
            iteration.next += 1;
            iteration.forced |= *fresh;
            let forced = force || iteration.forced;
            if space.take_ran() || forced {
                if !std::mem::replace(&mut iteration.selected, true) {
                    begin();
                }
                return Next::Walk { space: space.clone(), forced };
            }
        }
        iteration.spaces.iter_mut().for_each(|(_, fresh)| *fresh = false);
        (iteration.next, iteration.forced, iteration.selected) = (0, false, false);
        iteration.walk_seq = seq;
        Next::Advance
    }
}

pub(crate) struct LockedSpaces<'a>(MutexGuard<'a, Iteration>);

impl LockedSpaces<'_> {
    pub(crate) fn add(&mut self, space: Arc<AddressSpace>) {
        self.0.spaces.push((space, true));
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<AddressSpace>> {
        self.0.spaces.iter().map(|(space, _)| space)
    }

    /// Removes an address space whose tasks left the memcg.
    pub(crate) fn remove(&mut self, space: &Arc<AddressSpace>) {
        let iteration = &mut *self.0;
        if let Some(at) = iteration.spaces.iter().position(|(known, _)| Arc::ptr_eq(known, space)) {
            iteration.spaces.remove(at);
            iteration.next -= usize::from(at < iteration.next);
        }
    }

    /// Moves all address spaces to `heir`, as new ones.
    pub(crate) fn hand_over(&mut self, heir: &mut LockedSpaces<'_>) {
        self.0.next = 0;
        heir.0.spaces.extend(self.0.spaces.drain(..).map(|(space, _)| (space, true)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn walked(list: &SpaceList, seq: u64) -> Vec<bool> {
        let mut forced = Vec::new();
        loop {
            match list.next(seq, false, || ()) {
                Next::Walk { forced: f, .. } => forced.push(f),
                Next::Advance => return forced,
                Next::Finished => panic!("no other thread walks"),
            }
        }
    }

    /// [book: aging#checks]: "An address space that never ran since the last walk is not walked (no
    /// force)". The first walk is forced, and so is that of an address space added since.
    #[test]
    fn only_spaces_that_ran_are_walked() {
        let list = SpaceList::new();
        let spaces = [(); 3].map(|()| Arc::new(AddressSpace::default()));
        spaces.iter().take(2).for_each(|space| list.lock().add(space.clone()));
        assert_eq!(walked(&list, 3), [true, true], "the first walk is forced");
        assert_eq!(walked(&list, 4), []);
        spaces[1].mark_ran();
        list.lock().add(spaces[2].clone());
        assert_eq!(walked(&list, 5), [false, true]);
        assert!(matches!(list.next(5, false, || ()), Next::Finished));
    }

    #[test]
    fn one_of_two_agers_advances() {
        let list = SpaceList::new();
        (0..2).for_each(|_| list.lock().add(Arc::default()));
        let mut begun = 0;
        let mut next = || list.next(3, false, || begun += 1);
        assert!(matches!([next(), next()], [Next::Walk { .. }, Next::Walk { .. }]));
        assert!(matches!(next(), Next::Advance));
        assert!(matches!(next(), Next::Finished));
        assert_eq!(begun, 1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    /// Two threads age the same generation: each address space is walked by one of them, and one of
    /// them opens the generation.
    #[test]
    fn loom_agers_share_the_list() {
        loom::model(|| {
            let list = Arc::new(SpaceList::new());
            (0..2).for_each(|_| list.lock().add(Arc::default()));
            let age = |list: &SpaceList| {
                let mut walked = 0;
                loop {
                    match list.next(3, false, || ()) {
                        Next::Walk { .. } => walked += 1,
                        Next::Advance => return (walked, 1),
                        Next::Finished => return (walked, 0),
                    }
                }
            };
            let other = {
                let list = list.clone();
                loom::thread::spawn(move || age(&list))
            };
            let (walked, opened) = age(&list);
            let (walked_too, opened_too) = other.join().unwrap();
            assert_eq!((walked + walked_too, opened + opened_too), (2, 1));
        });
    }
}
