//! The state word under every interleaving: `make loom`.
//!
//! In each test two or three threads make one transition each; the assertions hold in any order.

use super::flags::{Climb, FolioFlags, GenIndex, Neighbour};
use crate::mechanism::{Mechanisms, Preset};
use loom::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release, fence};
use loom::thread;

const NOW: Mechanisms = Mechanisms::preset(Preset::Linux72);

/// Runs two threads on a folio that `set_up` made, and returns their results.
fn race<A: 'static, B: 'static>(
    flags: &Arc<FolioFlags>,
    first: impl FnOnce(&FolioFlags) -> A + 'static,
    second: impl FnOnce(&FolioFlags) -> B + 'static,
) -> (A, B) {
    let other = {
        let flags = flags.clone();
        thread::spawn(move || second(&flags))
    };
    let first = first(flags);
    (first, other.join().unwrap())
}

/// A cached, unlocked folio: one reference, the mapping's.
fn cached() -> Arc<FolioFlags> {
    let flags = FolioFlags::new();
    flags.allocate(false, 1);
    flags.end_content();
    flags.unlock();
    Arc::new(flags)
}

/// As [`cached`], on the list of generation 0.
fn listed() -> Arc<FolioFlags> {
    let flags = cached();
    flags.enlist(GenIndex::new(0), NOW);
    flags
}

/// [book: folios#checks]: "Two threads isolating the same folio: exactly one succeeds".
#[test]
fn loom_isolation_is_exclusive() {
    loom::model(|| {
        let flags = listed();
        let (a, b) = race(&flags, |f| f.isolate(NOW), |f| f.isolate(NOW));
        assert!(a.is_some() != b.is_some());
        assert_eq!(flags.load().references(), 2);
        assert!(!flags.load().lru());
    });
}

/// Isolation races with the drop of the last reference: the freeing thread takes the folio off its
/// list, and a folio that is being freed is not isolated.
#[test]
fn loom_a_folio_is_isolated_or_freed() {
    loom::model(|| {
        let flags = listed();
        let free = |flags: &FolioFlags| flags.put().references() == 0 && flags.clear_lru();
        let (isolated, freed) = race(&flags, |f| f.isolate(NOW).is_some(), free);
        assert!(isolated != freed);
        assert_eq!(flags.load().references(), u32::from(isolated));
    });
}

/// Either reclaim freezes a folio or a reader gets a reference, never both.
#[test]
fn loom_a_folio_is_frozen_or_held() {
    loom::model(|| {
        let flags = cached();
        let (frozen, held) = race(&flags, |f| f.freeze(1, false).is_some(), FolioFlags::try_get);
        assert!(frozen != held);
        assert_eq!(flags.load().references(), if held { 2 } else { 0 });
    });
}

/// Either reclaim freezes a folio, or it is dirtied, mapped or waited for; no such request is lost.
#[test]
fn loom_a_frozen_folio_is_clean_unmapped_and_without_waiters() {
    loom::model(|| {
        let flags = cached();
        let write = |flags: &FolioFlags| {
            let held = flags.try_get();
            if held {
                flags.set_dirty();
                flags.put();
            }
            held
        };
        let (frozen, _) = race(&flags, |f| f.freeze(1, false).is_some(), write);
        assert!(frozen != flags.load().dirty());
    });
    loom::model(|| {
        let flags = cached();
        let then = flags.load();
        let (frozen, mapped) = race(&flags, |f| f.freeze(1, false).is_some(), move |f| f.set_mapped(then));
        assert!(frozen != mapped && mapped == flags.load().mapped());
    });
    loom::model(|| {
        let flags = cached();
        assert!(flags.try_lock());
        let wait = |flags: &FolioFlags| flags.announce_waiter(|f| f.locked());
        let (before, waits) = race(&flags, |f| f.freeze(1, true).unwrap(), wait);
        assert_eq!(before.waiters(), waits);
    });
}

/// Two users drop their references: exactly one frees the folio.
#[test]
fn loom_the_last_user_frees() {
    loom::model(|| {
        let flags = cached();
        assert!(flags.try_get());
        let put = |flags: &FolioFlags| flags.put().references() == 0;
        let (a, b) = race(&flags, put, put);
        assert!(a != b);
    });
}

/// A walk relabels a folio while eviction takes it off its list: exactly one of them makes each
/// size change.
#[test]
fn loom_sizes_follow_a_walk_and_a_removal() {
    loom::model(|| {
        let flags = listed();
        flags.mark_accessed(flags.load(), NOW);
        let walk = |flags: &FolioFlags| flags.found_young_by_walk(GenIndex::new(2), NOW);
        let (walked, label) = race(&flags, walk, |flags| flags.isolate(NOW).unwrap());
        let mut sizes = [1, 0, 0, 0];
        if let Neighbour::Relabelled(old, new) = walked {
            sizes[old.as_usize()] -= 1;
            sizes[new.as_usize()] += 1;
        }
        sizes[label.generation().unwrap().as_usize()] -= 1;
        assert_eq!(sizes, [0; 4]);
        assert_eq!(flags.load().generation(), None);
    });
}

