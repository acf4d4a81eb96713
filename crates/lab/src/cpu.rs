//! Processor use of threads as the system counts it, unaffected by other work on the machine.

use mglru_workload::fio::report::Cpu;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{Duration, Instant};

/// Processor time of this thread in seconds.
pub fn thread_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

/// Processor time of all threads of the process in seconds.
pub fn process_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The system's counts of the calling thread, and when they were read.
pub struct ThreadClock {
    began: Instant,
    counts: Cpu,
}

impl ThreadClock {
    /// Starts measuring.
    pub fn start() -> ThreadClock {
        ThreadClock { began: Instant::now(), counts: counts().unwrap_or_default() }
    }

    /// Use by the thread since the start.
    pub fn elapsed(&self) -> Cpu {
        let now = counts().unwrap_or(self.counts);
        let before = &self.counts;
        Cpu {
            elapsed_ms: milliseconds(self.began.elapsed()),
            user_ms: now.user_ms.saturating_sub(before.user_ms),
            system_ms: now.system_ms.saturating_sub(before.system_ms),
            context_switches: now.context_switches.saturating_sub(before.context_switches),
            major_faults: now.major_faults.saturating_sub(before.major_faults),
            minor_faults: now.minor_faults.saturating_sub(before.minor_faults),
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// The current counts, or `None` if the system lacks them.
fn counts() -> Option<Cpu> {
    let stat = fs::read_to_string("/proc/thread-self/stat").ok()?;
    // The second field is a name in parentheses and may contain anything; the third field follows
    // the last parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ms_per_tick = 1000 / rustix::param::clock_ticks_per_second().max(1);
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let switches = status
        .lines()
        .filter_map(|line| line.split_once("ctxt_switches:"))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok());
    Some(Cpu {
        elapsed_ms: 0,
        user_ms: field(14)? * ms_per_tick,
        system_ms: field(15)? * ms_per_tick,
        context_switches: switches.sum(),
        major_faults: field(12)?,
        minor_faults: field(10)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_takes_time() {
        let clock = ThreadClock::start();
        while clock.elapsed().user_ms + clock.elapsed().system_ms == 0 {
            assert!(clock.began.elapsed() < Duration::from_secs(10), "nothing is counted");
        }
        assert!(clock.elapsed().elapsed_ms > 0);
    }
}
