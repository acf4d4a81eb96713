//! Copies of memory that other threads may read or write at the same time.
//!
//! Rust has no such copy: with ordinary loads and stores it would be a data race. On x86-64 these
//! are assembly, elsewhere and under Miri relaxed atomics. Either way they count as relaxed atomic
//! accesses, byte for byte ([`crate::frames`] has the protocol that orders them).
//!
//! A descriptor hit of 256 bytes waits for memory, and how many hits overlap depends on how many
//! instructions each takes. Hence the moves of 32 bytes, where the processor has them.
//!
//! # Locking
//!
//! None. Callers lock the folio to write, and check its version after a copy out.

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) use portable::{is_wide, load, load_4, load_8, store, zero};
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::{is_wide, load, load_4, load_8, store, zero};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use std::arch::asm;

    // Assembly is opaque to the compiler, which must assume that it does what Rust code could do:
    // here, one relaxed atomic load and store per byte. The processor's moves are at least that
    // strong. No option promises `nomem`, so the compiler moves no other access across a copy.

    /// Whether copies may move 32 bytes at a time, which takes AVX.
    pub(crate) fn is_wide() -> bool {
        std::arch::is_x86_feature_detected!("avx")
    }

    // Above this length, `rep movsb` is as fast as 16-byte moves. Its start-up costs about 35
    // cycles, and far more on processors without FSRM. Measured on a Xeon with FSRM: 65 bytes in 6
    // ns against 4 ns, 512 bytes in 16 ns against 12 ns, a page in 55 ns either way. Moves of 32
    // bytes copy a page out in 37 ns where `rep movsb` takes 46, and some 5 % faster if the page
    // comes from memory (AMD EPYC). Copies into frames keep `rep movsb`: it overwrites lines
    // without reading them first.
    const STRING_BYTES: usize = 1024;

    /// # Safety
    ///
    /// `from` is valid for reads of `out.len()` bytes and does not overlap `out`. `is_wide` is no
    /// more than [`is_wide`] says.
    #[inline(always)]
    pub(crate) unsafe fn load(from: *const u8, out: &mut [u8], is_wide: bool) {
        // SAFETY: the caller's obligation; `out` is valid for writes of its length.
        unsafe { copy(from, out.as_mut_ptr(), out.len(), is_wide) }
    }

    /// # Safety
    ///
    /// `from` is valid for reads of 4 bytes.
    #[inline(always)]
    pub(crate) unsafe fn load_4(from: *const u8) -> u32 {
        let value;
        // SAFETY: one load of that size; changes one register, and neither flags nor stack.
        unsafe {
            asm!("mov {value:e}, [{from}]", value = out(reg) value, from = in(reg) from,
                options(nostack, preserves_flags, readonly));
        }
        value
    }

    /// # Safety
    ///
    /// `from` is valid for reads of 8 bytes.
    #[inline(always)]
    pub(crate) unsafe fn load_8(from: *const u8) -> u64 {
        let value;
        // SAFETY: one load of that size; changes one register, and neither flags nor stack.
        unsafe {
            asm!("mov {value}, [{from}]", value = out(reg) value, from = in(reg) from,
                options(nostack, preserves_flags, readonly));
        }
        value
    }

    /// # Safety
    ///
    /// `to` is valid for writes of `bytes.len()` bytes and does not overlap `bytes`. `is_wide` is
    /// no more than [`is_wide`] says.
    pub(crate) unsafe fn store(to: *mut u8, bytes: &[u8], is_wide: bool) {
        // SAFETY: the caller's obligation; `bytes` is valid for reads of its length.
        unsafe { copy(bytes.as_ptr(), to, bytes.len(), is_wide && bytes.len() <= STRING_BYTES) }
    }

    /// # Safety
    ///
    /// `to` is valid for writes of `length` bytes.
    pub(crate) unsafe fn zero(to: *mut u8, length: usize) {
        // SAFETY: writes exactly the bytes that the caller guarantees. The direction flag is clear
        // on entry to any `asm!`; `rep stosb` changes the three registers named here and no flag.
        unsafe {
            asm!("rep stosb", inout("rcx") length => _, inout("rdi") to => _, in("al") 0u8,
                options(nostack, preserves_flags));
        }
    }

    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `length` bytes, and they do not overlap.
    /// `is_wide` is no more than [`is_wide`] says.
    #[inline(always)]
    unsafe fn copy(from: *const u8, to: *mut u8, length: usize, is_wide: bool) {
        // SAFETY: every arm touches bytes `0..length` of both sides only, which the caller
        // guarantees. A length that is no multiple of the moves ends with a move that overlaps the
        // one before and stores the same bytes twice.
        unsafe {
            if is_wide && length >= 64 {
                copy_wide(from, to, length);
            } else if length > STRING_BYTES {
                // Its stores may become visible in any order among themselves, but before any later
                // store, such as the one that unlocks the folio. The version protocol needs no
                // more.
                asm!("rep movsb", inout("rcx") length => _, inout("rdi") to => _, inout("rsi") from => _,
                    options(nostack, preserves_flags));
            } else if length >= 64 {
                copy_64s(from, to, length);
            } else if length >= 16 {
                let mut done = 0;
                while done + 16 < length {
                    move_16(from.add(done), to.add(done));
                    done += 16;
                }
                move_16(from.add(length - 16), to.add(length - 16));
            } else if length >= 8 {
                move_8(from, to);
                move_8(from.add(length - 8), to.add(length - 8));
            } else if length >= 4 {
                move_4(from, to);
                move_4(from.add(length - 4), to.add(length - 4));
            } else if length >= 2 {
                move_2(from, to);
                move_2(from.add(length - 2), to.add(length - 2));
            } else if length == 1 {
                move_1(from, to);
            }
        }
    }

    /// Copies at least 64 bytes by moves of 16.
    ///
    /// # Safety
    ///
    /// As for `copy`.
    #[inline(never)]
    unsafe fn copy_64s(from: *const u8, to: *mut u8, length: usize) {
        // SAFETY: every move lies within the bytes that the caller guarantees.
        unsafe {
            let mut done = 0;
            while done + 64 < length {
                move_64(from.add(done), to.add(done));
                done += 64;
            }
            move_64(from.add(length - 64), to.add(length - 64));
        }
    }

    /// Copies at least 64 bytes by moves of 32: first the last 64 bytes, then the others from the
    /// front.
    ///
    /// # Safety
    ///
    /// As for `copy`; the processor has AVX.
    #[inline(always)]
    unsafe fn copy_wide(from: *const u8, to: *mut u8, length: usize) {
        // SAFETY: every move lies within the bytes that the caller guarantees. The loop moves 64
        // bytes as long as more than 64 of `length` are left. Changes the registers named, the
        // upper halves of all vector registers, and flags.
        unsafe {
            asm!(
                "vmovups ymm0, [{from} + {left} - 64]", "vmovups ymm1, [{from} + {left} - 32]",
                "vmovups [{to} + {left} - 64], ymm0", "vmovups [{to} + {left} - 32], ymm1",
                "sub {left}, 64", "jbe 3f",
                "2:",
                "vmovups ymm0, [{from}]", "vmovups ymm1, [{from} + 32]",
                "vmovups [{to}], ymm0", "vmovups [{to} + 32], ymm1",
                "add {from}, 64", "add {to}, 64", "sub {left}, 64", "ja 2b",
                "3:", "vzeroupper",
                from = inout(reg) from => _, to = inout(reg) to => _, left = inout(reg) length => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack)
            );
        }
    }

    /// # Safety
    ///
    /// Both sides are valid for 64 bytes. Neither needs to be aligned.
    #[inline(always)]
    unsafe fn move_64(from: *const u8, to: *mut u8) {
        // SAFETY: four loads and stores of 16 bytes each; changes four registers, and neither
        // flags nor stack.
        unsafe {
            asm!("movups {a}, [{from}]", "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]", "movups {d}, [{from} + 48]",
                "movups [{to}], {a}", "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}", "movups [{to} + 48], {d}",
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                from = in(reg) from, to = in(reg) to, options(nostack, preserves_flags));
        }
    }

    macro_rules! moves {
        ($($name:ident $class:ident $load:literal $store:literal),*) => { $(
            /// # Safety
            ///
            /// Both sides are valid for the number of bytes in the name. Neither needs to be
            /// aligned.
            #[inline(always)]
            unsafe fn $name(from: *const u8, to: *mut u8) {
                // SAFETY: one load and one store of that size; changes one register, and neither
                // flags nor stack.
                unsafe {
                    asm!($load, $store, value = out($class) _, from = in(reg) from, to = in(reg) to,
                        options(nostack, preserves_flags));
                }
            }
        )* };
    }
    moves! {
        move_1 reg_byte "mov {value}, [{from}]" "mov [{to}], {value}",
        move_2 reg "mov {value:x}, [{from}]" "mov [{to}], {value:x}",
        move_4 reg "mov {value:e}, [{from}]" "mov [{to}], {value:e}",
        move_8 reg "mov {value:r}, [{from}]" "mov [{to}], {value:r}",
        move_16 xmm_reg "movups {value}, [{from}]" "movups [{to}], {value}"
    }
}

