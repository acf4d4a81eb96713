//! Records as `perf script` prints the kernel's tracepoints, for tools that read its text.
//!
//! ```text
//! mglru     1 [000]     0.001080: filemap:mm_filemap_add_to_page_cache: dev 0:0 ino 1 pfn=0x18 ofs=98304 order=0
//! ```
//!
//! | record | tracepoint |
//! |---|---|
//! | a file page is inserted, evicted or truncated | `mm_filemap_add_to_page_cache`, `mm_filemap_delete_from_page_cache` |
//! | the first scan of an effort; its end | `mm_vmscan_memcg_reclaim_begin`, `mm_vmscan_memcg_reclaim_end` |
//! | the same of an allocating thread without free memory | `mm_vmscan_direct_reclaim_begin`, `mm_vmscan_direct_reclaim_end` |
//! | background reclaim wakes, goes to sleep | `mm_vmscan_kswapd_wake`, `mm_vmscan_kswapd_sleep` |
//! | a batch is isolated | `mm_vmscan_lru_isolate` |
//! | the batch has been examined | `mm_vmscan_lru_shrink_inactive` |
//! | an active list of the classic LRU was shrunk | `mm_vmscan_lru_shrink_active` |
//! | a page goes to swap | `mm_vmscan_write_folio` |
//! | a page of a file becomes dirty | `writeback_dirty_folio` |
//!
//! Names, fields and their order are those of the `format` files of running kernels
//! (`/sys/kernel/tracing/events`); docs/book/src/events.md says of which. The two of an effort end
//! with the process and the memcg since 7.1 (`pid=1 memcg_id=2 `, with a blank at the end, where
//! the kernel says whether an interrupt ran), and without them under linux-6.12. The multi-gen LRU
//! uses the same tracepoints as the classic one.
//!
//! These values are ours:
//!
//! - the frame number is the page's number in the trace;
//! - the inode number is the file's number plus 1;
//! - the process has the name of the tenant and the number of its memcg, plus 1;
//! - where the ranked policy isolates both types together, each has a batch of its own;
//! - `nr_congested` has only the pages that background reclaim met under writeback a second time;
//! - `nr_requested` is `nr_scanned`, but for the multi-gen LRU of 6.12, which asks for 4096;
//! - folios that were only sorted count in the next batch of the effort, and have no own line;
//! - an effort is for a page of a file (`GFP_HIGHUSER_MOVABLE`);
//! - all batches of an effort have the priority of its end, the only one that is recorded;
//! - efforts of several tasks in one tenant at once are one.

use super::tenants::Tenants;
use mglru_core::pageout::{Reason, Verdict};
use mglru_core::{Lru, Mechanisms, MemcgId, PAGE_BYTES, Preset, Time};
use mglru_lab::replay::record::{PageName, Record, What};
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::time::Duration;

/// The most folios that 6.12 asks for at once.
const REQUESTED_612: u64 = 4096;
const EFFORT_BEGIN: &str = "vmscan:mm_vmscan_memcg_reclaim_begin";
const DIRECT_BEGIN: &str = "vmscan:mm_vmscan_direct_reclaim_begin";
/// The priority with which an effort begins.
const DEF_PRIORITY: u8 = 12;
/// The kernel cuts names of processes here.
const NAME_BYTES: usize = 15;

/// Writes records. A line whose effort still runs is held back until its priority is known, and
/// with it all later ones.
#[derive(Debug)]
pub struct PerfScript {
    /// Whether the tracepoints of an effort name the process and the memcg.
    names_memcgs: bool,
    /// `nr_requested` where it does not depend on the batch.
    requested: Option<u64>,
    lru: Lru,
    held: VecDeque<Held>,
    /// The effort and the batch of each memcg.
    memcgs: BTreeMap<MemcgId, State>,
    /// Time of the last record.
    now: Time,
}

/// Lines that are held back at most, and for how long. Background reclaim and an effort that was
/// cancelled have no end.
const HELD_MAX: usize = 1 << 16;
const HELD_TIME_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Held {
    line: String,
    time: Time,
    waits: Option<Waits>,
}

/// The part that a line lacks until the effort ends that scans this memcg.
#[derive(Debug, Clone, Copy)]
enum Waits {
    /// The memcg that the effort is for: this one or an ancestor.
    Target(MemcgId),
    /// The priority, of a batch of anonymous folios or of those of files.
    Priority(MemcgId, bool),
}

