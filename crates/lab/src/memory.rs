//! Checks that a request fits into the machine's memory, before anything is allocated.
//!
//! An allocation that fails aborts the program, and one that succeeds may still end it later: Linux
//! grants more than it has, and kills a process that uses it. A scenario can ask for 1 TiB in one
//! line. So requests say first what they need at most.

use crate::error::Error;
use crate::{layout, size};
use std::fmt::Display;

/// Checks that `bytes` of memory can be had. `what` needs them; `instead` is the advice in the
/// message.
///
/// # Errors
/// If the machine has less memory available, a control group or a limit of the process allows less,
/// or the system refuses to allocate it.
pub fn check(bytes: u64, what: impl Display, instead: &str) -> Result<(), Error> {
    let limits = [layout::available_memory_bytes(), control_group_max_bytes()];
    if let Some(available) = limits.into_iter().flatten().min()
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
            "{what}: {wanted} of memory are needed, and the system refuses them: {instead}, or raise `ulimit -v`"
        )));
    }
    Ok(())
}

/// The memory limit of this process's control group, for version 2 and version 1.
fn control_group_max_bytes() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let limit = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let file = match controllers {
            "" => format!("/sys/fs/cgroup{path}/memory.max"),
            "memory" => format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"),
            _ => return None,
        };
        // `max` is no number, and no limit.
        std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    };
    groups.lines().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_beyond_the_machine_is_refused_with_both_sizes() {
        check(1 << 20, "a test", "").unwrap();
        let text = check(1 << 60, "the run", "use less").unwrap_err().to_string();
        assert!(text.starts_with("the run: 1024 PiB of memory are needed, and "), "{text}");
        assert!(text.ends_with(" are available here: use less"), "{text}");
    }
}
