//! Options for the swap of a replay.

use clap::ValueEnum;
use mglru_core::lru::Swappiness;
use mglru_lab::replay::memory::{Memory, Swap};

/// Options for swap.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Swap")]
pub struct SwapArgs {
    /// Size of swap: 64MiB, 8192p (pages) or 10% of the trace's distinct pages [default: no swap;
    /// anonymous pages stay in memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_swap)]
    swap: Option<Memory>,
    /// Swap device: compressed memory that is charged to no tenant (zram), or a disk
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
    /// only)
    #[arg(long, value_name = "N", default_value = "60", value_parser = parse_swappiness)]
    swappiness: Swappiness,
}

/// The swap device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeviceKind {
    /// Compressed memory
    Zram,
    /// A disk of its own
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

fn parse_swap(text: &str) -> Result<Memory, String> {
    let swap = text.parse::<Memory>();
    swap.map_err(|error| match error.starts_with("no memory") {
        true => "swap needs at least 4096 bytes; leave the option out for no swap".to_owned(),
        false => error,
    })
}

fn parse_swappiness(text: &str) -> Result<Swappiness, String> {
    if text == "max" {
        return Ok(Swappiness::ANON_ONLY);
    }
    let value = text.parse::<u8>().ok().and_then(Swappiness::new);
    value.ok_or_else(|| "expected 0 to 200, or max (201) for anonymous pages only".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swappiness_ends_at_201() {
        let value = |text| parse_swappiness(text).unwrap().get();
        assert_eq!(["0", "60", "200", "201", "max"].map(value), [0, 60, 200, 201, 201]);
        for wrong in ["202", "256", "-1", "half", ""] {
            assert!(parse_swappiness(wrong).unwrap_err().contains("0 to 200"), "{wrong}");
        }
    }

    #[test]
    fn an_empty_swap_is_refused() {
        assert!(parse_swap("0").unwrap_err().contains("leave the option out"));
        assert_eq!(parse_swap("1MiB").unwrap().pages(|| 0), 256);
    }
}