#[derive(Debug, Default)]
struct State {
    /// Name of its process.
    name: String,
    in_effort: bool,
    /// Whether a folio of the batches has been examined.
    is_examined: bool,
    /// The batch of files' folios, and that of anonymous ones. A batch of the kernel has one type;
    /// the ranked policy isolates both together.
    batches: [Batch; 2],
}

/// Counts of the folios of one type that were isolated together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Batch {
    sorted: u64,
    isolated: u64,
    reclaimed: u64,
    dirty: u64,
    writeback: u64,
    congested: u64,
    immediate: u64,
    activated: u64,
    referenced: u64,
}

impl PerfScript {
    /// Begins the text of a run with these mechanisms.
    pub fn new(mechanisms: Mechanisms) -> PerfScript {
        let is_612 = mechanisms.name() == Preset::Linux612.name();
        PerfScript {
            names_memcgs: !is_612,
            requested: (is_612 && mechanisms.lru() == Lru::MultiGen).then_some(REQUESTED_612),
            lru: mechanisms.lru(),
            held: VecDeque::new(),
            memcgs: BTreeMap::new(),
            now: Time::ZERO,
        }
    }

    /// Writes a record.
    pub fn write(&mut self, buffer: &mut Vec<u8>, record: &Record, tenants: &Tenants) {
        self.now = record.now;
        let memcg = record.memcg;
        let name = tenants.path(memcg).map_or("mglru", |path| process_name(path));
        let state = self.memcgs.entry(memcg).or_default();
        if state.name != name {
            name.clone_into(&mut state.name);
        }
        match (record.what, record.page) {
            (What::Insert(_), Some(page)) => self.filemap(memcg, "mm_filemap_add_to_page_cache", page),
            (What::Sort(..), page) => {
                self.scan(memcg);
                self.batch(memcg, is_anon(page)).sorted += 1;
            }
            (What::Isolate, page) => {
                self.scan(memcg);
                self.batch(memcg, is_anon(page)).isolated += 1;
            }
            (What::Judge(verdict), page) => {
                self.judge(memcg, verdict, is_anon(page));
                if let (Verdict::SwapOut, Some(page)) = (verdict, page) {
                    let number = page.number;
                    let fields =
                        format!("page=(nil) pfn=0x{number:x} flags=RECLAIM_WB_ANON|RECLAIM_WB_ASYNC");
                    self.hold(memcg, "vmscan:mm_vmscan_write_folio", &fields, None);
                }
            }
            (What::Evict(_), page) => {
                self.examine(memcg);
                self.batch(memcg, is_anon(page)).reclaimed += 1;
                if let Some(page) = page {
                    self.filemap(memcg, "mm_filemap_delete_from_page_cache", page);
                }
            }
            (What::Remove, Some(page)) => self.filemap(memcg, "mm_filemap_delete_from_page_cache", page),
            (What::Effort { reclaimed, priority, direct, .. }, _) => {
                self.end_effort(memcg, reclaimed, (priority, direct), tenants)
            }
            (What::Deactivate { anon, taken, deactivated }, _) => {
                self.scan(memcg);
                // The folios isolated since the last batch are those of the active list.
                let isolated = std::mem::take(&mut self.batch(memcg, anon).isolated);
                if isolated > 0 {
                    let lru = if anon { "active_anon" } else { "active_file" };
                    self.isolate(memcg, isolated, isolated, lru);
                }
                let fields = format!(
                    "nid=0 nr_taken={taken} nr_active=0 nr_deactivated={deactivated} nr_referenced=0"
                );
                let waits = Waits::Priority(memcg, anon);
                self.hold(memcg, "vmscan:mm_vmscan_lru_shrink_active", &fields, Some(waits));
            }
            (What::Dirty, Some(page)) => {
                let (file, index) = (page.number >> 32, page.number & 0xffff_ffff);
                let fields = format!("bdi 0:0: ino={} index={index}", file + 1);
                self.hold(memcg, "writeback:writeback_dirty_folio", &fields, None);
            }
            (What::Wake, _) => self.hold(memcg, "vmscan:mm_vmscan_kswapd_wake", "nid=0 order=0", None),
            (What::Sleep, _) => self.hold(memcg, "vmscan:mm_vmscan_kswapd_sleep", "nid=0", None),
            _ => {}
        }
        self.release(buffer);
    }

