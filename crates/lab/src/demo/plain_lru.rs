//! Plain LRU over a file, with the memory of the other caches: what the default is compared with.
//!
//! A map of pages in the order of their last use, under one lock; the lock is not held while bytes
//! are read or copied. Missing pages of one request are read together. There is no readahead.

use super::clients::CachedRead;
use lru::LruCache;
use mglru_core::PAGE_BYTES;
use std::fs::File;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

const PAGE: usize = PAGE_BYTES as usize;
/// Bytes of the map per page: an entry, its links and a reference count.
const ENTRY_BYTES: u64 = 80;
/// Direct I/O wants aligned memory.
const ALIGNMENT: usize = PAGE;

type Page = Arc<[u8; PAGE]>;

/// The cache.
pub struct PlainLru {
    pages: Mutex<LruCache<u64, Page>>,
}

impl PlainLru {
    /// With so much memory in all.
    pub fn new(budget_bytes: u64) -> PlainLru {
        let pages = (budget_bytes / (PAGE_BYTES + ENTRY_BYTES)).max(1) as usize;
        PlainLru { pages: Mutex::new(LruCache::new(NonZeroUsize::new(pages).expect("at least 1"))) }
    }

    /// A client's way to the one file that this cache is for.
    pub fn handle(cache: &Arc<PlainLru>, file: File) -> Handle {
        Handle { cache: cache.clone(), file, hits: AtomicU64::new(0), scratch: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LruCache<u64, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file through the cache.
pub struct Handle {
    cache: Arc<PlainLru>,
    file: File,
    hits: AtomicU64,
    /// Aligned buffer for reads from the file.
    scratch: Mutex<Vec<u8>>,
}

impl Handle {
    /// Reads pages that are missing into the buffer, and into the cache.
    fn fill(&self, buffer: &mut [u8], first: u64, missing: Range<usize>) -> Result<(), String> {
        let (offset, bytes) = ((first + missing.start as u64) * PAGE_BYTES, missing.len() * PAGE);
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let room = scratch.len().max(bytes + ALIGNMENT);
        scratch.resize(room, 0);
        let start = scratch.as_ptr().align_offset(ALIGNMENT);
        let aligned = &mut scratch[start..start + bytes];
        let read = self.file.read_exact_at(aligned, offset);
        read.map_err(|error| format!("pread at offset {offset}: {error}"))?;
        buffer[missing.start * PAGE..missing.end * PAGE].copy_from_slice(aligned);
        let whole = aligned.chunks_exact(PAGE).map(|bytes| Arc::new(bytes.try_into().expect("a page")));
        let read: Vec<Page> = whole.collect();
        let mut pages = self.cache.lock();
        for (page, bytes) in (first + missing.start as u64..).zip(read) {
            pages.put(page, bytes);
        }
        Ok(())
    }
}

impl CachedRead for Handle {
    /// Of whole pages.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), String> {
        let first = offset / PAGE_BYTES;
        let count = buffer.len() / PAGE;
        let found: Vec<Option<Page>> = {
            let mut pages = self.cache.lock();
            (first..).take(count).map(|page| pages.get(&page).cloned()).collect()
        };
        for (into, page) in buffer.chunks_exact_mut(PAGE).zip(&found) {
            if let Some(page) = page {
                into.copy_from_slice(&page[..]);
            }
        }
        let mut at = 0;
        for run in found.chunk_by(|one, next| one.is_some() == next.is_some()) {
            match run[0] {
                Some(_) => drop(self.hits.fetch_add(run.len() as u64, Relaxed)),
                None => self.fill(buffer, first, at..at + run.len())?,
            }
            at += run.len();
        }
        Ok(())
    }

    fn hits(&self) -> Option<u64> {
        Some(self.hits.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_least_recently_used_page_leaves() {
        let mut file = tempfile::tempfile().unwrap();
        (0..8u8).for_each(|page| file.write_all(&[page; PAGE]).unwrap());
        let cache = Arc::new(PlainLru::new(3 * (PAGE_BYTES + ENTRY_BYTES)));
        let handle = PlainLru::handle(&cache, file);
        let mut hits = String::new();
        for page in [0, 1, 2, 0, 3, 1, 0, 2u8] {
            let (mut bytes, before) = ([9; PAGE], handle.hits());
            handle.read(&mut bytes, u64::from(page) * PAGE_BYTES).unwrap();
            assert!(bytes.iter().all(|&byte| byte == page));
            hits.push(if handle.hits() > before { 'h' } else { '.' });
        }
        // 0 is used again, so 1 leaves for 3, and 2 for 1.
        assert_eq!(hits, "...h..h.");
        let mut bytes = vec![9; 4 * PAGE];
        handle.read(&mut bytes, PAGE_BYTES).unwrap();
        assert!(
            bytes.chunks_exact(PAGE).zip(1..).all(|(page, number)| page.iter().all(|&byte| byte == number))
        );
        assert_eq!(handle.hits(), Some(4), "0 and 2 were there, and of four pages 1 and 2");
        assert!(handle.read(&mut bytes, 6 * PAGE_BYTES).unwrap_err().contains("offset"));
    }
}
