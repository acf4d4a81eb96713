//! The storage device: duration, concurrency and failures of transfers.
//!
//! ```text
//!              depth                  bandwidth            latency
//! request ──► waits for a slot ──► its bytes are moved ──► completion
//! ```
//!
//! Reads and writes have a [`Lane`] each, like disks with a queue per direction. The result of a
//! request, its end and its success, is known when it is made. All arithmetic is on integers and
//! depends only on the seed, so results are equal on every computer.
//!
//! A device may have [`Trouble`] for a while: it stalls, or it is full. A stall delays the end of
//! active transfers by its length.

use mglru_core::{PAGE_BYTES, Time};
use mglru_workload::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Duration of a transfer, without moving its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Constant.
    Fixed(Duration),
    /// Uniformly distributed.
    Uniform {
        /// The minimum.
        least: Duration,
        /// The maximum.
        most: Duration,
    },
    /// Mostly near the median, sometimes far above it: roughly log-normal.
    Skewed {
        /// The median.
        median: Duration,
        /// Standard deviation of the base-2 logarithm, in thousandths. With 1000, two thirds of the
        /// transfers take between half and twice the median. At most 4000.
        spread_permille: u32,
    },
}

impl Latency {
    /// No latency.
    pub const ZERO: Latency = Latency::Fixed(Duration::ZERO);

    pub(crate) fn draw(self, random: &mut Random) -> Duration {
        match self {
            Latency::Fixed(always) => always,
            Latency::Uniform { least, most } => {
                let range = most.saturating_sub(least).as_nanos() as u64;
                least + Duration::from_nanos(random.below(range.saturating_add(1)))
            }
            Latency::Skewed { median, spread_permille } => {
                let exponent = normal(random) * i64::from(spread_permille.min(4000)) / 1000;
                let nanos = (u128::from(median.as_nanos() as u64) * u128::from(exp2(exponent))) >> 16;
                Duration::from_nanos(nanos as u64)
            }
        }
    }
}

/// A roughly standard normal number, in 1/65536: the sum of four uniform ones, whose variance is
/// 4/12, times √3.
fn normal(random: &mut Random) -> i64 {
    let bits = random.next_u64();
    let sum: i64 = (0..4).map(|part| (bits >> (16 * part)) as i64 & 0xffff).sum();
    (sum - 2 * 0x1_0000) * 1732 / 1000
}

/// `2^(x / 65536)` in 1/65536, within 0.3 %, for −16 ≤ x / 65536 ≤ 40.
fn exp2(x: i64) -> u64 {
    let (whole, part) = (x >> 16, (x & 0xffff) as u64);
    // 2^f ≈ 1 + 0.6565 f + 0.3435 f² on 0 ≤ f < 1, exact at both ends.
    let mantissa = 0x1_0000 + ((part * (43_024 + ((22_512 * part) >> 16))) >> 16);
    if whole >= 0 { mantissa << whole.min(40) } else { mantissa >> (-whole).min(63) }
}

/// One direction of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Duration of each transfer, without moving its bytes.
    pub latency: Latency,
    /// Bandwidth of all transfers together. 0: unlimited.
    pub bytes_per_second: u64,
    /// Burst that may be moved at once after an idle time, given as the time it would take at full
    /// bandwidth (a token bucket). 0: no burst.
    pub burst: Duration,
    /// Concurrent transfers; further ones wait. At least 1.
    pub depth: u32,
    /// Whether a transfer ends after those that began before it, as when a single worker ends them.
    pub in_order: bool,
    /// Failures per million transfers, chosen by the seed.
    pub failures_per_million: u32,
}

impl Lane {
    /// Takes no time and never fails.
    pub const IDEAL: Lane = Lane {
        latency: Latency::ZERO,
        bytes_per_second: 0,
        burst: Duration::ZERO,
        depth: u32::MAX,
        in_order: false,
        failures_per_million: 0,
    };
}

/// A device model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// Properties of reads.
    pub read: Lane,
    /// Properties of writes.
    pub write: Lane,
}

impl DeviceModel {
    /// Takes no time and never fails.
    pub const IDEAL: DeviceModel = DeviceModel { read: Lane::IDEAL, write: Lane::IDEAL };

    /// A server's NVMe disk: reads of about 80 µs, 3 GB/s, 128 at a time.
    pub fn nvme() -> DeviceModel {
        let skewed = |micros| Latency::Skewed { median: Duration::from_micros(micros), spread_permille: 250 };
        let lane = |micros, bytes_per_second| Lane {
            latency: skewed(micros),
            bytes_per_second,
            depth: 128,
            ..Lane::IDEAL
        };
        DeviceModel { read: lane(80, 3_000_000_000), write: lane(20, 1_500_000_000) }
    }

