//! Page frames: the memory behind every cached page, and the only access to its bytes.
//!
//! One anonymous region, mapped once, holds all frames of a cache. A frame is 4,096 bytes and is
//! named by its number. The region starts at a 2 MiB boundary so that the kernel may back it with
//! huge pages: a random hit then costs one TLB entry per 512 frames instead of one per frame. The
//! system provides memory when a frame is first touched, or all at once if a ring pins most of the
//! region (see [`Frames::pin`]).
//!
//! # Locking
//!
//! This file takes no locks. The lock bit of the folio that owns a frame decides which thread may
//! write the frame. Readers do not take that lock: they copy the bytes out, check the folio's
//! version, and discard the copy if a writer was active meanwhile. So a copy and a write may touch
//! the same bytes at the same time. With ordinary Rust loads and stores that would be a data race,
//! that is, undefined behaviour even if the copy is discarded. Therefore frame memory is never lent
//! as `&[u8]` while a writer is possible, and every copy goes through [`racing`], whose accesses
//! count as relaxed atomics, byte for byte.
//!
//! Relaxed accesses are unordered. A reader needs `fence(Acquire)` between the copy and the second
//! look at the version; a writer needs `fence(Release)` between marking the version and the copy.

use crate::prefetch::{prefetch_for_read, prefetch_for_write};
use crate::racing;
use mglru_core::mapping::AtomicSlot;
#[cfg(not(miri))]
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
#[cfg(not(miri))]
use rustix::param::page_size;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a page and of the frame that holds it.
pub(crate) const FRAME_BYTES: usize = 4096;

/// A line of the processor's caches.
const LINE_BYTES: usize = 64;

/// The largest write whose bytes are prefetched. A longer one overwrites most of its lines whole,
/// for which they need not come from memory.
const PREFETCHED_WRITE_BYTES: usize = 512;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// All page memory of one cache.
pub(crate) struct Frames {
    base: NonNull<u8>,
    count: u32,
    huge_pages: bool,
    /// Whether the processor copies 32 bytes at a time.
    is_wide: bool,
    pinned: AtomicBool,
    /// For each 2 MiB of the region, whether huge pages were forbidden there.
    small_pages: Box<[AtomicBool]>,
}

// SAFETY: the region belongs to `Frames` alone and stays mapped until it drops; nothing in it is
// tied to the thread that mapped it.
unsafe impl Send for Frames {}
// SAFETY: through `&Frames`, only the racing copies access bytes, and these count as relaxed
// atomics. The two other ways (`bytes`, `as_ptr`) require their callers to exclude writers.
unsafe impl Sync for Frames {}

impl Frames {
    /// Maps `count` zeroed frames, not yet backed by memory.
    ///
    /// # Panics
    ///
    /// If `count` is 0.
    pub(crate) fn new(count: u32) -> io::Result<Frames> {
        assert!(count > 0, "a cache has at least one frame");
        let bytes = count as usize * FRAME_BYTES;
        let (base, huge_pages) = map(bytes)?;
        let small_pages = (0..bytes.div_ceil(HUGE_PAGE_BYTES)).map(|_| AtomicBool::new(false)).collect();
        let is_wide = racing::is_wide();
        Ok(Frames { base, count, huge_pages, is_wide, pinned: AtomicBool::new(false), small_pages })
    }

