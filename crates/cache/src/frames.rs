//! Frames: the memory behind every cached page, and the only way to its bytes.
//!
//! One anonymous region, mapped once, holds all frames of a cache; a frame is 4,096 bytes and is
//! named by its number. The region starts at a 2 MiB boundary so that the kernel may back it with
//! huge pages: a random hit then costs one TLB entry per 512 frames instead of one per frame.
//! Memory is taken from the system when a frame is first touched, unless a ring pins most of the
//! region (see [`Frames::pin`]).
//!
//! # Locking
//!
//! None here. Who may write a frame is decided outside, by the lock bit of the folio that owns it.
//! Readers do not take that lock: they copy the bytes out and then check the folio's version, and
//! throw the copy away when a writer was there meanwhile. Hence a copy and a write may touch the
//! same bytes at the same time. For ordinary Rust loads and stores that would be a data race, that
//! is, undefined behaviour however the copy is used afterwards. So frame memory is never lent as
//! `&[u8]` while a writer is possible, and every copy goes through [`racing`], whose accesses count
//! as relaxed atomics, byte for byte.
//!
//! Relaxed means unordered. The reader of a version protocol needs `fence(Acquire)` between the
//! copy and the second look at the version, the writer `fence(Release)` between marking the version
//! and the copy.

#[cfg(not(miri))]
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a page and of the frame that holds it.
pub(crate) const FRAME_BYTES: usize = 4096;

#[cfg(not(miri))]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// All page memory of one cache.
pub(crate) struct Frames {
    base: NonNull<u8>,
    count: u32,
    huge_pages: bool,
    pinned: AtomicBool,
}

// SAFETY: the region belongs to `Frames` alone and stays mapped until it drops; nothing in it is
// tied to the thread that mapped it.
unsafe impl Send for Frames {}
// SAFETY: through `&Frames`, bytes are reached by the racing copies only, which count as relaxed
// atomics; the two ways around them (`bytes`, `as_ptr`) put the exclusion of writers on their
// callers.
unsafe impl Sync for Frames {}

impl Frames {
    /// Maps `count` frames, all zero and none of them backed by memory yet.
    ///
    /// # Panics
    ///
    /// Without a single frame there is nothing to map: `count` is at least 1.
    pub(crate) fn new(count: u32) -> io::Result<Frames> {
        assert!(count > 0, "a cache has at least one frame");
        let (base, huge_pages) = map(count as usize * FRAME_BYTES)?;
        Ok(Frames { base, count, huge_pages, pinned: AtomicBool::new(false) })
    }

    /// How many frames there are; their numbers are `0..count`.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of the whole region.
    fn region_bytes(&self) -> usize {
        self.count as usize * FRAME_BYTES
    }

    /// How many frames a ring may pin, from the first on. The last eighth stays free to be given
    /// back, so that index memory can grow at the expense of frames: with one leaf (520 bytes) per
    /// cached page, which is the worst case, it takes an eighth of the budget.
    pub(crate) fn pinnable_count(&self) -> u32 {
        self.count - self.count.div_ceil(8)
    }

    /// How many frames, from the first on, are pinned.
    pub(crate) fn pinned_count(&self) -> u32 {
        if self.is_pinned() { self.pinnable_count() } else { 0 }
    }

    /// Whether the kernel accepted to back the region with huge pages. It still may run out of
    /// them.
    pub(crate) fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// First byte of `frame`. Whoever writes through it holds the lock of the folio in that frame
    /// (or is the kernel on the behalf of somebody who does), and writes through it race with
    /// optimistic readers.
    pub(crate) fn as_ptr(&self, frame: u32) -> *mut u8 {
        self.at(frame, 0..FRAME_BYTES)
    }

    /// Copies out what the frame holds from `offset` on. A writer may tear the copy: it says
    /// nothing until the version was checked once more.
    #[inline]
    pub(crate) fn copy_out(&self, frame: u32, offset: usize, out: &mut [u8]) {
        let from = self.at(frame, offset..offset + out.len());
        // SAFETY: `at` checked that the source lies within one frame; `out` is exclusive, and no
        // safe code can have obtained it from frame memory while writers are possible, so the two
        // do not overlap.
        unsafe { racing::load(from, out) }
    }

    /// Copies `bytes` into the frame from `offset` on. The caller holds the lock of the folio in
    /// that frame.
    pub(crate) fn copy_in(&self, frame: u32, offset: usize, bytes: &[u8]) {
        let to = self.at(frame, offset..offset + bytes.len());
        // SAFETY: `at` checked that the destination lies within one frame; a shared slice of frame
        // memory exists only while nobody writes (`bytes`), so the two do not overlap.
        unsafe { racing::store(to, bytes) }
    }

