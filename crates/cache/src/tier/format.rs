//! The file of the disk tier, byte by byte. All numbers are little-endian.
//!
//! ```text
//! page 0     header: magic, format, slot size, slots, seed, checksum
//! page 1…    table:  an entry per slot: key, number of the write, checksum, a checksum per page
//! then       data:   the slots, each of 1 to 64 pages
//! ```
//!
//! The checksum of a page is seeded with the page's identity: source, version and page number. So
//! bytes that are whole but belong to another page do not pass. The seed in the header is random;
//! entries are bound to it and to their slot, so nothing of an older file under the same name
//! passes either.
//!
//! # Crashes
//!
//! Slots are synced only when the cache is closed, and no order is kept. A slot's data and its
//! entry may each be old, new or torn: then the checksums disagree, and the pages are read from the
//! source again.

use crate::frames::FRAME_BYTES;
use std::io;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"mglruDT\0";
/// The version of this format.
pub(super) const FORMAT: u32 = 1;
/// Bytes of an entry before the checksums of its pages.
const ENTRY_HEAD_BYTES: usize = 32;
/// Bytes of the header that its checksum covers.
const HEADER_BYTES: usize = 28;
/// The most pages of a slot. More would not make transfers faster.
const SLOT_PAGES_MAX: u64 = 64;
/// The fewest slots. Reclaim frees 32 at once.
const SLOTS_MIN: u64 = 128;

/// The identity of a source and its version; see [`identity`].
pub(crate) type SourceKey = u128;

/// The identity of a source's bytes in a file with this seed. Names that differ get equal keys with
/// a chance of 2^-128; the seed keeps anyone from choosing such names.
pub(super) fn identity(seed: u64, name: &str, version: &str, len: u64) -> SourceKey {
    let mut bytes = Vec::with_capacity(name.len() + version.len() + 16);
    for part in [name, version] {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes.extend(len.to_le_bytes());
    xxh3_128_with_seed(&bytes, seed)
}

/// The key of a piece of a source, as large as a slot. `number` counts pieces from the source's
/// first byte on.
pub(super) fn piece_key(source: SourceKey, number: u64) -> u128 {
    // Odd, so that the pieces of a source have different keys.
    const STEP: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    source.wrapping_add((u128::from(number) + 1).wrapping_mul(STEP))
}

/// The checksum of a page's 4,096 bytes, never 0.
pub(super) fn page_sum(source: SourceKey, page: u64, bytes: &[u8]) -> u64 {
    let seed = (source as u64) ^ ((source >> 64) as u64).rotate_left(32);
    xxh3_64_with_seed(bytes, seed ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1)
}

/// The places of everything in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Pages of a slot.
    pub(super) slot_pages: usize,
    pub(super) slots: u32,
}

impl Layout {
    /// The layout of a file of at most `bytes`, with slots of `slot_bytes`.
    pub(super) fn new(bytes: u64, slot_bytes: u64) -> io::Result<Layout> {
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let page = FRAME_BYTES as u64;
        let slot_pages = slot_bytes / page;
        if !slot_bytes.is_power_of_two() || slot_pages == 0 || slot_pages > SLOT_PAGES_MAX {
            let max = SLOT_PAGES_MAX * page;
            return invalid(format!(
                "a slot has {slot_bytes} bytes: use a power of two from {page} to {max}"
            ));
        }
        let pages = bytes.min(i64::MAX as u64) / page;
        let slots_max = (mglru_core::folio::MAX_FOLIOS / 4) as u64;
        let mut layout = Layout { slot_pages: slot_pages as usize, slots: 0 };
        layout.slots = (pages / slot_pages).min(slots_max) as u32;
        // The table takes a slot in a few hundred.
        while layout.slots > 0 && layout.pages() > pages {
            let over = layout.pages() - pages;
            layout.slots -=
                u32::try_from(over.div_ceil(slot_pages + 1)).unwrap_or(u32::MAX).min(layout.slots);
        }
        if u64::from(layout.slots) < SLOTS_MIN {
            let least = Layout { slots: SLOTS_MIN as u32, ..layout }.pages() * page;
            return invalid(format!(
                "a disk tier of {bytes} bytes is too small: give it at least {least} bytes"
            ));
        }
        Ok(layout)
    }

