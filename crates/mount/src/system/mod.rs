//! A trace of programs that run already, by the kernel's tracepoints.
//!
//! ```text
//! tracing     an instance of tracefs: which threads, which events, their text
//! event       a line of text -> a request
//! names       device and inode number -> a name, and how long the file is
//! ```
//!
//! The kernel reports reads through its page cache as `filemap/mm_filemap_get_pages`, also those
//! that hit. A read of many pages comes as several events with the same end, each from where the
//! one before stopped. Writes and syncs are reported by the file systems ext4 and XFS.

mod event;
mod names;
mod tracing;

use crate::error::Error;
use event::{Event, What};
use mglru_watch::Requests;
use mglru_workload::trace::{LoggedRequest, RequestKind, RequestLog, TraceError};
use names::Names;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::Tracing;

/// How long to wait for events before looking whether to stop.
const WAIT: Duration = Duration::from_millis(200);

/// For how long a request may go on: until then its length may change, and it is not written.
const SETTLED: Duration = Duration::from_secs(1);

/// Which programs to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Programs {
    /// A process, by its number.
    Process(u32),
    /// The processes that are in a control group when the recording begins.
    Cgroup(PathBuf),
}

/// A number, or the directory of a control group.
impl FromStr for Programs {
    type Err = String;

    fn from_str(text: &str) -> Result<Programs, String> {
        match text.parse() {
            Ok(number) => Ok(Programs::Process(number)),
            Err(_) if text.starts_with('/') => Ok(Programs::Cgroup(text.into())),
            Err(_) => Err(format!(
                "`{text}` is neither a process's number nor a control group's directory, such as \
                 /sys/fs/cgroup/system.slice/mariadb.service"
            )),
        }
    }
}

/// A summary of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// The requests.
    pub requests: Requests,
    /// Events that the kernel dropped because its buffer was full.
    pub lost: u64,
    /// Whether all programs ended.
    pub ended: bool,
}

/// Records what programs and their later children read and write, until they end, `stop` is set, or
/// the time is up. `output` is a trace as [`crate::RecordOptions::path`] names it. `begun` is
/// called when events are collected.
///
/// # Errors
/// [`Error::Usage`]: there are no such programs, the kernel lacks the tracepoints, or this user may
/// not use them. [`Error::Work`]: the trace cannot be written.
pub fn record_system(
    programs: &Programs,
    output: &Path,
    time: Option<Duration>,
    stop: &AtomicBool,
    begun: impl FnOnce(),
) -> Result<Recorded, Error> {
    let threads = tracing::threads_of(programs)?;
    let mut tracing = Tracing::start(&threads)?;
    let mut log = RequestLog::create(output).map_err(Error::usage)?;
    begun();
    let mut recorder = Recorder::default();
    let end = time.map(|time| Instant::now() + time);
    loop {
        let is_over = stop.load(Ordering::Acquire) || end.is_some_and(|end| Instant::now() >= end);
        // Events that came until then are still read.
        recorder.recorded.ended = !is_over && !tracing.any_thread();
        if is_over || recorder.recorded.ended {
            tracing.pause();
        }
        let more = tracing.read(WAIT)?;
        recorder.take(&more, |identity| names::find(tracing.live_threads(), identity));
        recorder.flush(&mut log, SETTLED).map_err(Error::work)?;
        if more.is_empty() && (is_over || recorder.recorded.ended) {
            break;
        }
    }
    recorder.flush(&mut log, Duration::ZERO).map_err(Error::work)?;
    log.finish().map_err(Error::work)?;
    Ok(recorder.recorded)
}

/// A file's device and inode number, as tracepoints have them.
type Identity = ((u32, u32), u64);

#[derive(Default)]
struct Recorder {
    names: Names,
    /// When the first event happened.
    begun: Option<Duration>,
    requests: Vec<LoggedRequest>,
    new_names: Vec<(Duration, Vec<u8>)>,
    /// The last request of each thread that may go on, as a place in `requests`.
    last: HashMap<u32, usize>,
    recorded: Recorded,
}

impl Recorder {
    /// Turns lines into requests.
    fn take(&mut self, text: &str, mut find: impl FnMut(Identity) -> Option<(Vec<u8>, u64)>) {
        for line in text.lines() {
            if let Some(lost) = event::lost(line) {
                self.recorded.lost += lost;
            } else if let Some(event) = Event::parse(line) {
                self.add(event, &mut find);
            }
        }
    }