    /// A disk that is slower than most writers: 5 ms per transfer, reads of 120 MB/s, writes of 30
    /// MB/s, 32 at a time.
    pub fn slow() -> DeviceModel {
        let lane = |bytes_per_second| Lane {
            latency: Latency::Fixed(Duration::from_millis(5)),
            bytes_per_second,
            depth: 32,
            ..Lane::IDEAL
        };
        DeviceModel { read: lane(120_000_000), write: lane(30_000_000) }
    }
}

/// Temporary failures of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Trouble {
    /// Start and length of a stall, in which nothing is moved.
    pub stall: Option<(Time, Duration)>,
    /// Number of written pages after which the device is full and further writes fail.
    pub full_after_pages: Option<u64>,
    /// Time of recovery: from then on the device has space, and nothing fails, regardless of its
    /// lanes. `None`: never.
    pub well_from: Option<Time>,
}

impl Trouble {
    /// The start of a transfer, delayed by a stall.
    fn begin(&self, begin: Time) -> Time {
        let end = self.stall.map(|(from, length)| (from, from + length));
        end.filter(|&(from, end)| (from..end).contains(&begin)).map_or(begin, |(_, end)| end)
    }

    /// The end of a transfer that started at `begin`, outside of a stall, and would end at `end`;
    /// delayed by a stall.
    fn end(&self, begin: Time, end: Time) -> Time {
        match self.stall {
            Some((from, length)) if begin < from && end > from => end + length,
            _ => end,
        }
    }

    fn is_over(&self, now: Time) -> bool {
        self.well_from.is_some_and(|well| now >= well)
    }
}

/// Result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Virtual time of its completion.
    pub at: Time,
    /// Whether it succeeded. If not, it is an I/O error.
    pub ok: bool,
}

/// The state of a lane.
#[derive(Debug)]
struct Line {
    lane: Lane,
    random: Random,
    /// Ends of the last transfer of each slot that is taken; past ones are removed at the next
    /// request. Empty if the depth is unlimited.
    ends: BinaryHeap<Reverse<Time>>,
    bytes_moved: Time,
    /// End of the last transfer that was requested.
    last_end: Time,
    requests: u64,
    failures: u64,
    pages: u64,
}

impl Line {
    fn new(lane: Lane, random: Random) -> Line {
        assert!(lane.depth > 0, "a device runs at least one transfer at a time");
        Line {
            lane,
            random,
            ends: BinaryHeap::new(),
            bytes_moved: Time::ZERO,
            last_end: Time::ZERO,
            requests: 0,
            failures: 0,
            pages: 0,
        }
    }

    /// When a request made now can start; `None`: at once.
    fn full_until(&mut self, now: Time) -> Option<Time> {
        while self.ends.peek().is_some_and(|end| end.0 <= now) {
            self.ends.pop();
        }
        self.ends.peek().filter(|_| self.ends.len() >= self.lane.depth as usize).map(|end| end.0)
    }

    #[inline]
    fn request(&mut self, now: Time, pages: u64, trouble: &Trouble) -> Completion {
        self.requests += 1;
        self.pages += pages;
        let begin = trouble.begin(self.full_until(now).unwrap_or(now));
        if self.lane.bytes_per_second > 0 {
            let nanos =
                u128::from(pages * PAGE_BYTES) * 1_000_000_000 / u128::from(self.lane.bytes_per_second);
            self.bytes_moved = self.bytes_moved.max(begin) + Duration::from_nanos(nanos as u64);
        }
        let bucket = self.lane.burst.as_nanos() as u64;
        let passed = Time::from_nanos(self.bytes_moved.as_nanos().saturating_sub(bucket));
        let at = passed.max(begin) + self.lane.latency.draw(&mut self.random);
        let at = trouble.end(begin, at);
        let at = if self.lane.in_order { at.max(self.last_end) } else { at };
        self.last_end = at;
        if self.lane.depth < u32::MAX {
            if self.ends.len() >= self.lane.depth as usize {
                self.ends.pop();
            }
            self.ends.push(Reverse(at));
        }
        let ok = self.lane.failures_per_million == 0
            || self.random.below(1_000_000) >= u64::from(self.lane.failures_per_million)
            || trouble.is_over(begin);
        self.failures += u64::from(!ok);
        Completion { at, ok }
    }
}

