//! Records as `perf script` prints the kernel's tracepoints, for tools that read its text.
//!
//! ```text
//! mglru     1 [000]     0.001080: filemap:mm_filemap_add_to_page_cache: dev 0:0 ino 1 pfn=0x18 ofs=98304 order=0
//! ```
//!
//! | record | tracepoint |
//! |---|---|
//! | a file page is inserted, evicted | `mm_filemap_add_to_page_cache`, `mm_filemap_delete_from_page_cache` |
//! | the first scan of an effort; its end | `mm_vmscan_memcg_reclaim_begin`, `mm_vmscan_memcg_reclaim_end` |
//! | a batch is isolated | `mm_vmscan_lru_isolate` |
//! | the batch has been examined | `mm_vmscan_lru_shrink_inactive` |
//!
//! Names and fields are those of `include/trace/events/vmscan.h` and `filemap.h` of Linux 6.12; the
//! multi-gen LRU uses the same tracepoints as the classic one. Our output has not been compared
//! with that of a kernel. Three values are ours:
//!
//! - the frame number is the page's number in the trace;
//! - the inode number is the file's number plus 1;
//! - all batches of an effort have the priority of its end, the only one that is recorded.

use mglru_core::Time;
use mglru_core::pageout::{Reason, Verdict};
use mglru_lab::replay::record::{PageName, Record, What};
use std::io::Write;

/// The priority with which an effort begins.
const DEF_PRIORITY: u8 = 12;
const PAGE_BYTES: u64 = mglru_core::PAGE_BYTES;

/// Writes records. Lines of an effort are held back until its priority is known.
#[derive(Debug, Default)]
pub struct PerfScript {
    in_effort: bool,
    /// Lines of the effort, and whether the priority is to be added.
    held: Vec<(String, bool)>,
    batch: Batch,
    /// Time of the last record.
    now: Time,
}

/// Counts of the folios that were isolated together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Batch {
    anon: bool,
    sorted: u64,
    isolated: u64,
    /// Whether a folio of the batch has been examined.
    is_examined: bool,
    reclaimed: u64,
    dirty: u64,
    writeback: u64,
    immediate: u64,
    activated_anon: u64,
    activated_file: u64,
    referenced: u64,
}

impl PerfScript {
    /// Writes a record.
    pub fn write(&mut self, buffer: &mut Vec<u8>, record: &Record) {
        self.now = record.now;
        match (record.what, record.page) {
            (What::Insert(_), Some(page)) => self.filemap(buffer, "mm_filemap_add_to_page_cache", page),
            (What::Sort(..), page) => {
                self.scan(page);
                self.batch.sorted += 1;
            }
            (What::Isolate, page) => {
                self.scan(page);
                self.batch.isolated += 1;
            }
            (What::Judge(verdict), page) => self.judge(verdict, page.is_some_and(|page| page.anon)),
            (What::Evict(_), page) => {
                self.examine();
                self.batch.reclaimed += 1;
                if let Some(page) = page {
                    self.filemap(buffer, "mm_filemap_delete_from_page_cache", page);
                }
            }
            (What::Effort { reclaimed, priority, .. }, _) => {
                self.end_batch();
                if self.in_effort {
                    self.hold(
                        "vmscan:mm_vmscan_memcg_reclaim_end",
                        &format!("nr_reclaimed={reclaimed}"),
                        false,
                    );
                }
                self.release(buffer, priority);
            }
            _ => {}
        }
    }

    /// Writes what is held back.
    pub fn finish(mut self, buffer: &mut Vec<u8>) {
        self.end_batch();
        self.release(buffer, DEF_PRIORITY);
    }

    /// Begins an effort or a batch, if none is going on.
    fn scan(&mut self, page: Option<PageName>) {
        if !self.in_effort {
            self.in_effort = true;
            self.hold("vmscan:mm_vmscan_memcg_reclaim_begin", "order=0 gfp_flags=GFP_KERNEL", false);
        }
        if self.batch.is_examined {
            self.end_batch();
        }
        self.batch.anon = page.is_some_and(|page| page.anon);
    }

    fn examine(&mut self) {
        if !self.batch.is_examined && self.batch.isolated > 0 {
            self.batch.is_examined = true;
            let Batch { anon, sorted, isolated, .. } = self.batch;
            let (scanned, lru) = (sorted + isolated, if anon { "inactive_anon" } else { "inactive_file" });
            let fields = format!(
                "classzone=3 order=0 nr_requested={scanned} nr_scanned={scanned} nr_skipped=0 nr_taken={isolated} lru={lru}"
            );
            self.hold("vmscan:mm_vmscan_lru_isolate", &fields, false);
        }
    }

    fn judge(&mut self, verdict: Verdict, anon: bool) {
        self.examine();
        let batch = &mut self.batch;
        match verdict {
            Verdict::Keep(Reason::Dirty) => batch.dirty += 1,
            Verdict::Keep(Reason::Writeback) => batch.writeback += 1,
            Verdict::Keep(Reason::Immediate) => batch.immediate += 1,
            Verdict::Keep(Reason::Referenced) => batch.referenced += 1,
            Verdict::Activate(_) if anon => batch.activated_anon += 1,
            Verdict::Activate(_) => batch.activated_file += 1,
            _ => {}
        }
    }

