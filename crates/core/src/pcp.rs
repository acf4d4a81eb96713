//! The kernel's lists of free pages near a CPU ("per-CPU pages"), which adapt their sizes.
//!
//! ```text
//!             refill: batch, twice as much after each, up to `high`     above `high`: back in batches
//! zone  ─────────────────────────────────────────────▶  CPU  ─────────────────────────────▶  zone
//! ```
//!
//! A list that is refilled again and again takes up to 32 batches at once, which can be more than
//! lie between two watermarks: the allocation after it finds the zone below `min`, wakes background
//! reclaim and reclaims itself, with pages left on its own list. The room of a list, `high`, grows
//! while the zone has more than the high watermark, and shrinks by an eighth a second and with
//! pages that are freed in shortage.
//!
//! Source: Linux 6.12 to 7.2, whose rules agree; [book: reclaim-loop#per-cpu-pages].

use crate::Time;
use std::time::Duration;

/// A refill takes at most so many doublings of a batch.
const SCALE_MAX: u32 = 5;
/// Time between two decays.
const DECAY_PERIOD: Duration = Duration::from_secs(1);
/// A list has at least room for so many batches, and while background reclaim runs no more.
const BATCHES: u32 = 4;

/// Sizes of the lists, in pages. There is room for at least four batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcpSizes {
    /// Pages that a CPU takes at once, to begin with.
    pub batch_pages: u32,
    /// Least room of a list.
    pub high_min_pages: u32,
    /// Most room of a list.
    pub high_max_pages: u32,
}

impl PcpSizes {
    /// The sizes on a machine with `managed_pages`, used or free, whose low watermark is
    /// `low_pages`.
    pub fn for_machine(managed_pages: u32, low_pages: u32, cpus: usize) -> PcpSizes {
        let cpus = cpus.max(1) as u32;
        let batch = (managed_pages >> 12).min(64);
        let batch_pages = match batch {
            0 | 1 => 1,
            batch => (1 << (batch + batch / 2).ilog2()) - 1,
        };
        let room = |pages: u32| (pages / cpus).max(BATCHES * batch_pages);
        PcpSizes {
            batch_pages,
            high_min_pages: room(low_pages),
            high_max_pages: room(managed_pages / 8).max(room(low_pages)),
        }
    }

    /// Whether there is room for what a CPU takes at once.
    pub fn are_sound(&self) -> bool {
        let PcpSizes { batch_pages, high_min_pages, high_max_pages } = *self;
        batch_pages > 0 && high_min_pages / BATCHES >= batch_pages && high_max_pages >= high_min_pages
    }

    /// The most pages that a list ever holds.
    pub(crate) fn most_pages(&self) -> usize {
        self.high_max_pages as usize + ((self.batch_pages as usize) << SCALE_MAX)
    }
}

/// The state of the zone that a list depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneState {
    /// Free pages were below the high watermark, and have not been above since.
    pub(crate) below_high: bool,
    /// Background reclaim is awake.
    pub(crate) reclaims: bool,
}

/// The list of a CPU without its pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pcp {
    sizes: PcpSizes,
    high: u32,
    /// Doublings of the next refill.
    alloc_factor: u32,
    /// Pages freed in a row, which may be returned at once.
    freed: u32,
    next_decay: Time,
}

impl Pcp {
    pub(crate) fn new(sizes: PcpSizes) -> Pcp {
        Pcp {
            sizes,
            high: sizes.high_min_pages,
            alloc_factor: 0,
            freed: 0,
            next_decay: Time::ZERO + DECAY_PERIOD,
        }
    }

    /// Notes that a page is taken from the list, which has so many. Returns the pages that it must
    /// take from the zone first.
    pub(crate) fn take(&mut self, held: u32, zone: ZoneState) -> u32 {
        self.freed >>= 1;
        if held > 0 {
            return 0;
        }
        let PcpSizes { batch_pages, high_max_pages, .. } = self.sizes;
        let pages = batch_pages << self.alloc_factor;
        if !zone.below_high {
            self.high = (self.high + pages).min(high_max_pages);
        }
        let most = self.high.saturating_sub(batch_pages).max(batch_pages);
        if pages <= most && self.alloc_factor < SCALE_MAX {
            self.alloc_factor += 1;
        }
        pages.min(most)
    }

    /// Notes that a page is freed to the list, which then has `held`. Returns the pages that it
    /// must return to the zone.
    pub(crate) fn give(&mut self, held: u32, zone: ZoneState) -> u32 {
        let PcpSizes { batch_pages, high_min_pages, high_max_pages } = self.sizes;
        self.alloc_factor >>= 1;
        self.freed = (self.freed + 1).min(batch_pages << SCALE_MAX);
        let shrunk = self.high.saturating_sub(self.freed.max(batch_pages)).max(high_min_pages);
        let high = if zone.reclaims {
            self.high = shrunk;
            shrunk.min(BATCHES * batch_pages)
        } else if zone.below_high {
            self.high = shrunk;
            held.max(high_min_pages)
        } else {
            // Room for so many pages in a row again, the next time.
            let high = self.high;
            if held >= high {
                self.high = (self.freed + batch_pages).clamp(high, high_max_pages.max(high));
            }
            high
        };
        match held < high {
            true => 0,
            false => self.freed.clamp(batch_pages, (high - batch_pages).max(batch_pages)).min(held),
        }
    }

