//! Swap space of the machine: how long its transfers take, and when they end.
//!
//! A store in memory takes pages at once: who reclaims compresses, and loses that time. A disk
//! takes them as it does pages of files, behind the back of who reclaims.
//!
//! What a store in memory holds takes no frame of the machine, and is charged to no tenant: in the
//! kernel lab, compressed pages were outside of the limit (`../shared/kernel/README.md`), and only
//! the limit was short.

use crate::device::{Completion, Device, DeviceCounts, DeviceModel, Lane, Latency};
use mglru_core::{SwapOptions, SwapStore, Time};
use std::time::Duration;

/// Where the machine puts anonymous pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapModel {
    /// How many it can hold.
    pub pages: u32,
    /// What holds them.
    pub device: SwapDevice,
}

/// What holds swapped pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapDevice {
    /// Compressed memory. The task that reclaims or faults does the work, and it never fails.
    Memory {
        /// To decompress a page.
        read: Duration,
        /// To compress a page.
        write: Duration,
    },
    /// A disk of its own.
    Disk {
        /// How fast it is.
        model: DeviceModel,
        /// The CPU on which transfers end: in whose batches pages are collected that can be freed
        /// now.
        cpu: usize,
    },
}

impl SwapDevice {
    /// Memory compressed by a processor of a server: 2 µs per page to decompress, 5 µs to compress.
    pub fn zram() -> SwapDevice {
        SwapDevice::Memory { read: Duration::from_micros(2), write: Duration::from_micros(5) }
    }

    /// The kernel lab's disk, where time is counted in accesses: reads take none of their own, and
    /// a write has ended before reclaim goes on to the next priority, on the same CPU
    /// ([book: swap#swap-out]).
    pub fn lab_disk() -> SwapDevice {
        SwapDevice::Disk { model: DeviceModel::IDEAL, cpu: 0 }
    }
}

/// Swap at work.
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

    /// What the core has to know of it.
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
