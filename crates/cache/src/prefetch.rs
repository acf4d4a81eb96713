//! Prefetching a cache line for writing, or for reading.
//!
//! The core names the words that its list scans write next
//! ([`Host::prefetch`](mglru_core::Host::prefetch)). The instruction is inline assembly because the
//! compiler's write-prefetch intrinsic emits a read prefetch unless the target CPU is known to
//! support more.

/// Executes the prefetch instruction of this processor for the line at `$at`, if it is known.
macro_rules! prefetch {
    ($at:ident, $x86_64:literal, $aarch64:literal) => {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch reads and writes nothing and cannot fault; processors without it treat
        // it as a no-op.
        unsafe {
            std::arch::asm!($x86_64, in(reg) $at, options(readonly, nostack, preserves_flags));
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: a prefetch reads and writes nothing and cannot fault.
        unsafe {
            std::arch::asm!($aarch64, in(reg) $at, options(readonly, nostack, preserves_flags));
        }
        let _ = $at;
    };
}

/// Prefetches the cache line at `at` for writing. Does nothing under Miri and on processors other
/// than x86-64 and 64-bit Arm.
#[inline(always)]
pub fn prefetch_for_write<T>(at: *const T) {
    prefetch!(at, "prefetchw [{}]", "prfm pstl1keep, [{}]");
}

/// Prefetches the cache line at `at` for reading, so that other processors keep their copies. Does
/// nothing under Miri and on processors other than x86-64 and 64-bit Arm.
#[inline(always)]
pub(crate) fn prefetch_for_read<T>(at: *const T) {
    prefetch!(at, "prefetcht0 [{}]", "prfm pldl1keep, [{}]");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetching_changes_no_word() {
        let words = [1u64, 2, 3];
        words.iter().for_each(|word| prefetch_for_write(word));
        words.iter().for_each(|word| prefetch_for_read(word));
        prefetch_for_write(&());
        assert_eq!(words, [1, 2, 3]);
    }
}
