//! The example of README.md. `tests/suite/guide.rs` compares the two.

use mglru_cache::{OpenMode, PageCache};

fn main() -> Result<(), mglru_cache::Error> {
    let cache = PageCache::builder(64 << 20).tenant("index", 32 << 20).build()?; // bytes
    let file = cache.tenant("index")?.open("table.idx", OpenMode::Create)?;
    file.write_at(b"hello", 8192)?; // in memory
    file.sync_data()?; // on stable storage
    let mut page = [0; 4096];
    let bytes = file.read_at(&mut page, 8192)?; // a hit copies and counts, and takes no lock
    assert_eq!(&page[..bytes], b"hello");
    let map = file.map()?; // accesses set an accessed bit
    let guard = map.page(2)?; // a page, lent without a copy
    assert_eq!(&guard[..], b"hello");
    drop(guard);
    cache.close() // reports errors of the last writes; dropping the cache does not
}
