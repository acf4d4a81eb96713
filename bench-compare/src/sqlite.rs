//! SQLite's page cache, driven alone: the pool of pages of a storage engine.
//!
//! SQLite hands out the methods of its own page cache (`SQLITE_CONFIG_GETPCACHE2`). A pager fetches
//! a page by number, which pins it, and unpins it after use; so does [`Pool::fetch`].
//!
//! # Safety
//!
//! A page cache belongs to one thread at a time, which the mutable borrow of [`Pool::fetch`]
//! ensures. The pages stay where they are until the pool is dropped, because it never fills up.

#![expect(unsafe_code, reason = "calls C")]

use libsqlite3_sys::{
    SQLITE_CONFIG_GETPCACHE2, SQLITE_OK, sqlite3_config, sqlite3_initialize, sqlite3_pcache,
    sqlite3_pcache_methods2,
};
use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The smallest page of SQLite, since the pool holds one number per page.
const PAGE_BYTES: c_int = 512;
/// Create the page if it is missing.
const CREATE: c_int = 2;

/// A page cache of SQLite that holds a number for each page.
pub struct Pool {
    methods: sqlite3_pcache_methods2,
    cache: NonNull<sqlite3_pcache>,
}

// SAFETY: nothing in a page cache is tied to a thread.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool of the numbers 0 to `pages` - 1, each under its own number. Once per process: SQLite
    /// names its methods only before it starts.
    ///
    /// # Errors
    /// SQLite refuses, or memory is short.
    pub fn new(pages: u64) -> Result<Pool, &'static str> {
        let capacity = c_int::try_from(2 * pages).map_err(|_| "SQLite counts pages in 31 bits")?;
        let mut methods = MaybeUninit::<sqlite3_pcache_methods2>::zeroed();
        // SAFETY: the library fills the structure with its own methods, and starts them. All of
        // them are optional functions, for which zero is none.
        let methods = unsafe {
            if sqlite3_config(SQLITE_CONFIG_GETPCACHE2, methods.as_mut_ptr()) != SQLITE_OK {
                return Err("SQLite does not name its page cache: it has started before");
            }
            if sqlite3_initialize() != SQLITE_OK {
                return Err("SQLite does not start");
            }
            methods.assume_init()
        };
        let (Some(create), Some(resize)) = (methods.xCreate, methods.xCachesize) else {
            return Err("SQLite's page cache lacks methods");
        };
        // SAFETY: a power of two as the page's size, and a multiple of 8 as its extra bytes.
        let cache = unsafe { create(PAGE_BYTES, 8, 1) };
        let mut pool = Pool { methods, cache: NonNull::new(cache).ok_or("no memory for a page cache")? };
        // SAFETY: the cache was just created.
        unsafe { resize(pool.cache.as_ptr(), capacity) };
        for page in 0..pages {
            pool.visit(page, CREATE, |number| *number = page).ok_or("no memory for a page")?;
        }
        Ok(pool)
    }

    /// The number of a page; `None` if the cache does not have it.
    #[inline]
    pub fn fetch(&mut self, page: u64) -> Option<u64> {
        self.visit(page, 0, |number| *number)
    }

    #[inline]
    fn visit<T>(&mut self, page: u64, create: c_int, visit: impl FnOnce(&mut u64) -> T) -> Option<T> {
        let (fetch, unpin) = (self.methods.xFetch?, self.methods.xUnpin?);
        // SQLite's pages are numbered from 1 on.
        let key = page as c_uint + 1;
        // SAFETY: the cache lives as long as the pool, which is borrowed for this thread alone.
        let found = NonNull::new(unsafe { fetch(self.cache.as_ptr(), key, create) })?;
        // SAFETY: a pinned page has `PAGE_BYTES` bytes, aligned for any type, and only this borrow
        // reaches them.
        let visited = visit(unsafe { &mut *found.as_ref().pBuf.cast::<u64>() });
        // SAFETY: the page was pinned above, and its bytes are not used any more.
        unsafe { unpin(self.cache.as_ptr(), found.as_ptr(), 0) };
        Some(visited)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(destroy) = self.methods.xDestroy {
            // SAFETY: no page is pinned, and the cache is not used again.
            unsafe { destroy(self.cache.as_ptr()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_its_pages_and_no_others() {
        let mut pool = Pool::new(1000).unwrap();
        assert!((0..1000).all(|page| pool.fetch(page) == Some(page)));
        assert_eq!(pool.fetch(1000), None);
    }
}
