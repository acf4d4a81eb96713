//! Swap of the machine: timing and completion of its transfers.
//!
//! Compressed memory stores pages synchronously: the reclaiming task compresses them and loses that
//! time. A disk stores them asynchronously, like pages of files.
//!
//! Compressed pages take no frame of the machine and are charged to no tenant. In the kernel lab,
//! too, they were outside of the limit, and only the limit was reached.

use crate::device::{Completion, Device, DeviceCounts, DeviceModel, Lane, Latency};
use mglru_core::{SwapOptions, SwapStore, Time};
use std::time::Duration;

/// The machine's swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapModel {
    /// Capacity in pages.
    pub pages: u32,
    /// The storage.
    pub device: SwapDevice,
}

/// The storage of swapped pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapDevice {
    /// Compressed memory. The reclaiming or faulting task does the work. Reads never fail, nor do
    /// writes unless the machine says so ([`crate::Machine::swap_refusals_per_million`]).
    Memory {
        /// Duration of decompressing a page.
        read: Duration,
        /// Duration of compressing a page.
        write: Duration,
    },
    /// A separate disk.
    Disk {
        /// The disk's timing.
        model: DeviceModel,
        /// The CPU on which transfers end; its batches collect the pages that can be freed.
        cpu: usize,
    },
}

/// How a machine collects the writes of a pass of reclaim to its swap disk, as the kernel does.
/// They begin when the pass is over, so its next pass does not find them ended, as a rule
/// ([book: fidelity#fidelity-late-writes]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapBatches {
    /// So many pages are sent off at once, also before the pass is over.
    pub most_pages: u64,
    /// The time that the reclaiming task needs to send off the writes of a pass.
    pub send: Duration,
    /// And for each page of them.
    pub send_page: Duration,
}

impl SwapDevice {
    /// Memory compressed by a server's processor: 2 µs per page to decompress, 5 µs to compress.
    pub fn zram() -> SwapDevice {
        SwapDevice::Memory { read: Duration::from_micros(2), write: Duration::from_micros(5) }
    }

    /// How many pages a fault reads, if it may read so many: compressed memory has no latency to
    /// save.
    pub(crate) fn readahead_pages(self, most: u32) -> u32 {
        if matches!(self, SwapDevice::Disk { .. }) { most } else { 0 }
    }

    /// The kernel lab's disk, for a machine that counts time in accesses: reads take no extra time,
    /// and a write ends on the same CPU before reclaim proceeds to the next priority
    /// ([book: swap#swap-out]).
    pub fn lab_disk() -> SwapDevice {
        SwapDevice::lab_disk_with(Latency::ZERO)
    }

    /// The kernel lab's disk, whose writes take so long. Reads are part of the time of an access.
    pub fn lab_disk_with(write: Latency) -> SwapDevice {
        let write = Lane { latency: write, ..Lane::IDEAL };
        SwapDevice::Disk { model: DeviceModel { write, ..DeviceModel::IDEAL }, cpu: 0 }
    }
}

#[derive(Debug)]
pub(crate) struct Swap {
    model: SwapModel,
    device: Device,
}

impl Swap {
    pub(crate) fn new(model: SwapModel, seed: u64) -> Swap {
        let lane = |took| Lane { latency: Latency::Fixed(took), ..Lane::IDEAL };
        let device = match model.device {
            SwapDevice::Memory { read, write } => DeviceModel { read: lane(read), write: lane(write) },
            SwapDevice::Disk { model, .. } => model,
        };
        Swap { model, device: Device::new(device, seed ^ 0x5AA5) }
    }

    /// The core's options for this swap.
    pub(crate) fn options(model: Option<SwapModel>) -> SwapOptions {
        let Some(SwapModel { pages, device }) = model else { return SwapOptions::default() };
        let store = match device {
            SwapDevice::Memory { .. } => SwapStore::Memory,
            SwapDevice::Disk { .. } => SwapStore::Device,
        };
        SwapOptions { pages, store }
    }

    /// The CPU on which writes end.
    pub(crate) fn cpu(&self) -> usize {
        match self.model.device {
            SwapDevice::Memory { .. } => 0,
            SwapDevice::Disk { cpu, .. } => cpu,
        }
    }

    /// Whether a page that comes back loses its slot at once.
    pub(crate) fn frees_slots(&self) -> bool {
        matches!(self.model.device, SwapDevice::Memory { .. })
    }

