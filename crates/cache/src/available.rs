//! The memory that this process can have: the bound of budgets, and of what is pinned at the start.
//!
//! A budget is refused if the process could never have it: the system would map the frames, because
//! nobody has touched them yet, and end the process when they are used. The memory available at the
//! moment bounds no budget, because others may give memory back. But it bounds the frames that a
//! ring pins at the start, since those are used at once.

use crate::cgroup::memory_limit_bytes;
use crate::error::Error;

/// Memory that this process can have now, in bytes: what the machine has available, or less if the
/// control groups of this process allow less ([`memory_limit_bytes`]). `None`: `/proc` is not
/// mounted, and there is no limit.
pub fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok();
    let of_machine = text.as_deref().and_then(|text| bytes_of(text, "MemAvailable:"));
    [of_machine, memory_limit_bytes()].into_iter().flatten().min()
}

/// Bytes that may still be written to a file system, by its answer to `statvfs`: its blocks, those
/// that are available, and the bytes of each. One without any blocks is not full: it has no limit,
/// or does not say (ramfs, tmpfs with `size=0`, file systems in user space that leave the request
/// out).
pub fn file_system_room_bytes(blocks: u64, available_blocks: u64, block_bytes: u64) -> u64 {
    if blocks == 0 { u64::MAX } else { available_blocks.saturating_mul(block_bytes) }
}

/// A value in the text of /proc/meminfo, in bytes.
fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Whether so many bytes can be pinned at once. A process that pins more is ended by the system.
#[cfg_attr(any(miri, not(feature = "io-uring")), allow(dead_code, reason = "for rings"))]
pub(crate) fn can_be_pinned(bytes: u64) -> bool {
    available_memory_bytes().is_none_or(|available| bytes <= available)
}

/// The bounds of this process's memory, by name, in bytes of memory and swap; `u64::MAX` where one
/// is not known. rustix's `sysinfo` does not notice that a sandbox refuses the call.
#[cfg(not(miri))]
fn bounds() -> [(&'static str, u64); 2] {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = bytes_of(&text, "MemTotal:").unwrap_or(u64::MAX);
    let swap = bytes_of(&text, "SwapTotal:").unwrap_or(0);
    // How much of the swap a control group may use is not known everywhere.
    let of_group = memory_limit_bytes().unwrap_or(u64::MAX).saturating_add(swap);
    [
        ("this machine has", memory.saturating_add(swap)),
        ("the control groups of this process allow", of_group),
    ]
}

#[cfg(miri)]
fn bounds() -> [(&'static str, u64); 0] {
    []
}

/// Checks that the process can have a budget at all, beside at least something of its own.
pub(crate) fn check_budget(bytes: u64) -> Result<(), Error> {
    match bounds().into_iter().find(|(_, bound_bytes)| bytes >= *bound_bytes) {
        Some((bound, bound_bytes)) => Err(Error::BudgetTooLarge { bytes, bound, bound_bytes }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_blocks_has_room() {
        assert_eq!(file_system_room_bytes(0, 0, 4096), u64::MAX);
        assert_eq!(file_system_room_bytes(10, 0, 4096), 0);
        assert_eq!(file_system_room_bytes(10, 3, 4096), 12_288);
        assert_eq!(file_system_room_bytes(10, u64::MAX, 4096), u64::MAX);
    }

    #[cfg(not(miri))]
    #[test]
    fn budgets_are_bounded_by_what_the_machine_has() {
        let [(bound, machine_bytes), (_, group_bytes)] = bounds();
        check_budget(machine_bytes.min(group_bytes) - 1).unwrap();
        let error = check_budget(machine_bytes).unwrap_err().to_string();
        let expected = format!(
            "a budget of {machine_bytes} bytes is too large: {bound} {machine_bytes} bytes of memory and swap: choose a \
             smaller budget"
        );
        assert!(error == expected || group_bytes < machine_bytes, "{error}");
    }

    #[test]
    fn what_is_available_is_found_among_other_lines() {
        let text = "MemTotal:       16374652 kB\nMemFree:  1 kB\nMemAvailable:    1000 kB\nBuffers: 7 kB\n";
        assert_eq!(bytes_of(text, "MemAvailable:"), Some(1_024_000));
        assert_eq!(bytes_of(text, "MemTotal:"), Some(16_374_652 << 10));
        assert_eq!(bytes_of("MemTotal: 1 kB\n", "MemAvailable:"), None);
    }

    /// All of it would be used at once.
    #[cfg(not(miri))]
    #[test]
    fn more_than_is_available_is_not_pinned() {
        assert!(can_be_pinned(1 << 20));
        assert!(available_memory_bytes().is_none() || !can_be_pinned(1 << 60));
    }
}
