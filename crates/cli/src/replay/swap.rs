//! Options for the swap of a replay.

use clap::ValueEnum;
use mglru_core::lru::Swappiness;
use mglru_lab::replay::memory::{Memory, Swap, parse_swap, parse_swappiness};

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
        value_enum,
        default_value = "disk",
        requires = "swap",
        hide_possible_values = true
    )]
    swap_device: DeviceKind,
    /// Preference for anonymous pages in reclaim: 0 (never) to 200, or max (201: anonymous pages
    /// only).
    #[arg(long, value_name = "N", default_value = "60", value_parser = parse_swappiness)]
    swappiness: Swappiness,
}

/// The swap device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeviceKind {
    /// Compressed memory.
    Zram,
    /// A disk of its own.
    Disk,
}

impl SwapArgs {
    /// The same for the library.
    pub fn swap(&self) -> Swap {
        Swap {
            size: self.swap.clone(),
            zram: self.swap_device == DeviceKind::Zram,
            swappiness: self.swappiness,
        }
    }
}