    /// Number of frames; their numbers are `0..count`.
    #[cfg_attr(not(feature = "io-uring"), allow(dead_code, reason = "for rings"))]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn region_bytes(&self) -> usize {
        self.count as usize * FRAME_BYTES
    }

    /// Number of frames, from the first on, that a ring may pin. The last quarter stays unpinned,
    /// so that frames can be released to pay for metadata. In the worst case, one leaf (520 bytes)
    /// per cached page, the index takes an eighth of the budget. The other eighth is for open files
    /// and for what the program reserves.
    pub(crate) fn pinnable_count(&self) -> u32 {
        self.count - self.count.div_ceil(4)
    }

    /// Number of frames, from the first on, that are pinned.
    pub(crate) fn pinned_count(&self) -> u32 {
        if self.is_pinned() { self.pinnable_count() } else { 0 }
    }

    /// Whether the kernel agreed to back the region with huge pages. It may still run out of them.
    pub(crate) fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// The first byte of `frame`. A thread that writes through it, or has the kernel write, holds
    /// the lock of the folio in that frame. Such writes race with optimistic readers.
    pub(crate) fn as_ptr(&self, frame: u32) -> *mut u8 {
        self.at(frame, 0..FRAME_BYTES)
    }

    /// Copies bytes out of the frame from `offset` on. A writer may tear the copy; the caller must
    /// check the version before using it.
    #[inline(always)]
    pub(crate) fn copy_out(&self, frame: u32, offset: usize, out: &mut [u8]) {
        let from = self.at(frame, offset..offset + out.len());
        // SAFETY: `at` checked that the source lies within one frame. `out` is exclusive, and safe
        // code cannot obtain it from frame memory while writers are possible, so the two do not
        // overlap.
        unsafe { racing::load(from, out, self.is_wide) }
    }

    /// Loads a value from `offset` of the frame on, in a register if it has the size of one. A
    /// writer may tear it; the caller must check the version before using it.
    #[inline(always)]
    pub(crate) fn load<T: FromBytes + IntoBytes>(&self, frame: u32, offset: usize) -> T {
        let from = self.at(frame, offset..offset + size_of::<T>());
        // SAFETY: `at` checked that the source lies within one frame; `value` is exclusive.
        unsafe {
            match size_of::<T>() {
                4 => value_of(&racing::load_4(from).to_ne_bytes()),
                8 => value_of(&racing::load_8(from).to_ne_bytes()),
                _ => {
                    let mut value = T::new_zeroed();
                    racing::load(from, value.as_mut_bytes(), self.is_wide);
                    value
                }
            }
        }
    }

    /// Copies `bytes` into the frame from `offset` on. The caller holds the lock of the folio in
    /// that frame.
    pub(crate) fn copy_in(&self, frame: u32, offset: usize, bytes: &[u8]) {
        let to = self.at(frame, offset..offset + bytes.len());
        // SAFETY: `at` checked that the destination lies within one frame. A shared slice of frame
        // memory exists only while no thread writes (`bytes`), so the two do not overlap.
        unsafe { racing::store(to, bytes, self.is_wide) }
    }

    /// Zeroes a part of the frame. The caller holds the lock of the folio in that frame.
    pub(crate) fn zero(&self, frame: u32, range: Range<usize>) {
        let to = self.at(frame, range.clone());
        // SAFETY: `at` checked that the destination lies within one frame.
        unsafe { racing::zero(to, range.len()) }
    }

    /// Whether all bytes of the frame are zero. The caller excludes writers.
    pub(crate) fn is_zero(&self, frame: u32) -> bool {
        let mut part = [0; 256];
        (0..FRAME_BYTES).step_by(part.len()).all(|offset| {
            self.copy_out(frame, offset, &mut part);
            part.iter().all(|&byte| byte == 0)
        })
    }

    /// Lends the frame's bytes without a copy.
    ///
    /// # Safety
    ///
    /// While the slice lives, no thread writes the frame, releases it (`release`) or has the kernel
    /// read into it. For example, the flusher holds the lock bit of the frame's folio:
    ///
    /// ```ignore
    /// let latch = folio.lock();
    /// // SAFETY: `latch` keeps writers out until after the last use of the slice.
    /// let checksum = crc32c(unsafe { frames.bytes(folio.frame()) });
    /// drop(latch);
    /// ```
    pub(crate) unsafe fn bytes(&self, frame: u32) -> &[u8] {
        let from = self.at(frame, 0..FRAME_BYTES);
        // SAFETY: `at` checked the bounds; the memory is initialised (zero at first), and the
        // caller keeps writers out while the slice lives.
        unsafe { std::slice::from_raw_parts(from, FRAME_BYTES) }
    }

    /// Returns the frame's memory to the system; the frame reads as zero afterwards. The caller
    /// holds the lock of the folio in that frame, or the frame is free. Splits the huge page around
    /// the frame, and forbids huge pages there from then on: a page fault beside the frame, or the
    /// kernel's `khugepaged`, would otherwise fill the hole with memory beyond the budget.
    ///
    /// A pinned frame is zeroed but keeps its memory. Returns whether memory was returned.
    pub(crate) fn release(&self, frame: u32) -> bool {
        let start = self.as_ptr(frame);
        let block = frame as usize * FRAME_BYTES / HUGE_PAGE_BYTES;
        if frame >= self.pinned_count()
            && self.huge_pages
            && !self.small_pages[block].swap(true, Ordering::Relaxed)
        {
            let first = block * HUGE_PAGE_BYTES;
            let bytes = HUGE_PAGE_BYTES.min(self.region_bytes() - first);
            use_small_pages(self.base.as_ptr().wrapping_add(first), bytes);
        }
        if frame < self.pinned_count() || !forget(start) {
            self.zero(frame, 0..FRAME_BYTES);
            return false;
        }
        true
    }

    /// Declares that the kernel will pin the physical pages of the first `pinnable_count` frames
    /// (registered buffers).
    ///
    /// From now on [`Frames::release`] must not unmap them: a ring would keep transferring to the
    /// old physical page while the frame's address shows a new one, and reads would silently be
    /// lost. Called before the first frame is used.
    #[cfg_attr(not(feature = "io-uring"), allow(dead_code, reason = "for rings"))]
    pub(crate) fn pin(&self) {
        self.pinned.store(true, Ordering::Release);
    }

    /// Reverts [`Frames::pin`] after the kernel refused.
    #[cfg_attr(not(feature = "io-uring"), allow(dead_code, reason = "for rings"))]
    pub(crate) fn unpin(&self) {
        self.pinned.store(false, Ordering::Release);
    }

    /// Whether the kernel pins the frames that it may pin.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Acquire)
    }

    /// Prefetches the first lines of a frame.
    #[inline]
    pub(crate) fn prefetch(&self, frame: u32) {
        for line in 0..2 {
            prefetch_for_read(self.at(frame, line * LINE_BYTES..FRAME_BYTES));
        }
    }

    /// Prefetches bytes of a frame that are about to be written, if they are few.
    #[inline]
    pub(crate) fn prefetch_for_write(&self, frame: u32, bytes: Range<usize>) {
        if bytes.len() <= PREFETCHED_WRITE_BYTES {
            let mut at = bytes.start;
            while at < bytes.end {
                prefetch_for_write(self.at(frame, at..bytes.end));
                at = (at / LINE_BYTES + 1) * LINE_BYTES;
            }
        }
    }

    #[inline(always)]
    fn at(&self, frame: u32, range: Range<usize>) -> *mut u8 {
        if frame >= self.count {
            no_frame(frame, self.count);
        }
        assert!(range.start <= range.end && range.end <= FRAME_BYTES, "bytes {range:?} of a frame");
        // SAFETY: the frame lies within the region, and `range.start` within the frame (or just
        // behind its last byte, for an empty range), as asserted above.
        unsafe { self.base.as_ptr().add(frame as usize * FRAME_BYTES + range.start) }
    }
}