    /// Fills a part of the frame with zeroes. The caller holds the lock of the folio in that frame.
    pub(crate) fn zero(&self, frame: u32, range: Range<usize>) {
        let to = self.at(frame, range.clone());
        // SAFETY: `at` checked that the destination lies within one frame.
        unsafe { racing::zero(to, range.len()) }
    }

    /// Lends the frame's bytes, without a copy.
    ///
    /// # Safety
    ///
    /// Nobody writes the frame, gives it back (`release`) or has the kernel read into it while the
    /// slice lives. A right usage is a folio whose lock bit is held by the borrower, as for the
    /// flusher:
    ///
    /// ```ignore
    /// let latch = folio.lock();
    /// // SAFETY: `latch` keeps writers out until after the last use of the slice.
    /// let checksum = crc32c(unsafe { frames.bytes(folio.frame()) });
    /// drop(latch);
    /// ```
    pub(crate) unsafe fn bytes(&self, frame: u32) -> &[u8] {
        let from = self.at(frame, 0..FRAME_BYTES);
        // SAFETY: `at` checked the bounds; the memory is initialised (zero at first) and the caller
        // keeps writers out for as long as the slice lives.
        unsafe { std::slice::from_raw_parts(from, FRAME_BYTES) }
    }

    /// Gives the frame's memory back to the system; it reads zero afterwards. The caller holds the
    /// lock of the folio in that frame or the frame is free. Splits the huge page that it is part
    /// of.
    ///
    /// A pinned frame cannot be given back: it is zeroed and stays. Returns whether memory was
    /// given back.
    pub(crate) fn release(&self, frame: u32) -> bool {
        let start = self.as_ptr(frame);
        if frame < self.pinned_count() || !forget(start) {
            self.zero(frame, 0..FRAME_BYTES);
            return false;
        }
        true
    }

    /// States that the kernel is about to hold on to the physical pages of the first
    /// `pinnable_count` frames (registered buffers).
    ///
    /// From now on [`Frames::release`] must not unmap: a ring would go on transferring into the old
    /// physical page while the frame's address already shows a new one, and reads would silently be
    /// lost. Called before the first frame is used.
    pub(crate) fn pin(&self) {
        self.pinned.store(true, Ordering::Release);
    }

    /// Takes [`Frames::pin`] back, for when the kernel refused.
    pub(crate) fn unpin(&self) {
        self.pinned.store(false, Ordering::Release);
    }

    /// Whether the kernel holds the memory of the frames that it may pin.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Acquire)
    }

    #[inline]
    fn at(&self, frame: u32, range: Range<usize>) -> *mut u8 {
        assert!(frame < self.count, "frame {frame} of {}", self.count);
        assert!(range.start <= range.end && range.end <= FRAME_BYTES, "bytes {range:?} of a frame");
        // SAFETY: the frame lies within the region and `range.start` within the frame (or just
        // behind its last byte, for an empty range), as just asserted.
        unsafe { self.base.as_ptr().add(frame as usize * FRAME_BYTES + range.start) }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: base and length are those of `map`; `&mut self` says that no guard or backend
        // looks at it any more (they hold an `Arc<Frames>`).
        unsafe { unmap(self.base, self.region_bytes()) }
    }
}

/// Maps `length` bytes at a huge page boundary; tells whether huge pages are granted.
#[cfg(not(miri))]
fn map(length: usize) -> io::Result<(NonNull<u8>, bool)> {
    // The kernel aligns to small pages only: map one huge page more and cut both ends off.
    let mapped_length = length + HUGE_PAGE_BYTES;
    // SAFETY: a new mapping at an address that the kernel chooses; it replaces nothing.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            mapped_length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?;
    let head = mapped.addr().next_multiple_of(HUGE_PAGE_BYTES) - mapped.addr();
    let base = mapped.cast::<u8>().wrapping_add(head);
    let tail = mapped_length - head - length;
    // SAFETY: both pieces are page aligned parts of the fresh mapping that nothing refers to,
    // outside of `base..base + length`.
    unsafe {
        if head > 0 {
            munmap(mapped, head)?;
        }
        if tail > 0 {
            munmap(base.wrapping_add(length).cast(), tail)?;
        }
    }
    // SAFETY: advice on our own mapping, neither of them changes its content.
    let huge_pages = unsafe {
        // A child between fork and exec has no use for the cache. Without this the kernel would
        // copy every pinned page for it at the fork. Where it is refused, forking is slow and
        // nothing else.
        let _ = madvise(base.cast(), length, Advice::LinuxDontFork);
        length >= HUGE_PAGE_BYTES
            && huge_pages_enabled()
            && madvise(base.cast(), length, Advice::LinuxHugepage).is_ok()
    };
    Ok((NonNull::new(base).expect("a mapping is not at address zero"), huge_pages))
}

