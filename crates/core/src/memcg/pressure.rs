//! Pressure stall information: the share of time in which tasks of a memcg were stalled for lack of
//! memory (`memory.pressure`).
//!
//! A *stall* lasts from the moment a charge has to reclaim, or is above `memory.high`, until the
//! page is paid for: reclaim, waits and pauses. Reading a page that was in use when it was evicted
//! is a stall, too. `some` is the time in which at least one task of the subtree was stalled.
//! `full`, the time in which all non-idle tasks were stalled, is not measured, as every hit would
//! have to be reported.
//!
//! The share of each period of 2 s enters three averages with time constants of 10, 60 and 300 s.
//! No timer runs: a thread that begins or ends a stall, or reads, accounts for all periods since
//! the last change.
//!
//! Differences from the kernel: background reclaim, proactive reclaim and lowering a limit stall no
//! task of a tenant and do not count, nor does waiting for a page that another task reads. Averages
//! have 32 bits instead of 11. There are no triggers.
//!
//! Source: docs.kernel.org/accounting/psi.html (since Linux 4.20).
//!
//! # Locking
//!
//! The lock of each memcg's state is a leaf. A stall takes those of the memcg and its ancestors,
//! one after the other. Hits take none.

use super::MemcgId;
use crate::host::Time;

const PERIOD_NANOS: u64 = 2_000_000_000;
/// Names of the averages, and the factor by which each decays per period: e^(−2/10), e^(−2/60) and
/// e^(−2/300).
const AVERAGES: [(&str, u64); 3] =
    [("avg10", 3_516_421_809), ("avg60", 4_154_161_520), ("avg300", 4_266_429_413)];
/// Unit of shares.
const ONE: u64 = 1 << 32;

/// The figures of `memory.pressure` at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PressureStats {
    /// The share of time with a stall, averaged over 10, 60 and 300 seconds, in hundredths of a
    /// percent.
    pub average_basis_points: [u64; 3],
    /// Time with a stall, in microseconds.
    pub total_us: u64,
}

fn product(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 32) as u64
}

fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = ONE;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = product(result, base);
        }
        base = product(base, base);
        exponent >>= 1;
    }
    result
}

#[derive(Debug)]
pub(super) struct Pressure {
    stalled_tasks: u32,
    /// The time up to which everything is accounted for.
    until: Time,
    total_nanos: u64,
    /// Elapsed and stalled time of the current period.
    passed_nanos: u64,
    stalled_nanos: u64,
    /// Averages over the completed periods.
    averages: [u64; 3],
}

impl Pressure {
    pub(super) fn new(now: Time) -> Pressure {
        Pressure {
            stalled_tasks: 0,
            until: now,
            total_nanos: 0,
            passed_nanos: 0,
            stalled_nanos: 0,
            averages: [0; 3],
        }
    }

    pub(super) fn begin(&mut self, now: Time) {
        self.advance(now);
        self.stalled_tasks += 1;
    }

    pub(super) fn end(&mut self, now: Time) {
        self.advance(now);
        self.stalled_tasks -= 1;
    }

    /// Accounts for the time until `now`, in which no stall began or ended.
    pub(super) fn advance(&mut self, now: Time) {
        // Another thread may have read the clock earlier and got the lock later.
        let elapsed = now.since(self.until).as_nanos() as u64;
        self.until = self.until.max(now);
        let stalled = |nanos| if self.stalled_tasks > 0 { nanos } else { 0 };
        self.total_nanos += stalled(elapsed);
        let left = PERIOD_NANOS - self.passed_nanos;
        if elapsed < left {
            self.stalled_nanos += stalled(elapsed);
            self.passed_nanos += elapsed;
            return;
        }
        let beyond = elapsed - left;
        let first = self.stalled_nanos + stalled(left);
        let others = stalled(PERIOD_NANOS);
        self.passed_nanos = beyond % PERIOD_NANOS;
        self.stalled_nanos = stalled(self.passed_nanos);
        self.average(first, 1);
        self.average(others, beyond / PERIOD_NANOS);
    }

    /// Completes `periods` periods, with `stalled_nanos` stalled in each.
    fn average(&mut self, stalled_nanos: u64, periods: u64) {
        let share = (stalled_nanos << 32) / PERIOD_NANOS;
        for (average, (_, decay)) in self.averages.iter_mut().zip(AVERAGES) {
            let kept = power(decay, periods);
            *average = product(*average, kept) + product(share, ONE - kept);
        }
    }

