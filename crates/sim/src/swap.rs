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
    /// Compressed memory. The reclaiming or faulting task does the work, and it never fails.
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

impl SwapDevice {
    /// Memory compressed by a server's processor: 2 µs per page to decompress, 5 µs to compress.
    pub fn zram() -> SwapDevice {
        SwapDevice::Memory { read: Duration::from_micros(2), write: Duration::from_micros(5) }
    }

    /// The kernel lab's disk, for a machine that counts time in accesses: reads take no extra time,
    /// and a write ends on the same CPU before reclaim proceeds to the next priority
    /// ([book: swap#swap-out]).
    pub fn lab_disk() -> SwapDevice {
        SwapDevice::Disk { model: DeviceModel::IDEAL, cpu: 0 }
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

    pub(crate) fn read(&mut self, now: Time) -> Completion {
        self.device.read(now, 1)
    }

    pub(crate) fn write(&mut self, now: Time) -> Completion {
        self.device.write(now, 1)
    }

    pub(crate) fn counts(&self) -> DeviceCounts {
        self.device.counts()
    }
}
