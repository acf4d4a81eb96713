//! Checks that a request fits into the machine's memory, before anything is allocated.
//!
//! An allocation that fails aborts the program, and one that succeeds may still end it later: Linux
//! grants more than it has, and kills a process that uses it. A scenario can ask for 1 TiB in one
//! line. So requests say first what they need at most.

use crate::error::Error;
use crate::size;
use std::fmt::Display;

/// Memory of the simulator per page of the machine, in bytes: 68 at the start and 49 when the page
/// is used, measured with 1 and 5 GiB. The rest is for remembered evictions.
const BYTES_PER_PAGE: u64 = 128;
/// Memory of any machine, in bytes: the part of the index that is there from the beginning
/// ([`mglru_core::Core::of_one_thread`]). Small machines have less, but count as much.
const MACHINE_BYTES: u64 = 9 << 20;

/// Memory of the simulator per page of swap that is used, in bytes; 18 were measured.
const BYTES_PER_SWAP_PAGE: u64 = 32;

/// Memory that a simulated machine of `pages` pages needs at most, in bytes.
pub(crate) fn of_machine(pages: u64) -> u64 {
    pages.saturating_mul(BYTES_PER_PAGE).saturating_add(MACHINE_BYTES)
}

/// Memory that `pages` pages of a simulated machine's swap need at most, in bytes.
pub(crate) fn of_swap(pages: u64) -> u64 {
    pages.saturating_mul(BYTES_PER_SWAP_PAGE)
}

/// Memory of this machine for runs that are under way at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    available_bytes: Option<u64>,
    runs: u64,
}

impl Room {
    /// The memory available now, for `runs` runs at a time.
    pub(crate) fn for_runs(runs: usize) -> Room {
        Room { available_bytes: mglru_cache::available_memory_bytes(), runs: runs as u64 }
    }

    /// Room of so many bytes for one run.
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: u64) -> Room {
        Room { available_bytes: Some(bytes), runs: 1 }
    }

    /// Checks that all of the runs can have `bytes` of memory each. `what` needs them; `instead` is
    /// the advice in the message.
    ///
    /// # Errors
    /// As [`check`].
    pub(crate) fn check(self, bytes: u64, what: impl Display, instead: &str) -> Result<(), Error> {
        let bytes = bytes.saturating_mul(self.runs);
        if let Some(available) = self.available_bytes
            && available < bytes
        {
            let (wanted, available) = (size::show(bytes), size::show(available));
            return Err(Error::usage(format_args!(
                "{what}: {wanted} of memory are needed, and {available} are available here: {instead}"
            )));
        }
        // Limits of the process (`ulimit -v`) and strict overcommit show when memory is asked for.
        let probe = usize::try_from(bytes).map(|bytes| Vec::<u8>::new().try_reserve_exact(bytes));
        if !matches!(probe, Ok(Ok(()))) {
            let wanted = size::show(bytes);
            return Err(Error::usage(format_args!(
                "{what}: {wanted} of memory are needed, and the system refuses them: {instead}, or raise `ulimit -v` \
                 (or, with `vm.overcommit_memory=2`, the system's limit)"
            )));
        }
        Ok(())
    }
}

/// Checks that `bytes` of memory can be had. `what` needs them; `instead` is the advice in the
/// message.
///
/// # Errors
/// If the machine has less memory available, a control group or a limit of the process allows less,
/// or the system refuses to allocate it.
pub fn check(bytes: u64, what: impl Display, instead: &str) -> Result<(), Error> {
    Room::for_runs(1).check(bytes, what, instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_machines_have_an_index_too() {
        assert_eq!([0, 1, 1 << 18].map(of_machine), [9 << 20, (9 << 20) + 128, 41 << 20]);
        assert_eq!(of_machine(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_need_beyond_the_machine_is_refused_with_both_sizes() {
        check(1 << 20, "a test", "").unwrap();
        let text = check(1 << 60, "the run", "use less").unwrap_err().to_string();
        assert!(text.starts_with("the run: 1024 PiB of memory are needed, and "), "{text}");
        assert!(text.ends_with(" are available here: use less"), "{text}");
        let room = Room { runs: 3, ..Room::of_bytes(3 << 20) };
        room.check(1 << 20, "three runs", "").unwrap();
        let text = room.check(2 << 20, "three runs", "use less").unwrap_err().to_string();
        assert!(text.starts_with("three runs: 6 MiB of memory are needed, and 3 MiB are"), "{text}");
    }
}