    fn add(&mut self, event: Event, find: &mut impl FnMut(Identity) -> Option<(Vec<u8>, u64)>) {
        let begun = *self.begun.get_or_insert(event.at);
        let at = event.at.saturating_sub(begun);
        let (file, is_new) = self.names.number(event.file, find);
        if is_new {
            self.new_names.push((at, self.names.name(file).to_vec()));
        }
        let (kind, offset, end) = match event.what {
            What::Read { from, to } => (RequestKind::Read, from, self.names.end_of_read(file, from, to)),
            What::Write { from, to } => {
                self.names.grows_to(file, to);
                (RequestKind::Write, from, to)
            }
            What::Sync => (RequestKind::Sync, 0, 0),
            What::DataSync => (RequestKind::DataSync, 0, 0),
        };
        if let Some(before) = self.last.get(&event.thread).and_then(|&at| self.requests.get_mut(at)) {
            let goes_on = before.kind == kind && before.file == file && before.offset < offset;
            if goes_on && before.offset + before.bytes == end {
                before.bytes = offset - before.offset;
            }
        }
        self.last.insert(event.thread, self.requests.len());
        let bytes = end - offset;
        self.requests.push(LoggedRequest {
            at,
            thread: event.thread,
            handle: None,
            file,
            offset,
            bytes,
            kind,
        });
    }

    /// Writes the requests that began `settled` before the last one, or earlier.
    fn flush(&mut self, log: &mut RequestLog, settled: Duration) -> Result<(), TraceError> {
        let newest = self.requests.iter().map(|request| request.at).max().unwrap_or_default();
        let is_young = |request: &LoggedRequest| request.at + settled > newest;
        let count = self.requests.iter().position(is_young).unwrap_or(self.requests.len());
        for (at, name) in self.new_names.drain(..) {
            log.name(at, &name);
        }
        let requests = &mut self.recorded.requests;
        for request in &self.requests[..count] {
            match request.kind {
                RequestKind::Read => {
                    requests.reads += 1;
                    requests.read_bytes += request.bytes;
                }
                RequestKind::Write => {
                    requests.writes += 1;
                    requests.written_bytes += request.bytes;
                }
                RequestKind::Sync | RequestKind::DataSync => requests.syncs += 1,
                // No tracepoint of these is asked for.
                RequestKind::Trim => {}
            }
        }
        log.write(&self.requests[..count])?;
        self.requests.drain(..count);
        self.last.retain(|_, at| {
            let is_open = *at >= count;
            *at = at.saturating_sub(count);
            is_open
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel printed it for `dd bs=300000`, `dd bs=5000 conv=fsync` and a map.
    const TEXT: &str = "\
              dd-7028    [000] ..... 54379.817371: mm_filemap_get_pages: dev=254:0 ino=6092d ofs=0-303103
            my ] d-9     [001] ..... 54379.817400: mm_filemap_fault: dev=254:0 ino=4f8cb ofs=212992
              dd-7028    [000] ..... 54379.817507: mm_filemap_get_pages: dev=254:0 ino=6092d ofs=131072-303103
              dd-7028    [000] ..... 54379.817665: mm_filemap_get_pages: dev=254:0 ino=6092d ofs=258048-303103
CPU:1 [LOST 12 EVENTS]
              dd-7030    [000] ..... 54379.825546: ext4_da_write_begin: dev 254,0 ino 395565 pos 5000 len 5000
              dd-7030    [000] ..... 54379.825551: ext4_da_write_begin: dev 254,0 ino 395565 pos 8192 len 1808
              dd-7030    [000] ..... 54379.825562: ext4_sync_file_enter: dev 254,0 ino 395565 parent 399722 datasync 1 
";

    #[test]
    fn events_of_one_request_do_not_overlap() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = RequestLog::create(&path).unwrap();
        let mut recorder = Recorder::default();
        // The file 395565 (6092d) has 300,000 bytes; the other is not open any more.
        let find = |(_, inode)| (inode == 395_565).then(|| (b"data/f".to_vec(), 300_000));
        // A request's events need not come together.
        for line in TEXT.lines() {
            recorder.take(line, find);
            recorder.flush(&mut log, Duration::from_millis(1)).unwrap();
        }
        recorder.flush(&mut log, Duration::ZERO).unwrap();
        log.finish().unwrap();
        let expected = "\
fio version 3 iolog
0 data/f add
0 data/f open
29 254:0:325835 add
29 254:0:325835 open
0 data/f read 0 131072 7028
29 254:0:325835 read 212992 4096 9
136 data/f read 131072 126976 7028
294 data/f read 258048 41952 7028
8175 data/f write 5000 3192 7030
8180 data/f write 8192 1808 7030
8191 data/f datasync 0 0 7030
";
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
        let mut requests = Requests::default();
        (requests.reads, requests.writes, requests.syncs) = (4, 2, 1);
        (requests.read_bytes, requests.written_bytes) = (304_096, 5000);
        assert_eq!(recorder.recorded, Recorded { requests, lost: 12, ended: false });
    }

    #[test]
    fn programs_are_a_number_or_a_directory() {
        assert_eq!("42".parse(), Ok(Programs::Process(42)));
        assert_eq!("/sys/fs/cgroup/a".parse(), Ok(Programs::Cgroup("/sys/fs/cgroup/a".into())));
        assert!("a".parse::<Programs>().unwrap_err().contains("neither a process's number"));
    }
}
