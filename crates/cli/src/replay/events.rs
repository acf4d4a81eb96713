//! `--events FILE`: every record of a replay, as JSON Lines or as a trace for a viewer.
//!
//! The other format is Chrome's trace events, which <https://ui.perfetto.dev> opens: one track per kind of event, on which each is
//! named by what came of it, a counter of cached pages, and the generations as slices.

use super::record::{Record, What, digits, number};
use crate::error::Failure;
use mglru_core::Time;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Records that are handed on together.
const BATCH_RECORDS: usize = 4096;
/// Batches that may wait to be written.
const BATCHES_AHEAD: usize = 16;
/// Bytes that are written together.
const BUFFER_BYTES: usize = 1 << 18;
/// Changes of the number of cached pages from one count to the next.
const CHANGES_PER_COUNT: u64 = 64;

/// Where to write events, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsFile {
    path: PathBuf,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    JsonLines,
    Viewer,
}

impl FromStr for EventsFile {
    type Err = String;

    fn from_str(text: &str) -> Result<EventsFile, String> {
        let path = PathBuf::from(text);
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl") => Format::JsonLines,
            Some("json" | "perfetto") => Format::Viewer,
            _ => {
                return Err("events are a file that ends in .jsonl (JSON Lines), or in .json or .perfetto \
                            (for ui.perfetto.dev)"
                    .to_owned());
            }
        };
        Ok(EventsFile { path, format })
    }
}

impl EventsFile {
    /// Where it is going to be.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Takes events and hands them on, some at a time, to a thread that writes them: making text takes as long as replaying.
pub struct EventsWriter {
    batch: Vec<Record>,
    full: SyncSender<Vec<Record>>,
    /// Batches that were written.
    empty: Receiver<Vec<Record>>,
    writing: JoinHandle<io::Result<()>>,
    path: PathBuf,
}

impl EventsWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(file: &EventsFile) -> Result<EventsWriter, Failure> {
        let output = File::create(&file.path).map_err(|error| failure(&file.path, &error))?;
        let (full, batches) = sync_channel::<Vec<Record>>(BATCHES_AHEAD);
        let (used, empty) = sync_channel(BATCHES_AHEAD + 1);
        let mut encoder = Encoder::new(file.format, output);
        let writing = std::thread::spawn(move || {
            for mut batch in batches {
                for record in &batch {
                    encoder.write(record)?;
                }
                batch.clear();
                // If there is no room, it is simply freed.
                let _ = used.try_send(batch);
            }
            encoder.finish()
        });
        Ok(EventsWriter {
            batch: Vec::with_capacity(BATCH_RECORDS),
            full,
            empty,
            writing,
            path: file.path.clone(),
        })
    }

    /// Writes one.
    #[inline]
    pub fn write(&mut self, record: &Record) {
        self.batch.push(*record);
        if self.batch.len() == BATCH_RECORDS {
            self.hand_on();
        }
    }

    #[cold]
    fn hand_on(&mut self) {
        let empty = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_RECORDS));
        // Whoever writes has failed, if it does not listen: it says so at the end.
        let _ = self.full.send(std::mem::replace(&mut self.batch, empty));
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.hand_on();
        drop(self.full);
        let written = self.writing.join().expect("writing does not panic");
        written.map_err(|error| failure(&self.path, &error))
    }
}

/// Makes text of records.
struct Encoder {
    format: Format,
    output: File,
    buffer: Vec<u8>,
    /// For the viewer: cached pages, and the number of changes of that.
    cached_pages: u64,
    changes: u64,
    /// The youngest generation, and when it was opened, in nanoseconds.
    generation: (u64, u64),
    /// When the last event was.
    last_nanos: u64,
    /// What follows the names of the events of each track.
    tracks: [Vec<u8>; What::NAMES.len()],
    /// Text of the last access and time: most events share theirs with the one before.
    beginning: Vec<u8>,
    beginning_of: Option<(u64, Time)>,
}

impl Encoder {
    fn new(format: Format, output: File) -> Encoder {
        let mut encoder = Encoder {
            format,
            output,
            buffer: Vec::with_capacity(BUFFER_BYTES + 1024),
            cached_pages: 0,
            changes: 0,
            generation: (3, 0),
            last_nanos: 0,
            tracks: std::array::from_fn(|track| {
                format!("\",\"ph\":\"i\",\"s\":\"t\",\"pid\":1,\"tid\":{},", track + 1).into_bytes()
            }),
            beginning: Vec::new(),
            beginning_of: None,
        };
        if format == Format::Viewer {
            encoder.name_tracks();
        }
        encoder
    }