/// The same copies without assembly: relaxed atomic words, and bytes at unaligned edges.
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
#[cfg_attr(all(test, target_arch = "x86_64", not(miri)), allow(dead_code, reason = "for comparison"))]
mod portable {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

    // Words and bytes at the same address are atomics of mixed size. Processors handle those, but
    // Rust's memory model does not define them yet, and Miri reports them. Under Miri all accesses
    // are bytes.
    const WORD_BYTES: usize = if cfg!(miri) { usize::MAX } else { 8 };

    pub(crate) fn is_wide() -> bool {
        false
    }

    fn is_word(position: *const u8, left: usize) -> bool {
        left >= WORD_BYTES && position.cast::<u64>().is_aligned()
    }

    /// # Safety
    ///
    /// `from` is valid for reads of `out.len()` bytes and does not overlap `out`. It derives from a
    /// pointer for writes, which atomics need even if they are only loaded.
    pub(crate) unsafe fn load(from: *const u8, out: &mut [u8], _is_wide: bool) {
        let mut done = 0;
        while done < out.len() {
            // SAFETY: `done` is below the length that the caller guarantees. The atomics below are
            // only loaded, are aligned and within bounds (`is_word`), and concurrent writers use
            // atomics too.
            unsafe {
                let position = from.add(done);
                if is_word(position, out.len() - done) {
                    let word = (*position.cast::<AtomicU64>()).load(Relaxed);
                    out[done..done + 8].copy_from_slice(&word.to_ne_bytes());
                    done += 8;
                } else {
                    out[done] = (*position.cast::<AtomicU8>()).load(Relaxed);
                    done += 1;
                }
            }
        }
    }

