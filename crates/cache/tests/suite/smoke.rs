//! A cache much smaller than its file, in every mode, with every page's content verified.

use mglru_cache::{BackendKind, OpenMode, PageCache};
use std::fs;

fn page(number: u64) -> Vec<u8> {
    (0..512u64).flat_map(|word| (number << 16 | word).to_le_bytes()).collect()
}

fn check(kind: BackendKind) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let pages = 2000u64;
    fs::write(&path, (0..pages).flat_map(page).collect::<Vec<_>>()).unwrap();
    let cache = PageCache::builder(3 << 20).tenant("t", 1 << 20).backend(kind).build().unwrap();
    let file = cache.tenant("t").unwrap().open(&path, OpenMode::ReadWrite).unwrap();
    let mut buffer = vec![0; 4096];
    for round in 0..3 {
        for number in 0..pages {
            assert_eq!(file.read_at(&mut buffer, number * 4096).unwrap(), 4096);
            assert!(buffer == page(number), "round {round}, page {number}");
        }
    }
    for number in 0..pages {
        file.write_at(&page(number + 7), number * 4096).unwrap();
    }
    let map = file.map().unwrap();
    for number in (0..pages).rev() {
        assert!(map.page(number as u32).unwrap()[..] == page(number + 7), "page {number}");
    }
    file.sync_all().unwrap();
    assert!(fs::read(&path).unwrap() == (0..pages).flat_map(|n| page(n + 7)).collect::<Vec<_>>());
    drop((map, file));
    cache.validate().unwrap();
    cache.close().unwrap();
}

#[test]
fn io_uring() {
    check(BackendKind::Auto);
}

#[test]
fn threads() {
    check(BackendKind::Threads);
}