    fn name_tracks(&mut self) {
        // Times are microseconds. Not with "displayTimeUnit": some versions of the viewer took them for what that says.
        let mut text = "{\"traceEvents\":[\n\
             {\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"mglru replay\"}}"
            .to_owned();
        for (track, name) in What::NAMES.iter().enumerate() {
            let tid = track + 1;
            text.push_str(&format!(
                ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"args\":{{\"name\":\"{name}\"}}}},\n\
                 {{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"args\":{{\"sort_index\":{tid}}}}}"
            ));
        }
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        match self.format {
            Format::JsonLines => self.write_line(record),
            Format::Viewer => self.write_viewer(record),
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.output.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn write_line(&mut self, record: &Record) {
        let at = (record.access, record.now);
        if self.beginning_of.replace(at) != Some(at) {
            self.beginning.clear();
            number(&mut self.beginning, "{\"access\":", record.access);
            number(&mut self.beginning, ",\"nanos\":", record.now.as_nanos());
            self.beginning.extend_from_slice(b",\"event\":\"");
        }
        let out = &mut self.buffer;
        out.extend_from_slice(&self.beginning);
        out.extend_from_slice(record.what.name().as_bytes());
        out.push(b'"');
        write_page(out, record);
        record.what.write_fields(out);
        out.extend_from_slice(b"}\n");
    }

    fn write_viewer(&mut self, record: &Record) {
        let nanos = record.now.as_nanos();
        self.last_nanos = nanos;
        let at = (record.access, record.now);
        if self.beginning_of.replace(at) != Some(at) {
            self.beginning.clear();
            microseconds(&mut self.beginning, "\"ts\":", nanos);
            number(&mut self.beginning, ",\"args\":{\"access\":", record.access);
        }
        let out = &mut self.buffer;
        out.extend_from_slice(b",\n{\"name\":\"");
        out.extend_from_slice(record.what.shown().as_bytes());
        out.extend_from_slice(&self.tracks[record.what.kind()]);
        out.extend_from_slice(&self.beginning);
        write_page(out, record);
        record.what.write_fields(out);
        out.extend_from_slice(b"}}");
        match record.what {
            What::Insert(_) => self.count(nanos, self.cached_pages + 1),
            What::Evict(_) => self.count(nanos, self.cached_pages.saturating_sub(1)),
            What::Age(seq) => {
                self.end_generation(nanos);
                self.generation = (seq, nanos);
            }
            _ => {}
        }
    }

    fn count(&mut self, nanos: u64, cached_pages: u64) {
        self.cached_pages = cached_pages;
        self.changes += 1;
        if self.changes.is_multiple_of(CHANGES_PER_COUNT) {
            let out = &mut self.buffer;
            out.extend_from_slice(b",\n{\"name\":\"cached\",\"ph\":\"C\",\"pid\":1");
            microseconds(out, ",\"ts\":", nanos);
            number(out, ",\"args\":{\"pages\":", cached_pages);
            out.extend_from_slice(b"}}");
        }
    }

    /// The slice of the youngest generation, which is not the youngest any more.
    fn end_generation(&mut self, nanos: u64) {
        let (seq, since) = self.generation;
        let out = &mut self.buffer;
        number(out, ",\n{\"name\":\"generation ", seq);
        number(out, "\",\"ph\":\"X\",\"pid\":1,\"tid\":", What::AGE as u64 + 1);
        microseconds(out, ",\"ts\":", since);
        microseconds(out, ",\"dur\":", nanos.saturating_sub(since));
        out.push(b'}');
    }

    fn finish(mut self) -> io::Result<()> {
        if self.format == Format::Viewer {
            self.end_generation(self.last_nanos);
            self.buffer.extend_from_slice(b"\n]}\n");
        }
        self.output.write_all(&self.buffer)
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::work(format_args!("{}: the events cannot be written: {error}", path.display()))
}

fn write_page(out: &mut Vec<u8>, record: &Record) {
    if let Some(page) = record.page {
        number(out, ",\"page\":", page.number);
        if page.anon {
            out.extend_from_slice(b",\"anon\":true");
        }
    }
}

/// Microseconds with three decimals.
fn microseconds(out: &mut Vec<u8>, name: &str, nanos: u64) {
    number(out, name, nanos / 1000);
    let rest = nanos % 1000;
    out.push(b'.');
    out.push(b'0' + (rest / 100) as u8);
    digits(out, rest / 10 % 10);
    digits(out, rest % 10);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_says_the_format() {
        let format = |name: &str| name.parse::<EventsFile>().map(|file| file.format);
        assert_eq!(format("a.jsonl"), Ok(Format::JsonLines));
        assert_eq!((format("a.json"), format("b.perfetto")), (Ok(Format::Viewer), Ok(Format::Viewer)));
        assert!(format("a.txt").unwrap_err().contains(".jsonl") && format("jsonl").is_err());
    }

    #[test]
    fn times_have_three_decimals() {
        let text = |nanos| {
            let mut out = Vec::new();
            microseconds(&mut out, "", nanos);
            String::from_utf8(out).unwrap()
        };
        assert_eq!([0, 7, 1_020, 123_456].map(text), ["0.000", "0.007", "1.020", "123.456"]);
    }
}
