//! The parts of a mapping under every interleaving: `make loom`.

use super::layout::DIRECTORY_PAGES;
use super::leaf::LeafPool;
use super::{InsertError, LockedMapping, Mapping, MappingId};
use crate::folio::{FolioId, Kind};
use crate::memcg::MemcgId;
use loom::sync::Arc;
use loom::thread;

/// The first page of the second part.
const FAR: u32 = DIRECTORY_PAGES;

/// An empty mapping of two parts, and a pool that has a leaf reserved for each thread.
fn mapping() -> Arc<(LeafPool, Mapping)> {
    let leaves = LeafPool::new(2, 2, 2, 1, 1);
    assert!(leaves.reserve(0) && leaves.reserve(0));
    Arc::new((leaves, Mapping::new(MappingId(0), Kind::File, 2)))
}

fn insert(locked: &mut LockedMapping<'_>, index: u32) -> Result<(), InsertError> {
    locked.insert(0, index, FolioId(index), MemcgId::ROOT).map(|_| ())
}

/// Inserts a page into the second part, in another thread.
fn insert_far(shared: &Arc<(LeafPool, Mapping)>) -> thread::JoinHandle<Result<(), InsertError>> {
    let shared = shared.clone();
    thread::spawn(move || insert(&mut shared.1.lock(&shared.0, FAR), FAR))
}

fn explore(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 100_000;
    builder.check(test);
}

/// A page comes into the second part, which may not exist yet, before the mapping is sealed, and
/// the sealing thread sees it; or not at all.
#[test]
fn loom_a_sealed_mapping_gets_no_more_pages() {
    explore(|| {
        let shared = mapping();
        let other = insert_far(&shared);
        let seen = {
            let all = shared.1.lock_all(&shared.0);
            all.seal();
            all.next(0, 1 << 32).map(|(index, _)| index)
        };
        let inserted = other.join().unwrap();
        match inserted {
            Ok(()) => assert_eq!(seen, Some(FAR)),
            Err(error) => assert_eq!((error, seen), (InsertError::Closed, None)),
        }
    });
}

/// Two threads insert pages under different locks; neither's directory, leaf or count is lost.
#[test]
fn loom_parts_do_not_disturb_each_other() {
    explore(|| {
        let shared = mapping();
        let other = insert_far(&shared);
        insert(&mut shared.1.lock(&shared.0, 0), 0).unwrap();
        other.join().unwrap().unwrap();
        let (leaves, mapping) = &*shared;
        for index in [0, FAR] {
            assert_eq!(mapping.lock(leaves, index).slot(index).folio(), Some(FolioId(index)));
        }
        assert_eq!((mapping.folios(), leaves.in_use()), (2, 2));
    });
}

/// A scan without locks finds a page that stays, while another part gets a page.
#[test]
fn loom_a_scan_finds_what_stays() {
    explore(|| {
        let shared = mapping();
        insert(&mut shared.1.lock(&shared.0, FAR), FAR).unwrap();
        // The scan is in the thread that loom starts later: it notices that a load could have come
        // before a store, and not the reverse if the storing thread has loaded the word, too.
        let scan = {
            let shared = shared.clone();
            thread::spawn(move || shared.1.lock_next(&shared.0, 0, 1 << 32).map(|(_, index, _)| index))
        };
        insert(&mut shared.1.lock(&shared.0, 0), 0).unwrap();
        let found = scan.join().unwrap();
        assert!(found == Some(0) || found == Some(FAR));
    });
}

/// A scan that begins behind a page returns no page before its beginning, although the directory of
/// both is created meanwhile: a truncation would remove a page that stays in the file.
#[test]
fn loom_a_scan_does_not_turn_back() {
    explore(|| {
        let shared = mapping();
        let scan = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (leaves, mapping) = &*shared;
                let index = mapping.lock_next(leaves, 5, 1 << 32).map(|(_, index, _)| index);
                (index, mapping.tables(leaves, 3..8).next())
            })
        };
        insert(&mut shared.1.lock(&shared.0, 0), 0).unwrap();
        assert_eq!(scan.join().unwrap(), (None, None));
    });
}

/// A thread locks a part that does not exist yet while the mapping is closed: the memory of the
/// parts is not counted any more.
#[test]
fn loom_a_closed_mapping_costs_nothing() {
    explore(|| {
        let shared = mapping();
        let bytes = shared.0.bytes();
        let other = insert_far(&shared);
        let (leaves, mapping) = &*shared;
        mapping.lock_all(leaves).seal();
        if let Some((mut locked, index, slot)) = mapping.lock_next(leaves, 0, 1 << 32) {
            locked.remove(index, slot.folio().unwrap(), None, MemcgId::ROOT).unwrap();
        }
        mapping.lock_all(leaves).close_index();
        let _ = other.join().unwrap();
        assert_eq!(leaves.bytes(), bytes);
    });
}