/// Counts of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Read transfers.
    pub reads: u64,
    /// Pages read.
    pub pages_read: u64,
    /// Failed reads.
    pub read_failures: u64,
    /// Write transfers.
    pub writes: u64,
    /// Pages written, by successful and failed transfers.
    pub pages_written: u64,
    /// Failed writes.
    pub write_failures: u64,
    /// Writes that failed because the device was full.
    pub no_space: u64,
}

/// The state of a device.
#[derive(Debug)]
pub struct Device {
    read: Line,
    write: Line,
    trouble: Trouble,
    /// Pages written so far.
    taken_pages: u64,
    no_space: u64,
}

impl Device {
    /// An idle device.
    pub fn new(model: DeviceModel, seed: u64) -> Device {
        let random = |stream| Random::stream(seed, stream);
        Device {
            read: Line::new(model.read, random(0x0D01)),
            write: Line::new(model.write, random(0x0D02)),
            trouble: Trouble::default(),
            taken_pages: 0,
            no_space: 0,
        }
    }

    /// This device with `trouble`.
    #[must_use]
    pub fn in_trouble(self, trouble: Trouble) -> Device {
        Device { trouble, ..self }
    }

    /// Reads `pages` consecutive pages.
    #[inline]
    pub fn read(&mut self, now: Time, pages: u64) -> Completion {
        self.read.request(now, pages, &self.trouble)
    }

    /// Writes `pages` consecutive pages.
    pub fn write(&mut self, now: Time, pages: u64) -> Completion {
        let mut completion = self.write.request(now, pages, &self.trouble);
        let most = self.trouble.full_after_pages.filter(|_| !self.trouble.is_over(now));
        if completion.ok && most.is_some_and(|most| self.taken_pages + pages > most) {
            completion.ok = false;
            self.write.failures += 1;
            self.no_space += 1;
        }
        self.taken_pages += if completion.ok { pages } else { 0 };
        completion
    }

    /// When a write could start; `None`: at once.
    pub fn write_full_until(&mut self, now: Time) -> Option<Time> {
        self.write.full_until(now)
    }

    /// Whether the device was full and has not been well for `for_long` since.
    pub fn was_full(&self, now: Time, for_long: Duration) -> bool {
        self.no_space > 0 && self.trouble.well_from.is_none_or(|well| now < well + for_long)
    }

