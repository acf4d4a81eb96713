//! The text of tracepoints.

use super::Identity;
use mglru_workload::PAGE_BYTES;
use std::time::Duration;

/// A program's action on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Read { from: u64, to: u64 },
    Write { from: u64, to: u64 },
    Sync,
    DataSync,
}

/// A tracepoint that was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// The system's monotonic clock.
    pub(super) at: Duration,
    pub(super) thread: u32,
    pub(super) file: Identity,
    pub(super) what: What,
}

/// The tracepoints that are read, each with its folder. Those of [`REQUIRED`] have to be there.
pub(super) const EVENTS: [&str; 7] = [
    REQUIRED,
    "filemap/mm_filemap_fault",
    "ext4/ext4_da_write_begin",
    "ext4/ext4_write_begin",
    "ext4/ext4_sync_file_enter",
    "xfs/xfs_file_buffered_write",
    "xfs/xfs_file_fsync",
];

/// Without it, reads that hit cannot be seen.
pub(super) const REQUIRED: &str = "filemap/mm_filemap_get_pages";

/// The number in a line such as `CPU:1 [LOST 12 EVENTS]`.
pub(super) fn lost(line: &str) -> Option<u64> {
    let (_, rest) = line.strip_prefix("CPU:")?.split_once(" [LOST ")?;
    rest.strip_suffix(" EVENTS]")?.parse().ok()
}

fn number(text: &str, radix: u32) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => u64::from_str_radix(text, radix).ok(),
    }
}

impl Event {
    /// Reads `TASK-PID [CPU] FLAGS TIME: NAME: FIELDS`. `None` for other lines.
    pub(super) fn parse(line: &str) -> Option<Event> {
        let is_event = |name: &&str| line.contains(&format!(": {name}: "));
        let name = EVENTS.iter().filter_map(|path| path.split('/').next_back()).find(is_event)?;
        let (head, fields) = line.split_once(&format!(": {name}: "))?;
        // A task's name may have any letters; flags and times have no bracket.
        let (task, rest) = head.rsplit_once(" [")?;
        let thread = task.trim_end().rsplit_once('-')?.1.parse().ok()?;
        let (seconds, micros) = rest.split_whitespace().next_back()?.split_once('.')?;
        let at = Duration::from_secs(seconds.parse().ok()?) + Duration::from_micros(micros.parse().ok()?);
        let words: Vec<&str> = fields.split_whitespace().collect();
        // `name=value`, or the word behind the name.
        let value = |name: &str| {
            let joined = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            joined.or_else(|| words.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1]))
        };
        let (major, minor) = value("dev")?.split_once([':', ','])?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let is_generic = name.starts_with("mm_");
        let inode = number(value("ino")?, if is_generic { 16 } else { 10 })?;
        let range = |from: &str, bytes: &str| {
            let from = number(value(from)?, 10)?;
            Some((from, from.checked_add(number(value(bytes)?, 10)?)?))
        };
        let what = match name {
            "mm_filemap_get_pages" => {
                let (from, last) = value("ofs")?.split_once('-')?;
                let (from, to) = (number(from, 10)?, number(last, 10)?.checked_add(1)?);
                What::Read { from, to: to.max(from) }
            }
            "mm_filemap_fault" => {
                let from = number(value("ofs")?, 10)?;
                What::Read { from, to: from.checked_add(PAGE_BYTES)? }
            }
            "ext4_da_write_begin" | "ext4_write_begin" => {
                let (from, to) = range("pos", "len")?;
                What::Write { from, to }
            }
            "xfs_file_buffered_write" => {
                let (from, to) = range("pos", "bytecount")?;
                What::Write { from, to }
            }
            "ext4_sync_file_enter" if value("datasync")? != "0" => What::DataSync,
            _ => What::Sync,
        };
        Some(Event { at, thread, file: (device, inode), what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_xfs_are_read_and_others_are_not() {
        let line = "  a-b c-17 [002] d..2. 3.000004: xfs_file_buffered_write: dev 8:1 ino 0x83 disize 0x0 pos 0x10 bytecount 0x1000";
        let event = Event::parse(line).unwrap();
        let expected = Event {
            at: Duration::from_micros(3_000_004),
            thread: 17,
            file: ((8, 1), 0x83),
            what: What::Write { from: 16, to: 4112 },
        };
        assert_eq!(event, expected);
        let sync = "x-1 [0] ..... 3.1: xfs_file_fsync: dev 8:1 ino 0x83";
        assert_eq!(Event::parse(sync).unwrap().what, What::Sync);
        for wrong in [
            "",
            "# tracer: nop",
            "x-1 [0] ..... 3.1: sched_switch: dev 8:1 ino 1",
            "x-1 [0] ..... 3.1: mm_filemap_get_pages: dev=8:1 ino=zz ofs=0-1",
            "x-1 [0] ..... 3.1: mm_filemap_get_pages: dev=8:1 ino=1 ofs=0",
            "x-1 [0] ..... 3.1: ext4_write_begin: dev 8,1 ino 1 pos 18446744073709551615 len 9",
            "x [0] 3.1: mm_filemap_fault: dev=8:1 ino=1 ofs=0",
            ": mm_filemap_fault: ",
        ] {
            assert_eq!(Event::parse(wrong), None, "{wrong}");
        }
        assert_eq!((lost("CPU:0 [LOST 7 EVENTS]"), lost("CPU:0 [LOST many EVENTS]")), (Some(7), None));
    }
}
