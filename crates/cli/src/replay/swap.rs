//! Options for the swap of a replay.

use crate::values::words;
use mglru_core::lru::Swappiness;
use mglru_lab::replay::memory::{Memory, Swap};
use mglru_lab::replay::text::{parse_is_zram, parse_swap, parse_swap_readahead, parse_swappiness};

/// Options for swap.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Swap")]
pub struct SwapArgs {
    /// Size of swap: 64MiB, 8192p (pages) or 10% of the trace's distinct pages [default: no swap;
    /// anonymous pages stay in memory].
    #[arg(long, value_name = "SIZE", value_parser = parse_swap)]
    swap: Option<Memory>,
    /// Swap device: compressed memory that is charged to no tenant (zram), or a disk.
    #[arg(
        long,
        value_name = "zram|disk",
        action = clap::ArgAction::Set,
        value_parser = words(["zram", "disk"], parse_is_zram),
        default_value = "disk",
        requires = "swap",
        hide_possible_values = true
    )]
    swap_device: bool,
    /// Preference for anonymous pages in reclaim: 0 (never) to 200, or max (201: anonymous pages
    /// only).
    #[arg(long, value_name = "N", default_value = "60", value_parser = parse_swappiness)]
    swappiness: Swappiness,
    /// Most that a fault reads from a swap disk at once: 32KiB, the kernel's default, up to 128KiB.
    /// Pages beside the needed one are read if they are swapped out, too, and if such pages have
    /// been of use [default: only the needed page].
    #[arg(long, value_name = "SIZE", value_parser = parse_swap_readahead, requires = "swap")]
    swap_readahead: Option<u32>,
}

impl SwapArgs {
    /// The same for the library.
    pub fn swap(&self) -> Swap {
        Swap {
            size: self.swap.clone(),
            zram: self.swap_device,
            swappiness: self.swappiness,
            readahead_pages: self.swap_readahead,
        }
    }
}
