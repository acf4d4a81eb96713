//! Ends in unusual places: a thread, a cache or a handle that ends where few programs let one end.

use crate::common::{PAGE, assert_same, memory, page, pages};
use mglru_cache::{CachedFile, Map, OpenMode};
use std::cell::RefCell;

/// Lends a page when its thread has dropped the cache's own thread-local values.
struct AtExit(Option<(CachedFile, Map)>);

impl Drop for AtExit {
    fn drop(&mut self) {
        let (file, map) = self.0.take().expect("it was set");
        assert_same(&map.page(1).unwrap(), &page(1), "page of an ending thread");
        let lent = map.page(2).unwrap();
        assert!(file.try_write_at(&[1; PAGE], 2 * PAGE as u64).is_err(), "it is lent");
        drop(lent);
        file.write_at(&page(7), 2 * PAGE as u64).unwrap();
    }
}

thread_local! {
    static AT_EXIT: RefCell<AtExit> = const { RefCell::new(AtExit(None)) };
}

#[test]
fn a_thread_lends_pages_while_it_drops_its_thread_local_values() {
    let (disk, _) = memory(1);
    disk.set("f", &pages(0..3));
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let map = file.map().unwrap();
    // Joined: a scope ends before the values are dropped.
    let lender = (file.try_clone().unwrap(), map);
    let thread = std::thread::spawn(move || {
        // Values are dropped in the reverse order of their first use.
        AT_EXIT.with_borrow_mut(|at_exit| {
            drop(lender.1.page(0).unwrap());
            at_exit.0 = Some(lender);
        });
    });
    thread.join().unwrap();
    assert_same(&file.map().unwrap().page(2).unwrap(), &page(7), "written page");
    file.try_write_at(&pages(0..3), 0).unwrap();
    cache.validate().unwrap();
}
