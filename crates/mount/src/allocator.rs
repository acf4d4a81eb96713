//! The allocator's part in the memory of a mount.
//!
//! The FUSE library has a buffer of 16 MiB per thread, of which a mount uses as much as its largest
//! request. The rest takes no memory if the buffer is a mapping of its own. But glibc maps no
//! blocks of that size any more once one was freed, and the handshake's is. From then on buffers
//! come from its arenas, and it clears all 16 MiB of those for which an arena's heap of 64 MiB has
//! no room: with 64 threads on 2 processors, a mount of 32 MiB took 150 MiB.
//!
//! A set threshold no longer adapts, and neither does the one from which `free` gives the end of a
//! heap back to the system, which is 128 KiB at first. So that is set, too: otherwise each block of
//! more than 128 KiB that a program allocates and frees would be made of new pages, 50 times as
//! slow.

/// The size from which blocks are mappings of their own: a little less than that of the buffers.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 16 << 20;
/// Free bytes at the end of a heap that stay: twice as many, as glibc itself has it once a block of
/// that size was freed.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 2 * MAPPED_BYTES;

/// Has the allocator map the FUSE library's buffers, from the first on. Other allocators than
/// glibc's do so anyway.
pub(crate) fn map_large_blocks() {
    // SAFETY: the calls change thresholds that other threads only compare sizes with, and that
    // `free` changes without a lock, too.
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code, reason = "calls of the C library")]
    unsafe {
        // The only error is a value that is too large.
        let _ = libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        let _ = libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Page faults of this thread.
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn a_block_that_was_freed_is_not_made_of_new_pages() {
        const BLOCK_BYTES: usize = 1 << 20;
        map_large_blocks();
        let before = faults();
        for _ in 0..100 {
            std::hint::black_box(vec![1_u8; BLOCK_BYTES]);
        }
        let blocks = (faults() - before) / (BLOCK_BYTES as u64 / 4096);
        assert!(blocks < 10, "pages of {blocks} blocks");
    }
}
