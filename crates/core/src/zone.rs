//! Zones: parts of memory with watermarks of their own, which say when background reclaim starts and
//! stops, and when allocations must wait.
//!
//! All memory is one zone, unless [`crate::Options::lower_zones`] splits it as a kernel does on PCs,
//! where old devices reach only the first 16 MiB. An allocation takes a page of the highest zone
//! that has enough, and from a lower one it leaves a reserve for requests that no other zone serves.
//!
//! Source: [book: reclaim-loop#watermarks].

use crate::pcp::PcpSizes;

/// A lower zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its pages, used or free.
    pub pages: u32,
    /// Its watermarks.
    pub watermarks: Watermarks,
    /// Pages that it keeps free above a watermark, as these requests are served by higher zones,
    /// too ("protection" in `/proc/zoneinfo`).
    pub spared_pages: u32,
    /// The kernel's lists per CPU, as [`crate::Options::pcp_sizes`].
    pub pcp_sizes: Option<PcpSizes>,
}

/// Watermarks, in free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below it, an allocation reclaims first.
    pub min: u32,
    /// Below it, background reclaim is woken.
    pub low: u32,
    /// Above it, background reclaim sleeps.
    pub high: u32,
}

/// Distance between marks, in 1/10,000 of memory.
const SCALE: u64 = 10;

impl Watermarks {
    /// The kernel's marks for a node of this many pages.
    ///
    /// The kernel's floor of 128 kB for `min` is meant for machines: a cache of a few MiB would
    /// keep a third of its memory free. So below 4 MiB the marks shrink with memory (1/32 of it for
    /// `min`).
    pub fn for_pages(pages: u32) -> Watermarks {
        let pages = u64::from(pages);
        let kilobytes = pages * 4;
        let min = ((16 * kilobytes).isqrt().clamp(128, 262_144) / 4).min(pages / 32);
        let step = (min / 4).max(pages * SCALE / 10_000);
        Watermarks { min: min as u32, low: (min + step) as u32, high: (min + 2 * step) as u32 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn marks_of_known_sizes() {
        // 256 MiB: sqrt(16 × 262,144 kB) = 2048 kB = 512 pages; steps of a quarter.
        assert_eq!(Watermarks::for_pages(65_536), Watermarks { min: 512, low: 640, high: 768 });
        // 64 GiB: 32,768 kB; the scale factor decides the step (16,777 pages).
        assert_eq!(Watermarks::for_pages(1 << 24), Watermarks { min: 8192, low: 24_969, high: 41_746 });
        assert_eq!(Watermarks::for_pages(64), Watermarks { min: 2, low: 2, high: 2 });
        assert_eq!(Watermarks::for_pages(0), Watermarks { min: 0, low: 0, high: 0 });
    }
}