    pub(super) fn stats(&self) -> PressureStats {
        let average_basis_points = self.averages.map(|average| product(average, 10_000));
        PressureStats { average_basis_points, total_us: self.total_nanos / 1000 }
    }

    pub(super) fn text(&self) -> String {
        let PressureStats { average_basis_points, total_us } = self.stats();
        let averages = average_basis_points
            .iter()
            .zip(AVERAGES)
            .map(|(hundredths, (name, _))| format!("{name}={}.{:02} ", hundredths / 100, hundredths % 100));
        format!("some {}total={total_us}\n", averages.collect::<String>())
    }
}

/// A stall of a task. [`Core::end_stall`](crate::Core::end_stall) ends it.
#[derive(Debug)]
#[must_use = "a stall that is dropped never ends"]
pub struct Stall(pub(super) MemcgId);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_nanos((seconds * 1e9) as u64)
    }

    /// The averages after a stall of `seconds`: 1 − e^(−seconds/window), in percent.
    fn grown(seconds: f64) -> [f64; 3] {
        [10.0, 60.0, 300.0].map(|window: f64| 100.0 * (1.0 - (-seconds / window).exp()))
    }

    fn line(averages: [f64; 3], micros: u64) -> String {
        // The file truncates to two digits.
        let [a, b, c] = averages.map(|percent| (percent * 100.0 - 1e-4).max(0.0).floor() / 100.0);
        format!("some avg10={a:.2} avg60={b:.2} avg300={c:.2} total={micros}\n")
    }

    /// psi: "The ratios (in %) are tracked as recent trends over ten, sixty, and three hundred
    /// second windows".
    #[test]
    fn averages_follow_the_formula() {
        let mut pressure = Pressure::new(Time::ZERO);
        pressure.begin(Time::ZERO);
        pressure.advance(at(1.9));
        assert_eq!(pressure.text(), line([0.0; 3], 1_900_000), "the first period is not over");
        pressure.advance(at(10.0));
        assert_eq!(pressure.text(), line(grown(10.0), 10_000_000));
        let stats = PressureStats { average_basis_points: [6321, 1535, 327], total_us: 10_000_000 };
        assert_eq!(pressure.stats(), stats);
        assert!(pressure.text().starts_with("some avg10=63.21 avg60=15.35 avg300=3.27 total=10000000\n"));
        pressure.end(at(10.0));
        // No thread looks for a minute.
        pressure.advance(at(70.0));
        let [a, b, c] = grown(10.0);
        let faded = [a * (-6.0f64).exp(), b * (-1.0f64).exp(), c * (-0.2f64).exp()];
        assert_eq!(pressure.text(), line(faded, 10_000_000));
    }

    /// The result does not depend on how often the state is read or stalls begin and end.
    #[test]
    fn looking_changes_nothing() {
        let mut looked = Pressure::new(at(1.0));
        let mut other = Pressure::new(at(1.0));
        for step in 0..1000 {
            let now = at(1.0 + 0.37 * f64::from(step));
            match step % 10 {
                3 => [&mut looked, &mut other].map(|pressure| pressure.begin(now)),
                8 => [&mut looked, &mut other].map(|pressure| pressure.end(now)),
                _ => [looked.advance(now), ()],
            };
        }
        looked.advance(at(372.0));
        other.advance(at(372.0));
        assert_eq!(looked.text(), other.text());
        let share = product(looked.averages[2], 100);
        assert!((30..45).contains(&share), "half of the time, for 1.2 times the window: {share} %");
    }

    /// psi: "some" is "the share of time in which at least some tasks are stalled".
    #[test]
    fn two_at_once_are_one_stall() {
        let mut pressure = Pressure::new(Time::ZERO);
        pressure.begin(at(1.0));
        pressure.begin(at(2.0));
        pressure.end(at(3.0));
        // A thread that was late with the lock.
        pressure.begin(at(2.5));
        pressure.end(at(4.0));
        pressure.end(at(5.0));
        pressure.advance(at(20.0));
        assert_eq!(pressure.total_nanos, 4_000_000_000);
    }
}