/// The kernel takes the advice even where an administrator switched huge pages off, so ask there
/// too.
#[cfg(not(miri))]
fn huge_pages_enabled() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|choices| !choices.contains("[never]"))
}

/// # Safety
///
/// `base` and `length` are those of one `map`, and nothing uses the region any more.
#[cfg(not(miri))]
unsafe fn unmap(base: NonNull<u8>, length: usize) {
    // SAFETY: passed on to the caller.
    let unmapped = unsafe { munmap(base.as_ptr().cast(), length) };
    debug_assert!(unmapped.is_ok(), "munmap of the frames: {unmapped:?}");
}

#[cfg(not(miri))]
fn forget(start: *mut u8) -> bool {
    // SAFETY: one frame of our own private anonymous mapping (callers pass `as_ptr`). Readers that
    // copy at the same time see old bytes or zeroes, which is the race they are prepared for.
    unsafe { madvise(start.cast(), FRAME_BYTES, Advice::LinuxDontNeed) }.is_ok()
}

#[cfg(miri)]
fn layout(length: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(length, FRAME_BYTES).expect("frames fit the address space")
}

#[cfg(miri)]
fn map(length: usize) -> io::Result<(NonNull<u8>, bool)> {
    // SAFETY: the layout is not empty, there is at least one frame.
    let base = unsafe { std::alloc::alloc_zeroed(layout(length)) };
    NonNull::new(base).map(|base| (base, false)).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// # Safety
///
/// `base` and `length` are those of one `map`, and nothing uses the region any more.
#[cfg(miri)]
unsafe fn unmap(base: NonNull<u8>, length: usize) {
    // SAFETY: passed on to the caller.
    unsafe { std::alloc::dealloc(base.as_ptr(), layout(length)) }
}

#[cfg(miri)]
fn forget(_start: *mut u8) -> bool {
    false
}

/// Copies of memory that somebody else may write or read at the same time.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod racing {
    use std::arch::asm;

    // Assembly is opaque to the compiler, which must assume that it does what Rust code could do
    // there; here that is one relaxed atomic load and store per byte, and the processor's moves are
    // at least that strong. No option promises `nomem`, so the compiler moves no other access
    // across a copy.

    // `rep movsb` takes some 35 cycles to get going, many more on processors without FSRM. Measured
    // on a Xeon with it: 65 bytes in 6 ns against 4 by 16-byte moves, 512 bytes in 16 against 12;
    // from there on no difference, and a whole page in 55 ns.
    const STRING_BYTES: usize = 512;

    /// # Safety
    ///
    /// `from` is valid for reads of `out.len()` bytes and does not overlap `out`.
    #[inline]
    pub(super) unsafe fn load(from: *const u8, out: &mut [u8]) {
        // SAFETY: passed on to the caller; `out` is valid for writes of its length.
        unsafe { copy(from, out.as_mut_ptr(), out.len()) }
    }

    /// # Safety
    ///
    /// `to` is valid for writes of `bytes.len()` bytes and does not overlap `bytes`.
    pub(super) unsafe fn store(to: *mut u8, bytes: &[u8]) {
        // SAFETY: passed on to the caller; `bytes` is valid for reads of its length.
        unsafe { copy(bytes.as_ptr(), to, bytes.len()) }
    }

    /// # Safety
    ///
    /// `to` is valid for writes of `length` bytes.
    pub(super) unsafe fn zero(to: *mut u8, length: usize) {
        // SAFETY: writes exactly the bytes that the caller vouches for. The direction flag is clear
        // on entry to any `asm!`; `rep stosb` changes the three registers named here and no flag.
        unsafe {
            asm!("rep stosb", inout("rcx") length => _, inout("rdi") to => _, in("al") 0u8,
                options(nostack, preserves_flags));
        }
    }

    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `length` bytes, and they do not overlap.
    #[inline]
    unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
        // SAFETY: every arm touches bytes `0..length` of both sides only: the caller vouches for
        // them. Odd lengths take a last move that overlaps the one before, and stores the same
        // bytes twice.
        unsafe {
            match length {
                0 => {}
                1 => move_1(from, to),
                2..4 => {
                    move_2(from, to);
                    move_2(from.add(length - 2), to.add(length - 2));
                }
                4..8 => {
                    move_4(from, to);
                    move_4(from.add(length - 4), to.add(length - 4));
                }
                8 => move_8(from, to),
                9..16 => {
                    move_8(from, to);
                    move_8(from.add(length - 8), to.add(length - 8));
                }
                16..=STRING_BYTES => {
                    let mut done = 0;
                    while done + 16 < length {
                        move_16(from.add(done), to.add(done));
                        done += 16;
                    }
                    move_16(from.add(length - 16), to.add(length - 16));
                }
                // Its stores may become visible in any order among themselves, but all of them
                // before any later store, such as the one that unlocks the folio; that is all a
                // version protocol asks for.
                _ => {
                    asm!("rep movsb", inout("rcx") length => _, inout("rdi") to => _, inout("rsi") from => _,
                    options(nostack, preserves_flags))
                }
            }
        }
    }

    macro_rules! moves {
        ($($name:ident $class:ident $load:literal $store:literal),*) => { $(
            /// # Safety
            ///
            /// Both sides are valid for as many bytes as the name says. Neither needs to be
            /// aligned.
            #[inline(always)]
            unsafe fn $name(from: *const u8, to: *mut u8) {
                // SAFETY: one load and one store of that size; changes one register, no flag, no
                // stack.
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
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use portable as racing;

/// The same copies where there is no assembly of ours: relaxed atomic words, and bytes at unaligned
/// edges.
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
mod portable {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

    // Words and bytes that meet in one place are atomics of mixed size, which processors handle and
    // Rust's memory model has no answer for yet. Miri reports them, so for Miri everything is a
    // byte.
    const WORD_BYTES: usize = if cfg!(miri) { usize::MAX } else { 8 };

    fn is_word(position: *const u8, left: usize) -> bool {
        left >= WORD_BYTES && position.cast::<u64>().is_aligned()
    }

    /// # Safety
    ///
    /// `from` is valid for reads of `out.len()` bytes, derived from a pointer for writes too (an
    /// atomic is, even one that is only loaded from), and does not overlap `out`.
    pub(super) unsafe fn load(from: *const u8, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            // SAFETY: `done` is below the length that the caller vouches for. The atomics below are
            // only ever loaded from, are aligned and within bounds as `is_word` says, and
            // concurrent writers use atomics too.
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
    /// `to` is valid for writes of `bytes.len()` bytes and does not overlap `bytes`.
    pub(super) unsafe fn store(to: *mut u8, bytes: &[u8]) {
        // SAFETY: passed on to the caller; `next` is asked for positions below `bytes.len()` only.
        unsafe {
            store_with(to, bytes.len(), |at| bytes[at], |at| bytes[at..at + 8].try_into().expect("8 bytes"))
        }
    }

    /// # Safety
    ///
    /// `to` is valid for writes of `length` bytes.
    pub(super) unsafe fn zero(to: *mut u8, length: usize) {
        // SAFETY: passed on to the caller.
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
    use std::sync::atomic::{AtomicU64, fence};

    fn pattern(length: usize, seed: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + seed * 13 + 1) as u8).collect()
    }

    const LENGTHS: [usize; 22] =
        [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 255, 512, 513, FRAME_BYTES];

    #[test]
    fn copies_of_every_shape_touch_exactly_their_bytes() {
        let frames = Frames::new(2).unwrap();
        for length in LENGTHS {
            for offset in [0, 1, 3, 8, 13] {
                let slow = cfg!(miri) && (offset % 3 > 0 || ![0, 1, 9, 33].contains(&length));
                if offset + length > FRAME_BYTES || slow {
                    continue;
                }
                frames.copy_in(1, 0, &[0xee; FRAME_BYTES]);
                let bytes = pattern(length, offset);
                frames.copy_in(1, offset, &bytes);
                let mut whole = [0; FRAME_BYTES];
                frames.copy_out(1, 0, &mut whole);
                assert!(whole[..offset].iter().all(|b| *b == 0xee), "before {offset}+{length}");
                assert_eq!(whole[offset..offset + length], bytes, "{offset}+{length}");
                assert!(whole[offset + length..].iter().all(|b| *b == 0xee), "after {offset}+{length}");
                let mut part = vec![0; length];
                frames.copy_out(1, offset, &mut part);
                assert_eq!(part, bytes);
            }
        }
        let mut neighbour = [1; FRAME_BYTES];
        frames.copy_out(0, 0, &mut neighbour);
        assert!(neighbour.iter().all(|b| *b == 0));
    }

    #[test]
    fn the_portable_copies_agree_with_the_others() {
        for length in LENGTHS.into_iter().filter(|length| !cfg!(miri) || *length <= 100) {
            let mut memory = [0xee_u8; FRAME_BYTES + 16];
            let bytes = pattern(length, 5);
            let mut out = vec![0; length];
            // SAFETY: `memory` has 16 bytes more than the longest copy, which starts at 3.
            unsafe {
                let start = memory.as_mut_ptr().add(3);
                portable::store(start, &bytes);
                portable::load(start, &mut out);
            }
            assert_eq!(out, bytes);
            assert_eq!(memory[3..3 + length], bytes);
            // SAFETY: as before.
            unsafe { portable::zero(memory.as_mut_ptr().add(3), length) };
            assert!(memory[3..3 + length].iter().all(|b| *b == 0));
            assert!(memory[..3].iter().chain(&memory[3 + length..]).all(|b| *b == 0xee));
        }
    }

    #[test]
    fn zero_and_release_leave_zeroes_and_no_neighbour_changes() {
        let frames = Frames::new(3).unwrap();
        for pinned in [false, true] {
            if pinned {
                frames.pin();
            }
            for frame in 0..3 {
                frames.copy_in(frame, 0, &[frame as u8 + 1; FRAME_BYTES]);
            }
            frames.zero(0, 10..20);
            assert_eq!(frames.release(1), !pinned && !cfg!(miri));
            assert_eq!(frames.pinned_count(), if pinned { 2 } else { 0 });
            // SAFETY: this thread is the only one that has the frames.
            let (first, second, third) = unsafe { (frames.bytes(0), frames.bytes(1), frames.bytes(2)) };
            assert!(first.iter().enumerate().all(|(i, b)| *b == u8::from(!(10..20).contains(&i))));
            assert!(second.iter().all(|b| *b == 0));
            assert!(third.iter().all(|b| *b == 3));
        }
        assert_eq!(frames.release(2), !cfg!(miri), "the last eighth is never pinned");
        assert!(frames.is_pinned());
        frames.unpin();
        assert!(!frames.is_pinned());
    }

    #[test]
    fn the_region_is_aligned_and_its_frames_are_apart() {
        let frames = Frames::new(if cfg!(miri) { 3 } else { 1025 }).unwrap();
        let alignment = if cfg!(miri) { FRAME_BYTES } else { 2 << 20 };
        assert_eq!(frames.as_ptr(0).addr() % alignment, 0);
        let last = frames.count() - 1;
        assert_eq!(frames.as_ptr(last).addr() - frames.as_ptr(0).addr(), last as usize * FRAME_BYTES);
        frames.copy_in(last, FRAME_BYTES - 1, &[9]);
        let mut byte = [0];
        frames.copy_out(last, FRAME_BYTES - 1, &mut byte);
        assert_eq!(byte, [9]);
    }

    #[test]
    #[should_panic(expected = "frame 2 of 2")]
    fn a_frame_that_is_not_there_is_refused() {
        Frames::new(2).unwrap().zero(2, 0..1);
    }

    #[test]
    #[should_panic(expected = "bytes 4000..4097 of a frame")]
    fn a_copy_over_the_end_of_a_frame_is_refused() {
        Frames::new(2).unwrap().copy_out(0, 4000, &mut [0; 97]);
    }

    /// The story of every optimistic reader: copies race with a writer, and those whose version
    /// held are whole.
    #[test]
    fn a_copy_whose_version_held_is_never_torn() {
        let frames = Frames::new(1).unwrap();
        let version = AtomicU64::new(0);
        let (rounds, length) = if cfg!(miri) { (20, 24) } else { (20_000, FRAME_BYTES) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    version.store(round * 2 - 1, Ordering::Relaxed);
                    fence(Ordering::Release);
                    frames.copy_in(0, 0, &vec![round as u8; length]);
                    version.store(round * 2, Ordering::Release);
                }
            });
            let mut copy = vec![0; length];
            while version.load(Ordering::Relaxed) < rounds * 2 {
                let before = version.load(Ordering::Acquire);
                frames.copy_out(0, 0, &mut copy);
                fence(Ordering::Acquire);
                if before.is_multiple_of(2) && version.load(Ordering::Relaxed) == before {
                    assert!(copy.iter().all(|b| *b == (before / 2) as u8));
                }
                std::hint::spin_loop();
            }
        });
    }
}