    pub(super) fn entry_bytes(&self) -> usize {
        ENTRY_HEAD_BYTES + 8 * self.slot_pages
    }

    /// Entries in a page of the table.
    pub(super) fn entries_per_page(&self) -> u32 {
        (FRAME_BYTES / self.entry_bytes()) as u32
    }

    pub(super) fn table_pages(&self) -> u64 {
        u64::from(self.slots.div_ceil(self.entries_per_page()))
    }

    /// The page of the table that has a slot's entry, and the entry's first byte there.
    pub(super) fn entry_at(&self, slot: u32) -> (u64, usize) {
        let per_page = self.entries_per_page();
        (1 + u64::from(slot / per_page), (slot % per_page) as usize * self.entry_bytes())
    }

    /// The first page of a slot's data.
    pub(super) fn data_page(&self, slot: u32) -> u64 {
        1 + self.table_pages() + u64::from(slot) * self.slot_pages as u64
    }

    /// Pages of the whole file.
    pub(super) fn pages(&self) -> u64 {
        self.data_page(self.slots)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.pages() * FRAME_BYTES as u64
    }
}

/// The header of a new file.
pub(super) fn header(layout: &Layout, seed: u64) -> [u8; FRAME_BYTES] {
    let mut page = [0; FRAME_BYTES];
    page[..8].copy_from_slice(&MAGIC);
    page[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    page[12..16].copy_from_slice(&(layout.slot_pages as u32).to_le_bytes());
    page[16..20].copy_from_slice(&layout.slots.to_le_bytes());
    page[20..28].copy_from_slice(&seed.to_le_bytes());
    let sum = xxh3_64_with_seed(&page[..HEADER_BYTES], seed);
    page[28..36].copy_from_slice(&sum.to_le_bytes());
    page
}

/// The kind of a file, by its first page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The file is new, if the rest of it is zeros, too.
    Nothing,
    /// A tier with the wanted layout and this seed.
    Tier(u64),
    /// A tier whose slots cannot be used, and why.
    Unusable(String),
    /// Another program's file.
    Foreign,
}

/// Reads the first page of a file.
pub(super) fn read_header(page: &[u8; FRAME_BYTES], wanted: &Layout) -> Found {
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
    if page.iter().all(|&byte| byte == 0) {
        return Found::Nothing;
    }
    if page[..8] != MAGIC {
        return Found::Foreign;
    }
    if word(8) != FORMAT {
        return Found::Unusable(format!("the file has format {}, and this is format {FORMAT}", word(8)));
    }
    let seed = long(20);
    if xxh3_64_with_seed(&page[..HEADER_BYTES], seed) != long(28) {
        return Found::Unusable("the file's header is damaged".to_owned());
    }
    let found = Layout { slot_pages: word(12) as usize, slots: word(16) };
    if found != *wanted {
        return Found::Unusable(format!(
            "the file has {} slots of {} bytes, and now {} of {} are wanted",
            found.slots,
            found.slot_pages as u64 * FRAME_BYTES as u64,
            wanted.slots,
            wanted.slot_pages * FRAME_BYTES,
        ));
    }
    Found::Tier(seed)
}

/// The table's entry of a slot in use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The key of the piece ([`piece_key`]).
    pub(super) key: u128,
    /// The number of the write, which orders slots by age.
    pub(super) written: u64,
    /// A checksum per page; 0 for a page that is not there.
    pub(super) sums: Vec<u64>,
}

