//! Zones: parts of memory with watermarks of their own, which say when background reclaim starts
//! and stops, and when allocations must wait.
//!
//! All memory is one zone, unless [`crate::Options::lower_zones`] splits it as a kernel does on
//! PCs, where old devices reach only the first 16 MiB. An allocation takes a page of the highest
//! zone that has enough, and from a lower one it leaves a reserve for requests that no other zone
//! serves.
//!
//! Source: [book: reclaim-loop#watermarks].

use crate::pcp::PcpSizes;

/// A lower zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its pages, used or free.
    pub pages: u32,
    /// The marks of its free pages, beyond `spared_pages`.
    pub watermarks: Watermarks,
    /// Pages that it keeps free above a watermark, as these requests are served by higher zones,
    /// too ("protection" in `/proc/zoneinfo`).
    pub spared_pages: u32,
    /// The kernel's lists per CPU, as [`crate::Options::pcp_sizes`].
    pub pcp_sizes: Option<PcpSizes>,
}

/// Pages of the lowest zone of a PC: 16 MiB, less the first MiB, which is reserved.
const DMA_PAGES: u32 = 15 << 8;
/// Pages below 4 GiB and above that zone.
const DMA32_PAGES: u32 = (1 << 20) - (16 << 8);
/// A lower zone keeps free one page per so many of the zones above.
const RESERVE_RATIO: u32 = 256;

impl Zone {
    /// The zones of a PC with `pages`, the highest first, with the kernel's marks and lists for
    /// `cpus`: above 4 GiB, below, and the first 16 MiB. A zone without pages is missing.
    ///
    /// Source: [book: reclaim-loop#zones]. A real PC has less memory below 4 GiB, where devices
    /// are, and more above.
    pub fn of_pc(pages: u32, cpus: usize) -> Vec<Zone> {
        let dma = DMA_PAGES.min(pages);
        let dma32 = DMA32_PAGES.min(pages - dma);
        let min_pages = Watermarks::for_pages(pages).min;
        let mut above = 0;
        let sizes = [pages - dma - dma32, dma32, dma];
        let zones = sizes.into_iter().filter(|&size| size > 0).map(|size| {
            let watermarks = Watermarks::for_part(min_pages, size, pages);
            let spared_pages = above / RESERVE_RATIO;
            above += size;
            let pcp_sizes = Some(PcpSizes::for_machine(size, watermarks.low, cpus));
            Zone { pages: size, watermarks, spared_pages, pcp_sizes }
        });
        zones.collect()
    }
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
        let kilobytes = u64::from(pages) * 4;
        let min = ((16 * kilobytes).isqrt().clamp(128, 262_144) / 4).min(u64::from(pages) / 32);
        Watermarks::for_part(min as u32, pages, pages)
    }

    /// The marks of a zone of `pages`, on a node of `all_pages` that keeps `min_pages` free.
    fn for_part(min_pages: u32, pages: u32, all_pages: u32) -> Watermarks {
        let pages = u64::from(pages);
        let min = u64::from(min_pages) * pages / u64::from(all_pages.max(1));
        let step = (min / 4).max(pages * SCALE / 10_000);
        Watermarks { min: min as u32, low: (min + step) as u32, high: (min + 2 * step) as u32 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Linux 6.12 on a PC of 512 MiB: 3,840 pages with marks of 22, 27 and 32 and a reserve of 437,
    /// and 114,838 with marks of 657, 821 and 985. It computes them before it frees the memory of
    /// its own start, so they are 1 to 2 % lower.
    #[test]
    fn the_zones_of_a_pc() {
        let [dma32, dma] = Zone::of_pc(118_678, 2)[..] else { panic!("two zones") };
        assert_eq!(dma32.watermarks, Watermarks { min: 665, low: 831, high: 997 });
        assert_eq!((dma32.pages, dma32.spared_pages), (114_838, 0));
        assert_eq!(dma.watermarks, Watermarks { min: 22, low: 27, high: 32 });
        assert_eq!((dma.pages, dma.spared_pages), (3840, 448));
        let sizes = |pages| Zone::of_pc(pages, 2).into_iter().map(|zone| zone.pages).collect::<Vec<_>>();
        assert_eq!(sizes(3 << 20), [(2 << 20) + 256, (1 << 20) - 4096, 3840]);
        assert_eq!((sizes(3840), sizes(3841), sizes(0)), (vec![3840], vec![1, 3840], vec![]));
        assert!(Zone::of_pc(1, 64).iter().all(|zone| zone.pcp_sizes.unwrap().are_sound()));
    }

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