    /// Writes what is held back.
    pub fn finish(mut self, buffer: &mut Vec<u8>) {
        let memcgs: Vec<MemcgId> = self.memcgs.keys().copied().collect();
        for memcg in memcgs {
            self.end_batches(memcg);
        }
        self.now = Time::from_nanos(u64::MAX);
        self.release(buffer);
    }

    fn state(&mut self, memcg: MemcgId) -> &mut State {
        self.memcgs.entry(memcg).or_default()
    }

    fn batch(&mut self, memcg: MemcgId, anon: bool) -> &mut Batch {
        &mut self.state(memcg).batches[usize::from(anon)]
    }

    /// Begins an effort or batches, if none are going on.
    fn scan(&mut self, memcg: MemcgId) {
        if !std::mem::replace(&mut self.state(memcg).in_effort, true) {
            self.hold(memcg, EFFORT_BEGIN, "", Some(Waits::Target(memcg)));
        }
        if self.state(memcg).is_examined {
            self.end_batches(memcg);
        }
    }

    /// The last fields of an effort's tracepoints.
    fn whose(&self, memcg: MemcgId) -> String {
        match self.names_memcgs {
            true => format!(" pid={} memcg_id={} ", process(memcg), memcg.0),
            false => String::new(),
        }
    }

    /// Ends an effort for `target`, and the batches in it and below it.
    fn end_effort(
        &mut self,
        target: MemcgId,
        reclaimed: u64,
        (priority, direct): (u8, bool),
        tenants: &Tenants,
    ) {
        let name = if direct { DIRECT_BEGIN } else { EFFORT_BEGIN };
        let within = |memcg: MemcgId| memcg == target || is_below(memcg, target, tenants);
        let ended: Vec<MemcgId> = self.memcgs.keys().copied().filter(|&memcg| within(memcg)).collect();
        for &memcg in &ended {
            self.end_batches(memcg);
            self.state(memcg).in_effort = false;
        }
        let begin = self.begin(target);
        let process_of_target = self.state(target).name.clone();
        let mut has_begun = false;
        self.held.retain_mut(|held| {
            match held.waits {
                Some(Waits::Target(memcg)) if ended.contains(&memcg) => {
                    if std::mem::replace(&mut has_begun, true) {
                        return false;
                    }
                    // The scanned memcg may be below the target, whose process makes the effort.
                    held.line = line(&process_of_target, target, held.time, name, &begin);
                }
                Some(Waits::Priority(memcg, anon)) if ended.contains(&memcg) => {
                    add_priority(&mut held.line, priority, anon);
                }
                _ => return true,
            }
            held.waits = None;
            true
        });
        if !has_begun {
            self.hold(target, name, &begin, None);
        }
        let end = format!("nr_reclaimed={reclaimed}{}", self.whose(target));
        self.hold(target, &name.replace("begin", "end"), &end, None);
    }

    fn examine(&mut self, memcg: MemcgId) {
        let state = self.state(memcg);
        let batches = state.batches;
        if state.is_examined || batches.iter().all(|batch| batch.isolated == 0) {
            return;
        }
        state.is_examined = true;
        for (Batch { sorted, isolated, .. }, lru) in
            batches.into_iter().zip(["inactive_file", "inactive_anon"])
        {
            if isolated > 0 {
                self.isolate(memcg, sorted + isolated, isolated, lru);
            }
        }
    }

    fn isolate(&mut self, memcg: MemcgId, scanned: u64, taken: u64, lru: &str) {
        let requested = self.requested.unwrap_or(scanned);
        let fields = format!(
            "classzone=4 order=0 nr_requested={requested} nr_scanned={scanned} nr_skipped=0 nr_taken={taken} \
             lru={lru}"
        );
        self.hold(memcg, "vmscan:mm_vmscan_lru_isolate", &fields, None);
    }