impl Entry {
    pub(super) fn encode(&self, seed: u64, slot: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENTRY_HEAD_BYTES + 8 * self.sums.len());
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.written.to_le_bytes());
        bytes.extend([0; 8]);
        self.sums.iter().for_each(|sum| bytes.extend(sum.to_le_bytes()));
        let sum = entry_sum(&bytes, seed, slot);
        bytes[24..32].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None`: the slot is unused, or its entry is torn or another slot's.
    pub(super) fn decode(bytes: &[u8], seed: u64, slot: u32) -> Option<Entry> {
        let mut copy = bytes.to_vec();
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        copy[24..32].fill(0);
        if long(24) != entry_sum(&copy, seed, slot) {
            return None;
        }
        let sums = (ENTRY_HEAD_BYTES..bytes.len()).step_by(8).map(long).collect();
        let key = u128::from_le_bytes(bytes[..16].try_into().expect("sixteen bytes"));
        Some(Entry { key, written: long(16), sums })
    }
}

/// The checksum of an entry whose own is 0 in `bytes`, never 0.
fn entry_sum(bytes: &[u8], seed: u64, slot: u32) -> u64 {
    xxh3_64_with_seed(bytes, seed ^ u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_fill_what_they_are_given_and_no_more() {
        for slot_pages in [1, 4, 16, 64] {
            let slot_bytes = slot_pages * 4096;
            for bytes in [1 << 20, 5_000_000, 64 << 20, (1 << 40) + 12_345] {
                match Layout::new(bytes, slot_bytes) {
                    Ok(layout) => {
                        assert!(layout.bytes() <= bytes, "{layout:?}");
                        let more = Layout { slots: layout.slots + 2, ..layout };
                        assert!(more.bytes() > bytes, "{layout:?} of {bytes}");
                        assert!(layout.entry_at(layout.slots - 1).0 < layout.data_page(0));
                    }
                    Err(error) => assert!(bytes < (SLOTS_MIN + 1) * (slot_bytes + 4096), "{error}"),
                }
            }
        }
        for wrong in [0, 1, 2048, 12_288, 512 << 10] {
            assert_eq!(Layout::new(1 << 30, wrong).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let error = Layout::new(4096, 4096).unwrap_err().to_string();
        let least: u64 = error.split(' ').rev().nth(1).unwrap().parse().unwrap();
        assert!(Layout::new(least, 4096).is_ok() && Layout::new(least - 1, 4096).is_err(), "{error}");
    }

    #[test]
    fn headers_and_entries_are_read_back_and_changes_are_found() {
        let layout = Layout::new(8 << 20, 16_384).unwrap();
        let page = header(&layout, 77);
        assert_eq!(read_header(&page, &layout), Found::Tier(77));
        assert_eq!(read_header(&[0; FRAME_BYTES], &layout), Found::Nothing);
        for at in 0..36 {
            let mut damaged = page;
            damaged[at] ^= 4;
            let found = read_header(&damaged, &layout);
            assert!(
                if at < 8 { found == Found::Foreign } else { matches!(found, Found::Unusable(_)) },
                "{at}"
            );
        }
        let other = Layout { slots: layout.slots - 1, ..layout };
        assert!(matches!(read_header(&page, &other), Found::Unusable(_)));
        let entry = Entry { key: 1 << 90 | 5, written: 9, sums: vec![3, 0, 1, u64::MAX] };
        let bytes = entry.encode(77, 4);
        assert_eq!(bytes.len(), layout.entry_bytes());
        assert_eq!(Entry::decode(&bytes, 77, 4), Some(entry));
        assert_eq!(Entry::decode(&bytes, 77, 5), None);
        assert_eq!(Entry::decode(&bytes, 78, 4), None);
        assert_eq!(Entry::decode(&vec![0; bytes.len()], 77, 4), None);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Entry::decode(&damaged, 77, 4), None, "byte {at}");
        }
    }

    #[test]
    fn identities_differ_by_name_version_length_seed_and_place() {
        let of = |seed, name, version, len| identity(seed, name, version, len);
        let first = of(1, "ab", "c", 10);
        for other in [of(2, "ab", "c", 10), of(1, "a", "bc", 10), of(1, "ab", "d", 10), of(1, "ab", "c", 11)]
        {
            assert_ne!(first, other);
        }
        assert_ne!(piece_key(first, 0), piece_key(first, 1));
        let page = [7; FRAME_BYTES];
        assert_ne!(page_sum(first, 0, &page), page_sum(first, 1, &page));
        assert_ne!(page_sum(first, 0, &page), page_sum(first + 1, 0, &page));
    }
}
