//! The page capacity that a limit leaves, predicted from the trace.
//!
//! `memory.max` also pays for kernel memory. A replay needs what is left for pages. The kernel lab
//! measured it; the prediction needs only the limit and the trace, by these facts:
//!
//! | memory | size | when |
//! |---|---|---|
//! | index node of a file | 584 bytes | for 64 neighbouring pages and for 64 nodes; kept for the shadows of evicted pages |
//! | buffer head | 112 bytes | per page in memory that was written (ext4) |
//! | page table | a page | for 512 neighbouring pages touched through a mapping, and three levels above |
//! | the process | 6 pages | its own anonymous pages and small allocations |
//! | a further task | 7.5 pages | its stack, page tables and small allocations |
//! | pages in transit | 17 pages, and 5 per further task | several tasks: charged ahead, or taken out of the cache and not uncharged yet |
//! | room below the limit | 28 pages | half of what one reclaim effort frees |
//!
//! Charges come in batches of 64 pages per CPU, but an effort frees fewer than that. So at the
//! limit the whole batch fails and the page alone is charged: with one task, the batches cost
//! nothing there. With several, one can be charged a batch of what another has freed. The pages in
//! transit were measured with 2, 8 and 32 tasks on two CPUs: `memory.current` beside its parts.
//!
//! How many pages in memory were written depends on the policy. The prediction uses plain LRU.

use super::kernel_run::{HALF_AN_EFFORT_PAGES, KernelRun};
use crate::document::{document, rounded};
use mglru_core::PAGE_BYTES;
use mglru_workload::trace::{PageAccess, Record};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Bytes of an index node, with the pointer that names its memcg.
const INDEX_NODE_BYTES: u64 = 576 + 8;
/// Slots of an index node, as a power of two.
const INDEX_NODE_BITS: u32 = 6;
/// Bytes of a buffer head, with the same pointer.
const BUFFER_HEAD_BYTES: u64 = 104 + 8;
/// Entries of a page table, as a power of two.
const PAGE_TABLE_BITS: u32 = 9;
/// Page tables above those of the lowest level.
const UPPER_PAGE_TABLES: u64 = 3;
/// Pages of the process that runs the trace.
const PROCESS_PAGES: u64 = 6;

/// Memory of all tasks but the first, in pages: their own and pages in transit.
fn further_tasks_pages(tasks: u32) -> u64 {
    match u64::from(tasks.saturating_sub(1)) {
        0 => 0,
        further => 17 + further * (15 + 2 * 5) / 2,
    }
}

/// Mean memory over the counted part of a trace, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Capacity {
    /// Pages of the load.
    pub pages: f64,
    /// Memory of index nodes.
    pub index_pages: f64,
    /// Memory of buffer heads.
    pub buffer_head_pages: f64,
    /// Page tables.
    pub page_tables: f64,
}

/// The capacity of a row, predicted and measured.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictedCapacity {
    /// The row.
    pub run: KernelRun,
    /// The prediction.
    pub predicted: Capacity,
}

impl PredictedCapacity {
    /// Difference in percent of the measured capacity.
    pub fn difference_percent(&self) -> f64 {
        100.0 * (self.predicted.pages / self.run.capacity_pages.max(1.0) - 1.0)
    }

    /// Memory of a replay: the prediction and half an effort.
    pub fn memory_pages(&self) -> u64 {
        self.predicted.pages as u64 + HALF_AN_EFFORT_PAGES
    }
}

impl Serialize for PredictedCapacity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (run, predicted) = (&self.run, self.predicted);
        let tenth = |value: f64| (value * 10.0).round() / 10.0;
        document!(serializer, {
            "workload": run.setting.workload,
            "kernel": run.setting.kernel,
            "lru": run.setting.lru,
            "swap": run.setting.swap,
            "tag": run.tag,
            "limit_pages": run.limit_pages,
            "measured_pages": run.capacity_pages,
            "predicted_pages": tenth(predicted.pages),
            "difference_percent": rounded(self.difference_percent()),
            "index_pages": tenth(predicted.index_pages),
            "buffer_head_pages": tenth(predicted.buffer_head_pages),
            "page_tables": tenth(predicted.page_tables),
        })
    }
}

/// Predicts the capacity that a limit leaves to `tasks` tasks. `warm_from` is the first counted
/// access.
pub fn predict(records: &[Record], warm_from: u64, limit_pages: u64, tasks: u32) -> Capacity {
    let mut memory = Memory::default();
    let (mut sum, mut counted) = (Capacity::default(), 0u64);
    let others_pages = HALF_AN_EFFORT_PAGES + PROCESS_PAGES + further_tasks_pages(tasks);
    let accesses = records.iter().filter_map(Record::access);
    for (time, access) in (0u64..).zip(accesses) {
        memory.touch(&access, time);
        memory.evict(limit_pages.saturating_sub(others_pages));
        if time >= warm_from {
            counted += 1;
            sum.pages += memory.pages.len() as f64;
            sum.index_pages += memory.nodes.len() as f64;
            sum.buffer_head_pages += memory.written as f64;
            sum.page_tables += memory.page_tables() as f64;
        }
    }
    let mean = |sum: f64| sum / counted.max(1) as f64;
    let in_pages = |count: f64, bytes: u64| mean(count) * bytes as f64 / PAGE_BYTES as f64;
    Capacity {
        pages: mean(sum.pages),
        index_pages: in_pages(sum.index_pages, INDEX_NODE_BYTES),
        buffer_head_pages: in_pages(sum.buffer_head_pages, BUFFER_HEAD_BYTES),
        page_tables: mean(sum.page_tables),
    }
}