    /// Counts a verdict as `shrink_folio_list` does: a page under writeback is dirty, too, and only
    /// pages of files are either.
    fn judge(&mut self, memcg: MemcgId, verdict: Verdict, anon: bool) {
        self.examine(memcg);
        let batch = self.batch(memcg, anon);
        let of_file = u64::from(!anon);
        let reason = match verdict {
            Verdict::Activate(reason) => {
                batch.activated += 1;
                reason
            }
            Verdict::Keep(Reason::Referenced) => {
                batch.referenced += 1;
                return;
            }
            Verdict::Keep(reason) => reason,
            _ => return,
        };
        match reason {
            Reason::Dirty => batch.dirty += of_file,
            Reason::Writeback => {
                batch.dirty += of_file;
                batch.writeback += 1;
            }
            Reason::Immediate => {
                batch.dirty += of_file;
                batch.congested += of_file;
                batch.immediate += 1;
            }
            _ => {}
        }
    }

    fn end_batches(&mut self, memcg: MemcgId) {
        let state = self.state(memcg);
        state.is_examined = false;
        let batches = std::mem::take(&mut state.batches);
        for (batch, anon) in batches.into_iter().zip([false, true]) {
            if batch.isolated > 0 {
                self.end_batch(memcg, batch, anon);
            } else {
                // Folios that were only sorted belong to the next batch of the effort.
                self.batch(memcg, anon).sorted = batch.sorted;
            }
        }
    }

    fn end_batch(&mut self, memcg: MemcgId, batch: Batch, anon: bool) {
        let sorted = if self.lru == Lru::Classic { 0 } else { batch.sorted };
        let [activated_file, activated_anon] = if anon { [0, batch.activated] } else { [batch.activated, 0] };
        let fields = format!(
            "nid=0 nr_scanned={} nr_reclaimed={} nr_dirty={} nr_writeback={} nr_congested={} nr_immediate={} \
             nr_activate_anon={activated_anon} nr_activate_file={activated_file} nr_ref_keep={} nr_unmap_fail=0",
            sorted + batch.isolated,
            batch.reclaimed,
            batch.dirty,
            batch.writeback,
            batch.congested,
            batch.immediate,
            batch.referenced,
        );
        let waits = Waits::Priority(memcg, anon);
        self.hold(memcg, "vmscan:mm_vmscan_lru_shrink_inactive", &fields, Some(waits));
    }

    fn filemap(&mut self, memcg: MemcgId, name: &str, page: PageName) {
        if page.anon {
            return;
        }
        let (file, index) = (page.number >> 32, page.number & 0xffff_ffff);
        let fields =
            format!("dev 0:0 ino {:x} pfn=0x{:x} ofs={} order=0", file + 1, page.number, index * PAGE_BYTES);
        self.hold(memcg, &format!("filemap:{name}"), &fields, None);
    }

    fn hold(&mut self, memcg: MemcgId, event: &str, fields: &str, waits: Option<Waits>) {
        let line = line(&self.memcgs[&memcg].name, memcg, self.now, event, fields);
        self.held.push_back(Held { line, time: self.now, waits });
    }

    /// Writes the lines up to the first one that waits, unless it has waited for too long: without
    /// an effort, it has the priority with which one begins, or is left out.
    fn release(&mut self, buffer: &mut Vec<u8>) {
        while let Some(front) = self.held.front() {
            let late = self.held.len() > HELD_MAX || self.now.since(front.time) > HELD_TIME_MAX;
            if front.waits.is_some() && !late {
                return;
            }
            let Some(Held { mut line, waits, .. }) = self.held.pop_front() else { return };
            match waits {
                Some(Waits::Target(_)) => continue,
                Some(Waits::Priority(_, anon)) => add_priority(&mut line, DEF_PRIORITY, anon),
                None => {}
            }
            writeln!(buffer, "{line}").expect("memory can be written");
        }
    }

    /// The fields of an effort's begin.
    fn begin(&self, target: MemcgId) -> String {
        format!("order=0 gfp_flags=GFP_HIGHUSER_MOVABLE{}", self.whose(target))
    }
}

fn is_anon(page: Option<PageName>) -> bool {
    page.is_some_and(|page| page.anon)
}

/// The last fields of `mm_vmscan_lru_shrink_inactive` and `…_active`.
fn add_priority(line: &mut String, priority: u8, anon: bool) {
    let kind = if anon { "RECLAIM_WB_ANON" } else { "RECLAIM_WB_FILE" };
    line.push_str(&format!(" priority={priority} flags={kind}|RECLAIM_WB_ASYNC"));
}

/// A line of the process with this name, which stands for the tasks of a memcg.
fn line(process_name: &str, memcg: MemcgId, time: Time, event: &str, fields: &str) -> String {
    let micros = time.as_nanos() / 1000;
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let pid = process(memcg);
    format!("{process_name:>16} {pid:>5} [000] {seconds:>5}.{micros:06}: {event:>40}: {fields}")
}