/// The same while sorting or making room moves the folio up, and with a second walk.
#[test]
fn loom_sizes_follow_walks_and_a_climb() {
    loom::model(|| {
        let flags = listed();
        flags.mark_accessed(flags.load(), NOW);
        let walk = |flags: &FolioFlags| flags.found_young_by_walk(GenIndex::new(2), NOW);
        let sort = move |flags: &FolioFlags| (flags.climb(GenIndex::new(0), false, NOW), walk(flags));
        let (first, (climb, second)) = race(&flags, walk, sort);
        let mut sizes = [1, 0, 0, 0];
        let mut change = |old: GenIndex, new: GenIndex| {
            sizes[old.as_usize()] -= 1;
            sizes[new.as_usize()] += 1;
        };
        for walked in [first, second] {
            if let Neighbour::Relabelled(old, new) = walked {
                change(old, new);
            }
        }
        if let Climb::Moved(next) = climb {
            change(GenIndex::new(0), next);
        }
        let mut expected = [0; 4];
        expected[flags.load().generation().unwrap().as_usize()] = 1;
        assert_eq!(sizes, expected);
    });
}

/// The folio lock excludes, and the next holder sees the writes of the last one.
#[test]
fn loom_the_folio_lock_excludes() {
    loom::model(|| {
        let flags = cached();
        let bytes = Arc::new(AtomicU64::new(0));
        let add = |bytes: Arc<AtomicU64>| {
            move |flags: &FolioFlags| {
                let locked = flags.try_lock();
                if locked {
                    bytes.store(bytes.load(Relaxed) + 1, Relaxed);
                    flags.unlock();
                }
                u64::from(locked)
            }
        };
        let (a, b) = race(&flags, add(bytes.clone()), add(bytes.clone()));
        assert_eq!(bytes.load(Relaxed), a + b);
        assert!(a + b > 0 && !flags.load().locked());
    });
}

/// An announced sleeper is woken; without one, no wake-up is sent.
#[test]
fn loom_no_wake_up_is_lost() {
    loom::model(|| {
        let flags = cached();
        assert!(flags.try_lock());
        let wait = |flags: &FolioFlags| flags.announce_waiter(|f| f.locked());
        let (woken, sleeps) = race(&flags, FolioFlags::unlock, wait);
        assert_eq!(woken, sleeps);
    });
    loom::model(|| {
        let flags = cached();
        flags.set_dirty();
        assert!(flags.start_writeback());
        let wait = |flags: &FolioFlags| flags.announce_waiter(|f| f.writeback());
        let (before, sleeps) = race(&flags, FolioFlags::end_writeback, wait);
        assert_eq!(before.waiters(), sleeps);
        assert!(!flags.load().writeback() && !flags.load().waiters());
    });
}

/// A thread that sleeps until the folio is unlocked is woken although another event ends in
/// between, at the latest by the second event.
#[test]
fn loom_no_wake_up_is_lost_to_another_event() {
    loom::model(|| {
        let flags = cached();
        flags.set_dirty();
        assert!(flags.start_writeback() && flags.try_lock());
        let wait = |flags: &FolioFlags| flags.announce_waiter(|f| f.locked());
        let wake = |flags: &FolioFlags| (flags.end_writeback().waiters(), flags.unlock());
        let ((first, second), sleeps) = race(&flags, wake, wait);
        assert_eq!(first || second, sleeps);
    });
}

/// Two words of a page that are always written together.
#[derive(Clone)]
struct Bytes([Arc<AtomicU64>; 2]);

impl Bytes {
    fn new() -> Bytes {
        Bytes([(); 2].map(|()| Arc::new(AtomicU64::new(0))))
    }

    fn write(&self, value: u64) {
        self.0.iter().for_each(|word| word.store(value, Relaxed));
    }

    /// An optimistic copy: `None` if it may be torn.
    fn read(&self, flags: &FolioFlags) -> Option<(u32, [u64; 2])> {
        let then = flags.load();
        if then.writing() {
            return None;
        }
        let copy = [0, 1].map(|word| self.0[word].load(Relaxed));
        flags.unchanged_since(then).then_some((then.version(), copy))
    }
}

/// A reader that copies bytes during a write accepts only whole copies, of the version that it saw.
#[test]
fn loom_a_torn_copy_is_never_accepted() {
    loom::model(|| {
        let flags = cached();
        let bytes = Bytes::new();
        let before = flags.load().version();
        let write = {
            let bytes = bytes.clone();
            move |flags: &FolioFlags| {
                assert!(flags.begin_content());
                fence(Release);
                bytes.write(1);
                flags.end_content();
            }
        };
        assert!(flags.try_lock());
        let (copy, ()) = race(&flags, move |flags| bytes.read(flags), write);
        if let Some((version, copy)) = copy {
            assert_eq!(copy, [u64::from(version - before); 2]);
        }
    });
}

