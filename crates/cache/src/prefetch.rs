//! Telling the processor what will be written soon.
//!
//! The core says which words its scans of lists write next
//! ([`Host::prefetch`](mglru_core::Host::prefetch)); here that becomes one instruction. It is
//! written out, as the compiler's own prefetch for writing fetches for reading only unless it is
//! told that the processor can do more.

/// Has the cache line at which `at` begins fetched, to be written. Where that cannot be said,
/// nothing is done: on processors other than x86-64 and 64-bit Arm, and under Miri.
#[inline(always)]
pub fn prefetch_for_write<T>(at: &T) {
    let at = std::ptr::from_ref(at);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads and writes nothing and cannot fault; processors that do not know it
    // do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch reads and writes nothing and cannot fault.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes() {
        let words = [1u64, 2, 3];
        words.iter().for_each(prefetch_for_write);
        prefetch_for_write(&());
        assert_eq!(words, [1, 2, 3]);
    }
}