/// The number of the process that stands for a memcg's tasks.
fn process(memcg: MemcgId) -> u32 {
    memcg.0 + 1
}

/// The name of a tenant's process: the last part of its path, as far as the kernel keeps it.
fn process_name(path: &str) -> &str {
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("root");
    &name[..name.floor_char_boundary(NAME_BYTES)]
}

/// Whether a memcg is a descendant of another one.
fn is_below(memcg: MemcgId, ancestor: MemcgId, tenants: &Tenants) -> bool {
    if ancestor == MemcgId::ROOT {
        return true;
    }
    let (Some(path), Some(above)) = (tenants.path(memcg), tenants.path(ancestor)) else { return false };
    path.strip_prefix(&**above).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(mechanisms: Mechanisms, records: &[(u64, Option<u64>, What)]) -> Vec<String> {
        let (mut script, mut buffer) = (PerfScript::new(mechanisms), Vec::new());
        for &(micros, page, what) in records {
            let page = page.map(|number| PageName { number, anon: false });
            let now = Time::from_nanos(micros * 1000);
            let record = Record { access: 1, now, memcg: MemcgId(1), page, what };
            script.write(&mut buffer, &record, &Tenants::default());
        }
        script.finish(&mut buffer);
        String::from_utf8(buffer).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn an_effort_is_printed_as_the_kernel_does() {
        let lines = lines(
            Mechanisms::preset(Preset::Linux72),
            &[
                (1, Some(7), What::Insert(None)),
                (1_000_002, Some(1), What::Isolate),
                (1_000_002, Some(2), What::Isolate),
                (1_000_003, Some(1), What::Judge(Verdict::Keep(Reason::Dirty))),
                (1_000_003, Some(2), What::Judge(Verdict::Free)),
                (1_000_003, Some(2), What::Evict(None)),
                (1_000_004, None, What::Effort { scanned: 2, reclaimed: 1, priority: 11, direct: false }),
            ],
        );
        let parts: Vec<&str> = lines.iter().map(|line| line.trim_start()).collect();
        assert_eq!(
            parts[0].split_whitespace().collect::<Vec<_>>().join(" "),
            "mglru 2 [000] 0.000001: filemap:mm_filemap_add_to_page_cache: dev 0:0 ino 1 pfn=0x7 ofs=28672 order=0"
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
        assert!(
            parts[1].ends_with(" order=0 gfp_flags=GFP_HIGHUSER_MOVABLE pid=2 memcg_id=1 "),
            "{}",
            parts[1]
        );
        let taken =
            "classzone=4 order=0 nr_requested=2 nr_scanned=2 nr_skipped=0 nr_taken=2 lru=inactive_file";
        assert!(parts[2].ends_with(taken), "{}", parts[2]);
        assert!(parts[5].ends_with("nr_reclaimed=1 pid=2 memcg_id=1 "), "{}", parts[5]);
        assert!(parts[5].contains(" 1.000004: "), "{}", parts[5]);
    }

    /// Names and fields as in the `format` files of 7.2.
    #[test]
    fn global_reclaim_and_dirty_pages_have_their_tracepoints() {
        let lines = lines(
            Mechanisms::preset(Preset::Linux72).with_lru(Lru::Classic),
            &[
                (1, None, What::Wake),
                (2, Some((3 << 32) + 9), What::Dirty),
                (3, Some(7), What::Isolate),
                (3, Some(8), What::Isolate),
                (3, None, What::Deactivate { anon: false, taken: 2, deactivated: 1 }),
                (4, Some(1), What::Isolate),
                (4, Some(1), What::Judge(Verdict::SwapOut)),
                (5, None, What::Effort { scanned: 1, reclaimed: 0, priority: 10, direct: true }),
                (6, None, What::Sleep),
            ],
        );
        let events: Vec<(&str, &str)> = lines
            .iter()
            .map(|line| {
                let (_, event) = line.split_once("[000]").unwrap();
                let (_, event) = event.split_once(": ").unwrap();
                let (name, fields) = event.split_once(": ").unwrap();
                (name.trim_start(), fields.trim_end())
            })
            .collect();
        assert_eq!(
            events,
            [
                ("vmscan:mm_vmscan_kswapd_wake", "nid=0 order=0"),
                ("writeback:writeback_dirty_folio", "bdi 0:0: ino=4 index=9"),
                (
                    "vmscan:mm_vmscan_direct_reclaim_begin",
                    "order=0 gfp_flags=GFP_HIGHUSER_MOVABLE pid=2 memcg_id=1"
                ),
                (
                    "vmscan:mm_vmscan_lru_isolate",
                    "classzone=4 order=0 nr_requested=2 nr_scanned=2 nr_skipped=0 nr_taken=2 lru=active_file"
                ),
                (
                    "vmscan:mm_vmscan_lru_shrink_active",
                    "nid=0 nr_taken=2 nr_active=0 nr_deactivated=1 nr_referenced=0 priority=10 \
                     flags=RECLAIM_WB_FILE|RECLAIM_WB_ASYNC"
                ),
                (
                    "vmscan:mm_vmscan_lru_isolate",
                    "classzone=4 order=0 nr_requested=1 nr_scanned=1 nr_skipped=0 nr_taken=1 lru=inactive_file"
                ),
                ("vmscan:mm_vmscan_write_folio", "page=(nil) pfn=0x1 flags=RECLAIM_WB_ANON|RECLAIM_WB_ASYNC"),
                (
                    "vmscan:mm_vmscan_lru_shrink_inactive",
                    "nid=0 nr_scanned=1 nr_reclaimed=0 nr_dirty=0 nr_writeback=0 nr_congested=0 nr_immediate=0 \
                     nr_activate_anon=0 nr_activate_file=0 nr_ref_keep=0 nr_unmap_fail=0 priority=10 \
                     flags=RECLAIM_WB_FILE|RECLAIM_WB_ASYNC"
                ),
                ("vmscan:mm_vmscan_direct_reclaim_end", "nr_reclaimed=0 pid=2 memcg_id=1"),
                ("vmscan:mm_vmscan_kswapd_sleep", "nid=0"),
            ]
        );
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
        let lines = lines(Mechanisms::preset(Preset::Linux72), &records);
        let shrinks: Vec<&String> = lines.iter().filter(|line| line.contains("shrink_inactive")).collect();
        assert_eq!(shrinks.len(), 2, "{lines:#?}");
        assert!(
            shrinks.iter().all(|line| line.contains("nr_scanned=1") && line.contains("nr_activate_file=1"))
        );
    }

    /// The whole batch had the type of its last page, and no page was dirty or under writeback.
    #[test]
    fn a_batch_of_both_types_has_lines_of_both() {
        let (mut script, mut buffer) = (PerfScript::new(Mechanisms::default()), Vec::new());
        let records = [
            (Some((1, false)), What::Isolate),
            (Some((2, false)), What::Isolate),
            (Some((3, false)), What::Isolate),
            (Some((4, true)), What::Isolate),
            (Some((1, false)), What::Judge(Verdict::Activate(Reason::Dirty))),
            (Some((2, false)), What::Judge(Verdict::Activate(Reason::Writeback))),
            (Some((3, false)), What::Judge(Verdict::Activate(Reason::Immediate))),
            (Some((4, true)), What::Judge(Verdict::Activate(Reason::Writeback))),
            (None, What::Effort { scanned: 4, reclaimed: 0, priority: 12, direct: false }),
        ];
        for (page, what) in records {
            let page = page.map(|(number, anon)| PageName { number, anon });
            let record = Record { access: 1, now: Time::ZERO, memcg: MemcgId(1), page, what };
            script.write(&mut buffer, &record, &Tenants::default());
        }
        script.finish(&mut buffer);
        let text = String::from_utf8(buffer).unwrap();
        let fields = |event: &str| -> Vec<&str> {
            let of_event = text.lines().filter_map(|line| line.split_once(event));
            of_event.map(|(_, fields)| fields).collect()
        };
        assert_eq!(
            fields("lru_isolate: classzone=4 order=0 nr_requested="),
            [
                "3 nr_scanned=3 nr_skipped=0 nr_taken=3 lru=inactive_file",
                "1 nr_scanned=1 nr_skipped=0 nr_taken=1 lru=inactive_anon"
            ]
        );
        assert_eq!(
            fields("lru_shrink_inactive: nid=0 "),
            [
                "nr_scanned=3 nr_reclaimed=0 nr_dirty=3 nr_writeback=1 nr_congested=1 nr_immediate=1 \
                 nr_activate_anon=0 nr_activate_file=3 nr_ref_keep=0 nr_unmap_fail=0 priority=12 \
                 flags=RECLAIM_WB_FILE|RECLAIM_WB_ASYNC",
                "nr_scanned=1 nr_reclaimed=0 nr_dirty=0 nr_writeback=1 nr_congested=0 nr_immediate=0 \
                 nr_activate_anon=1 nr_activate_file=0 nr_ref_keep=0 nr_unmap_fail=0 priority=12 \
                 flags=RECLAIM_WB_ANON|RECLAIM_WB_ASYNC",
            ]
        );
    }

    /// As `format` of the tracepoints of Linux 6.12 has it.
    #[test]
    fn linux_6_12_names_no_process_and_asks_for_4096() {
        let effort = What::Effort { scanned: 1, reclaimed: 0, priority: 12, direct: false };
        let referenced = What::Judge(Verdict::Activate(Reason::Referenced));
        let records = [(1, Some(1), What::Isolate), (1, Some(1), referenced), (2, None, effort)];
        let preset = Mechanisms::preset(Preset::Linux612);
        let multigen = lines(preset.with_lru(Lru::MultiGen), &records);
        assert!(multigen[0].ends_with("order=0 gfp_flags=GFP_HIGHUSER_MOVABLE"), "{multigen:#?}");
        assert!(multigen[1].contains(" nr_requested=4096 nr_scanned=1 "), "{multigen:#?}");
        assert!(multigen[3].ends_with("nr_reclaimed=0"), "{multigen:#?}");
        let classic = lines(preset.with_lru(Lru::Classic), &records);
        assert!(classic[1].contains(" nr_requested=1 nr_scanned=1 "), "{classic:#?}");
    }

    /// Lines stay in the order of time while the efforts of two tenants overlap. An effort of an
    /// ancestor has one begin and one end, of one process: tools pair them by it.
    #[test]
    fn tenants_have_efforts_of_their_own() {
        let mut tenants = Tenants::default();
        for (memcg, path) in [(0, "/"), (1, "a"), (2, "a/web-server-of-the-shop"), (3, "b")] {
            tenants.set(MemcgId(memcg), path.into());
        }
        let (mut script, mut buffer) = (PerfScript::new(Mechanisms::default()), Vec::new());
        let effort = |priority| What::Effort { scanned: 1, reclaimed: 1, priority, direct: false };
        let of = |number: u64| Some(PageName { number, anon: false });
        let records = [
            (2, of(7), What::Isolate),
            (3, of(8), What::Isolate),
            (2, of(7), What::Judge(Verdict::Free)),
            (3, of(8), What::Judge(Verdict::Free)),
            (3, None, effort(9)),
            (1, None, effort(11)),
            (3, None, effort(12)),
        ];
        for (nanos, (memcg, page, what)) in records.into_iter().enumerate() {
            let now = Time::from_nanos(nanos as u64 * 1000);
            let record = Record { access: 1, now, memcg: MemcgId(memcg), page, what };
            script.write(&mut buffer, &record, &tenants);
        }
        script.finish(&mut buffer);
        let text = String::from_utf8(buffer).unwrap();
        let short = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let event = words[4].trim_start_matches("vmscan:mm_vmscan_").trim_end_matches(':');
            let last = words[words.len() - 1].trim_start_matches("flags=");
            let priority = words.iter().find(|word| word.starts_with("priority="));
            format!("{} {event} {}", words[0], priority.map_or(last, |priority| priority))
        };
        let lines: Vec<String> = text.lines().map(short).collect();
        let expected = [
            "a memcg_reclaim_begin memcg_id=1",
            "b memcg_reclaim_begin memcg_id=3",
            "web-server-of-t lru_isolate lru=inactive_file",
            "b lru_isolate lru=inactive_file",
            "b lru_shrink_inactive priority=9",
            "b memcg_reclaim_end memcg_id=3",
            "web-server-of-t lru_shrink_inactive priority=11",
            "a memcg_reclaim_end memcg_id=1",
            "b memcg_reclaim_begin memcg_id=3",
            "b memcg_reclaim_end memcg_id=3",
        ];
        assert_eq!(lines, expected, "{text}");
    }
}