    /// Counts so far.
    pub fn counts(&self) -> DeviceCounts {
        DeviceCounts {
            reads: self.read.requests,
            pages_read: self.read.pages,
            read_failures: self.read.failures,
            writes: self.write.requests,
            pages_written: self.write.pages,
            write_failures: self.write.failures,
            no_space: self.no_space,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    fn fixed(micros: u64, depth: u32, bytes_per_second: u64) -> DeviceModel {
        let latency = Latency::Fixed(Duration::from_micros(micros));
        let lane = Lane { latency, bytes_per_second, depth, ..Lane::IDEAL };
        DeviceModel { read: lane, write: lane }
    }

    #[test]
    fn the_ideal_device_takes_no_time() {
        let mut device = Device::new(DeviceModel::IDEAL, 1);
        assert_eq!(device.read(at(5), 100), Completion { at: at(5), ok: true });
        assert_eq!(device.write_full_until(at(5)), None);
    }

    #[test]
    fn requests_beyond_the_depth_wait_for_a_slot() {
        let mut device = Device::new(fixed(10, 2, 0), 1);
        let ends: Vec<Time> = (0..5).map(|_| device.write(at(0), 1).at).collect();
        assert_eq!(ends, [10, 10, 20, 20, 30].map(at));
        assert_eq!(device.write_full_until(at(0)), Some(at(20)));
        assert_eq!(device.write_full_until(at(20)), None);
        assert_eq!(device.read(at(0), 1).at, at(10), "reads do not wait for writes");
    }

    #[test]
    fn transfers_share_the_bandwidth() {
        // 4096 bytes at 409.6 MB/s take 10 µs.
        let mut device = Device::new(fixed(1, u32::MAX, 409_600_000), 1);
        assert_eq!([device.read(at(0), 1).at, device.read(at(0), 2).at], [at(11), at(31)]);
        assert_eq!(device.read(at(100), 1).at, at(111));
    }

    #[test]
    fn a_bucket_lets_a_burst_pass_and_refills_between_writes() {
        // 10 µs per page; a burst of 25 µs passes at once.
        let lane = Lane { burst: Duration::from_micros(25), ..fixed(1, u32::MAX, 409_600_000).write };
        let mut device = Device::new(DeviceModel { read: Lane::IDEAL, write: lane }, 1);
        let ends: Vec<Time> = (0..4).map(|_| device.write(at(0), 1).at).collect();
        assert_eq!(ends, [1, 1, 6, 16].map(at));
        assert_eq!(device.write(at(100), 2).at, at(101));
    }

    #[test]
    fn skewed_latencies_have_their_median_and_a_tail() {
        let latency = Latency::Skewed { median: Duration::from_micros(100), spread_permille: 1000 };
        let mut random = Random::new(3);
        let mut drawn: Vec<u64> = (0..10_001).map(|_| latency.draw(&mut random).as_micros() as u64).collect();
        drawn.sort_unstable();
        assert!((96..=104).contains(&drawn[5000]), "{}", drawn[5000]);
        // One standard deviation down and up: 16 % and 84 %.
        assert!((46..=54).contains(&drawn[1600]) && (185..=215).contains(&drawn[8400]), "{drawn:?}");
    }

    #[test]
    fn powers_of_two_are_exact_and_others_close() {
        assert_eq!([exp2(0), exp2(1 << 16), exp2(-3 << 16)], [1 << 16, 2 << 16, 1 << 13]);
        // √2 = 1.41421.
        assert!(exp2(1 << 15).abs_diff(92_682) < 300, "{}", exp2(1 << 15));
    }

    #[test]
    fn while_it_stands_still_nothing_begins_and_nothing_ends() {
        let trouble = Trouble { stall: Some((at(15), Duration::from_micros(100))), ..Trouble::default() };
        let mut device = Device::new(fixed(10, 2, 0), 1).in_trouble(trouble);
        let ends: Vec<Time> = (0..5).map(|_| device.write(at(0), 1).at).collect();
        assert_eq!(ends, [10, 10, 120, 120, 130].map(at), "two were half done when it stopped");
        assert_eq!(device.read(at(15), 1).at, at(125));
        assert_eq!(device.read(at(114), 1).at, at(125));
        assert_eq!(device.read(at(130), 1).at, at(140));
    }

    #[test]
    fn a_full_device_refuses_writes_until_it_recovers() {
        let trouble = Trouble { full_after_pages: Some(10), well_from: Some(at(50)), ..Trouble::default() };
        let mut device = Device::new(fixed(1, 8, 0), 1).in_trouble(trouble);
        assert!(device.write(at(0), 6).ok);
        assert!(!device.write(at(1), 6).ok, "there is room for four more");
        assert!(device.write(at(2), 4).ok && !device.write(at(3), 1).ok);
        assert!(device.read(at(3), 1).ok && device.write(at(50), 100).ok);
        let counts = device.counts();
        assert_eq!((counts.writes, counts.write_failures, counts.no_space), (5, 2, 2));
    }

    #[test]
    fn a_recovered_device_fails_no_more() {
        let lane = Lane { failures_per_million: 1_000_000, ..Lane::IDEAL };
        let trouble = Trouble { well_from: Some(at(9)), ..Trouble::default() };
        let mut device = Device::new(DeviceModel { read: lane, write: lane }, 9).in_trouble(trouble);
        assert!(!device.read(at(8), 1).ok && !device.write(at(8), 1).ok);
        assert!(device.read(at(9), 1).ok && device.write(at(9), 1).ok);
    }

    #[test]
    fn failures_come_as_often_as_asked() {
        let lane = Lane { failures_per_million: 100_000, ..Lane::IDEAL };
        let mut device = Device::new(DeviceModel { read: lane, write: Lane::IDEAL }, 9);
        let failed = (0..10_000).filter(|_| !device.read(at(0), 1).ok).count();
        assert!((850..1150).contains(&failed), "{failed}");
        assert_eq!(device.counts().read_failures, failed as u64);
        assert_eq!(device.counts().pages_read, 10_000);
    }

    /// A late transfer delays those behind it, and their own time has passed meanwhile.
    #[test]
    fn transfers_of_a_lane_in_order_wait_for_earlier_ones() {
        let model = |in_order| {
            let latency = Latency::Skewed { median: Duration::from_micros(10), spread_permille: 2000 };
            DeviceModel { read: Lane { latency, in_order, ..Lane::IDEAL }, write: Lane::IDEAL }
        };
        let ends = |in_order| -> Vec<Time> {
            let mut device = Device::new(model(in_order), 3);
            (0..100).map(|number| device.read(at(number), 1).at).collect()
        };
        let (free, ordered) = (ends(false), ends(true));
        assert!(!free.is_sorted() && ordered.is_sorted());
        let latest = free.iter().scan(Time::ZERO, |latest, &end| {
            *latest = end.max(*latest);
            Some(*latest)
        });
        assert_eq!(ordered, latest.collect::<Vec<_>>());
    }
}