/// Takes values, so that a hit keeps them in registers.
#[cold]
#[inline(never)]
fn no_frame(frame: u32, count: u32) -> ! {
    panic!("frame {frame} of {count}");
}

/// The value that consists of these bytes, which are as many as it has.
#[inline(always)]
fn value_of<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_bytes(bytes).unwrap_or_else(|_| unreachable!("the sizes are equal"))
}

/// Empty slots for the core, which take memory when they are first used.
pub(crate) fn zeroed_slots(count: usize) -> Box<[AtomicSlot]> {
    let layout = Layout::array::<AtomicSlot>(count).expect("the slots of a file fit the address space");
    if layout.size() == 0 {
        return Box::default();
    }
    // SAFETY: the layout is not empty.
    let first = unsafe { alloc_zeroed(layout) }.cast::<AtomicSlot>();
    if first.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: the allocation has the layout of this slice, and nothing else refers to it. An
    // `AtomicSlot` is a word in a transparent wrapper, and may be 0.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, count)) }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: base and length are those of `map`. `&mut self` proves that no guard or backend
        // uses the region (they hold an `Arc<Frames>`).
        unsafe { unmap(self.base, self.region_bytes()) }
    }
}

/// Maps `length` bytes at a huge page boundary. Also returns whether huge pages are granted.
#[cfg(not(miri))]
fn map(length: usize) -> io::Result<(NonNull<u8>, bool)> {
    let length = length.next_multiple_of(page_size());
    // The kernel aligns to small pages only: map one huge page more and unmap both ends.
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
    // SAFETY: both pieces are page-aligned parts of the new mapping outside of `base..base +
    // length`, and nothing refers to them.
    unsafe {
        if head > 0 {
            munmap(mapped, head)?;
        }
        if tail > 0 {
            munmap(base.wrapping_add(length).cast(), tail)?;
        }
    }
    // SAFETY: advice on our own mapping; neither call changes its content.
    let huge_pages = unsafe {
        // A child between fork and exec does not need the cache. Without this advice, fork copies
        // every pinned page. A refusal only makes fork slow.
        let _ = madvise(base.cast(), length, Advice::LinuxDontFork);
        length >= HUGE_PAGE_BYTES
            && huge_pages_enabled()
            && madvise(base.cast(), length, Advice::LinuxHugepage).is_ok()
    };
    Ok((NonNull::new(base).expect("a mapping is not at address zero"), huge_pages))
}