/// File or anonymous, and the number.
type Page = (bool, u64);

/// Pages and metadata that the limit pays for, with pages in the order of their last access.
#[derive(Default)]
struct Memory {
    /// Time of the last access, and whether the page has been written since it was read.
    pages: HashMap<Page, (u64, bool)>,
    by_time: BTreeMap<u64, Page>,
    /// Pages with a buffer head.
    written: u64,
    /// Level and number.
    nodes: HashSet<(u32, u64)>,
    tables: HashSet<Page>,
}

impl Memory {
    fn touch(&mut self, access: &PageAccess, time: u64) {
        let page = (access.anon, access.page);
        let is_file_write = access.write && !access.anon;
        let before = self.pages.get(&page).copied();
        if let Some((last, _)) = before {
            self.by_time.remove(&last);
        }
        let was_written = before.is_some_and(|(_, written)| written);
        self.written += u64::from(is_file_write && !was_written);
        self.pages.insert(page, (time, was_written || is_file_write));
        self.by_time.insert(time, page);
        if !access.anon {
            // Three levels hold 2^18 pages, enough for the lab; a level above is one node.
            for level in 1..=3 {
                if !self.nodes.insert((level, access.page >> (INDEX_NODE_BITS * level))) {
                    break;
                }
            }
        }
        if access.anon || access.mapped {
            self.tables.insert((access.anon, access.page >> PAGE_TABLE_BITS));
        }
    }

    fn page_tables(&self) -> u64 {
        let tables = self.tables.len() as u64;
        if tables == 0 { 0 } else { tables + UPPER_PAGE_TABLES }
    }

    /// Evicts the oldest pages until pages and kernel memory fit into the limit.
    fn evict(&mut self, limit_pages: u64) {
        let limit_bytes = limit_pages * PAGE_BYTES;
        loop {
            let pages = self.pages.len() as u64 + self.page_tables();
            let nodes = self.nodes.len() as u64 * INDEX_NODE_BYTES;
            if pages * PAGE_BYTES + nodes + self.written * BUFFER_HEAD_BYTES <= limit_bytes {
                return;
            }
            let Some((_, page)) = self.by_time.pop_first() else { return };
            if let Some((_, true)) = self.pages.remove(&page) {
                self.written -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(accesses: impl Iterator<Item = PageAccess>, limit_pages: u64) -> Capacity {
        predict(&accesses.map(Record::Access).collect::<Vec<_>>(), 5000, limit_pages, 1)
    }

    #[test]
    fn further_tasks_need_memory() {
        let of = |tasks| {
            let reads = (0..10_000).map(|time| Record::Access(PageAccess::read(time % 5000)));
            predict(&reads.collect::<Vec<_>>(), 5000, 1000, tasks).pages
        };
        assert_eq!([1, 2, 8, 32].map(|tasks| of(1) - of(tasks)), [0.0, 29.0, 104.0, 404.0]);
    }

    /// 5,000 pages twice: 79 leaves, 2 nodes above and a root of 584 bytes are 11.7 pages.
    #[test]
    fn index_nodes_of_evicted_pages_are_kept() {
        let reads = || (0..10_000).map(|time| PageAccess::read(time % 5000));
        let capacity = of(reads(), 1000);
        assert!((capacity.index_pages - 82.0 * 584.0 / 4096.0).abs() < 0.01, "{capacity:?}");
        assert_eq!(capacity.pages, (1000 - 34 - 12) as f64);
        assert_eq!((capacity.page_tables, capacity.buffer_head_pages), (0.0, 0.0));
    }

    #[test]
    fn mapped_pages_need_page_tables_and_written_ones_buffer_heads() {
        let mapped = (0..10_000).map(|time| PageAccess { mapped: true, ..PageAccess::read(time % 5000) });
        let capacity = of(mapped, 1000);
        // 10 tables for 5,000 pages, and three above.
        assert_eq!((capacity.page_tables, capacity.pages), (13.0, (1000 - 34 - 12 - 13) as f64));
        let writes = (0..10_000).map(|time| PageAccess { write: true, ..PageAccess::read(time % 5000) });
        let capacity = of(writes, 1000);
        // Every page in memory has one: 112 of 4,208 bytes.
        let share = capacity.buffer_head_pages / capacity.pages;
        assert!((share - 112.0 / 4096.0).abs() < 1e-6, "{capacity:?}");
    }

    /// A page that was read again after its eviction has no buffer head.
    #[test]
    fn a_buffer_head_leaves_with_its_page() {
        let first_written = (0..5000).map(|page| PageAccess { write: true, ..PageAccess::read(page) });
        let capacity = of(first_written.chain((0..100_000).map(|time| PageAccess::read(time % 5000))), 1000);
        assert!(capacity.buffer_head_pages < 0.5, "{capacity:?}");
    }

    #[test]
    fn a_limit_below_everything_leaves_nothing() {
        assert_eq!(of((0..6000).map(PageAccess::read), 10).pages, 0.0);
    }
}