    fn end_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.isolated == 0 {
            // Folios that were only sorted belong to the next batch of the effort.
            self.batch.sorted = batch.sorted;
            return;
        }
        let fields = format!(
            "nid=0 nr_scanned={} nr_reclaimed={} nr_dirty={} nr_writeback={} nr_congested=0 nr_immediate={} \
             nr_activate_anon={} nr_activate_file={} nr_ref_keep={} nr_unmap_fail=0",
            batch.isolated,
            batch.reclaimed,
            batch.dirty,
            batch.writeback,
            batch.immediate,
            batch.activated_anon,
            batch.activated_file,
            batch.referenced,
        );
        let kind = if batch.anon { "RECLAIM_WB_ANON" } else { "RECLAIM_WB_FILE" };
        self.hold("vmscan:mm_vmscan_lru_shrink_inactive", &format!("{fields} {kind}"), true);
    }

    fn filemap(&mut self, buffer: &mut Vec<u8>, name: &str, page: PageName) {
        if page.anon {
            return;
        }
        let (file, index) = (page.number >> 32, page.number & 0xffff_ffff);
        let fields =
            format!("dev 0:0 ino {:x} pfn=0x{:x} ofs={} order=0", file + 1, page.number, index * PAGE_BYTES);
        self.hold(&format!("filemap:{name}"), &fields, false);
        if !self.in_effort {
            self.release(buffer, DEF_PRIORITY);
        }
    }

    fn hold(&mut self, event: &str, fields: &str, has_priority: bool) {
        let micros = self.now.as_nanos() / 1000;
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let line = format!("{:>16} {:>5} [000] {seconds:>5}.{micros:06}: {event:>40}: {fields}", "mglru", 1);
        self.held.push((line, has_priority));
    }

    /// Writes the lines of an effort.
    fn release(&mut self, buffer: &mut Vec<u8>, priority: u8) {
        self.in_effort = false;
        for (line, has_priority) in self.held.drain(..) {
            // The kind of folios stands last in a line that waits for its priority.
            let (line, flags) = match has_priority {
                true => line.rsplit_once(' ').unwrap_or((&line, "")),
                false => (line.as_str(), ""),
            };
            let written = match has_priority {
                true => writeln!(buffer, "{line} priority={priority} flags={flags}|RECLAIM_WB_ASYNC"),
                false => writeln!(buffer, "{line}"),
            };
            written.expect("memory can be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(records: &[(u64, Option<u64>, What)]) -> Vec<String> {
        let (mut script, mut buffer) = (PerfScript::default(), Vec::new());
        for &(micros, page, what) in records {
            let page = page.map(|number| PageName { number, anon: false });
            let record = Record { access: 1, now: Time::from_nanos(micros * 1000), page, what };
            script.write(&mut buffer, &record);
        }
        script.finish(&mut buffer);
        String::from_utf8(buffer).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn an_effort_is_printed_as_the_kernel_does() {
        let lines = lines(&[
            (1, Some(7), What::Insert(None)),
            (1_000_002, Some(1), What::Isolate),
            (1_000_002, Some(2), What::Isolate),
            (1_000_003, Some(1), What::Judge(Verdict::Keep(Reason::Dirty))),
            (1_000_003, Some(2), What::Judge(Verdict::Free)),
            (1_000_003, Some(2), What::Evict(None)),
            (1_000_004, None, What::Effort { scanned: 2, reclaimed: 1, priority: 11 }),
        ]);
        let parts: Vec<&str> = lines.iter().map(|line| line.trim_start()).collect();
        assert_eq!(
            parts[0].split_whitespace().collect::<Vec<_>>().join(" "),
            "mglru 1 [000] 0.000001: filemap:mm_filemap_add_to_page_cache: dev 0:0 ino 1 pfn=0x7 ofs=28672 order=0"
        );
        let events: Vec<&str> = parts.iter().map(|line| line.split(": ").nth(1).unwrap().trim()).collect();
        assert_eq!(
            events,
            [
                "filemap:mm_filemap_add_to_page_cache",
                "vmscan:mm_vmscan_memcg_reclaim_begin",
                "vmscan:mm_vmscan_lru_isolate",
                "filemap:mm_filemap_delete_from_page_cache",
                "vmscan:mm_vmscan_lru_shrink_inactive",
                "vmscan:mm_vmscan_memcg_reclaim_end",
            ]
        );
        assert!(parts[4].ends_with(
            "nid=0 nr_scanned=2 nr_reclaimed=1 nr_dirty=1 nr_writeback=0 nr_congested=0 nr_immediate=0 \
             nr_activate_anon=0 nr_activate_file=0 nr_ref_keep=0 nr_unmap_fail=0 priority=11 \
             flags=RECLAIM_WB_FILE|RECLAIM_WB_ASYNC"
        ));
        assert!(parts[5].ends_with("nr_reclaimed=1") && parts[5].contains(" 1.000004: "), "{}", parts[5]);
    }

    #[test]
    fn a_second_scan_begins_a_second_batch() {
        let one = |page| {
            [
                (1, Some(page), What::Isolate),
                (1, Some(page), What::Judge(Verdict::Activate(Reason::Referenced))),
            ]
        };
        let records: Vec<_> = one(1).into_iter().chain(one(2)).collect();
        let lines = lines(&records);
        let shrinks: Vec<&String> = lines.iter().filter(|line| line.contains("shrink_inactive")).collect();
        assert_eq!(shrinks.len(), 2, "{lines:#?}");
        assert!(
            shrinks.iter().all(|line| line.contains("nr_scanned=1") && line.contains("nr_activate_file=1"))
        );
    }
}