    /// Lets the room decay, as often as its time has come. Returns the pages that a list of `held`
    /// must return to the zone.
    pub(crate) fn decay(&mut self, held: u32, now: Time) -> u32 {
        if now < self.next_decay {
            return 0;
        }
        let PcpSizes { batch_pages, high_min_pages, .. } = self.sizes;
        while self.next_decay <= now {
            self.next_decay = self.next_decay + DECAY_PERIOD;
            let kept = held.saturating_sub(batch_pages << SCALE_MAX);
            self.high = kept.max(self.high - self.high / 8).max(high_min_pages);
        }
        held.saturating_sub(self.high)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SIZES: PcpSizes = PcpSizes { batch_pages: 31, high_min_pages: 408, high_max_pages: 6662 };
    const CALM: ZoneState = ZoneState { below_high: false, reclaims: false };
    const SHORT: ZoneState = ZoneState { below_high: true, reclaims: false };
    const RECLAIMING: ZoneState = ZoneState { below_high: true, reclaims: true };

    /// [book: reclaim-loop#per-cpu-pages]: the example, and machines too small for batches.
    #[test]
    fn sizes_by_memory_watermark_and_cpus() {
        assert_eq!(PcpSizes::for_machine(106_602, 816, 2), SIZES);
        assert_eq!(PcpSizes::for_machine(1 << 22, 816, 2).batch_pages, 63, "a quarter of a MiB at most");
        let tiny = PcpSizes::for_machine(100, 10, 64);
        assert_eq!(tiny, PcpSizes { batch_pages: 1, high_min_pages: 4, high_max_pages: 4 });
        assert!(SIZES.are_sound() && tiny.are_sound());
        assert!(!PcpSizes { batch_pages: 2, ..tiny }.are_sound());
    }

    /// Each refill without a free page in between is twice the one before, up to the room.
    #[test]
    fn refills_double() {
        let mut list = Pcp::new(SIZES);
        let refills: Vec<u32> = (0..6).map(|_| list.take(0, SHORT)).collect();
        assert_eq!(refills, [31, 62, 124, 248, 377, 377], "408 less a batch");
        assert_eq!(list.take(7, SHORT), 0, "there are pages left");
        list.give(8, SHORT);
        assert_eq!(list.take(0, SHORT), 124, "a freed page halves the doublings");
    }

    /// Above the high watermark the room grows, and with it the refills.
    #[test]
    fn the_room_grows_while_memory_is_plenty() {
        let mut list = Pcp::new(SIZES);
        let refills: Vec<u32> = (0..8).map(|_| list.take(0, CALM)).collect();
        assert_eq!(refills, [31, 62, 124, 248, 496, 992, 992, 992], "32 batches at most");
        assert_eq!(list.high, 408 + 31 + 62 + 124 + 248 + 496 + 3 * 992);
        for _ in 0..9 {
            list.take(0, CALM);
        }
        assert_eq!(list.high, 6662);
    }

    /// A list returns pages once it has its room: while reclaim runs four batches, else more, and
    /// the more at once the more were freed in a row.
    #[test]
    fn surplus_returns_in_batches() {
        let returns = |zone: ZoneState| {
            let (mut list, mut held, mut returned) = (Pcp::new(SIZES), 0, Vec::new());
            for freed in 1..=500 {
                held += 1;
                match list.give(held, zone) {
                    0 => {}
                    surplus => {
                        held -= surplus;
                        returned.push((freed, surplus));
                    }
                }
            }
            returned
        };
        assert_eq!(returns(RECLAIMING)[..3], [(124, 93), (217, 93), (310, 93)]);
        assert_eq!(returns(SHORT), [(408, 377)]);
        assert_eq!(returns(CALM), [(408, 377)]);
        let mut list = Pcp::new(SIZES);
        for held in 1..=408 {
            list.give(held, CALM);
        }
        assert_eq!(list.high, 439, "the room of 408 freed in a row");
    }

    /// In seconds without shortage the room falls by an eighth each, and the list with it.
    #[test]
    fn the_room_decays() {
        let mut list = Pcp::new(SIZES);
        for _ in 0..5 {
            list.take(0, CALM);
        }
        let high = list.high;
        let second = |n: u64| Time::from_nanos(n * 1_000_000_000);
        assert_eq!((list.decay(900, second(0)), list.high), (0, high), "not before its time");
        assert_eq!((list.decay(1300, second(1)), list.high), (1300 - (high - high / 8), high - high / 8));
        assert_eq!(list.decay(9000, second(1)), 0, "once a second, however many there are");
        assert_eq!((list.decay(0, second(60)), list.high), (0, SIZES.high_min_pages));
    }
}
