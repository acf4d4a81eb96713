//! Free entries of a pool: of its first array, and of segments of up to 32 entries added later.
//!
//! Among segments, the lowest free number is taken, so that the last segments become entirely free
//! when less is needed. Such a segment can *rest*: its memory goes back to the system, and its
//! entries are not taken until it is woken. It keeps its addresses and reads as zero meanwhile.

use crate::host::Host;

/// Free entries of a pool.
#[derive(Debug)]
pub(crate) struct FreeNumbers {
    /// Free entries of the first array; last in, first out, since hits reach these in fewer steps.
    first: Vec<u32>,
    first_count: u32,
    /// Entries of a segment, up to 32.
    segment_entries: u32,
    /// Free entries of each segment, as bits; none of a resting segment.
    masks: Vec<u32>,
    /// Segments with free entries, as bits.
    with_free: Vec<u64>,
    /// Resting segments, and the bytes that each returned.
    resting: Vec<(u32, u64)>,
}

impl FreeNumbers {
    pub(crate) fn new(first_count: u32, segment_entries: u32) -> FreeNumbers {
        assert!((1..=u32::BITS).contains(&segment_entries));
        FreeNumbers {
            first: (0..first_count).rev().collect(),
            first_count,
            segment_entries,
            masks: Vec::new(),
            with_free: Vec::new(),
            resting: Vec::new(),
        }
    }

    fn all(&self) -> u32 {
        u32::MAX >> (u32::BITS - self.segment_entries)
    }

    fn set_mask(&mut self, segment: usize, mask: u32) {
        self.masks[segment] = mask;
        let (word, bit) = (&mut self.with_free[segment / 64], 1 << (segment % 64));
        if mask == 0 { *word &= !bit } else { *word |= bit }
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        self.first.pop().or_else(|| {
            let word = self.with_free.iter().position(|&word| word != 0)?;
            let segment = word * 64 + self.with_free[word].trailing_zeros() as usize;
            let mask = self.masks[segment];
            self.set_mask(segment, mask & (mask - 1));
            Some(self.first_count + segment as u32 * self.segment_entries + mask.trailing_zeros())
        })
    }

    /// Whether [`Self::take`] would find a number.
    pub(crate) fn has_free(&self) -> bool {
        !self.first.is_empty() || self.with_free.iter().any(|&word| word != 0)
    }

    /// Returns a number that was taken.
    pub(crate) fn give_back(&mut self, number: u32) {
        match number.checked_sub(self.first_count) {
            None => self.first.push(number),
            Some(later) => {
                let (segment, bit) =
                    ((later / self.segment_entries) as usize, 1 << (later % self.segment_entries));
                debug_assert!(self.masks[segment] & bit == 0, "entry {number} was given back twice");
                self.set_mask(segment, self.masks[segment] | bit);
            }
        }
    }

    /// Number of segments so far, which is the number of the next one.
    pub(crate) fn segments(&self) -> u32 {
        self.masks.len() as u32
    }

    /// Adds a segment, with all entries free.
    pub(crate) fn add_segment(&mut self) {
        self.masks.push(0);
        self.with_free.resize(self.masks.len().div_ceil(64), 0);
        self.set_mask(self.masks.len() - 1, self.all());
    }

    /// Bytes that waking a segment takes. `None`: no segment rests.
    pub(crate) fn waking_bytes(&self) -> Option<u64> {
        self.resting.last().map(|&(_, bytes)| bytes)
    }

    /// Wakes a resting segment, if there is one, with all entries free. Returns the bytes that it
    /// takes.
    pub(crate) fn wake(&mut self) -> Option<u64> {
        let (segment, bytes) = self.resting.pop()?;
        self.set_mask(segment as usize, self.all());
        Some(bytes)
    }

    /// The last awake segment before `before` with all entries free.
    fn unused_segment(&self, before: u32) -> Option<u32> {
        (0..before).rev().find(|&segment| self.masks[segment as usize] == self.all())
    }

    /// Lets an unused segment rest, which returned `bytes`.
    fn rest(&mut self, segment: u32, bytes: u64) {
        self.set_mask(segment as usize, 0);
        self.resting.push((segment, bytes));
    }

    /// Lets unused segments rest, the last one first, as long as `returned` says how many bytes of
    /// a segment went back to the system. Returns their sum.
    pub(crate) fn rest_unused(&mut self, mut returned: impl FnMut(u32) -> Option<u64>) -> u64 {
        let (mut before, mut sum) = (self.segments(), 0);
        while let Some(segment) = self.unused_segment(before)
            && let Some(bytes) = returned(segment)
        {
            self.rest(segment, bytes);
            (before, sum) = (segment, sum + bytes);
        }
        sum
    }
}

/// Returns the whole system pages inside `memory`, which hold only zeros, to the system, and their
/// size in bytes. `None`: `memory` has no whole page, or the host keeps them.
pub(crate) fn return_zeros<T>(host: &impl Host, memory: &[T]) -> Option<u64> {
    let pages = whole_pages(memory);
    let bytes = (pages.end.addr() - pages.start.addr()) as u64;
    (bytes > 0 && host.zeros_unused(pages)).then_some(bytes)
}

/// The addresses of the whole system pages inside `memory`.
fn whole_pages<T>(memory: &[T]) -> std::ops::Range<*const u8> {
    let (start, bytes) = (memory.as_ptr().cast::<u8>(), size_of_val(memory));
    let page = crate::PAGE_BYTES as usize;
    let skipped = start.addr().next_multiple_of(page) - start.addr();
    let length = bytes.saturating_sub(skipped) / page * page;
    let start = start.wrapping_add(skipped);
    start..start.wrapping_add(length)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_are_taken_and_segments_rest() {
        let mut free = FreeNumbers::new(2, 4);
        assert_eq!([free.take(), free.take(), free.take()], [Some(0), Some(1), None]);
        (0..3).for_each(|_| free.add_segment());
        let taken: Vec<_> = std::iter::from_fn(|| free.take()).collect();
        assert_eq!(taken, (2..14).collect::<Vec<_>>());
        for number in [13, 12, 3, 11, 10, 0, 1] {
            free.give_back(number);
        }
        assert_eq!(free.unused_segment(3), Some(2));
        free.rest(2, 16);
        assert_eq!(free.unused_segment(3), None);
        let taken: Vec<_> = std::iter::from_fn(|| free.take()).collect();
        assert_eq!(taken, [1, 0, 3]);
        assert_eq!((free.waking_bytes(), free.wake(), free.wake()), (Some(16), Some(16), None));
        assert_eq!(free.take(), Some(10));
    }

    #[test]
    fn pages_of_the_system_lie_inside() {
        let memory = vec![0u64; 2048];
        let pages = whole_pages(&memory);
        let (bytes, all) = (pages.end.addr() - pages.start.addr(), memory.as_ptr_range());
        assert!(bytes >= 3 * 4096 && bytes.is_multiple_of(4096) && pages.start.addr().is_multiple_of(4096));
        assert!(pages.start.addr() >= all.start.addr() && pages.end.addr() <= all.end.addr());
        assert!(whole_pages(&memory[..10]).is_empty());
    }
}
