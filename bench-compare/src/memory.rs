//! Memory mapped for the comparison: a file as the kernel maps it, and an array in huge pages.
//!
//! # Safety
//!
//! A [`Region`] owns its mapping until it drops.
//! A mapped file is one that this program created without a name and no longer writes, so its bytes
//! do not change.

#![expect(unsafe_code, reason = "maps memory")]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::null_mut;
use std::slice;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Mapped memory, as words.
pub struct Region {
    mapped: *mut c_void,
    mapped_bytes: usize,
    first: *mut u64,
    words: usize,
}

// SAFETY: only the region owns the mapping, and nothing in it is tied to a thread.
unsafe impl Send for Region {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `bytes` of a file, with all pages in memory and in the page table.
    ///
    /// # Errors
    /// The system refuses.
    pub fn of_file(file: &File, bytes: usize) -> io::Result<Region> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let mapped = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, flags, file, 0) }?;
        Ok(Region { mapped, mapped_bytes: bytes, first: mapped.cast(), words: bytes / size_of::<u64>() })
    }

    /// Maps an array of `bytes`, in huge pages as far as the kernel has them. `word` gives the word
    /// at each offset.
    ///
    /// # Errors
    /// The system refuses.
    pub fn huge_array(bytes: usize, word: impl Fn(u64) -> u64) -> io::Result<Region> {
        let mapped_bytes = bytes + HUGE_PAGE_BYTES;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let mapped = unsafe { mmap_anonymous(null_mut(), mapped_bytes, access, MapFlags::PRIVATE) }?;
        let to_boundary = mapped.align_offset(HUGE_PAGE_BYTES);
        let first = mapped.cast::<u8>().wrapping_add(to_boundary).cast::<u64>();
        let region = Region { mapped, mapped_bytes, first, words: bytes / size_of::<u64>() };
        // SAFETY: the advice changes no byte of the region.
        unsafe { madvise(first.cast(), bytes, Advice::LinuxHugepage) }?;
        // SAFETY: `bytes` from the boundary on lie in the mapping, which is a huge page larger;
        // they are zero, and no other reference to them exists.
        let words = unsafe { slice::from_raw_parts_mut(first, region.words) };
        for (offset, place) in (0..).step_by(size_of::<u64>()).zip(words) {
            *place = word(offset);
        }
        Ok(region)
    }

    /// All words of the region.
    pub fn words(&self) -> &[u64] {
        // SAFETY: they lie in the mapping, aligned, and are not written while the region lives.
        unsafe { slice::from_raw_parts(self.first, self.words) }
    }
}

impl Region {
    /// All bytes of the region.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as for `words`; a byte has no alignment.
        unsafe { slice::from_raw_parts(self.first.cast(), self.words * size_of::<u64>()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping made above; borrows from `words` have ended.
        let unmapped = unsafe { munmap(self.mapped, self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own is unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn regions_hold_their_contents() {
        let array = Region::huge_array(3 << 20, |offset| offset * 3).unwrap();
        assert_eq!(array.words().len(), (3 << 20) / 8);
        assert!((0..).zip(array.words()).all(|(index, &word)| word == index * 24));

        let mut file = tempfile::tempfile().unwrap();
        (0..512u64).for_each(|word| file.write_all(&word.to_ne_bytes()).unwrap());
        let mapped = Region::of_file(&file, 4096).unwrap();
        assert!((0..).zip(mapped.words()).all(|(index, &word)| word == index));
    }
}
