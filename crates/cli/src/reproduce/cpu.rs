//! Time of processors, not of clocks: what others on the machine do does not count.

use rustix::time::{ClockId, clock_gettime};

/// Seconds for which this thread ran.
pub fn thread_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

/// Seconds for which all threads of the process ran, together.
pub fn process_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