/// Whether the administrator permits huge pages. The kernel accepts the advice even if they are
/// disabled.
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
    // SAFETY: the caller's obligation.
    let unmapped = unsafe { munmap(base.as_ptr().cast(), length) };
    debug_assert!(unmapped.is_ok(), "munmap of the frames: {unmapped:?}");
}

/// Whether memory can be returned to the system frame by frame. Where its pages have 16 or 64 KiB
/// (some kernels for AArch64), a call for one frame would take the bytes of its neighbours, too.
#[cfg(not(miri))]
fn pages_fit_frames() -> bool {
    page_size() <= FRAME_BYTES
}

#[cfg(not(miri))]
fn forget(start: *mut u8) -> bool {
    // SAFETY: one frame of our own private anonymous mapping (callers pass `as_ptr`), and no
    // neighbour. Concurrent readers see old bytes or zeros, a race that they already handle.
    pages_fit_frames() && unsafe { madvise(start.cast(), FRAME_BYTES, Advice::LinuxDontNeed) }.is_ok()
}

/// Returns the memory of pages that hold only zeros to the system. They still read as zero, and
/// take memory again when they are written. Returns whether that worked.
#[cfg(not(miri))]
pub(crate) fn forget_zeros(pages: Range<*const u8>) -> bool {
    let bytes = pages.end.addr().saturating_sub(pages.start.addr());
    // SAFETY: the pages lie inside of an allocation of the core's index, which outlives the call,
    // and hold atomic words that are all zero, to which only zeros are written
    // (`Host::zeros_unused`). Private anonymous memory reads zero after this advice; of other
    // memory that an allocator may have taken, the kernel refuses the advice or keeps the content.
    // So no word changes.
    bytes > 0
        && pages_fit_frames()
        && unsafe { madvise(pages.start.cast_mut().cast(), bytes, Advice::LinuxDontNeed) }.is_ok()
}

#[cfg(miri)]
pub(crate) fn forget_zeros(_pages: Range<*const u8>) -> bool {
    false
}

/// Asks for huge pages behind the slots of a range.
#[cfg(not(miri))]
pub(crate) fn use_huge_pages(slots: Range<*const u8>) {
    let start = slots.start.addr().next_multiple_of(HUGE_PAGE_BYTES);
    let end = slots.end.addr() / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if start < end {
        let first = slots.start.wrapping_add(start - slots.start.addr());
        // SAFETY: advice on a part of an allocation that the caller refers to, which changes no
        // content. A refusal only makes hits slower.
        let _ = unsafe { madvise(first.cast_mut().cast(), end - start, Advice::LinuxHugepage) };
    }
}

#[cfg(miri)]
pub(crate) fn use_huge_pages(_slots: Range<*const u8>) {}

/// Forbids huge pages in a part of the region. The kernel refuses when the process has too many
/// mappings, as each part may become one; holes in that part may then be filled again.
#[cfg(not(miri))]
fn use_small_pages(start: *mut u8, bytes: usize) {
    // SAFETY: advice on a part of our own mapping (the caller is `release`), which changes no
    // content.
    let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxNoHugepage) };
}

#[cfg(miri)]
fn use_small_pages(_start: *mut u8, _bytes: usize) {}

#[cfg(miri)]
fn layout(length: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(length, FRAME_BYTES).expect("frames fit the address space")
}

#[cfg(miri)]
fn map(length: usize) -> io::Result<(NonNull<u8>, bool)> {
    // SAFETY: the layout is not empty, because there is at least one frame.
    let base = unsafe { std::alloc::alloc_zeroed(layout(length)) };
    NonNull::new(base).map(|base| (base, false)).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// # Safety
///
/// `base` and `length` are those of one `map`, and nothing uses the region any more.
#[cfg(miri)]
unsafe fn unmap(base: NonNull<u8>, length: usize) {
    // SAFETY: the caller's obligation.
    unsafe { std::alloc::dealloc(base.as_ptr(), layout(length)) }
}

#[cfg(miri)]
fn forget(_start: *mut u8) -> bool {
    false
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
            // SAFETY: only this thread uses the frames.
            let (first, second, third) = unsafe { (frames.bytes(0), frames.bytes(1), frames.bytes(2)) };
            assert!(first.iter().enumerate().all(|(i, b)| *b == u8::from(!(10..20).contains(&i))));
            assert!(second.iter().all(|b| *b == 0));
            assert!(third.iter().all(|b| *b == 3));
        }
        assert_eq!(frames.release(2), !cfg!(miri), "the last quarter is never pinned");
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

    /// The protocol of every optimistic reader: copies race with a writer, and those whose version
    /// did not change are whole.
    #[test]
    fn a_copy_with_an_unchanged_version_is_never_torn() {
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