    /// # Safety
    ///
    /// As for `load`, of 4 bytes.
    pub(crate) unsafe fn load_4(from: *const u8) -> u32 {
        let mut bytes = [0; 4];
        // SAFETY: the caller's obligation.
        unsafe { load(from, &mut bytes, false) };
        u32::from_ne_bytes(bytes)
    }

    /// # Safety
    ///
    /// As for `load`, of 8 bytes.
    pub(crate) unsafe fn load_8(from: *const u8) -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: the caller's obligation.
        unsafe { load(from, &mut bytes, false) };
        u64::from_ne_bytes(bytes)
    }

    /// # Safety
    ///
    /// `to` is valid for writes of `bytes.len()` bytes and does not overlap `bytes`.
    pub(crate) unsafe fn store(to: *mut u8, bytes: &[u8], _is_wide: bool) {
        // SAFETY: the caller's obligation; `next` is called for positions below `bytes.len()` only.
        unsafe {
            store_with(to, bytes.len(), |at| bytes[at], |at| bytes[at..at + 8].try_into().expect("8 bytes"))
        }
    }

    /// # Safety
    ///
    /// `to` is valid for writes of `length` bytes.
    pub(crate) unsafe fn zero(to: *mut u8, length: usize) {
        // SAFETY: the caller's obligation.
        unsafe { store_with(to, length, |_| 0, |_| [0; 8]) }
    }

    /// # Safety
    ///
    /// `to` is valid for writes of `length` bytes.
    unsafe fn store_with(
        to: *mut u8,
        length: usize,
        byte: impl Fn(usize) -> u8,
        word: impl Fn(usize) -> [u8; 8],
    ) {
        let mut done = 0;
        while done < length {
            // SAFETY: as in `load`, with stores.
            unsafe {
                let position = to.add(done);
                if is_word(position, length - done) {
                    (*position.cast::<AtomicU64>()).store(u64::from_ne_bytes(word(done)), Relaxed);
                    done += 8;
                } else {
                    (*position.cast::<AtomicU8>()).store(byte(done), Relaxed);
                    done += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [usize; 26] = [
        0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 255, 512, 1024, 1025,
        4096,
    ];

    type Load = unsafe fn(*const u8, &mut [u8], bool);
    type Store = unsafe fn(*mut u8, &[u8], bool);

    /// Every kind of copy that this processor has.
    fn kinds() -> Vec<(Load, Store, bool)> {
        let mut kinds: Vec<(Load, Store, bool)> =
            vec![(portable::load, portable::store, false), (load, store, false)];
        kinds.extend(is_wide().then_some((load as Load, store as Store, true)));
        kinds
    }

    #[test]
    fn every_copy_touches_exactly_its_bytes() {
        for (number, (load, store, is_wide)) in kinds().into_iter().enumerate() {
            for length in LENGTHS.into_iter().filter(|length| !cfg!(miri) || *length <= 100) {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + 66) as u8).collect();
                let mut memory = [0xee_u8; 4096 + 16];
                let mut out = vec![0xaa; length + 2];
                // SAFETY: `memory` has 16 bytes more than the longest copy, which starts at 3.
                unsafe {
                    let start = memory.as_mut_ptr().add(3);
                    store(start, &bytes, is_wide);
                    load(start, &mut out[1..=length], is_wide);
                }
                let what = format!("copy {number} of {length} bytes");
                assert_eq!(memory[3..3 + length], bytes, "{what}");
                assert!(memory[..3].iter().chain(&memory[3 + length..]).all(|b| *b == 0xee), "{what}");
                assert_eq!(out[1..=length], bytes, "{what}");
                assert_eq!((out[0], out[length + 1]), (0xaa, 0xaa), "{what}");
            }
        }
    }

    #[test]
    fn words_and_zeros_agree_with_the_portable_ones() {
        type Words = (unsafe fn(*const u8) -> u32, unsafe fn(*const u8) -> u64, unsafe fn(*mut u8, usize));
        let kinds: [Words; 2] =
            [(portable::load_4, portable::load_8, portable::zero), (load_4, load_8, zero)];
        for (load_4, load_8, zero) in kinds {
            let mut memory: Vec<u8> = (1..=100).collect();
            // SAFETY: all bytes are in `memory`. A pointer for writing, as atomics need one also to
            // load.
            let words = unsafe {
                let start = memory.as_mut_ptr().add(3);
                (load_4(start), load_8(start))
            };
            assert_eq!(words.0.to_ne_bytes(), memory[3..7]);
            assert_eq!(words.1.to_ne_bytes(), memory[3..11]);
            // SAFETY: as above.
            unsafe { zero(memory.as_mut_ptr().add(3), 90) };
            assert!(memory[3..93].iter().all(|b| *b == 0));
            assert_eq!((memory[2], memory[93]), (3, 94));
        }
    }
}
