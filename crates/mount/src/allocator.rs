//! The allocator's part in the memory of a mount.
//!
//! The FUSE library has a buffer of 16 MiB per thread, of which a mount uses as much as its largest
//! request. The rest takes no memory if the buffer is a mapping of its own. But glibc maps no
//! blocks of that size any more once one was freed, and the handshake's is. From then on buffers
//! come from its arenas, and it clears all 16 MiB of those for which an arena's heap of 64 MiB has
//! no room: with 64 threads on 2 processors, a mount of 32 MiB took 150 MiB.

/// The size from which blocks are mappings of their own: a little less than that of the buffers.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 16 << 20;

/// Has the allocator map the FUSE library's buffers, from the first on. Other allocators than
/// glibc's do so anyway.
pub(crate) fn map_large_blocks() {
    // SAFETY: the call changes a threshold that other threads only compare sizes with, and that
    // `free` changes without a lock, too.
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code, reason = "a call of the C library")]
    unsafe {
        // The only error is a value that is too large.
        let _ = libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}