/// The same while the frame is freed and another page is read into it.
#[test]
fn loom_bytes_of_another_page_are_never_accepted() {
    loom::model(|| {
        let flags = cached();
        let bytes = Bytes::new();
        let before = flags.load().version();
        let reuse = {
            let bytes = bytes.clone();
            move |flags: &FolioFlags| {
                assert!(flags.freeze(1, false).is_some());
                flags.allocate(false, 1);
                bytes.write(1);
                flags.end_content();
            }
        };
        let (copy, ()) = race(&flags, move |flags| bytes.read(flags), reuse);
        if let Some((version, copy)) = copy {
            assert_eq!(copy, [u64::from(version > before); 2]);
        }
    });
}

/// A borrower reads plain memory: loom would report a writer beside it.
#[test]
fn loom_lent_bytes_have_no_writer() {
    loom::model(|| {
        let flags = cached();
        let then = flags.load();
        let bytes = Arc::new(Cell::new(0));
        let lend = {
            let bytes = bytes.clone();
            move |flags: &FolioFlags| {
                flags.lend(then.version()).is_ok() && {
                    assert_eq!(bytes.get(), 0);
                    flags.take_back();
                    true
                }
            }
        };
        let write = move |flags: &FolioFlags| {
            let may = flags.begin_content();
            if may {
                bytes.set(1);
                flags.end_content();
            }
            may
        };
        assert!(flags.try_lock());
        let (lent, written) = race(&flags, lend, write);
        assert!(lent || written);
    });
}

/// A writer that finds the bytes lent sleeps until the last loan ends, and is woken then.
#[test]
fn loom_a_writer_waits_for_the_last_loan() {
    loom::model(|| {
        let flags = cached();
        let then = flags.load();
        assert!(flags.lend(then.version()).is_ok() && flags.lend(then.version()).is_ok());
        let take_back = |flags: &FolioFlags| {
            let after = flags.take_back();
            !after.lent() && after.waiters()
        };
        let other = {
            let flags = flags.clone();
            thread::spawn(move || take_back(&flags))
        };
        let (woken, waits) = race(&flags, take_back, |flags| flags.announce_waiter(|f| f.lent()));
        assert_eq!(u8::from(woken) + u8::from(other.join().unwrap()), u8::from(waits));
    });
}

/// The last reference and the last loan are dropped: exactly one of the two frees the folio.
#[test]
fn loom_the_last_user_or_borrower_frees() {
    loom::model(|| {
        let flags = cached();
        assert!(flags.lend(flags.load().version()).is_ok());
        let (put, taken) = race(&flags, |flags| !flags.put().is_held(), |flags| !flags.take_back().is_held());
        assert!(put != taken);
    });
}

/// A reference by version is to the page that was looked up, or fails.
#[test]
fn loom_a_reference_by_version_is_to_that_page() {
    loom::model(|| {
        let flags = cached();
        let then = flags.load();
        let reuse = |flags: &FolioFlags| {
            let frozen = flags.freeze(1, false).is_some();
            if frozen {
                flags.allocate(false, 1);
                flags.end_content();
            }
            frozen
        };
        let (held, frozen) = race(&flags, move |flags| flags.try_get_version(then), reuse);
        assert!(held != frozen);
        assert_eq!(held, flags.load().version() == then.version());
    });
}

/// A late access does not count for the page that has the frame by then.
#[test]
fn loom_a_late_access_is_not_counted_for_another_page() {
    loom::model(|| {
        let flags = cached();
        let then = flags.load();
        let reuse = |flags: &FolioFlags| {
            assert!(flags.freeze(1, false).is_some());
            flags.allocate(false, 1);
        };
        race(&flags, move |flags| flags.mark_accessed(then, NOW), reuse);
        assert!(!flags.load().referenced());
    });
}

/// A writer dirties a page again while the flusher takes it: the index of dirty pages and the flag
/// agree in the end, so that the page is written again.
#[test]
fn loom_a_page_that_is_dirtied_again_is_indexed() {
    loom::model(|| {
        let flags = cached();
        flags.set_dirty();
        let index = Arc::new(loom::sync::Mutex::new(true));
        let write = {
            let index = index.clone();
            move |flags: &FolioFlags| {
                if !flags.redirty() {
                    let mut index = index.lock().unwrap();
                    *index |= flags.set_dirty();
                }
            }
        };
        let flush = {
            let index = index.clone();
            move |flags: &FolioFlags| {
                let mut index = index.lock().unwrap();
                if flags.start_writeback() {
                    *index = false;
                }
            }
        };
        race(&flags, write, flush);
        assert_eq!(flags.load().dirty(), *index.lock().unwrap());
    });
}