    pub(crate) fn read(&mut self, now: Time, pages: u64) -> Completion {
        self.device.read(now, pages)
    }

    pub(crate) fn write(&mut self, now: Time) -> Completion {
        self.device.write(now, 1)
    }

    pub(crate) fn counts(&self) -> DeviceCounts {
        self.device.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Machine, Operation, Simulator};
    use mglru_core::{Counter, Lru, Mechanisms, Preset};

    /// Pages written to swap, and those read, by a job that stores to more anonymous pages than its
    /// limit has.
    fn swapped(write: Duration, reclaim: Duration, batches: Option<SwapBatches>) -> [u64; 2] {
        let device = SwapDevice::lab_disk_with(Latency::Fixed(write));
        let machine = Machine {
            mechanisms: Mechanisms::preset(Preset::Linux72).with_lru(Lru::Classic),
            swap: Some(SwapModel { pages: 10_000, device }),
            scan_time: reclaim,
            swap_out_time: reclaim,
            swap_batches: batches,
            ..Machine::kernel_lab(1000)
        };
        let mut simulator = Simulator::new(&machine).unwrap();
        let stores = (0..6000).map(|number| Access::store(number % 1100).anon());
        simulator.add_job(0, stores.map(Operation::from));
        let report = simulator.run().unwrap();
        let [written, read] = [Counter::Pswpout, Counter::Pswpin];
        [written, read].map(|counter| report.total().counters.get(counter))
    }

    /// A page can be freed once its write has ended. Whether that is before the next pass depends
    /// on how long writes and passes take.
    #[test]
    fn writes_that_end_after_the_next_pass_free_other_pages() {
        let [none, micros, millis] = [Duration::ZERO, Duration::from_micros(10), Duration::from_millis(3)];
        let [in_time, _] = swapped(none, none, None);
        let late = swapped(millis, micros, None)[0].abs_diff(in_time);
        assert!(late > in_time / 10, "{late} of {in_time}");
        assert_eq!(swapped(none, micros, None)[0], in_time, "writes take no time");
        let slow = swapped(micros, millis, None)[0].abs_diff(in_time);
        assert!(slow < in_time / 100, "each write ends before the next pass: {slow} of {in_time}");
    }

    /// The writes of a pass begin when it is over. So they are late for the next pass, also if that
    /// pass takes longer than a write, unless sending them off takes longer than a write.
    #[test]
    fn writes_of_a_pass_begin_at_its_end() {
        let [micros, millis] = [Duration::from_micros(10), Duration::from_millis(3)];
        let [in_time, _] = swapped(micros, millis, None);
        let batches = |most_pages, send| Some(SwapBatches { most_pages, send, send_page: Duration::ZERO });
        let collected = |most_pages, send| swapped(micros, millis, batches(most_pages, send))[0];
        let late = collected(u64::MAX, Duration::ZERO);
        assert!(late.abs_diff(in_time) > in_time / 10, "{late} of {in_time}");
        for (most_pages, send) in [(u64::MAX, 2 * micros), (1, Duration::ZERO)] {
            let sent = collected(most_pages, send);
            assert!(sent.abs_diff(in_time) < in_time / 50, "{sent} of {in_time}, {most_pages} pages");
        }
    }

    /// Compressed memory that refuses some pages, or all, as a pool that is full does: other pages
    /// leave instead, and requests fail once none is left.
    #[test]
    fn refused_pages_stay_in_memory() {
        for lru in Lru::ALL {
            let run = |swap_refusals_per_million| {
                let machine = Machine {
                    mechanisms: Mechanisms::default().with_lru(lru),
                    swap: Some(SwapModel { pages: 10_000, device: SwapDevice::zram() }),
                    swap_refusals_per_million,
                    ..Machine::kernel_lab(500)
                };
                let mut simulator = Simulator::new(&machine).unwrap();
                simulator.check_every(97);
                simulator.add_job(0, (0..600).map(|page| Operation::from(Access::store(page).anon())));
                let report = simulator.run().unwrap();
                simulator.finish().unwrap();
                let total = report.total();
                (total.counts.out_of_memory, total.counters.get(Counter::Pswpout))
            };
            let [(none, _), (few, some), (all, zero)] = [0, 500_000, 1_000_000].map(run);
            assert!(
                (none, few, zero) == (0, 0, 0) && some >= 100 && all == 100,
                "{lru:?}: {few} {some} {all}"
            );
        }
    }
}
