//! Shadows outside of the index, in 12 bytes each.
//!
//! A shadow lies in its page's slot, and 64 slots are a leaf. Leaves with nothing but shadows are
//! limited to one per eight cached pages, as in the kernel ([book: refaults#shadow-limit]). That is
//! plenty where neighbours were cached together. Where pages of a large file are used at random,
//! most leaves have one shadow, and a memory of eight pages remembers one evicted page, too few to
//! tell a page that returns from a new one. So the shadows of a leaf that is dropped move here.
//!
//! The table has one entry per frame, in sets of eight. A page's hash names its set and gives it
//! a tag of 31 bits; in one of 270 million lookups another page has the same tag, which costs one
//! wrong rank. A new shadow replaces the oldest of its set. The memory is there once it is needed.
//!
//! # Locking
//!
//! Each shard has a lock, a leaf of the order. For files without shadows here, none is taken.

use crate::mapping::ShadowEra;
use crate::random::mix;
use crate::sync::{Mutex, Ordering::Relaxed, RareU32};

/// Entries per frame. Two and three make no difference on zipf .8 with 1 % of the pages as memory.
const ENTRIES_PER_FRAME: u64 = 1;
const WAYS: usize = 8;
const SHARDS: u64 = 16;
/// Pages of a truncated range that are forgotten one by one.
const FEW_PAGES: u64 = 64;

/// The table; see the head of this file.
#[derive(Debug)]
pub(crate) struct CompactShadows {
    shards: [Mutex<Shard>; SHARDS as usize],
    sets_per_shard: u64,
    /// Eras that have begun.
    eras: RareU32,
}

/// Sets of entries, the newest entry of each first. Empty entries have the tag 0 and come last.
#[derive(Debug, Default)]
struct Shard {
    tags: Vec<u32>,
    words: Vec<u64>,
}

/// The place of a page's shadow.
struct Place {
    shard: usize,
    set: usize,
    tag: u32,
}

impl CompactShadows {
    /// An empty table for a memory of so many frames.
    pub(crate) fn new(frames: u32) -> CompactShadows {
        let sets = u64::from(frames) * ENTRIES_PER_FRAME / WAYS as u64;
        CompactShadows {
            shards: Default::default(),
            sets_per_shard: (sets / SHARDS).max(1),
            eras: RareU32::new(0),
        }
    }

    /// Bytes of the table.
    pub(crate) fn bytes(&self) -> u64 {
        let entries: usize = self.shards.iter().map(|shard| shard.lock().tags.len()).sum();
        entries as u64 * (size_of::<u32>() + size_of::<u64>()) as u64
    }

    /// The place of a page's shadow, in an era of its file.
    fn place(&self, era: u32, index: u32) -> Place {
        let hash = mix(u64::from(era) << 32 | u64::from(index));
        let set = ((hash >> 32) * self.sets_per_shard) >> 32;
        Place { shard: (hash % SHARDS) as usize, set: set as usize, tag: mix(hash) as u32 | 1 }
    }

    /// Keeps the shadow word of a page. Begins the file's era with its first one.
    pub(crate) fn keep(&self, era: &ShadowEra, index: u32, word: u64) {
        let mut now = era.0.load(Relaxed);
        if now == 0 {
            let new = self.eras.fetch_add(1, Relaxed) + 1;
            now = era.0.compare_exchange(0, new, Relaxed, Relaxed).map_or_else(|other| other, |_| new);
        }
        let Place { shard, set, tag } = self.place(now, index);
        let shard = &mut *self.shards[shard].lock();
        if shard.tags.is_empty() {
            let entries = self.sets_per_shard as usize * WAYS;
            (shard.tags, shard.words) = (vec![0; entries], vec![0; entries]);
        }
        let (tags, words) = shard.set(set);
        tags.rotate_right(1);
        words.rotate_right(1);
        (tags[0], words[0]) = (tag, word);
    }

    /// Removes and returns the shadow word of a page.
    #[inline]
    pub(crate) fn take(&self, era: &ShadowEra, index: u32) -> Option<u64> {
        let era = era.0.load(Relaxed);
        if era == 0 {
            return None;
        }
        let Place { shard, set, tag } = self.place(era, index);
        let shard = &mut *self.shards[shard].lock();
        if shard.tags.is_empty() {
            return None;
        }
        let (tags, words) = shard.set(set);
        let at = tags.iter().position(|&other| other == tag)?;
        let word = words[at];
        tags[at..].rotate_left(1);
        words[at..].rotate_left(1);
        tags[WAYS - 1] = 0;
        Some(word)
    }

    /// Forgets the shadows of a range that was truncated. With a large range, all of the file are
    /// forgotten: the table knows no neighbours.
    pub(crate) fn forget(&self, era: &ShadowEra, from: u32, end: u64) {
        if end.saturating_sub(u64::from(from)) > FEW_PAGES {
            era.0.store(0, Relaxed);
        } else {
            for index in u64::from(from)..end {
                let _ = self.take(era, index as u32);
            }
        }
    }
}

impl Shard {
    fn set(&mut self, set: usize) -> (&mut [u32], &mut [u64]) {
        let entries = set * WAYS..(set + 1) * WAYS;
        (&mut self.tags[entries.clone()], &mut self.words[entries])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shadows_are_returned_once() {
        let (table, era) = (CompactShadows::new(1000), ShadowEra::default());
        assert_eq!(table.take(&era, 7), None);
        (0..1000).for_each(|page| table.keep(&era, page * 64, u64::from(page)));
        let kept = |index| table.take(&era, index);
        let found = (0..1000).filter(|&page| kept(page * 64) == Some(u64::from(page))).count();
        assert!(found > 800, "one entry per frame, in sets of eight: {found}");
        assert!((0..1000).all(|page| kept(page * 64).is_none()));
    }

    /// The newest of a set stay: with four times as many shadows as entries, most of the last
    /// quarter are there and none of the first.
    #[test]
    fn new_shadows_replace_the_oldest() {
        let (table, era) = (CompactShadows::new(4096), ShadowEra::default());
        (0..16_384).for_each(|page| table.keep(&era, page, u64::from(page)));
        let found =
            |pages: std::ops::Range<u32>| pages.filter(|&page| table.take(&era, page).is_some()).count();
        let (first, last) = (found(0..4096), found(12_288..16_384));
        assert!(first == 0 && last > 3300, "{first} {last}");
    }

    #[test]
    fn other_files_and_truncated_pages_have_none() {
        let (table, era) = (CompactShadows::new(1000), ShadowEra::default());
        let keep = |era: &ShadowEra| (0..100).for_each(|page| table.keep(era, page, 5));
        keep(&era);
        let another = ShadowEra::default();
        assert_eq!(table.take(&another, 9), None);
        table.keep(&another, 10, 6);
        assert_eq!((table.take(&another, 9), table.take(&another, 10)), (None, Some(6)));
        table.forget(&era, 10, 12);
        assert_eq!([9, 10, 11, 12].map(|page| table.take(&era, page)), [Some(5), None, None, Some(5)]);
        table.forget(&era, 50, 1 << 32);
        assert!((0..100).all(|page| table.take(&era, page).is_none()), "the range was large");
        keep(&era);
        assert_eq!(table.take(&era, 99), Some(5));
    }
}
